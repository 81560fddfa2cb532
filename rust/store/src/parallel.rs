//! Work on other threads: tasks of the runtime, and lanes, which are threads of their own.
//!
//! Who waits for a network leaves the thread to others. Who reads files of a local disk and computes has next to nothing to
//! wait for, and loses more when each step is handed from thread to thread: a system now and then runs the two threads
//! that pass work to each other on one processor, for milliseconds, while another is idle. On a lane, pieces of work are
//! done from their beginning to their end.

use std::any::Any;
use std::cell::Cell;
use std::fmt::{self, Display};
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread::{self, available_parallelism};

use futures::future::{Either, FutureExt, select, try_join_all};
use futures::stream::{self, StreamExt, TryStreamExt};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinError;

use crate::error::{Error, Result};

thread_local! {
    /// Whether this thread is a lane, which may compute for long and wait for a disk.
    static IS_LANE: Cell<bool> = const { Cell::new(false) };
}

/// Why a computation did not end.
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
        let text =
            payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self(format!("panicked: {}", text.unwrap_or("no text")))
    }

    fn ended(task: JoinError) -> Self {
        match task.try_into_panic() {
            Ok(payload) => Self::panicked(&*payload),
            Err(_) => Self("the runtime was shut down".to_owned()),
        }
    }
}

/// How much to work on at once: a piece for each processor, and one that is being fetched.
pub fn parallelism() -> usize {
    working() + 1
}

/// How much to work on at once where fetching takes little time, and what is fetched takes memory.
pub fn working() -> usize {
    processors().clamp(2, 16)
}

/// Processors that this process may use.
pub fn processors() -> usize {
    // To know it, several files of the operating system are read.
    static PROCESSORS: LazyLock<usize> = LazyLock::new(|| available_parallelism().map_or(1, NonZeroUsize::get));
    *PROCESSORS
}

/// Does pieces of work, so many at once, and gives what came of them in their order. Other than in a buffered stream, a
/// piece that takes long keeps none behind it from beginning.
pub async fn all_of<T, W: Future<Output = Result<T>>>(
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
pub async fn in_parallel<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);
    impl<T> Drop for AbortOnDrop<T> {
        fn drop(&mut self) {
            self.0.abort();
        }
    }
    let mut task = AbortOnDrop(tokio::spawn(work));
    (&mut task.0).await.map_err(|e| Error::internal("a task did not end").caused_by(e))?
}

/// Does what takes a processor or a disk for long: here on a lane, elsewhere on a thread that is there for it.
///
/// # Errors
/// The work panicked.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> std::result::Result<T, Unfinished> {
    if IS_LANE.get() {
        let done = catch_unwind(AssertUnwindSafe(work)).map_err(|payload| Unfinished::panicked(&*payload));
        // Work that waits for nothing would never let it be seen that nobody waits for it any more.
        tokio::task::yield_now().await;
        return done;
    }
    tokio::task::spawn_blocking(work).await.map_err(Unfinished::ended)
}

/// Does all of a piece of work on one thread, which may compute for long and wait for a disk: what one step reads is near
/// when the next one looks at it.
pub async fn on_one_thread<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    /// The thread is one of those that wait for work, and serves others afterwards.
    struct NoLane;
    impl Drop for NoLane {
        fn drop(&mut self) {
            IS_LANE.set(false);
        }
    }
    let runtime = Handle::current();
    let on_this = move || {
        let _after = NoLane;
        IS_LANE.set(true);
        runtime.block_on(work)
    };
    let done = tokio::task::spawn_blocking(on_this).await;
    done.map_err(|e| Error::internal("a task did not end").caused_by(Unfinished::ended(e)))?
}

/// How many lanes may run in a process, for each processor. Of more than these, whoever asks has one.
const LANES_OF_A_PROCESSOR: usize = 4;

/// The process, as a forked child has none of its parent's lanes, and how many lanes run in it.
static RUNNING: AtomicU64 = AtomicU64::new(0);

/// A lane that counts as running until it is dropped.
struct Lane;

