//! The past of a table: what each commit says of itself, and which version was current at a time.
//!
//! A commit's time is its in-commit timestamp from the version on that enabled them; before, and in tables without, it
//! is the modification time of its file, made monotone: never earlier than a millisecond after the commit before it.
//! Times in commits are found by binary search, since reading one costs a request.
//!
//! A time leads only to versions that can be rebuilt: in a log that was cut off, commits before the oldest checkpoint
//! are part of the history but no place to travel to.
//!
//! PROTOCOL.md: "In-Commit Timestamps", "Commit Provenance Information".

use std::cmp::Ordering;

use deltic_protocol::action::CommitInfo;
use deltic_protocol::action::json::Wanted;
use deltic_protocol::log::name::LogName;
use deltic_protocol::log::segment::{LogFile, Segment, readable_commits};
use deltic_protocol::property::{InCommitTimestamps, Properties};
use deltic_protocol::scalar::iso_instant;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::log_reader;
use crate::snapshot::{Snapshot, vanished};
use crate::storage::Storage;

/// Commits read at once.
const CONCURRENT_READS: usize = 16;
/// Commit infos stand first in a commit, so this much of a large one is read at first.
const HEAD: u64 = 32 * 1024;

/// One commit of the history: the members of its commit info, and `version` and `timestamp` (ms).
pub type Entry = Map<String, Value>;

/// The commits still in the log, newest first, at most `limit`.
///
/// Commits that log cleanup removed are not there; `timestamp` is the time by which [`version_at`] finds the commit.
pub async fn history(storage: &Storage, limit: Option<usize>) -> Result<Vec<Entry>> {
    entries(storage, limit).await.map_err(|e| e.in_table(storage.location()))
}

