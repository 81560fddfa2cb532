//! The texts of a leaf in one array.

use arrow_array::StringArray;
use arrow_buffer::bit_chunk_iterator::UnalignedBitChunk;
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, NullBuffer, OffsetBuffer};

use super::text_pages::{Shown, TEXT_RATIO, TextPages};
use super::{Chunk, Decoded, NO_UTF8, Stop};
use crate::large::Large;

pub(super) const TOO_MUCH_TEXT: Stop = Stop::Broken("a dictionary makes more text than a file of this size has");

/// The texts of a leaf; of `rows` alone if given, where others may be null.
pub(super) fn texts(chunk: Chunk<'_>, rows: Option<&BooleanBuffer>) -> Decoded<StringArray> {
    // Room for all at once.
    let mut bytes = Large::with_room(if rows.is_none() { likely(chunk) } else { 0 }).map_err(|_| Stop::Rare)?;
    let mut offsets = Vec::with_capacity(chunk.rows + 1);
    let (mut valid, mut end) = (BooleanBufferBuilder::new(chunk.rows), 0);
    offsets.push(end);
    TextPages::new().show(chunk, true, rows, |shown| {
        let (there, mut texts, most) = match shown {
            Shown::Unwanted(count) => {
                offsets.resize(offsets.len() + count, end);
                valid.append_n(count, false);
                return Ok(());
            }
            Shown::Page(there, texts, most) => (there, texts, most),
        };
        let first = valid.len();
        for slot in 0..there.len() {
            if there.value(slot) {
                let text = texts.text()?;
                if rows.is_none_or(|rows| rows.value(first + slot)) {
                    bytes.extend(text).map_err(|_| Stop::Rare)?;
                    if bytes.len() > most {
                        return Err(TOO_MUCH_TEXT);
                    }
                    end = i32::try_from(bytes.len()).map_err(|_| Stop::Rare)?;
                }
            }
            offsets.push(end);
        }
        valid.append_buffer(&there);
        Ok(())
    })?;
    let offsets = OffsetBuffer::new(offsets.into());
    StringArray::try_new(offsets, bytes.into_bytes().into(), nulls(valid)).map_err(|_| NO_UTF8)
}

/// How long the texts of a leaf are together with their lengths, as far as the file's own bytes justify it.
pub(super) fn likely(chunk: Chunk<'_>) -> usize {
    chunk.size.min(chunk.compressed.saturating_mul(TEXT_RATIO))
}

/// How many of these rows have a value.
pub(super) fn there_in(nulls: Option<&NullBuffer>, from: usize, to: usize) -> usize {
    match nulls {
        None => to - from,
        Some(nulls) if to == from + 1 => usize::from(nulls.is_valid(from)),
        Some(nulls) => UnalignedBitChunk::new(nulls.validity(), nulls.offset() + from, to - from).count_ones(),
    }
}

pub(super) fn nulls(mut valid: BooleanBufferBuilder) -> Option<NullBuffer> {
    Some(NullBuffer::new(valid.finish())).filter(|nulls| nulls.null_count() > 0)
}
