//! The texts of a leaf in one array.

use arrow_array::StringArray;
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, OffsetBuffer};

use super::text_pages::{Shown, TOO_MUCH_TEXT, TextPage, TextPages};
use super::values::nulls;
use super::{Chunk, Decoded, NO_UTF8, Stop, with_room};

/// The texts of a leaf; of `rows` alone if given, where others may be null.
pub(super) fn texts(chunk: Chunk<'_>, rows: Option<&BooleanBuffer>) -> Decoded<StringArray> {
    // Room for all at once.
    let mut bytes = with_room(if rows.is_none() { chunk.likely() } else { 0 })?;
    let mut offsets = Vec::with_capacity(chunk.rows + 1);
    let (mut valid, mut end) = (BooleanBufferBuilder::new(chunk.rows), 0);
    offsets.push(end);
    TextPages::new().show(chunk, true, rows, |shown| {
        let TextPage { there, mut texts, most, .. } = match shown {
            Shown::Unwanted(count) => {
                offsets.resize(offsets.len() + count, end);
                valid.append_n(count, false);
                return Ok(());
            }
            Shown::Page(page) => page,
        };
        let first = valid.len();
        for slot in 0..there.len() {
            if there.value(slot) {
                let text = texts.text()?;
                if rows.is_none_or(|rows| rows.value(first + slot)) {
                    bytes.extend_from_slice(text);
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
    StringArray::try_new(offsets, bytes.into(), nulls(valid)).map_err(|_| NO_UTF8)
}
