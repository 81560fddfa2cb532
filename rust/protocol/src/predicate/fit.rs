//! Converts a literal to a column's type without changing the meaning of a comparison with it.
//!
//! A literal that the type cannot hold (5.5 for an integer, 300 for a byte) is in a gap between two values of the type,
//! or beyond all of them; then the column is compared with a neighbour. Integers, decimals, dates and timestamps compare
//! exactly. A double column compares with the nearest double of the literal, and a float column is compared as double,
//! both as Spark does it.

use crate::expression::{Expression, hint};
use crate::scalar::{MICROS_PER_DAY, Scalar, parse_timestamp, parse_timestamp_ntz};
use crate::schema::PrimitiveType;

/// Where a literal lies among the values of a type.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fit {
    /// It is one of them.
    Exact(Scalar),
    /// It is between two of them, or before the first or after the last.
    Gap {
        /// The greatest value less than it.
        below: Option<Scalar>,
        /// The smallest value greater than it.
        above: Option<Scalar>,
    },
}

/// Where `literal`, not null, lies among the values of `target`. `None` if the two are not comparable.
pub(super) fn fit(literal: &Scalar, target: &PrimitiveType) -> Option<Fit> {
    use PrimitiveType as P;
    Some(match target {
        P::Byte => whole(literal, i8::MIN.into(), i8::MAX.into(), |v| Scalar::Byte(v as i8))?,
        P::Short => whole(literal, i16::MIN.into(), i16::MAX.into(), |v| Scalar::Short(v as i16))?,
        P::Integer => whole(literal, i32::MIN.into(), i32::MAX.into(), |v| Scalar::Integer(v as i32))?,
        P::Long => whole(literal, i64::MIN.into(), i64::MAX.into(), |v| Scalar::Long(v as i64))?,
        P::Decimal { precision, scale } => {
            let most = 10_i128.checked_pow((*precision).into())? - 1;
            let (floor, exact) = decimal_digits(literal)?.floor((*scale).into());
            place(floor, exact, -most, most, |value| Scalar::Decimal { value, precision: *precision, scale: *scale })
        }
        P::Double => Fit::Exact(Scalar::Double(to_double(literal)?)),
        P::Float => float(to_double(literal)?),
        P::Date => {
            let micros = match literal {
                Scalar::Date(_) => return Some(Fit::Exact(literal.clone())),
                Scalar::String(text) => return Scalar::parse(text.trim(), target).map(Fit::Exact),
                Scalar::Timestamp(micros) | Scalar::TimestampNtz(micros) => *micros,
                _ => return None,
            };
            let (day, rest) = (micros.div_euclid(MICROS_PER_DAY), micros.rem_euclid(MICROS_PER_DAY));
            place(day.into(), rest == 0, i32::MIN.into(), i32::MAX.into(), |v| Scalar::Date(v as i32))
        }
        P::Timestamp => match literal {
            Scalar::Timestamp(_) => Fit::Exact(literal.clone()),
            Scalar::String(text) => Fit::Exact(Scalar::Timestamp(parse_timestamp(text)?)),
            Scalar::Date(days) => midnight(*days, Scalar::Timestamp),
            _ => return None,
        },
        P::TimestampNtz => match literal {
            Scalar::TimestampNtz(_) => Fit::Exact(literal.clone()),
            Scalar::String(text) => Fit::Exact(Scalar::TimestampNtz(parse_timestamp_ntz(text)?)),
            Scalar::Date(days) => midnight(*days, Scalar::TimestampNtz),
            _ => return None,
        },
        P::String => matches!(literal, Scalar::String(_)).then(|| Fit::Exact(literal.clone()))?,
        P::Binary => matches!(literal, Scalar::Binary(_)).then(|| Fit::Exact(literal.clone()))?,
        P::Boolean => matches!(literal, Scalar::Boolean(_)).then(|| Fit::Exact(literal.clone()))?,
        P::Void | P::Geometry { .. } | P::Geography { .. } => return None,
    })
}

