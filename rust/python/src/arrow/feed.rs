//! Runs a consumer of batches that Python code produces.
//!
//! The calling Python thread pulls the batches. The consumer runs on the threads of the runtime meanwhile. So Ctrl-C
//! interrupts a producer written in Python as usual, and no thread is in the producer when the call returns. A producer may
//! itself read and write tables. Batches in memory, and batches that deltic reads itself, need no interpreter: their consumer
//! pulls them.
//!
//! Invariants: a stream that was not read to its end ends with an error, never as if it were complete. A call that fails
//! waits, ten seconds at most, until its threads have released the caller's memory.
//! Proved by the tests of exits and sources in `tests/python/test_process.py`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::RecordBatch;
use deltic_protocol::error::Error;
use futures::stream::{self, BoxStream, StreamExt};
use pyo3::prelude::*;
use tokio::sync::mpsc::{self, Receiver, Sender, error::TrySendError};
use tokio::task::JoinHandle;

use super::import::{ImportedStream, Source};
use super::imported_arrays::park_while_finalizing;
use crate::errors::{Result, panic_text};
use crate::finalizing::PythonCall;
use crate::progress::Reporting;
use crate::runtime::{Runtime, block_on, run_with_cleanup, wait_for_cleanup};

/// Batches in memory that are pulled before the task yields.
const BATCHES_AT_ONCE: usize = 64;

/// Batches that are pulled before the consumer asks for them.
const BATCHES_AHEAD: usize = 2;

type Pulled = std::result::Result<RecordBatch, Error>;

/// Why [`feed`] ended without an error.
enum FeedOutcome {
    /// All batches were sent, or the consumer has closed the channel.
    Finished,
    /// The interpreter is finalizing.
    InterpreterFinalizing(PythonCall),
}

/// The stream that a consumer reads.
pub(crate) type Batches = BoxStream<'static, Pulled>;

/// Runs `consume` on the batches of `rows`. `cleanup` completes when the files of a failed or interrupted `consume` are
/// deleted.
///
/// # Errors
/// What `consume` fails with; what the producer raised; a signal handler's exception.
pub(crate) fn consume_batches<T, F>(
    py: Python<'_>,
    rows: ImportedStream,
    in_memory: bool,
    consume: impl FnOnce(Batches) -> F,
    cleanup: impl Future<Output = ()> + Send,
) -> Result<T>
where
    F: Future<Output = std::result::Result<T, Error>> + Send + 'static,
    T: Send + 'static,
{
    let imported = rows.imported.clone();
    let outcome = match rows.source {
        Source::Own(mut reader) => {
            reader.check_process()?;
            let batches =
                stream::unfold(reader, |mut reader| async move { reader.read().await.map(|batch| (batch, reader)) });
            run_with_cleanup(py, consume(batches.boxed()), cleanup)
        }
        Source::One(_) | Source::Ended => run_with_cleanup(py, consume(in_memory_stream(rows)), cleanup),
        Source::Foreign(_) if in_memory => run_with_cleanup(py, consume(in_memory_stream(rows)), cleanup),
        Source::Foreign(_) | Source::Reader(_) => consume_on_this_thread(py, rows, consume, cleanup),
    };
    if outcome.is_err() {
        block_on(py, imported.wait_for_release())?;
    }
    outcome
}

/// Batches that need no waiting. The task yields now and then, so that signals are checked.
fn in_memory_stream(rows: ImportedStream) -> Batches {
    let batches = stream::unfold((rows, 1_usize), |(mut rows, at)| async move {
        if at.is_multiple_of(BATCHES_AT_ONCE) {
            tokio::task::yield_now().await;
        }
        let pulled = catch_unwind(AssertUnwindSafe(|| rows.pull_detached()));
        let batch = pulled.unwrap_or_else(|panic| {
            rows.source = Source::Ended;
            Some(Err(Error::internal(format!("reading the data panicked: {}", panic_text(&*panic)))))
        });
        batch.map(|batch| (batch, (rows, at.wrapping_add(1))))
    });
    batches.boxed()
}

