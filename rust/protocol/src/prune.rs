//! Skipping: which files or row groups cannot hold a matching row.
//!
//! Works on any [`Bounds`]: log statistics, partition values, Parquet footers. Knows nothing of where bounds come
//! from, and does no I/O.
//!
//! Invariant: a container is dropped only if its bounds prove that no row makes the predicate TRUE. Missing, shortened
//! or wide bounds keep it; NULL is "unknown", not FALSE. Proved by `prune::properties::prune_never_drops_a_match`;
//! cases in `tests/data/text/prune.txt`.
//!
//! PROTOCOL.md: "Per-file Statistics".

mod bounds;
mod facts;

use arrow_buffer::BooleanBuffer;

pub use self::bounds::Bounds;
use self::bounds::Cache;
use crate::error::Result;
use crate::predicate::{BoundPredicate, Op};

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
        kept = &kept & &possible(conjunct, &mut cache)?.is_true;
    }
    Ok(kept)
}

/// The containers whose every row certainly makes the predicate TRUE.
///
/// # Errors
/// As for [`keep`].
pub fn always(predicate: &BoundPredicate, bounds: &dyn Bounds) -> Result<BooleanBuffer> {
    let possible = possible(predicate, &mut Cache::new(bounds)?)?;
    Ok(!&(&possible.is_false | &possible.is_null))
}

/// What a predicate may be for some row, per container. A bit is clear only when proved.
struct Possible {
    is_true: BooleanBuffer,
    is_false: BooleanBuffer,
    is_null: BooleanBuffer,
}

fn possible(predicate: &BoundPredicate, cache: &mut Cache) -> Result<Possible> {
    let containers = cache.containers();
    let all =
        |value: bool| if value { BooleanBuffer::new_set(containers) } else { BooleanBuffer::new_unset(containers) };
    Ok(match predicate {
        BoundPredicate::Constant(value) => Possible {
            is_true: all(*value == Some(true)),
            is_false: all(*value == Some(false)),
            is_null: all(value.is_none()),
        },
        BoundPredicate::And(terms) => {
            let mut sum = Possible { is_true: all(true), is_false: all(false), is_null: all(false) };
            for term in terms {
                let term = possible(term, cache)?;
                sum.is_true = &sum.is_true & &term.is_true;
                sum.is_false = &sum.is_false | &term.is_false;
                sum.is_null = &sum.is_null | &term.is_null;
            }
            sum
        }
        BoundPredicate::Or(terms) => {
            let mut sum = Possible { is_true: all(false), is_false: all(true), is_null: all(false) };
            for term in terms {
                let term = possible(term, cache)?;
                sum.is_true = &sum.is_true | &term.is_true;
                sum.is_false = &sum.is_false & &term.is_false;
                sum.is_null = &sum.is_null | &term.is_null;
            }
            sum
        }
        BoundPredicate::Not(inner) => {
            let Possible { is_true, is_false, is_null } = possible(inner, cache)?;
            Possible { is_true: is_false, is_false: is_true, is_null }
        }
        BoundPredicate::IsNull(column) => {
            let facts = cache.facts(column)?;
            Possible { is_true: facts.some_null.clone(), is_false: facts.some_value.clone(), is_null: all(false) }
        }
        BoundPredicate::IsNotNull(column) => {
            let facts = cache.facts(column)?;
            Possible { is_true: facts.some_value.clone(), is_false: facts.some_null.clone(), is_null: all(false) }
        }
        BoundPredicate::CompareColumns { left, op, right } => {
            let (l, r) = (cache.bounded_facts(left)?.clone(), cache.bounded_facts(right)?.clone());
            let both = &l.some_value & &r.some_value;
            Possible {
                is_true: &both & &l.may_compare(left, *op, &r, right)?,
                is_false: &both & &l.may_compare(left, op.negate(), &r, right)?,
                is_null: &l.some_null | &r.some_null,
            }
        }
        BoundPredicate::Fixed { column, value } => {
            let facts = cache.facts(column)?;
            facts.among_values(all(*value), all(!*value))
        }
        BoundPredicate::Compare { column, op, value } => {
            let facts = cache.bounded_facts(column)?;
            facts.among_values(facts.may(column, *op, value)?, facts.may(column, op.negate(), value)?)
        }
        BoundPredicate::Range { column, low, low_included, high, high_included } => {
            let facts = cache.bounded_facts(column)?;
            let above = if *low_included { Op::Ge } else { Op::Gt };
            let below = if *high_included { Op::Le } else { Op::Lt };
            let inside = &facts.may(column, below, high)? & &facts.may_between(column, above, low, high)?;
            let outside = &facts.may(column, above.negate(), low)? | &facts.may(column, below.negate(), high)?;
            facts.among_values(inside, outside)
        }
        BoundPredicate::In { column, values } => {
            let facts = cache.bounded_facts(column)?;
            let (found, other) = facts.may_be_in(column, values)?;
            facts.among_values(found, other)
        }
        BoundPredicate::Like { column, pattern } => {
            let facts = cache.bounded_facts(column)?;
            let (matching, other) = facts.may_match(column, pattern)?;
            facts.among_values(matching, other)
        }
    })
}
