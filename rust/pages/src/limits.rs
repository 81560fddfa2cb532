//! Checks the claims of the page headers of a column chunk before anything is decoded.
//!
//! The decoder of the parquet crate reserves the memory that a page header claims, and room for as many
//! values as a dictionary or a list of lengths claims to have. [`check`] reads the headers, without decompressing, and
//! refuses a page that is larger than its compressed bytes can become, and more values than its bytes can have. Pages of
//! the two encodings that have numbers of values inside are decompressed for that, one at a time. The length of values that
//! are in a dictionary is not known here; [`PageLimits`] has limits for it.
//!
//! There is no I/O. A header is read no more leniently than by the decoder: fields that occur twice or have another type
//! are refused.
//! Proved by `pages::hostile_pages_are_corrupt`, `pages::hostile_pages_of_checkpoints_are_corrupt` and
//! `pages::files_of_writers_are_within_the_limits`.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use parquet::basic::{Compression, Encoding, Type as PhysicalType};
use parquet::column::page::{Page, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::page_index::index_reader::decode_offset_index;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::ColumnDescriptor;

use crate::bits::differences;
use crate::thrift::{FALSE, I32, LIST, STRUCT, TRUE, Thrift};

/// Bytes that a page of any compressed size may become if the codec has no useful limit, and how many for each
/// compressed byte. Writers end a page after a megabyte or so; a single value may be longer.
const BASE_DECODED_BYTES: u64 = 64 * 1024 * 1024;
const MAX_EXPANSION_RATIO: u64 = 1024;

/// Values that a page with numbers of values inside may have, however small it is.
const BASE_LENGTHS: u64 = 1 << 24;

/// Elements of lists and maps that a chunk may have, however small it is. One row can have them all, with a few bits each.
const BASE_ELEMENTS: u64 = 1 << 27;

/// Bytes of a value of fixed length that count as one element.
const BYTES_PER_ELEMENT: u64 = 16;

/// Encodings of values as codes of a dictionary.
pub(crate) const DICTIONARY_ENCODINGS: [Encoding; 2] = [Encoding::PLAIN_DICTIONARY, Encoding::RLE_DICTIONARY];

/// The claims of the page headers of a column chunk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageLimits {
    /// Bytes of all pages after decompression.
    pub bytes: u64,
    /// Values of all pages, including nulls.
    pub values: u64,
    /// Bytes of the largest page after decompression.
    pub largest_page: u64,
    /// Bytes of the dictionary after decompression.
    pub dictionary: u64,
    /// Average bytes of a value of the dictionary.
    pub dictionary_value: u64,
    /// Values of the pages with codes of a dictionary, including nulls.
    pub dictionary_encoded: u64,
    /// Bytes that values repeat from values before them, without being in the pages again.
    pub prefixes: u64,
}

/// Bytes of each value of a column of fixed length.
pub fn fixed_width(column: &ColumnDescriptor) -> Option<u64> {
    let is_fixed = column.physical_type() == PhysicalType::FIXED_LEN_BYTE_ARRAY;
    is_fixed.then(|| u64::try_from(column.type_length()).unwrap_or_default())
}

/// Where a data page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataPage {
    /// Where its header begins, in bytes from the beginning of the chunk.
    pub start: u64,
    /// Its bytes, with the header.
    pub bytes: u64,
    /// Its values, including nulls.
    pub values: u64,
}

/// The pages of a column chunk, whose headers were checked.
#[derive(Debug)]
pub struct CheckedPages {
    /// The claims of the page headers.
    pub limits: PageLimits,
    /// The data pages in their order.
    pub data_pages: Vec<DataPage>,
    /// Whether no page differs from the checksum in its header; a header may have none.
    pub checksums_match: bool,
}

/// Checks the page headers of `chunk`, all bytes of `column`.
pub fn check(chunk: &Bytes, column: &ColumnChunkMetaData) -> Result<PageLimits, ParquetError> {
    walk(chunk, column, |_, _, _| ())
}

/// As [`check`]. Finds the data pages, too, and compares all pages with the checksums in their headers, if they have any.
pub fn check_pages(chunk: &Bytes, column: &ColumnChunkMetaData) -> Result<CheckedPages, ParquetError> {
    let (mut data_pages, mut checksums_match) = (Vec::new(), true);
    let limits = walk(chunk, column, |header, place, page| {
        checksums_match &= header.checksum.is_none_or(|checksum| checksum == crc32fast::hash(page));
        if header.is_data {
            data_pages.push(place);
        }
    })?;
    Ok(CheckedPages { limits, data_pages, checksums_match })
}

