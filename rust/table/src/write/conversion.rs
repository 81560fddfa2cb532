//! Which Arrow types a table's primitive types take, and how their values get there without loss.
//!
//! | table type | takes |
//! |---|---|
//! | `byte` to `long` | integers whose values fit |
//! | `float`, `double` | narrower floats; integers that are exact in the type, whatever their value |
//! | `decimal` | decimals of no greater scale and integers, if the digits fit |
//! | `string`, `binary` | every Arrow layout of the same |
//! | `date` | dates; milliseconds that are whole days |
//! | `timestamp` | instants of any zone, `timestamp_ntz` times without one, if whole microseconds in range |
//!
//! Nothing is parsed, rounded, or moved between zones.
//!
//! PROTOCOL.md: "Primitive Types".

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{self, ArrowTimestampType};
use arrow_array::{Array, ArrayRef, PrimitiveArray, UInt64Array};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType as ArrowType, TimeUnit};
use arrow_select::take::take;
use deltic_protocol::schema::arrow::to_arrow_type;
use deltic_protocol::schema::{DataType, PrimitiveType};

/// Why values do not become the table's, and what the caller can do.
pub(super) struct Refusal {
    /// A clause for the end of the message.
    pub(super) advice: String,
    /// The kernel's complaint.
    pub(super) cause: Option<ArrowError>,
}

impl From<&str> for Refusal {
    fn from(advice: &str) -> Self {
        Self { advice: advice.to_owned(), cause: None }
    }
}

/// The values of `array` in the Arrow type of `target`.
pub(super) fn convert(array: &ArrayRef, target: &PrimitiveType) -> Result<ArrayRef, Refusal> {
    use ArrowType as A;
    use PrimitiveType as P;
    let arrow = to_arrow_type(&DataType::Primitive(target.clone()));
    let source = array.data_type();
    if *source == arrow {
        return Ok(Arc::clone(array));
    }
    match (target, source) {
        (P::Byte | P::Short | P::Integer | P::Long, source) if source.is_integer() => {
            checked(array, &arrow, "its values must be in the range of the table's type")
        }
        (P::Decimal { .. }, source) if source.is_integer() => {
            checked(array, &arrow, "its values must have no more digits than the table's type")
        }
        (
            P::Decimal { scale, .. },
            A::Decimal32(_, s) | A::Decimal64(_, s) | A::Decimal128(_, s) | A::Decimal256(_, s),
        ) if *s <= scale.cast_signed() => {
            checked(array, &arrow, "its values must have no more digits than the table's type")
        }
        (P::Decimal { .. }, source) if source.is_decimal() => Err("round it to the table's scale".into()),
        (P::Float | P::Double, A::Float16 | A::Int8 | A::Int16 | A::UInt8 | A::UInt16)
        | (P::Double, A::Float32 | A::Int32 | A::UInt32) => checked(array, &arrow, "cast it to the table's type"),
        (P::Float | P::Double, source) if source.is_numeric() => {
            Err("digits could be lost; cast it to the table's type yourself if that is meant".into())
        }
        (P::String, A::LargeUtf8 | A::Utf8View) => flat(array, &arrow),
        (
            P::Binary | P::Geometry { .. } | P::Geography { .. },
            A::LargeBinary | A::BinaryView | A::FixedSizeBinary(_),
        ) => flat(array, &arrow),
        (P::Date, A::Date64) => match array.as_primitive::<types::Date64Type>() {
            days if days.iter().flatten().all(|ms| ms % 86_400_000 == 0) => {
                checked(array, &arrow, "its values must be in the range of a date")
            }
            _ => Err("it has times of day; cast it to date32 if they may go".into()),
        },
        (P::Date, A::Timestamp(_, _)) => Err("cast it to date32 if the times of day may go".into()),
        (P::Timestamp, A::Timestamp(unit, Some(_))) => Ok(Arc::new(micros(array, *unit)?.with_timezone("UTC"))),
        (P::TimestampNtz, A::Timestamp(unit, None)) => Ok(Arc::new(micros(array, *unit)?)),
        (P::Timestamp, A::Timestamp(_, None)) => Err("give it the time zone in which it is meant".into()),
        (P::TimestampNtz, A::Timestamp(_, Some(_))) => {
            Err("the table's column has no time zone; convert to local times and drop the zone".into())
        }
        (P::Timestamp | P::TimestampNtz, A::Date32 | A::Date64) => Err("cast it to a timestamp".into()),
        _ => Err("cast it to the table's type".into()),
    }
}

