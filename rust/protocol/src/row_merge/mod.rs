//! MERGE: how rows of a source and of a target are paired, and what becomes of either.
//!
//! Conditions and values name columns of both sides by alias, `source.id`; a column that one side alone has needs none.
//! They are evaluated on rows that have two structs, one for each side. Which rows there are, and where they go, is for
//! the table to say.
//!
//! Proved by `tests/rust/protocol/row_merge.rs`.

mod insert;
mod join;
mod sides;

pub use insert::RowInsert;
pub use join::{Bounds, JoinCondition, JoinKey};
pub use sides::{Sides, VisibleSides};
