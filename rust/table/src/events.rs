//! What is worth a line in a log.
//!
//! Commits and conflicts are told at the level of information; each lost attempt, and what a plan keeps, for debugging.
//! A warning tells of a file of the log that was passed over, for it should be repaired; what a caller has to act on is an
//! error that is returned. No credentials: locations are without.

/// The target of all events, and the name of the Python logger that they reach.
pub const TARGET: &str = "deltic";
