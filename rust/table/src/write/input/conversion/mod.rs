//! The Arrow types that a table's primitive types accept, and how their values are converted without loss.
//!
//! | table type | takes, if every value is exact in it |
//! |---|---|
//! | `byte` to `long` | integers; decimals and floats that are whole numbers |
//! | `float`, `double` | floats of any width, integers, decimals |
//! | `decimal` | decimals of any width and scale, integers, floats |
//! | `string`, `binary` | every Arrow layout of the same |
//! | `date` | dates; times without a zone that are midnights; strings `2024-02-29` |
//! | `timestamp` | timestamps of any unit and zone; strings `2024-02-29T12:00:00.000001Z` or with an offset |
//! | `timestamp_ntz` | times without a zone of any unit; dates; strings `2024-02-29 12:00:00.000001` |
//!
//! Values are checked, not only types: the first value that conversion would change, or move to another time zone, is refused.
//!
//! PROTOCOL.md: "Primitive Types".

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, UInt64Array, types};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType as ArrowType};
use arrow_select::take::take;
use deltic_protocol::schema::arrow::to_arrow_type;
use deltic_protocol::schema::{DataType, PrimitiveType};

mod numbers;
mod times;

use numbers::{beyond_precision, decimal, double, from_numbers, integer, single};

/// The most characters of a value in a message.
const MAX_SHOWN: usize = 60;

/// Why values cannot be converted, and what the caller can do.
#[derive(Debug)]
pub(super) struct Refusal {
    /// Advice for the end of the message.
    pub(super) advice: String,
    /// The position of the first value that conversion would change, and the value.
    pub(super) value: Option<(usize, String)>,
    /// The error of Arrow's cast.
    pub(super) cause: Option<ArrowError>,
}

impl From<&str> for Refusal {
    fn from(advice: &str) -> Self {
        Self { advice: advice.to_owned(), value: None, cause: None }
    }
}

/// The values of `array` in the Arrow type of `target`.
pub(super) fn convert(array: &ArrayRef, target: &PrimitiveType) -> Result<ArrayRef, Refusal> {
    use ArrowType as A;
    use PrimitiveType as P;
    let arrow = to_arrow_type(&DataType::Primitive(target.clone()));
    let source = array.data_type();
    if *source == arrow {
        return same(array);
    }
    match (target, source) {
        (P::Byte | P::Short | P::Integer | P::Long | P::Float | P::Double | P::Decimal { .. }, source)
            if source.is_numeric() =>
        {
            number(array, target)
        }
        (P::String, A::LargeUtf8 | A::Utf8View) => flat(array, &arrow),
        (
            P::Binary | P::Geometry { .. } | P::Geography { .. },
            A::LargeBinary | A::BinaryView | A::FixedSizeBinary(_),
        ) => flat(array, &arrow),
        (P::Date, A::Date64 | A::Timestamp(_, None)) => at_first(array, times::midnights(array), times::ONLY_DAYS),
        (P::Date, A::Timestamp(_, Some(_))) => {
            Err("the day depends on the time zone; cast it to date if the times of day may be lost".into())
        }
        (P::Timestamp, A::Timestamp(unit, Some(_))) => {
            let micros = times::micros(array, *unit).map(|micros| micros.with_timezone("UTC"));
            at_first(array, micros, times::not_micros(*unit))
        }
        (P::TimestampNtz, A::Timestamp(unit, None)) => {
            at_first(array, times::micros(array, *unit), times::not_micros(*unit))
        }
        (P::Timestamp, A::Timestamp(_, None)) => Err("give it the time zone in which it is meant".into()),
        (P::TimestampNtz, A::Timestamp(_, Some(_))) => {
            Err("the table's column has no time zone; convert to local times and drop the zone".into())
        }
        (P::TimestampNtz, A::Date32 | A::Date64) => at_first(array, times::of_days(array), times::OUT_OF_RANGE),
        (P::Timestamp, A::Date32 | A::Date64) => Err("cast it to a timestamp of the zone that is meant".into()),
        (P::Date, source) if is_string(source) => {
            at_first(array, times::parse_dates(array), "only strings like 2024-02-29 are dates")
        }
        (P::Timestamp, source) if is_string(source) => {
            let advice = "only strings like 2024-02-29T12:00:00.000001Z, or with an offset like +01:00, are instants";
            at_first(array, times::parse_instants(array), advice)
        }
        (P::TimestampNtz, source) if is_string(source) => {
            let advice = "only strings like 2024-02-29 12:00:00.000001 are times without a zone";
            at_first(array, times::parse_local_times(array), advice)
        }
        (_, A::Interval(_)) => Err("pass its months, days or nanoseconds as numbers".into()),
        _ => Err("cast it to the table's type".into()),
    }
}

fn source_is_float(array: &ArrayRef) -> bool {
    matches!(array.data_type(), ArrowType::Float16 | ArrowType::Float32 | ArrowType::Float64)
}

