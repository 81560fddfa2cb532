//! Memory that another library lent, until it is given back.
//!
//! Giving it back may run Python: it may be a NumPy array's. A thread of the core that did so while the interpreter ends
//! would be ended by it, and the process with it. So a call that fails waits until its threads have let go of what it was
//! lent, and the interpreter does before it ends.
//!
//! Proved by the tests of exits in `tests/python/test_process.py`.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use arrow_array::ffi::FFI_ArrowArray;
use deltic_entry::entry;
use pyo3::prelude::*;
use tokio::time::{sleep, timeout};

use crate::ending::{INTERVAL, PythonCall, wait_for_none};
use crate::runtime::Runtime;

/// How long to wait for threads that are in the middle of something.
const LIMIT: Duration = Duration::from_secs(10);

/// Arrays lent to this process by all calls, and which process that is: what a parent was lent is not a child's to wait for.
static LENT: AtomicUsize = AtomicUsize::new(0);
static PROCESS: AtomicU32 = AtomicU32::new(0);

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

/// Ends a daemon thread while the interpreter ends: runs `undone`, for a while, and never returns. Returning would run
/// Python code, in the middle of which the interpreter would end the thread, and that in a destructor of C++ ends the
/// process with an error. From Python 3.14 the interpreter lets such threads wait as well.
pub(super) fn wait_for_the_end(
    py: Python<'_>,
    runtime: &Runtime,
    call: PythonCall,
    undone: impl Future<Output = ()> + Send,
) -> ! {
    py.detach(|| {
        runtime.wait(async { drop(timeout(LIMIT, undone).await) });
        drop(call);
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
    PythonCall::end_all(py);
    if PROCESS.load(Ordering::Relaxed) == process::id() {
        py.detach(|| wait_for_none(&LENT, LIMIT));
    }
}
