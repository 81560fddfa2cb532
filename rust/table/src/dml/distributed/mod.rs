//! DELETE, UPDATE and MERGE by several processes: one plans and commits, the others read and write files.
//!
//! They exchange plain bytes: a [`RowChangeTask`], which has some of the files whose rows may change, and its result. The
//! driver adds the results to the transaction as if it had done the work itself: with the same choice of files, the same read
//! set, and one commit, which merges deletion vectors with those of other writers. When all tasks are done, the driver knows
//! which source rows of a merge match none, and writes those that the merge inserts. If other processes have the source, each
//! task gets the rows that can match in its files, and a second job writes the inserted ones. A task that runs twice, or whose
//! process ends, leaves orphans.
//!
//! Invariant: the tasks change the same rows, in the same way, as [`Transaction::delete`], [`Transaction::update`] and
//! [`Transaction::merge`] do (`distributed_rows::tasks_do_what_one_process_does`).
//!
//! Proved by `tests/rust/table/distributed_rows.rs` and `tests/spark/test_rows.py`.

mod apply;
mod inserts;
mod result;
mod task;

use std::sync::Arc;

use arrow_schema::SchemaRef;
use deltic_protocol::deletion_vector::DeletionVector;
use serde::Serialize;

use self::inserts::InsertSpec;
pub use self::inserts::MergeInserter;
use self::result::TaskResult;
pub use self::task::{FAILED_HASH, RowChange, RowChangeTask};
use super::find::{Candidate, FindResult, RowAction, candidates};
use super::merge::{self, EvolvedTransaction, Join, MergeRequest, MergeSource};
use super::specs::WriteSpecs;
use super::update::update_writer;
use crate::error::{Error, Result};
use crate::scan::plan::balanced::balanced;
use crate::snapshot::Snapshot;
use crate::transaction::builder::{Ids, SavedMetadata, Transaction, delete_written};
use crate::transaction::row_counts::MergeCounts;
use crate::write::layout::id_prefix;
use crate::write::plan::{DataFile, WritePlan};
use crate::write::rules::WriteRules;
use crate::write::writer::Clock;
use deltic_store::Storage;

/// Limits on the tasks into which files are divided.
#[derive(Debug, Clone, Copy)]
pub struct TaskLimits {
    /// The most tasks.
    pub tasks: usize,
    /// Bytes of files from which another task is worth while.
    pub bytes: u64,
}

/// How many rows a row change changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RowChangeCounts {
    /// Rows that a DELETE deleted; none if a file that was not read does not say how many it had.
    pub deleted: Option<u64>,
    /// Rows that an UPDATE updated.
    pub updated: u64,
    /// What a MERGE did.
    pub merged: MergeCounts,
}

/// A row change, planned, whose files other processes read and write.
pub struct DistributedRowChange {
    storage: Storage,
    found: FindResult,
    /// The files of each task.
    groups: Vec<Vec<Candidate>>,
    action: RowAction,
    marks: bool,
    /// How rows are written, if there are tasks.
    specs: Option<WriteSpecs>,
    rules: WriteRules,
    /// The id of this row change, which its tasks repeat.
    row_change_id: String,
    /// The beginning of the ids in the names of the files that its tasks write.
    id_prefix: Option<u64>,
    merging: Option<Merging>,
    /// When it began, in milliseconds since the epoch, and when it was planned.
    begun_ms: i64,
    planned_ms: i64,
}

/// The state of a merge between its planning and its end.
struct Merging {
    join: Arc<Join>,
    operation: RowAction,
    /// How many rows the source has, if other processes have them.
    rows_elsewhere: Option<u64>,
    /// The metadata without the columns that the merge adds.
    metadata_before: Option<SavedMetadata>,
}

/// What planning needs besides the row change.
struct Planning<'a> {
    limits: TaskLimits,
    ids: &'a dyn Ids,
    clock: Clock,
    begun_ms: i64,
}

impl Transaction {
    /// Plans a row change whose files other processes read and write. Without `filter` it concerns all rows; a merge has no
    /// filter, unless it stands for an UPDATE or a DELETE. `None` if the application's transaction was committed before. Pass
    /// the results to [`DistributedRowChange::apply`] before any other step; otherwise call [`DistributedRowChange::discard`].
    ///
    /// # Errors
    /// As [`Transaction::delete`], [`Transaction::update`] and [`Transaction::merge`], but for those of reading and writing
    /// files; `Invalid` if the transaction has other steps. The transaction is unchanged then.
    pub async fn plan_row_change(
        &mut self,
        (row_change, filter): (RowChange, Option<&str>),
        limits: TaskLimits,
        (ids, clock): (&dyn Ids, Clock),
    ) -> Result<Option<DistributedRowChange>> {
        if self.already_committed_version().is_some() {
            return Ok(None);
        }
        let planned = Box::pin(self.plan_all(row_change, filter, limits, (ids, clock))).await;
        planned.map(Some).map_err(|e| e.in_table(self.storage().location()))
    }

