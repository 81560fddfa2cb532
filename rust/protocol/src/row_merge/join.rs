//! The condition of a merge, split into equalities of the two sides, conditions on the target alone, and the rest.
//!
//! Invariant: a pair of rows makes the condition TRUE exactly if its keys are equal (with `<=>`, NULL equals NULL)
//! and the conditions on the target and the rest are TRUE (`row_merge::parts_of_a_condition_equal_the_whole`).

use std::cmp::Ordering;

use arrow_array::{Array, ArrayRef};

use super::sides::{Sides, VisibleSides};
use crate::error::Result;
use crate::expression::{BoundExpression, Expression, Name, Node, Op, Typed, of_one_decimal, parse_value};
use crate::predicate;
use crate::scalar::Scalar;
use crate::schema::{DataType, PrimitiveType, StructType};

/// Most values of a key that a filter lists one by one.
const MAX_NAMED: usize = 200;

/// The condition of a merge.
#[derive(Debug, Clone)]
pub struct JoinCondition {
    /// The equalities.
    pub keys: Vec<JoinKey>,
    /// Filters of the target, as SQL over its columns.
    pub target_only: Vec<String>,
    /// The filters of the target, bound to both sides.
    pub target_only_bound: Vec<BoundExpression>,
    /// The conditions on both sides that are not equalities.
    pub rest: Vec<BoundExpression>,
    /// The whole condition as parsed.
    pub whole: Expression,
}

/// An equality. Both sides are of one type, which is not nested.
#[derive(Debug, Clone)]
pub struct JoinKey {
    /// The target's side.
    pub target: BoundExpression,
    /// The source's side.
    pub source: BoundExpression,
    /// Whether NULL equals NULL.
    pub null_safe: bool,
    /// The target's column, if it is one whose values can be bounded by those of the source.
    column: Option<Name>,
}

impl JoinKey {
    /// The text of the target's side.
    pub fn name(&self) -> String {
        self.column.as_ref().map_or_else(|| self.target.to_string(), ToString::to_string)
    }
}

impl JoinCondition {
    /// # Errors
    /// `Invalid` for SQL that cannot be read, that is not a condition or names unknown columns; `Unsupported` for
    /// what deltic does not evaluate.
    pub fn parse(sql: &str, sides: &Sides) -> Result<Self> {
        let whole = sides.qualified(parse_value(sql)?, VisibleSides::Both)?;
        let mut terms = Vec::new();
        flatten(whole.clone(), &mut terms);
        let (mut keys, mut target_only, mut target_only_bound, mut rest) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for term in terms {
            let bound = sides.bind_condition(term.clone(), VisibleSides::Both)?;
            if let Some(key) = key_of(&term, &bound, sides) {
                keys.push(key);
            } else if let Some(filter) = exact_filter(&term, &bound, sides) {
                target_only.push(filter);
                target_only_bound.push(bound);
            } else {
                rest.push(bound);
            }
        }
        Ok(Self { keys, target_only, target_only_bound, rest, whole })
    }
}

/// A filter of the target, as SQL over its columns, which is TRUE in every row in which a condition on the target is; `None`
/// if the condition has no part that is one.
///
/// # Errors
/// As [`Sides::condition`].
pub fn target_filter(condition: &str, sides: &Sides) -> Result<Option<String>> {
    let whole = sides.qualified(parse_value(condition)?, VisibleSides::Target)?;
    let mut terms = Vec::new();
    flatten(whole, &mut terms);
    let mut filters = Vec::new();
    for term in terms {
        let bound = sides.bind_condition(term.clone(), VisibleSides::Target)?;
        filters.extend(exact_filter(&term, &bound, sides).map(|filter| format!("({filter})")));
    }
    Ok((!filters.is_empty()).then(|| filters.join(" AND ")))
}

fn flatten(expression: Expression, terms: &mut Vec<Expression>) {
    match expression {
        Expression::And(parts) if !parts.is_empty() => parts.into_iter().for_each(|part| flatten(part, terms)),
        other => terms.push(other),
    }
}

