//! The join of a merge: compares rows of the target's files, batch by batch, with the rows of the source.
//!
//! For each pair that makes the condition TRUE, the first clause whose own condition is TRUE decides what happens to the
//! target's row. Memory holds the keys of the source, `PAIRS` pairs at a time, and the changed rows ([`Updates`]).
//!
//! Proved by `tests/python/test_merge.py`, which compares with a model.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, StructArray, UInt32Array};
use arrow_select::take::take;
use deltic_protocol::expression::{BoundExpression, Context, evaluate_at};
use deltic_protocol::row_merge::{JoinKey, Sides};
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::arrow::to_arrow_type;

use super::super::find::MatchedRows;
use super::super::places::PlacedRows;
use super::clauses::{BoundClause, Clauses, TargetAction};
use super::keys::Keys;
use super::row_sizes::{GATHERED_BYTES, GATHERED_ROWS, RowSizes, fitting};
use super::source::{Source, batch_of_sides};
use super::updates::{NO_SOURCE_ROW, Updates};
use crate::error::{Error, Result};
use crate::scan::task::FileTask;
use crate::transaction::row_counts::MergeCounts;

/// How many pairs of a target row and a source row are evaluated together.
const PAIRS: usize = 64 * 1024;

/// The join of the source with the target.
#[derive(Debug)]
pub(crate) struct Join {
    pub(super) sides: Sides,
    pub(super) source: Arc<Source>,
    /// Whether these are all rows of the source.
    has_all_rows: bool,
    pub(super) clauses: Clauses,
    keys: Vec<JoinKey>,
    /// The rows of the source by their keys; none if no equality joins the sides.
    index: Option<Keys>,
    /// The remaining conditions for a pair of rows with equal keys.
    rest: Vec<BoundExpression>,
    /// The pairs, if another engine has joined the sides.
    placed: Option<PlacedRows>,
    now: Option<i64>,
    /// Columns of the source that conditions on pairs read.
    source_columns: Vec<usize>,
    outcome: Mutex<Outcome>,
}

/// The result of the join.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The updated rows of each file, sorted once the outcome is taken.
    pub(crate) updates: HashMap<String, Updates>,
    /// Which rows of the source match a row of the target.
    pub(crate) matched: Vec<bool>,
    /// Files with rows that match and are not changed.
    pub(crate) unchanged: HashSet<String>,
    pub(crate) counts: MergeCounts,
}

/// The result for one batch of the target.
struct JoinedBatch<'a> {
    /// The rows as a struct.
    rows: ArrayRef,
    /// Their sizes, computed when rows are first gathered.
    sizes: OnceCell<RowSizes>,
    matches: Vec<bool>,
    chosen: HashMap<u32, (TargetAction, u32)>,
    task: &'a FileTask,
    positions: &'a [i64],
}

/// The condition for a row of the source to match a row of the target: equal keys, and other conditions that are TRUE; or
/// the place of the row.
pub(super) struct PairCondition {
    pub(super) keys: Vec<JoinKey>,
    pub(super) rest: Vec<BoundExpression>,
    pub(super) placed: Option<PlacedRows>,
}

impl Join {
    /// `has_all_rows`: whether `source` has all rows of the source.
    pub(super) fn new(
        sides: Sides,
        (source, has_all_rows): (Arc<Source>, bool),
        PairCondition { keys, rest, placed }: PairCondition,
        clauses: Clauses,
        now: Option<i64>,
    ) -> Result<Self> {
        let conditions = clauses.matched.iter().filter_map(|clause| clause.condition.as_ref());
        let mut source_columns: Vec<usize> = Vec::new();
        for bound in rest.iter().chain(conditions) {
            source_columns.extend(sides.columns_of(true, bound).iter().filter_map(|n| source.schema.index_of(n)));
        }
        source_columns.sort_unstable();
        source_columns.dedup();
        let outcome = Outcome { matched: vec![false; source.len()], ..Outcome::default() };
        let mut join = Self {
            sides,
            source,
            has_all_rows,
            clauses,
            keys,
            index: None,
            rest,
            placed,
            now,
            source_columns,
            outcome: Mutex::new(outcome),
        };
        if !join.keys.is_empty() {
            let types: Vec<_> = join.keys.iter().map(|key| to_arrow_type(key.source.data_type())).collect();
            let null_safe = join.keys.iter().map(|key| key.null_safe).collect();
            join.index = Some(Keys::new(&types, null_safe, join.source_keys())?);
        }
        Ok(join)
    }

