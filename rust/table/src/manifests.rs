//! Symlink manifests: lists of the live files, for engines that read Parquet but not Delta.
//!
//! `_symlink_format_manifest/[column=value/…]manifest` has a line for each file of a partition, its absolute path, as
//! delta-spark's `GENERATE symlink_format_manifest` writes it. Each manifest is replaced atomically; readers of several may see
//! some of them replaced and others not. Manifests of partitions that no longer exist are deleted.
//!
//! Invariant: who writes a manifest, or deletes it, reads the log afterwards, and writes again if the partition's files have
//! changed. So the last one to write has seen all commits, except those that write the manifest after it. One that gives up, since
//! the table changes each time, returns an error.
//!
//! Proved by `tests/python/test_manifests.py`, and by `tests/interop/test_manifests.py`, which compares with delta-spark.
//!
//! PROTOCOL.md: none; the layout is Hive's `SymlinkTextInputFormat`.

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::{Array, StringArray};
use bytes::Bytes;
use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::action::lines::file_action_of;
use deltic_protocol::action::{Action, Metadata, PartitionValues};
use deltic_protocol::commit::{Committed, Conflict};
use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::property::Properties;
use deltic_protocol::schema::PrimitiveType;
use deltic_protocol::schema::mapping::ColumnMapping;
use futures::TryStreamExt;
use serde::Serialize;

use crate::checkpoint::read::AddColumns;
use crate::error::{Error, Kind, Result};
use crate::file_index::PartitionColumn;
use crate::parallel::run_to_end;
use crate::scan::plan::files_in_partitions::{PartitionFiles, partition_files};
use crate::snapshot::Snapshot;
use crate::write::layout::{NULL_DIRECTORY, hive_folder};
use deltic_store::{Listed, Stop, Storage, decode_path};

/// The folder of all manifests.
const FOLDER: &str = "_symlink_format_manifest";

/// The file name of each manifest.
const FILE: &str = "manifest";

/// Manifests that are written at once.
const CONCURRENT_PUTS: usize = 16;

/// How often manifests are written at most, if the table is changed each time meanwhile.
const MAX_ATTEMPTS: usize = 20;

/// The files of more partitions than this are found among all live files: a filter with so many values would take longer.
const MAX_FILTERED_PARTITIONS: usize = 128;

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
/// If the table was changed meanwhile, those that differ now are written again: another process may have written newer ones,
/// which these replaced.
///
/// # Errors
/// `Unsupported` if files have deletion vectors, which readers of manifests would ignore, or column names other
/// than the table's, or paths that no manifest can have; `Conflict` if the table changes faster than they are written;
/// those of reading the log and of the store.
pub async fn write_manifests(snapshot: &Snapshot, dry_run: bool) -> Result<Manifests> {
    let written = match dry_run {
        true => plan(snapshot, &Scope::All).await.map(|plan| plan.manifests(snapshot.version())),
        false => write(snapshot, &Scope::All).await,
    };
    written.map_err(|e| e.in_table(snapshot.storage().location()))
}

/// Whether a table's manifests are kept up to date.
///
/// # Errors
/// `Invalid` for another value than true and false.
pub(crate) fn are_enabled(metadata: &Metadata) -> Result<bool> {
    Properties::of(metadata).is_true("delta.compatibility.symlinkFormatManifest.enabled")
}

/// Writes the manifests of the partitions that a commit touched, and deletes those of partitions that it emptied. `newest`: its
/// version or a later one. `before`: the metadata before the commit, if they are known.
///
/// All manifests are written if the commit turned manifests on or partitioned the table anew, or may have, since it has metadata
/// and those before are not known; if it removed a file without saying of which partition; and if there is no manifest yet.
///
/// # Errors
/// As [`write_manifests`]; deletion vectors and paths of other partitions are not seen.
pub(crate) async fn update_manifests(
    newest: &Snapshot,
    committed: &Committed,
    before: Option<&Metadata>,
) -> Result<()> {
    let touched = touched(committed, before)?;
    let scope = match touched {
        Some(partitions) if has_manifests(newest.storage()).await? => {
            Scope::Partitions { columns: committed.state.metadata.partition_columns.clone(), partitions }
        }
        _ => Scope::All,
    };
    write(newest, &scope).await.map(drop).map_err(|e| e.in_table(newest.storage().location()))
}