/// Whether an expression has columns of the target, and of the source.
fn sides_of(typed: &Typed, sides: &Sides) -> (bool, bool) {
    let mut found = (false, false);
    typed.visit(&mut |part| {
        if let Node::Column(column) = &*part.node {
            match column.path.first() == Some(&sides.source_alias) {
                true => found.1 = true,
                false => found.0 = true,
            }
        }
    });
    found
}

fn key_of(term: &Expression, bound: &BoundExpression, sides: &Sides) -> Option<JoinKey> {
    let (left, right, null_safe) = match &*bound.root.node {
        Node::Compare { left, op: Op::Eq, right } => (left, right, false),
        Node::NullSafeEqual { left, right } => (left, right, true),
        _ => return None,
    };
    let decimals = of_one_decimal(left, right);
    let (left, right) = decimals.as_ref().map_or((left, right), |(left, right)| (left, right));
    let is_plain = |of: &DataType| !matches!(of.as_primitive(), None | Some(PrimitiveType::Void));
    if left.data_type != right.data_type || !is_plain(&left.data_type) {
        return None;
    }
    let (target, source) = match (sides_of(left, sides), sides_of(right, sides)) {
        ((true, false), (false, true)) => (left, right),
        ((false, true), (true, false)) => (right, left),
        _ => return None,
    };
    let expression = |typed: &Typed| BoundExpression { root: typed.clone(), text: term.to_string() };
    Some(JoinKey { column: bounded_column(target), target: expression(target), source: expression(source), null_safe })
}

/// The column, if it is compared itself or cast to a wider whole number or decimal.
fn bounded_column(target: &Typed) -> Option<Name> {
    let width = |of: &DataType| match of.as_primitive() {
        Some(PrimitiveType::Byte) => Some(1),
        Some(PrimitiveType::Short) => Some(2),
        Some(PrimitiveType::Integer) => Some(4),
        Some(PrimitiveType::Long) => Some(8),
        _ => None,
    };
    let column = match &*target.node {
        Node::Column(column) => column,
        // A cast to a narrower type has no value for some numbers (TRY_CAST), or fails.
        Node::Cast { operand, is_try: false }
            if is_wider_decimal(&operand.data_type, &target.data_type)
                || width(&operand.data_type)? <= width(&target.data_type)? =>
        {
            match &*operand.node {
                Node::Column(column) => column,
                _ => return None,
            }
        }
        _ => return None,
    };
    column.path.get(1..).map(|path| Name(path.to_vec()))
}

/// Whether a decimal holds all values of another.
fn is_wider_decimal(from: &DataType, to: &DataType) -> bool {
    match (from.as_primitive(), to.as_primitive()) {
        (
            Some(PrimitiveType::Decimal { precision: p, scale: s }),
            Some(PrimitiveType::Decimal { precision, scale }),
        ) => scale >= s && i16::from(*precision) - i16::from(*scale) >= i16::from(*p) - i16::from(*s),
        _ => false,
    }
}

/// Whether values may be cast before they are compared, while a filter compares exactly: columns, for which a filter would
/// convert the literal instead; and literals that are decimals of 38 digits, since such a type may have no room for all digits
/// after the point (`z = 1.25` is `z = 1` for a `decimal(38,0)`).
fn may_cast(typed: &Typed) -> bool {
    let is_longest_decimal =
        |of: &Typed| matches!(of.data_type.as_primitive(), Some(PrimitiveType::Decimal { precision: 38, .. }));
    let casts = match &*typed.node {
        Node::Cast { operand, .. } => has_columns(operand),
        Node::Literal(_) => is_longest_decimal(typed),
        // Its literals have the type of the operand.
        Node::InSet { operand, .. } => is_longest_decimal(operand),
        _ => false,
    };
    casts || typed.parts().into_iter().any(may_cast)
}

fn has_columns(typed: &Typed) -> bool {
    matches!(&*typed.node, Node::Column(_)) || typed.parts().into_iter().any(has_columns)
}

/// The SQL of a term, if it is a filter of the target that is TRUE in the same rows.
fn exact_filter(term: &Expression, bound: &BoundExpression, sides: &Sides) -> Option<String> {
    filter_of(term, sides).filter(|_| !may_cast(&bound.root))
}

