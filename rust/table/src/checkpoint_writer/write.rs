//! Writing checkpoints: one Parquet file, streamed, or for large tables with the feature `v2Checkpoint` a small one over
//! sidecars.
//!
//! Nothing is replayed that the snapshot has not replayed: live files come from it run by run (`runs`), and are converted
//! as they are encoded. The file becomes visible only when it is complete, so that a failed checkpoint leaves the previous
//! one untouched. Smaller tables with the feature get a V2 checkpoint in one file with the classic name, which every reader
//! of V2 understands.
//!
//! The few actions other than those of files come last, in a row group of their own when there are many files.
//!
//! A snapshot of the checkpoint equals the snapshot of its commits (`checkpoint::a_checkpoint_keeps_the_state`).
//!
//! PROTOCOL.md: "Checkpoints", "Checkpoint Schema", "Last Checkpoint File".

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use deltic_protocol::action::Txn;
use deltic_protocol::feature;
use deltic_protocol::log::hint::{LastCheckpoint, UuidCheckpointHint};
use deltic_protocol::log::name::{CheckpointFormat, LAST_CHECKPOINT, LogName, checkpoint_name};
use deltic_protocol::property::{CheckpointPolicy, Properties};
use futures::stream::{self, StreamExt, TryStreamExt};

use super::columns::{CheckpointActions, CheckpointSchema};
use super::encode::{Encoding, Group, Output, grouped};
use super::sidecars::{self, MAX_SIDECAR_FILES, Sidecars};
use super::sort::Order;
use super::work::{Work, check_count};
use crate::error::{Error, Failed, Result};
use crate::log::{LogSource, log_file_path};
use crate::progress::{Progress, Unit};
use crate::snapshot::Snapshot;

/// `_last_checkpoint` lists the sidecars only if there are no more than these.
const HINTED_SIDECARS: usize = 30;

/// A checkpoint that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenCheckpoint {
    /// Version of the table.
    pub version: u64,
    /// Whether its file is named by the version alone.
    pub is_classic: bool,
    /// Actions of all kinds.
    pub actions: u64,
    /// Live files.
    pub adds: u64,
    /// Tombstones.
    pub removes: u64,
    /// Bytes of the checkpoint, its sidecars included.
    pub bytes: u64,
    /// Its sidecars.
    pub sidecars: u64,
    /// How many of the sidecars were taken over from the previous checkpoint.
    pub reused: u64,
}

/// Whether a checkpoint of `version` is due by the table's checkpoint `interval`.
pub fn is_due(version: u64, interval: u64) -> bool {
    version > 0 && interval > 0 && version.is_multiple_of(interval)
}

/// Writes a checkpoint of the newest version, unless there is one of deltic's that readers find, and returns the version.
///
/// # Errors
/// As [`of_snapshot`].
pub async fn checkpoint(log: &LogSource, now_ms: i64) -> Result<u64> {
    let snapshot = Snapshot::open(log, None).await?.with_readable_sidecars().await?;
    if let Some(there) = snapshot.checkpoint().await?
        && there.version() == snapshot.version()
        && there.is_our_own().await?
        && log.last_checkpoint().await.is_some_and(|hint| hint.version == there.version())
    {
        return Ok(there.version());
    }
    of_snapshot(&snapshot, now_ms).await.map(|written| written.version)
}

/// Writes a checkpoint of a snapshot, and points `_last_checkpoint` to it unless that points to a newer one.
///
/// # Errors
/// `Unsupported` if the table has a feature whose requirements a checkpoint of deltic might not meet; `Corrupt` if the log
/// cannot be replayed or does not agree with its checksum. A previous checkpoint is still there then.
pub async fn of_snapshot(snapshot: &Snapshot, now_ms: i64) -> Result<WrittenCheckpoint> {
    let with_context = |e: Error| e.in_table(snapshot.storage().location()).at_version(snapshot.version());
    let readable = snapshot.with_readable_sidecars().await.map_err(with_context)?;
    let (written, hint) = write(&readable, now_ms).await.map_err(with_context)?;
    point_to(snapshot.log(), &hint).await.map_err(with_context)?;
    Ok(written)
}

