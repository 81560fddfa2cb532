//! Which rows of the target a merge reads, as SQL: those that a row of the source can match, and those to which a clause for
//! rows that no row of the source matches can apply. All others stay as they are, whatever the source has.
//!
//! The filter may be TRUE in more rows, never in fewer. It is also the condition that concurrent changes are checked against.
//!
//! Proved by `merge::files_are_read_that_match_or_satisfy_a_clause`, and by `test_merge.py`, which compares with a model.

use deltic_protocol::predicate;
use deltic_protocol::row_merge::{Bounds, JoinCondition, JoinKey, Sides, target_filter};
use deltic_protocol::schema::StructType;

use super::clauses::{Clause, When};
use super::join::Join;
use crate::error::Result;

/// The longest filter text that is made of one key's values.
const LONGEST_FILTER: usize = 1 << 20;

/// Conditions for the rows of the target that a merge reads.
pub(super) struct TargetFilter {
    /// What the merge's condition says of the target alone: all are TRUE in a row that matches.
    of_matches: Vec<String>,
    /// One is TRUE in a row to which a clause for rows that no row of the source matches applies.
    of_clauses: Vec<String>,
}

/// The keys of a merge, and their values in the source.
pub(super) struct SourceKeys<'a> {
    pub(super) keys: &'a [JoinKey],
    /// The bounds of each key.
    pub(super) bounds: &'a [Bounds],
    /// How many rows the source has.
    pub(super) rows: u64,
}

impl TargetFilter {
    /// None if a clause may apply to any row that no row of the source matches.
    pub(super) fn new(clauses: &[Clause], on: &JoinCondition, sides: &Sides) -> Result<Option<Self>> {
        let mut of_clauses = Vec::new();
        for clause in clauses.iter().filter(|clause| clause.when == When::NotMatchedBySource) {
            let filter = clause.condition.as_deref().map(|condition| target_filter(condition, sides)).transpose()?;
            let Some(filter) = filter.flatten() else { return Ok(None) };
            of_clauses.push(filter);
        }
        Ok(Some(Self { of_matches: on.target_only.clone(), of_clauses }))
    }

    /// For any keys of the source; none if all rows are read.
    pub(super) fn without_keys(&self, target: &StructType) -> Option<String> {
        let of_matches = all_of(&self.of_matches)?;
        match self.of_clauses.is_empty() {
            // The join relies on it: see `join`.
            true => Some(of_matches),
            false => Some(self.or_of_clauses(of_matches)).filter(|text| is_filter(text, target)),
        }
    }

    /// For these keys of the source; none if all rows are read.
    pub(super) fn with_keys(&self, source: &SourceKeys<'_>, target: &StructType) -> Option<String> {
        let of_keys = source.bounds.iter().zip(source.keys).filter_map(|(bounds, key)| bounds.filter(key, target));
        let mut filters: Vec<String> = of_keys.filter(|text| text.len() <= LONGEST_FILTER).collect();
        if source.rows == 0 {
            filters.push("FALSE".to_owned());
        }
        let of_matches = all_of(&[self.of_matches.as_slice(), &filters].concat())?;
        // A filter that is too long is left out, and more rows are read.
        Some(self.or_of_clauses(of_matches))
            .filter(|text| is_filter(text, target))
            .or_else(|| self.without_keys(target))
    }

    fn or_of_clauses(&self, of_matches: String) -> String {
        match self.of_clauses.is_empty() {
            true => of_matches,
            false => {
                let either = [&[of_matches], self.of_clauses.as_slice()].concat();
                either.iter().map(|filter| format!("({filter})")).collect::<Vec<_>>().join(" OR ")
            }
        }
    }
}

fn is_filter(text: &str, target: &StructType) -> bool {
    predicate::parse(text).and_then(|parsed| parsed.bind(target)).is_ok()
}

/// The bounds of the keys of the source's rows.
pub(super) fn key_bounds(join: &Join) -> Result<Vec<Bounds>> {
    let mut bounds: Vec<Bounds> = join.keys().iter().map(|_| Bounds::new()).collect();
    for values in join.source_keys() {
        for (bounds, values) in bounds.iter_mut().zip(&values?) {
            bounds.extend(values)?;
        }
    }
    Ok(bounds)
}

/// One condition of several; none of none.
fn all_of(conditions: &[String]) -> Option<String> {
    let conditions: Vec<String> = conditions.iter().map(|condition| format!("({condition})")).collect();
    (!conditions.is_empty()).then(|| conditions.join(" AND "))
}
