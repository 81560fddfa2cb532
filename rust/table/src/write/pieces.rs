//! Estimates the bytes of rows, and divides batches into pieces small enough to process.
//!
//! Strings that rows share (in views, dictionaries and runs) are counted for every row: in a file's columns they are
//! stored one after the other, in buffers of at most 2 GiB.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int32Type, Int64Type, RunEndIndexType};
use arrow_array::{Array, ArrayRef, OffsetSizeTrait, RecordBatch};
use arrow_buffer::ArrowNativeType;
use arrow_schema::DataType;

/// The most rows and bytes of a batch that are processed at a time.
const MAX_PIECE_ROWS: usize = 64 * 1024;
const MAX_PIECE_BYTES: usize = 16 * 1024 * 1024;

/// Bytes of an array besides its values. They matter if there are many partitions with few rows.
const ARRAY_OVERHEAD: usize = 256;

/// `batch` in pieces small enough to process, of about a quarter of `bytes`. A batch without rows is one piece: its columns
/// are still checked.
pub(crate) fn pieces(batch: &RecordBatch, bytes: u64) -> Vec<RecordBatch> {
    let rows = batch.num_rows();
    let quarter = usize::try_from(bytes / 4).unwrap_or(usize::MAX);
    let piece_bytes = quarter.clamp(MAX_PIECE_BYTES / 256, MAX_PIECE_BYTES);
    let count = memory(batch).div_ceil(piece_bytes).max(1);
    let piece_rows = rows.div_ceil(count).clamp(1, MAX_PIECE_ROWS);
    let starts = (0..rows.max(1)).step_by(piece_rows);
    let mut pieces = Vec::with_capacity(rows.div_ceil(piece_rows).max(1));
    for start in starts {
        let piece = batch.slice(start, piece_rows.min(rows - start));
        if count == 1 { pieces.push(piece) } else { halve(piece, &mut pieces) }
    }
    pieces
}

/// Halves a piece until it is small enough, since rows may have very different sizes.
fn halve(piece: RecordBatch, pieces: &mut Vec<RecordBatch>) {
    let rows = piece.num_rows();
    if rows < 2 || memory(&piece) <= 4 * MAX_PIECE_BYTES {
        pieces.push(piece);
        return;
    }
    halve(piece.slice(0, rows / 2), pieces);
    halve(piece.slice(rows / 2, rows - rows / 2), pieces);
}

/// Bytes of the rows themselves, not of larger buffers that they are slices of, and the overhead of arrays.
pub(crate) fn memory(batch: &RecordBatch) -> usize {
    let besides = overhead(batch.num_columns());
    batch.columns().iter().map(|column| laid_out(column.as_ref())).fold(besides, usize::saturating_add)
}

/// Bytes that a batch with this number of columns takes besides its rows.
pub(crate) fn overhead(columns: usize) -> usize {
    (columns + 1) * ARRAY_OVERHEAD
}

/// Bytes of the values if none were shared.
fn laid_out(array: &dyn Array) -> usize {
    match array.data_type() {
        DataType::Utf8View => views(array, array.as_string_view().views()),
        DataType::BinaryView => views(array, array.as_binary_view().views()),
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary();
            if dictionary.values().is_empty() {
                return array.len();
            }
            let size = size_of_each(dictionary.values());
            dictionary.normalized_keys().into_iter().fold(0, |sum, key| sum.saturating_add(size(key)))
        }
        DataType::RunEndEncoded(ends, _) => match ends.data_type() {
            DataType::Int16 => runs::<Int16Type>(array),
            DataType::Int32 => runs::<Int32Type>(array),
            _ => runs::<Int64Type>(array),
        },
        DataType::Struct(_) => array.as_struct().columns().iter().map(|column| laid_out(column.as_ref())).sum(),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            within(list.values().as_ref(), list.value_offsets()) + size_of_val(list.value_offsets())
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            within(list.values().as_ref(), list.value_offsets()) + size_of_val(list.value_offsets())
        }
        DataType::Map(_, _) => {
            let map = array.as_map();
            within(map.entries(), map.value_offsets()) + size_of_val(map.value_offsets())
        }
        DataType::FixedSizeList(_, _) => laid_out(array.as_fixed_size_list().values().as_ref()),
        // Elements may be shared too, so their size is estimated by the average.
        DataType::ListView(_) => {
            let list = array.as_list_view::<i32>();
            shared(list.values(), list.sizes().iter().map(|size| usize::try_from(*size).unwrap_or(0)).sum())
        }
        DataType::LargeListView(_) => {
            let list = array.as_list_view::<i64>();
            shared(list.values(), list.sizes().iter().map(|size| usize::try_from(*size).unwrap_or(0)).sum())
        }
        _ => array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_buffer_memory_size()),
    }
}

fn views(array: &dyn Array, views: &[u128]) -> usize {
    // The lowest 32 bits are the length. A view of a null row has no meaning.
    let valid = |row: usize| array.is_valid(row);
    let lengths = views.iter().enumerate().filter(|(row, _)| valid(*row)).map(|(_, view)| *view as u32 as usize);
    lengths.sum::<usize>().saturating_add(size_of_val(views))
}

