//! Arithmetic of decimals: exact in 256 bits, then rounded half up to the digits of the result.

use std::cmp::Ordering;

use arrow_buffer::i256;

use crate::expression::ast::ArithmeticOp;
use crate::schema::PrimitiveType;

const TEN: i256 = i256::from_i128(10);

fn power(exponent: u32) -> i256 {
    match 10_i128.checked_pow(exponent.min(38)) {
        Some(low) if exponent <= 38 => i256::from_i128(low),
        Some(low) => i256::from_i128(low).wrapping_mul(power(exponent - 38)),
        None => i256::ONE,
    }
}

/// How two decimals compare.
pub(crate) fn compare(a: i128, a_scale: u8, b: i128, b_scale: u8) -> Ordering {
    let scale = a_scale.max(b_scale);
    let widen = |value: i128, from: u8| i256::from_i128(value).wrapping_mul(power(u32::from(scale - from)));
    widen(a, a_scale).cmp(&widen(b, b_scale))
}

/// The quotient rounded half away from zero.
fn rounded(value: i256, by: i256) -> i256 {
    let (quotient, rest) = (value.wrapping_div(by), value.wrapping_rem(by));
    let twice = rest.wrapping_abs().wrapping_add(rest.wrapping_abs());
    if twice < by.wrapping_abs() {
        return quotient;
    }
    let away = if (value < i256::ZERO) == (by < i256::ZERO) { i256::ONE } else { i256::MINUS_ONE };
    quotient.wrapping_add(away)
}

/// Digits with `from` places after the point as digits with `to` places, rounded half up; `None` beyond the precision.
fn fitted(value: i256, from: u32, precision: u8, to: u32) -> Option<i128> {
    let value = if to >= from { value.checked_mul(power(to - from))? } else { rounded(value, power(from - to)) };
    checked(value.to_i128()?, precision)
}

/// The digits, if there are not too many.
pub(crate) fn checked(value: i128, precision: u8) -> Option<i128> {
    (value.unsigned_abs() < 10_u128.pow(u32::from(precision.min(38)))).then_some(value)
}

/// A decimal with another precision and scale, rounded half up; `None` beyond the precision.
pub(crate) fn rescale(value: i128, from: u8, precision: u8, to: u8) -> Option<i128> {
    if from == to {
        return checked(value, precision);
    }
    fitted(i256::from_i128(value), from.into(), precision, to.into())
}

/// A decimal: an unscaled value with `scale` digits after the point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecimalValue {
    pub(crate) unscaled: i128,
    pub(crate) scale: u8,
}

/// `a op b` as a decimal of the result's type; `Err(None)` is a division by zero, other errors are overflows.
pub(super) fn compute(
    left: DecimalValue,
    op: ArithmeticOp,
    right: DecimalValue,
    to: &PrimitiveType,
) -> Result<i128, &'static str> {
    let (precision, scale) = match to {
        PrimitiveType::Decimal { precision, scale } => (*precision, *scale),
        _ => (38, 0),
    };
    let (a, b) = (left.unscaled, right.unscaled);
    let (s, t) = (u32::from(left.scale), u32::from(right.scale));
    let shared = s.max(t);
    let widen = |value: i128, from: u32| i256::from_i128(value).wrapping_mul(power(shared - from));
    let overflow = "the result has more digits than its decimal type";
    if b == 0 && matches!(op, ArithmeticOp::Divide | ArithmeticOp::Remainder | ArithmeticOp::Div) {
        return Err("division by zero");
    }
    let fit = |value: i256, from: u32| fitted(value, from, precision, scale.into()).ok_or(overflow);
    match op {
        ArithmeticOp::Add => fit(widen(a, s).wrapping_add(widen(b, t)), shared),
        ArithmeticOp::Subtract => fit(widen(a, s).wrapping_sub(widen(b, t)), shared),
        ArithmeticOp::Multiply => fit(i256::from_i128(a).wrapping_mul(i256::from_i128(b)), s + t),
        ArithmeticOp::Remainder => fit(widen(a, s).wrapping_rem(widen(b, t)), shared),
        ArithmeticOp::Div => widen(a, s).wrapping_div(widen(b, t)).to_i128().ok_or("the quotient is beyond a long"),
        ArithmeticOp::Divide => quotient(left, right, precision, scale.into()).ok_or(overflow),
        ArithmeticOp::Concat => Err("decimals are not strings"),
    }
}

/// The remainder of a division, not negative if the divisor is not, as a decimal of the result's type.
pub(crate) fn positive_remainder(
    dividend: DecimalValue,
    divisor: DecimalValue,
    to: &PrimitiveType,
) -> Result<i128, &'static str> {
    let PrimitiveType::Decimal { precision, scale } = to else { return Err("a decimal gives another type") };
    if divisor.unscaled == 0 {
        return Err("division by zero");
    }
    let shared = dividend.scale.max(divisor.scale);
    let widen = |value: i128, from: u8| i256::from_i128(value).wrapping_mul(power(u32::from(shared - from)));
    let (a, n) = (widen(dividend.unscaled, dividend.scale), widen(divisor.unscaled, divisor.scale));
    let rest = a.wrapping_rem(n);
    let rest = if rest < i256::ZERO { rest.wrapping_add(n).wrapping_rem(n) } else { rest };
    fitted(rest, shared.into(), *precision, (*scale).into()).ok_or("the result has more digits than its decimal type")
}

/// The quotient with `scale` digits after the point, computed digit by digit if the dividend does not fit 256 bits.
fn quotient(left: DecimalValue, right: DecimalValue, precision: u8, scale: u32) -> Option<i128> {
    let (a, s, b, t) = (left.unscaled, u32::from(left.scale), right.unscaled, u32::from(right.scale));
    let (dividend, divisor) = (i256::from_i128(a), i256::from_i128(b));
    // a / 10^s / (b / 10^t) * 10^scale
    let up = scale + t;
    if up <= s {
        let divisor = divisor.checked_mul(power(s - up));
        return match divisor {
            Some(divisor) => checked(rounded(dividend, divisor).to_i128()?, precision),
            None => Some(0),
        };
    }
    let up = up - s;
    if let Some(scaled) = (up <= 76).then(|| dividend.checked_mul(power(up))).flatten() {
        return checked(rounded(scaled, divisor).to_i128()?, precision);
    }
    let negative = (a < 0) != (b < 0);
    let divisor = divisor.wrapping_abs();
    let (mut quotient, mut rest) =
        (dividend.wrapping_abs().wrapping_div(divisor), dividend.wrapping_abs().wrapping_rem(divisor));
    for _ in 0..up {
        rest = rest.wrapping_mul(TEN);
        quotient = quotient.checked_mul(TEN)?.wrapping_add(rest.wrapping_div(divisor));
        rest = rest.wrapping_rem(divisor);
    }
    if rest.wrapping_add(rest) >= divisor {
        quotient = quotient.wrapping_add(i256::ONE);
    }
    let value = checked(quotient.to_i128()?, precision)?;
    Some(if negative { -value } else { value })
}
