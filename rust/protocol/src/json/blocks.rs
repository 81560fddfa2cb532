//! Finding the ends of strings and brackets, and decoding escapes, 32 bytes at a time.
//!
//! Strings in a log are dense with quotes and escapes. Stopping at each of them is slower than masking whole blocks. A
//! mask has one bit for each byte of a block, the first byte lowest.

use std::ops::Range;

use wide::bytemuck::cast;
use wide::{i8x16, u8x32};

const BYTES: usize = 32;
/// Enough for most numbers.
const SHORT_BYTES: usize = 16;

type Block = [u8; BYTES];

/// The escapes of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Escapes {
    /// It has none.
    None,
    /// A backslash before quotes, and no other escapes.
    Quotes,
    /// Other escapes, which only a parser can check.
    Others,
}

/// The bytes from `at` on, padded with zeros. `None` if `at` is at or beyond the end.
#[inline]
fn block<const BYTES: usize>(bytes: &[u8], at: usize) -> Option<[u8; BYTES]> {
    let rest = bytes.get(at..)?;
    match rest.first_chunk() {
        Some(block) => Some(*block),
        None if rest.is_empty() => None,
        None => Some(padded(rest)),
    }
}

/// Kept out of line, so that the loop over whole blocks stays small.
#[cold]
fn padded<const BYTES: usize>(rest: &[u8]) -> [u8; BYTES] {
    let mut block = [0; BYTES];
    block.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    block
}

/// Which bytes are `byte`.
fn equal(block: Block, byte: u8) -> u32 {
    u8x32::new(block).simd_eq(u8x32::splat(byte)).to_bitmask()
}

/// Which bytes are escaped: those behind a backslash that is not itself escaped.
fn escaped(backslashes: u32, is_first: bool) -> u32 {
    let behind = backslashes << 1 | u32::from(is_first);
    if backslashes & behind == 0 {
        return behind;
    }
    // Backslashes behind backslashes.
    let (mut escaped, mut is_escaped) = (0, is_first);
    for at in 0..BYTES {
        escaped |= u32::from(is_escaped) << at;
        is_escaped = !is_escaped && backslashes >> at & 1 != 0;
    }
    escaped
}

/// The position of the quote that ends the string whose inside begins at `from`, and the escapes of the string.
pub(crate) fn end_of_string(bytes: &[u8], from: usize) -> Option<(usize, Escapes)> {
    let (mut at, mut is_escaped, mut escapes) = (from, false, Escapes::None);
    loop {
        let block = block(bytes, at)?;
        let (quotes, backslashes) = (equal(block, b'"'), equal(block, b'\\'));
        if backslashes != 0 || is_escaped {
            let escaped = escaped(backslashes, is_escaped);
            let ends = quotes & !escaped;
            // The bits below the lowest end; all bits if there is none.
            let inside = ends.wrapping_sub(1) & !ends;
            // An escape is inside together with its backslash.
            if backslashes & inside != 0 || is_escaped {
                let others = escaped & !quotes & inside != 0;
                escapes = escapes.max(if others { Escapes::Others } else { Escapes::Quotes });
            }
            if ends != 0 {
                return Some((at + ends.trailing_zeros() as usize, escapes));
            }
            is_escaped = (backslashes & !escaped) >> (BYTES - 1) != 0;
        } else if quotes != 0 {
            return Some((at + quotes.trailing_zeros() as usize, escapes));
        }
        at += BYTES;
    }
}

/// Whether there is a backslash before every quote and nowhere else: the inside of a string whose value is JSON without escapes
/// of its own.
pub(crate) fn is_plain_inside(bytes: &[u8]) -> bool {
    let (mut at, mut is_escaped) = (0, false);
    while let Some(block) = block(bytes, at) {
        let (quotes, backslashes) = (equal(block, b'"'), equal(block, b'\\'));
        if quotes != backslashes << 1 | u32::from(is_escaped) {
            return false;
        }
        is_escaped = backslashes >> (BYTES - 1) != 0;
        at += BYTES;
    }
    !is_escaped
}

/// The position of the next quote from `from` on.
pub(crate) fn next_quote(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        let quotes = equal(block(bytes, at)?, b'"');
        if quotes != 0 {
            return Some(at + quotes.trailing_zeros() as usize);
        }
        at += BYTES;
    }
}

/// The position of the next quote or backslash.
pub(crate) fn end_of_plain(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let block = block(bytes, at)?;
        let ends = equal(block, b'"') | equal(block, b'\\');
        if ends != 0 {
            return Some(at + ends.trailing_zeros() as usize);
        }
        at += BYTES;
    }
}

