//! A Snappy encoder for pages of similar strings.
//!
//! Paths and statistics repeat the characters between their values. A match with an earlier string ends inside a value, and
//! the next match, if any, begins right there or at the punctuation after the value. Only these positions are
//! looked up and stored, not every byte, and only matches of at least `MIN_MATCH` bytes are used. A page of statistics is less
//! than 20 % larger than the crate `snap` makes it (`tests::what_comes_again_is_copied`).
//!
//! Invariant: the crate `snap` decompresses it to the original.
//!
//! Snappy: "Snappy compressed format description".

/// Positions in a block are stored in 16 bits.
const BLOCK_BYTES: usize = 1 << 16;
const HASH_BITS: u32 = 13;
const HASH_SLOTS: usize = 1 << HASH_BITS;
/// The shortest match: so many bytes are looked up together.
const MIN_MATCH: usize = 8;
/// Limits of Snappy's copies: their lengths, and the greatest length and offset of a copy with a 1-byte offset.
const MAX_COPY_LENGTH: usize = 64;
const MIN_COPY_LENGTH: usize = 4;
const COPY1_MAX_LENGTH: usize = 11;
const COPY1_MAX_OFFSET: usize = 2047;
/// Literals up to `MAX_SHORT_LITERAL` have their length in the tag; most literals are no longer than `FAST_LITERAL`.
const MAX_SHORT_LITERAL: usize = 60;
const FAST_LITERAL: usize = 16;
/// How many bytes one write may go beyond the end.
const OUTPUT_SLACK: usize = 1 + MAX_SHORT_LITERAL;

/// The hash table of one block: for each hash, the last position with it.
pub(super) struct SnappyEncoder(Box<[u16; HASH_SLOTS]>);

impl Default for SnappyEncoder {
    fn default() -> Self {
        Self(Box::new([0; HASH_SLOTS]))
    }
}

/// A block that is compressed, and the output.
struct Block<'b> {
    bytes: &'b [u8],
    out: &'b mut [u8],
    written: usize,
}

impl SnappyEncoder {
    /// Compresses a page into `out`, whose contents are overwritten, and returns the length. `None` if the page is longer than
    /// Snappy allows.
    pub(super) fn compress(&mut self, page: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let mut length = u32::try_from(page.len()).ok()?;
        // A copy takes fewer bytes than it stands for, and after every literal except the last there is a copy.
        let room = OUTPUT_SLACK + page.len() + page.len() / MIN_MATCH;
        if out.len() < room {
            out.resize(room, 0);
        }
        let mut written = 0;
        loop {
            let more = length >= 0x80;
            *out.get_mut(written)? = length as u8 & 0x7f | u8::from(more) << 7;
            written += 1;
            length >>= 7;
            if !more {
                break;
            }
        }
        for bytes in page.chunks(BLOCK_BYTES) {
            self.0.fill(0);
            let mut block = Block { bytes, out, written };
            block.compress(&mut self.0)?;
            written = block.written;
        }
        Some(written)
    }
}

