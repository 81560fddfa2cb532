//! Log cleanup: deletes expired files of the log.
//!
//! The log is kept from the newest expired checkpoint on, with that checkpoint and its commit; what is before it
//! is deleted, oldest first, so that the rest has no gaps even if cleanup is interrupted. The checkpoint is read to its end
//! first: readers skip a damaged checkpoint, and then need the log before it. Sidecars are deleted when no remaining
//! checkpoint names them and they are older than a day.
//!
//! PROTOCOL.md: "Metadata Cleanup", "Checkpoint Protection".

use std::collections::HashSet;

use deltic_protocol::feature;
use deltic_protocol::log::LogFile;
use deltic_protocol::log::expired::{Expired, expired};
use deltic_protocol::log::name::{LOG_DIR, LogName};
use deltic_protocol::log::segment::{Checkpoint, CheckpointKind, Segment};
use deltic_protocol::property::Properties;
use futures::TryStreamExt;
use futures::future::ready;

use crate::checkpoint::read::{AddColumns, OpenCheckpoint};
use crate::checkpoint_writer::MAX_REUSED_AGE_MS;
use crate::error::{Error, Result};
use crate::history::Timeline;
use crate::log::{LogSource, log_file_path};
use crate::snapshot::Snapshot;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

// A sidecar that a new checkpoint takes over must be far from the age at which it could be deleted.
const _: () = assert!(MAX_REUSED_AGE_MS * 2 <= DAY_MS);

/// Deletes log files that are older than `delta.logRetentionDuration` and that a checkpoint replaces, and returns
/// their number.
///
/// # Errors
/// `Unsupported` if the table has a feature that deltic does not know; those of reading the log and of the store. Files
/// deleted before the error stay deleted; the table is intact.
pub async fn clean_log(log: &LogSource, now_ms: i64) -> Result<u64> {
    clean(log, now_ms).await.map_err(|e| e.in_table(log.location()))
}

async fn clean(log: &LogSource, now_ms: i64) -> Result<u64> {
    let snapshot = Snapshot::open(log, None).await?;
    let (protocol, metadata) = (snapshot.protocol(), snapshot.metadata());
    feature::check_checkpointable(protocol, metadata, snapshot.version())?;
    // Temporary files of writers that were killed; a writer that is running has written its files more recently.
    for dir in ["", LOG_DIR] {
        log.storage().delete_unfinished(dir, now_ms.saturating_sub(DAY_MS)).await?;
    }
    let properties = Properties::of(metadata);
    // Rounded down to a whole day, as other writers do.
    let before = start_of_day(now_ms.saturating_sub(properties.log_retention()?));
    let newest_expired = match Timeline::load(log).await?.until(before).await {
        Ok(version) => version,
        Err(e) if e.is_version_not_found() => return Ok(0),
        Err(e) => return Err(e),
    };
    if let Some(Expired { kept_from, files }) = dispensable(log, newest_expired).await? {
        // Protected checkpoints are deleted all at once or not at all.
        if kept_from < properties.checkpoint_protection()? {
            return Ok(0);
        }
        let has_sidecars = feature::supported(protocol).contains("v2Checkpoint");
        return delete(log, &files, has_sidecars.then_some(now_ms)).await;
    }
    Ok(0)
}

/// Deletes the log before the version `kept_from`, which has a checkpoint, and returns the number of files.
///
/// # Errors
/// `Corrupt` if the checkpoint is damaged; nothing is deleted then. Those of reading the log and of the store.
pub(crate) async fn truncate_log(log: &LogSource, kept_from: u64, now_ms: i64) -> Result<u64> {
    let listing = log.list(0).await?;
    let checkpoint = Segment::choose(&listing, Some(kept_from), false)?.checkpoint;
    let Some(checkpoint) = checkpoint.filter(|checkpoint| checkpoint.version == kept_from) else {
        return Err(Error::corrupt("the version has no checkpoint, so older ones are kept").at_version(kept_from));
    };
    check_whole(log, &checkpoint).await?;
    match expired(&listing, kept_from) {
        Some(found) => delete(log, &found.files, Some(now_ms)).await,
        None => Ok(0),
    }
}

