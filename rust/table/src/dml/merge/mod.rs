//! MERGE: joins the rows of a source with those of the table, and updates, deletes and inserts rows accordingly.
//!
//! The source is the build side of a hash join: its keys are in memory; its rows are in memory or in a mapped file. Without an
//! equality between the sides every pair is compared. Bounds of the source's keys, or all keys if they are few, show
//! together with partition values and statistics which files can match; others are read only if they can have rows to which
//! a clause for rows that no row of the source matches applies (`target_filter`). Rows are then marked, or files rewritten,
//! as by UPDATE. Rows of the source are gathered up to 16 MiB at a time, by their true sizes. A changed row takes at most two
//! bytes, in a bitmap; one that is updated from a row of the source takes 12 more.
//!
//! Proved by `tests/rust/table/merge.rs`, `tests/python/test_merge.py` and `test_merge_memory.py`, and beside delta-spark
//! by `tests/interop/test_merge.py`.
//!
//! PROTOCOL.md: "Deletion Vectors", "Writer Requirements for Row Tracking", "Writer Requirements for AddCDCFile".

mod clauses;
mod divided;
mod evolution;
mod join;
mod keys;
mod request;
mod row_sizes;
mod rows;
mod source;
mod target_filter;
mod updates;

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use deltic_protocol::expression::MissingFields;
use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::row_merge::Sides;
use deltic_protocol::row_update::Target;
use deltic_protocol::schema::StructType;
use futures::{TryStreamExt, stream};

use self::clauses::Clauses;
pub use self::clauses::{Clause, ClauseAction, When};
use self::divided::summed;
pub use self::divided::{MergeKeys, SourceRows, SourceSummary};
pub(super) use self::evolution::EvolvedTransaction;
use self::join::PairCondition;
pub(super) use self::join::{Join, Outcome, of_source_row};
pub use self::request::MergeRequest;
use self::request::condition_of;
pub(super) use self::request::sides_of;
use self::rows::{ClauseInserts, MergeUpdater, inserted, schemas_of};
pub(super) use self::rows::{Inserter, MergedTable};
use self::source::Source;
pub use self::source::SourceConformer;
use self::target_filter::{SourceKeys, TargetFilter, key_bounds};
use self::updates::Updates;
use super::file_changes::{StepTimes, choose};
use super::find::{FindRequest, FindResult, MERGE, RowAction, find_with};
use super::places::PlacedRows;
use super::preview::Preview;
use super::update_writer::UpdateWriter;
use crate::error::Result;
use crate::progress::Progress;
use crate::rewrite::Written;
use crate::snapshot::Snapshot;
use crate::transaction::builder::{Ids, Transaction};
use crate::transaction::row_counts::MergeCounts;
use crate::write::rules::WriteRules;
use crate::write::unclaimed::Unclaimed;
use crate::write::writer::{Clock, DataWriter};
use deltic_store::decode_path;

/// The rows of a source that this process has, and the two sides of the merge.
pub(super) struct MergeSource<'a> {
    pub(super) schema: SchemaRef,
    pub(super) batches: Vec<RecordBatch>,
    /// Which rows of the source these are.
    pub(super) source_rows: &'a SourceRows,
    /// The places of these rows, if they have some.
    pub(super) placed: Option<PlacedRows>,
    pub(super) sides: Sides,
}

impl MergeSource<'static> {
    /// All rows of the source.
    fn whole((schema, batches): (SchemaRef, Vec<RecordBatch>), sides: Sides) -> Self {
        Self { schema, batches, source_rows: &SourceRows::All, placed: None, sides }
    }
}

/// A merge after the join: the rows to change and to insert.
struct MergePlan {
    found: FindResult,
    join: Arc<Join>,
    outcome: Outcome,
    inserts: Vec<ClauseInserts>,
}

