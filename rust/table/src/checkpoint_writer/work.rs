//! What goes into one checkpoint: live files and young tombstones, as row groups.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, BooleanArray, RecordBatch, StructArray};
use arrow_buffer::BooleanBuffer;
use arrow_cast::cast;
use arrow_schema::{DataType as ArrowType, SchemaRef};
use arrow_select::filter::filter_record_batch;
use deltic_protocol::action::batch::KeyBatch;
use futures::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};

use super::columns::CheckpointSchema;
use super::encode::{Group, grouped};
use super::sort::LiveFileReader;
use super::sort::Order;
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::snapshot::Snapshot;

/// What goes into one checkpoint.
pub(super) struct Work {
    pub(super) snapshot: Snapshot,
    pub(super) checkpoint_schema: Arc<CheckpointSchema>,
    pub(super) order: Option<Order>,
    pub(super) now_ms: i64,
    /// Tombstones that are not younger than this are left out.
    pub(super) horizon: i64,
    /// How many live files were read.
    pub(super) progress: Progress,
}

impl Work {
    /// Live files as row groups for so many `outputs` with `schema`; of the last checkpoint only those of its files
    /// `which`, by position, if given.
    pub(super) async fn adds(
        &self,
        which: Option<Vec<usize>>,
        outputs: usize,
        schema: &SchemaRef,
    ) -> Result<BoxStream<'static, Result<Group>>> {
        let reader =
            LiveFileReader::new(&self.snapshot, &self.checkpoint_schema, self.order.as_ref(), which, outputs).await?;
        let progress = self.progress.clone();
        let groups = reader.groups(schema).inspect_ok(move |group| progress.advance(group.rows as u64));
        Ok(groups.boxed())
    }

    /// Tombstones that are young enough, as row groups of a checkpoint with `schema`.
    pub(super) async fn removes(&self, schema: &SchemaRef) -> Result<BoxStream<'static, Result<Group>>> {
        let (checkpoint_schema, schema) = (self.checkpoint_schema.clone(), schema.clone());
        let convert = move |rows: RecordBatch| {
            checkpoint_schema.rows_of(&schema, "remove", StructArray::from(checkpoint_schema.removes(&rows)?))
        };
        Ok(grouped(young_tombstones(&self.snapshot, self.horizon).await?, convert).boxed())
    }
}

/// Compares the number of files with the version's checksum, lest the checkpoint make an error permanent.
pub(super) fn check_count(snapshot: &Snapshot, adds: u64) -> Result<()> {
    match snapshot.checksum().and_then(|c| u64::try_from(c.num_files).ok()) {
        Some(files) if files != adds => Err(Error::corrupt(format!(
            "the log has {adds} live files and the checksum of this version says {files}; \
             one of them is wrong, so no checkpoint was written"
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Tombstones that are younger than `horizon`.
pub(crate) async fn young_tombstones(
    snapshot: &Snapshot,
    horizon: i64,
) -> Result<impl Stream<Item = Result<RecordBatch>> + Send + use<>> {
    let newest: Vec<_> = snapshot.tail().await?.tombstones.iter().cloned().map(Ok).collect();
    let older = snapshot.checkpoint().await?.map(|checkpoint| checkpoint.removes());
    let replayed = snapshot.clone();
    let unseen = move |(keys, rows): (KeyBatch, RecordBatch)| {
        let snapshot = replayed.clone();
        async move { kept(&rows, snapshot.tail().await?.unseen(&keys)) }
    };
    let older = stream::iter(older).flatten().and_then(unseen);
    let young =
        move |rows: RecordBatch| std::future::ready(unexpired(&rows, horizon).and_then(|keep| kept(&rows, keep)));
    Ok(stream::iter(newest).chain(older).and_then(young))
}

/// A tombstone without a time counts as expired.
fn unexpired(rows: &RecordBatch, horizon: i64) -> Result<BooleanBuffer> {
    let Some(column) = rows.column_by_name("deletionTimestamp") else {
        return Ok(BooleanBuffer::new_unset(rows.num_rows()));
    };
    let column = cast(column, &ArrowType::Int64)
        .map_err(|e| Error::corrupt("`remove.deletionTimestamp` is not a number").caused_by(e))?;
    let times = column.as_primitive::<Int64Type>();
    Ok(BooleanBuffer::collect_bool(times.len(), |row| times.is_valid(row) && times.value(row) > horizon))
}

fn kept(rows: &RecordBatch, keep: BooleanBuffer) -> Result<RecordBatch> {
    if keep.count_set_bits() == rows.num_rows() {
        return Ok(rows.clone());
    }
    Ok(filter_record_batch(rows, &BooleanArray::new(keep, None))?)
}
