//! The files of the row groups of a checkpoint: those that are live, and those that a predicate keeps.
//!
//! PROTOCOL.md: "Action Reconciliation".

use std::sync::Arc;

use arrow_array::StringArray;
use arrow_buffer::BooleanBuffer;
use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::log_bounds::{LogBounds, TableShape};
use deltic_protocol::prune;

use crate::checkpoint::read::AddColumns;
use crate::error::{Error, Result};
use crate::file_index::{FileIndex, Keys, Pruning, scatter};
use crate::parallel::try_compute;
use crate::snapshot::Snapshot;

/// Members of `add` that reading a file needs, besides the path.
pub(super) static TASK_MEMBERS: [&str; 6] =
    ["partitionValues", "size", "modificationTime", "deletionVector", "baseRowId", "defaultRowCommitVersion"];

/// The files to read in one row group of a checkpoint.
#[derive(Debug)]
pub(super) struct KeptGroup {
    pub(super) group: usize,
    pub(super) rows: BooleanBuffer,
    pub(super) paths: StringArray,
}

pub(super) async fn file_index(snapshot: &Snapshot) -> Result<&FileIndex> {
    snapshot.files().await?.ok_or_else(|| Error::internal("the table has no checkpoint"))
}

/// The live files of a row group that the predicate keeps.
pub(super) async fn prune_row_group(snapshot: Snapshot, pruning: Arc<Pruning>, group: usize) -> Result<KeptGroup> {
    let files = file_index(&snapshot).await?;
    let kept = match files.prune_row_group(group, &pruning).await {
        Err(error) if error.is_corrupt() => return prune_live_files(&snapshot, &pruning, group).await,
        kept => kept?,
    };
    if kept.count_set_bits() == 0 {
        return Ok(KeptGroup { group, rows: kept, paths: StringArray::new_null(0) });
    }
    let (rows, keys) = live(&snapshot, files, group, kept).await?;
    Ok(KeptGroup { group, rows, paths: keys.paths })
}

/// The rows that newer commits do not supersede, and their keys.
pub(super) async fn live(
    snapshot: &Snapshot,
    files: &FileIndex,
    group: usize,
    rows: BooleanBuffer,
) -> Result<(BooleanBuffer, Keys)> {
    let keys = files.keys(group, &rows).await?;
    if snapshot.tail().await?.mentions_no_file() {
        return Ok((rows, keys));
    }
    let snapshot = snapshot.clone();
    on_worker_thread(move || {
        let tail = snapshot.replayed().ok_or_else(|| Error::internal("the replayed commits were dropped"))?;
        let unseen = keys.unseen(tail);
        Ok((scatter(&rows, &unseen), keys.filter(&unseen)?))
    })
    .await
}

/// As [`prune_row_group`], but decodes the values of live files alone.
///
/// A column of the file index has the values of all files of a row group, also of those that newer commits removed. After a
/// partition column got another type, by `overwriteSchema`, a replaced table or RESTORE, the partition values of removed
/// files may not be of the new type, so that the column cannot be decoded.
///
/// # Errors
/// `Corrupt` if a partition value of a live file is not of the column's type.
async fn prune_live_files(snapshot: &Snapshot, pruning: &Pruning, group: usize) -> Result<KeptGroup> {
    let files = file_index(snapshot).await?;
    let (rows, keys) = live(snapshot, files, group, files.presence(group).await?).await?;
    if rows.count_set_bits() == 0 {
        return Ok(KeptGroup { group, rows, paths: keys.paths });
    }
    let members = vec!["partitionValues"];
    let wanted = AddColumns { members, stats: pruning.statistics_leaves(), num_records: true, ..AddColumns::default() };
    let adds = files.members(group, &rows, &wanted, &keys.paths).await?;
    let (kept, _) = may_match(&adds, pruning, snapshot.shape())?;
    let paths = keys.filter(&kept)?.paths;
    Ok(KeptGroup { group, rows: scatter(&rows, &kept), paths })
}

/// Which files may have a row that matches, and how many partition values exclude.
pub(super) fn may_match(adds: &AddBatch, pruning: &Pruning, shape: &TableShape) -> Result<(BooleanBuffer, u64)> {
    let mut kept = BooleanBuffer::new_set(adds.len());
    if let Some(predicate) = pruning.partition.as_ref().filter(|_| !adds.is_empty()) {
        kept = prune::keep(predicate, &LogBounds::of_partitions(adds, shape, &predicate.columns())?)?;
    }
    let in_partitions = kept.count_set_bits();
    if let Some(predicate) = pruning.statistics.as_ref().filter(|_| in_partitions > 0) {
        let rest = if in_partitions < adds.len() { adds.filter(kept.clone())? } else { adds.clone() };
        let bounds = LogBounds::of_statistics(&rest, shape, &predicate.columns(), pruning.needs_counts())?;
        kept = scatter(&kept, &prune::keep(predicate, &bounds)?);
    }
    Ok((kept, adds.len().saturating_sub(in_partitions) as u64))
}

/// Runs `work` on a worker thread.
pub(super) async fn on_worker_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    try_compute(work, |e| Error::internal("planning on a worker thread failed").caused_by(e)).await
}
