//! Rows of a checkpoint to a Parquet file.
//!
//! A row group is encoded by one task on a worker thread, several at once. Its rows are made piece by piece while they are
//! encoded, so that a piece fits the processor's caches. Row groups are small enough to be read in parallel and in little
//! memory. The file appears when it is complete, so that a failed checkpoint does not replace an older file.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType as ArrowType, SchemaRef};
use bytes::Bytes;
use deltic_pages::encode::{
    self, BOUND_BYTES, ColumnWriter, DICTIONARY_BYTES, Kind, PAGE_BYTES, PageCompressor, Tree, WriterSlot,
};
use deltic_pages::pool::Pool;
use deltic_protocol::property::{Compression, PageVersion, Properties};
use futures::future::try_join;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory};
use parquet::basic::{self, GzipLevel, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaDataPtr;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnDescriptor, ColumnPath, SchemaDescPtr, TypePtr};
use tokio::sync::mpsc;

use super::assembly::{Assembly, Chunks};
use crate::checkpoint::action_file::CREATED_BY;
use crate::error::{Error, Result};
use crate::parallel::{try_blocking, worker_count};
use deltic_store::{FileWriter, Storage};

/// Rows made and encoded at once.
pub(super) const PIECE_ROWS: usize = 1024;
/// Rows of a row group.
pub(super) const GROUP_ROWS: usize = 128 * 1024;
/// Bytes in memory of a row group's actions, which readers must hold.
pub(super) const GROUP_BYTES: usize = 80 * 1024 * 1024;
/// Fewer rows and bytes than these do not get a row group of their own.
const SMALL_GROUP_ROWS: usize = 8 * 1024;
const SMALL_GROUP_BYTES: usize = 8 * 1024 * 1024;
/// The name of the schema of a checkpoint, which is the same for all writers.
pub(super) const SCHEMA_ROOT: &str = "spark_schema";

/// Rows that are made when they are encoded.
pub(super) type Piece = Box<dyn FnOnce() -> Result<RecordBatch> + Send>;

/// The rows of one row group, unless they are few.
pub(super) struct Group {
    /// Which of the checkpoint's files it goes to.
    pub(super) output: usize,
    pub(super) rows: usize,
    /// In memory, about.
    pub(super) bytes: usize,
    pub(super) pieces: Vec<Piece>,
    /// Whether it may share a row group that is written last, if it is small.
    pub(super) may_wait: bool,
}

impl Group {
    fn is_small(&self) -> bool {
        self.may_wait && self.rows < SMALL_GROUP_ROWS && self.bytes < SMALL_GROUP_BYTES
    }
}

/// How rows become row groups.
pub(super) struct Encoding {
    properties: WriterPropertiesPtr,
    /// Which encoder encodes each leaf.
    tree: Tree,
    leaves: SchemaDescPtr,
    general: ArrowRowGroupWriterFactory,
    /// The schema of the leaves that the parquet crate encodes.
    general_root: TypePtr,
    /// Memory of written pages, which is used again.
    pool: Arc<Pool>,
}

/// A row group that is not in a file yet.
pub(super) struct Encoded {
    pub(super) rows: usize,
    chunks: Chunks,
}

impl Encoding {
    /// The encoding of rows with the columns of `schema`.
    pub(super) fn new(schema: &SchemaRef, properties: Properties<'_>) -> Result<Arc<Self>> {
        let version = match properties.page_version()? {
            PageVersion::One => WriterVersion::PARQUET_1_0,
            PageVersion::Two => WriterVersion::PARQUET_2_0,
        };
        Self::with(schema, version, compression(properties))
    }

