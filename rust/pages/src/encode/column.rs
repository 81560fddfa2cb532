//! Encodes one leaf's column chunk of a row group: its pages, and their description for the footer.

use std::sync::Arc;

use arrow_array::Array;
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType as ArrowType, TimeUnit};
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, PageType, Type as PhysicalType};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, PageEncodingStats};
use parquet::schema::types::ColumnDescPtr;

use super::numbers::NumberEncoder;
use super::page::{self, PageCompressor};
use super::strings::StringEncoder;
use super::values::{ColumnEncoder, PAGE_ROWS};
use crate::chunked_buffer::ChunkedBuffer;
use crate::pool::Pool;

/// How a leaf is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Strings, without a dictionary.
    String {
        /// Whether they have bounds.
        has_bounds: bool,
    },
    /// Parquet's INT32, for several Arrow types.
    Int,
    /// Parquet's INT64, for several Arrow types.
    Long,
    /// Parquet's DOUBLE.
    Double,
}

/// Encodes one leaf's chunk of a row group.
pub struct ColumnWriter {
    descr: ColumnDescPtr,
    values: Box<dyn ColumnEncoder>,
    /// Runs of the page's definition levels, and its rows.
    levels: Vec<(u8, usize)>,
    page_rows: usize,
    rows: usize,
    nulls: usize,
    pages: EncodedPages,
}

/// The pages that were written.
struct EncodedPages {
    bytes: ChunkedBuffer,
    uncompressed: usize,
    plain_pages: i32,
    dictionary_pages: i32,
}

impl ColumnWriter {
    /// A writer for a leaf.
    pub fn new(descr: ColumnDescPtr, kind: Kind, pool: &Arc<Pool>) -> Self {
        let values: Box<dyn ColumnEncoder> = match kind {
            Kind::String { has_bounds } => Box::new(StringEncoder::new(has_bounds)),
            Kind::Int => Box::new(NumberEncoder::<i32>::new()),
            Kind::Long => Box::new(NumberEncoder::<i64>::new()),
            Kind::Double => Box::new(NumberEncoder::<f64>::new()),
        };
        Self { descr, values, levels: Vec::new(), page_rows: 0, rows: 0, nulls: 0, pages: EncodedPages::new(pool) }
    }

    /// Appends rows. `nodes`: the nulls of all nullable structs around the leaf and of the leaf itself, beginning at the root.
    pub fn write(
        &mut self,
        nodes: &[Option<NullBuffer>],
        array: &dyn Array,
        compressor: &mut PageCompressor,
    ) -> Result<(), ParquetError> {
        let most = u8::try_from(self.descr.max_def_level()).unwrap_or_default();
        let mut row = 0;
        for (level, count) in runs_of_levels(nodes, array.len(), most) {
            let end = row + count;
            while row < end {
                let room = PAGE_ROWS.saturating_sub(self.page_rows);
                let rows = row..end.min(row + room);
                let (taken, has_room) = if level == most { self.values.take(array, rows)? } else { (rows.len(), true) };
                match self.levels.last_mut() {
                    Some((last, times)) if *last == level => *times += taken,
                    _ => self.levels.push((level, taken)),
                }
                self.nulls += if level == most { 0 } else { taken };
                self.page_rows += taken;
                row += taken;
                if !has_room || self.page_rows >= PAGE_ROWS {
                    self.end_page(compressor)?;
                }
            }
        }
        Ok(())
    }

    fn end_page(&mut self, compressor: &mut PageCompressor) -> Result<(), ParquetError> {
        if self.page_rows == 0 {
            return Ok(());
        }
        let levels = page::levels(&self.levels, self.descr.max_def_level());
        let encoding = self.values.page(&levels, compressor);
        let (header, body, size) = compressor.data_page(self.page_rows, encoding)?;
        self.pages.push(header, body, size);
        *(if encoding == Encoding::PLAIN { &mut self.pages.plain_pages } else { &mut self.pages.dictionary_pages }) +=
            1;
        self.rows += std::mem::take(&mut self.page_rows);
        self.levels.clear();
        Ok(())
    }

