//! Converts numbers to other numeric types. A value that cannot be converted exactly is refused.
//!
//! PROTOCOL.md: "Primitive Types".

use arrow_array::cast::AsArray;
use arrow_array::types::{self, ArrowPrimitiveType};
use arrow_array::{Array, ArrayRef, Decimal128Array, PrimitiveArray};
use arrow_buffer::i256;
use arrow_schema::DataType as ArrowType;

/// One value of a numeric column.
#[derive(Debug, Clone, Copy)]
pub(super) enum Number {
    Int(i128),
    Float(f64),
    /// The digits as an integer, and how many of them are after the point: 0 to 38.
    Decimal(i128, u32),
}

/// Position of the first value that has more digits than the type of its array.
pub(super) fn beyond_precision(array: &Decimal128Array) -> Option<usize> {
    let limit = 10_i128.checked_pow(u32::from(array.precision()))?;
    let fits = |value: i128| -limit < value && value < limit;
    if array.values().iter().all(|value| fits(*value)) {
        return None;
    }
    array.iter().position(|value| value.is_some_and(|value| !fits(value)))
}

/// The numbers of `array`, each converted.
///
/// # Errors
/// The position of the first that cannot be converted.
pub(super) fn from_numbers<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    convert: impl Fn(Number) -> Option<T::Native>,
) -> Result<PrimitiveArray<T>, usize> {
    use ArrowType as A;
    match array.data_type() {
        A::Int8 => each::<types::Int8Type, T>(array, |v| convert(int(v))),
        A::Int16 => each::<types::Int16Type, T>(array, |v| convert(int(v))),
        A::Int32 => each::<types::Int32Type, T>(array, |v| convert(int(v))),
        A::Int64 => each::<types::Int64Type, T>(array, |v| convert(int(v))),
        A::UInt8 => each::<types::UInt8Type, T>(array, |v| convert(int(v))),
        A::UInt16 => each::<types::UInt16Type, T>(array, |v| convert(int(v))),
        A::UInt32 => each::<types::UInt32Type, T>(array, |v| convert(int(v))),
        A::UInt64 => each::<types::UInt64Type, T>(array, |v| convert(int(v))),
        A::Float16 => each::<types::Float16Type, T>(array, |v| convert(Number::Float(f64::from(v)))),
        A::Float32 => each::<types::Float32Type, T>(array, |v| convert(Number::Float(f64::from(v)))),
        A::Float64 => each::<types::Float64Type, T>(array, |v| convert(Number::Float(v))),
        A::Decimal32(_, scale) => each::<types::Decimal32Type, T>(array, |v| convert(digits(i128::from(v), *scale)?)),
        A::Decimal64(_, scale) => each::<types::Decimal64Type, T>(array, |v| convert(digits(i128::from(v), *scale)?)),
        A::Decimal128(_, scale) => each::<types::Decimal128Type, T>(array, |v| convert(digits(v, *scale)?)),
        A::Decimal256(_, scale) => each::<types::Decimal256Type, T>(array, |v| {
            let (value, scale) = narrow(v, *scale)?;
            convert(digits(value, scale)?)
        }),
        _ => Err(0),
    }
}

/// The values of an array, each converted.
///
/// # Errors
/// The position of the first that cannot be converted.
pub(super) fn each<S: ArrowPrimitiveType, T: ArrowPrimitiveType>(
    array: &ArrayRef,
    convert: impl Fn(S::Native) -> Option<T::Native>,
) -> Result<PrimitiveArray<T>, usize> {
    let values = array.as_primitive::<S>();
    values
        .try_unary(|value| convert(value).ok_or(()))
        .map_err(|()| values.iter().position(|value| value.is_some_and(|value| convert(value).is_none())).unwrap_or(0))
}

fn int(value: impl Into<i128>) -> Number {
    Number::Int(value.into())
}

