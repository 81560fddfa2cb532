//! Work on other threads of the runtime.

use std::num::NonZeroUsize;
use std::sync::LazyLock;
use std::thread::available_parallelism;

use crate::error::{Error, Result};

/// How much to work on at once: a piece for each processor, and one that is being fetched.
pub(crate) fn parallelism() -> usize {
    working() + 1
}

/// How much to work on at once where fetching takes no time, and what is fetched only takes memory.
pub(crate) fn working() -> usize {
    processors().clamp(2, 16)
}

/// Processors that this process may use.
pub(crate) fn processors() -> usize {
    // To know it, several files of the operating system are read.
    static PROCESSORS: LazyLock<usize> = LazyLock::new(|| available_parallelism().map_or(1, NonZeroUsize::get));
    *PROCESSORS
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