async fn write(snapshot: &Snapshot, now_ms: i64) -> Result<(WrittenCheckpoint, LastCheckpoint)> {
    let (protocol, metadata) = (snapshot.protocol(), snapshot.metadata());
    feature::check_checkpointable(protocol, metadata, snapshot.version())?;
    let properties = Properties::of(metadata);
    let may_follow_v2 = protocol.reader_features.iter().flatten().any(|name| name == "v2Checkpoint");
    let follows_v2 = may_follow_v2 && !properties.wants_classic_checkpoints()?;
    let order = Order::of(snapshot.shape(), &snapshot.domains().await?)?;
    let mut typed = match snapshot.checkpoint().await? {
        Some(checkpoint) => checkpoint.typed_stats().await?,
        None => HashSet::new(),
    };
    typed.extend(order.iter().flat_map(Order::clustering).cloned());
    let files = snapshot.checksum().and_then(|checksum| u64::try_from(checksum.num_files).ok());
    let work = Work {
        snapshot: snapshot.clone(),
        checkpoint_schema: Arc::new(CheckpointSchema::of(snapshot.shape(), properties, &typed, follows_v2)?),
        order,
        now_ms,
        horizon: now_ms.saturating_sub(properties.deleted_file_retention()?),
        progress: Progress::begin("CHECKPOINT", Unit::Files, files),
    };
    let sidecars = match follows_v2 && wants_sidecars(snapshot)? {
        true => Some(sidecars::write_sidecars(&work).await?),
        false => None,
    };
    let name = match &sidecars {
        Some(_) => {
            let (version, uuid) = (snapshot.version(), uuid::Uuid::new_v4().to_string());
            LogName::CheckpointUuid { version, uuid, format: CheckpointFormat::Parquet }.to_string()
        }
        None => checkpoint_name(snapshot.version()),
    };
    let written = write_top(&work, &name, follows_v2, sidecars.as_ref()).await;
    match (written, sidecars) {
        (Ok(written), sidecars) => Ok((written, hint(&written, name, now_ms, sidecars))),
        (Err(Failed::NotWritten(error)), Some(sidecars)) => {
            sidecars.discard(snapshot.storage()).await;
            Err(error)
        }
        // The checkpoint may exist despite the error, and needs its sidecars then.
        (Err(failed), _) => Err(failed.into()),
    }
}

/// Whether the table's properties ask for sidecars, or it is so large that rewriting all files each time would be a waste.
fn wants_sidecars(snapshot: &Snapshot) -> Result<bool> {
    let files = snapshot.checksum().and_then(|c| u64::try_from(c.num_files).ok()).unwrap_or_default();
    let policy = Properties::of(snapshot.metadata()).checkpoint_policy()?;
    Ok(policy == CheckpointPolicy::TwoLevel || files > MAX_SIDECAR_FILES)
}

/// Writes the main file of the checkpoint; an error tells whether the file may exist nonetheless.
async fn write_top(
    work: &Work,
    name: &str,
    follows_v2: bool,
    sidecars: Option<&Sidecars>,
) -> Result<WrittenCheckpoint, Failed> {
    let certain = |e: Error| Failed::NotWritten(e);
    let snapshot = &work.snapshot;
    let properties = Properties::of(snapshot.metadata());
    let path = log_file_path(name);
    let encoding = Encoding::new(work.checkpoint_schema.schema(), properties).map_err(certain)?;
    let mut output = Output::create(snapshot.storage(), &path, &encoding).await.map_err(certain)?;
    match write_actions(work, follows_v2, sidecars, &mut output).await {
        Ok(mut written) => {
            let bytes = output.finish().await.map_err(Failed::Unknown)?;
            written.bytes = written.bytes.saturating_add(bytes);
            Ok(written)
        }
        Err(error) => {
            output.abort().await;
            Err(certain(error))
        }
    }
}

