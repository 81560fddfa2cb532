//! Divides the rows of bins into intervals of a curve, and writes the files of an interval, in any process.
//!
//! Rows travel in Arrow's IPC format, with the types in which they are read from files, row ids and the strings of partition
//! values included: whoever carries them need not understand them.

use std::collections::VecDeque;
use std::io::Cursor;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{BinaryArray, Int32Array, RecordBatch, UInt32Array};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};

use super::written::{Written, WrittenFiles};
use crate::envelope::{pack, unpack};
use crate::error::{Error, Result};
use crate::maintenance::bins::{Rewriting, key_spec};
use crate::maintenance::layout::ranges::Ranges;
use crate::maintenance::layout::sent::SentRanges;
use crate::maintenance::layout::{CurveLayout, Layout};
use crate::maintenance::options::Limits;
use crate::maintenance::sort::computed;
use crate::rewrite::Copying;
use crate::scan::read::{ReadOptions, Reader};
use crate::scan::task::{FileTask, ReadSpec};
use crate::write::pieces::{memory, pieces};
use crate::write::plan::WriteSpec;
use crate::write::writer::Clock;
use deltic_store::{Stop, Storage};

/// The kinds of these bytes, in their envelopes.
const DIVISION: &str = "division into intervals";
const TASK: &str = "split task";

/// Bytes of rows of an interval that are sent together.
const SENT_BYTES: usize = 1 << 20;

/// Bytes of rows of all intervals that a split task holds.
const HELD_BYTES: usize = 128 << 20;

/// The most bytes that rows which are sent together may have in the end.
const MAX_SENT_BYTES: usize = 1 << 30;

/// How bins are divided, and how their rows are read and written.
///
/// An interval has the positions from its beginning up to the next one's. All processes compute positions from the same ranges,
/// so that every row is in one interval. A row's columns are read once here, and those of the curve once more for the sample.
#[derive(Debug, Serialize, Deserialize)]
pub struct Division {
    pub(super) location: String,
    /// The id of the task set: the tasks of one commit.
    pub(super) task_set_id: String,
    pub(super) read: ReadSpec,
    pub(super) write: WriteSpec,
    pub(super) layout: CurveLayout,
    pub(super) limits: Limits,
    pub(super) bins: Vec<DividedBin>,
}

/// How a bin is divided.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct DividedBin {
    /// The id of the cube: of the files that are clustered together.
    pub(super) cube: String,
    pub(super) rows: u64,
    pub(super) rows_per_file: u64,
    /// The index of its first interval, among those of all bins.
    pub(super) first: usize,
    /// The positions on the curve at which its second interval and those after it begin, ascending.
    pub(super) cuts: Vec<u64>,
    pub(super) ranges: SentRanges,
}

/// Files whose rows are to be divided.
#[derive(Debug, Serialize, Deserialize)]
pub struct SplitTask {
    pub(super) task_set_id: String,
    /// The index of their bin in the division.
    pub(super) bin: usize,
    pub(super) files: Vec<FileTask>,
}

impl SplitTask {
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>> {
        pack(TASK, self)
    }

    /// Reads what [`DistributedOptimize::divide`](super::DistributedOptimize::divide) gave.
    ///
    /// # Errors
    /// `Invalid` if the bytes are something else, or of another release of deltic.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        unpack(TASK, bytes)
    }
}

impl Division {
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>> {
        pack(DIVISION, self)
    }

