//! Leaves of a row group decoded straight from the bytes of their pages, for the few shapes that the log has.
//!
//! A checkpoint is one long run of `add` actions: numbers and strings in optional structs, and one map of strings. Decoding
//! those alone keeps no levels, no page, and no copy but of what is wanted; pages in which no row is wanted are not even
//! decompressed. Whatever else a file may be made of is [`Failure::Unsupported`], and left to the general decoder.
//!
//! Invariant: what is decoded is what the general decoder gives, or it is refused
//! (`decode::tests::leaves_are_decoded_as_by_the_general_decoder`).
//!
//! Parquet format: "Nested Encoding", "Data Pages", "Encodings".

mod dictionary_encoded;
mod entries;
mod front_coded;
mod header;
mod hex;
mod hybrid;
mod numbers;
mod page;
mod short;
pub mod string_lengths;
mod string_pages;
mod string_views;
mod strings;
mod values;

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use arrow_schema::DataType as ArrowType;
use parquet::basic::{Compression, Type as PhysicalType};

pub use self::dictionary_encoded::DictionaryEncoded;
pub use self::entries::{Entries, NONE, entries};
pub use self::front_coded::{FrontCodedStrings, FrontCoder};
use self::page::{PageReader, Step};
pub use self::string_pages::StringPages;
pub use self::string_views::StringViews;

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

const NO_SUCH_ENTRY: Failure = Failure::Corrupt("a value is not in its dictionary");
const NOT_UTF8: Failure = Failure::Corrupt("a string is not UTF-8");
/// Where fewer rows than one in so many are wanted, they are picked out.
const FEW: usize = 8;

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
    fn likely(&self) -> usize {
        self.size.min(self.compressed.saturating_mul(USUAL_RATIO))
    }
}

/// Nothing, with room for so many bytes.
fn with_room(bytes: usize) -> Decoded<Vec<u8>> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(bytes).map_err(|_| Failure::Unsupported)?;
    Ok(memory)
}

/// So many numbers of `width` bits, as they are read; `None` if they are not there.
#[cfg(test)]
pub(super) fn numbers_of_runs(bytes: &[u8], width: u32, count: usize) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    hybrid::Runs::new(bytes, width, count).ok()?.numbers(&mut numbers).ok()?;
    Some(numbers)
}

/// Memory that is used for one chunk after another.
#[derive(Default)]
struct Scratch {
    page: Vec<u8>,
    dictionary: Vec<u8>,
    codes: Vec<u32>,
}

fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    work(&mut Scratch::default())
}

/// Which rows have at least the definition level `least`: in which a leaf, or a struct that it is in, is there.
pub fn defined(chunk: Chunk<'_>, least: u32) -> Decoded<BooleanBuffer> {
    let mut there = BooleanBufferBuilder::new(chunk.rows);
    with_scratch(|scratch| {
        let (mut pages, _) = PageReader::new(chunk, None, &mut scratch.dictionary)?;
        while let Some(step) = pages.step()? {
            if let Step::Wanted(packed) = step {
                there.append_buffer(&packed.open(chunk, &mut scratch.page)?.defined(chunk, least)?);
            }
        }
        Ok(there.finish())
    })
}

/// The values of a leaf in an Arrow type that holds them as they are; of `rows` alone if given, where others may be null.
pub fn array(chunk: Chunk<'_>, target: &ArrowType, rows: Option<&BooleanBuffer>) -> Decoded<ArrayRef> {
    if chunk.physical == PhysicalType::BYTE_ARRAY && target == &ArrowType::Utf8 {
        return Ok(Arc::new(strings::strings(chunk, rows)?));
    }
    numbers::array(chunk, target, rows)
}

/// Shows `read` the strings of a leaf, page by page, as they stand in the page; of `rows` alone if given, where others may
/// be none.
pub fn strings_by_page<T>(
    chunk: Chunk<'_>,
    rows: Option<&BooleanBuffer>,
    read: impl FnMut(&[Option<&str>]) -> T,
) -> Decoded<Vec<T>> {
    StringPages::new().read(chunk, true, rows, read).map(|(done, _)| done)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
