//! The history of a table: the commit info of each commit, and which version was current at a time.
//!
//! A commit's time is its in-commit timestamp from the version on that enabled them; before that, and in tables without
//! them, it is the modification time of its file, but at least one millisecond after the time of the previous commit.
//! In-commit timestamps are searched by binary search, since reading one costs a request.
//!
//! A time leads only to versions that can be rebuilt: if log cleanup deleted commits, those left before the oldest checkpoint
//! are part of the history, but their versions cannot be read.
//!
//! Invariant: versions are found by the times that the history shows
//! (`history::every_time_finds_its_version`).
//!
//! PROTOCOL.md: "In-Commit Timestamps", "Commit Provenance Information".

use deltic_protocol::action::CommitInfo;
use deltic_protocol::action::json::Wanted;
use deltic_protocol::log::name::LogName;
use deltic_protocol::log::segment::{LogFile, Segment, readable_commits};
use deltic_protocol::property::{InCommitTimestamps, Properties};
use deltic_protocol::scalar::iso_instant;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Map, Value};

use crate::error::{Error, Result, vanished};
use crate::log::{LogSource, log_file_path, parse_file};
use crate::snapshot::Snapshot;

/// Commits read at once.
const CONCURRENT_READS: usize = 16;
/// The commit info is the first action of a commit, so only this much of a large commit is read at first.
const HEAD_BYTES: u64 = 32 * 1024;

/// One commit of the history: the members of its commit info, and `version` and `timestamp` (ms).
pub type Entry = Map<String, Value>;

/// The commits still in the log, newest first, at most `limit`.
///
/// Commits that log cleanup removed are missing; `timestamp` is the time by which [`version_at`] finds the commit.
pub async fn history(log: &LogSource, limit: Option<usize>) -> Result<Vec<Entry>> {
    entries(log, limit).await.map_err(|e| e.in_table(log.location()))
}

