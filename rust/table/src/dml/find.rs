//! Finds the rows that a DELETE, an UPDATE or a MERGE changes: their files, and their positions in them.
//!
//! A scan plan skips files that cannot have a matching row. A file whose bounds prove that every row matches need not be
//! read; of the others only the columns of the condition are read.
//!
//! Invariant: a position is found exactly if its row is live in the transaction and makes the condition TRUE
//! (`dml::a_delete_finds_the_rows_of_a_scan`). Memory holds the positions, a batch of rows for each file that is read at
//! a time, and the plan.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use arrow_buffer::BooleanBuffer;
use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::action::{Action, Add};
use deltic_protocol::commit::{Actions, PredicatesRead, ReadSet};
use deltic_protocol::deletion_vector::DeletionVector;
use deltic_protocol::log_bounds::statistics;
use deltic_protocol::replay::paths::PathSet;
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::parallel::{join_ordered, spawn_async, worker_count};
use crate::progress::{Progress, Unit};
use crate::rewrite::refuse_column;
use crate::scan::count::{count_rows, fully_matching};
use crate::scan::plan::{ScanPlan, task};
use crate::scan::read::{ReadOptions, Reader};
use crate::scan::row_group_counts::RowGroupCounts;
use crate::scan::row_tracking::ROW_INDEX;
use crate::scan::task::{FileTask, ReadSpec};
use crate::scan::vectors::read_vector;
use crate::snapshot::Snapshot;
use crate::transaction::builder::Transaction;
use deltic_store::Storage;

/// The names of the operations in the history.
pub(super) const DELETE: &str = "DELETE";
pub(super) const UPDATE: &str = "UPDATE";
pub(super) const MERGE: &str = "MERGE";

/// The operation for which rows are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RowAction {
    /// A DELETE.
    Delete,
    /// An UPDATE: the rows have to be read even if the log proves that they match.
    Update,
    /// A MERGE: its condition decides for each row, so every file is read.
    Merge,
}

/// Positions of the rows of a file that matched.
#[derive(Debug, Default)]
pub(super) struct MatchedRows {
    /// Rows to delete.
    pub(super) deleted: DeletionVector,
    /// Rows to update.
    pub(super) updated: DeletionVector,
}

/// Decides which rows of a batch match. Takes the file, the batch and the positions of its rows in the file.
pub(super) type RowMatcher = Arc<dyn Fn(&FileTask, &RecordBatch, &[i64]) -> Result<MatchedRows> + Send + Sync>;

/// Which rows to find.
#[derive(Clone)]
pub(super) struct FindRequest {
    /// The name of the operation, for progress reports.
    pub(super) operation: &'static str,
    pub(super) action: RowAction,
    /// The time in milliseconds since the epoch.
    pub(super) now_ms: i64,
    /// The columns that the matcher reads.
    pub(super) columns: Vec<String>,
    /// None if every row that the filter keeps matches.
    pub(super) matcher: Option<RowMatcher>,
}

/// The files and rows for which the condition is TRUE.
#[derive(Debug)]
pub(super) struct FindResult {
    /// Files of the base whose rows all match, as the log proves.
    pub(super) removed_files: RemovedFiles,
    /// Paths of the transaction's own files whose rows all match.
    pub(super) own_removed: HashSet<String>,
    /// Rows in the transaction's own files whose rows all match.
    pub(super) own_removed_rows: u64,
    /// Files with matching rows, which were read.
    pub(super) touched_files: Vec<TouchedFile>,
    /// How many files had to be read.
    pub(super) candidates: u64,
    /// Bytes of data files that were read.
    pub(super) bytes_read: u64,
    /// The row groups of the files that were read.
    pub(super) row_groups: RowGroupCounts,
    /// Files that this transaction removes or rewrites as a whole: any concurrent change of them is a conflict. In other
    /// files only a change of the same rows is.
    pub(super) read: PathSet,
    /// The scan plan of the base version's files.
    pub(super) plan: ScanPlan,
}

/// Files of the base that are removed as a whole.
#[derive(Debug, Default)]
pub(super) struct RemovedFiles {
    /// Their `remove` actions.
    pub(super) removes: Actions,
    /// Live rows in them; none if the statistics of one lack the number of rows.
    pub(super) live_rows: Option<u64>,
    /// Their size in bytes.
    pub(super) bytes: u64,
    /// How many of them have deletion vectors.
    pub(super) vectors: u64,
}

/// A file with matching rows.
#[derive(Debug)]
pub(super) struct TouchedFile {
    /// How to read it. The deletion vector includes the rows that the transaction itself has deleted.
    pub(super) task: FileTask,
    /// Its `add` action; none for a file that the transaction itself has written.
    pub(super) add: Option<Add>,
    /// The rows that match, to be deleted or updated.
    pub(super) matching: DeletionVector,
    /// The matching rows that are updated.
    pub(super) updated: DeletionVector,
    /// The rows that were deleted before this operation.
    pub(super) rows_deleted_before_commit: DeletionVector,
    /// Rows in the Parquet file, deleted ones included.
    pub(super) physical_rows: u64,
}

