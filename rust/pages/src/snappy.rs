//! Decompresses Snappy.
//!
//! A compressed page is a sequence of elements: literals, which are bytes of the page, and copies of earlier bytes. The first
//! byte of an element is its tag. Elements are short, so most of the time passes until the next tag is known. The fast loop
//! finds it without branches on the kind of an element, and always copies as many bytes as the longest element has: the next
//! elements overwrite what is too much. Rare elements and both ends of the page are left to [`Decoder::any_element`].
//!
//! Invariant: a page becomes what the crate `snap` makes of it, or is refused as there (`tests`).
//!
//! Snappy: "Snappy compressed format description".

use std::hint::select_unpredictable;

/// The length of the longest element without its tag, except for long literals.
const MAX_LENGTH: usize = 64;
/// The bytes after a tag that the fast loop may look at: a literal, and the tag after it.
const WINDOW: usize = MAX_LENGTH + 2;
/// Literals with a larger number in their tag have their length after it.
const MAX_SHORT_LITERAL: u8 = 60;

/// What a tag says about its element.
#[derive(Clone, Copy)]
#[repr(align(8))]
struct Element {
    /// Of the bytes that the element becomes.
    length: u8,
    /// Bytes of the element, with its tag.
    size: u8,
    /// The upper bits of the offset, and which bits of the two bytes after the tag are its lower bits.
    high: u16,
    low_mask: u16,
    /// The smallest offset with which the fast loop takes it: smaller ones copy bytes that the same copy writes.
    min_offset: u16,
}

const ELEMENTS: [Element; 256] = {
    // The offset is always zero, so that the fast loop does not take it.
    let rare = Element { length: 0, size: 0, high: 0, low_mask: 0, min_offset: 1 };
    let mut elements = [rare; 256];
    let mut tag = 0_u8;
    loop {
        let number = tag >> 2;
        elements[tag as usize] = match tag & 3 {
            0 if number < MAX_SHORT_LITERAL => Element { length: number + 1, size: number + 2, min_offset: 0, ..rare },
            1 => {
                let (length, high) = ((number & 7) + 4, (tag as u16 >> 5) << 8);
                Element { length, size: 2, high, low_mask: 0xff, min_offset: length as u16 }
            }
            2 => Element { length: number + 1, size: 3, high: 0, low_mask: 0xffff, min_offset: number as u16 + 1 },
            _ => rare,
        };
        if tag == u8::MAX {
            break elements;
        }
        tag += 1;
    }
};

/// Decompresses a page into exactly `out`. `None` if the page is broken or has another length.
pub(super) fn decompress(page: &[u8], out: &mut [u8]) -> Option<()> {
    let header = page.iter().position(|byte| byte & 0x80 == 0)? + 1;
    if snap::raw::decompress_len(page).ok()? != out.len() {
        return None;
    }
    let mut decoder = Decoder { page, read: header, out, written: 0 };
    loop {
        decoder.short_elements();
        if !decoder.any_element()? {
            return Some(());
        }
    }
}

struct Decoder<'p> {
    page: &'p [u8],
    read: usize,
    out: &'p mut [u8],
    written: usize,
}

