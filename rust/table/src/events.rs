//! Log messages.
//!
//! Level info: commits, conflicts, and requests to the store that are retried. Level debug: each lost attempt, which
//! files a plan keeps, and why an UPDATE encodes columns of a file that keep their values. Level warning: a file of the log that was skipped and should be repaired. What a caller has to act
//! on is returned as an error instead. Locations are logged without credentials.

pub use deltic_store::events::TARGET;