impl Lane {
    /// How many run in this process, told from what was counted.
    fn running(counted: u64) -> u32 {
        if (counted >> 32) as u32 == std::process::id() { counted as u32 } else { 0 }
    }

    fn new() -> Self {
        Self::count(|running| running.saturating_add(1));
        Self
    }

    fn count(change: impl Fn(u32) -> u32) {
        let changed = |counted| Some(u64::from(std::process::id()) << 32 | u64::from(change(Self::running(counted))));
        // It always gives a number.
        let _ = RUNNING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        Self::count(|running| running.saturating_sub(1));
    }
}

/// Does pieces of work on so many lanes at most, and gives what came of them in their order. Lanes whose outcome nobody
/// waits for any more end with what they compute just now. They are not taken from the threads of the runtime: a piece may
/// need those.
pub async fn on_lanes<T, W>(pieces: impl IntoIterator<Item = W>, lanes: usize) -> Result<Vec<T>>
where
    T: Send + 'static,
    W: Future<Output = Result<T>> + Send + 'static,
{
    let pieces: Vec<(usize, W)> = pieces.into_iter().enumerate().collect();
    let most = LANES_OF_A_PROCESSOR * working();
    let lanes = lanes.min(most.saturating_sub(Lane::running(RUNNING.load(Ordering::Relaxed)) as usize)).max(1);
    let lanes = lanes.min(pieces.len());
    let left = Arc::new(Mutex::new(pieces.into_iter()));
    let next = move || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let (runtime, mut outcomes) = (Handle::current(), Vec::with_capacity(lanes));
    for _ in 0..lanes {
        let (done, outcome) = oneshot::channel();
        let (runtime, next, lane) = (runtime.clone(), next.clone(), Lane::new());
        let work = move || {
            IS_LANE.set(true);
            runtime.block_on(one_lane(next, done));
            drop(lane);
        };
        match thread::Builder::new().name("deltic-lane".to_owned()).spawn(work) {
            Ok(_) => {}
            // The others do its work.
            Err(_) if !outcomes.is_empty() => break,
            Err(e) => {
                let message = "cannot start a thread to plan on; the limit on threads may be too low";
                return Err(Error::storage(true, message).caused_by(e));
            }
        }
        outcomes.push(async move { outcome.await.map_err(|e| Error::internal("a task did not end").caused_by(e))? });
    }
    let mut done: Vec<(usize, T)> = try_join_all(outcomes).await?.into_iter().flatten().collect();
    done.sort_unstable_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, done)| done).collect())
}

