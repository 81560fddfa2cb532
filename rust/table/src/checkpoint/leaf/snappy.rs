//! Snappy, two pages at once.
//!
//! Where a tag stands depends on all tags before it, so whoever decompresses one page waits for most of the time. Two
//! pages that do not depend on each other are in work at once here, step by step in turn, which takes less time. A
//! step makes the processor guess next to nothing: it copies the most that tags may say, and the next one overwrites what is too
//! much.
//!
//! Invariant: pages become what the library makes of them one by one, or are refused as there (`tests`).
//!
//! Snappy: "Snappy compressed format description".

/// What one tag says.
#[derive(Clone, Copy)]
struct Tag {
    /// Bytes of a literal, and of the literal with its tag; none if it is none.
    literal: u8,
    whole: u8,
    /// Bytes of a copy, and of its tag; none if it is none.
    length: u8,
    tag: u8,
    /// Of how far a copy goes back: what the tag says itself, and which bits of the two bytes behind it count.
    back: u16,
    mask: u16,
}

/// Of tags that are left to [`Stream::any`]: longer than any tag or copy, so that no step takes them.
const RARE: u8 = u8::MAX;
static TAGS: [Tag; 256] = tags();

/// A tag with the longest literal and a copy after it, and what a step reads and writes of it at once.
const STEP_READS: usize = 80;
const LITERAL: usize = 16;
const LONGEST: usize = 64;
const STEP_WRITES: usize = 2 * LONGEST;

const fn tags() -> [Tag; 256] {
    let none = Tag { literal: 0, whole: 0, length: 0, tag: 0, back: 0, mask: 0 };
    let rare = Tag { whole: RARE, length: RARE, ..none };
    let mut all = [none; 256];
    let mut byte = 0_u8;
    loop {
        let number = byte >> 2;
        all[byte as usize] = match byte & 3 {
            0 if number < 60 => Tag { literal: number + 1, whole: number + 2, ..none },
            1 => Tag { length: (number & 7) + 4, tag: 2, back: (byte as u16 >> 5) << 8, mask: 0xff, ..none },
            2 => Tag { length: number + 1, tag: 3, mask: 0xffff, ..none },
            _ => rare,
        };
        if byte == u8::MAX {
            return all;
        }
        byte += 1;
    }
}

/// Decompresses two pages, each into exactly as many bytes as it says to have; `None` if one of them is broken.
pub(super) fn decompress(pages: [&[u8]; 2], out: [&mut [u8]; 2]) -> Option<()> {
    let ([first, second], [first_out, second_out]) = (pages, out);
    let (mut first, mut second) = (Stream::new(first, first_out)?, Stream::new(second, second_out)?);
    loop {
        // Places of their own, which need not be written to memory in each step.
        let ((mut one, mut written), (mut other, mut other_written)) = (first.at(), second.at());
        let is_first = loop {
            if !step(&mut one, first.out, &mut written) {
                break true;
            }
            if !step(&mut other, second.out, &mut other_written) {
                break false;
            }
        };
        (first.rest, first.written, second.rest, second.written) = (one, written, other, other_written);
        if is_first {
            if !first.any()? {
                return second.finish();
            }
        } else if !second.any()? {
            return first.finish();
        }
    }
}

struct Stream<'p> {
    /// What is not read yet.
    rest: &'p [u8],
    out: &'p mut [u8],
    written: usize,
}

