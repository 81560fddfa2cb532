//! Files that a winner added: whether a commit would have read rows of them.
//!
//! Statistics and partition values rule out most files. Rows of the others are searched with the predicates of the commit: if
//! none makes one of them TRUE, the commit would have read the same rows after the winner.
//!
//! PROTOCOL.md: "Commit Protocol".

use arrow_array::Array;
use arrow_buffer::BooleanBuffer;

use super::rows::files_with_fewer_rows;
use super::{ConflictCheck, data_changing, is_backfill, matching, refuse};
use crate::action::batch::AddBatch;
use crate::action::json::CommitActions;
use crate::commit::marked::{AddedRows, WinnerRows};
use crate::commit::pending::{Pending, PredicatesRead, ReadSet};
use crate::error::{Conflict, Result};
use crate::property::IsolationLevel;
use crate::replay::paths::PathSet;

impl Pending {
    /// The files of a winner whose rows have to be searched before the winner can be checked, if there are any. `rows`: what was
    /// read of the winner before.
    ///
    /// # Errors
    /// `Corrupt` if the winner's actions are.
    pub fn added_rows(&self, winner: &CommitActions, rows: &WinnerRows) -> Result<Option<AddedRows>> {
        let ReadSet::Predicates(read) = &self.read else { return Ok(None) };
        // The winner's columns may be others than those that the predicates are bound to.
        if winner.metadata.is_some() || self.loses_files(winner, read) {
            return Ok(None);
        }
        let isolation = self.effective_isolation();
        if self.passes_blind_append(winner, isolation) {
            return Ok(None);
        }
        let fewer_rows = files_with_fewer_rows(self, winner, &rows.vectors)?;
        let Some(adds) = self.relevant_adds(winner, &fewer_rows, isolation)? else { return Ok(None) };
        let files = (0..adds.len()).map(|row| adds.sized_add(row)).collect::<Result<Vec<_>>>()?;
        let (predicates, shape) = (read.predicates.clone(), read.shape.clone());
        Ok((!files.is_empty()).then_some(AddedRows { files, predicates, shape }))
    }

    /// Whether a later check refuses this commit because the winner removed files that it has read or removes.
    fn loses_files(&self, winner: &CommitActions, read: &PredicatesRead) -> bool {
        let removes = &winner.removes;
        let changing = data_changing(&winner.remove_rows, removes.len());
        (0..removes.len()).any(|row| {
            let path = removes.path(row);
            self.actions.removes(path) || (changing.value(row) && read.files.contains(path))
        })
    }

    /// The files of the winner that may have rows which this commit would have read; `None` if such rows do not matter.
    /// `fewer_rows`: files that the winner added again with fewer rows.
    fn relevant_adds(
        &self,
        winner: &CommitActions,
        fewer_rows: &PathSet,
        isolation: IsolationLevel,
    ) -> Result<Option<AddBatch>> {
        if isolation == IsolationLevel::SnapshotIsolation || is_backfill(winner) || winner.adds.is_empty() {
            return Ok(None);
        }
        let mut changing = data_changing(winner.adds.rows(), winner.adds.len());
        if !fewer_rows.is_empty() {
            let paths = winner.adds.path();
            let others = BooleanBuffer::collect_bool(paths.len(), |row| !fewer_rows.contains(paths.value(row)));
            changing = &changing & &others;
        }
        match &self.read {
            ReadSet::Nothing | ReadSet::Files(_) => Ok(None),
            ReadSet::AllRows | ReadSet::AllFiles => winner.adds.filter(changing).map(Some),
            ReadSet::Predicates(read) => matching(&winner.adds.filter(changing)?, read).map(Some),
        }
    }

    /// Whether the winner is a blind append, whose rows do not matter at the level WriteSerializable.
    fn passes_blind_append(&self, winner: &CommitActions, isolation: IsolationLevel) -> bool {
        let is_blind = winner.commit_info.as_ref().is_some_and(|info| info.is_blind_append());
        let passes = isolation == IsolationLevel::WriteSerializable && self.own_metadata().is_none();
        passes && is_blind && !is_backfill(winner)
    }

    /// A blind append that passes may count as made after this commit. Its files with matching rows count as read from then
    /// on: a later winner that changes their rows has read the append, so it must have read what this commit adds, too.
    fn pass_blind_append(&mut self, winner: &CommitActions) -> Result<()> {
        if let ReadSet::Predicates(read) = &mut self.read {
            let found = matching(&winner.adds, read)?;
            read.files.extend(found.path().iter().flatten().collect());
        }
        Ok(())
    }
}

impl ConflictCheck<'_> {
    pub(super) fn added_files(&mut self) -> Result<()> {
        if self.pending.passes_blind_append(self.winner, self.isolation) {
            return self.pending.pass_blind_append(self.winner);
        }
        if self.rows.no_added_row_matches {
            return Ok(());
        }
        let adds = self.pending.relevant_adds(self.winner, &self.files_with_fewer_rows, self.isolation)?;
        match adds.iter().flat_map(AddBatch::path).flatten().next() {
            Some(path) => Err(refuse(Conflict::ConcurrentAppend, &format!("for example {path}"))),
            None => Ok(()),
        }
    }
}
