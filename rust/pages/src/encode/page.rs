//! Writes pages: headers, levels and values, compressed in memory that is reused.
//!
//! Parquet format: "Data Pages", "Thrift definition" (PageHeader).

use parquet::basic::Encoding;
use parquet::errors::ParquetError;
use snap::raw::{Encoder, max_compress_len};

use super::hybrid::{Hybrid, varint, width_of};
use super::snappy::SnappyEncoder;

/// Thrift's compact form: types of fields.
const I32: u8 = 5;
const STRUCT: u8 = 12;
/// Kinds of pages, and encodings, by their numbers in the format.
const DATA_PAGE: usize = 0;
const DICTIONARY_PAGE: usize = 2;
const PLAIN: usize = 0;
const RLE: usize = 3;
const RLE_DICTIONARY: usize = 8;

/// Memory in which one page after another is compressed.
pub struct PageCompressor {
    encoder: Encoder,
    /// The encoder for pages of strings.
    snappy: SnappyEncoder,
    header: Vec<u8>,
    body: Vec<u8>,
    /// How many bytes at the beginning of the body do not belong to the page.
    skipped: usize,
    /// Whether the body has strings after the levels.
    are_strings: bool,
    compressed: Vec<u8>,
}

impl Default for PageCompressor {
    fn default() -> Self {
        let [header, body, compressed] = [const { Vec::new() }; 3];
        let (encoder, snappy) = (Encoder::new(), SnappyEncoder::default());
        Self { encoder, snappy, header, body, skipped: 0, are_strings: false, compressed }
    }
}

impl PageCompressor {
    /// An empty buffer for the bytes of a page.
    pub(super) fn body(&mut self) -> &mut Vec<u8> {
        self.body.clear();
        (self.skipped, self.are_strings) = (0, false);
        &mut self.body
    }

    /// Swaps in a body with strings, whose first `skipped` bytes do not belong to the page; the caller gets the old buffer.
    pub(super) fn exchange(&mut self, body: &mut Vec<u8>, skipped: usize) {
        std::mem::swap(&mut self.body, body);
        (self.skipped, self.are_strings) = (skipped, true);
        body.clear();
    }

    /// Returns the header, the compressed bytes, and their number before compression.
    pub(super) fn data_page(&mut self, rows: usize, encoding: Encoding) -> Result<(&[u8], &[u8], usize), ParquetError> {
        let encoding = if encoding == Encoding::PLAIN { PLAIN } else { RLE_DICTIONARY };
        self.page(DATA_PAGE, 5, &[rows, encoding, RLE, RLE])
    }

    /// Returns the header, the compressed bytes, and their number before compression, of a dictionary page with so many values.
    pub(super) fn dictionary_page(&mut self, distinct: usize) -> Result<(&[u8], &[u8], usize), ParquetError> {
        self.page(DICTIONARY_PAGE, 7, &[distinct, PLAIN])
    }

    fn page(&mut self, kind: usize, id: u8, members: &[usize]) -> Result<(&[u8], &[u8], usize), ParquetError> {
        let body = self.body.get(self.skipped..).unwrap_or_default();
        if i32::try_from(body.len()).is_err() {
            return Err(too_long());
        }
        let length = match self.are_strings {
            true => self.snappy.compress(body, &mut self.compressed).ok_or_else(too_long)?,
            false => {
                let length = max_compress_len(body.len());
                if self.compressed.len() < length {
                    self.compressed.resize(length, 0);
                }
                self.encoder.compress(body, &mut self.compressed).map_err(|e| ParquetError::External(e.into()))?
            }
        };
        let header = &mut self.header;
        header.clear();
        let number = |out: &mut Vec<u8>, number: usize| {
            out.push(1 << 4 | I32);
            varint(out, (number as u64) << 1);
        };
        [kind, body.len(), length].into_iter().for_each(|member| number(header, member));
        header.push((id - 3) << 4 | STRUCT);
        members.iter().for_each(|member| number(header, *member));
        header.extend([0, 0]);
        Ok((&self.header, self.compressed.get(..length).unwrap_or_default(), body.len()))
    }
}

fn too_long() -> ParquetError {
    ParquetError::General("a page is longer than Parquet allows".to_owned())
}

/// The bytes of definition levels in a page, from their runs; empty if there is only one possible level.
pub(super) fn levels(runs: &[(u8, usize)], most: i16) -> Vec<u8> {
    if most == 0 {
        return Vec::new();
    }
    let mut bytes = vec![0; 4];
    let mut hybrid = Hybrid::new(&mut bytes, width_of(usize::from(most.unsigned_abs()) + 1));
    runs.iter().for_each(|(level, times)| hybrid.push(u32::from(*level), *times));
    hybrid.finish();
    let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX).to_le_bytes();
    if let Some(head) = bytes.first_chunk_mut() {
        *head = length;
    }
    bytes
}
