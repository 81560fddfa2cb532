//! Leaves of a row group decoded straight from the bytes of their pages, for the few shapes that the log has.
//!
//! A checkpoint is one long run of `add` actions: numbers and texts in optional structs, and one map of texts. Decoding
//! those alone keeps no levels, no page, and no copy but of what is wanted; pages in which no row is wanted are not even
//! decompressed. Whatever else a file may be made of is [`Stop::Rare`], and left to the general decoder.
//!
//! Invariant: what is decoded is what the general decoder gives, or it is refused
//! (`leaf::tests::leaves_are_decoded_as_by_the_general_decoder`).
//!
//! Parquet format: "Nested Encoding", "Data Pages", "Encodings".

mod coded;
mod digits;
mod entries;
mod header;
mod hybrid;
pub(crate) mod lengths;
mod numbers;
mod page;
mod short;
mod text_pages;
mod texts;
mod trimmed;
mod values;
pub(crate) mod views;

use std::sync::{Arc, Mutex};

use arrow_array::ArrayRef;
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use arrow_schema::DataType as ArrowType;
use parquet::basic::{Compression, Type as PhysicalType};

pub(crate) use self::coded::Coded;
pub(crate) use self::entries::{Entries, NONE, entries};
use self::page::{Pages, Step};
pub(crate) use self::text_pages::TextPages;
pub(crate) use self::trimmed::{Trimmed, Trimming};

/// Why direct decoding ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// An encoding, a codec or a type that is left to the general decoder.
    Rare,
    /// The bytes contradict themselves.
    Broken(&'static str),
}

pub(crate) type Decoded<T> = Result<T, Stop>;

const NO_SUCH_CODE: Stop = Stop::Broken("a value is not in its dictionary");
const NO_UTF8: Stop = Stop::Broken("a text is not UTF-8");
/// Where fewer rows than one in so many are wanted, they are picked out.
const FEW: usize = 8;
/// Buffers up to this size are used again.
const KEPT_BUFFER: usize = 4 * 1024 * 1024;

/// The bytes of one leaf in one row group, and what the footer says of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunk<'c> {
    pub(crate) bytes: &'c [u8],
    pub(crate) codec: Compression,
    pub(crate) physical: PhysicalType,
    /// The definition level of a value.
    pub(crate) max_definition: u32,
    pub(crate) max_repetition: u32,
    /// Rows of the row group.
    pub(crate) rows: usize,
    /// What the footer says that all pages take, and when decompressed.
    pub(crate) compressed: usize,
    pub(crate) size: usize,
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
    memory.try_reserve_exact(bytes).map_err(|_| Stop::Rare)?;
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

/// Memory that waits to be used, of no more than so many chunks.
static WAITING: Mutex<Vec<Scratch>> = Mutex::new(Vec::new());
const MOST_WAITING: usize = 4;

/// Forgets memory that waits to be used.
pub(crate) fn clear_scratch() {
    if let Ok(mut waiting) = WAITING.try_lock() {
        waiting.clear();
    }
}

/// Such memory, which waits again when it is dropped.
#[derive(Default)]
struct Lent(Scratch);

impl Lent {
    fn new() -> Self {
        // Never waits: a lock that was held when the process forked stays held in the child.
        Self(WAITING.try_lock().ok().and_then(|mut waiting| waiting.pop()).unwrap_or_default())
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut scratch = std::mem::take(&mut self.0);
        for buffer in [&mut scratch.page, &mut scratch.dictionary] {
            if buffer.capacity() > KEPT_BUFFER {
                *buffer = Vec::new();
            }
        }
        if scratch.codes.capacity() > KEPT_BUFFER / size_of::<u32>() {
            scratch.codes = Vec::new();
        }
        if let Ok(mut waiting) = WAITING.try_lock()
            && waiting.len() < MOST_WAITING
        {
            waiting.push(scratch);
        }
    }
}

fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    work(&mut Lent::new().0)
}

/// Which rows have at least the definition level `least`: in which a leaf, or a struct that it is in, is there.
pub(crate) fn defined(chunk: Chunk<'_>, least: u32) -> Decoded<BooleanBuffer> {
    let mut there = BooleanBufferBuilder::new(chunk.rows);
    with_scratch(|scratch| {
        let (mut pages, _) = Pages::new(chunk, None, &mut scratch.dictionary)?;
        while let Some(step) = pages.step()? {
            if let Step::Wanted(packed) = step {
                there.append_buffer(&packed.open(chunk, &mut scratch.page)?.defined(chunk, least)?);
            }
        }
        Ok(there.finish())
    })
}

/// The values of a leaf in an Arrow type that holds them as they are; of `rows` alone if given, where others may be null.
pub(crate) fn array(chunk: Chunk<'_>, target: &ArrowType, rows: Option<&BooleanBuffer>) -> Decoded<ArrayRef> {
    if chunk.physical == PhysicalType::BYTE_ARRAY && target == &ArrowType::Utf8 {
        return Ok(Arc::new(texts::texts(chunk, rows)?));
    }
    numbers::array(chunk, target, rows)
}

/// Shows `read` the texts of a leaf, page by page, as they stand in the page; of `rows` alone if given, where others may
/// be none.
pub(crate) fn texts_by_page<T>(
    chunk: Chunk<'_>,
    rows: Option<&BooleanBuffer>,
    read: impl FnMut(&[Option<&str>]) -> T,
) -> Decoded<Vec<T>> {
    TextPages::new().read(chunk, true, rows, read).map(|(done, _)| done)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
pub(crate) mod tests;