    /// All bytes of the chunk, and its description for a footer with offsets from its beginning.
    pub fn close(
        mut self,
        compressor: &mut PageCompressor,
    ) -> Result<(impl Iterator<Item = Bytes> + use<>, ColumnChunkMetaData), ParquetError> {
        self.end_page(compressor)?;
        let Self { descr, mut values, rows, nulls, mut pages, .. } = self;
        let mut dictionary = EncodedPages::new(pages.bytes.pool());
        let distinct = if pages.dictionary_pages > 0 { values.dictionary(compressor.body()) } else { 0 };
        if distinct > 0 {
            let (header, body, size) = compressor.dictionary_page(distinct)?;
            dictionary.push(header, body, size);
        }
        let long = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let mut encodings = vec![Encoding::PLAIN, Encoding::RLE];
        let stats = |page_type, encoding, count| PageEncodingStats { page_type, encoding, count };
        let mut kinds = Vec::new();
        if distinct > 0 {
            encodings.push(Encoding::RLE_DICTIONARY);
            kinds.push(stats(PageType::DICTIONARY_PAGE, Encoding::PLAIN, 1));
            kinds.push(stats(PageType::DATA_PAGE, Encoding::RLE_DICTIONARY, pages.dictionary_pages));
        }
        if pages.plain_pages > 0 {
            kinds.push(stats(PageType::DATA_PAGE, Encoding::PLAIN, pages.plain_pages));
        }
        let (dictionary_size, bytes) = (dictionary.bytes.len(), dictionary.bytes.len() + pages.bytes.len());
        let mut metadata = ColumnChunkMetaData::builder(descr)
            .set_compression(Compression::SNAPPY)
            .set_encodings(encodings)
            .set_page_encoding_stats(kinds)
            .set_total_compressed_size(long(bytes))
            .set_total_uncompressed_size(long(dictionary.uncompressed + pages.uncompressed))
            .set_num_values(long(rows))
            .set_data_page_offset(long(dictionary_size))
            .set_dictionary_page_offset((distinct > 0).then_some(0));
        if let Some(statistics) = values.statistics(nulls as u64) {
            metadata = metadata.set_statistics(statistics);
        }
        Ok((dictionary.bytes.take().chain(pages.bytes.take()), metadata.build()?))
    }
}

impl EncodedPages {
    fn new(pool: &Arc<Pool>) -> Self {
        Self { bytes: ChunkedBuffer::new(pool), uncompressed: 0, plain_pages: 0, dictionary_pages: 0 }
    }

    fn push(&mut self, header: &[u8], body: &[u8], uncompressed: usize) {
        self.bytes.push(header);
        self.bytes.push(body);
        self.uncompressed += header.len() + uncompressed;
    }
}

/// Runs of definition levels, each with its number of rows. A nullable node adds one to the level where it is not null.
fn runs_of_levels(nodes: &[Option<NullBuffer>], rows: usize, most: u8) -> Vec<(u8, usize)> {
    let nulls = |nulls: &Option<NullBuffer>| nulls.clone().filter(|nulls| nulls.null_count() > 0);
    let some: Vec<(u8, NullBuffer)> =
        (0..).zip(nodes).filter_map(|(level, node)| Some((level, nulls(node)?))).collect();
    match some.first() {
        None => return vec![(most, rows)],
        Some((level, first)) if first.null_count() == rows => return vec![(*level, rows)],
        Some(_) => {}
    }
    let mut levels = vec![most; rows];
    // The outermost null decides.
    for (level, nulls) in some.iter().rev() {
        for (row, to) in levels.iter_mut().enumerate() {
            if nulls.is_null(row) {
                *to = *level;
            }
        }
    }
    let mut runs: Vec<(u8, usize)> = Vec::new();
    for level in levels {
        match runs.last_mut() {
            Some((last, times)) if *last == level => *times += 1,
            _ => runs.push((level, 1)),
        }
    }
    runs
}

/// How a leaf with numbers of these types is encoded; `None` if it is left to the parquet crate.
pub fn kind_of_number(physical: PhysicalType, arrow: &ArrowType) -> Option<Kind> {
    use ArrowType as A;
    match (physical, arrow) {
        (PhysicalType::INT32, A::Int32 | A::Date32 | A::Decimal128(..)) => Some(Kind::Int),
        (PhysicalType::INT64, A::Int64 | A::Timestamp(TimeUnit::Microsecond, _) | A::Decimal128(..)) => {
            Some(Kind::Long)
        }
        (PhysicalType::DOUBLE, A::Float64) => Some(Kind::Double),
        _ => None,
    }
}
