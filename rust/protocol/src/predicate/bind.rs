//! Checks a predicate against a schema: splits it at AND, OR and NOT, and converts the literals that are compared with
//! columns to the columns' types. Every other term is bound as an expression, in `leaf`.
//!
//! Binding changes the form but not the meaning, NULLs included: NOT is pushed to the leaves, a literal between two
//! values of a type becomes a comparison with a neighbour, two limits of one column become one range, equalities of
//! one column joined by OR become one set. Proved by `predicate::properties::evaluate_is_exact`.

use super::Predicate;
use super::bound::{BoundPredicate, one_of};
use super::fit::{Fit, advice, fit, shown};
use super::leaf;
use crate::error::{Error, Result};
use crate::expression::{Column, Expression, Match, Name, Op, hint, resolve};
use crate::scalar::Scalar;
use crate::schema::collation::check_compared;
use crate::schema::{DataType, PrimitiveType, StructType};

impl Predicate {
    /// Resolves columns and converts literals to their types.
    ///
    /// # Errors
    /// `Invalid` for an unknown column, naming it and the nearest ones, and for what cannot be compared; `Unsupported` for
    /// a function that is not known, naming it, and for a comparison of strings with a collation, naming the column.
    pub fn bind(&self, schema: &StructType) -> Result<BoundPredicate> {
        Binder { schema }.bind(&self.0, false)
    }
}

struct Binder<'s> {
    schema: &'s StructType,
}

