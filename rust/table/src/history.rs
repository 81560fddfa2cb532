//! The past of a table: what each commit says of itself, and which version was current at a time.
//!
//! A commit's time is its in-commit timestamp where it has one, else the modification time of its file, made monotone:
//! never earlier than one millisecond after the commit before it. What the writer's clock said is not used, so the
//! times of the history are those by which versions are found (`history::every_time_finds_its_version`).
//!
//! PROTOCOL.md: "In-Commit Timestamps", "Commit Provenance Information".

use bytes::Bytes;
use deltic_protocol::action::json::Wanted;
use deltic_protocol::log::name::LogName;
use deltic_protocol::log::segment::{LogFile, Segment};
use deltic_protocol::property::{InCommitTimestamps, Properties};
use futures::TryStreamExt;
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::log_reader;
use crate::snapshot::Snapshot;
use crate::storage::Storage;

/// One commit of the history: the members of its commit info, and `version` and `timestamp` (ms).
pub type Entry = Map<String, Value>;

/// The commits still in the log, newest first, at most `limit`.
pub async fn history(storage: &Storage, limit: Option<usize>) -> Result<Vec<Entry>> {
    let place = |e: Error| e.in_table(storage.location());
    let commits = commits(&log_reader::list(storage, 0).await.map_err(place)?);
    if commits.is_empty() {
        // No commit is left (or was ever there): opening the table tells which.
        Snapshot::open(storage, None).await?;
    }
    let times = monotone(&commits);
    let newest = commits.into_iter().rev().take(limit.unwrap_or(usize::MAX)).collect();
    let fetched: Vec<(LogFile, Bytes)> = log_reader::fetch(storage, newest).try_collect().await.map_err(place)?;
    let entry = |((file, bytes), modified): (&(LogFile, Bytes), &i64)| {
        let info = log_reader::parse(file, bytes, Wanted::NoFiles).map_err(place)?.commit_info.unwrap_or_default();
        let time = info.in_commit_timestamp().unwrap_or(*modified);
        let mut entry = info.0;
        entry.insert("version".to_owned(), Value::from(file.name.version()));
        entry.insert("timestamp".to_owned(), Value::from(time));
        Ok(entry)
    };
    fetched.iter().zip(times.iter().rev()).map(entry).collect()
}

/// The newest version that was committed at or before `time_ms`.
///
/// # Errors
/// `NotFound` if the time is before the oldest version that can still be read or after the newest commit.
pub async fn version_at(storage: &Storage, time_ms: i64) -> Result<u64> {
    let timeline = Timeline::load(storage).await?;
    timeline.version_at(time_ms).await.map_err(|e| e.in_table(storage.location()))
}

/// When the versions that can be read were committed.
#[derive(Debug)]
pub(crate) struct Timeline {
    storage: Storage,
    /// With the times of their files, ascending.
    commits: Vec<(LogFile, i64)>,
    /// How many commits, at the front, have no time of their own.
    without_own: usize,
    /// First time of those that have one, if some have not.
    enabled_ms: Option<i64>,
}

impl Timeline {
    /// Reads no commit yet.
    pub(crate) async fn load(storage: &Storage) -> Result<Self> {
        let place = |e: Error| e.in_table(storage.location());
        let latest = Snapshot::open(storage, None).await?;
        let own_times = Properties::of(latest.metadata()).in_commit_timestamps().map_err(place)?;
        Ok(Self::new(storage, &log_reader::list(storage, 0).await.map_err(place)?, own_times))
    }

    fn new(storage: &Storage, listing: &[LogFile], own_times: Option<InCommitTimestamps>) -> Self {
        let commits = commits(listing);
        let times = monotone(&commits);
        let mut commits: Vec<(LogFile, i64)> = commits.into_iter().zip(times).collect();
        // Commits that log cleanup left before the oldest checkpoint lead to no version.
        let is_lost = |(file, _): &(LogFile, i64)| Segment::choose(listing, Some(file.name.version()), true).is_err();
        commits.drain(..commits.partition_point(is_lost));
        let since = own_times.and_then(|own| own.since);
        let without_own = match (own_times, since) {
            (None, _) => commits.len(),
            (Some(_), None) => 0,
            (Some(_), Some((version, _))) => commits.partition_point(|(file, _)| file.name.version() < version),
        };
        Self { storage: storage.clone(), commits, without_own, enabled_ms: since.map(|(_, time)| time) }
    }

