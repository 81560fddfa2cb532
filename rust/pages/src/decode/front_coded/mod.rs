//! The strings of a leaf in less memory: without what those of a page have in common, and digits in half the room.
//!
//! Paths of files begin alike and end alike, and what is between is mostly a number and a UUID. Kept so they take a third
//! of the memory, and fresh memory is the dearest of what a plan needs: a system hands it out not much faster than
//! pages are decompressed, and much slower where the host of a virtual machine took it back.
//!
//! Invariant: what was trimmed is whole again for who asks (`decode::tests::leaves_are_decoded_as_by_the_general_decoder`).

use arrow_array::{Array, StringArray};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, NullBuffer, OffsetBuffer};

use self::hex::HexPacked;
use crate::decode::chunk::{Chunk, Decoded, Failure, NOT_UTF8, with_room};
use crate::decode::string_pages::{Shown, StringPage, StringPages, TOO_MANY_BYTES};
use crate::decode::values::{StringValues, nulls, there_in};

mod hex;
mod short;

/// Of so many strings, one is looked at for what all may share.
const SAMPLE: usize = 16;
/// Rows of an array that are looked at together.
const BLOCK_ROWS: usize = 4096;

/// Front-coded strings. Whether they are UTF-8 is seen when they are whole.
#[derive(Debug)]
pub struct FrontCodedStrings {
    rows: usize,
    /// What is left of each string, one behind the other.
    rest: Vec<u8>,
    /// Which are there, if not all.
    nulls: Option<NullBuffer>,
    /// In order; what the strings of a page share may be shared by those of the pages after it.
    blocks: Vec<Block>,
    /// How long the strings are whole.
    whole: usize,
}

/// Pages whose strings share something.
#[derive(Debug)]
struct Block {
    /// The first row, and where what is left of it begins.
    row: usize,
    start: usize,
    shared: Shared,
    /// Where what is left of each row ends, counted from `start`; nothing if all strings are as long.
    ends: Vec<u32>,
}

/// What strings have in common.
#[derive(Debug)]
struct Shared {
    prefix: Box<[u8]>,
    /// What stands before the suffix.
    digits: HexPacked,
    suffix: Box<[u8]>,
    /// How long each of them is, if all are as long.
    length: Option<usize>,
}

/// Strings that are being front-coded, page by page.
#[derive(Default)]
pub struct FrontCoder {
    pages: StringPages,
    blocks: Blocks,
}

/// Those of some pages.
struct Blocks {
    memory: Vec<u8>,
    valid: BooleanBufferBuilder,
    /// Rows of all pages, and bytes that these take when decompressed, as far as it is known.
    rows: usize,
    likely: usize,
    blocks: Vec<Block>,
    /// How long the strings are whole.
    whole: usize,
}

impl FrontCoder {
    /// Trims the strings of the pages that are whole in `chunk`. Gives how many bytes they were, as [`StringPages::read`] does.
    pub fn read(&mut self, chunk: Chunk<'_>, is_last: bool) -> Decoded<usize> {
        let Self { pages, blocks } = self;
        (blocks.rows, blocks.likely) = (chunk.rows, chunk.likely());
        pages.show(chunk, is_last, None, |shown| match shown {
            Shown::Page(page) => blocks.add(&page),
            Shown::Unwanted(_) => Err(Failure::Unsupported),
        })
    }

    /// The strings, when all were read.
    pub fn finish(self) -> FrontCodedStrings {
        self.blocks.finish()
    }
}

impl Default for Blocks {
    fn default() -> Self {
        let (memory, valid, blocks) = (Vec::new(), BooleanBufferBuilder::new(0), Vec::new());
        Self { memory, valid, rows: 0, likely: 0, blocks, whole: 0 }
    }
}

impl Blocks {
    fn finish(self) -> FrontCodedStrings {
        let Self { memory, valid, blocks, whole, .. } = self;
        FrontCodedStrings { rows: valid.len(), rest: memory, nulls: nulls(valid), blocks, whole }
    }

