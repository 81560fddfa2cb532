//! Decoded values of a column.

use arrow_array::{Array, ArrayRef, Int64Array};
use arrow_buffer::BooleanBuffer;

use super::encoded::EncodedColumn;
use crate::error::Result;

/// A column of the files of one row group.
#[derive(Debug, Clone)]
pub(super) enum Values {
    /// Which rows are set.
    Rows(BooleanBuffer),
    /// One value for each row.
    Array(ArrayRef),
    /// One value for each row, kept encoded because few are needed.
    Encoded(EncodedColumn),
    /// The least and the greatest value of a column, for each file.
    Bounds { min: ArrayRef, max: ArrayRef, counts: Option<Counts> },
}

/// How many nulls and how many rows each file has.
#[derive(Debug, Clone)]
pub(super) struct Counts {
    pub(super) nulls: Int64Array,
    pub(super) records: Int64Array,
}

impl Values {
    /// How many rows there are.
    pub(super) fn rows(&self) -> usize {
        match self {
            Self::Rows(rows) => rows.len(),
            Self::Array(array) => array.len(),
            Self::Encoded(few) => few.len(),
            Self::Bounds { min, .. } => min.len(),
        }
    }

    /// The values of `length` rows from `start` on.
    pub(super) fn slice(&self, start: usize, length: usize) -> Result<Self> {
        Ok(match self {
            Self::Rows(rows) => Self::Rows(rows.slice(start, length)),
            Self::Array(array) => Self::Array(array.slice(start, length)),
            Self::Encoded(few) => Self::Array(few.array(start..start + length, length)?),
            Self::Bounds { min, max, counts } => {
                let counts = counts.as_ref().map(|counts| Counts {
                    nulls: counts.nulls.slice(start, length),
                    records: counts.records.slice(start, length),
                });
                Self::Bounds { min: min.slice(start, length), max: max.slice(start, length), counts }
            }
        })
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Rows(rows) => rows.len() / 8,
            Self::Array(array) => held(array),
            Self::Encoded(few) => few.bytes(),
            Self::Bounds { min, max, counts } => {
                let counts = counts.as_ref().map(|c| held(&c.nulls) + held(&c.records));
                held(min) + held(max) + counts.unwrap_or_default()
            }
        }
    }
}

/// Bytes of an array. Numbers in a buffer that is shared with other arrays count with their part alone.
fn held(array: &dyn Array) -> usize {
    let all = || array.get_array_memory_size();
    if !array.data_type().is_primitive() {
        return all();
    }
    array.to_data().get_slice_memory_size().map_or_else(|_| all(), |numbers| size_of_val(array) + numbers)
}