    /// How many commits were made at or before a time.
    async fn count_until(&self, time_ms: i64) -> Result<usize> {
        // Where in-commit timestamps came later, a time is looked for either among the commits before or among those
        // since.
        let (mut low, mut high) = match self.enabled_ms {
            Some(enabled_ms) if time_ms < enabled_ms => (0, self.without_own),
            Some(_) => (self.without_own, self.commits.len()),
            None => (0, self.commits.len()),
        };
        // Times ascend, so few commits have to be read.
        while low < high {
            let middle = low + (high - low) / 2;
            let Some((_, time)) = self.at(middle).await? else { break };
            if time <= time_ms { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// Version and time of a commit, by its place.
    async fn at(&self, index: usize) -> Result<Option<(u64, i64)>> {
        let Some((file, modified_ms)) = self.commits.get(index) else { return Ok(None) };
        let time = if index < self.without_own { *modified_ms } else { in_commit_time(&self.storage, file).await? };
        Ok(Some((file.name.version(), time)))
    }

    async fn version_at(&self, time_ms: i64) -> Result<u64> {
        match self.at(self.commits.len().saturating_sub(1)).await? {
            Some((version, newest)) if newest < time_ms => Err(Error::not_found(format!(
                "the time {time_ms} ms is after the newest commit: version {version} at {newest} ms"
            ))),
            Some(_) | None => self.until(time_ms).await,
        }
    }

    /// The last version made at `time_ms` or earlier.
    pub(crate) async fn until(&self, time_ms: i64) -> Result<u64> {
        match self.count_until(time_ms).await?.checked_sub(1).and_then(|found| self.commits.get(found)) {
            Some((file, _)) => Ok(file.name.version()),
            None => Err(self.too_early(time_ms).await?),
        }
    }

    /// The first version made at `time_ms` or later.
    pub(crate) async fn since(&self, time_ms: i64) -> Result<u64> {
        match self.count_until(time_ms.saturating_sub(1)).await? {
            // What was made between that time and the oldest commit may have been removed from the log.
            0 => match self.at(0).await? {
                Some((version, time)) if version == 0 || time == time_ms => Ok(version),
                Some(_) | None => Err(self.too_early(time_ms).await?),
            },
            earlier => match (self.commits.get(earlier), self.at(earlier.saturating_sub(1)).await?) {
                (Some((file, _)), _) => Ok(file.name.version()),
                (None, newest) => {
                    let (version, time) = newest.unwrap_or_default();
                    Err(Error::not_found(format!(
                        "nothing was committed at the time {time_ms} ms or later: the newest commit is version \
                         {version} at {time} ms"
                    )))
                }
            },
        }
    }

    async fn too_early(&self, time_ms: i64) -> Result<Error> {
        Ok(Error::not_found(match self.at(0).await? {
            Some((version, time)) => format!(
                "the time {time_ms} ms is before the oldest version that can be read: version {version} at {time} ms"
            ),
            None => "no commit is left in the log, so no version has a time; read by version".to_owned(),
        }))
    }
}

/// All commits among the files, ascending.
pub(crate) fn commits(listing: &[LogFile]) -> Vec<LogFile> {
    let is_commit = |file: &&LogFile| matches!(file.name, LogName::Commit { .. });
    let mut commits: Vec<LogFile> = listing.iter().filter(is_commit).cloned().collect();
    commits.sort_by_key(|file| file.name.version());
    commits
}

/// Modification times, each at least a millisecond after the one before.
pub(crate) fn monotone(commits: &[LogFile]) -> Vec<i64> {
    let mut last = i64::MIN;
    let time = |file: &LogFile| {
        last = file.modified_ms.max(last.saturating_add(1));
        last
    };
    commits.iter().map(time).collect()
}

async fn in_commit_time(storage: &Storage, file: &LogFile) -> Result<i64> {
    let bytes = storage.get(&log_reader::log_path(&file.file_name)).await?;
    let info = log_reader::parse(file, &bytes, Wanted::NoFiles)?.commit_info;
    info.and_then(|info| info.in_commit_timestamp()).ok_or_else(|| lacks_time(file))
}

/// A commit that does not say when it was made, although it has to.
pub(crate) fn lacks_time(file: &LogFile) -> Error {
    Error::corrupt("the commit has no inCommitTimestamp although the table has them enabled")
        .at_version(file.name.version())
        .in_file(log_reader::log_path(&file.file_name))
}