/// How many bytes at the beginning may belong to a number, a boolean or null: no spaces and no bytes that begin or end a value.
pub(crate) fn length_of_bare(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(block) = block::<SHORT_BYTES>(bytes, at) {
        let of_each = |byte: u8| i8x16::splat(byte.cast_signed());
        let block: i8x16 = cast(block);
        // Bytes that are not ASCII are negative here. Square brackets and the backslash come after the letters when they
        // are converted to lower case like these.
        let small = block | of_each(b'a' ^ b'A');
        let others = block.simd_lt(of_each(b'+')) | block.simd_eq(of_each(b',')) | small.simd_gt(of_each(b'z'));
        let length = others.to_bitmask().trailing_zeros() as usize;
        if length < SHORT_BYTES {
            return at + length;
        }
        at += SHORT_BYTES;
    }
    bytes.len()
}

/// The position after the bracket that closes the one that was opened before `from`. Other pairs of its kind and strings are
/// skipped. In a [plain inside](is_plain_inside) backslashes have no meaning.
pub(crate) fn behind_bracket(bytes: &[u8], from: usize, open: u8, close: u8, is_inside: bool) -> Option<usize> {
    let (mut at, mut is_escaped, mut in_string, mut depth) = (from, false, 0, 1_usize);
    loop {
        let block = block(bytes, at)?;
        let (mut quotes, backslashes) = (equal(block, b'"'), equal(block, b'\\'));
        if !is_inside && (backslashes != 0 || is_escaped) {
            let escaped = escaped(backslashes, is_escaped);
            quotes &= !escaped;
            is_escaped = (backslashes & !escaped) >> (BYTES - 1) != 0;
        }
        // Each quote inverts all bits after it.
        let mut strings = quotes;
        for distance in [1, 2, 4, 8, 16] {
            strings ^= strings << distance;
        }
        strings ^= in_string;
        in_string = if strings >> (BYTES - 1) == 0 { 0 } else { u32::MAX };
        let opened = equal(block, open) & !strings;
        let closed = equal(block, close) & !strings;
        if (closed.count_ones() as usize) < depth {
            // Not enough closing brackets in this block.
            depth = depth + opened.count_ones() as usize - closed.count_ones() as usize;
        } else {
            let mut brackets = opened | closed;
            while brackets != 0 {
                let lowest = brackets & brackets.wrapping_neg();
                brackets ^= lowest;
                if opened & lowest != 0 {
                    depth += 1;
                } else if depth > 1 {
                    depth -= 1;
                } else {
                    return Some(at + lowest.trailing_zeros() as usize + 1);
                }
            }
        }
        at += BYTES;
    }
}

/// Puts a string into `out` without the backslashes before quotes. Returns whether it has no other escapes.
pub(crate) fn without_escapes(text: &str, out: &mut String) -> bool {
    let bytes = text.as_bytes();
    let mut kept = std::mem::take(out).into_bytes();
    // Pieces between escapes are short: each is copied with some bytes after it, which the next piece overwrites.
    kept.clear();
    kept.resize(bytes.len() + BYTES, 0);
    let (mut at, mut from, mut end) = (0, 0, 0);
    while let Some(block) = block(bytes, at) {
        let mut backslashes = equal(block, b'\\');
        while backslashes != 0 {
            let found = at + backslashes.trailing_zeros() as usize;
            backslashes &= backslashes - 1;
            if bytes.get(found + 1) != Some(&b'"') || !copy(bytes, from..found, &mut kept, end) {
                return false;
            }
            end += found - from;
            // Continue at the quote, which is not a backslash.
            from = found + 1;
        }
        at += BYTES;
    }
    if !copy(bytes, from..bytes.len(), &mut kept, end) {
        return false;
    }
    kept.truncate(end + bytes.len() - from);
    // Only whole characters were left out.
    String::from_utf8(kept).is_ok_and(|text| {
        *out = text;
        true
    })
}

