//! Conditions with expressions. Operands without columns are computed; if the condition is then one on columns and values,
//! it is bound as such. A condition on the date or the year of a column becomes a range of the column. Others are evaluated
//! and skip nothing.
//!
//! Proved by `expression::ranges_of_dates_and_years_are_exact`.

use super::ast::Predicate;
use super::bound::BoundPredicate;
use crate::error::{Error, Result};
use crate::expression::{BoundExpression, Column, Expression, Node, Op, Typed, first_day_of_year, hint};
use crate::scalar::{MICROS_PER_DAY, Scalar};
use crate::schema::{DataType, PrimitiveType, StructType};

/// Most values of IN that become a range each.
const MAX_RANGES: usize = 16;

/// A condition on expressions.
pub(super) fn bind(expression: &Expression, schema: &StructType) -> Result<BoundPredicate> {
    match plain(expression) {
        Some(plain) => plain.bind(schema),
        None => bind_expression(expression, schema),
    }
}

/// A condition that is bound as an expression even if it is on columns alone.
pub(super) fn bind_expression(expression: &Expression, schema: &StructType) -> Result<BoundPredicate> {
    let bound = expression.bind(schema)?;
    if !bound.is_deterministic() {
        return Err(Error::invalid(format!(
            "`{expression:#}` depends on the current time; write the date itself, as DATE '2020-12-31'"
        )));
    }
    match bound.data_type() {
        DataType::Primitive(PrimitiveType::Boolean) => convert(&bound.root, &bound.text),
        DataType::Primitive(PrimitiveType::Void) => Ok(BoundPredicate::Constant(None)),
        other => {
            let advice = match hint::or(expression) {
                "" => "; compare it with a value",
                or => or,
            };
            Err(Error::invalid(format!("`{expression:#}` of type {other} is not a condition{advice}")))
        }
    }
}

/// The condition with its constant sides computed, if it is then one on columns and values.
fn plain(expression: &Expression) -> Option<Predicate> {
    let mut folded = expression.clone();
    let fold = |side: &mut Expression| {
        if matches!(side, Expression::Literal(_) | Expression::Column(_)) {
            return;
        }
        // An error is left to the evaluation of rows, since there may be none.
        if let Ok(Some(value)) = side.constant() {
            *side = Expression::Literal(value);
        }
    };
    match &mut folded {
        Expression::Compare { left, right, .. } | Expression::NullSafeEqual { left, right } => {
            fold(left);
            fold(right);
        }
        Expression::Between { operand, low, high, .. } => [operand, low, high].into_iter().for_each(|side| fold(side)),
        Expression::In { operand, list, .. } => {
            fold(operand);
            list.iter_mut().for_each(fold);
        }
        Expression::IsNull { operand, .. } | Expression::Like { operand, .. } => fold(operand),
        Expression::IsTruth { operand, value, negated } => {
            let equal = Expression::NullSafeEqual {
                left: operand.clone(),
                right: Box::new(Expression::Literal(Scalar::Boolean(*value))),
            };
            folded = if *negated { Expression::Not(Box::new(equal)) } else { equal };
        }
        other => fold(other),
    }
    match Predicate::from(folded) {
        Predicate::Expression(_) => None,
        Predicate::Not(inner) if matches!(*inner, Predicate::Expression(_)) => None,
        plain => Some(plain),
    }
}

fn leaf(part: &Typed, text: &str) -> BoundPredicate {
    BoundPredicate::Expression(Box::new(BoundExpression { root: part.clone(), text: text.to_owned() }))
}

