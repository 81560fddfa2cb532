//! Bounds of one column from their JSON values, widened by what writers round or cut.
//!
//! A value that is not of the column's type is null. `read` lists what is widened.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::builder::{
    BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder, Float64Builder, Int64Builder, StringBuilder,
    TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, new_null_array};
use arrow_schema::DataType as ArrowType;

use super::leaf::Leaf;
use super::spans::StatsValue;
use crate::scalar::{Plain, parse_date, parse_decimal, parse_timestamp, parse_timestamp_ntz, plain_decimal};
use crate::schema::arrow::to_arrow_type;
use crate::schema::{DataType, PrimitiveType};

pub(super) const MILLISECOND: i64 = 1_000;
/// Zone offsets such as -07:52:58 were written as -07:52.
pub(super) const OFFSET_SKEW: i64 = 59_000_000;
/// The greatest offset of any zone, for timestamps without a zone, since theirs is not known.
const ANY_ZONE: i64 = 18 * 3_600_000_000;
/// Decimals with fewer digits, and strings with more, were not changed by a conversion to a double.
const DOUBLE_DIGITS: (u128, u128) = (10_u128.pow(15), 10_u128.pow(17));

/// How far bounds are moved outwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Margin {
    /// By the known imprecision of writers.
    Safe,
    /// Not at all, except for an imprecision that only the text shows.
    None,
}

/// Typed values that are being collected; values of another type are null.
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
    /// With room for `rows` values.
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

    /// Appends the statistics of a column of type `of` for some files.
    pub(super) fn extend<'t>(
        &mut self,
        values: impl Iterator<Item = Option<StatsValue<'t>>>,
        of: &Leaf,
        margin: Margin,
        upper: bool,
    ) {
        let (was_float, of) = (of.was_float, &of.data_type);
        match self {
            Self::Int(b) => values.for_each(|value| b.append_option(value.and_then(long))),
            Self::Float(b) => values.for_each(|value| b.append_option(value.and_then(float))),
            Self::Double(b) => {
                let widened = |value| if was_float { near_float(value, upper) } else { value };
                values.for_each(|value| b.append_option(value.and_then(double).map(widened)));
            }
            Self::Decimal(b) => {
                let PrimitiveType::Decimal { precision, scale } = of else { return };
                let widened = |value| if margin == Margin::Safe { near_double(value, upper) } else { value };
                let decimal = |value| decimal(value, *precision, *scale).map(widened);
                values.for_each(|value| b.append_option(value.and_then(decimal)));
            }
            Self::Boolean(b) => values.for_each(|value| b.append_option(value.and_then(truth))),
            Self::Text(b) => values.for_each(|value| b.append_option(value.and_then(text).as_deref())),
            Self::Date(b) => values.for_each(|value| b.append_option(value.and_then(date))),
            Self::Timestamp(b) => {
                let timestamp = |value| timestamp(unquoted_string(value)?.as_ref(), of, margin, upper);
                values.for_each(|value| b.append_option(value.and_then(timestamp)));
            }
            Self::Unknown(_, len) => *len += values.count(),
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

/// A value without the quotes that it may have; `None` if its escapes are invalid.
fn unquoted_string(value: StatsValue<'_>) -> Option<Cow<'_, str>> {
    let value = value.quoted()?;
    if value.literal.starts_with('"') { value.text() } else { Some(Cow::Borrowed(value.literal)) }
}

#[inline]
fn plain(value: StatsValue<'_>) -> Option<Plain> {
    let (bytes, length) = value.bytes();
    Plain::of(bytes, length)
}

pub(super) fn count(value: StatsValue<'_>) -> Option<i64> {
    long(value).filter(|count| *count >= 0)
}

fn long(value: StatsValue<'_>) -> Option<i64> {
    plain(value).and_then(Plain::whole).or_else(|| long_of_other_form(value))
}

/// Kept out of line, since nearly all numbers are plain.
#[cold]
fn long_of_other_form(value: StatsValue<'_>) -> Option<i64> {
    unquoted_string(value)?.parse().ok()
}

pub(super) fn truth(value: StatsValue<'_>) -> Option<bool> {
    unquoted_string(value)?.parse().ok()
}

fn text(value: StatsValue<'_>) -> Option<Cow<'_, str>> {
    value.quoted().filter(|value| value.literal.starts_with('"'))?.text()
}

fn date(value: StatsValue<'_>) -> Option<i32> {
    let text = unquoted_string(value)?;
    // Some writers append a time, which is midnight.
    parse_date(text.split(['T', ' ']).next()?)
}

/// Whether the text says infinity, rather than a number that is too large for a float.
fn is_infinity(text: &str) -> bool {
    text.bytes().all(|b| !b.is_ascii_digit()) && !text.to_ascii_lowercase().contains("nan")
}

fn float(value: StatsValue<'_>) -> Option<f32> {
    let text = unquoted_string(value)?;
    text.parse().ok().filter(|value: &f32| value.is_finite() || is_infinity(&text))
}

fn double(value: StatsValue<'_>) -> Option<f64> {
    plain(value).and_then(Plain::double).or_else(|| double_of_other_form(value))
}

#[cold]
fn double_of_other_form(value: StatsValue<'_>) -> Option<f64> {
    let text = unquoted_string(value)?;
    text.parse().ok().filter(|value: &f64| value.is_finite() || is_infinity(&text))
}

/// Widens a bound of a former float: it may come from the float's text, which is shorter than its value.
pub(super) fn near_float(value: f64, upper: bool) -> f64 {
    // The nearest float is the one that was printed.
    let float = f64::from(value as f32);
    if upper { value.max(float) } else { value.min(float) }
}

fn decimal(value: StatsValue<'_>, precision: u8, scale: u8) -> Option<i128> {
    let plain = plain(value).and_then(|number| plain_decimal(number, precision, scale));
    plain.or_else(|| parse_decimal(&unquoted_string(value)?, precision, scale))
}

/// Widens a bound of a decimal: it may come from the text of a double near it, which has at most 17 digits.
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

/// Widens the least or greatest of many bounds of a decimal: it is at least as wide as for any of them, whatever their digits.
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
        // A typed value no longer shows that the zone was left out.
        Margin::None if skew == ANY_ZONE => ANY_ZONE,
        Margin::None => 0,
    };
    Some(if upper { micros.saturating_add(by) } else { micros.saturating_sub(by) })
}
