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
    let place = |e: Error| e.in_table(storage.location());
    let latest = Snapshot::open(storage, None).await?;
    let own_times = Properties::of(latest.metadata()).in_commit_timestamps().map_err(place)?;
    let listing = log_reader::list(storage, 0).await.map_err(place)?;
    find(storage, &listing, own_times, time_ms).await.map_err(place)
}

async fn find(
    storage: &Storage,
    listing: &[LogFile],
    own_times: Option<InCommitTimestamps>,
    time_ms: i64,
) -> Result<u64> {
    let commits = commits(listing);
    let mut commits: Vec<(LogFile, i64)> = monotone(&commits).into_iter().zip(commits).map(|(t, c)| (c, t)).collect();
    // Commits that log cleanup left before the oldest checkpoint lead to no version.
    let is_lost = |(file, _): &(LogFile, i64)| Segment::choose(listing, Some(file.name.version()), true).is_err();
    commits.drain(..commits.partition_point(is_lost));
    // Where in-commit timestamps came later, a time is looked for either among the commits before or among those since.
    let since = own_times.and_then(|own| own.since);
    let is_before = since.is_some_and(|(_, enabled_ms)| time_ms < enabled_ms);
    commits.retain(|(file, _)| since.is_none_or(|(version, _)| (file.name.version() < version) == is_before));
    let has_own = own_times.is_some() && !is_before;
    let time_of = async |(file, modified_ms): &(LogFile, i64)| match has_own {
        true => in_commit_time(storage, file).await,
        false => Ok(*modified_ms),
    };

    let (Some(oldest), Some(newest)) = (commits.first(), commits.last()) else {
        return Err(Error::not_found(format!(
            "no commit of the time {time_ms} ms or before is left in the log; read by version"
        )));
    };
    // Times ascend, so few commits have to be read.
    let (mut low, mut high) = (0, commits.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let Some(commit) = commits.get(middle) else { break };
        if time_of(commit).await? <= time_ms { low = middle + 1 } else { high = middle }
    }
    if low == commits.len() && !is_before && time_of(newest).await? < time_ms {
        return Err(Error::not_found(format!(
            "the time {time_ms} ms is after the newest commit: version {} at {} ms",
            newest.0.name.version(),
            time_of(newest).await?
        )));
    }
    match low.checked_sub(1).and_then(|found| commits.get(found)) {
        Some((found, _)) => Ok(found.name.version()),
        None => Err(Error::not_found(format!(
            "the time {time_ms} ms is before the oldest version that can be read: version {} at {} ms",
            oldest.0.name.version(),
            time_of(oldest).await?
        ))),
    }
}

/// All commits among the files, ascending.
fn commits(listing: &[LogFile]) -> Vec<LogFile> {
    let is_commit = |file: &&LogFile| matches!(file.name, LogName::Commit { .. });
    let mut commits: Vec<LogFile> = listing.iter().filter(is_commit).cloned().collect();
    commits.sort_by_key(|file| file.name.version());
    commits
}

/// Modification times, each at least a millisecond after the one before.
fn monotone(commits: &[LogFile]) -> Vec<i64> {
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
    info.and_then(|info| info.in_commit_timestamp()).ok_or_else(|| {
        Error::corrupt("the commit has no inCommitTimestamp although the table has them enabled")
            .at_version(file.name.version())
            .in_file(log_reader::log_path(&file.file_name))
    })
}
