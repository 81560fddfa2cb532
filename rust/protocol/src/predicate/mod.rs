//! The predicate language: typed text, syntax tree, binding to a schema, exact evaluation.
//!
//! A subset of SQL with one parser and one tree: [`Predicate`] is what was typed, [`BoundPredicate`] is checked
//! against a schema. Only the bound one evaluates rows, prunes containers and decides conflicts.

pub mod ast;
pub mod bind;
mod compare;
pub mod eval;
mod fit;
mod lexer;
pub mod like;
pub mod parse;
mod resolve;
pub mod set;

pub use ast::{Name, Op, Operand, Predicate};
pub use bind::{BoundPredicate, Column};
pub(crate) use compare::{compare_columns, compare_value};
pub use eval::keep;
pub use parse::parse;
