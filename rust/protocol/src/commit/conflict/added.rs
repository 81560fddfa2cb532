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
use crate::commit::marked::{AddedFiles, AddedRows, WinnerRows};
use crate::commit::pending::Pending;
use crate::commit::read_set::ReadSet;
use crate::error::{Conflict, Result};
use crate::property::IsolationLevel;
use crate::replay::paths::PathSet;

impl Pending {
    /// How the files that a winner added are judged. `rows`: what was read of the winner before.
    ///
    /// # Errors
    /// `Corrupt` if the winner's actions are.
    pub fn added_files(&self, winner: &CommitActions, rows: &WinnerRows) -> Result<AddedFiles> {
        let isolation = self.effective_isolation();
        if self.passes_blind_append(winner, isolation) {
            return Ok(AddedFiles::Irrelevant);
        }
        let fewer_rows = files_with_fewer_rows(self, winner, &rows.vectors)?;
        let adds = self.relevant_adds(winner, &fewer_rows, isolation)?;
        let Some(adds) = adds.filter(|adds| !adds.is_empty()) else { return Ok(AddedFiles::Irrelevant) };
        match &self.read {
            // If the winner changed the metadata, the predicates may be bound to other columns than its files have.
            ReadSet::Predicates(read) if winner.metadata.is_none() => Ok(AddedFiles::Search(AddedRows {
                files: (0..adds.len()).map(|row| adds.sized_add(row)).collect::<Result<_>>()?,
                searches: read.searches.clone(),
            })),
            _ => Ok(AddedFiles::ByStatistics),
        }
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
            // A winner that moves rows removes files, too, and is refused for these.
            ReadSet::AllFiles if winner.removes.is_empty() => Ok(Some(winner.adds.clone())),
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