/// Splits a bound condition into conditions on columns, as far as possible.
fn convert(part: &Typed, text: &str) -> Result<BoundPredicate> {
    let all = |terms: &[Typed]| terms.iter().map(|term| convert(term, text)).collect::<Result<Vec<_>>>();
    Ok(match &*part.node {
        Node::Literal(Scalar::Boolean(value)) => BoundPredicate::Constant(Some(*value)),
        Node::Literal(Scalar::Null) => BoundPredicate::Constant(None),
        Node::And(terms) => BoundPredicate::all_of(all(terms)?),
        Node::Or(terms) => BoundPredicate::any_of(all(terms)?)?,
        Node::Not(inner) => match convert(inner, text)? {
            BoundPredicate::Expression(_) => leaf(part, text),
            other => BoundPredicate::Not(Box::new(other)),
        },
        Node::IsNull(inner) => match &*inner.node {
            Node::Column(column) if inner.data_type != DataType::Primitive(PrimitiveType::Void) => {
                BoundPredicate::IsNull(column.clone())
            }
            _ => leaf(part, text),
        },
        Node::Compare { left, op, right } => match (right.as_literal(), left.as_literal()) {
            (Some(value), None) => range(left, *op, value)?.unwrap_or_else(|| leaf(part, text)),
            (None, Some(value)) => range(right, op.flip(), value)?.unwrap_or_else(|| leaf(part, text)),
            _ => leaf(part, text),
        },
        Node::InSet { operand, values, has_null: false } if values.values().len() <= MAX_RANGES => {
            let one = |at: usize| match Scalar::from_array(values.values(), at) {
                Ok(value) => range(operand, Op::Eq, &value),
                Err(e) => Err(e),
            };
            let ranges: Option<Vec<_>> = (0..values.values().len()).map(one).collect::<Result<_>>()?;
            match ranges {
                Some(ranges) if !ranges.is_empty() => BoundPredicate::any_of(ranges)?,
                _ => leaf(part, text),
            }
        }
        _ => leaf(part, text),
    })
}

/// `operand op value` as a condition on the column of which the operand is the date or the year: a value of the operand
/// is an interval of the column's values.
fn range(operand: &Typed, op: Op, value: &Scalar) -> Result<Option<BoundPredicate>> {
    let Some((column, first, following)) = interval(operand, value) else { return Ok(None) };
    let compare = |op, value: &Scalar| BoundPredicate::Compare { column: column.clone(), op, value: value.clone() };
    Ok(Some(match op {
        Op::Eq => BoundPredicate::all_of(vec![compare(Op::Ge, &first), compare(Op::Lt, &following)]),
        Op::Ne => BoundPredicate::any_of(vec![compare(Op::Lt, &first), compare(Op::Ge, &following)])?,
        Op::Lt => compare(Op::Lt, &first),
        Op::Le => compare(Op::Lt, &following),
        Op::Gt => compare(Op::Ge, &following),
        Op::Ge => compare(Op::Ge, &first),
    }))
}

/// The column, its first value for which the operand equals `value`, and its first value for which the operand is greater.
fn interval<'a>(operand: &'a Typed, value: &Scalar) -> Option<(&'a Column, Scalar, Scalar)> {
    match (&*operand.node, value) {
        (Node::Call { function, arguments }, value) if function.name == "year" => {
            let year = match value {
                Scalar::Integer(year) => i64::from(*year),
                _ => return None,
            };
            let argument = arguments.first()?;
            let column = dated(argument)?;
            Some((column, start(column, first_day_of_year(year))?, start(column, first_day_of_year(year + 1))?))
        }
        // A wider year is compared with a wider number.
        (Node::Cast { operand, .. }, Scalar::Long(year))
            if operand.data_type == DataType::INTEGER && matches!(&*operand.node, Node::Call { .. }) =>
        {
            interval(operand, &Scalar::Integer(i32::try_from(*year).ok()?))
        }
        (Node::Cast { .. } | Node::Column(_), Scalar::Date(days)) => {
            let column = dated(operand)?;
            Some((column, start(column, (*days).into())?, start(column, i64::from(*days) + 1)?))
        }
        _ => None,
    }
}

/// The column of dates, or of timestamps that are cast to dates.
fn dated(part: &Typed) -> Option<&Column> {
    match &*part.node {
        Node::Column(column) if column.data_type == DataType::DATE => Some(column),
        Node::Cast { operand, .. } if part.data_type == DataType::DATE => match &*operand.node {
            Node::Column(column) => {
                let is_moment = matches!(
                    column.data_type,
                    DataType::Primitive(PrimitiveType::Date | PrimitiveType::Timestamp | PrimitiveType::TimestampNtz)
                );
                is_moment.then_some(column)
            }
            _ => None,
        },
        _ => None,
    }
}

/// The beginning of a day in a column's type, if there is one.
fn start(column: &Column, days: i64) -> Option<Scalar> {
    match column.data_type.as_primitive()? {
        PrimitiveType::Date => i32::try_from(days).ok().map(Scalar::Date),
        PrimitiveType::Timestamp => days.checked_mul(MICROS_PER_DAY).map(Scalar::Timestamp),
        PrimitiveType::TimestampNtz => days.checked_mul(MICROS_PER_DAY).map(Scalar::TimestampNtz),
        _ => None,
    }
}