impl Block<'_> {
    fn compress(&mut self, table: &mut [u16; HASH_SLOTS]) -> Option<()> {
        // It begins at the second byte, since position 0 means that nothing is stored.
        let (mut at, mut copied) = (1, 0);
        while let Some((from, to)) = self.find(table, at) {
            self.literal(copied, to)?;
            let length = self.match_length(from, to);
            self.copy(length, to - from)?;
            at = to + length;
            copied = at;
        }
        self.literal(copied, self.bytes.len())
    }

    /// From `at` on, the first position whose eight bytes occurred before, and the position where they did.
    #[inline(always)]
    fn find(&self, table: &mut [u16; HASH_SLOTS], mut at: usize) -> Option<(usize, usize)> {
        loop {
            let bytes = self.load_u64(at)?;
            let slot = table.get_mut(hash_slot(bytes))?;
            let from = usize::from(std::mem::replace(slot, at as u16));
            if self.load_u64(from)? == bytes {
                return Some((from, at));
            }
            let mut mask = punctuation_mask(bytes) & !0xff;
            while mask == 0 {
                at += MIN_MATCH;
                mask = punctuation_mask(self.load_u64(at)?);
            }
            at += mask.trailing_zeros() as usize / 8;
        }
    }

    #[inline(always)]
    fn load_u64(&self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?))
    }

    /// How many bytes are equal from two positions on; the first eight are.
    #[inline(always)]
    fn match_length(&self, from: usize, to: usize) -> usize {
        let sixteen = |at: usize| self.bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map(u128::from_le_bytes);
        let mut length = MIN_MATCH;
        while let Some((before, now)) = sixteen(from + length).zip(sixteen(to + length)) {
            if before != now {
                return length + (before ^ now).trailing_zeros() as usize / 8;
            }
            length += size_of::<u128>();
        }
        let rest = |at: usize| self.bytes.get(at + length..).unwrap_or_default();
        length + rest(from).iter().zip(rest(to)).take_while(|(before, now)| before == now).count()
    }

    /// Writes the bytes from `start` to `end` as a literal.
    #[inline(always)]
    fn literal(&mut self, start: usize, end: usize) -> Option<()> {
        let length = end - start;
        let usual = self.bytes.get(start..).and_then(<[u8]>::first_chunk::<FAST_LITERAL>);
        let Some(bytes) = usual.filter(|_| length <= FAST_LITERAL) else { return self.long_literal(start, end) };
        // Copies a fixed number of bytes: the excess is overwritten by the next write.
        let room = self.out.get_mut(self.written..)?.first_chunk_mut::<{ 1 + FAST_LITERAL }>()?;
        room[0] = literal_tag(length);
        room[1..].copy_from_slice(bytes);
        self.written += length + usize::from(length > 0);
        Some(())
    }

    #[inline(never)]
    fn long_literal(&mut self, start: usize, end: usize) -> Option<()> {
        let (bytes, room) = (self.bytes.get(start..end)?, self.out.get_mut(self.written..)?);
        let more = self.bytes.get(start..).and_then(<[u8]>::first_chunk::<MAX_SHORT_LITERAL>);
        let tag = match bytes.len().checked_sub(1) {
            None => return Some(()),
            Some(less) if less < MAX_SHORT_LITERAL => {
                if let Some((more, room)) = more.zip(room.first_chunk_mut::<OUTPUT_SLACK>()) {
                    room[0] = literal_tag(bytes.len());
                    room[1..].copy_from_slice(more);
                    self.written += 1 + bytes.len();
                    return Some(());
                }
                &[literal_tag(bytes.len())][..]
            }
            Some(less) => &[61 << 2, less as u8, (less >> 8) as u8],
        };
        room.get_mut(..tag.len())?.copy_from_slice(tag);
        room.get_mut(tag.len()..tag.len() + bytes.len())?.copy_from_slice(bytes);
        self.written += tag.len() + bytes.len();
        Some(())
    }

    /// Writes a copy of `length` bytes from `offset` bytes before.
    #[inline(always)]
    fn copy(&mut self, mut length: usize, offset: usize) -> Option<()> {
        // At least the shortest possible copy must remain for the last tag.
        while length >= MAX_COPY_LENGTH + MIN_COPY_LENGTH {
            self.copy_tag(MAX_COPY_LENGTH, offset)?;
            length -= MAX_COPY_LENGTH;
        }
        if length > MAX_COPY_LENGTH {
            self.copy_tag(MAX_COPY_LENGTH - MIN_COPY_LENGTH, offset)?;
            length -= MAX_COPY_LENGTH - MIN_COPY_LENGTH;
        }
        self.copy_tag(length, offset)
    }

    #[inline(always)]
    fn copy_tag(&mut self, length: usize, offset: usize) -> Option<()> {
        let is_copy1 = length <= COPY1_MAX_LENGTH && offset <= COPY1_MAX_OFFSET;
        let copy1 = (1 | length.wrapping_sub(MIN_COPY_LENGTH) << 2 | offset >> 8 << 5) & 0xff | (offset & 0xff) << 8;
        let copy2 = 2 | (length - 1) << 2 | offset << 8;
        let (tag, bytes) = if is_copy1 { (copy1, 2) } else { (copy2, 3) };
        *self.out.get_mut(self.written..)?.first_chunk_mut()? = (tag as u32).to_le_bytes();
        self.written += bytes;
        Some(())
    }
}

/// The tag of a short literal, which has its length minus one.
fn literal_tag(length: usize) -> u8 {
    (length.wrapping_sub(1) << 2) as u8
}