/// The literal as it is written in a filter; a whole number beside a column needs no suffix.
pub(super) fn shown(literal: &Scalar) -> String {
    match literal {
        Scalar::Byte(_) | Scalar::Short(_) | Scalar::Long(_) | Scalar::Decimal { .. } => literal.to_string(),
        other => format!("{:#}", Expression::Literal(other.clone())),
    }
}

/// What to write instead of `literal`, which does not compare with `target`.
pub(super) fn advice(literal: &Scalar, target: &PrimitiveType) -> String {
    use PrimitiveType as P;
    let fixed = match (target, literal) {
        (P::Float | P::Double, Scalar::String(text)) if special(text).is_some() => {
            return format!("write DOUBLE '{}'", special(text).unwrap_or_default());
        }
        (P::Byte | P::Short | P::Integer | P::Long | P::Decimal { .. }, Scalar::String(text))
            if special(text).is_some() =>
        {
            "no value of the type is NaN or infinite"
        }
        (
            P::Byte | P::Short | P::Integer | P::Long | P::Float | P::Double | P::Decimal { .. },
            Scalar::String(text),
        ) if Scalar::parse(text.trim(), &P::Double).is_some() => {
            return format!("write the number without quotes: {}", text.trim());
        }
        (
            P::String,
            Scalar::Byte(_)
            | Scalar::Short(_)
            | Scalar::Integer(_)
            | Scalar::Long(_)
            | Scalar::Decimal { .. }
            | Scalar::Boolean(_),
        ) => return format!("write a string in single quotes: '{}'", shown(literal)),
        (P::Byte | P::Short | P::Integer | P::Long | P::Float | P::Double | P::Decimal { .. }, _) => {
            "write a number, without quotes"
        }
        (P::String, _) => "write a string in single quotes",
        (P::Binary, _) => "write bytes as X'0aff'",
        (P::Boolean, _) => "write TRUE or FALSE",
        (P::Date | P::Timestamp | P::TimestampNtz, Scalar::String(text))
            if hint::date(text).is_some_and(|date| Scalar::parse(date, &P::Date).is_none()) =>
        {
            "there is no such date"
        }
        (P::Date, _) => "write DATE '2020-12-31'",
        (P::Timestamp, _) => "write TIMESTAMP '2020-12-31 23:59:59' (in UTC, or with an offset such as +01:00)",
        (P::TimestampNtz, _) => "write TIMESTAMP_NTZ '2020-12-31 23:59:59'",
        (P::Void | P::Geometry { .. } | P::Geography { .. }, _) => "only IS NULL and IS NOT NULL work on it",
    };
    fixed.to_owned()
}

/// A float that is not written as digits: NaN or an infinity.
fn special(text: &str) -> Option<&'static str> {
    match text.trim().to_ascii_lowercase().as_str() {
        "nan" | "+nan" | "-nan" => Some("NaN"),
        "inf" | "+inf" | "infinity" | "+infinity" => Some("Infinity"),
        "-inf" | "-infinity" => Some("-Infinity"),
        _ => None,
    }
}

/// `value * 10^-scale`.
struct Digits {
    value: i128,
    scale: i32,
}

impl Digits {
    /// The greatest multiple of `10^-scale` that is not greater than the number, as digits, and whether it is equal. Beyond
    /// 128 bits it saturates, at a number that is beyond the range of every type.
    fn floor(&self, scale: i32) -> (i128, bool) {
        let shift = i64::from(scale) - i64::from(self.scale);
        let power = u32::try_from(shift.abs()).ok().and_then(|shift| 10_i128.checked_pow(shift));
        match power {
            _ if self.value == 0 => (0, true),
            Some(power) if shift >= 0 => match self.value.checked_mul(power) {
                Some(value) => (value, true),
                None => (beyond(self.value > 0), false),
            },
            None if shift >= 0 => (beyond(self.value > 0), false),
            Some(power) => (self.value.div_euclid(power), self.value.rem_euclid(power) == 0),
            None => (if self.value < 0 { -1 } else { 0 }, false),
        }
    }
}

