//! Finding rows: which files hold any, and where in them they stand.
//!
//! The plan of a scan leaves out files that cannot hold a matching row. Of the rest, those whose bounds prove that every
//! row matches are found unread, and of the others only the columns of the condition are read.
//!
//! Invariant: a position is found exactly if its row counts, for the transaction as it is, and makes the condition TRUE
//! (`dml::what_is_found_is_what_a_scan_gives`). Memory holds the positions, a batch of rows for each file that is read at
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

use crate::error::{Error, Result};
use crate::parallel::{all_of, in_parallel, worker_count};
use crate::progress::{Progress, Unit};
use crate::rewrite::refuse_column;
use crate::scan::count::{count_rows, covered};
use crate::scan::plan::{ScanPlan, task};
use crate::scan::read::{ReadOptions, Reader};
use crate::scan::row_tracking::ROW_INDEX;
use crate::scan::task::{FileTask, ReadSpec};
use crate::scan::vectors::read_vector;
use crate::snapshot::Snapshot;
use crate::transaction::builder::Transaction;
use deltic_store::Storage;

/// The operations, as the history of a table has them.
pub(super) const DELETE: &str = "DELETE";
pub(super) const UPDATE: &str = "UPDATE";
pub(super) const MERGE: &str = "MERGE";

/// What becomes of the rows that are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// They go.
    Gone,
    /// They are changed, so they are read whatever the log proves.
    Changed,
    /// A search says so of each, and every file is read for it.
    Judged,
}

/// Rows of a file, by their positions in it.
#[derive(Debug, Default)]
pub(super) struct Hits {
    /// Those that go.
    pub(super) gone: DeletionVector,
    /// Those that are changed.
    pub(super) changed: DeletionVector,
}

/// Looks at rows of a file, whose positions come beside them.
pub(super) type Search = Arc<dyn Fn(&FileTask, &RecordBatch, &[i64]) -> Result<Hits> + Send + Sync>;

/// What is looked for.
#[derive(Clone)]
pub(super) struct Look {
    /// For what, as those are told who wait for it.
    pub(super) operation: &'static str,
    pub(super) fate: Fate,
    /// The time in milliseconds since the epoch.
    pub(super) now_ms: i64,
    /// The columns that the search needs.
    pub(super) columns: Vec<String>,
    /// None where every row that is read is found.
    pub(super) search: Option<Search>,
}

/// What a condition holds for.
#[derive(Debug)]
pub(super) struct Found {
    /// Files of the base that hold matching rows only, as the log proves.
    pub(super) covered: Covered,
    /// Files of the transaction's own that do, by path.
    pub(super) own_covered: HashSet<String>,
    /// Rows in them.
    pub(super) own_covered_rows: u64,
    /// Files with matching rows, which were read.
    pub(super) touched: Vec<Touched>,
    /// Files that had to be read for it.
    pub(super) candidates: u64,
    /// Bytes that were read of them.
    pub(super) bytes_read: u64,
    /// Files that hold matching rows only. Whoever changes other rows of a file that stays is in nobody's way.
    pub(super) read: PathSet,
    /// The plan of the base's files.
    pub(super) plan: ScanPlan,
}

/// Files of the base that go as a whole.
#[derive(Debug, Default)]
pub(super) struct Covered {
    /// What takes them out.
    pub(super) removes: Actions,
    /// Rows in them that count, if all say how many.
    pub(super) rows: Option<u64>,
    /// Bytes of them.
    pub(super) bytes: u64,
    /// How many have deletion vectors.
    pub(super) vectors: u64,
}

/// A file with matching rows.
#[derive(Debug)]
pub(super) struct Touched {
    /// What reads it, as the transaction sees it.
    pub(super) task: FileTask,
    /// What the log says of it; none of a file of the transaction's own.
    pub(super) add: Option<Add>,
    /// The rows that match: they go or are changed.
    pub(super) rows: DeletionVector,
    /// Those of them that are changed.
    pub(super) changed: DeletionVector,
    /// The rows that did not count before.
    pub(super) before: DeletionVector,
    /// Rows in the file, whether they count or not.
    pub(super) stored: u64,
}

