//! Packs the ends of strings that have hexadecimal digits at the same places into half the bytes.
//!
//! Names of files are mostly numbers and UUIDs, with the same letters between them. The window has a fixed length,
//! so that the processor handles many characters at once.

use super::short;

/// The most characters at the end of a string that are packed, and how many bytes they become.
const MAX_CHARACTERS: usize = 64;
const MAX_PACKED: usize = MAX_CHARACTERS / 2;
/// Fewer characters are not worth it.
const MIN_CHARACTERS: usize = 8;

type Window = [u8; MAX_CHARACTERS];

/// The pattern of the last characters of some strings.
#[derive(Debug)]
pub(super) struct HexPacked {
    length: usize,
    /// All bits set where the characters are hexadecimal digits in lowercase, and none elsewhere.
    digits: Window,
    /// The other characters, which are the same in all strings; zeros elsewhere.
    literal: Window,
    /// All bits set at all its characters, and none after them.
    all: Window,
}

/// Searches for the pattern of the last characters of some strings.
pub(super) struct Search {
    /// The shortest string, or `MAX_CHARACTERS`.
    length: usize,
    first: Option<Window>,
    /// Which bits of a character differ from those of the first string.
    other: Window,
    /// Where some string has another character than a digit.
    no_digits: Window,
}

#[inline]
fn nibble(character: u8) -> u8 {
    (character & 0xf).wrapping_add(if character < b'a' { 0 } else { 9 }) & 0xf
}

#[inline]
fn digit(nibble: u8) -> u8 {
    nibble + if nibble < 10 { b'0' } else { b'a' - 10 }
}

/// The beginning of a string; zeros follow if it is short.
#[inline]
fn window(string: &[u8]) -> Window {
    string.first_chunk().copied().unwrap_or_else(|| {
        let mut window = [0; MAX_CHARACTERS];
        let (to, _) = window.split_at_mut(string.len());
        short::copy(to, string);
        window
    })
}

impl Search {
    pub(super) fn new() -> Self {
        Self { length: MAX_CHARACTERS, first: None, other: [0; MAX_CHARACTERS], no_digits: [0; MAX_CHARACTERS] }
    }

    #[inline]
    pub(super) fn add(&mut self, string: &[u8]) {
        self.length = self.length.min(string.len());
        let mut window = [0; MAX_CHARACTERS];
        match string.last_chunk() {
            Some(end) => window = *end,
            None => short::copy(window.split_at_mut(MAX_CHARACTERS - string.len()).1, string),
        }
        let first = self.first.get_or_insert(window);
        for at in 0..MAX_CHARACTERS {
            self.other[at] |= window[at] ^ first[at];
            self.no_digits[at] |= digit(nibble(window[at])) ^ window[at];
        }
    }

    /// The pattern, which may be empty.
    pub(super) fn pattern(self) -> HexPacked {
        let Self { length, first, other, no_digits } = self;
        let is_any = |at: &usize| no_digits[*at] == 0 || other[*at] == 0;
        let length = (MAX_CHARACTERS - length..MAX_CHARACTERS).rev().take_while(is_any).count();
        let first = first.filter(|_| length >= MIN_CHARACTERS);
        let length = if first.is_some() { length } else { 0 };
        let mut found =
            HexPacked { length, digits: [0; MAX_CHARACTERS], literal: [0; MAX_CHARACTERS], all: [0; MAX_CHARACTERS] };
        for (to, at) in (MAX_CHARACTERS - length..MAX_CHARACTERS).enumerate() {
            found.all[to] = u8::MAX;
            match first {
                Some(first) if no_digits[at] != 0 => found.literal[to] = first[at],
                _ => found.digits[to] = u8::MAX,
            }
        }
        found
    }
}

impl HexPacked {
    /// How many characters of each string it covers.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// How many bytes these become when packed.
    pub(super) fn packed(&self) -> usize {
        self.length.div_ceil(2)
    }

