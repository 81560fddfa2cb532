//! Events of the core as records of Python's `logging`, under the name `deltic`.
//!
//! Worker threads never wait for the interpreter: they leave a record in a slot, and the thread that called deltic hands
//! the records on whenever it holds the GIL. What is below the level of the Python logger is not even formatted. A slot
//! that is in use is passed over, so that a lock which a forked child inherits as held costs it one record.
//!
//! Events of other crates are not taken: they could be about requests, whose addresses may hold credentials. A handler or
//! filter that raises changes nothing of what is done: its exception goes to `sys.unraisablehook`. A record is one line
//! without control characters, whatever a log names.
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

/// Records that wait to be handed on, at most. Later ones are lost.
const SLOTS: usize = 256;

/// An event on its way.
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

/// Takes the core's events from now on.
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

/// How Python numbers a level.
fn number_of(level: Level) -> u8 {
    match level {
        Level::Error => 40,
        Level::Warn => 30,
        Level::Info => 20,
        Level::Debug | Level::Trace => 10,
    }
}

/// Looks what the Python logger wants to have, before something is done.
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

/// Hands on what has happened.
///
/// # Errors
/// As of [`look`].
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

/// What a call gave, or nothing if it raised an `Exception`, which is reported. Others, such as `KeyboardInterrupt`, are
/// meant for the caller.
pub(crate) fn undisturbed<T>(py: Python<'_>, called: PyResult<T>) -> PyResult<Option<T>> {
    match called {
        Err(error) if error.is_instance_of::<PyException>(py) => {
            error.write_unraisable(py, None);
            Ok(None)
        }
        called => called.map(Some),
    }
}