/// Copies a part into `out`, possibly with some more bytes.
#[inline]
fn copy(bytes: &[u8], part: Range<usize>, out: &mut [u8], to: usize) -> bool {
    const LITTLE: usize = 16;
    let source = bytes.get(part.start..).and_then(|rest| rest.first_chunk::<LITTLE>());
    let target = out.get_mut(to..).and_then(|rest| rest.first_chunk_mut::<LITTLE>());
    if let (Some(source), Some(target), true) = (source, target, part.len() <= LITTLE) {
        *target = *source;
        return true;
    }
    match (bytes.get(part.clone()), out.get_mut(to..to + part.len())) {
        (Some(source), Some(target)) => {
            target.copy_from_slice(source);
            true
        }
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The end of a string and its escapes, found byte by byte.
    fn end_by_bytes(bytes: &[u8], from: usize) -> Option<(usize, Escapes)> {
        let (mut at, mut escapes) = (from, Escapes::None);
        loop {
            match bytes.get(at)? {
                b'"' => return Some((at, escapes)),
                b'\\' => {
                    let how = if bytes.get(at + 1)? == &b'"' { Escapes::Quotes } else { Escapes::Others };
                    escapes = escapes.max(how);
                    at += 2;
                }
                _ => at += 1,
            }
        }
    }

    #[test]
    fn what_numbers_are_made_of_is_told_from_all_else() {
        let is_bare = |byte: u8| matches!(byte, b'+' | b'-'..=b'Z' | b'`'..=b'z');
        for byte in 0..=u8::MAX {
            for length in [0, 1, 7, 15, 16, 17, 31, 32, 40] {
                let mut text = vec![b'7'; length];
                assert_eq!(length_of_bare(&text), length);
                text.push(byte);
                text.extend(b"1.5");
                let expected = if is_bare(byte) { length + 4 } else { length };
                assert_eq!(length_of_bare(&text), expected, "{byte} behind {length}");
            }
        }
    }

    fn behind_by_bytes(bytes: &[u8], from: usize, open: u8, close: u8) -> Option<usize> {
        let (mut at, mut depth) = (from, 1);
        loop {
            match *bytes.get(at)? {
                b'"' => at = end_by_bytes(bytes, at + 1)?.0,
                byte if byte == open => depth += 1,
                byte if byte == close => depth -= 1,
                _ => {}
            }
            at += 1;
            if depth == 0 {
                return Some(at);
            }
        }
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            4 => Just(b'"'), 4 => Just(b'\\'), 2 => Just(b'{'), 2 => Just(b'}'), 4 => Just(b'a'), 1 => any::<u8>()
        ];
        proptest::collection::vec(byte, 0..160)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn strings_end_where_they_end_byte_by_byte(bytes in text(), from in 0..33_usize) {
            prop_assert_eq!(end_of_string(&bytes, from), end_by_bytes(&bytes, from));
        }

        #[test]
        fn brackets_close_where_they_close_byte_by_byte(bytes in text(), from in 0..33_usize) {
            // A backslash outside of a string is not JSON: there the two may differ, but both end within the text.
            let plain = bytes.iter().filter(|byte| **byte != b'\\').copied().collect::<Vec<_>>();
            prop_assert_eq!(behind_bracket(&plain, from, b'{', b'}', false), behind_by_bytes(&plain, from, b'{', b'}'));
            let end = behind_bracket(&bytes, from, b'{', b'}', false);
            prop_assert!(end.is_none_or(|end| end <= bytes.len()));
        }

        #[test]
        fn quotes_with_backslashes_are_told_from_others(pieces in proptest::collection::vec("a{0,9}|\\\\\"", 0..20), at in 0..200_usize) {
            let plain = pieces.concat();
            prop_assert!(is_plain_inside(plain.as_bytes()));
            prop_assert_eq!(next_quote(plain.as_bytes(), at), plain.bytes().skip(at).position(|b| b == b'"').map(|i| i + at));
            let at = at % (plain.len() + 1);
            for odd in ["\"", "\\", "\\\\", "\\n"] {
                let broken = [&plain[..at], odd, &plain[at..]].concat();
                // A quote behind a backslash that was put there is none of these.
                let is_plain = broken.replace("\\\"", "").bytes().all(|b| b == b'a');
                prop_assert_eq!(is_plain_inside(broken.as_bytes()), is_plain, "{}", broken);
            }
        }

        #[test]
        fn quotes_are_unescaped_alone(text in "[a\"\u{e9}]{0,120}", other in any::<char>()) {
            let escaped = text.replace('"', "\\\"");
            let mut out = String::new();
            prop_assert!(without_escapes(&escaped, &mut out));
            prop_assert_eq!(&out, &text);
            let more = format!("{escaped}\\{other}");
            prop_assert_eq!(without_escapes(&more, &mut String::new()), other == '"');
        }

        #[test]
        fn brackets_in_strings_do_not_count(texts in proptest::collection::vec(".*", 0..6), rest in ".*") {
            let quoted: Vec<String> = texts.iter().map(|text| serde_json::to_string(text).unwrap()).collect();
            let object = format!("{{{}}}", quoted.join(",{},"));
            let all = format!("{object}{rest}");
            prop_assert_eq!(behind_bracket(all.as_bytes(), 1, b'{', b'}', false), Some(object.len()));
        }
    }
}