fn hash_slot(bytes: u64) -> usize {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    (bytes.wrapping_mul(ODD) >> (u64::BITS - HASH_BITS)) as usize
}

/// The highest bits of those of eight bytes that are punctuation, correct at least up to the first one: brackets that end
/// an object, and characters before the digits in ASCII.
fn punctuation_mask(bytes: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let below = |bytes: u64, bound: u8| bytes.wrapping_sub(EACH * u64::from(bound)) & !bytes;
    (below(bytes, b'0') | below(bytes ^ (EACH * u64::from(b'}')), 1)) & (EACH * 0x80)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;
    use snap::raw::Decoder;

    use super::*;

    /// The library makes of it what it was. Gives the compressed bytes.
    fn check(snappy: &mut SnappyEncoder, page: &[u8]) -> Vec<u8> {
        // What is in the memory does not matter.
        let mut out = vec![0xee; 100];
        let length = snappy.compress(page, &mut out).unwrap();
        out.truncate(length);
        assert_eq!(Decoder::new().decompress_vec(&out).unwrap(), page);
        out
    }

    fn pages() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..80),
            prop::collection::vec(prop_oneof![Just(b','), Just(b'"'), Just(b'}'), Just(0), b'0'..=b'3'], 0..40),
            (any::<u8>(), 0..300_usize).prop_map(|(byte, count)| vec![byte; count]),
            (0..1000_u32).prop_map(|n| format!(r#"{{"numRecords":{n},"minValues":{{"id":{}}}}}"#, n * 77).into_bytes()),
            (0..1000_u32).prop_map(|n| format!("day={}/part-{n:05}.snappy.parquet", n % 7).into_bytes()),
        ];
        prop::collection::vec((piece, 1..4_usize), 0..60)
            .prop_map(|pieces| pieces.into_iter().flat_map(|(piece, times)| vec![piece; times].concat()).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn pages_are_decompressed_to_what_they_were(pages in prop::collection::vec(pages(), 1..4)) {
            let mut snappy = SnappyEncoder::default();
            pages.iter().for_each(|page| _ = check(&mut snappy, page));
        }

        /// No bytes take more room than is made for them, wherever copies and blocks end.
        #[test]
        fn long_pages_are_too(
            unit in prop::collection::vec(any::<u8>(), 1..400),
            length in prop_oneof![65_500..65_600_usize, 0..200_000_usize],
            every in 1..2_000_usize,
        ) {
            let noise = |at: usize| if at.is_multiple_of(every) { (at / every) as u8 } else { 0 };
            let page: Vec<u8> = (0..length).map(|at| unit[at % unit.len()] ^ noise(at)).collect();
            check(&mut SnappyEncoder::default(), &page);
        }
    }

    #[test]
    fn what_comes_again_is_copied() {
        let string =
            |n: usize| format!(r#"{{"numRecords":{n},"minValues":{{"price":{n}.5,"day":"2024-01-{:02}"}}}}"#, n % 28);
        let page: String = (1000..2000).map(string).collect();
        let compressed = check(&mut SnappyEncoder::default(), page.as_bytes());
        let library = snap::raw::Encoder::new().compress_vec(page.as_bytes()).unwrap();
        assert!(compressed.len() * 10 < library.len() * 12, "{} and {}", compressed.len(), library.len());
        assert!(compressed.len() * 3 < page.len(), "{} of {}", compressed.len(), page.len());
    }

    #[test]
    fn copies_are_cut_into_tags() {
        for length in (1..300).chain([65_535, 65_536, 65_537]) {
            let compressed = check(&mut SnappyEncoder::default(), &vec![b'.'; length]);
            assert!(compressed.len() < 24 + length / 20, "{} of {length}", compressed.len());
        }
    }

    #[test]
    fn signs_are_found() {
        let first = |string: &[u8; 8]| punctuation_mask(u64::from_le_bytes(*string)).trailing_zeros() / 8;
        for (string, at) in [
            (b"1234567,", 7),
            (b"12}4,678", 2),
            (b"a-b-c-d-", 1),
            (b"\"bcdefgh", 0),
            (b"abcdefgh", 8),
            (b"\xff9:~{|/\x80", 6),
        ] {
            assert_eq!(first(string), at, "{string:?}");
        }
    }
}
