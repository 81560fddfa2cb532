//! Logical files of a version, for membership only, and whether files are in the store.

use std::hash::Hash;

use arrow_array::Array;
use deltic_protocol::action::DeletionVectorDescriptor;
use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::replay::canonical_path;
use deltic_protocol::replay::paths::Fingerprints;
use futures::stream::{self, StreamExt, TryStreamExt};

use crate::checkpoint::read::AddColumns;
use crate::error::{Error, Result};
use crate::progress::{Progress, Unit};
use crate::snapshot::Snapshot;
use crate::vector_file::VectorFile;
use deltic_store::{Storage, decode_path};

/// Files that are looked for at once.
const CONCURRENT_LOOKS: usize = 64;

/// Missing files that an error names.
pub(super) const NAMED: usize = 10;

/// The live files of a version.
#[derive(Default)]
pub(super) struct LiveFiles {
    logical: Fingerprints,
    /// Data files and files of deletion vectors, decoded.
    stored: Fingerprints,
    /// Those that have row ids, with the first of them.
    numbered: Fingerprints,
}

impl LiveFiles {
    pub(super) async fn of(snapshot: &Snapshot) -> Result<Self> {
        let members = vec!["path", "deletionVector", "baseRowId"];
        let columns = AddColumns { members, ..AddColumns::default() };
        let mut files = Self::default();
        let mut live = std::pin::pin!(snapshot.live_files(&columns).await?);
        while let Some(adds) = live.try_next().await? {
            for row in 0..adds.len() {
                let (path, vector) = (adds.path().value(row), adds.deletion_vector(row)?);
                files.insert(path, vector.as_ref())?;
                if let Some(id) = first_row_id(&adds, row) {
                    remember(&mut files.numbered, (identity(path, vector.as_ref()), id));
                }
            }
        }
        Ok(files)
    }

    pub(super) fn insert(&mut self, path: &str, vector: Option<&DeletionVectorDescriptor>) -> Result<()> {
        remember(&mut self.logical, identity(path, vector));
        for stored in stored_files(path, vector)? {
            remember(&mut self.stored, stored.as_str());
        }
        Ok(())
    }

    /// The rows of files that are not among these.
    pub(super) fn others(&self, adds: &AddBatch) -> Result<Vec<usize>> {
        let mut others = Vec::new();
        for row in 0..adds.len() {
            let (path, vector) = (adds.path().value(row), adds.deletion_vector(row)?);
            if !self.has(path, vector.as_ref()) {
                others.push(row);
            }
        }
        Ok(others)
    }

    /// Whether a file is one of these.
    pub(super) fn has(&self, path: &str, vector: Option<&DeletionVectorDescriptor>) -> bool {
        self.logical.contains(&identity(path, vector))
    }

    /// The first file of these that has other row ids there than here.
    pub(super) fn numbered_otherwise<'b>(&self, adds: &'b AddBatch) -> Result<Option<&'b str>> {
        for row in 0..adds.len() {
            let (path, vector) = (adds.path().value(row), adds.deletion_vector(row)?);
            let Some(id) = first_row_id(adds, row) else { continue };
            if self.has(path, vector.as_ref()) && !self.numbered.contains(&(identity(path, vector.as_ref()), id)) {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// Whether a file in the store is of one of these.
    pub(super) fn has_stored(&self, literal: &str) -> bool {
        self.stored.contains(&literal)
    }
}

fn first_row_id(adds: &AddBatch, row: usize) -> Option<i64> {
    adds.int64("baseRowId").filter(|ids| ids.is_valid(row)).map(|ids| ids.value(row))
}

fn remember<T: Hash>(set: &mut Fingerprints, member: T) {
    set.insert(&member);
}

fn identity<'a>(
    path: &'a str,
    vector: Option<&DeletionVectorDescriptor>,
) -> (std::borrow::Cow<'a, str>, Option<String>) {
    (canonical_path(path), vector.map(DeletionVectorDescriptor::unique_id))
}

/// The files in the store that hold a logical file, as the store takes their paths.
pub(super) fn stored_files(path: &str, vector: Option<&DeletionVectorDescriptor>) -> Result<Vec<String>> {
    let place = |e: Error| e.in_file(path);
    let mut stored = vec![decode_path(path).map_err(place)?];
    let vector = vector.map(VectorFile::of).transpose().map_err(place)?.flatten();
    stored.extend(vector.map(|vector| vector.path));
    Ok(stored)
}

/// How many files are gone, and some of them by name.
pub(super) fn told_missing(count: usize, some: &[String]) -> String {
    let named: Vec<&str> = some.iter().take(NAMED).map(String::as_str).collect();
    let others = match count.saturating_sub(named.len()) {
        0 => String::new(),
        others => format!(" and {others} others"),
    };
    format!(
        "{count} of its files are not there any more, such as {}{others}, which a vacuum may have deleted",
        named.join(", ")
    )
}

/// Those of some files, as the store takes their paths, that it does not have. `operation`: who looks.
pub(super) async fn missing(storage: &Storage, paths: Vec<String>, operation: &str) -> Result<Vec<String>> {
    let look = |path: String| async move {
        match storage.head(&path).await {
            Ok(_) => Ok(None),
            Err(e) if e.is_not_found() => Ok(Some(path)),
            Err(e) => Err(e),
        }
    };
    let progress = Progress::begin(operation, Unit::Files, Some(paths.len() as u64));
    let looks = stream::iter(paths).map(look).buffered(CONCURRENT_LOOKS).inspect_ok(|_| progress.advance(1));
    looks.try_filter_map(|missing| std::future::ready(Ok(missing))).try_collect().await
}
