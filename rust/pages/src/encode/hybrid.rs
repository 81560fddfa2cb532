//! Writes runs of small numbers: levels and dictionary codes, run-length encoded or bit-packed.
//!
//! Parquet format: "Run Length Encoding / Bit-Packing Hybrid".

/// The most numbers that are packed together, so that their count fits into one byte of header.
const MAX_PACKED: usize = 8 * 63;
/// Shorter runs of one number are bit-packed.
const MIN_RUN: usize = 8;

/// Writes numbers of `width` bits to `out`.
pub(super) struct Hybrid<'o> {
    out: &'o mut Vec<u8>,
    width: u32,
    /// Numbers that will be packed.
    waiting: Vec<u32>,
}

impl<'o> Hybrid<'o> {
    pub(super) fn new(out: &'o mut Vec<u8>, width: u32) -> Self {
        Self { out, width, waiting: Vec::new() }
    }

    /// Appends a number `times` times.
    pub(super) fn push(&mut self, number: u32, mut times: usize) {
        // Numbers are packed in groups of eight.
        let missing = self.waiting.len().next_multiple_of(8) - self.waiting.len();
        let together = if times >= MIN_RUN + missing { missing } else { times };
        for _ in 0..together {
            self.waiting.push(number);
            if self.waiting.len() == MAX_PACKED {
                self.pack();
            }
        }
        times -= together;
        if times > 0 {
            self.pack();
            varint(self.out, (times as u64) << 1);
            let bytes = number.to_le_bytes();
            self.out.extend_from_slice(bytes.get(..self.width.div_ceil(8) as usize).unwrap_or(&bytes));
        }
    }

    fn pack(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        self.waiting.resize(self.waiting.len().next_multiple_of(8), 0);
        varint(self.out, (self.waiting.len() as u64 / 8) << 1 | 1);
        let (mut bits, mut count) = (0_u64, 0);
        for number in self.waiting.drain(..) {
            bits |= u64::from(number) << count;
            count += self.width;
            while count >= 8 {
                self.out.push(bits as u8);
                bits >>= 8;
                count -= 8;
            }
        }
    }

    /// Writes the waiting numbers.
    pub(super) fn finish(mut self) {
        self.pack();
    }
}

/// How many bits numbers below `count` take.
pub(super) fn width_of(count: usize) -> u32 {
    usize::BITS - count.saturating_sub(1).leading_zeros()
}

pub(super) fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decode::numbers_of_runs;

    proptest! {
        /// Whatever runs there are, they are read as they were written.
        #[test]
        fn what_is_written_is_read(
            width in 0_u32..14,
            runs in prop::collection::vec((any::<u32>(), prop_oneof![Just(1_usize), 1..20_usize, 400..1200_usize]), 0..40),
        ) {
            let runs = runs.into_iter().map(|(number, times)| (number & ((1 << width) - 1), times)).collect::<Vec<_>>();
            let mut bytes = Vec::new();
            let mut hybrid = Hybrid::new(&mut bytes, width);
            runs.iter().for_each(|(number, times)| hybrid.push(*number, *times));
            hybrid.finish();
            let expected: Vec<u32> = runs.iter().flat_map(|(number, times)| std::iter::repeat_n(*number, *times)).collect();
            prop_assert_eq!(numbers_of_runs(&bytes, width, expected.len()), Some(expected));
        }
    }

    #[test]
    fn widths() {
        assert_eq!([0, 1, 2, 3, 4, 5, 256, 257].map(width_of), [0, 0, 1, 2, 2, 3, 8, 9]);
    }

    #[test]
    fn the_example_of_the_format() {
        let mut bytes = Vec::new();
        let mut hybrid = Hybrid::new(&mut bytes, 3);
        (0..8).for_each(|number| hybrid.push(number, 1));
        hybrid.push(5, 100);
        hybrid.finish();
        assert_eq!(bytes, [0b0000_0011, 0b1000_1000, 0b1100_0110, 0b1111_1010, 0xc8, 0x01, 5]);
    }
}
