//! Evaluates expressions on rows that Python passes.

pub(crate) mod names;

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Field, Schema};
use deltic_entry::entry;
use deltic_protocol::expression::{Context, evaluate_at, parse_expression};
use deltic_protocol::schema::arrow::{from_arrow_schema, to_arrow_type};
use pyo3::prelude::*;

use crate::arrow::{ArrowStream, reader_from_py};
use crate::clock::Clock;
use crate::errors::Result;

/// The values of an expression as a column `value`, for rows in the Arrow types of scans.
#[entry]
#[pyfunction]
pub(crate) fn evaluate(py: Python<'_>, data: &Bound<'_, PyAny>, expression: &str) -> Result<ArrowStream> {
    let mut reader = reader_from_py(data)?;
    let bound = parse_expression(expression)?.bind(&from_arrow_schema(reader.schema())?)?;
    let schema = Arc::new(Schema::new(vec![Field::new("value", to_arrow_type(bound.data_type()), true)]));
    let mut context = Context { now: Some(Clock::now().saturating_mul(1000)), first_row: 0 };
    let mut batches = Vec::new();
    while let Some(batch) = reader.pull(py)? {
        let values = py.detach(|| evaluate_at(&bound, &batch, context))?;
        context.first_row = context.first_row.saturating_add(batch.num_rows() as u64);
        batches.push(
            RecordBatch::try_new(Arc::clone(&schema), vec![values]).map_err(deltic_protocol::error::Error::from)?,
        );
    }
    ArrowStream::from_batches(py, schema, batches)
}