    /// Packs the characters at the beginning of a string into the beginning of `out`, and returns the bytes after them;
    /// `None` if they do not fit the pattern, or if `out` is too short.
    #[inline]
    pub(super) fn pack<'r>(&self, string: &[u8], out: &'r mut [u8]) -> Option<&'r mut [u8]> {
        if self.length == 0 {
            return Some(out);
        }
        let window = window(string);
        let (mut nibbles, mut other) = ([0; MAX_CHARACTERS], [0; MAX_CHARACTERS]);
        for at in 0..MAX_CHARACTERS {
            nibbles[at] = nibble(window[at]);
            other[at] = (digit(nibbles[at]) & self.digits[at] | self.literal[at]) ^ window[at] & self.all[at];
        }
        let mut packed = [0; MAX_PACKED];
        for (byte, pair) in packed.iter_mut().zip(nibbles.as_chunks::<2>().0) {
            *byte = pair[0] << 4 | pair[1];
        }
        if other.iter().fold(0, |any, other| any | other) != 0 {
            return None;
        }
        match out.first_chunk_mut() {
            // Bytes beyond the end are overwritten by the next string.
            Some(to) => *to = packed,
            None => out.get_mut(..self.packed())?.copy_from_slice(packed.split_at(self.packed()).0),
        }
        out.get_mut(self.packed()..)
    }

    /// Appends the characters that are packed at the beginning of these bytes.
    pub(super) fn unpack(&self, packed: &[u8], out: &mut Vec<u8>) {
        let mut window = [0; MAX_CHARACTERS];
        for (pair, byte) in window.as_chunks_mut::<2>().0.iter_mut().zip(packed) {
            *pair = [digit(byte >> 4), digit(byte & 0xf)];
        }
        for (character, (digit, literal)) in window.iter_mut().zip(self.digits.iter().zip(self.literal)) {
            *character = *character & digit | literal;
        }
        out.extend_from_slice(window.split_at(self.length).0);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Strings of which so many characters at the end are packed, and every one of `others`, which is refused or whole again.
    fn check(strings: &[String], others: &[String], length: usize) -> Result<(), TestCaseError> {
        let mut search = Search::new();
        strings.iter().for_each(|string| search.add(string.as_bytes()));
        let found = search.pattern();
        prop_assert_eq!(found.len(), length);
        for (string, must) in
            strings.iter().map(|string| (string, true)).chain(others.iter().map(|string| (string, false)))
        {
            let Some((_, end)) = string.as_bytes().split_at_checked(string.len().wrapping_sub(length)) else {
                continue;
            };
            let mut less = vec![0; found.packed() - 1];
            prop_assert_eq!(found.pack(end, &mut less), None);
            for (room, after) in [
                (found.packed(), ""),
                (found.packed(), " and more string than is looked at at once: this and that"),
                (90, ""),
            ] {
                let (string, mut room) = ([end, after.as_bytes()].concat(), vec![0xee; room]);
                let left = found.pack(&string, &mut room).map(|after| after.len());
                prop_assert!(left.is_some() || !must);
                if let Some(left) = left {
                    prop_assert_eq!(left, room.len() - found.packed());
                    let mut out = b"before".to_vec();
                    found.unpack(&room[..found.packed()], &mut out);
                    prop_assert_eq!(&out, &[b"before", end].concat());
                }
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn what_is_packed_is_whole_again(
            strings in prop::collection::vec("[g-z]{0,3}/p-[0-9]{5}-[0-9a-f]{8}-[0-9a-f]{4}", 30..60),
            others in prop::collection::vec("[g-z]{0,3}[.-0]p[,-.][/-:]{5}-[0-9a-g]{8}-[0-9A-Fa-f]{4}", 0..60),
        ) {
            check(&strings, &others, 22)?;
        }

        #[test]
        fn no_more_than_is_looked_at_is_packed(strings in prop::collection::vec("[0-9a-f]{64,90}", 30..60)) {
            check(&strings, &[], MAX_CHARACTERS)?;
        }
    }
}
