//! The texts of a leaf in one array: as they are, or without what those of a page have in common.
//!
//! Paths of files begin alike and end alike. Kept without that they take two thirds of the memory, and fresh memory is the
//! dearest of what a plan needs: a system hands it out not much faster than pages are decompressed.
//!
//! Invariant: what was trimmed is whole again for who asks (`leaf::tests::leaves_are_decoded_as_by_the_general_decoder`).

use arrow_array::StringArray;
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, NullBuffer, OffsetBuffer};
use bytes::Bytes;
use parquet::basic::Type as PhysicalType;

use super::page::{Encoding, Opened, Packed, Pages, Step, check, dictionary, each_opened};
use super::values::{TextDictionary, Texts};
use super::{Chunk, Decoded, NO_UTF8, Scratch, Stop, with_scratch};
use crate::large::Large;

/// Texts may take this much, and so much more for each byte of the pages: a dictionary makes a little endlessly much.
const FREE_TEXT: usize = 64 * 1024 * 1024;
const TEXT_RATIO: usize = 8;
const TOO_MUCH_TEXT: Stop = Stop::Broken("a dictionary makes more text than a file of this size has");

/// Texts without what all of a page begin and end with. Whether they are UTF-8 is seen when they are whole.
#[derive(Debug)]
pub(crate) struct Trimmed {
    /// What is left of each.
    rest: Bytes,
    offsets: OffsetBuffer<i32>,
    /// Which are there, if not all.
    nulls: Option<NullBuffer>,
    /// In order; what the texts of a page share may be shared by those of the pages after it.
    shared: Vec<Shared>,
}

/// What the texts of some pages have in common.
#[derive(Debug)]
struct Shared {
    /// The first row of the first page.
    from: usize,
    prefix: Box<[u8]>,
    suffix: Box<[u8]>,
}

/// Texts one behind the other, while they are decoded.
struct Joined {
    bytes: Large,
    offsets: Vec<i32>,
    last: i32,
    valid: BooleanBufferBuilder,
}

/// Rows of a leaf, one page after the other.
enum Shown<'p> {
    /// None of them is wanted.
    Unwanted(usize),
    /// Which of them have a text, these texts, and how long those of all pages so far may be together.
    Page(BooleanBuffer, Texts<'p>, usize),
}

fn each_page(
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
    let mut joined = Joined::new(chunk, if rows.is_none() { likely(chunk) } else { 0 })?;
    each_page(chunk, rows, |shown| {
        let (there, mut texts, most) = match shown {
            Shown::Unwanted(count) => {
                joined.skip(count);
                return Ok(());
            }
            Shown::Page(there, texts, most) => (there, texts, most),
        };
        let (first, _) = joined.end_of_rows();
        for slot in 0..there.len() {
            if there.value(slot) {
                let text = texts.text()?;
                if rows.is_none_or(|rows| rows.value(first + slot)) {
                    joined.extend(text)?;
                    if joined.bytes.len() > most {
                        return Err(TOO_MUCH_TEXT);
                    }
                }
            }
            joined.end();
        }
        joined.valid.append_buffer(&there);
        Ok(())
    })?;
    let (bytes, offsets, nulls) = joined.finish();
    StringArray::try_new(offsets, bytes.into(), nulls).map_err(|_| NO_UTF8)
}

/// All texts of a leaf, without what those of a page have in common.
pub(crate) fn trimmed(chunk: Chunk<'_>) -> Decoded<Trimmed> {
    if chunk.physical != PhysicalType::BYTE_ARRAY {
        return Err(Stop::Rare);
    }
    let mut joined = Joined::new(chunk, 0)?;
    let mut shared: Vec<Shared> = Vec::new();
    let mut whole = 0_usize;
    each_page(chunk, None, |shown| {
        let Shown::Page(there, texts, most) = shown else { return Err(Stop::Rare) };
        let count = there.count_set_bits();
        if count == 0 {
            joined.skip(there.len());
            return Ok(());
        }
        let start = joined.end_of_rows();
        // What texts of one page share, those of the next one share, too; or it is found anew.
        let as_before = match shared.last().filter(|last| last.len() > 0) {
            Some(last) => joined.trim(&there, texts.clone(), last, most - whole)?,
            None => None,
        };
        let length = match as_before {
            Some(length) => length,
            None => {
                joined.back_to(start);
                let anew = Shared::of(start.0, texts.clone(), count)?;
                if shared.is_empty() {
                    let of_each = size_of::<u32>() + anew.len();
                    let room = likely(chunk).saturating_sub(chunk.rows.saturating_mul(of_each));
                    joined.bytes = Large::with_room(room + room / 64).map_err(|_| Stop::Rare)?;
                }
                let length = joined.trim(&there, texts, &anew, most - whole)?.ok_or(Stop::Rare)?;
                shared.push(anew);
                length
            }
        };
        joined.valid.append_buffer(&there);
        whole += length;
        // They must fit into one array when they are whole.
        i32::try_from(whole).map(drop).map_err(|_| Stop::Rare)
    })?;
    let (rest, offsets, nulls) = joined.finish();
    Ok(Trimmed { rest, offsets, nulls, shared })
}

