//! Real time and randomness, which the other crates take as arguments.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use deltic_table::commit::RetryPolicy;
use deltic_table::transaction::builder::Ids;
use uuid::Uuid;

/// The first and the longest pause between attempts to commit.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(2));

/// Pauses double until they are as long as this many attempts, and then grow slowly. Waiting
/// longer gains little with a fast store, and a writer that does so is overtaken again and again by newer ones.
const ATTEMPTS_IN_A_PAUSE: u32 = 8;

/// The most attempts, and the most time that they may take: hundreds of writers that compete for minutes all succeed.
const MOST: (u32, Duration) = (10_000, Duration::from_secs(15 * 60));

/// The system's clock, exponential back-off with full jitter, and random ids.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    /// The most attempts to commit.
    max_attempts: u32,
    /// When the commit began.
    started: Arc<Mutex<Instant>>,
    /// Microseconds spent between attempts.
    waited: Arc<AtomicU64>,
    cancelled: Arc<AtomicBool>,
}

impl Default for Clock {
    fn default() -> Self {
        Self::with_attempts(None)
    }
}

impl Clock {
    /// A clock with this limit on attempts, if it is given.
    pub(crate) fn with_attempts(max_attempts: Option<u64>) -> Self {
        let max_attempts = max_attempts.map_or(MOST.0, |most| u32::try_from(most).unwrap_or(u32::MAX));
        let started = Arc::new(Mutex::new(Instant::now()));
        Self { max_attempts, started, waited: Arc::default(), cancelled: Arc::default() }
    }

    /// How long ago the commit began.
    fn elapsed(&self) -> Duration {
        self.started.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Milliseconds since the epoch.
    pub(crate) fn now() -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    /// Nanoseconds since the epoch.
    pub(crate) fn now_ns() -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    /// The average time of an attempt so far, including reading the commits of others.
    fn mean_attempt(&self, attempts: u32) -> Duration {
        let waited = Duration::from_micros(self.waited.load(Ordering::Relaxed));
        self.elapsed().saturating_sub(waited) / attempts.max(1)
    }

    /// Prevents further attempts.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

/// The longest pause after so many attempts of this average time.
fn longest_pause(attempts: u32, attempt: Duration) -> Duration {
    let doubled = PAUSE.0.saturating_mul(1 << attempts.min(16));
    let slowly = PAUSE.0.saturating_mul(attempts).max(attempt.saturating_mul(ATTEMPTS_IN_A_PAUSE));
    doubled.min(slowly).min(PAUSE.1)
}

impl RetryPolicy for Clock {
    fn start(&self) {
        *self.started.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.waited.store(0, Ordering::Relaxed);
    }

    fn now_ms(&self) -> i64 {
        Self::now()
    }

    fn back_off(&self, attempts: u32) -> Option<Duration> {
        if attempts >= self.max_attempts || self.elapsed() >= MOST.1 {
            return None;
        }
        let longest = longest_pause(attempts, self.mean_attempt(attempts));
        // Random bits of a version 4 UUID, as a fraction.
        let random = u32::try_from(Uuid::new_v4().as_u128() & u128::from(u32::MAX)).unwrap_or_default();
        let wait = longest.mul_f64(f64::from(random) / f64::from(u32::MAX));
        self.waited.fetch_add(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        Some(wait)
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

impl Ids for Clock {
    fn unique(&self) -> String {
        Uuid::new_v4().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_some_attempts_and_grow_slowly_from_there() {
        let ms = Duration::from_millis;
        let longest =
            |attempt: Duration| [1, 2, 4, 8, 16, 100, 10_000].map(|attempts| longest_pause(attempts, attempt));
        assert_eq!(longest(ms(1)), [10, 20, 40, 80, 160, 1000, 2000].map(ms), "a local disk");
        assert_eq!(longest(ms(30)), [20, 40, 160, 240, 240, 1000, 2000].map(ms), "an object store");
        assert_eq!(longest(ms(500)), [20, 40, 160, 2000, 2000, 2000, 2000].map(ms), "a slow one");
    }
}
