//! The texts of a leaf in less memory: without what those of a page have in common, and digits in half the room.
//!
//! Paths of files begin alike and end alike, and what is between is mostly a number and a UUID. Kept so they take a third
//! of the memory, and fresh memory is the dearest of what a plan needs: a system hands it out not much faster than
//! pages are decompressed, and much slower where the host of a virtual machine took it back.
//!
//! Invariant: what was trimmed is whole again for who asks (`leaf::tests::leaves_are_decoded_as_by_the_general_decoder`).

use arrow_array::StringArray;
use arrow_buffer::{BooleanBufferBuilder, NullBuffer, OffsetBuffer};

use super::digits::{self, Digits};
use super::short;
use super::text_pages::{Shown, TOO_MUCH_TEXT, TextPage, TextPages};
use super::values::{Texts, nulls, there_in};
use super::{Chunk, Decoded, NO_UTF8, Stop, with_room};

/// Of so many texts, one is looked at for what all may share.
const SAMPLE: usize = 16;

/// Trimmed texts. Whether they are UTF-8 is seen when they are whole.
#[derive(Debug)]
pub(crate) struct Trimmed {
    rows: usize,
    /// What is left of each text, one behind the other.
    rest: Vec<u8>,
    /// Which are there, if not all.
    nulls: Option<NullBuffer>,
    /// In order; what the texts of a page share may be shared by those of the pages after it.
    runs: Vec<Run>,
    /// How long the texts are whole.
    whole: usize,
}

/// Pages whose texts share something.
#[derive(Debug)]
struct Run {
    /// The first row, and where what is left of it begins.
    row: usize,
    start: usize,
    shared: Shared,
    /// Where what is left of each row ends, counted from `start`; nothing if all texts are as long.
    ends: Vec<u32>,
}

/// What texts have in common.
#[derive(Debug)]
struct Shared {
    prefix: Box<[u8]>,
    /// What stands before the suffix.
    digits: Digits,
    suffix: Box<[u8]>,
    /// How long each of them is, if all are as long.
    length: Option<usize>,
}

/// Texts that are being trimmed.
pub(crate) struct Trimming {
    pages: TextPages,
    runs: Runs,
}

/// Those of some pages.
struct Runs {
    memory: Vec<u8>,
    valid: BooleanBufferBuilder,
    runs: Vec<Run>,
    /// How long the texts are whole.
    whole: usize,
}

impl Trimming {
    /// Of no text yet.
    pub(crate) fn new() -> Self {
        let runs = Runs { memory: Vec::new(), valid: BooleanBufferBuilder::new(0), runs: Vec::new(), whole: 0 };
        Self { pages: TextPages::new(), runs }
    }

    /// Trims the texts of the pages that are whole in `chunk`. Gives how many bytes they were, as [`TextPages::read`] does.
    pub(crate) fn read(&mut self, chunk: Chunk<'_>, is_last: bool) -> Decoded<usize> {
        let Self { pages, runs } = self;
        pages.show(chunk, is_last, None, |shown| match shown {
            Shown::Page(page) => runs.add(chunk, &page),
            Shown::Unwanted(_) => Err(Stop::Rare),
        })
    }

    /// The texts, when all were read.
    pub(crate) fn finish(self) -> Trimmed {
        let Runs { memory, valid, runs, whole } = self.runs;
        Trimmed { rows: valid.len(), rest: memory, nulls: nulls(valid), runs, whole }
    }
}

impl Runs {
    /// With the texts of the next page.
    fn add(&mut self, chunk: Chunk<'_>, page: &TextPage<'_>) -> Decoded<()> {
        let row = self.valid.len();
        if row == 0 {
            self.valid.reserve(chunk.rows);
        }
        self.valid.append_buffer(&page.there);
        if page.there.count_set_bits() == 0 {
            self.runs.last_mut().into_iter().for_each(|run| run.skip(page.there.len()));
            return Ok(());
        }
        // What texts of one page share, those of the next one share, too; or it is found anew.
        let most = page.most - self.whole;
        let as_before = match self.runs.last_mut().filter(|run| run.shared.len() > 0) {
            Some(run) => run.add(page, most, &mut self.memory)?,
            None => None,
        };
        self.whole += match as_before {
            Some(length) => length,
            None => self.begin(chunk, page, row, most)?,
        };
        // They must fit into one array when they are whole.
        i32::try_from(self.whole).map(drop).map_err(|_| Stop::Rare)
    }

