//! Python code that a call runs in its midst, while the interpreter ends.
//!
//! The interpreter ends daemon threads when they ask for the GIL. A thread that is in Python code then would be ended
//! between frames of the core, and the process with it. So the interpreter waits for such code as it ends, for a while,
//! and none is begun any more.
//!
//! Proved by the tests of exits in `tests/python/test_process.py`.

use std::cell::Cell;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// How long to wait at the end for Python code on daemon threads, which may wait for something itself.
const LIMIT: Duration = Duration::from_secs(1);

/// How often to look.
pub(crate) const INTERVAL: Duration = Duration::from_millis(2);

/// Threads that are in such code, of which process, and whether the interpreter is ending.
static CALLS: AtomicUsize = AtomicUsize::new(0);
static PROCESS: AtomicU32 = AtomicU32::new(0);
static ENDING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this is the thread that ends the interpreter. What it still has to do, it may.
    static ENDS: Cell<bool> = const { Cell::new(false) };
}

/// That this thread is in Python code, until it is dropped.
pub(crate) struct PythonCall(u32);

impl PythonCall {
    /// `Err` on a daemon thread when the interpreter is ending, which would end it in the middle of something.
    pub(crate) fn begin() -> Result<Self, Self> {
        let process = process::id();
        if PROCESS.swap(process, Ordering::SeqCst) != process {
            // The threads of the parent are not here.
            CALLS.store(0, Ordering::SeqCst);
        }
        CALLS.fetch_add(1, Ordering::SeqCst);
        match ENDING.load(Ordering::SeqCst) && !ENDS.get() {
            true => Err(Self(process)),
            false => Ok(Self(process)),
        }
    }

    /// Has no other thread begin any, and waits for those that are in some.
    pub(crate) fn end_all(py: Python<'_>) {
        ENDS.set(true);
        ENDING.store(true, Ordering::SeqCst);
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

/// Waits until nothing is counted any more, for a while.
pub(crate) fn wait_for_none(count: &AtomicUsize, limit: Duration) {
    let ended = Instant::now() + limit;
    while count.load(Ordering::SeqCst) > 0 && Instant::now() < ended {
        thread::sleep(INTERVAL);
    }
}
