//! Stores strings without the prefix and the suffix that the strings of a page share, and with hexadecimal digits in half
//! the bytes, to save memory.
//!
//! Usual front coding leaves out the prefix that a string shares with the previous one. Here all strings of a block share
//! prefix, suffix and the places of digits, so that each can be decoded by itself. Paths of files begin and end alike, with
//! a number and a UUID between.
//!
//! Invariant: requested strings are complete again (`decode::tests::leaves_are_decoded_as_by_the_general_decoder`).

use arrow_array::{Array, StringArray};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, NullBuffer, OffsetBuffer};

use self::hex::HexPacked;
use crate::decode::chunk::{Chunk, Decoded, Failure, NOT_UTF8, buffer_with_capacity};
use crate::decode::string_pages::{StringPage, StringPages, TOO_MANY_BYTES, Visited};
use crate::decode::values::{StringValues, count_defined, nulls};

mod hex;
mod short;

/// One of so many strings is sampled to find what all may have in common.
const SAMPLE: usize = 16;
/// Rows of an array that are coded together.
const BLOCK_ROWS: usize = 4096;

/// Front-coded strings. Whether they are UTF-8 is checked when they are requested.
#[derive(Debug)]
pub struct FrontCodedStrings {
    rows: usize,
    /// The rest of each string, one after the other.
    rest: Vec<u8>,
    /// Which rows have a string, if not all.
    nulls: Option<NullBuffer>,
    /// The blocks in order. If the strings of following pages have the same parts in common, they belong to the same block.
    blocks: Vec<Block>,
    /// The length of the complete strings together.
    decoded_length: usize,
}

/// Consecutive pages whose strings have parts in common.
#[derive(Debug)]
struct Block {
    /// The first row, and where its rest begins.
    row: usize,
    start: usize,
    shared: Shared,
    /// The end of each row's rest, counted from `start`; empty if all strings have the same length.
    ends: Vec<u32>,
}

/// The parts that strings have in common.
#[derive(Debug)]
struct Shared {
    prefix: Box<[u8]>,
    /// The characters before the suffix.
    digits: HexPacked,
    suffix: Box<[u8]>,
    /// The length of each rest, if all have the same length.
    length: Option<usize>,
}

/// Front-codes strings, page by page.
#[derive(Default)]
pub struct FrontCoder {
    pages: StringPages,
    blocks: Blocks,
}

/// The coded strings of some pages.
struct Blocks {
    memory: Vec<u8>,
    valid: BooleanBufferBuilder,
    /// The rows of all pages, and the bytes of these pages after decompression, as far as they are known.
    rows: usize,
    expected_bytes: usize,
    blocks: Vec<Block>,
    /// The length of the complete strings together.
    decoded_length: usize,
}

impl FrontCoder {
    /// Codes the strings of the complete pages in `chunk`. Returns how many bytes these pages are, as [`StringPages::read`]
    /// does.
    pub fn read(&mut self, chunk: Chunk<'_>, is_last: bool) -> Decoded<usize> {
        let Self { pages, blocks } = self;
        (blocks.rows, blocks.expected_bytes) = (chunk.rows, chunk.expected_bytes());
        pages.for_each_page(chunk, is_last, None, |visited| match visited {
            Visited::Page(page) => blocks.add(&page),
            Visited::Skipped(_) => Err(Failure::Unsupported),
        })
    }

    /// The strings, after all were read.
    pub fn finish(self) -> FrontCodedStrings {
        self.blocks.finish()
    }
}

impl Default for Blocks {
    fn default() -> Self {
        let (memory, valid, blocks) = (Vec::new(), BooleanBufferBuilder::new(0), Vec::new());
        Self { memory, valid, rows: 0, expected_bytes: 0, blocks, decoded_length: 0 }
    }
}

impl Blocks {
    fn finish(self) -> FrontCodedStrings {
        let Self { memory, valid, blocks, decoded_length, .. } = self;
        FrontCodedStrings { rows: valid.len(), rest: memory, nulls: nulls(valid), blocks, decoded_length }
    }

    /// Adds the strings of the next page.
    fn add(&mut self, page: &StringPage<'_>) -> Decoded<()> {
        let row = self.valid.len();
        if row == 0 {
            self.valid.reserve(self.rows);
        }
        self.valid.append_buffer(&page.defined);
        if page.defined.count_set_bits() == 0 {
            self.blocks.last_mut().into_iter().for_each(|block| block.skip(page.defined.len()));
            return Ok(());
        }
        // The strings of the next page may have the same parts in common; otherwise a new block starts.
        let most = page.most - self.decoded_length;
        let fits_last_block = match self.blocks.last_mut().filter(|block| block.shared.len() > 0) {
            Some(block) => block.add(page, most, &mut self.memory)?,
            None => None,
        };
        self.decoded_length += match fits_last_block {
            Some(length) => length,
            None => self.start_block(page, row, most)?,
        };
        // The complete strings must fit into one array.
        i32::try_from(self.decoded_length).map(drop).map_err(|_| Failure::Unsupported)
    }

