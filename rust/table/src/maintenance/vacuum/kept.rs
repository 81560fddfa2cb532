//! Files that a vacuum keeps: those that a version within the retention names.
//!
//! These are the files of the newest version, those with young tombstones, and whatever a commit within the retention
//! removed or recorded, since tombstones have the time of the writer that made them, and checkpoints may lack them.

use std::collections::HashMap;
use std::hash::Hash;

use deltic_protocol::action::batch::{AddBatch, Origin};
use deltic_protocol::replay::paths::Fingerprints;
use futures::TryStreamExt;

use crate::checkpoint::read::AddColumns;
use crate::checkpoint_writer::young_tombstones;
use crate::error::Result;
use crate::history::commits;
use crate::log::LogSource;
use crate::snapshot::Snapshot;
use crate::vector_file::VectorFile;
use deltic_store::{Storage, decode_path};

/// Files that stay, by the places that their paths mean.
pub(super) struct Kept {
    storage: Storage,
    places: Fingerprints,
    /// Their names, where a folder may be reached by several paths: on disks, and where a path is absolute.
    names: Fingerprints,
}

impl Kept {
    /// What the versions that were current after `cutoff_ms` need; `cutoff_version` was current then.
    pub(super) async fn of(snapshot: &Snapshot, cutoff_ms: i64, cutoff_version: Option<u64>) -> Result<Self> {
        let storage = snapshot.storage().clone();
        let mut kept = Self { storage, places: Fingerprints::default(), names: Fingerprints::default() };
        let members = vec!["path", "deletionVector"];
        let columns = AddColumns { members, ..AddColumns::default() };
        let mut live = std::pin::pin!(snapshot.live_files(&columns).await?);
        while let Some(files) = live.try_next().await? {
            kept.add_all(&files)?;
        }
        // One that is as old as the cutoff was removed in the version that was current then.
        let mut removed = std::pin::pin!(young_tombstones(snapshot, cutoff_ms.saturating_sub(1)).await?);
        while let Some(rows) = removed.try_next().await? {
            kept.add_all(&AddBatch::new(Origin::Commit(snapshot.version()), rows)?)?;
        }
        kept.add_commits(snapshot, cutoff_version).await?;
        Ok(kept)
    }

    /// What commits after `cutoff_version` removed or recorded, and what those after the snapshot added.
    async fn add_commits(&mut self, snapshot: &Snapshot, cutoff_version: Option<u64>) -> Result<()> {
        let log = LogSource::of(snapshot.storage());
        let first = cutoff_version.map_or(0, |version| version.saturating_add(1));
        let mut seen = commits(&log.list(first).await?);
        let later = seen.split_off(seen.partition_point(|file| file.name.version() <= snapshot.version()));
        for (files, is_later) in [(seen, false), (later, true)] {
            let mut read = std::pin::pin!(log.load_whole(files, HashMap::new()));
            while let Some(batch) = read.try_next().await? {
                if is_later {
                    self.add_all(&batch.adds)?;
                }
                self.add_all(&AddBatch::new(batch.adds.origin, batch.remove_rows)?)?;
                for change in batch.commits.iter().flat_map(|commit| &commit.cdc) {
                    self.add(&change.path)?;
                }
            }
        }
        Ok(())
    }

    fn add_all(&mut self, files: &AddBatch) -> Result<()> {
        for row in 0..files.len() {
            let path = files.path().value(row);
            self.add(path).map_err(|e| e.in_file(path))?;
            if let Some(vector) = VectorFile::of_row(files, row)? {
                self.add_literal(&vector.path)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &str) -> Result<()> {
        self.add_literal(&decode_path(path)?)
    }

    fn add_literal(&mut self, path: &str) -> Result<()> {
        let below = self.storage.below_root(path);
        if self.storage.is_local() || below.is_none() || path.contains(':') {
            insert(&mut self.names, name(path));
        }
        if let Some(place) = below {
            insert(&mut self.places, place.as_str());
        }
        Ok(())
    }

    /// Whether a file below the root is one of them.
    pub(super) fn contains(&self, place: &str) -> bool {
        self.places.contains(&place) || self.names.contains(&name(place))
    }
}

fn insert(set: &mut Fingerprints, member: impl Hash) {
    set.insert(&member);
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
