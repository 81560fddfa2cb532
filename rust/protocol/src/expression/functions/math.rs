//! Functions of numbers.
//!
//! Exponentials, logarithms and powers are those of fdlibm, which Java has, and not those of the machine.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
};
use arrow_array::{Array, ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int64Array, PrimitiveArray};
use arrow_buffer::BooleanBuffer;
use arrow_schema::DataType as ArrowType;
use arrow_select::zip::zip;

use super::signature::{Arguments, Definition, ResultType, Second, Slot};
use crate::expression::ast::{ArithmeticOp, Op};
use crate::expression::kernel::{DecimalValue, Evaluated, compare, each, positive_remainder, rescale, unexpected};
use crate::expression::types::{adjusted, decimal_result};
use crate::scalar::Scalar;
use crate::schema::PrimitiveType as P;

const fn define(
    name: &'static str,
    least: usize,
    slots: &'static [Slot],
    result_type: ResultType,
    run: fn(&Arguments<'_>) -> Evaluated,
) -> Definition {
    Definition { name, least, slots, repeats: false, result_type, run }
}

const fn double(name: &'static str, run: fn(&Arguments<'_>) -> Evaluated) -> Definition {
    define(name, 1, &[Slot::Double], ResultType::Fixed(P::Double), run)
}

pub(super) static FUNCTIONS: &[Definition] = &[
    define("abs", 1, &[Slot::Number], ResultType::First, |a| signed(a, true)),
    define("negative", 1, &[Slot::Number], ResultType::First, |a| signed(a, false)),
    double("sign", |a| map(a, |v| Some(if v.is_nan() || v == 0.0 { v } else { v.signum() }))),
    define("round", 1, &[Slot::Number, Slot::Int], ResultType::With(round_type), |a| round(a, false)),
    define("bround", 1, &[Slot::Number, Slot::Int], ResultType::With(round_type), |a| round(a, true)),
    define("floor", 1, &[Slot::Number], ResultType::With(whole_type), |a| whole(a, false)),
    define("ceil", 1, &[Slot::Number], ResultType::With(whole_type), |a| whole(a, true)),
    double("sqrt", |a| map(a, |v| Some(v.sqrt()))),
    double("cbrt", |a| map(a, |v| Some(libm::cbrt(v)))),
    double("exp", |a| map(a, |v| Some(libm::exp(v)))),
    // The logarithm of zero and of negative numbers is NULL.
    double("ln", |a| map(a, |v| (v > 0.0 || v.is_nan()).then(|| libm::log(v)))),
    double("log10", |a| map(a, |v| (v > 0.0 || v.is_nan()).then(|| libm::log10(v)))),
    double("log2", |a| map(a, |v| (v > 0.0 || v.is_nan()).then(|| libm::log(v) / libm::log(2.0)))),
    define("log", 2, &[Slot::Double, Slot::Double], ResultType::Fixed(P::Double), log),
    double("log1p", |a| map(a, |v| (v > -1.0 || v.is_nan()).then(|| libm::log1p(v)))),
    double("expm1", |a| map(a, |v| Some(libm::expm1(v)))),
    double("asin", |a| map(a, |v| Some(libm::asin(v)))),
    double("acos", |a| map(a, |v| Some(libm::acos(v)))),
    double("atan", |a| map(a, |v| Some(libm::atan(v)))),
    define("atan2", 2, &[Slot::Double, Slot::Double], ResultType::Fixed(P::Double), |a| {
        let (y, x) = (a.primitive::<Float64Type>(0)?, a.primitive::<Float64Type>(1)?);
        // As in Spark, -0.0 becomes 0.0 here.
        let angle = |row: usize| libm::atan2(y.value(row) + 0.0, x.value(row) + 0.0);
        Ok(Arc::new(a.each::<_, Float64Array>(|row| Ok(Some(angle(row))))?))
    }),
    double("degrees", |a| map(a, |v| Some(v.to_degrees()))),
    double("radians", |a| map(a, |v| Some(v.to_radians()))),
    double("rint", |a| map(a, |v| Some(v.round_ties_even()))),
    define("factorial", 1, &[Slot::Int], ResultType::Fixed(P::Long), factorial),
    define("power", 2, &[Slot::Double, Slot::Double], ResultType::Fixed(P::Double), power),
    define("pmod", 2, &[Slot::Number, Slot::Number], ResultType::With(remainder_type), pmod),
    define("isnan", 1, &[Slot::Double], ResultType::Fixed(P::Boolean), is_nan),
    Definition {
        name: "greatest",
        least: 2,
        slots: &[Slot::Common],
        repeats: true,
        result_type: ResultType::First,
        run: |a| extreme(a, Op::Gt),
    },
    Definition {
        name: "least",
        least: 2,
        slots: &[Slot::Common],
        repeats: true,
        result_type: ResultType::First,
        run: |a| extreme(a, Op::Lt),
    },
];