async fn entries(storage: &Storage, limit: Option<usize>) -> Result<Vec<Entry>> {
    let commits = monotone(&log_reader::list(storage, 0).await?);
    if commits.is_empty() {
        // No commit is left (or was ever there): opening the table tells which.
        Snapshot::open(storage, None).await?;
    }
    let read = |commit: Commit| async move {
        match commit_info(storage, &commit.file).await {
            Ok(info) => Ok(Some((commit, info.unwrap_or_default()))),
            // Cleaned up after it was listed.
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    };
    let newest = commits.into_iter().rev().take(limit.unwrap_or(usize::MAX));
    let read = stream::iter(newest).map(read).buffered(CONCURRENT_READS);
    let found: Vec<(Commit, CommitInfo)> = read.try_filter_map(|found| async { Ok(found) }).try_collect().await?;
    let in_commits_from = if found.iter().any(|(_, info)| info.in_commit_timestamp().is_some()) {
        in_commit_timestamps(&Snapshot::open(storage, None).await?)?.map(first_version)
    } else {
        None
    };
    let entry = |(commit, info): (Commit, CommitInfo)| {
        let version = commit.version();
        let own = info.in_commit_timestamp().filter(|_| in_commits_from.is_some_and(|from| version >= from));
        let mut entry = info.0;
        entry.insert("version".to_owned(), Value::from(version));
        entry.insert("timestamp".to_owned(), Value::from(own.unwrap_or(commit.modified_ms)));
        entry
    };
    Ok(found.into_iter().map(entry).collect())
}

/// The newest version that was committed at or before `time_ms`; see [`Timeline::version_at`].
pub async fn version_at(storage: &Storage, time_ms: i64) -> Result<u64> {
    Timeline::load(storage).await?.version_at(time_ms).await
}

/// The table as it was at `time_ms`; see [`Timeline::version_at`].
pub async fn snapshot_at(storage: &Storage, time_ms: i64) -> Result<Snapshot> {
    let timeline = Timeline::load(storage).await?;
    timeline.snapshot(timeline.version_at(time_ms).await?).await
}

/// The commits of a table by time. One LIST and the opening of the newest version.
#[derive(Debug)]
pub struct Timeline {
    storage: Storage,
    listing: Vec<LogFile>,
    latest: Snapshot,
    /// Of versions that can be rebuilt, ascending.
    commits: Vec<Commit>,
    in_commit: Option<InCommitTimestamps>,
}

/// A commit, and when its file was written, made monotone.
#[derive(Debug, Clone)]
pub(crate) struct Commit {
    pub(crate) file: LogFile,
    pub(crate) modified_ms: i64,
}

impl Commit {
    pub(crate) fn version(&self) -> u64 {
        self.file.name.version()
    }
}

impl Timeline {
    /// Lists the log and opens the newest version.
    pub async fn load(storage: &Storage) -> Result<Self> {
        let place = |e: Error| e.in_table(storage.location());
        let listing = log_reader::list(storage, 0).await.map_err(place)?;
        let segment = Segment::choose(&listing, None, true).map_err(place)?;
        let latest = Snapshot::of_segment(storage, segment).await?;
        let readable = readable_commits(&listing);
        let mut commits = monotone(&listing);
        commits.retain(|commit| readable.binary_search_by_key(&commit.version(), |f| f.name.version()).is_ok());
        let in_commit = in_commit_timestamps(&latest).map_err(place)?;
        Ok(Self { storage: storage.clone(), listing, latest, commits, in_commit })
    }

    /// Opens a version without listing the log again.
    pub async fn snapshot(&self, version: u64) -> Result<Snapshot> {
        if version == self.latest.version() {
            return Ok(self.latest.clone());
        }
        let segment = Segment::choose(&self.listing, Some(version), true).map_err(|e| self.place(e))?;
        Snapshot::of_segment(&self.storage, segment).await
    }

    /// When a version was committed.
    ///
    /// # Errors
    /// `NotFound` if its commit is not in the log or the version cannot be rebuilt.
    pub async fn time_of(&self, version: u64) -> Result<i64> {
        let found = self.commits.binary_search_by_key(&version, Commit::version).ok().and_then(|i| self.commits.get(i));
        let commit = found.ok_or_else(|| {
            self.place(Error::not_found(format!("version {version} has no time: its commit is not in the log")))
        })?;
        self.time(commit).await
    }

    /// The newest version that was committed at or before `time_ms`.
    ///
    /// # Errors
    /// `NotFound` if the time is before the oldest version that can still be read, after the newest commit, or between
    /// two commits that are not neighbours because the log lacks those in between.
    pub async fn version_at(&self, time_ms: i64) -> Result<u64> {
        let (Some(first), Some(last)) = (self.commits.first(), self.commits.last()) else {
            return Err(
                self.place(Error::not_found("no commit is left in the log, so no version has a time; read by version"))
            );
        };
        let newest = self.time(last).await?;
        let outside = |oldest: i64, where_to: &str| {
            self.place(Error::not_found(format!(
                "the time {} is {where_to}; the table can be read from {} (version {}) to {} (version {})",
                iso_instant(time_ms),
                iso_instant(oldest),
                first.version(),
                iso_instant(newest),
                last.version(),
            )))
        };
        if time_ms > newest {
            return Err(outside(self.time(first).await?, "after the newest commit"));
        }
        let until = self.commits_until(time_ms).await?;
        let Some(found) = until.checked_sub(1).and_then(|index| self.commits.get(index)) else {
            return Err(outside(self.time(first).await?, "before the oldest commit that can be read"));
        };
        let version = found.version();
        match self.commits.get(until).map(Commit::version) {
            Some(after) if after.checked_sub(1) != Some(version) => Err(self.place(Error::not_found(format!(
                "the version at {} is not known: the log goes from version {version} to {after} and lacks the commits \
                 in between",
                iso_instant(time_ms)
            )))),
            Some(_) | None => Ok(version),
        }
    }

    /// The last version made at `time_ms` or earlier: the newest one for a time to come.
    ///
    /// # Errors
    /// `NotFound` if the time is before the oldest version that can be read.
    pub(crate) async fn until(&self, time_ms: i64) -> Result<u64> {
        match self.commits_until(time_ms).await?.checked_sub(1).and_then(|index| self.commits.get(index)) {
            Some(commit) => Ok(commit.version()),
            None => Err(self.too_early(time_ms).await?),
        }
    }

    /// The first version made at `time_ms` or later.
    ///
    /// # Errors
    /// `NotFound` if nothing was committed since, or the versions of that time are gone from the log.
    pub(crate) async fn since(&self, time_ms: i64) -> Result<u64> {
        let earlier = self.commits_until(time_ms.saturating_sub(1)).await?;
        let Some(commit) = self.commits.get(earlier) else {
            return Err(self.place(Error::not_found(format!(
                "nothing was committed at {} or later; the newest version is {}",
                iso_instant(time_ms),
                self.latest.version()
            ))));
        };
        // What was made between that time and the oldest commit may have been removed from the log.
        let is_certain = earlier > 0 || commit.version() == 0 || self.time(commit).await? == time_ms;
        if is_certain { Ok(commit.version()) } else { Err(self.too_early(time_ms).await?) }
    }

    async fn too_early(&self, time_ms: i64) -> Result<Error> {
        let oldest = match self.commits.first() {
            Some(first) => format!("version {} at {}", first.version(), iso_instant(self.time(first).await?)),
            None => "none, since no commit is left in the log".to_owned(),
        };
        Ok(self.place(Error::not_found(format!(
            "the time {} is before the oldest version that can be read: {oldest}",
            iso_instant(time_ms)
        ))))
    }

    /// How many of the commits were made at or before `time_ms`.
    async fn commits_until(&self, time_ms: i64) -> Result<usize> {
        let split = match self.in_commit.map(first_version) {
            Some(from) => self.commits.partition_point(|commit| commit.version() < from),
            None => self.commits.len(),
        };
        let enabled_later = self.in_commit.and_then(|t| t.since).is_some_and(|(_, since)| time_ms < since);
        if enabled_later || split == self.commits.len() {
            let by_file = self.commits.get(..split).unwrap_or_default();
            return Ok(by_file.partition_point(|commit| commit.modified_ms <= time_ms));
        }
        let (mut low, mut high) = (split, self.commits.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let Some(commit) = self.commits.get(middle) else { break };
            match self.time(commit).await?.cmp(&time_ms) {
                Ordering::Less | Ordering::Equal => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        Ok(low)
    }

    async fn time(&self, commit: &Commit) -> Result<i64> {
        if self.in_commit.is_none_or(|t| commit.version() < first_version(t)) {
            return Ok(commit.modified_ms);
        }
        let info = commit_info(&self.storage, &commit.file).await.map_err(|e| self.place(vanished(e)))?;
        info.and_then(|info| info.in_commit_timestamp()).ok_or_else(|| self.place(lacks_time(&commit.file)))
    }

    fn place(&self, error: Error) -> Error {
        error.in_table(self.storage.location())
    }
}

/// A commit that does not say when it was made, although it has to.
pub(crate) fn lacks_time(file: &LogFile) -> Error {
    Error::corrupt("the commit has no inCommitTimestamp although the table has them enabled")
        .at_version(file.name.version())
        .in_file(log_reader::log_path(&file.file_name))
}

/// The commits of a listing, ascending, their times each at least a millisecond after the one before.
pub(crate) fn monotone(listing: &[LogFile]) -> Vec<Commit> {
    let mut files: Vec<&LogFile> = listing.iter().filter(|f| matches!(f.name, LogName::Commit { .. })).collect();
    files.sort_by_key(|file| file.name.version());
    files.dedup_by_key(|file| file.name.version());
    let mut last = i64::MIN;
    let commit = |file: &LogFile| {
        last = file.modified_ms.max(last.saturating_add(1));
        Commit { file: file.clone(), modified_ms: last }
    };
    files.into_iter().map(commit).collect()
}

/// Since when commits carry their time, as far as the protocol has the feature that makes writers do so.
fn in_commit_timestamps(snapshot: &Snapshot) -> Result<Option<InCommitTimestamps>> {
    let features = snapshot.protocol().writer_features.as_deref().unwrap_or_default();
    if !features.iter().any(|feature| feature == "inCommitTimestamp" || feature == "inCommitTimestamp-preview") {
        return Ok(None);
    }
    Properties::of(snapshot.metadata()).in_commit_timestamps()
}

/// The first version whose commit carries its time.
fn first_version(timestamps: InCommitTimestamps) -> u64 {
    timestamps.since.map_or(0, |(version, _)| version)
}

/// What a commit says of itself.
async fn commit_info(storage: &Storage, file: &LogFile) -> Result<Option<CommitInfo>> {
    let path = log_reader::log_path(&file.file_name);
    if file.size > HEAD {
        let head = storage.get_range(&path, 0..HEAD).await?;
        let line = head.iter().position(|byte| *byte == b'\n').and_then(|end| head.get(..end));
        if let Some(line) = line
            && let Some(info) = log_reader::parse(file, line, Wanted::NoFiles)?.commit_info
        {
            return Ok(Some(info));
        }
    }
    let bytes = storage.get(&path).await?;
    Ok(log_reader::parse(file, &bytes, Wanted::NoFiles)?.commit_info)
}
