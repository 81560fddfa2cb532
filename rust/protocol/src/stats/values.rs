//! Bounds of one column from their JSON texts, and how far off they may be.
//!
//! What is no value of the column's type is null. Widened is whatever a known writer rounds or cuts; see `read`.

use std::sync::Arc;

use arrow_array::builder::{
    BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder, Float64Builder, Int64Builder, StringBuilder,
    TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, new_null_array};
use arrow_schema::DataType as ArrowType;

use crate::json::Quoted;
use crate::scalar::{parse_date, parse_decimal, parse_timestamp, parse_timestamp_ntz};
use crate::schema::arrow::to_arrow_type;
use crate::schema::{DataType, PrimitiveType};

pub(super) const MILLISECOND: i64 = 1_000;
/// Zone offsets such as -07:52:58 were written as -07:52.
pub(super) const OFFSET_SKEW: i64 = 59_000_000;
/// The greatest offset there is, for instants without a zone: whose they are is not known.
const ANY_ZONE: i64 = 18 * 3_600_000_000;
/// Decimals with fewer digits, and texts with more, did not change if they went through a double.
const DOUBLE_DIGITS: (u128, u128) = (10_u128.pow(15), 10_u128.pow(17));

/// How far bounds are moved outwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Margin {
    /// As far as writers are known to be imprecise.
    Safe,
    /// Not at all, but for what only the text tells.
    None,
}

/// Typed values being collected; what is not of the type is null.
pub(super) enum Values {
    Int(Int64Builder),
    Float(Float32Builder),
    Double(Float64Builder),
    Decimal(Decimal128Builder),
    Boolean(BooleanBuilder),
    Text(StringBuilder),
    Date(Date32Builder),
    Timestamp(TimestampMicrosecondBuilder),
    Unknown(ArrowType, usize),
}

impl Values {
    /// With room for so many.
    pub(super) fn new(data_type: &PrimitiveType, rows: usize) -> Self {
        let arrow = to_arrow_type(&DataType::Primitive(data_type.clone()));
        match data_type {
            PrimitiveType::Long | PrimitiveType::Integer | PrimitiveType::Short | PrimitiveType::Byte => {
                Self::Int(Int64Builder::with_capacity(rows))
            }
            PrimitiveType::Float => Self::Float(Float32Builder::with_capacity(rows)),
            PrimitiveType::Double => Self::Double(Float64Builder::with_capacity(rows)),
            PrimitiveType::Decimal { .. } => {
                Self::Decimal(Decimal128Builder::with_capacity(rows).with_data_type(arrow))
            }
            PrimitiveType::Boolean => Self::Boolean(BooleanBuilder::with_capacity(rows)),
            PrimitiveType::String => Self::Text(StringBuilder::with_capacity(rows, 0)),
            PrimitiveType::Date => Self::Date(Date32Builder::with_capacity(rows)),
            PrimitiveType::Timestamp | PrimitiveType::TimestampNtz => {
                Self::Timestamp(TimestampMicrosecondBuilder::with_capacity(rows).with_data_type(arrow))
            }
            PrimitiveType::Binary
            | PrimitiveType::Void
            | PrimitiveType::Geometry { .. }
            | PrimitiveType::Geography { .. } => Self::Unknown(arrow, 0),
        }
    }

    fn append_null(&mut self) {
        match self {
            Self::Int(b) => b.append_null(),
            Self::Float(b) => b.append_null(),
            Self::Double(b) => b.append_null(),
            Self::Decimal(b) => b.append_null(),
            Self::Boolean(b) => b.append_null(),
            Self::Text(b) => b.append_null(),
            Self::Date(b) => b.append_null(),
            Self::Timestamp(b) => b.append_null(),
            Self::Unknown(_, len) => *len += 1,
        }
    }

    /// `value` is a JSON value as it stands in the statistics of a column of type `of`, if there is one.
    pub(super) fn append(
        &mut self,
        value: Option<Quoted<'_>>,
        of: &PrimitiveType,
        was_float: bool,
        margin: Margin,
        upper: bool,
    ) {
        let Some(value) = value else { return self.append_null() };
        let unquoted;
        let is_quoted = value.literal.starts_with('"');
        let text = if is_quoted {
            match value.text() {
                Some(text) => {
                    unquoted = text;
                    unquoted.as_ref()
                }
                None => return self.append_null(),
            }
        } else {
            value.literal
        };
        match self {
            Self::Int(b) => b.append_option(long(text)),
            Self::Float(b) => b.append_option(text.parse().ok().filter(|v: &f32| v.is_finite() || is_infinity(text))),
            Self::Double(b) => b.append_option(double(text, was_float, upper)),
            Self::Decimal(b) => b.append_option(decimal(text, of, margin, upper)),
            Self::Boolean(b) => b.append_option(text.parse().ok()),
            Self::Text(b) => b.append_option(is_quoted.then_some(text)),
            Self::Date(b) => {
                // Some writers append a time, which is midnight.
                let end = text.bytes().position(|b| matches!(b, b'T' | b' ')).unwrap_or(text.len());
                b.append_option(parse_date(text.get(..end).unwrap_or_default()));
            }
            Self::Timestamp(b) => b.append_option(timestamp(text, of, margin, upper)),
            Self::Unknown(_, len) => *len += 1,
        }
    }

