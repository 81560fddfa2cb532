//! Reads the live files for a checkpoint in portions, sorts them, and writes them as row groups.
//!
//! The rows in memory take a bounded amount of it, however large the table is, including those that are not encoded
//! yet. If all files fit, they are sorted. Otherwise they are gathered by range of keys; when the memory is full, the
//! largest range is sorted and becomes row groups of its own. Long strings stay in the pages that they were decoded from
//! until then; statistics are not parsed before their row group is encoded.
//!
//! PROTOCOL.md: "Checkpoints".

use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray, UInt64Array, new_null_array};
use arrow_buffer::BooleanBuffer;
use arrow_row::Rows;
use arrow_schema::{DataType as ArrowType, Field, FieldRef, Schema, SchemaRef};
use arrow_select::take::take_record_batch;
use deltic_pages::pool::Pool;
use deltic_protocol::action::batch::{AddBatch, KeyBatch, Origin};
use futures::future::try_join_all;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::gather::gather;
use super::order::{self, Key, Order};
use super::ranges::Ranges;
use crate::checkpoint::action_file::ActionFile;
use crate::checkpoint::actions::{action_rows, adds_in_views};
use crate::checkpoint::read::AddColumns;
use crate::checkpoint::rows::RowGroupBatches;
use crate::checkpoint_writer::columns::CheckpointSchema;
use crate::checkpoint_writer::encode::{GROUP_BYTES, GROUP_ROWS, Group, PIECE_ROWS, Piece, blocking, memory_of};
use crate::error::{Error, Result};
use crate::parallel::parallelism;
use crate::snapshot::Snapshot;

/// Bytes in memory of rows that are gathered or being encoded, and the unit in which they are counted.
const MEMORY_BUDGET: usize = 112 * 1024 * 1024;
const MEMORY_UNIT: usize = 4 * 1024;
/// Bytes of rows that are read before each check whether there is memory for more.
const READ_BYTES: usize = 16 * 1024 * 1024;
/// The most rows that are decoded together, and the fewest, however long they are by the footer.
const MAX_READ_ROWS: usize = 8 * 1024;
const MIN_READ_ROWS: usize = 128;
/// Bytes of pages that may stay in memory, however little of them is used.
const MAX_UNUSED_PAGE_BYTES: usize = 32 * 1024;
/// Bytes of rows that are made into row groups together if files are not sorted.
const UNSORTED_BYTES: usize = 32 * 1024 * 1024;
/// Bytes in memory of rows encoded together.
const PIECE_BYTES: usize = 8 * 1024 * 1024;
/// Fewest rows of a row group that is made smaller so that several can be encoded at once.
const MIN_SHARED_ROWS: usize = 32 * 1024;
/// Row groups that are decoded at once: each has its compressed bytes in memory meanwhile.
const CONCURRENT_READERS: usize = 4;
/// A sample of the keys has one row of so many, from so many row groups at most.
const SAMPLE_RATIO: usize = 64;
const MAX_SAMPLED_GROUPS: usize = 16;

/// Reads live files.
pub(crate) struct LiveFileReader {
    context: SortContext,
    /// How many files the checkpoint will consist of.
    outputs: usize,
    /// Files that are in memory already, and whether they are of the checkpoint, so that newer commits may supersede some.
    in_memory: VecDeque<(AddBatch, bool)>,
    readers: Vec<GroupReader>,
    /// Files that were read, by range of keys.
    range_buffers: Vec<RangeBuffer>,
    memory: Arc<Semaphore>,
}

/// What all steps of sorting need: the table, its schema of checkpoints, the order and the ranges.
#[derive(Clone)]
struct SortContext {
    snapshot: Snapshot,
    checkpoint_schema: Arc<CheckpointSchema>,
    order: Option<Order>,
    /// Set once it is clear that not all files fit into memory.
    ranges: Option<Arc<Ranges>>,
    /// The memory budget of pages that are read.
    pages: Arc<Pool>,
}

/// Row groups.
type Groups = Vec<(Arc<ActionFile>, usize)>;