impl Transaction {
    /// Merges rows into the table. Returns how many were inserted, updated and deleted.
    ///
    /// # Errors
    /// `Invalid` if several rows of the source would change the same row of the target, for clauses and values that do not fit,
    /// and on an append-only table unless rows are only inserted; `Unsupported` for rows that the transaction has changed
    /// before, on a table with a change data feed; those of reading and writing. The transaction is unchanged then.
    pub async fn merge(
        &mut self,
        source: (SchemaRef, Vec<RecordBatch>),
        request: MergeRequest,
        (ids, clock): (&dyn Ids, Clock),
    ) -> Result<MergeCounts> {
        if self.already_committed_version().is_some() {
            return Ok(MergeCounts::default());
        }
        let merged = async {
            let snapshot = self.mergeable(&request).await?;
            let (sides, mut evolved) = self.evolve_columns(&snapshot, &source.0, &request, ids)?;
            let source = MergeSource::whole(source, sides);
            let counts = Box::pin(evolved.merge_rows(&snapshot, source, request, clock)).await?;
            // If no row was changed, the new columns are not needed.
            if !is_nothing(&counts) {
                evolved.keep();
            }
            Ok(counts)
        };
        let merged: Result<_> = Box::pin(merged).await;
        merged.map_err(|e| e.in_table(self.storage().location()))
    }

    /// What [`Transaction::merge`] would do. Values are not computed, so an error in computing them is not found.
    ///
    /// # Errors
    /// As [`Transaction::merge`], except those of writing.
    pub async fn merge_preview(
        &mut self,
        source: (SchemaRef, Vec<RecordBatch>),
        request: MergeRequest,
        (ids, clock): (&dyn Ids, Clock),
    ) -> Result<Preview> {
        let preview = async {
            let snapshot = self.mergeable(&request).await?;
            let (sides, mut evolved) = self.evolve_columns(&snapshot, &source.0, &request, ids)?;
            let now_ms = clock();
            let on = condition_of(&request, &sides)?;
            let reads = TargetFilter::new(&request.clauses, &on, &sides)?;
            let condition = reads.and_then(|reads| reads.without_keys(&sides.target));
            let source = MergeSource::whole(source, sides);
            let planned = Box::pin(evolved.plan_merge(&snapshot, source, request, now_ms)).await;
            drop(evolved);
            let MergePlan { found, inserts, .. } = planned?;
            let preview = self.preview_of(&snapshot, found, now_ms).await?;
            let preview = preview.with_skipped_by_keys(&snapshot, condition.as_deref()).await?;
            Ok(Preview { rows_inserted: inserts.iter().map(|of| of.len() as u64).sum(), ..preview })
        };
        let preview: Result<Preview> = Box::pin(preview).await;
        preview.map_err(|e| e.in_table(self.storage().location()))
    }

    /// What [`MergeKeys::from_bytes`] reads; none if no equality joins the sides. Checks the merge as far as it can be
    /// without rows.
    ///
    /// # Errors
    /// As [`Transaction::merge`] for its condition and clauses, and the rules of the table.
    pub async fn merge_keys(
        &mut self,
        source: &SchemaRef,
        request: &MergeRequest,
        (ids, clock): (&dyn Ids, Clock),
    ) -> Result<Option<Vec<u8>>> {
        let keys = async {
            let snapshot = self.mergeable(request).await?;
            let (sides, mut evolved) = self.evolve_columns(&snapshot, source, request, ids)?;
            let (shape, rules) = (evolved.shape_after()?, evolved.write_rules_at(clock())?);
            let no_rows = MergeSource::whole((Arc::clone(source), Vec::new()), sides.clone());
            let (join, _) = join(no_rows, (&shape, &rules), request.clone())?;
            for rows in insert_schemas(&join) {
                evolved.check_rows(&rows)?;
            }
            if join.keys().is_empty() {
                return Ok(None);
            }
            divided::keys_to_bytes(sides, request.on.clone(), rules.now).map(Some)
        };
        let keys: Result<_> = Box::pin(keys).await;
        keys.map_err(|e| e.in_table(self.storage().location()))
    }

    /// The version that is merged into. On an append-only table, clauses that do more than insert are refused.
    pub(super) async fn mergeable(&mut self, request: &MergeRequest) -> Result<Snapshot> {
        match request.clauses.iter().all(|clause| clause.when == When::NotMatched) {
            true => self.searchable().await,
            false => self.removable().await,
        }
    }

