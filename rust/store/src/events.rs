//! The log target of the whole library.

/// The target of all events, and the name of the Python logger that they reach.
pub const TARGET: &str = "deltic";
