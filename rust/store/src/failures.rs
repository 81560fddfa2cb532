//! Errors of reads that all backends have in common.

use std::ops::Range;

use crate::error::Error;

/// The error that there is not enough memory to read a file.
pub fn no_memory(error: std::collections::TryReserveError) -> Error {
    Error::storage(false, "not enough memory to read the file").caused_by(error)
}

/// The error for a file that is shorter than by the log, or by its own footer.
pub(crate) fn short_read(range: &Range<u64>, size: u64) -> Error {
    Error::corrupt(format!("the file ends at byte {size}, but bytes {}..{} are needed", range.start, range.end))
}
