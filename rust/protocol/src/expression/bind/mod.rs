//! Checks an expression against a schema: resolves columns, gives every part a type, adds the casts of Spark's ANSI
//! coercion, and rewrites other spellings (BETWEEN, IF, NULLIF, `::`) to fewer forms.

mod call;
mod coerce;
mod fold;
mod forms;

pub(crate) use self::coerce::of_one_decimal;
use self::forms::{case, compare, is_in, is_null, limited, negate};
use super::ast::{Expression, Match, Name, Op};
use super::bound::{BoundExpression, Node, Typed};
use super::matching::{like, regex};
use super::types::value_type;
use super::{collation, resolve};
use crate::error::Result;
use crate::scalar::Scalar;
use crate::schema::StructType;

impl Expression {
    /// Resolves columns and gives the expression its type.
    ///
    /// # Errors
    /// `Invalid` for an unknown column, naming it and the nearest ones, and for operands that do not fit; `Unsupported`
    /// for a function that is not known, naming it, and for a comparison of strings with a collation, naming the column.
    pub fn bind(&self, schema: &StructType) -> Result<BoundExpression> {
        let root = bind(self, schema)?.folded();
        collation::check(&root, schema)?;
        Ok(BoundExpression { root, text: format!("{self:#}") })
    }

    /// The value of an expression without columns, such as a default; `None` if it has columns or is not
    /// deterministic.
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

/// Constants are folded only at the end, because types depend on which operands are literals.
fn bind(expression: &Expression, schema: &StructType) -> Result<Typed> {
    let of = |part: &Expression| bind(part, schema);
    let condition = |part: &Expression| coerce::condition(bind(part, schema)?, part);
    let all = |parts: &[Expression]| parts.iter().map(of).collect::<Result<Vec<_>>>();
    Ok(match expression {
        Expression::Literal(value) => Typed::literal(value.clone()),
        Expression::Column(Name(path)) => {
            let column = resolve::resolve(schema, path)?;
            let data_type = value_type(&column.data_type);
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
            negate(Typed::boolean(matched(operand, *kind, pattern, *escape, expression)?), *negated)
        }
        Expression::Cast { operand, to, is_try } => coerce::explicit(of(operand)?, to, *is_try, expression)?,
        Expression::Case { operand, branches, otherwise } => {
            let operand = operand.as_deref().map(of).transpose()?;
            if let Some(operand) = &operand {
                forms::check_copies(operand, branches.len())?;
            }
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

/// `LIKE` and its kind.
fn matched(operand: Typed, kind: Match, pattern: &str, escape: Option<char>, expression: &Expression) -> Result<Node> {
    Ok(match kind {
        Match::Like => Node::Like { operand, pattern: like::Pattern::new(pattern, escape)? },
        Match::ILike => {
            let lower = call::named("lower", vec![operand], expression)?;
            Node::Like { operand: lower, pattern: like::Pattern::new(&pattern.to_lowercase(), escape)? }
        }
        Match::RLike => Node::Regular { operand, pattern: regex::compile(pattern)? },
    })
}
