//! Texts by what they share: a directory that others have, too, a [`Shape`], and what varies in it.
//!
//! What fits no shape, for shapes are worth it only where many texts have them, is kept as it is.

use ahash::{HashMap, RandomState};
use arrow_array::{Array, StringArray};

use super::Rows;
use super::integers::Integers;
use super::shape::{Fields, Shape};

/// Shapes at most.
const MOST_SHAPES: usize = 2048;
/// Directories that any column may have, and how many more for so many rows.
const MOST_HEADS: usize = 1024;
const ROWS_OF_A_HEAD: usize = 8;
/// A longer text is kept as it is, and so is one in which more pieces vary: each takes room in every row.
const LONGEST_SHAPE: usize = 1024;
const MOST_PIECES: usize = 16;
/// Rows after which it is known whether shapes are of use.
const TRIAL: usize = 2048;
/// UUIDs looked at to find whether some are the same.
const SAMPLE: usize = 512;

/// Packed texts.
#[derive(Debug, Default)]
pub(super) struct Texts {
    /// Directories, one after the other, and their ends.
    heads: Vec<u8>,
    ends: Vec<usize>,
    head_of: Integers,
    shapes: Vec<Shape>,
    /// One more than the shape; 0 for a text that is kept as it is.
    shape_of: Integers,
    /// Numbers of shapes; of a text that is kept as it is, its place and its length.
    numbers: Vec<Integers>,
    uuids: Vec<Uuids>,
    others: Vec<u8>,
}

impl Texts {
    /// `None` if there is too much text to count its bytes.
    pub(super) fn of(texts: &StringArray) -> Option<Self> {
        let mut packing = Packing { texts: Self::default(), ..Packing::default() };
        // The first is none.
        packing.texts.ends.extend([0, 0]);
        for row in 0..texts.len() {
            // In the place of a null the last text is written again.
            match texts.is_valid(row) {
                true => packing.push(row, texts.value(row).as_bytes())?,
                false => packing.write(row),
            }
        }
        Some(packing.finished())
    }

    pub(super) fn bytes(&self) -> usize {
        let numbers: usize = self.numbers.iter().map(Integers::bytes).sum();
        let uuids: usize = self.uuids.iter().map(Uuids::bytes).sum();
        let shapes: usize = self.shapes.iter().map(Shape::bytes).sum();
        let heads = self.heads.capacity() + self.ends.capacity() * size_of::<usize>();
        heads + self.head_of.bytes() + shapes + self.shape_of.bytes() + numbers + uuids + self.others.capacity()
    }

    /// Ends of the texts in their bytes.
    pub(super) fn unpack(&self, rows: Rows<'_>) -> Option<(Vec<i32>, Vec<u8>)> {
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(rows.count() + 1));
        ends.push(0);
        let mut one = |row: usize| {
            self.print(row, &mut bytes);
            if ends.len() == 1 {
                // Most texts are as long as the first one.
                bytes.reserve_exact(bytes.len().saturating_mul(rows.count()));
            }
            ends.push(i32::try_from(bytes.len()).ok()?);
            Some(())
        };
        match rows {
            Rows::Range { start, length } => (start..start + length).try_for_each(&mut one)?,
            Rows::Set(rows) => rows.set_indices().try_for_each(&mut one)?,
        }
        Some((ends, bytes))
    }

    fn head(&self, code: usize) -> Option<&[u8]> {
        let [start, end] = self.ends.get(code..)?.first_chunk()?;
        self.heads.get(*start..*end)
    }

    fn print(&self, row: usize, out: &mut Vec<u8>) {
        let place = |number: i64| usize::try_from(number).unwrap_or(usize::MAX);
        out.extend_from_slice(self.head(place(self.head_of.get(row))).unwrap_or_default());
        let number = |slot: usize| self.numbers.get(slot).map_or(0, |numbers| numbers.get(row));
        let uuid = |slot: usize| self.uuids.get(slot).map(|uuids| uuids.get(row)).unwrap_or_default();
        match place(self.shape_of.get(row)).checked_sub(1).and_then(|shape| self.shapes.get(shape)) {
            Some(shape) => shape.print(number, uuid, out),
            None => {
                let (start, length) = (place(number(0)), place(number(1)));
                out.extend_from_slice(self.others.get(start..start.saturating_add(length)).unwrap_or_default());
            }
        }
    }
}

/// Texts while they are packed.
#[derive(Default)]
struct Packing {
    texts: Texts,
    /// Codes of directories by their hashes.
    head_codes: HashMap<u64, u32>,
    hash: RandomState,
    shape_codes: HashMap<Box<[u8]>, u32>,
    key: Vec<u8>,
    /// The row that is written.
    head: u32,
    shape: u32,
    fields: Fields,
    /// The last number of each column.
    last_numbers: Vec<i64>,
    uuids: Vec<Vec<[u8; 16]>>,
    /// Rows so far that have no shape.
    shapeless: usize,
}

impl Packing {
    fn push(&mut self, row: usize, text: &[u8]) -> Option<()> {
        let cut = memchr::memrchr(b'/', text).map_or(0, |slash| slash + 1);
        let (head, tail) = text.split_at_checked(cut)?;
        let tail = match self.head(row, head) {
            Some(code) => {
                self.head = code;
                tail
            }
            None => {
                self.head = 0;
                text
            }
        };
        self.shape = self.shape(row, tail);
        if self.shape == 0 {
            self.shapeless += 1;
            self.fields.clear();
            let start = i64::try_from(self.texts.others.len()).ok()?;
            self.fields.numbers.extend([start, i64::try_from(tail.len()).ok()?]);
            self.texts.others.extend_from_slice(tail);
        }
        self.write(row);
        Some(())
    }

