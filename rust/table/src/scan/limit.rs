//! The first rows of a scan, read from no more files than they need.
//!
//! Files are read in rounds. Without a filter, and with the row counts of the tasks, a round has as many files as the
//! rows need; otherwise the first round has one file. With a filter the number of matching rows is unknown, so each
//! round has twice the files of the one before, up to those that are read concurrently anyway.
//!
//! Proved by `count::a_limited_scan_reads_few_files`.

use std::collections::VecDeque;

use arrow_array::RecordBatch;
use deltic_protocol::error::Result;
use futures::stream::{self, BoxStream, Stream, StreamExt};

use super::read::{ReadOptions, Reader};
use super::task::FileTask;

struct Rounds {
    reader: Reader,
    tasks: VecDeque<FileTask>,
    options: ReadOptions,
    /// The most rows that are still to be returned.
    left: u64,
    /// How many files the next round has, if there is a filter.
    files: usize,
    current: Option<BoxStream<'static, Result<RecordBatch>>>,
}

/// The first `rows` rows of [`Reader::read`]. To be polled inside a tokio runtime. Ends after the first error.
pub fn read_first(
    reader: Reader,
    tasks: Vec<FileTask>,
    rows: u64,
    options: ReadOptions,
) -> impl Stream<Item = Result<RecordBatch>> + Send + 'static {
    let rounds = Rounds { reader, tasks: tasks.into(), options, left: rows, files: 1, current: None };
    stream::unfold(Some(rounds), async |rounds| {
        let mut rounds = rounds?;
        match rounds.advance().await {
            Some(Ok(batch)) => Some((Ok(batch), Some(rounds))),
            Some(Err(error)) => Some((Err(error), None)),
            None => None,
        }
    })
    .fuse()
}

impl Rounds {
    async fn advance(&mut self) -> Option<Result<RecordBatch>> {
        while self.left > 0 {
            let Some(current) = &mut self.current else {
                self.current = Some(self.next_round()?);
                continue;
            };
            match current.next().await {
                Some(Ok(batch)) => {
                    let rows = usize::try_from(self.left).unwrap_or(usize::MAX).min(batch.num_rows());
                    self.left -= rows as u64;
                    return Some(Ok(batch.slice(0, rows)));
                }
                Some(Err(error)) => return Some(Err(error)),
                None => self.current = None,
            }
        }
        None
    }

    /// Starts the next round; `None` after the last file.
    fn next_round(&mut self) -> Option<BoxStream<'static, Result<RecordBatch>>> {
        let mut options = self.options.clone();
        let files = if self.reader.has_filter() {
            let files = self.files;
            self.files = (2 * files).min(options.concurrent_files.max(1));
            files
        } else {
            // No more rows are decoded than are requested.
            let left = usize::try_from(self.left).unwrap_or(usize::MAX);
            options.batch_rows = options.batch_rows.min(left).max(1);
            self.files_of_left()
        };
        let tasks: Vec<FileTask> = self.tasks.drain(..files.min(self.tasks.len())).collect();
        options.concurrent_files = options.concurrent_files.min(tasks.len()).max(1);
        (!tasks.is_empty()).then(|| self.reader.clone().read(tasks, options).boxed())
    }

    /// How many files the remaining rows need, by the row counts of the tasks.
    fn files_of_left(&self) -> usize {
        let mut rows = 0_u64;
        for (index, task) in self.tasks.iter().enumerate() {
            let Some(task_rows) = known_rows(task) else { return index.max(1) };
            rows = rows.saturating_add(task_rows);
            if rows >= self.left {
                return index + 1;
            }
        }
        self.tasks.len()
    }
}

/// The number of rows of a task, if there is no filter.
fn known_rows(task: &FileTask) -> Option<u64> {
    if task.only_rows.is_some() {
        return None;
    }
    let deleted = task.deletion_vector.as_ref().map_or(0, |vector| vector.cardinality);
    u64::try_from(task.num_records?).ok()?.checked_sub(u64::try_from(deleted).ok()?)
}