impl TouchedFile {
    /// Live rows before the operation.
    pub(super) fn live_rows(&self) -> u64 {
        self.physical_rows.saturating_sub(self.rows_deleted_before_commit.cardinality())
    }

    /// Whether every live row matches.
    pub(super) fn all_rows_match(&self) -> bool {
        self.matching.cardinality() >= self.live_rows()
    }

    /// The rows that are deleted.
    pub(super) fn deleted(&self) -> DeletionVector {
        self.matching.minus(&self.updated)
    }
}

impl RemovedFiles {
    /// Adds a file with so many live rows.
    pub(super) fn push(&mut self, add: Add, live_rows: Option<u64>, now_ms: i64) -> Result<()> {
        self.live_rows = self.live_rows.zip(live_rows).map(|(all, more)| all.saturating_add(more));
        self.bytes = self.bytes.saturating_add(u64::try_from(add.size).unwrap_or_default());
        self.vectors += u64::from(add.deletion_vector.is_some());
        self.removes.push(Action::Remove(add.removed(now_ms)))
    }
}

/// The most rows of a file that is not read because all its rows match. Their positions are kept in memory, and only the log
/// has their number.
const MOST_UNREAD_ROWS: u64 = 1 << 32;

/// A file that may have to be read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Candidate {
    pub(super) task: FileTask,
    /// Rows in the Parquet file, if the statistics say.
    pub(super) physical_rows: Option<u64>,
    /// Whether the log proves that every row matches.
    all_rows_match: bool,
}

impl Candidate {
    /// The number of its rows, if the log proves that all match: then the file need not be read.
    fn rows_if_all_match(&self) -> Option<u64> {
        self.physical_rows.filter(|_| self.all_rows_match)
    }
}

/// Finds the rows that make `filter` TRUE (all rows, if there is none) in the table as the transaction has changed it.
pub(super) async fn find(
    tx: &Transaction,
    snapshot: &Snapshot,
    filter: Option<&str>,
    (action, now_ms): (RowAction, i64),
) -> Result<FindResult> {
    let operation = if action == RowAction::Update { UPDATE } else { DELETE };
    find_with(tx, snapshot, filter, FindRequest { operation, action, now_ms, columns: Vec::new(), matcher: None }).await
}

/// As [`find`], for the rows that make `filter` TRUE and that the request's matcher chooses.
pub(super) async fn find_with(
    tx: &Transaction,
    snapshot: &Snapshot,
    filter: Option<&str>,
    request: FindRequest,
) -> Result<FindResult> {
    let (mut found, candidates) = candidates(tx, snapshot, filter, (request.action, request.now_ms)).await?;
    let before = snapshot.storage().counts();
    let (touched, row_groups) = read_candidates(snapshot.storage(), found.plan.spec(), candidates, request).await?;
    found.bytes_read = snapshot.storage().counts().since(&before).bytes_read;
    found.row_groups = row_groups;
    found.add(tx, touched).await?;
    Ok(found)
}

/// Finds out from the log which files have to be read, and which rows match without reading.
pub(super) async fn candidates(
    tx: &Transaction,
    snapshot: &Snapshot,
    filter: Option<&str>,
    (action, now_ms): (RowAction, i64),
) -> Result<(FindResult, Vec<Candidate>)> {
    refuse_column(&snapshot.shape().schema, ROW_INDEX)?;
    let plan = ScanPlan::new(snapshot, Some(&[]), filter).await?;
    let mut found = FindResult {
        removed_files: RemovedFiles { live_rows: Some(0), ..RemovedFiles::default() },
        own_removed: HashSet::new(),
        own_removed_rows: 0,
        touched_files: Vec::new(),
        read: PathSet::default(),
        candidates: 0,
        bytes_read: 0,
        row_groups: RowGroupCounts::default(),
        plan: plan.clone(),
    };
    let mut candidates = Vec::new();
    for (adds, fully_matching) in plan.adds_with_full_matches().await? {
        classify(tx, (&adds, &fully_matching), (action, now_ms), (&mut found, &mut candidates))?;
    }
    classify_own(tx, &plan, action, (&mut found, &mut candidates))?;
    found.candidates = candidates.iter().filter(|candidate| candidate.rows_if_all_match().is_none()).count() as u64;
    Ok((found, candidates))
}

