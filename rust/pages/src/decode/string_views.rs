//! Strings of a leaf, some rows at a time, as views into their pages.
//!
//! Long strings are not copied. The memory of their pages is reused after all views are dropped.

use std::sync::Arc;

use arrow_array::StringViewArray;
use arrow_array::builder::StringViewBuilder;
use arrow_buffer::{BooleanBuffer, Buffer};
use bytes::Bytes;
use parquet::basic::Type as PhysicalType;

use super::chunk::{Chunk, Decoded, Failure, NO_SUCH_ENTRY, NOT_UTF8};
use super::page::{self, CompressedPage, Encoding};
use super::values::{CUT_OFF, StringDictionary};
use crate::pool::Pool;

/// The remaining strings of a leaf that is not repeated.
pub struct StringViews {
    /// The remaining bytes of the chunk.
    bytes: Bytes,
    /// Its description in the footer.
    chunk: Chunk<'static>,
    /// Rows of the remaining pages.
    rows: usize,
    dictionary: Option<(StringDictionary, Buffer)>,
    page: Option<Opened>,
    pool: Arc<Pool>,
}

/// A page whose first strings were returned.
struct Opened {
    defined: BooleanBuffer,
    /// How many rows were returned.
    at: usize,
    values: Values,
}

enum Values {
    /// All strings, one after the other, and the place of the next one.
    Plain(Buffer, usize),
    /// The remaining codes.
    Coded(std::vec::IntoIter<u32>),
}

impl StringViews {
    /// The strings of a chunk with these bytes. `Unsupported` if only the parquet crate can read it.
    pub fn new(chunk: Chunk<'_>, bytes: &Bytes, pool: &Arc<Pool>) -> Decoded<Self> {
        if chunk.physical != PhysicalType::BYTE_ARRAY || chunk.max_repetition > 0 || !page::all_pages_supported(chunk)?
        {
            return Err(Failure::Unsupported);
        }
        let of_footer = Chunk {
            bytes: &[],
            codec: chunk.codec,
            physical: chunk.physical,
            max_definition: chunk.max_definition,
            max_repetition: chunk.max_repetition,
            rows: chunk.rows,
            compressed: chunk.compressed,
            size: chunk.size,
        };
        let mut views = Self {
            bytes: bytes.clone(),
            chunk: of_footer,
            rows: chunk.rows,
            dictionary: None,
            page: None,
            pool: pool.clone(),
        };
        let mut rest: &[u8] = bytes;
        if let Some(compressed) = page::take_dictionary(&mut rest)? {
            let strings = views.open(&compressed, bytes, StringDictionary::of)?;
            views.bytes = bytes.slice_ref(rest);
            views.dictionary = Some(strings);
        }
        Ok(views)
    }

    /// The next `rows` strings.
    pub fn take(&mut self, rows: usize) -> Decoded<StringViewArray> {
        let mut views = StringViewBuilder::with_capacity(rows);
        let mut dictionary = None;
        let mut left = rows;
        while left > 0 {
            let mut opened = match self.page.take() {
                Some(opened) => opened,
                None => self.next_page()?,
            };
            let some = left.min(opened.defined.len() - opened.at);
            let defined = opened.defined.slice(opened.at, some);
            match &mut opened.values {
                Values::Plain(page, at) => {
                    let block = views.append_block(page.clone());
                    for is_defined in &defined {
                        if !is_defined {
                            views.append_null();
                            continue;
                        }
                        let length = page.get(*at..).and_then(<[u8]>::first_chunk).ok_or(CUT_OFF)?;
                        let (length, start) = (u32::from_le_bytes(*length), *at + 4);
                        *at = start.saturating_add(length as usize);
                        if *at > page.len() {
                            return Err(CUT_OFF);
                        }
                        let start = u32::try_from(start).map_err(|_| CUT_OFF)?;
                        views.try_append_view(block, start, length).map_err(|_| NOT_UTF8)?;
                    }
                }
                Values::Coded(codes) => {
                    let (strings, page) = self.dictionary.as_ref().ok_or(NO_SUCH_ENTRY)?;
                    let block = *dictionary.get_or_insert_with(|| views.append_block(page.clone()));
                    for is_defined in &defined {
                        if !is_defined {
                            views.append_null();
                            continue;
                        }
                        let (start, end) = strings.span(codes.next().ok_or(CUT_OFF)?)?;
                        let [start, length] = [start, end - start].map(u32::try_from);
                        let (start, length) = (start.map_err(|_| CUT_OFF)?, length.map_err(|_| CUT_OFF)?);
                        views.try_append_view(block, start, length).map_err(|_| NOT_UTF8)?;
                    }
                }
            }
            opened.at += some;
            left -= some;
            self.page = Some(opened).filter(|opened| opened.at < opened.defined.len());
        }
        Ok(views.finish())
    }

    fn next_page(&mut self) -> Decoded<Opened> {
        let bytes = self.bytes.clone();
        let mut rest: &[u8] = &bytes;
        let compressed = page::take_data_page(&mut rest)?.ok_or(page::OTHER_ROWS)?;
        self.rows = self.rows.checked_sub(compressed.values).ok_or(page::OTHER_ROWS)?;
        self.bytes = bytes.slice_ref(rest);
        let ((defined, codes), data) = self.open(&compressed, &bytes, |page| self.levels(page))?;
        let values = match compressed.encoding {
            Encoding::Plain => Values::Plain(data, 0),
            Encoding::Dictionary => Values::Coded(codes.into_iter()),
            Encoding::Rle | Encoding::Other => return Err(Failure::Unsupported),
        };
        Ok(Opened { defined, at: 0, values })
    }

    /// Which rows of a page have a string, and the codes of these strings, if they have codes.
    fn levels(&self, page: &page::Page<'_>) -> Decoded<(BooleanBuffer, Vec<u32>)> {
        let defined = page.defined(self.chunk, self.chunk.max_definition)?;
        let mut codes = Vec::new();
        if page.encoding == Encoding::Dictionary {
            page.codes(defined.count_set_bits(), &mut codes)?;
        }
        Ok((defined, codes))
    }

    /// Opens a page in `bytes`, and returns the result of `read` and the values.
    fn open<T>(
        &self,
        compressed: &CompressedPage<'_>,
        bytes: &Bytes,
        read: impl FnOnce(&page::Page<'_>) -> Decoded<T>,
    ) -> Decoded<(T, Buffer)> {
        let mut memory = match compressed.buffer_size(self.chunk.codec) {
            0 => Vec::new(),
            size => self.pool.take(size),
        };
        let page = compressed.open(self.chunk, &mut memory)?;
        let (made, length) = (read(&page)?, page.data.len());
        let Some(size) = compressed.decompressed_size(self.chunk.codec) else {
            let values = bytes.slice_ref(page.data);
            self.pool.put_back(memory);
            return Ok((made, values.into()));
        };
        let shared = Buffer::from(self.pool.shared_bytes(memory));
        let start = size.checked_sub(length).filter(|_| size <= shared.len()).ok_or(CUT_OFF)?;
        Ok((made, shared.slice_with_length(start, length)))
    }
}