/// How long the texts of a leaf are together with their lengths, as far as the file's own bytes justify it.
fn likely(chunk: Chunk<'_>) -> usize {
    chunk.size.min(chunk.bytes.len().saturating_mul(TEXT_RATIO))
}

fn nulls(mut valid: BooleanBufferBuilder) -> Option<NullBuffer> {
    Some(NullBuffer::new(valid.finish())).filter(|nulls| nulls.null_count() > 0)
}

impl Joined {
    fn new(chunk: Chunk<'_>, room: usize) -> Decoded<Self> {
        let bytes = Large::with_room(room).map_err(|_| Stop::Rare)?;
        let mut offsets = Vec::with_capacity(chunk.rows + 1);
        offsets.push(0);
        Ok(Self { bytes, offsets, last: 0, valid: BooleanBufferBuilder::new(chunk.rows) })
    }

    /// How many rows ended, and how many bytes they have.
    fn end_of_rows(&self) -> (usize, usize) {
        (self.offsets.len() - 1, self.bytes.len())
    }

    /// Forgets the rows and bytes that came since.
    fn back_to(&mut self, (rows, bytes): (usize, usize)) {
        self.offsets.truncate(rows + 1);
        self.bytes.truncate(bytes);
        self.last = self.offsets.last().copied().unwrap_or_default();
    }

    /// Appends the texts of a page without what they share, where one is there. Gives how long they are whole, `most` at
    /// most; nothing if one of them does not share it.
    fn trim(
        &mut self,
        there: &BooleanBuffer,
        mut texts: Texts<'_>,
        shared: &Shared,
        most: usize,
    ) -> Decoded<Option<usize>> {
        let Self { bytes, offsets, last, .. } = self;
        let room = texts.most_bytes(there.count_set_bits(), shared.len()).min(most);
        i32::try_from(bytes.len().saturating_add(room)).map_err(|_| Stop::Rare)?;
        let trimmed = bytes.extend_with(room, |mut room| {
            let (free, mut whole) = (room.len(), 0);
            for slot in 0..there.len() {
                if there.value(slot) {
                    let text = texts.text()?;
                    whole += text.len();
                    if whole > most {
                        return Err(TOO_MUCH_TEXT);
                    }
                    let Some(rest) = shared.strip(text) else { return Ok((0, None)) };
                    // There is room for all, unless one of those that follow is shorter than what is shared.
                    let Some((to, after)) = room.split_at_mut_checked(rest.len()) else { return Ok((0, None)) };
                    copy_short(to, rest);
                    room = after;
                    *last += rest.len() as i32;
                }
                offsets.push(*last);
            }
            Ok((free - room.len(), Some(whole)))
        });
        trimmed.map_err(|_| Stop::Rare)?
    }

    /// Rows without a text.
    fn skip(&mut self, rows: usize) {
        self.offsets.resize(self.offsets.len() + rows, self.last);
        self.valid.append_n(rows, false);
    }

    #[inline]
    fn extend(&mut self, text: &[u8]) -> Decoded<()> {
        self.bytes.extend(text).map_err(|_| Stop::Rare)?;
        self.last = i32::try_from(self.bytes.len()).map_err(|_| Stop::Rare)?;
        Ok(())
    }

    /// Ends a row.
    #[inline]
    fn end(&mut self) {
        self.offsets.push(self.last);
    }

    fn finish(self) -> (Bytes, OffsetBuffer<i32>, Option<NullBuffer>) {
        (self.bytes.into_bytes(), OffsetBuffer::new(self.offsets.into()), nulls(self.valid))
    }
}

