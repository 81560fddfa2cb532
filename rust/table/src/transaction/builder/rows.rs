//! What a transaction does to rows: which ones of a file of the base are gone while the file stays, what is recorded for
//! the change data feed, and the counts of both. Plain data; the steps stand beside it.
//!
//! PROTOCOL.md: "Deletion Vectors", "Add CDC File".

use std::collections::HashMap;

use deltic_protocol::action::{Action, Cdc, Metadata, Protocol};
use deltic_protocol::commit::{Actions, MarkedFiles};
use deltic_protocol::deletion_vector::DeletionVector;
use deltic_protocol::replay::canonical_path;
use serde_json::{Map, Value};

use super::added::Added;
use crate::error::Result;
use crate::transaction::row_counts::{FileCounts, RowCounts};

/// What a transaction does to rows.
#[derive(Debug, Clone, Default)]
pub(crate) struct RowChanges {
    /// Files of the base of which rows are gone.
    pub(super) marked: MarkedFiles,
    /// Change files.
    pub(super) recorded: Vec<Cdc>,
    /// The files of the base that the change files speak of, by path: for each the rows of which no more is to be said, or
    /// none if that is all of them.
    pub(super) spoken_of: HashMap<String, Option<DeletionVector>>,
    /// Whether files are written again even where rows could be marked.
    pub(super) copies: bool,
    counts: Option<RowCounts>,
}

/// What a step has settled of the table, the protocol and the metadata.
#[derive(Debug)]
pub(crate) struct Unsettled(pub(super) Option<Protocol>, pub(super) Option<Metadata>);

impl RowChanges {
    /// Whether no row is marked, and none is recorded.
    pub(super) fn is_empty(&self) -> bool {
        self.marked.is_empty() && self.recorded.is_empty()
    }

    /// Whether it is a transaction that changes rows, even if there were none.
    pub(super) fn is_asked_for(&self) -> bool {
        self.counts.is_some()
    }

    /// Whether rows were merged, and changed in no other way.
    pub(super) fn is_merge(&self) -> bool {
        let counts = self.counts.as_ref();
        counts.is_some_and(RowCounts::is_merge)
    }

    /// The change files, as the log spells them.
    pub(super) fn written(&self) -> impl Iterator<Item = String> {
        self.recorded.iter().map(|cdc| cdc.path.clone())
    }

    /// Says that change files speak of rows of a file: of all, or of these.
    pub(super) fn speak_of(&mut self, path: &str, rows: Option<DeletionVector>) {
        let path = canonical_path(path).into_owned();
        let both = match (self.spoken_of.remove(&path), rows) {
            (Some(before), rows) => before.zip(rows).map(|(before, rows)| before.union(&rows)),
            (None, rows) => rows,
        };
        self.spoken_of.insert(path, both);
    }

    /// The counts, which there are from then on.
    pub(super) fn counts(&mut self) -> &mut RowCounts {
        self.counts.get_or_insert_with(|| RowCounts { deleted_rows: Some(0), ..RowCounts::default() })
    }

    /// What is to be said of changes.
    ///
    /// # Errors
    /// `Internal` if it cannot be printed, which the types rule out.
    pub(super) fn add_to(self, actions: &mut Actions) -> Result<()> {
        self.recorded.into_iter().try_for_each(|cdc| actions.push(Action::Cdc(cdc)))
    }

    /// The counts, where rows were to be changed.
    pub(super) fn metrics(&self, removed_files: u64, added: &Added, now_ms: i64, metrics: &mut Map<String, Value>) {
        let Some(counts) = &self.counts else { return };
        let (rewritten, new) = (added.rewritten_totals(), added.totals());
        let updated = self.marked.iter().filter(|marked| marked.add.deletion_vector.is_some()).count();
        let files = FileCounts {
            removed: removed_files,
            rewritten: (rewritten.files, rewritten.bytes),
            new: (new.files, new.bytes),
            changes: self.recorded.len() as u64,
            vectors: ((self.marked.len() - updated) as u64, updated as u64),
        };
        counts.metrics(&files, now_ms, metrics);
    }
}