/// Checks the page headers of `chunk`, and calls `each` with every one, the place of the page, and its bytes without the header.
fn walk(
    chunk: &Bytes,
    column: &ColumnChunkMetaData,
    mut each: impl FnMut(&PageHeader, DataPage, &[u8]),
) -> Result<PageLimits, ParquetError> {
    let mut thrift = Thrift { bytes: chunk };
    let mut claims = PageLimits::default();
    let (mut has_lengths, mut has_dictionary) = (false, false);
    // The decoder accepts no header without fields, so a zero byte ends the chunk for it, too.
    while thrift.bytes.first().is_some_and(|byte| *byte != 0) {
        let left = thrift.bytes.len();
        let header = PageHeader::read(&mut thrift).ok_or_else(|| refused("a page header cannot be read"))?;
        let page = thrift.bytes.get(..header.compressed).ok_or_else(|| refused("a page reaches beyond its chunk"))?;
        thrift.bytes = &thrift.bytes[page.len()..];
        let bytes = header.check(column.compression())?;
        claims.bytes = claims.bytes.saturating_add(bytes);
        claims.values = claims.values.saturating_add(header.values);
        claims.largest_page = claims.largest_page.max(bytes);
        if let Some(entries) = header.entries {
            if has_dictionary {
                return Err(refused("it has more than one dictionary"));
            }
            has_dictionary = true;
            (claims.dictionary, claims.dictionary_value) = (bytes, bytes / entries.max(1));
        }
        if header.is_dictionary_encoded {
            claims.dictionary_encoded = claims.dictionary_encoded.saturating_add(header.values);
        }
        has_lengths |= header.has_lengths;
        let (start, bytes) = (chunk.len() - left, left - thrift.bytes.len());
        each(&header, DataPage { start: start as u64, bytes: bytes as u64, values: header.values }, page);
    }
    let most = BASE_ELEMENTS.saturating_add((chunk.len() as u64).saturating_mul(MAX_EXPANSION_RATIO));
    // Nulls take the same width.
    let wide = fixed_width(column.column_descr()).unwrap_or_default().div_ceil(BYTES_PER_ELEMENT).max(1);
    if column.column_descr().max_rep_level() > 0 && claims.values.saturating_mul(wide) > most {
        return Err(refused(&format!(
            "its pages claim {} elements, which is impossible for their size",
            claims.values
        )));
    }
    if has_lengths {
        claims.prefixes = check_lengths(chunk, column)?;
    }
    Ok(claims)
}

/// Decodes the places of so many pages, which the file has besides their headers. The decoder reserves the memory that their
/// number claims.
pub fn offset_index(encoded: &[u8], pages: usize) -> Option<OffsetIndexMetaData> {
    let (mut thrift, mut id) = (Thrift { bytes: encoded }, 0);
    let is_list = thrift.field(&mut id)? == Some(LIST) && id == 1;
    let (count, kind) = thrift.list().filter(|_| is_list)?;
    (kind == STRUCT && count == pages as u64).then(|| decode_offset_index(encoded).ok()).flatten()
}

fn refused(what: &str) -> ParquetError {
    ParquetError::General(format!("refused to decode a column chunk: {what}"))
}

/// The members of a page header that matter here.
#[derive(Debug, Default)]
struct PageHeader {
    uncompressed: u64,
    compressed: usize,
    /// CRC-32 of the page without its header.
    checksum: Option<u32>,
    /// Values of a data page.
    values: u64,
    /// Values of a dictionary.
    entries: Option<u64>,
    /// Whether it has the header of a data page.
    is_data: bool,
    /// Whether the page has lengths of values, after their number.
    has_lengths: bool,
    /// Whether values are codes of the dictionary.
    is_dictionary_encoded: bool,
    /// Whether the page is not compressed, whatever the chunk's codec.
    is_plain: bool,
}

impl PageHeader {
    fn read(thrift: &mut Thrift<'_>) -> Option<Self> {
        let (mut header, mut id, mut seen) = (Self::default(), 0, 0_u32);
        let (mut uncompressed, mut compressed) = (None, None);
        while let Some(kind) = thrift.field(&mut id)? {
            if (1..=8).contains(&id) {
                let expected = if id <= 4 { I32 } else { STRUCT };
                if kind != expected || seen & 1 << id != 0 {
                    return None;
                }
                seen |= 1 << id;
            }
            match id {
                2 => uncompressed = Some(u64::try_from(thrift.int()?).ok()?),
                3 => compressed = Some(usize::try_from(thrift.int()?).ok()?),
                4 => header.checksum = Some(thrift.int()?.cast_unsigned()),
                5 => header.data_page(thrift, 2)?,
                7 => header.entries = Some(dictionary_entries(thrift)?),
                8 => header.data_page(thrift, 4)?,
                _ => skip(thrift, id, kind)?,
            }
        }
        header.uncompressed = uncompressed?;
        header.compressed = compressed?;
        Some(header)
    }

