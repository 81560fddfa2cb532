//! Runs work on other threads: tasks of the runtime, and worker threads.

use std::any::Any;
use std::fmt::{self, Display};

use futures::stream::{self, StreamExt, TryStreamExt};
use tokio::task::{JoinError, spawn_blocking};

use crate::compute_threads::{self, processors};
use crate::error::{Error, Result};
use crate::stop::Stop;

/// Why a computation did not finish.
#[derive(Debug)]
pub struct Unfinished(String);

impl Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unfinished {}

impl Unfinished {
    fn panicked(payload: &(dyn Any + Send)) -> Self {
        let message =
            payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self(format!("panicked: {}", message.unwrap_or("no message")))
    }

    fn ended(task: JoinError) -> Self {
        match task.try_into_panic() {
            Ok(payload) => Self::panicked(&*payload),
            Err(_) => Self("the runtime was shut down".to_owned()),
        }
    }
}

/// How many pieces to process at once: one for each processor, and one that is being fetched.
pub fn parallelism() -> usize {
    worker_count() + 1
}

/// How many pieces to process at once if fetching takes little time, and the fetched bytes take memory.
pub fn worker_count() -> usize {
    processors().clamp(2, 16)
}

/// Runs pieces of work that only read, so many at once, and returns the results in their order. Unlike in a buffered stream,
/// a slow piece does not prevent later ones from starting. After an error the others are dropped; [`run_to_end`] is for
/// pieces that change files.
pub async fn join_ordered<T, W: Future<Output = Result<T>>>(
    pieces: impl IntoIterator<Item = W>,
    at_once: usize,
) -> Result<Vec<T>> {
    let numbered =
        pieces.into_iter().enumerate().map(|(number, piece)| async move { Ok::<_, Error>((number, piece.await?)) });
    let mut done: Vec<(usize, T)> = stream::iter(numbered).buffer_unordered(at_once).try_collect().await?;
    done.sort_unstable_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, done)| done).collect())
}

/// Runs pieces of work that change files, so many at once. After the first error no other piece begins, and those that run
/// are asked to stop. Returns when none runs any more: the results in the order of the pieces, and the first error.
pub async fn run_to_end<T, W: Future<Output = Result<T>>>(
    pieces: impl IntoIterator<Item = W>,
    at_once: usize,
    stop: &Stop,
) -> (Vec<T>, Option<Error>) {
    let mut numbered = pieces.into_iter().enumerate().map(|(number, piece)| async move { (number, piece.await) });
    // Asked for a piece only when one may begin.
    let begun = stream::iter(std::iter::from_fn(|| if stop.is_requested() { None } else { numbered.next() }));
    let mut running = std::pin::pin!(begun.buffer_unordered(at_once));
    let (mut done, mut failed) = (Vec::new(), None);
    while let Some((number, ended)) = running.next().await {
        match ended {
            Ok(result) => done.push((number, result)),
            Err(error) => {
                stop.request();
                failed = failed.or(Some(error));
            }
        }
    }
    done.sort_unstable_by_key(|(number, _)| *number);
    let failed = failed.or_else(|| stop.check().err());
    (done.into_iter().map(|(_, result)| result).collect(), failed)
}

/// Runs work on any thread of the runtime, so that several run at once; stops when its result is no longer awaited.
pub async fn spawn_async<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    TaskGuard::spawn(work).outcome().await
}

/// Work on any thread of the runtime, which stops when this is dropped.
#[derive(Debug)]
pub struct TaskGuard<T>(tokio::task::JoinHandle<Result<T>>);

impl<T: Send + 'static> TaskGuard<T> {
    /// Starts the work.
    pub fn spawn(work: impl Future<Output = Result<T>> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }

    /// Waits for its result.
    pub async fn outcome(&mut self) -> Result<T> {
        (&mut self.0).await.map_err(|e| Error::internal("a task did not end").caused_by(e))?
    }
}

impl<T> Drop for TaskGuard<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs work that decodes what was read on a thread for it ([`compute_threads`]). It should take less than a second, since others
/// wait.
///
/// # Errors
/// That of the work, or the one that `unfinished` makes if the work panicked or the runtime was shut down.
pub async fn try_compute<T: Send + 'static, E: Send + 'static>(
    work: impl FnOnce() -> std::result::Result<T, E> + Send + 'static,
    unfinished: impl FnOnce(Unfinished) -> E,
) -> std::result::Result<T, E> {
    compute_threads::spawn(work).await.map_err(|ended| unfinished(Unfinished::ended(ended)))?
}

/// Runs work that waits for a disk, or may compute for seconds, on a thread of the runtime.
///
/// # Errors
/// As [`try_compute`].
pub async fn try_blocking<T: Send + 'static, E: Send + 'static>(
    work: impl FnOnce() -> std::result::Result<T, E> + Send + 'static,
    unfinished: impl FnOnce(Unfinished) -> E,
) -> std::result::Result<T, E> {
    spawn_blocking(work).await.map_err(|ended| unfinished(Unfinished::ended(ended)))?
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn pieces_give_what_came_of_them_in_their_order() {
        let piece = |number: u64| async move {
            tokio::time::sleep(Duration::from_millis(5 * (number % 3))).await;
            Ok(number)
        };
        assert_eq!(join_ordered((0..20).map(piece), 3).await.unwrap(), (0..20).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn after_an_error_no_piece_begins_and_none_runs() {
        let (stop, begun, ended) = (Stop::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        let piece = |number: u64| {
            let (stop, begun, ended) = (&stop, &begun, &ended);
            async move {
                begun.fetch_add(1, Relaxed);
                if number == 1 {
                    return Err(Error::internal("the second piece"));
                }
                if number > 1 {
                    stop.requested().await;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
                ended.fetch_add(1, Relaxed);
                stop.check().map(|()| number)
            }
        };
        let (done, failed) = run_to_end((0..20).map(piece), 3, &stop).await;
        assert_eq!((done, failed.unwrap().message()), (vec![], "the second piece"));
        assert_eq!((begun.into_inner(), ended.into_inner()), (3, 2));
    }

    #[tokio::test]
    async fn what_panics_says_so() {
        let panicked = try_compute::<(), _>(|| panic!("over {}", 1), |unfinished| unfinished).await.unwrap_err();
        assert_eq!(panicked.to_string(), "panicked: over 1");
    }
}
