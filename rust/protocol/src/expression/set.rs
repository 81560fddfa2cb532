//! The values of an IN list: sorted, each once, without nulls, searched by halving.

use std::cmp::Ordering;

use arrow_array::ArrowNativeTypeOp;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, downcast_primitive_array};
use arrow_buffer::{ArrowNativeType, BooleanBuffer};
use arrow_schema::DataType as ArrowType;

use super::compare::Real;
use crate::error::{Error, Result};
use crate::scalar::Scalar;
use crate::schema::PrimitiveType;

/// Values of one type to look for.
#[derive(Debug, Clone)]
pub struct ValueSet {
    sorted: ArrayRef,
}

impl PartialEq for ValueSet {
    fn eq(&self, other: &Self) -> bool {
        *self.sorted == *other.sorted
    }
}

impl ValueSet {
    /// The set of these values of `data_type`, none of them null.
    ///
    /// # Errors
    /// `Internal` if a value is null or of another type.
    pub fn new(mut values: Vec<Scalar>, data_type: &PrimitiveType) -> Result<Self> {
        if values.contains(&Scalar::Null) {
            return Err(Error::internal("a set of values holds a null"));
        }
        values.sort_unstable_by(|a, b| a.compare(b).unwrap_or(Ordering::Equal));
        values.dedup_by(|a, b| a.compare(b) == Some(Ordering::Equal));
        for value in &mut values {
            // One spelling of what is equal, so that other code may compare bits.
            match value {
                Scalar::Float(v) => *v = if v.is_nan() { f32::NAN } else { *v + 0.0 },
                Scalar::Double(v) => *v = if v.is_nan() { f64::NAN } else { *v + 0.0 },
                _ => {}
            }
        }
        Ok(Self { sorted: Scalar::to_column(&values, data_type)? })
    }

    /// The values in ascending order, in their type's Arrow form; NaN is last, and there is no -0.0.
    pub fn values(&self) -> &ArrayRef {
        &self.sorted
    }

    /// Whether each row of `array`, of the same Arrow type, is in the set. Null rows have an arbitrary bit.
    pub(crate) fn contains(&self, array: &ArrayRef) -> Result<BooleanBuffer> {
        let sorted = &self.sorted;
        if sorted.data_type() != array.data_type() {
            return Err(Error::internal(format!(
                "a set of {} is compared with {}",
                sorted.data_type(),
                array.data_type()
            )));
        }
        Ok(match sorted.data_type() {
            ArrowType::Float32 => search(
                sorted.as_primitive::<arrow_array::types::Float32Type>().values(),
                array.as_primitive::<arrow_array::types::Float32Type>().values(),
                real_order,
            ),
            ArrowType::Float64 => search(
                sorted.as_primitive::<arrow_array::types::Float64Type>().values(),
                array.as_primitive::<arrow_array::types::Float64Type>().values(),
                real_order,
            ),
            ArrowType::Utf8 => {
                let (set, rows) = (sorted.as_string::<i32>(), array.as_string::<i32>());
                search_by(set.len(), rows.len(), |i, row| set.value(i).cmp(rows.value(row)))
            }
            ArrowType::Binary => {
                let (set, rows) = (sorted.as_binary::<i32>(), array.as_binary::<i32>());
                search_by(set.len(), rows.len(), |i, row| set.value(i).cmp(rows.value(row)))
            }
            ArrowType::Boolean => {
                let (set, rows) = (sorted.as_boolean(), array.as_boolean());
                search_by(set.len(), rows.len(), |i, row| set.value(i).cmp(&rows.value(row)))
            }
            _ => {
                let (set, rows) = (sorted.as_ref(), array.as_ref());
                downcast_primitive_array!(
                    (set, rows) => search(set.values(), rows.values(), |a, b| a.compare(*b)),
                    (a, b) => return Err(Error::internal(format!("no set is made of {a}, compared with {b}")))
                )
            }
        })
    }
}

fn real_order<R: Real>(a: &R, b: &R) -> Ordering {
    if a.less(*b) {
        Ordering::Less
    } else if b.less(*a) {
        Ordering::Greater
    } else {
        Ordering::Equal
    }
}

fn search<T: ArrowNativeType>(set: &[T], rows: &[T], order: impl Fn(&T, &T) -> Ordering) -> BooleanBuffer {
    rows.iter().map(|row| set.binary_search_by(|value| order(value, row)).is_ok()).collect()
}

fn search_by(values: usize, rows: usize, order: impl Fn(usize, usize) -> Ordering) -> BooleanBuffer {
    BooleanBuffer::collect_bool(rows, |row| {
        let at = partition_point(values, |i| order(i, row).is_lt());
        at < values && order(at, row).is_eq()
    })
}

/// The number of indexes in `0..length` for which `before` holds; they come before all others.
pub(crate) fn partition_point(length: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut from, mut to) = (0, length);
    while from < to {
        let middle = from + (to - from) / 2;
        if before(middle) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    from
}
