//! Work on other threads of the runtime.

use std::num::NonZeroUsize;
use std::sync::LazyLock;
use std::thread::available_parallelism;

use futures::stream::{self, StreamExt, TryStreamExt};

use crate::error::{Error, Result};

/// How much to work on at once: a piece for each processor, and one that is being fetched.
pub(crate) fn parallelism() -> usize {
    working() + 1
}

/// How much to work on at once where fetching takes little time, and what is fetched takes memory.
pub(crate) fn working() -> usize {
    processors().clamp(2, 16)
}

/// Processors that this process may use.
pub(crate) fn processors() -> usize {
    // To know it, several files of the operating system are read.
    static PROCESSORS: LazyLock<usize> = LazyLock::new(|| available_parallelism().map_or(1, NonZeroUsize::get));
    *PROCESSORS
}

/// Does pieces of work, so many at once, and gives what came of them in their order. Other than in a buffered stream, a
/// piece that takes long keeps none behind it from beginning.
pub(crate) async fn all_of<T, W: Future<Output = Result<T>>>(
    pieces: impl IntoIterator<Item = W>,
    at_once: usize,
) -> Result<Vec<T>> {
    let numbered =
        pieces.into_iter().enumerate().map(|(number, piece)| async move { Ok::<_, Error>((number, piece.await?)) });
    let mut done: Vec<(usize, T)> = stream::iter(numbered).buffer_unordered(at_once).try_collect().await?;
    done.sort_unstable_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, done)| done).collect())
}

/// Runs on any thread of the runtime, so that several run at once; stops if nobody waits for it any more.
pub(crate) async fn in_parallel<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);
    impl<T> Drop for AbortOnDrop<T> {
        fn drop(&mut self) {
            self.0.abort();
        }
    }
    let mut task = AbortOnDrop(tokio::spawn(work));
    (&mut task.0).await.map_err(|e| Error::internal("a task did not end").caused_by(e))?
}
