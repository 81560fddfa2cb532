//! The name of the log that the whole library writes to.

/// The target of all events, and the name of the Python logger that they reach.
pub const TARGET: &str = "deltic";