/// Takes a literal and the copy after it, or only what is there of them. `false`, with nothing taken, where a bound is near
/// or a tag is rare.
#[inline(always)]
fn step(rest: &mut &[u8], out: &mut [u8], written: &mut usize) -> bool {
    let Some(tags) = rest.first_chunk::<STEP_READS>() else { return false };
    let Some(room) = out.get_mut(*written..).and_then(|rest| rest.first_chunk_mut::<STEP_WRITES>()) else {
        return false;
    };
    let tag = TAGS[tags[0] as usize];
    room[..LITERAL].copy_from_slice(&tags[1..=LITERAL]);
    if tag.literal as usize > LITERAL {
        room[LITERAL..LONGEST].copy_from_slice(&tags[1 + LITERAL..=LONGEST]);
    }
    let Some([byte, low, high]) = tags.get(tag.whole as usize..).and_then(|rest| rest.first_chunk()) else {
        return false;
    };
    let copy = TAGS[*byte as usize];
    let back = usize::from(copy.back | u16::from_le_bytes([*low, *high]) & copy.mask);
    // A copy of what it writes itself is made byte by byte.
    if back < copy.length as usize {
        return false;
    }
    // The masks change nothing, and spare looking whether what follows is in bounds.
    let literal = tag.literal as usize & (LONGEST - 1);
    let Some(from) = (*written + literal).checked_sub(back) else { return false };
    let Some(from) = out.get(from..).and_then(|rest| rest.first_chunk::<LONGEST>()) else { return false };
    let copied = *from;
    let Some(room) = out.get_mut(*written..).and_then(|rest| rest.first_chunk_mut::<STEP_WRITES>()) else {
        return false;
    };
    let Some(after) = rest.get(tag.whole as usize + (copy.tag & 3) as usize..) else { return false };
    room[literal..literal + LONGEST].copy_from_slice(&copied);
    *rest = after;
    *written += literal + copy.length as usize;
    true
}

impl<'p> Stream<'p> {
    fn new(source: &'p [u8], out: &'p mut [u8]) -> Option<Self> {
        let (mut length, mut read) = (0, 0);
        loop {
            let byte = *source.get(read)?;
            // No page has more than 2^32 bytes.
            if read == 4 && byte > 0xf {
                return None;
            }
            length |= u64::from(byte & 0x7f) << (7 * read);
            read += 1;
            if byte & 0x80 == 0 {
                break;
            }
        }
        (length == out.len() as u64).then_some(Self { rest: source.get(read..)?, out, written: 0 })
    }

    /// What is not read yet, and how much is written.
    fn at(&self) -> (&'p [u8], usize) {
        (self.rest, self.written)
    }

    fn finish(&mut self) -> Option<()> {
        loop {
            while step(&mut self.rest, self.out, &mut self.written) {}
            if !self.any()? {
                return Some(());
            }
        }
    }