impl Touched {
    /// Rows that counted before.
    pub(super) fn counted(&self) -> u64 {
        self.stored.saturating_sub(self.before.cardinality())
    }

    /// Whether every row that counts matches.
    pub(super) fn is_whole(&self) -> bool {
        self.rows.cardinality() >= self.counted()
    }

    /// The rows that go.
    pub(super) fn gone(&self) -> DeletionVector {
        self.rows.minus(&self.changed)
    }
}

impl Covered {
    /// Takes in a file with so many rows that count.
    pub(super) fn push(&mut self, add: Add, rows: Option<u64>, now_ms: i64) -> Result<()> {
        self.rows = self.rows.zip(rows).map(|(all, more)| all.saturating_add(more));
        self.bytes = self.bytes.saturating_add(u64::try_from(add.size).unwrap_or_default());
        self.vectors += u64::from(add.deletion_vector.is_some());
        self.removes.push(Action::Remove(add.removed(now_ms)))
    }
}

/// A file that has to be read.
#[derive(Debug)]
struct Candidate {
    task: FileTask,
    /// Rows in it, if the log says.
    stored: Option<u64>,
    /// Whether the log proves that every row matches.
    is_covered: bool,
}

impl Candidate {
    /// Rows in it, if nothing else has to be known of it.
    fn known(&self) -> Option<u64> {
        self.stored.filter(|_| self.is_covered)
    }
}

/// Finds the rows that make `filter` TRUE, all without one, in the table as the transaction sees it.
pub(super) async fn find(
    tx: &Transaction,
    snapshot: &Snapshot,
    filter: Option<&str>,
    (fate, now_ms): (Fate, i64),
) -> Result<Found> {
    let operation = if fate == Fate::Changed { UPDATE } else { DELETE };
    look(tx, snapshot, filter, Look { operation, fate, now_ms, columns: Vec::new(), search: None }).await
}

/// As [`find`], of the rows that a search finds among those that make `filter` TRUE.
pub(super) async fn look(tx: &Transaction, snapshot: &Snapshot, filter: Option<&str>, look: Look) -> Result<Found> {
    let Look { fate, now_ms, .. } = look;
    refuse_column(&snapshot.shape().schema, ROW_INDEX)?;
    let plan = ScanPlan::new(snapshot, Some(&[]), filter).await?;
    let mut found = Found {
        covered: Covered { rows: Some(0), ..Covered::default() },
        own_covered: HashSet::new(),
        own_covered_rows: 0,
        touched: Vec::new(),
        read: PathSet::default(),
        candidates: 0,
        bytes_read: 0,
        plan: plan.clone(),
    };
    let mut candidates = Vec::new();
    for (adds, covered) in plan.judged_adds().await? {
        for row in covered.set_indices() {
            found.read.insert(adds.path().value(row));
        }
        judge(tx, (&adds, &covered), (fate, now_ms), (&mut found, &mut candidates))?;
    }
    judge_own(tx, &plan, fate, (&mut found, &mut candidates))?;
    found.candidates = candidates.iter().filter(|candidate| candidate.known().is_none()).count() as u64;
    let before = snapshot.storage().counts();
    found.touched = read_all(snapshot.storage(), plan.spec(), candidates, look).await?;
    found.bytes_read = snapshot.storage().counts().since(&before).bytes_read;
    let mut of_base = HashSet::new();
    let own = tx.own();
    for Touched { task, .. } in &found.touched {
        if !own.contains_key(task.path.as_str()) {
            of_base.insert(task.path.clone());
        }
    }
    let adds = plan.adds_at(&of_base).await?;
    let mut adds: HashMap<String, Add> = adds.into_iter().map(|add| (add.path.clone(), add)).collect();
    for touched in &mut found.touched {
        touched.add = adds.remove(&touched.task.path);
    }
    Ok(found)
}

