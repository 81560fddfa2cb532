//! The pages of a column chunk: decompresses them, and divides them into levels and values.
//!
//! Pages are decompressed into the same buffers, again and again, so that a chunk needs memory only for its results. A
//! header's claims are compared with the existing bytes before anything is allocated.
//!
//! Parquet format: "Data Pages".

use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use parquet::basic::Compression;

use super::chunk::{Chunk, Decoded, Failure};
pub(super) use super::header::Encoding;
use super::header::{DATA_PAGE, DATA_PAGE_V2, DICTIONARY_PAGE, Header};
use super::hybrid::Runs;
use crate::snappy;
use crate::thrift::Thrift;

pub(super) const BROKEN_HEADER: Failure = Failure::Corrupt("a page header cannot be read");
pub(super) const CUT_OFF: Failure = Failure::Corrupt("a page is cut off");
pub(super) const OTHER_ROWS: Failure = Failure::Corrupt("a column chunk has another number of rows than its row group");
const NO_SNAPPY: Failure = Failure::Corrupt("a page is not valid Snappy");
const WRONG_LENGTH: Failure = Failure::Corrupt("the length of a page differs from its header");

/// The most bytes that one byte of Snappy can become, rounded up: three bytes copy 64.
const MAX_SNAPPY_RATIO: usize = 24;
/// Memory for pages is allocated in multiples of `BUFFER_STEP`, unless they are smaller, and by one part in
/// `BUFFER_SLACK_DIVISOR` larger than the page.
const BUFFER_STEP: usize = 256 * 1024;
const BUFFER_SLACK_DIVISOR: usize = 8;
/// Zstandard pages that are larger than `MAX_ZSTD_PAGE` and grow by more than `MAX_ZSTD_RATIO` are left to the parquet crate.
const MAX_ZSTD_RATIO: usize = 1024;
const MAX_ZSTD_PAGE: usize = 16 * 1024 * 1024;

/// A page as its header describes it, not decompressed.
#[derive(Debug, Clone, Copy)]
pub(super) struct CompressedPage<'c> {
    pub(super) is_dictionary: bool,
    pub(super) values: usize,
    pub(super) encoding: Encoding,
    levels: Levels,
    size: usize,
    bytes: &'c [u8],
}

#[derive(Debug, Clone, Copy)]
enum Levels {
    /// Levels in the compressed part, each with its length before it; whether repetition and definition levels are RLE.
    V1([bool; 2]),
    /// Levels before the part that may be compressed: lengths of repetition and definition levels, and whether the values
    /// are compressed.
    V2(usize, usize, bool),
}

/// A page that can be read.
#[derive(Debug)]
pub(super) struct Page<'p> {
    pub(super) values: usize,
    pub(super) encoding: Encoding,
    repetition: &'p [u8],
    definition: &'p [u8],
    pub(super) data: &'p [u8],
}

/// The pages of a leaf that is not repeated, so that each row has one value.
pub(super) struct PageReader<'c> {
    pub(super) rest: &'c [u8],
    rows: Option<&'c BooleanBuffer>,
    /// How many rows were read.
    pub(super) at: usize,
    end: usize,
    /// Whether the remaining bytes are the end of the chunk.
    is_last: bool,
}

/// The next page or rows.
pub(super) enum NextPage<'c> {
    /// A page with requested rows.
    Read(CompressedPage<'c>),
    /// So many rows of which none is requested.
    Skip(usize),
}

