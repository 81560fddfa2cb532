//! Limits the length that the strings of fetched leaves have together when decoded, without decoding them.
//!
//! With a dictionary, a few bytes can become a long string in every row. For a leaf whose dictionary is so large that
//! the strings might be too long, first its longest entry is considered, and if that does not suffice, the codes of its values.
//! Other leaves take no time.
//!
//! Invariant: the strings of the parquet crate are never longer (`decode::tests::lengths_are_never_understated`).

use bytes::Bytes;
use parquet::column::page::{Page, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::schema::types::ColumnDescriptor;

use super::hybrid::Runs;
use crate::limits::{DICTIONARY_ENCODINGS, PageLimits, decompressed, split_levels};

/// Bytes that the strings of some leaves may always have together, and how many more for each of the
/// leaves' bytes, for each row, and for each row of each leaf. An action has one long string, the others are names.
const BASE_STRING_BYTES: u64 = 64 * 1024 * 1024;
const MAX_EXPANSION_RATIO: u64 = 1024;
const BYTES_PER_ROW: u64 = 4096;
const BYTES_PER_VALUE: u64 = 256;

/// A leaf of strings in one row group.
pub struct StringLeaf<'c> {
    /// Its pages.
    pub chunk: &'c Bytes,
    /// Its description in the footer.
    pub column: &'c ColumnChunkMetaData,
    /// The claims of its page headers.
    pub limits: PageLimits,
}

/// An upper limit for the bytes of all strings of `rows` rows. It is close if they may be more than `enough`.
///
/// # Errors
/// That they are more than the file justifies, or a page cannot be decompressed.
pub fn check(leaves: &[StringLeaf<'_>], rows: u64, enough: u64) -> Result<u64, ParquetError> {
    let short = rows.saturating_mul(BYTES_PER_VALUE);
    let stored = sum(leaves.iter().map(|leaf| leaf.chunk.len() as u64));
    let of_rows = rows.saturating_mul(BYTES_PER_ROW).saturating_add(short.saturating_mul(leaves.len() as u64));
    let justified = sum([BASE_STRING_BYTES, of_rows, stored.saturating_mul(MAX_EXPANSION_RATIO)].into_iter());
    let most = sum(leaves.iter().map(StringLeaf::most));
    if most <= justified.min(enough) {
        return Ok(most);
    }
    let lengths = leaves.iter().map(|leaf| leaf.length(short)).collect::<Result<Vec<_>, _>>()?;
    let total = sum(lengths.iter().copied());
    let longest = leaves.iter().zip(&lengths).max_by_key(|(_, length)| **length);
    match longest.filter(|_| total > justified) {
        Some((leaf, length)) => Err(ParquetError::General(format!(
            "the strings of {rows} rows claim to be {total} bytes, {length} of them in the column chunk `{}` of {} \
             bytes, which is impossible",
            leaf.column.column_path(),
            leaf.chunk.len(),
        ))),
        None => Ok(total),
    }
}

fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

impl StringLeaf<'_> {
    /// Bytes of strings in the pages, or repeated from such.
    fn plain(&self) -> u64 {
        self.limits.bytes.saturating_add(self.limits.prefixes)
    }

    /// An upper limit for the bytes of all strings, if one entry were the whole dictionary.
    fn most(&self) -> u64 {
        self.plain().saturating_add(self.limits.dictionary_encoded.saturating_mul(self.limits.dictionary))
    }

    /// An upper limit for the bytes of all strings, which is close unless those of the dictionary have at most `short`
    /// bytes together.
    fn length(&self, short: u64) -> Result<u64, ParquetError> {
        if self.most() <= self.plain().saturating_add(short) {
            return Ok(self.most());
        }
        let (mut pages, mut left) = (decompressed(self.chunk, self.column)?, self.limits.dictionary_encoded);
        let (mut dictionary, mut length) = (Dictionary::default(), self.plain());
        // Pages with other encodings are mostly after these.
        while left > 0
            && let Some(page) = pages.get_next_page()?
        {
            match &page {
                Page::DictionaryPage { buf, num_values, .. } => {
                    dictionary = Dictionary::of(buf, *num_values)?;
                    let most = left.saturating_mul(dictionary.longest);
                    if most <= short {
                        return Ok(length.saturating_add(most));
                    }
                }
                page if DICTIONARY_ENCODINGS.contains(&page.encoding()) => {
                    length = length.saturating_add(dictionary.length(page, self.column.column_descr()));
                    left = left.saturating_sub(u64::from(page.num_values()));
                }
                Page::DataPage { .. } | Page::DataPageV2 { .. } => {}
            }
        }
        Ok(length)
    }
}

/// The bytes of each entry.
#[derive(Default)]
struct Dictionary {
    entries: Vec<u32>,
    longest: u64,
}

impl Dictionary {
    fn of(page: &[u8], entries: u32) -> Result<Self, ParquetError> {
        let (mut rest, mut lengths) = (page, Vec::new());
        while lengths.len() < entries as usize && !rest.is_empty() {
            let entry = rest.split_first_chunk::<4>().map(|(length, after)| (u32::from_le_bytes(*length), after));
            let entry = entry.and_then(|(length, after)| Some((length, after.get(length as usize..)?)));
            let (length, after) = entry.ok_or_else(|| ParquetError::EOF("a dictionary is cut off".to_owned()))?;
            lengths.push(length);
            rest = after;
        }
        let longest = lengths.iter().max().copied().map_or(0, u64::from);
        Ok(Self { entries: lengths, longest })
    }

    /// An upper limit for the bytes of the strings of a data page.
    fn length(&self, page: &Page, column: &ColumnDescriptor) -> u64 {
        // Codes that cannot be read to their end count as those of the longest entry: decoding begins and fails then.
        self.followed(page, column).unwrap_or_else(|| u64::from(page.num_values()).saturating_mul(self.longest))
    }

    fn followed(&self, page: &Page, column: &ColumnDescriptor) -> Option<u64> {
        let (definition, values) = split_levels(page, column)?;
        let (slots, most) = (page.num_values() as usize, column.max_def_level());
        let mut count = if most > 0 { 0 } else { slots };
        if most > 0 {
            let levels = Runs::new(definition?, i16::BITS - most.leading_zeros(), slots).ok()?;
            let is_defined = |level: u32| level == u32::from(most.cast_unsigned());
            levels.counted(|level, times| count += if is_defined(level) { times } else { 0 }).ok()?;
        }
        if count == 0 {
            return Some(0);
        }
        let (width, codes) = values.split_first()?;
        let mut length = 0_u64;
        let codes = Runs::new(codes, u32::from(*width), count).ok()?;
        codes
            .counted(|code, times| {
                let entry = self.entries.get(code as usize).copied().map_or(self.longest, u64::from);
                length = length.saturating_add(entry.saturating_mul(times as u64));
            })
            .ok()?;
        Some(length)
    }
}
