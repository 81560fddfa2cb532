//! The few forms that others are reduced to: comparisons, IN, CASE and tests of NULL.

use super::coerce;
use crate::error::{Error, Result};
use crate::expression::ast::{Expression, Op};
use crate::expression::bound::{Node, Typed};
use crate::expression::set;
use crate::expression::types::primitive;
use crate::scalar::Scalar;
use crate::schema::PrimitiveType;

/// The condition, or its opposite.
pub(super) fn negate(condition: Typed, negated: bool) -> Typed {
    if negated { Typed::boolean(Node::Not(condition)) } else { condition }
}

/// Most parts of a condition in which operands stand several times.
const MAX_PARTS: usize = 20_000;

/// Refuses what has grown too large, since BETWEEN, CASE and NULLIF write their operands several times.
pub(super) fn limited(part: Typed) -> Result<Typed> {
    check_copies(&part, 1)?;
    Ok(part)
}

/// Refuses an operand that would be written so often that the whole grows too large.
pub(super) fn check_copies(part: &Typed, copies: usize) -> Result<()> {
    let mut parts = 0_usize;
    part.visit(&mut |_| parts += 1);
    if parts == 1 || parts.saturating_mul(copies) <= MAX_PARTS {
        return Ok(());
    }
    Err(Error::invalid(format!("BETWEEN, CASE and NULLIF inside of each other make more than {MAX_PARTS} conditions")))
}

/// Whether a value is NULL.
pub(super) fn is_null(operand: Typed) -> Typed {
    Typed::boolean(Node::IsNull(operand))
}

/// `left op right`, in the type that both have in common.
pub(super) fn compare(left: Typed, op: Op, right: Typed, whole: &Expression) -> Result<Typed> {
    let (left, right) = coerce::comparable(left, right, whole)?;
    Ok(Typed::boolean(Node::Compare { left, op, right }))
}

/// Each is brought to the type that all have in common, as Spark does it.
pub(super) fn is_in(operand: Typed, list: Vec<Typed>, whole: &Expression) -> Result<Typed> {
    let of_one_type = list.iter().all(|item| item.data_type == operand.data_type);
    let (operand, list) = if of_one_type {
        (operand, list)
    } else {
        let mut all = coerce::to_common([vec![operand], list].concat(), whole)?.into_iter();
        let Some(operand) = all.next() else { return Err(Error::internal("IN without an operand")) };
        (operand, all.collect())
    };
    coerce::check_order(&operand.data_type, whole)?;
    let list: Vec<Typed> = list.into_iter().map(Typed::folded).collect();
    let literals: Option<Vec<Scalar>> = list.iter().map(|item| item.as_literal().cloned()).collect();
    let node = match (literals, primitive(&operand.data_type)) {
        (Some(literals), Some(of)) if *of != PrimitiveType::Void => {
            let has_null = literals.contains(&Scalar::Null);
            let present = literals.into_iter().filter(|value| *value != Scalar::Null).collect();
            Node::InSet { values: set::ValueSet::new(present, of)?, operand, has_null }
        }
        _ => Node::In { operand, list },
    };
    Ok(Typed::boolean(node))
}

/// CASE whose WHENs are conditions.
pub(super) fn case(branches: Vec<(Typed, Typed)>, otherwise: Option<Typed>, whole: &Expression) -> Result<Typed> {
    let (conditions, mut values): (Vec<_>, Vec<_>) = branches.into_iter().unzip();
    let otherwise = otherwise.unwrap_or_else(|| Typed::literal(Scalar::Null));
    values.push(otherwise);
    let mut values = coerce::to_common(values, whole)?;
    let Some(otherwise) = values.pop() else { return Err(Error::internal("CASE without a branch")) };
    let data_type = otherwise.data_type.clone();
    let branches = conditions.into_iter().zip(values).collect();
    Ok(Typed::new(Node::Case { branches, otherwise }, data_type))
}
