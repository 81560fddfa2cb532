//! The row changes of a transaction: rows deleted from files of the base that stay, change files for the change data feed,
//! and the counts of both. Plain data; the steps are in `row_steps`.
//!
//! PROTOCOL.md: "Deletion Vectors", "Add CDC File".

use std::collections::HashMap;

use deltic_protocol::action::{Action, Cdc, Metadata, Protocol};
use deltic_protocol::commit::{Actions, MarkedFiles};
use deltic_protocol::deletion_vector::DeletionVector;
use deltic_protocol::replay::canonical_path;
use serde_json::{Map, Value};

use super::added::AddedFiles;
use crate::error::Result;
use crate::transaction::row_counts::{FileCounts, RowCounts};

/// The row changes of a transaction.
#[derive(Debug, Clone, Default)]
pub(crate) struct RowChanges {
    /// Files of the base with rows that the transaction deletes by deletion vectors.
    pub(super) marked: MarkedFiles,
    /// Change files.
    pub(super) change_files: Vec<Cdc>,
    /// The rows of files of the base that change files cover already, by path; none if all rows of the file.
    pub(super) recorded_rows: HashMap<String, Option<DeletionVector>>,
    /// Whether files are rewritten even if deletion vectors are enabled.
    pub(super) without_deletion_vectors: bool,
    counts: Option<RowCounts>,
}

/// The protocol and the metadata that a transaction sets, saved by a step that changes them so that they can be restored.
#[derive(Debug)]
pub(crate) struct SavedMetadata(pub(super) Option<Protocol>, pub(super) Option<Metadata>);

impl RowChanges {
    /// Whether there are neither marked rows nor change files.
    pub(super) fn is_empty(&self) -> bool {
        self.marked.is_empty() && self.change_files.is_empty()
    }

    /// Whether the transaction has a step that changes rows, even if no row matched.
    pub(super) fn has_row_step(&self) -> bool {
        self.counts.is_some()
    }

    /// Whether rows were merged, and changed in no other way.
    pub(super) fn is_merge(&self) -> bool {
        let counts = self.counts.as_ref();
        counts.is_some_and(RowCounts::is_merge)
    }

    /// The paths of the change files, as in the log.
    pub(super) fn written(&self) -> impl Iterator<Item = String> {
        self.change_files.iter().map(|cdc| cdc.path.clone())
    }

    /// Records that change files have these rows of a file, or all its rows.
    pub(super) fn add_recorded_rows(&mut self, path: &str, rows: Option<DeletionVector>) {
        let path = canonical_path(path).into_owned();
        let both = match (self.recorded_rows.remove(&path), rows) {
            (Some(before), rows) => before.zip(rows).map(|(before, rows)| before.union(&rows)),
            (None, rows) => rows,
        };
        self.recorded_rows.insert(path, both);
    }

    /// The counts, made on first use.
    pub(super) fn counts(&mut self) -> &mut RowCounts {
        self.counts.get_or_insert_with(|| RowCounts { deleted_rows: Some(0), ..RowCounts::default() })
    }

    /// Adds the `cdc` actions.
    ///
    /// # Errors
    /// `Internal` if it cannot be serialised (cannot happen).
    pub(super) fn add_to(self, actions: &mut Actions) -> Result<()> {
        self.change_files.into_iter().try_for_each(|cdc| actions.push(Action::Cdc(cdc)))
    }

    /// Adds the counts to the operation metrics, if the transaction changes rows.
    pub(super) fn metrics(
        &self,
        removed_files: u64,
        added: &AddedFiles,
        now_ms: i64,
        metrics: &mut Map<String, Value>,
    ) {
        let Some(counts) = &self.counts else { return };
        let (rewritten, new) = (added.rewritten_totals(), added.totals());
        let updated = self.marked.iter().filter(|marked| marked.add.deletion_vector.is_some()).count();
        let files = FileCounts {
            removed: removed_files,
            rewritten: (rewritten.files, rewritten.bytes),
            new: (new.files, new.bytes),
            changes: self.change_files.len() as u64,
            vectors: ((self.marked.len() - updated) as u64, updated as u64),
        };
        counts.metrics(&files, now_ms, metrics);
    }
}
