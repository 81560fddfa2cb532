//! Reads runs of small numbers: levels and dictionary codes, run-length encoded or bit-packed.
//!
//! Invariant: no more numbers are returned than requested, whatever a run claims.
//!
//! Parquet format: "Run Length Encoding / Bit-Packing Hybrid".

use arrow_buffer::BooleanBufferBuilder;

use super::chunk::{Decoded, Failure};
use crate::bits::{nth, unpack, unpacked};

const CUT_OFF: Failure = Failure::Corrupt("a run of levels or codes is cut off");

/// One run.
enum Run<'b> {
    /// One number, so many times.
    Same(u32, usize),
    /// So many numbers, packed.
    Packed(&'b [u8], usize),
}

/// The runs that encode `left` numbers of `width` bits.
pub(super) struct Runs<'b> {
    bytes: &'b [u8],
    width: u32,
    left: usize,
}

impl<'b> Runs<'b> {
    pub(super) fn new(bytes: &'b [u8], width: u32, count: usize) -> Decoded<Self> {
        if width > u32::BITS {
            return Err(Failure::Corrupt("levels or codes are wider than 32 bits"));
        }
        Ok(Self { bytes, width, left: count })
    }

    /// The next run; `None` after all numbers.
    fn run(&mut self) -> Decoded<Option<Run<'b>>> {
        while self.left > 0 {
            let header = self.varint().ok_or(CUT_OFF)?;
            let run = if header & 1 == 1 {
                let groups = usize::try_from(header >> 1).map_err(|_| CUT_OFF)?;
                let count = groups.saturating_mul(8).min(self.left);
                // Some writers leave out the padding of the last group.
                let needed = count.saturating_mul(self.width as usize).div_ceil(8);
                let full = groups.saturating_mul(self.width as usize).min(self.bytes.len());
                let (packed, rest) = self.bytes.split_at_checked(full).ok_or(CUT_OFF)?;
                if packed.len() < needed {
                    return Err(CUT_OFF);
                }
                self.bytes = rest;
                Run::Packed(packed, count)
            } else {
                let count = usize::try_from(header >> 1).unwrap_or(usize::MAX).min(self.left);
                let (value, rest) = self.bytes.split_at_checked(self.width.div_ceil(8) as usize).ok_or(CUT_OFF)?;
                self.bytes = rest;
                Run::Same(value.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte)), count)
            };
            let (Run::Same(_, count) | Run::Packed(_, count)) = run;
            self.left -= count;
            if count > 0 {
                return Ok(Some(run));
            }
        }
        Ok(None)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// Appends the numbers.
    pub(super) fn numbers(mut self, out: &mut Vec<u32>) -> Decoded<()> {
        let width = self.width;
        while let Some(run) = self.run()? {
            match run {
                Run::Same(value, count) => out.resize(out.len() + count, value),
                Run::Packed(bytes, count) => unpack(bytes, width, count, out),
            }
        }
        Ok(())
    }

    /// Appends the numbers at these indexes, which ascend.
    pub(super) fn some(mut self, places: impl Iterator<Item = usize>, out: &mut Vec<u32>) -> Decoded<()> {
        let (mut run, mut from, mut to) = (Run::Same(0, 0), 0, 0);
        for place in places {
            while place >= to {
                run = self.run()?.ok_or(CUT_OFF)?;
                let (Run::Same(_, count) | Run::Packed(_, count)) = run;
                (from, to) = (to, to + count);
            }
            out.push(match run {
                Run::Same(value, _) => value,
                Run::Packed(bytes, _) => nth(bytes, self.width, place - from),
            });
        }
        Ok(())
    }

    /// Calls `take` with each number and how often it is repeated.
    pub(super) fn counted(mut self, mut take: impl FnMut(u32, usize)) -> Decoded<()> {
        let width = self.width;
        while let Some(run) = self.run()? {
            match run {
                Run::Same(value, count) => take(value, count),
                Run::Packed(bytes, count) => unpacked(bytes, width, count).for_each(|number| take(number, 1)),
            }
        }
        Ok(())
    }

    /// Appends a bit for each level: whether it is at least `least`. Fails if a level is above `most`.
    pub(super) fn at_least(mut self, least: u32, most: u32, out: &mut BooleanBufferBuilder) -> Decoded<()> {
        let width = self.width;
        let mut highest = 0;
        while let Some(run) = self.run()? {
            match run {
                Run::Same(level, count) => {
                    highest = highest.max(level);
                    out.append_n(count, level >= least);
                }
                Run::Packed(bytes, count) if width == 1 && least == 1 => out.append_packed_range(0..count, bytes),
                Run::Packed(bytes, count) => unpacked(bytes, width, count).for_each(|level| {
                    highest = highest.max(level);
                    out.append(level >= least);
                }),
            }
        }
        if highest > most { Err(Failure::Corrupt("a level is above the highest of its column")) } else { Ok(()) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn numbers(bytes: &[u8], width: u32, count: usize) -> Option<Vec<u32>> {
        let mut out = Vec::new();
        Runs::new(bytes, width, count).ok()?.numbers(&mut out).ok()?;
        Some(out)
    }

    #[test]
    fn runs_of_both_kinds() {
        // The example of the format's document: 0 to 7 in three bits.
        let packed = [0b0000_0011, 0b1000_1000, 0b1100_0110, 0b1111_1010];
        assert_eq!(numbers(&packed, 3, 8), Some(vec![0, 1, 2, 3, 4, 5, 6, 7]));
        assert_eq!(numbers(&packed, 3, 5), Some(vec![0, 1, 2, 3, 4]));
        assert_eq!(numbers(&[0x08, 7, 0x03, 0xff], 1, 12), Some(vec![7, 7, 7, 7, 1, 1, 1, 1, 1, 1, 1, 1]));
        assert_eq!(numbers(&[0x06, 0x34, 0x12], 13, 3), Some(vec![0x1234; 3]));
        assert_eq!(numbers(&[0x06], 0, 3), Some(vec![0; 3]));
        assert_eq!(numbers(&[], 5, 0), Some(vec![]));
    }

    #[test]
    fn what_is_cut_off_is_refused() {
        for (bytes, width, count) in
            [(&[][..], 1, 1), (&[0x03], 1, 1), (&[0x06, 0x34], 13, 3), (&[0x80], 1, 1), (&[0x00; 4], 1, 9)]
        {
            assert_eq!(numbers(bytes, width, count), None, "{bytes:?}");
        }
        assert!(Runs::new(&[], 33, 1).is_err());
    }

    #[test]
    fn a_run_gives_no_more_than_asked() {
        let endless = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 1];
        assert_eq!(numbers(&endless, 1, 3), Some(vec![1; 3]));
        let mut bits = BooleanBufferBuilder::new(0);
        Runs::new(&[0x03, 0b0101_0101, 0x10, 1], 1, 16).unwrap().at_least(1, 1, &mut bits).unwrap();
        assert_eq!(bits.finish().count_set_bits(), 4 + 8);
    }

    #[test]
    fn a_level_above_the_highest_is_refused() {
        let levels = |bytes: &[u8], width, most| {
            Runs::new(bytes, width, 1).unwrap().at_least(most, most, &mut BooleanBufferBuilder::new(0))
        };
        assert!(levels(&[0x03, 0b11], 2, 2).is_err());
        assert!(levels(&[0x03, 0b10], 2, 2).is_ok());
        // What a run does not need is not looked at.
        assert!(levels(&[0x03, 0b1110], 2, 2).is_ok());
        assert!(levels(&[0x02, 2], 1, 1).is_err());
    }
}