    /// The keys of the source's rows, so many rows at a time.
    pub(super) fn source_keys(&self) -> impl Iterator<Item = Result<Vec<ArrayRef>>> {
        let mut names: Vec<&str> = Vec::new();
        for key in &self.keys {
            names.extend(self.sides.columns_of(true, &key.source));
        }
        let mut columns: Vec<usize> = names.iter().filter_map(|name| self.source.schema.index_of(name)).collect();
        columns.sort_unstable();
        columns.dedup();
        let fitting = |rows: Vec<u32>| self.source.chunks(&rows).map(<[u32]>::to_vec).collect::<Vec<_>>();
        self.all_source_rows().flat_map(fitting).map(move |rows| {
            let on = batch_of_sides(vec![(&self.sides.source_alias, self.source.gather(&rows, &columns)?)])?;
            let first = rows.first().map_or(0, |row| u64::from(*row));
            let context = Context { now: self.now, first_row: first };
            self.keys.iter().map(|key| evaluate_at(&key.source, &on, context).map_err(|e| of_source(&e))).collect()
        })
    }

    fn all_source_rows(&self) -> impl Iterator<Item = Vec<u32>> + use<> {
        let count = u32::try_from(self.source.len()).unwrap_or(NO_SOURCE_ROW);
        let step = GATHERED_ROWS as u32;
        (0..count).step_by(GATHERED_ROWS).map(move |first| (first..first.saturating_add(step).min(count)).collect())
    }

    /// The keys of the join.
    pub(super) fn keys(&self) -> &[JoinKey] {
        &self.keys
    }

    /// The time in microseconds since the epoch.
    pub(super) fn now(&self) -> Option<i64> {
        self.now
    }

    /// The columns of the target that the join reads.
    pub(super) fn target_columns(&self) -> Vec<String> {
        let conditions = self.clauses.matched.iter().chain(&self.clauses.unmatched_by_source);
        let conditions = conditions.filter_map(|clause| clause.condition.as_ref());
        let all = self.keys.iter().map(|key| &key.target).chain(&self.rest).chain(conditions);
        let mut names: Vec<String> = Vec::new();
        for bound in all {
            for name in self.sides.columns_of(false, bound) {
                if !names.iter().any(|known| known == name) {
                    names.push(name.to_owned());
                }
            }
        }
        names
    }

    /// How many rows the source has.
    pub(crate) fn source_rows(&self) -> usize {
        self.source.len()
    }

    /// Whether rows of the target may change, though no row of this part of the source matches them.
    pub(crate) fn changes_unmatched_rows(&self) -> bool {
        !self.clauses.unmatched_by_source.is_empty()
    }

    /// The result. Can be taken once.
    pub(crate) fn take_outcome(&self) -> Outcome {
        let mut outcome = std::mem::take(&mut *self.outcome.lock().unwrap_or_else(PoisonError::into_inner));
        outcome.updates.values_mut().for_each(Updates::sort);
        outcome
    }

    /// Fails if a row of the source has a place that was not read.
    pub(crate) fn check_places(&self) -> Result<()> {
        self.placed.as_ref().map_or(Ok(()), PlacedRows::check_all_paired)
    }

