//! Expressions: typed text, syntax tree, binding to a schema, evaluation on Arrow batches with Spark's semantics.
//!
//! One grammar for filters, constraints, generated columns and defaults. [`Expression`] is what was typed,
//! [`BoundExpression`] is checked against a schema and has a type; conditions that skipping understands are a
//! [`BoundPredicate`](crate::predicate::BoundPredicate). Semantics are those of Spark 4 in ANSI mode in UTC, held
//! against Spark by `tests/spark/test_expressions.py`; differences are listed in `docs/expressions.md`.

mod assign;
mod ast;
mod bind;
mod bound;
mod civil;
mod collation;
mod column;
mod compare;
mod evaluate;
mod external;
mod functions;
mod kernel;
mod matching;
mod misfit;
mod parse;
mod print;
pub(crate) mod resolve;
mod set;
mod types;

pub use assign::{Assignment, Conversion, MissingFields};
pub use ast::{ArithmeticOp, Expression, Match, Name, Op};
pub(crate) use bind::of_one_decimal;
pub use bound::BoundExpression;
pub(crate) use bound::{Node, Typed};
pub(crate) use civil::first_day_of_year;
pub use column::Column;
pub(crate) use column::{Values, value_at};
pub(crate) use compare::{compare_columns, compare_value};
pub use evaluate::{Context, evaluate, evaluate_at};
pub(crate) use evaluate::{connected, evaluate_rows, on_rows};
pub use external::{ExternalFunctions, register_external_functions};
pub use functions::names as function_names;
pub(crate) use kernel::Evaluated;
pub use matching::like::Pattern;
pub use parse::{MAX_DEPTH, MAX_LENGTH, parse_expression};
pub(crate) use parse::{hint, parse_condition, parse_value};
pub use set::ValueSet;
pub(crate) use set::partition_point;
