//! A column that a name was resolved to.

use std::fmt;

use arrow_array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow_buffer::NullBuffer;

use super::print::fmt_path;
use crate::error::{Error, Result};
use crate::scalar::Scalar;
use crate::schema::arrow::to_arrow_type;
use crate::schema::{DataType, PrimitiveType};

/// A column, or a field inside one, of the schema the predicate is bound to.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Logical names, spelled as in the schema: the top-level column, then the fields inside structs.
    pub path: Vec<String>,
    /// Position of the top-level column in the schema.
    pub index: usize,
    /// Type of the values.
    pub data_type: DataType,
}

impl Column {
    /// The type of a column that is compared.
    ///
    /// # Errors
    /// `Internal` for nested types, which binding never lets into a comparison.
    pub fn primitive(&self) -> Result<&PrimitiveType> {
        let nested = || Error::internal(format!("column {self} of type {} cannot be compared", self.data_type));
        self.data_type.as_primitive().ok_or_else(nested)
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_path(f, &self.path)
    }
}

/// A column of a batch.
pub(crate) struct Values {
    pub(crate) array: ArrayRef,
    /// Rows that are null, be it because a struct around the column is.
    pub(crate) nulls: Option<NullBuffer>,
}

impl Values {
    pub(crate) fn find(batch: &RecordBatch, column: &Column) -> Result<Self> {
        let missing = || Error::internal(format!("the batch has no column {column}, which the filter needs"));
        let (first, fields) = column.path.split_first().ok_or_else(missing)?;
        let mut array = batch.column_by_name(first).ok_or_else(missing)?;
        let mut nulls = array.logical_nulls();
        for field in fields {
            let parent = array.as_any().downcast_ref::<StructArray>().ok_or_else(missing)?;
            array = parent.column_by_name(field).ok_or_else(missing)?;
            nulls = NullBuffer::union(nulls.as_ref(), array.logical_nulls().as_ref());
        }
        // Nested values come with the metadata of their fields, or without: `nested::of_type`.
        if let DataType::Primitive(_) = column.data_type {
            let expected = to_arrow_type(&column.data_type);
            if *array.data_type() != expected {
                let found = array.data_type();
                return Err(Error::internal(format!("column {column} comes as {found}, and {expected} is needed")));
            }
        }
        Ok(Self { array: array.clone(), nulls })
    }
}

/// Most characters of a value in a message.
const MAX_CHARACTERS: usize = 60;

/// The value of a column in a row, for a message.
pub(crate) fn value_at(batch: &RecordBatch, column: &Column, row: usize) -> String {
    let Ok(Values { array, nulls }) = Values::find(batch, column) else { return "unknown".to_owned() };
    if nulls.is_some_and(|nulls| nulls.is_null(row)) {
        return "NULL".to_owned();
    }
    let cut = |text: String| match text.char_indices().nth(MAX_CHARACTERS) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text,
    };
    match Scalar::from_array(&array, row) {
        Ok(Scalar::Null) => "NULL".to_owned(),
        Ok(Scalar::String(text)) => format!("'{}'", cut(text)),
        Ok(value) => cut(value.to_string()),
        Err(_) => format!("a value of type {}", column.data_type),
    }
}
