//! Transactions: the builder that prepares every commit, commits it (`commit`), and does the work after it (`post_commit`).

pub mod builder;
pub mod row_counts;

pub use crate::commit::{
    CommitContext, Committed, DeletionVectorStore, ENGINE_INFO, Failed, NoDeletionVectors, PreparedCommit, RetryPolicy,
    commit, load_table_state, try_commit,
};
pub(crate) use crate::commit::{CommitSeries, nothing_committed, stop_if_cancelled, unless_cancelled};
