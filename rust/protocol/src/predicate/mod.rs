//! The predicate language: typed text, syntax tree, binding to a schema, exact evaluation.

pub mod ast;
pub mod bind;
pub mod eval;
pub mod parse;