    /// The code of a directory; `None` if there are too many.
    fn head(&mut self, row: usize, head: &[u8]) -> Option<u32> {
        if self.texts.head(self.head as usize).is_some_and(|last| is_same(last, head)) {
            return Some(self.head);
        }
        let hash = self.hash.hash_one(head);
        if let Some(code) = self.head_codes.get(&hash) {
            // Another directory that has the same hash stays with its text.
            return self.texts.head(*code as usize).filter(|known| is_same(known, head)).map(|_| *code);
        }
        if self.head_codes.len() > MOST_HEADS + row / ROWS_OF_A_HEAD {
            return None;
        }
        let texts = &mut self.texts;
        let code = u32::try_from(texts.ends.len()).ok()? - 1;
        texts.heads.extend_from_slice(head);
        texts.ends.push(texts.heads.len());
        self.head_codes.insert(hash, code);
        Some(code)
    }

    /// One more than the shape of a text, whose fields are then known; 0 if it is kept as it is.
    fn shape(&mut self, row: usize, text: &[u8]) -> u32 {
        if let Some(last) = (self.shape as usize).checked_sub(1).and_then(|last| self.texts.shapes.get(last))
            && last.parse(text, &mut self.fields)
        {
            return self.shape;
        }
        if row > TRIAL && self.shapeless > row / 2 {
            return 0;
        }
        let shape = Some(text).filter(|text| text.len() <= LONGEST_SHAPE).map(Shape::of);
        let Some(shape) = shape.filter(|shape| shape.varying() <= MOST_PIECES) else { return 0 };
        shape.key(&mut self.key);
        let code = match self.shape_codes.get(self.key.as_slice()) {
            Some(code) => *code,
            None if self.texts.shapes.len() == MOST_SHAPES => return 0,
            None => {
                let code = self.texts.shapes.len() as u32 + 1;
                self.shape_codes.insert(self.key.as_slice().into(), code);
                self.texts.shapes.push(shape.clone());
                code
            }
        };
        if shape.parse(text, &mut self.fields) { code } else { 0 }
    }

    /// Writes a row. What its shape does not have, others do, and it gets what was there before.
    fn write(&mut self, row: usize) {
        let texts = &mut self.texts;
        texts.head_of.push(i64::from(self.head));
        texts.shape_of.push(i64::from(self.shape));
        while texts.numbers.len() < self.fields.numbers.len() {
            let mut column = Integers::default();
            (0..row).for_each(|_| column.push(0));
            texts.numbers.push(column);
            self.last_numbers.push(0);
        }
        for (last, new) in self.last_numbers.iter_mut().zip(&self.fields.numbers) {
            *last = *new;
        }
        texts.numbers.iter_mut().zip(&self.last_numbers).for_each(|(column, number)| column.push(*number));
        self.uuids.resize_with(self.uuids.len().max(self.fields.uuids.len()), || vec![[0; 16]; row]);
        for (slot, column) in self.uuids.iter_mut().enumerate() {
            let last = column.last().copied().unwrap_or_default();
            column.push(self.fields.uuids.get(slot).copied().unwrap_or(last));
        }
    }

    fn finished(self) -> Texts {
        let mut texts = self.texts;
        texts.heads.shrink_to_fit();
        texts.ends.shrink_to_fit();
        texts.shapes.shrink_to_fit();
        texts.others.shrink_to_fit();
        texts.head_of = texts.head_of.finished();
        texts.shape_of = texts.shape_of.finished();
        texts.numbers = texts.numbers.into_iter().map(Integers::finished).collect();
        texts.uuids = self.uuids.into_iter().map(Uuids::of).collect();
        texts
    }
}

/// Whether short texts are the same, sooner than by a call.
#[inline]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |other, (a, b)| other | (a ^ b)) == 0
}

/// UUIDs; where many files have one, as those of a job often do, it is there once.
#[derive(Debug)]
enum Uuids {
    Each(Vec<[u8; 16]>),
    Coded { values: Vec<[u8; 16]>, codes: Integers },
}

impl Uuids {
    fn of(mut uuids: Vec<[u8; 16]>) -> Self {
        let mut known: HashMap<[u8; 16], i64> = HashMap::default();
        let sample = uuids.iter().step_by(uuids.len().div_ceil(SAMPLE).max(1));
        let again = sample.filter(|uuid| known.insert(**uuid, 0).is_some()).count();
        // Nulls repeat a few.
        if again <= SAMPLE / 16 {
            uuids.shrink_to_fit();
            return Self::Each(uuids);
        }
        known.clear();
        let (mut values, mut codes) = (Vec::new(), Integers::default());
        for uuid in &uuids {
            if values.len() > uuids.len() / 2 {
                uuids.shrink_to_fit();
                return Self::Each(uuids);
            }
            codes.push(*known.entry(*uuid).or_insert_with(|| {
                values.push(*uuid);
                values.len() as i64 - 1
            }));
        }
        values.shrink_to_fit();
        Self::Coded { values, codes: codes.finished() }
    }

    fn get(&self, row: usize) -> [u8; 16] {
        let uuid = match self {
            Self::Each(uuids) => uuids.get(row),
            Self::Coded { values, codes } => usize::try_from(codes.get(row)).ok().and_then(|code| values.get(code)),
        };
        uuid.copied().unwrap_or_default()
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Each(uuids) => uuids.capacity() * size_of::<[u8; 16]>(),
            Self::Coded { values, codes } => values.capacity() * size_of::<[u8; 16]>() + codes.bytes(),
        }
    }
}