impl Decoder<'_> {
    /// Takes elements until one is rare or broken, or an end is near.
    #[inline(always)]
    fn short_elements(&mut self) {
        let Self { page, out, .. } = self;
        // As variables they stay in registers.
        let (mut read, mut written) = (self.read, self.written);
        let mut tag = page.get(read).copied().unwrap_or_default();
        while let Some(after) = page.get(read + 1..).and_then(|rest| rest.first_chunk::<WINDOW>()) {
            let element = ELEMENTS[usize::from(tag)];
            let (kind, literal_length) = (usize::from(tag & 3), usize::from(tag >> 2) + 1);
            let is_literal = kind == 0;
            // As many bytes as `kind` says follow the tag of a copy.
            let next_tag = select_unpredictable(is_literal, after[literal_length], after[kind]);
            let offset = element.high | u16::from_le_bytes([after[0], after[1]]) & element.low_mask;
            if offset < element.min_offset {
                break;
            }
            let Some(from) = written.checked_sub(usize::from(offset)) else { break };
            let Some(copied) = out.get(from..).and_then(|rest| rest.first_chunk::<MAX_LENGTH>()) else { break };
            let Some(literal) = after.first_chunk::<MAX_LENGTH>() else { break };
            let bytes = *select_unpredictable(is_literal, literal, copied);
            let Some(room) = out.get_mut(written..).and_then(|rest| rest.first_chunk_mut::<MAX_LENGTH>()) else {
                break;
            };
            *room = bytes;
            read += usize::from(element.size);
            written += usize::from(element.length);
            tag = next_tag;
        }
        (self.read, self.written) = (read, written);
    }

    /// Takes the next element, whatever it is. `false` at the end of the page.
    fn any_element(&mut self) -> Option<bool> {
        let Some((tag, mut rest)) = self.page.get(self.read..)?.split_first() else {
            return (self.written == self.out.len()).then_some(false);
        };
        let number = tag >> 2;
        let mut little_endian = |bytes: u8| {
            let (number, after) = rest.split_at_checked(usize::from(bytes))?;
            rest = after;
            Some(number.iter().rfold(0, |number, byte| number << 8 | usize::from(*byte)))
        };
        let (length, offset) = match tag & 3 {
            0 if number < MAX_SHORT_LITERAL => (usize::from(number) + 1, 0),
            0 => (little_endian(number - MAX_SHORT_LITERAL + 1)?.checked_add(1)?, 0),
            1 => (usize::from(number & 7) + 4, usize::from(tag >> 5) << 8 | little_endian(1)?),
            2 => (usize::from(number) + 1, little_endian(2)?),
            _ => (usize::from(number) + 1, little_endian(4)?),
        };
        let end = self.written.checked_add(length)?;
        if tag & 3 == 0 {
            let (literal, after) = rest.split_at_checked(length)?;
            self.out.get_mut(self.written..end)?.copy_from_slice(literal);
            rest = after;
        } else {
            let from = self.written.checked_sub(offset).filter(|_| offset > 0)?;
            let out = self.out.get_mut(from..end)?;
            // A copy may include bytes that it writes itself. What is there is doubled until it is long enough.
            let mut there = offset;
            while there < out.len() {
                let more = there.min(out.len() - there);
                out.copy_within(..more, there);
                there += more;
            }
        }
        self.read = self.page.len() - rest.len();
        self.written = end;
        Some(true)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;
    use snap::raw::{Encoder, decompress_len};

    use super::*;

    /// The page becomes what the crate makes of it, or is refused as there. Gives whether it was decompressed.
    fn check(page: &[u8]) -> bool {
        let length = decompress_len(page).unwrap_or(7).min(1 << 20);
        // What is in the memory does not matter.
        let (mut ours, mut expected) = (vec![0xee; length], vec![0x11; length]);
        let is_valid = snap::raw::Decoder::new().decompress(page, &mut expected) == Ok(length);
        assert_eq!(decompress(page, &mut ours), is_valid.then_some(()));
        if is_valid {
            assert_eq!(ours, expected);
        }
        is_valid
    }

    fn compressed(bytes: &[u8]) -> Vec<u8> {
        Encoder::new().compress_vec(bytes).unwrap()
    }

    fn header(length: usize) -> [u8; 3] {
        [length as u8 | 0x80, (length >> 7) as u8 | 0x80, (length >> 14) as u8 & 0x7f]
    }

    /// A literal to copy from, and its length.
    fn start(length: usize) -> (Vec<u8>, usize) {
        let mut page = vec![61 << 2];
        page.extend((length as u16 - 1).to_le_bytes());
        page.extend((0..length).map(|byte| (byte % 251) as u8));
        (page, length)
    }

    /// Adds an element, `number` being the offset of a copy or the length of a long literal. Gives the length it becomes.
    fn element(tag: u8, number: u16, page: &mut Vec<u8>) -> usize {
        let in_tag = usize::from(tag >> 2);
        let after = usize::from(number).to_le_bytes();
        let size = [in_tag.saturating_sub(59), 1, 2, 4][usize::from(tag & 3)];
        page.push(tag);
        page.extend(&after[..size]);
        let length = match tag & 3 {
            0 if size == 0 => in_tag + 1,
            0 => usize::from(if size == 1 { number & 0xff } else { number }) + 1,
            1 => (in_tag & 7) + 4,
            _ => in_tag + 1,
        };
        if tag & 3 == 0 {
            page.extend((0..length).map(|byte| byte as u8 ^ tag));
        }
        length
    }

    fn pages() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            prop::collection::vec(0..16_u8, 1..9),
            prop::collection::vec(any::<u8>(), 1..200),
            (prop::collection::vec(any::<u8>(), 1..70), 1..200_usize).prop_map(|(bytes, times)| bytes.repeat(times)),
            (0..1000_u32).prop_map(|n| format!(r#"{{"numRecords":{n},"minValues":{{"id":{}}}}}"#, n * 77).into_bytes()),
            (0..1000_u32).prop_map(|n| format!("day={}/part-{n:05}.snappy.parquet", n % 7).into_bytes()),
        ];
        prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn pages_are_decompressed_as_by_the_crate(page in pages()) {
            prop_assert!(check(&compressed(&page)));
        }

        #[test]
        fn broken_pages_are_refused_as_by_the_crate(
            page in pages(),
            broken in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in prop::option::of(any::<prop::sample::Index>()),
            more in prop::collection::vec(any::<u8>(), 0..3),
        ) {
            let mut page = compressed(&page);
            for (place, byte) in broken {
                let place = place.index(page.len());
                page[place] = byte;
            }
            if let Some(cut) = cut {
                page.truncate(cut.index(page.len()));
            }
            page.extend(more);
            check(&page);
        }

        #[test]
        fn elements_are_taken_as_by_the_crate(
            elements in prop::collection::vec((any::<u8>(), prop_oneof![1..9_u16, 0..300_u16]), 0..200),
            wrong in prop::option::weighted(0.2, -70..70_isize),
        ) {
            let (mut page, mut length) = start(60);
            for (tag, number) in elements {
                length += element(tag, number, &mut page);
            }
            check(&[&header(length.saturating_add_signed(wrong.unwrap_or_default())), &page[..]].concat());
        }
    }

    #[test]
    fn each_tag_is_taken_as_by_the_crate() {
        for tag in 0..=u8::MAX {
            let mut valid = 0;
            // Far from the end, where the fast loop takes it, and at the end, where it does not.
            for (offset, behind) in [1, 3, 11, 59, 64, 70, 255, 300, 2099, 2100, 2101]
                .into_iter()
                .flat_map(|offset| [(offset, 0), (offset, 200)])
            {
                let (mut page, mut length) = start(2100);
                length += element(tag, offset, &mut page);
                length += (0..behind).map(|_| element(0, 0, &mut page)).sum::<usize>();
                valid += usize::from(check(&[&header(length), &page[..]].concat()));
            }
            assert!(valid > 1, "{tag}");
        }
    }

    #[test]
    fn headers_are_read_as_by_the_crate() {
        let page = [&[7 << 2][..], b"abcdefgh"].concat();
        for header in [&[0xff; 11][..], &[0x88, 0x80, 0x80, 0x80, 0x10], &[0x88, 0x80, 0], &[8], &[9], &[7], &[]] {
            check(&[header, &page].concat());
            check(header);
        }
        assert!(check(&[&[8][..], &page].concat()) && check(&[0]));
    }
}