    async fn plan_all(
        &mut self,
        row_change: RowChange,
        filter: Option<&str>,
        limits: TaskLimits,
        (ids, clock): (&dyn Ids, Clock),
    ) -> Result<DistributedRowChange> {
        if !self.changes_nothing() {
            let message = "other processes change the rows of a version, and this transaction has changed something \
                           already; commit first";
            return Err(Error::invalid(message));
        }
        let (planning, action) = (Planning { limits, ids, clock, begun_ms: clock() }, row_change.action());
        match row_change {
            RowChange::Delete => {
                let snapshot = self.removable().await?;
                self.plan_files(&snapshot, filter, action, None, &planning).await
            }
            RowChange::Update(set) => {
                let snapshot = self.removable().await?;
                update_writer(snapshot.shape(), set, &self.write_rules_at(planning.begun_ms)?)?;
                self.plan_files(&snapshot, filter, action, None, &planning).await
            }
            RowChange::Merge { source, source_rows, request } => {
                let request = *request;
                let operation = request.operation;
                let snapshot = self.mergeable(&request).await?;
                let (schema, batches) = source;
                let (sides, mut evolved) = self.evolve_columns(&snapshot, &schema, &request, ids)?;
                let source = MergeSource { schema, batches, source_rows: &source_rows, placed: None, sides };
                let (join, of_keys) = evolved.join(source, request, planning.begun_ms)?;
                let filter = if operation == RowAction::Merge { of_keys.as_deref() } else { filter };
                let rows_elsewhere = source_rows.elsewhere()?;
                let merging = Some(Merging { join, operation, rows_elsewhere, metadata_before: None });
                let planned = evolved.plan_files(&snapshot, filter, action, merging, &planning);
                let mut planned = planned.await?;
                let metadata_before = evolved.keep();
                if let Some(merging) = &mut planned.merging {
                    merging.metadata_before = metadata_before;
                }
                Ok(planned)
            }
        }
    }

    fn join(
        &mut self,
        source: MergeSource<'_>,
        request: MergeRequest,
        now_ms: i64,
    ) -> Result<(Arc<Join>, Option<String>)> {
        let (shape, rules) = (self.shape_after()?, self.write_rules_at(now_ms)?);
        merge::join(source, (&shape, &rules), request)
    }

    async fn plan_files(
        &mut self,
        snapshot: &Snapshot,
        filter: Option<&str>,
        action: RowAction,
        merging: Option<Merging>,
        planning: &Planning<'_>,
    ) -> Result<DistributedRowChange> {
        let Planning { limits, ids, clock, begun_ms } = *planning;
        let (found, files) = candidates(self, snapshot, filter, (action, begun_ms)).await?;
        let bytes = files.iter().fold(0_u64, |bytes, file| bytes.saturating_add(file.task.size));
        let worth = usize::try_from(bytes.div_ceil(limits.bytes.max(1))).unwrap_or(usize::MAX);
        let groups = balanced(files, limits.tasks.min(worth), |file| (file.task.size, &file.task.path));
        let row_change_id = ids.unique();
        let id_prefix = id_prefix(&row_change_id);
        let specs = match groups.is_empty() {
            true => None,
            false => Some(WriteSpecs::of(self, snapshot)?.with_ids(id_prefix)),
        };
        Ok(DistributedRowChange {
            storage: self.storage().clone(),
            found,
            groups,
            action,
            marks: self.writes_deletion_vectors()?,
            specs,
            rules: self.write_rules_at(begun_ms)?,
            row_change_id,
            id_prefix,
            merging,
            begun_ms,
            planned_ms: clock(),
        })
    }
}

impl DistributedRowChange {
    /// The tasks, in the byte form of [`RowChangeTask`]; none if no file has to be read or written.
    ///
    /// # Errors
    /// `Internal` if one has no byte form (cannot happen).
    pub fn tasks(&self) -> Result<Vec<Vec<u8>>> {
        let Some(specs) = &self.specs else { return Ok(Vec::new()) };
        let task = |(number, files): (usize, &Vec<Candidate>)| {
            let task = RowChangeTask {
                location: self.storage.location().to_owned(),
                row_change_id: self.row_change_id.clone(),
                number,
                action: self.action,
                files: files.clone(),
                find: self.found.plan.spec().clone(),
                marks: self.marks,
                specs: specs.clone(),
                rules: self.rules.clone(),
            };
            task.to_bytes()
        };
        self.groups.iter().enumerate().map(task).collect()
    }

