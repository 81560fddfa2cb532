//! Assembles a Parquet file from encoded row groups without copying their bytes; only offsets are
//! computed.
//!
//! Parquet format: "File Format", "Metadata".

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, ParquetMetaData, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::file::properties::WriterPropertiesPtr;
use parquet::schema::types::SchemaDescPtr;

const MAGIC: &[u8] = b"PAR1";

/// Column chunks one after the other, and their metadata for the footer.
#[derive(Default)]
pub(super) struct Chunks {
    bytes: Vec<Bytes>,
    length: usize,
    columns: Vec<ColumnChunkMetaData>,
}

impl Chunks {
    /// Appends a chunk; by its metadata its bytes begin at `start`.
    pub(super) fn push(
        &mut self,
        bytes: impl IntoIterator<Item = Bytes>,
        column: ColumnChunkMetaData,
        start: i64,
    ) -> Result<(), ParquetError> {
        self.columns.push(moved(column, i64::try_from(self.length)? - start)?);
        for bytes in bytes {
            self.length += bytes.len();
            self.bytes.push(bytes);
        }
        Ok(())
    }
}

/// A file that is being assembled.
pub(super) struct Assembly {
    schema: SchemaDescPtr,
    properties: WriterPropertiesPtr,
    groups: Vec<RowGroupMetaData>,
    rows: i64,
    length: usize,
}

impl Assembly {
    /// A new file, and its first bytes.
    pub(super) fn new(schema: &SchemaDescPtr, properties: &WriterPropertiesPtr) -> (Self, Bytes) {
        let (schema, properties) = (schema.clone(), properties.clone());
        (Self { schema, properties, groups: Vec::new(), rows: 0, length: MAGIC.len() }, Bytes::from_static(MAGIC))
    }

    /// Appends a row group. Returns its bytes.
    pub(super) fn push(&mut self, rows: usize, chunks: Chunks) -> Result<Vec<Bytes>, ParquetError> {
        let (start, rows) = (i64::try_from(self.length)?, i64::try_from(rows)?);
        let columns = chunks.columns.into_iter().map(|column| moved(column, start)).collect::<Result<Vec<_>, _>>()?;
        let uncompressed = columns.iter().map(ColumnChunkMetaData::uncompressed_size).sum();
        let group = RowGroupMetaData::builder(self.schema.clone())
            .set_num_rows(rows)
            .set_total_byte_size(uncompressed)
            .set_column_metadata(columns)
            .set_ordinal(i32::try_from(self.groups.len())?)
            .set_file_offset(start);
        self.groups.push(group.build()?);
        self.rows += rows;
        self.length += chunks.length;
        Ok(chunks.bytes)
    }

    /// The last bytes of the file.
    pub(super) fn finish(self) -> Result<Bytes, ParquetError> {
        let (version, created_by) =
            (self.properties.writer_version().as_num(), self.properties.created_by().to_owned());
        let file = FileMetaData::new(version, self.rows, Some(created_by), None, self.schema, None);
        let metadata = ParquetMetaData::new(file, self.groups);
        let mut footer = Vec::new();
        ParquetMetaDataWriter::new(&mut footer, &metadata).finish()?;
        Ok(footer.into())
    }
}

/// A column chunk that begins `by` bytes later.
fn moved(column: ColumnChunkMetaData, by: i64) -> Result<ColumnChunkMetaData, ParquetError> {
    let (data, dictionary) = (column.data_page_offset(), column.dictionary_page_offset());
    let moved = column.into_builder().set_data_page_offset(data + by);
    moved.set_dictionary_page_offset(dictionary.map(|offset| offset + by)).build()
}
