//! How errors become Python exceptions.
//!
//! The classes live in `python/deltic/errors.py`, where they have their documentation; this module chooses the class
//! and fills the attributes. [`Failure`] lets `?` work on deltic's errors and on Python's in one function.
//!
//! The choice is made on [`Kind`] alone, never on text. Not here: any wording. Messages come from where the error
//! arose.

use std::any::Any;

use arrow_schema::ArrowError;
use deltic_protocol::conflict::Conflict;
use deltic_protocol::error::{Error, Kind};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};

/// What a function called from Python fails with.
#[derive(Debug)]
pub(crate) enum Failure {
    /// deltic's own error, which gets its class on the way out.
    Deltic(Error),
    /// A Python exception that passes through, such as `KeyboardInterrupt`.
    Python(PyErr),
}

/// Result of a function called from Python.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Deltic(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Deltic(error) => to_py(error),
            Failure::Python(error) => error,
        }
    }
}

/// The class in `deltic.errors` for an error of `kind`.
pub(crate) fn class_name(kind: &Kind) -> &'static str {
    match kind {
        Kind::NotFound => "TableNotFoundError",
        Kind::VersionNotFound { .. } => "VersionNotFoundError",
        Kind::TableExists => "TableExistsError",
        Kind::Unsupported { .. } => "UnsupportedFeatureError",
        Kind::Corrupt => "CorruptTableError",
        Kind::Invalid => "InvalidInputError",
        Kind::Storage { .. } => "StorageError",
        Kind::Conflict(Conflict::ConcurrentAppend) => "ConcurrentAppendError",
        Kind::Conflict(Conflict::ConcurrentDeleteRead) => "ConcurrentDeleteReadError",
        Kind::Conflict(Conflict::ConcurrentDeleteDelete) => "ConcurrentDeleteDeleteError",
        Kind::Conflict(Conflict::MetadataChanged) => "MetadataChangedError",
        Kind::Conflict(Conflict::ProtocolChanged) => "ProtocolChangedError",
        Kind::Conflict(Conflict::ConcurrentTransaction) => "ConcurrentTransactionError",
        Kind::Internal => "DelticError",
    }
}

/// The exception for `error`.
pub(crate) fn to_py(error: Error) -> PyErr {
    Python::attach(|py| match exception(py, &error) {
        Ok(raised) => raised,
        // Only a damaged installation gets here. The first error is worth more than the second.
        Err(cause) => {
            let fallback = PyRuntimeError::new_err(message(&error));
            fallback.set_cause(py, Some(cause));
            fallback
        }
    })
}

fn exception(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || PyModule::import(py, "deltic.errors").map(Bound::unbind))?;
    let attributes = PyDict::new(py);
    attributes.set_item("table", error.table())?;
    attributes.set_item("version", error.version())?;
    attributes.set_item("path", error.path())?;
    match error.kind() {
        Kind::Unsupported { features } => attributes.set_item("features", features)?,
        Kind::Storage { retryable } => attributes.set_item("retryable", retryable)?,
        Kind::VersionNotFound { earliest, latest } => {
            attributes.set_item("earliest_version", earliest)?;
            attributes.set_item("latest_version", latest)?;
        }
        // A conflict is found while reading the winner, so the version of the error is the winner's.
        Kind::Conflict(_) => attributes.set_item("winning_version", error.version())?,
        Kind::NotFound | Kind::TableExists | Kind::Corrupt | Kind::Invalid | Kind::Internal => {}
    }
    let class = module.bind(py).getattr(class_name(error.kind()))?;
    Ok(PyErr::from_value(class.call((message(error),), Some(&attributes))?))
}

fn message(error: &Error) -> String {
    match error.kind() {
        Kind::Internal => format!("{error}. This is a defect in deltic, please report it"),
        _ => error.to_string(),
    }
}

/// `error` for a consumer of a C stream, who gets a number and a text and no more.
///
/// The variant decides the number, hence which built-in exception pyarrow raises; the text starts with the class that
/// deltic itself would have raised.
pub(crate) fn to_arrow(error: Error) -> ArrowError {
    // A C string ends at the first NUL, and arrow-array treats one inside a message as impossible.
    let text = format!("{}: {}", class_name(error.kind()), message(&error)).replace('\0', "\u{fffd}");
    match error.kind() {
        Kind::NotFound => ArrowError::IoError(text, std::io::Error::new(std::io::ErrorKind::NotFound, error)),
        Kind::Storage { .. } => ArrowError::IoError(text, std::io::Error::other(error)),
        Kind::Unsupported { .. } => ArrowError::NotYetImplemented(text),
        Kind::Invalid => ArrowError::InvalidArgumentError(text),
        Kind::VersionNotFound { .. } | Kind::TableExists | Kind::Corrupt | Kind::Conflict(_) | Kind::Internal => {
            ArrowError::ExternalError(text.into())
        }
    }
}

/// What a caught panic said.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_kinds() {
        let cases = [
            (Error::not_found("x"), "TableNotFoundError", "Io error: TableNotFoundError: x"),
            (
                Error::version_not_found("x", Some(1), None),
                "VersionNotFoundError",
                "External error: VersionNotFoundError: x",
            ),
            (Error::new(Kind::TableExists, "x"), "TableExistsError", "External error: TableExistsError: x"),
            (
                Error::unsupported("rowTracking", "x"),
                "UnsupportedFeatureError",
                "Not yet implemented: UnsupportedFeatureError: x",
            ),
            (
                Error::corrupt("x").at_version(7),
                "CorruptTableError",
                "External error: CorruptTableError: x [version 7]",
            ),
            (Error::invalid("a\0b"), "InvalidInputError", "Invalid argument error: InvalidInputError: a\u{fffd}b"),
            (Error::storage(true, "x"), "StorageError", "Io error: StorageError: x"),
            (
                Error::new(Kind::Conflict(Conflict::MetadataChanged), "x"),
                "MetadataChangedError",
                "External error: MetadataChangedError: x",
            ),
            (
                Error::internal("x"),
                "DelticError",
                "External error: DelticError: x. This is a defect in deltic, please report it",
            ),
        ];
        for (error, class, text) in cases {
            assert_eq!(class_name(error.kind()), class);
            assert_eq!(to_arrow(error).to_string(), text);
        }
    }
}
