//! Terms of a predicate that are bound as expressions. Tests of a column, comparisons of two columns of one type, and
//! conditions on the date or the year of a column, which are ranges of the column, skip containers. Others are evaluated
//! and skip nothing.
//!
//! Proved by `expression::ranges_of_dates_and_years_are_exact`.

use super::bound::BoundPredicate;
use crate::error::{Error, Result};
use crate::expression::{BoundExpression, Column, Expression, Node, Op, Pattern, Typed, first_day_of_year, hint};
use crate::scalar::{MICROS_PER_DAY, Scalar};
use crate::schema::{DataType, PrimitiveType, StructType};

/// Most values of IN that become a range each.
const MAX_RANGES: usize = 16;

/// Binds an expression to the form that skipping understands, if there is one.
pub(super) fn bind(expression: &Expression, schema: &StructType) -> Result<BoundPredicate> {
    let bound = expression.bind(schema)?;
    if !bound.is_deterministic() {
        return Err(Error::invalid(format!(
            "`{expression:#}` depends on the current time; write the date itself, as DATE '2020-12-31'"
        )));
    }
    match (bound.data_type(), &*bound.root.node) {
        (DataType::Primitive(PrimitiveType::Boolean), _) => convert(&bound.root, &bound.text),
        (DataType::Primitive(PrimitiveType::Void), _) => Ok(BoundPredicate::Constant(None)),
        (other, Node::Column(column)) => {
            Err(Error::invalid(format!("column {column} of type {other} is not a condition; compare it with a value")))
        }
        (other, _) => {
            let advice = match hint::or(expression) {
                "" => "; compare it with a value",
                or => or,
            };
            Err(Error::invalid(format!("`{expression:#}` of type {other} is not a condition{advice}")))
        }
    }
}

fn leaf(part: &Typed, text: &str) -> BoundPredicate {
    BoundPredicate::Expression(Box::new(BoundExpression { root: part.clone(), text: text.to_owned() }))
}

/// The condition on columns that is the same, if there is one.
fn convert(part: &Typed, text: &str) -> Result<BoundPredicate> {
    Ok(match &*part.node {
        Node::Literal(Scalar::Boolean(value)) => BoundPredicate::Constant(Some(*value)),
        Node::Literal(Scalar::Null) => BoundPredicate::Constant(None),
        Node::Column(column) => {
            BoundPredicate::Compare { column: column.clone(), op: Op::Eq, value: Scalar::Boolean(true) }
        }
        Node::Not(inner) => match convert(inner, text)? {
            BoundPredicate::Expression(_) => leaf(part, text),
            other => other.negated(true),
        },
        Node::IsNull(inner) => match &*inner.node {
            Node::Column(column) => is_null(column.clone()),
            _ => leaf(part, text),
        },
        Node::Compare { left, op, right } => match (columns(left, right), left.as_literal(), right.as_literal()) {
            (Some((left, right)), ..) => BoundPredicate::CompareColumns { left, op: *op, right },
            (_, None, Some(value)) => range(left, *op, value)?.unwrap_or_else(|| leaf(part, text)),
            (_, Some(value), None) => range(right, op.flip(), value)?.unwrap_or_else(|| leaf(part, text)),
            _ => leaf(part, text),
        },
        Node::NullSafeEqual { left, right } => match columns(left, right) {
            Some((left, right)) => null_safe(left, right)?,
            None => leaf(part, text),
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
        Node::Like { operand, pattern } => match &*operand.node {
            Node::Column(column) => like(column.clone(), pattern.clone()),
            _ => leaf(part, text),
        },
        _ => leaf(part, text),
    })
}

pub(super) fn is_null(column: Column) -> BoundPredicate {
    match column.data_type {
        DataType::Primitive(PrimitiveType::Void) => BoundPredicate::Constant(Some(true)),
        _ => BoundPredicate::IsNull(column),
    }
}

/// Both sides, if they are columns of one type that has values.
fn columns(left: &Typed, right: &Typed) -> Option<(Column, Column)> {
    match (&*left.node, &*right.node) {
        (Node::Column(l), Node::Column(r)) if left.data_type == right.data_type => {
            (left.data_type != DataType::Primitive(PrimitiveType::Void)).then(|| (l.clone(), r.clone()))
        }
        _ => None,
    }
}

/// `left <=> right` as ANDs and ORs that are never NULL: if the comparison is NULL, a test beside it is FALSE.
fn null_safe(left: Column, right: Column) -> Result<BoundPredicate> {
    let [are_null, are_present] =
        [BoundPredicate::IsNull, BoundPredicate::IsNotNull].map(|test| vec![test(left.clone()), test(right.clone())]);
    let equal = [are_present, vec![BoundPredicate::CompareColumns { left, op: Op::Eq, right }]].concat();
    BoundPredicate::any_of(vec![BoundPredicate::all_of(are_null), BoundPredicate::all_of(equal)])
}

fn like(column: Column, pattern: Pattern) -> BoundPredicate {
    match pattern.exact() {
        Some(text) => BoundPredicate::Compare { value: Scalar::String(text.to_owned()), column, op: Op::Eq },
        None if pattern.is_any() => BoundPredicate::Fixed { column, value: true },
        None => BoundPredicate::Like { column, pattern },
    }
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
        (Node::Cast { .. }, Scalar::Date(days)) => {
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