async fn one_lane<T, W: Future<Output = Result<T>>>(
    next: impl Fn() -> Option<(usize, W)>,
    mut outcome: oneshot::Sender<Result<Vec<(usize, T)>>>,
) {
    let all = async {
        let mut done = Vec::new();
        while let Some((number, piece)) = next() {
            let piece = AssertUnwindSafe(piece).catch_unwind().await;
            let panicked = |payload: Box<dyn Any + Send>| {
                Error::internal("planning failed").caused_by(Unfinished::panicked(&*payload))
            };
            done.push((number, piece.map_err(panicked)??));
        }
        Ok(done)
    };
    let done = match select(pin!(outcome.closed()), pin!(all)).await {
        Either::Left(_) => None,
        Either::Right((done, _)) => Some(done),
    };
    // Who waited may be gone.
    let _ = done.map(|done| outcome.send(done));
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn lanes_give_what_came_of_the_pieces_in_their_order() {
        let piece = |number: u64| async move {
            tokio::time::sleep(Duration::from_millis(5 * (number % 3))).await;
            let named = blocking(|| thread::current().name().map(str::to_owned)).await.unwrap();
            Ok((number, named))
        };
        let done = on_lanes((0..20).map(piece), 3).await.unwrap();
        let lane = Some("deltic-lane".to_owned());
        assert_eq!(done, (0..20).map(|number| (number, lane.clone())).collect::<Vec<_>>());
        assert_eq!(on_lanes((0..0).map(piece), 3).await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_piece_that_fails_or_panics_fails_all_and_begins_no_other() {
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        let piece = |panics: bool| async move {
            BEGUN.fetch_add(1, Ordering::Relaxed);
            assert!(!panics, "a piece");
            Err::<(), _>(Error::invalid("a piece"))
        };
        let failed = on_lanes([false; 9].map(piece), 1).await.unwrap_err();
        assert_eq!((failed.message(), BEGUN.load(Ordering::Relaxed)), ("a piece", 1));
        let panicked = on_lanes([true; 2].map(piece), 1).await.unwrap_err();
        assert_eq!((panicked.message(), BEGUN.load(Ordering::Relaxed)), ("planning failed", 2));
        let cause = std::error::Error::source(&panicked).unwrap().to_string();
        assert_eq!(cause, "panicked: a piece");
    }

    #[tokio::test]
    async fn lanes_stop_when_nobody_waits() {
        let (begun, held) = (Arc::new(AtomicUsize::new(0)), Arc::new(()));
        let pieces: Vec<_> = (0..9).map(|_| (begun.clone(), held.clone())).collect();
        let endless = |(begun, held): (Arc<AtomicUsize>, Arc<()>)| async move {
            begun.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<()>().await;
            drop(held);
            Ok(())
        };
        let waited =
            tokio::time::timeout(Duration::from_millis(50), on_lanes(pieces.into_iter().map(endless), 2)).await;
        assert!(waited.is_err());
        while Arc::strong_count(&held) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // One where other tests run many.
        assert!((1..=2).contains(&begun.load(Ordering::Relaxed)));
    }

    #[tokio::test]
    async fn a_lane_that_only_computes_stops_when_nobody_waits() {
        static DONE: AtomicUsize = AtomicUsize::new(0);
        let held = Arc::new(());
        let long = |held: Arc<()>| async move {
            for _ in 0..1_000_000 {
                blocking(|| thread::sleep(Duration::from_millis(1))).await.unwrap();
                DONE.fetch_add(1, Ordering::Relaxed);
            }
            drop(held);
            Ok(())
        };
        let waited = tokio::time::timeout(Duration::from_millis(50), on_lanes([long(held.clone())], 1)).await;
        assert!(waited.is_err());
        while Arc::strong_count(&held) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(DONE.load(Ordering::Relaxed) > 0);
    }

    #[tokio::test]
    async fn who_asks_when_many_lanes_run_has_one() {
        let many: Vec<Lane> = (0..LANES_OF_A_PROCESSOR * working() + 1).map(|_| Lane::new()).collect();
        let thread = |_| async { Ok(thread::current().id()) };
        let of_one: std::collections::HashSet<_> = on_lanes((0..9).map(thread), 4).await.unwrap().into_iter().collect();
        assert_eq!(of_one.len(), 1);
        drop(many);
    }

    #[test]
    fn all_of_a_piece_is_done_on_one_thread_which_then_serves_others() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let piece = || async {
                let steps = [blocking(|| thread::current().id()).await, blocking(|| thread::current().id()).await];
                Ok((thread::current().id(), steps.map(std::result::Result::unwrap)))
            };
            let (whole, steps) = on_one_thread(piece()).await.unwrap();
            assert_eq!(steps, [whole; 2]);
            let failing = async { Err::<(), _>(Error::invalid("a piece")) };
            assert_eq!(on_one_thread(failing).await.unwrap_err().message(), "a piece");
            let panicked = on_one_thread::<()>(async { panic!("a piece") }).await.unwrap_err();
            assert_eq!(std::error::Error::source(&panicked).unwrap().to_string(), "panicked: a piece");
            let after = tokio::task::spawn_blocking(|| (thread::current().id(), IS_LANE.get())).await.unwrap();
            assert_eq!(after, (whole, false));
        });
    }

    #[tokio::test]
    async fn what_panics_says_so_everywhere() {
        let panicking = || panic!("over {}", 1);
        assert_eq!(blocking::<()>(panicking).await.unwrap_err().to_string(), "panicked: over 1");
        let on_lane = on_lanes([async move { Ok(blocking::<()>(panicking).await.unwrap_err().to_string()) }], 1).await;
        assert_eq!(on_lane.unwrap(), ["panicked: over 1"]);
    }
}
