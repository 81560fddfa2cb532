//! The number of rows of a scan, from the log where possible.
//!
//! A file counts with the row count in the log, less its deletion vector, if no filter applies to it or its bounds
//! prove that the filter keeps every row. Of other files only the columns of the filter are read, or only the footer.
//!
//! Proved by `tests/rust/table/count.rs`.
//!
//! PROTOCOL.md: "Per-file Statistics", "Deletion Vectors".

use arrow_array::Array;
use arrow_buffer::BooleanBuffer;
use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::log_bounds::{LogBounds, TableShape, statistics};
use deltic_protocol::predicate::BoundPredicate;
use deltic_protocol::prune;
use futures::stream::TryStreamExt;

use super::plan::ScanPlan;
use super::read::{ReadOptions, Reader};
use super::task::{FileTask, ReadSpec};
use crate::error::Result;
use deltic_store::Storage;

impl ScanPlan {
    /// The number of rows of the plan.
    ///
    /// # Errors
    /// Those of reading files.
    pub async fn count_rows(&self, options: ReadOptions) -> Result<u64> {
        let storage = self.snapshot().storage();
        let counting = async {
            let filter = self.filter();
            let (mut rows, mut rest) = (0_u64, Vec::new());
            for adds in self.adds_with_stats().await? {
                let counts = known_rows(&adds, &fully_matching(&adds, self.snapshot().shape(), filter.as_ref())?)?;
                for (row, count) in counts.into_iter().enumerate() {
                    match count {
                        Some(count) => rows = rows.saturating_add(count),
                        None => rest.push(super::plan::task(&adds, row)?),
                    }
                }
            }
            Ok(rows.saturating_add(count_rows(storage, self.spec(), rest, options).await?))
        };
        counting.await.map_err(|e: crate::error::Error| e.in_table(storage.location()))
    }

    /// The files to read, and which of them have only matching rows, as the log proves.
    pub(crate) async fn adds_with_full_matches(&self) -> Result<Vec<(AddBatch, BooleanBuffer)>> {
        let adds = async {
            let filter = self.filter();
            let with_full_matches = |adds: AddBatch| {
                let fully_matching = fully_matching(&adds, self.snapshot().shape(), filter.as_ref())?;
                Ok((adds, fully_matching))
            };
            self.adds_with_stats().await?.into_iter().map(with_full_matches).collect::<Result<_>>()
        };
        adds.await.map_err(|e: crate::error::Error| e.in_table(self.snapshot().storage().location()))
    }

    /// One task for each file to read, with its number of rows if the log has it.
    pub async fn counted_tasks(&self) -> Result<Vec<FileTask>> {
        let adds = self.adds_with_stats().await;
        let mut tasks = Vec::new();
        for adds in adds.map_err(|e| e.in_table(self.snapshot().storage().location()))? {
            let counts = statistics(&adds, &[])?.num_records;
            for row in 0..adds.len() {
                let num_records = counts.is_valid(row).then(|| counts.value(row));
                tasks.push(FileTask { num_records, ..super::plan::task(&adds, row)? });
            }
        }
        Ok(tasks)
    }
}

/// The number of rows of `tasks`, for which as little as possible is read.
pub async fn count_rows(storage: &Storage, spec: &ReadSpec, tasks: Vec<FileTask>, options: ReadOptions) -> Result<u64> {
    if tasks.is_empty() {
        return Ok(0);
    }
    let reader = Reader::new(storage.clone(), ReadSpec { columns: Vec::new(), ..spec.clone() })?;
    let add = async |rows: u64, batch: arrow_array::RecordBatch| Ok(rows.saturating_add(batch.num_rows() as u64));
    reader.read(tasks, options).try_fold(0, add).await
}

/// Which files have only matching rows, as their bounds prove.
pub(crate) fn fully_matching(
    adds: &AddBatch,
    shape: &TableShape,
    filter: Option<&BoundPredicate>,
) -> Result<BooleanBuffer> {
    match filter {
        Some(filter) => {
            let bounds = LogBounds::of_statistics(adds, shape, &filter.columns(), true)?;
            Ok(&prune::keep(filter, &bounds)? & &prune::always(filter, &bounds)?)
        }
        None => Ok(BooleanBuffer::new_set(adds.len())),
    }
}

/// For each file, how many of its rows count, if the log proves a number.
pub(crate) fn known_rows(adds: &AddBatch, whole: &BooleanBuffer) -> Result<Vec<Option<u64>>> {
    let counts = statistics(adds, &[])?.num_records;
    let known_count = |row: usize| {
        if !whole.value(row) || counts.is_null(row) {
            return Ok(None);
        }
        let deleted = adds.deletion_vector(row)?.map_or(0, |vector| vector.cardinality);
        let stored = (u64::try_from(counts.value(row)), u64::try_from(deleted));
        // If the numbers in the log contradict each other, the file is read.
        Ok(match stored {
            (Ok(stored), Ok(deleted)) => stored.checked_sub(deleted),
            _ => None,
        })
    };
    (0..adds.len()).map(known_count).collect()
}
