//! Converts dates and times to other types. A value that cannot be converted exactly is refused.
//!
//! PROTOCOL.md: "Primitive Types".

use arrow_array::cast::AsArray;
use arrow_array::types::{self, ArrowPrimitiveType};
use arrow_array::{Array, ArrayRef, Date32Array, PrimitiveArray, TimestampMicrosecondArray};
use arrow_schema::{DataType as ArrowType, TimeUnit};
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::PrimitiveType;

use super::numbers::each;

/// The error for a time of day in a date column.
pub(super) const ONLY_DAYS: &str =
    "only whole days in the range of 32 bits can be stored; cast it to date if the times of day may be lost";
const ONLY_MICROS: &str = "only whole microseconds can be stored; round it to microseconds first";
/// The error for a time out of the range of microseconds.
pub(super) const OUT_OF_RANGE: &str =
    "only whole microseconds in the range of 64 bits can be stored, which are those of the years -290308 to 294247";

/// The error for a time of this unit out of the range of microseconds.
pub(super) fn not_micros(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second | TimeUnit::Millisecond => OUT_OF_RANGE,
        TimeUnit::Microsecond | TimeUnit::Nanosecond => ONLY_MICROS,
    }
}

const MILLIS_PER_DAY: i64 = 86_400_000;
const MICROS_PER_DAY: i64 = 86_400_000_000;

/// Converts times to microseconds, without a time zone.
///
/// # Errors
/// The position of the first that cannot be converted; likewise for the functions below.
pub(super) fn micros(array: &ArrayRef, unit: TimeUnit) -> Result<TimestampMicrosecondArray, usize> {
    type Micros = types::TimestampMicrosecondType;
    match unit {
        TimeUnit::Second => each::<types::TimestampSecondType, Micros>(array, |v| v.checked_mul(1_000_000)),
        TimeUnit::Millisecond => each::<types::TimestampMillisecondType, Micros>(array, |v| v.checked_mul(1000)),
        TimeUnit::Microsecond => each::<Micros, Micros>(array, Some),
        TimeUnit::Nanosecond => each::<types::TimestampNanosecondType, Micros>(array, |v| whole(v, 1000)),
    }
}

/// Converts times without a time zone to days, if they are midnights.
pub(super) fn midnights(array: &ArrayRef) -> Result<Date32Array, usize> {
    let days = |v: i64, per_day: i64| whole(v, per_day).and_then(|days| i32::try_from(days).ok());
    type Days = types::Date32Type;
    match array.data_type() {
        ArrowType::Timestamp(TimeUnit::Second, _) => {
            each::<types::TimestampSecondType, Days>(array, |v| days(v, MILLIS_PER_DAY / 1000))
        }
        ArrowType::Timestamp(TimeUnit::Millisecond, _) => {
            each::<types::TimestampMillisecondType, Days>(array, |v| days(v, MILLIS_PER_DAY))
        }
        ArrowType::Timestamp(TimeUnit::Microsecond, _) => {
            each::<types::TimestampMicrosecondType, Days>(array, |v| days(v, MICROS_PER_DAY))
        }
        ArrowType::Timestamp(TimeUnit::Nanosecond, _) => {
            each::<types::TimestampNanosecondType, Days>(array, |v| days(v, MICROS_PER_DAY * 1000))
        }
        _ => each::<types::Date64Type, Days>(array, |v| days(v, MILLIS_PER_DAY)),
    }
}

/// Converts days to the times of their midnights.
pub(super) fn of_days(array: &ArrayRef) -> Result<TimestampMicrosecondArray, usize> {
    match array.data_type() {
        ArrowType::Date32 => each::<types::Date32Type, _>(array, |v| i64::from(v).checked_mul(MICROS_PER_DAY)),
        _ => each::<types::Date64Type, _>(array, |v| v.checked_mul(1000)),
    }
}

/// Converts strings to dates.
pub(super) fn parse_dates(array: &ArrayRef) -> Result<Date32Array, usize> {
    parsed(array, |text| match Scalar::parse(text, &PrimitiveType::Date)? {
        // Other texts that could be read as a date are refused.
        date @ Scalar::Date(days) => (date.to_string() == text).then_some(days),
        _ => None,
    })
}

/// Converts strings with a time zone to timestamps.
pub(super) fn parse_instants(array: &ArrayRef) -> Result<TimestampMicrosecondArray, usize> {
    let instants = parsed(array, |text| match Scalar::parse(text, &PrimitiveType::Timestamp)? {
        Scalar::Timestamp(micros) => is_time(text, true).then_some(micros),
        _ => None,
    })?;
    Ok(instants.with_timezone("UTC"))
}

/// Converts strings without a time zone to times without one.
pub(super) fn parse_local_times(array: &ArrayRef) -> Result<TimestampMicrosecondArray, usize> {
    parsed(array, |text| match Scalar::parse(text, &PrimitiveType::TimestampNtz)? {
        Scalar::TimestampNtz(micros) => is_time(text, false).then_some(micros),
        _ => None,
    })
}

fn parsed<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    parse: impl Fn(&str) -> Option<T::Native>,
) -> Result<PrimitiveArray<T>, usize> {
    fn collect<'a, T: ArrowPrimitiveType>(
        texts: impl Iterator<Item = Option<&'a str>>,
        parse: impl Fn(&str) -> Option<T::Native>,
    ) -> Result<PrimitiveArray<T>, usize> {
        let parsed = texts.enumerate().map(|(row, text)| text.map(|text| parse(text).ok_or(row)).transpose());
        parsed.collect()
    }
    match array.data_type() {
        ArrowType::Utf8 => collect(array.as_string::<i32>().iter(), parse),
        ArrowType::LargeUtf8 => collect(array.as_string::<i64>().iter(), parse),
        _ => collect(array.as_string_view().iter(), parse),
    }
}

/// The quotient, if there is no remainder.
fn whole(value: i64, unit: i64) -> Option<i64> {
    (value % unit == 0).then_some(value / unit)
}

/// Whether a text is `YYYY-MM-DD`, `T` or a space, `HH:MM:SS`, maybe a fraction without digits below microseconds, and
/// `Z` or `+HH:MM` if there is to be a zone.
fn is_time(text: &str, has_zone: bool) -> bool {
    const FORM: &[u8; 19] = b"0000-00-00T00:00:00";
    let Some((head, rest)) = text.as_bytes().split_first_chunk::<19>() else { return false };
    let is_form = head.iter().zip(FORM).all(|(byte, form)| match form {
        b'0' => byte.is_ascii_digit(),
        b'T' => matches!(byte, b'T' | b' '),
        other => byte == other,
    });
    let rest = match rest.strip_prefix(b".") {
        None => rest,
        Some(fraction) => {
            let end = fraction.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(fraction.len());
            let (digits, zone) = fraction.split_at(end);
            if digits.is_empty() || digits.iter().skip(6).any(|digit| *digit != b'0') {
                return false;
            }
            zone
        }
    };
    let is_zone = match rest {
        [] => !has_zone,
        b"Z" => has_zone,
        [b'+' | b'-', h1, h2, b':', m1, m2] => has_zone && [h1, h2, m1, m2].iter().all(|byte| byte.is_ascii_digit()),
        _ => false,
    };
    is_form && is_zone
}
