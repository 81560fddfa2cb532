//! Errors of the layer that does I/O: the protocol's [`Error`], and how foreign errors become one.

use std::sync::atomic::{AtomicBool, Ordering};

use parquet::errors::ParquetError;

pub use deltic_protocol::commit::Failed;
pub use deltic_protocol::error::{Error, Kind, Result};

/// The error for a Parquet file that cannot be decoded.
pub fn corrupt_parquet(path: &str, source: ParquetError) -> Error {
    Error::corrupt("the Parquet file cannot be decoded; restore it, or remove it from the table")
        .in_file(path)
        .caused_by(source)
}

/// The error for a listed file that is missing: log cleanup has deleted it. It must not be taken for a missing table, in
/// whose place a new one might be created.
pub(crate) fn vanished(error: Error) -> Error {
    match error.is_not_found() {
        true => replacing(
            &error,
            Error::storage(true, "a file of the log was deleted after it was listed; open the table again"),
        ),
        false => error,
    }
}

/// Gives `replacement` the path, version and table of `error`, which it replaces. If `error` were its cause, it would name
/// the file a second time.
pub(crate) fn replacing(error: &Error, mut replacement: Error) -> Error {
    if let Some(path) = error.path() {
        replacement = replacement.in_file(path);
    }
    if let Some(version) = error.version() {
        replacement = replacement.at_version(version);
    }
    match error.table() {
        Some(table) => replacement.in_table(table),
        None => replacement,
    }
}

/// Remembers whether a listed file was missing when it was read.
#[derive(Debug, Default)]
pub(crate) struct NotFoundFlag(AtomicBool);

impl NotFoundFlag {
    /// Sets the flag if the error is a missing file. Returns the error to pass on.
    pub(crate) fn note(&self, error: Error) -> Error {
        if error.is_not_found() {
            self.0.store(true, Ordering::Relaxed);
        }
        vanished(error)
    }

    /// Whether the flag is set.
    pub(crate) fn is_noted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
