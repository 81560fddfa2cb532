//! Rows that a merge updates and inserts.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StructArray, UInt32Array};
use arrow_buffer::BooleanBuffer;
use arrow_schema::SchemaRef;
use arrow_select::interleave::interleave;
use arrow_select::take::take;
use deltic_protocol::expression::MissingFields;
use deltic_protocol::row_merge::{RowInsert, Sides};
use deltic_protocol::row_update::{RowUpdate, Target};
use deltic_protocol::schema::{StructType, TableSchema};

use super::super::update_writer::{RowUpdater, rows_of_constants};
use super::clauses::{BoundClause, Clauses};
use super::join::{Join, of_source, true_rows};
use super::request::{MergeRequest, sides_of};
use super::row_sizes::{GATHERED_BYTES, GATHERED_ROWS, fitting_everywhere};
use super::source::{Source, batch_of_sides};
use super::updates::{NO_SOURCE_ROW, Updates};
use crate::error::{Error, Result};
use crate::write::rules::WriteRules;

/// Computes the updated rows of the target.
#[derive(Debug)]
pub(super) struct MergeUpdater {
    pub(super) sides: Sides,
    pub(super) source: Arc<Source>,
    pub(super) updates: Vec<RowUpdate>,
    /// For each file, the updated rows, each with its update and its row of the source.
    pub(super) places: HashMap<String, Updates>,
    /// How many rows are updated at a time.
    pub(super) rows_at_once: usize,
}

