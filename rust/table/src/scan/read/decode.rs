//! Decodes row groups of one file into batches of rows.
//!
//! Bytes are fetched on the runtime's threads; decoding runs on worker threads, one batch at a time, so that a reader
//! that stops asking stops the work. The parquet crate can panic on a hostile file: that ends the work of one
//! batch, and is reported as a corrupt file.
//!
//! Invariant: as many rows are decoded as the footer says, or the file is corrupt
//! (`read::hostile_footers_are_corrupt`). Late materialisation returns the same rows as filtering afterwards
//! (`read::late_materialisation_equals_a_plain_filter`). A unit whose batches turn out too long is decoded again from
//! its start, but no row is sent twice (`read::long_values`).

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::ArrowError;
use arrow_select::filter::filter_record_batch;
use bytes::Bytes;
use deltic_pages::limits;
use deltic_protocol::error::{Error, Kind, Result};
use deltic_protocol::predicate;
use parquet::DecodeResult;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowPredicateFn, RowFilter};
use parquet::arrow::push_decoder::{ParquetPushDecoder, ParquetPushDecoderBuilder, RowGroupSelection};
use parquet::errors::ParquetError;
use tokio::sync::mpsc;

use super::adapt::Adapter;
use super::batch_rows::{self, ByPages};
use super::unit::{Filter, OpenFile, Unit};
use crate::compute_threads;
use crate::error::corrupt_parquet;

/// Runs `work` on a worker thread. A panic is reported as a corrupt file.
pub(crate) async fn blocking<T: Send + 'static>(
    path: &str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match compute_threads::spawn(work).await {
        Ok(result) => result.map_err(|e| e.in_file(path)),
        Err(stopped) if stopped.is_panic() => {
            Err(Error::corrupt("the Parquet decoder failed on the file; restore it, or remove it from the table")
                .in_file(path)
                .caused_by(stopped))
        }
        Err(stopped) => Err(Error::internal("the runtime is shutting down").caused_by(stopped)),
    }
}

/// Sends the rows of `unit` until they end or the receiver is gone.
pub(crate) async fn decode(unit: Unit, batch_rows: usize, out: mpsc::Sender<RecordBatch>) -> Result<()> {
    let file = &unit.file;
    if file.adapter.leaves().is_empty() && !file.adapter.needs_positions() && matches!(file.filter, Filter::None) {
        return send_constant(&unit, batch_rows, out).await;
    }
    let mut rows = batch_rows::by_footer(&unit, batch_rows).map_err(|e| e.in_file(&file.path))?;
    let unit = Arc::new(unit);
    let (mut sent, rows_that_fit) = (0, Arc::new(AtomicUsize::new(usize::MAX)));
    loop {
        rows = match decode_once(&unit, rows, &rows_that_fit, &mut sent, &out).await {
            Ok(End::Done) => return Ok(()),
            Ok(End::TooLong(fewer)) => fewer,
            // The decoder's error may mean strings beyond 2 GiB or a broken file.
            Err(error) => match rows_that_fit.load(Ordering::Relaxed) {
                fit if fit < rows && *error.kind() == Kind::Corrupt => batch_rows::after_overflow(fit),
                _ => return Err(error),
            },
        };
    }
}

/// How decoding a unit ended.
enum End {
    /// All rows were sent, or the receiver is gone.
    Done,
    /// Its rows are so long that a batch should have no more than this number.
    TooLong(usize),
}

/// Sends the rows of `unit` after the first `sent`. Lowers `rows_that_fit` to the number of rows whose strings certainly fit
/// into a batch.
async fn decode_once(
    unit: &Arc<Unit>,
    batch_rows: usize,
    rows_that_fit: &Arc<AtomicUsize>,
    sent: &mut usize,
    out: &mpsc::Sender<RecordBatch>,
) -> Result<End> {
    let file = &unit.file;
    let (start, rows_that_fit) = (Arc::clone(unit), Arc::clone(rows_that_fit));
    let mut decoding = blocking(&file.path, move || Decoding::new(&start, batch_rows, rows_that_fit)).await?;
    let (mut ranges, mut bytes) = (Vec::new(), Vec::new());
    let mut skip = *sent;
    loop {
        let (fetched_ranges, fetched) = (std::mem::take(&mut ranges), std::mem::take(&mut bytes));
        let step;
        (decoding, step) = blocking(&file.path, move || {
            let mut decoding = decoding;
            let step = match decoding.push(fetched_ranges, fetched)? {
                Some(fewer) => Step::TooLong(fewer),
                None => decoding.step()?,
            };
            Ok((decoding, step))
        })
        .await?;
        match step {
            Step::Needs(needed) => {
                bytes = file.bytes.ranges(&needed).await.map_err(|e| e.in_file(&file.path))?;
                ranges = needed;
            }
            Step::Batch(batch) => {
                let repeated = skip.min(batch.num_rows());
                skip -= repeated;
                if repeated == batch.num_rows() {
                    continue;
                }
                let batch = batch.slice(repeated, batch.num_rows() - repeated);
                *sent += batch.num_rows();
                if out.send(batch).await.is_err() {
                    return Ok(End::Done);
                }
            }
            Step::TooLong(fewer) => return Ok(End::TooLong(fewer)),
            Step::Done => return Ok(End::Done),
        }
    }
}

