//! Encodes strings, each after its length.
//!
//! Parquet format: "Plain".

use std::ops::Range;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use parquet::basic::Encoding;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::statistics::Statistics;

use super::page::PageCompressor;
use super::values::{BOUND_BYTES, ColumnEncoder, PAGE_BYTES};

/// Room for levels before the strings; they take few bytes if all rows have a string.
const LEVELS: usize = 32;

/// The strings of a page, and the bounds of all strings.
pub(super) struct StringEncoder {
    page: Vec<u8>,
    bounds: Option<Bounds>,
}

#[derive(Default)]
struct Bounds {
    min: Option<Vec<u8>>,
    max: Option<Vec<u8>>,
}

impl StringEncoder {
    pub(super) fn new(has_bounds: bool) -> Self {
        Self { page: Vec::new(), bounds: has_bounds.then(Bounds::default) }
    }

    fn take_all<'t>(&mut self, strings: impl Iterator<Item = &'t str>) -> Result<(usize, bool), ParquetError> {
        if self.page.is_empty() {
            self.page.reserve(LEVELS + PAGE_BYTES);
            self.page.resize(LEVELS, 0);
        }
        let mut taken = 0;
        for string in strings {
            if self.page.len() > LEVELS && self.page.len() + 4 + string.len() > PAGE_BYTES {
                return Ok((taken, false));
            }
            let length = u32::try_from(string.len())
                .map_err(|_| ParquetError::General("a string is longer than Parquet allows".to_owned()))?;
            self.page.extend_from_slice(&length.to_le_bytes());
            self.page.extend_from_slice(string.as_bytes());
            if let Some(bounds) = &mut self.bounds {
                bounds.widen(string.as_bytes());
            }
            taken += 1;
        }
        Ok((taken, true))
    }
}

impl Bounds {
    fn widen(&mut self, string: &[u8]) {
        if self.min.as_deref().is_none_or(|min| string < min) {
            Self::replace(&mut self.min, string);
        }
        if self.max.as_deref().is_none_or(|max| string > max) {
            Self::replace(&mut self.max, string);
        }
    }

    /// Reuses the memory of the bound: if strings ascend, each one is the greatest so far.
    fn replace(bound: &mut Option<Vec<u8>>, string: &[u8]) {
        let bound = bound.get_or_insert_default();
        bound.clear();
        bound.extend_from_slice(string);
    }
}

impl ColumnEncoder for StringEncoder {
    fn take(&mut self, array: &dyn Array, rows: Range<usize>) -> Result<(usize, bool), ParquetError> {
        if let Some(strings) = array.as_string_view_opt() {
            return self.take_all(rows.map(|row| strings.value(row)));
        }
        match array.as_string_opt::<i32>() {
            Some(strings) => self.take_all(rows.map(|row| strings.value(row))),
            None => Err(ParquetError::General("a column of strings has others".to_owned())),
        }
    }

    fn page(&mut self, levels: &[u8], compressor: &mut PageCompressor) -> Encoding {
        match self.page.get_mut(..LEVELS).and_then(|head| {
            let start = LEVELS.checked_sub(levels.len())?;
            head.get_mut(start..)?.copy_from_slice(levels);
            Some(start)
        }) {
            Some(start) => compressor.exchange(&mut self.page, start),
            None => {
                let body = compressor.body();
                body.extend_from_slice(levels);
                body.extend_from_slice(self.page.get(LEVELS..).unwrap_or_default());
                self.page.clear();
            }
        }
        Encoding::PLAIN
    }

    fn dictionary(&mut self, _: &mut Vec<u8>) -> usize {
        0
    }

    fn statistics(&self, nulls: u64) -> Option<Statistics> {
        let Bounds { min, max } = self.bounds.as_ref()?;
        // Strings that are too long have no bound, since a shortened one would not be exact.
        let bound =
            |string: &Option<Vec<u8>>| string.clone().filter(|string| string.len() <= BOUND_BYTES).map(ByteArray::from);
        let (min, max) = bound(min).zip(bound(max)).unzip();
        Some(Statistics::byte_array(min, max, None, Some(nulls), false))
    }
}
