//! The logical files of a version as a set, to find files that one version has and another does not.
//!
//! It takes 16 bytes for each file, and 16 more for each that has row ids.
//!
//! PROTOCOL.md: "Add File and Remove File", "Row Tracking".

use std::borrow::Cow;

use arrow_array::Array;

use super::canonical_path;
use super::paths::Fingerprints;
use crate::action::DeletionVectorDescriptor;
use crate::action::batch::AddBatch;
use crate::error::Result;

/// The live files of a version.
#[derive(Debug, Clone, Default)]
pub struct LogicalFiles {
    files: Fingerprints,
    /// Those that have row ids, with the first of them.
    numbered: Fingerprints,
}

impl LogicalFiles {
    /// Adds a file without its row ids.
    pub fn insert(&mut self, path: &str, vector: Option<&DeletionVectorDescriptor>) {
        self.files.insert(&identity(path, vector));
    }

    /// Adds files.
    ///
    /// # Errors
    /// `Corrupt` for a deletion vector that cannot be read.
    pub fn extend(&mut self, adds: &AddBatch) -> Result<()> {
        for row in 0..adds.len() {
            let (path, vector) = (adds.path().value(row), adds.deletion_vector(row)?);
            self.insert(path, vector.as_ref());
            if let Some(id) = first_row_id(adds, row) {
                self.numbered.insert(&(identity(path, vector.as_ref()), id));
            }
        }
        Ok(())
    }

    /// Whether the file with this path and deletion vector is in the set.
    pub fn has(&self, path: &str, vector: Option<&DeletionVectorDescriptor>) -> bool {
        self.files.contains(&identity(path, vector))
    }

    /// The rows of files that are not in the set.
    ///
    /// # Errors
    /// As [`LogicalFiles::extend`].
    pub fn others(&self, adds: &AddBatch) -> Result<Vec<usize>> {
        let mut others = Vec::new();
        for row in 0..adds.len() {
            if !self.has(adds.path().value(row), adds.deletion_vector(row)?.as_ref()) {
                others.push(row);
            }
        }
        Ok(others)
    }

    /// The first file that has other row ids in `adds` than in the set.
    ///
    /// # Errors
    /// As [`LogicalFiles::extend`].
    pub fn numbered_otherwise<'b>(&self, adds: &'b AddBatch) -> Result<Option<&'b str>> {
        for row in 0..adds.len() {
            let (path, vector) = (adds.path().value(row), adds.deletion_vector(row)?);
            let Some(id) = first_row_id(adds, row) else { continue };
            if self.has(path, vector.as_ref()) && !self.numbered.contains(&(identity(path, vector.as_ref()), id)) {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }
}

fn first_row_id(adds: &AddBatch, row: usize) -> Option<i64> {
    adds.int64("baseRowId").filter(|ids| ids.is_valid(row)).map(|ids| ids.value(row))
}

fn identity<'a>(path: &'a str, vector: Option<&DeletionVectorDescriptor>) -> (Cow<'a, str>, Option<String>) {
    (canonical_path(path), vector.map(DeletionVectorDescriptor::unique_id))
}
