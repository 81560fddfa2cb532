//! Releases the GIL while a C stream is awaited whose rows may need it on another thread.
//!
//! Some consumers of a C stream, such as `arro3`, hold the GIL when they pull a batch. If DuckDB evaluates a function of its
//! rows (`duckdb`), a worker thread needs the GIL for that: both would wait forever. PyO3 only knows whether it has taken the
//! GIL itself, and the stable ABI does not tell, so a function of CPython outside of it is looked up at runtime. This is done
//! when the first such function is bound: before, a consumer that holds the GIL keeps it, since its own locks may rely on it.
//!
//! Invariant: the GIL is released only by a thread that holds it, also while there are subinterpreters, for which
//! `PyGILState_Check` is wrong. The thread has it again afterwards, also after a panic.
//! Proved by `tests/python/test_duckdb_functions.py`.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::mem;
use std::ptr;
use std::sync::OnceLock;

use pyo3::exceptions::{PyAttributeError, PyImportError};
use pyo3::ffi::{PyGILState_GetThisThreadState, PyThreadState};
use pyo3::prelude::*;

/// Returns the thread state that holds the GIL, or null. From Python 3.12 it is null on every other thread.
type CurrentThreadState = unsafe extern "C" fn() -> *mut PyThreadState;

/// Its name from Python 3.13, and before.
const NAMES: [&str; 2] = ["PyThreadState_GetUnchecked", "_PyThreadState_UncheckedGet"];

/// The function, once it is found. Until then the GIL stays with the thread that holds it.
static CURRENT_THREAD_STATE: OnceLock<CurrentThreadState> = OnceLock::new();

/// Looks the function up, once. From then on the GIL is released while a C stream is awaited.
///
/// # Errors
/// What Python raises, such as `KeyboardInterrupt`. An interpreter without the function is no error.
pub(crate) fn find_thread_state(py: Python<'_>) -> PyResult<()> {
    if CURRENT_THREAD_STATE.get().is_some() {
        return Ok(());
    }
    for name in NAMES {
        match exported(py, name) {
            Ok(found) => {
                // Not by `get_or_init`: other threads may run Python code during the import, and would wait with the GIL.
                let _ = CURRENT_THREAD_STATE.set(found);
                return Ok(());
            }
            Err(e) if e.is_instance_of::<PyAttributeError>(py) || e.is_instance_of::<PyImportError>(py) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn exported(py: Python<'_>, name: &str) -> PyResult<CurrentThreadState> {
    let ctypes = py.import("ctypes")?;
    let function = ctypes.getattr("pythonapi")?.getattr(name)?;
    let pointer = ctypes.call_method1("cast", (function, ctypes.getattr("c_void_p")?))?;
    let address: usize = pointer.getattr("value")?.extract()?;
    let function = ptr::with_exposed_provenance::<c_void>(address);
    // SAFETY: this is the address of a C function with one of these names, which takes nothing and returns a thread state. It
    // is not null, which `ctypes` gives as None. The interpreter is never unloaded.
    Ok(unsafe { mem::transmute::<*const c_void, CurrentThreadState>(function) })
}

/// Runs `wait`, without the GIL if this thread holds it. If the interpreter is finalizing afterwards, PyO3 parks a daemon
/// thread that asks for the GIL again.
pub(super) fn without_gil<T: Send>(wait: impl FnOnce() -> T + Send) -> T {
    if !holds_gil() {
        return wait();
    }
    // SAFETY: this thread holds the GIL, and the token does not outlive this function.
    let py = unsafe { Python::assume_attached() };
    py.detach(wait)
}

/// Whether this thread holds the GIL, as far as it is known.
fn holds_gil() -> bool {
    let Some(current_thread_state) = CURRENT_THREAD_STATE.get().copied() else { return false };
    // SAFETY: both functions only return a pointer, on any thread, also before and after the life of the interpreter.
    let (current, own) = unsafe { (current_thread_state(), PyGILState_GetThisThreadState()) };
    !current.is_null() && current == own
}
