//! Files that a vacuum examines: all below the table, or those that commits removed. [`inventory`](super::inventory) has the
//! third kind.

use std::collections::HashMap;

use arrow_array::Array;
use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::action::json::CommitBatch;
use deltic_protocol::log::name::LOG_DIR;
use deltic_protocol::replay::paths::Fingerprints;
use futures::future::ready;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};

use super::last_vacuum_info;
use crate::error::{Error, Result};
use crate::history::commits;
use crate::snapshot::Snapshot;
use crate::vector_file::VectorFile;
use deltic_store::{FileMeta, Storage, decode_path};

/// The directory of change files. Its name begins with `_`, but it is not hidden.
const CHANGES_DIR: &str = "_change_data";

/// A stream of files.
pub(super) type Listing = BoxStream<'static, Result<FileMeta>>;

/// All files below the table.
pub(super) fn listed(storage: &Storage) -> Listing {
    storage.list_in_ranges("")
}

/// Each file once: several `remove` actions may name the same file of deletion vectors.
fn distinct(files: Listing) -> Listing {
    let mut seen = Fingerprints::default();
    files.try_filter(move |file| ready(seen.insert(&file.path))).boxed()
}

/// Files that commits up to a version removed, and their change files, from the first version that no vacuum has handled.
///
/// # Errors
/// `Invalid` if the log no longer has all of these commits.
pub(super) async fn removed(snapshot: &Snapshot, until: Option<u64>) -> Result<Listing> {
    let log = snapshot.log();
    let Some(until) = until else { return Ok(stream::empty().boxed()) };
    let handled = last_vacuum_info::read(log).await?.filter(|version| *version <= snapshot.version());
    let first = handled.map_or(0, |version| version.saturating_add(1));
    if first > until {
        return Ok(stream::empty().boxed());
    }
    let mut files = commits(&log.list(first).await?);
    files.retain(|file| file.name.version() <= until);
    let expected = until.saturating_sub(first).saturating_add(1);
    if files.len() as u64 != expected {
        return Err(Error::invalid(format!(
            "the log no longer has all commits from version {first} to {until}, so that it does not say which files they \
             removed; run a full vacuum once"
        )));
    }
    let storage = log.storage().clone();
    let removed_files = move |batch: CommitBatch| {
        ready(removed_by(&storage, batch).map(|files| stream::iter(files.into_iter().map(Ok))))
    };
    Ok(distinct(log.load_whole(files, HashMap::new()).and_then(removed_files).try_flatten().boxed()))
}

/// Files below the table that commits removed, and their change files. Their modification time is unknown, but earlier than
/// the commit.
fn removed_by(storage: &Storage, batch: CommitBatch) -> Result<Vec<FileMeta>> {
    let removes = AddBatch::new(batch.adds.origin, batch.remove_rows)?;
    let mut files = Vec::with_capacity(removes.len());
    let mut push = |path: String, size: i64| {
        // Files outside the table belong to another table.
        let below = storage.below_root(&path);
        let size = u64::try_from(size).unwrap_or_default();
        files.extend(below.map(|path| FileMeta { path, size, modified_ms: i64::MIN }));
    };
    for row in 0..removes.len() {
        let size = removes.size().filter(|sizes| sizes.is_valid(row)).map_or(0, |sizes| sizes.value(row));
        push(decode_path(removes.path().value(row))?, size);
        if let Some(vector) = VectorFile::of_row(&removes, row)? {
            push(vector.path, 0);
        }
    }
    for change in batch.commits.iter().flat_map(|commit| &commit.cdc) {
        push(decode_path(&change.path)?, change.size);
    }
    Ok(files)
}

/// Partition columns, by logical and physical name.
pub(super) fn partitions(snapshot: &Snapshot) -> Vec<String> {
    let shape = snapshot.shape();
    let mut partitions = shape.partition_columns.clone();
    for field in shape.schema.fields.iter().filter(|field| shape.partition_columns.contains(&field.name)) {
        partitions.extend(shape.mapping.physical_name(field).map(str::to_owned));
    }
    partitions
}

/// The directories of a table: which of them may hold data, and which the vacuum has visited.
pub(super) struct Folders {
    partitions: Vec<String>,
    visited: Fingerprints,
}

impl Folders {
    /// `partitions`: columns whose directories may begin with `_` or `.`, as hidden ones do.
    pub(super) fn with(partitions: Vec<String>) -> Self {
        Self { partitions, visited: Fingerprints::default() }
    }

    /// Whether the path may be that of a data file: neither its name nor any of its directories is hidden.
    ///
    /// PROTOCOL.md: "Delta Table Specification".
    pub(super) fn may_hold_data(&self, path: &str) -> bool {
        let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
        !is_hidden(file) && self.may_have_data_files(folder)
    }

    fn may_have_data_files(&self, folder: &str) -> bool {
        let mut names = folder.split('/').enumerate();
        names.all(|(depth, name)| !is_hidden(name) || (depth == 0 && name == CHANGES_DIR) || self.is_partition(name))
    }

    /// Whether the directory belongs to the table itself: one of a partition, or that of change files.
    pub(super) fn is_of_the_table(&self, folder: &str) -> bool {
        folder == CHANGES_DIR || self.is_partition(folder.rsplit('/').next().unwrap_or(folder))
    }

    fn is_partition(&self, name: &str) -> bool {
        let Some((column, _)) = name.split_once('=') else { return false };
        // Spark's own writer escapes names that deltic has escaped already.
        let column = decode_path(column).unwrap_or_default();
        self.partitions.contains(&column) || decode_path(&column).is_ok_and(|column| self.partitions.contains(&column))
    }

    /// The directory of a file, if it may hold data and is visited for the first time.
    pub(super) fn enter(&mut self, path: &str) -> Option<String> {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        if !self.visited.insert(&folder) {
            return None;
        }
        let is_log = folder == LOG_DIR || folder.starts_with("_delta_log/");
        (!is_log && self.may_have_data_files(folder)).then(|| folder.to_owned())
    }
}

fn is_hidden(name: &str) -> bool {
    name.starts_with(['_', '.'])
}
