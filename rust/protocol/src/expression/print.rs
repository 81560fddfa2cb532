//! Prints expressions so that they parse to the same tree (`expression::properties::print_parse_round_trip`).
//!
//! Strings are written with the escapes of Spark's SQL, in the alternate form (`{:#}`) as filters have them.

use std::fmt::{self, Display};

use super::ast::{ArithmeticOp, Expression, Match, Name, Op};
use crate::scalar::Scalar;

/// Words that are never a column's name unless back-ticked.
pub(crate) const RESERVED: [&str; 11] =
    ["AND", "OR", "NOT", "IN", "IS", "NULL", "BETWEEN", "LIKE", "ESCAPE", "TRUE", "FALSE"];

/// Words that are no column's name in some places, and quoted everywhere inside of expressions.
const QUOTED: [&str; 28] = [
    "ILIKE",
    "RLIKE",
    "REGEXP",
    "DIV",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "CAST",
    "TRY_CAST",
    "AS",
    "DISTINCT",
    "FROM",
    "FOR",
    "INTERVAL",
    "EXTRACT",
    "SELECT",
    "EXISTS",
    "WITH",
    "WHERE",
    "ISNULL",
    "NOTNULL",
    "MOD",
    "SIMILAR",
    "GLOB",
    "MATCH",
    "CURRENT_DATE",
];

/// How tightly an expression binds; a part that binds less tightly than needed is put in parentheses.
pub(super) mod level {
    pub(crate) const OR: u8 = 1;
    pub(crate) const AND: u8 = 2;
    pub(crate) const NOT: u8 = 3;
    /// IS, IN, BETWEEN, LIKE.
    pub(crate) const TEST: u8 = 4;
    pub(crate) const COMPARE: u8 = 5;
    pub(crate) const ADD: u8 = 6;
    pub(crate) const MULTIPLY: u8 = 7;
    pub(crate) const SIGN: u8 = 8;
    pub(crate) const PRIMARY: u8 = 9;
}

impl ArithmeticOp {
    pub(super) fn level(self) -> u8 {
        match self {
            Self::Add | Self::Subtract | Self::Concat => level::ADD,
            Self::Multiply | Self::Divide | Self::Remainder | Self::Div => level::MULTIPLY,
        }
    }
}

impl Expression {
    fn level(&self) -> u8 {
        match self {
            // An empty AND is printed as TRUE, an empty OR as FALSE.
            Self::And(terms) | Self::Or(terms) if terms.is_empty() => level::PRIMARY,
            Self::Or(_) => level::OR,
            Self::And(_) => level::AND,
            Self::Not(_) => level::NOT,
            Self::IsNull { .. } | Self::IsTruth { .. } | Self::In { .. } | Self::Between { .. } | Self::Like { .. } => {
                level::TEST
            }
            Self::Compare { .. } | Self::NullSafeEqual { .. } => level::COMPARE,
            Self::Arithmetic { op, .. } => op.level(),
            Self::Negate(_) => level::SIGN,
            Self::Literal(_) | Self::Column(_) | Self::Cast { .. } | Self::Case { .. } | Self::Call { .. } => {
                level::PRIMARY
            }
        }
    }

    fn part(&self, f: &mut fmt::Formatter<'_>, at_least: u8) -> fmt::Result {
        if self.level() >= at_least {
            return self.fmt(f);
        }
        f.write_str("(")?;
        self.fmt(f)?;
        f.write_str(")")
    }