    /// A `DataPageHeader`, whose encoding is field 2, or a `DataPageHeaderV2`, where it is field 4.
    fn data_page(&mut self, thrift: &mut Thrift<'_>, encoding: i64) -> Option<()> {
        self.is_data = true;
        let (mut id, mut last) = (0, 0);
        while let Some(kind) = thrift.field(&mut id)? {
            // Fields must ascend, so that none occurs twice.
            if id <= last {
                return None;
            }
            last = id;
            match (id, kind) {
                (1, I32) => self.values = u64::try_from(thrift.int()?).ok()?.max(self.values),
                (1, _) => return None,
                (id, I32) if id == encoding => {
                    let number = thrift.int()?;
                    let is_one_of = |known: [Encoding; 2]| known.iter().any(|known| *known as i32 == number);
                    self.has_lengths |= is_one_of([Encoding::DELTA_LENGTH_BYTE_ARRAY, Encoding::DELTA_BYTE_ARRAY]);
                    self.is_dictionary_encoded |= is_one_of(DICTIONARY_ENCODINGS);
                }
                (id, _) if id == encoding => return None,
                (7, FALSE) if encoding == 4 => self.is_plain = true,
                (7, TRUE) if encoding == 4 => {}
                (7, _) if encoding == 4 => return None,
                _ => skip(thrift, id, kind)?,
            }
        }
        Some(())
    }

    /// Checks the claims of the page, and returns its bytes after decompression.
    fn check(&self, codec: Compression) -> Result<u64, ParquetError> {
        let compressed = self.compressed as u64;
        let times = |factor: u64| compressed.saturating_mul(factor).saturating_add(64);
        // The best ratios of the codecs: a few bytes stand for a repetition of limited length.
        let most = match codec {
            _ if self.is_plain => None,
            Compression::UNCOMPRESSED => None,
            Compression::SNAPPY => Some(times(22)),
            Compression::LZ4 | Compression::LZ4_RAW => Some(times(255)),
            Compression::GZIP(_) => Some(times(1032)),
            Compression::ZSTD(_) | Compression::BROTLI(_) | Compression::LZO => {
                Some(times(MAX_EXPANSION_RATIO).max(BASE_DECODED_BYTES))
            }
        };
        let bytes = most.map_or(compressed, |_| self.uncompressed);
        if most.is_some_and(|most| bytes > most) {
            return Err(refused(&format!("a page of {compressed} bytes claims to become {bytes}")));
        }
        match self.entries {
            Some(entries) if entries > bytes => {
                Err(refused(&format!("a dictionary of {bytes} bytes claims {entries} values")))
            }
            _ => Ok(bytes),
        }
    }
}

/// The number of values of a `DictionaryPageHeader`.
fn dictionary_entries(thrift: &mut Thrift<'_>) -> Option<u64> {
    let (mut id, mut last, mut entries) = (0, 0, None);
    while let Some(kind) = thrift.field(&mut id)? {
        if id <= last {
            return None;
        }
        last = id;
        match (id, kind) {
            (1, I32) => entries = Some(u64::try_from(thrift.int()?).ok()?),
            (1, _) => return None,
            _ => skip(thrift, id, kind)?,
        }
    }
    entries
}

/// Skips a field that does not matter here. Headers have no lists, and no other structs than statistics, which have none
/// inside.
fn skip(thrift: &mut Thrift<'_>, id: i64, kind: u8) -> Option<()> {
    i16::try_from(id).ok()?;
    if kind != STRUCT {
        return thrift.skip(kind, 1).filter(|()| kind < LIST);
    }
    let mut id = 0;
    while let Some(kind) = thrift.field(&mut id)? {
        i16::try_from(id).ok()?;
        thrift.skip(kind, 1).filter(|()| kind < LIST)?;
    }
    Some(())
}

/// The pages of a chunk, which has all bytes of `column`, decompressed one at a time.
pub(crate) fn decompressed(
    chunk: &Bytes,
    column: &ColumnChunkMetaData,
) -> Result<SerializedPageReader<Chunks>, ParquetError> {
    let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
    let start = u64::try_from(start).map_err(|_| refused("it begins before the file"))?;
    let bytes = Chunks { size: start.saturating_add(chunk.len() as u64), chunks: vec![(start, chunk.clone())] };
    SerializedPageReader::new(Arc::new(bytes), column, 0, None)
}

