//! Checks that strings are UTF-8, and within the bytes of their array.
//!
//! Other strings would be cut in the middle of a character, and make the log unreadable.

use arrow_array::OffsetSizeTrait;
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use simdutf8::basic::from_utf8;

use super::broken::{Checked, broken, bytes, check_offsets};

const NOT_UTF8: &str = "it has strings, but some of their bytes are not UTF-8; decode them, or pass them as binary";

/// The most bytes of a value that is in the view itself.
const INLINE: usize = 12;

/// The same strings, checked. The bytes below nulls are UTF-8, too.
pub(super) fn checked<O: OffsetSizeTrait>(data: &ArrayData) -> Checked<ArrayData> {
    let offsets = check_offsets::<O>(data, bytes(data))?;
    let (Some(from), Some(to), Some(values)) = (offsets.first(), offsets.last(), data.buffers().get(1)) else {
        return Ok(data.clone());
    };
    let (bytes, from, to) = (values.as_slice(), from.as_usize(), to.as_usize());
    // Bytes in the middle of a character begin with these two bits.
    let is_start = |at: &O| bytes.get(at.as_usize()).filter(|_| at.as_usize() < to).is_none_or(|b| b & 0xC0 != 0x80);
    if bytes.get(from..to).is_some_and(|all| from_utf8(all).is_ok()) && offsets.iter().all(is_start) {
        return Ok(data.clone());
    }
    let (mut kept, mut ends) = (Vec::with_capacity(to - from), Vec::with_capacity(offsets.len()));
    ends.push(O::default());
    for (row, (low, high)) in offsets.iter().zip(offsets.iter().skip(1)).enumerate() {
        match bytes.get(low.as_usize()..high.as_usize()) {
            _ if data.is_null(row) => {}
            Some(value) if from_utf8(value).is_ok() => kept.extend_from_slice(value),
            _ => return broken(NOT_UTF8),
        }
        ends.push(O::usize_as(kept.len()));
    }
    with_buffers(data, vec![Buffer::from_vec(ends), Buffer::from_vec(kept)])
}

/// The same strings or binary values, checked: a short value is in its view, a longer one has its position and its first
/// bytes there. The bytes below nulls are UTF-8, too.
pub(super) fn checked_views(data: &ArrayData, are_strings: bool) -> Checked<ArrayData> {
    let Some((views, values)) = data.buffers().split_first().filter(|_| !data.is_empty()) else {
        return Ok(data.clone());
    };
    let views: &[u128] = views.typed_data();
    let views = views.get(data.offset()..).and_then(|own| own.get(..data.len())).unwrap_or_default();
    let mut hidden = Vec::new();
    for (row, view) in views.iter().enumerate() {
        let word = |at: u32| usize::try_from((view >> at) & u128::from(u32::MAX)).unwrap_or(usize::MAX);
        let (length, start, held) = (word(0), word(96), view.to_le_bytes());
        let value = match length <= INLINE {
            // The bytes after a short value are zero, because whole views are compared.
            true => held.get(4..4 + length).filter(|_| length == INLINE || view >> (32 + 8 * length) == 0),
            false => {
                let bytes = values.get(word(64)).map(|bytes| bytes.as_slice());
                let value = bytes.and_then(|bytes| bytes.get(start..start.saturating_add(length)));
                value.filter(|value| value.get(..4) == held.get(4..8))
            }
        };
        match value {
            None => return broken(format!("the view of row {row} of the batch does not lead to a value")),
            Some(value) if !are_strings || from_utf8(value).is_ok() => {}
            Some(_) if data.is_null(row) => hidden.push(row),
            Some(_) => return broken(NOT_UTF8),
        }
    }
    if hidden.is_empty() {
        return Ok(data.clone());
    }
    let mut views = views.to_vec();
    for row in hidden {
        views[row] = 0;
    }
    let buffers = std::iter::once(Buffer::from_vec(views)).chain(values.iter().cloned());
    with_buffers(data, buffers.collect())
}

/// An array with the nulls and the length of `data`, and with other buffers, which begin with its first value.
fn with_buffers(data: &ArrayData, buffers: Vec<Buffer>) -> Checked<ArrayData> {
    let builder = ArrayData::builder(data.data_type().clone()).len(data.len()).nulls(data.nulls().cloned());
    Ok(builder.buffers(buffers).build()?)
}
