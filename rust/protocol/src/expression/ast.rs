//! The syntax tree of an expression as typed: names are unresolved, literals have the type that Spark gives them.
//!
//! Chains of AND and OR are flat lists, so their length costs no stack; everything else is nested at most as deep as
//! the parser allows. Printing is in `print`.

use super::matching::like::Pattern;
use crate::scalar::Scalar;
use crate::schema::PrimitiveType;

/// A value of a row, or of no row in particular.
#[derive(Debug, Clone, PartialEq)]
pub enum Expression {
    /// A value.
    Literal(Scalar),
    /// A column or a field inside one.
    Column(Name),
    /// All of these.
    And(Vec<Expression>),
    /// At least one of these.
    Or(Vec<Expression>),
    /// The opposite; NULL stays NULL.
    Not(Box<Expression>),
    /// `-operand`
    Negate(Box<Expression>),
    /// `left op right`, a number, a date or a string.
    Arithmetic {
        /// Before the operator.
        left: Box<Expression>,
        /// What is computed.
        op: ArithmeticOp,
        /// After the operator.
        right: Box<Expression>,
    },
    /// `left op right`, NULL if a side is NULL.
    Compare {
        /// Before the operator.
        left: Box<Expression>,
        /// How the two are compared.
        op: Op,
        /// After the operator.
        right: Box<Expression>,
    },
    /// `left <=> right`: equal or both NULL; never NULL itself.
    NullSafeEqual {
        /// Before the operator.
        left: Box<Expression>,
        /// After the operator.
        right: Box<Expression>,
    },
    /// `operand IS NULL`
    IsNull {
        /// What is tested.
        operand: Box<Expression>,
        /// Whether NOT was written.
        negated: bool,
    },
    /// `operand IS TRUE`, `operand IS FALSE`; never NULL.
    IsTruth {
        /// What is tested.
        operand: Box<Expression>,
        /// TRUE or FALSE.
        value: bool,
        /// Whether NOT was written.
        negated: bool,
    },
    /// `operand IN (…)`
    In {
        /// What is looked for.
        operand: Box<Expression>,
        /// Where it is looked for.
        list: Vec<Expression>,
        /// Whether NOT was written.
        negated: bool,
    },
    /// `operand BETWEEN low AND high`, both included.
    Between {
        /// What is tested.
        operand: Box<Expression>,
        /// Smallest value.
        low: Box<Expression>,
        /// Greatest value.
        high: Box<Expression>,
        /// Whether NOT was written.
        negated: bool,
    },
    /// `operand LIKE 'pattern'`
    Like {
        /// What is tested.
        operand: Box<Expression>,
        /// How.
        kind: Match,
        /// `%` is any text, `_` any one character; or a regular expression.
        pattern: String,
        /// The character that escapes the next one; a backslash unless it is written.
        escape: Option<char>,
        /// Whether NOT was written.
        negated: bool,
    },
    /// `CAST(operand AS to)`
    Cast {
        /// What is cast.
        operand: Box<Expression>,
        /// To what.
        to: PrimitiveType,
        /// Whether TRY_CAST was written: NULL instead of an error.
        is_try: bool,
    },
    /// `CASE … END`
    Case {
        /// What is compared with each WHEN; without it each WHEN is a condition.
        operand: Option<Box<Expression>>,
        /// WHEN and THEN.
        branches: Vec<(Expression, Expression)>,
        /// ELSE.
        otherwise: Option<Box<Expression>>,
    },
    /// `name(arguments)`
    Call {
        /// In small letters.
        name: String,
        /// In order.
        arguments: Vec<Expression>,
    },
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

/// What is computed of two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ArithmeticOp {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`, never of whole numbers alone
    Divide,
    /// `%`, with the sign of the dividend
    Remainder,
    /// `div`, a long
    Div,
    /// `||`
    Concat,
}

/// How a string is matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Match {
    /// `LIKE`
    Like,
    /// `ILIKE`: capitals equal small letters.
    ILike,
    /// `RLIKE`: some part of the string matches a regular expression.
    RLike,
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

    /// The equivalent comparison with its sides exchanged.
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

    /// Whether values with this ordering satisfy the comparison.
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

/// Functions that may return different values for the same row.
pub(super) const NON_DETERMINISTIC: [&str; 12] = [
    "current_date",
    "current_timestamp",
    "curdate",
    "now",
    "localtimestamp",
    "current_user",
    "user",
    "rand",
    "random",
    "randn",
    "uuid",
    "monotonically_increasing_id",
];

