//! Commits: makes a version of the table out of a prepared commit.
//!
//! [`try_commit`] runs the commit loop of the protocol crate with a committer (`driver`), a clock, waits and cancellation
//! (`retry`). The loop needs the state of the table (`table_state`), deletion vectors (`vectors`) and rows that winning commits
//! moved (`moved_rows`) or added (`added_rows`). A `CommitSeries` is an operation of several commits.
//!
//! Proved by `tests/rust/table/transaction.rs` and `tests/rust/simulation/main.rs`.
//!
//! PROTOCOL.md: "Commit Protocol".

mod added_rows;
mod commit_series;
mod driver;
mod moved_rows;
mod retry;
mod table_state;
mod vectors;

pub(crate) use commit_series::CommitSeries;
pub use driver::{commit, try_commit};
pub(crate) use driver::{log_committed, log_conflict};
pub use retry::{CommitContext, RetryPolicy};
pub(crate) use retry::{nothing_committed, stop_if_cancelled, unless_cancelled};
pub use table_state::load_table_state;
pub(crate) use vectors::TableVectors;
pub use vectors::{DeletionVectorStore, NoDeletionVectors};