fn filter_of(term: &Expression, sides: &Sides) -> Option<String> {
    let columns = term.columns();
    if columns.is_empty()
        || !term.is_deterministic()
        || columns.iter().any(|name| name.0.first() == Some(&sides.source_alias))
    {
        return None;
    }
    let filter = term.clone().rename(&|name| name.0.get(1..).map(|path| Name(path.to_vec())));
    let text = format!("{filter:#}");
    predicate::parse(&text).and_then(|parsed| parsed.bind(&sides.target)).is_ok().then_some(text)
}

/// The values or bounds of a key in the source, for a filter of the target.
#[derive(Debug, Clone, Default)]
pub struct Bounds {
    least: Option<Scalar>,
    greatest: Option<Scalar>,
    /// All values, unless there are too many.
    values: Option<Vec<Scalar>>,
    has_null: bool,
}

impl Bounds {
    /// Bounds of no row.
    pub fn new() -> Self {
        Self { values: Some(Vec::new()), ..Self::default() }
    }

    /// Adds values.
    ///
    /// # Errors
    /// `Internal` for nested values, which no key has.
    pub fn extend(&mut self, values: &ArrayRef) -> Result<()> {
        for row in 0..values.len() {
            let value = Scalar::from_array(values, row)?;
            if value == Scalar::Null {
                self.has_null = true;
                continue;
            }
            self.push(value);
        }
        Ok(())
    }

    /// The values that stand for these bounds in [`Bounds::unite`]: all of them, or the least and the greatest.
    pub fn values(&self) -> Vec<Scalar> {
        match &self.values {
            Some(values) => values.clone(),
            None => self.least.iter().chain(&self.greatest).cloned().collect(),
        }
    }

    /// Keeps only the least and the greatest value.
    pub fn forget_values(&mut self) {
        self.values = None;
    }

    /// Whether [`Bounds::values`] are all values.
    pub fn has_all_values(&self) -> bool {
        self.values.is_some()
    }

    /// Whether one of the values is NULL.
    pub fn has_null(&self) -> bool {
        self.has_null
    }

    /// Adds the values of other rows, from what their bounds say.
    pub fn unite(&mut self, values: Vec<Scalar>, has_all_values: bool, has_null: bool) {
        values.into_iter().filter(|value| *value != Scalar::Null).for_each(|value| self.push(value));
        self.has_null |= has_null;
        if !has_all_values {
            self.values = None;
        }
    }

    fn push(&mut self, value: Scalar) {
        let below = |other: &Scalar| value.compare(other) == Some(Ordering::Less);
        if self.least.as_ref().is_none_or(below) {
            self.least = Some(value.clone());
        }
        let above = |other: &Scalar| value.compare(other) == Some(Ordering::Greater);
        if self.greatest.as_ref().is_none_or(above) {
            self.greatest = Some(value.clone());
        }
        if let Some(values) = &mut self.values {
            if !values.contains(&value) {
                values.push(value);
            }
            if values.len() > MAX_NAMED {
                self.values = None;
            }
        }
    }

    /// A SQL filter of the target for the rows in which `key` can be equal; `None` if nothing is known.
    pub fn filter(&self, key: &JoinKey, target: &StructType) -> Option<String> {
        let column = key.column.as_ref()?;
        let null = || Expression::IsNull { operand: Box::new(Expression::Column(column.clone())), negated: false };
        let operand = || Box::new(Expression::Column(column.clone()));
        let literal = |value: &Scalar| Expression::Literal(value.clone());
        let present = match (&self.least, &self.greatest, &self.values) {
            (None, ..) | (_, None, _) => None,
            (Some(_), Some(_), Some(values)) => {
                let list = values.iter().map(literal).collect();
                Some(Expression::In { operand: operand(), list, negated: false })
            }
            (Some(least), Some(greatest), None) => {
                let (low, high) = (Box::new(literal(least)), Box::new(literal(greatest)));
                Some(Expression::Between { operand: operand(), low, high, negated: false })
            }
        };
        let filter = match (present, self.has_null && key.null_safe) {
            (Some(present), true) => Expression::Or(vec![present, null()]),
            (Some(present), false) => present,
            (None, true) => null(),
            (None, false) => Expression::Literal(Scalar::Boolean(false)),
        };
        let text = format!("{filter:#}");
        predicate::parse(&text).and_then(|parsed| parsed.bind(target)).is_ok().then_some(text)
    }
}