    /// The encoding with these settings for pages.
    fn with(schema: &SchemaRef, version: WriterVersion, compression: basic::Compression) -> Result<Arc<Self>> {
        let unique = |action: &str, member: &str| ColumnPath::from(vec![action.to_owned(), member.to_owned()]);
        let properties = WriterProperties::builder()
            .set_created_by(CREATED_BY.to_owned())
            .set_writer_version(version)
            .set_compression(compression)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_statistics_truncate_length(Some(BOUND_BYTES))
            .set_offset_index_disabled(true)
            .set_data_page_size_limit(PAGE_BYTES)
            .set_dictionary_page_size_limit(DICTIONARY_BYTES)
            .set_column_dictionary_enabled(unique("add", "path"), false)
            .set_column_dictionary_enabled(unique("add", "stats"), false)
            .set_column_statistics_enabled(unique("add", "stats"), EnabledStatistics::None)
            .set_column_dictionary_enabled(unique("remove", "path"), false)
            .build();
        let properties = Arc::new(properties);
        let converter = || ArrowSchemaConverter::new().schema_root(SCHEMA_ROOT);
        let converted = converter().convert(schema).map_err(not_encoded)?;
        let is_encoded_directly = deltic_pages::is_enabled()
            && version == WriterVersion::PARQUET_1_0
            && compression == basic::Compression::SNAPPY;
        let kind = |leaf: &ColumnDescriptor, arrow: &ArrowType| kind_of(leaf, arrow).filter(|_| is_encoded_directly);
        let tree = Tree::new(schema, &converted, &kind);
        let general_root = converter().convert(tree.general()).map_err(not_encoded)?.root_schema_ptr();
        let shape = SerializedFileWriter::new(Vec::new(), general_root.clone(), properties.clone());
        let general = ArrowRowGroupWriterFactory::new(&shape.map_err(not_encoded)?, tree.general().clone());
        let (leaves, pool) = (Arc::new(converted), Arc::default());
        Ok(Arc::new(Self { properties, tree, leaves, general, general_root, pool }))
    }

    /// Encodes a row group, and passes each piece to `look`.
    pub(super) fn encode(&self, pieces: Vec<Piece>, mut look: impl FnMut(&RecordBatch)) -> Result<Encoded> {
        let mut compressor = PageCompressor::default();
        let slots = self.tree.slots().iter().enumerate();
        let here = |(leaf, slot): (usize, &WriterSlot)| match slot {
            WriterSlot::Direct(kind) => Some(ColumnWriter::new(self.leaves.column(leaf), *kind, &self.pool)),
            WriterSlot::General => None,
        };
        let mut here: Vec<ColumnWriter> = slots.filter_map(here).collect();
        let mut general = self.general.create_column_writers(0).map_err(not_encoded)?;
        let mut rows = 0;
        for piece in pieces {
            let piece = piece()?;
            look(&piece);
            rows += piece.num_rows();
            self.tree.write(&piece, &mut here, &mut general, &mut compressor).map_err(not_encoded)?;
        }
        let chunks = self.chunks(here, general, &mut compressor).map_err(not_encoded)?;
        Ok(Encoded { rows, chunks })
    }

    /// The encoded column chunks, leaf by leaf.
    fn chunks(
        &self,
        here: Vec<ColumnWriter>,
        general: Vec<ArrowColumnWriter>,
        compressor: &mut PageCompressor,
    ) -> Result<Chunks, ParquetError> {
        let (general, bytes) = self.general_chunks(general)?;
        let (mut here, mut general) = (here.into_iter(), general.columns().iter());
        let missing = || ParquetError::General("a leaf has no writer".to_owned());
        let mut chunks = Chunks::default();
        for slot in self.tree.slots() {
            match slot {
                WriterSlot::Direct(_) => {
                    let (bytes, column) = here.next().ok_or_else(missing)?.close(compressor)?;
                    chunks.push(bytes, column, 0)?;
                }
                WriterSlot::General => {
                    let column = general.next().ok_or_else(missing)?;
                    let (start, length) = column.byte_range();
                    let (first, end) = (usize::try_from(start)?, usize::try_from(start + length)?);
                    chunks.push([bytes.slice(first..end)], column.clone(), i64::try_from(start)?)?;
                }
            }
        }
        Ok(chunks)
    }

    /// The leaves that the parquet crate encodes, which puts them into a file of its own.
    fn general_chunks(&self, general: Vec<ArrowColumnWriter>) -> Result<(RowGroupMetaDataPtr, Bytes), ParquetError> {
        let mut writer = SerializedFileWriter::new(Vec::new(), self.general_root.clone(), self.properties.clone())?;
        let mut group = writer.next_row_group()?;
        for leaf in general {
            leaf.close()?.append_to_row_group(&mut group)?;
        }
        let columns = group.close()?;
        Ok((columns, writer.into_inner()?.into()))
    }
}

/// How a leaf is encoded here: leaves with most of a checkpoint's bytes, and the most common kinds of leaves.
fn kind_of(leaf: &ColumnDescriptor, arrow: &ArrowType) -> Option<Kind> {
    match leaf.path().parts() {
        [root, member] if root == "add" && member == "stats" => Some(Kind::String { has_bounds: false }),
        [root, member] if matches!(root.as_str(), "add" | "remove") && member == "path" => {
            Some(Kind::String { has_bounds: true })
        }
        _ => encode::kind_of_number(leaf.physical_type(), arrow),
    }
}