/// Files with the index of their range.
type RangeRows = (usize, RecordBatch);

#[derive(Default)]
struct GroupReader {
    groups: VecDeque<(Arc<ActionFile>, usize)>,
    open: Option<(Arc<ActionFile>, RowGroupBatches)>,
}

impl LiveFileReader {
    /// `which`: positions of the files in the previous checkpoint that are read, if not all. The files are written to so many
    /// outputs.
    pub(crate) async fn new(
        snapshot: &Snapshot,
        checkpoint_schema: &Arc<CheckpointSchema>,
        order: Option<&Order>,
        which: Option<Vec<usize>>,
        outputs: usize,
    ) -> Result<Self> {
        let mut in_memory: VecDeque<_> = snapshot.tail().await?.live.iter().map(|adds| (adds.clone(), false)).collect();
        let mut groups = Vec::new();
        if let Some(checkpoint) = snapshot.checkpoint().await? {
            in_memory.extend(checkpoint.inline_adds().map(|adds| (adds.clone(), true)));
            groups = checkpoint.row_groups_of("add", which).await?;
        }
        in_memory.retain(|(adds, _)| !adds.is_empty());
        // Files that will be sorted can be read in any order.
        let readers = if order.is_some() { (parallelism() - 1).min(CONCURRENT_READERS) } else { 1 };
        let mut readers: Vec<GroupReader> = (0..readers.min(groups.len())).map(|_| GroupReader::default()).collect();
        for (at, group) in groups.into_iter().enumerate() {
            let reader = at % readers.len().max(1);
            if let Some(reader) = readers.get_mut(reader) {
                reader.groups.push_back(group);
            }
        }
        let context = SortContext {
            snapshot: snapshot.clone(),
            checkpoint_schema: checkpoint_schema.clone(),
            order: order.cloned(),
            ranges: None,
            pages: Arc::default(),
        };
        let memory = Arc::new(Semaphore::new(MEMORY_BUDGET / MEMORY_UNIT));
        Ok(Self { context, outputs, in_memory, readers, range_buffers: vec![RangeBuffer::default()], memory })
    }

    /// The files as row groups of a checkpoint with `schema`.
    pub(crate) fn groups(self, schema: &SchemaRef) -> impl Stream<Item = Result<Group>> + Send + use<> {
        let state = (self, VecDeque::new(), schema.clone());
        stream::try_unfold(state, |(mut reader, mut groups, schema)| async move {
            if groups.is_empty() {
                groups = reader.next_groups(&schema).await?;
            }
            Ok(groups.pop_front().map(|group| (group, (reader, groups, schema))))
        })
    }

    /// Returns none after the last ones.
    async fn next_groups(&mut self, schema: &SchemaRef) -> Result<VecDeque<Group>> {
        let step = (READ_BYTES / MEMORY_UNIT) as u32;
        while !self.in_memory.is_empty() || self.readers.iter().any(|reader| !reader.is_done()) {
            let memory = match self.memory.clone().try_acquire_many_owned(step) {
                Ok(memory) => memory,
                Err(_) => {
                    self.split_by_range().await?;
                    if let Some(full) = self.largest_range() {
                        return flush(&self.context, vec![full], false, schema).await;
                    }
                    let memory = self.memory.clone().acquire_many_owned(step).await;
                    memory.map_err(|e| Error::internal("memory for a checkpoint could not be reserved").caused_by(e))?
                }
            };
            self.read(memory).await?;
            if self.context.order.is_none()
                && let Some(full) =
                    self.range_buffers.iter_mut().find(|range_buffer| range_buffer.bytes >= UNSORTED_BYTES)
            {
                let full = full.take();
                return flush(&self.context, vec![full], false, schema).await;
            }
        }
        let mut rest: Vec<RangeBuffer> = Vec::new();
        for range_buffer in self.range_buffers.iter_mut().map(RangeBuffer::take) {
            match rest.last_mut() {
                Some(before) if before.output == range_buffer.output => before.extend(range_buffer),
                _ => rest.push(range_buffer),
            }
        }
        flush(&self.context, rest, true, schema).await
    }

