//! When the work of a traced operation began and ended, for the spans that Python makes of it.
//!
//! An operation is open on the thread that began it, and gets the work of the calls that this thread makes meanwhile. Of
//! operations in each other the innermost gets it. Without one nothing is measured.
//!
//! Invariant: a forked child never uses the traces of its parent, whose threads may have had their locks.
//! Proved by `tests/python/test_telemetry.py`.

use std::cell::RefCell;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use deltic_entry::entry;
use deltic_table::progress::{TimedWork, Trace, Traced};
use pyo3::prelude::*;

use crate::clock::Clock;

thread_local! {
    static OPEN: RefCell<Open> = const { RefCell::new(Open { process: 0, operations: Vec::new() }) };
}

/// The operations that are open on a thread.
struct Open {
    process: u32,
    operations: Vec<Operation>,
}

struct Operation {
    id: u64,
    /// None if its span is not recorded.
    trace: Option<Trace>,
}

/// The name of the operation in the history, the unit, how many of them were done; when it began and ended.
type Piece = (String, &'static str, u64, u64, u64);

impl Open {
    /// The operations of this process, the innermost last: a forked child forgets those of its parent.
    fn operations(&mut self) -> &mut Vec<Operation> {
        let this = process::id();
        if self.process != this {
            *self = Self { process: this, operations: Vec::new() };
        }
        &mut self.operations
    }
}

/// The trace of the innermost operation that is open on this thread.
pub(crate) fn innermost() -> Option<Trace> {
    OPEN.with_borrow_mut(|open| match open.operations.is_empty() {
        true => None,
        false => open.operations().last().and_then(|operation| operation.trace.clone()),
    })
}

/// Opens an operation on this thread, and returns its id. One that is not recorded gets one only inside of another.
#[entry]
#[pyfunction]
pub(crate) fn begin_trace(is_recording: bool) -> Option<u64> {
    static IDS: AtomicU64 = AtomicU64::new(0);
    OPEN.with_borrow_mut(|open| {
        let operations = open.operations();
        if !is_recording && operations.is_empty() {
            return None;
        }
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        operations.push(Operation { id, trace: is_recording.then(|| Trace::new(Clock::now_ns)) });
        Some(id)
    })
}

/// Closes an operation. Returns its pieces of work, and how many more there were than a trace keeps.
#[entry]
#[pyfunction]
pub(crate) fn end_trace(id: u64) -> (Vec<Piece>, u64) {
    let trace = OPEN.with_borrow_mut(|open| {
        let operations = open.operations();
        let at = operations.iter().position(|operation| operation.id == id)?;
        operations.remove(at).trace
    });
    let Traced { work, left_out } = trace.as_ref().map(Trace::traced).unwrap_or_default();
    let piece =
        |TimedWork { operation, unit, done, start_ns, end_ns }| (operation, unit.as_str(), done, start_ns, end_ns);
    (work.into_iter().map(piece).collect(), left_out)
}
