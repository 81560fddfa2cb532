//! The values of a page that is being filled, and how large it gets.

use std::ops::Range;

use arrow_array::Array;
use parquet::basic::Encoding;
use parquet::errors::ParquetError;
use parquet::file::statistics::Statistics;

use super::page::PageCompressor;

/// Bytes of a string kept in the bounds of a column chunk: longer than any statistic, shorter than JSON.
pub const BOUND_BYTES: usize = 256;
/// Bytes of distinct values of a column chunk beyond which they do not repeat enough to be worth a dictionary.
pub const DICTIONARY_BYTES: usize = 32 * 1024;
/// Bytes of a page, about: in a row group that spans many keys, each has few rows, and most pages of paths are skipped.
/// What compresses them looks back no further.
pub const PAGE_BYTES: usize = 64 * 1024;
/// Rows of a page at most, as readers expect them.
pub(super) const PAGE_ROWS: usize = 20_000;

/// The values of a page that is being filled.
pub(super) trait ColumnEncoder: Send {
    /// Takes the values at `rows` of `array`, or the first of them: at least one if the page has none yet. Returns how
    /// many, and whether the page has room for more.
    fn take(&mut self, array: &dyn Array, rows: Range<usize>) -> Result<(usize, bool), ParquetError>;

    /// The bytes of the page behind `levels`, which are left in `compressor`, with how they are encoded. Begins the next page.
    fn page(&mut self, levels: &[u8], compressor: &mut PageCompressor) -> Encoding;

    /// How many values there are in the dictionary, and they themselves, for pages that refer to them.
    fn dictionary(&mut self, out: &mut Vec<u8>) -> usize;

    /// Bounds of all values.
    fn statistics(&self, nulls: u64) -> Option<Statistics>;
}
