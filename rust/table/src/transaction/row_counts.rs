//! Counts of the rows that a commit changed, and their names in the history (`operationMetrics`).
//!
//! The names are those of delta-spark, which uses other names for a merge.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The counts that delta-spark has of row changes.
#[derive(Debug, Clone, Default)]
pub(crate) struct RowCounts {
    /// When the first step began.
    pub(crate) begun_ms: Option<i64>,
    /// Milliseconds that finding rows took.
    pub(crate) scan_ms: i64,
    /// Milliseconds that writing took.
    pub(crate) rewrite_ms: i64,
    /// Whether there was a step that deletes rows.
    pub(crate) deletes: bool,
    /// Rows that were updated, if there was a step that updates rows.
    pub(crate) updated_rows: Option<u64>,
    /// Rows that were deleted; none if the number of rows of a removed file is not known.
    pub(crate) deleted_rows: Option<u64>,
    /// Rows that were copied unchanged.
    pub(crate) copied_rows: u64,
    /// Bytes of removed files.
    pub(crate) removed_bytes: u64,
    /// Deletion vectors that were removed with their files.
    pub(crate) removed_vectors: u64,
    /// The counts of merges, if there was one.
    pub(crate) merged: Option<MergeCounts>,
}

/// The counts that every step has that changes rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepCounts {
    /// When it began, had found the rows, and ended.
    pub(crate) times_ms: [i64; 3],
    /// Rows that were copied unchanged.
    pub(crate) copied_rows: u64,
    /// Bytes of removed files, and how many of them had deletion vectors.
    pub(crate) removed: (u64, u64),
}

impl RowCounts {
    /// Counts a step.
    pub(crate) fn add(&mut self, step: StepCounts) {
        let [started, found, ended] = step.times_ms;
        self.begun_ms = self.begun_ms.or(Some(started));
        self.scan_ms += found - started;
        self.rewrite_ms += ended - found;
        self.copied_rows += step.copied_rows;
        self.removed_bytes += step.removed.0;
        self.removed_vectors += step.removed.1;
    }
}

/// Rows that a merge read and changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The sum of both.
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

/// Files that a commit removes and adds, and how many of its files get deletion vectors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileCounts {
    /// Files that are removed.
    pub(crate) removed: u64,
    /// Files and bytes with existing rows.
    pub(crate) rewritten: (u64, u64),
    /// Files and bytes with new rows.
    pub(crate) new: (u64, u64),
    /// Change files.
    pub(crate) changes: u64,
    /// Deletion vectors of files that had none, and of files that had one.
    pub(crate) vectors: (u64, u64),
}

impl RowCounts {
    /// Whether rows were merged, and changed in no other way.
    pub(crate) fn is_merge(&self) -> bool {
        self.merged.is_some() && !self.deletes && self.updated_rows.is_none()
    }

    /// Adds all counts to `metrics` by their names.
    pub(crate) fn metrics(&self, files: &FileCounts, now_ms: i64, metrics: &mut Map<String, Value>) {
        let mut count = |name: &str, value: u64| drop(metrics.insert(name.to_owned(), json!(value.to_string())));
        let ms = |ms: i64| u64::try_from(ms).unwrap_or_default();
        count("scanTimeMs", ms(self.scan_ms));
        count("rewriteTimeMs", ms(self.rewrite_ms));
        count("executionTimeMs", ms(now_ms.saturating_sub(self.begun_ms.unwrap_or(now_ms))));
        if let Some(merged) = self.merged {
            self.merge_metrics(merged, files, &mut count);
        }
        if self.is_merge() {
            return;
        }
        count("numRemovedFiles", files.removed);
        count("numRemovedBytes", self.removed_bytes);
        count("numAddedFiles", files.rewritten.0);
        count("numAddedBytes", files.rewritten.1);
        if let Some(deleted) = self.deleted_rows.filter(|_| self.deletes) {
            count("numDeletedRows", deleted);
        }
        if let Some(updated) = self.updated_rows {
            count("numUpdatedRows", updated);
        }
        count("numCopiedRows", self.copied_rows);
        count("numAddedChangeFiles", files.changes);
        count("numDeletionVectorsAdded", files.vectors.0);
        count("numDeletionVectorsUpdated", files.vectors.1);
        count("numDeletionVectorsRemoved", self.removed_vectors);
    }

    fn merge_metrics(&self, merged: MergeCounts, files: &FileCounts, count: &mut dyn FnMut(&str, u64)) {
        let changed = merged.matched_updated.saturating_add(merged.unmatched_updated);
        count("numSourceRows", merged.source);
        count("numTargetRowsInserted", merged.inserted);
        count("numTargetRowsUpdated", changed);
        count("numTargetRowsMatchedUpdated", merged.matched_updated);
        count("numTargetRowsNotMatchedBySourceUpdated", merged.unmatched_updated);
        count("numTargetRowsDeleted", merged.matched_deleted.saturating_add(merged.unmatched_deleted));
        count("numTargetRowsMatchedDeleted", merged.matched_deleted);
        count("numTargetRowsNotMatchedBySourceDeleted", merged.unmatched_deleted);
        count("numTargetRowsCopied", self.copied_rows);
        count("numTargetFilesAdded", files.rewritten.0.saturating_add(files.new.0));
        count("numTargetBytesAdded", files.rewritten.1.saturating_add(files.new.1));
        count("numTargetFilesRemoved", files.removed);
        count("numTargetBytesRemoved", self.removed_bytes);
        count("numTargetChangeFilesAdded", files.changes);
        count("numTargetDeletionVectorsAdded", files.vectors.0);
        count("numTargetDeletionVectorsUpdated", files.vectors.1);
        count("numTargetDeletionVectorsRemoved", self.removed_vectors);
        count("numOutputRows", merged.inserted.saturating_add(changed).saturating_add(self.copied_rows));
    }
}