    /// With the strings of the next page.
    fn add(&mut self, page: &StringPage<'_>) -> Decoded<()> {
        let row = self.valid.len();
        if row == 0 {
            self.valid.reserve(self.rows);
        }
        self.valid.append_buffer(&page.there);
        if page.there.count_set_bits() == 0 {
            self.blocks.last_mut().into_iter().for_each(|block| block.skip(page.there.len()));
            return Ok(());
        }
        // What strings of one page share, those of the next one share, too; or it is found anew.
        let most = page.most - self.whole;
        let as_before = match self.blocks.last_mut().filter(|block| block.shared.len() > 0) {
            Some(block) => block.add(page, most, &mut self.memory)?,
            None => None,
        };
        self.whole += match as_before {
            Some(length) => length,
            None => self.begin(page, row, most)?,
        };
        // They must fit into one array when they are whole.
        i32::try_from(self.whole).map(drop).map_err(|_| Failure::Unsupported)
    }

    /// A block that begins with a page. Gives how long its strings are whole.
    fn begin(&mut self, page: &StringPage<'_>, row: usize, most: usize) -> Decoded<usize> {
        let (start, count) = (self.memory.len(), page.there.count_set_bits());
        // What few of them share is seldom shared by not all, and all are looked at once more when they are packed.
        for step in [SAMPLE, 1] {
            let shared = Shared::of(page.strings.clone(), count, step, most)?;
            if start == 0 {
                let of_each = size_of::<u32>() + shared.saved();
                let room = self.likely.saturating_sub(self.rows.saturating_mul(of_each));
                // Rows without a string take less than was taken off for them.
                self.memory = with_room(room + room / 8)?;
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
    /// Appends what is left of the strings of a page. Gives how long they are whole, `most` at most; nothing, and nothing is
    /// appended, if one of them does not share what others do.
    fn add(&mut self, page: &StringPage<'_>, most: usize, rest: &mut Vec<u8>) -> Decoded<Option<usize>> {
        let Self { start, shared, ends, .. } = self;
        let (there, mut strings) = (&page.there, page.strings.clone());
        let room = strings.most_bytes(there.count_set_bits(), shared.saved()).min(most);
        let (from, known) = (rest.len() - *start, ends.len());
        u32::try_from(from.saturating_add(room)).map_err(|_| Failure::Unsupported)?;
        if shared.length.is_none() {
            ends.reserve(there.len());
        }
        let before = rest.len();
        rest.try_reserve(room).map_err(|_| Failure::Unsupported)?;
        rest.resize(before + room, 0);
        let mut room = rest.get_mut(before..).unwrap_or_default();
        let (free, mut whole) = (room.len(), 0);
        for slot in 0..there.len() {
            if there.value(slot) {
                let string = strings.string()?;
                whole += string.len();
                if whole > most {
                    return Err(TOO_MANY_BYTES);
                }
                // There is room for all, unless one of those that follow is shorter than what is shared.
                let Some(after) = shared.put(string, room) else {
                    rest.truncate(before);
                    ends.truncate(known);
                    return Ok(None);
                };
                room = after;
            }
            if shared.length.is_none() {
                ends.push((from + free - room.len()) as u32);
            }
        }
        let written = free - room.len();
        rest.truncate(before + written);
        Ok(Some(whole))
    }

    /// Rows without a string.
    fn skip(&mut self, rows: usize) {
        if self.shared.length.is_none() {
            let end = self.ends.last().copied().unwrap_or_default();
            self.ends.resize(self.ends.len() + rows, end);
        }
    }

    /// Where what is left of a string is: in its row, and after so many strings of this block.
    fn place(&self, row: usize, before: usize) -> Option<(usize, usize)> {
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
    /// Of one in `step` of so many strings, which is not 0 and which are so long at `most`.
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
        // What both have in the shortest string belongs to one of them.
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
        Ok(Self { prefix: prefix.into(), digits: search.found(), suffix: suffix.into(), length })
    }

    fn len(&self) -> usize {
        self.prefix.len() + self.digits.len() + self.suffix.len()
    }

    /// How many bytes less there are of each string.
    fn saved(&self) -> usize {
        self.len() - self.digits.packed()
    }

    /// Writes what is left of a string to the front of `room`, and gives the room after it; nothing if it does not share what
    /// others do, or if there is no room.
    #[inline]
    fn put<'r>(&self, string: &[u8], room: &'r mut [u8]) -> Option<&'r mut [u8]> {
        if self.length.is_some_and(|length| length != string.len()) {
            return None;
        }
        let (prefix, rest) = string.split_at_checked(self.prefix.len())?;
        let (rest, suffix) = rest.split_at_checked(rest.len().checked_sub(self.suffix.len())?)?;
        let (head, _) = rest.split_at_checked(rest.len().checked_sub(self.digits.len())?)?;
        if !(short::is_same(prefix, &self.prefix) && short::is_same(suffix, &self.suffix)) {
            return None;
        }
        let (to, room) = room.split_at_mut_checked(head.len())?;
        short::copy(to, head);
        self.digits.pack(string.get(prefix.len() + head.len()..)?, room)
    }

    /// Appends the whole string of which this is left.
    fn append(&self, left: &[u8], out: &mut Vec<u8>) {
        let (head, packed) = left.split_at(left.len().saturating_sub(self.digits.packed()));
        out.extend_from_slice(&self.prefix);
        out.extend_from_slice(head);
        self.digits.unpack(packed, out);
        out.extend_from_slice(&self.suffix);
    }

    /// Memory held.
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.prefix.len() + self.suffix.len()
    }
}