    /// From now on divides files by range of their keys, if they have an order.
    async fn split_by_range(&mut self) -> Result<()> {
        let (Some(order), None) = (self.context.order.clone(), &self.context.ranges) else { return Ok(()) };
        let (mut sample, groups) = self.known_keys()?;
        sample.extend(self.context.sample_keys(groups).await?);
        let ranges = Arc::new(Ranges::new(&order, sample, self.outputs));
        self.context.ranges = Some(ranges.clone());
        self.range_buffers = RangeBuffer::split(std::mem::take(&mut self.range_buffers), &ranges).await?;
        Ok(())
    }

    /// The largest range; none if most of the rows in memory are being encoded, which will soon free memory.
    fn largest_range(&mut self) -> Option<RangeBuffer> {
        // The rest of the memory belongs to rows that are being encoded; if there is none of it, waiting would free nothing.
        let memory =
            |range_buffer: &RangeBuffer| range_buffer.memory.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let reserved: usize = self.range_buffers.iter().map(memory).sum();
        let largest_range = self.range_buffers.iter_mut().max_by_key(|range_buffer| range_buffer.bytes);
        largest_range.filter(|_| reserved >= MEMORY_BUDGET / MEMORY_UNIT / 2).map(RangeBuffer::take)
    }

    /// Some of the keys of the files in memory, and the row groups that are not read yet.
    fn known_keys(&self) -> Result<(Vec<Key>, Groups)> {
        let (context, mut keys) = (&self.context, Vec::new());
        for rows in self.range_buffers.iter().flat_map(|range_buffer| &range_buffer.pieces) {
            keys.extend(context.keys(&every_nth(rows, SAMPLE_RATIO)?)?);
        }
        for (adds, _) in &self.in_memory {
            keys.extend(context.keys_of(AddBatch::new(adds.origin, every_nth(adds.rows(), SAMPLE_RATIO)?)?)?);
        }
        Ok((keys, self.readers.iter().flat_map(|reader| &reader.groups).cloned().collect()))
    }

    /// Reads some more files.
    async fn read(&mut self, mut memory: OwnedSemaphorePermit) -> Result<()> {
        let mut read = Vec::new();
        if self.in_memory.is_empty() {
            let context = &self.context;
            let open: Vec<&mut GroupReader> = self.readers.iter_mut().filter(|reader| !reader.is_done()).collect();
            let share = READ_BYTES / open.len().max(1);
            read.extend(
                try_join_all(open.into_iter().map(|reader| reader.read(context, share))).await?.into_iter().flatten(),
            );
        } else {
            let (mut in_memory, context) = (std::mem::take(&mut self.in_memory), self.context.clone());
            (read, self.in_memory) =
                blocking(move || Ok((context.of_files_in_memory(&mut in_memory)?, in_memory))).await?;
        }
        for (range, rows) in read {
            let bytes = memory_of(&rows);
            let range_buffer =
                self.range_buffers.get_mut(range).ok_or_else(|| Error::internal("range index out of range"))?;
            // Bytes beyond those of one step were not reserved, and are not counted.
            range_buffer.push(rows, bytes, memory.split(bytes.div_ceil(MEMORY_UNIT).min(memory.num_permits())));
        }
        Ok(())
    }
}

impl GroupReader {
    fn is_done(&self) -> bool {
        self.groups.is_empty() && self.open.is_none()
    }