async fn entries(log: &LogSource, limit: Option<usize>) -> Result<Vec<Entry>> {
    let commits = Commit::all(&log.list(0).await?);
    if commits.is_empty() {
        // No commit is left, or there is no table: opening it gives the error in that case.
        Snapshot::open(log, None).await?;
    }
    let read = |commit: Commit| async move {
        match commit_info(log, &commit.file).await {
            Ok(info) => Ok(Some((commit, info.unwrap_or_default()))),
            // Log cleanup deleted it after the listing.
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    };
    let newest = commits.into_iter().rev().take(limit.unwrap_or(usize::MAX));
    let read = stream::iter(newest).map(read).buffered(CONCURRENT_READS);
    let found: Vec<(Commit, CommitInfo)> = read.try_filter_map(|found| async { Ok(found) }).try_collect().await?;
    // Only if a commit has an in-commit timestamp, the table is opened to find out from which version on they count.
    let own_times = match found.iter().any(|(_, info)| info.in_commit_timestamp().is_some()) {
        true => Properties::of(Snapshot::open(log, None).await?.metadata()).in_commit_timestamps()?,
        false => None,
    };
    let entry = |(commit, info): (Commit, CommitInfo)| {
        let version = commit.version();
        let own = info.in_commit_timestamp().filter(|_| has_own_time(own_times, version));
        let mut entry = info.0;
        entry.insert("version".to_owned(), Value::from(version));
        entry.insert("timestamp".to_owned(), Value::from(own.unwrap_or(commit.modified_ms)));
        entry
    };
    Ok(found.into_iter().map(entry).collect())
}

/// The newest version that was committed at or before `time_ms`; see [`Timeline::version_at`].
pub async fn version_at(log: &LogSource, time_ms: i64) -> Result<u64> {
    Timeline::load(log).await?.version_at(time_ms).await
}

/// The table as it was at `time_ms`; see [`Timeline::version_at`].
pub async fn snapshot_at(log: &LogSource, time_ms: i64) -> Result<Snapshot> {
    let timeline = Timeline::load(log).await?;
    timeline.snapshot(timeline.version_at(time_ms).await?).await
}

/// The commit times of the versions that can be read. Loading it takes one LIST and opens the newest version; commits are read
/// when needed.
#[derive(Debug)]
pub struct Timeline {
    log: LogSource,
    listing: Vec<LogFile>,
    latest: Snapshot,
    /// The commits of versions that can be rebuilt, ascending.
    commits: Vec<Commit>,
    /// How many of them, at the beginning, have no in-commit timestamp.
    without_own: usize,
    /// The first in-commit timestamp, if earlier commits have none.
    enabled_ms: Option<i64>,
}

/// A commit, and the time of its file, made later than that of the previous commit.
#[derive(Debug, Clone)]
struct Commit {
    file: LogFile,
    modified_ms: i64,
}

impl Commit {
    fn all(listing: &[LogFile]) -> Vec<Self> {
        let files = commits(listing);
        let times = monotone(&files);
        files.into_iter().zip(times).map(|(file, modified_ms)| Self { file, modified_ms }).collect()
    }

    fn version(&self) -> u64 {
        self.file.name.version()
    }
}

impl Timeline {
    /// Lists the log and opens the newest version.
    pub async fn load(log: &LogSource) -> Result<Self> {
        let in_table = |e: Error| e.in_table(log.location());
        let listing = log.list(0).await.map_err(in_table)?;
        let segment = match Segment::choose(&listing, None, true).map_err(in_table) {
            Ok(segment) => segment,
            Err(error) => return Err(log.explain(error).await),
        };
        let latest = Snapshot::open_segment(log, segment).await?;
        let readable = readable_commits(&listing);
        let mut commits = Commit::all(&listing);
        commits.retain(|commit| readable.binary_search_by_key(&commit.version(), |f| f.name.version()).is_ok());
        let own_times = Properties::of(latest.metadata()).in_commit_timestamps().map_err(in_table)?;
        let without_own = commits.partition_point(|commit| !has_own_time(own_times, commit.version()));
        let enabled_ms = own_times.and_then(|own| own.since).map(|(_, time)| time);
        Ok(Self { log: log.clone(), listing, latest, commits, without_own, enabled_ms })
    }

    /// Opens a version without listing the log again.
    pub async fn snapshot(&self, version: u64) -> Result<Snapshot> {
        if version == self.latest.version() {
            return Ok(self.latest.clone());
        }
        let segment = Segment::choose(&self.listing, Some(version), true).map_err(|e| self.in_table(e))?;
        Snapshot::open_segment(&self.log, segment).await
    }

    /// When a version was committed; none if its commit is not in the log.
    pub async fn time_of(&self, version: u64) -> Result<Option<i64>> {
        match self.commits.binary_search_by_key(&version, Commit::version) {
            Ok(index) => Ok(self.at(index).await?.map(|(_, time)| time)),
            Err(_) => Ok(None),
        }
    }

    /// The newest version that was committed at or before `time_ms`.
    ///
    /// # Errors
    /// Those of [`Timeline::until`], and `VersionNotFound` if versions after the newest commit are in checkpoints alone,
    /// whose times are not known.
    pub async fn version_at(&self, time_ms: i64) -> Result<u64> {
        let version = self.until(time_ms).await?;
        let newest = self.commits.last().filter(|commit| commit.version() == version);
        if newest.is_some()
            && version < self.latest.version()
            && let Some((_, newest_ms)) = self.at(self.commits.len().saturating_sub(1)).await?
            && newest_ms < time_ms
        {
            return Err(self.outside(time_ms, "after the newest commit, and later versions have no time").await?);
        }
        Ok(version)
    }

    /// The newest version that was committed at or before `time_ms`, which may be in the future.
    ///
    /// # Errors
    /// `VersionNotFound` if the time is before the oldest version that can still be read, or between two commits that are not
    /// neighbours because the log lacks those in between.
    pub async fn until(&self, time_ms: i64) -> Result<u64> {
        let until = self.count_until(time_ms).await?;
        let Some(found) = until.checked_sub(1).and_then(|index| self.commits.get(index)) else {
            return Err(self.outside(time_ms, "before the oldest version that can be read").await?);
        };
        let version = found.version();
        match self.commits.get(until).map(Commit::version) {
            Some(after) if after.checked_sub(1) != Some(version) => Err(self.not_found(format!(
                "the version at {} is not known: the log lacks the commits between the versions {version} and \
                 {after}",
                iso_instant(time_ms)
            ))),
            Some(_) | None => Ok(version),
        }
    }

    /// The oldest version that was committed at or after `time_ms`.
    ///
    /// # Errors
    /// `VersionNotFound` if nothing was committed since, or if earlier commits after that time may have been deleted.
    pub async fn since(&self, time_ms: i64) -> Result<u64> {
        let earlier = match time_ms.checked_sub(1) {
            Some(before) => self.count_until(before).await?,
            None => 0,
        };
        match self.commits.get(earlier).map(Commit::version) {
            None => Err(self.outside(time_ms, "after the newest commit").await?),
            Some(version) if earlier > 0 || version == 0 => Ok(version),
            // Commits between that time and the oldest one may have been deleted.
            Some(version) => match self.at(0).await? {
                Some((_, time)) if time == time_ms => Ok(version),
                Some(_) | None => Err(self.outside(time_ms, "before the oldest version that can be read").await?),
            },
        }
    }

    /// How many of the commits were made at or before `time_ms`.
    async fn count_until(&self, time_ms: i64) -> Result<usize> {
        // If in-commit timestamps were enabled later, a time is searched either among the commits before that or among the
        // later ones.
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

    /// The version and time of a commit, by its index.
    async fn at(&self, index: usize) -> Result<Option<(u64, i64)>> {
        let Some(commit) = self.commits.get(index) else { return Ok(None) };
        if index < self.without_own {
            return Ok(Some((commit.version(), commit.modified_ms)));
        }
        let info = commit_info(&self.log, &commit.file).await.map_err(|e| self.in_table(vanished(e)))?;
        let time = info.and_then(|info| info.in_commit_timestamp());
        let time = time.ok_or_else(|| self.in_table(lacks_time(&commit.file)))?;
        Ok(Some((commit.version(), time)))
    }

    /// The error for a time at which no version is known.
    async fn outside(&self, time_ms: i64, place: &str) -> Result<Error> {
        let (first, last) = (self.at(0).await?, self.at(self.commits.len().saturating_sub(1)).await?);
        Ok(self.not_found(match (first, last) {
            (Some((first, oldest)), Some((last, newest))) => format!(
                "the time {} is {place}; the table can be read from {} (version {first}) to {} (version {last})",
                iso_instant(time_ms),
                iso_instant(oldest),
                iso_instant(newest),
            ),
            (_, None) | (None, _) => {
                "no commit is left in the log, so no version has a time; read by version".to_owned()
            }
        }))
    }

    /// The error that there is no such version, with the range of versions that can be read.
    fn not_found(&self, message: String) -> Error {
        let earliest = self.commits.first().map(Commit::version);
        self.in_table(Error::version_not_found(message, earliest, Some(self.latest.version())))
    }

    fn in_table(&self, error: Error) -> Error {
        error.in_table(self.log.location())
    }
}

/// All commits among the files, ascending.
pub(crate) fn commits(listing: &[LogFile]) -> Vec<LogFile> {
    let is_commit = |file: &&LogFile| matches!(file.name, LogName::Commit { .. });
    let mut commits: Vec<LogFile> = listing.iter().filter(is_commit).cloned().collect();
    commits.sort_by_key(|file| file.name.version());
    commits.dedup_by_key(|file| file.name.version());
    commits
}

/// Modification times, each at least a millisecond after the previous one.
pub(crate) fn monotone(commits: &[LogFile]) -> Vec<i64> {
    let mut last = i64::MIN;
    let time = |file: &LogFile| {
        last = file.modified_ms.max(last.saturating_add(1));
        last
    };
    commits.iter().map(time).collect()
}

/// Whether the commit of a version has an in-commit timestamp that counts.
fn has_own_time(own_times: Option<InCommitTimestamps>, version: u64) -> bool {
    own_times.is_some_and(|own| own.since.is_none_or(|(since, _)| since <= version))
}

/// The error for a commit without an in-commit timestamp, which must have one.
pub(crate) fn lacks_time(file: &LogFile) -> Error {
    Error::corrupt("the commit has no inCommitTimestamp although the table has them enabled")
        .at_version(file.name.version())
        .in_file(log_file_path(&file.file_name))
}

/// Reads the commit info of a commit.
async fn commit_info(log: &LogSource, file: &LogFile) -> Result<Option<CommitInfo>> {
    if file.size > HEAD_BYTES {
        let head = log.read_head(file, HEAD_BYTES).await?;
        let line = head.iter().position(|byte| *byte == b'\n').map(|end| head.slice(..end));
        if let Some(line) = line
            && let Some(info) = parse_file(file, &line, Wanted::NoFiles)?.commit_info
        {
            return Ok(Some(info));
        }
    }
    let bytes = log.read(&file.file_name).await?;
    Ok(parse_file(file, &bytes, Wanted::NoFiles)?.commit_info)
}
