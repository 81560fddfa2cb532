//! Memory that another library lent, until it is given back.
//!
//! Giving it back may run Python: it may be a NumPy array's. A thread of the core that did so while the interpreter ends
//! would be ended by it, and the process with it. So a call that fails waits until its threads have let go of what it was
//! lent, and the interpreter does before it ends.
//!
//! Proved by the tests of exits in `tests/python/test_process.py`.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::c_void;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use arrow_array::ffi::FFI_ArrowArray;
use deltic_entry::entry;
use pyo3::prelude::*;
use tokio::time::{sleep, timeout};

use crate::runtime::Runtime;

/// How long to wait for threads that are in the middle of something.
const LIMIT: Duration = Duration::from_secs(10);

/// How long to wait at the end for producers on daemon threads, which may wait for something themselves.
const LIMIT_FOR_PRODUCERS: Duration = Duration::from_secs(1);

/// How often to look.
const INTERVAL: Duration = Duration::from_millis(2);

/// Arrays lent to this process by all calls, and which process that is: what a parent was lent is not a child's to wait for.
static LENT: AtomicUsize = AtomicUsize::new(0);
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Threads that are in a producer, and whether the interpreter is ending.
static PULLING: AtomicUsize = AtomicUsize::new(0);
static ENDING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this is the thread that ends the interpreter. What it still has to write, it may.
    static ENDS: Cell<bool> = const { Cell::new(false) };
}

type Release = Option<unsafe extern "C" fn(*mut FFI_ArrowArray)>;

/// What one call was lent.
#[derive(Clone, Default)]
pub(super) struct Loans(Arc<AtomicUsize>);

/// What stands in for the producer's own private data.
struct Loan {
    release: Release,
    private_data: *mut c_void,
    count: Arc<AtomicUsize>,
    process: u32,
}

impl Loans {
    /// The same array, which is counted until it is released.
    pub(super) fn lend(&self, mut array: FFI_ArrowArray) -> FFI_ArrowArray {
        let process = process::id();
        if PROCESS.swap(process, Ordering::Relaxed) != process {
            LENT.store(0, Ordering::Relaxed);
        }
        LENT.fetch_add(1, Ordering::Relaxed);
        self.0.fetch_add(1, Ordering::Relaxed);
        let (release, private_data) = (array.release(), array.private_data());
        let loan = Box::into_raw(Box::new(Loan { release, private_data, count: Arc::clone(&self.0), process }));
        // SAFETY: `give_back` gets these two fields as they are set here, and restores what stood there before it calls
        // the producer's own callback.
        unsafe {
            array.set_private_data(loan.cast());
            array.set_release(Some(give_back));
        }
        array
    }

    /// Whether anything is not given back yet.
    #[cfg(test)]
    pub(super) fn is_out(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }

    /// Ends when everything is given back.
    pub(super) async fn returned(&self) {
        let _late = timeout(LIMIT, none_left(&self.0)).await;
    }
}

/// That this thread is in a producer, until it is dropped.
pub(super) struct Pull;

impl Pull {
    /// `Err` on a daemon thread when the interpreter is ending, which would end it in the middle of something.
    pub(super) fn begin() -> Result<Self, Self> {
        PULLING.fetch_add(1, Ordering::SeqCst);
        match ENDING.load(Ordering::SeqCst) && !ENDS.get() {
            true => Err(Self),
            false => Ok(Self),
        }
    }
}

impl Drop for Pull {
    fn drop(&mut self) {
        PULLING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Ends a daemon thread while the interpreter ends: runs `undone`, for a while, and never returns. Returning would run
/// Python code, in the middle of which the interpreter would end the thread, and that in a destructor of C++ ends the
/// process with an error. From Python 3.14 the interpreter lets such threads wait as well.
pub(super) fn wait_for_the_end(
    py: Python<'_>,
    runtime: &Runtime,
    pull: Pull,
    undone: impl Future<Output = ()> + Send,
) -> ! {
    py.detach(|| {
        runtime.wait(async { drop(timeout(LIMIT, undone).await) });
        drop(pull);
        loop {
            thread::park();
        }
    })
}

async fn none_left(count: &AtomicUsize) {
    while count.load(Ordering::Acquire) > 0 {
        sleep(INTERVAL).await;
    }
}

unsafe extern "C" fn give_back(array: *mut FFI_ArrowArray) {
    // SAFETY: the consumer calls this once, with the live array that `lend` gave it.
    let loan = unsafe {
        let loan = Box::from_raw((*array).private_data().cast::<Loan>());
        (*array).set_private_data(loan.private_data);
        (*array).set_release(loan.release);
        if let Some(release) = loan.release {
            release(array);
        }
        loan
    };
    loan.count.fetch_sub(1, Ordering::Release);
    if PROCESS.load(Ordering::Relaxed) == loan.process {
        LENT.fetch_sub(1, Ordering::Release);
    }
}

/// Lets the interpreter wait, as it ends, for threads that still have something of another library's.
pub(crate) fn return_loans_at_exit(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let wait = wrap_pyfunction!(wait_for_loans, module)?;
    module.py().import("atexit")?.call_method1("register", (wait,))?;
    Ok(())
}

#[entry]
#[pyfunction]
fn wait_for_loans(py: Python<'_>) {
    ENDS.set(true);
    ENDING.store(true, Ordering::SeqCst);
    if PROCESS.load(Ordering::Relaxed) == process::id() {
        py.detach(|| {
            let wait = |count: &AtomicUsize, limit: Duration| {
                let ended = Instant::now() + limit;
                while count.load(Ordering::SeqCst) > 0 && Instant::now() < ended {
                    thread::sleep(INTERVAL);
                }
            };
            wait(&PULLING, LIMIT_FOR_PRODUCERS);
            wait(&LENT, LIMIT);
        });
    }
}