    /// Reads the next files, of about `most` bytes.
    async fn read(&mut self, context: &SortContext, most: usize) -> Result<Vec<RangeRows>> {
        let (mut read, mut bytes) = (Vec::new(), 0);
        while bytes < most {
            let (file, mut rows) = match self.open.take() {
                Some(open) => open,
                None => {
                    let Some((file, group)) = self.groups.pop_front() else { break };
                    let projection = context.checkpoint_schema.wanted().of(&file);
                    let wanted = move |path: &[String]| projection.wants(path);
                    let rows_at_once = rows_of_bytes(most, file.rows(group), file.decoded_bytes(group));
                    let rows = file
                        .read_views(
                            group,
                            rows_at_once.clamp(MIN_READ_ROWS, MAX_READ_ROWS),
                            most,
                            &context.pages,
                            &wanted,
                        )
                        .await?;
                    (file, rows)
                }
            };
            let context = context.clone();
            // If the decoder panics, the file is at fault.
            let more = file.blocking(move |here| {
                let (mut read, mut bytes) = (Vec::new(), bytes);
                while bytes < most {
                    let Some(batch) = rows.next() else { return Ok((None, read, bytes)) };
                    let pieces = context.of_checkpoint(&batch?).map_err(|e| e.in_file(here.path()))?;
                    bytes = pieces.iter().map(|(_, rows)| memory_of(rows)).fold(bytes, usize::saturating_add);
                    read.extend(pieces);
                }
                Ok((Some(rows), read, bytes))
            });
            let (rows, more, so_far) = more.await?;
            self.open = rows.map(|rows| (file, rows));
            read.extend(more);
            bytes = so_far;
        }
        Ok(read)
    }
}

impl SortContext {
    fn needs_stats(&self) -> bool {
        self.order.as_ref().is_some_and(Order::needs_stats)
    }

    fn of_checkpoint(&self, rows: &RecordBatch) -> Result<Vec<RangeRows>> {
        let origin = Origin::Checkpoint(self.snapshot.version());
        match adds_in_views(rows, |keys| self.unseen(&keys))? {
            Some((adds, paths)) => self.by_range(&AddBatch::new(origin, adds)?, Some(&paths)),
            None => self.by_range(&self.not_superseded(AddBatch::new(origin, action_rows(rows, "add", true)?)?)?, None),
        }
    }

    /// Takes the first batch of the files that are in memory.
    fn of_files_in_memory(&self, in_memory: &mut VecDeque<(AddBatch, bool)>) -> Result<Vec<RangeRows>> {
        let (mut read, mut bytes) = (Vec::new(), 0);
        while bytes < READ_BYTES
            && let Some((adds, is_older)) = in_memory.pop_front()
        {
            let (rows, origin) = (adds.rows(), adds.origin);
            let few = rows_of_bytes(READ_BYTES, rows.num_rows(), memory_of(rows)).min(MAX_READ_ROWS);
            let (these, rest) = (rows.slice(0, few), rows.slice(few, rows.num_rows() - few));
            let these = AddBatch::new(origin, these)?;
            let pieces = self.by_range(&if is_older { self.not_superseded(these)? } else { these }, None)?;
            bytes = pieces.iter().map(|(_, rows)| memory_of(rows)).fold(bytes, usize::saturating_add);
            read.extend(pieces);
            if rest.num_rows() > 0 {
                in_memory.push_front((AddBatch::new(origin, rest)?, is_older));
            }
        }
        Ok(read)
    }

    /// Which files the newer commits do not mention.
    fn unseen(&self, keys: &KeyBatch) -> Result<BooleanBuffer> {
        let tail = self.snapshot.replayed();
        Ok(tail.ok_or_else(|| Error::internal("the commits were replayed and are gone"))?.unseen(keys))
    }

    fn not_superseded(&self, adds: AddBatch) -> Result<AddBatch> {
        let unseen = self.unseen(&adds.keys()?)?;
        Ok(if unseen.count_set_bits() < adds.len() { adds.filter(unseen)? } else { adds })
    }

    /// Divides files by range, in the form that is kept in memory.
    fn by_range(&self, adds: &AddBatch, paths: Option<&ArrayRef>) -> Result<Vec<RangeRows>> {
        let rows = self.checkpoint_schema.buffered_rows(adds, paths, self.needs_stats())?;
        if rows.num_rows() == 0 {
            return Ok(Vec::new());
        }
        let rows = compact_views(rows)?;
        self.ranges.as_ref().map_or_else(|| Ok(vec![(0, rows.clone())]), |ranges| ranges.split(&rows))
    }

