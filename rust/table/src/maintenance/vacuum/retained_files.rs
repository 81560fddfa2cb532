//! Files that a vacuum retains, as hashes of their paths. [`Retention`] decides which these are.

use std::collections::HashMap;

use deltic_protocol::action::batch::{AddBatch, Origin};
use deltic_protocol::log::segment::LogFile;
use deltic_protocol::replay::paths::salted_hash;
use deltic_protocol::replay::retention::{KeptFile, Retention};
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};

use crate::checkpoint::read::AddColumns;
use crate::checkpoint_writer::young_tombstones;
use crate::error::{Error, Result};
use crate::history::commits;
use crate::snapshot::Snapshot;
use crate::vector_file::literal;
use deltic_store::{Storage, decode_path};

/// Files that are retained, as hashes of their paths: eight bytes for each file, and the same in every process. If two paths
/// have the same hash, a file may be retained that could be deleted.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RetainedFiles {
    salt: String,
    /// Sorted hashes of paths relative to the root, by their top-level directory.
    paths: HashMap<String, Vec<u64>>,
    /// Sorted hashes of file names, for files whose directory may have several paths: those on disks, and those with absolute
    /// paths.
    names: Vec<u64>,
}

impl RetainedFiles {
    /// Files that the versions within a retention need.
    pub(super) async fn of(snapshot: &Snapshot, retention: Retention, salt: String) -> Result<Self> {
        let mut retained = Self { salt, paths: HashMap::new(), names: Vec::new() };
        let storage = &snapshot.storage().clone();
        let members = vec!["path", "deletionVector"];
        let columns = AddColumns { members, ..AddColumns::default() };
        let mut live = std::pin::pin!(snapshot.live_files(&columns).await?);
        while let Some(files) = live.try_next().await? {
            retention.keep_files(&files, &mut |needed| retained.add(storage, needed))?;
        }
        let mut removed = std::pin::pin!(young_tombstones(snapshot, retention.tombstones_after_ms()).await?);
        while let Some(rows) = removed.try_next().await? {
            let files = AddBatch::new(Origin::Commit(snapshot.version()), rows)?;
            retention.keep_files(&files, &mut |needed| retained.add(storage, needed))?;
        }
        retained.add_commits(snapshot, retention).await?;
        retained.paths.values_mut().chain([&mut retained.names]).for_each(|hashes| {
            hashes.sort_unstable();
            hashes.dedup();
            hashes.shrink_to_fit();
        });
        Ok(retained)
    }

    /// Adds files that commits within the retention added or removed.
    async fn add_commits(&mut self, snapshot: &Snapshot, retention: Retention) -> Result<()> {
        let log = snapshot.log();
        let mut listed = commits(&log.list(retention.first_commit()).await?);
        if retention.current.is_some() {
            check_listing(&listed, retention)?;
        }
        let later = listed.split_off(listed.partition_point(|file| file.name.version() <= snapshot.version()));
        for files in [listed, later] {
            // Either all of these commits are newer than the snapshot, or none is.
            let Some(version) = files.first().map(|file| file.name.version()) else { continue };
            let mut read = std::pin::pin!(log.load_whole(files, HashMap::new()));
            while let Some(batch) = read.try_next().await? {
                let removes = AddBatch::new(batch.adds.origin, batch.remove_rows)?;
                let cdc = batch.commits.iter().flat_map(|commit| &commit.cdc);
                retention.keep_files_of_commit(version, &batch.adds, &removes, cdc, &mut |needed| {
                    self.add(snapshot.storage(), needed)
                })?;
            }
        }
        Ok(())
    }

    fn add(&mut self, storage: &Storage, needed: KeptFile<'_>) -> Result<()> {
        match needed {
            KeptFile::Data(path) => self.add_literal(storage, &decode_path(path)?),
            KeptFile::Vectors(path) => self.add_literal(storage, &literal(path)?),
        }
        Ok(())
    }

    fn add_literal(&mut self, storage: &Storage, path: &str) {
        let below = storage.below_root(path);
        if storage.is_local() || below.is_none() || path.contains(':') {
            self.names.push(salted_hash(&self.salt, name(path)));
        }
        if let Some(path) = below {
            let hash = salted_hash(&self.salt, &path);
            match self.paths.get_mut(top_level_directory(&path)) {
                Some(hashes) => hashes.push(hash),
                None => drop(self.paths.insert(top_level_directory(&path).to_owned(), vec![hash])),
            }
        }
    }

    /// Whether the file with this path relative to the root is retained.
    pub(super) fn contains(&self, path: &str) -> bool {
        let has = |hashes: &Vec<u64>, path: &str| hashes.binary_search(&salted_hash(&self.salt, path)).is_ok();
        self.paths.get(top_level_directory(path)).is_some_and(|hashes| has(hashes, path))
            || has(&self.names, name(path))
    }

    /// The hashes that files in these top-level directories may have.
    pub(super) fn within(&self, folders: &[String]) -> Self {
        let of_folder = |folder: &String| self.paths.get(folder).map(|hashes| (folder.clone(), hashes.clone()));
        let paths = folders.iter().filter_map(of_folder).collect();
        Self { salt: self.salt.clone(), paths, names: self.names.clone() }
    }

    /// Number of path hashes of a top-level directory.
    pub(super) fn count_in(&self, folder: &str) -> usize {
        self.paths.get(folder).map_or(0, Vec::len)
    }

    /// Number of hashes of file names.
    pub(super) fn names(&self) -> usize {
        self.names.len()
    }
}

/// Fails if the listing lacks a commit of the retention: the files that it removed would not be retained.
fn check_listing(listed: &[LogFile], retention: Retention) -> Result<()> {
    let mut expected = retention.first_commit();
    for file in listed {
        if file.name.version() == expected {
            expected = expected.saturating_add(1);
        }
    }
    if expected > retention.newest {
        return Ok(());
    }
    let message = "the listing of the log lacks this commit, which the retention needs; run the vacuum again";
    Err(Error::storage(true, message).at_version(expected))
}

/// The first directory of a path. Empty for a file directly in the root.
fn top_level_directory(path: &str) -> &str {
    path.split_once('/').map_or("", |(folder, _)| folder)
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