    /// IS, IN, BETWEEN and LIKE.
    fn fmt_test(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = |negated: bool| if negated { "NOT " } else { "" };
        match self {
            Self::IsNull { operand, negated } => {
                operand.part(f, level::COMPARE)?;
                write!(f, " IS {}NULL", not(*negated))
            }
            Self::IsTruth { operand, value, negated } => {
                operand.part(f, level::COMPARE)?;
                write!(f, " IS {}{}", not(*negated), if *value { "TRUE" } else { "FALSE" })
            }
            Self::In { operand, list, negated } => {
                operand.part(f, level::COMPARE)?;
                write!(f, " {}IN (", not(*negated))?;
                chain(f, list, ", ", level::OR)?;
                f.write_str(")")
            }
            Self::Between { operand, low, high, negated } => {
                operand.part(f, level::COMPARE)?;
                write!(f, " {}BETWEEN ", not(*negated))?;
                low.part(f, level::COMPARE)?;
                f.write_str(" AND ")?;
                high.part(f, level::COMPARE)
            }
            Self::Like { operand, kind, pattern, escape, negated } => {
                operand.part(f, level::COMPARE)?;
                write!(f, " {}{} ", not(*negated), kind.word())?;
                fmt_string(f, pattern, f.alternate())?;
                let Some(escape) = escape else { return Ok(()) };
                f.write_str(" ESCAPE ")?;
                fmt_string(f, escape.encode_utf8(&mut [0; 4]), f.alternate())
            }
            _ => Ok(()),
        }
    }

    fn fmt_case(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Case { operand, branches, otherwise } = self else { return Ok(()) };
        f.write_str("CASE")?;
        if let Some(operand) = operand {
            // A sign or the like would read as an operator after a column called `case`.
            f.write_str(" ")?;
            operand.part(f, u8::MAX)?;
        }
        for (when, then) in branches {
            f.write_str(" WHEN ")?;
            when.fmt(f)?;
            f.write_str(" THEN ")?;
            then.fmt(f)?;
        }
        if let Some(otherwise) = otherwise {
            f.write_str(" ELSE ")?;
            otherwise.fmt(f)?;
        }
        f.write_str(" END")
    }
}

fn chain(f: &mut fmt::Formatter<'_>, terms: &[Expression], separator: &str, at_least: u8) -> fmt::Result {
    for (i, term) in terms.iter().enumerate() {
        f.write_str(if i > 0 { separator } else { "" })?;
        term.part(f, at_least)?;
    }
    Ok(())
}

fn infix(f: &mut fmt::Formatter<'_>, left: &Expression, op: &str, right: &Expression, level: u8) -> fmt::Result {
    left.part(f, level)?;
    write!(f, " {op} ")?;
    right.part(f, level + 1)
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(value) => fmt_literal(f, value),
            Self::Column(Name(path)) => fmt_quoted_path(f, path),
            Self::And(terms) if terms.is_empty() => f.write_str("TRUE"),
            Self::Or(terms) if terms.is_empty() => f.write_str("FALSE"),
            Self::And(terms) => chain(f, terms, " AND ", if terms.len() > 1 { level::NOT } else { level::AND }),
            Self::Or(terms) => chain(f, terms, " OR ", if terms.len() > 1 { level::AND } else { level::OR }),
            Self::Not(inner) => {
                f.write_str("NOT ")?;
                inner.part(f, level::NOT)
            }
            Self::Negate(inner) => {
                // `--` is a comment, and a sign before a number belongs to the number.
                let plain = matches!(**inner, Self::Column(_) | Self::Call { .. });
                f.write_str("-")?;
                inner.part(f, if plain { level::PRIMARY } else { u8::MAX })
            }
            Self::Arithmetic { left, op, right } => infix(f, left, op.symbol(), right, op.level()),
            Self::Compare { left, op, right } => infix(f, left, op.symbol(), right, level::COMPARE),
            Self::NullSafeEqual { left, right } => infix(f, left, "<=>", right, level::COMPARE),
            Self::IsNull { .. } | Self::IsTruth { .. } | Self::In { .. } | Self::Between { .. } | Self::Like { .. } => {
                self.fmt_test(f)
            }
            Self::Cast { operand, to, is_try } => {
                f.write_str(if *is_try { "TRY_CAST(" } else { "CAST(" })?;
                operand.fmt(f)?;
                write!(f, " AS {to})")
            }
            Self::Case { .. } => self.fmt_case(f),
            Self::Call { name, arguments } => {
                write!(f, "{name}(")?;
                chain(f, arguments, ", ", level::OR)?;
                f.write_str(")")
            }
        }
    }
}

