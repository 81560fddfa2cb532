//! The past of a table: what each commit says of itself, and which version was current at a time.
//!
//! A commit's time is its in-commit timestamp where the table has them enabled, else the modification time of its file,
//! made monotone: never earlier than one millisecond after the commit before it.
//!
//! PROTOCOL.md: "In-Commit Timestamps", "Commit Provenance Information".

use std::pin::pin;

use deltic_protocol::action::json::Wanted;
use deltic_protocol::log::name::LogName;
use deltic_protocol::log::segment::LogFile;
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
    let commits = commits(storage, 0).await.map_err(place)?;
    if commits.is_empty() {
        // No commit is left (or was ever there): opening the table tells which.
        Snapshot::open(storage, None).await?;
    }
    let times = monotone(&commits);
    let newest: Vec<LogFile> = commits.iter().rev().take(limit.unwrap_or(usize::MAX)).cloned().collect();
    let fetched: Vec<_> = log_reader::fetch(storage, newest).try_collect().await.map_err(place)?;
    let entry = |(file, bytes): &(LogFile, bytes::Bytes)| {
        let info = log_reader::parse(file, bytes, Wanted::NoFiles).map_err(place)?.commit_info.unwrap_or_default();
        let version = file.name.version();
        let modified = times.iter().find(|(v, _)| *v == version).map_or(file.modified_ms, |(_, time)| *time);
        let time = info.in_commit_timestamp().or(info.timestamp()).unwrap_or(modified);
        let mut entry = info.0;
        entry.insert("version".to_owned(), Value::from(version));
        entry.insert("timestamp".to_owned(), Value::from(time));
        Ok(entry)
    };
    fetched.iter().map(entry).collect()
}

/// The newest version that was committed at or before `time_ms`.
///
/// # Errors
/// `NotFound` if the time is before the oldest version that can still be read or after the newest commit.
pub async fn version_at(storage: &Storage, time_ms: i64) -> Result<u64> {
    let times = times(storage).await?;
    let (Some(first), Some(last)) = (times.first(), times.last()) else {
        return Err(Error::not_found("no commit is left in the log, so no version has a time; read by version"));
    };
    if time_ms > last.1 {
        return Err(Error::not_found(format!(
            "the time {time_ms} ms is after the newest commit: version {} at {} ms",
            last.0, last.1
        ))
        .in_table(storage.location()));
    }
    let found = times.iter().rev().find(|(_, time)| *time <= time_ms);
    found.map(|(version, _)| *version).ok_or_else(|| {
        Error::not_found(format!(
            "the time {time_ms} ms is before the oldest commit in the log: version {} at {} ms",
            first.0, first.1
        ))
        .in_table(storage.location())
    })
}

/// Each commit in the log with its time, ascending.
pub(crate) async fn times(storage: &Storage) -> Result<Vec<(u64, i64)>> {
    let place = |e: Error| e.in_table(storage.location());
    let latest = Snapshot::open(storage, None).await?;
    let commits = commits(storage, 0).await.map_err(place)?;
    let enabled_from = in_commit_timestamps_from(&latest);
    let mut times = monotone(&commits);
    let has_own = |version: u64| enabled_from.is_some_and(|from| version >= from);
    let own: Vec<LogFile> = commits.into_iter().filter(|file| has_own(file.name.version())).collect();
    let mut own = pin!(log_reader::fetch(storage, own));
    for (_, time) in times.iter_mut().filter(|(version, _)| has_own(*version)) {
        if let Some((file, bytes)) = own.try_next().await.map_err(place)? {
            *time = in_commit_time(&file, &bytes).map_err(place)?;
        }
    }
    Ok(times)
}

/// The commits in the log from a version on, ascending.
pub(crate) async fn commits(storage: &Storage, from: u64) -> Result<Vec<LogFile>> {
    let mut commits = log_reader::list(storage, from).await?;
    commits.retain(|file| matches!(file.name, LogName::Commit { .. }));
    commits.sort_by_key(|file| file.name.version());
    Ok(commits)
}

/// Versions with modification times, each at least a millisecond after the one before.
pub(crate) fn monotone(commits: &[LogFile]) -> Vec<(u64, i64)> {
    let mut last = i64::MIN;
    let time = |file: &LogFile| {
        last = file.modified_ms.max(last.saturating_add(1));
        (file.name.version(), last)
    };
    commits.iter().map(time).collect()
}

/// First version with an in-commit timestamp, if the table has them.
pub(crate) fn in_commit_timestamps_from(snapshot: &Snapshot) -> Option<u64> {
    let property = |name: &str| snapshot.metadata().configuration.get(name);
    let enabled = property("delta.enableInCommitTimestamps").is_some_and(|v| v.eq_ignore_ascii_case("true"));
    let from = property("delta.inCommitTimestampEnablementVersion").and_then(|v| v.parse().ok());
    enabled.then(|| from.unwrap_or(0))
}

fn in_commit_time(file: &LogFile, bytes: &[u8]) -> Result<i64> {
    let info = log_reader::parse(file, bytes, Wanted::NoFiles)?.commit_info;
    info.and_then(|info| info.in_commit_timestamp()).ok_or_else(|| lacks_time(file.name.version()))
}

/// A commit that does not say when it was made, although it has to.
pub(crate) fn lacks_time(version: u64) -> Error {
    Error::corrupt("the commit has no inCommitTimestamp although the table has them enabled").at_version(version)
}