/// Which manifests are written.
#[derive(Debug)]
enum Scope {
    /// Those of all partitions. Any other is deleted.
    All,
    /// Those of these partitions of a table with these partition columns.
    Partitions { columns: Vec<String>, partitions: BTreeSet<PartitionValues> },
}

impl Scope {
    /// The partitions; `None` if all are meant, also because a later version has other partition columns.
    fn partitions(&self, shape: &TableShape) -> Option<&BTreeSet<PartitionValues>> {
        match self {
            Self::Partitions { columns, partitions } if *columns == shape.partition_columns => Some(partitions),
            Self::Partitions { .. } | Self::All => None,
        }
    }
}

/// The partitions whose files a commit added or removed. `None` if these may be any.
fn touched(committed: &Committed, before: Option<&Metadata>) -> Result<Option<BTreeSet<PartitionValues>>> {
    let columns = &committed.state.metadata.partition_columns;
    let had_such = |before: &Metadata| before.partition_columns == *columns && are_enabled(before).unwrap_or(false);
    if committed.actions.metadata.is_some() && !before.is_some_and(had_such) {
        return Ok(None);
    }
    let (mut partitions, mut is_known) = (BTreeSet::new(), true);
    committed.lines.each(|line| {
        match file_action_of(line)? {
            Some(Action::Add(add)) => drop(partitions.insert(add.partition_values)),
            Some(Action::Remove(remove)) => match remove.partition_values {
                Some(values) => drop(partitions.insert(values)),
                None => is_known = false,
            },
            _ => {}
        }
        Ok(())
    })?;
    Ok(is_known.then_some(partitions))
}

