//! One data file in the making: Parquet bytes and statistics. Synchronous, and no I/O.
//!
//! Files are what Spark reads without settings: version 1 pages, `INT64` microseconds, lists and maps in the standard
//! three levels, no embedded Arrow schema, statistics for row groups and pages.
//!
//! PROTOCOL.md: "Data Files", "Column Mapping" (field ids).

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use deltic_protocol::error::{Error, Result};
use deltic_protocol::schema::StructType;
use deltic_protocol::stats::collect::{IndexedColumns, StatsCollector};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{self, GzipLevel, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use super::spec::{Compression, WriteSpec};

/// Encoded bytes after which a row group ends: readers hold one in memory.
const MAX_GROUP_BYTES: usize = 128 * 1024 * 1024;

/// Parquet libraries look at who wrote a file before they trust its statistics, and expect this form.
const CREATED_BY: &str = concat!("deltic version ", env!("CARGO_PKG_VERSION"));

/// What all files of one writer share.
#[derive(Debug)]
pub(super) struct FileFormat {
    /// Arrow schema of the file: physical names, field ids, no partition columns.
    pub(super) arrow: SchemaRef,
    /// The same as table types, for the statistics.
    schema: StructType,
    indexed: IndexedColumns,
    prefix_length: usize,
    properties: WriterProperties,
}

impl FileFormat {
    /// `indexed` has physical names, unlike the specification.
    pub(super) fn new(arrow: SchemaRef, schema: StructType, indexed: IndexedColumns, spec: &WriteSpec) -> Self {
        let compression = match spec.compression {
            Compression::Zstd => basic::Compression::ZSTD(ZstdLevel::default()),
            Compression::Snappy => basic::Compression::SNAPPY,
            Compression::Gzip => basic::Compression::GZIP(GzipLevel::default()),
            Compression::Lz4 => basic::Compression::LZ4_RAW,
            Compression::Uncompressed => basic::Compression::UNCOMPRESSED,
        };
        let properties = WriterProperties::builder()
            .set_created_by(CREATED_BY.to_owned())
            .set_compression(compression)
            .set_statistics_enabled(EnabledStatistics::Page)
            .set_max_row_group_row_count(Some(spec.max_rows_per_group.max(1)))
            .set_max_row_group_bytes(Some(MAX_GROUP_BYTES))
            .build();
        Self { arrow, schema, indexed, prefix_length: spec.string_prefix_length, properties }
    }
}

/// Turns batches into the bytes of a file.
pub(super) struct Encoder {
    writer: ArrowWriter<Vec<u8>>,
    stats: StatsCollector,
}

/// The end of a file.
pub(super) struct Encoded {
    /// Bytes not taken yet.
    pub(super) rest: Bytes,
    /// The text of `add.stats`.
    pub(super) stats: String,
    /// Rows in the file.
    pub(super) rows: u64,
}

impl Encoder {
    pub(super) fn new(format: &FileFormat) -> Result<Self> {
        let options = ArrowWriterOptions::new()
            .with_properties(format.properties.clone())
            .with_skip_arrow_metadata(true)
            .with_schema_root("spark_schema".to_owned());
        let writer = ArrowWriter::try_new_with_options(Vec::new(), format.arrow.clone(), options).map_err(failed)?;
        let stats = StatsCollector::new(&format.schema, &format.indexed).with_prefix_length(format.prefix_length);
        Ok(Self { writer, stats })
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.stats.update(batch)?;
        self.writer.write(batch).map_err(failed)
    }

    /// Ends the row group, which frees what it holds in memory.
    pub(super) fn end_group(&mut self) -> Result<()> {
        self.writer.flush().map_err(failed)
    }

    /// Bytes the file would have if it ended here, about.
    pub(super) fn size(&self) -> u64 {
        (self.writer.bytes_written() + self.writer.in_progress_size()) as u64
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.writer.memory_size() + self.writer.inner().len()
    }

    /// What is ready to be stored.
    pub(super) fn take(&mut self) -> Bytes {
        Bytes::from(std::mem::take(self.writer.inner_mut()))
    }

    pub(super) fn finish(self) -> Result<Encoded> {
        let rest = self.writer.into_inner().map_err(failed)?;
        Ok(Encoded { rest: Bytes::from(rest), stats: self.stats.finish(), rows: self.stats.rows() })
    }
}

fn failed(source: ParquetError) -> Error {
    Error::internal("a batch of the table's schema could not be encoded as Parquet").caused_by(source)
}
