//! Sorts rows in the order of a curve, within bounded memory.
//!
//! Rows are kept in memory up to a limit of bytes. From then on they go to temporary files, one for each bucket: a range of
//! positions on the curve whose rows fit into memory. A bucket that turns out to be larger is divided again, unless all its
//! rows are at one position. Buckets are then read and sorted, one after the other. Rows at one position keep their order.
//!
//! Memory has `bytes` bytes of rows, a quarter more of rows that wait to be written, and 16 bytes for each of these rows.

use std::fs::File;
use std::io::{BufReader, BufWriter, Seek, Write};
use std::sync::Arc;
use std::thread;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{RecordBatch, UInt32Array, UInt64Array};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::interleave::interleave_record_batch;
use arrow_select::take::take_record_batch;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use tokio::sync::{mpsc, oneshot};

use super::layout::ranges::Ranges;
use crate::error::{Error, Result};
use crate::parallel::{try_blocking, worker_count};
use crate::write::pieces::{memory, overhead};

/// Rows in a batch of the result.
const BATCH_ROWS: usize = 32 * 1024;

/// How many batches are made ahead of the reader.
const BATCHES_AHEAD: usize = 2;

/// The most buckets of all streams that are sorted at a time. Each is an open file.
const MAX_BUCKETS: usize = 256;

/// Bytes of rows that are collected before they are written to a temporary file.
const MIN_WRITE_BYTES: usize = 64 * 1024;

/// A bucket that is too large is divided into at most this many.
const BUCKETS_OF_A_BUCKET: u64 = 16;

/// The column of a temporary file with the positions of rows.
const PLACE: &str = "";

/// Rows and their positions on the curve.
struct Piece {
    batch: RecordBatch,
    positions: Vec<u64>,
}

/// The rows of one range of the curve.
enum Bucket {
    InMemory(Vec<Piece>),
    Spilled(SpilledBucket),
}

/// Rows in a temporary file, which is deleted when this is dropped.
struct SpilledBucket {
    file: File,
    schema: SchemaRef,
    bytes: usize,
    /// The least and the greatest position of a row.
    positions: (u64, u64),
}

/// Returns the rows in the order of the curve. `total_rows`: about how many there are. `bytes`: how many bytes of them may be
/// in memory. `tasks`: how many streams are sorted at a time.
///
/// # Errors
/// Those of reading the rows, and of temporary files.
pub(super) async fn sort_by_curve(
    rows: impl Stream<Item = Result<RecordBatch>> + Send,
    ranges: Arc<Ranges>,
    total_rows: u64,
    bytes: usize,
    tasks: usize,
) -> Result<impl Stream<Item = Result<RecordBatch>> + Send> {
    let at_once = (worker_count() / tasks.max(1)).max(1);
    let most_buckets = (MAX_BUCKETS / tasks.max(1)).max(BUCKETS_OF_A_BUCKET as usize);
    let placed = |batch: Result<RecordBatch>| {
        let ranges = ranges.clone();
        async move {
            let batch = batch?;
            computed(move || Ok(Piece { positions: ranges.positions(&batch)?, batch })).await
        }
    };
    let collected = collect(rows.map(placed).buffered(at_once), &ranges, total_rows, bytes, most_buckets).await?;
    stream_sorted(collected, bytes)
}

/// All rows, in memory or in temporary files.
enum Collected {
    InMemory(Vec<Piece>),
    Spilled(Spilling),
}

/// Reads all rows. Once they take more than `bytes` bytes, they go to temporary files.
async fn collect(
    pieces: impl Stream<Item = Result<Piece>>,
    ranges: &Ranges,
    total_rows: u64,
    bytes: usize,
    most_buckets: usize,
) -> Result<Collected> {
    let mut pieces = std::pin::pin!(pieces);
    let (mut in_memory, mut memory_bytes, mut memory_rows) = (Vec::new(), 0_usize, 0_usize);
    let mut spilling: Option<Spilling> = None;
    while let Some(piece) = pieces.try_next().await? {
        memory_bytes = memory_bytes.saturating_add(memory(&piece.batch));
        memory_rows += piece.batch.num_rows();
        in_memory.push(piece);
        if spilling.is_none() && memory_bytes <= bytes {
            continue;
        }
        let mut to = spilling.take().unwrap_or_else(|| {
            let buckets = bucket_count(memory_bytes, memory_rows, total_rows, bytes).min(most_buckets);
            Spilling::new(ranges.cuts(buckets), bytes)
        });
        let pieces = std::mem::take(&mut in_memory);
        let spilled = computed(move || {
            pieces.iter().try_for_each(|piece| to.push(piece))?;
            Ok(to)
        });
        spilling = Some(spilled.await?);
    }
    Ok(spilling.map_or(Collected::InMemory(in_memory), Collected::Spilled))
}