impl<'c> PageReader<'c> {
    /// The data pages, without those that have none of `rows`, and the dictionary, which is decompressed into `buffer`.
    pub(super) fn new<'p>(
        chunk: Chunk<'c>,
        rows: Option<&'c BooleanBuffer>,
        buffer: &'p mut Vec<u8>,
    ) -> Decoded<(Self, Option<Page<'p>>)>
    where
        'c: 'p,
    {
        let mut pages = Self::resumed(chunk, 0, true, rows)?;
        let dictionary = open_dictionary(&mut pages.rest, chunk, buffer)?;
        Ok((pages, dictionary))
    }

    /// The data pages after so many rows, in a chunk of which only a piece may be in memory; with `rows`, only those.
    /// A dictionary may be before them.
    pub(super) fn resumed(
        chunk: Chunk<'c>,
        at: usize,
        is_last: bool,
        rows: Option<&'c BooleanBuffer>,
    ) -> Decoded<Self> {
        // Every value must be a row, and `rows` must have a bit for each.
        if chunk.max_repetition > 0 || rows.is_some_and(|rows| rows.len() != chunk.rows) {
            return Err(Failure::Unsupported);
        }
        Ok(Self { rest: chunk.bytes, rows, at, end: chunk.rows, is_last })
    }

    /// The next page; `None` after all rows, or if the next page is not complete in the piece.
    pub(super) fn next_page(&mut self) -> Decoded<Option<NextPage<'c>>> {
        if self.at == self.end {
            return Ok(None);
        }
        let mut after = self.rest;
        let compressed = match if_complete(take_data_page(&mut after), self.is_last)? {
            Some(Some(compressed)) => compressed,
            Some(None) if self.is_last => return Err(OTHER_ROWS),
            _ => return Ok(None),
        };
        self.rest = after;
        let start = self.at;
        self.at = Some(start + compressed.values).filter(|at| *at <= self.end).ok_or(OTHER_ROWS)?;
        let is_wanted = self.rows.is_none_or(|rows| rows.slice(start, compressed.values).count_set_bits() > 0);
        Ok(Some(if is_wanted { NextPage::Read(compressed) } else { NextPage::Skip(compressed.values) }))
    }
}

/// A result of reading the beginning of a piece; `None` if it was cut off by the end of a piece that is not the last.
pub(super) fn if_complete<T>(read: Decoded<T>, is_last: bool) -> Decoded<Option<T>> {
    match read {
        Err(CUT_OFF | BROKEN_HEADER) if !is_last => Ok(None),
        read => read.map(Some),
    }
}

/// Takes the dictionary off the beginning of `rest`, if there is one, and decompresses it.
pub(super) fn open_dictionary<'c: 'p, 'p>(
    rest: &mut &'c [u8],
    chunk: Chunk<'c>,
    buffer: &'p mut Vec<u8>,
) -> Decoded<Option<Page<'p>>> {
    let Some(compressed) = take_dictionary(rest)? else { return Ok(None) };
    let page = compressed.open(chunk, buffer)?;
    if page.encoding == Encoding::Plain { Ok(Some(page)) } else { Err(Failure::Unsupported) }
}

/// Takes the dictionary off the beginning of `rest`, if there is one, without decompressing it.
pub(super) fn take_dictionary<'c>(rest: &mut &'c [u8]) -> Decoded<Option<CompressedPage<'c>>> {
    let mut after = *rest;
    let page = take_page(&mut after)?.filter(|compressed| compressed.is_dictionary);
    if page.is_some() {
        *rest = after;
    }
    Ok(page)
}

/// Takes the data page off the beginning of `rest`; `None` at the end.
pub(super) fn take_data_page<'c>(rest: &mut &'c [u8]) -> Decoded<Option<CompressedPage<'c>>> {
    match take_page(rest)? {
        Some(compressed) if compressed.is_dictionary => Err(Failure::Corrupt("a dictionary page follows data pages")),
        page => Ok(page),
    }
}

impl<'p> Page<'p> {
    /// A bit for each value: whether it has at least the definition level `least`.
    pub(super) fn defined(&self, chunk: Chunk<'_>, least: u32) -> Decoded<BooleanBuffer> {
        self.levels(self.definition, chunk.max_definition, least)
    }

    /// A bit for each value: whether it belongs to the same row as the one before it.
    pub(super) fn repeated(&self, chunk: Chunk<'_>) -> Decoded<BooleanBuffer> {
        self.levels(self.repetition, chunk.max_repetition, 1)
    }

    fn levels(&self, bytes: &[u8], most: u32, least: u32) -> Decoded<BooleanBuffer> {
        if least == 0 || least > most {
            return Ok(BooleanBuffer::collect_bool(self.values, |_| least == 0));
        }
        let mut defined = BooleanBufferBuilder::new(self.values);
        Runs::new(bytes, u32::BITS - most.leading_zeros(), self.values)?.at_least(least, most, &mut defined)?;
        Ok(defined.finish())
    }

    /// The codes of `count` values.
    pub(super) fn codes(&self, count: usize, out: &mut Vec<u32>) -> Decoded<()> {
        out.clear();
        let Some((width, runs)) = self.data.split_first() else {
            return if count == 0 { Ok(()) } else { Err(CUT_OFF) };
        };
        Runs::new(runs, u32::from(*width), count)?.numbers(out)
    }
}

