//! Row changes, and conditions on all rows: DELETE, UPDATE, MERGE and ADD CONSTRAINT, as steps of a transaction.
//!
//! A step finds the rows (`find`), and then either marks them in deletion vectors or writes files without them
//! (`rewrite`), as the table's properties say. Files whose rows all match, as the log proves, are not read. Nothing
//! here commits: whatever the steps do is one commit of the [`Transaction`](crate::transaction::builder::Transaction),
//! whose read set is the condition.
//!
//! Proved by `tests/rust/table/dml.rs`, `tests/python/test_row_changes.py` and its neighbours.
//!
//! PROTOCOL.md: "Deletion Vectors", "Row Tracking", "Change Data Files".

mod constraint;
mod copied_columns;
mod delete;
mod distributed;
mod file_changes;
mod find;
mod merge;
mod preview;
mod specs;
mod update;
mod update_writer;

pub use distributed::{
    DistributedRowChange, FAILED_HASH, MergeInserter, RowChange, RowChangeCounts, RowChangeTask, TaskLimits,
};
pub use merge::{Clause, ClauseAction, MergeKeys, MergeRequest, SourceConformer, SourceRows, SourceSummary, When};
pub use preview::Preview;
