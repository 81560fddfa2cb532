//! What is worth a line in a log.
//!
//! Commits, conflicts and requests of the store that are sent again are told at the level of information; each lost
//! attempt, and what a plan keeps, for debugging.
//! A warning tells of a file of the log that was passed over, for it should be repaired; what a caller has to act on is an
//! error that is returned. No credentials: locations are without.

pub use deltic_store::events::TARGET;