impl FindResult {
    /// Adds the files with matching rows.
    ///
    /// # Errors
    /// Those of reading the log.
    pub(super) async fn add(&mut self, tx: &Transaction, mut touched: Vec<TouchedFile>) -> Result<()> {
        let own = tx.local_files();
        let of_base = touched.iter().map(|file| &file.task.path).filter(|path| !own.contains_key(path.as_str()));
        let adds = self.plan.adds_at(&of_base.cloned().collect()).await?;
        let mut adds: HashMap<String, Add> = adds.into_iter().map(|add| (add.path.clone(), add)).collect();
        for file in &mut touched {
            file.add = adds.remove(&file.task.path);
        }
        self.touched_files.extend(touched);
        Ok(())
    }

    /// The read set of the operation: the condition, and the files that are removed or rewritten.
    pub(super) fn into_read_set(self) -> Result<ReadSet> {
        let Some(filter) = &self.plan.spec().filter else { return Ok(ReadSet::AllRows) };
        let shape = self.plan.snapshot().shape().clone();
        let predicate = Arc::unwrap_or_clone(filter.bound(&shape.schema)?);
        Ok(ReadSet::Predicates(PredicatesRead::new(shape, predicate, self.read)))
    }
}

/// Divides files of the base into those whose rows all match, as the log proves, and those that have to be read.
fn classify(
    tx: &Transaction,
    (adds, fully_matching): (&AddBatch, &BooleanBuffer),
    (action, now_ms): (RowAction, i64),
    (found, candidates): (&mut FindResult, &mut Vec<Candidate>),
) -> Result<()> {
    let counts = statistics(adds, &[])?.num_records;
    for row in 0..adds.len() {
        let physical_rows = counts.is_valid(row).then(|| counts.value(row)).and_then(|rows| u64::try_from(rows).ok());
        let Some(task) = tx.with_own_deletes(task(adds, row)?)? else { continue };
        let all_rows_match = fully_matching.value(row);
        if all_rows_match && action == RowAction::Delete {
            let deleted = task.deletion_vector.as_ref().map_or(0, |vector| vector.cardinality);
            let live_rows = physical_rows
                .zip(u64::try_from(deleted).ok())
                .and_then(|(physical, deleted)| physical.checked_sub(deleted));
            found.read.insert(adds.path().value(row));
            found.removed_files.push(adds.sized_add(row)?, live_rows, now_ms)?;
        } else {
            candidates.push(Candidate {
                task,
                physical_rows,
                all_rows_match: all_rows_match && action != RowAction::Merge,
            });
        }
    }
    Ok(())
}

/// As [`classify`], for the files that the transaction itself has written.
fn classify_own(
    tx: &Transaction,
    plan: &ScanPlan,
    action: RowAction,
    (found, candidates): (&mut FindResult, &mut Vec<Candidate>),
) -> Result<()> {
    let Some(adds) = tx.local_adds()? else { return Ok(()) };
    let filter = plan.filter();
    let fully_matching = fully_matching(&adds, plan.snapshot().shape(), filter.as_ref())?;
    let counts = statistics(&adds, &[])?.num_records;
    for row in 0..adds.len() {
        let physical_rows = counts.is_valid(row).then(|| counts.value(row)).and_then(|rows| u64::try_from(rows).ok());
        let all_rows_match = fully_matching.value(row);
        match physical_rows.filter(|_| all_rows_match && action == RowAction::Delete) {
            Some(rows) => {
                found.own_removed.insert(adds.path().value(row).to_owned());
                found.own_removed_rows += rows;
            }
            None => {
                let all_rows_match = all_rows_match && action != RowAction::Merge;
                candidates.push(Candidate { task: task(&adds, row)?, physical_rows, all_rows_match });
            }
        }
    }
    Ok(())
}

/// Reads the candidates, and returns those that have matching rows, with those rows, and the row groups of all.
pub(super) async fn read_candidates(
    storage: &Storage,
    spec: &ReadSpec,
    candidates: Vec<Candidate>,
    request: FindRequest,
) -> Result<(Vec<TouchedFile>, RowGroupCounts)> {
    if candidates.is_empty() {
        return Ok((Vec::new(), RowGroupCounts::default()));
    }
    let columns = std::iter::once(ROW_INDEX.to_owned()).chain(request.columns.iter().cloned()).collect();
    let spec = ReadSpec { columns, ..spec.clone() };
    let reader = Reader::new(storage.clone(), spec.clone())?;
    let options = ReadOptions::one_of(candidates.len());
    let progress = Progress::begin(request.operation, Unit::Files, Some(candidates.len() as u64));
    let opened = reader.clone();
    let files = CandidateReader { storage: storage.clone(), spec: Arc::new(spec), reader, options, request };
    let find = move |candidate| {
        let (files, progress) = (files.clone(), progress.clone());
        spawn_async(async move {
            let touched = files.find(candidate).await;
            progress.advance(1);
            touched
        })
    };
    let touched = join_ordered(candidates.into_iter().map(find), worker_count()).await?;
    Ok((touched.into_iter().flatten().collect(), opened.row_groups()))
}

