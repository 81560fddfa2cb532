//! The boolean part of an expression, in the forms that skipping understands: names are unresolved, whole numbers are
//! longs; any other condition is an expression as parsed.
//!
//! Printing gives text that parses back to the same tree (`predicate::properties::print_parse_round_trip`). Chains of
//! AND and OR are flat lists, so their length costs no stack; everything else is nested at most as deep as the parser
//! allows.

use std::fmt;

use crate::error::Result;
use crate::expression::{self, Expression, Match, Name, Op, fmt_bytes, fmt_string};
use crate::scalar::Scalar;

/// A condition on a row, TRUE, FALSE or NULL.
#[derive(Debug, Clone, PartialEq)]
pub enum Predicate {
    /// All of these.
    And(Vec<Predicate>),
    /// At least one of these.
    Or(Vec<Predicate>),
    /// The opposite; NULL stays NULL.
    Not(Box<Predicate>),
    /// `left op right`, NULL if a side is NULL.
    Compare {
        /// Before the operator.
        left: Operand,
        /// How the two are compared.
        op: Op,
        /// After the operator.
        right: Operand,
    },
    /// `left <=> right`: equal or both NULL; never NULL itself.
    NullSafeEqual {
        /// Before the operator.
        left: Operand,
        /// After the operator.
        right: Operand,
    },
    /// `operand IS NULL`
    IsNull {
        /// What is tested.
        operand: Operand,
        /// Whether NOT was written.
        negated: bool,
    },
    /// `operand IN (…)`
    In {
        /// What is looked for.
        operand: Operand,
        /// Where it is looked for.
        list: Vec<Scalar>,
        /// Whether NOT was written.
        negated: bool,
    },
    /// `operand BETWEEN low AND high`, both included.
    Between {
        /// What is tested.
        operand: Operand,
        /// Smallest value.
        low: Operand,
        /// Greatest value.
        high: Operand,
        /// Whether NOT was written.
        negated: bool,
    },
    /// `operand LIKE 'pattern'`
    Like {
        /// What is tested.
        operand: Operand,
        /// `%` is any text, `_` any one character.
        pattern: String,
        /// The character that escapes the next one; a backslash unless it is written.
        escape: Option<char>,
        /// Whether NOT was written.
        negated: bool,
    },
    /// A boolean column, TRUE, FALSE or NULL standing alone.
    BooleanOperand(Operand),
    /// Any other condition.
    Expression(Box<Expression>),
}

/// One side of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    /// A column or a field inside one.
    Column(Name),
    /// A value.
    Literal(Scalar),
}

impl Predicate {
    /// Both of these.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match self {
            Self::And(mut terms) => {
                terms.push(other);
                Self::And(terms)
            }
            first => Self::And(vec![first, other]),
        }
    }

    /// How tightly the outermost operator binds; a child that binds less tightly is put in parentheses.
    fn precedence(&self) -> u8 {
        match self {
            Self::Or(_) => 0,
            Self::And(_) => 1,
            Self::Not(_) => 2,
            Self::Compare { .. }
            | Self::NullSafeEqual { .. }
            | Self::IsNull { .. }
            | Self::In { .. }
            | Self::Between { .. }
            | Self::Like { .. }
            | Self::BooleanOperand(_)
            | Self::Expression(_) => 3,
        }
    }

    fn fmt_child(&self, f: &mut fmt::Formatter<'_>, at_least: u8) -> fmt::Result {
        if self.precedence() < at_least { write!(f, "({self})") } else { write!(f, "{self}") }
    }

    fn fmt_chain(f: &mut fmt::Formatter<'_>, terms: &[Self], separator: &str, precedence: u8) -> fmt::Result {
        for (i, term) in terms.iter().enumerate() {
            if i > 0 {
                f.write_str(separator)?;
            }
            term.fmt_child(f, if terms.len() > 1 { precedence + 1 } else { 0 })?;
        }
        Ok(())
    }
}

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = |negated: &bool| if *negated { "NOT " } else { "" };
        match self {
            // An empty AND is TRUE, an empty OR is FALSE.
            Self::And(terms) if terms.is_empty() => f.write_str("TRUE"),
            Self::Or(terms) if terms.is_empty() => f.write_str("FALSE"),
            Self::And(terms) => Self::fmt_chain(f, terms, " AND ", 1),
            Self::Or(terms) => Self::fmt_chain(f, terms, " OR ", 0),
            Self::Not(inner) => {
                f.write_str("NOT ")?;
                inner.fmt_child(f, 2)
            }
            Self::Compare { left, op, right } => write!(f, "{left} {op} {right}"),
            Self::NullSafeEqual { left, right } => write!(f, "{left} <=> {right}"),
            Self::IsNull { operand, negated } => write!(f, "{operand} IS {}NULL", not(negated)),
            Self::In { operand, list, negated } => {
                write!(f, "{operand} {}IN (", not(negated))?;
                for (i, value) in list.iter().enumerate() {
                    f.write_str(if i > 0 { ", " } else { "" })?;
                    fmt_literal(f, value)?;
                }
                f.write_str(")")
            }
            Self::Between { operand, low, high, negated } => {
                write!(f, "{operand} {}BETWEEN {low} AND {high}", not(negated))
            }
            Self::Like { operand, pattern, escape, negated } => {
                write!(f, "{operand} {}LIKE ", not(negated))?;
                write_string(f, pattern)?;
                match escape {
                    None => Ok(()),
                    Some(escape) => {
                        f.write_str(" ESCAPE ")?;
                        write_string(f, escape.encode_utf8(&mut [0; 4]))
                    }
                }
            }
            Self::BooleanOperand(operand) => write!(f, "{operand}"),
            Self::Expression(expression) => write!(f, "{expression:#}"),
        }
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Column(name) => write!(f, "{name}"),
            Self::Literal(value) => fmt_literal(f, value),
        }
    }
}