fn take_page<'c>(chunk: &mut &'c [u8]) -> Decoded<Option<CompressedPage<'c>>> {
    if !crate::is_enabled() {
        return Err(Failure::Unsupported);
    }
    loop {
        if chunk.is_empty() {
            return Ok(None);
        }
        let mut thrift = Thrift { bytes: chunk };
        let header = Header::read(&mut thrift).ok_or(BROKEN_HEADER)?;
        let compressed = header.compressed.ok_or(BROKEN_HEADER)?;
        let (bytes, rest) = thrift.bytes.split_at_checked(compressed).ok_or(CUT_OFF)?;
        *chunk = rest;
        let levels = match header.kind {
            DATA_PAGE => Levels::V1(header.levels_are_rle),
            DICTIONARY_PAGE => Levels::V1([true; 2]),
            DATA_PAGE_V2 => Levels::V2(header.repetition, header.definition, !header.is_uncompressed),
            // Index pages, and kinds of pages added later, are skipped.
            _ => continue,
        };
        let size = header.uncompressed.filter(|_| header.is_whole).ok_or(BROKEN_HEADER)?;
        let Header { kind, values, encoding, .. } = header;
        return Ok(Some(CompressedPage {
            is_dictionary: kind == DICTIONARY_PAGE,
            values,
            encoding,
            levels,
            size,
            bytes,
        }));
    }
}

/// Whether all pages of a chunk can be decompressed and decoded here, as far as
/// their headers tell.
pub(super) fn all_pages_supported(chunk: Chunk<'_>) -> Decoded<bool> {
    let mut rest = chunk.bytes;
    while let Some(compressed) = take_page(&mut rest)? {
        let is_known = matches!(compressed.encoding, Encoding::Plain | Encoding::Dictionary);
        let has_runs = !matches!(compressed.levels, Levels::V1([_, false]) if chunk.max_definition > 0);
        let is_small = match chunk.codec {
            Compression::UNCOMPRESSED | Compression::SNAPPY => true,
            Compression::ZSTD(_) => compressed.size <= zstd_limit(compressed.bytes),
            _ => false,
        };
        if !(is_known && has_runs && is_small) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn zstd_limit(bytes: &[u8]) -> usize {
    bytes.len().saturating_mul(MAX_ZSTD_RATIO).max(MAX_ZSTD_PAGE)
}

impl<'c> CompressedPage<'c> {
    /// How many bytes are decompressed to open it, with the values at the end; `None` if it is not compressed.
    pub(super) fn decompressed_size(&self, codec: Compression) -> Option<usize> {
        match self.levels {
            _ if codec == Compression::UNCOMPRESSED => None,
            Levels::V1(_) => Some(self.size),
            Levels::V2(repetition, definition, is_compressed) => {
                let levels = repetition.saturating_add(definition);
                (is_compressed && self.bytes.len() > levels).then(|| self.size.saturating_sub(levels))
            }
        }
    }

    /// How many bytes to allocate for opening it: those that it claims, but no more than its own bytes justify.
    pub(super) fn buffer_size(&self, codec: Compression) -> usize {
        let limit = match codec {
            Compression::SNAPPY => self.bytes.len().saturating_mul(MAX_SNAPPY_RATIO),
            _ => zstd_limit(self.bytes),
        };
        self.decompressed_size(codec).unwrap_or_default().min(limit)
    }

    /// Decompresses into `buffer` and finds levels and values.
    pub(super) fn open<'p>(&self, chunk: Chunk<'_>, buffer: &'p mut Vec<u8>) -> Decoded<Page<'p>>
    where
        'c: 'p,
    {
        let (codec, bytes, size) = self.body(chunk.codec)?;
        self.page(chunk, decompress(codec, bytes, size, buffer)?)
    }

    /// The codec and the bytes of the compressed part, and its length after decompression.
    fn body(&self, codec: Compression) -> Decoded<(Compression, &'c [u8], usize)> {
        match self.levels {
            Levels::V1(_) => Ok((codec, self.bytes, self.size)),
            Levels::V2(repetition, definition, is_compressed) => {
                let levels = repetition.checked_add(definition).ok_or(CUT_OFF)?;
                let (_, rest) = self.bytes.split_at_checked(levels).ok_or(CUT_OFF)?;
                let size = self.size.checked_sub(levels).ok_or(WRONG_LENGTH)?;
                // If all values are null, nothing is left to compress.
                let codec = if is_compressed && !rest.is_empty() { codec } else { Compression::UNCOMPRESSED };
                Ok((codec, rest, size))
            }
        }
    }

    /// Finds levels and values in the decompressed body.
    fn page<'p>(&self, chunk: Chunk<'_>, mut data: &'p [u8]) -> Decoded<Page<'p>>
    where
        'c: 'p,
    {
        let Self { values, encoding, .. } = *self;
        let (nests, is_optional) = (chunk.max_repetition > 0, chunk.max_definition > 0);
        let (mut repetition, mut definition) = (&[][..], &[][..]);
        match self.levels {
            Levels::V1(_) if self.is_dictionary => {}
            Levels::V1(levels_are_rle) => {
                // Levels that do not exist may have another encoding, as in files of Spark's writer.
                if (nests && !levels_are_rle[0]) || (is_optional && !levels_are_rle[1]) {
                    return Err(Failure::Unsupported);
                }
                repetition = if nests { length_prefixed(&mut data)? } else { repetition };
                definition = if is_optional { length_prefixed(&mut data)? } else { definition };
            }
            Levels::V2(of_repetition, of_definition, _) => {
                let (levels, rest) = self.bytes.split_at_checked(of_repetition).ok_or(CUT_OFF)?;
                repetition = levels;
                definition = rest.get(..of_definition).ok_or(CUT_OFF)?;
            }
        }
        Ok(Page { values, encoding, repetition, definition, data })
    }
}

/// Takes bytes with their number before them off the beginning of `data`.
fn length_prefixed<'p>(data: &mut &'p [u8]) -> Decoded<&'p [u8]> {
    let (length, rest) = data.split_first_chunk::<4>().ok_or(CUT_OFF)?;
    let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| CUT_OFF)?;
    let (bytes, rest) = rest.split_at_checked(length).ok_or(CUT_OFF)?;
    *data = rest;
    Ok(bytes)
}

