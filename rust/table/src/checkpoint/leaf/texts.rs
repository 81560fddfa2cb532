//! The texts of a leaf, page by page, and all of them in one array.

use arrow_array::StringArray;
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
    mut show: impl FnMut(Shown<'_>) -> Decoded<()>,
) -> Decoded<()> {
    with_scratch(|scratch| {
        let Scratch { pages: buffers, dictionaries: [dictionary_buffer, second_buffer], codes } = scratch;
        check(chunk, rows)?;
        let mut rest = chunk.bytes;
        let packed = dictionary(&mut rest)?;
        let mut pages = Pages::after_dictionary(chunk, rest, rows);
        // Of a dictionary that grew too large, the first page has codes, which are few bytes. The second is as large as it.
        let front = if packed.is_some() { [pages.step()?, pages.step()?] } else { [None, None] };
        let (dictionary, second) = match (packed, &front[1]) {
            (Some(packed), Some(Step::Wanted(second))) => {
                let both = [(&packed, chunk), (second, chunk)];
                let [page, second] = Packed::open_two(both, [dictionary_buffer, second_buffer])?;
                (Some(page), Some(second))
            }
            (packed, _) => (packed.map(|packed| packed.open(chunk, dictionary_buffer)).transpose()?, None),
        };
        if dictionary.as_ref().is_some_and(|page| page.encoding != Encoding::Plain) {
            return Err(Stop::Rare);
        }
        let texts = dictionary.as_ref().map(TextDictionary::of).transpose()?;
        let known = texts.as_ref().zip(dictionary.as_ref().map(|page| page.data));
        let mut read = known.map_or(0, |(_, page)| page.len());
        let mut opened = |opened: Opened<'_>| {
            let page = match opened {
                Opened::Page(page) => page,
                Opened::Unwanted(count) => return show(Shown::Unwanted(count)),
            };
            let there = page.defined(chunk, chunk.max_definition)?;
            read += page.data.len();
            let most = read.saturating_mul(TEXT_RATIO).max(FREE_TEXT);
            let values = Texts::of(&page, there.count_set_bits(), known, codes)?;
            show(Shown::Page(there, values, most))
        };
        for (step, page) in front.into_iter().zip([None, second]) {
            match (step, page) {
                (_, Some(page)) => opened(Opened::Page(page))?,
                (Some(Step::Wanted(packed)), None) => opened(Opened::Page(packed.open(chunk, &mut buffers[0])?))?,
                (Some(Step::Unwanted(count)), None) => opened(Opened::Unwanted(count))?,
                (None, None) => {}
            }
        }
        each_opened(chunk, buffers, || pages.step(), opened)
    })
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

pub(super) fn nulls(mut valid: BooleanBufferBuilder) -> Option<NullBuffer> {
    Some(NullBuffer::new(valid.finish())).filter(|nulls| nulls.null_count() > 0)
}