/// Finds the matching rows of one file at a time.
#[derive(Clone)]
struct CandidateReader {
    storage: Storage,
    spec: Arc<ReadSpec>,
    reader: Reader,
    options: ReadOptions,
    request: FindRequest,
}

impl CandidateReader {
    /// Finds the matching rows of a file; none if no row of it matches.
    async fn find(self, candidate: Candidate) -> Result<Option<TouchedFile>> {
        let rows_if_all_match = candidate.rows_if_all_match().filter(|rows| *rows <= MOST_UNREAD_ROWS);
        let Candidate { mut task, physical_rows: logged_rows, .. } = candidate;
        let rows_deleted_before_commit = match &task.deletion_vector {
            Some(descriptor) => read_vector(&self.storage, descriptor).await.map_err(|e| e.in_file(&task.path))?,
            None => DeletionVector::default(),
        };
        // As inline bytes, so that the scan need not fetch it again.
        task.deletion_vector =
            if rows_deleted_before_commit.is_empty() { None } else { Some(rows_deleted_before_commit.to_inline()?) };
        if let Some(physical_rows) = rows_if_all_match {
            let matching = DeletionVector::first(physical_rows).minus(&rows_deleted_before_commit);
            let is_update = self.request.action == RowAction::Update;
            let updated = if is_update { matching.clone() } else { DeletionVector::default() };
            let touched = TouchedFile { task, add: None, matching, updated, rows_deleted_before_commit, physical_rows };
            return Ok((!touched.matching.is_empty()).then_some(touched));
        }
        let MatchedRows { deleted, updated } = self.read(&task).await?;
        let matching = deleted.union(&updated);
        if matching.is_empty() {
            return Ok(None);
        }
        let live_rows = |logged: u64| logged.saturating_sub(rows_deleted_before_commit.cardinality());
        let all_match = logged_rows.is_none_or(|logged| matching.cardinality() >= live_rows(logged));
        let counted = self.physical_rows(&task, (logged_rows, all_match), &matching).await;
        let physical_rows = counted.map_err(|e| e.in_file(&task.path))?;
        Ok(Some(TouchedFile { task, add: None, matching, updated, rows_deleted_before_commit, physical_rows }))
    }

    /// Reads a file, and finds its matching rows.
    async fn read(&self, task: &FileTask) -> Result<MatchedRows> {
        let mut rows = MatchedRows::default();
        let mut batches = std::pin::pin!(self.reader.clone().read(vec![task.clone()], self.options.clone()));
        while let Some(batch) = batches.try_next().await? {
            let positions = batch.columns().first().and_then(|column| column.as_primitive_opt::<Int64Type>());
            let positions = positions.ok_or_else(|| Error::internal("the positions of rows were not read"))?.values();
            let all = || positions.iter().map(|position| position.cast_unsigned());
            match (&self.request.matcher, self.request.action) {
                (Some(matcher), _) => {
                    let matched = matcher(task, &batch, positions).map_err(|e| e.in_file(&task.path))?;
                    rows.deleted.extend(matched.deleted.iter());
                    rows.updated.extend(matched.updated.iter());
                }
                (None, RowAction::Update) => rows.updated.extend(all()),
                (None, RowAction::Delete | RowAction::Merge) => rows.deleted.extend(all()),
            }
        }
        Ok(rows)
    }

    /// The number of rows in a file: that of the log, or that of the file's footer if all rows seem to match, since the file is
    /// removed then.
    ///
    /// # Errors
    /// `Corrupt` if the log has a wrong number.
    async fn physical_rows(
        &self,
        task: &FileTask,
        (logged, all_match): (Option<u64>, bool),
        matching: &DeletionVector,
    ) -> Result<u64> {
        let wrong = |logged: u64, in_file: &str| {
            Error::corrupt(format!(
                "the statistics in the log say that the file has {logged} rows, but it has {in_file}; rewrite the file, or \
                 restore it"
            ))
        };
        let rows = match logged {
            Some(logged) if !all_match => logged,
            _ => self.count_in_footer(task).await?,
        };
        match (logged, matching.last()) {
            (Some(logged), _) if logged != rows => Err(wrong(logged, &rows.to_string())),
            (_, Some(last)) if last >= rows => Err(wrong(rows, "more")),
            _ => Ok(rows),
        }
    }

    /// The number of rows in a file, by its footer.
    async fn count_in_footer(&self, task: &FileTask) -> Result<u64> {
        let spec = ReadSpec { filter: None, ..ReadSpec::clone(&self.spec) };
        let task = FileTask { deletion_vector: None, ..task.clone() };
        count_rows(&self.storage, &spec, vec![task], ReadOptions::default()).await
    }
}