    /// A run that begins with a page. Gives how long its texts are whole.
    fn begin(&mut self, chunk: Chunk<'_>, page: &TextPage<'_>, row: usize, most: usize) -> Decoded<usize> {
        let (start, count) = (self.memory.len(), page.there.count_set_bits());
        // What few of them share is seldom shared by not all, and all are looked at once more when they are packed.
        for step in [SAMPLE, 1] {
            let shared = Shared::of(page.texts.clone(), count, step, most)?;
            if start == 0 {
                let of_each = size_of::<u32>() + shared.saved();
                let room = chunk.likely().saturating_sub(chunk.rows.saturating_mul(of_each));
                self.memory = with_room(room + room / 64)?;
            }
            let mut run = Run { row, start, shared, ends: Vec::new() };
            if let Some(length) = run.add(page, most, &mut self.memory)? {
                self.runs.push(run);
                return Ok(length);
            }
        }
        Err(Stop::Rare)
    }
}

impl Run {
    /// Appends what is left of the texts of a page. Gives how long they are whole, `most` at most; nothing, and nothing is
    /// appended, if one of them does not share what others do.
    fn add(&mut self, page: &TextPage<'_>, most: usize, rest: &mut Vec<u8>) -> Decoded<Option<usize>> {
        let Self { start, shared, ends, .. } = self;
        let (there, mut texts) = (&page.there, page.texts.clone());
        let room = texts.most_bytes(there.count_set_bits(), shared.saved()).min(most);
        let (from, known) = (rest.len() - *start, ends.len());
        u32::try_from(from.saturating_add(room)).map_err(|_| Stop::Rare)?;
        if shared.length.is_none() {
            ends.reserve(there.len());
        }
        let before = rest.len();
        rest.try_reserve(room).map_err(|_| Stop::Rare)?;
        rest.resize(before + room, 0);
        let mut room = rest.get_mut(before..).unwrap_or_default();
        let (free, mut whole) = (room.len(), 0);
        for slot in 0..there.len() {
            if there.value(slot) {
                let text = texts.text()?;
                whole += text.len();
                if whole > most {
                    return Err(TOO_MUCH_TEXT);
                }
                // There is room for all, unless one of those that follow is shorter than what is shared.
                let Some(after) = shared.put(text, room) else {
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

    /// Rows without a text.
    fn skip(&mut self, rows: usize) {
        if self.shared.length.is_none() {
            let end = self.ends.last().copied().unwrap_or_default();
            self.ends.resize(self.ends.len() + rows, end);
        }
    }

    /// Where what is left of a text is: in its row, and after so many texts of this run.
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
    /// Of one in `step` of so many texts, which is not 0 and which are so long at `most`.
    fn of(texts: Texts<'_>, count: usize, step: usize, most: usize) -> Decoded<Self> {
        let mut all = texts.clone();
        let first = all.text()?;
        let (mut prefix, mut suffix, mut shortest, mut longest) = (first, first, first.len(), first.len());
        let mut whole = first.len();
        for at in 1..count {
            let text = all.text()?;
            whole += text.len();
            if whole > most {
                return Err(TOO_MUCH_TEXT);
            }
            if at % step != 0 {
                continue;
            }
            if !text.starts_with(prefix) {
                let same = prefix.iter().zip(text).take_while(|(one, other)| one == other).count();
                prefix = prefix.get(..same).unwrap_or_default();
            }
            if !text.ends_with(suffix) {
                let same = suffix.iter().rev().zip(text.iter().rev()).take_while(|(one, other)| one == other).count();
                suffix = suffix.get(suffix.len() - same..).unwrap_or_default();
            }
            (shortest, longest) = (shortest.min(text.len()), longest.max(text.len()));
        }
        // What both have in the shortest text belongs to one of them.
        let excess = (prefix.len() + suffix.len()).saturating_sub(shortest);
        let suffix = suffix.get(excess..).unwrap_or_default();
        let (mut search, mut all) = (digits::Search::new(), texts);
        for at in 0..count {
            let text = all.text()?;
            if at % step == 0 {
                search.add(text.get(prefix.len()..text.len() - suffix.len()).unwrap_or_default());
            }
        }
        let length = (shortest == longest).then_some(shortest);
        Ok(Self { prefix: prefix.into(), digits: search.found(), suffix: suffix.into(), length })
    }

    fn len(&self) -> usize {
        self.prefix.len() + self.digits.len() + self.suffix.len()
    }

    /// How many bytes less there are of each text.
    fn saved(&self) -> usize {
        self.len() - self.digits.packed()
    }

    /// Writes what is left of a text to the front of `room`, and gives the room after it; nothing if it does not share what
    /// others do, or if there is no room.
    #[inline]
    fn put<'r>(&self, text: &[u8], room: &'r mut [u8]) -> Option<&'r mut [u8]> {
        if self.length.is_some_and(|length| length != text.len()) {
            return None;
        }
        let (prefix, rest) = text.split_at_checked(self.prefix.len())?;
        let (rest, suffix) = rest.split_at_checked(rest.len().checked_sub(self.suffix.len())?)?;
        let (head, _) = rest.split_at_checked(rest.len().checked_sub(self.digits.len())?)?;
        if !(short::is_same(prefix, &self.prefix) && short::is_same(suffix, &self.suffix)) {
            return None;
        }
        let (to, room) = room.split_at_mut_checked(head.len())?;
        short::copy(to, head);
        self.digits.pack(text.get(prefix.len() + head.len()..)?, room)
    }

    /// Appends the whole text of which this is left.
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

impl Trimmed {
    /// How many rows there are.
    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    /// Memory held.
    pub(crate) fn bytes(&self) -> usize {
        let run = |run: &Run| run.shared.bytes() + size_of::<u32>() * run.ends.capacity();
        let nulls = self.nulls.as_ref().map_or(0, |nulls| nulls.buffer().capacity());
        self.rest.capacity() + nulls + self.runs.iter().map(run).sum::<usize>()
    }

    /// The whole texts of so many `rows`, which ascend.
    pub(crate) fn whole(&self, rows: impl Iterator<Item = usize>, count: usize) -> Decoded<StringArray> {
        // Most texts are as long as others.
        let saved = self.runs.first().map_or(0, |run| run.shared.saved());
        let likely = count.saturating_mul(self.rest.len() / self.rows.max(1) + saved + 1);
        let mut bytes = Vec::with_capacity(likely.min(self.whole));
        let mut offsets = Vec::with_capacity(count + 1);
        offsets.push(0);
        let mut valid = BooleanBufferBuilder::new(count);
        let mut runs = self.runs.iter().peekable();
        let mut run: Option<&Run> = None;
        // How many texts of the run stand before this row.
        let (mut before, mut counted) = (0, 0);
        for row in rows {
            while let Some(next) = runs.next_if(|next| next.row <= row) {
                (run, before, counted) = (Some(next), 0, next.row);
            }
            before += there_in(self.nulls.as_ref(), counted, row);
            counted = row;
            let text = run.filter(|_| there_in(self.nulls.as_ref(), row, row + 1) > 0);
            valid.append(text.is_some());
            if let Some((run, (start, end))) = text.and_then(|run| Some((run, run.place(row, before)?))) {
                run.shared.append(self.rest.get(start..end).unwrap_or_default(), &mut bytes);
            }
            offsets.push(i32::try_from(bytes.len()).map_err(|_| Stop::Rare)?);
        }
        let offsets = OffsetBuffer::new(offsets.into());
        StringArray::try_new(offsets, bytes.into(), nulls(valid)).map_err(|_| NO_UTF8)
    }
}