    /// Some of the keys in row groups of a checkpoint.
    async fn sample_keys(&self, groups: Groups) -> Result<Vec<Key>> {
        let each = groups.len().div_ceil(MAX_SAMPLED_GROUPS).max(1);
        let some = groups.into_iter().step_by(each).map(|(file, group)| self.sample_keys_in_group(file, group, each));
        Ok(stream::iter(some).buffered(parallelism() - 1).try_collect::<Vec<_>>().await?.concat())
    }

    /// Some of the keys in a row group, which is the only one read of `each` row groups.
    async fn sample_keys_in_group(&self, file: Arc<ActionFile>, group: usize, each: usize) -> Result<Vec<Key>> {
        let columns = AddColumns {
            members: vec!["partitionValues"],
            stats_json: self.needs_stats(),
            stats_typed: self.needs_stats(),
            ..AddColumns::default()
        };
        let projection = columns.of(&file);
        let wanted = |path: &[String]| projection.wants(path);
        let mut rows = file.read_views(group, MAX_READ_ROWS, READ_BYTES, &self.pages, &wanted).await?;
        let (context, all) = (self.clone(), file.rows(group).saturating_mul(each));
        let some = file.blocking(move |file| {
            // Row groups without that column have no keys.
            let some = rows.next().transpose()?.filter(|rows| rows.column_by_name("add").is_some());
            let Some(rows) = some else { return Ok(Vec::new()) };
            // One key for every `SAMPLE_RATIO` rows of all the row groups that these rows are a sample of.
            let n = rows.num_rows().saturating_mul(SAMPLE_RATIO).checked_div(all).unwrap_or_default();
            let adds = action_rows(&every_nth(&rows, n)?, "add", false).map_err(|e| e.in_file(file.path()))?;
            context.keys_of(AddBatch::new(Origin::Checkpoint(context.snapshot.version()), without_paths(&adds)?)?)
        });
        some.await
    }

    fn keys_of(&self, adds: AddBatch) -> Result<Vec<Key>> {
        self.keys(&self.checkpoint_schema.buffered_rows(&adds, None, self.needs_stats())?)
    }

    /// The sort keys of files.
    fn keys(&self, rows: &RecordBatch) -> Result<Vec<Key>> {
        let keys = self.order.as_ref().map(|order| order.keys(rows)).transpose()?.flatten();
        Ok(keys.iter().flat_map(Rows::iter).map(|key| key.as_ref().into()).collect())
    }
}

/// Makes row groups of the gathered files; all except the last ones free their memory when they are encoded.
async fn flush(
    context: &SortContext,
    full: Vec<RangeBuffer>,
    is_last: bool,
    schema: &SchemaRef,
) -> Result<VecDeque<Group>> {
    let (context, schema) = (context.clone(), schema.clone());
    blocking(move || {
        let mut groups = VecDeque::new();
        for range_buffer in full.into_iter().filter(|range_buffer| !range_buffer.pieces.is_empty()) {
            let output = range_buffer.output;
            groups.extend(SortedRun::new(&context, range_buffer)?.groups(output, is_last, &schema));
        }
        Ok(groups)
    })
    .await
}

/// One row of every `n`.
fn every_nth(rows: &RecordBatch, n: usize) -> Result<RecordBatch> {
    let chosen = (0..rows.num_rows() as u64).step_by(n.max(1));
    Ok(take_record_batch(rows, &UInt64Array::from_iter_values(chosen))?)
}

/// Files whose paths were not read, with empty paths.
fn without_paths(adds: &RecordBatch) -> Result<RecordBatch> {
    let paths: ArrayRef = Arc::new(StringArray::new_repeated("", adds.num_rows()));
    let fields =
        adds.schema_ref().fields().iter().cloned().chain([Arc::new(Field::new("path", ArrowType::Utf8, false))]);
    let columns = adds.columns().iter().cloned().chain([paths]).collect();
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields.collect::<Vec<_>>())), columns)?)
}