impl Expression {
    /// The columns that are named, each once, in order of appearance.
    pub fn columns(&self) -> Vec<&Name> {
        let (mut found, mut seen) = (Vec::new(), std::collections::HashSet::new());
        self.visit(&mut |part| {
            if let Self::Column(name) = part
                && seen.insert(name)
            {
                found.push(name);
            }
        });
        found
    }

    /// Whether it always has the same value for the same row.
    pub fn is_deterministic(&self) -> bool {
        let mut found = true;
        self.visit(&mut |part| {
            if let Self::Call { name, .. } = part {
                found &= !NON_DETERMINISTIC.contains(&name.as_str());
            }
        });
        found
    }

    /// The expression with other names of columns: `rename` returns the new name, or `None` if it stays.
    #[must_use]
    pub fn rename(mut self, rename: &dyn Fn(&Name) -> Option<Name>) -> Self {
        self.visit_mut(&mut |part| {
            if let Self::Column(name) = part
                && let Some(renamed) = rename(name)
            {
                *name = renamed;
            }
        });
        self
    }

    /// This expression and all inside it, from the outside in.
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a Self)) {
        visit(self);
        match self {
            Self::Literal(_) | Self::Column(_) => {}
            Self::And(parts) | Self::Or(parts) | Self::Call { arguments: parts, .. } => {
                parts.iter().for_each(|part| part.visit(visit));
            }
            Self::Not(operand)
            | Self::Negate(operand)
            | Self::IsNull { operand, .. }
            | Self::IsTruth { operand, .. }
            | Self::Like { operand, .. }
            | Self::Cast { operand, .. } => operand.visit(visit),
            Self::Arithmetic { left, right, .. }
            | Self::Compare { left, right, .. }
            | Self::NullSafeEqual { left, right } => {
                left.visit(visit);
                right.visit(visit);
            }
            Self::In { operand, list, .. } => {
                operand.visit(visit);
                list.iter().for_each(|part| part.visit(visit));
            }
            Self::Between { operand, low, high, .. } => [operand, low, high].iter().for_each(|part| part.visit(visit)),
            Self::Case { operand, branches, otherwise } => {
                operand.iter().for_each(|part| part.visit(visit));
                for (when, then) in branches {
                    when.visit(visit);
                    then.visit(visit);
                }
                otherwise.iter().for_each(|part| part.visit(visit));
            }
        }
    }

    /// As [`Expression::visit`], from the inside out.
    pub(crate) fn visit_mut(&mut self, visit: &mut dyn FnMut(&mut Self)) {
        match self {
            Self::Literal(_) | Self::Column(_) => {}
            Self::And(parts) | Self::Or(parts) | Self::Call { arguments: parts, .. } => {
                parts.iter_mut().for_each(|part| part.visit_mut(visit));
            }
            Self::Not(operand)
            | Self::Negate(operand)
            | Self::IsNull { operand, .. }
            | Self::IsTruth { operand, .. }
            | Self::Like { operand, .. }
            | Self::Cast { operand, .. } => operand.visit_mut(visit),
            Self::Arithmetic { left, right, .. }
            | Self::Compare { left, right, .. }
            | Self::NullSafeEqual { left, right } => {
                left.visit_mut(visit);
                right.visit_mut(visit);
            }
            Self::In { operand, list, .. } => {
                operand.visit_mut(visit);
                list.iter_mut().for_each(|part| part.visit_mut(visit));
            }
            Self::Between { operand, low, high, .. } => {
                [operand, low, high].into_iter().for_each(|part| part.visit_mut(visit));
            }
            Self::Case { operand, branches, otherwise } => {
                operand.iter_mut().for_each(|part| part.visit_mut(visit));
                for (when, then) in branches {
                    when.visit_mut(visit);
                    then.visit_mut(visit);
                }
                otherwise.iter_mut().for_each(|part| part.visit_mut(visit));
            }
        }
        visit(self);
    }
}

/// Checks a pattern as the parser does.
pub(super) fn check_pattern(kind: Match, pattern: &str, escape: Option<char>) -> crate::error::Result<()> {
    match kind {
        Match::Like | Match::ILike => Pattern::new(pattern, escape).map(drop),
        Match::RLike => super::matching::regex::compile(pattern).map(drop),
    }
}
