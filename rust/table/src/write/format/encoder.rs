//! Encodes one data file: Parquet bytes and statistics. It is synchronous, without I/O.
//!
//! The columns of a row group are independent: if no other file is being encoded, several threads share them.
//!
//! Spark reads the files without special settings: version 1 pages unless the table asks for version 2, `INT64`
//! microseconds, lists and maps in the standard form of three levels, no embedded Arrow schema, statistics for row groups and
//! pages.
//!
//! PROTOCOL.md: "Data Files".

use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};

use arrow_array::RecordBatch;
use bytes::Bytes;
use deltic_protocol::error::Result;
use deltic_protocol::stats::collect::StatsCollector;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowLeafColumn, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::statistics::Statistics;
use parquet::file::writer::SerializedFileWriter;

use super::layout::{FileFormat, Layout, failed};
use crate::write::pieces::memory;

/// Encoded bytes after which a row group ends: readers have one in memory.
const MAX_GROUP_BYTES: usize = 128 * 1024 * 1024;

/// Bytes of rows that are worth another thread.
const WORTH_A_THREAD: usize = 512 * 1024;

/// The most bytes of rows, and the most values, that are encoded at a time: each value takes some bytes besides.
const MAX_BYTES_AT_ONCE: usize = 16 * 1024 * 1024;
const MAX_VALUES_AT_ONCE: usize = 2 * 1024 * 1024;

/// Bytes of sorted rows that are gathered at a time.
const SORTED_AT_ONCE: usize = 4 * 1024 * 1024;

/// Turns batches into the bytes of a file.
pub(in crate::write) struct Encoder {
    file: SerializedFileWriter<Vec<u8>>,
    layout: Arc<Layout>,
    columns: ArrowRowGroupWriterFactory,
    /// The columns of the current row group; empty if there is none.
    group: Vec<ArrowColumnWriter>,
    /// Its rows, and the most that it may have.
    rows: usize,
    most_rows: usize,
    stats: StatsCollector,
}

/// The end of a file.
pub(in crate::write) struct Encoded {
    /// Bytes that were not taken yet.
    pub(in crate::write) rest: Bytes,
    /// The text of `add.stats`.
    pub(in crate::write) stats: String,
    /// Rows in the file.
    pub(in crate::write) rows: u64,
}

impl Encoder {
    /// An encoder for a file that begins with these rows. They are not written here.
    ///
    /// # Errors
    /// `Invalid` for variants that cannot be shredded.
    pub(in crate::write) fn new(format: &FileFormat, first: &[RecordBatch]) -> Result<Self> {
        let layout = format.layout_for(first)?;
        let file = SerializedFileWriter::new(Vec::new(), layout.parquet.root_schema_ptr(), layout.properties.clone());
        let file = file.map_err(failed)?;
        let columns = ArrowRowGroupWriterFactory::new(&file, layout.arrow.clone());
        let stats = StatsCollector::new(&format.schema, &format.indexed).with_prefix_length(format.prefix_length);
        Ok(Self { file, layout, columns, group: Vec::new(), rows: 0, most_rows: format.rows_of_group, stats })
    }

    /// Encodes rows, on at most `threads` threads. If the file is sorted, they become row groups of their own.
    pub(in crate::write) fn write_all(
        &mut self,
        format: &FileFormat,
        batches: &[RecordBatch],
        threads: usize,
    ) -> Result<()> {
        let Some(order) = format.sort.as_ref().filter(|_| !batches.is_empty()) else {
            return self.write(batches, threads);
        };
        let (bytes, rows) = batches.iter().fold((0, 0), |(b, r), batch| (b + memory(batch), r + batch.num_rows()));
        let rows_at_once = rows.div_ceil(bytes.div_ceil(SORTED_AT_ONCE).max(1));
        order.sort(batches, rows_at_once, |sorted| self.write(std::slice::from_ref(&sorted), threads))?;
        self.end_group()
    }

    fn write(&mut self, batches: &[RecordBatch], threads: usize) -> Result<()> {
        // Shredded rows take much memory.
        let shredded_at_once = self.layout.shredding.as_ref().map(|shredding| shredding.rows_at_once);
        let rows_at_once = shredded_at_once.unwrap_or(usize::MAX);
        let (mut of_group, mut bytes, mut values) = (Vec::with_capacity(batches.len()), 0, 0);
        for batch in batches {
            let mut rest = batch.clone();
            while rest.num_rows() > 0 {
                let now = rest.slice(0, rest.num_rows().min(self.most_rows - self.rows).min(rows_at_once));
                rest = rest.slice(now.num_rows(), rest.num_rows() - now.num_rows());
                self.rows += now.num_rows();
                bytes += memory(&now);
                values += now.num_rows().saturating_mul(self.layout.parquet.num_columns());
                of_group.push(now);
                let is_large = bytes >= MAX_BYTES_AT_ONCE || values >= MAX_VALUES_AT_ONCE;
                if self.rows >= self.most_rows || is_large || shredded_at_once.is_some() {
                    self.encode(&std::mem::take(&mut of_group), threads)?;
                    (bytes, values) = (0, 0);
                }
            }
        }
        self.encode(&of_group, threads)
    }

