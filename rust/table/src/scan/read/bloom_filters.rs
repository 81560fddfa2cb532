//! Bloom filters of a data file, by which row groups are skipped that have none of the values that are looked for.
//!
//! A filter of a column chunk says that a value is certainly not in it, or that it may be. It is asked about the values of
//! `column = value` and `column IN (values)`, where integers, dates, timestamps, strings and binaries are stored as they are.
//! A filter that cannot be read says nothing, nor does one whose length the footer lacks.
//!
//! Invariant: a row group with a row that qualifies is kept.
//! Proved by `read::pruning_never_changes_the_result` and `read::bloom_filters`.

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

/// Values of which a row of a row group must have one, and the filter to ask.
#[derive(Debug)]
pub(super) struct Lookup {
    row_group: usize,
    /// Where the filter is in the file.
    range: Range<u64>,
    /// In the bytes that the filter was made of.
    values: Arc<Vec<Vec<u8>>>,
}

/// The filters that `predicate` can ask of some row groups. One that is larger than the `needed` leaves is not worth it.
pub(super) fn lookups(
    predicate: &BoundPredicate,
    (metadata, bounds): (&ArrowReaderMetadata, &RowGroupBounds<'_>),
    row_groups: &[usize],
    needed: &[usize],
) -> Result<Vec<Lookup>> {
    let mut lookups = Vec::new();
    for conjunct in predicate.split_conjuncts() {
        let (column, values) = match conjunct {
            BoundPredicate::Compare { column, op: Op::Eq, value } => (column, value.to_array(column.primitive()?, 1)?),
            BoundPredicate::In { column, values } => (column, Arc::clone(values.values())),
            _ => continue,
        };
        let Some(leaf) = bounds.leaf(column) else { continue };
        let mut filters = Vec::new();
        for at in row_groups {
            let Some(group) = metadata.metadata().row_groups().get(*at) else { continue };
            let range = group.columns().get(leaf.index).and_then(filter_range);
            filters.extend(
                range.filter(|range| range.end - range.start < bytes_of(group, needed)).map(|range| (*at, range)),
            );
        }
        if filters.is_empty() {
            continue;
        }
        let physical = metadata.parquet_schema().column(leaf.index).physical_type();
        let Some(values) = stored(&values, &leaf, physical)?.map(Arc::new) else { continue };
        let lookup = |(row_group, range)| Lookup { row_group, range, values: Arc::clone(&values) };
        lookups.extend(filters.into_iter().map(lookup));
    }
    Ok(lookups)
}

/// The bytes of the filters, in the order of the lookups. Without lookups there is no request.
pub(super) async fn fetch(file: &FileBytes, lookups: &[Lookup]) -> Result<Vec<Bytes>> {
    let mut ranges: Vec<Range<u64>> = lookups.iter().map(|lookup| lookup.range.clone()).collect();
    ranges.retain(|range| range.end <= file.size());
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    ranges.dedup();
    let fetched = if ranges.is_empty() { Vec::new() } else { file.ranges(&ranges).await? };
    let of = |lookup: &Lookup| {
        let at = ranges.iter().position(|range| *range == lookup.range);
        at.and_then(|at| fetched.get(at)).cloned().unwrap_or_default()
    };
    Ok(lookups.iter().map(of).collect())
}

/// Leaves out row groups of which a filter says that they have none of the values.
pub(super) fn prune(row_groups: &mut Vec<usize>, lookups: &[Lookup], filters: &[Bytes]) {
    for (lookup, bytes) in lookups.iter().zip(filters) {
        // Without blocks there is nothing to ask.
        let Some(filter) = Sbbf::from_bytes(bytes).ok().filter(|filter| filter.num_blocks() > 0) else { continue };
        if !lookup.values.iter().any(|value| filter.check(value.as_slice())) {
            row_groups.retain(|row_group| *row_group != lookup.row_group);
        }
    }
}

fn filter_range(chunk: &ColumnChunkMetaData) -> Option<Range<u64>> {
    let start = u64::try_from(chunk.bloom_filter_offset()?).ok()?;
    let length = u64::try_from(chunk.bloom_filter_length()?).ok()?;
    Some(start..start.checked_add(length)?)
}

/// Compressed bytes of some leaves of a row group.
fn bytes_of(group: &RowGroupMetaData, leaves: &[usize]) -> u64 {
    let chunks = leaves.iter().filter_map(|leaf| group.columns().get(*leaf));
    chunks.map(|chunk| u64::try_from(chunk.compressed_size()).unwrap_or(0)).fold(0, u64::saturating_add)
}

/// The values as a leaf stores them; `None` if it stores them otherwise than as they are.
fn stored(values: &ArrayRef, leaf: &Leaf, physical: PhysicalType) -> Result<Option<Vec<Vec<u8>>>> {
    use ArrowType as A;
    if leaf.conversion.is_rebased() {
        return Ok(None);
    }
    let micros = |data_type: &A| matches!(data_type, A::Timestamp(TimeUnit::Microsecond, _));
    let is_whole = |data_type: &A| matches!(data_type, A::Int8 | A::Int16 | A::Int32 | A::Int64);
    let is_bytes = |data_type: &A| matches!(data_type, A::Utf8 | A::Binary);
    let (table, file) = (values.data_type(), &leaf.file_type);
    let is_same = (is_whole(table) && is_whole(file))
        || (*table == A::Date32 && *file == A::Date32)
        || (micros(table) && micros(file));
    Ok(match physical {
        PhysicalType::INT32 | PhysicalType::INT64 if is_same => {
            let numbers = arrow_cast::cast(values, &A::Int64)?;
            let numbers = numbers.as_primitive::<Int64Type>().iter().flatten();
            Some(match physical {
                // A number of more bits is in no file of fewer.
                PhysicalType::INT32 => {
                    numbers.filter_map(|n| i32::try_from(n).ok()).map(|n| n.to_le_bytes().to_vec()).collect()
                }
                _ => numbers.map(|n| n.to_le_bytes().to_vec()).collect(),
            })
        }
        PhysicalType::BYTE_ARRAY if is_bytes(table) && is_bytes(file) => {
            let texts = arrow_cast::cast(values, &A::Binary)?;
            Some(texts.as_binary::<i32>().iter().flatten().map(<[u8]>::to_vec).collect())
        }
        _ => None,
    })
}
