//! Removes row groups that are not needed from a footer, before a large checkpoint's footer is decoded.
//!
//! The time to decode a footer grows with its row groups and columns, and in a checkpoint only few row groups have other
//! actions than files. [`prune_row_groups`] reads it once, without memory, and copies everything except the other row groups.
//!
//! It uses the fields of Parquet's `FileMetaData`, and trusts none. The result is checked and decoded like any
//! footer; a footer that it cannot read is left to the decoder. Proved by the tests below.

use std::ops::Range;

use crate::footer::{MAX_VALUE_DEPTH, walk_schema};
use crate::thrift::{I64, LIST, STRUCT, Thrift};

/// A member of a top-level struct: the struct's name and its own.
pub type Leaf<'l> = (&'l str, &'l str);

/// The metadata with only the row groups in which one of `leaves` may have a value, by the counts of nulls; `None` if
/// these are all, or if it cannot be decided.
pub fn prune_row_groups(metadata: &[u8], leaves: &[Leaf<'_>]) -> Option<Vec<u8>> {
    let (list, groups) = needed_groups(metadata, leaves)?;
    let (before, after) = (metadata.get(..list.start)?, metadata.get(list.end..)?);
    let kept: Vec<&[u8]> = groups.into_iter().map(|group| metadata.get(group)).collect::<Option<_>>()?;
    let mut pruned = before.to_vec();
    list_header(&mut pruned, kept.len());
    kept.into_iter().for_each(|group| pruned.extend_from_slice(group));
    pruned.extend_from_slice(after);
    (pruned.len() < metadata.len()).then_some(pruned)
}

/// The byte range of the list of row groups, and the ranges of those that are needed.
fn needed_groups(metadata: &[u8], leaves: &[Leaf<'_>]) -> Option<(Range<usize>, Vec<Range<usize>>)> {
    let mut thrift = Thrift { bytes: metadata };
    let (mut id, mut columns, mut found) = (0, None, None);
    while let Some(kind) = thrift.field(&mut id)? {
        match (id, kind) {
            (2, LIST) if columns.is_none() => columns = Some(columns_of(&mut thrift, leaves)?),
            (4, LIST) if found.is_none() => {
                let start = metadata.len() - thrift.bytes.len();
                let groups = groups_with(metadata, &mut thrift, columns.as_ref()?)?;
                found = Some((start..metadata.len() - thrift.bytes.len(), groups));
            }
            // A field that occurs twice or has another type: it is unknown how the decoder treats that.
            (2 | 4, _) => return None,
            _ => thrift.skip(kind, MAX_VALUE_DEPTH)?,
        }
    }
    found
}

/// The indexes of the leaves among the columns.
fn columns_of(thrift: &mut Thrift<'_>, leaves: &[Leaf<'_>]) -> Option<Vec<usize>> {
    let (mut root, mut column, mut columns) = (&b""[..], 0, Vec::new());
    walk_schema(thrift, |depth, name, is_leaf| {
        if depth == 1 {
            root = name;
        }
        if is_leaf {
            let wanted = |(of, leaf): &Leaf<'_>| depth == 2 && of.as_bytes() == root && leaf.as_bytes() == name;
            columns.extend(leaves.iter().any(wanted).then_some(column));
            column += 1;
        }
    })?;
    Some(columns)
}

/// The byte ranges of the row groups in which one of `columns`, which ascend, may have a value.
fn groups_with(metadata: &[u8], thrift: &mut Thrift<'_>, columns: &[usize]) -> Option<Vec<Range<usize>>> {
    let (count, kind) = thrift.list()?;
    if kind != STRUCT {
        return None;
    }
    let mut needed = Vec::new();
    for _ in 0..count {
        let start = metadata.len() - thrift.bytes.len();
        if is_needed(thrift, columns)? {
            needed.push(start..metadata.len() - thrift.bytes.len());
        }
    }
    Some(needed)
}

/// Reads one `RowGroup`, and returns whether it is needed.
fn is_needed(thrift: &mut Thrift<'_>, columns: &[usize]) -> Option<bool> {
    // The fewest nulls of the columns; none if one of them has no count.
    let (mut id, mut fewest, mut rows) = (0, Some(i64::MAX), None);
    while let Some(kind) = thrift.field(&mut id)? {
        match (id, kind) {
            (1, LIST) => {
                let (count, kind) = thrift.list()?;
                if kind != STRUCT {
                    return None;
                }
                let mut wanted = columns.iter().peekable();
                for column in 0..usize::try_from(count).ok()? {
                    if wanted.next_if(|wanted| **wanted == column).is_some() {
                        let nulls = read_nested(thrift, 3, |chunk| read_nested(chunk, 12, nulls))?.flatten().flatten();
                        fewest = fewest.zip(nulls).map(|(fewest, nulls)| fewest.min(nulls));
                    } else {
                        thrift.skip(STRUCT, MAX_VALUE_DEPTH)?;
                    }
                }
            }
            (3, I64) => rows = Some(thrift.long()?),
            _ => thrift.skip(kind, MAX_VALUE_DEPTH)?,
        }
    }
    Some(fewest.zip(rows).is_none_or(|(fewest, rows)| fewest < rows || fewest < 0))
}

/// Reads a struct, and returns the result of `read` for the struct in its field `of`, if it has that field.
fn read_nested<'b, T>(
    thrift: &mut Thrift<'b>,
    of: i64,
    read: impl FnOnce(&mut Thrift<'b>) -> Option<T>,
) -> Option<Option<T>> {
    let (mut id, mut read, mut found) = (0, Some(read), None);
    while let Some(kind) = thrift.field(&mut id)? {
        match read.take_if(|_| (id, kind) == (of, STRUCT)) {
            Some(read) => found = Some(read(thrift)?),
            None => thrift.skip(kind, MAX_VALUE_DEPTH)?,
        }
    }
    Some(found)
}

/// Reads `Statistics`, and returns their count of nulls.
#[allow(clippy::option_option)]
fn nulls(thrift: &mut Thrift<'_>) -> Option<Option<i64>> {
    let (mut id, mut nulls) = (0, None);
    while let Some(kind) = thrift.field(&mut id)? {
        match (id, kind) {
            (3, I64) => nulls = Some(thrift.long()?),
            _ => thrift.skip(kind, MAX_VALUE_DEPTH)?,
        }
    }
    Some(nulls)
}

/// Writes the header of a list of so many structs.
fn list_header(out: &mut Vec<u8>, count: usize) {
    match u8::try_from(count) {
        Ok(short @ 0..15) => out.push(short << 4 | STRUCT),
        _ => {
            out.push(15 << 4 | STRUCT);
            let mut left = count;
            while left >= 0x80 {
                out.push((left & 0x7f) as u8 | 0x80);
                left >>= 7;
            }
            out.push(left as u8);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, RecordBatch, StructArray};
    use parquet::arrow::ArrowWriter;
    use parquet::file::metadata::ParquetMetaData;
    use parquet::file::properties::{EnabledStatistics, WriterProperties};
    use proptest::prelude::*;

    use super::*;
    use crate::footer::parse;

    const LEAVES: [Leaf<'_>; 2] = [("txn", "version"), ("protocol", "v")];

    /// One row group for each of `groups`: in which of the structs `add`, `txn` and `protocol` a row has a value.
    fn footer(groups: &[[bool; 3]], statistics: EnabledStatistics) -> Vec<u8> {
        let group = |has: &[bool; 3]| {
            let of = |name: &str, has: bool| {
                let values: ArrayRef = Arc::new(Int64Array::from(vec![has.then_some(7), None]));
                // An unwanted leaf of the same name, before the one that is wanted.
                Arc::new(StructArray::try_from(vec![("v", values.clone()), (name, values)]).unwrap()) as ArrayRef
            };
            let columns = [("add", of("path", has[0])), ("txn", of("version", has[1])), ("protocol", of("w", has[2]))];
            RecordBatch::try_from_iter(columns.map(|(name, array)| (name, array))).unwrap()
        };
        let batches: Vec<RecordBatch> = groups.iter().map(group).collect();
        let schema = group(&[true; 3]).schema();
        let properties = WriterProperties::builder().set_statistics_enabled(statistics).build();
        let mut writer = ArrowWriter::try_new(Vec::new(), schema, Some(properties)).unwrap();
        for batch in &batches {
            writer.write(batch).unwrap();
            writer.flush().unwrap();
        }
        let file = writer.into_inner().unwrap();
        let length = crate::footer::metadata_length(&file).unwrap() as usize;
        file[file.len() - 8 - length..file.len() - 8].to_vec()
    }

    /// Where the pages of each row group begin, which no two have in common.
    fn page_offsets(metadata: &ParquetMetaData) -> Vec<i64> {
        metadata.row_groups().iter().map(|group| group.columns()[0].data_page_offset()).collect()
    }

    proptest! {
        #[test]
        fn only_row_groups_without_the_leaves_go(
            groups in prop::collection::vec(prop::array::uniform3(prop::bool::weighted(0.2)), 0..40),
        ) {
            let whole = footer(&groups, EnabledStatistics::Chunk);
            let (kept, all) = (prune_row_groups(&whole, &LEAVES), parse(&whole).unwrap());
            let expected = page_offsets(&all).into_iter().zip(&groups).filter(|(_, [_, txn, protocol])| *txn || *protocol);
            let expected: Vec<i64> = expected.map(|(offset, _)| offset).collect();
            match kept {
                Some(pruned) => {
                    let pruned = parse(&pruned).unwrap();
                    prop_assert_eq!(page_offsets(&pruned), expected);
                    prop_assert_eq!(pruned.file_metadata().schema_descr(), all.file_metadata().schema_descr());
                    prop_assert_eq!(pruned.file_metadata().created_by(), all.file_metadata().created_by());
                }
                None => prop_assert_eq!(expected.len(), groups.len()),
            }
        }

        /// Whatever the bytes are, this says something or nothing, and does not panic.
        #[test]
        fn broken_footers_are_walked_to_no_harm(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
            let mut broken = footer(&[[true, false, false], [false, true, false], [true, false, false]], EnabledStatistics::Chunk);
            let at = at.index(broken.len());
            broken[at] = byte;
            if cut {
                broken.truncate(at);
            }
            if let Some(pruned) = prune_row_groups(&broken, &LEAVES) {
                prop_assert!(pruned.len() < broken.len());
                let _ = parse(&pruned);
            }
        }
    }

    #[test]
    fn without_counts_of_nulls_all_row_groups_stay() {
        let whole = footer(&[[true, false, false], [false, true, false]], EnabledStatistics::None);
        assert_eq!(prune_row_groups(&whole, &LEAVES), None);
    }

    #[test]
    fn what_no_column_has_needs_no_row_group() {
        let whole = footer(&[[true, true, true]; 20], EnabledStatistics::Chunk);
        let pruned = prune_row_groups(&whole, &[("add", "version"), ("metaData", "v")]).unwrap();
        assert_eq!(page_offsets(&parse(&pruned).unwrap()), Vec::<i64>::new());
    }
}
