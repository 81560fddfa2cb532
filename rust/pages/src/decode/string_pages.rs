//! Reads the strings of a leaf page by page, from bytes that may come in pieces.

use arrow_buffer::BooleanBuffer;
use parquet::basic::Type as PhysicalType;
use simdutf8::basic::from_utf8;

use super::chunk::{Chunk, Decoded, Failure, NOT_UTF8, Scratch};
use super::page::{CompressedPage, Encoding, NextPage, PageReader, if_complete, take_dictionary};
use super::values::{StringDictionary, StringValues};

/// The most bytes of strings, and how many more for each byte of the pages and for each row: a dictionary can turn a few
/// bytes into very many. Strings that are read and not kept take only time, and may be as long as the parquet crate
/// allows.
const BASE_BYTES: usize = 64 * 1024 * 1024;
const KEPT: Allowance = Allowance { of_byte: 8, of_row: 256 };
const READ: Allowance = Allowance { of_byte: 1024, of_row: 4096 };
pub(super) const TOO_MANY_BYTES: Failure =
    Failure::Corrupt("the strings of a dictionary-encoded column are longer than a file of this size can hold");

struct Allowance {
    of_byte: usize,
    of_row: usize,
}

impl Allowance {
    /// The limit for pages of so many bytes.
    fn of(&self, bytes: usize, rows: usize) -> usize {
        let of_rows = BASE_BYTES.saturating_add(rows.saturating_mul(self.of_row));
        bytes.saturating_mul(self.of_byte).max(of_rows)
    }
}

/// The state of reading the pages of a leaf.
#[derive(Default)]
pub struct StringPages {
    scratch: Scratch,
    dictionary: Dictionary,
    /// How many rows were read.
    at: usize,
    /// Bytes of the pages that were read.
    read: usize,
    /// Bytes of the strings that were passed on.
    passed_on: usize,
}

#[derive(Default)]
enum Dictionary {
    /// Nothing was read yet.
    #[default]
    Unread,
    /// The leaf has none.
    None,
    /// Its strings, and the length of their page, which is in the scratch buffer.
    Known(StringDictionary, usize),
}

/// A page of a leaf, or rows without requested strings.
pub(super) enum Visited<'p> {
    /// So many rows of which none is requested.
    Skipped(usize),
    Page(StringPage<'p>),
}

/// A page with requested strings.
pub(super) struct StringPage<'p> {
    /// Which rows have a string.
    pub(super) defined: BooleanBuffer,
    pub(super) strings: StringValues<'p>,
    /// The most bytes that the strings of all pages so far may have together, if they are kept.
    pub(super) most: usize,
    /// The most bytes that the strings of all pages so far may have together, if they are not kept.
    pub(super) most_read: usize,
}

impl StringPages {
    /// Calls `read` with the strings of the complete pages in `chunk`, without copying them. With `rows`,
    /// other rows may be null. Returns the results, and how many bytes the pages had: the remaining bytes, which are
    /// none after the last pages, belong before the bytes of the next call.
    pub fn read<T>(
        &mut self,
        chunk: Chunk<'_>,
        is_last: bool,
        rows: Option<&BooleanBuffer>,
        mut read: impl FnMut(&[Option<&str>]) -> T,
    ) -> Decoded<(Vec<T>, usize)> {
        let (mut done, mut row, mut bytes) = (Vec::new(), self.at, self.passed_on);
        let length = self.for_each_page(chunk, is_last, rows, |page| {
            let StringPage { defined, strings: mut values, most_read, .. } = match page {
                Visited::Page(page) => page,
                Visited::Skipped(count) => {
                    row += count;
                    done.push(read(&vec![None; count]));
                    return Ok(());
                }
            };
            let mut strings = Vec::with_capacity(defined.len());
            for slot in 0..defined.len() {
                let string = if defined.value(slot) { Some(values.string()?) } else { None };
                let wanted = string.filter(|_| rows.is_none_or(|rows| rows.value(row + slot)));
                bytes += wanted.map_or(0, <[u8]>::len);
                if bytes > most_read {
                    return Err(TOO_MANY_BYTES);
                }
                strings.push(wanted.map(|string| from_utf8(string).map_err(|_| NOT_UTF8)).transpose()?);
            }
            row += defined.len();
            done.push(read(&strings));
            Ok(())
        })?;
        self.passed_on = bytes;
        Ok((done, length))
    }