/// Checks, page by page, the numbers of values inside the pages. Returns the bytes that values repeat from
/// values before them.
fn check_lengths(chunk: &Bytes, column: &ColumnChunkMetaData) -> Result<u64, ParquetError> {
    let mut pages = decompressed(chunk, column)?;
    let mut prefixes = 0_u64;
    while let Some(page) = pages.get_next_page()? {
        let has_prefixes = match page.encoding() {
            Encoding::DELTA_LENGTH_BYTE_ARRAY => false,
            Encoding::DELTA_BYTE_ARRAY => true,
            _ => continue,
        };
        // The repeated part of a value is not longer than its page, whatever its length claims.
        let longest = page.buffer().len() as u64;
        let most =
            BASE_LENGTHS.saturating_add(longest.saturating_mul(MAX_EXPANSION_RATIO)).min(u64::from(page.num_values()));
        let checked = split_levels(&page, column.column_descr()).and_then(|(_, values)| {
            if !has_prefixes {
                return differences(values, most, |_| ());
            }
            let prefix = |length: i32| {
                prefixes = prefixes.saturating_add(u64::from(length.cast_unsigned()).min(longest));
            };
            differences(differences(values, most, prefix)?, most, |_| ())
        });
        if checked.is_none() {
            return Err(refused("a page has more lengths than values, or they are cut off"));
        }
    }
    Ok(prefixes)
}

/// The definition levels of a data page, if it has any and they are runs, and its values.
pub(crate) fn split_levels<'p>(page: &'p Page, column: &ColumnDescriptor) -> Option<(Option<&'p [u8]>, &'p [u8])> {
    let (rep, def) = (column.max_rep_level(), column.max_def_level());
    match page {
        Page::DataPage { buf, num_values, def_level_encoding, rep_level_encoding, .. } => {
            let levels = skip_levels(buf.as_ref(), rep, *rep_level_encoding, *num_values)?;
            let values = skip_levels(levels, def, *def_level_encoding, *num_values)?;
            // Their length is before them.
            let are_runs = def > 0 && *def_level_encoding == Encoding::RLE;
            Some((levels.get(4..levels.len() - values.len()).filter(|_| are_runs), values))
        }
        Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
            let levels = buf.get(*rep_levels_byte_len as usize..)?;
            let (levels, values) = levels.split_at_checked(*def_levels_byte_len as usize)?;
            Some((Some(levels).filter(|_| def > 0), values))
        }
        Page::DictionaryPage { .. } => None,
    }
}

/// The bytes after the levels of a data page of version 1.
fn skip_levels(bytes: &[u8], most: i16, encoding: Encoding, values: u32) -> Option<&[u8]> {
    #[allow(deprecated)]
    match encoding {
        _ if most == 0 => Some(bytes),
        Encoding::RLE => {
            let (length, rest) = bytes.split_first_chunk::<4>()?;
            rest.get(usize::try_from(u32::from_le_bytes(*length)).ok()?..)
        }
        Encoding::BIT_PACKED => {
            let width = u64::from(i16::BITS - most.leading_zeros());
            bytes.get(usize::try_from((u64::from(values) * width).div_ceil(8)).ok()?..)
        }
        _ => None,
    }
}

/// Column chunks in memory, by their offsets in the file.
pub struct Chunks {
    /// The size of the file in bytes.
    pub size: u64,
    /// The offset of each, and its bytes.
    pub chunks: Vec<(u64, Bytes)>,
}

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.size
    }
}

impl ChunkReader for Chunks {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let mut bytes = self.from(start)?;
        if bytes.len() < length {
            return Err(ParquetError::EOF("a page reaches beyond its column chunk".to_owned()));
        }
        Ok(bytes.split_to(length))
    }
}

impl Chunks {
    fn from(&self, start: u64) -> Result<Bytes, ParquetError> {
        let inside = |(at, bytes): &&(u64, Bytes)| (*at..at.saturating_add(bytes.len() as u64)).contains(&start);
        let chunk = self.chunks.iter().find(inside);
        let (at, bytes) = chunk.ok_or_else(|| ParquetError::EOF("a page lies outside its column chunk".to_owned()))?;
        Ok(bytes.slice(usize::try_from(start - at).unwrap_or(usize::MAX)..))
    }
}
