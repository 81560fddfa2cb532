//! Spark's ANSI coercion: which type two operands have in common, and the casts that bring them there.

use super::{BOOLEAN, Node, Typed, primitive, unfit};
use crate::error::Result;
use crate::expression::ast::Expression;
use crate::scalar::Scalar;
use crate::schema::{DataType, PrimitiveType as P};

/// Most digits of a decimal.
const MAX_PRECISION: u8 = 38;

/// Whole numbers and floats, narrowest first.
fn rank(of: &P) -> Option<usize> {
    [P::Byte, P::Short, P::Integer, P::Long, P::Float, P::Double].iter().position(|p| p == of)
}

pub(super) fn is_whole(of: &P) -> bool {
    matches!(of, P::Byte | P::Short | P::Integer | P::Long)
}

pub(super) fn is_number(of: &P) -> bool {
    is_whole(of) || matches!(of, P::Float | P::Double | P::Decimal { .. })
}

/// The decimal that holds every whole number of a type.
pub(crate) fn decimal_of(whole: &P) -> Option<P> {
    let precision = match whole {
        P::Byte => 3,
        P::Short => 5,
        P::Integer => 10,
        P::Long => 20,
        P::Decimal { .. } => return Some(whole.clone()),
        _ => return None,
    };
    Some(P::Decimal { precision, scale: 0 })
}

/// The smallest decimal that holds the values of two.
pub(super) fn wider_decimal(a: (u8, u8), b: (u8, u8)) -> P {
    let scale = a.1.max(b.1);
    let whole = (a.0 - a.1.min(a.0)).max(b.0 - b.1.min(b.0));
    P::Decimal { precision: (whole + scale).min(MAX_PRECISION), scale: scale.min(MAX_PRECISION) }
}

/// The type that values of two types are brought to.
pub(super) fn common(a: &DataType, b: &DataType) -> Option<DataType> {
    if a == b {
        return Some(a.clone());
    }
    let (Some(p), Some(q)) = (primitive(a), primitive(b)) else {
        return match (primitive(a), primitive(b)) {
            (Some(P::Void), _) => Some(b.clone()),
            (_, Some(P::Void)) => Some(a.clone()),
            _ => None,
        };
    };
    common_primitive(p, q).map(DataType::Primitive)
}

fn common_primitive(p: &P, q: &P) -> Option<P> {
    Some(match (p, q) {
        (P::Void, other) | (other, P::Void) => other.clone(),
        (P::Decimal { precision: p, scale: s }, P::Decimal { precision: q, scale: t }) => {
            wider_decimal((*p, *s), (*q, *t))
        }
        (P::Decimal { .. }, P::Float | P::Double) | (P::Float | P::Double, P::Decimal { .. }) => P::Double,
        (P::Decimal { .. }, whole) | (whole, P::Decimal { .. }) if is_whole(whole) => {
            let (p, q) = (decimal_of(p)?, decimal_of(q)?);
            return common_primitive(&p, &q);
        }
        (P::Date, P::Timestamp) | (P::Timestamp, P::Date) => P::Timestamp,
        (P::Date, P::TimestampNtz) | (P::TimestampNtz, P::Date) => P::TimestampNtz,
        (P::Timestamp, P::TimestampNtz) | (P::TimestampNtz, P::Timestamp) => P::Timestamp,
        (P::String, other) | (other, P::String) => match other {
            whole if is_whole(whole) => P::Long,
            P::Float | P::Double | P::Decimal { .. } => P::Double,
            P::Geometry { .. } | P::Geography { .. } => return None,
            other => other.clone(),
        },
        (p, q) => {
            let (wider, narrower) = if rank(p)? > rank(q)? { (p, q) } else { (q, p) };
            // A float does not hold every integer.
            if *wider == P::Float && is_whole(narrower) { P::Double } else { wider.clone() }
        }
    })
}

/// All in the type that they have in common.
pub(super) fn to_common(parts: Vec<Typed>, whole: &Expression) -> Result<Vec<Typed>> {
    let mut target = DataType::Primitive(P::Void);
    for part in &parts {
        target = common(&target, &part.data_type)
            .ok_or_else(|| unfit(whole, "no type holds the values of", &[&target, &part.data_type]))?;
    }
    Ok(parts.into_iter().map(|part| cast(part, &target)).collect())
}

/// A value in another type; nothing is done if it has that.
pub(crate) fn cast(operand: Typed, to: &DataType) -> Typed {
    if operand.data_type == *to {
        return operand;
    }
    if operand.as_literal() == Some(&Scalar::Null) {
        return Typed::new(Node::Literal(Scalar::Null), to.clone());
    }
    Typed::new(Node::Cast { operand, is_try: false }, to.clone())
}

