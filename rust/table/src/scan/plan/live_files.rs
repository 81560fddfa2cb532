//! Pruning of a row group of a checkpoint by its live files alone.
//!
//! A column of the file index has the values of all files of a row group, also of those that newer commits removed. After a
//! partition column got another type, by `overwriteSchema`, a replaced table or RESTORE, the partition values of removed
//! files may not be of the new type, so that the column cannot be decoded. The files that are live still can be.
//!
//! PROTOCOL.md: "Action Reconciliation".

use arrow_buffer::BooleanBuffer;
use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::log_bounds::{LogBounds, TableShape};
use deltic_protocol::prune;

use super::{KeptGroup, TASK_MEMBERS, file_index, live};
use crate::checkpoint::read::AddColumns;
use crate::error::Result;
use crate::file_index::{Pruning, scatter};
use crate::snapshot::Snapshot;

/// The live files of a row group that the predicate keeps.
///
/// # Errors
/// `Corrupt` if a partition value of a live file is not of the column's type.
pub(super) async fn prune_row_group(snapshot: &Snapshot, pruning: &Pruning, group: usize) -> Result<KeptGroup> {
    let files = file_index(snapshot).await?;
    let (rows, keys) = live(snapshot, files, group, files.presence(group).await?).await?;
    let members = TASK_MEMBERS.to_vec();
    let wanted = AddColumns { members, stats: pruning.statistics_leaves(), num_records: true, ..AddColumns::default() };
    let adds = files.members(group, &rows, &wanted, &keys.paths).await?;
    let kept = may_match(&adds, pruning, snapshot.shape())?;
    let paths = keys.filter(&kept)?.paths;
    Ok(KeptGroup { group, rows: scatter(&rows, &kept), paths })
}

/// Which files may have a row that matches.
fn may_match(adds: &AddBatch, pruning: &Pruning, shape: &TableShape) -> Result<BooleanBuffer> {
    let mut kept = BooleanBuffer::new_set(adds.len());
    if let Some(predicate) = &pruning.partition {
        kept = &kept & &prune::keep(predicate, &LogBounds::of_partitions(adds, shape, &predicate.columns())?)?;
    }
    if let Some(predicate) = &pruning.statistics {
        let bounds = LogBounds::of_statistics(adds, shape, &predicate.columns(), pruning.needs_counts())?;
        kept = &kept & &prune::keep(predicate, &bounds)?;
    }
    Ok(kept)
}
