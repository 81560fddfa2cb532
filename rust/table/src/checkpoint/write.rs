//! Writing checkpoints: one Parquet file of the classic name, streamed.
//!
//! Nothing is replayed that the snapshot has not replayed: live files come from it batch by batch, and are converted and
//! encoded on the blocking pool while the next ones are fetched. The file appears when it is whole, so that a failed
//! checkpoint leaves the one that was there. Tables with the feature `v2Checkpoint` get the V2 spec under the same
//! name, without sidecars, which every reader of V2 understands.
//!
//! Row groups are small enough to be read in parallel and in little memory; the few actions that are not files come
//! last, in a group of their own when there are many files.
//!
//! A snapshot of the checkpoint equals the snapshot of its commits (`checkpoint::a_checkpoint_changes_nothing`).
//!
//! PROTOCOL.md: "Checkpoints", "Checkpoint Schema", "Last Checkpoint File".

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, BooleanArray, RecordBatch};
use arrow_buffer::BooleanBuffer;
use arrow_cast::cast;
use arrow_schema::DataType as ArrowType;
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;
use bytes::Bytes;
use deltic_protocol::action::Txn;
use deltic_protocol::action::batch::{AddBatch, KeyBatch, Origin};
use deltic_protocol::feature;
use deltic_protocol::log::hint::LastCheckpoint;
use deltic_protocol::log::name::{LAST_CHECKPOINT, checkpoint_name};
use deltic_protocol::property::{Compression, PageVersion, Properties};
use futures::future::join;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{self, GzipLevel, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;
use tokio::task::spawn_blocking;

use super::columns::{Layout, State};
use crate::error::{Error, Result};
use crate::log_reader::{self, log_path};
use crate::snapshot::Snapshot;
use crate::storage::{FileWriter, Storage};

/// Rows converted and encoded at once.
const PIECE_ROWS: usize = 16 * 1024;
/// Batches of the log that are looked at together, so that many small commits do not make many small pieces.
const BATCHES_AT_ONCE: usize = 256;
/// Rows of a row group.
const GROUP_ROWS: usize = 100_000;
/// Bytes in memory of a row group's actions, which readers must hold.
const GROUP_BYTES: usize = 64 * 1024 * 1024;
/// Fewer rows than these do not get a row group of their own.
const SMALL_GROUP_ROWS: usize = 8 * 1024;
/// Bytes of text kept in the bounds of a column chunk: longer than any statistic, shorter than JSON.
const BOUND_BYTES: usize = 256;
/// Parquet libraries look at who wrote a file before they trust its statistics, and expect this form.
const CREATED_BY: &str = concat!("deltic version ", env!("CARGO_PKG_VERSION"));

/// A checkpoint that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Version of the table.
    pub version: u64,
    /// Actions of all kinds.
    pub actions: u64,
    /// Live files.
    pub adds: u64,
    /// Tombstones.
    pub removes: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Writes a checkpoint of `version` if the table wants one there, by its `interval`. What went wrong, if anything did.
///
/// When none is due this asks nothing of the store.
pub async fn when_due(storage: &Storage, version: u64, interval: u64, now_ms: i64) -> Option<Error> {
    if version == 0 || interval == 0 || !version.is_multiple_of(interval) {
        return None;
    }
    let written = async { of_snapshot(&Snapshot::open(storage, Some(version)).await?, now_ms).await };
    written.await.err()
}

/// Writes a checkpoint of the newest version, and returns the version.
///
/// # Errors
/// As [`of_snapshot`].
pub async fn checkpoint(storage: &Storage, now_ms: i64) -> Result<u64> {
    let snapshot = Snapshot::open(storage, None).await?;
    of_snapshot(&snapshot, now_ms).await.map(|written| written.version)
}

/// Writes a checkpoint of a snapshot, and points `_last_checkpoint` to it unless that points to a newer one.
///
/// # Errors
/// `Unsupported` if the table has a feature that a checkpoint of deltic's might fail, `Corrupt` if the log cannot be
/// replayed or is not what its checksum says. A checkpoint that was there before is there still.
pub async fn of_snapshot(snapshot: &Snapshot, now_ms: i64) -> Result<Written> {
    let place = |e: Error| e.in_table(snapshot.storage().location()).at_version(snapshot.version());
    let written = write(snapshot, now_ms).await.map_err(place)?;
    point_to(snapshot.storage(), written).await.map_err(place)?;
    Ok(written)
}

async fn write(snapshot: &Snapshot, now_ms: i64) -> Result<Written> {
    let (protocol, metadata) = (snapshot.protocol(), snapshot.metadata());
    feature::check_checkpointable(protocol, metadata, snapshot.version())?;
    let properties = Properties::of(metadata);
    let is_v2 = protocol.reader_features.iter().flatten().any(|name| name == "v2Checkpoint");
    let typed = match snapshot.checkpoint().await? {
        Some(checkpoint) => checkpoint.typed_stats().await?,
        None => HashSet::new(),
    };
    let layout = Arc::new(Layout::of(snapshot.shape(), properties, &typed, is_v2)?);
    let encoder = Encoder::new(&layout, properties)?;

    let file = snapshot.storage().create_file(&log_path(&checkpoint_name(snapshot.version()))).await?;
    let mut output = Output { encoder: Some(encoder), file };
    match write_actions(snapshot, &layout, is_v2, now_ms, &mut output).await {
        Ok(mut written) => {
            written.bytes = output.file.finish().await?;
            Ok(written)
        }
        Err(error) => {
            // The error that led here says more than one from cleaning up.
            let _aborted = output.file.abort().await;
            Err(error)
        }
    }
}

async fn write_actions(
    snapshot: &Snapshot,
    layout: &Arc<Layout>,
    is_v2: bool,
    now_ms: i64,
    output: &mut Output,
) -> Result<Written> {
    let properties = Properties::of(snapshot.metadata());
    let adds = output.write_all(adds(snapshot, layout).await?).await?;
    check_count(snapshot, adds)?;

    let horizon = now_ms.saturating_sub(properties.deleted_file_retention()?);
    let removes = output.write_all(removes(snapshot, layout, horizon).await?).await?;

    let mut txns = snapshot.txns().await?;
    if let Some(retention) = properties.set_transaction_retention()? {
        let horizon = now_ms.saturating_sub(retention);
        // Progress of unknown age is not forgotten: the application would write twice.
        txns.retain(|txn: &Txn| txn.last_updated.is_none_or(|updated| updated > horizon));
    }
    let version =
        i64::try_from(snapshot.version()).map_err(|e| Error::internal("a version is too large").caused_by(e))?;
    let state = State {
        protocol: snapshot.protocol().clone(),
        metadata: snapshot.metadata().clone(),
        txns,
        domains: snapshot.domains().await?,
        checkpoint_metadata: is_v2.then_some(version),
    };
    let others = output.write_all(stream::iter(layout.state(&state)?.into_iter().map(Ok))).await?;
    output.finish().await?;
    Ok(Written { version: snapshot.version(), actions: adds + removes + others, adds, removes, bytes: 0 })
}

/// Live files as rows of the checkpoint.
async fn adds(snapshot: &Snapshot, layout: &Arc<Layout>) -> Result<impl Stream<Item = Result<RecordBatch>> + use<>> {
    let origin = Origin::Checkpoint(snapshot.version());
    let live = snapshot.live_files(&layout.wanted()).await?;
    let pieces = pieces(live.map_ok(|adds| adds.rows().clone()));
    let layout = layout.clone();
    Ok(pieces
        .map_ok(move |rows| convert(layout.clone(), move |layout| layout.adds(&AddBatch::new(origin, rows)?)))
        .try_buffered(1))
}

/// Tombstones that are younger than `horizon`, as rows of the checkpoint.
async fn removes(
    snapshot: &Snapshot,
    layout: &Arc<Layout>,
    horizon: i64,
) -> Result<impl Stream<Item = Result<RecordBatch>> + use<>> {
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
    let pieces = pieces(stream::iter(newest).chain(older).and_then(young));
    let layout = layout.clone();
    Ok(pieces.map_ok(move |rows| convert(layout.clone(), move |layout| layout.removes(&rows))).try_buffered(1))
}

/// A tombstone without a time is as old as can be.
fn unexpired(rows: &RecordBatch, horizon: i64) -> Result<BooleanBuffer> {
    let Some(column) = rows.column_by_name("deletionTimestamp") else {
        return Ok(BooleanBuffer::new_unset(rows.num_rows()));
    };
    let column = cast(column, &ArrowType::Int64)
        .map_err(|e| Error::corrupt("`remove.deletionTimestamp` is no number").caused_by(e))?;
    let times = column.as_primitive::<Int64Type>();
    Ok(BooleanBuffer::collect_bool(times.len(), |row| times.is_valid(row) && times.value(row) > horizon))
}

fn kept(rows: &RecordBatch, keep: BooleanBuffer) -> Result<RecordBatch> {
    if keep.count_set_bits() == rows.num_rows() {
        return Ok(rows.clone());
    }
    Ok(filter_record_batch(rows, &BooleanArray::new(keep, None))?)
}

/// Batches of about equal size: small ones joined as long as their columns are the same, large ones cut.
fn pieces(batches: impl Stream<Item = Result<RecordBatch>>) -> impl Stream<Item = Result<RecordBatch>> {
    let ready = batches.try_ready_chunks(BATCHES_AT_ONCE).map_err(|e| e.1);
    let cut = |batches: Vec<RecordBatch>| async move {
        let mut pieces = Vec::new();
        let mut run: Vec<RecordBatch> = Vec::new();
        for batch in batches.into_iter().filter(|batch| batch.num_rows() > 0) {
            let rows: usize = run.iter().map(RecordBatch::num_rows).sum();
            let fits = rows + batch.num_rows() <= PIECE_ROWS;
            if !fits || run.first().is_some_and(|first| first.schema() != batch.schema()) {
                pieces.extend(joined(&run)?);
                run.clear();
            }
            run.push(batch);
        }
        pieces.extend(joined(&run)?);
        let slices = pieces.into_iter().flat_map(|piece| {
            let starts = (0..piece.num_rows()).step_by(PIECE_ROWS);
            starts.map(move |start| Ok(piece.slice(start, PIECE_ROWS.min(piece.num_rows() - start))))
        });
        Ok(stream::iter(slices))
    };
    ready.and_then(cut).try_flatten()
}

fn joined(run: &[RecordBatch]) -> Result<Option<RecordBatch>> {
    match run {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        [first, ..] => Ok(Some(concat_batches(&first.schema(), run)?)),
    }
}

async fn convert(
    layout: Arc<Layout>,
    work: impl FnOnce(&Layout) -> Result<RecordBatch> + Send + 'static,
) -> Result<RecordBatch> {
    spawn_blocking(move || work(&layout)).await.unwrap_or_else(|e| Err(worker_failed(e)))
}

fn worker_failed(source: tokio::task::JoinError) -> Error {
    Error::internal("a worker thread failed while writing a checkpoint").caused_by(source)
}

/// What the checksum of the version knows must be so, or the checkpoint would make an error lasting.
fn check_count(snapshot: &Snapshot, adds: u64) -> Result<()> {
    match snapshot.checksum().and_then(|c| u64::try_from(c.num_files).ok()) {
        Some(files) if files != adds => Err(Error::corrupt(format!(
            "the log has {adds} live files and the checksum of this version says {files}; \
             one of them is wrong, so no checkpoint was written"
        ))),
        Some(_) | None => Ok(()),
    }
}

/// The file and what fills it.
struct Output {
    /// Not there only while it is at work.
    encoder: Option<Encoder>,
    file: FileWriter,
}

impl Output {
    /// Writes actions of one kind, encoding each batch while the next one comes; returns how many they were.
    async fn write_all(&mut self, batches: impl Stream<Item = Result<RecordBatch>>) -> Result<u64> {
        let mut batches = std::pin::pin!(batches);
        let mut count = 0;
        let mut coming = batches.try_next().await?;
        while let Some(batch) = coming {
            count += batch.num_rows() as u64;
            let (encoded, following) = join(self.run(move |encoder| encoder.write(&batch)), batches.try_next()).await;
            encoded?;
            coming = following?;
        }
        self.run(Encoder::end_kind).await?;
        Ok(count)
    }

    async fn finish(&mut self) -> Result<()> {
        self.run(Encoder::finish).await
    }

    async fn run(
        &mut self,
        work: impl FnOnce(&mut Encoder) -> Result<(), ParquetError> + Send + 'static,
    ) -> Result<()> {
        let mut encoder = self.encoder.take().ok_or_else(|| Error::internal("a checkpoint went on after an error"))?;
        let encode = move || {
            work(&mut encoder).map_err(not_encoded)?;
            let bytes = encoder.take();
            Ok((encoder, bytes))
        };
        let (encoder, bytes) = spawn_blocking(encode).await.unwrap_or_else(|e| Err(worker_failed(e)))?;
        self.encoder = Some(encoder);
        if bytes.is_empty() { Ok(()) } else { self.file.write(bytes).await }
    }
}

/// Rows to Parquet bytes.
struct Encoder {
    writer: ArrowWriter<Vec<u8>>,
    /// Bytes in memory of what the row group holds so far.
    group_bytes: usize,
}

impl Encoder {
    fn new(layout: &Layout, properties: Properties<'_>) -> Result<Self> {
        let version = match properties.page_version()? {
            PageVersion::One => WriterVersion::PARQUET_1_0,
            PageVersion::Two => WriterVersion::PARQUET_2_0,
        };
        let unique = |action: &str, member: &str| ColumnPath::from(vec![action.to_owned(), member.to_owned()]);
        let properties = WriterProperties::builder()
            .set_created_by(CREATED_BY.to_owned())
            .set_writer_version(version)
            .set_compression(compression(properties)?)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_statistics_truncate_length(Some(BOUND_BYTES))
            .set_offset_index_disabled(true)
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .set_column_dictionary_enabled(unique("add", "path"), false)
            .set_column_dictionary_enabled(unique("add", "stats"), false)
            .set_column_dictionary_enabled(unique("remove", "path"), false)
            .build();
        let options = ArrowWriterOptions::new()
            .with_properties(properties)
            .with_skip_arrow_metadata(true)
            .with_schema_root("spark_schema".to_owned());
        let writer = ArrowWriter::try_new_with_options(Vec::new(), layout.schema().clone(), options);
        Ok(Self { writer: writer.map_err(not_encoded)?, group_bytes: 0 })
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), ParquetError> {
        self.writer.write(batch)?;
        let there = batch.columns().iter().filter(|column| column.null_count() < column.len());
        let bytes: usize = there.map(|column| column.to_data().get_slice_memory_size().unwrap_or_default()).sum();
        self.group_bytes = self.group_bytes.saturating_add(bytes);
        if self.group_bytes >= GROUP_BYTES || self.writer.in_progress_rows() + PIECE_ROWS > GROUP_ROWS {
            self.end_group()?;
        }
        Ok(())
    }

    /// What comes after belongs to another kind of action, and to another row group if that is worth it.
    fn end_kind(&mut self) -> Result<(), ParquetError> {
        if self.writer.in_progress_rows() >= SMALL_GROUP_ROWS { self.end_group() } else { Ok(()) }
    }

    fn end_group(&mut self) -> Result<(), ParquetError> {
        self.group_bytes = 0;
        self.writer.flush()
    }

    fn finish(&mut self) -> Result<(), ParquetError> {
        self.writer.finish().map(drop)
    }

    fn take(&mut self) -> Bytes {
        Bytes::from(std::mem::take(self.writer.inner_mut()))
    }
}

/// The codec that the table asks for; else the one that every reader of checkpoints has.
fn compression(properties: Properties<'_>) -> Result<basic::Compression> {
    if properties.get("delta.parquet.compression.codec").is_none() {
        return Ok(basic::Compression::SNAPPY);
    }
    Ok(match properties.compression()? {
        Compression::Uncompressed => basic::Compression::UNCOMPRESSED,
        Compression::Snappy => basic::Compression::SNAPPY,
        Compression::Gzip => basic::Compression::GZIP(GzipLevel::default()),
        Compression::Lz4 | Compression::Lz4Raw => basic::Compression::LZ4_RAW,
        Compression::Zstd => basic::Compression::ZSTD(ZstdLevel::default()),
    })
}

fn not_encoded(source: ParquetError) -> Error {
    Error::internal("actions could not be encoded as a checkpoint").caused_by(source)
}

/// Points `_last_checkpoint` to what was written, unless a newer checkpoint is there.
async fn point_to(storage: &Storage, written: Written) -> Result<()> {
    if let Some(hint) = log_reader::last_checkpoint(storage).await
        && hint.version > written.version
    {
        let there = log_reader::list(storage, hint.version).await?;
        // A hint to nothing would stay for ever.
        if there.iter().any(|file| file.name.is_checkpoint() && file.name.version() >= hint.version) {
            return Ok(());
        }
    }
    let hint = LastCheckpoint {
        version: written.version,
        size: i64::try_from(written.actions).unwrap_or(-1),
        size_in_bytes: i64::try_from(written.bytes).ok(),
        num_of_add_files: i64::try_from(written.adds).ok(),
        ..LastCheckpoint::default()
    };
    storage.put(&log_path(LAST_CHECKPOINT), Bytes::from(hint.print())).await
}