    /// Joins rows of a file, whose first column are their positions.
    pub(super) fn join_batch(&self, task: &FileTask, batch: &RecordBatch, positions: &[i64]) -> Result<MatchedRows> {
        let fields = batch.schema_ref().fields().iter().skip(1).cloned().collect::<Vec<_>>();
        let columns = batch.columns().iter().skip(1).cloned().collect();
        let rows: ArrayRef =
            Arc::new(StructArray::try_new_with_length(fields.into(), columns, None, batch.num_rows())?);
        let matches = vec![false; batch.num_rows()];
        let mut joined = JoinedBatch { rows, sizes: OnceCell::new(), matches, chosen: HashMap::new(), task, positions };
        let of_file = (&joined.rows.clone(), task, positions);
        self.each_chunk(of_file, &mut |targets, sources| self.match_pairs(&mut joined, targets, sources))?;
        if !self.clauses.unmatched_by_source.is_empty() {
            self.match_unmatched_by_source(&mut joined)?;
        }
        self.finish_batch(joined)
    }

    /// Calls `visit_pairs` with pairs of rows of both sides whose keys are equal, or that are given, up to [`PAIRS`] at a time.
    fn each_chunk(
        &self,
        (rows, task, positions): (&ArrayRef, &FileTask, &[i64]),
        visit_pairs: &mut dyn FnMut(Vec<u32>, Vec<u32>) -> Result<()>,
    ) -> Result<()> {
        let (mut targets, mut sources) = (Vec::new(), Vec::new());
        let mut visit = |target: u32, source: u32| {
            targets.push(target);
            sources.push(source);
            match targets.len() < PAIRS {
                true => Ok(()),
                false => visit_pairs(std::mem::take(&mut targets), std::mem::take(&mut sources)),
            }
        };
        match (&self.placed, &self.index) {
            (Some(placed), _) => placed.each(&task.path, positions, &mut visit)?,
            (None, Some(index)) => {
                let on = batch_of_sides(vec![(&self.sides.target_alias, Arc::clone(rows))])?;
                let context = Context { now: self.now, first_row: 0 };
                let of = |key: &JoinKey| evaluate_at(&key.target, &on, context).map_err(|e| of_target(&e));
                index.probe(&self.keys.iter().map(of).collect::<Result<Vec<_>>>()?, visit)?;
            }
            (None, None) => {
                let count = u32::try_from(self.source.len()).unwrap_or(NO_SOURCE_ROW);
                for target in 0..u32::try_from(rows.len()).unwrap_or(NO_SOURCE_ROW) {
                    (0..count).try_for_each(|source| visit(target, source))?;
                }
            }
        }
        match targets.is_empty() {
            true => Ok(()),
            false => visit_pairs(targets, sources),
        }
    }

    /// Keeps the pairs that the condition makes TRUE, and chooses the clause for each row of the target.
    fn match_pairs(&self, joined: &mut JoinedBatch<'_>, mut targets: Vec<u32>, mut sources: Vec<u32>) -> Result<()> {
        for condition in &self.rest {
            let holds = self.holds(condition, joined, &targets, &sources)?;
            (targets, sources) = filter_pairs(&holds, &targets, &sources);
        }
        let matching: Vec<bool> = sources.iter().map(|source| self.is_match(*source)).collect();
        let (matching_targets, matching_sources) = filter_pairs(&matching, &targets, &sources);
        set_true(&mut joined.matches, &matching_targets);
        set_true(&mut self.outcome.lock().unwrap_or_else(PoisonError::into_inner).matched, &matching_sources);
        for BoundClause { condition, action } in &self.clauses.matched {
            if targets.is_empty() {
                break;
            }
            let holds = match condition {
                Some(condition) => self.holds(condition, joined, &targets, &sources)?,
                None => vec![true; targets.len()],
            };
            for ((target, source), _) in targets.iter().zip(&sources).zip(&holds).filter(|(_, holds)| **holds) {
                if let Some((_, other)) = joined.chosen.insert(*target, (*action, *source))
                    && !self.clauses.only_deletes()
                {
                    return Err(self.ambiguous(joined, *target, (other, *source)));
                }
            }
            let remaining: Vec<bool> = holds.iter().map(|holds| !holds).collect();
            (targets, sources) = filter_pairs(&remaining, &targets, &sources);
        }
        Ok(())
    }

