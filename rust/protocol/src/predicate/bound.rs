//! The tree of a predicate that is bound to a schema.
//!
//! Plain data: every column exists, every value is of its column's type and not null. Building an AND joins two limits
//! of one column into a range, building an OR joins equalities of one column into a set; neither changes the meaning.

use std::collections::{HashMap, HashSet};

use crate::error::Result;
use crate::expression::{BoundExpression, Column, Op, Pattern, ValueSet};
use crate::scalar::Scalar;

/// A predicate over a schema's columns.
#[derive(Debug, Clone, PartialEq)]
pub enum BoundPredicate {
    /// One value for every row; `None` is NULL.
    Constant(Option<bool>),
    /// All of these.
    And(Vec<BoundPredicate>),
    /// At least one of these.
    Or(Vec<BoundPredicate>),
    /// The opposite; NULL stays NULL.
    Not(Box<BoundPredicate>),
    /// The column is NULL.
    IsNull(Column),
    /// The column is not NULL.
    IsNotNull(Column),
    /// One value for every row whose column is not NULL, and NULL for the others.
    Fixed {
        /// The column whose NULLs make it NULL.
        column: Column,
        /// The value for all other rows.
        value: bool,
    },
    /// A column and a value.
    Compare {
        /// Before the operator.
        column: Column,
        /// How they are compared.
        op: Op,
        /// Not null, of the column's type.
        value: Scalar,
    },
    /// Two columns of one type.
    CompareColumns {
        /// Before the operator.
        left: Column,
        /// How they are compared.
        op: Op,
        /// After the operator.
        right: Column,
    },
    /// Both a lower and an upper limit. One condition, because a NaN beyond one limit is outside both together.
    Range {
        /// What is limited.
        column: Column,
        /// Lower limit, not null, of the column's type.
        low: Scalar,
        /// Whether the lower limit itself is inside.
        low_included: bool,
        /// Upper limit, not null, of the column's type.
        high: Scalar,
        /// Whether the upper limit itself is inside.
        high_included: bool,
    },
    /// The column is one of these values.
    In {
        /// What is looked for.
        column: Column,
        /// Where, of the column's type.
        values: ValueSet,
    },
    /// The text column matches.
    Like {
        /// What is matched.
        column: Column,
        /// What it must match.
        pattern: Pattern,
    },
    /// Any other condition. It is evaluated exactly and decides nothing else: no container is skipped by it, and any
    /// row may make it TRUE.
    Expression(Box<BoundExpression>),
}

impl BoundPredicate {
    /// Whether known bounds decide it without counts of nulls and rows: if there is a value, there are
    /// rows, and not all of them are null.
    pub fn is_decided_by_bounds(&self) -> bool {
        match self {
            Self::And(terms) | Self::Or(terms) => terms.iter().all(Self::is_decided_by_bounds),
            Self::Not(_) | Self::IsNull(_) => false,
            Self::Constant(_)
            | Self::IsNotNull(_)
            | Self::Fixed { .. }
            | Self::Compare { .. }
            | Self::CompareColumns { .. }
            | Self::Range { .. }
            | Self::In { .. }
            | Self::Like { .. }
            | Self::Expression(_) => true,
        }
    }
}