/// [`consume_batches`] for batches that this thread pulls.
fn consume_on_this_thread<T, F>(
    py: Python<'_>,
    mut rows: ImportedStream,
    consume: impl FnOnce(Batches) -> F,
    cleanup: impl Future<Output = ()> + Send,
) -> Result<T>
where
    F: Future<Output = std::result::Result<T, Error>> + Send + 'static,
    T: Send + 'static,
{
    let runtime = Runtime::of_process(py)?;
    let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
    let mut reporting = Reporting::begin(py);
    let consumer = runtime.spawn(reporting.observers().scope(consume(channel_stream(receiver))));
    let outcome = feed(py, &runtime, &mut rows, &sender, &mut reporting);
    // The producer's stream is released before this thread waits for anything.
    drop(rows);
    // If no end was sent, the consumer sees that the data ended early, and cleans up.
    drop(sender);
    if let Ok(FeedOutcome::InterpreterFinalizing(call)) = outcome {
        let stopped = async {
            drop(consumer.await);
            cleanup.await;
        };
        park_while_finalizing(py, &runtime, call, stopped);
    }
    if let Err(failure) = outcome {
        // After a while the consumer is aborted.
        let stopping = consumer.abort_handle();
        let stopped = wait_for_cleanup(py, async { drop(consumer.await) });
        stopping.abort();
        wait_for_cleanup(py, cleanup)?;
        stopped?;
        return Err(failure);
    }
    end_consumer(py, &runtime, consumer, reporting, cleanup)
}

/// Waits for the end of a consumer that was sent all batches, and returns its result.
fn end_consumer<T: Send + 'static>(
    py: Python<'_>,
    runtime: &Runtime,
    mut consumer: JoinHandle<std::result::Result<T, Error>>,
    mut reporting: Reporting,
    cleanup: impl Future<Output = ()> + Send,
) -> Result<T> {
    match runtime.block_on(py, &mut consumer) {
        Ok(Ok(done)) => {
            let done = done?;
            // The result is kept only after the last progress report, which may raise.
            if let Err(signal) = reporting.end(py) {
                let entered = runtime.enter();
                drop(done);
                drop(entered);
                wait_for_cleanup(py, cleanup)?;
                return Err(signal.into());
            }
            Ok(done)
        }
        Ok(Err(stopped)) => {
            wait_for_cleanup(py, cleanup)?;
            Err(Error::internal("a worker thread failed").caused_by(stopped).into())
        }
        Err(signal) => {
            consumer.abort();
            let ended = async {
                drop(consumer.await);
                cleanup.await;
            };
            wait_for_cleanup(py, ended)?;
            Err(signal.into())
        }
    }
}

/// Sends the batches, then `None` for the end. It stops when the receiver has closed the channel.
fn feed(
    py: Python<'_>,
    runtime: &Runtime,
    rows: &mut ImportedStream,
    sender: &Sender<Option<RecordBatch>>,
    reporting: &mut Reporting,
) -> Result<FeedOutcome> {
    loop {
        // A slot is reserved first, so that the producer is not pulled ahead of the consumer.
        let slot = match sender.try_reserve() {
            Ok(slot) => Some(slot),
            Err(TrySendError::Full(())) => runtime.block_on(py, sender.reserve())?.ok(),
            Err(TrySendError::Closed(())) => None,
        };
        // The consumer reports why it has closed the channel.
        let Some(slot) = slot else { return Ok(FeedOutcome::Finished) };
        py.check_signals()?;
        reporting.report(py)?;
        let call = match PythonCall::begin() {
            Ok(call) => call,
            Err(call) => return Ok(FeedOutcome::InterpreterFinalizing(call)),
        };
        let batch = rows.pull(py);
        drop(call);
        let batch = batch?;
        let is_last = batch.is_none();
        slot.send(batch);
        if is_last {
            return Ok(FeedOutcome::Finished);
        }
    }
}

/// The batches that [`feed`] sends. A channel that closes before `None` gives an error.
fn channel_stream(receiver: Receiver<Option<RecordBatch>>) -> Batches {
    let batches = stream::unfold(Some(receiver), |receiver| async move {
        let mut receiver = receiver?;
        match receiver.recv().await {
            Some(Some(batch)) => Some((Ok(batch), Some(receiver))),
            Some(None) => None,
            None => Some((Err(Error::invalid("the data source was interrupted before its end")), None)),
        }
    });
    batches.boxed()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::export::tests::numbers;
    use super::*;

    #[test]
    fn a_stream_without_its_end_is_not_whole() {
        let runtime = Runtime::start().unwrap();
        let run = |ends: bool| {
            let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
            sender.try_send(Some(numbers())).unwrap();
            if ends {
                sender.try_send(None).unwrap();
            }
            drop(sender);
            let pulled: Vec<Pulled> = runtime.wait(channel_stream(receiver).collect());
            pulled.iter().map(std::result::Result::is_ok).collect::<Vec<_>>()
        };
        assert_eq!(run(true), [true]);
        assert_eq!(run(false), [true, false]);
    }
}
