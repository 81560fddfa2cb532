//! What Python is told of how far work has come.
//!
//! One function listens for the process. The thread that called deltic hands it what has changed, whenever it holds the
//! GIL while it waits: ten times a second at most, and once when the work ends. Nothing is called while the function runs,
//! so that it may use deltic itself. An `Exception` that it raises goes to `sys.unraisablehook`, and it hears no more of
//! this call; `KeyboardInterrupt` does what Ctrl-C does.
//!
//! Invariant: the lock on [`LISTENER`] is only held by a thread that holds the GIL and keeps it meanwhile (see `runtime`).
//! Proved by `tests/python/test_progress.py`.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use deltic_entry::entry;
use deltic_table::progress::{Report, Watch};
use pyo3::prelude::*;

use crate::errors::Result;
use crate::events::undisturbed;

/// Between two reports.
const BETWEEN: Duration = Duration::from_millis(100);

/// Whether anybody listens, which costs nothing to find out.
static LISTENS: AtomicBool = AtomicBool::new(false);
static LISTENER: Mutex<Option<Py<PyAny>>> = Mutex::new(None);

thread_local! {
    /// What this thread waits for.
    static CURRENT: RefCell<Current> = const { RefCell::new(Current::Nothing) };
}

enum Current {
    Nothing,
    Watched(Watch),
    /// The function is being called, or has raised: it hears nothing.
    Silent,
}

/// Has a function told of progress from now on, or none; the one that was told before.
#[entry]
#[pyfunction]
#[pyo3(signature = (callback))]
pub(crate) fn listen_to_progress(callback: Option<Py<PyAny>>) -> Result<Option<Py<PyAny>>> {
    LISTENS.store(callback.is_some(), Ordering::Relaxed);
    let mut listener = LISTENER.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(std::mem::replace(&mut *listener, callback))
}

/// Tells the listener of the work of one call. Calls inside of it join it.
pub(crate) struct Reporting {
    watch: Option<Watch>,
    listener: Option<Py<PyAny>>,
    last: Instant,
    /// Whether the call began here.
    is_first: bool,
}

impl Reporting {
    pub(crate) fn begin(py: Python<'_>) -> Self {
        let (watch, listener, is_first) = match LISTENS.load(Ordering::Relaxed) {
            true => Self::join(py),
            false => (None, None, false),
        };
        Self { watch, listener, last: Instant::now(), is_first }
    }

    fn join(py: Python<'_>) -> (Option<Watch>, Option<Py<PyAny>>, bool) {
        let listener = || LISTENER.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|one| one.clone_ref(py));
        CURRENT.with_borrow_mut(|current| match current {
            Current::Silent => (None, None, false),
            Current::Watched(watch) => (Some(watch.clone()), listener(), false),
            Current::Nothing => {
                let watch = Watch::default();
                *current = Current::Watched(watch.clone());
                (Some(watch), listener(), true)
            }
        })
    }

    /// In whose scope work is counted.
    pub(crate) fn watch(&self) -> Option<Watch> {
        self.watch.clone()
    }

    /// Tells what has changed, if it is time.
    ///
    /// # Errors
    /// What the listener raises, other than an `Exception`.
    pub(crate) fn report(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.watch.is_none() || self.last.elapsed() < BETWEEN {
            return Ok(());
        }
        let reports = self.watch.as_ref().map(Watch::changes).unwrap_or_default();
        self.tell(py, reports)
    }

    /// Tells of the end of the work, if the call that waited for it ends here.
    ///
    /// # Errors
    /// As [`Reporting::report`].
    pub(crate) fn end(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some(watch) = self.watch.as_ref().filter(|_| self.is_first) else { return Ok(()) };
        let reports = watch.end();
        self.tell(py, reports)
    }

    fn tell(&mut self, py: Python<'_>, reports: Vec<Report>) -> PyResult<()> {
        self.last = Instant::now();
        let Some(listener) = &self.listener else { return Ok(()) };
        let before = CURRENT.replace(Current::Silent);
        if matches!(before, Current::Silent) {
            return Ok(());
        }
        for Report { id, operation, unit, done, total, ended } in reports {
            let arguments = (id, operation, unit.as_str(), done, total, ended);
            if undisturbed(py, listener.bind(py).call1(arguments).map(drop))?.is_none() {
                return Ok(());
            }
        }
        CURRENT.set(before);
        Ok(())
    }
}

impl Drop for Reporting {
    fn drop(&mut self) {
        if self.is_first {
            // What was interrupted ends, too.
            if let Err(error) = Python::attach(|py| self.end(py)) {
                Python::attach(|py| error.write_unraisable(py, None));
            }
            CURRENT.set(Current::Nothing);
        }
    }
}