impl FrontCodedStrings {
    /// The strings of an array, so many rows of which share something at a time.
    ///
    /// # Errors
    /// `Unsupported` where they take more memory than there is.
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
            let there = some.nulls().map_or_else(|| BooleanBuffer::new_set(some.len()), |nulls| nulls.inner().clone());
            let strings = StringValues::Plain(&plain);
            blocks.add(&StringPage { there, strings, most: usize::MAX, most_read: usize::MAX })?;
        }
        blocks.memory.shrink_to_fit();
        Ok(blocks.finish())
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Memory held.
    pub fn bytes(&self) -> usize {
        let block = |block: &Block| block.shared.bytes() + size_of::<u32>() * block.ends.capacity();
        let nulls = self.nulls.as_ref().map_or(0, |nulls| nulls.buffer().capacity());
        self.rest.capacity() + nulls + self.blocks.iter().map(block).sum::<usize>()
    }

    /// The whole strings of so many `rows`, which ascend.
    pub fn whole(&self, rows: impl Iterator<Item = usize>, count: usize) -> Decoded<StringArray> {
        // Most strings are as long as others.
        let saved = self.blocks.first().map_or(0, |block| block.shared.saved());
        let likely = count.saturating_mul(self.rest.len() / self.rows.max(1) + saved + 1);
        let mut bytes = Vec::with_capacity(likely.min(self.whole));
        let mut offsets = Vec::with_capacity(count + 1);
        offsets.push(0);
        let mut valid = BooleanBufferBuilder::new(count);
        let mut blocks = self.blocks.iter().peekable();
        let mut block: Option<&Block> = None;
        // How many strings of the block stand before this row.
        let (mut before, mut counted) = (0, 0);
        for row in rows {
            while let Some(next) = blocks.next_if(|next| next.row <= row) {
                (block, before, counted) = (Some(next), 0, next.row);
            }
            before += there_in(self.nulls.as_ref(), counted, row);
            counted = row;
            let string = block.filter(|_| there_in(self.nulls.as_ref(), row, row + 1) > 0);
            valid.append(string.is_some());
            if let Some((block, (start, end))) = string.and_then(|block| Some((block, block.place(row, before)?))) {
                block.shared.append(self.rest.get(start..end).unwrap_or_default(), &mut bytes);
            }
            offsets.push(i32::try_from(bytes.len()).map_err(|_| Failure::Unsupported)?);
        }
        let offsets = OffsetBuffer::new(offsets.into());
        StringArray::try_new(offsets, bytes.into(), nulls(valid)).map_err(|_| NOT_UTF8)
    }
}
