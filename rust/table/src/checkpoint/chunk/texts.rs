//! Texts one behind the other, each behind its length.
//!
//! Parquet format: "Plain".

use std::ops::Range;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use parquet::basic::Encoding;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::statistics::Statistics;

use super::super::encode::{BOUND_BYTES, PAGE_BYTES};
use super::page::Press;
use super::{Memory, Values};

/// Room for levels before the texts, which are few bytes where all rows have one.
const LEVELS: usize = 32;

/// The texts of a page, and the bounds of all.
pub(super) struct Texts {
    page: Vec<u8>,
    bounds: Option<Bounds>,
}

#[derive(Default)]
struct Bounds {
    min: Option<Vec<u8>>,
    max: Option<Vec<u8>>,
}

impl Texts {
    pub(super) fn new(memory: Memory, has_bounds: bool) -> Self {
        Self { page: memory.page, bounds: has_bounds.then(Bounds::default) }
    }

    fn take_all<'t>(&mut self, texts: impl Iterator<Item = &'t str>) -> Result<(usize, bool), ParquetError> {
        if self.page.is_empty() {
            self.page.reserve(LEVELS + PAGE_BYTES);
            self.page.resize(LEVELS, 0);
        }
        let mut taken = 0;
        for text in texts {
            if self.page.len() > LEVELS && self.page.len() + 4 + text.len() > PAGE_BYTES {
                return Ok((taken, false));
            }
            let length = u32::try_from(text.len())
                .map_err(|_| ParquetError::General("a text is longer than Parquet allows".to_owned()))?;
            self.page.extend_from_slice(&length.to_le_bytes());
            self.page.extend_from_slice(text.as_bytes());
            if let Some(bounds) = &mut self.bounds {
                bounds.widen(text.as_bytes());
            }
            taken += 1;
        }
        Ok((taken, true))
    }
}

impl Bounds {
    fn widen(&mut self, text: &[u8]) {
        if self.min.as_deref().is_none_or(|min| text < min) {
            Self::replace(&mut self.min, text);
        }
        if self.max.as_deref().is_none_or(|max| text > max) {
            Self::replace(&mut self.max, text);
        }
    }

    /// In the same memory: in ascending order, each text is the greatest so far.
    fn replace(bound: &mut Option<Vec<u8>>, text: &[u8]) {
        let bound = bound.get_or_insert_default();
        bound.clear();
        bound.extend_from_slice(text);
    }
}

impl Values for Texts {
    fn take(&mut self, array: &dyn Array, rows: Range<usize>) -> Result<(usize, bool), ParquetError> {
        if let Some(texts) = array.as_string_view_opt() {
            return self.take_all(rows.map(|row| texts.value(row)));
        }
        match array.as_string_opt::<i32>() {
            Some(texts) => self.take_all(rows.map(|row| texts.value(row))),
            None => Err(ParquetError::General("a column of texts has others".to_owned())),
        }
    }

    fn page(&mut self, levels: &[u8], press: &mut Press) -> Encoding {
        match self.page.get_mut(..LEVELS).and_then(|head| {
            let start = LEVELS.checked_sub(levels.len())?;
            head.get_mut(start..)?.copy_from_slice(levels);
            Some(start)
        }) {
            Some(start) => press.exchange(&mut self.page, start),
            None => {
                let body = press.body();
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

    fn memory(&mut self) -> Memory {
        Memory { page: std::mem::take(&mut self.page), codes: Vec::new() }
    }

    fn statistics(&self, nulls: u64) -> Option<Statistics> {
        let Bounds { min, max } = self.bounds.as_ref()?;
        // A text that is cut would be no bound of the same kind.
        let bound = |text: &Option<Vec<u8>>| text.clone().filter(|text| text.len() <= BOUND_BYTES).map(ByteArray::from);
        let (min, max) = bound(min).zip(bound(max)).unzip();
        Some(Statistics::byte_array(min, max, None, Some(nulls), false))
    }
}
