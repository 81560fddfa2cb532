//! The sizes of the rows of a batch, by which the rows to gather at a time are chosen.
//!
//! A row may be gathered many times, once for each row of the other side, so averages would not do: some large rows would
//! exceed the memory, or the 2 GiB of an array of strings.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, OffsetSizeTrait};
use arrow_schema::DataType as ArrowType;

/// Bytes of the rows that are gathered at a time, at most, unless a single row has more.
pub(super) const GATHERED_BYTES: usize = 16 * 1024 * 1024;

/// Rows that are gathered at a time, at most.
pub(super) const GATHERED_ROWS: usize = 64 * 1024;

/// The sizes in bytes of the rows of a batch.
#[derive(Debug)]
pub(super) struct RowSizes {
    largest: usize,
    /// The size of each row; none if the rows are small or of similar sizes.
    each: Option<Vec<u32>>,
}

impl RowSizes {
    /// Of so many rows with these columns.
    pub(super) fn of(columns: &[ArrayRef], rows: usize) -> Self {
        let fixed = columns.iter().filter_map(|column| width(column.data_type())).fold(0, usize::saturating_add);
        let mut sizes = Vec::new();
        for column in columns.iter().filter(|column| width(column.data_type()).is_none()) {
            sizes.resize(rows, fixed);
            add_sizes(column.as_ref(), &mut sizes);
        }
        let largest = sizes.iter().copied().max().unwrap_or(fixed);
        let average = sizes.iter().fold(0, |sum: usize, size| sum.saturating_add(*size)) / sizes.len().max(1);
        let is_even = sizes.is_empty() || largest <= GATHERED_BYTES / GATHERED_ROWS || largest / 2 <= average;
        let each = (!is_even).then(|| sizes.iter().map(|size| u32::try_from(*size).unwrap_or(u32::MAX)).collect());
        Self { largest, each }
    }

    /// The size of the largest row.
    pub(super) fn largest(&self) -> usize {
        self.largest
    }

    /// The size of a row, or of a larger one.
    pub(super) fn get(&self, row: usize) -> usize {
        let size = self.each.as_ref().and_then(|each| each.get(row));
        size.map_or(self.largest, |size| *size as usize)
    }
}

/// How many of the first rows with these sizes are gathered together: at least one, if there is any.
pub(super) fn fitting(sizes: impl Iterator<Item = usize>) -> usize {
    let mut sum: usize = 0;
    let fits = |(at, size): &(usize, usize)| {
        sum = sum.saturating_add(*size);
        *at == 0 || sum <= GATHERED_BYTES
    };
    sizes.take(GATHERED_ROWS).enumerate().take_while(fits).count()
}

/// The largest `n <= most` such that any `n` consecutive rows have at most [`GATHERED_BYTES`]; at least 1.
pub(super) fn fitting_everywhere(sizes: impl Iterator<Item = usize> + Clone, most: usize) -> usize {
    let (mut leaving, mut least) = (sizes.clone(), most.max(1));
    // The longest run of rows that ends at the current row and fits.
    let (mut sum, mut count, mut is_cut) = (0_usize, 0_usize, false);
    for size in sizes {
        (sum, count) = (sum.saturating_add(size), count + 1);
        while count > 1 && (count > least || sum > GATHERED_BYTES) {
            (sum, count, is_cut) = (sum.saturating_sub(leaving.next().unwrap_or_default()), count - 1, true);
        }
        if is_cut {
            least = least.min(count);
        }
    }
    least
}

/// Bytes of each value of a type; none if they differ.
fn width(data_type: &ArrowType) -> Option<usize> {
    match data_type {
        ArrowType::Null => Some(0),
        ArrowType::Boolean => Some(1),
        ArrowType::FixedSizeBinary(bytes) => usize::try_from(*bytes).ok(),
        ArrowType::Struct(fields) => fields.iter().map(|field| width(field.data_type())).sum(),
        other => other.primitive_width(),
    }
}

