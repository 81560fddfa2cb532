//! Finds the versions whose log has traces of a feature that readers need.
//!
//! Traces are what a reader without the feature would misread: metadata that use it, files added or removed with deletion
//! vectors, V2 checkpoints. Tombstones in checkpoints are none, since readers do not read their files. The log is read from
//! its end to the newest trace.
//!
//! RFC "Checkpoint Protection".

use arrow_array::Array;
use deltic_protocol::action::json::CommitActions;
use deltic_protocol::alter::uses_feature;
use deltic_protocol::log::{CheckpointKind, LogFile, Segment};
use deltic_protocol::property::Properties;
use futures::stream::{self, StreamExt, TryStreamExt};

use crate::checkpoint::read::OpenCheckpoint;
use crate::cleanup::single_file_checkpoint;
use crate::error::Result;
use crate::history::commits;
use crate::snapshot::Snapshot;

/// Commits that are read at once.
const CONCURRENT_READS: usize = 8;

/// Where a log has traces of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogTraces {
    /// Nowhere.
    None,
    /// Before this version, and not from there on. It may be the version after the newest one.
    Before(u64),
}

/// Where the log up to a snapshot has traces of a feature, of which the state of that snapshot has none.
pub(super) async fn first_without_traces(snapshot: &Snapshot, name: &str) -> Result<LogTraces> {
    let log = snapshot.log();
    let mut listing = log.list(0).await?;
    listing.retain(|file| file.name.version() <= snapshot.version());
    if name == "checkpointProtection" {
        let protected = Properties::of(snapshot.metadata()).checkpoint_protection()?;
        let is_protected = |file: &LogFile| file.name.version() < protected;
        return Ok(if listing.iter().any(is_protected) { LogTraces::Before(protected) } else { LogTraces::None });
    }
    let mut newest_first = commits(&listing);
    newest_first.reverse();
    let newest_v2 = if name == "v2Checkpoint" { newest_v2_checkpoint(snapshot, &listing).await? } else { None };
    let read = |file: LogFile| {
        let log = &log;
        async move { log.load_commit(&file).await.map(|actions| (file.name.version(), actions)) }
    };
    let mut read = std::pin::pin!(stream::iter(newest_first).map(read).buffered(CONCURRENT_READS));
    // The oldest version of which it is known that its metadata do not use the feature.
    let mut unused_since = snapshot.version();
    let mut newest_trace = newest_v2;
    while let Some((version, actions)) = read.try_next().await? {
        if newest_trace.is_some_and(|trace| trace > version) {
            break;
        }
        if has_traces(&actions, name)? {
            newest_trace = Some(version);
            break;
        }
        if actions.metadata.is_some() {
            unused_since = version;
        }
    }
    let first = newest_trace.map_or(0, |trace| trace.saturating_add(1));
    // Without traces in the commits from there on, the metadata may be older than these.
    match metadata_before(snapshot, &listing, first, unused_since, name).await? {
        true => Ok(LogTraces::Before(unused_since)),
        false => Ok(newest_trace.map_or(LogTraces::None, |_| LogTraces::Before(first))),
    }
}

/// Whether metadata that use the feature apply to a version from `first` to the one before `unused_since`.
async fn metadata_before(
    snapshot: &Snapshot,
    listing: &[LogFile],
    first: u64,
    unused_since: u64,
    name: &str,
) -> Result<bool> {
    let Some(last) = unused_since.checked_sub(1).filter(|last| *last >= first) else { return Ok(false) };
    match Segment::choose(listing, Some(last), true) {
        Ok(segment) => uses_feature(Snapshot::open_segment(snapshot.log(), segment).await?.metadata(), name),
        // No version before can be read.
        Err(_) => Ok(false),
    }
}

fn has_traces(actions: &CommitActions, name: &str) -> Result<bool> {
    if let Some(metadata) = &actions.metadata
        && uses_feature(metadata, name)?
    {
        return Ok(true);
    }
    if name != "deletionVectors" {
        return Ok(false);
    }
    let removes_vector = actions
        .remove_rows
        .column_by_name("deletionVector")
        .is_some_and(|vectors| vectors.null_count() < vectors.len());
    let mut adds_vector = false;
    for row in 0..actions.adds.len() {
        adds_vector |= actions.adds.deletion_vector(row)?.is_some();
    }
    Ok(adds_vector || removes_vector)
}

/// The newest version that has a V2 checkpoint. One that cannot be read counts as such.
async fn newest_v2_checkpoint(snapshot: &Snapshot, listing: &[LogFile]) -> Result<Option<u64>> {
    for file in listing.iter().rev().filter(|file| file.size > 0) {
        let Some(checkpoint) = single_file_checkpoint(file) else { continue };
        let is_v2 = match (&checkpoint.kind, OpenCheckpoint::open(snapshot.log(), &checkpoint).await) {
            (CheckpointKind::Uuid(_), _) => true,
            (_, Ok(open)) => open.non_file_actions().checkpoint_metadata.is_some() || !open.sidecars().is_empty(),
            (_, Err(e)) if e.is_corrupt() => true,
            (_, Err(e)) => return Err(e),
        };
        if is_v2 {
            return Ok(Some(checkpoint.version));
        }
    }
    Ok(None)
}