impl ArithmeticOp {
    pub(super) fn symbol(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
            Self::Div => "div",
            Self::Concat => "||",
        }
    }
}

impl Op {
    pub(super) fn symbol(self) -> &'static str {
        match self {
            Self::Eq => "=",
            Self::Ne => "<>",
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Gt => ">",
            Self::Ge => ">=",
        }
    }
}

impl Match {
    /// The operator as it is written.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Like => "LIKE",
            Self::ILike => "ILIKE",
            Self::RLike => "RLIKE",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.symbol())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_path(f, &self.0)
    }
}

/// Writes a path with back-ticks around the parts that need them.
pub(crate) fn fmt_path(f: &mut fmt::Formatter<'_>, path: &[String]) -> fmt::Result {
    fmt_parts(f, path, &[])
}

/// As [`fmt_path`], with more words quoted, for names beside other words.
fn fmt_quoted_path(f: &mut fmt::Formatter<'_>, path: &[String]) -> fmt::Result {
    fmt_parts(f, path, &QUOTED)
}

fn fmt_parts(f: &mut fmt::Formatter<'_>, path: &[String], quoted: &[&str]) -> fmt::Result {
    let is = |words: &[&str], part: &str| words.iter().any(|word| word.eq_ignore_ascii_case(part));
    for (i, part) in path.iter().enumerate() {
        f.write_str(if i > 0 { "." } else { "" })?;
        let plain = part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && !is(&RESERVED, part)
            && !is(quoted, part);
        if plain { f.write_str(part)? } else { write!(f, "`{}`", part.replace('`', "``"))? }
    }
    Ok(())
}

/// Writes a string literal; if `plain`, its only escape is the doubled quote.
fn fmt_string(f: &mut fmt::Formatter<'_>, text: &str, plain: bool) -> fmt::Result {
    match plain {
        true => write!(f, "'{}'", text.replace('\'', "''")),
        false => write!(f, "'{}'", text.replace('\\', "\\\\").replace('\'', "\\'")),
    }
}

/// Writes a value so that it reads back with the same type.
fn fmt_literal(f: &mut fmt::Formatter<'_>, value: &Scalar) -> fmt::Result {
    match value {
        Scalar::Null => f.write_str("NULL"),
        Scalar::Boolean(true) => f.write_str("TRUE"),
        Scalar::Boolean(false) => f.write_str("FALSE"),
        Scalar::Byte(v) => write!(f, "{v}Y"),
        Scalar::Short(v) => write!(f, "{v}S"),
        Scalar::Integer(v) => write!(f, "{v}"),
        Scalar::Long(v) => write!(f, "{v}L"),
        Scalar::Decimal { scale: 0, .. } => write!(f, "{value}BD"),
        Scalar::Decimal { .. } => write!(f, "{value}"),
        Scalar::Float(_) => write!(f, "FLOAT '{value}'"),
        Scalar::Double(v) if v.is_finite() => write!(f, "{v:e}"),
        Scalar::Double(_) => write!(f, "DOUBLE '{value}'"),
        Scalar::String(text) => fmt_string(f, text, f.alternate()),
        Scalar::Binary(bytes) => fmt_bytes(f, bytes),
        Scalar::Date(_) => write!(f, "DATE '{value}'"),
        Scalar::Timestamp(_) => write!(f, "TIMESTAMP '{value}'"),
        Scalar::TimestampNtz(_) => write!(f, "TIMESTAMP_NTZ '{value}'"),
    }
}

fn fmt_bytes(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    f.write_str("X'")?;
    for byte in bytes {
        write!(f, "{byte:02x}")?;
    }
    f.write_str("'")
}
