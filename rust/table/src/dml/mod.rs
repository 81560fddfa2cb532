//! Row changes, and conditions on all rows: DELETE, UPDATE, MERGE and ADD CONSTRAINT, as steps of a transaction.
//!
//! A step finds the rows (`find`), and then marks them in deletion vectors or rewrites their files (`file_changes`), as the
//! table's properties say. A rewriting UPDATE copies the column chunks of the columns that it does not assign
//! (`copied_columns`). Nothing here commits: the steps are one commit of the
//! [`Transaction`](crate::transaction::builder::Transaction), whose read set is the condition.
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
mod places;
mod preview;
mod specs;
mod update;
mod update_writer;

pub use distributed::{
    DistributedRowChange, FAILED_HASH, MergeInserter, RowChange, RowChangeCounts, RowChangeTask, TaskLimits,
};
pub use find::RowAction;
pub use merge::{Clause, ClauseAction, MergeKeys, MergeRequest, SourceConformer, SourceRows, SourceSummary, When};
pub use places::Places;
pub use preview::Preview;