    /// Calls `visit` with each complete page in `chunk`. Returns how many bytes these pages had.
    pub(super) fn for_each_page(
        &mut self,
        chunk: Chunk<'_>,
        is_last: bool,
        rows: Option<&BooleanBuffer>,
        visit: impl FnMut(Visited<'_>) -> Decoded<()>,
    ) -> Decoded<usize> {
        if chunk.physical != PhysicalType::BYTE_ARRAY {
            return Err(Failure::Unsupported);
        }
        let Self { scratch, dictionary, at, read, .. } = self;
        let Scratch { page: buffer, dictionary: dictionary_buffer, codes } = scratch;
        let mut pages = PageReader::resumed(chunk, *at, is_last, rows)?;
        let mut pass = Pass { chunk, read, codes, visit };
        if let Dictionary::Unread = dictionary {
            let Some(compressed) = if_complete(take_dictionary(&mut pages.rest), is_last)? else { return Ok(0) };
            *dictionary = match compressed {
                Some(compressed) => pass.dictionary(&compressed, dictionary_buffer)?,
                None => Dictionary::None,
            };
        }
        let known = match dictionary {
            Dictionary::Known(strings, length) => dictionary_buffer.get(..*length).map(|page| (&*strings, page)),
            Dictionary::Unread | Dictionary::None => None,
        };
        while let Some(step) = pages.next_page()? {
            pass.on(step, buffer, known)?;
        }
        *at = pages.at;
        Ok(chunk.bytes.len() - pages.rest.len())
    }
}

/// Passes on the strings in pages.
struct Pass<'s, 'c, S> {
    chunk: Chunk<'c>,
    read: &'s mut usize,
    codes: &'s mut Vec<u32>,
    visit: S,
}

impl<S: FnMut(Visited<'_>) -> Decoded<()>> Pass<'_, '_, S> {
    /// Decompresses the dictionary `compressed` into `buffer`.
    fn dictionary(&mut self, compressed: &CompressedPage<'_>, buffer: &mut Vec<u8>) -> Decoded<Dictionary> {
        let page = compressed.open(self.chunk, &mut *buffer)?;
        if page.encoding != Encoding::Plain {
            return Err(Failure::Unsupported);
        }
        let (strings, length) = (StringDictionary::of(&page)?, page.data.len());
        *self.read += length;
        // An uncompressed dictionary is in the piece, which will be freed, so it is copied.
        if compressed.decompressed_size(self.chunk.codec).is_none() {
            *buffer = page.data.to_vec();
        }
        Ok(Dictionary::Known(strings, length))
    }

    fn on(
        &mut self,
        step: NextPage<'_>,
        buffer: &mut Vec<u8>,
        known: Option<(&StringDictionary, &[u8])>,
    ) -> Decoded<()> {
        let page = match step {
            NextPage::Read(compressed) => compressed.open(self.chunk, buffer)?,
            NextPage::Skip(count) => return (self.visit)(Visited::Skipped(count)),
        };
        let defined = page.defined(self.chunk, self.chunk.max_definition)?;
        *self.read += page.data.len();
        let [most, most_read] = [KEPT, READ].map(|allowance| allowance.of(*self.read, self.chunk.rows));
        let strings = StringValues::of(&page, defined.count_set_bits(), known, self.codes)?;
        (self.visit)(Visited::Page(StringPage { defined, strings, most, most_read }))
    }
}
