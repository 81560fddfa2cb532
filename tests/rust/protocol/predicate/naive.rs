//! A simple, slow evaluation of a typed predicate, row by row: the oracle for the real one.

use std::cmp::Ordering;

use deltic_protocol::expression::{Expression, Name, Op};
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::PrimitiveType;

/// A value, and its column's type unless it is a literal.
type Typed = (Scalar, Option<PrimitiveType>);

pub(crate) fn evaluate(condition: &Expression, row: &dyn Fn(&Name) -> (Scalar, PrimitiveType)) -> Option<bool> {
    let side = |operand: &Expression| -> Typed {
        match operand {
            Expression::Literal(value) => (value.clone(), None),
            Expression::Column(name) => {
                let (value, data_type) = row(name);
                (value, Some(data_type))
            }
            other => panic!("{other}: only columns and values are generated"),
        }
    };
    let flip = |result: Option<bool>, negated: bool| result.map(|value| value != negated);
    match condition {
        Expression::And(terms) => all(terms.iter().map(|term| evaluate(term, row))),
        Expression::Or(terms) => all(terms.iter().map(|term| evaluate(term, row).map(|v| !v))).map(|v| !v),
        Expression::Not(inner) => evaluate(inner, row).map(|v| !v),
        Expression::Compare { left, op, right } => compare(&side(left), *op, &side(right)),
        Expression::NullSafeEqual { left, right } => {
            let (left, right) = (side(left), side(right));
            Some(match (left.0 == Scalar::Null, right.0 == Scalar::Null) {
                (true, true) => true,
                (false, false) => compare(&left, Op::Eq, &right).unwrap(),
                _ => false,
            })
        }
        Expression::IsNull { operand, negated } => Some((side(operand).0 == Scalar::Null) != *negated),
        Expression::IsTruth { operand, value, negated } => {
            Some((side(operand).0 == Scalar::Boolean(*value)) != *negated)
        }
        Expression::In { operand, list, negated } => {
            let value = side(operand);
            let equal = list.iter().map(|item| compare(&value, Op::Eq, &side(item)));
            flip(all(equal.map(|v| v.map(|v| !v))).map(|v| !v), *negated)
        }
        Expression::Between { operand, low, high, negated } => {
            let value = side(operand);
            let limits = [compare(&value, Op::Ge, &side(low)), compare(&value, Op::Le, &side(high))];
            flip(all(limits.into_iter()), *negated)
        }
        Expression::Like { operand, pattern, escape, negated, .. } => match side(operand).0 {
            Scalar::String(text) => {
                let (text, pattern): (Vec<char>, Vec<char>) = (text.chars().collect(), pattern.chars().collect());
                Some(like(&text, &pattern, escape.unwrap_or('\\')) != *negated)
            }
            _ => None,
        },
        operand => match side(operand).0 {
            Scalar::Boolean(value) => Some(value),
            _ => None,
        },
    }
}

fn all(terms: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let terms: Vec<_> = terms.collect();
    if terms.contains(&Some(false)) {
        Some(false)
    } else if terms.contains(&None) {
        None
    } else {
        Some(true)
    }
}

fn like(text: &[char], pattern: &[char], escape: char) -> bool {
    match pattern {
        [] => text.is_empty(),
        [first, literal, rest @ ..] if *first == escape => {
            text.first() == Some(literal) && like(&text[1..], rest, escape)
        }
        ['%', rest @ ..] => (0..=text.len()).any(|skipped| like(&text[skipped..], rest, escape)),
        ['_', rest @ ..] => !text.is_empty() && like(&text[1..], rest, escape),
        [literal, rest @ ..] => text.first() == Some(literal) && like(&text[1..], rest, escape),
    }
}

fn compare(left: &Typed, op: Op, right: &Typed) -> Option<bool> {
    if left.0 == Scalar::Null || right.0 == Scalar::Null {
        return None;
    }
    let ordering = match (&left.1, &right.1) {
        (Some(column), None) => order(&left.0, column, &right.0),
        (None, Some(column)) => order(&right.0, column, &left.0).reverse(),
        (Some(column), Some(_)) => order(&left.0, column, &right.0),
        (None, None) => panic!("constants are not generated"),
    };
    Some(op.holds(ordering))
}

/// Compares a value of a column with another value.
fn order(value: &Scalar, column: &PrimitiveType, other: &Scalar) -> Ordering {
    match column {
        PrimitiveType::Float | PrimitiveType::Double => floats(to_double(value), to_double(other)),
        PrimitiveType::Date | PrimitiveType::Timestamp | PrimitiveType::TimestampNtz => {
            micros(value, column).cmp(&micros(other, column))
        }
        PrimitiveType::String | PrimitiveType::Binary | PrimitiveType::Boolean => bytes(value).cmp(&bytes(other)),
        _ => match to_float(other) {
            Some(double) if double.is_nan() || double == f64::INFINITY => Ordering::Less,
            Some(double) if double == f64::NEG_INFINITY => Ordering::Greater,
            // Integers are compared with the exact value of a float, decimals with its shortest digits.
            Some(double) if !matches!(column, PrimitiveType::Decimal { .. }) => {
                let whole: i128 = value.to_string().parse().unwrap();
                let floor = double.floor();
                whole.cmp(&(floor as i128)).then(if floor < double { Ordering::Less } else { Ordering::Equal })
            }
            Some(double) => {
                let shortest = if let Scalar::Float(float) = other { float.to_string() } else { double.to_string() };
                decimals(&value.to_string(), &shortest)
            }
            None => decimals(&value.to_string(), &other.to_string()),
        },
    }
}

fn floats(a: f64, b: f64) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => a.partial_cmp(&b).unwrap(),
    }
}

fn to_float(value: &Scalar) -> Option<f64> {
    match value {
        Scalar::Float(v) => Some(f64::from(*v)),
        Scalar::Double(v) => Some(*v),
        _ => None,
    }
}

fn to_double(value: &Scalar) -> f64 {
    to_float(value).unwrap_or_else(|| value.to_string().parse().unwrap())
}

fn micros(value: &Scalar, column: &PrimitiveType) -> i128 {
    let day = 86_400_000_000;
    match value {
        Scalar::Date(days) => i128::from(*days) * day,
        Scalar::Timestamp(micros) | Scalar::TimestampNtz(micros) => i128::from(*micros),
        Scalar::String(text) => micros(&Scalar::parse(text, column).unwrap(), column),
        other => panic!("{other}"),
    }
}

fn bytes(value: &Scalar) -> Vec<u8> {
    match value {
        Scalar::String(text) => text.as_bytes().to_vec(),
        Scalar::Binary(bytes) => bytes.clone(),
        Scalar::Boolean(value) => vec![u8::from(*value)],
        other => panic!("{other}"),
    }
}

/// Compares two numbers in plain decimal notation of any length.
fn decimals(a: &str, b: &str) -> Ordering {
    let split = |text: &str| {
        let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let digits = format!("{whole:0>400}{fraction:0<400}");
        let negative = negative && digits.bytes().any(|b| b != b'0');
        (negative, digits)
    };
    match (split(a), split(b)) {
        ((false, a), (false, b)) => a.cmp(&b),
        ((true, a), (true, b)) => b.cmp(&a),
        ((true, _), (false, _)) => Ordering::Less,
        ((false, _), (true, _)) => Ordering::Greater,
    }
}