/// No column comes from the file: only the number of rows matters.
async fn send_constant(unit: &Unit, batch_rows: usize, out: mpsc::Sender<RecordBatch>) -> Result<()> {
    let file = &unit.file;
    let out_of_range = |_| Error::corrupt("the row count of the footer is out of range");
    let mut rest = usize::try_from(unit.rows).map_err(out_of_range)?;
    // A batch without columns is only a number of rows, however large.
    let max_rows = if file.width == 0 { rest } else { batch_rows };
    let mut full: Option<RecordBatch> = None;
    while rest > 0 {
        let rows = rest.min(max_rows);
        rest -= rows;
        let batch = match &full {
            Some(batch) => batch.slice(0, rows),
            None => full.insert(file.adapter.constant(rows).map_err(|e| e.in_file(&file.path))?).clone(),
        };
        if out.send(batch).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

enum Step {
    Needs(Vec<Range<u64>>),
    Batch(RecordBatch),
    TooLong(usize),
    Done,
}

/// A unit that is being decoded.
struct Decoding {
    file: Arc<OpenFile>,
    decoder: ParquetPushDecoder,
    /// Row groups and columns of the unit by their byte ranges.
    chunks: HashMap<(u64, u64), Vec<(usize, usize)>>,
    /// The most rows of a batch.
    batch_rows: usize,
    by_pages: ByPages,
    /// How many rows certainly have strings that fit into a batch.
    rows_that_fit: Arc<AtomicUsize>,
    /// Rows by the footer that are not deleted.
    promised: u64,
    /// Rows decoded, before the predicate.
    decoded: Arc<AtomicU64>,
    /// The error of the predicate, which can itself return only an Arrow error.
    failure: Arc<Mutex<Option<Error>>>,
}

impl Decoding {
    fn new(unit: &Unit, batch_rows: usize, rows_that_fit: Arc<AtomicUsize>) -> Result<Self> {
        let file = Arc::clone(&unit.file);
        let chunks = chunks(&file, &unit.row_groups);
        let leaves = |adapter: &Adapter| {
            ProjectionMask::leaves(file.metadata.parquet_schema(), adapter.leaves().iter().copied())
        };
        let decoded = Arc::new(AtomicU64::new(0));
        let failure = Arc::new(Mutex::new(None));
        let mut builder = ParquetPushDecoderBuilder::new_with_metadata(file.metadata.clone())
            .with_projection(leaves(&file.adapter))
            .with_row_group_selections(unit.row_groups.clone())
            .with_batch_size(batch_rows);
        if let Filter::Before(predicate, adapter) = &file.filter {
            let mask = leaves(adapter);
            let (predicate, adapter) = (Arc::clone(predicate), Arc::clone(adapter));
            let (decoded, failure) = (Arc::clone(&decoded), Arc::clone(&failure));
            let keep = move |batch: RecordBatch| -> Result<BooleanArray, ArrowError> {
                decoded.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
                let condition = adapter.adapt(&batch).and_then(|batch| predicate.evaluate(&batch));
                condition.map(|condition| predicate::keep(&condition)).map_err(|e| {
                    let message = e.to_string();
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(e);
                    ArrowError::ComputeError(message)
                })
            };
            builder = builder.with_row_filter(RowFilter::new(vec![Box::new(ArrowPredicateFn::new(mask, keep))]));
        }
        let decoder = builder.build().map_err(|e| corrupt_parquet(&file.path, e))?;
        let (promised, by_pages) = (unit.rows, ByPages::default());
        Ok(Self { file, decoder, chunks, batch_rows, by_pages, rows_that_fit, promised, decoded, failure })
    }

    /// Passes fetched bytes to the decoder if their page headers are valid. The decoder asks for whole column chunks. Returns a
    /// number of rows, and passes nothing, if batches should have far fewer rows than now.
    fn push(&mut self, ranges: Vec<Range<u64>>, bytes: Vec<Bytes>) -> Result<Option<usize>> {
        if ranges.is_empty() {
            return Ok(None);
        }
        let mut fit = self.batch_rows;
        for (range, bytes) in ranges.iter().zip(&bytes) {
            let columns = self.chunks.get(&(range.start, range.end)).map(Vec::as_slice).unwrap_or_default();
            if columns.is_empty() && !range.is_empty() {
                return Err(Error::internal("the decoder asks for other bytes than column chunks"));
            }
            for (index, leaf) in columns {
                let group = self.file.metadata.metadata().row_group(*index);
                let (column, rows) = (group.column(*leaf), u64::try_from(group.num_rows()).unwrap_or_default());
                let claims = limits::check(bytes, column).map_err(|e| corrupt_parquet(&self.file.path, e))?;
                self.rows_that_fit.fetch_min(batch_rows::rows_that_fit(column, rows, &claims), Ordering::Relaxed);
                fit = fit.min(self.by_pages.add(*index, rows, column, &claims, self.batch_rows));
            }
        }
        if fit <= self.batch_rows / 2 {
            return Ok(Some(fit));
        }
        self.decoder.push_ranges(ranges, bytes).map_err(|e| corrupt_parquet(&self.file.path, e))?;
        Ok(None)
    }

    fn step(&mut self) -> Result<Step> {
        loop {
            match self.decoder.try_decode().map_err(|e| self.error(e))? {
                DecodeResult::NeedsData(ranges) => return Ok(Step::Needs(ranges)),
                DecodeResult::Data(batch) => {
                    let batch = self.finish(&batch)?;
                    if batch.num_rows() > 0 {
                        return Ok(Step::Batch(batch));
                    }
                }
                DecodeResult::Finished => {
                    let decoded = self.decoded.load(Ordering::Relaxed);
                    if decoded != self.promised {
                        return Err(Error::corrupt(format!(
                            "the footer says {} rows, but the file has {decoded}; restore the file",
                            self.promised
                        )));
                    }
                    return Ok(Step::Done);
                }
            }
        }
    }

    /// The output columns of the rows that qualify.
    fn finish(&self, decoded: &RecordBatch) -> Result<RecordBatch> {
        let batch = self.file.adapter.adapt(decoded)?;
        match &self.file.filter {
            Filter::None => {
                self.decoded.fetch_add(decoded.num_rows() as u64, Ordering::Relaxed);
                Ok(batch)
            }
            Filter::Before(..) => Ok(batch),
            Filter::After(predicate) => {
                self.decoded.fetch_add(decoded.num_rows() as u64, Ordering::Relaxed);
                let keep = predicate::keep(&predicate.evaluate(&batch)?);
                let output: Vec<usize> = (0..self.file.width).collect();
                Ok(filter_record_batch(&batch.project(&output)?, &keep)?)
            }
        }
    }

    fn error(&self, e: ParquetError) -> Error {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        failure.unwrap_or_else(|| corrupt_parquet(&self.file.path, e))
    }
}

/// Row groups and columns by their byte ranges. In a hostile footer several may have the same range.
fn chunks(file: &OpenFile, row_groups: &[RowGroupSelection]) -> HashMap<(u64, u64), Vec<(usize, usize)>> {
    let mut chunks: HashMap<(u64, u64), Vec<(usize, usize)>> = HashMap::new();
    let leaves = file.needed_leaves();
    for group in row_groups.iter().map(RowGroupSelection::row_group_index) {
        for leaf in &leaves {
            let Some(column) = file.metadata.metadata().row_groups().get(group).and_then(|g| g.columns().get(*leaf))
            else {
                continue;
            };
            let (start, length) = column.byte_range();
            chunks.entry((start, start.saturating_add(length))).or_default().push((group, *leaf));
        }
    }
    chunks
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_while_decoding_is_the_files_fault() {
        let error = blocking::<()>("some.parquet", || panic!("index out of bounds")).await.unwrap_err();
        assert_eq!((error.kind(), error.path()), (&Kind::Corrupt, Some("some.parquet")));
    }
}
