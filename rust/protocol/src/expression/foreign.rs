//! Functions that are evaluated elsewhere: what this crate does not compute itself, somebody may compute for it.
//!
//! One call is handed over at a time, with its arguments as columns; operators, casts and the order of evaluation stay
//! here. Who evaluates vouches that each function means what it means in Spark; what comes back is held against the type
//! that was promised. Without anybody there are no such functions.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::{Field, Schema};

use super::kernel::{Evaluated, Trouble};
use crate::error::{Error, Result};
use crate::scalar::Scalar;
use crate::schema::DataType;
use crate::schema::arrow::to_arrow_type;

/// Evaluates functions elsewhere.
pub trait Elsewhere: Debug + Send + Sync {
    /// The type of a call; `None` if there is no such function. `values`: one row of the arguments, in which those that are
    /// literals have their value and their fields the metadata `literal`; others are NULL.
    ///
    /// # Errors
    /// `Unsupported` or `Invalid` if there is the function, and these arguments cannot be evaluated, or not here.
    fn bind(&self, name: &str, values: &RecordBatch) -> Result<Option<DataType>>;

    /// The values of a call for rows of its arguments, whose fields have the same metadata, in the Arrow type of the type
    /// that was promised.
    ///
    /// # Errors
    /// Whatever went wrong there.
    fn evaluate(&self, name: &str, arguments: &RecordBatch, gives: &DataType) -> Result<ArrayRef>;
}

static ELSEWHERE: OnceLock<Box<dyn Elsewhere>> = OnceLock::new();

/// Has functions evaluated elsewhere, for the whole process; who was first stays.
pub fn evaluate_elsewhere(by: Box<dyn Elsewhere>) {
    let _ = ELSEWHERE.set(by);
}

/// Columns `a0`, `a1` and so on; those that are literals have the metadata `literal`.
fn columns(arguments: Vec<(ArrayRef, bool)>, rows: usize) -> Result<RecordBatch> {
    let field = |at: usize, array: &ArrayRef, is_literal: bool| {
        let metadata = is_literal.then(|| ("literal".to_owned(), "true".to_owned()));
        Field::new(format!("a{at}"), array.data_type().clone(), true)
            .with_metadata(metadata.into_iter().collect::<HashMap<_, _>>())
    };
    let fields: Vec<Field> =
        arguments.iter().enumerate().map(|(at, (array, is_literal))| field(at, array, *is_literal)).collect();
    let arrays = arguments.into_iter().map(|(array, _)| array).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?)
}

/// The type of a call, if there is a function of this name elsewhere.
pub(super) fn bind(name: &str, arguments: &[(DataType, Option<Scalar>)]) -> Result<Option<DataType>> {
    let Some(elsewhere) = ELSEWHERE.get() else { return Ok(None) };
    let value = |(data_type, literal): &(DataType, Option<Scalar>)| -> Result<(ArrayRef, bool)> {
        match (data_type.as_primitive(), literal) {
            (Some(primitive), Some(literal)) => Ok((literal.to_array(primitive, 1)?, true)),
            _ => Ok((new_null_array(&to_arrow_type(data_type), 1), literal.is_some())),
        }
    };
    let values = arguments.iter().map(value).collect::<Result<Vec<_>>>()?;
    elsewhere.bind(name, &columns(values, 1)?)
}

/// The values of a call, of arguments that may be literals.
pub(super) fn evaluate(name: &str, arguments: Vec<(ArrayRef, bool)>, rows: usize, gives: &DataType) -> Evaluated {
    let elsewhere = ELSEWHERE.get().ok_or_else(|| Error::internal(format!("nobody evaluates the function {name}")))?;
    let arguments = columns(arguments, rows)?;
    let values = elsewhere
        .evaluate(name, &arguments, gives)
        .map_err(|error| Trouble::Call(format!("the function {name} has no value here: {}", error.message())))?;
    if values.len() != rows || values.data_type() != &to_arrow_type(gives) {
        let (of, wanted) = (values.data_type(), to_arrow_type(gives));
        let message = format!("{name} gave {} values of {of} for {rows} of {wanted}", values.len());
        return Err(Error::internal(message).into());
    }
    Ok(values)
}
