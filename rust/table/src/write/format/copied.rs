//! Writes a Parquet file from newly encoded columns and from column chunks of an old file.
//!
//! The row groups are those of the old file: the caller gives the rows of the encoded columns of a row group, and then the bytes
//! of its copied chunks. There is no I/O here.
//!
//! Invariant: a copied chunk has the values that the leaf has in the old file, and the new footer says where its pages are.
//! Bounds are copied only if they follow the order of the values.

use std::io;
use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::{Buf, Bytes};
use deltic_protocol::error::Result;
use deltic_protocol::stats::collect::StatsCollector;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::writer::SerializedFileWriter;

use super::encoder::drop_bounds_beside_nan;
use super::layout::{FileFormat, Layout, failed};

/// A column chunk of the old file.
pub(crate) struct CopiedChunk {
    /// Its metadata in the footer of the old file.
    pub(crate) metadata: ColumnChunkMetaData,
    /// All its bytes.
    pub(crate) bytes: Bytes,
    /// Whether its bounds follow the order of its values.
    pub(crate) has_ordered_bounds: bool,
    /// Where its pages are in the old file.
    pub(crate) offset_index: Option<OffsetIndexMetaData>,
    /// The bounds of its pages.
    pub(crate) column_index: Option<ColumnIndexMetaData>,
}

/// Writes files in which some columns are encoded and the others copied.
pub(in crate::write) struct CopyingEncoder {
    file: SerializedFileWriter<Vec<u8>>,
    /// For each leaf of the file, whether it is encoded.
    is_encoded: Arc<[bool]>,
    /// Makes the writers of the encoded columns.
    columns: ArrowRowGroupWriterFactory,
    /// The encoded columns of the current row group; empty if there is none.
    group: Vec<ArrowColumnWriter>,
    rows_of_group: u64,
    /// Collects statistics of the encoded columns.
    stats: StatsCollector,
}

impl CopyingEncoder {
    /// `whole`: the layout of the file. `part`: of a file with the encoded columns alone. `stats`: collects statistics of these.
    pub(in crate::write) fn new(
        (whole, part): (&Layout, &Layout),
        is_encoded: Arc<[bool]>,
        stats: StatsCollector,
    ) -> Result<Self> {
        let file = SerializedFileWriter::new(Vec::new(), whole.parquet.root_schema_ptr(), whole.properties.clone());
        let alone = SerializedFileWriter::new(io::sink(), part.parquet.root_schema_ptr(), part.properties.clone());
        let columns = ArrowRowGroupWriterFactory::new(&alone.map_err(failed)?, part.arrow.clone());
        Ok(Self { file: file.map_err(failed)?, is_encoded, columns, group: Vec::new(), rows_of_group: 0, stats })
    }

    /// Encodes rows of the current row group. `rows`: the columns of `part`.
    pub(in crate::write) fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        if self.group.is_empty() {
            let number = self.file.flushed_row_groups().len();
            self.group = self.columns.create_column_writers(number).map_err(failed)?;
        }
        let mut columns = self.group.iter_mut();
        for (field, values) in rows.schema_ref().fields().iter().zip(rows.columns()) {
            for (leaf, column) in compute_leaves(field, values).map_err(failed)?.iter().zip(columns.by_ref()) {
                column.write(leaf).map_err(failed)?;
            }
        }
        self.rows_of_group = self.rows_of_group.saturating_add(rows.num_rows() as u64);
        self.stats.columns(rows.num_rows() as u64).try_for_each(|mut column| column.update(rows))
    }

    /// Bytes of the encoded columns of the current row group in memory.
    pub(in crate::write) fn memory(&self) -> usize {
        self.group.iter().map(ArrowColumnWriter::memory_size).sum()
    }

    /// Ends the row group. `copied`: the chunks of the leaves that are not encoded, in their order.
    pub(in crate::write) fn end_group(&mut self, copied: Vec<CopiedChunk>) -> Result<()> {
        let rows = std::mem::take(&mut self.rows_of_group);
        let (mut encoded, mut copied) = (std::mem::take(&mut self.group).into_iter(), copied.into_iter());
        let mut end = || {
            let mut group = self.file.next_row_group()?;
            for is_encoded in self.is_encoded.iter() {
                if *is_encoded {
                    let mut chunk = encoded.next().ok_or_else(missing)?.close()?;
                    drop_bounds_beside_nan(chunk.close_mut())?;
                    chunk.append_to_row_group(&mut group)?;
                } else {
                    let (bytes, closed) = copied.next().ok_or_else(missing)?.closed(rows)?;
                    group.append_column(&bytes, closed)?;
                }
            }
            group.close().map(drop)
        };
        end().map_err(failed)
    }

    /// Takes the bytes that are ready to upload.
    pub(in crate::write) fn take(&mut self) -> Bytes {
        Bytes::from(std::mem::take(self.file.inner_mut()))
    }

    /// Ends the file. Returns its last bytes, and the statistics of the encoded columns.
    pub(in crate::write) fn finish(self) -> Result<(Bytes, String)> {
        Ok((Bytes::from(self.file.into_inner().map_err(failed)?), self.stats.finish()))
    }
}

fn missing() -> ParquetError {
    ParquetError::General("a row group lacks a column".to_owned())
}

impl FileFormat {
    /// The layout of all files, if variants are not shredded.
    pub(in crate::write) fn fixed_layout(&self) -> Option<&Arc<Layout>> {
        self.shreds.is_none().then_some(&self.layout)
    }
}

/// The bytes of a column chunk, which begin at the first page.
struct ChunkBytes(Bytes);

impl Length for ChunkBytes {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

impl ChunkReader for ChunkBytes {
    type T = bytes::buf::Reader<Bytes>;

    /// The writer reads the chunk once, from its beginning. `_start` is an offset in the old file.
    fn get_read(&self, _start: u64) -> Result<Self::T, ParquetError> {
        Ok(self.0.clone().reader())
    }

    fn get_bytes(&self, _start: u64, _length: usize) -> Result<Bytes, ParquetError> {
        Err(ParquetError::General("a copied column chunk is not read in parts".to_owned()))
    }
}

impl CopiedChunk {
    /// The chunk as the file writer takes it, for a row group of `rows` rows.
    fn closed(self, rows: u64) -> Result<(ChunkBytes, ColumnCloseResult), ParquetError> {
        let Self { mut metadata, bytes, has_ordered_bounds, offset_index, mut column_index } = self;
        if !has_ordered_bounds {
            metadata = metadata.into_builder().clear_statistics().build()?;
            column_index = None;
        }
        // Readers find the bounds of pages by their places.
        let column_index = column_index.filter(|_| offset_index.is_some());
        let mut closed = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: rows,
            metadata,
            bloom_filter: None,
            column_index,
            offset_index,
        };
        drop_bounds_beside_nan(&mut closed)?;
        Ok((ChunkBytes(bytes), closed))
    }
}
