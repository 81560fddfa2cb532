//! The texts of a leaf page by page, whose bytes may come piece by piece.

use arrow_buffer::BooleanBuffer;
use parquet::basic::Type as PhysicalType;
use simdutf8::basic::from_utf8;

use super::page::{Encoding, Opened, Packed, Pages, Step, dictionary as packed_dictionary, each_opened, whole};
use super::values::{TextDictionary, Texts};
use super::{Chunk, Decoded, Lent, NO_UTF8, Scratch, Stop};

/// Texts may take this much, and so much more for each byte of the pages and for each row: a dictionary makes a little
/// endlessly much. Those that are read and not kept take time alone, and may be as long as the general decoder allows.
const FREE_TEXT: usize = 64 * 1024 * 1024;
const KEPT: Allowance = Allowance { of_byte: 8, of_row: 256 };
const READ: Allowance = Allowance { of_byte: 1024, of_row: 4096 };
pub(super) const TOO_MUCH_TEXT: Stop = Stop::Broken("a dictionary makes more text than a file of this size has");

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
pub(crate) struct TextPages {
    scratch: Lent,
    dictionary: Dictionary,
    /// Rows so far.
    at: usize,
    /// Bytes of the pages so far.
    read: usize,
    /// Bytes of the texts that were shown.
    shown: usize,
}

enum Dictionary {
    /// Nothing was read yet.
    Unread,
    /// There is none, or its memory is that of other pages by now.
    None,
    /// Its texts, and how long their page is, which stands in the scratch.
    Known(TextDictionary, usize),
}

/// Rows of a leaf, one page after the other.
pub(super) enum Shown<'p> {
    /// None of them is wanted.
    Unwanted(usize),
    Page(TextPage<'p>),
}

/// A page in which texts are wanted.
pub(super) struct TextPage<'p> {
    /// Which rows have a text.
    pub(super) there: BooleanBuffer,
    pub(super) texts: Texts<'p>,
    /// How long the texts of all pages so far may be together, if they are kept.
    pub(super) most: usize,
    /// The same if they are not.
    most_read: usize,
}

impl TextPages {
    pub(crate) fn new() -> Self {
        Self { scratch: Lent::new(), dictionary: Dictionary::Unread, at: 0, read: 0, shown: 0 }
    }

    /// Shows `read` the texts of the pages that are whole in `chunk`, as they stand there; of `rows` alone if given, where
    /// others may be none. Gives what it made of them, and how many bytes they were: of those that are left, which are
    /// none after the last ones, the bytes that follow are the continuation.
    pub(crate) fn read<T>(
        &mut self,
        chunk: Chunk<'_>,
        is_last: bool,
        rows: Option<&BooleanBuffer>,
        mut read: impl FnMut(&[Option<&str>]) -> T,
    ) -> Decoded<(Vec<T>, usize)> {
        let (mut done, mut row, mut bytes) = (Vec::new(), self.at, self.shown);
        let length = self.show(chunk, is_last, rows, |page| {
            let TextPage { there, texts: mut values, most_read, .. } = match page {
                Shown::Page(page) => page,
                Shown::Unwanted(count) => {
                    row += count;
                    done.push(read(&vec![None; count]));
                    return Ok(());
                }
            };
            let mut texts = Vec::with_capacity(there.len());
            for slot in 0..there.len() {
                let text = if there.value(slot) { Some(values.text()?) } else { None };
                let wanted = text.filter(|_| rows.is_none_or(|rows| rows.value(row + slot)));
                bytes += wanted.map_or(0, <[u8]>::len);
                if bytes > most_read {
                    return Err(TOO_MUCH_TEXT);
                }
                texts.push(wanted.map(|text| from_utf8(text).map_err(|_| NO_UTF8)).transpose()?);
            }
            row += there.len();
            done.push(read(&texts));
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
            return Err(Stop::Rare);
        }
        let Self { scratch: Lent(scratch), dictionary, at, read, .. } = self;
        let Scratch { pages: buffers, dictionary: buffer, codes } = scratch;
        let mut pages = Pages::resumed(chunk, *at, is_last, rows)?;
        let mut pass = Pass { chunk, read, codes, show };
        if let Dictionary::Unread = dictionary {
            let Some(packed) = whole(packed_dictionary(&mut pages.rest), is_last)? else { return Ok(0) };
            *dictionary = match packed {
                Some(packed) => pass.front(&packed, &mut pages, buffer, buffers)?,
                None => Dictionary::None,
            };
        }
        let [first, second] = buffers;
        match dictionary {
            Dictionary::Known(texts, length) => {
                let known = buffer.get(..*length).map(|page| (&*texts, page));
                each_opened(chunk, [first, second], || pages.step(), |page| pass.on(page, known))?;
            }
            _ => each_opened(chunk, [buffer, second], || pages.step(), |page| pass.on(page, None))?,
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
    /// Opens the dictionary, which is `packed`, and passes on the first two of the `pages` behind it, as far as they are
    /// there. Of a dictionary that grew too large, the first has codes, which are few bytes, and the second is as large as
    /// it.
    fn front(
        &mut self,
        packed: &Packed<'_>,
        pages: &mut Pages<'_>,
        buffer: &mut Vec<u8>,
        [first, second]: &mut [Vec<u8>; 2],
    ) -> Decoded<Dictionary> {
        let chunk = self.chunk;
        let steps = [pages.step()?, pages.step()?];
        let (dictionary, second) = match &steps[1] {
            Some(Step::Wanted(page)) => {
                let (dictionary, page) = Packed::open_two([(packed, chunk), (page, chunk)], (&mut *buffer, second))?;
                (dictionary, Some(page))
            }
            _ => (packed.open(chunk, &mut *buffer)?, None),
        };
        if dictionary.encoding != Encoding::Plain {
            return Err(Stop::Rare);
        }
        let texts = TextDictionary::of(&dictionary)?;
        let known = Some((&texts, dictionary.data));
        *self.read += dictionary.data.len();
        // Who gave a dictionary up does not come back to it, so that its memory may be that of other pages.
        let is_given_up = second.as_ref().is_some_and(|page| page.encoding == Encoding::Plain);
        for (step, opened) in steps.into_iter().zip([None, second]) {
            match (step, opened) {
                (_, Some(page)) => self.on(Opened::Page(page), known)?,
                (Some(Step::Wanted(page)), None) => self.on(Opened::Page(page.open(chunk, &mut *first)?), known)?,
                (Some(Step::Unwanted(count)), None) => self.on(Opened::Unwanted(count), known)?,
                (None, None) => {}
            }
        }
        if is_given_up {
            return Ok(Dictionary::None);
        }
        let length = dictionary.data.len();
        // What is not compressed stands in the piece, which goes.
        if packed.unpacked(chunk.codec).is_none() {
            *buffer = dictionary.data.to_vec();
        }
        Ok(Dictionary::Known(texts, length))
    }

    fn on(&mut self, opened: Opened<'_>, known: Option<(&TextDictionary, &[u8])>) -> Decoded<()> {
        let page = match opened {
            Opened::Page(page) => page,
            Opened::Unwanted(count) => return (self.show)(Shown::Unwanted(count)),
        };
        let there = page.defined(self.chunk, self.chunk.max_definition)?;
        *self.read += page.data.len();
        let [most, most_read] = [KEPT, READ].map(|allowance| allowance.of(*self.read, self.chunk.rows));
        let texts = Texts::of(&page, there.count_set_bits(), known, self.codes)?;
        (self.show)(Shown::Page(TextPage { there, texts, most, most_read }))
    }
}
