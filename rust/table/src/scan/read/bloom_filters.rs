//! Skips row groups of a data file by bloom filters, if these exclude all values of a condition.
//!
//! A filter of a column chunk tells that a value is certainly not in it, or that it may be. It is used for the values of
//! `column = value` and `column IN (values)`, where integers, dates, timestamps, strings and binaries are stored as they are.
//! A filter that cannot be read, or whose length the footer lacks, is not used.
//!
//! Invariant: a row group with a row that qualifies is kept.
//! Proved by `read::pruning_never_changes_the_result` and `read::bloom_filters`.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType as ArrowType, TimeUnit};
use bytes::Bytes;
use deltic_protocol::error::Result;
use deltic_protocol::predicate::{BoundPredicate, Op};
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::basic::Type as PhysicalType;
use parquet::bloom_filter::Sbbf;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};

use super::adapt::Leaf;
use super::fetch::FileBytes;
use super::row_groups::RowGroupBounds;

/// The most bytes of filters that are fetched from a file.
const MAX_FILTER_BYTES: u64 = 8 * 1024 * 1024;

/// The most values for which filters are used: a filter hardly ever excludes all of a larger number.
const MAX_VALUES: usize = 1000;

/// A test of a row group: each matching row has one of these values, and the filter may exclude all of them.
#[derive(Debug)]
pub(super) struct Lookup {
    row_group: usize,
    /// The position of the filter in the file.
    range: Range<u64>,
    /// As the bytes from which the filter was computed.
    values: Arc<Vec<Vec<u8>>>,
}

/// The filters of these row groups that `predicate` can use. A filter that is larger than the `needed` leaves is not used.
pub(super) fn lookups(
    predicate: &BoundPredicate,
    metadata: &ArrowReaderMetadata,
    bounds: &RowGroupBounds<'_>,
    row_groups: &[usize],
    needed: &BTreeSet<usize>,
) -> Result<Vec<Lookup>> {
    let (mut lookups, mut bytes_left) = (Vec::new(), MAX_FILTER_BYTES);
    let groups = metadata.metadata().row_groups();
    for conjunct in predicate.split_conjuncts() {
        let column = match conjunct {
            BoundPredicate::Compare { column, op: Op::Eq, .. } | BoundPredicate::In { column, .. } => column,
            _ => continue,
        };
        let Some(leaf) = bounds.leaf(column) else { continue };
        let filter_of = |group: &RowGroupMetaData| group.columns().get(leaf.index).and_then(filter_range);
        if !groups.iter().any(|group| filter_of(group).is_some()) {
            continue;
        }
        let values = match conjunct {
            BoundPredicate::Compare { value, .. } => value.to_array(column.primitive()?, 1)?,
            BoundPredicate::In { values, .. } if values.values().len() <= MAX_VALUES => Arc::clone(values.values()),
            _ => continue,
        };
        let physical = metadata.parquet_schema().column(leaf.index).physical_type();
        let Some(values) = stored(&values, &leaf, physical)?.map(Arc::new) else { continue };
        for row_group in row_groups {
            let Some(group) = groups.get(*row_group) else { continue };
            let chunks = needed.iter().filter_map(|leaf| group.columns().get(*leaf));
            let bytes = chunks.map(ColumnChunkMetaData::compressed_size).fold(0, i64::saturating_add);
            let is_worth_it = |range: &Range<u64>| {
                let length = range.end - range.start;
                length <= bytes_left && i64::try_from(length).is_ok_and(|length| length < bytes)
            };
            let Some(range) = filter_of(group).filter(is_worth_it) else { continue };
            bytes_left -= range.end - range.start;
            let values = Arc::clone(&values);
            lookups.push(Lookup { row_group: *row_group, range, values });
        }
    }
    Ok(lookups)
}

/// The bytes of the filters, in the order of the lookups. Without lookups there is no request.
pub(super) async fn fetch(file: &FileBytes, lookups: &[Lookup]) -> Result<Vec<Bytes>> {
    let mut ranges: Vec<Range<u64>> = lookups.iter().map(|lookup| lookup.range.clone()).collect();
    ranges.retain(|range| range.end <= file.size());
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    ranges.dedup();
    // Filters with overlapping bytes are damaged.
    let mut end = 0;
    ranges.retain(|range| {
        let is_apart = range.start >= end;
        end = end.max(range.end);
        is_apart
    });
    let fetched = if ranges.is_empty() { Vec::new() } else { file.ranges(&ranges).await? };
    let place = |range: &Range<u64>| ranges.binary_search_by_key(&range.start, |range| range.start).ok();
    let of = |lookup: &Lookup| {
        let at = place(&lookup.range).filter(|at| ranges.get(*at) == Some(&lookup.range));
        at.and_then(|at| fetched.get(at)).cloned().unwrap_or_default()
    };
    Ok(lookups.iter().map(of).collect())
}

/// Removes row groups for which a filter excludes all values.
pub(super) fn prune(row_groups: &mut Vec<usize>, lookups: &[Lookup], filters: &[Bytes]) {
    for (lookup, bytes) in lookups.iter().zip(filters) {
        // A filter without blocks cannot be used.
        let Some(filter) = Sbbf::from_bytes(bytes).ok().filter(|filter| filter.num_blocks() > 0) else { continue };
        if !lookup.values.iter().any(|value| filter.check(value.as_slice())) {
            row_groups.retain(|row_group| *row_group != lookup.row_group);
        }
    }
}

fn filter_range(chunk: &ColumnChunkMetaData) -> Option<Range<u64>> {
    let start = u64::try_from(chunk.bloom_filter_offset()?).ok()?;
    let length = u64::try_from(chunk.bloom_filter_length()?).ok()?;
    Some(start..start.checked_add(length)?).filter(|range| !range.is_empty())
}

/// The values in the stored form of a leaf; `None` if the leaf stores them in another type.
fn stored(values: &ArrayRef, leaf: &Leaf, physical: PhysicalType) -> Result<Option<Vec<Vec<u8>>>> {
    use ArrowType as A;
    if leaf.conversion.calendar.is_some() {
        return Ok(None);
    }
    Ok(match (values.data_type(), &leaf.file_type, physical) {
        (A::Int8 | A::Int16 | A::Int32 | A::Int64, A::Int8 | A::Int16 | A::Int32, PhysicalType::INT32)
        | (A::Date32, A::Date32, PhysicalType::INT32) => {
            let numbers = arrow_cast::cast(values, &A::Int64)?;
            let numbers = numbers.as_primitive::<Int64Type>().iter().flatten();
            // A number that needs more bits cannot be in this file.
            Some(numbers.flat_map(i32::try_from).map(|n| n.to_le_bytes().to_vec()).collect())
        }
        (A::Int64, A::Int64, PhysicalType::INT64)
        | (A::Timestamp(TimeUnit::Microsecond, _), A::Timestamp(TimeUnit::Microsecond, _), PhysicalType::INT64) => {
            let numbers = arrow_cast::cast(values, &A::Int64)?;
            Some(numbers.as_primitive::<Int64Type>().iter().flatten().map(|n| n.to_le_bytes().to_vec()).collect())
        }
        (A::Utf8 | A::Binary, A::Utf8 | A::Binary, PhysicalType::BYTE_ARRAY) => {
            let bytes = arrow_cast::cast(values, &A::Binary)?;
            Some(bytes.as_binary::<i32>().iter().flatten().map(<[u8]>::to_vec).collect())
        }
        _ => None,
    })
}
