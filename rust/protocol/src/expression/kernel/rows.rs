//! The result of a computation on rows: values, or the row for which SQL has an error.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
};
use arrow_array::{Array, ArrayRef, ArrowNativeTypeOp, BooleanArray};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::DataType as ArrowType;

use super::decimal;
use crate::error::{Error, Result};
use crate::expression::ast::Op;
use crate::expression::compare::compare_columns;

/// Why a value could not be computed.
#[derive(Debug)]
pub(crate) enum EvaluationError {
    /// SQL has an error for this row.
    Row(usize, String),
    /// An external function failed for these rows.
    Call(String),
    /// Another reason.
    Other(Error),
}

pub(crate) type Evaluated<T = ArrayRef> = std::result::Result<T, EvaluationError>;

impl From<Error> for EvaluationError {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl From<arrow_schema::ArrowError> for EvaluationError {
    fn from(error: arrow_schema::ArrowError) -> Self {
        Self::Other(error.into())
    }
}

impl EvaluationError {
    /// The error, with row numbers that count from `first_row`.
    pub(crate) fn into_error(self, first_row: u64) -> Error {
        match self {
            Self::Row(row, message) => {
                Error::invalid(format!("row {}: {message}", first_row.saturating_add(row as u64)))
            }
            Self::Call(message) => Error::invalid(message),
            Self::Other(error) => error,
        }
    }
}

/// The error for an array of a type that binding excludes.
pub(crate) fn unexpected(array: &ArrayRef) -> Error {
    Error::internal(format!("an expression meets the Arrow type {}", array.data_type()))
}

/// Compares values of one type, or two decimals.
pub(crate) fn compare(left: &ArrayRef, op: Op, right: &ArrayRef) -> Result<BooleanArray> {
    let nulls = NullBuffer::union(left.logical_nulls().as_ref(), right.logical_nulls().as_ref());
    let values = match (left.data_type(), right.data_type()) {
        (ArrowType::Null, _) | (_, ArrowType::Null) => BooleanBuffer::new_unset(left.len()),
        (ArrowType::Decimal128(_, s), ArrowType::Decimal128(_, t)) => {
            let (l, r) =
                (left.as_primitive::<Decimal128Type>().values(), right.as_primitive::<Decimal128Type>().values());
            if s == t {
                l.iter().zip(r).map(|(a, b)| op.holds(a.cmp(b))).collect()
            } else {
                let (s, t) = (s.cast_unsigned(), t.cast_unsigned());
                l.iter().zip(r).map(|(a, b)| op.holds(decimal::compare(*a, s, *b, t))).collect()
            }
        }
        _ => compare_columns(left, op, right)?,
    };
    Ok(BooleanArray::new(values, nulls))
}

/// One value per row that has no null among `inputs`.
pub(crate) fn each<T, A: FromIterator<Option<T>>>(
    inputs: &[&ArrayRef],
    rows: usize,
    mut value: impl FnMut(usize) -> std::result::Result<Option<T>, String>,
) -> Evaluated<A> {
    let valid = inputs.iter().fold(None, |sum, input| NullBuffer::union(sum.as_ref(), input.logical_nulls().as_ref()));
    (0..rows)
        .map(|row| match valid.as_ref().is_none_or(|valid| valid.is_valid(row)) {
            true => value(row).map_err(|message| EvaluationError::Row(row, message)),
            false => Ok(None),
        })
        .collect()
}

/// The first row whose number is zero.
pub(crate) fn first_zero(array: &ArrayRef) -> Option<usize> {
    fn of<T: ArrowPrimitiveType>(array: &ArrayRef) -> Option<usize> {
        let numbers = array.as_primitive_opt::<T>()?;
        (0..numbers.len()).find(|row| numbers.is_valid(*row) && numbers.value(*row).is_zero())
    }
    match array.data_type() {
        ArrowType::Int8 => of::<Int8Type>(array),
        ArrowType::Int16 => of::<Int16Type>(array),
        ArrowType::Int32 => of::<Int32Type>(array),
        ArrowType::Int64 => of::<Int64Type>(array),
        ArrowType::Float32 => of::<Float32Type>(array),
        ArrowType::Float64 => of::<Float64Type>(array),
        ArrowType::Decimal128(..) => of::<Decimal128Type>(array),
        _ => None,
    }
}

/// Most bytes that the strings of one array have.
const MAX_BYTES: usize = 1 << 29;

/// Refuses strings that have more bytes in all than an array holds.
pub(crate) fn bounded(bytes: usize) -> std::result::Result<(), String> {
    if bytes <= MAX_BYTES {
        return Ok(());
    }
    Err(format!("the strings of the rows up to here have more than {MAX_BYTES} bytes; evaluate fewer rows at once"))
}
