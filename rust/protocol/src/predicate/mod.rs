//! Predicates: the boolean part of expressions, bound for skipping, exact evaluation and conflicts.
//!
//! [`Predicate`] is what was typed, [`BoundPredicate`] is checked against a schema. Only the bound one evaluates rows,
//! prunes containers and decides conflicts.

mod ast;
mod bind;
mod bound;
mod eval;
mod fit;
mod leaf;

pub use crate::expression::{Column, MAX_DEPTH, MAX_LENGTH, Name, Op, Pattern, ValueSet};
pub(crate) use crate::expression::{compare_columns, compare_value, partition_point};
pub use ast::{Operand, Predicate, parse};
pub use bound::BoundPredicate;
pub use eval::keep;