impl Shared {
    /// Of so many texts, which is not 0.
    fn of(from: usize, mut texts: Texts<'_>, count: usize) -> Decoded<Self> {
        let first = texts.text()?;
        let (mut prefix, mut suffix, mut shortest) = (first, first, first.len());
        for _ in 1..count {
            let text = texts.text()?;
            if !text.starts_with(prefix) {
                let same = prefix.iter().zip(text).take_while(|(one, other)| one == other).count();
                prefix = prefix.get(..same).unwrap_or_default();
            }
            if !text.ends_with(suffix) {
                let same = suffix.iter().rev().zip(text.iter().rev()).take_while(|(one, other)| one == other).count();
                suffix = suffix.get(suffix.len() - same..).unwrap_or_default();
            }
            shortest = shortest.min(text.len());
        }
        // What both have in the shortest text belongs to one of them.
        let excess = (prefix.len() + suffix.len()).saturating_sub(shortest);
        let suffix = suffix.get(excess..).unwrap_or_default();
        Ok(Self { from, prefix: prefix.into(), suffix: suffix.into() })
    }

    fn len(&self) -> usize {
        self.prefix.len() + self.suffix.len()
    }

    /// What a text has between them, if it has both.
    #[inline]
    fn strip<'t>(&self, text: &'t [u8]) -> Option<&'t [u8]> {
        let (prefix, rest) = text.split_at_checked(self.prefix.len())?;
        let (rest, suffix) = rest.split_at_checked(rest.len().checked_sub(self.suffix.len())?)?;
        (is_same(prefix, &self.prefix) && is_same(suffix, &self.suffix)).then_some(rest)
    }
}

/// Copies a text to room of its length: its first and its last bytes, each at once, where a call would take longer.
#[inline]
fn copy_short(to: &mut [u8], from: &[u8]) {
    #[inline]
    fn both_ends<const N: usize>(to: &mut [u8], from: &[u8]) -> Option<()> {
        *to.first_chunk_mut::<N>()? = *from.first_chunk()?;
        *to.last_chunk_mut::<N>()? = *from.last_chunk()?;
        Some(())
    }
    let copied = match from.len() {
        16..=32 => both_ends::<16>(to, from),
        33..=64 => both_ends::<32>(to, from),
        _ => None,
    };
    if copied.is_none() {
        to.copy_from_slice(from);
    }
}

/// Whether two short texts of one length are the same: looked at here, eight bytes at a time, where a call would take
/// longer.
#[inline]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let ((ones, one), (others, other)) = (one.as_chunks::<8>(), other.as_chunks());
    ones.iter().zip(others).all(|(one, other)| u64::from_ne_bytes(*one) == u64::from_ne_bytes(*other))
        && one.iter().zip(other).all(|(one, other)| one == other)
}

impl Trimmed {
    /// How many rows there are.
    pub(crate) fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Memory held.
    pub(crate) fn bytes(&self) -> usize {
        let shared = |shared: &Shared| size_of::<Shared>() + shared.len();
        let nulls = self.nulls.as_ref().map_or(0, |nulls| nulls.buffer().capacity());
        let offsets = self.offsets.inner().inner().capacity();
        self.rest.len() + offsets + nulls + self.shared.iter().map(shared).sum::<usize>()
    }

    /// The whole texts of so many `rows`, which ascend.
    pub(crate) fn whole(&self, rows: impl Iterator<Item = usize>, count: usize) -> Decoded<StringArray> {
        // Most texts are as long as others.
        let shared = self.shared.first().map_or(0, Shared::len);
        let mut bytes = Vec::with_capacity(count.saturating_mul(self.rest.len() / self.len().max(1) + shared + 1));
        let mut offsets = Vec::with_capacity(count + 1);
        offsets.push(0);
        let mut valid = BooleanBufferBuilder::new(count);
        let mut all_shared = self.shared.iter().peekable();
        let mut shared = None;
        for row in rows {
            while let Some(next) = all_shared.next_if(|next| next.from <= row) {
                shared = Some(next);
            }
            let text = shared.filter(|_| self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)));
            valid.append(text.is_some());
            if let (Some(Shared { prefix, suffix, .. }), Some([start, end])) = (text, self.offsets.get(row..row + 2)) {
                bytes.extend_from_slice(prefix);
                bytes.extend_from_slice(self.rest.get(*start as usize..*end as usize).unwrap_or_default());
                bytes.extend_from_slice(suffix);
            }
            offsets.push(i32::try_from(bytes.len()).map_err(|_| Stop::Rare)?);
        }
        let offsets = OffsetBuffer::new(offsets.into());
        StringArray::try_new(offsets, bytes.into(), nulls(valid)).map_err(|_| NO_UTF8)
    }
}

#[cfg(test)]
mod tests {
    use super::copy_short;

    #[test]
    fn texts_of_any_length_are_copied() {
        for length in 0..200_u8 {
            let text: Vec<u8> = (1..=length).collect();
            let mut copied = vec![0; text.len()];
            copy_short(&mut copied, &text);
            assert_eq!(copied, text);
        }
    }
}