    async fn plan_merge(
        &mut self,
        snapshot: &Snapshot,
        source: MergeSource<'_>,
        request: MergeRequest,
        now_ms: i64,
    ) -> Result<MergePlan> {
        let (shape, rules) = (self.shape_after()?, self.write_rules_at(now_ms)?);
        let (join, filter) = join(source, (&shape, &rules), request)?;
        let request = find_request(&join, now_ms);
        let mut found = Box::pin(find_with(self, snapshot, filter.as_deref(), request)).await?;
        let outcome = join.take_outcome();
        let inserts = inserts(&join, &outcome, &mut found)?;
        Ok(MergePlan { found, join, outcome, inserts })
    }

    async fn merge_rows(
        &mut self,
        snapshot: &Snapshot,
        source: MergeSource<'_>,
        request: MergeRequest,
        clock: Clock,
    ) -> Result<MergeCounts> {
        let begun_ms = clock();
        let MergePlan { mut found, join, outcome, inserts } =
            Box::pin(self.plan_merge(snapshot, source, request, begun_ms)).await?;
        let found_ms = clock();
        let counts = counts(&join, &outcome, &inserts);
        let writer = writer(&join, outcome.updates);
        let chosen = choose(self, &mut found, begun_ms)?;
        let progress = chosen.progress(MERGE, counts.inserted);
        let specs = chosen.specs(self, snapshot)?;
        let storage = self.storage().clone();
        let replaced = Box::pin(chosen.replace((&storage, specs.as_ref()), (Some(&writer), clock), &progress)).await?;
        let new = match Box::pin(self.write_inserted(&join, inserts, clock, &progress)).await {
            Ok(new) => new,
            Err(error) => {
                replaced.delete().await;
                return Err(error);
            }
        };
        chosen.end_step(self, (found, replaced), StepTimes { begun_ms, found_ms, clock })?;
        self.end_merge(new, counts);
        Ok(counts)
    }

    /// Adds the files with inserted rows to the transaction, and the counts to its metrics.
    pub(super) fn end_merge(&mut self, new: Vec<Written>, counts: MergeCounts) {
        new.into_iter().for_each(|written| self.append_unsynced(written));
        self.count_rows(|all| all.merged = Some(all.merged.unwrap_or_default().and(counts)));
    }

    /// Writes the inserted rows; no file is left if that fails.
    pub(super) async fn write_inserted(
        &mut self,
        join: &Join,
        inserts: Vec<ClauseInserts>,
        clock: Clock,
        progress: &Progress,
    ) -> Result<Vec<Written>> {
        let mut groups: Vec<(SchemaRef, Vec<ClauseInserts>)> = Vec::new();
        for of in inserts {
            match groups.iter_mut().find(|(schema, _)| *schema == of.schema()) {
                Some((_, group)) => group.push(of),
                None => groups.push((of.schema(), vec![of])),
            }
        }
        let mut unclaimed = Unclaimed::new(self.storage().clone());
        let mut all: Vec<Written> = Vec::with_capacity(groups.len());
        for (schema, group) in groups {
            let mut plan = self.plan_write(&schema)?;
            let earlier = || all.iter().flat_map(|written| &written.0);
            for numbering in &mut plan.spec.identities {
                if let Some(last) = earlier().rev().find_map(|file| file.identities.get(&numbering.column)) {
                    numbering.go_on_after(*last)?;
                }
            }
            let writer = DataWriter::new(self.storage().clone(), &plan.spec, clock)?;
            let (sides, source) = (&join.sides, &join.source);
            let batches = group.into_iter().flat_map(|of| of.batches(sides.clone(), Arc::clone(source)));
            let counted = |batch: &RecordBatch| progress.advance(batch.num_rows() as u64);
            let written = match writer.write_all_unsynced(stream::iter(batches).inspect_ok(counted)).await {
                Ok(written) => written,
                Err(error) => {
                    unclaimed.delete().await;
                    return Err(error);
                }
            };
            for file in &written.0 {
                unclaimed.push(decode_path(&file.add.path)?);
            }
            all.push(written);
        }
        unclaimed.claim();
        Ok(all)
    }
}