/// Deletes files of the log. If the time is given, also sidecars that no checkpoint names any more. Returns the number of files.
async fn delete(log: &LogSource, files: &[LogFile], sidecars_at_ms: Option<i64>) -> Result<u64> {
    let mut removed = 0;
    for file in files {
        log.storage().delete(&log_file_path(&file.file_name)).await?;
        removed += 1;
    }
    match sidecars_at_ms {
        Some(now_ms) => Ok(removed + clean_sidecars(log, now_ms).await?),
        None => Ok(removed),
    }
}

/// The files that may be deleted from a log in which every version up to `newest_expired` has expired.
async fn dispensable(log: &LogSource, newest_expired: u64) -> Result<Option<Expired>> {
    let mut listing = log.list(0).await?;
    while let Some(found) = expired(&listing, newest_expired) {
        let Some(checkpoint) = Segment::choose(&listing, Some(found.kept_from), false)?.checkpoint else { break };
        match check_whole(log, &checkpoint).await {
            Ok(()) => return Ok(Some(found)),
            Err(e) if e.is_corrupt() || e.is_not_found() => {
                listing.retain(|file| checkpoint.files.iter().all(|damaged| damaged.file_name != file.file_name));
            }
            Err(e) => return Err(e),
        }
    }
    Ok(None)
}

/// Reads a checkpoint to its end.
///
/// # Errors
/// `Corrupt` or `NotFound` if it is damaged or a part of it is missing.
async fn check_whole(log: &LogSource, checkpoint: &Checkpoint) -> Result<()> {
    let open = OpenCheckpoint::open(log, checkpoint).await?;
    if open.non_file_actions().protocol.is_none() || open.non_file_actions().metadata.is_none() {
        return Err(Error::corrupt("a checkpoint lacks the protocol or the metadata of the table"));
    }
    open.adds(&AddColumns::all()).try_for_each(|_| ready(Ok(()))).await?;
    open.removes().try_for_each(|_| ready(Ok(()))).await
}

fn start_of_day(time_ms: i64) -> i64 {
    time_ms.saturating_sub(time_ms.rem_euclid(DAY_MS))
}

/// Deletes sidecars that no checkpoint names and that are too old to belong to one that is being written.
///
/// The checkpoints are listed after the sidecars, and listed again once those of the first listing are read: a checkpoint
/// that another client wrote meanwhile may name old sidecars. Those of deltic never do.
async fn clean_sidecars(log: &LogSource, now_ms: i64) -> Result<u64> {
    let oldest_kept = start_of_day(now_ms.saturating_sub(DAY_MS));
    let mut sidecars = log.list_sidecars().await?;
    sidecars.retain(|sidecar| sidecar.modified_ms < oldest_kept);
    let mut read_before = HashSet::new();
    for _ in 0..2 {
        if sidecars.is_empty() {
            return Ok(0);
        }
        let named = named_sidecars(log, &mut read_before).await?;
        sidecars.retain(|sidecar| !named.contains(file_name(&sidecar.path)));
    }
    let mut removed = 0;
    for sidecar in sidecars {
        log.storage().delete(&sidecar.path).await?;
        removed += 1;
    }
    Ok(removed)
}

/// The names of the sidecars of all checkpoints that are not in `read_before`.
async fn named_sidecars(log: &LogSource, read_before: &mut HashSet<(String, u64, i64)>) -> Result<HashSet<String>> {
    let mut named = HashSet::new();
    for file in log.list(0).await?.iter().filter(|file| file.size > 0) {
        let Some(checkpoint) = single_file_checkpoint(file) else { continue };
        // A classic checkpoint may have been overwritten by another one.
        if read_before.insert((file.file_name.clone(), file.size, file.modified_ms)) {
            let open = OpenCheckpoint::open(log, &checkpoint).await?;
            named.extend(open.sidecars().iter().map(|(path, _)| file_name(path).to_owned()));
        }
    }
    Ok(named)
}

/// The checkpoint that a file of the log is, unless it is none or only a part of one. Those in parts are V1 checkpoints.
pub(crate) fn single_file_checkpoint(file: &LogFile) -> Option<Checkpoint> {
    let kind = match &file.name {
        LogName::CheckpointClassic { .. } => CheckpointKind::Classic,
        LogName::CheckpointUuid { format, .. } => CheckpointKind::Uuid(*format),
        LogName::Commit { .. }
        | LogName::Compacted { .. }
        | LogName::Checksum { .. }
        | LogName::CheckpointMultiPart { .. } => return None,
    };
    Some(Checkpoint { version: file.name.version(), kind, files: vec![file.clone()] })
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