/// Adds the size of each value.
fn add_sizes(array: &dyn Array, sizes: &mut [usize]) {
    if let Some(width) = width(array.data_type()) {
        return sizes.iter_mut().for_each(|size| *size = size.saturating_add(width));
    }
    match array.data_type() {
        ArrowType::Utf8 => add_lengths(array.as_string::<i32>().value_offsets(), sizes),
        ArrowType::LargeUtf8 => add_lengths(array.as_string::<i64>().value_offsets(), sizes),
        ArrowType::Binary => add_lengths(array.as_binary::<i32>().value_offsets(), sizes),
        ArrowType::LargeBinary => add_lengths(array.as_binary::<i64>().value_offsets(), sizes),
        ArrowType::Struct(_) => {
            array.as_struct().columns().iter().for_each(|column| add_sizes(column.as_ref(), sizes));
        }
        ArrowType::List(_) => {
            let list = array.as_list::<i32>();
            add_elements(list.values().as_ref(), list.value_offsets(), sizes);
        }
        ArrowType::LargeList(_) => {
            let list = array.as_list::<i64>();
            add_elements(list.values().as_ref(), list.value_offsets(), sizes);
        }
        ArrowType::Map(_, _) => add_elements(array.as_map().entries(), array.as_map().value_offsets(), sizes),
        // A table's types have no others: all together are more than each.
        _ => {
            let bytes = array.get_array_memory_size();
            sizes.iter_mut().for_each(|size| *size = size.saturating_add(bytes));
        }
    }
}

fn add_lengths<O: OffsetSizeTrait>(offsets: &[O], sizes: &mut [usize]) {
    for ((size, start), end) in sizes.iter_mut().zip(offsets).zip(offsets.iter().skip(1)) {
        let length = end.as_usize().saturating_sub(start.as_usize());
        *size = size.saturating_add(length).saturating_add(size_of::<O>());
    }
}

fn add_elements<O: OffsetSizeTrait>(values: &dyn Array, offsets: &[O], sizes: &mut [usize]) {
    let bound = |offset: Option<&O>| offset.map_or(0, |offset| offset.as_usize()).min(values.len());
    let (first, last) = (bound(offsets.first()), bound(offsets.last()));
    let elements = values.slice(first, last.saturating_sub(first));
    // An element counts at least one byte, since the number of elements is limited, too.
    let mut of_elements = vec![1; elements.len()];
    add_sizes(elements.as_ref(), &mut of_elements);
    for ((size, start), end) in sizes.iter_mut().zip(offsets).zip(offsets.iter().skip(1)) {
        let [start, end] = [start, end].map(|offset| offset.as_usize().saturating_sub(first));
        let elements = of_elements.get(start..end).unwrap_or_default();
        *size = elements.iter().fold(size.saturating_add(size_of::<O>()), |sum, element| sum.saturating_add(*element));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int32Type;
    use arrow_array::{Int64Array, ListArray, StringArray};
    use arrow_select::concat::concat;

    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn large_rows_have_their_own_size() {
        let (long, short) = ("l".repeat(MIB), "s".repeat(10));
        let strings: ArrayRef = Arc::new(StringArray::from(vec![short.as_str(), &long, &short, &short]));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3, 4]));
        let sizes = RowSizes::of(&[Arc::clone(&numbers), strings.slice(1, 3)], 3);
        assert_eq!([0, 1, 2].map(|row| sizes.get(row)), [MIB + 12, 22, 22]);
        assert_eq!(sizes.largest(), MIB + 12);
        let lists = [Some(vec![Some(1); MIB]), None, Some(vec![Some(1)])];
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists));
        let sizes = RowSizes::of(&[concat(&[&lists, &lists]).unwrap().slice(2, 3)], 3);
        assert_eq!([0, 1, 2].map(|row| sizes.get(row)), [9, 5 * MIB + 4, 4]);
        // Small rows have one size.
        let sizes = RowSizes::of(&[numbers, strings.slice(2, 2)], 2);
        assert_eq!((sizes.get(0), sizes.each), (22, None));
        assert_eq!(RowSizes::of(&[], 7).largest(), 0);
    }

    #[test]
    fn so_many_rows_are_gathered_as_fit() {
        let of = |sizes: &[usize]| fitting(sizes.iter().copied());
        assert_eq!((of(&[]), of(&[40 * MIB, 1]), of(&[8 * MIB, 8 * MIB, 1])), (0, 1, 2));
        assert_eq!((of(&vec![0; 70_000]), of(&[1, 40 * MIB])), (GATHERED_ROWS, 1));
    }

    #[test]
    fn windows_of_rows_fit_wherever_they_begin() {
        let cases: [&[usize]; 7] = [
            &[],
            &[1, 1, 1],
            &[40 * MIB],
            &[MIB; 40],
            &[1, 9 * MIB, 1, 1, 9 * MIB, 1],
            &[1, 1, 9 * MIB, 9 * MIB, 1],
            &[8 * MIB, 1, 8 * MIB, 8 * MIB, 1, 1, 1, 1],
        ];
        for sizes in cases {
            let fits = |n: usize| n == 1 || sizes.windows(n).all(|some| some.iter().sum::<usize>() <= GATHERED_BYTES);
            let most = (1..=10).take_while(|n| fits(*n)).last();
            assert_eq!(Some(fitting_everywhere(sizes.iter().copied(), 10)), most, "{sizes:?}");
        }
    }
}