/// Sorts the rows on a thread of its own and returns them in order.
fn stream_sorted(rows: Collected, bytes: usize) -> Result<impl Stream<Item = Result<RecordBatch>> + Send> {
    let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
    let (ended, emitting) = oneshot::channel::<Result<()>>();
    let emit_all = move || {
        let buckets = match rows {
            Collected::InMemory(pieces) => vec![Bucket::InMemory(pieces)],
            Collected::Spilled(spilling) => spilling.finish()?,
        };
        let mut emit = |batch| {
            sender
                .blocking_send(batch)
                .map_err(|_| Error::internal("the reader of the sorted rows stopped before their end"))
        };
        buckets.into_iter().try_for_each(|bucket| bucket.emit(bytes, &mut emit))
    };
    // Not a thread of the runtime: it waits for the writer, which needs those threads.
    let thread = thread::Builder::new().name("deltic-sort".to_owned());
    thread
        .spawn(move || drop(ended.send(emit_all())))
        .map_err(|e| Error::storage(true, "the sort thread cannot be started").caused_by(e))?;
    // At the end of the rows the result of the thread is checked, so that a failure is not taken for the end.
    Ok(stream::try_unfold((receiver, emitting), |(mut receiver, emitting)| async move {
        if let Some(batch) = receiver.recv().await {
            return Ok(Some((batch, (receiver, emitting))));
        }
        emitting.await.map_err(|e| Error::internal("sorting rows failed").caused_by(e))??;
        Ok(None)
    }))
}

/// How many buckets to make so that each fits into memory: twice as many as would fit exactly.
fn bucket_count(held: usize, held_rows: usize, total_rows: u64, bytes: usize) -> usize {
    let all = (held as u128) * u128::from(total_rows) / (held_rows.max(1) as u128);
    usize::try_from(all * 2 / (bytes.max(1) as u128)).unwrap_or(MAX_BUCKETS).clamp(2, MAX_BUCKETS)
}

/// Computes on a worker thread.
pub(super) async fn computed<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    try_blocking(work, |e| Error::internal("sorting rows failed").caused_by(e)).await
}

/// Writes rows into temporary files, one for each bucket.
struct Spilling {
    /// The positions at which buckets begin.
    cuts: Vec<u64>,
    buckets: Vec<Option<Spill>>,
    /// Bytes of rows of a bucket that may wait to be written.
    most_waiting: usize,
}

/// A temporary file that is being written.
struct Spill {
    writer: StreamWriter<BufWriter<File>>,
    schema: SchemaRef,
    /// The schema with the column of positions.
    stored: SchemaRef,
    bytes: usize,
    positions: (u64, u64),
    /// Rows that are not written yet, and their bytes.
    waiting: Vec<RecordBatch>,
    waiting_bytes: usize,
}

impl Spilling {
    /// `bytes`: how many bytes of rows may be in memory. A quarter of them may wait to be written.
    fn new(cuts: Vec<u64>, bytes: usize) -> Self {
        let buckets: Vec<_> = (0..=cuts.len()).map(|_| None).collect();
        let most_waiting = bytes / 4 / buckets.len().max(1);
        Self { cuts, buckets, most_waiting }
    }

    fn push(&mut self, piece: &Piece) -> Result<()> {
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); self.buckets.len()];
        for (row, position) in (0_u32..).zip(&piece.positions) {
            let bucket = self.cuts.partition_point(|cut| cut <= position);
            rows.get_mut(bucket).into_iter().for_each(|rows| rows.push(row));
        }
        for (bucket, rows) in self.buckets.iter_mut().zip(rows) {
            if rows.is_empty() {
                continue;
            }
            let positions: Vec<u64> =
                rows.iter().filter_map(|row| piece.positions.get(*row as usize).copied()).collect();
            let batch = take_record_batch(&piece.batch, &UInt32Array::from(rows))?;
            let spill = match bucket {
                Some(spill) => spill,
                None => bucket.insert(Spill::new(batch.schema())?),
            };
            spill.push(&batch, positions, self.most_waiting)?;
        }
        Ok(())
    }

    fn finish(self) -> Result<Vec<Bucket>> {
        self.buckets.into_iter().flatten().map(|spill| spill.finish().map(Bucket::Spilled)).collect()
    }
}

