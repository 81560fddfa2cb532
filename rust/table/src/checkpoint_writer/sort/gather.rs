//! Gathers rows in the order in which they are encoded.
//!
//! Strings are copied, so that the encoder reads them one after the other from contiguous memory.

use std::hint::black_box;
use std::sync::Arc;

use arrow_array::builder::StringViewBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, StringViewArray};
use arrow_select::interleave::interleave;

use crate::error::{Error, Result};

/// How many strings are touched before the first of them is copied, so that the processor fetches them at the same time.
const PREFETCHED_STRINGS: usize = 16;
/// Bytes of a cache line: the processor fetches no fewer.
const CACHE_LINE_BYTES: usize = 64;

/// The rows of `pieces`, which have the same columns, at `rows`: each the index of a piece and of a row in it.
pub(super) fn gather(pieces: &[RecordBatch], rows: &[(usize, usize)]) -> Result<RecordBatch> {
    let schema = pieces.first().ok_or_else(|| Error::internal("no rows to gather"))?.schema();
    let column = |at: usize| -> Result<ArrayRef> {
        let arrays: Vec<&dyn Array> = pieces.iter().map(|piece| piece.column(at).as_ref()).collect();
        let views: Option<Vec<&StringViewArray>> = arrays.iter().map(|array| array.as_string_view_opt()).collect();
        match views.map(|views| strings(&views, rows)).transpose()?.flatten() {
            Some(strings) => Ok(Arc::new(strings)),
            None => Ok(interleave(&arrays, rows)?),
        }
    };
    let columns = (0..schema.fields().len()).map(column).collect::<Result<_>>()?;
    Ok(RecordBatch::try_new(schema, columns)?)
}

/// The strings of one column. `None` if they are too long for string views.
fn strings(columns: &[&StringViewArray], rows: &[(usize, usize)]) -> Result<Option<StringViewArray>> {
    let string = |(piece, row): &(usize, usize)| {
        columns.get(*piece).filter(|strings| strings.is_valid(*row)).map(|strings| strings.value(*row))
    };
    let length = rows.iter().filter_map(string).map(str::len).fold(0, usize::saturating_add);
    if i32::try_from(length).is_err() {
        return Ok(None);
    }
    let mut views = StringViewBuilder::with_capacity(rows.len()).with_fixed_block_size(length.max(1) as u32);
    for rows in rows.chunks(PREFETCHED_STRINGS) {
        let mut found = [None; PREFETCHED_STRINGS];
        rows.iter().zip(&mut found).for_each(|(row, found)| *found = string(row));
        // The processor fetches all of them from memory at once.
        let lines = found.iter().flatten().flat_map(|string| string.as_bytes().iter().step_by(CACHE_LINE_BYTES));
        black_box(lines.fold(0, |all, byte| all ^ byte));
        found.iter().take(rows.len()).for_each(|string| views.append_option(*string));
    }
    Ok(Some(views.finish()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use arrow_select::concat::concat_batches;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// As if all pieces were one, and rows taken of it.
        #[test]
        fn rows_are_those_that_were_chosen(
            pieces in prop::collection::vec(prop::collection::vec(prop::option::of("[a-zé]{0,30}"), 1..20), 1..5),
            chosen in prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 0..60),
        ) {
            let batch = |strings: &Vec<Option<String>>| {
                let views: ArrayRef = Arc::new(StringViewArray::from_iter(strings.iter().map(Option::as_deref)));
                let lengths = strings.iter().map(|string| string.as_ref().map(|string| string.len() as i64));
                let lengths: ArrayRef = Arc::new(arrow_array::Int64Array::from_iter(lengths));
                RecordBatch::try_from_iter_with_nullable([("views", views, true), ("lengths", lengths, true)]).unwrap()
            };
            let batches: Vec<RecordBatch> = pieces.iter().map(batch).collect();
            let choose = |(piece, row): &(prop::sample::Index, prop::sample::Index)| {
                let piece = piece.index(pieces.len());
                (piece, row.index(pieces[piece].len()))
            };
            let rows: Vec<(usize, usize)> = chosen.iter().map(choose).collect();
            let gathered = gather(&batches, &rows).unwrap();
            let expected = rows.iter().map(|(piece, row)| batches[*piece].slice(*row, 1));
            let expected: Vec<RecordBatch> = expected.collect();
            prop_assert_eq!(gathered, concat_batches(&batches[0].schema(), &expected).unwrap());
        }
    }
}