/// Copies strings that are a small part of the pages that they would keep in memory.
fn compact_views(rows: RecordBatch) -> Result<RecordBatch> {
    let compact = |column: &ArrayRef| match column.as_string_view_opt() {
        Some(strings) => {
            let pages: usize = strings.data_buffers().iter().map(|page| page.len()).sum();
            // Batches of a row group share the pages on their borders.
            let is_waste = pages > MAX_UNUSED_PAGE_BYTES && pages / 4 > strings.total_buffer_bytes_used();
            if is_waste { Arc::new(strings.gc()) as ArrayRef } else { column.clone() }
        }
        None => column.clone(),
    };
    let columns = rows.columns().iter().map(compact).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(RecordBatch::try_new_with_options(rows.schema(), columns, &options)?)
}

/// Files of one range of keys, gathered until the range is sorted and written.
#[derive(Default)]
struct RangeBuffer {
    output: usize,
    pieces: Vec<RecordBatch>,
    bytes: usize,
    memory: Option<OwnedSemaphorePermit>,
}

impl RangeBuffer {
    fn push(&mut self, rows: RecordBatch, bytes: usize, memory: Option<OwnedSemaphorePermit>) {
        self.extend(Self { output: self.output, pieces: vec![rows], bytes, memory });
    }

    fn extend(&mut self, other: Self) {
        self.pieces.extend(other.pieces);
        self.bytes = self.bytes.saturating_add(other.bytes);
        match (&mut self.memory, other.memory) {
            (Some(memory), Some(more)) => memory.merge(more),
            (memory @ None, more) => *memory = more,
            (Some(_), None) => {}
        }
    }

    /// Takes all files out of it.
    fn take(&mut self) -> Self {
        let none = Self { output: self.output, ..Self::default() };
        std::mem::replace(self, none)
    }

    /// Divides the files by range of keys.
    async fn split(all: Vec<Self>, ranges: &Arc<Ranges>) -> Result<Vec<Self>> {
        let mut whole = Self::default();
        all.into_iter().for_each(|range_buffer| whole.extend(range_buffer));
        let mut pieces = std::mem::take(&mut whole.pieces);
        let share = pieces.len().div_ceil(parallelism() - 1).max(1);
        let mut shares = Vec::new();
        while !pieces.is_empty() {
            let (share, ranges) = (pieces.split_off(pieces.len().saturating_sub(share)), ranges.clone());
            let split = move || share.into_iter().map(|piece| ranges.split(&piece)).collect::<Result<Vec<_>>>();
            shares.push(blocking(split));
        }
        let empty = |range| Self { output: ranges.output(range), ..Self::default() };
        let mut split: Vec<Self> = (0..ranges.count()).map(empty).collect();
        // The last share was split off first.
        for (range, rows) in try_join_all(shares).await?.into_iter().rev().flatten().flatten() {
            let bytes = memory_of(&rows);
            let memory = whole.memory.as_mut();
            let memory = memory.and_then(|memory| memory.split(bytes.div_ceil(MEMORY_UNIT).min(memory.num_permits())));
            let to = split.get_mut(range).ok_or_else(|| Error::internal("range index out of range"))?;
            to.push(rows, bytes, memory);
        }
        Ok(split)
    }
}

/// Files in memory, and their order.
struct SortedRun {
    checkpoint_schema: Arc<CheckpointSchema>,
    pieces: Vec<RecordBatch>,
    bytes: usize,
    /// For each file, its piece and its row in it.
    order: Vec<(u32, u32)>,
    /// The reserved memory, freed when the whole run is encoded.
    _memory: Option<OwnedSemaphorePermit>,
}

impl SortedRun {
    fn new(context: &SortContext, range_buffer: RangeBuffer) -> Result<Self> {
        let RangeBuffer { pieces, bytes, memory, .. } = range_buffer;
        let pieces = unify_columns(&context.checkpoint_schema, pieces)?;
        let order = match context.order.as_ref().and_then(|order| order.sorted(&pieces).transpose()) {
            Some(sorted) => sorted?,
            None => order::all_rows(pieces.iter().map(RecordBatch::num_rows)).collect(),
        };
        Ok(Self { checkpoint_schema: context.checkpoint_schema.clone(), pieces, bytes, order, _memory: memory })
    }

