//! Arithmetic, casts and comparisons of Arrow arrays with Spark's semantics in ANSI mode and UTC.
//!
//! This module knows nothing of expressions: operands have the types that binding gave them. An error of SQL is
//! [`EvaluationError`] with the row. Proved by `tests/data/text/expression_values.txt` and `tests/spark/test_expressions.py`.

mod arithmetic;
mod cast;
mod decimal;
pub(crate) mod nested;
mod rows;
mod text;

pub(crate) use self::arithmetic::compute;
pub(crate) use self::cast::cast;
pub(crate) use self::decimal::{DecimalValue, positive_remainder, rescale};
pub(crate) use self::rows::{Evaluated, EvaluationError};
pub(crate) use self::rows::{bounded, compare, each, first_zero, unexpected};
