//! Transactions: the builder that prepares every commit, commits it (`commit`), and does the work after it (`post_commit`).

pub mod builder;
pub mod row_counts;
