//! The end of a row change: checks the results of its tasks, and adds them to the transaction.
//!
//! The driver does not trust the results: files must be those of this row change, be in the table's store, and have as many
//! rows as were found.

use std::collections::HashSet;

use deltic_protocol::deletion_vector::DeletionVector;
use deltic_store::{Storage, Syncing, decode_path};

use super::result::{TaskChanges, TaskResult};
use super::{DistributedRowChange, Merging, RowChangeCounts};
use crate::dml::file_changes::{ChangedFiles, StepTimes, WrittenFiles, choose};
use crate::dml::find::{Candidate, FindResult, MERGE, RowAction};
use crate::dml::merge::{self, Outcome};
use crate::error::{Error, Result};
use crate::parallel::join_ordered;
use crate::progress::{Progress, Unit};
use crate::rewrite::Written;
use crate::transaction::builder::Transaction;
use crate::transaction::row_counts::MergeCounts;
use crate::write::layout::has_id_prefix;
use crate::write::plan::DataFile;
use crate::write::writer::Clock;

/// How many files the store is asked for at once.
const CONCURRENT_REQUESTS: usize = 32;

/// Rows of the source of a merge that match, and what happens to the rows of the target that they match.
struct Matches {
    outcome: Outcome,
    /// How many rows of the source match.
    source_rows: u64,
}

/// The end of a merge: the files with inserted rows, and what it did.
#[derive(Default)]
struct Merged {
    files: Vec<Written>,
    counts: MergeCounts,
}

/// Rows of the files that tasks wrote.
struct WrittenRows {
    /// Of data files.
    rewritten: u64,
    /// Of change files.
    recorded: u64,
}

impl DistributedRowChange {
    /// Adds the results to the transaction, as the last part of a step does that one process carries out.
    pub(super) async fn apply_results(
        mut self,
        tx: &mut Transaction,
        (results, inserted): (&[impl AsRef<[u8]> + Sync], Vec<DataFile>),
        clock: Clock,
    ) -> Result<RowChangeCounts> {
        let mut results = TaskResult::of_row_change(results, &self.row_change_id, self.groups.len())?;
        let (written, written_rows) = self.take_files(&mut results, &inserted, tx.id_prefix()).await?;
        let times = StepTimes { begun_ms: self.begun_ms, found_ms: self.found_ms(&results, clock), clock };
        let mut touched = Vec::new();
        for (of_task, files) in results.iter_mut().zip(&self.groups) {
            touched.extend(of_task.take_touched(files)?);
        }
        self.found.add(tx, touched).await?;
        let merging = self.merging.take();
        let matches = merging.as_ref().map(|merging| merging.matches(&mut results, &self.groups)).transpose()?;
        let chosen = choose(tx, &mut self.found, self.begun_ms)?;
        check_rows(&chosen, &written_rows, tx.has_change_data_feed()?)?;
        let merged = match (&merging, matches) {
            (Some(merging), Some(matches)) => {
                check_counts(&chosen, &matches.outcome.counts)?;
                Some(merging.insert(tx, (matches, inserted), &mut self.found, clock).await?)
            }
            _ => None,
        };
        let mut counts = RowChangeCounts { deleted: Some(0), ..RowChangeCounts::default() };
        let (deleted, matching) = (chosen.deleted_rows(), chosen.matching_rows);
        chosen.end_step(tx, (self.found, written), times)?;
        match merging.map_or(self.action, |merging| merging.operation) {
            RowAction::Delete => {
                counts.deleted = deleted;
                tx.count_deleted(deleted);
            }
            RowAction::Update => {
                counts.updated = matching;
                tx.count_updated(matching);
            }
            RowAction::Merge => {
                let Merged { files, counts: of_merge } = merged.unwrap_or_default();
                counts.merged = of_merge;
                tx.end_merge(files, of_merge);
            }
        }
        Ok(counts)
    }

    /// Takes the files that the tasks wrote, and checks that they are in the table's store. They are deleted when dropped,
    /// unless a transaction takes them over. `inserted`: the files with inserted rows, whose names begin with `inserted_prefix`.
    async fn take_files(
        &self,
        results: &mut [TaskChanges],
        inserted: &[DataFile],
        inserted_prefix: Option<u64>,
    ) -> Result<(WrittenFiles, WrittenRows)> {
        let mut first_files = self.check_files(results)?;
        check_paths(inserted.iter(), inserted_prefix)?;
        first_files.extend(inserted.first().cloned());
        let (mut rewritten, mut changes) = (Vec::new(), Vec::new());
        for of_task in results {
            rewritten.append(&mut of_task.rewritten);
            changes.append(&mut of_task.changes);
        }
        let rows = WrittenRows { rewritten: count_rows(&rewritten), recorded: count_rows(&changes) };
        let written = WrittenFiles::of_others(&self.storage, rewritten, changes)?;
        let found = first_files.into_iter().map(|file| check_is_in_store(self.storage.clone(), file));
        join_ordered(found, CONCURRENT_REQUESTS).await?;
        Ok((written, rows))
    }

    /// When the rows were found, in milliseconds since the epoch: after the longest search of a task.
    fn found_ms(&self, results: &[TaskChanges], clock: Clock) -> i64 {
        let scan_ms = results.iter().map(|of_task| of_task.scan_ms).max().unwrap_or_default().max(0);
        self.planned_ms.saturating_add(scan_ms).min(clock())
    }