/// A cast that fails where a value would not survive it.
fn checked(array: &ArrayRef, target: &ArrowType, advice: &str) -> Result<ArrayRef, Refusal> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(array, target, &options).map_err(|e| Refusal { advice: advice.to_owned(), cause: Some(e) })
}

/// Text or bytes of another layout, in one buffer with 32-bit offsets.
fn flat(array: &ArrayRef, target: &ArrowType) -> Result<ArrayRef, Refusal> {
    const ADVICE: &str = "a batch can hold 2 GiB of it at most; pass smaller batches";
    let too_long = |bytes: u64| i32::try_from(bytes).is_err();
    let views = |views: &[u128]| views.iter().map(|view| u64::from(*view as u32)).sum::<u64>();
    let (bytes, end) = match array.data_type() {
        ArrowType::LargeUtf8 => span(array.as_string::<i64>().value_offsets()),
        ArrowType::LargeBinary => span(array.as_binary::<i64>().value_offsets()),
        ArrowType::Utf8View => (views(array.as_string_view().views()), 0),
        ArrowType::BinaryView => (views(array.as_binary_view().views()), 0),
        ArrowType::FixedSizeBinary(width) => (u64::try_from(*width).unwrap_or(0).saturating_mul(array.len() as u64), 0),
        _ => (0, 0),
    };
    if too_long(bytes) {
        return Err(ADVICE.into());
    }
    if too_long(end) {
        // A small slice far into a large array: only a copy has offsets that fit.
        let all = UInt64Array::from_iter_values(0..array.len() as u64);
        let copy = take(array, &all, None).map_err(|e| Refusal { advice: ADVICE.to_owned(), cause: Some(e) })?;
        return checked(&copy, target, ADVICE);
    }
    checked(array, target, ADVICE)
}

/// How many bytes the values have, and where the last of them ends.
fn span(offsets: &[i64]) -> (u64, u64) {
    let at = |offset: Option<&i64>| offset.map_or(0, |o| o.cast_unsigned());
    (at(offsets.last()).saturating_sub(at(offsets.first())), at(offsets.last()))
}

/// Times in microseconds, of no zone.
fn micros(array: &ArrayRef, unit: TimeUnit) -> Result<PrimitiveArray<types::TimestampMicrosecondType>, Refusal> {
    match unit {
        TimeUnit::Second => scaled::<types::TimestampSecondType>(array, |v| v.checked_mul(1_000_000)),
        TimeUnit::Millisecond => scaled::<types::TimestampMillisecondType>(array, |v| v.checked_mul(1000)),
        TimeUnit::Microsecond => scaled::<types::TimestampMicrosecondType>(array, Some),
        TimeUnit::Nanosecond => {
            scaled::<types::TimestampNanosecondType>(array, |v| (v % 1000 == 0).then_some(v / 1000))
        }
    }
}

fn scaled<T: ArrowTimestampType>(
    array: &ArrayRef,
    scale: impl Fn(i64) -> Option<i64>,
) -> Result<PrimitiveArray<types::TimestampMicrosecondType>, Refusal> {
    let advice = match T::UNIT {
        TimeUnit::Nanosecond => "it has fractions of a microsecond; round it to microseconds first",
        TimeUnit::Second | TimeUnit::Millisecond | TimeUnit::Microsecond => "it is out of the range of microseconds",
    };
    array.as_primitive::<T>().try_unary(|v| scale(v).ok_or(())).map_err(|()| advice.into())
}