/// The join of a merge into a table of this shape, and a SQL condition for the rows of the target that can match or change;
/// none if all are read.
///
/// # Errors
/// `Invalid` for conditions, clauses and values that do not fit; `Unsupported` for what deltic does not evaluate.
pub(super) fn join(
    MergeSource { schema, batches, source_rows, placed, sides }: MergeSource<'_>,
    (shape, rules): (&TableShape, &WriteRules),
    request: MergeRequest,
) -> Result<(Arc<Join>, Option<String>)> {
    let on = condition_of(&request, &sides)?;
    let reads = TargetFilter::new(&request.clauses, &on, &sides)?;
    let known = match source_rows {
        SourceRows::Elsewhere(summaries) => Some(summed(summaries, on.keys.len())?),
        SourceRows::All | SourceRows::Part(_) | SourceRows::Placed(_) => None,
    };
    let source = Arc::new(Source::new(&schema, &batches)?);
    drop(batches);
    let target = Target {
        schema: &shape.schema,
        partition_columns: &shape.partition_columns,
        constraints: &rules.constraints,
        external: None,
        now: rules.now,
        missing: MissingFields::Refused,
    };
    let after = sides.with_target(StructType::clone(&shape.schema));
    let clauses = Clauses::new(request.clauses, (&sides, &after), target, request.evolves)?;
    let mut rest = on.rest;
    if !clauses.unmatched_by_source.is_empty() {
        // Rows for these clauses are read too, and those need not satisfy the conditions on the target.
        rest.extend(on.target_only_bound);
    }
    let has_all_rows = matches!(source_rows, SourceRows::All);
    let on = PairCondition { keys: on.keys, rest, placed };
    let join = Arc::new(Join::new(after, (source, has_all_rows), on, clauses, rules.now)?);
    let filter = match reads {
        None => None,
        Some(reads) => {
            let (rows, bounds) = match known {
                Some(known) => known,
                None => (join.source.len() as u64, key_bounds(&join)?),
            };
            reads.with_keys(&SourceKeys { keys: join.keys(), bounds: &bounds, rows }, &sides.target)
        }
    };
    Ok((join, filter))
}

/// The search for the rows that the join matches.
pub(super) fn find_request(join: &Arc<Join>, now_ms: i64) -> FindRequest {
    let matching = Arc::clone(join);
    let matcher = move |task: &_, batch: &_, positions: &_| matching.join_batch(task, batch, positions);
    FindRequest {
        operation: MERGE,
        action: RowAction::Merge,
        now_ms,
        columns: join.target_columns(),
        matcher: Some(Arc::new(matcher)),
    }
}

/// The rows that a merge inserts.
pub(super) fn inserts(join: &Join, outcome: &Outcome, found: &mut FindResult) -> Result<Vec<ClauseInserts>> {
    read_unchanged(join, outcome, found);
    inserted((&join.clauses, &join.sides), &join.source, &outcome.matched, join.now())
}

/// Adds files to the read set whose rows match and are not changed: they keep rows of the source from being inserted.
pub(super) fn read_unchanged(join: &Join, outcome: &Outcome, found: &mut FindResult) {
    if !join.clauses.unmatched.is_empty() {
        for path in &outcome.unchanged {
            found.read.insert(path);
        }
    }
}

/// The schemas of the rows that a merge inserts, each once.
pub(super) fn insert_schemas(join: &Join) -> Vec<SchemaRef> {
    schemas_of(&join.clauses)
}

/// The counts of a merge.
pub(super) fn counts(join: &Join, outcome: &Outcome, inserts: &[ClauseInserts]) -> MergeCounts {
    MergeCounts {
        source: join.source.len() as u64,
        inserted: inserts.iter().map(|of| of.len() as u64).sum(),
        ..outcome.counts
    }
}

/// The writer of the rows that a merge updates.
pub(super) fn writer(join: &Join, places: HashMap<String, Updates>) -> UpdateWriter {
    UpdateWriter::new(Arc::new(MergeUpdater::new(join, places)))
}

pub(super) fn is_nothing(counts: &MergeCounts) -> bool {
    *counts == MergeCounts { source: counts.source, ..MergeCounts::default() }
}
