//! A column chunk as it is decoded, why decoding ends, and the memory that it takes.

use parquet::basic::{Compression, Type as PhysicalType};

/// Why direct decoding ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// An encoding, a codec or a type that is left to the general decoder.
    Unsupported,
    /// The bytes contradict themselves.
    Corrupt(&'static str),
}

/// What was decoded, or why it was not.
pub type Decoded<T> = Result<T, Failure>;

pub(super) const NO_SUCH_ENTRY: Failure = Failure::Corrupt("a value is not in its dictionary");
pub(super) const NOT_UTF8: Failure = Failure::Corrupt("a string is not UTF-8");
/// Where fewer rows than one in so many are wanted, they are picked out.
pub(super) const FEW: usize = 8;

/// The bytes of one leaf in one row group, and what the footer says of it.
#[derive(Debug, Clone, Copy)]
pub struct Chunk<'c> {
    /// Its pages, or a piece of them.
    pub bytes: &'c [u8],
    /// How pages are compressed.
    pub codec: Compression,
    /// How values are stored.
    pub physical: PhysicalType,
    /// The definition level of a value.
    pub max_definition: u32,
    /// The repetition level of a value.
    pub max_repetition: u32,
    /// Rows of the row group.
    pub rows: usize,
    /// What the footer says that all pages take.
    pub compressed: usize,
    /// The same when decompressed.
    pub size: usize,
}

/// How many bytes one of a page is believed to stand for, before they are there.
const USUAL_RATIO: usize = 8;

impl Chunk<'_> {
    /// What its pages take when decompressed, as far as their own bytes justify it.
    pub(super) fn likely(&self) -> usize {
        self.size.min(self.compressed.saturating_mul(USUAL_RATIO))
    }
}

/// Nothing, with room for so many bytes.
pub(super) fn with_room(bytes: usize) -> Decoded<Vec<u8>> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(bytes).map_err(|_| Failure::Unsupported)?;
    Ok(memory)
}

/// Memory that is used for one chunk after another.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) page: Vec<u8>,
    pub(super) dictionary: Vec<u8>,
    pub(super) codes: Vec<u32>,
}

pub(super) fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    work(&mut Scratch::default())
}