    /// Refuses a file that no task of this row change wrote, or that is returned twice. Returns the first file of each task.
    fn check_files(&self, results: &[TaskChanges]) -> Result<Vec<DataFile>> {
        let files = results.iter().map(|of_task| of_task.rewritten.iter().chain(&of_task.changes));
        check_paths(files.clone().flatten(), self.id_prefix)?;
        Ok(files.filter_map(|mut of_task| of_task.next().cloned()).collect())
    }
}

/// Refuses a file whose name does not begin with this id, or that comes twice.
fn check_paths<'a>(files: impl Iterator<Item = &'a DataFile>, id_prefix: Option<u64>) -> Result<()> {
    let mut paths = HashSet::new();
    for path in files.map(|file| file.add.path.as_str()) {
        if !id_prefix.is_none_or(|id_prefix| has_id_prefix(path, id_prefix)) || !paths.insert(path) {
            let message = "a task returned a file that no task of this operation wrote, or a file was returned twice";
            return Err(Error::invalid(message).in_file(path));
        }
    }
    Ok(())
}

/// Refuses a file that the table's store does not have: the settings of the process that wrote it point to another store, in
/// which all of its files are.
async fn check_is_in_store(storage: Storage, DataFile { add, .. }: DataFile) -> Result<()> {
    match storage.head(&decode_path(&add.path)?).await {
        Ok(found) if u64::try_from(add.size) == Ok(found.size) => Ok(()),
        Err(error) if !error.is_not_found() => Err(error),
        Ok(_) | Err(_) => {
            let message = "a task wrote a file that is not in the table's store: the settings of its process lead to another \
                           store; pass storage_options, which are sent to executors";
            Err(Error::invalid(message).in_file(add.path))
        }
    }
}

impl Merging {
    /// The result of the join, from the results of all tasks.
    fn matches(&self, results: &mut [TaskChanges], groups: &[Vec<Candidate>]) -> Result<Matches> {
        // Of a source that other processes have it is not known here how many rows a task got.
        let rows_of_task = self.rows_elsewhere.is_none().then_some(self.join.source_rows() as u64);
        let (mut outcome, mut matched) = (Outcome::default(), DeletionVector::default());
        for (of_task, files) in results.iter_mut().zip(groups) {
            let merged = of_task.merged.take();
            let merged = merged.ok_or_else(|| Error::invalid("a task of a MERGE returned no matches of the source"))?;
            outcome.counts = outcome.counts.and(merged.counts);
            merged.add_to((&mut matched, &mut outcome.unchanged), rows_of_task, files)?;
        }
        if self.rows_elsewhere.is_none() {
            outcome.matched = vec![false; self.join.source_rows()];
            for row in matched.iter() {
                if let Some(matched) = usize::try_from(row).ok().and_then(|row| outcome.matched.get_mut(row)) {
                    *matched = true;
                }
            }
        }
        Ok(Matches { outcome, source_rows: matched.cardinality() })
    }

    /// Writes the rows that the merge inserts, or takes the files of the processes that have the source (`inserted`).
    async fn insert(
        &self,
        tx: &mut Transaction,
        (Matches { outcome, source_rows: matched }, inserted): (Matches, Vec<DataFile>),
        found: &mut FindResult,
        clock: Clock,
    ) -> Result<Merged> {
        let Some(source) = self.rows_elsewhere else {
            let inserts = merge::inserts(&self.join, &outcome, found)?;
            let counts = merge::counts(&self.join, &outcome, &inserts);
            let progress = match inserts.is_empty() {
                true => Progress::default(),
                false => Progress::begin(MERGE, Unit::Rows, Some(counts.inserted)),
            };
            let files = Box::pin(tx.write_inserted(&self.join, inserts, clock, &progress)).await?;
            return Ok(Merged { files, counts });
        };
        merge::read_unchanged(&self.join, &outcome, found);
        let rows = count_rows(&inserted);
        if rows > source.saturating_sub(matched) {
            let message = "the files of inserted rows have more rows than the source has without a match";
            return Err(Error::invalid(message));
        }
        let counts = MergeCounts { source, inserted: rows, ..outcome.counts };
        Ok(Merged { files: vec![(inserted, Syncing::default())], counts })
    }
}

fn count_rows(files: &[DataFile]) -> u64 {
    files.iter().map(|file| file.rows).fold(0, u64::saturating_add)
}

/// Refuses files whose rows are not as many as the rows that were found require.
fn check_rows(chosen: &ChangedFiles, written: &WrittenRows, has_change_data_feed: bool) -> Result<()> {
    let recorded = if has_change_data_feed { chosen.recorded_rows() } else { 0 };
    for (expected, written) in [(chosen.rewritten_rows(), written.rewritten), (recorded, written.recorded)] {
        if expected != written {
            return Err(Error::invalid(format!(
                "the files that the tasks returned have {written} rows instead of {expected}: a task failed, or the \
                 statistics in the log give a wrong number of rows for a file"
            )));
        }
    }
    Ok(())
}

/// Refuses counts that disagree with the rows that were found.
fn check_counts(chosen: &ChangedFiles, counts: &MergeCounts) -> Result<()> {
    let counted = [counts.matched_updated, counts.unmatched_updated, counts.matched_deleted, counts.unmatched_deleted];
    let known = chosen.deleted_rows().unwrap_or_default();
    match counted.into_iter().fold(0, u64::saturating_add) == known {
        true => Ok(()),
        false => Err(Error::invalid("tasks counted other rows than they found; run it again")),
    }
}
