//! The table and the file that errors name.

use crate::error::Error;

/// Where a file is.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) table: String,
    pub(crate) path: String,
}

impl Place {
    /// Says where an error happened.
    pub(crate) fn of(&self, error: Error) -> Error {
        error.in_table(&self.table).in_file(&self.path)
    }
}
