//! Reports progress to Python.
//!
//! There is one listener, a function, for the process. The thread that called deltic calls it with changes, whenever it
//! holds the GIL while it waits: at most ten times a second, and once when the work ends. The listener is not called while
//! it runs, so that it may use deltic itself, nor while the interpreter ends. An `Exception` that it raises goes to
//! `sys.unraisablehook`, and it gets no more reports of this call; `KeyboardInterrupt` acts like Ctrl-C.
//!
//! Invariant: the lock on [`LISTENER`] is only held by a thread that holds the GIL and keeps it meanwhile (see `runtime`).
//! Proved by `tests/python/test_progress.py`.

use std::cell::RefCell;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use deltic_entry::entry;
use deltic_table::progress::{Observers, Report, Watch};
use pyo3::prelude::*;

use crate::events::undisturbed;
use crate::finalizing::PythonCall;
use crate::trace;

/// The time between two reports.
const BETWEEN: Duration = Duration::from_millis(100);

/// Whether there is a listener, which is fast to check.
static LISTENS: AtomicBool = AtomicBool::new(false);
static LISTENER: Mutex<Option<Py<PyAny>>> = Mutex::new(None);

thread_local! {
    /// The work that this thread waits for, and its process: a child that is forked meanwhile does not wait for it.
    static CURRENT: RefCell<(u32, Current)> = const { RefCell::new((0, Current::Nothing)) };
}

enum Current {
    Nothing,
    Watched(Watch),
    /// The listener is running, or has raised: it is not called.
    Silent,
}

/// Sets the listener, which also gets reports of running work, or removes it.
#[entry]
#[pyfunction]
#[pyo3(signature = (callback))]
pub(crate) fn listen_to_progress(callback: Option<Py<PyAny>>) {
    let mut listener = LISTENER.lock().unwrap_or_else(PoisonError::into_inner);
    LISTENS.store(callback.is_some(), Ordering::Relaxed);
    let before = std::mem::replace(&mut *listener, callback);
    // Dropping it may run Python code that comes back here.
    drop(listener);
    drop(before);
}

fn listener(py: Python<'_>) -> Option<Py<PyAny>> {
    LISTENER.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|listener| listener.clone_ref(py))
}

/// Reports the work of one call to the listener. Calls inside of it join it.
pub(crate) struct Reporting {
    watch: Option<Watch>,
    last: Instant,
    /// Whether the call began here.
    is_first: bool,
}

impl Reporting {
    pub(crate) fn begin(_attached: Python<'_>) -> Self {
        let (watch, is_first) = match LISTENS.load(Ordering::Relaxed) {
            true => Self::join(),
            false => (None, false),
        };
        Self { watch, last: Instant::now(), is_first }
    }

    fn join() -> (Option<Watch>, bool) {
        let this = process::id();
        CURRENT.with_borrow_mut(|(process, current)| match current {
            Current::Silent if *process == this => (None, false),
            Current::Watched(watch) if *process == this => (Some(watch.clone()), false),
            Current::Nothing | Current::Watched(_) | Current::Silent => {
                let watch = Watch::default();
                (*process, *current) = (this, Current::Watched(watch.clone()));
                (Some(watch), true)
            }
        })
    }

    /// What observes the work: the listener, and the innermost traced operation of this thread.
    pub(crate) fn observers(&self) -> Observers {
        Observers { watch: self.watch.clone(), trace: trace::innermost() }
    }

    /// Reports changes, if it is time.
    ///
    /// # Errors
    /// What the listener raises, if it is not an `Exception`.
    pub(crate) fn report(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.watch.is_none() || self.last.elapsed() < BETWEEN {
            return Ok(());
        }
        let reports = self.watch.as_ref().map(Watch::changes).unwrap_or_default();
        self.tell(py, reports)
    }

    /// Reports the end of the work, if the call that waited for it ends here.
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
        let this = process::id();
        let before = CURRENT.replace((this, Current::Silent));
        if matches!(before, (process, Current::Silent) if process == this) {
            return Ok(());
        }
        for Report { id, operation, unit, done, total, ended } in reports {
            let Ok(_call) = PythonCall::begin() else { break };
            // The listener may have changed since the work began.
            let Some(listener) = listener(py) else { break };
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
        if !self.is_first {
            return;
        }
        // A thread that the interpreter ends comes here without the GIL.
        if let Ok(_call) = PythonCall::begin() {
            // Interrupted work ends, too.
            Python::attach(|py| {
                if let Err(error) = self.end(py) {
                    error.write_unraisable(py, None);
                }
            });
        }
        CURRENT.set((0, Current::Nothing));
    }
}
