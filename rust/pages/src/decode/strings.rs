//! Decodes the strings of a leaf into one array.

use arrow_array::StringArray;
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, OffsetBuffer};

use super::chunk::{Chunk, Decoded, Failure, NOT_UTF8, buffer_with_capacity};
use super::string_pages::{StringPage, StringPages, TOO_MANY_BYTES, Visited};
use super::values::nulls;

/// The strings of a leaf. With `rows`, other rows may be null.
pub(super) fn strings(chunk: Chunk<'_>, rows: Option<&BooleanBuffer>) -> Decoded<StringArray> {
    // Memory for all strings at once.
    let mut bytes = buffer_with_capacity(if rows.is_none() { chunk.expected_bytes() } else { 0 })?;
    let mut offsets = Vec::with_capacity(chunk.rows + 1);
    let (mut valid, mut end) = (BooleanBufferBuilder::new(chunk.rows), 0);
    offsets.push(end);
    StringPages::default().for_each_page(chunk, true, rows, |visited| {
        let StringPage { defined, mut strings, most, .. } = match visited {
            Visited::Skipped(count) => {
                offsets.resize(offsets.len() + count, end);
                valid.append_n(count, false);
                return Ok(());
            }
            Visited::Page(page) => page,
        };
        let first = valid.len();
        for slot in 0..defined.len() {
            if defined.value(slot) {
                let string = strings.string()?;
                if rows.is_none_or(|rows| rows.value(first + slot)) {
                    bytes.extend_from_slice(string);
                    if bytes.len() > most {
                        return Err(TOO_MANY_BYTES);
                    }
                    end = i32::try_from(bytes.len()).map_err(|_| Failure::Unsupported)?;
                }
            }
            offsets.push(end);
        }
        valid.append_buffer(&defined);
        Ok(())
    })?;
    let offsets = OffsetBuffer::new(offsets.into());
    StringArray::try_new(offsets, bytes.into(), nulls(valid)).map_err(|_| NOT_UTF8)
}
