//! Checks a predicate against a schema: resolves columns, and converts literals to their columns' types.
//!
//! Binding changes the form but not the meaning, NULLs included: NOT is pushed to the leaves, a literal between two
//! values of a type becomes a comparison with a neighbour, two limits of one column become one range, equalities of
//! one column joined by OR become one set. Proved by `predicate::properties::evaluate_is_exact`.

use super::ast::{Operand, Predicate};
use super::bound::{BoundPredicate, one_of};
use super::fit::{Fit, advice, fit};
use super::leaf;
use crate::error::{Error, Result};
use crate::expression::{Column, Expression, Name, Op, Pattern, hint, resolve};
use crate::scalar::Scalar;
use crate::schema::collation::check_compared;
use crate::schema::{DataType, PrimitiveType, StructType};

impl Predicate {
    /// Resolves columns and converts literals to their types.
    ///
    /// # Errors
    /// `Invalid` for an unknown column, naming it and the nearest ones, and for what cannot be compared; `Unsupported` for a
    /// comparison of strings with a collation, naming the column.
    pub fn bind(&self, schema: &StructType) -> Result<BoundPredicate> {
        let bound = Binder { schema }.bind(self, false)?;
        bound.compared_columns().into_iter().try_for_each(|column| check_compared(schema, &column.path))?;
        Ok(bound)
    }
}

fn negated(leaf: BoundPredicate, negate: bool) -> BoundPredicate {
    if !negate {
        return leaf;
    }
    match leaf {
        BoundPredicate::Constant(value) => BoundPredicate::Constant(value.map(|value| !value)),
        BoundPredicate::Fixed { column, value } => BoundPredicate::Fixed { column, value: !value },
        BoundPredicate::IsNull(column) => BoundPredicate::IsNotNull(column),
        BoundPredicate::IsNotNull(column) => BoundPredicate::IsNull(column),
        BoundPredicate::Compare { column, op, value } => BoundPredicate::Compare { column, op: op.negate(), value },
        BoundPredicate::CompareColumns { left, op, right } => {
            BoundPredicate::CompareColumns { left, op: op.negate(), right }
        }
        BoundPredicate::Not(inner) => *inner,
        other @ (BoundPredicate::And(_)
        | BoundPredicate::Or(_)
        | BoundPredicate::Range { .. }
        | BoundPredicate::In { .. }
        | BoundPredicate::Like { .. }
        | BoundPredicate::Expression(_)) => BoundPredicate::Not(Box::new(other)),
    }
}

/// An operand whose name is resolved.
enum BoundOperand {
    Column(Column),
    Literal(Scalar),
}

struct Binder<'s> {
    schema: &'s StructType,
}

