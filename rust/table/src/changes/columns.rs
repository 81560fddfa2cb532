//! The columns that the feed adds to those of the table.

/// The column with the version that made a change.
pub const COMMIT_VERSION: &str = "_commit_version";

/// The column with the time of that version.
pub const COMMIT_TIMESTAMP: &str = "_commit_timestamp";
