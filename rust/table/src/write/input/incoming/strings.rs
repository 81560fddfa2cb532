//! Whether strings are UTF-8, and lie where the bytes of their array are.
//!
//! Strings that are not UTF-8 would be cut in the middle of a character, and make the log unreadable.

use arrow_array::OffsetSizeTrait;
use arrow_data::ArrayData;
use simdutf8::basic::from_utf8;

use super::broken::{Checked, broken, bytes, check_offsets};

const NOT_UTF8: &str = "it holds strings, but some of their bytes are not UTF-8; decode them, or pass them as binary";

/// Bytes of a value that a view holds itself.
const INLINE: usize = 12;

/// Checks strings with offsets.
pub(super) fn check<O: OffsetSizeTrait>(data: &ArrayData) -> Checked {
    let offsets = check_offsets::<O>(data, bytes(data))?;
    let (Some(from), Some(to), Some(values)) = (offsets.first(), offsets.last(), data.buffers().get(1)) else {
        return Ok(());
    };
    let (bytes, from, to) = (values.as_slice(), from.as_usize(), to.as_usize());
    // Bytes that go on with a character begin with these two bits.
    let is_start = |at: &O| bytes.get(at.as_usize()).filter(|_| at.as_usize() < to).is_none_or(|b| b & 0xC0 != 0x80);
    let is_utf8 = |range: std::ops::Range<usize>| bytes.get(range).is_some_and(|value| from_utf8(value).is_ok());
    if is_utf8(from..to) && offsets.iter().all(is_start) {
        return Ok(());
    }
    // What lies under a null is no value.
    let mut values = offsets.iter().zip(offsets.iter().skip(1)).enumerate();
    match values.all(|(row, (low, high))| data.is_null(row) || is_utf8(low.as_usize()..high.as_usize())) {
        true => Ok(()),
        false => broken(NOT_UTF8),
    }
}

/// Checks views: a short value stands in the view itself, a longer one has its place and its first bytes there.
pub(super) fn check_views(data: &ArrayData, are_strings: bool) -> Checked {
    let Some((views, values)) = data.buffers().split_first().filter(|_| !data.is_empty()) else { return Ok(()) };
    let views: &[u128] = views.typed_data();
    let views = views.get(data.offset()..).unwrap_or_default();
    for (row, view) in views.iter().take(data.len()).enumerate() {
        let word = |at: u32| usize::try_from((view >> at) & u128::from(u32::MAX)).unwrap_or(usize::MAX);
        let (length, start, held) = (word(0), word(96), view.to_le_bytes());
        let value = match length <= INLINE {
            // What follows a short value is zero, because views are compared whole.
            true => held.get(4..4 + length).filter(|_| length == INLINE || view >> (32 + 8 * length) == 0),
            false => {
                let bytes = values.get(word(64)).map(|bytes| bytes.as_slice());
                let value = bytes.and_then(|bytes| bytes.get(start..start.saturating_add(length)));
                value.filter(|value| value.get(..4) == held.get(4..8))
            }
        };
        match value {
            None => return broken(format!("the view of row {row} of the batch does not lead to a value")),
            Some(value) if are_strings && !data.is_null(row) && from_utf8(value).is_err() => return broken(NOT_UTF8),
            Some(_) => {}
        }
    }
    Ok(())
}
