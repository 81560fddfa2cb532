//! Decodes leaves of a row group directly from the bytes of their pages, for the few shapes that checkpoints have.
//!
//! A checkpoint is one long run of `add` actions: numbers and strings in optional structs, and one map of strings. Decoding
//! only those needs no memory for levels and pages, and copies only the requested values; pages without a requested row are
//! not even decompressed. Everything else that a file may have is [`Failure::Unsupported`], and left to the general
//! decoder.
//!
//! Invariant: a result equals that of the parquet crate, or there is an error
//! (`decode::tests::leaves_are_decoded_as_by_the_general_decoder`).
//!
//! Parquet format: "Nested Encoding", "Data Pages", "Encodings".

mod chunk;
mod dictionary_encoded;
mod entries;
mod front_coded;
mod header;
mod hybrid;
mod numbers;
mod page;
pub mod string_lengths;
mod string_pages;
mod string_views;
mod strings;
mod values;

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use arrow_schema::DataType as ArrowType;
use parquet::basic::Type as PhysicalType;

use self::chunk::with_scratch;
pub use self::chunk::{Chunk, Decoded, Failure};
pub use self::dictionary_encoded::DictionaryEncoded;
pub use self::entries::{Entries, NONE, entries};
pub use self::front_coded::{FrontCodedStrings, FrontCoder};
use self::page::{NextPage, PageReader};
pub use self::string_pages::StringPages;
pub use self::string_views::StringViews;

/// Which rows have at least the definition level `least`: in which a leaf, or a struct around it, is not null.
pub fn defined(chunk: Chunk<'_>, least: u32) -> Decoded<BooleanBuffer> {
    let mut defined = BooleanBufferBuilder::new(chunk.rows);
    with_scratch(|scratch| {
        let (mut pages, _) = PageReader::new(chunk, None, &mut scratch.dictionary)?;
        while let Some(step) = pages.next_page()? {
            if let NextPage::Read(compressed) = step {
                defined.append_buffer(&compressed.open(chunk, &mut scratch.page)?.defined(chunk, least)?);
            }
        }
        Ok(defined.finish())
    })
}

/// The values of a leaf in an Arrow type that has the same values. With `rows`, other rows may be null.
pub fn array(chunk: Chunk<'_>, target: &ArrowType, rows: Option<&BooleanBuffer>) -> Decoded<ArrayRef> {
    if chunk.physical == PhysicalType::BYTE_ARRAY && target == &ArrowType::Utf8 {
        return Ok(Arc::new(strings::strings(chunk, rows)?));
    }
    numbers::array(chunk, target, rows)
}

/// Calls `read` with the strings of a leaf, page by page, without copying them. With `rows`, other rows may
/// be null.
pub fn strings_by_page<T>(
    chunk: Chunk<'_>,
    rows: Option<&BooleanBuffer>,
    read: impl FnMut(&[Option<&str>]) -> T,
) -> Decoded<Vec<T>> {
    StringPages::default().read(chunk, true, rows, read).map(|(done, _)| done)
}

/// `count` numbers of `width` bits; `None` if they are cut off.
#[cfg(test)]
pub(super) fn numbers_of_runs(bytes: &[u8], width: u32, count: usize) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    hybrid::Runs::new(bytes, width, count).ok()?.numbers(&mut numbers).ok()?;
    Some(numbers)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
