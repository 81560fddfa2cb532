//! Counts arrays imported through the Arrow C data interface until they are released.
//!
//! A release callback may run Python code, for example if the memory is a NumPy array's. If a thread of the core runs it while
//! the interpreter is finalizing, the interpreter ends that thread, and the process with it. So a call that fails waits until
//! its threads have released its imported arrays, and so does the interpreter before it finalizes.
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

use crate::finalizing::{INTERVAL, PythonCall, wait_for_none};
use crate::runtime::Runtime;

/// How long to wait for threads that still hold arrays.
const LIMIT: Duration = Duration::from_secs(10);

/// Unreleased arrays of all calls in this process, and its id. A forked child does not wait for its parent's arrays.
static UNRELEASED: AtomicUsize = AtomicUsize::new(0);
static PROCESS: AtomicU32 = AtomicU32::new(0);

type Release = Option<unsafe extern "C" fn(*mut FFI_ArrowArray)>;

/// The unreleased arrays of one call.
#[derive(Clone, Default)]
pub(super) struct ImportedArrays(Arc<AtomicUsize>);

/// Replaces the producer's private data and release callback.
struct CountedArray {
    release: Release,
    private_data: *mut c_void,
    count: Arc<AtomicUsize>,
    process: u32,
}

impl ImportedArrays {
    /// Counts the array until it is released. Returns the same array.
    pub(super) fn count(&self, mut array: FFI_ArrowArray) -> FFI_ArrowArray {
        let process = process::id();
        if PROCESS.swap(process, Ordering::Relaxed) != process {
            UNRELEASED.store(0, Ordering::Relaxed);
        }
        UNRELEASED.fetch_add(1, Ordering::Relaxed);
        self.0.fetch_add(1, Ordering::Relaxed);
        let (release, private_data) = (array.release(), array.private_data());
        let counted =
            Box::into_raw(Box::new(CountedArray { release, private_data, count: Arc::clone(&self.0), process }));
        // SAFETY: `release_counted` gets these two fields as they are set here, and restores the producer's before it calls
        // the producer's own callback.
        unsafe {
            array.set_private_data(counted.cast());
            array.set_release(Some(release_counted));
        }
        array
    }

    /// Whether an array is not released yet.
    #[cfg(test)]
    pub(super) fn has_unreleased(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }

    /// Waits until all arrays are released, up to [`LIMIT`].
    pub(super) async fn wait_for_release(&self) {
        let _timed_out = timeout(LIMIT, until_zero(&self.0)).await;
    }
}

/// Parks a daemon thread while the interpreter is finalizing: runs `cleanup`, up to [`LIMIT`], and never returns. Returning
/// would run Python code, where the interpreter ends the thread; if a C++ destructor is on the stack, the process then aborts.
/// From Python 3.14 the interpreter parks such threads itself.
pub(super) fn park_while_finalizing(
    py: Python<'_>,
    runtime: &Runtime,
    call: PythonCall,
    cleanup: impl Future<Output = ()> + Send,
) -> ! {
    py.detach(|| {
        runtime.wait(async { drop(timeout(LIMIT, cleanup).await) });
        drop(call);
        loop {
            thread::park();
        }
    })
}

async fn until_zero(count: &AtomicUsize) {
    while count.load(Ordering::Acquire) > 0 {
        sleep(INTERVAL).await;
    }
}

unsafe extern "C" fn release_counted(array: *mut FFI_ArrowArray) {
    // SAFETY: the consumer calls this once, with the live array that `count` gave it.
    let counted = unsafe {
        let counted = Box::from_raw((*array).private_data().cast::<CountedArray>());
        (*array).set_private_data(counted.private_data);
        (*array).set_release(counted.release);
        if let Some(release) = counted.release {
            release(array);
        }
        counted
    };
    counted.count.fetch_sub(1, Ordering::Release);
    if PROCESS.load(Ordering::Relaxed) == counted.process {
        UNRELEASED.fetch_sub(1, Ordering::Release);
    }
}

/// Makes the interpreter wait at exit for threads that still hold imported arrays.
pub(crate) fn wait_for_arrays_at_exit(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let wait = wrap_pyfunction!(wait_for_arrays, module)?;
    module.py().import("atexit")?.call_method1("register", (wait,))?;
    Ok(())
}

#[entry]
#[pyfunction]
fn wait_for_arrays(py: Python<'_>) {
    PythonCall::refuse_new_and_wait(py);
    if PROCESS.load(Ordering::Relaxed) == process::id() {
        py.detach(|| wait_for_none(&UNRELEASED, LIMIT));
    }
}
