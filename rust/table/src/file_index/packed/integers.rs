//! Packs integers into as few bits as the spread of their neighbours needs.
//!
//! There are blocks of [`BLOCK`] integers, each with its least value and the bit width of the differences to it. All
//! arithmetic wraps around, so that every integer is restored. If all integers of a block are multiples of a power of 1000,
//! as times and keys often are, quotients are packed.

use super::rows::Rows;

/// How many integers are packed together.
const BLOCK: usize = 1024;
/// The largest power of 1000 that integers are divided by.
const MAX_THOUSANDS: u8 = 3;
const WORD: usize = size_of::<u64>();
/// Most bits of a number that always fits into one word, at whatever bit of a byte it begins.
const NARROW: usize = 57;
const FACTORS: [i64; MAX_THOUSANDS as usize + 1] = [1, 1000, 1_000_000, 1_000_000_000];

/// Packed integers, each of which can be read alone.
#[derive(Debug, Clone, Default)]
pub(super) struct Integers {
    blocks: Vec<Block>,
    /// Little-endian words of 64 bits, and one more at the end, so that two words can be read at any place.
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    least: i64,
    /// The index of its first word.
    start: u32,
    /// How many bits a difference has.
    width: u8,
    /// The power of 1000 that all its integers were divided by.
    thousands: u8,
}

impl Integers {
    pub(super) fn of(values: &[i64]) -> Self {
        let mut packed = Self::default();
        // The number of blocks is known; that of their bytes is not.
        packed.blocks.reserve_exact(values.len().div_ceil(BLOCK));
        values.chunks(BLOCK).for_each(|block| packed.pack(block));
        if !packed.bytes.is_empty() {
            packed.bytes.extend_from_slice(&[0; WORD]);
        }
        packed.bytes.shrink_to_fit();
        packed
    }

    pub(super) fn bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>() + self.bytes.capacity()
    }

    /// How many bytes `values` would take, roughly.
    pub(super) fn estimate(values: impl Iterator<Item = i64>) -> usize {
        let (mut bits, mut block) = (0, Span::default());
        for value in values {
            block.add(value);
            if block.count == BLOCK {
                bits += block.width() * BLOCK;
                block = Span::default();
            }
        }
        (bits + block.width() * block.count) / 8
    }

    fn pack(&mut self, values: &[i64]) {
        let Ok(start) = u32::try_from(self.bytes.len() / WORD) else { return };
        let mut span = Span::of(values);
        let mut quotients: Vec<i64>;
        let (mut values, mut thousands) = (values, 0);
        while span.width() > 0 && thousands < MAX_THOUSANDS && values.iter().all(|value| value % 1000 == 0) {
            quotients = values.iter().map(|value| value / 1000).collect();
            values = quotients.as_slice();
            span = Span::of(values);
            thousands += 1;
        }
        if values.is_empty() {
            return;
        }
        let (least, width) = (span.least, span.width());
        self.blocks.push(Block { least, start, width: width as u8, thousands });
        if width == 0 {
            return;
        }
        self.bytes.reserve((values.len() * width).div_ceil(64) * WORD);
        let (mut word, mut used) = (0, 0);
        for value in values {
            let difference = value.wrapping_sub(least).cast_unsigned();
            word |= difference << used;
            used += width;
            if used >= 64 {
                self.bytes.extend_from_slice(&word.to_le_bytes());
                used -= 64;
                word = if used == 0 { 0 } else { difference >> (width - used) };
            }
        }
        if used > 0 {
            self.bytes.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// The integer at `row`; 0 if there is none.
    #[inline]
    pub(super) fn get(&self, row: usize) -> i64 {
        self.blocks.get(row / BLOCK).map_or(0, |block| self.value(block, row % BLOCK))
    }

    #[inline]
    fn value(&self, block: &Block, at: usize) -> i64 {
        let width = usize::from(block.width);
        block.value(difference(self.bytes_of(block), width, at * width))
    }

    fn bytes_of(&self, block: &Block) -> &[u8] {
        self.bytes.get(block.start as usize * WORD..).unwrap_or_default()
    }

    /// Unpacks `count` integers of a block, beginning with the one at `from`.
    fn unpack_block(&self, block: &Block, from: usize, count: usize, values: &mut Vec<i64>) {
        let (block, width, bytes) = (*block, usize::from(block.width), self.bytes_of(block));
        let bits = (from..from + count).map(move |at| at * width);
        match width {
            0 => values.resize(values.len() + count, block.value(0)),
            1..=NARROW => values.extend(bits.map(move |bit| block.value(narrow_difference(bytes, width, bit)))),
            _ => values.extend(bits.map(move |bit| block.value(difference(bytes, width, bit)))),
        }
    }

    pub(super) fn unpack(&self, rows: Rows<'_>) -> Vec<i64> {
        let mut values = Vec::with_capacity(rows.count());
        match rows {
            Rows::Range { start, length } => {
                let end = start + length;
                let mut at = start;
                while at < end {
                    let stop = (at / BLOCK + 1).saturating_mul(BLOCK).min(end);
                    match self.blocks.get(at / BLOCK) {
                        Some(block) => self.unpack_block(block, at % BLOCK, stop - at, &mut values),
                        None => values.resize(values.len() + stop - at, 0),
                    }
                    at = stop;
                }
            }
            Rows::Set(rows) => values.extend(rows.set_indices().map(|row| self.get(row))),
        }
        values
    }
}

impl Block {
    #[inline]
    fn value(&self, difference: u64) -> i64 {
        self.least.wrapping_add(difference.cast_signed()).wrapping_mul(self.factor())
    }

    #[inline]
    fn factor(&self) -> i64 {
        FACTORS.get(usize::from(self.thousands)).copied().unwrap_or(1)
    }
}

/// The number of `width` bits that begins at `bit`.
#[inline]
fn difference(bytes: &[u8], width: usize, bit: usize) -> u64 {
    let (at, shift) = (bit / 64 * WORD, bit % 64);
    // Shifted in two steps, since a shift by 64 is not allowed.
    (word(bytes, at) >> shift | word(bytes, at + WORD) << 1 << (63 - shift)) & mask(width)
}

/// As [`difference`], for a width of at most [`NARROW`] bits.
#[inline]
fn narrow_difference(bytes: &[u8], width: usize, bit: usize) -> u64 {
    word(bytes, bit / 8) >> (bit % 8) & mask(width)
}

#[inline]
fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_le_bytes(*word))
}

#[inline]
fn mask(width: usize) -> u64 {
    u64::MAX.checked_shr(u64::BITS - width as u32).unwrap_or_default()
}

/// The least and the greatest of some integers.
struct Span {
    least: i64,
    greatest: i64,
    count: usize,
}

impl Default for Span {
    fn default() -> Self {
        Self { least: i64::MAX, greatest: i64::MIN, count: 0 }
    }
}

impl Span {
    fn of(values: &[i64]) -> Self {
        let mut span = Self::default();
        values.iter().for_each(|value| span.add(*value));
        span
    }

    #[inline]
    fn add(&mut self, value: i64) {
        self.least = self.least.min(value);
        self.greatest = self.greatest.max(value);
        self.count += 1;
    }

    fn width(&self) -> usize {
        if self.count == 0 {
            return 0;
        }
        let spread = self.greatest.wrapping_sub(self.least).cast_unsigned();
        (u64::BITS - spread.leading_zeros()) as usize
    }
}
