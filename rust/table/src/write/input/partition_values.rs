//! Values of partition columns as they will be read.
//!
//! PROTOCOL.md: "Partition Value Serialization".

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_buffer::BooleanBuffer;
use arrow_schema::DataType as ArrowType;
use arrow_select::nullif::nullif;
use deltic_protocol::error::Result;

/// The values as they will be read: those that are one partition are equal, and empty strings are null.
pub(crate) fn normalise(array: &ArrayRef) -> Result<ArrayRef> {
    // Adding zero turns -0.0 into 0.0.
    Ok(match array.data_type() {
        ArrowType::Float32 => {
            let same = |v: f32| if v.is_nan() { f32::NAN } else { v + 0.0 };
            Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(same)) as ArrayRef
        }
        ArrowType::Float64 => {
            let same = |v: f64| if v.is_nan() { f64::NAN } else { v + 0.0 };
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
