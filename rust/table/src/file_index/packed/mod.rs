//! The packed form of cached columns: any rows can be unpacked alone, bit for bit.
//!
//! This works on Arrow arrays, whatever they are used for. Integers, dates, timestamps and decimals
//! take as many bits as their spread needs, floats as their digits need; strings are front-coded. Everything else is kept
//! as it is.
//!
//! Invariant: unpacking gives what was packed (`packed::tests::what_was_packed_is_unpacked`), except for the values in the
//! places of nulls.

mod floats;
mod integers;
mod mask;
mod rows;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array, make_array};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::DataType as ArrowType;
use arrow_select::filter::filter;
use deltic_pages::decode::FrontCodedStrings;

use self::floats::Floats;
use self::integers::Integers;
use self::mask::Mask;
use self::rows::Rows;
use super::values::{Counts, Values};
use crate::error::{Error, Result};

/// A column of the files of one row group.
#[derive(Debug)]
pub(super) struct Packed(Form);

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one for each column of a row group")]
enum Form {
    Rows(Mask),
    Array(Packing),
    Bounds {
        min: Packing,
        max: Packing,
        /// Whether the greatest values are packed as differences from the least ones.
        apart: bool,
        /// The counts of nulls and of rows.
        counts: Option<Box<(Packing, Packing)>>,
    },
}

/// One packed array.
#[derive(Debug)]
struct Packing {
    data_type: ArrowType,
    /// Which rows have a value; `None` if all have.
    valid: Option<Mask>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Integers(Integers),
    Floats(Floats),
    Strings(FrontCodedStrings),
    Other(ArrayRef),
}

impl Packed {
    /// # Errors
    /// That the values cannot be read.
    pub(super) fn of(values: &Values) -> Result<Self> {
        Ok(Self(match values {
            Values::Rows(rows) => Form::Rows(Mask::of(rows)),
            Values::Array(array) => Form::Array(Packing::of(array)),
            Values::Encoded(few) => Form::Array(Packing::of(&few.all()?)),
            Values::Bounds { min, max, counts } => {
                let counts = counts.as_ref().map(|counts| {
                    let count = |counts: &Int64Array| Packing::of(&(Arc::new(counts.clone()) as ArrayRef));
                    Box::new((count(&counts.nulls), count(&counts.records)))
                });
                let (max, apart) = match differences(min, max) {
                    Some(max) => (max, true),
                    None => (Packing::of(max), false),
                };
                Form::Bounds { min: Packing::of(min), max, apart, counts }
            }
        }))
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.0 {
                Form::Rows(rows) => rows.bytes(),
                Form::Array(array) => array.bytes(),
                Form::Bounds { min, max, counts, .. } => {
                    let counts = counts.as_ref().map(|counts| counts.0.bytes() + counts.1.bytes());
                    min.bytes() + max.bytes() + counts.unwrap_or_default()
                }
            }
    }

    /// `length` rows from `start` on.
    pub(super) fn range(&self, start: usize, length: usize) -> Result<Values> {
        self.unpack(Rows::Range { start, length })
    }

    /// The rows whose bits are set.
    pub(super) fn select(&self, rows: &BooleanBuffer) -> Result<Values> {
        self.unpack(Rows::Set(rows))
    }

    fn unpack(&self, rows: Rows<'_>) -> Result<Values> {
        Ok(match &self.0 {
            Form::Rows(mask) => Values::Rows(mask.unpack(rows)),
            Form::Array(array) => Values::Array(array.unpack(rows)?),
            Form::Bounds { min, max, apart, counts } => {
                let missing = || Error::internal("counts were packed and are none");
                let count = |counts: &Packing| counts.unpack(rows)?.as_primitive_opt().cloned().ok_or_else(missing);
                let counts = match counts {
                    Some(counts) => Some(Counts { nulls: count(&counts.0)?, records: count(&counts.1)? }),
                    None => None,
                };
                let (min, max) = match (apart, &min.kind, &max.kind) {
                    (true, Kind::Integers(least), Kind::Integers(spread)) => {
                        let (least, mut greatest) = (least.unpack(rows), spread.unpack(rows));
                        greatest
                            .iter_mut()
                            .zip(&least)
                            .for_each(|(spread, least)| *spread = spread.wrapping_add(*least));
                        (min.integers(least, rows)?, max.integers(greatest, rows)?)
                    }
                    _ => (min.unpack(rows)?, max.unpack(rows)?),
                };
                Values::Bounds { min, max, counts }
            }
        })
    }
}

impl Packing {
    fn of(array: &ArrayRef) -> Self {
        let valid = array.nulls().filter(|nulls| nulls.null_count() > 0);
        let valid = valid.map(|nulls| Mask::of(nulls.inner()));
        let kind = match array.data_type() {
            ArrowType::Float64 => {
                let values = filled(array.as_primitive::<Float64Type>().values(), array.nulls());
                let bits = || Integers::of(&values.iter().map(|v| v.to_bits().cast_signed()).collect::<Vec<_>>());
                Floats::of(&values).map_or_else(|| Kind::Integers(bits()), Kind::Floats)
            }
            ArrowType::Utf8 => match FrontCodedStrings::of(array.as_string::<i32>()) {
                Ok(strings) => return Self { data_type: ArrowType::Utf8, valid: None, kind: Kind::Strings(strings) },
                Err(_) => Kind::Other(array.clone()),
            },
            _ => match integers(array) {
                Some(values) => Kind::Integers(Integers::of(&values)),
                None => {
                    return Self {
                        data_type: array.data_type().clone(),
                        valid: None,
                        kind: Kind::Other(array.clone()),
                    };
                }
            },
        };
        Self { data_type: array.data_type().clone(), valid, kind }
    }