fn decompress<'p>(codec: Compression, bytes: &'p [u8], size: usize, buffer: &'p mut Vec<u8>) -> Decoded<&'p [u8]> {
    match codec {
        Compression::UNCOMPRESSED if bytes.len() == size => Ok(bytes),
        Compression::UNCOMPRESSED => Err(WRONG_LENGTH),
        Compression::SNAPPY => {
            let out = snappy_output(bytes, size, buffer)?;
            snappy::decompress(bytes, out).ok_or(NO_SNAPPY)?;
            Ok(out)
        }
        Compression::ZSTD(_) => {
            let out = output_buffer(size, zstd_limit(bytes), Failure::Unsupported, buffer)?;
            let broken = |_| Failure::Corrupt("a page is not valid Zstandard");
            let length = zstd::bulk::decompress_to_buffer(bytes, out).map_err(broken)?;
            if length == size { Ok(out) } else { Err(WRONG_LENGTH) }
        }
        Compression::GZIP(_) | Compression::LZO | Compression::BROTLI(_) | Compression::LZ4 | Compression::LZ4_RAW => {
            Err(Failure::Unsupported)
        }
    }
}

/// The first `size` bytes of `buffer`, which grows if necessary; an error if `size` is above `limit`.
fn output_buffer(size: usize, limit: usize, too_large: Failure, buffer: &mut Vec<u8>) -> Decoded<&mut [u8]> {
    if size > limit {
        return Err(too_large);
    }
    if buffer.capacity() < size {
        // The old contents are not needed, and the next page is about as large. Zeroed memory that is not written to costs
        // nothing.
        *buffer = Vec::new();
        let length = size + size / BUFFER_SLACK_DIVISOR;
        *buffer = vec![0; length.next_multiple_of(BUFFER_STEP.min(length.next_power_of_two()))];
    } else if buffer.len() < size {
        buffer.resize(size, 0);
    }
    buffer.get_mut(..size).ok_or(WRONG_LENGTH)
}

fn snappy_output<'p>(bytes: &[u8], size: usize, buffer: &'p mut Vec<u8>) -> Decoded<&'p mut [u8]> {
    let out = output_buffer(size, bytes.len().saturating_mul(MAX_SNAPPY_RATIO), WRONG_LENGTH, buffer)?;
    let length = snap::raw::decompress_len(bytes).map_err(|_| CUT_OFF)?;
    if length == size { Ok(out) } else { Err(WRONG_LENGTH) }
}