impl Found {
    /// What was read: the condition, and the files with matching rows that do not stay.
    pub(super) fn into_read_set(self) -> Result<ReadSet> {
        let Some(filter) = &self.plan.spec().filter else { return Ok(ReadSet::WholeTable) };
        let shape = self.plan.snapshot().shape().clone();
        let predicates = vec![Arc::unwrap_or_clone(filter.bound(&shape.schema)?)];
        Ok(ReadSet::Predicates(PredicatesRead { shape, predicates, files: self.read }))
    }
}

/// Sorts files of the base into those that hold matching rows only, and those that have to be read.
fn judge(
    tx: &Transaction,
    (adds, covered): (&AddBatch, &BooleanBuffer),
    (fate, now_ms): (Fate, i64),
    (found, candidates): (&mut Found, &mut Vec<Candidate>),
) -> Result<()> {
    let counts = statistics(adds, &[])?.num_records;
    for row in 0..adds.len() {
        let stored = counts.is_valid(row).then(|| counts.value(row)).and_then(|rows| u64::try_from(rows).ok());
        let Some(task) = tx.seen(task(adds, row)?)? else { continue };
        let is_covered = covered.value(row);
        if is_covered && fate == Fate::Gone {
            let deleted = task.deletion_vector.as_ref().map_or(0, |vector| vector.cardinality);
            let counted = stored.zip(u64::try_from(deleted).ok()).and_then(|(stored, gone)| stored.checked_sub(gone));
            found.covered.push(adds.sized_add(row)?, counted, now_ms)?;
        } else {
            candidates.push(Candidate { task, stored, is_covered: is_covered && fate != Fate::Judged });
        }
    }
    Ok(())
}

/// The same of the transaction's own files.
fn judge_own(
    tx: &Transaction,
    plan: &ScanPlan,
    fate: Fate,
    (found, candidates): (&mut Found, &mut Vec<Candidate>),
) -> Result<()> {
    let Some(adds) = tx.own_adds()? else { return Ok(()) };
    let filter = plan.filter();
    let covered = covered(&adds, plan.snapshot().shape(), filter.as_ref())?;
    let counts = statistics(&adds, &[])?.num_records;
    for row in 0..adds.len() {
        let stored = counts.is_valid(row).then(|| counts.value(row)).and_then(|rows| u64::try_from(rows).ok());
        let is_covered = covered.value(row);
        match stored.filter(|_| is_covered && fate == Fate::Gone) {
            Some(rows) => {
                found.own_covered.insert(adds.path().value(row).to_owned());
                found.own_covered_rows += rows;
            }
            None => {
                let is_covered = is_covered && fate != Fate::Judged;
                candidates.push(Candidate { task: task(&adds, row)?, stored, is_covered });
            }
        }
    }
    Ok(())
}

/// The files that hold matching rows, with those rows.
async fn read_all(storage: &Storage, spec: &ReadSpec, candidates: Vec<Candidate>, look: Look) -> Result<Vec<Touched>> {
    if candidates.is_empty() {
        return Ok(Vec::new());
    }
    let columns = std::iter::once(ROW_INDEX.to_owned()).chain(look.columns.iter().cloned()).collect();
    let spec = ReadSpec { columns, ..spec.clone() };
    let reader = Reader::new(storage.clone(), spec.clone())?;
    // As much at once as a scan reads: of one file its parts, of many files one part of each.
    let workers = worker_count();
    let concurrent_files = (workers / candidates.len().min(workers)).max(1);
    let options = ReadOptions { concurrent_files, ..ReadOptions::default() };
    let (storage, spec) = (storage.clone(), Arc::new(spec));
    let progress = Progress::begin(look.operation, Unit::Files, Some(candidates.len() as u64));
    let touch = move |candidate| {
        let (access, look) = ((storage.clone(), spec.clone(), reader.clone()), look.clone());
        let (options, progress) = (options.clone(), progress.clone());
        in_parallel(async move {
            let touched = touch(access, (candidate, options), look).await;
            progress.advance(1);
            touched
        })
    };
    let touched = all_of(candidates.into_iter().map(touch), workers).await?;
    Ok(touched.into_iter().flatten().collect())
}

