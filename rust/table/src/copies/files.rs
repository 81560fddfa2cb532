//! Which files are live in a version, by fingerprints, and which files the store has.

use deltic_protocol::action::DeletionVectorDescriptor;
use deltic_protocol::replay::logical::LogicalFiles;
use deltic_protocol::replay::paths::Fingerprints;
use futures::stream::{self, StreamExt, TryStreamExt};

use crate::checkpoint::read::AddColumns;
use crate::error::{Error, Result};
use crate::progress::{Progress, Unit};
use crate::snapshot::Snapshot;
use crate::vector_file::VectorFile;
use deltic_store::{Storage, decode_path};

/// How many files the store is asked for at once.
const CONCURRENT_HEADS: usize = 64;

/// How many missing files an error names.
pub(super) const MAX_NAMED_FILES: usize = 10;

/// The live files of a version.
#[derive(Default)]
pub(super) struct LiveFiles {
    logical: LogicalFiles,
    /// Data files and files of deletion vectors, decoded.
    stored: Fingerprints,
}

impl LiveFiles {
    pub(super) async fn of(snapshot: &Snapshot) -> Result<Self> {
        let members = vec!["path", "deletionVector", "baseRowId"];
        let columns = AddColumns { members, ..AddColumns::default() };
        let mut files = Self::default();
        let mut live = std::pin::pin!(snapshot.live_files(&columns).await?);
        while let Some(adds) = live.try_next().await? {
            files.logical.extend(&adds)?;
            for row in 0..adds.len() {
                files.store(adds.path().value(row), adds.deletion_vector(row)?.as_ref())?;
            }
        }
        Ok(files)
    }

    pub(super) fn insert(&mut self, path: &str, vector: Option<&DeletionVectorDescriptor>) -> Result<()> {
        self.logical.insert(path, vector);
        self.store(path, vector)
    }

    fn store(&mut self, path: &str, vector: Option<&DeletionVectorDescriptor>) -> Result<()> {
        for stored in stored_files(path, vector)? {
            self.stored.insert(&stored.as_str());
        }
        Ok(())
    }

    /// The logical files: a path with the id of a deletion vector.
    pub(super) fn logical(&self) -> &LogicalFiles {
        &self.logical
    }

    /// Whether a file in the store is a data file or a deletion vector of these.
    pub(super) fn has_stored(&self, literal: &str) -> bool {
        self.stored.contains(&literal)
    }
}

/// The files that a logical file consists of, by the paths that the store takes.
pub(super) fn stored_files(path: &str, vector: Option<&DeletionVectorDescriptor>) -> Result<Vec<String>> {
    let in_file = |e: Error| e.in_file(path);
    let mut stored = vec![decode_path(path).map_err(in_file)?];
    let vector = vector.map(VectorFile::of).transpose().map_err(in_file)?.flatten();
    stored.extend(vector.map(|vector| vector.path));
    Ok(stored)
}

/// The words of an error: how many files are missing, and the names of some.
pub(super) fn describe_missing(count: usize, some: &[String]) -> String {
    let named: Vec<&str> = some.iter().take(MAX_NAMED_FILES).map(String::as_str).collect();
    let others = match count.saturating_sub(named.len()) {
        0 => String::new(),
        others => format!(" and {others} others"),
    };
    format!(
        "{count} of its files do not exist any more, such as {}{others}, which a vacuum may have deleted",
        named.join(", ")
    )
}

/// Those of `paths` that the store does not have. `operation`: the name of the operation, for progress reports.
pub(super) async fn missing(storage: &Storage, paths: Vec<String>, operation: &str) -> Result<Vec<String>> {
    let look = |path: String| async move {
        match storage.head(&path).await {
            Ok(_) => Ok(None),
            Err(e) if e.is_not_found() => Ok(Some(path)),
            Err(e) => Err(e),
        }
    };
    let progress = Progress::begin(operation, Unit::Files, Some(paths.len() as u64));
    let looks = stream::iter(paths).map(look).buffered(CONCURRENT_HEADS).inspect_ok(|_| progress.advance(1));
    looks.try_filter_map(|missing| std::future::ready(Ok(missing))).try_collect().await
}
