//! The texts of a leaf, page by page, and all of them in one array.

use arrow_array::StringArray;
use arrow_buffer::bit_chunk_iterator::UnalignedBitChunk;
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, NullBuffer, OffsetBuffer};

use super::page::{Encoding, Opened, Packed, Pages, Step, check, dictionary, each_opened};
use super::values::{TextDictionary, Texts};
use super::{Chunk, Decoded, NO_UTF8, Scratch, Stop, with_scratch};
use crate::large::Large;

/// Texts may take this much, and so much more for each byte of the pages: a dictionary makes a little endlessly much.
const FREE_TEXT: usize = 64 * 1024 * 1024;
const TEXT_RATIO: usize = 8;
pub(super) const TOO_MUCH_TEXT: Stop = Stop::Broken("a dictionary makes more text than a file of this size has");

/// Rows of a leaf, one page after the other.
pub(super) enum Shown<'p> {
    /// None of them is wanted.
    Unwanted(usize),
    /// Which of them have a text, these texts, and how long those of all pages so far may be together.
    Page(BooleanBuffer, Texts<'p>, usize),
}

/// Shows the pages of a leaf in order, `rows` alone if given.
pub(super) fn each_page(
    chunk: Chunk<'_>,
    rows: Option<&BooleanBuffer>,
    show: impl FnMut(Shown<'_>) -> Decoded<()>,
) -> Decoded<()> {
    with_scratch(|scratch| {
        let Scratch { pages: [first_buffer, second_buffer], dictionary: dictionary_buffer, codes } = scratch;
        check(chunk, rows)?;
        let mut rest = chunk.bytes;
        let packed = dictionary(&mut rest)?;
        let mut pages = Pages::after_dictionary(chunk, rest, rows);
        // Of a dictionary that grew too large, the first page has codes, which are few bytes. The second is as large as it.
        let front = if packed.is_some() { [pages.step()?, pages.step()?] } else { [None, None] };
        let (dictionary, second) = match (packed, &front[1]) {
            (Some(packed), Some(Step::Wanted(second))) => {
                let both = [(&packed, chunk), (second, chunk)];
                let (page, second) = Packed::open_two(both, (&mut *dictionary_buffer, &mut *second_buffer))?;
                (Some(page), Some(second))
            }
            (packed, _) => (packed.map(|packed| packed.open(chunk, &mut *dictionary_buffer)).transpose()?, None),
        };
        if dictionary.as_ref().is_some_and(|page| page.encoding != Encoding::Plain) {
            return Err(Stop::Rare);
        }
        let texts = dictionary.as_ref().map(TextDictionary::of).transpose()?;
        let known = texts.as_ref().zip(dictionary.as_ref().map(|page| page.data));
        let mut pass = Pass { chunk, read: known.map_or(0, |(_, page)| page.len()), codes, show };
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
        if is_given_up {
            return each_opened(chunk, [dictionary_buffer, second_buffer], || pages.step(), |page| pass.on(page, None));
        }
        each_opened(chunk, [first_buffer, second_buffer], || pages.step(), |page| pass.on(page, known))
    })
}

/// Passes on what is in pages.
struct Pass<'s, 'c, S> {
    chunk: Chunk<'c>,
    /// Bytes of the pages so far.
    read: usize,
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
        self.read += page.data.len();
        let most = self.read.saturating_mul(TEXT_RATIO).max(FREE_TEXT);
        let values = Texts::of(&page, there.count_set_bits(), known, self.codes)?;
        (self.show)(Shown::Page(there, values, most))
    }
}

/// The texts of a leaf; of `rows` alone if given, where others may be null.
pub(super) fn texts(chunk: Chunk<'_>, rows: Option<&BooleanBuffer>) -> Decoded<StringArray> {
    // Room for all at once.
    let mut bytes = Large::with_room(if rows.is_none() { likely(chunk) } else { 0 }).map_err(|_| Stop::Rare)?;
    let mut offsets = Vec::with_capacity(chunk.rows + 1);
    let (mut valid, mut end) = (BooleanBufferBuilder::new(chunk.rows), 0);
    offsets.push(end);
    each_page(chunk, rows, |shown| {
        let (there, mut texts, most) = match shown {
            Shown::Unwanted(count) => {
                offsets.resize(offsets.len() + count, end);
                valid.append_n(count, false);
                return Ok(());
            }
            Shown::Page(there, texts, most) => (there, texts, most),
        };
        let first = valid.len();
        for slot in 0..there.len() {
            if there.value(slot) {
                let text = texts.text()?;
                if rows.is_none_or(|rows| rows.value(first + slot)) {
                    bytes.extend(text).map_err(|_| Stop::Rare)?;
                    if bytes.len() > most {
                        return Err(TOO_MUCH_TEXT);
                    }
                    end = i32::try_from(bytes.len()).map_err(|_| Stop::Rare)?;
                }
            }
            offsets.push(end);
        }
        valid.append_buffer(&there);
        Ok(())
    })?;
    let offsets = OffsetBuffer::new(offsets.into());
    StringArray::try_new(offsets, bytes.into_bytes().into(), nulls(valid)).map_err(|_| NO_UTF8)
}

/// How long the texts of a leaf are together with their lengths, as far as the file's own bytes justify it.
pub(super) fn likely(chunk: Chunk<'_>) -> usize {
    chunk.size.min(chunk.bytes.len().saturating_mul(TEXT_RATIO))
}

/// How many of these rows have a value.
pub(super) fn there_in(nulls: Option<&NullBuffer>, from: usize, to: usize) -> usize {
    match nulls {
        None => to - from,
        Some(nulls) if to == from + 1 => usize::from(nulls.is_valid(from)),
        Some(nulls) => UnalignedBitChunk::new(nulls.validity(), nulls.offset() + from, to - from).count_ones(),
    }
}

pub(super) fn nulls(mut valid: BooleanBufferBuilder) -> Option<NullBuffer> {
    Some(NullBuffer::new(valid.finish())).filter(|nulls| nulls.null_count() > 0)
}