/// Reads a file; none if no row of it matches.
async fn touch(
    (storage, spec, reader): (Storage, Arc<ReadSpec>, Reader),
    (candidate, options): (Candidate, ReadOptions),
    look: Look,
) -> Result<Option<Touched>> {
    let known = candidate.known();
    let Candidate { mut task, stored, .. } = candidate;
    let place = |e: Error, task: &FileTask| e.in_file(&task.path);
    let before = match &task.deletion_vector {
        Some(descriptor) => read_vector(&storage, descriptor).await.map_err(|e| place(e, &task))?,
        None => DeletionVector::default(),
    };
    // So that it is not fetched once more.
    task.deletion_vector = if before.is_empty() { None } else { Some(before.to_inline()?) };
    if let Some(stored) = known {
        let rows = DeletionVector::first(stored).minus(&before);
        let changed = if look.fate == Fate::Changed { rows.clone() } else { DeletionVector::default() };
        return Ok((!rows.is_empty()).then_some(Touched { task, add: None, rows, changed, before, stored }));
    }
    let Hits { gone: mut rows, changed } = read_hits(&task, reader, options, &look).await?;
    rows = rows.union(&changed);
    let Some(last) = rows.last() else { return Ok(None) };
    let stored = match stored {
        Some(stored) if rows.cardinality() < stored.saturating_sub(before.cardinality()) => stored,
        // Whether all rows match is the file's to say.
        logged => stored_rows(&storage, &spec, &task).await.and_then(|stored| match logged {
            Some(logged) if logged != stored => {
                let message = format!(
                    "the statistics in the log say that the file has {logged} rows, and it has {stored}; rewrite the file, or \
                     restore it"
                );
                Err(place(Error::corrupt(message), &task))
            }
            _ => Ok(stored),
        })?,
    };
    if last >= stored {
        let message = format!(
            "the statistics in the log say that the file has {stored} rows, and it has more; rewrite the file, or restore it"
        );
        return Err(place(Error::corrupt(message), &task));
    }
    Ok(Some(Touched { task, add: None, rows, changed, before, stored }))
}

/// The rows of a file that are found.
async fn read_hits(task: &FileTask, reader: Reader, options: ReadOptions, look: &Look) -> Result<Hits> {
    let mut hits = Hits::default();
    let mut batches = std::pin::pin!(reader.read(vec![task.clone()], options));
    while let Some(batch) = batches.try_next().await? {
        let positions = batch.columns().first().and_then(|column| column.as_primitive_opt::<Int64Type>());
        let positions = positions.ok_or_else(|| Error::internal("the positions of rows were not read"))?.values();
        let all = || positions.iter().map(|position| position.cast_unsigned());
        match (&look.search, look.fate) {
            (Some(search), _) => {
                let found = search(task, &batch, positions).map_err(|e| e.in_file(&task.path))?;
                hits.gone.extend(found.gone.iter());
                hits.changed.extend(found.changed.iter());
            }
            (None, Fate::Changed) => hits.changed.extend(all()),
            (None, Fate::Gone | Fate::Judged) => hits.gone.extend(all()),
        }
    }
    Ok(hits)
}

/// Rows in a file, by its footer.
async fn stored_rows(storage: &Storage, spec: &ReadSpec, task: &FileTask) -> Result<u64> {
    let spec = ReadSpec { filter: None, ..spec.clone() };
    let task = FileTask { deletion_vector: None, ..task.clone() };
    count_rows(storage, &spec, vec![task], ReadOptions::default()).await
}
