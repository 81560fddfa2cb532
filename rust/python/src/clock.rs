//! Time and randomness of the real world, which everything below takes as arguments.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use deltic_table::job::Ids;
use deltic_table::transaction::Pace;
use uuid::Uuid;

/// First and longest pause between attempts to commit.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(2));

/// The system's clock, exponential back-off with full jitter, and random ids.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    /// Attempts to commit before giving up.
    pub(crate) max_attempts: u32,
}

impl Default for Clock {
    fn default() -> Self {
        Self { max_attempts: 1_000 }
    }
}

impl Clock {
    /// Milliseconds since the epoch.
    pub(crate) fn now() -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }
}

impl Pace for Clock {
    fn now_ms(&self) -> i64 {
        Self::now()
    }

    fn back_off(&self, attempts: u32) -> Option<Duration> {
        if attempts >= self.max_attempts {
            return None;
        }
        let longest = PAUSE.0.saturating_mul(1 << attempts.min(16)).min(PAUSE.1);
        // The random bits of a version 4 UUID, as a fraction.
        let random = u32::try_from(Uuid::new_v4().as_u128() & u128::from(u32::MAX)).unwrap_or_default();
        Some(longest.mul_f64(f64::from(random) / f64::from(u32::MAX)))
    }
}

impl Ids for Clock {
    fn unique(&self) -> String {
        Uuid::new_v4().to_string()
    }
}
