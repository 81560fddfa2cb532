//! Functions that this crate does not compute itself: another engine evaluates them on Arrow columns.
//!
//! One call is evaluated at a time. Operators, casts and the order of evaluation stay here. The engine guarantees that each
//! function means what it means in Spark; the type of its values is checked. Unless an engine is registered, there are no
//! such functions.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::{Field, Schema};

use super::kernel::{Evaluated, EvaluationError};
use crate::error::{Error, Result};
use crate::scalar::Scalar;
use crate::schema::DataType;
use crate::schema::arrow::to_arrow_type;

/// An engine that evaluates functions.
pub trait ExternalFunctions: Debug + Send + Sync {
    /// The type of a call; `None` if there is no such function. `values`: one row of the arguments, in which those that are
    /// literals have their value and their fields the metadata `literal`; others are NULL.
    ///
    /// # Errors
    /// `Unsupported` or `Invalid` if the function exists and cannot be evaluated for these arguments.
    fn bind(&self, name: &str, values: &RecordBatch) -> Result<Option<DataType>>;

    /// The values of a call, in the Arrow type of `result_type`, which `bind` returned. The fields of `arguments` have the metadata
    /// that they had in `bind`.
    ///
    /// # Errors
    /// Those of the engine.
    fn evaluate(&self, name: &str, arguments: &RecordBatch, result_type: &DataType) -> Result<ArrayRef>;
}

static ENGINE: OnceLock<Box<dyn ExternalFunctions>> = OnceLock::new();

/// Registers the engine of the process. The first one stays.
pub fn register_external_functions(engine: Box<dyn ExternalFunctions>) {
    let _ = ENGINE.set(engine);
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

/// The type of a call, if the engine has a function of this name.
pub(super) fn bind(name: &str, arguments: &[(DataType, Option<Scalar>)]) -> Result<Option<DataType>> {
    let Some(engine) = ENGINE.get() else { return Ok(None) };
    let value = |(data_type, literal): &(DataType, Option<Scalar>)| -> Result<(ArrayRef, bool)> {
        match (data_type.as_primitive(), literal) {
            (Some(primitive), Some(literal)) => Ok((literal.to_array(primitive, 1)?, true)),
            _ => Ok((new_null_array(&to_arrow_type(data_type), 1), literal.is_some())),
        }
    };
    let values = arguments.iter().map(value).collect::<Result<Vec<_>>>()?;
    engine.bind(name, &columns(values, 1)?)
}

/// The values of a call, of arguments that may be literals.
pub(super) fn evaluate(name: &str, arguments: Vec<(ArrayRef, bool)>, rows: usize, result_type: &DataType) -> Evaluated {
    let engine = ENGINE.get().ok_or_else(|| Error::internal(format!("no engine evaluates the function {name}")))?;
    let arguments = columns(arguments, rows)?;
    let values = engine
        .evaluate(name, &arguments, result_type)
        .map_err(|error| EvaluationError::Call(format!("the function {name} failed: {}", error.message())))?;
    if values.len() != rows || values.data_type() != &to_arrow_type(result_type) {
        let (of, wanted) = (values.data_type(), to_arrow_type(result_type));
        let message = format!("{name} gave {} values of {of} for {rows} of {wanted}", values.len());
        return Err(Error::internal(message).into());
    }
    Ok(values)
}