fn map(arguments: &Arguments<'_>, of: impl Fn(f64) -> Option<f64>) -> Evaluated {
    let values = arguments.primitive::<Float64Type>(0)?;
    Ok(Arc::new(arguments.each::<_, Float64Array>(|row| Ok(of(values.value(row))))?))
}

/// Java's `Math.pow`: unlike C's, one to the power of NaN or of an infinity is NaN.
fn power(arguments: &Arguments<'_>) -> Evaluated {
    let (base, exponent) = (arguments.primitive::<Float64Type>(0)?, arguments.primitive::<Float64Type>(1)?);
    let java = |base: f64, exponent: f64| match exponent {
        0.0 => 1.0,
        e if e.is_nan() => f64::NAN,
        e if e.is_infinite() && base.abs() == 1.0 => f64::NAN,
        e => libm::pow(base, e),
    };
    Ok(Arc::new(arguments.each::<_, Float64Array>(|row| Ok(Some(java(base.value(row), exponent.value(row)))))?))
}

/// The logarithm of the second number to the base of the first.
fn log(arguments: &Arguments<'_>) -> Evaluated {
    let (base, value) = (arguments.primitive::<Float64Type>(0)?, arguments.primitive::<Float64Type>(1)?);
    let of = |base: f64, value: f64| (!(base <= 0.0 || value <= 0.0)).then(|| libm::log(value) / libm::log(base));
    Ok(Arc::new(arguments.each::<_, Float64Array>(|row| Ok(of(base.value(row), value.value(row))))?))
}

/// NULL if the result does not fit a long.
fn factorial(arguments: &Arguments<'_>) -> Evaluated {
    let values = arguments.int(0)?;
    let of = |value: i32| (0..=20).contains(&value).then(|| (1..=i64::from(value)).product::<i64>());
    Ok(Arc::new(arguments.each::<_, Int64Array>(|row| Ok(of(values.value(row))))?))
}

fn is_nan(arguments: &Arguments<'_>) -> Evaluated {
    let values = arguments.primitive::<Float64Type>(0)?;
    let nan = BooleanBuffer::collect_bool(values.len(), |row| values.is_valid(row) && values.value(row).is_nan());
    Ok(Arc::new(BooleanArray::new(nan, None)))
}

fn signed(arguments: &Arguments<'_>, absolute: bool) -> Evaluated {
    fn each_of<T: ArrowPrimitiveType>(
        arguments: &Arguments<'_>,
        absolute: bool,
        of: impl Fn(T::Native) -> Option<T::Native>,
    ) -> Evaluated<PrimitiveArray<T>> {
        let values = arguments.primitive::<T>(0)?;
        let name = if absolute { "abs" } else { "-" };
        arguments.each(|row| {
            let value = values.value(row);
            of(value).map(Some).ok_or_else(|| format!("{name}({value:?}) is beyond the range of its type"))
        })
    }
    macro_rules! whole {
        ($type:ty) => {
            Arc::new(each_of::<$type>(
                arguments,
                absolute,
                |v| if absolute { v.checked_abs() } else { v.checked_neg() },
            )?)
        };
    }
    let array = arguments.array(0)?;
    Ok(match array.data_type() {
        ArrowType::Int8 => whole!(Int8Type),
        ArrowType::Int16 => whole!(Int16Type),
        ArrowType::Int32 => whole!(Int32Type),
        ArrowType::Int64 => whole!(Int64Type),
        ArrowType::Float32 => {
            Arc::new(each_of::<Float32Type>(arguments, absolute, |v| Some(if absolute { v.abs() } else { -v }))?)
        }
        ArrowType::Float64 => {
            Arc::new(each_of::<Float64Type>(arguments, absolute, |v| Some(if absolute { v.abs() } else { -v }))?)
        }
        ArrowType::Decimal128(p, s) => {
            let values = each_of::<Decimal128Type>(arguments, absolute, |v| {
                if absolute { v.checked_abs() } else { v.checked_neg() }
            })?;
            Arc::new(values.with_precision_and_scale(*p, *s)?)
        }
        _ => return Err(unexpected(array).into()),
    })
}