impl Binder<'_> {
    /// Binds the condition, or its negation: in Kleene logic NOT distributes over AND and OR.
    fn bind(&self, condition: &Expression, negate: bool) -> Result<BoundPredicate> {
        let terms = |terms: &[Expression]| terms.iter().map(|term| self.bind(term, negate)).collect::<Result<_>>();
        match (condition, negate) {
            (Expression::And(list), false) | (Expression::Or(list), true) => Ok(BoundPredicate::all_of(terms(list)?)),
            (Expression::Or(list), false) | (Expression::And(list), true) => BoundPredicate::any_of(terms(list)?),
            (Expression::Not(inner), _) => self.bind(inner, !negate),
            (Expression::Compare { left, op, right }, _) => self.compare(left, *op, right, negate),
            (Expression::Between { operand, low, high, negated }, _) => {
                let outside = negate != *negated;
                let limit = |op, limit| self.compare(operand, op, limit, outside);
                let terms = vec![limit(Op::Ge, low)?, limit(Op::Le, high)?];
                if outside { BoundPredicate::any_of(terms) } else { Ok(BoundPredicate::all_of(terms)) }
            }
            (Expression::NullSafeEqual { left, right }, _) => match self.column_and_value(left, right)? {
                Some((column, value, _)) => Ok(self.null_safe(column, &value)?.negated(negate)),
                None => self.leaf(condition, negate),
            },
            (Expression::IsTruth { operand, value, negated }, _) => {
                match self.column_and_value(operand, &Expression::Literal(Scalar::Boolean(*value)))? {
                    Some((column, value, _)) => Ok(self.null_safe(column, &value)?.negated(negate != *negated)),
                    None => self.leaf(condition, negate),
                }
            }
            (Expression::In { operand, list, negated }, _) => {
                let values = |column| Some((column, list.iter().map(constant).collect::<Option<Vec<_>>>()?));
                match self.column(operand)?.and_then(values) {
                    Some((column, values)) => Ok(self.is_in(column, &values)?.negated(negate != *negated)),
                    None => self.leaf(condition, negate),
                }
            }
            (Expression::Like { operand, kind: Match::Like, .. }, _) => match self.column(operand)? {
                None => self.leaf(condition, negate),
                Some(column) => match &column.data_type {
                    DataType::Primitive(PrimitiveType::String) => self.leaf(condition, negate),
                    DataType::Primitive(PrimitiveType::Void) => Ok(BoundPredicate::Constant(None)),
                    other => {
                        Err(Error::invalid(format!("LIKE matches strings, and column {column} is of type {other}")))
                    }
                },
            },
            _ => self.leaf(condition, negate),
        }
    }

    /// A condition that is not on a column and values alone.
    fn leaf(&self, condition: &Expression, negate: bool) -> Result<BoundPredicate> {
        Ok(leaf::bind(condition, self.schema)?.negated(negate))
    }

    fn compare(&self, left: &Expression, op: Op, right: &Expression, negate: bool) -> Result<BoundPredicate> {
        let Some((column, value, flipped)) = self.column_and_value(left, right)? else {
            let (left, right) = (Box::new(left.clone()), Box::new(right.clone()));
            return self.leaf(&Expression::Compare { left, op, right }, negate);
        };
        let op = if flipped { op.flip() } else { op };
        self.compare_value(column, if negate { op.negate() } else { op }, &value)
    }

    /// The column and the value of a comparison of the two, and whether the value stands first.
    fn column_and_value(&self, left: &Expression, right: &Expression) -> Result<Option<(Column, Scalar, bool)>> {
        if let (Expression::Column(Name(left)), Expression::Column(Name(right))) = (left, right) {
            return self.check_names(left, right).map(|()| None);
        }
        for (side, other, flipped) in [(left, right, false), (right, left, true)] {
            if matches!(side, Expression::Column(_))
                && let Some(value) = constant(other)
            {
                return Ok(self.column(side)?.map(|column| (column, value, flipped)));
            }
        }
        Ok(None)
    }

    /// The column that an operand is.
    fn column(&self, operand: &Expression) -> Result<Option<Column>> {
        match operand {
            Expression::Column(Name(path)) => resolve::resolve(self.schema, path).map(Some),
            _ => Ok(None),
        }
    }

    /// An unknown name beside a column may be a value without its quotes.
    fn check_names(&self, left: &[String], right: &[String]) -> Result<()> {
        match (resolve::resolve(self.schema, left), resolve::resolve(self.schema, right)) {
            (Ok(_), Ok(_)) => Ok(()),
            (Ok(column), Err(error)) => Err(self.suggest_literal(&column, right).unwrap_or(error)),
            (Err(error), Ok(column)) => Err(self.suggest_literal(&column, left).unwrap_or(error)),
            (Err(error), Err(_)) => Err(error),
        }
    }

    fn suggest_literal(&self, column: &Column, path: &[String]) -> Option<Error> {
        let word = path.join(".");
        let advice = match (hint::value(&word), &column.data_type) {
            (Some(advice), DataType::Primitive(target)) if *target != PrimitiveType::String => advice.to_owned(),
            (_, DataType::Primitive(PrimitiveType::String)) => {
                format!("if a string is meant, put it in single quotes: '{}'", word.replace('\'', "''"))
            }
            (
                _,
                DataType::Primitive(
                    target @ (PrimitiveType::Date
                    | PrimitiveType::Timestamp
                    | PrimitiveType::TimestampNtz
                    | PrimitiveType::Boolean),
                ),
            ) => format!("if a value is meant, {}", advice(&Scalar::Null, target)),
            _ => return None,
        };
        resolve::unknown_value(self.schema, path, &advice)
    }

    fn compare_value(&self, column: Column, op: Op, value: &Scalar) -> Result<BoundPredicate> {
        if *comparable(&column)? == PrimitiveType::Void || *value == Scalar::Null {
            return Ok(BoundPredicate::Constant(None));
        }
        check_compared(self.schema, &column.path)?;
        let fit = fit_to(&column, value)?;
        Ok(match place(fit, op).and_then(|(op, value)| nan_as_equality(op, value)) {
            Ok((op, value)) => BoundPredicate::Compare { column, op, value },
            Err(value) => BoundPredicate::Fixed { column, value },
        })
    }

    /// `column <=> value`, never NULL: if the comparison is NULL, the test beside it is FALSE.
    fn null_safe(&self, column: Column, value: &Scalar) -> Result<BoundPredicate> {
        if *value == Scalar::Null {
            return Ok(leaf::is_null(column));
        }
        let present = leaf::is_null(column.clone()).negated(true);
        Ok(BoundPredicate::all_of(vec![present, self.compare_value(column, Op::Eq, value)?]))
    }

    /// `IN`. If the list has a NULL, the result is NULL where it would be FALSE.
    fn is_in(&self, column: Column, list: &[Scalar]) -> Result<BoundPredicate> {
        if *comparable(&column)? == PrimitiveType::Void {
            return Ok(BoundPredicate::Constant(None));
        }
        let mut values = Vec::with_capacity(list.len());
        for item in list.iter().filter(|item| **item != Scalar::Null) {
            if let Fit::Exact(value) = fit_to(&column, item)? {
                values.push(value);
            }
        }
        if !values.is_empty() {
            check_compared(self.schema, &column.path)?;
        }
        let found = one_of(column, values)?;
        if list.contains(&Scalar::Null) {
            return BoundPredicate::any_of(vec![found, BoundPredicate::Constant(None)]);
        }
        Ok(found)
    }
}

