//! Calls of Python code from the core, and the finalizing interpreter.
//!
//! A finalizing interpreter ends daemon threads when they ask for the GIL. If such a thread were in Python code called from
//! frames of the core, the process would end with it. So the interpreter waits up to [`LIMIT`] at exit for such calls, and
//! no new ones begin.
//!
//! Proved by the tests of exits in `tests/python/test_process.py`.

use std::cell::Cell;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// How long to wait at exit for Python code on daemon threads, which may wait for something itself.
const LIMIT: Duration = Duration::from_secs(1);

/// How often the counter is polled.
pub(crate) const INTERVAL: Duration = Duration::from_millis(2);

/// Threads that are in such calls; the id of their process; and whether the interpreter is finalizing.
static CALLS: AtomicUsize = AtomicUsize::new(0);
static PROCESS: AtomicU32 = AtomicU32::new(0);
static FINALIZING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread finalizes the interpreter. It may still call Python code.
    static IS_FINALIZER: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as in Python code, until it is dropped.
pub(crate) struct PythonCall(u32);

impl PythonCall {
    /// `Err` if the interpreter is finalizing and would end this thread.
    pub(crate) fn begin() -> Result<Self, Self> {
        let process = process::id();
        if PROCESS.swap(process, Ordering::SeqCst) != process {
            // A forked child does not have its parent's threads.
            CALLS.store(0, Ordering::SeqCst);
        }
        CALLS.fetch_add(1, Ordering::SeqCst);
        match FINALIZING.load(Ordering::SeqCst) && !IS_FINALIZER.get() {
            true => Err(Self(process)),
            false => Ok(Self(process)),
        }
    }

    /// Prevents other threads from beginning calls, and waits for the calls under way.
    pub(crate) fn refuse_new_and_wait(py: Python<'_>) {
        IS_FINALIZER.set(true);
        FINALIZING.store(true, Ordering::SeqCst);
        if PROCESS.load(Ordering::SeqCst) == process::id() {
            py.detach(|| wait_for_none(&CALLS, LIMIT));
        }
    }
}

impl Drop for PythonCall {
    fn drop(&mut self) {
        if PROCESS.load(Ordering::SeqCst) == self.0 {
            CALLS.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Waits until the counter is zero, up to `limit`.
pub(crate) fn wait_for_none(count: &AtomicUsize, limit: Duration) {
    let deadline = Instant::now() + limit;
    while count.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
        thread::sleep(INTERVAL);
    }
}