/// Floor and ceil give longs, and decimals without digits after the point.
fn whole_type(types: &[P], _: Second<'_>) -> Result<P, String> {
    Ok(match types.first() {
        Some(P::Decimal { precision, scale: 0 }) => P::Decimal { precision: *precision, scale: 0 },
        Some(P::Decimal { precision, scale }) => adjusted(u32::from(precision - scale) + 1, 0),
        _ => P::Long,
    })
}

fn whole(arguments: &Arguments<'_>, up: bool) -> Evaluated {
    let array = arguments.array(0)?;
    let float = |v: f64| (if up { v.ceil() } else { v.floor() }) as i64;
    let longs = |of: &dyn Fn(usize) -> i64| arguments.each::<_, Int64Array>(|row| Ok(Some(of(row))));
    Ok(Arc::new(match array.data_type() {
        ArrowType::Int8 => longs(&|row| array.as_primitive::<Int8Type>().value(row).into())?,
        ArrowType::Int16 => longs(&|row| array.as_primitive::<Int16Type>().value(row).into())?,
        ArrowType::Int32 => longs(&|row| array.as_primitive::<Int32Type>().value(row).into())?,
        ArrowType::Int64 => longs(&|row| array.as_primitive::<Int64Type>().value(row))?,
        ArrowType::Float32 => longs(&|row| float(array.as_primitive::<Float32Type>().value(row).into()))?,
        ArrowType::Float64 => longs(&|row| float(array.as_primitive::<Float64Type>().value(row)))?,
        ArrowType::Decimal128(_, scale) => {
            let by = 10_i128.pow(u32::from(scale.cast_unsigned()));
            let values = array.as_primitive::<Decimal128Type>();
            let digits: Decimal128Array = arguments.each(|row| {
                let value = values.value(row);
                let floor = value.div_euclid(by);
                Ok(Some(if up && value.rem_euclid(by) != 0 { floor + 1 } else { floor }))
            })?;
            return typed_decimal(digits, arguments.result_type);
        }
        _ => return Err(unexpected(array).into()),
    }))
}

fn typed_decimal(digits: Decimal128Array, to: &P) -> Evaluated {
    match to {
        P::Decimal { precision, scale } => {
            Ok(Arc::new(digits.with_precision_and_scale(*precision, scale.cast_signed())?))
        }
        _ => Ok(Arc::new(digits)),
    }
}

/// A rounded decimal has fewer digits after the point; other numbers keep their type.
fn round_type(types: &[P], places: Second<'_>) -> Result<P, String> {
    let places = match places {
        Second::Missing | Second::Value(Scalar::Null) => 0,
        Second::Value(Scalar::Integer(places)) => *places,
        Second::Value(_) | Second::Computed => return Err("the number of digits must be a literal".to_owned()),
    };
    Ok(match types.first() {
        Some(P::Decimal { precision, scale }) => {
            let (precision, scale) = (i64::from(*precision), i64::from(*scale));
            let whole = precision - scale + 1;
            let places = i64::from(places);
            if places < 0 {
                // As many digits as the rounded number may have.
                adjusted(u32::try_from(whole.max(-places + 1)).unwrap_or(38), 0)
            } else {
                let scale = scale.min(places);
                let digits = |count: i64, most: u8| u8::try_from(count).unwrap_or(most).min(most);
                P::Decimal { precision: digits(whole + scale, 38), scale: digits(scale, 38) }
            }
        }
        Some(other) => other.clone(),
        None => P::Double,
    })
}

