//! One typed value: a literal, a partition value, a bound.
//!
//! Text forms are those of partition values; both historical timestamp forms are read, ISO-8601 UTC is written.
//! `parse(print(v)) == v` for every value (`properties::partition_value_round_trips`).
//!
//! PROTOCOL.md: "Partition Value Serialization".

use std::fmt;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array,
    Int16Array, Int32Array, Int64Array, StringArray, TimestampMicrosecondArray, new_null_array,
};
use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime};

use crate::error::{Error, Result};
use crate::schema::PrimitiveType;
use crate::schema::arrow::to_arrow_type;

/// A value of a primitive type. Timestamps are microseconds since the epoch, dates are days.
#[derive(Debug, Clone, PartialEq)]
pub enum Scalar {
    /// No value, of any type.
    Null,
    /// `boolean`
    Boolean(bool),
    /// `byte`
    Byte(i8),
    /// `short`
    Short(i16),
    /// `integer`
    Integer(i32),
    /// `long`
    Long(i64),
    /// `float`
    Float(f32),
    /// `double`
    Double(f64),
    /// `decimal`: `value / 10^scale`
    Decimal {
        /// The digits.
        value: i128,
        /// Total digits of the type.
        precision: u8,
        /// Digits after the point.
        scale: u8,
    },
    /// `string`
    String(String),
    /// `binary`
    Binary(Vec<u8>),
    /// `date`
    Date(i32),
    /// `timestamp`
    Timestamp(i64),
    /// `timestamp_ntz`
    TimestampNtz(i64),
}

impl Scalar {
    /// Reads a partition value. `None` and the empty text are null. The error names value and type.
    pub fn parse_partition(text: Option<&str>, data_type: &PrimitiveType) -> Result<Self> {
        match text {
            None | Some("") => Ok(Self::Null),
            Some(text) => Self::parse(text, data_type)
                .ok_or_else(|| Error::corrupt(format!("`{text}` is not a {data_type}, in a partition value"))),
        }
    }

    /// Reads the text form of a value, `None` if it is none of that type.
    pub fn parse(text: &str, data_type: &PrimitiveType) -> Option<Self> {
        Some(match data_type {
            PrimitiveType::String => Self::String(text.to_owned()),
            PrimitiveType::Long => Self::Long(text.parse().ok()?),
            PrimitiveType::Integer => Self::Integer(text.parse().ok()?),
            PrimitiveType::Short => Self::Short(text.parse().ok()?),
            PrimitiveType::Byte => Self::Byte(text.parse().ok()?),
            PrimitiveType::Float => Self::Float(parse_float(text)?),
            #[allow(clippy::cast_possible_truncation)]
            PrimitiveType::Double => Self::Double(parse_double(text)?),
            PrimitiveType::Decimal { precision, scale } => {
                Self::Decimal { value: parse_decimal(text, *precision, *scale)?, precision: *precision, scale: *scale }
            }
            PrimitiveType::Boolean => Self::Boolean(match text.to_ascii_lowercase().as_str() {
                "true" => true,
                "false" => false,
                _ => return None,
            }),
            PrimitiveType::Binary => Self::Binary(parse_binary(text)),
            PrimitiveType::Date => Self::Date(parse_date(text)?),
            PrimitiveType::Timestamp => Self::Timestamp(parse_timestamp(text)?),
            PrimitiveType::TimestampNtz => Self::TimestampNtz(parse_timestamp_ntz(text)?),
            PrimitiveType::Void => Self::Null,
            PrimitiveType::Geometry { .. } | PrimitiveType::Geography { .. } => return None,
        })
    }

    /// The text of a partition value, `None` for null.
    ///
    /// # Errors
    /// `Invalid` for the empty string (it would read back as null) and for bytes that are not UTF-8.
    pub fn print_partition(&self) -> Result<Option<String>> {
        Ok(Some(match self {
            Self::Null => return Ok(None),
            Self::String(v) if v.is_empty() => return Ok(None),
            Self::Binary(v) => match std::str::from_utf8(v) {
                Ok(text) => text.to_owned(),
                Err(_) => {
                    return Err(Error::invalid(
                        "a binary partition value is not UTF-8, which the log cannot hold; partition by another column",
                    ));
                }
            },
            other => other.to_string(),
        }))
    }

