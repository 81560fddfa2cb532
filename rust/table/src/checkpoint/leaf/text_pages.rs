//! The texts of a leaf page by page, whose bytes may come piece by piece.

use arrow_buffer::BooleanBuffer;
use parquet::basic::Type as PhysicalType;
use simdutf8::basic::from_utf8;

use super::page::{Encoding, Opened, Packed, Pages, Step, dictionary, each_opened, whole};
use super::values::{TextDictionary, Texts};
use super::{Chunk, Decoded, Lent, NO_UTF8, Scratch, Stop};

/// Texts may take this much, and so much more for each byte of the pages: a dictionary makes a little endlessly much.
const FREE_TEXT: usize = 64 * 1024 * 1024;
pub(super) const TEXT_RATIO: usize = 8;

/// How far the pages of a leaf were read.
pub(crate) struct TextPages {
    scratch: Lent,
    /// `None` until it is known whether there is one.
    dictionary: Option<Dictionary>,
    /// Rows so far.
    at: usize,
    /// Bytes of the pages so far.
    read: usize,
}

enum Dictionary {
    /// There is none, or its memory is that of other pages by now.
    None,
    /// Its texts, and how long their page is, which stands in the scratch.
    Known(TextDictionary, usize),
}

/// Rows of a leaf, one page after the other.
pub(super) enum Shown<'p> {
    /// None of them is wanted.
    Unwanted(usize),
    /// Which of them have a text, these texts, and how long those of all pages so far may be together.
    Page(BooleanBuffer, Texts<'p>, usize),
}

impl TextPages {
    pub(crate) fn new() -> Self {
        Self { scratch: Lent::new(), dictionary: None, at: 0, read: 0 }
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
        let (mut done, mut shown) = (Vec::new(), self.at);
        let length = self.show(chunk, is_last, rows, |page| {
            let (there, mut values) = match page {
                Shown::Page(there, values, _) => (there, values),
                Shown::Unwanted(count) => {
                    shown += count;
                    done.push(read(&vec![None; count]));
                    return Ok(());
                }
            };
            let mut texts = Vec::with_capacity(there.len());
            for slot in 0..there.len() {
                let bytes = if there.value(slot) { Some(values.text()?) } else { None };
                let wanted = bytes.filter(|_| rows.is_none_or(|rows| rows.value(shown + slot)));
                texts.push(wanted.map(|bytes| from_utf8(bytes).map_err(|_| NO_UTF8)).transpose()?);
            }
            shown += there.len();
            done.push(read(&texts));
            Ok(())
        })?;
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
        let Self { scratch: Lent(scratch), dictionary: state, at, read } = self;
        let Scratch { pages: [first_buffer, second_buffer], dictionary: dictionary_buffer, codes } = scratch;
        let mut pages = Pages::resumed(chunk, *at, is_last, rows)?;
        let mut pass = Pass { chunk, read, codes, show };
        if state.is_none() {
            let Some(packed) = whole(dictionary(&mut pages.rest), is_last)? else { return Ok(0) };
            // Of a dictionary that grew too large, the first page has codes, which are few bytes. The second is as large
            // as it.
            let front = if packed.is_some() { [pages.step()?, pages.step()?] } else { [None, None] };
            let (page, second) = match (&packed, &front[1]) {
                (Some(packed), Some(Step::Wanted(second))) => {
                    let both = [(packed, chunk), (second, chunk)];
                    let (page, second) = Packed::open_two(both, (&mut *dictionary_buffer, &mut *second_buffer))?;
                    (Some(page), Some(second))
                }
                (Some(packed), _) => (Some(packed.open(chunk, &mut *dictionary_buffer)?), None),
                (None, _) => (None, None),
            };
            if page.as_ref().is_some_and(|page| page.encoding != Encoding::Plain) {
                return Err(Stop::Rare);
            }
            let texts = page.as_ref().map(TextDictionary::of).transpose()?;
            let known = texts.as_ref().zip(page.as_ref().map(|page| page.data));
            *pass.read += known.map_or(0, |(_, page)| page.len());
            // Who gave a dictionary up does not come back to it, so that its memory may be that of other pages.
            let is_given_up = second.as_ref().is_some_and(|page| page.encoding == Encoding::Plain);
            for (step, page) in front.into_iter().zip([None, second]) {
                match (step, page) {
                    (_, Some(page)) => pass.on(Opened::Page(page), known)?,
                    (Some(Step::Wanted(packed)), None) => {
                        pass.on(Opened::Page(packed.open(chunk, &mut *first_buffer)?), known)?;
                    }
                    (Some(Step::Unwanted(count)), None) => pass.on(Opened::Unwanted(count), known)?,
                    (None, None) => {}
                }
            }
            let length = page.as_ref().map_or(0, |page| page.data.len());
            // What is not compressed stands in the piece.
            let in_piece = packed.is_some_and(|packed| packed.unpacked(chunk.codec).is_none());
            if let Some(page) = page.filter(|_| in_piece).map(|page| page.data.to_vec()) {
                *dictionary_buffer = page;
            }
            *state = Some(match texts {
                Some(texts) if !is_given_up => Dictionary::Known(texts, length),
                _ => Dictionary::None,
            });
        }
        match state {
            Some(Dictionary::Known(texts, length)) => {
                let known = dictionary_buffer.get(..*length).map(|page| (&*texts, page));
                each_opened(chunk, [first_buffer, second_buffer], || pages.step(), |page| pass.on(page, known))?;
            }
            _ => {
                let buffers = [dictionary_buffer, second_buffer];
                each_opened(chunk, buffers, || pages.step(), |page| pass.on(page, None))?;
            }
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
    fn on(&mut self, opened: Opened<'_>, known: Option<(&TextDictionary, &[u8])>) -> Decoded<()> {
        let page = match opened {
            Opened::Page(page) => page,
            Opened::Unwanted(count) => return (self.show)(Shown::Unwanted(count)),
        };
        let there = page.defined(self.chunk, self.chunk.max_definition)?;
        *self.read += page.data.len();
        let most = self.read.saturating_mul(TEXT_RATIO).max(FREE_TEXT);
        let values = Texts::of(&page, there.count_set_bits(), known, self.codes)?;
        (self.show)(Shown::Page(there, values, most))
    }
}
