//! Values of an expression as a column stores them.
//!
//! UPDATE and MERGE store what ANSI SQL's CAST gives ([`Conversion::Cast`]), as in delta-spark. Expressions of the table itself
//! lose no digits ([`Conversion::Exact`]): numbers are stored as numbers, dates and timestamps as each other, every primitive
//! type as a string; another conversion needs an explicit cast. A float column takes the nearest number. Nested values are
//! stored part by part. A value that does not fit is an error.

mod complete;

use arrow_array::{Array, ArrayRef, RecordBatch};

use super::ast::Op;
use super::bound::BoundExpression;
use super::evaluate::{Context, evaluate_rows};
use super::kernel::{self, Evaluated, EvaluationError, compare, nested};
use super::misfit::advice;
use super::types::{castable, is_number, primitive};
use crate::error::{Error, Result};
use crate::scalar::Scalar;
use crate::schema::{DataType, PrimitiveType as P};
pub use complete::MissingFields;
use complete::{completed, completed_type};

/// How values of one type become values of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conversion {
    /// As by CAST in ANSI mode: decimals are rounded, fractions are cut off, strings are parsed.
    Cast,
    /// Without losing digits, and never from strings.
    Exact,
}

/// An expression whose values a column takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    expression: BoundExpression,
    conversion: Conversion,
    /// The column's name, for messages.
    column: String,
    to: DataType,
    missing: MissingFields,
}

impl Assignment {
    /// Assigns an expression to a column of type `to`.
    ///
    /// # Errors
    /// `Invalid`, naming the column and both types, if values of the one cannot be stored in the other.
    pub fn new(expression: BoundExpression, column: &str, to: &DataType, conversion: Conversion) -> Result<Self> {
        Self::completing(expression, column, to, conversion, MissingFields::Refused)
    }

    /// As [`Assignment::new`], for structs that may lack fields.
    ///
    /// # Errors
    /// As [`Assignment::new`].
    pub fn completing(
        expression: BoundExpression,
        column: &str,
        to: &DataType,
        conversion: Conversion,
        missing: MissingFields,
    ) -> Result<Self> {
        let from = expression.data_type();
        let is_assignable = match missing {
            MissingFields::Refused => assignable(from, to, conversion),
            MissingFields::Null | MissingFields::Kept => assignable(&completed_type(from, to), to, conversion),
        };
        if !is_assignable {
            return Err(Error::invalid(format!(
                "`{expression}` of type {from} cannot be stored in the column `{column}` of type {to}; {}",
                advice(from, to, &|from, to| assignable(from, to, conversion))
            )));
        }
        Ok(Self { expression, conversion, column: column.to_owned(), to: to.clone(), missing })
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
        self.stored(batch, context, None).map_err(|error| error.into_error(context.first_row))
    }

    /// As [`Assignment::values`], with messages that name rows by the numbers that `number` returns. `old`: the values of the
    /// column in the old rows.
    ///
    /// # Errors
    /// As [`Assignment::values`].
    pub(crate) fn values_numbered(
        &self,
        batch: &RecordBatch,
        (now, old): (Option<i64>, Option<&ArrayRef>),
        number: &dyn Fn(usize) -> u64,
    ) -> Result<ArrayRef> {
        self.stored(batch, Context { now, first_row: 0 }, old).map_err(|error| match error {
            EvaluationError::Row(row, message) => Error::invalid(format!("row {}: {message}", number(row))),
            other => other.into_error(0),
        })
    }

    fn stored(&self, batch: &RecordBatch, context: Context, old: Option<&ArrayRef>) -> Evaluated {
        let from = self.expression.data_type();
        let values = evaluate_rows(&self.expression, batch, context.now)?;
        let old = match self.missing {
            MissingFields::Refused => return self.store(&values, from, &self.to),
            MissingFields::Null => None,
            MissingFields::Kept => old,
        };
        let values = completed(&values, (from, &self.to), old)?;
        self.store(&values, &completed_type(from, &self.to), &self.to)
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
        let lost = match (self.conversion, loses_digits(from, to)) {
            (_, false) => None,
            (Conversion::Exact, true) => first_lost(values, &stored, from, to)?,
            // To a decimal, CAST makes NULL of NaN and the infinities.
            (Conversion::Cast, true) => (0..values.len()).find(|row| values.is_valid(*row) && stored.is_null(*row)),
        };
        let Some(row) = lost else { return Ok(stored) };
        let (value, column) = (Scalar::from_array(values, row)?, &self.column);
        Err(EvaluationError::Row(
            row,
            match self.conversion {
                Conversion::Cast => format!("{value} cannot be cast to {to}, which the column `{column}` is"),
                Conversion::Exact => format!(
                    "{value} has digits that the column `{column}` of type {to} does not hold; round it, or write a CAST"
                ),
            },
        ))
    }
}

/// Whether values of one type can be stored as another.
fn assignable(from: &DataType, to: &DataType, conversion: Conversion) -> bool {
    let is_moment = |of: &P| matches!(of, P::Date | P::Timestamp | P::TimestampNtz);
    let is_geo = |of: &P| matches!(of, P::Geometry { .. } | P::Geography { .. });
    match (primitive(from), primitive(to)) {
        _ if from == to => true,
        (Some(P::Void), _) => true,
        (Some(from), Some(to)) if conversion == Conversion::Cast => castable(from, to),
        (Some(from), Some(P::String)) => !is_geo(from),
        (Some(from), Some(to)) => (is_number(from) && is_number(to)) || (is_moment(from) && is_moment(to)),
        (None, None) => nested::fits(from, to, &|from, to| assignable(from, to, conversion)),
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
