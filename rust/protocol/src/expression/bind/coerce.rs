//! Spark's ANSI coercion: which type two operands have in common, and the casts that bring them there.

use crate::error::{Error, Result};
use crate::expression::ast::Expression;
use crate::expression::bound::{Node, Typed};
use crate::expression::parse::hint;
use crate::expression::types::{castable, common, decimal_of, is_whole, primitive};
use crate::scalar::Scalar;
use crate::schema::{DataType, PrimitiveType as P};

/// Casts all parts to their common type.
pub(super) fn to_common(parts: Vec<Typed>, whole: &Expression) -> Result<Vec<Typed>> {
    let mut target = DataType::Primitive(P::Void);
    for part in &parts {
        target = common(&target, &part.data_type)
            .ok_or_else(|| unfit(whole, "no type holds the values of", &[&target, &part.data_type]))?;
    }
    Ok(parts.into_iter().map(|part| cast(part, &target)).collect())
}

/// Casts a value to a type, unless it has that type.
pub(crate) fn cast(operand: Typed, to: &DataType) -> Typed {
    if operand.data_type == *to {
        return operand;
    }
    if operand.as_literal() == Some(&Scalar::Null) {
        return Typed::new(Node::Literal(Scalar::Null), to.clone());
    }
    Typed::new(Node::Cast { operand, is_try: false }, to.clone())
}

/// Beside a decimal a whole number becomes a decimal; a literal gets as many digits as it has.
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

/// Two operands that are compared. Decimals of different scales stay as they are, for they are compared exactly, unless
/// no decimal holds both.
pub(super) fn comparable(left: Typed, right: Typed, whole: &Expression) -> Result<(Typed, Typed)> {
    let (left, right) = match (primitive(&left.data_type), primitive(&right.data_type)) {
        (Some(P::Decimal { .. }), Some(P::Decimal { .. })) => return Ok(comparable_decimals(left, right)),
        (Some(P::Decimal { .. }), Some(other)) if is_whole(other) => {
            return Ok(comparable_decimals(left, to_decimal(right)));
        }
        (Some(other), Some(P::Decimal { .. })) if is_whole(other) => {
            return Ok(comparable_decimals(to_decimal(left), right));
        }
        _ => {
            let target = common(&left.data_type, &right.data_type).ok_or_else(|| {
                let error = unfit(whole, "these types cannot be compared:", &[&left.data_type, &right.data_type]);
                Error::new(error.kind().clone(), format!("{}{}", error.message(), hint::or(whole)))
            })?;
            (cast(left, &target), cast(right, &target))
        }
    };
    check_order(&left.data_type, whole)?;
    Ok((left, right))
}

fn comparable_decimals(left: Typed, right: Typed) -> (Typed, Typed) {
    let scale = |of: &DataType| match primitive(of) {
        Some(P::Decimal { scale, .. }) => *scale,
        _ => 0,
    };
    match common(&left.data_type, &right.data_type) {
        Some(target) if scale(&target) < scale(&left.data_type).max(scale(&right.data_type)) => {
            (cast(left, &target), cast(right, &target))
        }
        _ => (left, right),
    }
}

/// Two decimals in a common type, in which they are compared exactly.
pub(crate) fn of_one_decimal(left: &Typed, right: &Typed) -> Option<(Typed, Typed)> {
    let is_decimal = |of: &Typed| matches!(primitive(&of.data_type), Some(P::Decimal { .. }));
    let target = common(&left.data_type, &right.data_type).filter(|_| is_decimal(left) && is_decimal(right))?;
    Some((cast(left.clone(), &target), cast(right.clone(), &target)))
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

/// A part that must be TRUE, FALSE or NULL.
pub(super) fn condition(part: Typed, typed: &Expression) -> Result<Typed> {
    match primitive(&part.data_type) {
        Some(P::Boolean) => Ok(part),
        Some(P::Void) => Ok(cast(part, &DataType::BOOLEAN)),
        Some(P::String) if part.as_literal().is_some() => Ok(cast(part, &DataType::BOOLEAN)),
        _ => Err(unfit(typed, "a condition is needed, and this is of type", &[&part.data_type])),
    }
}

/// A part that must be a string: other primitive types are cast.
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
    // Even a cast to the same type is kept: a cast is not a literal, and coercion treats literals differently.
    Ok(Typed::new(Node::Cast { operand, is_try }, target))
}

/// Refuses operands of these types.
pub(super) fn unfit(whole: &Expression, what: &str, types: &[&DataType]) -> Error {
    let types: Vec<String> = types.iter().map(|t| t.to_string()).collect();
    Error::invalid(format!("`{whole:#}`: {what} {}", types.join(" and ")))
}