async fn write_actions(
    work: &Work,
    follows_v2: bool,
    sidecars: Option<&Sidecars>,
    output: &mut Output,
) -> Result<WrittenCheckpoint> {
    let snapshot = &work.snapshot;
    let (version, is_classic) = (snapshot.version(), sidecars.is_none());
    let mut written =
        WrittenCheckpoint { version, is_classic, actions: 0, adds: 0, removes: 0, bytes: 0, sidecars: 0, reused: 0 };
    match sidecars {
        Some(sidecars) => {
            (written.adds, written.removes) = (sidecars.adds, sidecars.removes);
            (written.sidecars, written.reused) = (sidecars.all.len() as u64, sidecars.reused);
            let sizes = sidecars.all.iter().filter_map(|s| u64::try_from(s.size_in_bytes).ok());
            written.bytes = sizes.fold(0, u64::saturating_add);
        }
        None => {
            let (schema, adds) = (work.checkpoint_schema.schema(), AtomicU64::new(0));
            let count = |group: &Group| _ = adds.fetch_add(group.rows as u64, Ordering::Relaxed);
            // The tombstones are read while the last files are encoded.
            let removes = stream::once(work.removes(schema)).try_flatten();
            let groups = work.adds(None, 1, schema).await?.inspect_ok(count).chain(removes);
            let files = output.write_all(groups).await?;
            written.adds = adds.load(Ordering::Relaxed);
            check_count(snapshot, written.adds)?;
            written.removes = files.saturating_sub(written.adds);
        }
    }
    let mut txns = snapshot.txns().await?;
    if let Some(retention) = Properties::of(snapshot.metadata()).set_transaction_retention()? {
        let horizon = work.now_ms.saturating_sub(retention);
        // A `txn` action without a time is kept: without it the application would write twice.
        txns.retain(|txn: &Txn| txn.last_updated.is_none_or(|updated| updated > horizon));
    }
    let version =
        i64::try_from(snapshot.version()).map_err(|e| Error::internal("a version is too large").caused_by(e))?;
    let non_file_actions = CheckpointActions {
        protocol: snapshot.protocol().clone(),
        metadata: snapshot.metadata().clone(),
        txns,
        domains: snapshot.domains().await?,
        checkpoint_metadata: follows_v2.then_some(version),
        sidecars: sidecars.map(|sidecars| sidecars.all.clone()).unwrap_or_default(),
    };
    let non_file_rows = stream::iter(work.checkpoint_schema.non_file_rows(&non_file_actions)?.into_iter().map(Ok));
    let non_file_rows = output.write_all(grouped(non_file_rows, Ok)).await?;
    written.actions = written.adds + written.removes + non_file_rows;
    Ok(written)
}

/// The content of `_last_checkpoint`.
fn hint(written: &WrittenCheckpoint, name: String, now_ms: i64, sidecars: Option<Sidecars>) -> LastCheckpoint {
    let count = |number: u64| i64::try_from(number).ok();
    let of_sidecars = |sidecars: Sidecars| {
        let sizes =
            sidecars.all.iter().filter_map(|s| u64::try_from(s.size_in_bytes).ok()).fold(0, u64::saturating_add);
        UuidCheckpointHint {
            path: name,
            size_in_bytes: count(written.bytes.saturating_sub(sizes)).unwrap_or(-1),
            modification_time: now_ms,
            non_file_actions: None,
            sidecar_files: (sidecars.all.len() <= HINTED_SIDECARS).then_some(sidecars.all),
        }
    };
    LastCheckpoint {
        version: written.version,
        size: count(written.actions).unwrap_or(-1),
        size_in_bytes: count(written.bytes),
        num_of_add_files: count(written.adds),
        v2_checkpoint: sidecars.map(of_sidecars),
        ..LastCheckpoint::default()
    }
}

/// Points `_last_checkpoint` to what was written, unless a newer checkpoint is there.
async fn point_to(log: &LogSource, written: &LastCheckpoint) -> Result<()> {
    if let Some(hint) = log.last_checkpoint().await
        && hint.version > written.version
    {
        let there = log.list(hint.version).await?;
        // A hint whose checkpoint does not exist does not count, or it would stay for ever.
        if there.iter().any(|file| file.name.is_checkpoint() && file.name.version() >= hint.version) {
            return Ok(());
        }
    }
    // If this fails, readers list the whole log and find the checkpoint all the same.
    log.storage().put_hint(&log_file_path(LAST_CHECKPOINT), Bytes::from(written.to_json())).await
}
