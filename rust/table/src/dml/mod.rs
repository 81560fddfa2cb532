//! Rows that change: DELETE and UPDATE, as steps of a transaction.
//!
//! A step finds the rows (`find`), and then either marks them in deletion vectors or writes files without them
//! (`rewrite`), as the table's properties say. Files that the log proves to hold matching rows only go unread. Nothing
//! here commits: whatever the steps do is one commit of the [`Transaction`](crate::transaction::builder::Transaction),
//! whose read set is the condition.
//!
//! Proved by `tests/rust/table/dml.rs` and `tests/python/test_row_changes.py`.
//!
//! PROTOCOL.md: "Deletion Vectors", "Row Tracking", "Change Data Files".

mod changed;
mod choose;
mod delete;
mod find;
mod preview;
mod rewrite;
mod update;

pub use preview::Preview;