fn is_string(arrow: &ArrowType) -> bool {
    matches!(arrow, ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View)
}

/// The array has the table's type already. Decimals are checked nonetheless: producers may give more digits than their type
/// has.
fn same(array: &ArrayRef) -> Result<ArrayRef, Refusal> {
    let wrong = array.as_primitive_opt::<types::Decimal128Type>().and_then(beyond_precision);
    match wrong {
        None => Ok(Arc::clone(array)),
        Some(row) => Err(refusal(array, row, "it has more digits than its type; cast it to a wider decimal")),
    }
}

/// Converts numbers of any type to the table's type.
fn number(array: &ArrayRef, target: &PrimitiveType) -> Result<ArrayRef, Refusal> {
    use PrimitiveType as P;
    let whole = "only whole numbers in the range of the table's type can be stored; cast it if another value is meant";
    let digits = "digits would be lost; cast it to the table's type yourself if that is meant";
    match target {
        P::Byte => at_first(array, from_numbers::<types::Int8Type>(array, integer), whole),
        P::Short => at_first(array, from_numbers::<types::Int16Type>(array, integer), whole),
        P::Integer => at_first(array, from_numbers::<types::Int32Type>(array, integer), whole),
        P::Long => at_first(array, from_numbers::<types::Int64Type>(array, integer), whole),
        P::Float => at_first(array, from_numbers::<types::Float32Type>(array, single), digits),
        P::Double => at_first(array, from_numbers::<types::Float64Type>(array, double), digits),
        P::Decimal { precision, scale } => {
            let values = from_numbers::<types::Decimal128Type>(array, |value| decimal(value, *precision, *scale));
            let advice = match source_is_float(array) {
                true => format!(
                    "a float is seldom exactly a decimal; cast the column to decimal({precision}, {scale}), which \
                     rounds, such as with .cast(pa.decimal128({precision}, {scale})) in pyarrow or \
                     .astype(pd.ArrowDtype(pa.decimal128({precision}, {scale}))) in pandas"
                ),
                false => "its values must have no more digits than the table's type, before the point and after it; \
                          round it yourself if that is meant"
                    .to_owned(),
            };
            let values = values.map(|values| values.with_precision_and_scale(*precision, scale.cast_signed()));
            let values = values.map_err(|row| refusal(array, row, &advice))?;
            Ok(Arc::new(values.map_err(|e| Refusal { cause: Some(e), ..advice.as_str().into() })?))
        }
        _ => Err("cast it to the table's type".into()),
    }
}

/// The converted values, or a refusal of the value at whose position `converted` failed.
fn at_first<A: Array + 'static>(
    array: &ArrayRef,
    converted: Result<A, usize>,
    advice: &str,
) -> Result<ArrayRef, Refusal> {
    converted.map(|values| Arc::new(values) as ArrayRef).map_err(|row| refusal(array, row, advice))
}

fn refusal(array: &ArrayRef, row: usize, advice: &str) -> Refusal {
    Refusal { value: Some((row, show(array, row))), ..advice.into() }
}

/// One value for a message.
fn show(array: &ArrayRef, row: usize) -> String {
    let options = FormatOptions::default();
    let print = |array: &ArrayRef| {
        let formatter = ArrayFormatter::try_new(array.as_ref(), &options).ok()?;
        formatter.value(row).try_to_string().ok()
    };
    // Arrow displays time zones only as offsets.
    let without_zone = || match array.data_type() {
        ArrowType::Timestamp(unit, Some(_)) => {
            cast_with_options(array, &ArrowType::Timestamp(*unit, Some("+00:00".into())), &CastOptions::default()).ok()
        }
        _ => None,
    };
    let text = print(array).or_else(|| print(&without_zone()?)).unwrap_or_else(|| "a value".to_owned());
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// Casts between Arrow types for the same kind of value.
fn checked(array: &ArrayRef, target: &ArrowType, advice: &str) -> Result<ArrayRef, Refusal> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(array, target, &options).map_err(|e| Refusal { cause: Some(e), ..advice.into() })
}

/// Strings or bytes of another layout, converted to one buffer with 32-bit offsets.
fn flat(array: &ArrayRef, target: &ArrowType) -> Result<ArrayRef, Refusal> {
    const ADVICE: &str = "a row can hold 2 GiB of it at most; shorten it, or spread it over several rows";
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
        // A small slice of a large array may have large offsets; a copy begins at 0.
        let all = UInt64Array::from_iter_values(0..array.len() as u64);
        let copy = take(array, &all, None).map_err(|e| Refusal { cause: Some(e), ..ADVICE.into() })?;
        return checked(&copy, target, ADVICE);
    }
    checked(array, target, ADVICE)
}

/// How many bytes the values have, and the end of the last one.
fn span(offsets: &[i64]) -> (u64, u64) {
    let at = |offset: Option<&i64>| offset.map_or(0, |o| o.cast_unsigned());
    (at(offsets.last()).saturating_sub(at(offsets.first())), at(offsets.last()))
}