impl BoundPredicate {
    /// Every column the predicate looks at, each once, in order of appearance.
    pub fn columns(&self) -> Vec<&Column> {
        let (mut columns, mut seen) = (Vec::new(), HashSet::new());
        self.collect_columns(&mut |column: &'_ Column| seen.insert(column.path.clone()), &mut columns);
        columns
    }

    fn collect_columns<'a>(&'a self, is_new: &mut impl FnMut(&Column) -> bool, columns: &mut Vec<&'a Column>) {
        let mut add = |column: &'a Column| {
            if is_new(column) {
                columns.push(column);
            }
        };
        match self {
            Self::Constant(_) => {}
            Self::And(terms) | Self::Or(terms) => {
                for term in terms {
                    term.collect_columns(is_new, columns);
                }
            }
            Self::Not(inner) => inner.collect_columns(is_new, columns),
            Self::IsNull(column)
            | Self::IsNotNull(column)
            | Self::Fixed { column, .. }
            | Self::Compare { column, .. }
            | Self::Range { column, .. }
            | Self::In { column, .. }
            | Self::Like { column, .. } => add(column),
            Self::CompareColumns { left, right, .. } => {
                add(left);
                add(right);
            }
            Self::Expression(expression) => expression.columns().into_iter().for_each(add),
        }
    }

    /// The conditions that must all be TRUE: the terms of an AND, or the whole.
    pub fn split_conjuncts(&self) -> Vec<&Self> {
        match self {
            Self::And(terms) => terms.iter().flat_map(Self::split_conjuncts).collect(),
            whole => vec![whole],
        }
    }

    /// The predicate, or its opposite.
    pub(super) fn negated(self, negate: bool) -> Self {
        if !negate {
            return self;
        }
        match self {
            Self::Constant(value) => Self::Constant(value.map(|value| !value)),
            Self::Fixed { column, value } => Self::Fixed { column, value: !value },
            Self::IsNull(column) => Self::IsNotNull(column),
            Self::IsNotNull(column) => Self::IsNull(column),
            Self::Compare { column, op: Op::Eq, value: Scalar::Boolean(value) } => {
                Self::Compare { column, op: Op::Eq, value: Scalar::Boolean(!value) }
            }
            Self::Compare { column, op, value } => Self::Compare { column, op: op.negate(), value },
            Self::CompareColumns { left, op, right } => Self::CompareColumns { left, op: op.negate(), right },
            Self::Not(inner) => *inner,
            other @ (Self::And(_)
            | Self::Or(_)
            | Self::Range { .. }
            | Self::In { .. }
            | Self::Like { .. }
            | Self::Expression(_)) => Self::Not(Box::new(other)),
        }
    }

    /// The AND of terms. A single term stays as it is, no term is TRUE.
    pub fn all_of(terms: Vec<Self>) -> Self {
        let mut merged: Vec<Self> = Vec::with_capacity(terms.len());
        // Where in `merged` a limit of each column waits for its counterpart.
        let mut limits: [HashMap<Vec<String>, usize>; 2] = [HashMap::new(), HashMap::new()];
        let flat = terms.into_iter().flat_map(|term| match term {
            Self::And(inner) => inner,
            other => vec![other],
        });
        for term in flat {
            if let Self::Compare { column, op: op @ (Op::Lt | Op::Le | Op::Gt | Op::Ge), .. } = &term {
                let [lows, highs] = &mut limits;
                let is_low = matches!(op, Op::Gt | Op::Ge);
                let (same_side, other_side) = if is_low { (lows, highs) } else { (highs, lows) };
                if let Some(waiting) = other_side.remove(&column.path).and_then(|at| merged.get_mut(at)) {
                    *waiting = if is_low { range(&term, waiting) } else { range(waiting, &term) }.unwrap_or(term);
                    continue;
                }
                same_side.insert(column.path.clone(), merged.len());
            }
            merged.push(term);
        }
        match (merged.pop(), merged.is_empty()) {
            (None, _) => Self::Constant(Some(true)),
            (Some(only), true) => only,
            (Some(last), false) => {
                merged.push(last);
                Self::And(merged)
            }
        }
    }

    /// The OR of terms. A single term stays as it is, no term is FALSE.
    ///
    /// # Errors
    /// `Internal` if a comparison holds a value that is not of its column's type.
    pub fn any_of(terms: Vec<Self>) -> Result<Self> {
        let mut merged: Vec<Self> = Vec::with_capacity(terms.len());
        // Per column, where its first equality is in `merged` and the values of all of them.
        let mut equalities: HashMap<Vec<String>, (usize, Column, Vec<Scalar>)> = HashMap::new();
        let flat = terms.into_iter().flat_map(|term| match term {
            Self::Or(inner) => inner,
            other => vec![other],
        });
        for term in flat {
            if let Self::Compare { column, op: Op::Eq, value } = &term {
                match equalities.get_mut(&column.path) {
                    Some((_, _, values)) => {
                        values.push(value.clone());
                        continue;
                    }
                    None => {
                        let first = (merged.len(), column.clone(), vec![value.clone()]);
                        equalities.insert(column.path.clone(), first);
                    }
                }
            }
            merged.push(term);
        }
        for (at, column, values) in equalities.into_values() {
            if let (Some(first), 2..) = (merged.get_mut(at), values.len()) {
                *first = one_of(column, values)?;
            }
        }
        Ok(match (merged.pop(), merged.is_empty()) {
            (None, _) => Self::Constant(Some(false)),
            (Some(only), true) => only,
            (Some(last), false) => {
                merged.push(last);
                Self::Or(merged)
            }
        })
    }
}

fn range(low: &BoundPredicate, high: &BoundPredicate) -> Option<BoundPredicate> {
    match (low, high) {
        (
            BoundPredicate::Compare { column, op: low_op, value: low },
            BoundPredicate::Compare { op: high_op, value: high, .. },
        ) => Some(BoundPredicate::Range {
            column: column.clone(),
            low: low.clone(),
            low_included: *low_op == Op::Ge,
            high: high.clone(),
            high_included: *high_op == Op::Le,
        }),
        _ => None,
    }
}

pub(super) fn one_of(column: Column, mut values: Vec<Scalar>) -> Result<BoundPredicate> {
    Ok(match values.len() {
        0 => BoundPredicate::Fixed { column, value: false },
        1 => match values.pop() {
            Some(value) => BoundPredicate::Compare { column, op: Op::Eq, value },
            None => BoundPredicate::Fixed { column, value: false },
        },
        _ => {
            let values = ValueSet::new(values, column.primitive()?)?;
            BoundPredicate::In { column, values }
        }
    })
}
