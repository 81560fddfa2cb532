//! Events of the core as records of Python's `logging`, under the name `deltic`.
//!
//! Worker threads never wait for the interpreter: they leave a record in a slot, and the thread that called deltic passes
//! the records on whenever it holds the GIL. Events below the level of the Python logger are not even formatted. A slot
//! that is in use is skipped, so that a lock which a forked child inherits while it is held costs only one record.
//!
//! Events of other crates are ignored: they could be about requests, whose URLs may have credentials. A handler or
//! filter that raises does not affect the operation: its exception goes to `sys.unraisablehook`. A record is one line
//! without control characters, whatever names a log has.
//! Proved by `tests/python/test_logging.py`.

use std::process;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use deltic_protocol::error::{mask_urls, printable_name};
use deltic_table::events::TARGET;
use log::{Level, LevelFilter, Log, Metadata, Record};
use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::finalizing::PythonCall;

/// The most records that wait to be passed on. Later ones are lost.
const SLOTS: usize = 256;

/// An event that waits to be passed on.
struct Event {
    number: u64,
    process: u32,
    level: Level,
    text: String,
}

static WAITING: [Mutex<Option<Event>>; SLOTS] = [const { Mutex::new(None) }; SLOTS];
static NUMBER: AtomicU64 = AtomicU64::new(0);
static ANY: AtomicBool = AtomicBool::new(false);

struct Sink;

impl Log for Sink {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == TARGET
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let (process, level) = (process::id(), record.level());
        let text = printable_name(mask_urls(record.args().to_string()));
        let at = usize::try_from(number).unwrap_or_default() % SLOTS;
        let Some(Ok(mut slot)) = WAITING.get(at).map(Mutex::try_lock) else { return };
        if slot.as_ref().is_none_or(|old| old.process != process) {
            *slot = Some(Event { number, process, level, text });
            ANY.store(true, Ordering::Release);
        }
    }

    fn flush(&self) {}
}

/// Begins to collect the core's events.
pub(crate) fn listen() {
    static SINK: Sink = Sink;
    // Another logger cannot have been set: the core is this library's own.
    if log::set_logger(&SINK).is_ok() {
        log::set_max_level(LevelFilter::Off);
    }
}

fn logger(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static LOGGER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let logger = LOGGER.get_or_try_init(py, || {
        let logging = PyModule::import(py, "logging")?;
        logging.call_method1("getLogger", (TARGET,)).map(Bound::unbind)
    })?;
    Ok(logger.bind(py))
}

/// The number of a level in Python.
fn number_of(level: Level) -> u8 {
    match level {
        Level::Error => 40,
        Level::Warn => 30,
        Level::Info => 20,
        Level::Debug | Level::Trace => 10,
    }
}

/// Reads the level of the Python logger before an operation.
///
/// # Errors
/// A signal handler's exception.
pub(crate) fn look(py: Python<'_>) -> PyResult<()> {
    let Ok(_call) = PythonCall::begin() else { return Ok(()) };
    for level in [Level::Debug, Level::Info, Level::Warn] {
        let wants = || logger(py)?.call_method1(intern!(py, "isEnabledFor"), (number_of(level),))?.is_truthy();
        if undisturbed(py, wants())?.unwrap_or_default() {
            log::set_max_level(level.to_level_filter());
            return Ok(());
        }
    }
    log::set_max_level(LevelFilter::Off);
    Ok(())
}

/// Passes the waiting records on.
///
/// # Errors
/// As [`look`].
pub(crate) fn hand_on(py: Python<'_>) -> PyResult<()> {
    if !ANY.swap(false, Ordering::Acquire) {
        return Ok(());
    }
    let Ok(_call) = PythonCall::begin() else { return Ok(()) };
    let taken = WAITING.iter().filter_map(|slot| slot.try_lock().ok().and_then(|mut slot| slot.take()));
    let mut events: Vec<Event> = taken.filter(|event| event.process == process::id()).collect();
    events.sort_by_key(|event| event.number);
    for event in events {
        // The text is an argument, not a format: it may have `%` in it.
        let log = || logger(py)?.call_method1(intern!(py, "log"), (number_of(event.level), "%s", event.text));
        undisturbed(py, log())?;
    }
    Ok(())
}

/// The result of a call, or none if it raised an `Exception`, which is reported. Other exceptions, such as
/// `KeyboardInterrupt`, are passed on to the caller.
pub(crate) fn undisturbed<T>(py: Python<'_>, called: PyResult<T>) -> PyResult<Option<T>> {
    match called {
        Err(error) if error.is_instance_of::<PyException>(py) => {
            error.write_unraisable(py, None);
            Ok(None)
        }
        called => called.map(Some),
    }
}