impl Spill {
    fn new(schema: SchemaRef) -> Result<Self> {
        let mut fields: Vec<_> = schema.fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new(PLACE, DataType::UInt64, false)));
        let file = BufWriter::new(tempfile::tempfile().map_err(no_space)?);
        let stored = Arc::new(Schema::new(fields));
        let writer = StreamWriter::try_new(file, &stored)?;
        let (positions, waiting) = ((u64::MAX, 0), Vec::new());
        Ok(Self { writer, schema, stored, bytes: 0, positions, waiting, waiting_bytes: 0 })
    }

    fn push(&mut self, batch: &RecordBatch, positions: Vec<u64>, most_waiting: usize) -> Result<()> {
        let (least, greatest) = (positions.iter().min(), positions.iter().max());
        self.positions.0 = self.positions.0.min(least.copied().unwrap_or(u64::MAX));
        self.positions.1 = self.positions.1.max(greatest.copied().unwrap_or_default());
        let mut columns = batch.columns().to_vec();
        columns.push(Arc::new(UInt64Array::from(positions)));
        let batch = RecordBatch::try_new(self.stored.clone(), columns)?;
        self.waiting_bytes = self.waiting_bytes.saturating_add(memory(&batch));
        self.waiting.push(batch);
        let worth_writing = MIN_WRITE_BYTES.max(overhead(self.stored.fields().len()).saturating_mul(8));
        if self.waiting_bytes >= worth_writing.min(most_waiting) { self.write() } else { Ok(()) }
    }

    /// Writes the rows that wait, as one batch.
    fn write(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let batch = concat_batches(&self.stored, &std::mem::take(&mut self.waiting))?;
        self.waiting_bytes = 0;
        self.bytes = self.bytes.saturating_add(memory(&batch));
        self.writer.write(&batch).map_err(no_space)
    }

    fn finish(mut self) -> Result<SpilledBucket> {
        self.write()?;
        let mut file = self.writer.into_inner().map_err(no_space)?;
        file.flush().map_err(no_space)?;
        let mut file = file.into_inner().map_err(|e| no_space(e.into_error()))?;
        file.rewind().map_err(no_space)?;
        Ok(SpilledBucket { file, schema: self.schema, bytes: self.bytes, positions: self.positions })
    }
}

impl SpilledBucket {
    /// Its rows, in the order in which they were added.
    fn pieces(self) -> Result<impl Iterator<Item = Result<Piece>>> {
        let schema = self.schema;
        let reader = StreamReader::try_new(BufReader::new(self.file), None)?;
        Ok(reader.map(move |batch| {
            let mut columns = batch?.columns().to_vec();
            let positions =
                columns.pop().and_then(|positions| Some(positions.as_primitive_opt::<UInt64Type>()?.values().to_vec()));
            let positions = positions.ok_or_else(|| Error::internal("rows were set aside without their positions"))?;
            Ok(Piece { batch: RecordBatch::try_new(schema.clone(), columns)?, positions })
        }))
    }
}

impl Bucket {
    /// Passes its rows to `emit` in order.
    fn emit(self, bytes: usize, emit: &mut dyn FnMut(RecordBatch) -> Result<()>) -> Result<()> {
        let spilled = match self {
            Self::InMemory(pieces) => return emit_sorted(&pieces, emit),
            Self::Spilled(spilled) => spilled,
        };
        let (least, greatest) = spilled.positions;
        if least >= greatest {
            return spilled.pieces()?.try_for_each(|piece| emit(piece?.batch));
        }
        if spilled.bytes <= bytes {
            let pieces = spilled.pieces()?.collect::<Result<Vec<_>>>()?;
            return emit_sorted(&pieces, emit);
        }
        let width = (greatest - least) / BUCKETS_OF_A_BUCKET;
        let cuts = (1..BUCKETS_OF_A_BUCKET).filter_map(|bucket| least.checked_add(width.max(1).checked_mul(bucket)?));
        let mut spilling = Spilling::new(cuts.filter(|cut| *cut <= greatest).collect(), bytes);
        spilled.pieces()?.try_for_each(|piece| spilling.push(&piece?))?;
        spilling.finish()?.into_iter().try_for_each(|bucket| bucket.emit(bytes, emit))
    }
}

fn emit_sorted(pieces: &[Piece], emit: &mut dyn FnMut(RecordBatch) -> Result<()>) -> Result<()> {
    let rows = pieces.iter().map(|piece| piece.positions.len()).sum();
    let mut order: Vec<(u64, u32, u32)> = Vec::with_capacity(rows);
    for (number, piece) in (0_u32..).zip(pieces) {
        order.extend((0_u32..).zip(&piece.positions).map(|(row, position)| (*position, number, row)));
    }
    order.sort_unstable();
    let batches: Vec<&RecordBatch> = pieces.iter().map(|piece| &piece.batch).collect();
    for rows in order.chunks(BATCH_ROWS) {
        let rows: Vec<(usize, usize)> = rows.iter().map(|(_, piece, row)| (*piece as usize, *row as usize)).collect();
        emit(interleave_record_batch(&batches, &rows)?)?;
    }
    Ok(())
}

fn no_space(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::storage(
        false,
        "the rows to be sorted do not fit into memory, and cannot be written to the folder for temporary files",
    )
    .caused_by(error)
}
