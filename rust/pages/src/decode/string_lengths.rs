//! How long the strings of fetched leaves become together, without decoding them.
//!
//! A dictionary makes long strings of a few bytes, of as many rows as there are. Of a leaf whose dictionary is so large that
//! they might be too long, first the longest entry is looked at, and if that does not settle it the codes of its values.
//! Other leaves cost nothing.
//!
//! Invariant: what the general decoder makes is never longer (`decode::tests::lengths_are_never_understated`).

use bytes::Bytes;
use parquet::column::page::{Page, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::schema::types::ColumnDescriptor;

use super::hybrid::Runs;
use crate::limits::{CODED, PageLimits, decompressed, split_levels};

/// Bytes that the strings of some leaves may have together, whatever the leaves are, and how many more for each of the
/// leaves' bytes, for each row, and for each row of each leaf. One string of an action is long, others are names.
const FREE_BYTES: u64 = 64 * 1024 * 1024;
const EXPANSION: u64 = 1024;
const BYTES_PER_ROW: u64 = 4096;
const BYTES_PER_VALUE: u64 = 256;

/// A leaf of strings in one row group.
pub struct StringLeaf<'c> {
    /// Its pages.
    pub chunk: &'c Bytes,
    /// What the footer says of it.
    pub column: &'c ColumnChunkMetaData,
    /// What its page headers claim.
    pub limits: PageLimits,
}

/// Bytes of all strings of `rows` rows, at most; closely where they may be more than `enough`.
///
/// # Errors
/// If they are more than the file justifies, or a page cannot be decompressed.
pub fn check(leaves: &[StringLeaf<'_>], rows: u64, enough: u64) -> Result<u64, ParquetError> {
    let short = rows.saturating_mul(BYTES_PER_VALUE);
    let stored = sum(leaves.iter().map(|leaf| leaf.chunk.len() as u64));
    let of_rows = rows.saturating_mul(BYTES_PER_ROW).saturating_add(short.saturating_mul(leaves.len() as u64));
    let justified = sum([FREE_BYTES, of_rows, stored.saturating_mul(EXPANSION)].into_iter());
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
             bytes, which is absurd",
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
    /// Bytes that stand in the pages, or are repeated of what does.
    fn plain(&self) -> u64 {
        self.limits.bytes.saturating_add(self.limits.prefixes)
    }

    /// Bytes of all strings at most, if one were all of the dictionary.
    fn most(&self) -> u64 {
        self.plain().saturating_add(self.limits.coded.saturating_mul(self.limits.dictionary))
    }

    /// Bytes of all strings at most, closely unless those of the dictionary are `short` together.
    fn length(&self, short: u64) -> Result<u64, ParquetError> {
        if self.most() <= self.plain().saturating_add(short) {
            return Ok(self.most());
        }
        let (mut pages, mut left) = (decompressed(self.chunk, self.column)?, self.limits.coded);
        let (mut dictionary, mut length) = (Dictionary::default(), self.plain());
        // Pages of other encodings stand behind these, as a rule.
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
                page if CODED.contains(&page.encoding()) => {
                    length = length.saturating_add(dictionary.length(page, self.column.column_descr()));
                    left = left.saturating_sub(u64::from(page.num_values()));
                }
                Page::DataPage { .. } | Page::DataPageV2 { .. } => {}
            }
        }
        Ok(length)
    }
}

/// Bytes of each entry.
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

    /// Bytes of the strings of a data page at most.
    fn length(&self, page: &Page, column: &ColumnDescriptor) -> u64 {
        // Codes that cannot be followed to their end are those of the longest entry: decoding may begin, and fail.
        self.followed(page, column).unwrap_or_else(|| u64::from(page.num_values()).saturating_mul(self.longest))
    }

    fn followed(&self, page: &Page, column: &ColumnDescriptor) -> Option<u64> {
        let (definition, values) = split_levels(page, column)?;
        let (slots, most) = (page.num_values() as usize, column.max_def_level());
        let mut count = if most > 0 { 0 } else { slots };
        if most > 0 {
            let levels = Runs::new(definition?, i16::BITS - most.leading_zeros(), slots).ok()?;
            let is_there = |level: u32| level == u32::from(most.cast_unsigned());
            levels.counted(|level, times| count += if is_there(level) { times } else { 0 }).ok()?;
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