    /// Reads what [`DistributedOptimize::divide`](super::DistributedOptimize::divide) gave.
    ///
    /// # Errors
    /// `Invalid` if the bytes are something else, or of another release of deltic.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let division: Self = unpack(DIVISION, bytes)?;
        division.layout.check().map_err(|e| e.in_table(&division.location))?;
        Ok(division)
    }

    /// Where the table is.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// The rows of files by interval: batches with the columns `interval`, an index, and `rows`, some of its rows.
    ///
    /// # Errors
    /// `Invalid` if the task does not belong to this division. The stream has those of reading, and `Unsupported` for a row
    /// that is too large to be sent.
    pub fn split(
        self,
        storage: Storage,
        task: SplitTask,
    ) -> Result<(SchemaRef, impl Stream<Item = Result<RecordBatch>> + Send + 'static)> {
        let Self { location, task_set_id, read, write, layout, bins, .. } = self;
        let open = || {
            let bin = bins.into_iter().nth(task.bin).filter(|_| task.task_set_id == task_set_id).ok_or_else(foreign)?;
            let ranges = bin.ranges.into_ranges(&layout, &key_schema(&storage, &read, &layout)?)?;
            let rows = Copying::of_specs(&storage, read, write)?.rows(&storage, task.files, ReadOptions::default())?;
            let splitting = Splitting::new(ranges, bin.first, bin.cuts);
            Ok(Reading { rows: rows.boxed(), splitting: Some(splitting), ready: VecDeque::new(), is_over: false })
        };
        let reading = open().map_err(|e: Error| e.in_table(&location))?;
        let columns = vec![Field::new("interval", DataType::Int32, false), Field::new("rows", DataType::Binary, false)];
        let schema = Arc::new(Schema::new(columns));
        let announced = Arc::clone(&schema);
        let sent =
            stream::try_unfold(
                reading,
                |mut reading| async move { Ok(reading.next().await?.map(|sent| (sent, reading))) },
            );
        let batches = sent.map(move |sent: Result<Sent>| {
            let (interval, rows) = sent.map_err(|e| e.in_table(&location))?;
            let interval = i32::try_from(interval).map_err(|_| Error::internal("there are too many intervals"))?;
            let rows = BinaryArray::from_iter_values([rows]);
            Ok(RecordBatch::try_new(
                Arc::clone(&announced),
                vec![Arc::new(Int32Array::from(vec![interval])), Arc::new(rows)],
            )?)
        });
        Ok((schema, batches))
    }

    /// Writes the rows of an interval in the order of the curve: all that the split tasks gave for it, in the column `rows` of
    /// the batches. Returns the result for [`DistributedOptimize::commit`](super::DistributedOptimize::commit). New files are
    /// durable then, and after an error none is left.
    ///
    /// # Errors
    /// `Invalid` if there is no such interval, or rows are something else; those of the batches and of writing.
    pub async fn write_interval(
        self,
        storage: Storage,
        interval: usize,
        sent: impl Stream<Item = Result<RecordBatch>> + Send,
        clock: Clock,
    ) -> Result<Vec<u8>> {
        let Self { location, task_set_id, read, write, layout, limits, bins } = self;
        let written = async {
            let has_interval = |bin: &DividedBin| (bin.first..=bin.first + bin.cuts.len()).contains(&interval);
            let bin = bins.into_iter().find(has_interval).ok_or_else(foreign)?;
            let mut ranges = bin.ranges.into_ranges(&layout, &key_schema(&storage, &read, &layout)?)?;
            let begins = |interval: usize| bin.cuts.get(interval).copied();
            let number = interval - bin.first;
            let from = number.checked_sub(1).and_then(begins).unwrap_or_default();
            let about = ranges.narrow(from, begins(number), bin.rows);
            let copying = Copying::of_specs(&storage, read, write)?;
            let (layout, stop) = (Layout::Curve(layout), Stop::default());
            let rewriting = Rewriting { storage, copying, layout, target: u64::MAX, limits, tasks: 1, clock, stop };
            let rows = sent.and_then(|batch| computed(move || received(&batch)));
            let rows = rows.map_ok(|batches| stream::iter(batches.into_iter().map(Ok))).try_flatten();
            let (files, unclaimed) =
                rewriting.write_interval(rows, ranges, (about, bin.rows_per_file), &bin.cube).await?;
            let bytes = WrittenFiles { task_set_id, of: Written::Interval(interval), files }.to_bytes()?;
            unclaimed.claim();
            Ok(bytes)
        };
        written.await.map_err(|e: Error| e.in_table(&location))
    }
}

/// The columns of the keys, as they are read.
pub(super) fn key_schema(storage: &Storage, read: &ReadSpec, layout: &CurveLayout) -> Result<SchemaRef> {
    Ok(Reader::new(storage.clone(), key_spec(read, layout))?.schema())
}

fn foreign() -> Error {
    Error::invalid("a task belongs to another division into intervals; use that of its own commit")
}

/// The index of an interval, and some of its rows.
type Sent = (usize, Vec<u8>);

/// Files whose rows are being divided.
struct Reading {
    rows: BoxStream<'static, Result<RecordBatch>>,
    /// Taken out while a worker thread uses it.
    splitting: Option<Splitting>,
    ready: VecDeque<Sent>,
    is_over: bool,
}

