//! Files that a vacuum keeps, by the places that their paths mean. Which these are [`Retention`] says.

use std::collections::HashMap;
use std::hash::Hash;

use deltic_protocol::action::batch::{AddBatch, Origin};
use deltic_protocol::log::segment::LogFile;
use deltic_protocol::replay::paths::Fingerprints;
use deltic_protocol::replay::retention::{Needed, Retention};
use futures::TryStreamExt;

use crate::checkpoint::read::AddColumns;
use crate::checkpoint_writer::young_tombstones;
use crate::error::{Error, Result};
use crate::history::commits;
use crate::log::LogSource;
use crate::snapshot::Snapshot;
use crate::vector_file::literal;
use deltic_store::{Storage, decode_path};

/// Files that stay, by the places that their paths mean.
pub(super) struct Kept {
    storage: Storage,
    places: Fingerprints,
    /// Their names, where a folder may be reached by several paths: on disks, and where a path is absolute.
    names: Fingerprints,
}

impl Kept {
    /// What the versions within a retention need.
    pub(super) async fn of(snapshot: &Snapshot, retention: Retention) -> Result<Self> {
        let storage = snapshot.storage().clone();
        let mut kept = Self { storage, places: Fingerprints::default(), names: Fingerprints::default() };
        let members = vec!["path", "deletionVector"];
        let columns = AddColumns { members, ..AddColumns::default() };
        let mut live = std::pin::pin!(snapshot.live_files(&columns).await?);
        while let Some(files) = live.try_next().await? {
            retention.files(&files, &mut |needed| kept.add(needed))?;
        }
        let mut removed = std::pin::pin!(young_tombstones(snapshot, retention.tombstones_after_ms()).await?);
        while let Some(rows) = removed.try_next().await? {
            let files = AddBatch::new(Origin::Commit(snapshot.version()), rows)?;
            retention.files(&files, &mut |needed| kept.add(needed))?;
        }
        kept.add_commits(snapshot, retention).await?;
        Ok(kept)
    }

    /// What commits within the retention did.
    async fn add_commits(&mut self, snapshot: &Snapshot, retention: Retention) -> Result<()> {
        let log = LogSource::of(snapshot.storage());
        let mut seen = commits(&log.list(retention.first_commit()).await?);
        if retention.current.is_some() {
            listing_is_whole(&seen, retention)?;
        }
        let later = seen.split_off(seen.partition_point(|file| file.name.version() <= snapshot.version()));
        for files in [seen, later] {
            // All of them are later than the snapshot, or none.
            let Some(version) = files.first().map(|file| file.name.version()) else { continue };
            let mut read = std::pin::pin!(log.load_whole(files, HashMap::new()));
            while let Some(batch) = read.try_next().await? {
                let removes = AddBatch::new(batch.adds.origin, batch.remove_rows)?;
                let cdc = batch.commits.iter().flat_map(|commit| &commit.cdc);
                retention.commit(version, (&batch.adds, &removes), cdc, &mut |needed| self.add(needed))?;
            }
        }
        Ok(())
    }

    fn add(&mut self, needed: Needed<'_>) -> Result<()> {
        match needed {
            Needed::Data(path) => self.add_literal(&decode_path(path)?),
            Needed::Vectors(path) => self.add_literal(&literal(path)?),
        }
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

/// Fails for a listing that lacks commits which are there: what they removed would not be kept.
fn listing_is_whole(listed: &[LogFile], retention: Retention) -> Result<()> {
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

fn insert(set: &mut Fingerprints, member: impl Hash) {
    set.insert(&member);
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