    fn bytes(&self) -> usize {
        self.valid.as_ref().map(Mask::bytes).unwrap_or_default()
            + match &self.kind {
                Kind::Integers(values) => values.bytes(),
                Kind::Floats(values) => values.bytes(),
                Kind::Strings(strings) => strings.bytes(),
                Kind::Other(array) => array.get_array_memory_size(),
            }
    }

    fn unpack(&self, rows: Rows<'_>) -> Result<ArrayRef> {
        match &self.kind {
            Kind::Integers(values) => self.integers(values.unpack(rows), rows),
            Kind::Floats(values) => Ok(Arc::new(Float64Array::new(values.unpack(rows).into(), self.nulls(rows)))),
            Kind::Strings(strings) => {
                let found = match rows {
                    Rows::Range { start, length } => strings.strings(start..start + length, length),
                    Rows::Set(set) => strings.strings(set.set_indices(), rows.count()),
                };
                Ok(Arc::new(found.map_err(|_| Error::internal("strings were packed that cannot be read"))?))
            }
            Kind::Other(array) => match rows {
                Rows::Range { start, length } => Ok(array.slice(start, length)),
                Rows::Set(rows) => Ok(filter(array, &BooleanArray::new(rows.clone(), None))?),
            },
        }
    }

    fn nulls(&self, rows: Rows<'_>) -> Option<NullBuffer> {
        self.valid.as_ref().and_then(|valid| valid.nulls(rows))
    }

    /// The array whose integers [`integers`] returned.
    fn integers(&self, values: Vec<i64>, rows: Rows<'_>) -> Result<ArrayRef> {
        let nulls = self.nulls(rows);
        let narrow = |array: &dyn Array| {
            let data = array.to_data().into_builder().data_type(self.data_type.clone()).build();
            Ok(make_array(data?))
        };
        match &self.data_type {
            ArrowType::Float64 => {
                let values: Vec<f64> = values.into_iter().map(|bits| f64::from_bits(bits.cast_unsigned())).collect();
                Ok(Arc::new(Float64Array::new(values.into(), nulls)))
            }
            ArrowType::Decimal128(precision, scale) => {
                let values: Vec<i128> = values.into_iter().map(i128::from).collect();
                let array = Decimal128Array::new(values.into(), nulls);
                Ok(Arc::new(array.with_precision_and_scale(*precision, *scale)?))
            }
            ArrowType::Int32 | ArrowType::Date32 => {
                let values: Vec<i32> = values.into_iter().map(|value| value as i32).collect();
                narrow(&Int32Array::new(values.into(), nulls))
            }
            _ => narrow(&Int64Array::new(values.into(), nulls)),
        }
    }
}

/// Packs the greatest values as differences from the least ones, if that takes fewer bytes.
fn differences(min: &ArrayRef, max: &ArrayRef) -> Option<Packing> {
    let (least, greatest) = (integers(min)?, integers(max)?);
    if min.data_type() != max.data_type() || least.len() != greatest.len() {
        return None;
    }
    let apart = || greatest.iter().zip(&least).map(|(greatest, least)| greatest.wrapping_sub(*least));
    if Integers::estimate(apart()) >= Integers::estimate(greatest.iter().copied()) {
        return None;
    }
    let valid = max.nulls().filter(|nulls| nulls.null_count() > 0).map(|nulls| Mask::of(nulls.inner()));
    let kind = Kind::Integers(Integers::of(&apart().collect::<Vec<_>>()));
    Some(Packing { data_type: max.data_type().clone(), valid, kind })
}

/// The values of an array as integers; `None` if they are of another kind.
fn integers(array: &ArrayRef) -> Option<Vec<i64>> {
    let retyped = |data_type| array.to_data().into_builder().data_type(data_type).build().map(make_array).ok();
    let nulls = array.nulls();
    match array.data_type() {
        ArrowType::Int64 | ArrowType::Timestamp(..) => {
            Some(filled(retyped(ArrowType::Int64)?.as_primitive_opt::<Int64Type>()?.values(), nulls))
        }
        ArrowType::Int32 | ArrowType::Date32 => {
            let array = retyped(ArrowType::Int32)?;
            let values = array.as_primitive_opt::<Int32Type>()?.values().iter();
            Some(filled(&values.map(|value| i64::from(*value)).collect::<Vec<_>>(), nulls))
        }
        ArrowType::Decimal128(..) => {
            let values = filled(array.as_primitive_opt::<Decimal128Type>()?.values(), nulls);
            values.into_iter().map(|value| i64::try_from(value).ok()).collect()
        }
        _ => None,
    }
}

/// The values, with the preceding value in the place of each null, where any value is allowed.
fn filled<T: Copy + Default>(values: &[T], nulls: Option<&NullBuffer>) -> Vec<T> {
    let mut filled = values.to_vec();
    let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) else { return filled };
    let mut last = nulls.valid_indices().next().and_then(|first| values.get(first)).copied().unwrap_or_default();
    for (value, is_valid) in filled.iter_mut().zip(nulls.iter()) {
        if is_valid {
            last = *value;
        }
        *value = last;
    }
    filled
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