    /// `len` copies in the Arrow type of `data_type`.
    ///
    /// # Errors
    /// `Internal` if the value is not of that type.
    pub fn to_array(&self, data_type: &PrimitiveType, len: usize) -> Result<ArrayRef> {
        let arrow = to_arrow_type(&crate::schema::DataType::Primitive(data_type.clone()));
        let array: ArrayRef = match self {
            Self::Null => return Ok(new_null_array(&arrow, len)),
            Self::Boolean(v) => Arc::new(BooleanArray::from(vec![*v; len])),
            Self::Byte(v) => Arc::new(Int8Array::from_value(*v, len)),
            Self::Short(v) => Arc::new(Int16Array::from_value(*v, len)),
            Self::Integer(v) => Arc::new(Int32Array::from_value(*v, len)),
            Self::Long(v) => Arc::new(Int64Array::from_value(*v, len)),
            Self::Float(v) => Arc::new(Float32Array::from_value(*v, len)),
            Self::Double(v) => Arc::new(Float64Array::from_value(*v, len)),
            Self::Decimal { value, precision, scale } => Arc::new(
                Decimal128Array::from_value(*value, len).with_precision_and_scale(*precision, scale.cast_signed())?,
            ),
            Self::String(v) => Arc::new(StringArray::from_iter_values(std::iter::repeat_n(v, len))),
            Self::Binary(v) => Arc::new(BinaryArray::from_iter_values(std::iter::repeat_n(v, len))),
            Self::Date(v) => Arc::new(Date32Array::from_value(*v, len)),
            Self::Timestamp(v) => Arc::new(TimestampMicrosecondArray::from_value(*v, len).with_timezone("UTC")),
            Self::TimestampNtz(v) => Arc::new(TimestampMicrosecondArray::from_value(*v, len)),
        };
        if array.data_type() != &arrow {
            return Err(Error::internal(format!("a {self} was taken for a {data_type}")));
        }
        Ok(array)
    }

    /// The value at `row` of an array in the Arrow type of a primitive type.
    ///
    /// # Errors
    /// `Internal` if the array has another Arrow type.
    pub fn from_array(array: &ArrayRef, row: usize) -> Result<Self> {
        use arrow_array::cast::AsArray;
        use arrow_array::types as t;
        use arrow_schema::{DataType as A, TimeUnit};
        if array.is_null(row) {
            return Ok(Self::Null);
        }
        Ok(match array.data_type() {
            A::Boolean => Self::Boolean(array.as_boolean().value(row)),
            A::Int8 => Self::Byte(array.as_primitive::<t::Int8Type>().value(row)),
            A::Int16 => Self::Short(array.as_primitive::<t::Int16Type>().value(row)),
            A::Int32 => Self::Integer(array.as_primitive::<t::Int32Type>().value(row)),
            A::Int64 => Self::Long(array.as_primitive::<t::Int64Type>().value(row)),
            A::Float32 => Self::Float(array.as_primitive::<t::Float32Type>().value(row)),
            A::Float64 => Self::Double(array.as_primitive::<t::Float64Type>().value(row)),
            A::Decimal128(precision, scale) => Self::Decimal {
                value: array.as_primitive::<t::Decimal128Type>().value(row),
                precision: *precision,
                scale: scale.cast_unsigned(),
            },
            A::Utf8 => Self::String(array.as_string::<i32>().value(row).to_owned()),
            A::Binary => Self::Binary(array.as_binary::<i32>().value(row).to_owned()),
            A::Date32 => Self::Date(array.as_primitive::<t::Date32Type>().value(row)),
            A::Timestamp(TimeUnit::Microsecond, Some(_)) => {
                Self::Timestamp(array.as_primitive::<t::TimestampMicrosecondType>().value(row))
            }
            A::Timestamp(TimeUnit::Microsecond, None) => {
                Self::TimestampNtz(array.as_primitive::<t::TimestampMicrosecondType>().value(row))
            }
            other => return Err(Error::internal(format!("no scalar is made from the Arrow type {other}"))),
        })
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Boolean(v) => write!(f, "{v}"),
            Self::Byte(v) => write!(f, "{v}"),
            Self::Short(v) => write!(f, "{v}"),
            Self::Integer(v) => write!(f, "{v}"),
            Self::Long(v) => write!(f, "{v}"),
            Self::Float(v) => fmt_float(f, f64::from(*v), &v.to_string()),
            Self::Double(v) => fmt_float(f, *v, &v.to_string()),
            Self::Decimal { value, scale, .. } => fmt_decimal(f, *value, *scale),
            Self::String(v) => f.write_str(v),
            Self::Binary(v) => f.write_str(&String::from_utf8_lossy(v)),
            Self::Date(v) => match date_of(*v) {
                Some(date) => fmt_date(f, date),
                None => write!(f, "{v} days"),
            },
            Self::Timestamp(v) => fmt_instant(f, *v, 'T', "Z"),
            Self::TimestampNtz(v) => fmt_instant(f, *v, ' ', ""),
        }
    }
}