fn beyond(positive: bool) -> i128 {
    if positive { i128::MAX } else { i128::MIN }
}

fn place(floor: i128, exact: bool, least: i128, most: i128, make: impl Fn(i128) -> Scalar) -> Fit {
    if floor < least {
        Fit::Gap { below: None, above: Some(make(least)) }
    } else if floor > most || (floor == most && !exact) {
        Fit::Gap { below: Some(make(most)), above: None }
    } else if exact {
        Fit::Exact(make(floor))
    } else {
        Fit::Gap { below: Some(make(floor)), above: Some(make(floor + 1)) }
    }
}

fn whole(literal: &Scalar, least: i128, most: i128, make: impl Fn(i128) -> Scalar) -> Option<Fit> {
    let (floor, exact) = match float_value(literal) {
        Some(v) if v.is_nan() => (i128::MAX, false),
        // The cast saturates, far beyond 64 bits.
        Some(v) => (v.floor() as i128, v.fract() == 0.0),
        None => decimal_digits(literal)?.floor(0),
    };
    Some(place(floor, exact, least, most, make))
}

fn float_value(literal: &Scalar) -> Option<f64> {
    match literal {
        Scalar::Float(v) => Some(f64::from(*v)),
        Scalar::Double(v) => Some(*v),
        _ => None,
    }
}

/// The digits of a number; of a float those of its shortest spelling, so that 1e-1 is one tenth.
fn decimal_digits(literal: &Scalar) -> Option<Digits> {
    let spelled = match literal {
        Scalar::Byte(v) => return Some(Digits { value: (*v).into(), scale: 0 }),
        Scalar::Short(v) => return Some(Digits { value: (*v).into(), scale: 0 }),
        Scalar::Integer(v) => return Some(Digits { value: (*v).into(), scale: 0 }),
        Scalar::Long(v) => return Some(Digits { value: (*v).into(), scale: 0 }),
        Scalar::Decimal { value, scale, .. } => return Some(Digits { value: *value, scale: (*scale).into() }),
        Scalar::Float(v) if v.is_finite() => format!("{v:e}"),
        Scalar::Double(v) if v.is_finite() => format!("{v:e}"),
        // NaN is greater than everything, as is infinity.
        Scalar::Float(_) | Scalar::Double(_) => {
            let negative = float_value(literal) == Some(f64::NEG_INFINITY);
            return Some(Digits { value: beyond(!negative), scale: -1 });
        }
        Scalar::Null
        | Scalar::Boolean(_)
        | Scalar::String(_)
        | Scalar::Binary(_)
        | Scalar::Date(_)
        | Scalar::Timestamp(_)
        | Scalar::TimestampNtz(_) => return None,
    };
    let (mantissa, exponent) = spelled.split_once('e')?;
    let (first, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let value = format!("{first}{fraction}").parse().ok()?;
    Some(Digits { value, scale: i32::try_from(fraction.len()).ok()? - exponent.parse::<i32>().ok()? })
}

/// The nearest double.
fn to_double(literal: &Scalar) -> Option<f64> {
    if let Some(value) = float_value(literal) {
        return Some(value);
    }
    let Digits { value, scale } = decimal_digits(literal)?;
    format!("{value}e{}", -scale).parse().ok()
}

fn float(value: f64) -> Fit {
    let nearest = value as f32;
    if f64::from(nearest) == value || value.is_nan() {
        return Fit::Exact(Scalar::Float(nearest));
    }
    let (below, above) =
        if f64::from(nearest) < value { (nearest, nearest.next_up()) } else { (nearest.next_down(), nearest) };
    Fit::Gap { below: Some(Scalar::Float(below)), above: Some(Scalar::Float(above)) }
}

fn midnight(days: i32, make: impl Fn(i64) -> Scalar) -> Fit {
    let micros = i128::from(days) * i128::from(MICROS_PER_DAY);
    place(micros, true, i64::MIN.into(), i64::MAX.into(), |v| make(v as i64))
}