    /// Whether a row of the source matches; another has values for a row of the target that none matches.
    fn is_match(&self, source: u32) -> bool {
        source != NO_SOURCE_ROW && self.placed.as_ref().is_none_or(|placed| placed.is_match(source))
    }

    /// For which pairs a condition is TRUE.
    fn holds(
        &self,
        condition: &BoundExpression,
        joined: &JoinedBatch<'_>,
        targets: &[u32],
        sources: &[u32],
    ) -> Result<Vec<bool>> {
        let rows = joined.rows.as_struct();
        let sizes = joined.sizes.get_or_init(|| RowSizes::of(rows.columns(), rows.len()));
        let pairs = || targets.iter().zip(sources);
        let largest = sizes.largest().saturating_add(self.source.largest_row());
        let all_fit = largest.saturating_mul(targets.len()) <= GATHERED_BYTES;
        let size =
            |(target, source): (&u32, &u32)| sizes.get(*target as usize).saturating_add(self.source.row_size(*source));
        let mut holds = Vec::with_capacity(targets.len());
        while holds.len() < targets.len() {
            let at_once = match all_fit {
                true => targets.len(),
                false => fitting(pairs().skip(holds.len()).map(size)).max(1),
            };
            let (some_targets, some_sources): (Vec<u32>, Vec<u32>) = pairs().skip(holds.len()).take(at_once).unzip();
            let source = self.source.gather(&some_sources, &self.source_columns)?;
            let rows = take(&joined.rows, &UInt32Array::from(some_targets), None)?;
            let on = batch_of_sides(vec![(&self.sides.target_alias, rows), (&self.sides.source_alias, source)])?;
            holds.extend(true_rows(condition, &on, self.now).map_err(|e| of_target(&e))?);
        }
        Ok(holds)
    }

    /// Chooses the clause for each row of the target that no row of the source matches.
    fn match_unmatched_by_source(&self, joined: &mut JoinedBatch<'_>) -> Result<()> {
        let unmatched = joined.matches.iter().enumerate().filter(|(_, matches)| !**matches);
        let mut remaining: Vec<u32> = unmatched.filter_map(|(row, _)| u32::try_from(row).ok()).collect();
        for BoundClause { condition, action } in &self.clauses.unmatched_by_source {
            let holds = match condition {
                Some(condition) => {
                    let rows = take(&joined.rows, &UInt32Array::from(remaining.clone()), None)?;
                    let on = batch_of_sides(vec![(&self.sides.target_alias, rows)])?;
                    true_rows(condition, &on, self.now).map_err(|e| of_target(&e))?
                }
                None => vec![true; remaining.len()],
            };
            let mut rest = Vec::new();
            for (row, holds) in remaining.into_iter().zip(holds) {
                match holds {
                    true => drop(joined.chosen.insert(row, (*action, NO_SOURCE_ROW))),
                    false => rest.push(row),
                }
            }
            remaining = rest;
        }
        Ok(())
    }

    /// Adds the result for a batch to the outcome.
    fn finish_batch(&self, joined: JoinedBatch<'_>) -> Result<MatchedRows> {
        let mut rows = MatchedRows::default();
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = &mut *outcome;
        let stays = |row: usize| u32::try_from(row).is_ok_and(|row| !joined.chosen.contains_key(&row));
        if joined.matches.iter().enumerate().any(|(row, matches)| *matches && stays(row)) {
            outcome.unchanged.insert(joined.task.path.clone());
        }
        let mut chosen: Vec<(u32, (TargetAction, u32))> = joined.chosen.into_iter().collect();
        chosen.sort_unstable_by_key(|(row, _)| *row);
        for (row, (act, source)) in chosen {
            let position =
                joined.positions.get(row as usize).ok_or_else(|| Error::internal("a row has no position"))?;
            let position = position.cast_unsigned();
            let counts = &mut outcome.counts;
            match (act, self.is_match(source)) {
                (TargetAction::Delete, false) => counts.unmatched_deleted += 1,
                (TargetAction::Delete, true) => counts.matched_deleted += 1,
                (TargetAction::Update(_), false) => counts.unmatched_updated += 1,
                (TargetAction::Update(_), true) => counts.matched_updated += 1,
            }
            match act {
                TargetAction::Delete => rows.deleted.extend([position]),
                TargetAction::Update(update) => {
                    rows.updated.extend([position]);
                    let updates = outcome.updates.entry(joined.task.path.clone()).or_default();
                    updates.push(position, update, (source != NO_SOURCE_ROW).then_some(source));
                }
            }
        }
        Ok(rows)
    }