impl Binder<'_> {
    /// Binds the predicate, or its negation: in Kleene logic NOT distributes over AND and OR.
    fn bind(&self, predicate: &Predicate, negate: bool) -> Result<BoundPredicate> {
        let terms = |terms: &[Predicate]| terms.iter().map(|term| self.bind(term, negate)).collect::<Result<_>>();
        match (predicate, negate) {
            (Predicate::And(list), false) | (Predicate::Or(list), true) => Ok(BoundPredicate::all_of(terms(list)?)),
            (Predicate::Or(list), false) | (Predicate::And(list), true) => BoundPredicate::any_of(terms(list)?),
            (Predicate::Not(inner), _) => self.bind(inner, !negate),
            (Predicate::Compare { left, op, right }, _) => {
                self.bind_comparison(left, if negate { op.negate() } else { *op }, right)
            }
            (Predicate::NullSafeEqual { left, right }, _) => {
                let bound = if self.have_different_types(left, right) {
                    let (left, right) = (Box::new(Expression::from(left)), Box::new(Expression::from(right)));
                    leaf::bind_expression(&Expression::NullSafeEqual { left, right }, self.schema)?
                } else {
                    let (left, right) = self.bind_operands(left, right)?;
                    null_safe(left, right)?
                };
                Ok(negated(bound, negate))
            }
            (Predicate::IsNull { operand, negated: not }, _) => {
                Ok(negated(is_null(self.bind_operand(operand)?), negate != *not))
            }
            (Predicate::In { operand, list, negated: not }, _) => {
                is_in(self.bind_operand(operand)?, list).map(|bound| negated(bound, negate != *not))
            }
            (Predicate::Between { operand, low, high, negated: not }, _) => {
                let outside = negate != *not;
                let (from, to) = if outside { (Op::Lt, Op::Gt) } else { (Op::Ge, Op::Le) };
                let limit = |op, limit| self.bind_comparison(operand, op, limit);
                let terms = vec![limit(from, low)?, limit(to, high)?];
                if outside { BoundPredicate::any_of(terms) } else { Ok(BoundPredicate::all_of(terms)) }
            }
            (Predicate::Like { operand, pattern, escape, negated: not }, _) => {
                let bound = like(self.bind_operand(operand)?, Pattern::new(pattern, *escape)?)?;
                Ok(negated(bound, negate != *not))
            }
            (Predicate::Expression(expression), _) => {
                leaf::bind(expression, self.schema).map(|leaf| negated(leaf, negate))
            }
            (Predicate::BooleanOperand(operand), _) => match self.bind_operand(operand)? {
                BoundOperand::Literal(Scalar::Null) => Ok(BoundPredicate::Constant(None)),
                BoundOperand::Literal(Scalar::Boolean(value)) => Ok(BoundPredicate::Constant(Some(value != negate))),
                BoundOperand::Literal(_) => Err(Error::invalid(format!("`{operand}` is a value, not a condition"))),
                BoundOperand::Column(column) => match column.data_type {
                    DataType::Primitive(PrimitiveType::Boolean) => {
                        Ok(BoundPredicate::Compare { column, op: Op::Eq, value: Scalar::Boolean(!negate) })
                    }
                    _ => Err(Error::invalid(format!(
                        "column {column} of type {} is not a condition; compare it with a value",
                        column.data_type
                    ))),
                },
            },
        }
    }

    fn bind_comparison(&self, left: &Operand, op: Op, right: &Operand) -> Result<BoundPredicate> {
        if self.have_different_types(left, right) {
            let (left, right) = (Box::new(Expression::from(left)), Box::new(Expression::from(right)));
            return leaf::bind_expression(&Expression::Compare { left, op, right }, self.schema);
        }
        let (left, right) = self.bind_operands(left, right)?;
        compare(left, op, right)
    }

    /// Whether the sides are columns of different types.
    fn have_different_types(&self, left: &Operand, right: &Operand) -> bool {
        match (left, right) {
            (Operand::Column(Name(left)), Operand::Column(Name(right))) => {
                let types =
                    [left, right].map(|path| resolve::resolve(self.schema, path).map(|column| column.data_type));
                matches!(&types, [Ok(DataType::Primitive(left)), Ok(DataType::Primitive(right))] if left != right)
            }
            _ => false,
        }
    }

    /// Both sides of a comparison. An unknown name beside a column may be a value without its quotes.
    fn bind_operands(&self, left: &Operand, right: &Operand) -> Result<(BoundOperand, BoundOperand)> {
        match (self.bind_operand(left), self.bind_operand(right)) {
            (Ok(left), Ok(right)) => Ok((left, right)),
            (Ok(BoundOperand::Column(column)), Err(error)) => {
                Err(self.suggest_literal(&column, right).unwrap_or(error))
            }
            (Err(error), Ok(BoundOperand::Column(column))) => Err(self.suggest_literal(&column, left).unwrap_or(error)),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    fn suggest_literal(&self, column: &Column, operand: &Operand) -> Option<Error> {
        let Operand::Column(Name(path)) = operand else { return None };
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

    fn bind_operand(&self, operand: &Operand) -> Result<BoundOperand> {
        match operand {
            Operand::Literal(value) => Ok(BoundOperand::Literal(value.clone())),
            Operand::Column(Name(path)) => resolve::resolve(self.schema, path).map(BoundOperand::Column),
        }
    }
}

fn compare(left: BoundOperand, op: Op, right: BoundOperand) -> Result<BoundPredicate> {
    match (left, right) {
        (BoundOperand::Column(column), BoundOperand::Literal(value)) => compare_literal(column, op, &value),
        (BoundOperand::Literal(value), BoundOperand::Column(column)) => compare_literal(column, op.flip(), &value),
        (BoundOperand::Literal(left), BoundOperand::Literal(right)) => compare_constants(&left, op, &right),
        (BoundOperand::Column(left), BoundOperand::Column(right)) => {
            let (l, r) = (comparable(&left)?, comparable(&right)?);
            if l != r {
                return Err(Error::invalid(format!(
                    "columns {left} and {right} are of types {l} and {r}; only columns of one type can be compared"
                )));
            }
            Ok(match l {
                PrimitiveType::Void => BoundPredicate::Constant(None),
                _ => BoundPredicate::CompareColumns { left, op, right },
            })
        }
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
        let literal = Operand::Literal(value.clone());
        Error::invalid(format!(
            "column {column} of type {target} cannot be compared with {literal}; {}",
            advice(value, target)
        ))
    })
}

fn compare_literal(column: Column, op: Op, value: &Scalar) -> Result<BoundPredicate> {
    if *comparable(&column)? == PrimitiveType::Void || *value == Scalar::Null {
        return Ok(BoundPredicate::Constant(None));
    }
    let fit = fit_to(&column, value)?;
    Ok(match place(fit, op).and_then(|(op, value)| nan_as_equality(op, value)) {
        Ok((op, value)) => BoundPredicate::Compare { column, op, value },
        Err(value) => BoundPredicate::Fixed { column, value },
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

fn compare_constants(left: &Scalar, op: Op, right: &Scalar) -> Result<BoundPredicate> {
    if *left == Scalar::Null || *right == Scalar::Null {
        return Ok(BoundPredicate::Constant(None));
    }
    // One side is treated as a column of its type: of a string and a date the date, of two numbers the wider float.
    let rank = |side: &Scalar| match side {
        Scalar::String(_) => 0,
        Scalar::Float(_) => 2,
        Scalar::Double(_) => 3,
        _ => 1,
    };
    let flipped = rank(left) > rank(right);
    let (column, op, value) = if flipped { (left, op, right) } else { (right, op.flip(), left) };
    let unlike = || {
        let (left, right) = (Operand::Literal(left.clone()), Operand::Literal(right.clone()));
        Error::invalid(format!("{left} and {right} cannot be compared"))
    };
    let target = column.primitive_type().ok_or_else(unlike)?;
    Ok(BoundPredicate::Constant(Some(match place(fit(value, &target).ok_or_else(unlike)?, op) {
        Ok((op, value)) => op.holds(column.compare(&value).ok_or_else(unlike)?),
        Err(value) => value,
    })))
}

/// `a <=> b` as ANDs and ORs that are never NULL: if a comparison is NULL, a test beside it is FALSE.
fn null_safe(left: BoundOperand, right: BoundOperand) -> Result<BoundPredicate> {
    match (left, right) {
        (BoundOperand::Literal(left), BoundOperand::Literal(right))
            if left == Scalar::Null || right == Scalar::Null =>
        {
            Ok(BoundPredicate::Constant(Some(left == right)))
        }
        (BoundOperand::Literal(left), BoundOperand::Literal(right)) => compare_constants(&left, Op::Eq, &right),
        (BoundOperand::Column(column), BoundOperand::Literal(Scalar::Null))
        | (BoundOperand::Literal(Scalar::Null), BoundOperand::Column(column)) => {
            Ok(is_null(BoundOperand::Column(column)))
        }
        (BoundOperand::Column(column), BoundOperand::Literal(value))
        | (BoundOperand::Literal(value), BoundOperand::Column(column)) => {
            let present = negated(is_null(BoundOperand::Column(column.clone())), true);
            Ok(BoundPredicate::all_of(vec![present, compare_literal(column, Op::Eq, &value)?]))
        }
        (BoundOperand::Column(left), BoundOperand::Column(right)) => {
            let [l, r] = [&left, &right].map(|side| is_null(BoundOperand::Column(side.clone())));
            let [l_present, r_present] = [&l, &r].map(|null| negated(null.clone(), true));
            let equal = compare(BoundOperand::Column(left), Op::Eq, BoundOperand::Column(right))?;
            BoundPredicate::any_of(vec![
                BoundPredicate::all_of(vec![l, r]),
                BoundPredicate::all_of(vec![l_present, r_present, equal]),
            ])
        }
    }
}

fn is_null(side: BoundOperand) -> BoundPredicate {
    match side {
        BoundOperand::Literal(value) => BoundPredicate::Constant(Some(value == Scalar::Null)),
        BoundOperand::Column(Column { data_type: DataType::Primitive(PrimitiveType::Void), .. }) => {
            BoundPredicate::Constant(Some(true))
        }
        BoundOperand::Column(column) => BoundPredicate::IsNull(column),
    }
}

/// `IN`. If the list has a NULL, the result is NULL where it would be FALSE.
fn is_in(side: BoundOperand, list: &[Scalar]) -> Result<BoundPredicate> {
    if list.is_empty() {
        return Ok(BoundPredicate::Constant(Some(false)));
    }
    let column = match side {
        BoundOperand::Column(column) => column,
        BoundOperand::Literal(value) => {
            let terms = list.iter().map(|item| compare_constants(&value, Op::Eq, item)).collect::<Result<_>>()?;
            return BoundPredicate::any_of(terms);
        }
    };
    if *comparable(&column)? == PrimitiveType::Void {
        return Ok(BoundPredicate::Constant(None));
    }
    let mut values = Vec::with_capacity(list.len());
    for item in list.iter().filter(|item| **item != Scalar::Null) {
        match fit_to(&column, item)? {
            Fit::Exact(value) => values.push(value),
            Fit::Gap { .. } => {}
        }
    }
    let found = one_of(column, values)?;
    if list.contains(&Scalar::Null) {
        return BoundPredicate::any_of(vec![found, BoundPredicate::Constant(None)]);
    }
    Ok(found)
}

fn like(side: BoundOperand, pattern: Pattern) -> Result<BoundPredicate> {
    let column = match side {
        BoundOperand::Literal(Scalar::Null) => return Ok(BoundPredicate::Constant(None)),
        BoundOperand::Literal(Scalar::String(text)) => {
            return Ok(BoundPredicate::Constant(Some(pattern.matches(&text))));
        }
        BoundOperand::Literal(value) => {
            return Err(Error::invalid(format!("LIKE matches strings, and {value} is not a string")));
        }
        BoundOperand::Column(column) => column,
    };
    match &column.data_type {
        DataType::Primitive(PrimitiveType::Void) => return Ok(BoundPredicate::Constant(None)),
        DataType::Primitive(PrimitiveType::String) => {}
        other => return Err(Error::invalid(format!("LIKE matches strings, and column {column} is of type {other}"))),
    }
    if let Some(text) = pattern.exact() {
        return Ok(BoundPredicate::Compare { value: Scalar::String(text.to_owned()), column, op: Op::Eq });
    }
    if pattern.is_any() {
        return Ok(BoundPredicate::Fixed { column, value: true });
    }
    Ok(BoundPredicate::Like { column, pattern })
}
