//! Symlink manifests: lists of the live files, for engines that read Parquet but not Delta.
//!
//! `_symlink_format_manifest/[column=value/…]manifest` has a line for each file of a partition, its absolute path, as
//! delta-spark's `GENERATE symlink_format_manifest` writes it. Each manifest is replaced atomically; readers of several may see
//! some of them replaced and others not. Manifests of partitions that no longer exist are deleted.
//!
//! Proved by `tests/python/test_manifests.py`, and by `tests/interop/test_manifests.py`, which compares with delta-spark.
//!
//! PROTOCOL.md: none; the layout is Hive's `SymlinkTextInputFormat`.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use deltic_protocol::commit::Conflict;
use deltic_protocol::schema::mapping::ColumnMapping;
use futures::TryStreamExt;
use serde::Serialize;

use crate::checkpoint::read::AddColumns;
use crate::error::{Error, Kind, Result};
use crate::parallel::run_to_end;
use crate::snapshot::Snapshot;
use crate::write::layout::hive_folder;
use deltic_store::{Stop, Storage, decode_path};

/// The folder of all manifests.
const FOLDER: &str = "_symlink_format_manifest";

/// The file name of each manifest.
const FILE: &str = "manifest";

/// Manifests that are written at once.
const CONCURRENT_PUTS: usize = 16;

/// How often manifests are written at most, if the table is changed each time meanwhile.
const MAX_ATTEMPTS: usize = 5;

/// The most bytes of a folder's name in a file system, and of a key in an object store.
const MAX_NAME_BYTES: usize = 255;
const MAX_KEY_BYTES: usize = 1024;

/// The manifests that were written, or would be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Manifests {
    /// The version whose files they list.
    pub version: u64,
    /// How many files they list.
    pub files: u64,
    /// Their paths below the table.
    pub written: Vec<String>,
    /// Paths of deleted manifests, of partitions that no longer exist.
    pub deleted: Vec<String>,
}

/// Writes the manifests of the newest version, which is this one or a later one. A dry run only returns what it would write.
///
/// If the table was changed meanwhile, they are written again: another process may have written newer ones, which these
/// replaced.
///
/// # Errors
/// `Unsupported` if files have deletion vectors, which readers of manifests would ignore, or column names other
/// than the table's, or paths that no manifest can have; `Conflict` if the table changes faster than they are written;
/// those of reading the log and of the store.
pub async fn write_manifests(snapshot: &Snapshot, dry_run: bool) -> Result<Manifests> {
    let in_table = |e: Error| e.in_table(snapshot.storage().location());
    let mut newest = snapshot.clone();
    for _ in 0..MAX_ATTEMPTS {
        let manifests = write_once(&newest, dry_run).await.map_err(in_table)?;
        if dry_run {
            return Ok(manifests);
        }
        newest = newest.refresh().await.map_err(in_table)?;
        if newest.version() == manifests.version {
            return Ok(manifests);
        }
    }
    let message = format!(
        "the manifests were written {MAX_ATTEMPTS} times, and each time the table was changed meanwhile, so that they may be \
         older than the table; write them again when there are fewer commits (`Table.write_manifests()`)"
    );
    Err(in_table(Error::new(Kind::Conflict(Conflict::ConcurrentAppend), message)))
}

async fn write_once(snapshot: &Snapshot, dry_run: bool) -> Result<Manifests> {
    let contents = contents(snapshot).await?;
    let files = contents.values().map(|lines| lines.len() as u64).sum();
    let mut manifests = Manifests { version: snapshot.version(), files, ..Manifests::default() };
    manifests.written.extend(contents.keys().cloned());
    let storage = snapshot.storage();
    manifests.written.iter().try_for_each(|path| check_length(storage, path))?;
    manifests.deleted = stale(storage, &manifests.written).await?;
    if !dry_run {
        let put = |(path, mut lines): (String, Vec<String>)| async move {
            lines.sort();
            let lines: String = lines.into_iter().flat_map(|line| [line, "\n".to_owned()]).collect();
            storage.put(&path, Bytes::from(lines)).await
        };
        if let (_, Some(error)) = run_to_end(contents.into_iter().map(put), CONCURRENT_PUTS, &Stop::default()).await {
            return Err(error);
        }
        for outcome in storage.delete_many(&manifests.deleted).await {
            outcome?;
        }
    }
    Ok(manifests)
}