/// Whether there is any manifest, or a folder for one. Takes one LIST.
async fn has_manifests(storage: &Storage) -> Result<bool> {
    let mut listing = storage.list_folder(FOLDER);
    while let Some(entry) = listing.try_next().await? {
        let is_one = match entry {
            Listed::File(file) => is_manifest(&file.path),
            Listed::Folder(_) => true,
        };
        if is_one {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_manifest(path: &str) -> bool {
    path.strip_suffix(FILE).is_some_and(|folder| folder.ends_with('/'))
}

/// Writes manifests until they are those of the newest version.
async fn write(snapshot: &Snapshot, scope: &Scope) -> Result<Manifests> {
    let mut newest = snapshot.clone();
    let (mut put, mut deleted) = (BTreeMap::new(), BTreeSet::new());
    for _ in 0..MAX_ATTEMPTS {
        let mut plan = plan(&newest, scope).await?;
        if matches!(scope, Scope::Partitions { .. }) {
            plan.stale.retain(|path| !deleted.contains(path));
        }
        let is_changed = plan.apply(newest.storage(), &put).await?;
        deleted.extend(plan.stale.iter().cloned());
        deleted.retain(|path| !plan.contents.contains_key(path));
        let version = newest.version();
        newest = newest.refresh().await?;
        if newest.version() == version || !is_changed {
            return Ok(Manifests { deleted: deleted.into_iter().collect(), ..plan.manifests(version) });
        }
        put = plan.contents;
    }
    let message = format!(
        "the manifests were written {MAX_ATTEMPTS} times, and each time the table was changed meanwhile, so that they may be \
         older than the table; write them again when there are fewer commits (`Table.write_manifests()`)"
    );
    Err(Error::new(Kind::Conflict(Conflict::ConcurrentAppend), message))
}

/// The manifests of one version.
#[derive(Debug, Default)]
struct Plan {
    /// How many files they list.
    files: u64,
    /// Their contents by path.
    contents: BTreeMap<String, Bytes>,
    /// Paths of manifests that must not exist.
    stale: Vec<String>,
}

impl Plan {
    fn manifests(&self, version: u64) -> Manifests {
        let written = self.contents.keys().cloned().collect();
        Manifests { version, files: self.files, written, deleted: self.stale.clone() }
    }

    /// Writes the manifests, except those that were `put` like this before, and deletes the stale ones. Returns whether there was
    /// anything to do.
    async fn apply(&self, storage: &Storage, put: &BTreeMap<String, Bytes>) -> Result<bool> {
        let mut differing = Vec::new();
        for (path, lines) in &self.contents {
            if put.get(path) != Some(lines) {
                differing.push((path.clone(), lines.clone()));
            }
        }
        let is_changed = !differing.is_empty() || !self.stale.is_empty();
        let puts = differing.into_iter().map(|(path, lines)| async move { storage.put(&path, lines).await });
        if let (_, Some(error)) = run_to_end(puts, CONCURRENT_PUTS, &Stop::default()).await {
            return Err(error);
        }
        for outcome in storage.delete_many(&self.stale).await {
            outcome?;
        }
        Ok(is_changed)
    }
}

async fn plan(snapshot: &Snapshot, scope: &Scope) -> Result<Plan> {
    let (storage, shape) = (snapshot.storage(), snapshot.shape());
    let partitions = scope.partitions(shape);
    let lines = lines(snapshot, partitions).await?;
    let files = lines.values().map(|lines| lines.len() as u64).sum();
    let contents: BTreeMap<_, _> = lines.into_iter().map(|(path, lines)| (path, text(lines))).collect();
    contents.keys().try_for_each(|path| check_length(storage, path))?;
    let stale = match partitions {
        Some(partitions) => {
            let paths = partitions.iter().map(|values| path_of(shape, values));
            paths.filter(|path| !contents.contains_key(path)).collect::<BTreeSet<_>>().into_iter().collect()
        }
        None => stale(storage, &contents).await?,
    };
    Ok(Plan { files, contents, stale })
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

/// The manifest of the partition with these values, in the order of the partition columns.
fn manifest<'a>(shape: &'a TableShape, values: impl Iterator<Item = Option<&'a str>>) -> String {
    let names = shape.partition_columns.iter().map(String::as_str);
    let partition = names.zip(values.map(|value| value.filter(|value| !value.is_empty())));
    format!("{FOLDER}/{}{FILE}", hive_folder(partition))
}

/// As [`manifest`], of values by the names of their columns.
fn path_of(shape: &TableShape, values: &PartitionValues) -> String {
    manifest(shape, shape.partition_columns.iter().map(|name| values.get(name).and_then(Option::as_deref)))
}

/// Whether other partitions may have the manifests of these: NULL has the folder of the string `NULL_DIRECTORY`.
fn share_manifests(shape: &TableShape, partitions: &BTreeSet<PartitionValues>) -> Result<bool> {
    for name in &shape.partition_columns {
        let holds_any_text =
            matches!(PartitionColumn::of(shape, name)?.leaf.data_type, PrimitiveType::String | PrimitiveType::Binary);
        let mut values = partitions.iter().map(|values| values.get(name).and_then(Option::as_deref));
        if holds_any_text && values.any(|value| matches!(value, None | Some("" | NULL_DIRECTORY))) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn text(mut lines: Vec<String>) -> Bytes {
    lines.sort();
    lines.into_iter().flat_map(|line| [line, "\n".to_owned()]).collect::<String>().into()
}

/// The lines of each manifest, by its path: of these partitions, or of all.
async fn lines(
    snapshot: &Snapshot,
    partitions: Option<&BTreeSet<PartitionValues>>,
) -> Result<BTreeMap<String, Vec<String>>> {
    let shape = snapshot.shape();
    if shape.mapping != ColumnMapping::None {
        let message = "manifests cannot be written for a table with column mapping (`delta.columnMapping.mode`): \
                       engines that read manifests would not find the columns by their names";
        return Err(Error::unsupported("columnMapping", message));
    }
    let root = root(snapshot.storage());
    let mut lines = Lines { snapshot, root, wanted: None, by_path: BTreeMap::new() };
    if shape.partition_columns.is_empty() && partitions.is_none_or(|partitions| !partitions.is_empty()) {
        // An empty table has an empty manifest.
        lines.by_path.insert(path_of(shape, &PartitionValues::new()), Vec::new());
    }
    lines.wanted = partitions.map(|partitions| partitions.iter().map(|values| path_of(shape, values)).collect());
    match partitions {
        Some(partitions) if partitions.is_empty() => {}
        Some(partitions) if partitions.len() <= MAX_FILTERED_PARTITIONS && !share_manifests(shape, partitions)? => {
            for files in partition_files(snapshot, partitions).await? {
                match files {
                    PartitionFiles::Adds(adds) => lines.add_all(&adds)?,
                    PartitionFiles::Columns(paths, values) => lines.add_columns(&paths, &values)?,
                }
            }
        }
        Some(_) | None => {
            let members = vec!["path", "partitionValues", "deletionVector"];
            let columns = AddColumns { members, ..AddColumns::default() };
            let mut live = std::pin::pin!(snapshot.live_files(&columns).await?);
            while let Some(adds) = live.try_next().await? {
                lines.add_all(&adds)?;
            }
        }
    }
    Ok(lines.by_path)
}

/// The lines of manifests, while they are collected.
struct Lines<'a> {
    snapshot: &'a Snapshot,
    root: String,
    /// The manifests that are wanted; all if `None`.
    wanted: Option<BTreeSet<String>>,
    by_path: BTreeMap<String, Vec<String>>,
}

impl Lines<'_> {
    fn add_all(&mut self, adds: &AddBatch) -> Result<()> {
        for row in 0..adds.len() {
            let manifest = path_of(self.snapshot.shape(), &adds.partition_values_at(row)?);
            if !self.is_wanted(&manifest) {
                continue;
            }
            let path = adds.path().value(row);
            if adds.deletion_vector(row)?.is_some() {
                let message = "manifests cannot be written for a table with deletion vectors: engines that read \
                               manifests would see deleted rows; call `Table.purge()` first, and set \
                               `delta.enableDeletionVectors` to false";
                return Err(Error::unsupported("deletionVectors", message).in_file(path));
            }
            self.add(manifest, path)?;
        }
        Ok(())
    }

    /// As [`Lines::add_all`], of files without deletion vectors. `values`: by the table's partition columns.
    fn add_columns(&mut self, paths: &StringArray, values: &[StringArray]) -> Result<()> {
        for (row, path) in paths.iter().enumerate() {
            let values = values.iter().map(|column| column.is_valid(row).then(|| column.value(row)));
            let manifest = manifest(self.snapshot.shape(), values);
            if self.is_wanted(&manifest) {
                self.add(manifest, path.unwrap_or_default())?;
            }
        }
        Ok(())
    }

    fn is_wanted(&self, manifest: &str) -> bool {
        self.wanted.as_ref().is_none_or(|wanted| wanted.contains(manifest))
    }

    fn add(&mut self, manifest: String, path: &str) -> Result<()> {
        let line = line_of(self.snapshot.storage(), &self.root, path).map_err(|e| e.in_file(path))?;
        self.by_path.entry(manifest).or_default().push(line);
        Ok(())
    }
}

/// The table's location as a URI in Hadoop's form.
fn root(storage: &Storage) -> String {
    match (storage.is_local(), storage.location()) {
        (true, path) if path.starts_with('/') => format!("file:{path}"),
        (_, location) => location.to_owned(),
    }
}

/// Existing manifests that are not among these.
async fn stale(storage: &Storage, contents: &BTreeMap<String, Bytes>) -> Result<Vec<String>> {
    let mut listing = storage.list_recursive(FOLDER);
    let mut found = Vec::new();
    while let Some(file) = listing.try_next().await? {
        if is_manifest(&file.path) && !contents.contains_key(&file.path) {
            found.push(file.path);
        }
    }
    found.sort();
    Ok(found)
}
