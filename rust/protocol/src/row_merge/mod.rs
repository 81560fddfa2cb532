//! MERGE: the condition that pairs rows of a source and a target, and the values of inserted rows.
//!
//! Conditions and values name columns by the alias of their side, `source.id`; a column that only one side has needs no alias.
//! They are evaluated on rows with two structs, one for each side. The crate `deltic-table` reads the rows and
//! writes the results.
//!
//! Proved by `tests/rust/protocol/row_merge.rs`.

mod alias;
mod insert;
mod join;
mod sides;

pub use alias::{assigned_without_alias, named_columns, without_alias};
pub use insert::RowInsert;
pub use join::{Bounds, JoinCondition, JoinKey, target_filter};
pub use sides::{Sides, VisibleSides};