/// Writes a value so that it is parsed with the same type, if the language has a literal for the type.
fn fmt_literal(f: &mut fmt::Formatter<'_>, value: &Scalar) -> fmt::Result {
    match value {
        Scalar::Null => f.write_str("NULL"),
        Scalar::Boolean(true) => f.write_str("TRUE"),
        Scalar::Boolean(false) => f.write_str("FALSE"),
        Scalar::Byte(_) | Scalar::Short(_) | Scalar::Integer(_) | Scalar::Long(_) | Scalar::Decimal { .. } => {
            write!(f, "{value}")
        }
        Scalar::Float(_) => write!(f, "FLOAT '{value}'"),
        Scalar::Double(v) if v.is_finite() => write!(f, "{v:e}"),
        Scalar::Double(_) => write!(f, "DOUBLE '{value}'"),
        Scalar::String(text) => write_string(f, text),
        Scalar::Binary(bytes) => fmt_bytes(f, bytes),
        Scalar::Date(_) => write!(f, "DATE '{value}'"),
        Scalar::Timestamp(_) => write!(f, "TIMESTAMP '{value}'"),
        Scalar::TimestampNtz(_) => write!(f, "TIMESTAMP_NTZ '{value}'"),
    }
}

fn write_string(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    fmt_string(f, text, true)
}

/// Reads a predicate.
///
/// # Errors
/// `Invalid`, with the place and what was expected there.
pub fn parse(text: &str) -> Result<Predicate> {
    expression::parse_condition(text).map(Predicate::from)
}

impl std::str::FromStr for Predicate {
    type Err = crate::error::Error;

    fn from_str(text: &str) -> Result<Self> {
        parse(text)
    }
}

impl From<&Operand> for Expression {
    fn from(operand: &Operand) -> Self {
        match operand {
            Operand::Column(name) => Self::Column(name.clone()),
            Operand::Literal(value) => Self::Literal(value.clone()),
        }
    }
}

impl Operand {
    fn of(expression: &Expression) -> Option<Self> {
        match expression {
            Expression::Column(name) => Some(Self::Column(name.clone())),
            Expression::Literal(value) => Some(Self::Literal(untyped(value))),
            _ => None,
        }
    }
}

/// Beside a column, a whole number has no type of its own, whatever suffix it has.
fn untyped(value: &Scalar) -> Scalar {
    match value {
        Scalar::Byte(v) => Scalar::Long((*v).into()),
        Scalar::Short(v) => Scalar::Long((*v).into()),
        Scalar::Integer(v) => Scalar::Long((*v).into()),
        Scalar::Decimal { value: digits, scale: 0, .. } => {
            i64::try_from(*digits).map_or_else(|_| value.clone(), Scalar::Long)
        }
        other => other.clone(),
    }
}

impl From<Expression> for Predicate {
    fn from(expression: Expression) -> Self {
        let terms = |terms: Vec<Expression>| terms.into_iter().map(Self::from).collect();
        match expression {
            Expression::And(list) => Self::And(terms(list)),
            Expression::Or(list) => Self::Or(terms(list)),
            Expression::Not(inner) => Self::Not(Box::new(Self::from(*inner))),
            other => Self::test(&other).unwrap_or_else(|| Self::Expression(Box::new(other))),
        }
    }
}

impl Predicate {
    /// A condition on one or two columns.
    fn test(expression: &Expression) -> Option<Self> {
        Some(match expression {
            Expression::Column(_) | Expression::Literal(Scalar::Boolean(_) | Scalar::Null) => {
                Self::BooleanOperand(Operand::of(expression)?)
            }
            Expression::Compare { left, op, right } => {
                Self::Compare { left: Operand::of(left)?, op: *op, right: Operand::of(right)? }
            }
            Expression::NullSafeEqual { left, right } => {
                Self::NullSafeEqual { left: Operand::of(left)?, right: Operand::of(right)? }
            }
            Expression::IsNull { operand, negated } => {
                Self::IsNull { operand: Operand::of(operand)?, negated: *negated }
            }
            Expression::In { operand, list, negated } => {
                let value = |item: &Expression| match Operand::of(item) {
                    Some(Operand::Literal(value)) => Some(value),
                    Some(Operand::Column(_)) | None => None,
                };
                let list = list.iter().map(value).collect::<Option<_>>()?;
                Self::In { operand: Operand::of(operand)?, list, negated: *negated }
            }
            Expression::Between { operand, low, high, negated } => Self::Between {
                operand: Operand::of(operand)?,
                low: Operand::of(low)?,
                high: Operand::of(high)?,
                negated: *negated,
            },
            Expression::Like { operand, kind: Match::Like, pattern, escape, negated } => Self::Like {
                operand: Operand::of(operand)?,
                pattern: pattern.clone(),
                escape: *escape,
                negated: *negated,
            },
            _ => return None,
        })
    }
}