/// The value of an operand without columns. An error is left to the evaluation of rows, since there may be none.
fn constant(operand: &Expression) -> Option<Scalar> {
    match operand {
        Expression::Literal(value) => Some(value.clone()),
        Expression::Column(_) => None,
        other => other.constant().ok().flatten(),
    }
}

/// The column's type, if its values have an order.
fn comparable(column: &Column) -> Result<&PrimitiveType> {
    match &column.data_type {
        DataType::Primitive(PrimitiveType::Geometry { .. } | PrimitiveType::Geography { .. })
        | DataType::Struct(_)
        | DataType::Array(_)
        | DataType::Map(_)
        | DataType::Variant
        | DataType::Foreign(_) => Err(Error::invalid(format!(
            "column {column} of type {} cannot be compared; only IS NULL and IS NOT NULL work on it",
            column.data_type
        ))),
        DataType::Primitive(primitive) => Ok(primitive),
    }
}

fn fit_to(column: &Column, value: &Scalar) -> Result<Fit> {
    let target = comparable(column)?;
    fit(value, target).ok_or_else(|| {
        Error::invalid(format!(
            "column {column} of type {target} cannot be compared with {}; {}",
            shown(value),
            advice(value, target)
        ))
    })
}

/// The comparison with a value of the type that means the same, or the result for everything that is not NULL.
fn place(fit: Fit, op: Op) -> std::result::Result<(Op, Scalar), bool> {
    match (fit, op) {
        (Fit::Exact(value), op) => Ok((op, value)),
        (Fit::Gap { .. }, Op::Eq) => Err(false),
        (Fit::Gap { .. }, Op::Ne) => Err(true),
        (Fit::Gap { above: None, .. }, Op::Lt | Op::Le) => Err(true),
        (Fit::Gap { below: None, .. }, Op::Gt | Op::Ge) => Err(true),
        (Fit::Gap { below, .. }, Op::Lt | Op::Le) => below.map(|value| (Op::Le, value)).ok_or(false),
        (Fit::Gap { above, .. }, Op::Gt | Op::Ge) => above.map(|value| (Op::Ge, value)).ok_or(false),
    }
}

/// A comparison with NaN as an equality, since nothing is greater than NaN.
fn nan_as_equality(op: Op, value: Scalar) -> std::result::Result<(Op, Scalar), bool> {
    match (value.is_nan(), op) {
        (false, op) | (true, op @ (Op::Eq | Op::Ne)) => Ok((op, value)),
        (true, Op::Lt) => Ok((Op::Ne, value)),
        (true, Op::Ge) => Ok((Op::Eq, value)),
        (true, Op::Le) => Err(true),
        (true, Op::Gt) => Err(false),
    }
}