/// Refuses paths that the store would refuse after some manifests are written.
fn check_length(storage: &Storage, path: &str) -> Result<()> {
    let is_too_long = match storage.is_local() {
        true => path.split('/').any(|name| name.len() > MAX_NAME_BYTES),
        // The key is the part after the bucket.
        false => storage.location().splitn(4, '/').nth(3).map_or(0, str::len) + 1 + path.len() > MAX_KEY_BYTES,
    };
    if is_too_long {
        let message = "manifests cannot be written: the partition's values are too long for the names of folders, and engines \
                       that read manifests find the values there; partition the table by shorter values";
        return Err(Error::unsupported("symlink manifests", message).in_file(path));
    }
    Ok(())
}

/// The line of a data file: its absolute path.
fn line_of(storage: &Storage, root: &str, path: &str) -> Result<String> {
    let place = decode_path(path)?;
    let line = match storage.below_root(&place) {
        Some(below) => format!("{root}/{below}"),
        // One that leads nowhere is an error, not a place elsewhere.
        None => storage.resolve_path(&place).map(|_| place)?,
    };
    if line.chars().any(char::is_control) {
        let message = "manifests cannot be written: a data file's path has a control character, which a line of a manifest \
                       cannot hold";
        return Err(Error::unsupported("symlink manifests", message));
    }
    Ok(line)
}

/// The lines of each manifest, by its path.
async fn contents(snapshot: &Snapshot) -> Result<BTreeMap<String, Vec<String>>> {
    let shape = snapshot.shape();
    if shape.mapping != ColumnMapping::None {
        let message = "manifests cannot be written for a table with column mapping (`delta.columnMapping.mode`): \
                       engines that read manifests would not find the columns by their names";
        return Err(Error::unsupported("columnMapping", message));
    }
    let mut contents: BTreeMap<String, Vec<String>> = BTreeMap::new();
    if shape.partition_columns.is_empty() {
        // An empty table has an empty manifest.
        contents.insert(format!("{FOLDER}/{FILE}"), Vec::new());
    }
    let root = root(snapshot.storage());
    let members = vec!["path", "partitionValues", "deletionVector"];
    let columns = AddColumns { members, ..AddColumns::default() };
    let mut live = std::pin::pin!(snapshot.live_files(&columns).await?);
    while let Some(adds) = live.try_next().await? {
        for row in 0..adds.len() {
            let path = adds.path().value(row);
            if adds.deletion_vector(row)?.is_some() {
                let message = "manifests cannot be written for a table with deletion vectors: engines that read \
                               manifests would see deleted rows; call `Table.purge()` first, and set \
                               `delta.enableDeletionVectors` to false";
                return Err(Error::unsupported("deletionVectors", message).in_file(path));
            }
            let values = adds.partition_values_at(row)?;
            let partition = shape.partition_columns.iter().map(|name| {
                (name.as_str(), values.get(name).and_then(Option::as_deref).filter(|value| !value.is_empty()))
            });
            let line = line_of(snapshot.storage(), &root, path).map_err(|e| e.in_file(path))?;
            contents.entry(format!("{FOLDER}/{}{FILE}", hive_folder(partition))).or_default().push(line);
        }
    }
    Ok(contents)
}

/// The table's location as a URI in Hadoop's form.
fn root(storage: &Storage) -> String {
    match (storage.is_local(), storage.location()) {
        (true, path) if path.starts_with('/') => format!("file:{path}"),
        (_, location) => location.to_owned(),
    }
}

/// Existing manifests that are not among these.
async fn stale(storage: &Storage, written: &[String]) -> Result<Vec<String>> {
    let written: BTreeSet<&str> = written.iter().map(String::as_str).collect();
    let is_stale = |path: &str| path.ends_with(&format!("/{FILE}")) && !written.contains(path);
    let mut listing = storage.list_recursive(FOLDER);
    let mut found = Vec::new();
    while let Some(file) = listing.try_next().await? {
        if is_stale(&file.path) {
            found.push(file.path);
        }
    }
    found.sort();
    Ok(found)
}