    pub(super) fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Int(b) => Arc::new(b.finish()),
            Self::Float(b) => Arc::new(b.finish()),
            Self::Double(b) => Arc::new(b.finish()),
            Self::Decimal(b) => Arc::new(b.finish()),
            Self::Boolean(b) => Arc::new(b.finish()),
            Self::Text(b) => Arc::new(b.finish()),
            Self::Date(b) => Arc::new(b.finish()),
            Self::Timestamp(b) => Arc::new(b.finish()),
            Self::Unknown(arrow, len) => new_null_array(arrow, *len),
        }
    }
}

pub(super) fn count(text: &str) -> Option<i64> {
    long(text).filter(|n| *n >= 0)
}

/// A whole number; most are plain digits, and few.
fn long(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let digits = match bytes.len() {
        1..=8 => eight_digits(bytes),
        9..=16 => {
            let (high, low) = bytes.split_at(bytes.len() - 8);
            eight_digits(high).zip(eight_digits(low)).map(|(high, low)| high * 100_000_000 + low)
        }
        _ => None,
    };
    digits.map_or_else(|| text.parse().ok(), |digits| i64::try_from(digits).ok())
}

/// The number that one to eight digits say, all at once; `None` if there are other bytes.
fn eight_digits(bytes: &[u8]) -> Option<u64> {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let length = bytes.len();
    // The digits stand at the end of eight bytes, the first of all lowest. Parts may overlap, for there they are equal.
    let free = 8 - u32::try_from(length).ok().filter(|length| (1..=8).contains(length))?;
    let lane = match bytes.first_chunk::<4>().zip(bytes.last_chunk::<4>()) {
        Some((head, tail)) => {
            u64::from(u32::from_le_bytes(*head)) << (8 * free) | u64::from(u32::from_le_bytes(*tail)) << 32
        }
        None => {
            let byte = |at: usize| bytes.get(at).map(|byte| u64::from(*byte) << (8 * (free as usize + at)));
            byte(0)? | byte(length / 2)? | byte(length - 1)?
        }
    };
    let digits = (lane ^ (EACH * u64::from(b'0'))) & (u64::MAX << (8 * free));
    let beyond_nine = (digits.wrapping_add(EACH * (0x80 - 10)) | digits) & (EACH * 0x80);
    if beyond_nine != 0 {
        return None;
    }
    let pairs = (digits.wrapping_mul(10) + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100) + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    Some((fours.wrapping_mul(10_000) + (fours >> 32)) & 0xffff_ffff)
}

/// Whether an infinite float is what the text says, not what became of a number too great.
fn is_infinity(text: &str) -> bool {
    text.bytes().all(|b| !b.is_ascii_digit()) && !text.to_ascii_lowercase().contains("nan")
}

fn double(text: &str, was_float: bool, upper: bool) -> Option<f64> {
    let value: f64 = text.parse().ok().filter(|v: &f64| v.is_finite() || is_infinity(text))?;
    Some(if was_float { near_float(value, upper) } else { value })
}

/// The double that stands for a float may come from the float's text, which is shorter than its value.
pub(super) fn near_float(value: f64, upper: bool) -> f64 {
    // The nearest float is the one that was printed.
    let float = f64::from(value as f32);
    if upper { value.max(float) } else { value.min(float) }
}

fn decimal(text: &str, data_type: &PrimitiveType, margin: Margin, upper: bool) -> Option<i128> {
    let PrimitiveType::Decimal { precision, scale } = data_type else { return None };
    let value = parse_decimal(text, *precision, *scale)?;
    Some(if margin == Margin::Safe { near_double(value, upper) } else { value })
}

/// A decimal may come from the text of a double near it, which has no more than 17 digits.
pub(super) fn near_double(value: i128, upper: bool) -> i128 {
    let mut digits = value.unsigned_abs();
    if digits < DOUBLE_DIGITS.0 {
        return value;
    }
    while digits.is_multiple_of(10) {
        digits /= 10;
    }
    let slack = if digits < DOUBLE_DIGITS.1 { (value.unsigned_abs() >> 51) + 1 } else { 0 };
    if upper { value.saturating_add_unsigned(slack) } else { value.saturating_sub_unsigned(slack) }
}

/// The same for the least or greatest of many: no further in than any of them goes by itself, whatever its digits.
pub fn near_any_double(value: i128, upper: bool) -> i128 {
    let slack = (value.unsigned_abs() >> 51) + 1;
    if upper { value.saturating_add_unsigned(slack) } else { value.saturating_sub_unsigned(slack) }
}

fn timestamp(text: &str, data_type: &PrimitiveType, margin: Margin, upper: bool) -> Option<i64> {
    let (micros, skew) = match data_type {
        PrimitiveType::TimestampNtz => (parse_timestamp_ntz(text.trim_end_matches('Z'))?, 0),
        _ if text.ends_with('Z') => (parse_timestamp(text)?, 0),
        _ if parse_timestamp_ntz(text).is_some() => (parse_timestamp(text)?, ANY_ZONE),
        _ => (parse_timestamp(text)?, OFFSET_SKEW),
    };
    let by = match margin {
        Margin::Safe => skew + MILLISECOND,
        // Typed, it no longer shows that the zone was left out.
        Margin::None if skew == ANY_ZONE => ANY_ZONE,
        Margin::None => 0,
    };
    Some(if upper { micros.saturating_add(by) } else { micros.saturating_sub(by) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// As the library reads them, whatever the text is.
        #[test]
        fn whole_numbers_are_read_as_ever(text in prop_oneof!["[0-9]{0,20}", "[-+]?[0-9]{1,20}", "[0-9/:a]{1,17}", "\\PC{0,10}"]) {
            prop_assert_eq!(long(&text), text.parse::<i64>().ok());
        }
    }
}
