//! The threads that wait for storage, and how a Python thread waits for them. Others compute (`deltic_store::compute_threads`).
//!
//! One tokio runtime per process. A child made by `fork` inherits the memory of the parent's runtime but none of its
//! threads, so the child builds its own and leaks the inherited one: dropping it would wait for threads that are not
//! there. PySpark's daemon and `multiprocessing` fork.
//!
//! Invariants: the GIL is released while waiting, and signals are checked every [`SIGNAL_INTERVAL`]; the lock on
//! [`CURRENT`] is only held by a thread that holds the GIL and keeps it meanwhile. `os.fork` runs with the GIL
//! too, so no child ever inherits the lock while it is held, and no lock-free structure is needed. A runtime that is
//! part of an object (such as a stream) is used without the lock.
//! Proved by the `fork`, `interrupt` and `gil` tests in `tests/python/test_bridge.py`.

use std::mem;
use std::pin::pin;
use std::process;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deltic_protocol::error::Error;
use deltic_store::compute_threads::{self, processors};
use pyo3::prelude::*;
use tokio::runtime::{Builder, EnterGuard};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::errors::{Failure, Result};
use crate::events;
use crate::progress::Reporting;

/// How many threads there are for local files, besides one for each processor.
const THREADS_FOR_FILES: usize = 6;
/// How long Ctrl-C may go unnoticed.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);
/// How long Ctrl-C may wait for a cleanup.
const CLEANUP_LIMIT: Duration = Duration::from_secs(3);

/// The runtime of this process, or of the process that this one was forked from.
static CURRENT: Mutex<Option<Runtime>> = Mutex::new(None);

/// A shared handle on the runtime of one process.
#[derive(Clone, Debug)]
pub(crate) struct Runtime {
    tokio: Arc<tokio::runtime::Runtime>,
    process: u32,
}

impl Runtime {
    /// The runtime of this process, started on first use.
    pub(crate) fn of_process(_attached: Python<'_>) -> Result<Self> {
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = current.as_ref().filter(|runtime| runtime.is_of_this_process()) {
            return Ok(runtime.clone());
        }
        let runtime = Self::start()?;
        if let Some(inherited) = current.replace(runtime.clone()) {
            // Keeps its reference count above zero, so that other inherited handles never drop it either.
            mem::forget(inherited);
        }
        Ok(runtime)
    }

    /// A runtime of its own.
    pub(crate) fn start() -> std::result::Result<Self, Error> {
        // Under the GIL, so that no other thread forks meanwhile.
        compute_threads::prepare();
        let mut builder = Builder::new_multi_thread();
        builder.thread_name("deltic-io").enable_all().max_blocking_threads(processors() + THREADS_FOR_FILES);
        let tokio = builder.build().map_err(|source| {
            Error::storage(true, "cannot start the I/O threads; the limit on threads may be too low").caused_by(source)
        })?;
        Ok(Self { tokio: Arc::new(tokio), process: process::id() })
    }

    /// False in a child forked from the process that started it: none of its threads exist there.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process == process::id()
    }

    /// The handle for spawning tasks and blocking work on the runtime.
    #[cfg(test)]
    pub(crate) fn handle(&self) -> &tokio::runtime::Handle {
        self.tokio.handle()
    }

    /// Makes this the runtime that `tokio::spawn` and timers on this thread find.
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.tokio.enter()
    }

    /// Runs `future` on this thread until it is done. Never touches Python.
    ///
    /// Works on any thread, also inside another `wait` and on a thread of the runtime: reading data that is made by
    /// Python code, which itself reads a table, nests them.
    pub(crate) fn wait<F: Future>(&self, future: F) -> F::Output {
        tokio::task::block_in_place(|| self.tokio.block_on(future))
    }

    /// [`Runtime::wait`] for a Python thread: without the GIL, and giving up with the signal handler's exception
    /// (`KeyboardInterrupt`), in which case the future is dropped.
    ///
    /// The future is polled here and signals are checked between polls, so long computations belong on other threads.
    pub(crate) fn block_on<F>(&self, py: Python<'_>, future: F) -> PyResult<F::Output>
    where
        F: Future + Send,
        F::Output: Send,
    {
        // Declared before the future, so that the future is dropped inside the runtime.
        let _entered = self.enter();
        let mut reporting = Reporting::begin(py);
        let mut future = pin!(reporting.observers().scope(future));
        events::look(py)?;
        let output = loop {
            let output = py.detach(|| self.wait(async { timeout(SIGNAL_INTERVAL, future.as_mut()).await }));
            let reported = events::hand_on(py).and_then(|()| reporting.report(py));
            match (output, reported) {
                (Ok(output), reported) => break reported.map(|()| output),
                (Err(_elapsed), reported) => {
                    if let Err(signal) = reported.and_then(|()| py.check_signals()) {
                        break Err(signal);
                    }
                }
            }
        };
        let ended = reporting.end(py);
        output.and_then(|output| ended.map(|()| output))
    }

    /// Runs `future` on the threads of the runtime.
    pub(crate) fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tokio.spawn(future)
    }
}