/// A decimal, with its scale changed to one that a table can have.
fn digits(mut value: i128, scale: i8) -> Option<Number> {
    if let Ok(scale) = u32::try_from(scale) {
        let mut scale = scale;
        while scale > 38 && value % 10 == 0 && value != 0 {
            (value, scale) = (value / 10, scale - 1);
        }
        if value == 0 {
            return Some(Number::Decimal(0, 0));
        }
        return (scale <= 38).then_some(Number::Decimal(value, scale));
    }
    Some(Number::Decimal(times_ten(value, u32::from(scale.unsigned_abs()))?, 0))
}

/// The same decimal with digits that fit into 128 bits.
fn narrow(mut value: i256, mut scale: i8) -> Option<(i128, i8)> {
    let ten = i256::from_i128(10);
    loop {
        match value.to_i128() {
            Some(narrow) => return Some((narrow, scale)),
            None if value.checked_rem(ten)? == i256::ZERO => {
                (value, scale) = (value.checked_div(ten)?, scale.checked_sub(1)?);
            }
            None => return None,
        }
    }
}

fn times_ten(value: i128, power: u32) -> Option<i128> {
    if value == 0 {
        return Some(0);
    }
    value.checked_mul(10_i128.checked_pow(power)?)
}

/// The number as an integer of the target's width.
pub(super) fn integer<N: TryFrom<i128>>(value: Number) -> Option<N> {
    let whole = match value {
        Number::Int(value) => value,
        // Every whole double below 2^127 is exact in 128 bits; neither NaN nor an infinity has a fraction of 0.
        Number::Float(value) if value.fract() == 0.0 && value.abs() < 2_f64.powi(127) => value as i128,
        Number::Float(_) => return None,
        Number::Decimal(value, scale) => scaled(value, scale, 0)?,
    };
    N::try_from(whole).ok()
}

/// The number as a double.
pub(super) fn double(value: Number) -> Option<f64> {
    match value {
        Number::Int(value) => Some(value as f64).filter(|double| *double as i128 == value),
        Number::Float(value) => Some(value),
        Number::Decimal(value, scale) => {
            let nearest: f64 = format!("{value}e-{scale}").parse().ok()?;
            Some(nearest).filter(|double| exact(*double, scale) == Some(value))
        }
    }
}

/// The number as a float.
pub(super) fn single(value: Number) -> Option<f32> {
    let double = double(value)?;
    Some(double as f32).filter(|single| f64::from(*single) == double || double.is_nan())
}

/// The number as the digits of a decimal.
pub(super) fn decimal(value: Number, precision: u8, scale: u8) -> Option<i128> {
    let scale = u32::from(scale);
    let value = match value {
        Number::Int(value) => times_ten(value, scale)?,
        Number::Float(value) => exact(value, scale)?,
        Number::Decimal(value, from) => scaled(value, from, scale)?,
    };
    let limit = 10_i128.checked_pow(u32::from(precision))?;
    (-limit < value && value < limit).then_some(value)
}

/// Rescales a decimal, if only zeros are lost.
fn scaled(value: i128, from: u32, to: u32) -> Option<i128> {
    match from.checked_sub(to) {
        None => times_ten(value, to - from),
        Some(0) => Some(value),
        Some(fewer) => {
            let power = 10_i128.checked_pow(fewer)?;
            (value % power == 0).then_some(value / power)
        }
    }
}

/// `value` times ten to the power of `scale`, if that is a whole number.
fn exact(value: f64, scale: u32) -> Option<i128> {
    if !value.is_finite() {
        return None;
    }
    if value == 0.0 {
        return Some(0);
    }
    // The value is mantissa times two to the power of exponent, and the mantissa is odd.
    let bits = value.to_bits();
    let (exponent, fraction) = ((bits >> 52) & 0x7ff, bits & ((1 << 52) - 1));
    let (mantissa, exponent) = match i64::try_from(exponent).ok()? {
        0 => (fraction, -1074),
        exponent => (fraction | (1 << 52), exponent - 1075),
    };
    let zeros = mantissa.trailing_zeros();
    let twos = u32::try_from(exponent + i64::from(zeros) + i64::from(scale)).ok()?;
    let digits = i128::from(mantissa >> zeros).checked_mul(5_i128.checked_pow(scale)?)?;
    let digits = digits.checked_mul(2_i128.checked_pow(twos)?)?;
    Some(if value < 0.0 { -digits } else { digits })
}
