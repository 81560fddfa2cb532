//! A column chunk to be decoded, why direct decoding fails, and the memory for it.

use parquet::basic::{Compression, Type as PhysicalType};

/// Why direct decoding fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// It has an encoding, a codec or a type that is left to the parquet crate.
    Unsupported,
    /// The bytes contradict themselves.
    Corrupt(&'static str),
}

/// A decoded value, or why it could not be decoded.
pub type Decoded<T> = Result<T, Failure>;

pub(super) const NO_SUCH_ENTRY: Failure = Failure::Corrupt("a value is not in its dictionary");
pub(super) const NOT_UTF8: Failure = Failure::Corrupt("a string is not UTF-8");
/// If fewer than one in so many rows are needed, only these are decoded.
pub(super) const SPARSE_RATIO: usize = 8;

/// The bytes of one leaf in one row group, and its description in the footer.
#[derive(Debug, Clone, Copy)]
pub struct Chunk<'c> {
    /// Its pages, or a part of them.
    pub bytes: &'c [u8],
    /// The codec of the pages.
    pub codec: Compression,
    /// The physical type of the values.
    pub physical: PhysicalType,
    /// The definition level of a value.
    pub max_definition: u32,
    /// The repetition level of a value.
    pub max_repetition: u32,
    /// Rows of the row group.
    pub rows: usize,
    /// The compressed bytes of all pages by the footer.
    pub compressed: usize,
    /// The bytes of all pages after decompression by the footer.
    pub size: usize,
}

/// How many decompressed bytes are assumed for each compressed byte before it is decompressed.
const ASSUMED_RATIO: usize = 8;

impl Chunk<'_> {
    /// The decompressed bytes of its pages by the footer, but no more than their compressed bytes justify.
    pub(super) fn expected_bytes(&self) -> usize {
        self.size.min(self.compressed.saturating_mul(ASSUMED_RATIO))
    }
}

/// An empty buffer with this capacity.
pub(super) fn buffer_with_capacity(bytes: usize) -> Decoded<Vec<u8>> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(bytes).map_err(|_| Failure::Unsupported)?;
    Ok(memory)
}

/// Buffers that are reused for one chunk after another.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) page: Vec<u8>,
    pub(super) dictionary: Vec<u8>,
    pub(super) codes: Vec<u32>,
}

pub(super) fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    work(&mut Scratch::default())
}
