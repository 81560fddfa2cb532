//! Log compaction: one file that replaces a range of commits for readers of a snapshot.
//!
//! It has the reconciled actions of the commits: files that were added and are still live, tombstones of those
//! that were removed, and the last protocol, metadata, `txn` and domain actions. The removal of a domain is kept, since older
//! commits may have set it. The commits are not deleted: only they have the history and the times.
//!
//! A snapshot over the compaction equals one over the commits (`compaction::compaction_keeps_the_state`).
//!
//! PROTOCOL.md: "Log Compaction Files", "Action Reconciliation".

use std::collections::{HashMap, HashSet};

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use deltic_protocol::action::batch::{AddBatch, Origin};
use deltic_protocol::action::lines::Lines;
use deltic_protocol::action::{Action, Remove};
use deltic_protocol::feature;
use deltic_protocol::log::name::LogName;
use deltic_protocol::log::segment::LogFile;

use crate::committers::{Committer, OtherLogFile};
use crate::error::{Error, Result};
use crate::log::tail::Tail;
use crate::log::{LogSource, log_file_path};
use crate::snapshot::Snapshot;
use deltic_store::Put;

/// Writes the compaction of the commits from `start` (the one after the last checkpoint) to `end` (the newest) and gives
/// its path. If it exists already, nothing is written.
///
/// # Errors
/// `Invalid` if those are not two commits at least, or not all in the log; `Unsupported` if the table has a feature whose
/// actions deltic does not know; those of reading the log and of the store.
pub async fn compact_log(
    log: &LogSource,
    committer: &dyn Committer,
    start: Option<u64>,
    end: Option<u64>,
) -> Result<String> {
    compact(log, committer, start, end).await.map_err(|e| e.in_table(log.location()))
}

async fn compact(log: &LogSource, committer: &dyn Committer, start: Option<u64>, end: Option<u64>) -> Result<String> {
    let snapshot = Snapshot::open(log, end).await?;
    let end = snapshot.version();
    feature::check_checkpointable(snapshot.protocol(), snapshot.metadata(), end)?;
    let after_checkpoint = || snapshot.segment().checkpoint_version().map_or(0, |version| version.saturating_add(1));
    let start = start.unwrap_or_else(after_checkpoint);
    if start >= end {
        let message = format!(
            "versions {start} to {end} are fewer than two commits, so there is nothing to compact; pass other \
             versions"
        );
        return Err(Error::invalid(message));
    }
    let files = commits(log, start, end).await?;
    let tail = Tail::replay(log.load_whole(files, HashMap::new())).await?;
    let tail = tail.ok_or_else(|| Error::corrupt("a commit mentions a logical file twice"))?;
    let lines = print(&tail, end)?;
    let name = LogName::Compacted { start, end }.to_string();
    match committer.put_other(&name, OtherLogFile::Compacted(lines)).await? {
        Put::Created | Put::Exists => Ok(log_file_path(&name)),
        Put::Unknown(error) => Err(error),
    }
}

/// The commits of the range, newest first.
async fn commits(log: &LogSource, start: u64, end: u64) -> Result<Vec<LogFile>> {
    let listed = log.list(start).await?;
    let is_inside = |file: &LogFile| matches!(file.name, LogName::Commit { version } if version <= end);
    let mut files: Vec<LogFile> = listed.into_iter().filter(is_inside).collect();
    files.sort_by_key(|file| file.name.version());
    files.dedup_by_key(|file| file.name.version());
    for (version, file) in (start..=end).zip(files.iter().map(Some).chain(std::iter::repeat(None))) {
        if file.is_none_or(|file| file.name.version() != version) {
            let message = format!("the log has no commit for version {version} any more; begin after it");
            return Err(Error::invalid(message));
        }
    }
    files.reverse();
    Ok(files)
}

/// The reconciled actions as lines. Actions other than those of files come first: many readers look for nothing else.
fn print(tail: &Tail, end: u64) -> Result<Lines> {
    let mut lines = Lines::new();
    let protocol = tail.commits.iter().find_map(|commit| commit.protocol.clone());
    let metadata = tail.commits.iter().find_map(|commit| commit.metadata.clone());
    let (mut apps, mut domains) = (HashSet::new(), HashSet::new());
    let txns = tail.commits.iter().flat_map(|commit| commit.txns.iter().rev());
    let txns = txns.filter(|txn| apps.insert(&txn.app_id)).cloned().map(Action::Txn);
    let said = tail.commits.iter().flat_map(|commit| commit.domains.iter().rev());
    let said = said.filter(|domain| domains.insert(&domain.domain)).cloned().map(Action::DomainMetadata);
    let table = protocol.map(Action::Protocol).into_iter().chain(metadata.map(Action::Metadata));
    table.chain(txns).chain(said).try_for_each(|action| lines.push(&action))?;
    for adds in &tail.live {
        (0..adds.len()).try_for_each(|row| lines.push(&Action::Add(adds.sized_add(row)?)))?;
    }
    for rows in &tail.tombstones {
        tombstones(rows, end)?.into_iter().try_for_each(|remove| lines.push(&Action::Remove(remove)))?;
    }
    if lines.is_empty() {
        // An empty file would be taken for a torn one.
        lines.push_line(br#"{"commitInfo":{}}"#)?;
    }
    Ok(lines)
}

fn tombstones(rows: &RecordBatch, end: u64) -> Result<Vec<Remove>> {
    // The members that `add` and `remove` have in common are columns of the same names.
    let files = AddBatch::new(Origin::Commit(end), rows.clone())?;
    let number = |name: &str, row: usize| files.int64(name).filter(|c| c.is_valid(row)).map(|c| c.value(row));
    let flag = |name: &str, row: usize| {
        let column = rows.column_by_name(name)?.as_boolean_opt()?;
        column.is_valid(row).then(|| column.value(row))
    };
    let remove = |row: usize| {
        let file = files.add(row)?;
        let has_values = files.partition_values().is_some_and(|values| values.is_valid(row));
        Ok(Remove {
            path: file.path,
            deletion_timestamp: number("deletionTimestamp", row),
            data_change: file.data_change,
            extended_file_metadata: flag("extendedFileMetadata", row),
            partition_values: has_values.then_some(file.partition_values),
            size: number("size", row),
            tags: file.tags,
            deletion_vector: file.deletion_vector,
            base_row_id: file.base_row_id,
            default_row_commit_version: file.default_row_commit_version,
            ..Remove::default()
        })
    };
    (0..files.len()).map(remove).collect()
}