    /// Takes the next tag, whatever it is. `false` at the end.
    fn any(&mut self) -> Option<bool> {
        let (source, written) = self.at();
        let mut read = 0;
        let Some(tag) = source.get(read) else { return (written == self.out.len()).then_some(false) };
        let number = usize::from(tag >> 2);
        let mut little_endian = |bytes: usize| {
            let found = source.get(read + 1..read + 1 + bytes)?;
            read += bytes;
            Some(found.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
        };
        let (length, back) = match tag & 3 {
            0 if number < 60 => (number + 1, 0),
            0 => (little_endian(number - 59)?.checked_add(1)?, 0),
            1 => ((number & 7) + 4, usize::from(tag >> 5) << 8 | little_endian(1)?),
            2 => (number + 1, little_endian(2)?),
            _ => (number + 1, little_endian(4)?),
        };
        read += 1;
        if tag & 3 == 0 {
            let literal = source.get(read..read.checked_add(length)?)?;
            self.out.get_mut(written..written + length)?.copy_from_slice(literal);
            read += length;
        } else {
            let from = written.checked_sub(back).filter(|_| back > 0)?;
            let out = self.out.get_mut(from..written + length)?;
            for place in back..out.len() {
                out[place] = out[place - back];
            }
        }
        (self.rest, self.written) = (source.get(read..)?, written + length);
        Some(true)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;
    use snap::raw::{Decoder, Encoder, decompress_len};

    use super::*;

    /// Both pages become what the library makes of them, in either order, or are refused where it refuses one.
    fn check(pages: [&[u8]; 2]) -> Result<(), TestCaseError> {
        let expected = pages.map(|page| {
            let length = decompress_len(page).ok().filter(|length| *length < 1 << 20)?;
            let mut out = vec![0; length];
            Decoder::new().decompress(page, &mut out).ok().filter(|written| *written == length).map(|_| out)
        });
        for order in [[0, 1], [1, 0]] {
            let lengths = pages.map(|page| decompress_len(page).unwrap_or(7).min(1 << 20));
            let [mut first, mut second] = order.map(|place: usize| vec![0xee; lengths[place]]);
            let done = decompress(order.map(|place| pages[place]), [&mut first, &mut second]);
            let made = done.map(|()| [first, second]);
            let library: Option<Vec<_>> = order.iter().map(|place| expected[*place].clone()).collect();
            prop_assert_eq!(made.map(Vec::from), library);
        }
        Ok(())
    }

    fn compressed(bytes: &[u8]) -> Vec<u8> {
        Encoder::new().compress_vec(bytes).unwrap()
    }

    /// Text of few kinds of characters, in which much comes again, nearby and far away.
    fn page() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            prop::collection::vec(0..16_u8, 1..9),
            prop::collection::vec(any::<u8>(), 1..200),
            (any::<u8>(), 1..200_usize).prop_map(|(byte, count)| vec![byte; count]),
            Just(b"part-00000-".to_vec()),
            Just(b"date=2024-01-01/country=somewhere far away/another level of folders/and a name".to_vec()),
        ];
        prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn pages_are_decompressed_as_by_the_library(first in page(), second in page()) {
            check([&compressed(&first), &compressed(&second)])?;
        }

        #[test]
        fn broken_pages_are_refused_as_by_the_library(
            first in page(),
            second in page(),
            broken in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in any::<prop::sample::Index>(),
            is_cut in any::<bool>(),
        ) {
            let (mut first, second) = (compressed(&first), compressed(&second));
            for (place, byte) in broken {
                let place = place.index(first.len());
                first[place] = byte;
            }
            if is_cut {
                first.truncate(cut.index(first.len()));
            }
            check([&first, &second])?;
        }

        #[test]
        fn any_tags_are_taken_as_by_the_library(
            length in 0..400_u16,
            tags in prop::collection::vec(any::<u8>(), 0..300),
            second in page(),
        ) {
            let length = [length as u8 & 0x7f | 0x80, (length >> 7) as u8];
            // A literal to copy from, so that not every copy is out of bounds.
            let first = [&length[..], &[59 << 2], &[b'a'; 60], &tags].concat();
            check([&first, &compressed(&second)])?;
        }
    }

    #[test]
    fn rare_tags() {
        // A literal whose length takes two bytes, a copy that goes back by four bytes, and one of what it writes itself.
        let long: Vec<u8> = (0..300_u16).map(|number| number as u8).collect();
        let page =
            [&[0xc6, 0x02, 61 << 2, 43, 1], &long[..], &[13 << 2 | 3, 44, 1, 0, 0], &[11 << 2 | 2, 1, 0]].concat();
        let mut out = [vec![0; 326], vec![0; 326]];
        let [first, second] = &mut out;
        assert_eq!(decompress([&page, &page], [first, second]), Some(()));
        assert_eq!(out[0], [&long[..], &long[..14], &[13; 12]].concat());
        assert_eq!(out[0], out[1]);
    }

    #[test]
    fn lengths_that_no_page_has_are_refused() {
        let mut out = [vec![0; 8], vec![0; 8]];
        let [first, second] = &mut out;
        for length in [&[0xff; 9][..], &[0x88, 0x80, 0x80, 0x80, 0x10, 0x1c], &[9], &[]] {
            let page = [length, &[7 << 2], b"abcdefgh"].concat();
            assert_eq!(decompress([&page, &compressed(b"abcdefgh")], [first, second]), None, "{length:?}");
        }
    }
}
