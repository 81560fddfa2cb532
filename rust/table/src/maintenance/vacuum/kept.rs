//! Files that a vacuum keeps, by the places that their paths mean. Which these are [`Retention`] says.

use std::collections::HashMap;

use deltic_protocol::action::batch::{AddBatch, Origin};
use deltic_protocol::log::segment::LogFile;
use deltic_protocol::replay::paths::salted_hash;
use deltic_protocol::replay::retention::{Needed, Retention};
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};

use crate::checkpoint::read::AddColumns;
use crate::checkpoint_writer::young_tombstones;
use crate::error::{Error, Result};
use crate::history::commits;
use crate::log::LogSource;
use crate::snapshot::Snapshot;
use crate::vector_file::literal;
use deltic_store::{Storage, decode_path};

/// Files that stay, by the places that their paths mean: eight bytes for each, the same in every process. Where two paths
/// have one hash, a file stays that might go.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    salt: String,
    /// Hashes of places, by their first folder, in order.
    places: HashMap<String, Vec<u64>>,
    /// Hashes of their names, where a folder may be reached by several paths: on disks, and where a path is absolute.
    names: Vec<u64>,
}

impl Kept {
    /// What the versions within a retention need.
    pub(super) async fn of(snapshot: &Snapshot, retention: Retention, salt: String) -> Result<Self> {
        let mut kept = Self { salt, places: HashMap::new(), names: Vec::new() };
        let storage = &snapshot.storage().clone();
        let members = vec!["path", "deletionVector"];
        let columns = AddColumns { members, ..AddColumns::default() };
        let mut live = std::pin::pin!(snapshot.live_files(&columns).await?);
        while let Some(files) = live.try_next().await? {
            retention.files(&files, &mut |needed| kept.add(storage, needed))?;
        }
        let mut removed = std::pin::pin!(young_tombstones(snapshot, retention.tombstones_after_ms()).await?);
        while let Some(rows) = removed.try_next().await? {
            let files = AddBatch::new(Origin::Commit(snapshot.version()), rows)?;
            retention.files(&files, &mut |needed| kept.add(storage, needed))?;
        }
        kept.add_commits(snapshot, retention).await?;
        kept.places.values_mut().chain([&mut kept.names]).for_each(|hashes| {
            hashes.sort_unstable();
            hashes.dedup();
            hashes.shrink_to_fit();
        });
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
                retention.commit(version, (&batch.adds, &removes), cdc, &mut |needed| {
                    self.add(snapshot.storage(), needed)
                })?;
            }
        }
        Ok(())
    }

    fn add(&mut self, storage: &Storage, needed: Needed<'_>) -> Result<()> {
        match needed {
            Needed::Data(path) => self.add_literal(storage, &decode_path(path)?),
            Needed::Vectors(path) => self.add_literal(storage, &literal(path)?),
        }
        Ok(())
    }

    fn add_literal(&mut self, storage: &Storage, path: &str) {
        let below = storage.below_root(path);
        if storage.is_local() || below.is_none() || path.contains(':') {
            self.names.push(salted_hash(&self.salt, name(path)));
        }
        if let Some(place) = below {
            let hash = salted_hash(&self.salt, &place);
            match self.places.get_mut(first_folder(&place)) {
                Some(hashes) => hashes.push(hash),
                None => drop(self.places.insert(first_folder(&place).to_owned(), vec![hash])),
            }
        }
    }

    /// Whether a file below the root is one of them.
    pub(super) fn contains(&self, place: &str) -> bool {
        let has = |hashes: &Vec<u64>, path: &str| hashes.binary_search(&salted_hash(&self.salt, path)).is_ok();
        self.places.get(first_folder(place)).is_some_and(|hashes| has(hashes, place)) || has(&self.names, name(place))
    }

    /// Those that files in these folders of the root may be.
    pub(super) fn within(&self, folders: &[String]) -> Self {
        let of_folder = |folder: &String| self.places.get(folder).map(|hashes| (folder.clone(), hashes.clone()));
        let places = folders.iter().filter_map(of_folder).collect();
        Self { salt: self.salt.clone(), places, names: self.names.clone() }
    }

    /// How many of them a folder of the root has.
    pub(super) fn count_in(&self, folder: &str) -> usize {
        self.places.get(folder).map_or(0, Vec::len)
    }

    /// How many are known by their names.
    pub(super) fn names(&self) -> usize {
        self.names.len()
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

/// None is the root.
fn first_folder(place: &str) -> &str {
    place.split_once('/').map_or("", |(folder, _)| folder)
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
