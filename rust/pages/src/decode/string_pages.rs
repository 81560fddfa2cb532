//! The strings of a leaf page by page, whose bytes may come piece by piece.

use arrow_buffer::BooleanBuffer;
use parquet::basic::Type as PhysicalType;
use simdutf8::basic::from_utf8;

use super::chunk::{Chunk, Decoded, Failure, NOT_UTF8, Scratch};
use super::page::{CompressedPage, Encoding, PageReader, Step, dictionary as packed_dictionary, whole};
use super::values::{StringDictionary, StringValues};

/// StringValues may take this much, and so much more for each byte of the pages and for each row: a dictionary makes a little
/// endlessly much. Those that are read and not kept take time alone, and may be as long as the general decoder allows.
const FREE_TEXT: usize = 64 * 1024 * 1024;
const KEPT: Allowance = Allowance { of_byte: 8, of_row: 256 };
const READ: Allowance = Allowance { of_byte: 1024, of_row: 4096 };
pub(super) const TOO_MANY_BYTES: Failure =
    Failure::Corrupt("a dictionary makes more string than a file of this size has");

struct Allowance {
    of_byte: usize,
    of_row: usize,
}

impl Allowance {
    /// For pages of so many bytes.
    fn of(&self, bytes: usize, rows: usize) -> usize {
        let of_rows = FREE_TEXT.saturating_add(rows.saturating_mul(self.of_row));
        bytes.saturating_mul(self.of_byte).max(of_rows)
    }
}

/// How far the pages of a leaf were read.
#[derive(Default)]
pub struct StringPages {
    scratch: Scratch,
    dictionary: Dictionary,
    /// Rows so far.
    at: usize,
    /// Bytes of the pages so far.
    read: usize,
    /// Bytes of the strings that were shown.
    shown: usize,
}

#[derive(Default)]
enum Dictionary {
    /// Nothing was read yet.
    #[default]
    Unread,
    /// There is none.
    None,
    /// Its strings, and how long their page is, which stands in the scratch.
    Known(StringDictionary, usize),
}

/// Rows of a leaf, one page after the other.
pub(super) enum Shown<'p> {
    /// None of them is wanted.
    Unwanted(usize),
    Page(StringPage<'p>),
}

/// A page in which strings are wanted.
pub(super) struct StringPage<'p> {
    /// Which rows have a string.
    pub(super) there: BooleanBuffer,
    pub(super) strings: StringValues<'p>,
    /// How long the strings of all pages so far may be together, if they are kept.
    pub(super) most: usize,
    /// The same if they are not.
    pub(super) most_read: usize,
}

impl StringPages {
    /// Shows `read` the strings of the pages that are whole in `chunk`, as they stand there; of `rows` alone if given, where
    /// others may be none. Gives what it made of them, and how many bytes they were: of those that are left, which are
    /// none after the last ones, the bytes that follow are the continuation.
    pub fn read<T>(
        &mut self,
        chunk: Chunk<'_>,
        is_last: bool,
        rows: Option<&BooleanBuffer>,
        mut read: impl FnMut(&[Option<&str>]) -> T,
    ) -> Decoded<(Vec<T>, usize)> {
        let (mut done, mut row, mut bytes) = (Vec::new(), self.at, self.shown);
        let length = self.show(chunk, is_last, rows, |page| {
            let StringPage { there, strings: mut values, most_read, .. } = match page {
                Shown::Page(page) => page,
                Shown::Unwanted(count) => {
                    row += count;
                    done.push(read(&vec![None; count]));
                    return Ok(());
                }
            };
            let mut strings = Vec::with_capacity(there.len());
            for slot in 0..there.len() {
                let string = if there.value(slot) { Some(values.string()?) } else { None };
                let wanted = string.filter(|_| rows.is_none_or(|rows| rows.value(row + slot)));
                bytes += wanted.map_or(0, <[u8]>::len);
                if bytes > most_read {
                    return Err(TOO_MANY_BYTES);
                }
                strings.push(wanted.map(|string| from_utf8(string).map_err(|_| NOT_UTF8)).transpose()?);
            }
            row += there.len();
            done.push(read(&strings));
            Ok(())
        })?;
        self.shown = bytes;
        Ok((done, length))
    }

    /// The same, page by page as they are. Gives how many bytes they were.
    pub(super) fn show(
        &mut self,
        chunk: Chunk<'_>,
        is_last: bool,
        rows: Option<&BooleanBuffer>,
        show: impl FnMut(Shown<'_>) -> Decoded<()>,
    ) -> Decoded<usize> {
        if chunk.physical != PhysicalType::BYTE_ARRAY {
            return Err(Failure::Unsupported);
        }
        let Self { scratch, dictionary, at, read, .. } = self;
        let Scratch { page: buffer, dictionary: dictionary_buffer, codes } = scratch;
        let mut pages = PageReader::resumed(chunk, *at, is_last, rows)?;
        let mut pass = Pass { chunk, read, codes, show };
        if let Dictionary::Unread = dictionary {
            let Some(packed) = whole(packed_dictionary(&mut pages.rest), is_last)? else { return Ok(0) };
            *dictionary = match packed {
                Some(packed) => pass.dictionary(&packed, dictionary_buffer)?,
                None => Dictionary::None,
            };
        }
        let known = match dictionary {
            Dictionary::Known(strings, length) => dictionary_buffer.get(..*length).map(|page| (&*strings, page)),
            Dictionary::Unread | Dictionary::None => None,
        };
        while let Some(step) = pages.step()? {
            pass.on(step, buffer, known)?;
        }
        *at = pages.at;
        Ok(chunk.bytes.len() - pages.rest.len())
    }
}

/// Passes on what is in pages.
struct Pass<'s, 'c, S> {
    chunk: Chunk<'c>,
    read: &'s mut usize,
    codes: &'s mut Vec<u32>,
    show: S,
}

impl<S: FnMut(Shown<'_>) -> Decoded<()>> Pass<'_, '_, S> {
    /// Opens the dictionary, which is `packed`, into `buffer`.
    fn dictionary(&mut self, packed: &CompressedPage<'_>, buffer: &mut Vec<u8>) -> Decoded<Dictionary> {
        let page = packed.open(self.chunk, &mut *buffer)?;
        if page.encoding != Encoding::Plain {
            return Err(Failure::Unsupported);
        }
        let (strings, length) = (StringDictionary::of(&page)?, page.data.len());
        *self.read += length;
        // What is not compressed stands in the piece, which goes.
        if packed.unpacked(self.chunk.codec).is_none() {
            *buffer = page.data.to_vec();
        }
        Ok(Dictionary::Known(strings, length))
    }

    fn on(&mut self, step: Step<'_>, buffer: &mut Vec<u8>, known: Option<(&StringDictionary, &[u8])>) -> Decoded<()> {
        let page = match step {
            Step::Wanted(packed) => packed.open(self.chunk, buffer)?,
            Step::Unwanted(count) => return (self.show)(Shown::Unwanted(count)),
        };
        let there = page.defined(self.chunk, self.chunk.max_definition)?;
        *self.read += page.data.len();
        let [most, most_read] = [KEPT, READ].map(|allowance| allowance.of(*self.read, self.chunk.rows));
        let strings = StringValues::of(&page, there.count_set_bits(), known, self.codes)?;
        (self.show)(Shown::Page(StringPage { there, strings, most, most_read }))
    }
}