    /// Starts a block with a page. Returns the length of its complete strings.
    fn start_block(&mut self, page: &StringPage<'_>, row: usize, most: usize) -> Decoded<usize> {
        let (start, count) = (self.memory.len(), page.defined.count_set_bits());
        // Parts that a few have in common are mostly common to all, which is checked when they are packed.
        for step in [SAMPLE, 1] {
            let shared = Shared::of(page.strings.clone(), count, step, most)?;
            if start == 0 {
                let of_each = size_of::<u32>() + shared.saved();
                let capacity = self.expected_bytes.saturating_sub(self.rows.saturating_mul(of_each));
                // Some more, since the common parts were subtracted for rows without a string, too.
                self.memory = buffer_with_capacity(capacity + capacity / 8)?;
            }
            let mut block = Block { row, start, shared, ends: Vec::new() };
            if let Some(length) = block.add(page, most, &mut self.memory)? {
                self.blocks.push(block);
                return Ok(length);
            }
        }
        Err(Failure::Unsupported)
    }
}

impl Block {
    /// Appends the rests of the strings of a page. Returns the length of the complete strings, at most `most`; `None`, and
    /// nothing is appended, if one of them lacks the common parts.
    fn add(&mut self, page: &StringPage<'_>, most: usize, rest: &mut Vec<u8>) -> Decoded<Option<usize>> {
        let Self { start, shared, ends, .. } = self;
        let (defined, mut strings) = (&page.defined, page.strings.clone());
        let max = strings.max_bytes(defined.count_set_bits(), shared.saved()).min(most);
        let (from, known) = (rest.len() - *start, ends.len());
        u32::try_from(from.saturating_add(max)).map_err(|_| Failure::Unsupported)?;
        if shared.length.is_none() {
            ends.reserve(defined.len());
        }
        let before = rest.len();
        rest.try_reserve(max).map_err(|_| Failure::Unsupported)?;
        rest.resize(before + max, 0);
        let mut out = rest.get_mut(before..).unwrap_or_default();
        let (free, mut decoded_length) = (out.len(), 0);
        for slot in 0..defined.len() {
            if defined.value(slot) {
                let string = strings.string()?;
                decoded_length += string.len();
                if decoded_length > most {
                    return Err(TOO_MANY_BYTES);
                }
                // The buffer is long enough for all, unless a following string is shorter than the common parts.
                let Some(after) = shared.encode_into(string, out) else {
                    rest.truncate(before);
                    ends.truncate(known);
                    return Ok(None);
                };
                out = after;
            }
            if shared.length.is_none() {
                ends.push((from + free - out.len()) as u32);
            }
        }
        let written = free - out.len();
        rest.truncate(before + written);
        Ok(Some(decoded_length))
    }

    /// Adds rows without a string.
    fn skip(&mut self, rows: usize) {
        if self.shared.length.is_none() {
            let end = self.ends.last().copied().unwrap_or_default();
            self.ends.resize(self.ends.len() + rows, end);
        }
    }

    /// The start and the end of a string's rest, by its row and by the number of strings before it in this block.
    fn rest_of(&self, row: usize, before: usize) -> Option<(usize, usize)> {
        let (from, to) = match self.shared.length {
            Some(length) => {
                let left = length - self.shared.saved();
                (before * left, (before + 1) * left)
            }
            None => {
                let at = row - self.row;
                let end = |at: usize| self.ends.get(at).map(|end| *end as usize);
                (if at == 0 { 0 } else { end(at - 1)? }, end(at)?)
            }
        };
        Some((self.start + from, self.start + to))
    }
}

impl Shared {
    /// The common parts of every `step`th of `count` strings, which have at most `most` bytes together.
    fn of(strings: StringValues<'_>, count: usize, step: usize, most: usize) -> Decoded<Self> {
        let mut all = strings.clone();
        let first = all.string()?;
        let (mut prefix, mut suffix, mut shortest, mut longest) = (first, first, first.len(), first.len());
        let mut whole = first.len();
        for at in 1..count {
            let string = all.string()?;
            whole += string.len();
            if whole > most {
                return Err(TOO_MANY_BYTES);
            }
            if at % step != 0 {
                continue;
            }
            if !string.starts_with(prefix) {
                let same = prefix.iter().zip(string).take_while(|(one, other)| one == other).count();
                prefix = prefix.get(..same).unwrap_or_default();
            }
            if !string.ends_with(suffix) {
                let same = suffix.iter().rev().zip(string.iter().rev()).take_while(|(one, other)| one == other).count();
                suffix = suffix.get(suffix.len() - same..).unwrap_or_default();
            }
            (shortest, longest) = (shortest.min(string.len()), longest.max(string.len()));
        }
        // Prefix and suffix must not overlap in the shortest string.
        let excess = (prefix.len() + suffix.len()).saturating_sub(shortest);
        let suffix = suffix.get(excess..).unwrap_or_default();
        let (mut search, mut all) = (hex::Search::new(), strings);
        for at in 0..count {
            let string = all.string()?;
            if at % step == 0 {
                search.add(string.get(prefix.len()..string.len() - suffix.len()).unwrap_or_default());
            }
        }
        let length = (shortest == longest).then_some(shortest);
        Ok(Self { prefix: prefix.into(), digits: search.pattern(), suffix: suffix.into(), length })
    }