    /// Encodes rows of the current row group, and takes their statistics. Ends the group if it is large enough.
    fn encode(&mut self, batches: &[RecordBatch], threads: usize) -> Result<()> {
        if batches.is_empty() {
            return Ok(());
        }
        if self.group.is_empty() {
            let number = self.file.flushed_row_groups().len();
            self.group = self.columns.create_column_writers(number).map_err(failed)?;
        }
        let leaves = self.leaf_columns(batches)?;
        let mut work: Vec<Box<dyn FnOnce() -> Result<()> + Send>> = Vec::with_capacity(2 * leaves.len());
        for (column, leaves) in self.group.iter_mut().zip(&leaves) {
            work.push(Box::new(|| leaves.iter().try_for_each(|leaf| column.write(leaf)).map_err(failed)));
        }
        for mut column in self.stats.columns(batches.iter().map(|batch| batch.num_rows() as u64).sum()) {
            work.push(Box::new(move || batches.iter().try_for_each(|batch| column.update(batch))));
        }
        let bytes: usize = batches.iter().map(RecordBatch::get_array_memory_size).sum();
        run_all(work, threads.min(bytes / WORTH_A_THREAD))?;
        if self.rows >= self.most_rows || self.group_bytes() >= MAX_GROUP_BYTES {
            self.end_group()?;
        }
        Ok(())
    }

    /// The values of each leaf column, with their levels, as the batches have them.
    fn leaf_columns(&self, batches: &[RecordBatch]) -> Result<Vec<Vec<ArrowLeafColumn>>> {
        let mut columns: Vec<Vec<ArrowLeafColumn>> = self.group.iter().map(|_| Vec::new()).collect();
        for batch in batches {
            let shredded = self.layout.shredding.as_ref().map(|shredding| shredding.shred(batch)).transpose()?;
            let stored = shredded.as_ref().unwrap_or(batch);
            let mut leaves = Vec::with_capacity(columns.len());
            for (field, values) in stored.schema_ref().fields().iter().zip(stored.columns()) {
                leaves.extend(compute_leaves(field, values).map_err(failed)?);
            }
            columns.iter_mut().zip(leaves).for_each(|(column, leaf)| column.push(leaf));
        }
        Ok(columns)
    }

    /// Ends the row group, which frees its memory.
    pub(in crate::write) fn end_group(&mut self) -> Result<()> {
        if self.group.is_empty() {
            return Ok(());
        }
        self.rows = 0;
        let columns = std::mem::take(&mut self.group);
        let end = || {
            let mut group = self.file.next_row_group()?;
            for column in columns {
                let mut chunk = column.close()?;
                drop_bounds_beside_nan(chunk.close_mut())?;
                chunk.append_to_row_group(&mut group)?;
            }
            group.close().map(drop)
        };
        end().map_err(failed)
    }

    /// About how many bytes the row group would have if it ended here.
    fn group_bytes(&self) -> usize {
        self.group.iter().map(ArrowColumnWriter::get_estimated_total_bytes).sum()
    }

    /// About how many bytes the file would have if it ended here.
    pub(in crate::write) fn size(&self) -> u64 {
        (self.file.bytes_written() + self.group_bytes()) as u64
    }

    /// Bytes in memory.
    pub(in crate::write) fn memory(&self) -> usize {
        self.group.iter().map(ArrowColumnWriter::memory_size).sum::<usize>() + self.file.inner().len()
    }

    /// Takes the encoded bytes that are ready to upload.
    pub(in crate::write) fn take(&mut self) -> Bytes {
        Bytes::from(std::mem::take(self.file.inner_mut()))
    }

    pub(in crate::write) fn finish(mut self) -> Result<Encoded> {
        self.end_group()?;
        let rest = self.file.into_inner().map_err(failed)?;
        Ok(Encoded { rest: Bytes::from(rest), stats: self.stats.finish(), rows: self.stats.rows() })
    }
}

/// Drops the bounds of a column chunk with NaN, which bounds leave out: for Spark NaN is greater than every number, so it would
/// wrongly skip the chunk.
pub(super) fn drop_bounds_beside_nan(closed: &mut ColumnCloseResult) -> Result<(), ParquetError> {
    let Some(statistics) = closed.metadata.statistics().filter(|of| of.nan_count_opt() != Some(0)) else {
        return Ok(());
    };
    let (distinct, nulls) = (statistics.distinct_count_opt(), statistics.null_count_opt());
    let statistics = match statistics {
        Statistics::Float(_) => Statistics::float(None, None, distinct, nulls, false),
        Statistics::Double(_) => Statistics::double(None, None, distinct, nulls, false),
        _ => return Ok(()),
    };
    closed.metadata = closed.metadata.clone().into_builder().set_statistics(statistics).build()?;
    closed.column_index = None;
    Ok(())
}

/// Does independent pieces of work, on so many threads.
fn run_all(work: Vec<Box<dyn FnOnce() -> Result<()> + Send + '_>>, threads: usize) -> Result<()> {
    let work = Mutex::new(work.into_iter());
    let next = || work.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run = || {
        while let Some(piece) = next() {
            piece()?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        // If no further thread can be started, the other threads do its work.
        let others: Vec<_> = (1..threads).map_while(|_| thread::Builder::new().spawn_scoped(scope, run).ok()).collect();
        let done_here = run();
        let ended = |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        others.into_iter().map(ended).fold(done_here, Result::and)
    })
}