/// The nearest multiple of `by`; halves go away from zero, or to the even one.
fn nearest(value: i128, by: i128, even: bool) -> i128 {
    let (quotient, rest) = (value / by, value % by);
    let twice = rest.unsigned_abs().saturating_mul(2);
    let away = match twice.cmp(&by.unsigned_abs()) {
        std::cmp::Ordering::Less => false,
        std::cmp::Ordering::Greater => true,
        std::cmp::Ordering::Equal => !even || quotient % 2 != 0,
    };
    (quotient + if away { value.signum() } else { 0 }).saturating_mul(by)
}

fn round(arguments: &Arguments<'_>, even: bool) -> Evaluated {
    let array = arguments.array(0)?;
    let places = if arguments.arrays.len() > 1 { Some(arguments.int(1)?) } else { None };
    let places = |row: usize| places.map_or(0, |places| places.value(row));
    // A float is rounded by its written digits.
    let float = |v: f64, spelled: String, places: i32| -> f64 {
        if !v.is_finite() || !(-308..=400).contains(&places) {
            return if places < 0 && v.is_finite() { 0.0 } else { v };
        }
        round_spelled(&spelled, places, even).unwrap_or(v)
    };
    let whole = |value: i128, places: i32| match places {
        0.. => value,
        -38..=-1 => nearest(value, 10_i128.pow(places.unsigned_abs()), even),
        _ => 0,
    };
    macro_rules! whole {
        ($type:ty) => {{
            let values = array.as_primitive::<$type>();
            let rounded: PrimitiveArray<$type> = arguments.each(|row| {
                let value = values.value(row);
                let rounded = whole(value.into(), places(row)).try_into();
                rounded.map(Some).map_err(|_| format!("{value} is rounded beyond the range of its type"))
            })?;
            Arc::new(rounded)
        }};
    }
    Ok(match array.data_type() {
        ArrowType::Int8 => whole!(Int8Type),
        ArrowType::Int16 => whole!(Int16Type),
        ArrowType::Int32 => whole!(Int32Type),
        ArrowType::Int64 => whole!(Int64Type),
        ArrowType::Float32 => {
            let values = array.as_primitive::<Float32Type>();
            Arc::new(arguments.each::<_, PrimitiveArray<Float32Type>>(|row| {
                let value = values.value(row);
                Ok(Some(float(value.into(), format!("{:e}", f64::from(value)), places(row)) as f32))
            })?)
        }
        ArrowType::Float64 => {
            let values = array.as_primitive::<Float64Type>();
            Arc::new(arguments.each::<_, Float64Array>(|row| {
                let value = values.value(row);
                Ok(Some(float(value, format!("{value:e}"), places(row))))
            })?)
        }
        ArrowType::Decimal128(_, scale) => round_decimals(arguments, scale.cast_unsigned(), &places, even)?,
        _ => return Err(unexpected(array).into()),
    })
}

fn round_decimals(arguments: &Arguments<'_>, scale: u8, places: &dyn Fn(usize) -> i32, even: bool) -> Evaluated {
    let array = arguments.array(0)?;
    let (values, from) = (array.as_primitive::<Decimal128Type>(), i32::from(scale));
    let P::Decimal { precision, scale: to } = *arguments.result_type else { return Err(unexpected(array).into()) };
    let digits: Decimal128Array = arguments.each(|row| {
        let cut = from.saturating_sub(places(row));
        let value = match cut {
            ..=0 => values.value(row),
            1..=38 => nearest(values.value(row), 10_i128.pow(cut.unsigned_abs()), even),
            _ => 0,
        };
        let fitted = rescale(value, scale, precision, to);
        fitted.map(Some).ok_or_else(|| "the result has more digits than its decimal type".to_owned())
    })?;
    typed_decimal(digits, arguments.result_type)
}

