//! Transactions: the builder that prepares a commit, and the driver that makes it a version of the table.

mod added_rows;
pub mod builder;
mod commit_series;
mod driver;
mod moved_rows;
pub mod row_counts;
mod vectors;

pub use deltic_protocol::commit::{Committed, ENGINE_INFO, Failed, PreparedCommit};

pub(crate) use self::commit_series::CommitSeries;
pub use self::driver::{RetryPolicy, commit, state_of, try_commit};
pub(crate) use self::driver::{log_committed, log_conflict, nothing_committed, unless_cancelled};
pub(crate) use self::vectors::TableVectors;
pub use self::vectors::{NoVectors, VectorFiles};
