//! May this commit follow that one?
//!
//! A commit was prepared on some version; meanwhile another won the next one. [`check`] says whether the first may still
//! be written after it. Judged per winner, in order, on what was read and what is written: no I/O, no clock.
//!
//! Stricter than it must be, never laxer: whoever read something conflicts with every change of files.
//!
//! PROTOCOL.md: "Commit Protocol"; the reasons carry delta-spark's exception names.

use std::borrow::Cow;
use std::collections::HashSet;

use arrow_array::{Array, cast::AsArray};

use crate::action::Action;
use crate::action::json::CommitActions;
pub use crate::error::Conflict;
use crate::replay::canonical_path;

/// What a commit has read of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadSet {
    /// No file: a blind append.
    Nothing,
    /// All of it.
    WholeTable,
}

/// Whether `actions`, having read `read`, may follow `winner`.
pub fn check(read: ReadSet, actions: &[Action], winner: &CommitActions) -> Result<(), Conflict> {
    if winner.protocol.is_some() {
        return Err(Conflict::ProtocolChanged);
    }
    if winner.metadata.is_some() {
        return Err(Conflict::MetadataChanged);
    }
    for action in actions {
        let clash = match action {
            Action::Txn(own) => winner.txns.iter().any(|t| t.app_id == own.app_id),
            Action::DomainMetadata(own) => winner.domains.iter().any(|d| d.domain == own.domain),
            Action::CommitInfo(_)
            | Action::Protocol(_)
            | Action::Metadata(_)
            | Action::Add(_)
            | Action::Remove(_)
            | Action::Cdc(_) => false,
        };
        if clash {
            return Err(Conflict::ConcurrentTransaction);
        }
    }
    if read == ReadSet::WholeTable && changes_rows(winner) {
        return Err(Conflict::ConcurrentAppend);
    }
    if read == ReadSet::WholeTable && !winner.removes.is_empty() {
        return Err(Conflict::ConcurrentDeleteRead);
    }
    let removed = (0..winner.removes.len()).map(|row| canonical_path(winner.removes.path(row)));
    let removed: HashSet<Cow<'_, str>> = removed.collect();
    if actions.iter().any(|a| matches!(a, Action::Remove(own) if removed.contains(&canonical_path(&own.path)))) {
        return Err(Conflict::ConcurrentDeleteDelete);
    }
    Ok(())
}

/// Whether any added file changes rows rather than rearranging them; unknown counts as yes.
fn changes_rows(commit: &CommitActions) -> bool {
    let data_change = commit.adds.rows().column_by_name("dataChange").and_then(|c| c.as_boolean_opt());
    (0..commit.adds.len()).any(|row| data_change.is_none_or(|c| c.is_null(row) || c.value(row)))
}
