//! The predicate language: typed text, syntax tree, binding to a schema, exact evaluation.
//!
//! A subset of SQL with one parser and one tree: [`Predicate`] is what was typed, [`BoundPredicate`] is checked
//! against a schema. Only the bound one evaluates rows, prunes containers and decides conflicts.

mod ast;
mod bind;
mod bound;
mod compare;
mod eval;
mod fit;
mod hint;
mod lexer;
mod like;
mod parse;
mod resolve;
mod set;

pub use ast::{Name, Op, Operand, Predicate};
pub use bound::{BoundPredicate, Column};
pub(crate) use compare::{compare_columns, compare_value};
pub use eval::keep;
pub use like::Pattern;
pub use parse::{MAX_DEPTH, MAX_LENGTH, parse};
pub use set::ValueSet;
pub(crate) use set::partition_point;
