//! One typed value: a literal, a partition value, a bound.
//!
//! Text forms (in `text`) are those of partition values; both historical timestamp forms are read, ISO-8601 UTC is
//! written. `parse(print(v)) == v` for every value that has a text form (`scalar::properties`). Floats are ordered as
//! Spark orders them: NaN equals itself and is the greatest, -0.0 equals 0.0.
//!
//! PROTOCOL.md: "Partition Value Serialization".

mod digits;
pub mod partition;
mod text;
pub mod wkb;

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array,
    Int16Array, Int32Array, Int64Array, NullArray, StringArray, TimestampMicrosecondArray, new_null_array,
};

pub(crate) use digits::Plain;
pub(crate) use text::{MICROS_PER_DAY, parse_date, plain_decimal};
use text::{fmt_date, fmt_decimal, fmt_float, fmt_instant, parse_binary, unescape};
pub use text::{iso_instant, parse_decimal, parse_timestamp, parse_timestamp_ntz};

use crate::error::{Error, Result};
use crate::schema::arrow::to_arrow_type;
use crate::schema::{PrimitiveType, with_article};

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

/// The text without leading and trailing spaces, for types to whose values they do not belong.
fn trimmed<'a>(text: &'a str, data_type: &PrimitiveType) -> &'a str {
    use PrimitiveType as P;
    match data_type {
        P::Byte | P::Short | P::Integer | P::Long | P::Float | P::Double | P::Decimal { .. } | P::Boolean => {
            text.trim_matches(' ')
        }
        _ => text,
    }
}

