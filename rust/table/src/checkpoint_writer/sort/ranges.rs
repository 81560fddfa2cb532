//! Ranges of sort keys, by which the files of a checkpoint are divided that is too large to be sorted in memory.
//!
//! Each range is written by itself, so that the files a query asks for are in few row groups, and in one of several
//! sidecars. The bounds come from a sample: they decide how even the ranges are, and nothing else.

use arrow_array::RecordBatch;

use super::gather::gather;
use super::order::{Key, Order};
use crate::error::{Error, Result};

/// The least number of ranges: as many as there is memory to gather files for.
const MIN_RANGES: usize = 16;

/// Ranges of keys, in ascending order.
pub(super) struct Ranges {
    order: Order,
    /// The first key of each range except the first range.
    starts: Vec<Key>,
    /// The output file of each range.
    outputs: Vec<usize>,
}

impl Ranges {
    /// Ranges for keys like those in a sample, for so many outputs of about the same size.
    pub(super) fn new(order: &Order, mut sample: Vec<Key>, outputs: usize) -> Self {
        sample.sort_unstable();
        let outputs = outputs.max(1);
        let count = MIN_RANGES.next_multiple_of(outputs);
        let mut ranges = Self { order: order.clone(), starts: Vec::new(), outputs: vec![0] };
        for range in 1..count {
            let Some(start) = sample.get(range * sample.len() / count) else { break };
            // Files with the same key are in one range, however many they are.
            if sample.first() < Some(start) && ranges.starts.last() < Some(start) {
                ranges.starts.push(start.clone());
                ranges.outputs.push(range * outputs / count);
            }
        }
        ranges
    }

    /// How many ranges there are: at least one.
    pub(super) fn count(&self) -> usize {
        self.outputs.len()
    }

    /// The output file of a range; it does not decrease from a range to the next.
    pub(super) fn output(&self, range: usize) -> usize {
        self.outputs.get(range).copied().unwrap_or_default()
    }

    /// Divides rows by range, without empty ranges. The parts do not keep the memory of `rows` alive.
    pub(super) fn split(&self, rows: &RecordBatch) -> Result<Vec<(usize, RecordBatch)>> {
        let Some(keys) = self.order.keys(rows)? else { return Ok(vec![(0, rows.clone())]) };
        let mut chosen = vec![Vec::new(); self.count()];
        for (row, key) in keys.iter().enumerate() {
            let range = self.starts.partition_point(|start| start.as_ref() <= key.as_ref());
            chosen.get_mut(range).ok_or_else(|| Error::internal("a key is in no range"))?.push((0, row));
        }
        let some = (0..).zip(chosen).filter(|(_, rows)| !rows.is_empty());
        let of_range =
            |(range, chosen): (usize, Vec<(usize, usize)>)| Ok((range, gather(std::slice::from_ref(rows), &chosen)?));
        some.map(of_range).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use arrow_array::cast::AsArray;
    use arrow_array::types::Int32Type;
    use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringViewArray, StructArray};
    use proptest::prelude::*;

    use super::*;

    fn rows(values: &[Option<i32>]) -> RecordBatch {
        let strings: StringViewArray =
            values.iter().map(|value| Some(format!("a text of more than 12 bytes {value:?}"))).collect();
        let values: ArrayRef = Arc::new(Int32Array::from(values.to_vec()));
        let parsed: ArrayRef = Arc::new(StructArray::try_from(vec![("p", values)]).unwrap());
        let strings: ArrayRef = Arc::new(strings);
        RecordBatch::try_from_iter([("partitionValues_parsed", parsed), ("stats", strings)]).unwrap()
    }

    fn values(rows: &RecordBatch) -> Vec<Option<i32>> {
        rows.column(0).as_struct().column(0).as_primitive::<Int32Type>().iter().collect()
    }

    proptest! {
        /// Whatever the sample was: every row is in one range, ranges follow one another, and so do their outputs.
        #[test]
        fn every_row_is_in_the_range_of_its_key(
            sampled in prop::collection::vec(prop::option::of(-50..50), 0..200),
            given in prop::collection::vec(prop::option::of(-60..60), 0..200),
            outputs in 0_usize..40,
        ) {
            let order = Order::by(&["partitionValues_parsed", "p"]);
            let keys = order.keys(&rows(&sampled)).unwrap().unwrap();
            let sample = keys.iter().map(|key| key.as_ref().into()).collect();
            let ranges = Ranges::new(&order, sample, outputs);
            let of_ranges: Vec<usize> = (0..ranges.count()).map(|range| ranges.output(range)).collect();
            prop_assert!(of_ranges.is_sorted() && of_ranges.iter().all(|output| *output < outputs.max(1)), "{of_ranges:?}");
            let split = ranges.split(&rows(&given)).unwrap();
            prop_assert!(split.is_sorted_by_key(|(range, _)| *range));
            let mut all = Vec::new();
            let mut before = None;
            for (_, part) in &split {
                let mut part = values(part);
                part.sort_unstable();
                prop_assert!(before.is_none_or(|before| before < part[0]));
                before = part.last().copied();
                all.extend(part);
            }
            let mut expected = given.clone();
            expected.sort_unstable();
            prop_assert_eq!(all, expected);
            for (_, part) in split {
                let strings = part.column(1).as_string_view();
                let expected: Vec<_> = values(&part).iter().map(|v| format!("a text of more than 12 bytes {v:?}")).collect();
                prop_assert!(strings.iter().eq(expected.iter().map(|text| Some(text.as_str()))));
            }
        }
    }

    #[test]
    fn even_keys_make_even_ranges_and_the_same_key_makes_one() {
        let order = Order::by(&["partitionValues_parsed", "p"]);
        let ranges = |values: Vec<Option<i32>>, outputs: usize| {
            let keys = order.keys(&rows(&values)).unwrap().unwrap();
            let ranges = Ranges::new(&order, keys.iter().map(|key| key.as_ref().into()).collect(), outputs);
            let split = ranges.split(&rows(&values)).unwrap();
            split.iter().map(|(range, rows)| (ranges.output(*range), rows.num_rows())).collect::<Vec<_>>()
        };
        let even = ranges((0..1_600).map(|at| Some(at * 7 % 1_600)).collect(), 4);
        assert_eq!(even, (0..16).map(|range| (range / 4, 100)).collect::<Vec<_>>());
        assert_eq!(ranges(vec![Some(5); 1_000], 4), [(0, 1_000)]);
        assert_eq!(ranges((0..23).map(Some).collect(), 23).len(), 23);
    }
}