/// A file that is being written.
pub(super) struct Output {
    encoding: Arc<Encoding>,
    assembly: Assembly,
    /// Small groups of rows that will share a row group.
    small_groups: Vec<Piece>,
    file: FileWriter,
}

impl Output {
    /// A new file at `path`.
    pub(super) async fn create(storage: &Storage, path: &str, encoding: &Arc<Encoding>) -> Result<Self> {
        let (assembly, start) = Assembly::new(&encoding.leaves, &encoding.properties);
        let mut file = storage.create_file(path).await?;
        file.write(start).await?;
        Ok(Self { encoding: encoding.clone(), assembly, small_groups: Vec::new(), file })
    }

    /// Writes actions of one kind, and returns how many they were.
    pub(super) async fn write_all(&mut self, groups: impl Stream<Item = Result<Group>>) -> Result<u64> {
        let (encoding, mut count) = (self.encoding.clone(), 0);
        let encode = |group: Group| {
            let encoding = encoding.clone();
            async move {
                if group.is_small() {
                    return Ok((group.rows, Err(group.pieces)));
                }
                let encoded = blocking(move || encoding.encode(group.pieces, |_| ())).await?;
                Ok((encoded.rows, Ok(encoded)))
            }
        };
        let (done, mut encoded) = mpsc::channel(1);
        let write = async {
            while let Some((rows, group)) = encoded.recv().await {
                count += rows as u64;
                match group {
                    Ok(group) => self.append(group).await?,
                    Err(small_groups) => self.small_groups.extend(small_groups),
                }
            }
            Ok(())
        };
        try_join(encode_all(groups, encode, done), write).await?;
        Ok(count)
    }

    /// Adds a row group.
    pub(super) async fn append(&mut self, group: Encoded) -> Result<()> {
        for bytes in self.assembly.push(group.rows, group.chunks).map_err(not_encoded)? {
            self.file.write(bytes).await?;
        }
        Ok(())
    }

    /// Makes the file appear; returns its bytes.
    pub(super) async fn finish(self) -> Result<u64> {
        let Self { encoding, mut assembly, small_groups, mut file } = self;
        let rest = blocking(move || {
            let mut rest = Vec::new();
            if !small_groups.is_empty() {
                let group = encoding.encode(small_groups, |_| ())?;
                rest = assembly.push(group.rows, group.chunks).map_err(not_encoded)?;
            }
            rest.push(assembly.finish().map_err(not_encoded)?);
            Ok(rest)
        });
        let written = async {
            for bytes in rest.await? {
                file.write(bytes).await?;
            }
            Ok(())
        };
        match written.await {
            Ok(()) => file.finish().await,
            Err(error) => {
                let _aborted = file.abort().await;
                Err(error)
            }
        }
    }

    /// Deletes what was written. An error of that is ignored, since the error that led here is more important.
    pub(super) async fn abort(self) {
        let _aborted = self.file.abort().await;
    }
}

/// Reads row groups, encodes several at once, and passes them to `done` in their order. All of this overlaps: the
/// next ones are read as soon as none waits to be encoded.
pub(super) async fn encode_all<T, E: Future<Output = Result<T>>>(
    groups: impl Stream<Item = Result<Group>>,
    encode: impl Fn(Group) -> E,
    done: mpsc::Sender<T>,
) -> Result<()> {
    let (read, waiting) = mpsc::channel(1);
    // If the receiver is gone, it has failed, and reports that itself.
    let reading = async move {
        let mut groups = std::pin::pin!(groups);
        // Waiting longer gathers more rows and makes larger row groups.
        while let Ok(place) = read.reserve().await
            && let Some(group) = groups.try_next().await?
        {
            place.send(group);
        }
        Ok(())
    };
    let encoding = async move {
        let waiting = stream::unfold(waiting, |mut waiting| async move { Some((waiting.recv().await?, waiting)) });
        let encode = |(number, group)| {
            let encoded = encode(group);
            async move { Ok::<_, Error>((number, encoded.await?)) }
        };
        let mut encoded = std::pin::pin!(waiting.enumerate().map(encode).buffer_unordered(worker_count()));
        let (mut early, mut next) = (BTreeMap::new(), 0);
        while let Some((number, group)) = encoded.try_next().await? {
            early.insert(number, group);
            while let Some(group) = early.remove(&next) {
                next += 1;
                if done.send(group).await.is_err() {
                    return Ok(());
                }
            }
        }
        Ok(())
    };
    try_join(reading, encoding).await.map(drop)
}

