//! What reads fail with, whatever they read from.

use std::ops::Range;

use crate::error::Error;

/// The system has no memory to read into.
pub fn no_memory(error: std::collections::TryReserveError) -> Error {
    Error::storage(false, "not enough memory to read the file").caused_by(error)
}

/// A file that is not as long as its log, or its own footer, says.
pub(crate) fn short_read(range: &Range<u64>, size: u64) -> Error {
    Error::corrupt(format!("the file ends at byte {size}, but bytes {}..{} are needed", range.start, range.end))
}