    fn ambiguous(&self, joined: &JoinedBatch<'_>, target: u32, (one, other): (u32, u32)) -> Error {
        let position = joined.positions.get(target as usize).copied().unwrap_or_default();
        let keys = self.shown_keys(joined, target).unwrap_or_default();
        let which = match self.has_all_rows {
            true => format!(", {one} and {other} among them (the first is 0)"),
            false => String::new(),
        };
        Error::invalid(format!(
            "row {position}{keys} of the target is matched by several rows of the source{which}, so that the result \
             would depend on their order; leave one row for each key, such as the latest"
        ))
    }

    fn shown_keys(&self, joined: &JoinedBatch<'_>, target: u32) -> Result<String> {
        let rows = take(&joined.rows, &UInt32Array::from(vec![target]), None)?;
        let on = batch_of_sides(vec![(&self.sides.target_alias, rows)])?;
        let mut shown = Vec::new();
        for key in &self.keys {
            let value =
                Scalar::from_array(&evaluate_at(&key.target, &on, Context { now: self.now, first_row: 0 })?, 0)?;
            shown.push(format!("{} is {value}", key.name()));
        }
        Ok(if shown.is_empty() { String::new() } else { format!(" ({})", shown.join(", ")) })
    }
}

/// Sets the values at these rows to true.
fn set_true(all: &mut [bool], rows: &[u32]) {
    for row in rows {
        if let Some(matches) = all.get_mut(*row as usize) {
            *matches = true;
        }
    }
}

/// The pairs of rows for which `keep` is true.
fn filter_pairs(keep: &[bool], targets: &[u32], sources: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let pairs = targets.iter().zip(sources).zip(keep).filter(|(_, keep)| **keep);
    pairs.map(|((target, source), _)| (*target, *source)).unzip()
}

/// Whether a condition is TRUE, for each row.
pub(super) fn true_rows(condition: &BoundExpression, on: &RecordBatch, now: Option<i64>) -> Result<Vec<bool>> {
    let values = evaluate_at(condition, on, Context { now, first_row: 0 })?;
    let none = || vec![false; on.num_rows()];
    let of = |values: &BooleanArray| values.iter().map(|value| value == Some(true)).collect();
    Ok(values.as_boolean_opt().map_or_else(none, of))
}

/// The error of an expression over target rows, without the row number, which would mean nothing to the caller.
pub(super) fn of_target(error: &Error) -> Error {
    Error::new(error.kind().clone(), without_row(error.message()))
}

pub(super) fn of_source(error: &Error) -> Error {
    match error.message().strip_prefix("row ") {
        Some(rest) => Error::new(error.kind().clone(), format!("the source's row {rest}")),
        None => Error::new(error.kind().clone(), error.message()),
    }
}

/// As [`of_source`], for a part of the source, in which the row's number means nothing to the caller.
pub(crate) fn of_source_row(error: &Error) -> Error {
    let message = error.message();
    let message = without_row(message.strip_prefix("the source's ").unwrap_or(message));
    Error::new(error.kind().clone(), format!("the source: {message}"))
}

fn without_row(message: &str) -> &str {
    match message.strip_prefix("row ").and_then(|rest| rest.split_once(": ")) {
        Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => rest,
        _ => message,
    }
}
