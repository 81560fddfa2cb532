//! The trait of encoders for the values of a page, and limits on pages.

use std::ops::Range;

use arrow_array::Array;
use parquet::basic::Encoding;
use parquet::errors::ParquetError;
use parquet::file::statistics::Statistics;

use super::page::PageCompressor;

/// The most bytes of a bound of a string column: longer than any string in statistics, shorter than their JSON.
pub const BOUND_BYTES: usize = 256;
/// The most bytes of distinct values for which a column chunk gets a dictionary.
pub const DICTIONARY_BYTES: usize = 32 * 1024;
/// About how many bytes a page has: small pages let a reader of few paths skip most of them.
/// Snappy does not look back further, either.
pub const PAGE_BYTES: usize = 64 * 1024;
/// The most rows of a page, as readers expect.
pub(super) const PAGE_ROWS: usize = 20_000;

/// Encodes the values of a page.
pub(super) trait ColumnEncoder: Send {
    /// Adds the values at `rows` of `array`, or the first of them: at least one if the page has none yet. Returns how
    /// many, and whether the page has room for more.
    fn take(&mut self, array: &dyn Array, rows: Range<usize>) -> Result<(usize, bool), ParquetError>;

    /// Puts `levels` and the values of the page into `compressor`, and returns their encoding. Begins the next page.
    fn page(&mut self, levels: &[u8], compressor: &mut PageCompressor) -> Encoding;

    /// Appends the values of the dictionary, and returns their number.
    fn dictionary(&mut self, out: &mut Vec<u8>) -> usize;

    /// Bounds of all values.
    fn statistics(&self, nulls: u64) -> Option<Statistics>;
}
