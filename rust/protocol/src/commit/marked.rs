//! Files that stay in the table while a commit deletes some of their rows by deletion vectors.
//!
//! Before an attempt, the vectors are united with those of winners and stored again; where they are stored is not known
//! here. If a winner moved the rows to other files, these files take the place of the old ones.
//!
//! PROTOCOL.md: "Deletion Vectors", "Row Tracking".

use std::collections::{BTreeMap, HashMap};

use super::read_set::Search;
use crate::action::{Action, Add, DeletionVectorDescriptor};
use crate::deletion_vector::DeletionVector;
use crate::error::{Error, Result};
use crate::log_bounds::TableShape;
use crate::property::RowTracking;
use crate::replay::canonical_path;
use crate::stats::json::wide;

/// Deletion vectors by the ids of their descriptors.
pub type Vectors = HashMap<String, DeletionVector>;

/// What has to be read of a winner's files before the winner can be checked.
#[derive(Debug, Clone, Default)]
pub struct WinnerRows {
    /// The deletion vectors of [`Pending::vectors_needed`](super::Pending::vectors_needed).
    pub vectors: Vectors,
    /// The files that have the rows of [`Pending::moved_rows`](super::Pending::moved_rows) now, with these rows; none if not
    /// every row was found.
    pub moved: Vec<MarkedFile>,
    /// Whether no file of [`Pending::added_files`](super::Pending::added_files) has a row that makes one of the predicates TRUE.
    pub no_added_row_matches: bool,
}

/// Rows that a commit deletes by deletion vectors and that a winner moved to other files.
#[derive(Debug, Clone)]
pub struct MovedRows {
    /// The files that had them, which the winner removed.
    pub from: Vec<MarkedFile>,
    /// Files that the winner added, and which may have them.
    pub to: Vec<Add>,
    /// The columns of the table.
    pub shape: TableShape,
    /// How the table tracks rows.
    pub tracking: RowTracking,
}

/// How the files that a winner added are judged.
#[derive(Debug)]
pub enum AddedFiles {
    /// None of them has rows that this commit would have read, as far as that matters.
    Irrelevant,
    /// By their statistics alone, which do not rule out all of them.
    ByStatistics,
    /// Their rows have to be searched.
    Search(AddedRows),
}

/// Files that a winner added, and the predicates by which their rows have to be searched.
#[derive(Debug, Clone)]
pub struct AddedRows {
    /// The files that statistics and partition values do not rule out.
    pub files: Vec<Add>,
    /// The predicates by which the commit searched the table.
    pub searches: Vec<Search>,
}

/// A file that stays in the table with some of its rows deleted by a deletion vector.
#[derive(Debug, Clone)]
pub struct MarkedFile {
    /// Its `add` action in the version that the commit is based on.
    pub add: Add,
    /// Rows in the Parquet file, deleted ones included.
    pub physical_rows: u64,
    /// The rows that its deletion vector deleted before the commit.
    pub rows_deleted_before_commit: DeletionVector,
    /// The rows that the commit deletes.
    pub rows: DeletionVector,
    /// The new deletion vector of all deleted rows, once it is stored.
    pub vector: Option<DeletionVectorDescriptor>,
}

impl MarkedFile {
    /// All rows that are deleted after the commit.
    pub fn all_deleted(&self) -> DeletionVector {
        self.rows_deleted_before_commit.union(&self.rows)
    }

    /// The `remove` of the file with its old deletion vector, and the `add` with the new one.
    ///
    /// # Errors
    /// `Internal` if the new deletion vector is not stored yet.
    pub fn actions(&self, now_ms: i64) -> Result<[Action; 2]> {
        let missing = || Error::internal("a deletion vector is not stored").in_file(&self.add.path);
        let vector = self.vector.clone().ok_or_else(missing)?;
        let stats = Some(wide(self.add.stats.as_deref(), self.physical_rows)?);
        let add = Add { deletion_vector: Some(vector), data_change: true, stats, ..self.add.clone() };
        Ok([Action::Remove(self.add.clone().removed(now_ms)), Action::Add(add)])
    }
}

/// The files of a commit that lose rows.
#[derive(Debug, Clone, Default)]
pub struct MarkedFiles(BTreeMap<String, MarkedFile>);

impl MarkedFiles {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The file of a path.
    pub fn get(&self, path: &str) -> Option<&MarkedFile> {
        self.0.get(canonical_path(path).as_ref())
    }

    pub(super) fn get_mut(&mut self, path: &str) -> Option<&mut MarkedFile> {
        self.0.get_mut(canonical_path(path).as_ref())
    }

    /// Marks more rows of a file as deleted.
    pub fn mark(&mut self, marked: MarkedFile) {
        match self.get_mut(&marked.add.path) {
            Some(known) => (known.rows, known.vector) = (known.rows.union(&marked.rows), None),
            None => drop(self.0.insert(canonical_path(&marked.add.path).into_owned(), marked)),
        }
    }

    /// Leaves out the file of a path.
    pub(super) fn remove(&mut self, path: &str) {
        self.0.remove(canonical_path(path).as_ref());
    }

    /// Keeps the files whose path `keep` selects.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|_, marked| keep(&marked.add.path));
    }

    /// The files.
    pub fn iter(&self) -> impl Iterator<Item = &MarkedFile> {
        self.0.values()
    }

    /// All vectors, unless all of them are stored already.
    pub(super) fn unstored(&self) -> Option<Vec<DeletionVector>> {
        let is_stored = self.iter().all(|marked| marked.vector.is_some());
        (!is_stored).then(|| self.iter().map(MarkedFile::all_deleted).collect())
    }

    /// Sets the descriptors of the stored vectors, in the order of [`MarkedFiles::unstored`].
    ///
    /// # Errors
    /// `Internal` if there are not as many places as vectors.
    pub(super) fn stored(&mut self, places: Vec<DeletionVectorDescriptor>) -> Result<()> {
        if places.len() != self.len() {
            let message = format!("expected {} deletion vectors, got {}", self.len(), places.len());
            return Err(Error::internal(message));
        }
        self.0.values_mut().zip(places).for_each(|(marked, place)| marked.vector = Some(place));
        Ok(())
    }
}