/// Beside a decimal a whole number becomes one, a literal with as many digits as it has.
pub(super) fn to_decimal(whole: Typed) -> Typed {
    let digits = match whole.as_literal() {
        Some(Scalar::Byte(v)) => Some(i128::from(*v)),
        Some(Scalar::Short(v)) => Some(i128::from(*v)),
        Some(Scalar::Integer(v)) => Some(i128::from(*v)),
        Some(Scalar::Long(v)) => Some(i128::from(*v)),
        _ => None,
    };
    if let Some(value) = digits {
        let precision = value.unsigned_abs().checked_ilog10().map_or(1, |log| log as u8 + 1);
        return Typed::literal(Scalar::Decimal { value, precision, scale: 0 });
    }
    match primitive(&whole.data_type).and_then(decimal_of) {
        Some(decimal) => cast(whole, &DataType::Primitive(decimal)),
        None => whole,
    }
}

/// Two operands that are compared. Decimals of different scales stay as they are: they are compared exactly.
pub(super) fn comparable(left: Typed, right: Typed, whole: &Expression) -> Result<(Typed, Typed)> {
    let (left, right) = match (primitive(&left.data_type), primitive(&right.data_type)) {
        (Some(P::Decimal { .. }), Some(P::Decimal { .. })) => return Ok((left, right)),
        (Some(P::Decimal { .. }), Some(other)) if is_whole(other) => return Ok((left, to_decimal(right))),
        (Some(other), Some(P::Decimal { .. })) if is_whole(other) => return Ok((to_decimal(left), right)),
        _ => {
            let target = common(&left.data_type, &right.data_type)
                .ok_or_else(|| unfit(whole, "these types cannot be compared:", &[&left.data_type, &right.data_type]))?;
            (cast(left, &target), cast(right, &target))
        }
    };
    check_order(&left.data_type, whole)?;
    Ok((left, right))
}

/// Whether values of a type are ordered.
pub(super) fn check_order(data_type: &DataType, whole: &Expression) -> Result<()> {
    match data_type {
        DataType::Primitive(P::Geometry { .. } | P::Geography { .. })
        | DataType::Struct(_)
        | DataType::Array(_)
        | DataType::Map(_)
        | DataType::Variant
        | DataType::Foreign(_) => Err(unfit(whole, "values cannot be compared that are of type", &[data_type])),
        DataType::Primitive(_) => Ok(()),
    }
}

/// What must be TRUE, FALSE or NULL.
pub(super) fn condition(part: Typed, typed: &Expression) -> Result<Typed> {
    match primitive(&part.data_type) {
        Some(P::Boolean) => Ok(part),
        Some(P::Void) => Ok(cast(part, &BOOLEAN)),
        Some(P::String) if part.as_literal().is_some() => Ok(cast(part, &BOOLEAN)),
        _ => Err(unfit(typed, "a condition is needed, and this is of type", &[&part.data_type])),
    }
}

/// What must be a string: every other primitive type becomes one.
pub(super) fn text(part: Typed, whole: &Expression) -> Result<Typed> {
    match primitive(&part.data_type) {
        Some(P::Geometry { .. } | P::Geography { .. }) | None => {
            Err(unfit(whole, "a string is needed, and this is of type", &[&part.data_type]))
        }
        Some(_) => Ok(cast(part, &DataType::STRING)),
    }
}

/// CAST, TRY_CAST and `::`, where ANSI SQL has them.
pub(super) fn explicit(operand: Typed, to: &P, is_try: bool, whole: &Expression) -> Result<Typed> {
    let target = DataType::Primitive(to.clone());
    let allowed = primitive(&operand.data_type).is_some_and(|from| castable(from, to));
    if !allowed {
        return Err(unfit(whole, "no cast leads from one to the other:", &[&operand.data_type, &target]));
    }
    if operand.as_literal() == Some(&Scalar::Null) {
        return Ok(cast(operand, &target));
    }
    // Even to the type that it has: a cast is no literal, and types depend on that.
    Ok(Typed::new(Node::Cast { operand, is_try }, target))
}

fn castable(from: &P, to: &P) -> bool {
    let is_moment = |of: &P| matches!(of, P::Date | P::Timestamp | P::TimestampNtz);
    match (from, to) {
        (P::Geometry { .. } | P::Geography { .. }, _) | (_, P::Geometry { .. } | P::Geography { .. }) => false,
        (P::Void, _) | (_, P::String) => true,
        (from, to) if from == to => true,
        (P::String, to) => *to != P::Void,
        (P::Boolean, to) => is_number(to),
        (from, P::Boolean) => is_number(from),
        (from, P::Timestamp) if is_number(from) => true,
        (P::Timestamp, to) if is_number(to) => true,
        (from, to) => (is_number(from) && is_number(to)) || (is_moment(from) && is_moment(to)),
    }
}