    /// What [`MergeInserter`] needs to compute the rows that a merge inserts, if other processes have its source, by the
    /// results of all tasks; none if it inserts none.
    ///
    /// # Errors
    /// As [`DistributedRowChange::apply`].
    pub fn inserts(&self, tx: &mut Transaction, results: &[impl AsRef<[u8]>]) -> Result<Option<Vec<u8>>> {
        let schemas = self.insert_schemas();
        if schemas.is_empty() {
            return Ok(None);
        }
        let described = self.describe_inserts(tx, results);
        described.map_err(|e| e.in_table(self.storage.location()))
    }

    fn describe_inserts(&self, tx: &mut Transaction, results: &[impl AsRef<[u8]>]) -> Result<Option<Vec<u8>>> {
        let mut matched = DeletionVector::default();
        for changed in TaskResult::of_row_change(results, &self.row_change_id, self.groups.len())? {
            if let Some(of_task) = changed.merged {
                matched = matched.union(&of_task.matched_rows()?);
            }
        }
        let source_rows = self.merging.as_ref().and_then(|merging| merging.rows_elsewhere);
        if source_rows.is_some_and(|rows| rows <= matched.cardinality()) {
            return Ok(None);
        }
        let after = tx.shape_after()?;
        InsertSpec::new(&self.found.plan.spec().schema, &after, &self.rules, &matched)?.to_bytes().map(Some)
    }

    /// How many schemas the inserted rows have, if other processes have the source. Rows of one schema are written together.
    pub fn num_insert_schemas(&self) -> usize {
        self.insert_schemas().len()
    }

    fn insert_schemas(&self) -> Vec<SchemaRef> {
        let merging = self.merging.as_ref().filter(|merging| merging.rows_elsewhere.is_some());
        merging.map(|merging| merge::insert_schemas(&merging.join)).unwrap_or_default()
    }

    /// How to write the inserted rows of a schema. `earlier`: the files with rows of other schemas.
    ///
    /// # Errors
    /// As [`Transaction::plan_write`]; `Invalid` if there is no such schema.
    pub fn plan_inserts(&self, tx: &mut Transaction, schema: usize, earlier: &[DataFile]) -> Result<WritePlan> {
        let schema = self.insert_schemas().into_iter().nth(schema);
        let schema = schema.ok_or_else(|| Error::invalid("a merge does not insert such rows"))?;
        let mut plan = tx.plan_write(&schema)?;
        for numbering in &mut plan.spec.identities {
            let given = earlier.iter().filter_map(|file| file.identities.get(&numbering.column)).copied();
            let last = if numbering.step > 0 { given.max() } else { given.min() };
            last.map_or(Ok(()), |last| numbering.go_on_after(last))?;
        }
        Ok(plan)
    }

    /// Adds the results of the tasks to the transaction that planned them, and writes the rows that a merge inserts.
    /// `inserted`: the files with these rows, if other processes have the source; after an error they are left to the caller.
    ///
    /// # Errors
    /// `Invalid` if `results` are not one result of each task, with all rows, and with files in the table's store; the
    /// error of a task that failed; otherwise as [`Transaction::delete`], [`Transaction::update`] and
    /// [`Transaction::merge`]. The transaction is unchanged then, and no file of a task is left.
    pub async fn apply(
        mut self,
        tx: &mut Transaction,
        (results, inserted): (&[impl AsRef<[u8]> + Sync], Vec<DataFile>),
        clock: Clock,
    ) -> Result<RowChangeCounts> {
        let (storage, id_prefix) = (self.storage.clone(), self.id_prefix);
        let metadata_before = self.merging.as_mut().and_then(|merging| merging.metadata_before.take());
        let mut evolved = EvolvedTransaction::resume(tx, metadata_before);
        let applied = Box::pin(self.apply_results(&mut evolved, (results, inserted), clock)).await;
        // If no row was changed, the new columns are not needed.
        if applied.as_ref().is_ok_and(|done| !merge::is_nothing(&done.merged)) {
            evolved.keep();
        }
        if applied.is_err() {
            delete_written(&storage, id_prefix).await;
        }
        applied.map_err(|e| e.in_table(storage.location()))
    }

    /// Gives the row change up: deletes the files of the tasks, as far as the store allows.
    pub async fn discard(self, tx: &mut Transaction) {
        let (storage, id_prefix) = (self.storage.clone(), self.id_prefix);
        self.forget(tx);
        delete_written(&storage, id_prefix).await;
    }

    /// Gives the row change up before any task was carried out.
    pub fn forget(self, tx: &mut Transaction) {
        if let Some(before) = self.merging.and_then(|merging| merging.metadata_before) {
            tx.restore_metadata(before);
        }
    }

    /// How many tasks there are.
    pub fn num_tasks(&self) -> usize {
        self.groups.len()
    }
}