impl Runtime {
    /// [`Runtime::block_on`] for a future that must not be dropped half-way: the first signal calls `interrupt`, upon
    /// which the future should end soon, and its exception is returned besides the output. A second one drops it.
    pub(crate) fn block_on_to_end<F>(
        &self,
        py: Python<'_>,
        future: F,
        interrupt: impl Fn(),
    ) -> PyResult<(F::Output, Option<PyErr>)>
    where
        F: Future + Send,
        F::Output: Send,
    {
        let _entered = self.enter();
        let mut reporting = Reporting::begin(py);
        let mut future = pin!(reporting.observers().scope(future));
        let mut interrupted = None;
        events::look(py)?;
        loop {
            let output = py.detach(|| self.wait(async { timeout(SIGNAL_INTERVAL, future.as_mut()).await }));
            let handed_on = events::hand_on(py).and_then(|()| reporting.report(py));
            match output {
                Ok(output) => {
                    let ended = handed_on.and(reporting.end(py));
                    return Ok((output, interrupted.or(ended.err())));
                }
                Err(_elapsed) => match (handed_on.and_then(|()| py.check_signals()), &interrupted) {
                    (Ok(()), _) => {}
                    (Err(signal), None) => {
                        interrupt();
                        interrupted = Some(signal);
                    }
                    (Err(signal), Some(_)) => return Err(signal),
                },
            }
        }
    }
}

/// Waits for `future` on this process's runtime, without the GIL; Ctrl-C drops it and raises.
pub(crate) fn block_on<F>(py: Python<'_>, future: F) -> Result<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    Ok(Runtime::of_process(py)?.block_on(py, future)?)
}

/// [`block_on`] for a future that can fail: one `?` for both failures.
pub(crate) fn run<T, F>(py: Python<'_>, future: F) -> Result<T>
where
    F: Future<Output = std::result::Result<T, Error>> + Send,
    T: Send,
{
    block_on(py, future)?.map_err(Failure::from)
}

/// [`run`] for a future that needs a cleanup after Ctrl-C has dropped it: waits for `cleanup` up to [`CLEANUP_LIMIT`], or
/// until the next Ctrl-C.
pub(crate) fn run_with_cleanup<T, F>(py: Python<'_>, future: F, cleanup: impl Future<Output = ()> + Send) -> Result<T>
where
    F: Future<Output = std::result::Result<T, Error>> + Send,
    T: Send,
{
    let outcome = run(py, future);
    if let Err(Failure::Python(_)) = outcome {
        wait_for_cleanup(py, cleanup)?;
    }
    outcome
}

/// Waits for `cleanup` up to [`CLEANUP_LIMIT`], or until the next Ctrl-C.
pub(crate) fn wait_for_cleanup(py: Python<'_>, cleanup: impl Future<Output = ()> + Send) -> Result<()> {
    let _timed_out = block_on(py, async { timeout(CLEANUP_LIMIT, cleanup).await })?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn waits_nest_on_any_thread() {
        let runtime = Runtime::start().unwrap();
        let nested = |depth: u32| {
            let runtime = runtime.clone();
            async move {
                tokio::task::yield_now().await;
                runtime.wait(async { runtime.wait(async { depth + 1 }) })
            }
        };
        assert_eq!(runtime.wait(nested(1)), 2);
        assert_eq!(runtime.wait(runtime.handle().spawn(nested(2))).unwrap(), 3);
        let other = runtime.clone();
        let blocking = runtime.handle().spawn_blocking(move || other.wait(async { 4 }));
        assert_eq!(runtime.wait(blocking).unwrap(), 4);
    }
}
