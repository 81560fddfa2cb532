//! What a transaction does to rows: which ones of a file of the base are gone while the file stays, what is recorded for
//! the change data feed, and the counts of both. Plain data; the steps stand beside it.
//!
//! PROTOCOL.md: "Deletion Vectors", "Add CDC File".

use std::collections::HashMap;

use deltic_protocol::action::{Action, Cdc, Metadata, Protocol};
use deltic_protocol::commit::{Actions, MarkedFiles};
use deltic_protocol::deletion_vector::DeletionVector;
use deltic_protocol::replay::canonical_path;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::added::Added;
use crate::error::Result;

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
    counts: Option<RowCounts>,
}

/// What a step has settled of the table, the protocol and the metadata.
#[derive(Debug)]
pub(crate) struct Unsettled(pub(super) Option<Protocol>, pub(super) Option<Metadata>);

/// Counts of what was done to rows, by what delta-spark counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct RowCounts {
    /// When the first step began.
    pub(crate) begun_ms: Option<i64>,
    /// Milliseconds that finding rows took.
    pub(crate) scan_ms: i64,
    /// Milliseconds that writing took.
    pub(crate) rewrite_ms: i64,
    /// Whether rows were to be deleted.
    pub(crate) deletes: bool,
    /// Rows that were updated, if any were to be.
    pub(crate) updated_rows: Option<u64>,
    /// Rows that were deleted; none if a file that went as a whole does not say how many it had.
    pub(crate) deleted_rows: Option<u64>,
    /// Rows that were copied as they are.
    pub(crate) copied_rows: u64,
    /// Bytes of files that are gone.
    pub(crate) removed_bytes: u64,
    /// Deletion vectors that went with their files.
    pub(crate) removed_vectors: u64,
    /// What merges did, if any was to do something.
    pub(crate) merged: Option<MergeCounts>,
}

/// Rows that a merge read and changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MergeCounts {
    /// Rows of the source.
    pub source: u64,
    /// Rows of the source that were inserted.
    pub inserted: u64,
    /// Rows of the target that were updated because one of the source matched.
    pub matched_updated: u64,
    /// Rows of the target that were deleted because one of the source matched.
    pub matched_deleted: u64,
    /// Rows of the target that were updated because none of the source matched.
    pub unmatched_updated: u64,
    /// Rows of the target that were deleted because none of the source matched.
    pub unmatched_deleted: u64,
}

impl MergeCounts {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            source: self.source.saturating_add(other.source),
            inserted: self.inserted.saturating_add(other.inserted),
            matched_updated: self.matched_updated.saturating_add(other.matched_updated),
            matched_deleted: self.matched_deleted.saturating_add(other.matched_deleted),
            unmatched_updated: self.unmatched_updated.saturating_add(other.unmatched_updated),
            unmatched_deleted: self.unmatched_deleted.saturating_add(other.unmatched_deleted),
        }
    }
}

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
        counts.is_some_and(|counts| counts.merged.is_some() && !counts.deletes && counts.updated_rows.is_none())
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

    /// The counts, where rows were to be changed: of files that are gone there are so many, and that were written, too.
    pub(super) fn metrics(&self, removed_files: u64, added: &Added, now_ms: i64, metrics: &mut Map<String, Value>) {
        let Some(counts) = &self.counts else { return };
        let (rewritten, new) = (added.rewritten_totals(), added.totals());
        let mut count = |name: &str, value: u64| drop(metrics.insert(name.to_owned(), json!(value.to_string())));
        let ms = |ms: i64| u64::try_from(ms).unwrap_or_default();
        let updated = self.marked.iter().filter(|marked| marked.add.deletion_vector.is_some()).count();
        let marked = ((self.marked.len() - updated) as u64, updated as u64);
        count("scanTimeMs", ms(counts.scan_ms));
        count("rewriteTimeMs", ms(counts.rewrite_ms));
        count("executionTimeMs", ms(now_ms.saturating_sub(counts.begun_ms.unwrap_or(now_ms))));
        if let Some(merged) = counts.merged {
            merge_metrics(merged, counts, marked, &mut count);
            count("numTargetFilesAdded", rewritten.files.saturating_add(new.files));
            count("numTargetBytesAdded", rewritten.bytes.saturating_add(new.bytes));
            count("numTargetFilesRemoved", removed_files);
            count("numTargetChangeFilesAdded", self.recorded.len() as u64);
        }
        if self.is_merge() {
            return;
        }
        count("numRemovedFiles", removed_files);
        count("numRemovedBytes", counts.removed_bytes);
        count("numAddedFiles", rewritten.files);
        count("numAddedBytes", rewritten.bytes);
        if let Some(deleted) = counts.deleted_rows.filter(|_| counts.deletes) {
            count("numDeletedRows", deleted);
        }
        if let Some(updated) = counts.updated_rows {
            count("numUpdatedRows", updated);
        }
        count("numCopiedRows", counts.copied_rows);
        count("numAddedChangeFiles", self.recorded.len() as u64);
        count("numDeletionVectorsAdded", marked.0);
        count("numDeletionVectorsUpdated", marked.1);
        count("numDeletionVectorsRemoved", counts.removed_vectors);
    }
}

/// What delta-spark says of a merge.
fn merge_metrics(
    merged: MergeCounts,
    counts: &RowCounts,
    (added, updated): (u64, u64),
    count: &mut dyn FnMut(&str, u64),
) {
    let changed = merged.matched_updated.saturating_add(merged.unmatched_updated);
    count("numSourceRows", merged.source);
    count("numTargetRowsInserted", merged.inserted);
    count("numTargetRowsUpdated", changed);
    count("numTargetRowsMatchedUpdated", merged.matched_updated);
    count("numTargetRowsNotMatchedBySourceUpdated", merged.unmatched_updated);
    count("numTargetRowsDeleted", merged.matched_deleted.saturating_add(merged.unmatched_deleted));
    count("numTargetRowsMatchedDeleted", merged.matched_deleted);
    count("numTargetRowsNotMatchedBySourceDeleted", merged.unmatched_deleted);
    count("numTargetRowsCopied", counts.copied_rows);
    count("numTargetBytesRemoved", counts.removed_bytes);
    count("numTargetDeletionVectorsAdded", added);
    count("numTargetDeletionVectorsUpdated", updated);
    count("numTargetDeletionVectorsRemoved", counts.removed_vectors);
    count("numOutputRows", merged.inserted.saturating_add(changed).saturating_add(counts.copied_rows));
}
