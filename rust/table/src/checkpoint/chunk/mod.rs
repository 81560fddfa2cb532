//! Column chunks encoded straight from Arrow arrays, for the leaves that are most of a checkpoint.
//!
//! Paths, statistics and numbers inside optional structs: no levels are made where every row has a value, each text is
//! copied once, pages are compressed in the same memory one after another, and numbers that do not repeat are not looked
//! up in a dictionary. All other leaves are left to the general encoder.
//!
//! Invariant: what is read from a chunk, bounds included, is what the general encoder would have written
//! (`chunk::tests::chunks_are_those_of_the_general_encoder`).
//!
//! Parquet format: "Column chunks", "Nested Encoding", "Data Pages", "Statistics".

mod hybrid;
mod numbers;
mod page;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod texts;
mod tree;
mod words;

use std::ops::Range;
use std::sync::Arc;

use arrow_array::Array;
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType as ArrowType, TimeUnit};
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, PageType, Type as PhysicalType};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, PageEncodingStats};
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescPtr;

use self::numbers::Numbers;
pub(super) use self::page::Press;
use self::texts::Texts;
pub(super) use self::tree::{Slot, Tree};
use super::memory::Pool;
use super::pieces::Pieces;

/// Rows of a page at most, as readers expect them.
const PAGE_ROWS: usize = 20_000;

/// The values of a page that is being filled.
trait Values: Send {
    /// Takes the values at `rows` of `array`, or the first of them: at least one if the page has none yet. Returns how
    /// many, and whether the page has room for more.
    fn take(&mut self, array: &dyn Array, rows: Range<usize>) -> Result<(usize, bool), ParquetError>;

    /// The bytes of the page behind `levels`, which are left in `press`, with how they are encoded. Begins the next page.
    fn page(&mut self, levels: &[u8], press: &mut Press) -> Encoding;

    /// How many values there are in the dictionary, and they themselves, for pages that refer to them.
    fn dictionary(&mut self, out: &mut Vec<u8>) -> usize;

    /// Memory that the next one may use.
    fn memory(&mut self) -> Memory;

    /// Bounds of all values.
    fn statistics(&self, nulls: u64) -> Option<Statistics>;
}

/// Room for the values of a page, and for their codes.
#[derive(Default)]
struct Memory {
    page: Vec<u8>,
    codes: Vec<u32>,
}

/// What a leaf is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Texts that do not repeat, whether or not they have bounds.
    Text {
        has_bounds: bool,
    },
    /// Numbers of Parquet's types, each of which comes from several of Arrow's.
    Int,
    Long,
    Double,
}

/// One leaf's chunk of a row group that is being encoded.
pub(super) struct ChunkWriter {
    descr: ColumnDescPtr,
    values: Box<dyn Values>,
    /// Runs of definition levels of the page, and how many rows it has.
    levels: Vec<(u8, usize)>,
    page_rows: usize,
    rows: usize,
    nulls: usize,
    pages: Pages,
}

/// What was written.
struct Pages {
    bytes: Pieces,
    uncompressed: usize,
    plain: i32,
    coded: i32,
}

impl ChunkWriter {
    pub(super) fn new(descr: ColumnDescPtr, kind: Kind, pool: &Arc<Pool>, press: &mut Press) -> Self {
        let memory = press.memory();
        let values: Box<dyn Values> = match kind {
            Kind::Text { has_bounds } => Box::new(Texts::new(memory, has_bounds)),
            Kind::Int => Box::new(Numbers::<i32>::new(memory)),
            Kind::Long => Box::new(Numbers::<i64>::new(memory)),
            Kind::Double => Box::new(Numbers::<f64>::new(memory)),
        };
        Self { descr, values, levels: Vec::new(), page_rows: 0, rows: 0, nulls: 0, pages: Pages::new(pool) }
    }

    /// Appends rows. `nodes` are the nulls of all that may be null over the leaf and of itself, the root's first.
    pub(super) fn write(
        &mut self,
        nodes: &[Option<NullBuffer>],
        array: &dyn Array,
        press: &mut Press,
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
                    self.end_page(press)?;
                }
            }
        }
        Ok(())
    }

    fn end_page(&mut self, press: &mut Press) -> Result<(), ParquetError> {
        if self.page_rows == 0 {
            return Ok(());
        }
        let levels = page::levels(&self.levels, self.descr.max_def_level());
        let encoding = self.values.page(&levels, press);
        let (header, body, size) = press.data_page(self.page_rows, encoding)?;
        self.pages.push(header, body, size);
        *(if encoding == Encoding::PLAIN { &mut self.pages.plain } else { &mut self.pages.coded }) += 1;
        self.rows += std::mem::take(&mut self.page_rows);
        self.levels.clear();
        Ok(())
    }

    /// All of its bytes, and what a footer says of them if it begins with them.
    pub(super) fn close(
        mut self,
        press: &mut Press,
    ) -> Result<(impl Iterator<Item = Bytes> + use<>, ColumnChunkMetaData), ParquetError> {
        self.end_page(press)?;
        let Self { descr, mut values, rows, nulls, mut pages, .. } = self;
        let mut first = Pages::new(pages.bytes.pool());
        let distinct = if pages.coded > 0 { values.dictionary(press.body()) } else { 0 };
        if distinct > 0 {
            let (header, body, size) = press.dictionary_page(distinct)?;
            first.push(header, body, size);
        }
        let long = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let mut encodings = vec![Encoding::PLAIN, Encoding::RLE];
        let stats = |page_type, encoding, count| PageEncodingStats { page_type, encoding, count };
        let mut kinds = Vec::new();
        if distinct > 0 {
            encodings.push(Encoding::RLE_DICTIONARY);
            kinds.push(stats(PageType::DICTIONARY_PAGE, Encoding::PLAIN, 1));
            kinds.push(stats(PageType::DATA_PAGE, Encoding::RLE_DICTIONARY, pages.coded));
        }
        if pages.plain > 0 {
            kinds.push(stats(PageType::DATA_PAGE, Encoding::PLAIN, pages.plain));
        }
        let (dictionary, bytes) = (first.bytes.len(), first.bytes.len() + pages.bytes.len());
        let mut metadata = ColumnChunkMetaData::builder(descr)
            .set_compression(Compression::SNAPPY)
            .set_encodings(encodings)
            .set_page_encoding_stats(kinds)
            .set_total_compressed_size(long(bytes))
            .set_total_uncompressed_size(long(first.uncompressed + pages.uncompressed))
            .set_num_values(long(rows))
            .set_data_page_offset(long(dictionary))
            .set_dictionary_page_offset((distinct > 0).then_some(0));
        if let Some(statistics) = values.statistics(nulls as u64) {
            metadata = metadata.set_statistics(statistics);
        }
        press.keep(values.memory());
        Ok((first.bytes.take().chain(pages.bytes.take()), metadata.build()?))
    }
}

impl Pages {
    fn new(pool: &Arc<Pool>) -> Self {
        Self { bytes: Pieces::new(pool), uncompressed: 0, plain: 0, coded: 0 }
    }

    fn push(&mut self, header: &[u8], body: &[u8], uncompressed: usize) {
        self.bytes.push(header);
        self.bytes.push(body);
        self.uncompressed += header.len() + uncompressed;
    }
}

/// Definition levels, each with how many rows in turn have it. A node that may be null adds one where it is there.
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
    // Whatever is null first decides.
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

/// What a leaf is written as that has numbers of such types; `None` if they are left to the general encoder.
pub(super) fn kind_of_number(physical: PhysicalType, arrow: &ArrowType) -> Option<Kind> {
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
