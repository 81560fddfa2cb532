//! What a transaction does to rows: which ones of a file of the base are gone while the file stays, what is recorded for
//! the change data feed, and the counts of both. Plain data; the steps stand beside it.
//!
//! PROTOCOL.md: "Deletion Vectors", "Add CDC File".

use std::collections::{BTreeMap, HashMap};

use deltic_protocol::action::{Action, Add, Cdc};
use deltic_protocol::commit::Actions;
use deltic_protocol::deletion_vector::DeletionVector;
use deltic_protocol::replay::canonical_path;
use serde_json::{Map, Value, json};

use super::added::Totals;
use crate::error::Result;

/// A file of the base of which some rows are gone.
#[derive(Debug, Clone)]
pub(crate) struct Marked {
    /// As the base has it.
    pub(crate) add: Add,
    /// Rows in the file, whether they count or not.
    pub(crate) stored: u64,
    /// The rows that its own vector deletes.
    pub(crate) before: DeletionVector,
    /// The rows that the transaction deletes.
    pub(crate) rows: DeletionVector,
}

impl Marked {
    /// All rows that do not count any more.
    pub(super) fn united(&self) -> DeletionVector {
        self.before.union(&self.rows)
    }
}

/// What a transaction does to rows.
#[derive(Debug, Clone, Default)]
pub(super) struct RowChanges {
    /// By path, as `canonical_path` spells it.
    marked: BTreeMap<String, Marked>,
    /// Their vectors, once they are stored.
    pub(super) stored: Option<StoredVectors>,
    /// Change files.
    pub(super) recorded: Vec<Cdc>,
    /// The files of the base that the change files speak of, by path: for each the rows of which no more is to be said, or
    /// none if that is all of them.
    pub(super) spoken_of: HashMap<String, Option<DeletionVector>>,
    counts: Option<RowCounts>,
}

/// Deletion vectors in a file.
#[derive(Debug, Clone)]
pub(super) struct StoredVectors {
    /// The file, as a store knows it.
    pub(super) key: String,
    /// What says so of the data files.
    pub(super) actions: Actions,
    /// Data files that had no vector.
    pub(super) added: u64,
    /// Data files that had one.
    pub(super) updated: u64,
}

/// Counts of what was done to rows, by what delta-spark counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct RowCounts {
    /// When the first step began.
    pub(crate) begun_ms: Option<i64>,
    /// Milliseconds that finding rows took.
    pub(crate) scan_ms: i64,
    /// Milliseconds that writing took.
    pub(crate) rewrite_ms: i64,
    /// Rows that were deleted; none if a file that went as a whole does not say how many it had.
    pub(crate) deleted_rows: Option<u64>,
    /// Rows that were copied as they are.
    pub(crate) copied_rows: u64,
    /// Bytes of files that are gone.
    pub(crate) removed_bytes: u64,
    /// Deletion vectors that went with their files.
    pub(crate) removed_vectors: u64,
}

impl RowChanges {
    /// Whether no row is marked, and none is recorded.
    pub(super) fn is_empty(&self) -> bool {
        self.marked.is_empty() && self.stored.is_none() && self.recorded.is_empty()
    }

    /// Whether it is a transaction that changes rows, even if there were none.
    pub(super) fn is_asked_for(&self) -> bool {
        self.counts.is_some()
    }

    /// The change files, as the log spells them, and the file of vectors, as a store knows it.
    pub(super) fn written(&self) -> (impl Iterator<Item = String>, Option<&str>) {
        (self.recorded.iter().map(|cdc| cdc.path.clone()), self.stored.as_ref().map(|stored| stored.key.as_str()))
    }

    /// Forgets about files that go as a whole.
    pub(super) fn forget(&mut self, goes: impl Fn(&str) -> bool) {
        self.marked.retain(|path, _| !goes(path));
    }

    /// The files of which rows are gone.
    pub(super) fn marked(&self) -> impl Iterator<Item = &Marked> {
        self.marked.values()
    }

    /// What is gone of a file.
    pub(super) fn marked_at(&self, path: &str) -> Option<&Marked> {
        self.marked.get(canonical_path(path).as_ref())
    }

    /// Takes more rows out of a file, which stays.
    pub(super) fn mark(&mut self, marked: Marked) {
        match self.marked.get_mut(canonical_path(&marked.add.path).as_ref()) {
            Some(known) => known.rows = known.rows.union(&marked.rows),
            None => drop(self.marked.insert(canonical_path(&marked.add.path).into_owned(), marked)),
        }
    }

    /// All that are marked, which are not from then on.
    pub(super) fn take_marked(&mut self) -> Vec<Marked> {
        std::mem::take(&mut self.marked).into_values().collect()
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

    /// What is to be said of files that stay, and of changes.
    ///
    /// # Errors
    /// `Internal` if it cannot be printed, which the types rule out.
    pub(super) fn add_to(self, actions: &mut Actions) -> Result<()> {
        if let Some(stored) = self.stored {
            actions.append(stored.actions)?;
        }
        self.recorded.into_iter().try_for_each(|cdc| actions.push(Action::Cdc(cdc)))
    }

    /// The counts, where rows were to be changed: of files that are gone there are so many, and that were written, too.
    pub(super) fn metrics(&self, removed_files: u64, rewritten: Totals, now_ms: i64, metrics: &mut Map<String, Value>) {
        let Some(counts) = &self.counts else { return };
        let mut count = |name: &str, value: u64| drop(metrics.insert(name.to_owned(), json!(value.to_string())));
        let ms = |ms: i64| u64::try_from(ms).unwrap_or_default();
        count("numRemovedFiles", removed_files);
        count("numRemovedBytes", counts.removed_bytes);
        count("numAddedFiles", rewritten.files);
        count("numAddedBytes", rewritten.bytes);
        if let Some(deleted) = counts.deleted_rows {
            count("numDeletedRows", deleted);
        }
        count("numCopiedRows", counts.copied_rows);
        count("numAddedChangeFiles", self.recorded.len() as u64);
        count("numDeletionVectorsAdded", self.stored.as_ref().map_or(0, |stored| stored.added));
        count("numDeletionVectorsUpdated", self.stored.as_ref().map_or(0, |stored| stored.updated));
        count("numDeletionVectorsRemoved", counts.removed_vectors);
        count("scanTimeMs", ms(counts.scan_ms));
        count("rewriteTimeMs", ms(counts.rewrite_ms));
        count("executionTimeMs", ms(now_ms.saturating_sub(counts.begun_ms.unwrap_or(now_ms))));
    }
}