impl Scalar {
    /// Reads a partition value. `None` and the empty string are null. Spaces around a number or a boolean say nothing, as
    /// in Spark's cast, which takes other forms, too (`7.0` for an integer, `t`, `2024-01`): those are refused, for not every
    /// reader takes them for the same value. The error names value and type.
    pub fn parse_partition(text: Option<&str>, data_type: &PrimitiveType) -> Result<Self> {
        match text {
            None | Some("") => Ok(Self::Null),
            Some(text) => Self::parse(trimmed(text, data_type), data_type).ok_or_else(|| {
                Error::corrupt(format!("`{text}` is not {}, in a partition value", with_article(data_type)))
            }),
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
            PrimitiveType::Float => Self::Float(text.parse().ok()?),
            PrimitiveType::Double => Self::Double(text.parse().ok()?),
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
    /// `Invalid` for bytes that are not UTF-8, or that would read back as escapes of other bytes.
    ///
    /// Empty text and empty bytes become null: the log cannot tell them apart.
    pub fn print_partition(&self) -> Result<Option<String>> {
        Ok(Some(match self {
            Self::Null => return Ok(None),
            Self::String(v) if v.is_empty() => return Ok(None),
            Self::Binary(v) if v.is_empty() => return Ok(None),
            Self::Binary(v) => match std::str::from_utf8(v) {
                Ok(text) if unescape(text).is_none() => text.to_owned(),
                Ok(_) | Err(_) => {
                    return Err(Error::invalid(
                        "a binary partition value is not plain UTF-8, and the log cannot represent it; partition by \
                         another column",
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
            return Err(Error::internal(format!("a {self} was taken for {}", with_article(data_type))));
        }
        Ok(array)
    }

    /// These values, nulls among them, in the Arrow type of `data_type`.
    ///
    /// # Errors
    /// `Internal` if a value is not of that type.
    pub fn to_column(values: &[Self], data_type: &PrimitiveType) -> Result<ArrayRef> {
        use PrimitiveType as P;
        macro_rules! collect {
            ($array:ty, $variant:ident, $value:ident => $out:expr) => {
                values
                    .iter()
                    .map(|value| match value {
                        Self::Null => Ok(None),
                        Self::$variant($value) => Ok(Some($out)),
                        other => Err(Error::internal(format!("a {other} was taken for {}", with_article(data_type)))),
                    })
                    .collect::<Result<$array>>()?
            };
        }
        Ok(match data_type {
            P::Boolean => Arc::new(collect!(BooleanArray, Boolean, v => *v)),
            P::Byte => Arc::new(collect!(Int8Array, Byte, v => *v)),
            P::Short => Arc::new(collect!(Int16Array, Short, v => *v)),
            P::Integer => Arc::new(collect!(Int32Array, Integer, v => *v)),
            P::Long => Arc::new(collect!(Int64Array, Long, v => *v)),
            P::Float => Arc::new(collect!(Float32Array, Float, v => *v)),
            P::Double => Arc::new(collect!(Float64Array, Double, v => *v)),
            P::String => Arc::new(collect!(StringArray, String, v => v.as_str())),
            P::Binary | P::Geometry { .. } | P::Geography { .. } => {
                Arc::new(collect!(BinaryArray, Binary, v => v.as_slice()))
            }
            P::Date => Arc::new(collect!(Date32Array, Date, v => *v)),
            P::Timestamp => Arc::new(collect!(TimestampMicrosecondArray, Timestamp, v => *v).with_timezone("UTC")),
            P::TimestampNtz => Arc::new(collect!(TimestampMicrosecondArray, TimestampNtz, v => *v)),
            P::Decimal { precision, scale } => {
                let digits = values.iter().map(|value| match value {
                    Self::Null => Ok(None),
                    Self::Decimal { value, precision: p, scale: s } if (p, s) == (precision, scale) => Ok(Some(*value)),
                    other => Err(Error::internal(format!("a {other} was taken for {}", with_article(data_type)))),
                });
                let array = digits.collect::<Result<Decimal128Array>>()?;
                Arc::new(array.with_precision_and_scale(*precision, scale.cast_signed())?)
            }
            P::Void => Arc::new(NullArray::new(values.len())),
        })
    }

    /// The type it is of, `None` for null, which is of any.
    pub fn primitive_type(&self) -> Option<PrimitiveType> {
        Some(match self {
            Self::Null => return None,
            Self::Boolean(_) => PrimitiveType::Boolean,
            Self::Byte(_) => PrimitiveType::Byte,
            Self::Short(_) => PrimitiveType::Short,
            Self::Integer(_) => PrimitiveType::Integer,
            Self::Long(_) => PrimitiveType::Long,
            Self::Float(_) => PrimitiveType::Float,
            Self::Double(_) => PrimitiveType::Double,
            Self::Decimal { precision, scale, .. } => PrimitiveType::Decimal { precision: *precision, scale: *scale },
            Self::String(_) => PrimitiveType::String,
            Self::Binary(_) => PrimitiveType::Binary,
            Self::Date(_) => PrimitiveType::Date,
            Self::Timestamp(_) => PrimitiveType::Timestamp,
            Self::TimestampNtz(_) => PrimitiveType::TimestampNtz,
        })
    }

    /// Whether it is a float that is not a number.
    pub fn is_nan(&self) -> bool {
        match self {
            Self::Float(v) => v.is_nan(),
            Self::Double(v) => v.is_nan(),
            _ => false,
        }
    }

    /// How two values of one type are ordered, `None` if one is null or the types differ.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        fn floats(a: f64, b: f64) -> Ordering {
            a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
        }
        match (self, other) {
            (Self::Boolean(a), Self::Boolean(b)) => Some(a.cmp(b)),
            (Self::Byte(a), Self::Byte(b)) => Some(a.cmp(b)),
            (Self::Short(a), Self::Short(b)) => Some(a.cmp(b)),
            (Self::Integer(a), Self::Integer(b)) | (Self::Date(a), Self::Date(b)) => Some(a.cmp(b)),
            (Self::Long(a), Self::Long(b))
            | (Self::Timestamp(a), Self::Timestamp(b))
            | (Self::TimestampNtz(a), Self::TimestampNtz(b)) => Some(a.cmp(b)),
            (Self::Float(a), Self::Float(b)) => Some(floats(f64::from(*a), f64::from(*b))),
            (Self::Double(a), Self::Double(b)) => Some(floats(*a, *b)),
            (Self::Decimal { value: a, scale: s, .. }, Self::Decimal { value: b, scale: t, .. }) if s == t => {
                Some(a.cmp(b))
            }
            (Self::String(a), Self::String(b)) => Some(a.cmp(b)),
            (Self::Binary(a), Self::Binary(b)) => Some(a.cmp(b)),
            _ => None,
        }
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
            Self::Float(v) => fmt_float(f, f64::from(*v), &format!("{v:?}"), &format!("{v:e}")),
            Self::Double(v) => fmt_float(f, *v, &format!("{v:?}"), &format!("{v:e}")),
            Self::Decimal { value, scale, .. } => fmt_decimal(f, *value, *scale),
            Self::String(v) => f.write_str(v),
            Self::Binary(v) => f.write_str(&String::from_utf8_lossy(v)),
            Self::Date(v) => fmt_date(f, i64::from(*v)),
            Self::Timestamp(v) => fmt_instant(f, *v, 'T', "Z"),
            Self::TimestampNtz(v) => fmt_instant(f, *v, ' ', ""),
        }
    }
}
