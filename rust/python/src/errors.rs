//! Converts errors to Python exceptions.
//!
//! The classes live in `python/deltic/errors.py`, where they have their documentation; this module chooses the class
//! and fills the attributes. [`Failure`] lets `?` work on deltic's errors and on Python's in one function.
//!
//! The class depends only on [`Kind`], never on text. No messages are written here: they come from the place of the
//! error.
//!
//! A panic becomes a `DelticError` at the [`barrier`] around every function that Python calls. The text of a panic is
//! repeated only if it cannot contain a caller's values, which could be credentials.

use std::any::Any;
use std::error::Error as StdError;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::sync::Mutex;

use arrow_schema::ArrowError;
use deltic_protocol::commit::Conflict;
use deltic_protocol::error::{Error, Kind};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};

/// The failure of a function called from Python.
#[derive(Debug)]
pub(crate) enum Failure {
    /// deltic's own error, which becomes an exception when the function returns.
    Deltic(Error),
    /// A Python exception that is passed on, such as `KeyboardInterrupt`.
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
        // Ctrl-C cancels, so that Python raises `KeyboardInterrupt` with the message of such an error.
        Kind::Storage { .. } | Kind::Interrupted => "StorageError",
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
        // This happens only in a damaged installation. The first error matters more than the second.
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
        Kind::Interrupted => attributes.set_item("retryable", true)?,
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
    const REPORT: &str = "This is a defect in deltic, please report it";
    match error.kind() {
        // The message of a panic in a thread has its text already.
        Kind::Internal if is_of_a_panic(error) => format!("{}: {}. {REPORT}", error.message(), panic_location()),
        Kind::Internal => format!("{error}. {REPORT}"),
        Kind::NotFound
        | Kind::VersionNotFound { .. }
        | Kind::TableExists
        | Kind::Unsupported { .. }
        | Kind::Corrupt
        | Kind::Invalid
        | Kind::Storage { .. }
        | Kind::Interrupted
        | Kind::Conflict(_) => error.to_string(),
    }
}

fn is_of_a_panic(error: &Error) -> bool {
    let mut cause: Option<&(dyn StdError + 'static)> = error.source();
    while let Some(found) = cause {
        if found.downcast_ref::<tokio::task::JoinError>().is_some_and(tokio::task::JoinError::is_panic) {
            return true;
        }
        cause = found.source();
    }
    false
}

/// `error` for a consumer of a C stream, which gets only a number and a text.
///
/// The variant decides the number, hence which built-in exception pyarrow raises; the text starts with the class that
/// deltic itself would have raised.
pub(crate) fn to_arrow(error: Error) -> ArrowError {
    // A C string ends at the first NUL, and arrow-array treats one inside a message as impossible.
    let text = format!("{}: {}", class_name(error.kind()), message(&error)).replace('\0', "\u{fffd}");
    match error.kind() {
        Kind::NotFound => ArrowError::IoError(text, std::io::Error::new(std::io::ErrorKind::NotFound, error)),
        Kind::Storage { .. } | Kind::Interrupted => ArrowError::IoError(text, std::io::Error::other(error)),
        Kind::Unsupported { .. } => ArrowError::NotYetImplemented(text),
        Kind::Invalid => ArrowError::InvalidArgumentError(text),
        Kind::VersionNotFound { .. } | Kind::TableExists | Kind::Corrupt | Kind::Conflict(_) | Kind::Internal => {
            ArrowError::ExternalError(text.into())
        }
    }
}

/// The place of the last panic in the process.
static PANICKED_AT: Mutex<String> = Mutex::new(String::new());

/// Records the place of a panic for the error that it becomes, and keeps its text out of the process's output.
pub(crate) fn record_panic_location() {
    set_hook(Box::new(|panic| {
        // This does not wait: a forked child may have inherited the lock while it was held.
        if let (Ok(mut panicked_at), Some(location)) = (PANICKED_AT.try_lock(), panic.location()) {
            *panicked_at = format!("{}:{}", location.file(), location.line());
        }
    }));
}

fn panic_location() -> String {
    let location = PANICKED_AT.try_lock().map(|location| location.clone()).unwrap_or_default();
    if location.is_empty() { "a thread panicked".to_owned() } else { format!("a thread panicked at {location}") }
}

/// The text of a caught panic, if it certainly contains no value of the caller, and its place.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> String {
    /// Beginnings of messages of the standard library that contain only numbers.
    const NUMBERS: [&str; 5] =
        ["index out of bounds", "range start index", "range end index", "slice index starts", "copy_from_slice"];
    let literal = payload.downcast_ref::<&str>().copied();
    let formatted = payload.downcast_ref::<String>().map(String::as_str);
    let text = literal.or_else(|| formatted.filter(|text| NUMBERS.iter().any(|start| text.starts_with(start))));
    match text {
        Some(text) => format!("{text} ({})", panic_location()),
        None => panic_location(),
    }
}

