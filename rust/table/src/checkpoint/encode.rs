//! Rows of a checkpoint to a Parquet file, encoded on the blocking pool while the next ones come.
//!
//! Row groups are small enough to be read in parallel and in little memory. The file appears when it is whole, so that a
//! failed checkpoint leaves the one that was there.

use arrow_array::{Array, RecordBatch};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use deltic_protocol::property::{Compression, PageVersion, Properties};
use futures::future::join;
use futures::stream::{Stream, TryStreamExt};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{self, GzipLevel, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;
use tokio::task::spawn_blocking;

use crate::error::{Error, Result};
use crate::storage::{FileWriter, Storage};

/// Rows converted and encoded at once.
pub(super) const PIECE_ROWS: usize = 16 * 1024;
/// Rows of a row group.
const GROUP_ROWS: usize = 100_000;
/// Bytes in memory of a row group's actions, which readers must hold.
const GROUP_BYTES: usize = 64 * 1024 * 1024;
/// Fewer rows than these do not get a row group of their own.
const SMALL_GROUP_ROWS: usize = 8 * 1024;
/// Bytes of text kept in the bounds of a column chunk: longer than any statistic, shorter than JSON.
const BOUND_BYTES: usize = 256;
/// The name that the schema of a checkpoint has in everybody's files.
pub(super) const SCHEMA_ROOT: &str = "spark_schema";
/// Parquet libraries look at who wrote a file before they trust its statistics, and expect this form.
const CREATED_BY: &str = concat!("deltic version ", env!("CARGO_PKG_VERSION"));

/// The file and what fills it.
pub(super) struct Output {
    /// Not there only while it is at work.
    encoder: Option<Encoder>,
    file: FileWriter,
}

impl Output {
    /// A new file at `path`, of rows with the columns of `schema`.
    pub(super) async fn create(
        storage: &Storage,
        path: &str,
        schema: &SchemaRef,
        properties: Properties<'_>,
    ) -> Result<Self> {
        let encoder = Encoder::new(schema, properties)?;
        Ok(Self { encoder: Some(encoder), file: storage.create_file(path).await? })
    }

    /// Writes actions of one kind, encoding each batch while the next one comes; returns how many they were.
    pub(super) async fn write_all(&mut self, batches: impl Stream<Item = Result<RecordBatch>>) -> Result<u64> {
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

    /// Writes actions of the kind that came before.
    pub(super) async fn write(&mut self, batch: RecordBatch) -> Result<()> {
        self.run(move |encoder| encoder.write(&batch)).await
    }

    /// Makes the file appear; returns its bytes.
    pub(super) async fn finish(mut self) -> Result<u64> {
        match self.run(Encoder::finish).await {
            Ok(()) => self.file.finish().await,
            Err(error) => {
                self.abort().await;
                Err(error)
            }
        }
    }

    /// Leaves nothing behind. Whatever led here says more than an error from cleaning up.
    pub(super) async fn abort(self) {
        let _aborted = self.file.abort().await;
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
        let (encoder, bytes) = blocking(encode).await?;
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
    fn new(schema: &SchemaRef, properties: Properties<'_>) -> Result<Self> {
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
            .with_schema_root(SCHEMA_ROOT.to_owned());
        let writer = ArrowWriter::try_new_with_options(Vec::new(), schema.clone(), options);
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

/// Runs work on the blocking pool.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    spawn_blocking(work).await.unwrap_or_else(|e| Err(worker_failed(e)))
}

fn worker_failed(source: tokio::task::JoinError) -> Error {
    Error::internal("a worker thread failed while writing a checkpoint").caused_by(source)
}
