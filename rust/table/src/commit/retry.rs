//! When a commit is tried again: the retry policy of the caller, its waits and its cancellation.

use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};

use crate::committers::Committer;
use crate::error::{Error, Result};
use deltic_store::Stop;

/// The time between two checks for a cancellation while waiting.
const CANCELLATION_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How long work may take to stop after a cancellation.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// With what an operation commits.
#[derive(Clone, Copy)]
pub struct CommitContext<'a> {
    /// Writes the commits.
    pub committer: &'a dyn Committer,
    /// The clock, and when to try again.
    pub retry: &'a dyn RetryPolicy,
}

/// Drops the work, which changes no files, if the caller cancels it; does not begin it if it is cancelled already.
/// `interrupted`: the message for this.
///
/// # Errors
/// Those of the work; `Interrupted` if it was cancelled.
pub(crate) async fn unless_cancelled<T>(
    work: impl Future<Output = Result<T>>,
    retry: &dyn RetryPolicy,
    interrupted: impl FnOnce() -> String,
) -> Result<T> {
    if retry.is_cancelled() {
        return Err(Error::interrupted(interrupted()));
    }
    match select(pin!(work), pin!(cancelled(retry))).await {
        Either::Left((done, _)) => done,
        Either::Right(_) => Err(Error::interrupted(interrupted())),
    }
}

/// As [`unless_cancelled`], for work that changes files: it is asked to stop, and this returns when it has ended. What it did is
/// returned if it did all. The work is dropped if a store does not answer for [`STOP_LIMIT`].
///
/// # Errors
/// Those of the work; `Interrupted` if it was cancelled.
pub(crate) async fn stop_if_cancelled<T>(
    work: impl Future<Output = Result<T>>,
    stop: &Stop,
    retry: &dyn RetryPolicy,
    interrupted: impl FnOnce() -> String,
) -> Result<T> {
    if retry.is_cancelled() {
        return Err(Error::interrupted(interrupted()));
    }
    let mut work = pin!(work);
    if let Either::Left((done, _)) = select(work.as_mut(), pin!(cancelled(retry))).await {
        return done;
    }
    match stop_in_time(work, stop, STOP_LIMIT).await {
        Some(Ok(done)) => Ok(done),
        Some(Err(_)) | None => Err(Error::interrupted(interrupted())),
    }
}

/// Asks the work to stop. Returns its result, or `None` if it does not stop in time.
async fn stop_in_time<T>(work: impl Future<Output = T> + Unpin, stop: &Stop, limit: Duration) -> Option<T> {
    stop.request();
    match select(work, pin!(tokio::time::sleep(limit))).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(_) => None,
    }
}

/// Ends when the caller cancels.
async fn cancelled(retry: &dyn RetryPolicy) {
    while !retry.is_cancelled() {
        tokio::time::sleep(CANCELLATION_POLL_INTERVAL).await;
    }
}

/// The message for work before a commit, for [`unless_cancelled`]. [`CommitSeries`](super::CommitSeries) names earlier commits.
pub(crate) fn nothing_committed() -> String {
    "interrupted: nothing was committed".to_owned()
}

/// The clock, the back-off and the cancellation of the loop.
pub trait RetryPolicy: Send + Sync {
    /// Called when a commit begins: its attempts and its time are counted from here. Commits may use one policy one after
    /// the other.
    fn start(&self) {}

    /// Milliseconds since the epoch.
    fn now_ms(&self) -> i64;

    /// How long to wait after this many attempts; `None` to give up.
    fn back_off(&self, attempts: u32) -> Option<Duration>;

    /// Whether the caller wants no further attempt. A running attempt is finished.
    fn is_cancelled(&self) -> bool {
        false
    }

    /// Called when a commit was made, with its version.
    fn committed(&self, _version: u64) {}
}

/// Waits in steps, so that a cancellation is noticed.
pub(super) async fn sleep(mut wait: Duration, retry: &dyn RetryPolicy) {
    while !wait.is_zero() && !retry.is_cancelled() {
        let piece = wait.min(CANCELLATION_POLL_INTERVAL);
        tokio::time::sleep(piece).await;
        wait = wait.saturating_sub(piece);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    struct Cancelled;

    impl RetryPolicy for Cancelled {
        fn now_ms(&self) -> i64 {
            0
        }

        fn back_off(&self, _: u32) -> Option<Duration> {
            None
        }

        fn is_cancelled(&self) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn cancelled_work_is_not_begun() {
        let mut begun = false;
        let work = async {
            begun = true;
            Ok(())
        };
        assert!(unless_cancelled(work, &Cancelled, nothing_committed).await.is_err());
        assert!(!begun);
    }

    #[tokio::test]
    async fn work_that_never_stops_is_given_up() {
        let stop = Stop::default();
        let stopped = stop_in_time(pin!(pending::<Result<()>>()), &stop, Duration::from_millis(1)).await;
        assert!(stop.is_requested() && stopped.is_none());
    }
}