/// Runs a function that Python called; a panic becomes an error. Put around every entry by `#[entry]`.
pub(crate) fn barrier<T>(function: impl FnOnce() -> Result<T>) -> Result<T> {
    let done = catch_unwind(AssertUnwindSafe(function));
    done.unwrap_or_else(|panic| Err(Error::internal(panic_text(&*panic)).into()))
}

/// [`barrier`] for a function that does not return a `Result`.
pub(crate) fn barrier_of<T>(function: impl FnOnce() -> T) -> Result<T> {
    barrier(|| Ok(function()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use deltic_entry::entry;

    use super::*;

    struct Handle(u64);

    #[entry]
    impl Handle {
        fn plain<'a>(&'a self, text: &'a str) -> &'a str {
            if self.0 == 0 {
                return text;
            }
            panic!("a literal")
        }

        fn fails(&self) -> Result<u64> {
            let missing = self.0.checked_sub(1).ok_or_else(|| Error::invalid("too small"))?;
            Ok([7][usize::try_from(missing).unwrap()])
        }

        fn nothing(&self) {
            let key = format!("sesame{}", self.0);
            panic!("the key is {key}");
        }
    }

    fn shown<T>(outcome: Result<T>) -> String {
        match outcome {
            Ok(_) => "fine".to_owned(),
            Err(Failure::Deltic(error)) => message(&error),
            Err(Failure::Python(_)) => "Python".to_owned(),
        }
    }

    #[test]
    fn a_panic_of_an_entry_is_an_error() {
        assert_eq!(Handle(0).plain("kept").unwrap(), "kept");
        assert_eq!(Handle(1).fails().unwrap(), 7);
        assert_eq!(shown(Handle(0).fails()), "too small");
        for (outcome, said) in [
            (shown(Handle(1).plain("")), "a literal (a thread panicked"),
            (shown(Handle(3).fails()), "index out of bounds: the len is 1 but the index is 2 (a thread panicked"),
            (shown(Handle(0).nothing()), "a thread panicked"),
        ] {
            assert!(outcome.starts_with(said), "{outcome}");
            assert!(outcome.ends_with("This is a defect in deltic, please report it"), "{outcome}");
            assert!(!outcome.contains("sesame"), "{outcome}");
        }
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let stopped = runtime.block_on(runtime.spawn(async { panic!("the key is {}", "sesame") })).unwrap_err();
        let error = Error::internal("a worker thread failed").caused_by(stopped);
        let text = message(&error);
        assert!(text.starts_with("a worker thread failed: a thread panicked") && !text.contains("sesame"), "{text}");
        assert!(!to_arrow(error).to_string().contains("sesame"));
    }

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
            (Error::invalid("a\0b"), "InvalidInputError", "Invalid argument error: InvalidInputError: a\\x00b"),
            (Error::storage(true, "x"), "StorageError", "Io error: StorageError: x"),
            (Error::interrupted("x"), "StorageError", "Io error: StorageError: x"),
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