impl RowUpdater for MergeUpdater {
    fn updated_columns(&self) -> Vec<usize> {
        let mut all: Vec<usize> = self.updates.iter().flat_map(RowUpdate::changes).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn assigned(&self, column: usize, places: &[(&str, u64)]) -> BooleanBuffer {
        let assigns: Vec<bool> = self.updates.iter().map(|of| of.changes().any(|at| at == column)).collect();
        let assigned = |(path, position): &(&str, u64)| {
            let (update, _) = self.places.get(*path)?.get(*position)?;
            assigns.get(update).copied()
        };
        places.iter().map(|place| assigned(place).unwrap_or(true)).collect()
    }

    fn rows_at_once(&self) -> usize {
        self.rows_at_once
    }

    fn update(&self, old: &RecordBatch, places: &[(&str, u64)]) -> Result<RecordBatch> {
        let mut by_update: Vec<(Vec<u32>, Vec<u32>)> = vec![Default::default(); self.updates.len()];
        // For each row, the index of its update and of the row among those of that update.
        let mut order = Vec::with_capacity(places.len());
        for (row, (path, position)) in places.iter().enumerate() {
            let place = self.places.get(*path).and_then(|updates| updates.get(*position));
            let lost = || Error::internal("no clause is known for an updated row");
            let (update, source) = place.ok_or_else(lost)?;
            let (rows, sources) = by_update.get_mut(update).ok_or_else(lost)?;
            order.push((update, rows.len()));
            rows.push(u32::try_from(row).unwrap_or(u32::MAX));
            sources.push(source);
        }
        let mut parts = Vec::with_capacity(self.updates.len());
        for (update, (rows, sources)) in self.updates.iter().zip(&by_update) {
            parts.push(self.part(update, old, (rows, sources), places)?);
        }
        let mut columns = Vec::with_capacity(old.num_columns());
        for at in 0..old.num_columns() {
            let of: Vec<&dyn Array> =
                parts.iter().filter_map(|part| part.columns().get(at)).map(AsRef::as_ref).collect();
            columns.push(interleave(&of, &order)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(old.num_rows()));
        Ok(RecordBatch::try_new_with_options(old.schema(), columns, &options)?)
    }
}

impl MergeUpdater {
    /// `places`: for each file, the updated rows.
    pub(super) fn new(join: &Join, places: HashMap<String, Updates>) -> Self {
        let (sides, source) = (join.sides.clone(), Arc::clone(&join.source));
        let updates = join.clauses.updates.clone();
        let constants = updates.iter().map(RowUpdate::constant_bytes).max().unwrap_or_default();
        let mut rows_at_once = GATHERED_ROWS.min(rows_of_constants(constants));
        if source.largest_row().saturating_mul(rows_at_once) > GATHERED_BYTES {
            // A file's rows are updated in their order, so that those of an update follow each other.
            for sources in places.values().flat_map(Updates::source_rows) {
                rows_at_once = fitting_everywhere(sources.map(|row| source.row_size(row)), rows_at_once);
            }
        }
        Self { sides, source, updates, places, rows_at_once }
    }

    /// Computes the rows of one update.
    fn part(
        &self,
        update: &RowUpdate,
        old: &RecordBatch,
        (rows, sources): (&[u32], &[u32]),
        places: &[(&str, u64)],
    ) -> Result<RecordBatch> {
        let chosen = UInt32Array::from(rows.to_vec());
        let columns = old.columns().iter().map(|column| take(column, &chosen, None)).collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let old = RecordBatch::try_new_with_options(old.schema(), columns, &options)?;
        let whole: ArrayRef = Arc::new(StructArray::try_new_with_length(
            old.schema_ref().fields().clone(),
            old.columns().to_vec(),
            None,
            old.num_rows(),
        )?);
        let mut parts = vec![(self.sides.target_alias.as_str(), whole)];
        if sources.first().is_some_and(|source| *source != NO_SOURCE_ROW) {
            let all: Vec<usize> = (0..self.source.schema.fields.len()).collect();
            parts.push((&self.sides.source_alias, self.source.gather(sources, &all)?));
        } else if rows.is_empty() {
            let all: Vec<usize> = (0..self.source.schema.fields.len()).collect();
            parts.push((&self.sides.source_alias, self.source.gather(&[], &all)?));
        }
        let number = |row: usize| {
            let place = rows.get(row).and_then(|row| places.get(*row as usize));
            place.map_or(0, |(_, position)| *position)
        };
        update.apply(&old, &batch_of_sides(parts)?, &number)
    }
}

/// Rows of the source that one clause inserts.
#[derive(Debug)]
pub(crate) struct ClauseInserts {
    insert: RowInsert,
    rows: Vec<u32>,
}

/// The rows of the source to insert, by clause: those that match no row of the target.
pub(super) fn inserted(
    (clauses, sides): (&Clauses, &Sides),
    source: &Source,
    matched: &[bool],
    now: Option<i64>,
) -> Result<Vec<ClauseInserts>> {
    let unmatched = matched.iter().enumerate().filter(|(_, matched)| !**matched);
    let mut remaining: Vec<u32> = unmatched.filter_map(|(row, _)| u32::try_from(row).ok()).collect();
    let all: Vec<usize> = (0..source.schema.fields.len()).collect();
    let mut found = Vec::with_capacity(clauses.unmatched.len());
    for BoundClause { condition, action } in &clauses.unmatched {
        let rows = match condition {
            None => std::mem::take(&mut remaining),
            Some(condition) => {
                let (mut rows, mut rest) = (Vec::new(), Vec::new());
                for some in source.chunks(&remaining) {
                    let on = batch_of_sides(vec![(&sides.source_alias, source.gather(some, &all)?)])?;
                    let holds = true_rows(condition, &on, now).map_err(|e| of_source(&e))?;
                    for (row, holds) in some.iter().zip(holds) {
                        if holds { &mut rows } else { &mut rest }.push(*row);
                    }
                }
                remaining = rest;
                rows
            }
        };
        if !rows.is_empty() {
            found.push(ClauseInserts { insert: action.clone(), rows });
        }
    }
    Ok(found)
}

impl ClauseInserts {
    /// How many rows there are.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The schema of the inserted rows.
    pub(super) fn schema(&self) -> SchemaRef {
        self.insert.schema()
    }

    /// The rows, batch by batch.
    pub(super) fn batches(self, sides: Sides, source: Arc<Source>) -> impl Iterator<Item = Result<RecordBatch>> {
        let all: Vec<usize> = (0..source.schema.fields.len()).collect();
        let at_once = rows_of_constants(self.insert.constant_bytes());
        let fitting = source.chunks(&self.rows).flat_map(|rows| rows.chunks(at_once));
        let chunks: Vec<Vec<u32>> = fitting.map(<[u32]>::to_vec).collect();
        chunks.into_iter().map(move |rows| {
            let on = batch_of_sides(vec![(&sides.source_alias, source.gather(&rows, &all)?)])?;
            let number = |row: usize| rows.get(row).map_or(0, |row| u64::from(*row));
            self.insert.rows(&on, &number)
        })
    }
}

/// Computes the inserted rows of one schema from rows of the source, some at a time.
#[derive(Debug)]
pub(crate) struct Inserter {
    source: SchemaRef,
    sides: Sides,
    clauses: Clauses,
    schema: SchemaRef,
    now: Option<i64>,
}

/// The columns of the table that is merged into.
pub(crate) struct MergedTable<'a> {
    /// Before the merge.
    pub(crate) before: &'a StructType,
    /// After it.
    pub(crate) after: &'a TableSchema,
    pub(crate) partition_columns: &'a [String],
}

impl Inserter {
    /// `group`: which of the [`schemas_of`] the clauses.
    ///
    /// # Errors
    /// As those of a merge for its clauses; `Invalid` if there is no such schema.
    pub(crate) fn new(
        MergedTable { before, after, partition_columns }: MergedTable<'_>,
        rules: &WriteRules,
        source: SchemaRef,
        request: MergeRequest,
        group: usize,
    ) -> Result<Self> {
        let before = sides_of(before.clone(), &source, &request)?;
        let sides = before.with_target(StructType::clone(after));
        let target = Target {
            schema: after,
            partition_columns,
            constraints: &rules.constraints,
            external: None,
            now: rules.now,
            missing: MissingFields::Refused,
        };
        let clauses = Clauses::new(request.clauses, (&before, &sides), target, request.evolves)?;
        let schema = schemas_of(&clauses).into_iter().nth(group);
        let schema = schema.ok_or_else(|| Error::invalid("a merge does not insert such rows"))?;
        Ok(Self { source, sides, clauses, schema, now: rules.now })
    }

    /// The schema of the inserted rows.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The rows to insert, of some rows of the source, batch by batch. `matched`: which of these match a row of the target.
    ///
    /// # Errors
    /// `Invalid` for values that do not fit.
    pub(crate) fn rows(
        &self,
        rows: &RecordBatch,
        matched: &[bool],
    ) -> Result<impl Iterator<Item = Result<RecordBatch>> + use<>> {
        let source = Arc::new(Source::new(&self.source, std::slice::from_ref(rows))?);
        let clauses = inserted((&self.clauses, &self.sides), &source, matched, self.now)?;
        let (schema, sides) = (Arc::clone(&self.schema), self.sides.clone());
        let of_schema = clauses.into_iter().filter(move |rows| rows.schema() == schema);
        Ok(of_schema.flat_map(move |rows| rows.batches(sides.clone(), Arc::clone(&source))))
    }
}

/// The schemas of the rows that the clauses insert, each once: rows of one schema are written together.
pub(super) fn schemas_of(clauses: &Clauses) -> Vec<SchemaRef> {
    let mut schemas: Vec<SchemaRef> = Vec::new();
    for schema in clauses.unmatched.iter().map(|clause| clause.action.schema()) {
        if !schemas.contains(&schema) {
            schemas.push(schema);
        }
    }
    schemas
}