impl Reading {
    async fn next(&mut self) -> Result<Option<Sent>> {
        loop {
            if let Some(sent) = self.ready.pop_front() {
                return Ok(Some(sent));
            }
            if self.is_over {
                return Ok(None);
            }
            let batch = self.rows.try_next().await?;
            self.is_over = batch.is_none();
            let mut splitting =
                self.splitting.take().ok_or_else(|| Error::internal("dividing rows has failed before"))?;
            let split = move || {
                let sent = match batch {
                    Some(batch) => splitting.push(&batch)?,
                    None => splitting.send(0)?,
                };
                Ok((splitting, sent))
            };
            let (splitting, sent) = computed(split).await?;
            self.splitting = Some(splitting);
            self.ready.extend(sent);
        }
    }
}

/// Collects the rows of each interval until it is worthwhile to send them.
struct Splitting {
    ranges: Ranges,
    first: usize,
    cuts: Vec<u64>,
    /// The rows of each interval, and their bytes.
    waiting: Vec<(Vec<RecordBatch>, usize)>,
    /// Their bytes together.
    bytes: usize,
}

impl Splitting {
    fn new(ranges: Ranges, first: usize, cuts: Vec<u64>) -> Self {
        let waiting = (0..=cuts.len()).map(|_| (Vec::new(), 0)).collect();
        Self { ranges, first, cuts, waiting, bytes: 0 }
    }

    fn push(&mut self, batch: &RecordBatch) -> Result<Vec<Sent>> {
        let mut sent = Vec::new();
        for piece in pieces(batch, HELD_BYTES as u64) {
            self.hold(&piece)?;
            let least = if self.bytes >= HELD_BYTES { 0 } else { SENT_BYTES };
            sent.extend(self.send(least)?);
        }
        Ok(sent)
    }

    fn hold(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); self.waiting.len()];
        for (row, position) in (0_u32..).zip(self.ranges.positions(batch)?) {
            let interval = self.cuts.partition_point(|cut| *cut <= position);
            rows.get_mut(interval).into_iter().for_each(|rows| rows.push(row));
        }
        for ((waiting, bytes), rows) in self.waiting.iter_mut().zip(rows) {
            if rows.is_empty() {
                continue;
            }
            let taken = take_record_batch(batch, &UInt32Array::from(rows))?;
            let more = memory(&taken);
            *bytes = bytes.saturating_add(more);
            self.bytes = self.bytes.saturating_add(more);
            waiting.push(taken);
        }
        Ok(())
    }

    /// The rows of the intervals that have at least so many bytes.
    fn send(&mut self, least: usize) -> Result<Vec<Sent>> {
        let mut sent = Vec::new();
        for (number, (waiting, bytes)) in self.waiting.iter_mut().enumerate() {
            let (Some(first), true) = (waiting.first(), *bytes >= least) else { continue };
            let rows = concat_batches(&first.schema(), &*waiting)?;
            waiting.clear();
            self.bytes = self.bytes.saturating_sub(std::mem::take(bytes));
            for piece in pieces(&rows, 4 * SENT_BYTES as u64) {
                sent.push((self.first + number, sendable(&piece)?));
            }
        }
        Ok(sent)
    }
}

/// Rows in Arrow's IPC format.
fn sendable(rows: &RecordBatch) -> Result<Vec<u8>> {
    let mut writer = StreamWriter::try_new(Vec::new(), rows.schema_ref())?;
    writer.write(rows)?;
    let bytes = writer.into_inner()?;
    if bytes.len() > MAX_SENT_BYTES {
        let message = "a row has more than 1 GiB, and cannot be sent to the task that writes it; with max_tasks=1 each group \
                       of files is rewritten by one task";
        return Err(Error::unsupported("OPTIMIZE by several tasks", message));
    }
    Ok(bytes)
}

/// The rows in a batch that [`Division::split`] made.
fn received(batch: &RecordBatch) -> Result<Vec<RecordBatch>> {
    let wrong = || Error::invalid("rows of an interval were changed on their way to the task that writes them");
    let sent = batch.column_by_name("rows").and_then(|rows| rows.as_binary_opt::<i32>()).ok_or_else(wrong)?;
    let mut batches = Vec::new();
    for bytes in sent.iter() {
        let reader = StreamReader::try_new(Cursor::new(bytes.ok_or_else(wrong)?), None);
        for rows in reader.map_err(|e| wrong().caused_by(e))? {
            batches.push(rows.map_err(|e| wrong().caused_by(e))?);
        }
    }
    Ok(batches)
}