/// Returns the size in bytes of the value at a position, without reading other values.
fn size_of_each(values: &ArrayRef) -> Box<dyn Fn(usize) -> usize + '_> {
    fn between<O: OffsetSizeTrait>(offsets: &[O]) -> Box<dyn Fn(usize) -> usize + '_> {
        let bound = |at: usize| offsets.get(at).map_or(0, |offset| offset.as_usize());
        Box::new(move |at| bound(at + 1).saturating_sub(bound(at)) + size_of::<O>())
    }
    match values.data_type() {
        DataType::Utf8 => between(values.as_string::<i32>().value_offsets()),
        DataType::LargeUtf8 => between(values.as_string::<i64>().value_offsets()),
        DataType::Binary => between(values.as_binary::<i32>().value_offsets()),
        DataType::LargeBinary => between(values.as_binary::<i64>().value_offsets()),
        other => match other.primitive_width() {
            Some(width) => Box::new(move |_| width),
            None => {
                Box::new(|at| laid_out(values.slice(at.min(values.len()), usize::from(at < values.len())).as_ref()))
            }
        },
    }
}

fn runs<R: RunEndIndexType>(array: &dyn Array) -> usize {
    let Some(runs) = array.as_run_opt::<R>() else { return 0 };
    let ends = runs.run_ends();
    let size = size_of_each(runs.values());
    let first = ends.get_start_physical_index();
    let mut start = 0;
    let mut sum = 0_usize;
    for (at, end) in ends.sliced_values().enumerate() {
        let end = end.as_usize();
        sum = sum.saturating_add(size(first + at).saturating_mul(end.saturating_sub(start)));
        start = end;
    }
    sum
}

/// Bytes of the elements between the first and the last offset.
fn within<O: OffsetSizeTrait>(values: &dyn Array, offsets: &[O]) -> usize {
    let bound = |offset: Option<&O>| offset.map_or(0, |offset| offset.as_usize()).min(values.len());
    let (start, end) = (bound(offsets.first()), bound(offsets.last()));
    laid_out(values.slice(start, end.saturating_sub(start)).as_ref())
}

fn shared(values: &ArrayRef, count: usize) -> usize {
    (laid_out(values.as_ref()) / values.len().max(1)).saturating_mul(count)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use arrow_array::builder::StringViewBuilder;
    use arrow_array::{DictionaryArray, Int32Array, ListArray, RunArray, StringArray};
    use arrow_buffer::OffsetBuffer;
    use arrow_schema::{Field, Schema};

    use super::*;

    const LONG: usize = 1_000_000;

    /// Strings of which rows say only where they are: the long one where `is_long`, and otherwise a short one.
    fn shared(rows: usize, is_long: impl Fn(usize) -> bool) -> Vec<ArrayRef> {
        let words: ArrayRef = Arc::new(StringArray::from(vec!["s".to_owned(), "l".repeat(LONG)]));
        let mut views = StringViewBuilder::new();
        let block = views.append_block(vec![b'l'; LONG].into());
        let keys: Vec<i32> = (0..rows).map(|row| i32::from(is_long(row))).collect();
        for key in &keys {
            if *key == 1 { views.try_append_view(block, 0, LONG as u32).unwrap() } else { views.append_value("s") }
        }
        let dictionary = DictionaryArray::<Int32Type>::new(keys.clone().into(), Arc::clone(&words));
        let ends = Int32Array::from_iter_values(1..=rows as i32);
        let runs = RunArray::try_new(&ends, &dictionary).unwrap();
        let views: ArrayRef = Arc::new(views.finish());
        let item = Arc::new(Field::new("item", DataType::Utf8View, true));
        let lists = ListArray::new(item, OffsetBuffer::from_lengths(vec![1; rows]), Arc::clone(&views), None);
        vec![views, Arc::new(dictionary), Arc::new(runs), Arc::new(lists)]
    }

    #[test]
    fn strings_that_rows_share_are_counted_for_each_row() {
        // Rows differ in size, and a piece is no larger for it.
        for (rows, long) in [(3300, 1000..3300), (60_000, 0..200)] {
            for array in shared(rows, |row| long.contains(&row)) {
                let schema = Schema::new(vec![Field::new("c", array.data_type().clone(), true)]);
                let batch = RecordBatch::try_new(Arc::new(schema), vec![array]).unwrap();
                assert!(memory(&batch) > long.len() * LONG, "{}", batch.schema());
                let cut = pieces(&batch, 128 << 20);
                assert_eq!(cut.iter().map(RecordBatch::num_rows).sum::<usize>(), rows);
                assert!(cut.iter().all(|piece| memory(piece) <= 4 * MAX_PIECE_BYTES), "{}", batch.schema());
                assert!(cut.len() < 2 * memory(&batch) / MAX_PIECE_BYTES + 10, "{}", cut.len());
            }
        }
    }
}
