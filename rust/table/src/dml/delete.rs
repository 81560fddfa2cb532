//! DELETE: rows that make a condition TRUE leave the table.
//!
//! Files with only such rows are removed, without being read if the log proves it. In other files the rows are marked in
//! deletion vectors, if the table's properties ask for that, or the files are rewritten without them.
//!
//! PROTOCOL.md: "Append-only Tables", "Add File and Remove File".

use super::file_changes::{StepTimes, choose};
use super::find::{DELETE, RowAction, find};
use crate::error::Result;
use crate::transaction::builder::Transaction;
use crate::write::writer::Clock;

impl Transaction {
    /// Deletes the rows that make `filter` TRUE, or all rows without a filter. Returns how many; none if a file that was
    /// not read does not say how many it has.
    ///
    /// # Errors
    /// `Invalid` if the table is append-only or the filter does not fit its columns; `Unsupported` for rows that the
    /// transaction has changed before, on a table with a change data feed; those of reading and writing. The transaction is
    /// unchanged then.
    pub async fn delete(&mut self, filter: Option<&str>, clock: Clock) -> Result<Option<u64>> {
        let deleted = self.delete_rows(filter, clock).await;
        deleted.map_err(|e| e.in_table(self.storage().location()))
    }

    /// Deletes the rows that a write replaces, before new ones are added. Other writes delete nothing.
    ///
    /// # Errors
    /// As [`Transaction::delete`].
    pub async fn replace_rows(&mut self, clock: Clock) -> Result<()> {
        let Some((filter, saved)) = self.take_replace_condition() else { return Ok(()) };
        let deleted = Box::pin(self.delete(Some(&filter), clock)).await;
        self.restore_metadata(saved);
        deleted.map(drop)
    }

    async fn delete_rows(&mut self, filter: Option<&str>, clock: Clock) -> Result<Option<u64>> {
        if self.already_committed_version().is_some() {
            return Ok(Some(0));
        }
        let begun_ms = clock();
        let snapshot = self.removable().await?;
        let mut found = Box::pin(find(self, &snapshot, filter, (RowAction::Delete, begun_ms))).await?;
        let found_ms = clock();
        let chosen = choose(self, &mut found, begun_ms)?;
        let progress = chosen.progress(DELETE, 0);
        let specs = chosen.specs(self, &snapshot)?;
        let storage = self.storage().clone();
        let replaced = Box::pin(chosen.replace((&storage, specs.as_ref()), (None, clock), &progress)).await?;
        let deleted = chosen.deleted_rows();
        chosen.end_step(self, (found, replaced), StepTimes { begun_ms, found_ms, clock })?;
        self.count_deleted(deleted);
        Ok(deleted)
    }

    /// Counts deleted rows; none if it is not known how many.
    pub(super) fn count_deleted(&mut self, deleted: Option<u64>) {
        self.count_rows(|counts| {
            counts.deletes = true;
            counts.deleted_rows = counts.deleted_rows.zip(deleted).map(|(all, more)| all.saturating_add(more));
        });
    }
}
