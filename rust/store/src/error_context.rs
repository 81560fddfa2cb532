//! The table and the file that are added to errors.

use crate::error::Error;

/// A table and one of its files.
#[derive(Debug, Clone)]
pub(crate) struct ErrorContext {
    pub(crate) table: String,
    pub(crate) path: String,
}

impl ErrorContext {
    /// The error with this table and file.
    pub(crate) fn add_to(&self, error: Error) -> Error {
        error.in_table(&self.table).in_file(&self.path)
    }
}
