//! The syntax tree of a predicate as typed: names are unresolved, literals have the type of their spelling.
//!
//! Printing gives text that parses back to the same tree (`predicate::properties::print_parse_round_trip`). Chains of
//! AND and OR are flat lists, so their length costs no stack; everything else is nested at most as deep as the parser
//! allows.

use std::fmt;

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
        /// The character that takes the meaning from the one after it; a backslash unless written.
        escape: Option<char>,
        /// Whether NOT was written.
        negated: bool,
    },
    /// A boolean column, TRUE, FALSE or NULL standing alone.
    Bare(Operand),
}

/// One side of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    /// A column or a field inside one.
    Column(Name),
    /// A value.
    Literal(Scalar),
}

/// The path to a column: the top-level column, then fields inside structs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name(pub Vec<String>);

/// How two values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// `=`
    Eq,
    /// `<>`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

/// Words that are never a column's name unless back-ticked.
pub(super) const RESERVED: [&str; 11] =
    ["AND", "OR", "NOT", "IN", "IS", "NULL", "BETWEEN", "LIKE", "ESCAPE", "TRUE", "FALSE"];

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
            | Self::Bare(_) => 3,
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

impl Op {
    /// The comparison that is TRUE exactly when this one is FALSE.
    #[must_use]
    pub fn negate(self) -> Self {
        match self {
            Self::Eq => Self::Ne,
            Self::Ne => Self::Eq,
            Self::Lt => Self::Ge,
            Self::Le => Self::Gt,
            Self::Gt => Self::Le,
            Self::Ge => Self::Lt,
        }
    }

    /// The same comparison with its sides exchanged.
    #[must_use]
    pub fn flip(self) -> Self {
        match self {
            Self::Eq => Self::Eq,
            Self::Ne => Self::Ne,
            Self::Lt => Self::Gt,
            Self::Le => Self::Ge,
            Self::Gt => Self::Lt,
            Self::Ge => Self::Le,
        }
    }

    /// Whether values that compare so satisfy it.
    pub fn holds(self, ordering: std::cmp::Ordering) -> bool {
        match self {
            Self::Eq => ordering.is_eq(),
            Self::Ne => ordering.is_ne(),
            Self::Lt => ordering.is_lt(),
            Self::Le => ordering.is_le(),
            Self::Gt => ordering.is_gt(),
            Self::Ge => ordering.is_ge(),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Eq => "=",
            Self::Ne => "<>",
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Gt => ">",
            Self::Ge => ">=",
        })
    }
}

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = |negated: &bool| if *negated { "NOT " } else { "" };
        match self {
            // An empty AND asks nothing, an empty OR offers nothing.
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
                fmt_text(f, pattern)?;
                match escape {
                    None => Ok(()),
                    Some(escape) => {
                        f.write_str(" ESCAPE ")?;
                        fmt_text(f, escape.encode_utf8(&mut [0; 4]))
                    }
                }
            }
            Self::Bare(operand) => write!(f, "{operand}"),
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

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_path(f, &self.0)
    }
}

/// Writes a path with back-ticks around the parts that need them.
pub(super) fn fmt_path(f: &mut fmt::Formatter<'_>, path: &[String]) -> fmt::Result {
    for (i, part) in path.iter().enumerate() {
        f.write_str(if i > 0 { "." } else { "" })?;
        let plain = part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && !RESERVED.iter().any(|word| word.eq_ignore_ascii_case(part));
        if plain { f.write_str(part)? } else { write!(f, "`{}`", part.replace('`', "``"))? }
    }
    Ok(())
}

fn fmt_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    write!(f, "'{}'", text.replace('\'', "''"))
}

/// Writes a value so that it reads back with the same type, as far as the language has one for it.
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
        Scalar::String(text) => fmt_text(f, text),
        Scalar::Binary(bytes) => {
            f.write_str("X'")?;
            for byte in bytes {
                write!(f, "{byte:02x}")?;
            }
            f.write_str("'")
        }
        Scalar::Date(_) => write!(f, "DATE '{value}'"),
        Scalar::Timestamp(_) => write!(f, "TIMESTAMP '{value}'"),
        Scalar::TimestampNtz(_) => write!(f, "TIMESTAMP_NTZ '{value}'"),
    }
}