/// Row groups of actions that come batch by batch; each batch is converted when it is encoded.
pub(super) fn grouped(
    batches: impl Stream<Item = Result<RecordBatch>> + Send,
    convert: impl Fn(RecordBatch) -> Result<RecordBatch> + Send + Sync + 'static,
) -> impl Stream<Item = Result<Group>> + Send {
    let convert = Arc::new(convert);
    let state = (Box::pin(batches.fuse()), convert);
    stream::try_unfold(state, |(mut batches, convert)| async move {
        let mut group = Group { output: 0, rows: 0, bytes: 0, pieces: Vec::new(), may_wait: true };
        while group.rows < GROUP_ROWS && group.bytes < GROUP_BYTES {
            let Some(batch) = batches.try_next().await? else { break };
            group.rows += batch.num_rows();
            group.bytes = group.bytes.saturating_add(memory_of(&batch));
            for start in (0..batch.num_rows()).step_by(PIECE_ROWS) {
                let (piece, convert) = (batch.slice(start, PIECE_ROWS.min(batch.num_rows() - start)), convert.clone());
                group.pieces.push(Box::new(move || convert(piece)));
            }
        }
        Ok((group.rows > 0).then_some((group, (batches, convert))))
    })
}

/// About how many bytes rows take.
pub(super) fn memory_of(rows: &RecordBatch) -> usize {
    rows.columns().iter().map(|column| memory_of_column(column.as_ref())).fold(0, usize::saturating_add)
}

fn memory_of_column(column: &dyn Array) -> usize {
    let strings = column.as_string_view_opt().map(|strings| strings.total_buffer_bytes_used());
    let strings = strings.or_else(|| column.as_binary_view_opt().map(|bytes| bytes.total_buffer_bytes_used()));
    let own = column.to_data().get_slice_memory_size().unwrap_or_default();
    own.saturating_add(strings.unwrap_or_default())
}

/// The codec of the table's property, if deltic writes it in checkpoints, or else Snappy, which every reader has.
fn compression(properties: Properties<'_>) -> basic::Compression {
    if properties.get("delta.parquet.compression.codec").is_none() {
        return basic::Compression::SNAPPY;
    }
    // The property may name a codec for other writers' data files; a checkpoint must not fail because of it.
    let Ok(compression) = properties.compression() else { return basic::Compression::SNAPPY };
    match compression {
        Compression::Uncompressed => basic::Compression::UNCOMPRESSED,
        // Not every reader of checkpoints has Brotli.
        Compression::Snappy | Compression::Brotli => basic::Compression::SNAPPY,
        Compression::Gzip => basic::Compression::GZIP(GzipLevel::default()),
        Compression::Lz4 | Compression::Lz4Raw => basic::Compression::LZ4_RAW,
        Compression::Zstd => basic::Compression::ZSTD(ZstdLevel::default()),
    }
}

fn not_encoded(source: ParquetError) -> Error {
    Error::internal("actions could not be encoded as a checkpoint").caused_by(source)
}

/// Runs work on a worker thread.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    try_blocking(work, |e| Error::internal("a worker thread failed while writing a checkpoint").caused_by(e)).await
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

/// Batches as a file, each a row group, its pages of the given version: those of the first have leaves that are encoded
/// here.
#[cfg(test)]
fn file_of(schema: &SchemaRef, groups: &[Vec<RecordBatch>], version: WriterVersion) -> Result<Bytes> {
    let encoding = Encoding::with(schema, version, basic::Compression::SNAPPY)?;
    let (mut assembly, start) = Assembly::new(&encoding.leaves, &encoding.properties);
    let mut file = vec![start];
    for group in groups {
        let piece = |rows: &RecordBatch| -> Piece {
            let rows = rows.clone();
            Box::new(move || Ok(rows))
        };
        let group = encoding.encode(group.iter().map(piece).collect(), |_| ())?;
        file.extend(assembly.push(group.rows, group.chunks).map_err(not_encoded)?);
    }
    file.push(assembly.finish().map_err(not_encoded)?);
    Ok(file.concat().into())
}