    fn len(&self) -> usize {
        self.prefix.len() + self.digits.len() + self.suffix.len()
    }

    /// How many bytes are saved for each string.
    fn saved(&self) -> usize {
        self.len() - self.digits.packed()
    }

    /// Writes the rest of a string to the beginning of `out`, and returns the bytes after it; `None` if the string lacks the
    /// common parts, or if `out` is too short.
    #[inline]
    fn encode_into<'r>(&self, string: &[u8], out: &'r mut [u8]) -> Option<&'r mut [u8]> {
        if self.length.is_some_and(|length| length != string.len()) {
            return None;
        }
        let (prefix, rest) = string.split_at_checked(self.prefix.len())?;
        let (rest, suffix) = rest.split_at_checked(rest.len().checked_sub(self.suffix.len())?)?;
        let (head, _) = rest.split_at_checked(rest.len().checked_sub(self.digits.len())?)?;
        if !(short::is_same(prefix, &self.prefix) && short::is_same(suffix, &self.suffix)) {
            return None;
        }
        let (to, out) = out.split_at_mut_checked(head.len())?;
        short::copy(to, head);
        self.digits.pack(string.get(prefix.len() + head.len()..)?, out)
    }

    /// Appends the complete string with this rest.
    fn append(&self, left: &[u8], out: &mut Vec<u8>) {
        let (head, packed) = left.split_at(left.len().saturating_sub(self.digits.packed()));
        out.extend_from_slice(&self.prefix);
        out.extend_from_slice(head);
        self.digits.unpack(packed, out);
        out.extend_from_slice(&self.suffix);
    }

    /// Bytes in memory.
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.prefix.len() + self.suffix.len()
    }
}

impl FrontCodedStrings {
    /// Codes the strings of an array, `BLOCK_ROWS` rows at a time.
    ///
    /// # Errors
    /// `Unsupported` if there is not enough memory.
    pub fn of(strings: &StringArray) -> Decoded<Self> {
        let (mut blocks, mut plain) = (Blocks::default(), Vec::new());
        blocks.rows = strings.len();
        for start in (0..strings.len()).step_by(BLOCK_ROWS) {
            let some = strings.slice(start, BLOCK_ROWS.min(strings.len() - start));
            plain.clear();
            for string in some.iter().flatten() {
                plain.extend_from_slice(&(string.len() as u32).to_le_bytes());
                plain.extend_from_slice(string.as_bytes());
            }
            let defined =
                some.nulls().map_or_else(|| BooleanBuffer::new_set(some.len()), |nulls| nulls.inner().clone());
            let strings = StringValues::Plain(&plain);
            blocks.add(&StringPage { defined, strings, most: usize::MAX, most_read: usize::MAX })?;
        }
        blocks.memory.shrink_to_fit();
        Ok(blocks.finish())
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        let block = |block: &Block| block.shared.bytes() + size_of::<u32>() * block.ends.capacity();
        let nulls = self.nulls.as_ref().map_or(0, |nulls| nulls.buffer().capacity());
        self.rest.capacity() + nulls + self.blocks.iter().map(block).sum::<usize>()
    }

    /// The complete strings at `rows`, which ascend; `count` is how many there are.
    pub fn strings(&self, rows: impl Iterator<Item = usize>, count: usize) -> Decoded<StringArray> {
        // Most strings have a similar length.
        let saved = self.blocks.first().map_or(0, |block| block.shared.saved());
        let expected = count.saturating_mul(self.rest.len() / self.rows.max(1) + saved + 1);
        let mut bytes = Vec::with_capacity(expected.min(self.decoded_length));
        let mut offsets = Vec::with_capacity(count + 1);
        offsets.push(0);
        let mut valid = BooleanBufferBuilder::new(count);
        let mut blocks = self.blocks.iter().peekable();
        let mut block: Option<&Block> = None;
        // How many strings of the block are before this row.
        let (mut before, mut counted) = (0, 0);
        for row in rows {
            while let Some(next) = blocks.next_if(|next| next.row <= row) {
                (block, before, counted) = (Some(next), 0, next.row);
            }
            before += count_defined(self.nulls.as_ref(), counted, row);
            counted = row;
            let string = block.filter(|_| count_defined(self.nulls.as_ref(), row, row + 1) > 0);
            valid.append(string.is_some());
            if let Some((block, (start, end))) = string.and_then(|block| Some((block, block.rest_of(row, before)?))) {
                block.shared.append(self.rest.get(start..end).unwrap_or_default(), &mut bytes);
            }
            offsets.push(i32::try_from(bytes.len()).map_err(|_| Failure::Unsupported)?);
        }
        let offsets = OffsetBuffer::new(offsets.into());
        StringArray::try_new(offsets, bytes.into(), nulls(valid)).map_err(|_| NOT_UTF8)
    }
}
