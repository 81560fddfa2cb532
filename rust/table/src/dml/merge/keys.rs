//! A hash table over the keys of the source rows, in Arrow's row format, in which the keys of target rows are looked up.
//!
//! Floats are compared as in SQL: -0.0 equals 0.0, and NaN equals NaN. NULL equals nothing, unless the key is null-safe.

use std::sync::Arc;

use ahash::RandomState;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::BooleanBuffer;
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::DataType as ArrowType;
use hashbrown::HashTable;

use crate::error::Result;

/// Stands for "no next row".
const END: u32 = u32::MAX;

/// The rows of a source by their keys.
#[derive(Debug)]
pub(super) struct Keys {
    converter: RowConverter,
    rows: Rows,
    null_safe: Vec<bool>,
    /// The first row of each key.
    heads: HashTable<u32>,
    /// For each row, the next row with the same key.
    following: Vec<u32>,
    hasher: RandomState,
}

impl Keys {
    /// `batches`: the values of the keys, in the order of the rows.
    pub(super) fn new(
        types: &[ArrowType],
        null_safe: Vec<bool>,
        batches: impl Iterator<Item = Result<Vec<ArrayRef>>>,
    ) -> Result<Self> {
        let converter = RowConverter::new(types.iter().cloned().map(SortField::new).collect())?;
        let mut rows = converter.empty_rows(0, 0);
        let mut present = Vec::new();
        for values in batches {
            let values: Vec<ArrayRef> = values?.iter().map(equalized).collect();
            present.extend(present_rows(&values, &null_safe).iter());
            converter.append(&mut rows, &values)?;
        }
        let hasher = RandomState::new();
        let mut heads: HashTable<u32> = HashTable::with_capacity(rows.num_rows());
        let mut following = vec![END; rows.num_rows()];
        // From the last to the first, so that the rows of each key are in their order.
        for row in (0..rows.num_rows()).rev().filter(|row| present.get(*row).copied().unwrap_or_default()) {
            let key = rows.row(row);
            let hash = hasher.hash_one(key.data());
            let number = u32::try_from(row).unwrap_or(END);
            match heads.find_mut(hash, |other| rows.row(*other as usize).data() == key.data()) {
                Some(head) => {
                    if let Some(next) = following.get_mut(row) {
                        *next = std::mem::replace(head, number);
                    }
                }
                None => {
                    heads.insert_unique(hash, number, |other| hasher.hash_one(rows.row(*other as usize).data()));
                }
            }
        }
        Ok(Self { converter, rows, null_safe, heads, following, hasher })
    }

    /// Calls `visit` with each pair of a target row, by its position in the batch, and a source row with the same keys.
    pub(super) fn probe(&self, values: &[ArrayRef], mut visit: impl FnMut(u32, u32) -> Result<()>) -> Result<()> {
        let values: Vec<ArrayRef> = values.iter().map(equalized).collect();
        let present = present_rows(&values, &self.null_safe);
        let keys = self.converter.convert_columns(&values)?;
        for row in present.set_indices() {
            let key = keys.row(row);
            let hash = self.hasher.hash_one(key.data());
            let head = self.heads.find(hash, |other| self.rows.row(*other as usize).data() == key.data());
            let mut found = head.copied().unwrap_or(END);
            while found != END {
                visit(u32::try_from(row).unwrap_or(END), found)?;
                found = self.following.get(found as usize).copied().unwrap_or(END);
            }
        }
        Ok(())
    }
}

/// The rows whose keys can be equal to some key: those without NULL in a key that is not null-safe.
pub(super) fn present_rows(values: &[ArrayRef], null_safe: &[bool]) -> BooleanBuffer {
    let rows = values.first().map_or(0, |values| values.len());
    let mut present = BooleanBuffer::new_set(rows);
    for (values, _) in values.iter().zip(null_safe).filter(|(_, null_safe)| !**null_safe) {
        if let Some(nulls) = values.logical_nulls() {
            present = &present & nulls.inner();
        }
    }
    present
}

/// The values in a form in which equal values have the same bytes.
pub(super) fn equalized(values: &ArrayRef) -> ArrayRef {
    match values.data_type() {
        ArrowType::Float32 => {
            let of = |v: f32| if v.is_nan() { f32::NAN } else { v + 0.0 };
            Arc::new(values.as_primitive::<Float32Type>().unary::<_, Float32Type>(of))
        }
        ArrowType::Float64 => {
            let of = |v: f64| if v.is_nan() { f64::NAN } else { v + 0.0 };
            Arc::new(values.as_primitive::<Float64Type>().unary::<_, Float64Type>(of))
        }
        _ => Arc::clone(values),
    }
}