    /// Makes row groups; with `may_wait` a small one may wait for the next files, to share a row group with them.
    fn groups(self, output: usize, may_wait: bool, schema: &SchemaRef) -> VecDeque<Group> {
        let (rows, bytes) = (self.order.len(), self.bytes);
        let least = rows.div_ceil(GROUP_ROWS).max(bytes.div_ceil(GROUP_BYTES)).max(1);
        let workers = parallelism() - 1;
        // The same number for each thread that encodes them.
        let groups = if rows / MIN_SHARED_ROWS >= workers { least.next_multiple_of(workers) } else { least };
        let run = Arc::new(self);
        let start_of = |group: usize| rows * group / groups;
        let together = rows_of_bytes(PIECE_BYTES, rows, bytes).min(PIECE_ROWS);
        let group = |at: usize| {
            let range = start_of(at)..start_of(at + 1);
            let piece = |start: usize| -> Piece {
                let (run, schema, rows) = (run.clone(), schema.clone(), start..range.end.min(start + together));
                Box::new(move || {
                    run.checkpoint_schema.rows_of(&schema, "add", run.checkpoint_schema.adds(&run.gather(rows)?)?)
                })
            };
            let pieces = range.clone().step_by(together).map(piece).collect();
            Group { output, rows: range.len(), bytes: bytes / groups, pieces, may_wait }
        };
        (0..groups).map(group).filter(|group| group.rows > 0).collect()
    }

    fn gather(&self, range: Range<usize>) -> Result<RecordBatch> {
        let chosen = self.order.get(range).ok_or_else(|| Error::internal("a run has no such rows"))?;
        if let Some((first, last)) = chosen.first().zip(chosen.last())
            && let Some(piece) = self.pieces.get(first.0 as usize)
            && (first.1..).zip(chosen).all(|(row, at)| *at == (first.0, row))
        {
            return Ok(piece.slice(first.1 as usize, (last.1 - first.1) as usize + 1));
        }
        let chosen: Vec<_> = chosen.iter().map(|(piece, row)| (*piece as usize, *row as usize)).collect();
        gather(&self.pieces, &chosen)
    }
}

/// How many rows take `bytes` bytes, where all `rows` rows take `of` bytes: at least one, and no more than there are.
fn rows_of_bytes(bytes: usize, rows: usize, of: usize) -> usize {
    rows.saturating_mul(bytes).checked_div(of).unwrap_or(rows).min(rows).max(1)
}

/// Gives all pieces all columns: a column that one of them has is added to the others.
fn unify_columns(checkpoint_schema: &CheckpointSchema, pieces: Vec<RecordBatch>) -> Result<Vec<RecordBatch>> {
    let is_typed = |piece: &RecordBatch| piece.column_by_name("stats_parsed").is_some();
    let pieces = match pieces.iter().any(is_typed) {
        true => pieces.iter().map(|piece| checkpoint_schema.with_typed_stats(piece)).collect::<Result<Vec<_>>>()?,
        false => pieces,
    };
    let (mut names, mut fields) = (HashSet::new(), Vec::new());
    for field in pieces.iter().flat_map(|piece| piece.schema_ref().fields()) {
        if names.insert(field.name().clone()) {
            fields.push(field.as_ref().clone().with_nullable(true));
        }
    }
    let schema = Arc::new(Schema::new(fields));
    let complete = |piece: RecordBatch| {
        let column = |field: &FieldRef| match piece.column_by_name(field.name()) {
            Some(column) => column.clone(),
            None => new_null_array(field.data_type(), piece.num_rows()),
        };
        Ok(RecordBatch::try_new(schema.clone(), schema.fields().iter().map(column).collect())?)
    };
    pieces.into_iter().map(complete).collect()
}
