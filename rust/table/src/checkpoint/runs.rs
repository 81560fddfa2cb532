//! Live files on their way into a checkpoint: read a run at a time, sorted, and cut into row groups.
//!
//! A run takes a bounded amount of memory, however large the table is, so that what is sorted together is no more than
//! that. Long texts stay in the pages that they were decoded from; statistics are not parsed and no row is copied before
//! its row group is encoded. The next run is not read before the last one is written.
//!
//! PROTOCOL.md: "Checkpoints".

use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::{Schema, SchemaRef};
use arrow_select::interleave::interleave_record_batch;
use deltic_protocol::action::batch::{AddBatch, Origin};
use futures::future::try_join_all;
use futures::stream::{self, Stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::columns::{Layout, rows_of};
use super::encode::{GROUP_BYTES, GROUP_ROWS, Group, PIECE_ROWS, Piece, blocking, memory_of};
use super::order::Order;
use super::part::{Part, PartRows};
use super::read::action_rows;
use crate::error::{Error, Result};
use crate::parallel::parallelism;
use crate::snapshot::Snapshot;

/// Bytes in memory of rows sorted together.
const RUN_BYTES: usize = 96 * 1024 * 1024;
/// Rows decoded and looked at together, and bytes of those that are decoded already.
const READ_ROWS: usize = 16 * 1024;
const READ_BYTES: usize = 16 * 1024 * 1024;
/// Bytes in memory of rows encoded together.
const PIECE_BYTES: usize = 8 * 1024 * 1024;
/// Row groups are made smaller than they might be, to be encoded at once, but not smaller than this.
const SHARED_ROWS: usize = 32 * 1024;
/// Row groups decoded at once: each keeps its compressed bytes meanwhile.
const LANES: usize = 4;

/// Reads live files.
pub(super) struct Reader {
    hold: Hold,
    order: Option<Order>,
    /// Files that are in memory already, and whether the commits supersede some of them.
    given: VecDeque<(AddBatch, bool)>,
    lanes: Vec<Lane>,
    /// Runs that may be there at once.
    room: Arc<Semaphore>,
}

/// How files are held.
#[derive(Clone)]
struct Hold {
    snapshot: Snapshot,
    layout: Arc<Layout>,
    all_typed: bool,
}

/// Row groups decoded one after another.
#[derive(Default)]
struct Lane {
    groups: VecDeque<(Arc<Part>, usize)>,
    open: Option<(Arc<Part>, PartRows)>,
}

impl Reader {
    /// Of the files in the checkpoint before only those `which`, by position, if given.
    pub(super) async fn new(
        snapshot: &Snapshot,
        layout: &Arc<Layout>,
        order: Option<&Order>,
        which: Option<Vec<usize>>,
    ) -> Result<Self> {
        let mut given: VecDeque<_> = snapshot.tail().await?.live.iter().map(|adds| (adds.clone(), false)).collect();
        let mut groups = Vec::new();
        if let Some(checkpoint) = snapshot.checkpoint().await? {
            given.extend(checkpoint.inline_adds().map(|adds| (adds.clone(), true)));
            groups = checkpoint.row_groups_of("add", which).await?;
        }
        given.retain(|(adds, _)| !adds.is_empty());
        // What is sorted need not come in order.
        let (lanes, runs) = if order.is_some() { ((parallelism() - 1).min(LANES), 1) } else { (1, parallelism()) };
        let mut lanes: Vec<Lane> = (0..lanes.min(groups.len())).map(|_| Lane::default()).collect();
        for (at, group) in groups.into_iter().enumerate() {
            let lane = at % lanes.len().max(1);
            lanes.get_mut(lane).map(|lane| lane.groups.push_back(group)).unwrap_or_default();
        }
        let all_typed = order.is_some_and(Order::needs_stats);
        let hold = Hold { snapshot: snapshot.clone(), layout: layout.clone(), all_typed };
        Ok(Self { hold, order: order.cloned(), given, lanes, room: Arc::new(Semaphore::new(runs)) })
    }

    /// The files as row groups of a checkpoint with `schema`, in order.
    pub(super) fn groups(self, schema: &SchemaRef) -> impl Stream<Item = Result<Group>> + Send + use<> {
        let state = (self, VecDeque::new(), schema.clone());
        stream::try_unfold(state, |(mut reader, mut groups, schema)| async move {
            if groups.is_empty() {
                groups = reader.next_run().await?.map(|run| run.groups(&schema)).unwrap_or_default();
            }
            Ok(groups.pop_front().map(|group| (group, (reader, groups, schema))))
        })
    }

    async fn next_run(&mut self) -> Result<Option<Run>> {
        let room = self.room.clone().acquire_owned().await;
        let room = room.map_err(|e| Error::internal("a checkpoint has no room for files").caused_by(e))?;
        let most = if self.order.is_some() { RUN_BYTES } else { GROUP_BYTES };
        let mut pieces = Pieces::default();
        if !self.given.is_empty() {
            let (mut given, hold) = (std::mem::take(&mut self.given), self.hold.clone());
            let take = move || {
                let mut pieces = Pieces::default();
                while pieces.bytes < most
                    && let Some((adds, is_older)) = given.pop_front()
                {
                    let (rows, origin) = (adds.rows(), adds.origin);
                    let few = rows_of_bytes(READ_BYTES, rows.num_rows(), memory_of(rows)).min(READ_ROWS);
                    let (these, others) = (rows.slice(0, few), rows.slice(few, rows.num_rows() - few));
                    pieces.push(hold.held(AddBatch::new(origin, these)?, is_older)?);
                    if others.num_rows() > 0 {
                        given.push_front((AddBatch::new(origin, others)?, is_older));
                    }
                }
                Ok((given, pieces))
            };
            (self.given, pieces) = blocking(take).await?;
        }
        while pieces.bytes < most {
            let hold = &self.hold;
            let open: Vec<&mut Lane> = self.lanes.iter_mut().filter(|lane| !lane.is_done()).collect();
            let Some(share) = (most - pieces.bytes).checked_div(open.len()) else { break };
            let read = try_join_all(open.into_iter().map(|lane| lane.read(hold, share))).await?;
            read.into_iter().flat_map(|read| read.pieces).for_each(|piece| pieces.push(piece));
        }
        if pieces.pieces.is_empty() {
            return Ok(None);
        }
        let (layout, order) = (self.hold.layout.clone(), self.order.clone());
        blocking(move || Run::new(layout, order.as_ref(), pieces, room).map(Some)).await
    }
}

impl Lane {
    fn is_done(&self) -> bool {
        self.groups.is_empty() && self.open.is_none()
    }

    /// The next files, of about so many bytes.
    async fn read(&mut self, hold: &Hold, most: usize) -> Result<Pieces> {
        let mut pieces = Pieces::default();
        while pieces.bytes < most {
            let (part, mut rows) = match self.open.take() {
                Some(open) => open,
                None => {
                    let Some((part, group)) = self.groups.pop_front() else { break };
                    let projection = hold.layout.wanted().of(&part);
                    let wanted = move |path: &[String]| projection.wants(path);
                    let rows = part.read_views(group, READ_ROWS, &wanted).await?;
                    (part, rows)
                }
            };
            let hold = hold.clone();
            let here = part.clone();
            let (ended, read) = blocking(move || {
                while pieces.bytes < most {
                    let Some(batch) = rows.next() else { return Ok((None, pieces)) };
                    pieces.push(hold.of_checkpoint(&batch?).map_err(|e| e.in_file(here.path()))?);
                }
                Ok((Some(rows), pieces))
            })
            .await?;
            self.open = ended.map(|rows| (part, rows));
            pieces = read;
        }
        Ok(pieces)
    }
}

impl Hold {
    fn of_checkpoint(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let origin = Origin::Checkpoint(self.snapshot.version());
        self.held(AddBatch::new(origin, action_rows(rows, "add", true)?)?, true)
    }

    fn held(&self, mut adds: AddBatch, is_older: bool) -> Result<RecordBatch> {
        if is_older {
            let tail = self.snapshot.replayed();
            let tail = tail.ok_or_else(|| Error::internal("the commits were replayed and are gone"))?;
            let unseen = tail.unseen(&adds.keys()?);
            if unseen.count_set_bits() < adds.len() {
                adds = adds.filter(unseen)?;
            }
        }
        without_pages(self.layout.held(&adds, self.all_typed)?)
    }
}

/// Rows whose texts do not keep pages in memory of which they are the smaller part.
fn without_pages(rows: RecordBatch) -> Result<RecordBatch> {
    let compact = |column: &ArrayRef| match column.as_string_view_opt() {
        Some(texts) => {
            let pages: usize = texts.data_buffers().iter().map(|page| page.len()).sum();
            // Batches of a row group share the pages on their borders.
            let is_waste = pages / 4 > texts.total_buffer_bytes_used().max(READ_ROWS);
            if is_waste { Arc::new(texts.gc()) as ArrayRef } else { column.clone() }
        }
        None => column.clone(),
    };
    let columns = rows.columns().iter().map(compact).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(RecordBatch::try_new_with_options(rows.schema(), columns, &options)?)
}

#[derive(Default)]
struct Pieces {
    pieces: Vec<RecordBatch>,
    bytes: usize,
}

impl Pieces {
    fn push(&mut self, piece: RecordBatch) {
        if piece.num_rows() > 0 {
            self.bytes = self.bytes.saturating_add(memory_of(&piece));
            self.pieces.push(piece);
        }
    }
}

/// Files in memory, and their order.
struct Run {
    layout: Arc<Layout>,
    pieces: Vec<RecordBatch>,
    bytes: usize,
    /// Piece and row.
    order: Vec<(u32, u32)>,
    /// Given back when all of it is encoded.
    _room: Option<OwnedSemaphorePermit>,
}

impl Run {
    fn new(layout: Arc<Layout>, order: Option<&Order>, pieces: Pieces, room: OwnedSemaphorePermit) -> Result<Self> {
        let Pieces { pieces, bytes } = pieces;
        let pieces = with_the_same_columns(&layout, pieces)?;
        let order = match order.and_then(|order| order.sorted(&pieces).transpose()) {
            Some(sorted) => sorted?,
            None => {
                let rows =
                    |(piece, rows): (u32, &RecordBatch)| (0..rows.num_rows()).map(move |row| (piece, row as u32));
                (0..).zip(&pieces).flat_map(rows).collect()
            }
        };
        // Few files wait for others to share a row group with, and must not keep them from coming.
        let room = Some(room).filter(|_| order.len() >= SHARED_ROWS || bytes >= GROUP_BYTES);
        Ok(Self { layout, pieces, bytes, order, _room: room })
    }

    fn groups(self, schema: &SchemaRef) -> VecDeque<Group> {
        let (rows, bytes) = (self.order.len(), self.bytes);
        let least = rows.div_ceil(GROUP_ROWS).max(bytes.div_ceil(GROUP_BYTES)).max(1);
        let workers = parallelism() - 1;
        // As many for each of those who encode them.
        let groups = if rows / SHARED_ROWS >= workers { least.next_multiple_of(workers) } else { least };
        let run = Arc::new(self);
        let part = |at: usize| rows * at / groups;
        let together = rows_of_bytes(PIECE_BYTES, rows, bytes).min(PIECE_ROWS);
        let group = |at: usize| {
            let range = part(at)..part(at + 1);
            let piece = |start: usize| -> Piece {
                let (run, schema, rows) = (run.clone(), schema.clone(), start..range.end.min(start + together));
                Box::new(move || rows_of(&schema, "add", run.layout.adds(&run.gather(rows)?)?))
            };
            let pieces = range.clone().step_by(together).map(piece).collect();
            Group { rows: range.len(), bytes: bytes / groups, pieces }
        };
        (0..groups).map(group).filter(|group| group.rows > 0).collect()
    }

    fn gather(&self, range: Range<usize>) -> Result<RecordBatch> {
        let chosen = self.order.get(range).ok_or_else(|| Error::internal("a run has no such rows"))?;
        if let Some((first, last)) = chosen.first().zip(chosen.last())
            && let Some(piece) = self.pieces.get(first.0 as usize)
            && (1..).zip(chosen.windows(2)).all(|(at, pair)| pair[1] == (first.0, first.1 + at))
        {
            return Ok(piece.slice(first.1 as usize, (last.1 - first.1) as usize + 1));
        }
        let pieces: Vec<&RecordBatch> = self.pieces.iter().collect();
        let chosen: Vec<_> = chosen.iter().map(|(piece, row)| (*piece as usize, *row as usize)).collect();
        Ok(interleave_record_batch(&pieces, &chosen)?)
    }
}

/// How many of some rows take so many bytes: one at least, and no more than there are.
fn rows_of_bytes(bytes: usize, rows: usize, of: usize) -> usize {
    rows.saturating_mul(bytes).checked_div(of).unwrap_or(rows).min(rows).max(1)
}

/// Pieces that can be mixed: a column that any of them has is in all of them.
fn with_the_same_columns(layout: &Layout, pieces: Vec<RecordBatch>) -> Result<Vec<RecordBatch>> {
    let is_typed = |piece: &RecordBatch| piece.column_by_name("stats_parsed").is_some();
    let pieces = match pieces.iter().any(is_typed) {
        true => pieces.iter().map(|piece| layout.with_typed_stats(piece)).collect::<Result<Vec<_>>>()?,
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
        let column = |field: &Arc<arrow_schema::Field>| match piece.column_by_name(field.name()) {
            Some(column) => column.clone(),
            None => new_null_array(field.data_type(), piece.num_rows()),
        };
        Ok(RecordBatch::try_new(schema.clone(), schema.fields().iter().map(column).collect())?)
    };
    pieces.into_iter().map(complete).collect()
}
