//! Symlink manifests: lists of the live files, for engines that read Parquet and know no Delta.
//!
//! `_symlink_format_manifest/[column=value/…]manifest` has a line for each file of a partition, its absolute path, as
//! delta-spark's `GENERATE symlink_format_manifest` writes it. A manifest is replaced as a whole; readers of several see
//! some of them replaced before others. Manifests of partitions that are gone are deleted.
//!
//! Proved by `tests/python/test_manifests.py`, and beside delta-spark by `tests/interop/test_manifests.py`.
//!
//! PROTOCOL.md: none; the layout is Hive's `SymlinkTextInputFormat`.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use deltic_protocol::commit::Conflict;
use deltic_protocol::schema::mapping::ColumnMapping;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::Serialize;

use crate::checkpoint::read::AddColumns;
use crate::error::{Error, Kind, Result};
use crate::snapshot::Snapshot;
use crate::write::layout::hive_folder;
use deltic_store::{Storage, decode_path};

/// The folder of all manifests.
const FOLDER: &str = "_symlink_format_manifest";

/// The name of each.
const FILE: &str = "manifest";

/// Manifests that are written at once.
const CONCURRENT_PUTS: usize = 16;

/// Times that they are written because the table went on meanwhile, at most.
const MOST_ROUNDS: usize = 5;

/// Bytes of a folder's name in a file system, and of a key in an object store, at most.
const LONGEST_NAME: usize = 255;
const LONGEST_KEY: usize = 1024;

/// What was written, or would be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Manifests {
    /// The version whose files they list.
    pub version: u64,
    /// Files in them.
    pub files: u64,
    /// Their paths below the table.
    pub written: Vec<String>,
    /// Paths of those that were there of partitions that are gone.
    pub deleted: Vec<String>,
}

/// Writes the manifests of the newest version, at least of this one, or says which that would be.
///
/// The table may go on meanwhile, and who was faster may have written newer ones already: then they are written again.
///
/// # Errors
/// `Unsupported` if the table's files have deletion vectors, which who reads manifests does not see, or columns by other
/// names than the table, or names that no manifest can have; `Conflict` if the table goes on faster than they are written;
/// those of reading the log and of the store.
pub async fn write_manifests(snapshot: &Snapshot, dry_run: bool) -> Result<Manifests> {
    let in_table = |e: Error| e.in_table(snapshot.storage().location());
    let mut newest = snapshot.clone();
    for _ in 0..MOST_ROUNDS {
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
        "the manifests were written {MOST_ROUNDS} times, and each time the table had gone on meanwhile, so that they may be \
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
            let text: String = lines.into_iter().flat_map(|line| [line, "\n".to_owned()]).collect();
            storage.put(&path, Bytes::from(text)).await
        };
        stream::iter(contents).map(put).buffer_unordered(CONCURRENT_PUTS).try_collect::<()>().await?;
        for outcome in storage.delete_many(&manifests.deleted).await {
            outcome?;
        }
    }
    Ok(manifests)
}

/// Refuses what a store would refuse once some manifests are written.
fn check_length(storage: &Storage, path: &str) -> Result<()> {
    let is_too_long = match storage.is_local() {
        true => path.split('/').any(|name| name.len() > LONGEST_NAME),
        // The key is what follows the bucket.
        false => storage.location().splitn(4, '/').nth(3).map_or(0, str::len) + 1 + path.len() > LONGEST_KEY,
    };
    if is_too_long {
        let message = "manifests cannot be written: the partition's values are too long for the names of folders, and engines \
                       that read manifests find the values there; partition the table by shorter values";
        return Err(Error::unsupported("symlink manifests", message).in_file(path));
    }
    Ok(())
}

/// A data file as a line: its absolute path.
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
        let message = "manifests cannot be written of a table whose columns are mapped (`delta.columnMapping.mode`): who \
                       reads the files by them would not find the columns by their names";
        return Err(Error::unsupported("columnMapping", message));
    }
    let mut contents: BTreeMap<String, Vec<String>> = BTreeMap::new();
    if shape.partition_columns.is_empty() {
        // Of an empty table, an empty one.
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
                let message = "manifests cannot be written of a table with deletion vectors: who reads the files by them \
                               would see rows that are deleted; call `Table.purge()` first, and set \
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

/// The table's place as a URI, as Hadoop prints it.
fn root(storage: &Storage) -> String {
    match (storage.is_local(), storage.location()) {
        (true, path) if path.starts_with('/') => format!("file:{path}"),
        (_, location) => location.to_owned(),
    }
}

/// Manifests that are there and not among these.
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
