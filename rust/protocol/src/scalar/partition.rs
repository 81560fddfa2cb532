//! Values of partition columns as readers get them back: in Arrow, what [`Scalar::print_partition`](super::Scalar) and
//! parsing it again make of them.
//!
//! PROTOCOL.md: "Partition Value Serialization".

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{DataType as ArrowType, Fields, Schema};
use arrow_select::nullif::nullif;

use crate::error::Result;

/// The values as readers get them back: there is one NaN, and empty strings are null. As in delta-spark, -0.0 and 0.0, though
/// equal, are different strings.
pub fn normalise(array: &ArrayRef) -> Result<ArrayRef> {
    Ok(match array.data_type() {
        ArrowType::Float32 => {
            let same = |v: f32| if v.is_nan() { f32::NAN } else { v };
            Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(same)) as ArrayRef
        }
        ArrowType::Float64 => {
            let same = |v: f64| if v.is_nan() { f64::NAN } else { v };
            Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(same))
        }
        ArrowType::Utf8 => without_empty(array, array.as_string::<i32>().offsets().lengths())?,
        ArrowType::Binary => without_empty(array, array.as_binary::<i32>().offsets().lengths())?,
        _ => Arc::clone(array),
    })
}

fn without_empty(array: &ArrayRef, lengths: impl Iterator<Item = usize>) -> Result<ArrayRef> {
    let empty: BooleanBuffer = lengths.map(|length| length == 0).collect();
    Ok(nullif(array, &BooleanArray::new(empty, None))?)
}

/// Rows with the columns at some positions normalised, which may be null then.
///
/// # Errors
/// `Internal` for arrays that do not fit (cannot happen).
pub fn normalise_columns(rows: RecordBatch, positions: &[usize]) -> Result<RecordBatch> {
    if positions.is_empty() {
        return Ok(rows);
    }
    let schema = rows.schema();
    let (mut fields, mut columns) = (schema.fields().to_vec(), rows.columns().to_vec());
    for at in positions {
        if let (Some(field), Some(column)) = (fields.get_mut(*at), columns.get_mut(*at)) {
            *field = Arc::new(field.as_ref().clone().with_nullable(true));
            *column = normalise(column)?;
        }
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    let schema = Schema::new_with_metadata(fields.into_iter().collect::<Fields>(), schema.metadata().clone());
    Ok(RecordBatch::try_new_with_options(Arc::new(schema), columns, &options)?)
}
