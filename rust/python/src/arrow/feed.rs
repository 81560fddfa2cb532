//! Running what consumes rows that Python code makes.
//!
//! The Python thread that called pulls the batches, and what consumes them runs on the threads of the runtime meanwhile.
//! So Ctrl-C interrupts a producer written in Python as it would anywhere, and when the call returns no thread is in the
//! producer any more. A producer may itself read and write tables. What is in memory, and what deltic itself reads, needs
//! no interpreter and is pulled by its consumer.
//!
//! Invariants: a stream that was not read to its end ends with an error, never as if it were whole; a call that fails
//! returns when its threads have let go of the caller's memory.
//! Proved by the tests of exits and sources in `tests/python/test_process.py`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::RecordBatch;
use deltic_protocol::error::Error;
use deltic_table::progress::Watch;
use futures::stream::{self, BoxStream, StreamExt};
use pyo3::prelude::*;
use tokio::sync::mpsc::{self, Receiver, Sender, error::TrySendError};

use super::import::{ImportedStream, Source};
use super::loans::wait_for_the_end;
use crate::ending::PythonCall;
use crate::errors::{Result, panic_text};
use crate::progress::Reporting;
use crate::runtime::{Runtime, block_on, run_or_undo, wait_undone};

/// Batches in memory that are pulled before others have their turn.
const BATCHES_AT_ONCE: usize = 64;

/// Batches that are pulled before the consumer asks for them.
const BATCHES_AHEAD: usize = 2;

type Pulled = std::result::Result<RecordBatch, Error>;

/// How feeding ended.
enum Fed {
    All,
    /// The interpreter is ending.
    Interrupted(PythonCall),
}

/// What is consumed.
pub(crate) type Batches = BoxStream<'static, Pulled>;

/// Runs `consume` on the batches of `rows`. `undone` ends when what it leaves behind, interrupted or failed, is gone.
///
/// # Errors
/// What `consume` fails with; what the producer raised; a signal handler's exception.
pub(crate) fn run_fed<T, F>(
    py: Python<'_>,
    (rows, in_memory): (ImportedStream, bool),
    consume: impl FnOnce(Batches) -> F,
    undone: impl Future<Output = ()> + Send,
) -> Result<T>
where
    F: Future<Output = std::result::Result<T, Error>> + Send + 'static,
    T: Send + 'static,
{
    let loans = rows.loans.clone();
    let outcome = match rows.source {
        Source::Own(mut reader) => {
            reader.check_process()?;
            let batches =
                stream::unfold(reader, |mut reader| async move { reader.read().await.map(|batch| (batch, reader)) });
            run_or_undo(py, consume(batches.boxed()), undone)
        }
        Source::One(_) | Source::Ended => run_or_undo(py, consume(ready(rows)), undone),
        Source::Foreign(_) if in_memory => run_or_undo(py, consume(ready(rows)), undone),
        Source::Foreign(_) | Source::Reader(_) => run_pulled(py, rows, consume, undone),
    };
    if outcome.is_err() {
        block_on(py, loans.returned())?;
    }
    outcome
}

/// Batches that need not be waited for. Now and then the thread is given up, for signals are looked at then.
fn ready(rows: ImportedStream) -> Batches {
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

/// [`run_fed`] where this thread pulls.
fn run_pulled<T, F>(
    py: Python<'_>,
    mut rows: ImportedStream,
    consume: impl FnOnce(Batches) -> F,
    undone: impl Future<Output = ()> + Send,
) -> Result<T>
where
    F: Future<Output = std::result::Result<T, Error>> + Send + 'static,
    T: Send + 'static,
{
    let runtime = Runtime::of_process(py)?;
    let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
    let mut reporting = Reporting::begin(py);
    let mut consumer = runtime.spawn(Watch::scope(reporting.watch(), consume(sent(receiver))));
    let fed = feed(py, &runtime, (&mut rows, &sender), &mut reporting);
    // What the producer holds goes before anything is waited for.
    drop(rows);
    // Without its end the consumer sees that the data ended early, and cleans up.
    drop(sender);
    if let Ok(Fed::Interrupted(call)) = fed {
        let stopped = async {
            drop(consumer.await);
            undone.await;
        };
        wait_for_the_end(py, &runtime, call, stopped);
    }
    if let Err(failure) = fed {
        // If that takes long, it is dropped.
        let stopping = consumer.abort_handle();
        let stopped = wait_undone(py, async { drop(consumer.await) });
        stopping.abort();
        wait_undone(py, undone)?;
        stopped?;
        return Err(failure);
    }
    match runtime.block_on(py, &mut consumer) {
        Ok(Ok(done)) => {
            let done = done?;
            // Nothing is final before the last report, which may raise.
            if let Err(signal) = reporting.end(py) {
                let entered = runtime.enter();
                drop(done);
                drop(entered);
                wait_undone(py, undone)?;
                return Err(signal.into());
            }
            Ok(done)
        }
        Ok(Err(stopped)) => {
            wait_undone(py, undone)?;
            Err(Error::internal("a worker thread failed").caused_by(stopped).into())
        }
        Err(signal) => {
            consumer.abort();
            let gone = async {
                drop(consumer.await);
                undone.await;
            };
            wait_undone(py, gone)?;
            Err(signal.into())
        }
    }
}

/// Sends the batches until they end, or the receiver is gone. The end is sent too.
fn feed(
    py: Python<'_>,
    runtime: &Runtime,
    (rows, sender): (&mut ImportedStream, &Sender<Option<RecordBatch>>),
    reporting: &mut Reporting,
) -> Result<Fed> {
    loop {
        // Room is made first, so that a producer is not asked for what would only wait.
        let room = match sender.try_reserve() {
            Ok(room) => Some(room),
            Err(TrySendError::Full(())) => runtime.block_on(py, sender.reserve())?.ok(),
            Err(TrySendError::Closed(())) => None,
        };
        // The receiver reports why it is gone.
        let Some(room) = room else { return Ok(Fed::All) };
        py.check_signals()?;
        reporting.report(py)?;
        let call = match PythonCall::begin() {
            Ok(call) => call,
            Err(call) => return Ok(Fed::Interrupted(call)),
        };
        let batch = rows.pull(py);
        drop(call);
        let batch = batch?;
        let is_last = batch.is_none();
        room.send(batch);
        if is_last {
            return Ok(Fed::All);
        }
    }
}

/// The batches that are sent. Without a sign of their end they have not ended.
fn sent(receiver: Receiver<Option<RecordBatch>>) -> Batches {
    let batches = stream::unfold(Some(receiver), |receiver| async move {
        let mut receiver = receiver?;
        match receiver.recv().await {
            Some(Some(batch)) => Some((Ok(batch), Some(receiver))),
            Some(None) => None,
            None => Some((Err(Error::invalid("the data ended early: reading them was interrupted")), None)),
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
            let pulled: Vec<Pulled> = runtime.wait(sent(receiver).collect());
            pulled.iter().map(std::result::Result::is_ok).collect::<Vec<_>>()
        };
        assert_eq!(run(true), [true]);
        assert_eq!(run(false), [true, false]);
    }
}
