//! Whether what is called text is text.
//!
//! The core takes text for UTF-8 without looking again: what is not would be cut in the middle of a character and make the
//! log unreadable. So every batch that crosses is looked at, in one pass over the bytes of its rows. Slices of large
//! arrays cost what they hold, not what they are slices of.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, GenericStringArray, OffsetSizeTrait, RecordBatch, StringViewArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Fields};
use deltic_protocol::error::Error;
use simdutf8::basic::from_utf8;

/// Refuses text that is not UTF-8, at any depth.
///
/// # Errors
/// `Invalid`, naming the column.
pub(super) fn check_text(batch: &RecordBatch) -> Result<(), Error> {
    check_columns(batch.schema_ref().fields(), batch.columns(), "")
}

fn check_columns(fields: &Fields, columns: &[ArrayRef], above: &str) -> Result<(), Error> {
    let mut named = fields.iter().zip(columns);
    named.try_for_each(|(field, column)| check_column(column, &format!("{above}{}", field.name())))
}

fn check_column(array: &ArrayRef, path: &str) -> Result<(), Error> {
    let is_text = match array.data_type() {
        DataType::Utf8 => is_text(array.as_string::<i32>()),
        DataType::LargeUtf8 => is_text(array.as_string::<i64>()),
        DataType::Utf8View => is_text_in_views(array.as_string_view()),
        DataType::Struct(fields) => {
            return check_columns(fields, array.as_struct().columns(), &format!("{path}."));
        }
        DataType::Map(..) => {
            let map = array.as_map();
            check_column(&window(map.keys(), map.offsets()), &format!("{path}.key"))?;
            return check_column(&window(map.values(), map.offsets()), &format!("{path}.value"));
        }
        _ => return inside(array).map_or(Ok(()), |(inner, step)| check_column(&inner, &format!("{path}{step}"))),
    };
    match is_text {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "the column `{path}` is text, but some of its bytes are not UTF-8; decode them, or pass them as binary"
        ))),
    }
}

/// What the array's values are made of, if that is one array, and how it is called.
fn inside(array: &ArrayRef) -> Option<(ArrayRef, &'static str)> {
    const ELEMENT: &str = ".element";
    match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            Some((window(list.values(), list.offsets()), ELEMENT))
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            Some((window(list.values(), list.offsets()), ELEMENT))
        }
        DataType::FixedSizeList(..) => Some((array.as_fixed_size_list().values().clone(), ELEMENT)),
        DataType::ListView(_) => Some((array.as_list_view::<i32>().values().clone(), ELEMENT)),
        DataType::LargeListView(_) => Some((array.as_list_view::<i64>().values().clone(), ELEMENT)),
        DataType::Dictionary(..) => Some((array.as_any_dictionary().values().clone(), "")),
        DataType::RunEndEncoded(ends, _) => {
            let values = match ends.data_type() {
                DataType::Int16 => array.as_run::<Int16Type>().values(),
                DataType::Int32 => array.as_run::<Int32Type>().values(),
                _ => array.as_run::<Int64Type>().values(),
            };
            Some((values.clone(), ""))
        }
        _ => None,
    }
}

/// The elements between the first and the last offset.
fn window<O: OffsetSizeTrait>(values: &ArrayRef, offsets: &OffsetBuffer<O>) -> ArrayRef {
    let bound = |offset: O| offset.as_usize().min(values.len());
    let (start, end) = (bound(offsets.first()), bound(offsets.last()));
    values.slice(start, end.saturating_sub(start))
}

/// Whether every value is UTF-8, and lies where the array's bytes are.
fn is_text<O: OffsetSizeTrait>(array: &GenericStringArray<O>) -> bool {
    let (bytes, offsets) = (array.values().as_slice(), array.offsets());
    let (from, to) = (offsets.first().as_usize(), offsets.last().as_usize());
    let ascends = offsets.windows(2).all(|pair| matches!(pair, [low, high] if low <= high));
    let Some(span) = bytes.get(from..to).filter(|_| ascends) else { return false };
    // Bytes that go on with a character begin with these two bits.
    let is_start = |at: &O| bytes.get(at.as_usize()).filter(|_| at.as_usize() < to).is_none_or(|b| b & 0xC0 != 0x80);
    if from_utf8(span).is_ok() && offsets.iter().all(is_start) {
        return true;
    }
    // What lies under a null is no value.
    let value = |(low, high): (&O, &O)| bytes.get(low.as_usize()..high.as_usize());
    let mut values = offsets.iter().zip(offsets.iter().skip(1)).enumerate();
    values.all(|(row, range)| array.is_null(row) || value(range).is_some_and(|value| from_utf8(value).is_ok()))
}

/// As [`is_text`]. A view holds a short value itself, and else the place of a longer one.
fn is_text_in_views(array: &StringViewArray) -> bool {
    array.views().iter().enumerate().all(|(row, view)| {
        let word = |at: u32| usize::try_from((view >> at) & u128::from(u32::MAX)).unwrap_or(usize::MAX);
        let (length, start) = (word(0), word(96));
        let held = view.to_le_bytes();
        let value = match length {
            0..=12 => held.get(4..4 + length),
            _ => array.data_buffers().get(word(64)).and_then(|bytes| bytes.get(start..start.saturating_add(length))),
        };
        array.is_null(row) || value.is_some_and(|value| from_utf8(value).is_ok())
    })
}
