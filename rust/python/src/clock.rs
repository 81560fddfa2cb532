//! Time and randomness of the real world, which everything below takes as arguments.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use deltic_table::job::Ids;
use deltic_table::transaction::Pace;
use uuid::Uuid;

/// First and longest pause between attempts to commit.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(2));

/// Attempts before giving up, and how long they may take: hundreds of writers that contend for minutes all get through.
const MOST: (u32, Duration) = (10_000, Duration::from_secs(15 * 60));

/// The system's clock, exponential back-off with full jitter, and random ids.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    /// Attempts to commit before giving up.
    max_attempts: u32,
    started: Instant,
    cancelled: Arc<AtomicBool>,
}

impl Default for Clock {
    fn default() -> Self {
        Self::with_attempts(None)
    }
}

impl Clock {
    /// A clock that gives up after so many attempts, if that is given.
    pub(crate) fn with_attempts(max_attempts: Option<u32>) -> Self {
        let max_attempts = max_attempts.unwrap_or(MOST.0);
        Self { max_attempts, started: Instant::now(), cancelled: Arc::default() }
    }

    /// Milliseconds since the epoch.
    pub(crate) fn now() -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    /// Lets no further attempt begin.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

impl Pace for Clock {
    fn now_ms(&self) -> i64 {
        Self::now()
    }

    fn back_off(&self, attempts: u32) -> Option<Duration> {
        if attempts >= self.max_attempts || self.started.elapsed() >= MOST.1 {
            return None;
        }
        let longest = PAUSE.0.saturating_mul(1 << attempts.min(16)).min(PAUSE.1);
        // The random bits of a version 4 UUID, as a fraction.
        let random = u32::try_from(Uuid::new_v4().as_u128() & u128::from(u32::MAX)).unwrap_or_default();
        Some(longest.mul_f64(f64::from(random) / f64::from(u32::MAX)))
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