fn date_of(days: i32) -> Option<NaiveDate> {
    NaiveDate::from_num_days_from_ce_opt(days.checked_add(EPOCH_FROM_CE)?)
}

/// Days from 0001-01-01 to 1970-01-01, counting the first as 1.
const EPOCH_FROM_CE: i32 = 719_163;

fn fmt_date(f: &mut fmt::Formatter<'_>, date: NaiveDate) -> fmt::Result {
    write!(f, "{:04}-{:02}-{:02}", date.year(), date.month(), date.day())
}

fn fmt_instant(f: &mut fmt::Formatter<'_>, micros: i64, separator: char, zone: &str) -> fmt::Result {
    let Some(time) = DateTime::from_timestamp_micros(micros) else { return write!(f, "{micros} µs") };
    fmt_date(f, time.date_naive())?;
    write!(f, "{separator}{}{zone}", time.format("%H:%M:%S%.6f"))
}

fn fmt_float(f: &mut fmt::Formatter<'_>, value: f64, text: &str) -> fmt::Result {
    if value.is_infinite() {
        f.write_str(if value > 0.0 { "Infinity" } else { "-Infinity" })
    } else {
        f.write_str(text)
    }
}

fn fmt_decimal(f: &mut fmt::Formatter<'_>, value: i128, scale: u8) -> fmt::Result {
    let scale = usize::from(scale);
    let digits = format!("{:0width$}", value.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let sign = if value < 0 { "-" } else { "" };
    if scale == 0 { write!(f, "{sign}{whole}") } else { write!(f, "{sign}{whole}.{fraction}") }
}

fn parse_float(text: &str) -> Option<f32> {
    text.parse().ok()
}

fn parse_double(text: &str) -> Option<f64> {
    text.parse().ok()
}

/// Plain or scientific notation, exactly: a digit that does not fit the scale must be zero.
pub fn parse_decimal(text: &str, precision: u8, scale: u8) -> Option<i128> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (negative, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.len() + fraction.len() == 0 || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut value: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        value = value.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
    }
    let mut shift = i32::from(scale).checked_add(exponent)?.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    while shift > 0 && value != 0 {
        value = value.checked_mul(10)?;
        shift -= 1;
    }
    while shift < 0 && value != 0 {
        if value % 10 != 0 {
            return None;
        }
        value /= 10;
        shift += 1;
    }
    let limit = 10_i128.checked_pow(u32::from(precision))?;
    (value < limit).then_some(if negative { -value } else { value })
}

/// Partition values of type binary are text whose characters are the bytes, or `\u00XX` escapes of them.
fn parse_binary(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

fn parse_date(text: &str) -> Option<i32> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut parts = rest.splitn(3, '-');
    let year: i32 = parts.next()?.parse().ok()?;
    let month: u32 = parts.next()?.parse().ok()?;
    let day: u32 = parts.next()?.parse().ok()?;
    NaiveDate::from_ymd_opt(sign * year, month, day)?.num_days_from_ce().checked_sub(EPOCH_FROM_CE)
}

/// `YYYY-MM-DD HH:MM:SS[.ffffff]` (no zone: UTC), or ISO-8601 with `T` and a zone.
pub fn parse_timestamp(text: &str) -> Option<i64> {
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Some(time.timestamp_micros());
    }
    if let Some(local) = text.strip_suffix('Z') {
        return parse_timestamp_ntz(local);
    }
    parse_timestamp_ntz(text).or_else(|| {
        ["%Y-%m-%dT%H:%M:%S%.f%z", "%Y-%m-%d %H:%M:%S%.f%z", "%Y-%m-%dT%H:%M%z"]
            .iter()
            .find_map(|format| DateTime::parse_from_str(text, format).ok())
            .map(|time| time.timestamp_micros())
    })
}

/// `YYYY-MM-DD[( |T)HH:MM[:SS[.ffffff]]]`.
pub fn parse_timestamp_ntz(text: &str) -> Option<i64> {
    let text = text.trim();
    ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M"]
        .iter()
        .find_map(|format| NaiveDateTime::parse_from_str(text, format).ok())
        .map(|time| time.and_utc().timestamp_micros())
        .or_else(|| i64::from(parse_date(text)?).checked_mul(86_400_000_000))
}
