//! Previews of DELETE, UPDATE and MERGE: the same search for rows and the same choice of files, but nothing is written.

use deltic_protocol::deletion_vector::{DeletionVector, to_file_bytes};
use serde::Serialize;

use super::file_changes::{ChangedFiles, choose};
use super::find::{FindResult, RowAction, TouchedFile, find};
use crate::error::Result;
use crate::scan::plan::ScanPlan;
use crate::snapshot::Snapshot;
use crate::transaction::builder::Transaction;
use crate::write::writer::Clock;

/// What a DELETE, an UPDATE or a MERGE would do to a version of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Preview {
    /// The version that was read.
    pub version: u64,
    /// Live files.
    pub files_total: u64,
    /// Files that cannot have a matching row, by their partition values.
    pub skipped_by_partition: u64,
    /// Other files that cannot, by their statistics.
    pub skipped_by_statistics: u64,
    /// Other files that cannot, by the keys of a merge's source together with partition values or statistics.
    pub skipped_by_keys: u64,
    /// Files that were read to find the rows.
    pub files_read: u64,
    /// Row groups of these files; a file that its partition values rule out only now is not opened.
    pub row_groups: u64,
    /// Row groups that cannot have a matching row, by the statistics in the files' footers.
    pub row_groups_skipped_by_statistics: u64,
    /// Other row groups that cannot, by bloom filters.
    pub row_groups_skipped_by_bloom_filter: u64,
    /// Files that would be removed with all their rows.
    pub files_removed: u64,
    /// Files that would stay, with rows marked in a deletion vector.
    pub files_marked: u64,
    /// Files that would be rewritten.
    pub files_rewritten: u64,
    /// Rows that match; none if a file that was not read does not say how many it has.
    pub rows: Option<u64>,
    /// Rows that would be inserted.
    pub rows_inserted: u64,
    /// Rows that would be copied unchanged.
    pub rows_copied: u64,
    /// Bytes of data files that were read to find the rows, and would be read to copy rows.
    pub bytes_read: u64,
    /// Bytes that would be written, about.
    pub bytes_written: u64,
}

impl Transaction {
    /// What [`Transaction::delete`] would do.
    ///
    /// # Errors
    /// As [`Transaction::delete`], except those of writing.
    pub async fn delete_preview(&mut self, filter: Option<&str>, clock: Clock) -> Result<Preview> {
        let preview = async {
            let snapshot = self.removable().await?;
            self.preview(&snapshot, filter, (RowAction::Delete, clock())).await
        };
        let preview = Box::pin(preview).await;
        preview.map_err(|e| e.in_table(self.storage().location()))
    }

    pub(super) async fn preview(
        &self,
        snapshot: &Snapshot,
        filter: Option<&str>,
        action: (RowAction, i64),
    ) -> Result<Preview> {
        let found = Box::pin(find(self, snapshot, filter, action)).await?;
        self.preview_of(snapshot, found, action.1).await
    }

    pub(super) async fn preview_of(&self, snapshot: &Snapshot, mut found: FindResult, now_ms: i64) -> Result<Preview> {
        let chosen = choose(self, &mut found, now_ms)?;
        let (rereads, writes) = estimate_bytes(&chosen, self.has_change_data_feed()?)?;
        let (totals, FindResult { candidates, bytes_read, row_groups, .. }) = (found.plan.totals().await?, found);
        Ok(Preview {
            version: snapshot.version(),
            files_total: totals.files,
            skipped_by_partition: totals.skipped.partition,
            skipped_by_statistics: totals.skipped.statistics,
            skipped_by_keys: 0,
            files_read: candidates,
            row_groups: row_groups.total,
            row_groups_skipped_by_statistics: row_groups.skipped_by_footer,
            row_groups_skipped_by_bloom_filter: row_groups.skipped_by_bloom_filter,
            files_removed: chosen.removed_files.removes.num_removed() as u64,
            files_marked: chosen.marked.len() as u64,
            files_rewritten: chosen.rewritten.len() as u64,
            rows: chosen.removed_files.live_rows.map(|rows| rows.saturating_add(chosen.matching_rows)),
            rows_inserted: 0,
            rows_copied: chosen.copied_rows(),
            bytes_read: bytes_read.saturating_add(rereads),
            bytes_written: writes,
        })
    }
}

impl Preview {
    /// The same, with the files that only the keys of a merge's source rule out counted apart. `condition`: the filter
    /// that holds for any keys.
    pub(super) async fn with_skipped_by_keys(self, snapshot: &Snapshot, condition: Option<&str>) -> Result<Self> {
        let by_condition = ScanPlan::new(snapshot, Some(&[]), condition).await?.totals().await?.skipped;
        let skipped = self.skipped_by_partition.saturating_add(self.skipped_by_statistics);
        Ok(Self {
            skipped_by_partition: by_condition.partition,
            skipped_by_statistics: by_condition.statistics,
            skipped_by_keys: skipped.saturating_sub(by_condition.partition).saturating_sub(by_condition.statistics),
            ..self
        })
    }
}

/// Estimates the bytes that would be read to rewrite files and to write change files, and the bytes that would be written.
fn estimate_bytes(chosen: &ChangedFiles, has_change_data_feed: bool) -> Result<(u64, u64)> {
    let (mut reads, mut writes, mut records) = (0_u64, 0_u64, false);
    let all = chosen.rewritten.iter().map(|touched| (touched, true));
    for (touched, is_rewritten) in all.chain(chosen.marked.iter().map(|touched| (touched, false))) {
        let updated = share(touched, touched.updated.cardinality());
        let deleted = touched.deleted().cardinality();
        let written = match is_rewritten {
            true => share(touched, touched.live_rows().saturating_sub(deleted)),
            false => updated,
        };
        reads = reads.saturating_add(if is_rewritten { touched.task.size } else { updated });
        writes = writes.saturating_add(written);
        if has_change_data_feed {
            let deleted = if is_rewritten { share(touched, deleted) } else { 0 };
            records |= is_rewritten || updated > 0;
            reads = reads.saturating_add(updated).saturating_add(deleted);
            writes = writes.saturating_add(updated.saturating_mul(2)).saturating_add(deleted);
        }
    }
    if records {
        (reads, writes) =
            (reads.saturating_add(chosen.removed_files.bytes), writes.saturating_add(chosen.removed_files.bytes));
    }
    Ok((reads, writes.saturating_add(vector_bytes(chosen)?)))
}

/// Bytes of the deletion vectors.
fn vector_bytes(chosen: &ChangedFiles) -> Result<u64> {
    if chosen.marked.is_empty() {
        return Ok(0);
    }
    let vectors: Vec<DeletionVector> =
        chosen.marked.iter().map(|touched| touched.rows_deleted_before_commit.union(&touched.matching)).collect();
    Ok(to_file_bytes(&vectors)?.0.len() as u64)
}

/// An estimate of the bytes that `rows` rows of a file take.
fn share(touched: &TouchedFile, rows: u64) -> u64 {
    let share = u128::from(touched.task.size) * u128::from(rows) / u128::from(touched.physical_rows.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}
