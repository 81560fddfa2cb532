//! Literals: numbers with suffixes, strings with a type before them, names of types.

use crate::scalar::Scalar;
use crate::schema::{PrimitiveType, with_article};

/// Digits of the longest number.
const MAX_DIGITS: usize = 38;

/// A whole number is an integer, or a long, or a decimal; with a point it is a decimal, with an exponent a double; a
/// suffix says otherwise.
pub(super) fn number(spelled: &str, negative: bool) -> Result<Scalar, String> {
    let split = spelled.find(|c: char| c.is_ascii_alphabetic() && !matches!(c, 'e' | 'E')).unwrap_or(spelled.len());
    let (digits, suffix) = spelled.split_at_checked(split).unwrap_or((spelled, ""));
    let whole = |name: &str| {
        let sign = if negative { "-" } else { "" };
        format!("{sign}{digits}")
            .parse::<i64>()
            .map_err(|_| format!("`{sign}{digits}` is beyond the range of a {name}"))
    };
    let beyond = |name: &str| format!("`{spelled}` is beyond the range of a {name}");
    Ok(match suffix.to_ascii_uppercase().as_str() {
        "L" => Scalar::Long(whole("long")?),
        "S" => Scalar::Short(i16::try_from(whole("short")?).map_err(|_| beyond("short"))?),
        "Y" => Scalar::Byte(i8::try_from(whole("byte")?).map_err(|_| beyond("byte"))?),
        "D" => Scalar::Double(double(digits, negative)?),
        "F" => {
            let value: f32 = digits.parse().map_err(|_| format!("`{digits}` is not a number"))?;
            if !value.is_finite() {
                return Err(beyond("float"));
            }
            Scalar::Float(if negative { -value } else { value })
        }
        "BD" => decimal(digits, negative)?,
        _ if digits.contains(['e', 'E']) => Scalar::Double(double(digits, negative)?),
        _ => match decimal(digits, negative)? {
            Scalar::Decimal { value, scale: 0, .. } if !digits.contains('.') && i64::try_from(value).is_ok() => {
                match (i32::try_from(value), i64::try_from(value)) {
                    (Ok(value), _) => Scalar::Integer(value),
                    (_, Ok(value)) => Scalar::Long(value),
                    _ => decimal(digits, negative)?,
                }
            }
            other => other,
        },
    })
}

fn double(digits: &str, negative: bool) -> Result<f64, String> {
    let value: f64 = digits.parse().map_err(|_| format!("`{digits}` is not a number"))?;
    if !value.is_finite() {
        return Err(format!("`{digits}` is beyond the range of a double; write DOUBLE 'Infinity' if that is meant"));
    }
    Ok(if negative { -value } else { value })
}

fn decimal(digits: &str, negative: bool) -> Result<Scalar, String> {
    let too_long = || format!("a number has at most {MAX_DIGITS} digits");
    let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().map_err(|_| too_long())?),
        None => (digits, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut value: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        let shifted = value.checked_mul(10).and_then(|v| v.checked_add(i128::from(digit.saturating_sub(b'0'))));
        value = shifted.ok_or_else(too_long)?;
    }
    let mut scale = i64::try_from(fraction.len()).map_err(|_| too_long())?.saturating_sub(exponent);
    if value == 0 {
        scale = scale.max(0);
    }
    while scale < 0 {
        value = value.checked_mul(10).ok_or_else(too_long)?;
        scale += 1;
    }
    let scale = u8::try_from(scale).ok().filter(|s| usize::from(*s) <= MAX_DIGITS).ok_or_else(too_long)?;
    let length = value.checked_ilog10().map_or(1, |log| log as usize + 1);
    let precision =
        u8::try_from(length).ok().filter(|p| usize::from(*p) <= MAX_DIGITS).ok_or_else(too_long)?.max(scale);
    Ok(Scalar::Decimal { value: if negative { -value } else { value }, precision, scale })
}

/// A string with a word for its type before it.
pub(super) fn typed(word: &str, text: &str) -> Result<Scalar, String> {
    use PrimitiveType as P;
    let (data_type, form) = match word.to_ascii_uppercase().as_str() {
        "X" => {
            let advice = || format!("X'{text}' is not an even number of hexadecimal digits");
            return hexadecimal(text).map(Scalar::Binary).ok_or_else(advice);
        }
        "DATE" => (P::Date, "'2020-12-31'"),
        "TIMESTAMP" | "TIMESTAMP_LTZ" => (P::Timestamp, "'2020-12-31 23:59:59' (in UTC, or with an offset)"),
        "TIMESTAMP_NTZ" => (P::TimestampNtz, "'2020-12-31 23:59:59' (without an offset)"),
        "DOUBLE" => (P::Double, "'1.5', 'NaN' or 'Infinity'"),
        "FLOAT" | "REAL" => (P::Float, "'1.5', 'NaN' or 'Infinity'"),
        "INT" | "INTEGER" => (P::Integer, "'10'"),
        "BIGINT" | "LONG" => (P::Long, "'10'"),
        "SMALLINT" | "SHORT" => (P::Short, "'10'"),
        "TINYINT" | "BYTE" => (P::Byte, "'10'"),
        "BOOLEAN" => (P::Boolean, "'true' or 'false'"),
        "STRING" => return Ok(Scalar::String(text.to_owned())),
        "DECIMAL" | "DEC" | "NUMERIC" => {
            let trimmed = text.trim();
            let (negative, digits) = trimmed.strip_prefix('-').map_or((false, trimmed), |digits| (true, digits));
            let digits = digits.strip_prefix('+').unwrap_or(digits);
            let plain = digits.bytes().all(|b| b.is_ascii_digit() || b == b'.')
                && digits.bytes().any(|b| b.is_ascii_digit())
                && digits.bytes().filter(|b| *b == b'.').count() <= 1;
            return if plain {
                decimal(digits, negative)
            } else {
                Err(format!("'{text}' is not a decimal; write it like '1.50'"))
            };
        }
        "INTERVAL" => return Err("intervals are not supported; write the resulting time".to_owned()),
        _ => {
            return Err(
                "a string follows a word that is not a type; types are DATE, TIMESTAMP, TIMESTAMP_NTZ, X, FLOAT, \
                        DOUBLE, DECIMAL, INT, BIGINT, SMALLINT, TINYINT, BOOLEAN and STRING"
                    .to_owned(),
            );
        }
    };
    let value = Scalar::parse(text.trim(), &data_type);
    value.ok_or_else(|| format!("'{text}' is not {}; write it like {form}", with_article(&data_type)))
}

/// The type that a word names; for a decimal the type without precision and scale.
pub(crate) fn type_named(word: &str) -> Option<PrimitiveType> {
    use PrimitiveType as P;
    Some(match word.to_ascii_uppercase().as_str() {
        "BOOLEAN" => P::Boolean,
        "TINYINT" | "BYTE" => P::Byte,
        "SMALLINT" | "SHORT" => P::Short,
        "INT" | "INTEGER" => P::Integer,
        "BIGINT" | "LONG" => P::Long,
        "FLOAT" | "REAL" => P::Float,
        "DOUBLE" => P::Double,
        "DECIMAL" | "DEC" | "NUMERIC" => P::Decimal { precision: 10, scale: 0 },
        "STRING" => P::String,
        "BINARY" => P::Binary,
        "DATE" => P::Date,
        "TIMESTAMP" | "TIMESTAMP_LTZ" => P::Timestamp,
        "TIMESTAMP_NTZ" => P::TimestampNtz,
        "VOID" => P::Void,
        _ => return None,
    })
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