/// A float rounded by its written digits, `d.ddde±x`.
fn round_spelled(spelled: &str, places: i32, even: bool) -> Option<f64> {
    let (mantissa, exponent) = spelled.split_once('e')?;
    let negative = mantissa.starts_with('-');
    let mantissa = mantissa.trim_start_matches('-');
    let (first, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let value: i128 = format!("{first}{fraction}").parse().ok()?;
    let scale = i32::try_from(fraction.len()).ok()? - exponent.parse::<i32>().ok()?;
    let cut = scale - places;
    let sign = if negative { "-" } else { "" };
    match cut {
        ..=0 => spelled.parse().ok(),
        1..=37 => format!("{sign}{}e{}", nearest(value, 10_i128.pow(cut.unsigned_abs()), even), -scale).parse().ok(),
        _ => format!("{sign}0").parse().ok(),
    }
    .map(|v: f64| if v == 0.0 { 0.0 } else { v })
}

fn remainder_type(types: &[P], _: Second<'_>) -> Result<P, String> {
    Ok(match types {
        [P::Decimal { precision: p, scale: s }, P::Decimal { precision: q, scale: t }] => {
            decimal_result(ArithmeticOp::Remainder, *p, *s, *q, *t)
        }
        _ => types.first().cloned().unwrap_or(P::Double),
    })
}

/// The remainder with the sign of the divisor.
fn pmod(arguments: &Arguments<'_>) -> Evaluated {
    let (left, right) = (arguments.array(0)?, arguments.array(1)?);
    const ZERO: &str = "division by zero";
    macro_rules! positive {
        ($type:ty) => {{
            let (l, r) = (left.as_primitive::<$type>(), right.as_primitive::<$type>());
            let rests: PrimitiveArray<$type> = each(&[left, right], arguments.rows, |row| {
                let (a, n) = (l.value(row), r.value(row));
                if n == 0 {
                    return Err(ZERO.to_owned());
                }
                let rest = a.wrapping_rem(n);
                Ok(Some(if rest < 0 { rest.wrapping_add(n).wrapping_rem(n) } else { rest }))
            })?;
            Arc::new(rests) as ArrayRef
        }};
    }
    Ok(match left.data_type() {
        ArrowType::Int8 => positive!(Int8Type),
        ArrowType::Int16 => positive!(Int16Type),
        ArrowType::Int32 => positive!(Int32Type),
        ArrowType::Int64 => positive!(Int64Type),
        ArrowType::Float32 => {
            let (l, r) = (left.as_primitive::<Float32Type>(), right.as_primitive::<Float32Type>());
            Arc::new(each::<_, PrimitiveArray<Float32Type>>(&[left, right], arguments.rows, |row| {
                let (a, n) = (l.value(row), r.value(row));
                let rest = a % n;
                if n == 0.0 { Err(ZERO.to_owned()) } else { Ok(Some(if rest < 0.0 { (rest + n) % n } else { rest })) }
            })?)
        }
        ArrowType::Float64 => {
            let (l, r) = (left.as_primitive::<Float64Type>(), right.as_primitive::<Float64Type>());
            Arc::new(each::<_, Float64Array>(&[left, right], arguments.rows, |row| {
                let (a, n) = (l.value(row), r.value(row));
                let rest = a % n;
                if n == 0.0 { Err(ZERO.to_owned()) } else { Ok(Some(if rest < 0.0 { (rest + n) % n } else { rest })) }
            })?)
        }
        ArrowType::Decimal128(_, s) => {
            let right = right.as_primitive_opt::<Decimal128Type>().ok_or_else(|| unexpected(right))?;
            let (s, t) = (s.cast_unsigned(), right.scale().cast_unsigned());
            let left = left.as_primitive::<Decimal128Type>();
            let rests: Decimal128Array = arguments.each(|row| {
                let dividend = DecimalValue { unscaled: left.value(row), scale: s };
                let divisor = DecimalValue { unscaled: right.value(row), scale: t };
                let rest = positive_remainder(dividend, divisor, arguments.result_type);
                rest.map(Some).map_err(str::to_owned)
            })?;
            return typed_decimal(rests, arguments.result_type);
        }
        _ => return Err(unexpected(left).into()),
    })
}

/// The greatest, or the least, of the values that are not null.
fn extreme(arguments: &Arguments<'_>, op: Op) -> Evaluated {
    let mut best = arguments.array(0)?.clone();
    for other in arguments.arrays.iter().skip(1) {
        let better = compare(other, op, &best)?;
        let taken = BooleanBuffer::collect_bool(arguments.rows, |row| {
            other.is_valid(row) && (best.is_null(row) || better.value(row))
        });
        if best.data_type() != &ArrowType::Null {
            best = zip(&BooleanArray::new(taken, None), other, &best)?;
        }
    }
    Ok(best)
}
