//! Reads numbers packed into bits, side by side or as differences.
//!
//! Invariant: no more numbers are returned than requested, and nothing is read beyond the end of the bytes.
//!
//! Parquet format: "Delta Encoding", "Run Length Encoding / Bit-Packing Hybrid".

use crate::thrift::Thrift;

/// The most bits of a packed number.
const MAX_BITS: u8 = 32;

/// The first `count` numbers of `width` bits, 32 at most, the lowest bits first; bytes that are missing are zero.
pub(crate) fn unpacked(bytes: &[u8], width: u32, count: usize) -> impl Iterator<Item = u32> {
    (0..count).map(move |number| nth(bytes, width, number))
}

/// The number at one index.
pub(crate) fn nth(bytes: &[u8], width: u32, place: usize) -> u32 {
    let bit = place * width as usize;
    let rest = bytes.get(bit / 8..).unwrap_or_default();
    let word = match rest.first_chunk::<8>() {
        Some(eight) => u64::from_le_bytes(*eight),
        None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    // At most 7 bits of other numbers are below, so that 32 bits are always complete.
    (word >> (bit % 8) & ((1_u64 << width) - 1)) as u32
}

/// How many numbers are unpacked together, and how many bytes are read for that: eight for the last one.
const UNPACKED_AT_ONCE: usize = 8;
const WINDOW_BYTES: usize = (UNPACKED_AT_ONCE - 1) * (MAX_BITS as usize) / 8 + 8;

/// Appends the same numbers as [`unpacked`] returns, faster if there are many.
pub(crate) fn unpack(bytes: &[u8], width: u32, count: usize, out: &mut Vec<u32>) {
    // No width needs more bytes than the window has.
    let width = width.min(u32::from(MAX_BITS));
    let (mask, bits) = ((1_u64 << width) - 1, width as usize);
    let mut rest = bytes;
    out.reserve(count);
    let mut left = count;
    while left >= UNPACKED_AT_ONCE
        && let Some(window) = rest.first_chunk::<WINDOW_BYTES>()
    {
        let number = |place: usize| {
            let bit = place * bits;
            let word = window[bit / 8..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            (word >> (bit % 8) & mask) as u32
        };
        out.extend_from_slice(&std::array::from_fn::<_, UNPACKED_AT_ONCE, _>(number));
        rest = rest.get(bits..).unwrap_or_default();
        left -= UNPACKED_AT_ONCE;
    }
    out.extend(unpacked(rest, width, left));
}

/// Calls `take` with the numbers at the beginning of `bytes`, packed as differences, and returns the bytes after them;
/// `None` if there are more than `most`, or they are cut off.
pub(crate) fn differences(bytes: &[u8], most: u64, mut take: impl FnMut(i32)) -> Option<&[u8]> {
    let mut thrift = Thrift { bytes };
    let (block, groups, count) = (thrift.varint()?, thrift.varint()?, thrift.varint()?);
    let mut last = thrift.int()?;
    let group = block.checked_div(groups)?;
    if count > most || group == 0 {
        return None;
    }
    if count > 0 {
        take(last);
    }
    // The first number is in the header.
    let mut left = count.saturating_sub(1);
    while left > 0 {
        let least = thrift.int()?;
        let (widths, mut rest) = thrift.bytes.split_at_checked(usize::try_from(groups).ok()?)?;
        for width in widths {
            if left == 0 {
                break;
            }
            let bytes = group.checked_mul(u64::from(*width))? / 8;
            // The last group may be incomplete.
            let (packed, after) = rest.split_at_checked(usize::try_from(bytes).ok()?).unwrap_or((rest, &[]));
            let here = usize::try_from(group.min(left)).ok().filter(|_| *width <= MAX_BITS)?;
            for difference in unpacked(packed, u32::from(*width), here) {
                last = last.wrapping_add(least).wrapping_add(difference.cast_signed());
                take(last);
            }
            rest = after;
            left -= here as u64;
        }
        thrift.bytes = rest;
    }
    Some(thrift.bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The numbers, and what stands behind them.
    fn numbers(bytes: &[u8], most: u64) -> Option<(Vec<i32>, &[u8])> {
        let mut out = Vec::new();
        let rest = differences(bytes, most, |number| out.push(number))?;
        Some((out, rest))
    }

    #[test]
    fn many_numbers_are_unpacked_as_one_by_one() {
        let bytes: Vec<u8> = (0..400_u32).map(|place| (place.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for width in 0..=32 {
            for count in [0, 7, 8, 9, 64, 77, 3201] {
                for length in [0, 5, 41, 400] {
                    let mut out = vec![9];
                    unpack(&bytes[..length], width, count, &mut out);
                    let expected: Vec<u32> =
                        std::iter::once(9).chain(unpacked(&bytes[..length], width, count)).collect();
                    assert!(out == expected, "{count} of {width} bits in {length} bytes");
                }
            }
        }
    }

    #[test]
    fn differences_add_up() {
        // The examples of the format's document: blocks of 128 numbers in 4 groups, 5 numbers each.
        let same = [&[0x80, 1, 4, 5, 2, 2, 0, 0, 0, 0][..], b"rest"].concat();
        assert_eq!(numbers(&same, 5), Some((vec![1, 2, 3, 4, 5], &b"rest"[..])));
        let packed = [&[0x80, 1, 4, 5, 14, 3, 2, 0, 0, 0, 0b1100_0000, 0b11][..], &[0; 6], b"rest"].concat();
        assert_eq!(numbers(&packed, 5), Some((vec![7, 5, 3, 1, 2], &b"rest"[..])));
        assert_eq!(numbers(&[0x80, 1, 4, 0, 0], 9), Some((vec![], &b""[..])));
        // A last group that is cut short, and sums beyond 32 bits.
        assert_eq!(numbers(&[0x80, 1, 1, 2, 0, 0, 8, 9], 9), Some((vec![0, 9], &b""[..])));
        let around = [&[0x80, 1, 1, 2][..], &[0xfe, 0xff, 0xff, 0xff, 0x0f], &[2, 0]].concat();
        assert_eq!(numbers(&around, 9), Some((vec![i32::MAX, i32::MIN], &b""[..])));
    }

    #[test]
    fn what_is_too_much_or_cut_off_is_refused() {
        for bytes in [
            &[0x80, 1, 4, 6, 2][..],
            &[0x80, 1, 0, 1, 2],
            &[3, 4, 1, 2],
            &[0x80, 1, 4, 3, 2, 2, 0, 0],
            &[0x80, 1, 1, 3, 2, 2, 33],
            &[0x80, 1],
            &[],
        ] {
            assert_eq!(numbers(bytes, 5), None, "{bytes:?}");
        }
    }
}
