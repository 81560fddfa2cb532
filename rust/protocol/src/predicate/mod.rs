//! Predicates: boolean expressions, bound for skipping, exact evaluation and conflicts.
//!
//! [`Predicate`] is what was typed, [`BoundPredicate`] is checked against a schema. Only the bound one evaluates rows,
//! prunes containers and decides conflicts. Beside a column, a literal of a predicate is a value of the column's type;
//! all else is bound as any [`Expression`].

mod bind;
mod bound;
mod eval;
mod fit;
mod leaf;

use std::fmt;

pub use self::bound::BoundPredicate;
pub use self::eval::keep;
use crate::error::Result;
pub use crate::expression::{Column, MAX_DEPTH, MAX_LENGTH, Name, Op, Pattern, ValueSet};
use crate::expression::{Expression, parse_condition};
pub(crate) use crate::expression::{compare_columns, compare_value, partition_point};

/// A condition on a row, TRUE, FALSE or NULL. It is printed as a filter, so that it parses back to the same tree.
#[derive(Debug, Clone, PartialEq)]
pub struct Predicate(pub Expression);

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

/// Reads a predicate.
///
/// # Errors
/// `Invalid`, with the place and what was expected there.
pub fn parse(text: &str) -> Result<Predicate> {
    parse_condition(text).map(Predicate)
}
