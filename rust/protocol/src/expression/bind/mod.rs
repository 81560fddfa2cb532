//! Checks an expression against a schema: resolves columns, gives every part a type, puts in the casts of Spark's ANSI
//! coercion, and reduces what is only another spelling (BETWEEN, IF, NULLIF, `::`) to fewer forms.

mod bound;
mod call;
mod coerce;

pub use self::bound::BoundExpression;
pub(crate) use self::bound::{Node, Typed};
pub(crate) use self::call::{adjusted, call};
use super::ast::{Expression, Match, Name, Op};
use super::{functions, like, regex, resolve, set};
use crate::error::{Error, Result};
use crate::scalar::Scalar;
use crate::schema::{DataType, PrimitiveType, StructType};

impl Expression {
    /// Resolves columns and gives the expression its type.
    ///
    /// # Errors
    /// `Invalid` for an unknown column, naming it and the nearest ones, and for operands that do not fit; `Unsupported`
    /// for a function that is not known, naming it.
    pub fn bind(&self, schema: &StructType) -> Result<BoundExpression> {
        let root = bind(self, schema)?.folded();
        Ok(BoundExpression { root, text: format!("{self:#}") })
    }

    /// The value of an expression without columns, as a default has it; `None` if it has columns, or is another one each
    /// time.
    ///
    /// # Errors
    /// Those of [`Expression::bind`], and `Invalid` where the value is an error in Spark, too.
    pub fn constant(&self) -> Result<Option<Scalar>> {
        if !self.columns().is_empty() || !self.is_deterministic() {
            return Ok(None);
        }
        self.bind(&StructType::default())?.constant()
    }
}

/// Values are folded only at the end: the type of what is computed with a literal depends on it.
fn bind(expression: &Expression, schema: &StructType) -> Result<Typed> {
    let of = |part: &Expression| bind(part, schema);
    let condition = |part: &Expression| coerce::condition(bind(part, schema)?, part);
    let all = |parts: &[Expression]| parts.iter().map(of).collect::<Result<Vec<_>>>();
    Ok(match expression {
        Expression::Literal(value) => Typed::literal(value.clone()),
        Expression::Column(Name(path)) => {
            let column = resolve::resolve(schema, path)?;
            let data_type = column.data_type.clone();
            Typed::new(Node::Column(column), data_type)
        }
        Expression::And(terms) => Typed::boolean(Node::And(terms.iter().map(condition).collect::<Result<_>>()?)),
        Expression::Or(terms) => Typed::boolean(Node::Or(terms.iter().map(condition).collect::<Result<_>>()?)),
        Expression::Not(inner) => Typed::boolean(Node::Not(condition(inner)?)),
        Expression::Negate(inner) => call::negate(of(inner)?, expression)?,
        Expression::Arithmetic { left, op, right } => call::arithmetic(of(left)?, *op, of(right)?, expression)?,
        Expression::Compare { left, op, right } => compare(of(left)?, *op, of(right)?, expression)?,
        Expression::NullSafeEqual { left, right } => {
            let (left, right) = coerce::comparable(of(left)?, of(right)?, expression)?;
            Typed::boolean(Node::NullSafeEqual { left, right })
        }
        Expression::IsNull { operand, negated } => negate(is_null(of(operand)?), *negated),
        Expression::IsTruth { operand, value, negated } => {
            let (left, right) = (condition(operand)?, Typed::literal(Scalar::Boolean(*value)));
            negate(Typed::boolean(Node::NullSafeEqual { left, right }), *negated)
        }
        Expression::In { operand, list, negated } => negate(is_in(of(operand)?, all(list)?, expression)?, *negated),
        Expression::Between { operand, low, high, negated } => {
            let operand = of(operand)?;
            let above = compare(operand.clone(), Op::Ge, of(low)?, expression)?;
            let below = compare(operand, Op::Le, of(high)?, expression)?;
            negate(limited(Typed::boolean(Node::And(vec![above, below])))?, *negated)
        }
        Expression::Like { operand, kind, pattern, escape, negated } => {
            let operand = coerce::text(of(operand)?, expression)?;
            let node = match kind {
                Match::Like => Node::Like { operand, pattern: like::Pattern::new(pattern, *escape)? },
                Match::ILike => {
                    let lower = functions::call("lower", vec![operand], expression)?;
                    Node::Like { operand: lower, pattern: like::Pattern::new(&pattern.to_lowercase(), *escape)? }
                }
                Match::RLike => Node::Regular { operand, pattern: regex::compile(pattern)? },
            };
            negate(Typed::boolean(node), *negated)
        }
        Expression::Cast { operand, to, is_try } => coerce::explicit(of(operand)?, to, *is_try, expression)?,
        Expression::Case { operand, branches, otherwise } => {
            let operand = operand.as_deref().map(of).transpose()?;
            let mut cases = Vec::with_capacity(branches.len());
            for (when, then) in branches {
                let when = match &operand {
                    Some(operand) => compare(operand.clone(), Op::Eq, of(when)?, expression)?,
                    None => condition(when)?,
                };
                cases.push((when, of(then)?));
            }
            limited(case(cases, otherwise.as_deref().map(of).transpose()?, expression)?)?
        }
        Expression::Call { name, arguments } => call::bind(name, all(arguments)?, expression)?,
    })
}

fn negate(condition: Typed, negated: bool) -> Typed {
    if negated { Typed::boolean(Node::Not(condition)) } else { condition }
}

/// Most parts of a condition in which operands stand several times.
const MAX_PARTS: usize = 20_000;

/// Refuses what has grown too large, since BETWEEN, CASE and NULLIF write their operands several times.
fn limited(part: Typed) -> Result<Typed> {
    let mut parts = 0_usize;
    part.visit(&mut |_| parts += 1);
    if parts <= MAX_PARTS {
        return Ok(part);
    }
    Err(Error::invalid(format!("BETWEEN, CASE and NULLIF inside of each other make more than {MAX_PARTS} conditions")))
}

fn is_null(operand: Typed) -> Typed {
    Typed::boolean(Node::IsNull(operand))
}

fn compare(left: Typed, op: Op, right: Typed, whole: &Expression) -> Result<Typed> {
    let (left, right) = coerce::comparable(left, right, whole)?;
    Ok(Typed::boolean(Node::Compare { left, op, right }))
}

/// Each is brought to the type that all have in common, as Spark does it.
fn is_in(operand: Typed, list: Vec<Typed>, whole: &Expression) -> Result<Typed> {
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
fn case(branches: Vec<(Typed, Typed)>, otherwise: Option<Typed>, whole: &Expression) -> Result<Typed> {
    let (conditions, mut values): (Vec<_>, Vec<_>) = branches.into_iter().unzip();
    let otherwise = otherwise.unwrap_or_else(|| Typed::literal(Scalar::Null));
    values.push(otherwise);
    let mut values = coerce::to_common(values, whole)?;
    let Some(otherwise) = values.pop() else { return Err(Error::internal("CASE without a branch")) };
    let data_type = otherwise.data_type.clone();
    let branches = conditions.into_iter().zip(values).collect();
    Ok(Typed::new(Node::Case { branches, otherwise }, data_type))
}

/// Refuses operands of these types.
fn unfit(whole: &Expression, what: &str, types: &[&DataType]) -> Error {
    let types: Vec<String> = types.iter().map(|t| t.to_string()).collect();
    Error::invalid(format!("`{whole:#}`: {what} {}", types.join(" and ")))
}

const BOOLEAN: DataType = DataType::BOOLEAN;

fn primitive(data_type: &DataType) -> Option<&PrimitiveType> {
    data_type.as_primitive()
}
