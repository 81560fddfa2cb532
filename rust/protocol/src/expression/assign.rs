//! Values of an expression as a column stores them: ANSI store assignment.
//!
//! As in Spark, numbers are stored as numbers, dates and timestamps as each other, every primitive type as a string; a string
//! only as a string. A number that does not fit is an error, and, unlike in Spark, so is one that would lose digits:
//! such a conversion needs an explicit cast. A float column takes the nearest number. Nested values are stored part by part.

use arrow_array::{Array, ArrayRef, RecordBatch};

use super::ast::Op;
use super::bound::BoundExpression;
use super::evaluate::{Context, evaluate_rows};
use super::kernel::{self, Evaluated, EvaluationError, compare};
use super::misfit::advice;
use super::nested;
use super::types::{is_number, primitive};
use crate::error::{Error, Result};
use crate::scalar::Scalar;
use crate::schema::{DataType, PrimitiveType as P};

/// An expression whose values a column takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    expression: BoundExpression,
    /// The column's name, for messages.
    column: String,
    to: DataType,
}

impl Assignment {
    /// Assigns an expression to a column of type `to`.
    ///
    /// # Errors
    /// `Invalid`, naming the column and both types, if values of the one cannot be stored in the other.
    pub fn new(expression: BoundExpression, column: &str, to: &DataType) -> Result<Self> {
        let from = expression.data_type();
        if !assignable(from, to) {
            return Err(Error::invalid(format!(
                "`{expression}` of type {from} cannot be stored in the column `{column}` of type {to}; {}",
                advice(from, to, &assignable)
            )));
        }
        Ok(Self { expression, column: column.to_owned(), to: to.clone() })
    }

    /// The expression.
    pub fn expression(&self) -> &BoundExpression {
        &self.expression
    }

    /// The name of the column.
    pub fn column(&self) -> &str {
        &self.column
    }

    /// The type of the values.
    pub fn data_type(&self) -> &DataType {
        &self.to
    }

    /// The value for every row, in the Arrow type of the column's type.
    ///
    /// # Errors
    /// As [`evaluate_at`](super::evaluate_at); `Invalid`, naming the column, the row and the value, if a value does not fit.
    pub fn values(&self, batch: &RecordBatch, context: Context) -> Result<ArrayRef> {
        self.stored(batch, context).map_err(|error| error.into_error(context.first_row))
    }

    /// As [`Assignment::values`], with messages that name rows by the numbers that `number` returns.
    ///
    /// # Errors
    /// As [`Assignment::values`].
    pub(crate) fn values_numbered(
        &self,
        batch: &RecordBatch,
        now: Option<i64>,
        number: &dyn Fn(usize) -> u64,
    ) -> Result<ArrayRef> {
        self.stored(batch, Context { now, first_row: 0 }).map_err(|error| match error {
            EvaluationError::Row(row, message) => Error::invalid(format!("row {}: {message}", number(row))),
            other => other.into_error(0),
        })
    }

    fn stored(&self, batch: &RecordBatch, context: Context) -> Evaluated {
        let from = self.expression.data_type();
        let values = evaluate_rows(&self.expression, batch, context.now)?;
        self.store(&values, from, &self.to)
    }

    /// Adds the name of the column to the message, unless it has it.
    fn named(&self, error: EvaluationError, how: &str) -> EvaluationError {
        let column = format!("the column `{}`", self.column);
        match error {
            EvaluationError::Row(row, message) if !message.contains(&column) => match how {
                "in" => EvaluationError::Row(row, format!("{message}, in {column}")),
                _ => EvaluationError::Row(row, format!("{message}, which {column} is")),
            },
            other => other,
        }
    }

    /// Converts values from one type to another, at any depth.
    fn store(&self, values: &ArrayRef, from: &DataType, to: &DataType) -> Evaluated {
        if from != to && primitive(from).is_none() {
            let stored = nested::stored(values, from, to, &|values, from, to| self.store(values, from, to));
            return stored.map_err(|error| self.named(error, "in"));
        }
        let stored = kernel::cast(values, from, to, false).map_err(|error| self.named(error, "which"))?;
        match loses_digits(from, to) {
            true => match first_lost(values, &stored, from, to)? {
                None => Ok(stored),
                Some(row) => {
                    let value = Scalar::from_array(values, row)?;
                    let message = format!(
                        "{value} has digits that the column `{}` of type {} does not hold; round it, or write a CAST",
                        self.column, to
                    );
                    Err(EvaluationError::Row(row, message))
                }
            },
            false => Ok(stored),
        }
    }
}

/// Whether values of one type can be stored as another.
fn assignable(from: &DataType, to: &DataType) -> bool {
    let is_moment = |of: &P| matches!(of, P::Date | P::Timestamp | P::TimestampNtz);
    let is_geo = |of: &P| matches!(of, P::Geometry { .. } | P::Geography { .. });
    match (primitive(from), primitive(to)) {
        _ if from == to => true,
        (Some(P::Void), _) => true,
        (Some(from), Some(P::String)) => !is_geo(from),
        (Some(from), Some(to)) => (is_number(from) && is_number(to)) || (is_moment(from) && is_moment(to)),
        (None, None) => nested::fits(from, to, &assignable),
        _ => false,
    }
}

/// Whether numbers that fit into the other type may lose digits there.
fn loses_digits(from: &DataType, to: &DataType) -> bool {
    let (Some(from), Some(to)) = (primitive(from), primitive(to)) else { return false };
    from != to
        && matches!(from, P::Float | P::Double | P::Decimal { .. })
        && matches!(to, P::Byte | P::Short | P::Integer | P::Long | P::Decimal { .. })
}

/// The first row whose value changes if it is converted back.
fn first_lost(
    values: &ArrayRef,
    stored: &ArrayRef,
    from: &DataType,
    to: &DataType,
) -> Result<Option<usize>, EvaluationError> {
    // A stored value may be just beyond the range of its former type, and then it has changed.
    let back = kernel::cast(stored, to, from, true)?;
    let equal = compare(values, Op::Eq, &back)?;
    Ok((0..values.len()).find(|row| values.is_valid(*row) && (equal.is_null(*row) || !equal.value(*row))))
}
