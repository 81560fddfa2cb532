//! DuckDB as the engine of external functions. `python/deltic/duckdb_functions.py` lists them and calls DuckDB.
//!
//! The GIL is taken for each call, on the thread that evaluates the rows. A Python exception becomes an
//! error that names the function and the expression.

use arrow_array::{ArrayRef, RecordBatch, new_empty_array};
use arrow_schema::{Field, Schema};
use deltic_protocol::error::{Error, Result};
use deltic_protocol::expression::{ExternalFunctions, register_external_functions};
use deltic_protocol::schema::DataType;
use deltic_protocol::schema::arrow::{from_arrow_schema, to_arrow_type};
use pyo3::prelude::*;

use crate::arrow::{ArrowBatch, ArrowSchema, find_thread_state, reader_from_py, schema_from_py};
use crate::errors::{Failure, Result as Called};
use crate::finalizing::PythonCall;

/// Registers DuckDB.
pub(crate) fn register() {
    register_external_functions(Box::new(DuckDb));
}

#[derive(Debug)]
struct DuckDb;

impl ExternalFunctions for DuckDb {
    fn bind(&self, name: &str, values: &RecordBatch) -> Result<Option<DataType>> {
        attached(|py| {
            let bound = function(py, "bind")?.call1((name, ArrowBatch::new(values.clone())))?;
            if bound.is_none() {
                return Ok(None);
            }
            if let Ok(refusal) = bound.extract::<String>() {
                return Err(Error::unsupported(format!("function {name}"), refusal).into());
            }
            let schema = from_arrow_schema(&schema_from_py(&bound)?)?;
            let first = schema.fields.into_iter().next();
            find_thread_state(py)?;
            Ok(Some(first.ok_or_else(|| Error::internal(format!("{name} has no type")))?.data_type))
        })
    }

    fn evaluate(&self, name: &str, arguments: &RecordBatch, result_type: &DataType) -> Result<ArrayRef> {
        if arguments.num_rows() == 0 {
            return Ok(new_empty_array(&to_arrow_type(result_type)));
        }
        attached(|py| {
            let schema = ArrowSchema::new(Schema::new(vec![Field::new("value", to_arrow_type(result_type), true)]));
            let rows = function(py, "evaluate")?.call1((name, ArrowBatch::new(arguments.clone()), schema))?;
            let batch = reader_from_py(&rows)?.pull(py)?;
            let value = batch.as_ref().and_then(|batch| batch.columns().first()).cloned();
            Ok(value.ok_or_else(|| Error::internal(format!("{name} gave nothing")))?)
        })
    }
}

fn function<'py>(py: Python<'py>, name: &str) -> Called<Bound<'py, PyAny>> {
    Ok(PyModule::import(py, "deltic.duckdb_functions")?.getattr(name)?)
}

fn attached<T>(call: impl FnOnce(Python<'_>) -> Called<T>) -> Result<T> {
    let shuts_down = || Error::invalid("the interpreter is shutting down");
    let Ok(_call) = PythonCall::begin() else { return Err(shuts_down()) };
    let called = Python::try_attach(|py| {
        call(py).map_err(|failure| match failure {
            Failure::Deltic(error) => error,
            Failure::Python(error) => Error::invalid(error.value(py).to_string()),
        })
    });
    called.unwrap_or_else(|| Err(shuts_down()))
}
