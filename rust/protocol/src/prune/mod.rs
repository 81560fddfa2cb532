//! Skipping: which files or row groups cannot hold a matching row.
//!
//! It works on any [`Bounds`]: log statistics, partition values, Parquet footers. It does not know where bounds come
//! from and does no I/O.
//!
//! Invariant: a container is dropped only if its bounds prove that no row makes the predicate TRUE. Missing, shortened
//! or wide bounds keep it; NULL is "unknown", not FALSE. Proved by `prune::properties::prune_never_drops_a_match`;
//! cases in `tests/data/text/prune.txt`.
//!
//! PROTOCOL.md: "Per-file Statistics".

mod bounds;
mod column_bounds;

use arrow_buffer::BooleanBuffer;

pub use self::bounds::Bounds;
use self::bounds::Cache;
use crate::error::{Error, Result};
use crate::predicate::{BoundPredicate, Column, Op};

/// The containers that may hold a row for which the predicate is TRUE.
///
/// # Errors
/// Those of `bounds`, and `Internal` if it answers with another type or length than asked for.
pub fn keep(predicate: &BoundPredicate, bounds: &dyn Bounds) -> Result<BooleanBuffer> {
    let mut cache = Cache::new(bounds)?;
    let mut kept = cache.may_have_rows();
    for conjunct in predicate.split_conjuncts() {
        if kept.count_set_bits() == 0 {
            break;
        }
        kept = &kept & &may_be(Outcome::True, conjunct, &mut cache)?;
    }
    Ok(kept)
}

/// The containers whose every row certainly makes the predicate TRUE.
///
/// # Errors
/// As for [`keep`].
pub fn always(predicate: &BoundPredicate, bounds: &dyn Bounds) -> Result<BooleanBuffer> {
    let mut cache = Cache::new(bounds)?;
    let is_false = may_be(Outcome::False, predicate, &mut cache)?;
    Ok(!&(&is_false | &may_be(Outcome::Null, predicate, &mut cache)?))
}

/// The result of a predicate for a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    True,
    False,
    Null,
}

/// The containers with a row for which `predicate` may be `outcome`. A bit is clear only if the bounds prove that there is
/// no such row.
fn may_be(outcome: Outcome, predicate: &BoundPredicate, cache: &mut Cache) -> Result<BooleanBuffer> {
    let containers = cache.containers();
    let all =
        |value: bool| if value { BooleanBuffer::new_set(containers) } else { BooleanBuffer::new_unset(containers) };
    // AND is TRUE only if all terms are, and OR is FALSE only if all are (`needs_all`). Else one such term is enough.
    let of_terms = |terms: &[BoundPredicate], needs_all: bool, cache: &mut Cache| {
        terms.iter().try_fold(all(needs_all), |result, term| {
            let term = may_be(outcome, term, cache)?;
            Ok::<_, Error>(if needs_all { &result & &term } else { &result | &term })
        })
    };
    let is_true = outcome == Outcome::True;
    Ok(match predicate {
        BoundPredicate::Constant(value) => all(match outcome {
            Outcome::True => *value == Some(true),
            Outcome::False => *value == Some(false),
            Outcome::Null => value.is_none(),
        }),
        BoundPredicate::And(terms) => of_terms(terms, is_true, cache)?,
        BoundPredicate::Or(terms) => of_terms(terms, outcome == Outcome::False, cache)?,
        BoundPredicate::Not(inner) => {
            let opposite = match outcome {
                Outcome::True => Outcome::False,
                Outcome::False => Outcome::True,
                Outcome::Null => Outcome::Null,
            };
            may_be(opposite, inner, cache)?
        }
        BoundPredicate::Expression(_) => all(true),
        BoundPredicate::IsNull(_) | BoundPredicate::IsNotNull(_) if outcome == Outcome::Null => all(false),
        BoundPredicate::IsNull(column) => cache.presence_of(column)?.may_be_null(is_true),
        BoundPredicate::IsNotNull(column) => cache.presence_of(column)?.may_be_null(!is_true),
        BoundPredicate::CompareColumns { left, op, right } => {
            let (l, r) = (cache.bounds_of(left)?.clone(), cache.bounds_of(right)?.clone());
            match outcome {
                Outcome::Null => &l.may_have_null | &r.may_have_null,
                Outcome::True | Outcome::False => {
                    let op = if is_true { *op } else { op.negate() };
                    &(&l.may_have_value & &r.may_have_value) & &l.may_compare(left, op, &r, right)?
                }
            }
        }
        BoundPredicate::Fixed { column, .. }
        | BoundPredicate::Compare { column, .. }
        | BoundPredicate::Range { column, .. }
        | BoundPredicate::In { column, .. }
        | BoundPredicate::Like { column, .. } => match outcome {
            // NULL where the column is.
            Outcome::Null => cache.presence_of(column)?.may_have_null.clone(),
            Outcome::True | Outcome::False => may_hold(is_true, predicate, column, cache)?,
        },
    })
}

/// Whether a condition on the values of one column may hold for some value, or fail.
fn may_hold(holds: bool, predicate: &BoundPredicate, column: &Column, cache: &mut Cache) -> Result<BooleanBuffer> {
    if let BoundPredicate::Fixed { value, .. } = predicate {
        let bounds = cache.presence_of(column)?;
        return Ok(if *value == holds { bounds.may_have_value.clone() } else { bounds.none() });
    }
    let bounds = cache.bounds_of(column)?;
    let of_values = match predicate {
        BoundPredicate::Compare { op, value, .. } => {
            bounds.may(column, if holds { *op } else { op.negate() }, value)?
        }
        BoundPredicate::Range { low, low_included, high, high_included, .. } => {
            let above = if *low_included { Op::Ge } else { Op::Gt };
            let below = if *high_included { Op::Le } else { Op::Lt };
            match holds {
                true => &bounds.may(column, below, high)? & &bounds.may_between(column, above, low, high)?,
                false => &bounds.may(column, above.negate(), low)? | &bounds.may(column, below.negate(), high)?,
            }
        }
        BoundPredicate::In { values, .. } if holds => bounds.may_be_in(column, values)?,
        BoundPredicate::In { values, .. } => bounds.may_be_outside(column, values)?,
        BoundPredicate::Like { pattern, .. } if holds => bounds.may_match(column, pattern)?,
        BoundPredicate::Like { pattern, .. } => bounds.may_mismatch(pattern)?,
        _ => bounds.all(),
    };
    Ok(&of_values & &bounds.may_have_value)
}
