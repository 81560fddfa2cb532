//! Decodes columns of files directly from the pages of a row group.
//!
//! Rows keep their places. Values of rows that were not requested may be missing.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, StructArray, UInt32Array, new_null_array};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::{ArrowError, DataType as ArrowType, Field, Fields};
use arrow_select::take::take;
use deltic_pages::decode::{self as pages, Chunk, DictionaryEncoded, Entries, Failure, FrontCoder};
use deltic_protocol::log_bounds::parse_strings;
use deltic_protocol::stats::read::{Leaf, LeafBounds, from_struct};

use super::column::PartitionColumn;
use super::encoded::EncodedColumn;
use super::part_columns::{PATH, broken, stats_path};
use super::values::Values;
use crate::checkpoint::action_file::{ActionFile, FetchedChunks};
use crate::error::{Error, Result};

/// Most bytes of the values of a partition column: a fixed part, and a part for each row. A value that many rows
/// share takes memory for each row, and almost none in the file.
const BASE_VALUE_BYTES: usize = 64 * 1024 * 1024;
const VALUE_BYTES_PER_ROW: usize = 256;

/// Numeric leaves that are kept encoded with the paths.
const SIZE_AND_TIME: [[&str; 2]; 2] = [["add", "size"], ["add", "modificationTime"]];

/// Why columns could not be decoded directly.
pub(super) enum Failed {
    /// The parquet crate has to do it.
    Unsupported,
    /// The column cannot be decoded.
    Error(Error),
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unsupported => Self::Unsupported,
            Failure::Corrupt(what) => Self::Error(broken(what)),
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<ArrowError> for Failed {
    fn from(error: ArrowError) -> Self {
        Self::Error(error.into())
    }
}

/// Fetched leaves of one row group.
#[derive(Clone, Copy)]
pub(super) struct Direct<'d> {
    pub(super) part: &'d ActionFile,
    pub(super) fetched: &'d FetchedChunks,
    /// The requested rows; all if `None`.
    pub(super) rows: Option<&'d BooleanBuffer>,
}

impl Direct<'_> {
    fn row_count(&self) -> usize {
        self.part.rows(self.fetched.group())
    }

    /// Which rows have an `add`.
    pub(super) fn presence(&self) -> Result<BooleanBuffer, Failed> {
        let leaf = self.part.smallest_leaf(self.fetched.group(), "add").ok_or(Failed::Unsupported)?;
        Ok(pages::defined(self.part.chunk(self.fetched, leaf)?, self.part.definition_level(leaf, 1))?)
    }

    /// A leaf as it is in the file; `None` if the file does not have it.
    pub(super) fn leaf(&self, path: &[&str]) -> Result<Option<ArrayRef>, Failed> {
        let Some(leaf) = self.part.leaf(path) else { return Ok(None) };
        let found = self.part.arrow_type(path).ok_or(Failed::Unsupported)?;
        Ok(Some(pages::array(self.part.chunk(self.fetched, leaf)?, found, self.rows)?))
    }

    /// All paths front-coded, unless they were read already; with them, if asked for, sizes and modification times
    /// dictionary-encoded, unless they are of another type.
    pub(super) fn encoded(&self, read: Option<FrontCoder>, with_numbers: bool) -> Result<[Option<Values>; 3], Failed> {
        let number = |path: [&str; 2]| match self.of_type(&path, &ArrowType::Int64)?.map(DictionaryEncoded::read) {
            Some(Ok(numbers)) => Ok(Some(Values::Encoded(EncodedColumn::Numbers(Arc::new(numbers))))),
            Some(Err(Failure::Unsupported)) | None => Ok(None),
            Some(Err(stop)) => Err(Failed::from(stop)),
        };
        let paths = match read {
            Some(read) => read,
            None => {
                let paths = self.of_type(&PATH, &ArrowType::Utf8)?.ok_or(Failed::Unsupported)?;
                let mut trimming = FrontCoder::default();
                trimming.read(paths, true)?;
                trimming
            }
        };
        let paths = Values::Encoded(EncodedColumn::Strings(Arc::new(paths.finish())));
        let [size, time] = SIZE_AND_TIME.map(|path| if with_numbers { number(path) } else { Ok(None) });
        Ok([Some(paths), size?, time?])
    }

    /// The pages of a leaf, if it has this type.
    fn of_type(&self, path: &[&str], expected: &ArrowType) -> Result<Option<Chunk<'_>>, Failed> {
        let leaf = self.part.leaf(path).filter(|_| self.part.arrow_type(path) == Some(expected));
        Ok(leaf.map(|leaf| self.part.chunk(self.fetched, leaf)).transpose()?)
    }

    /// `add.deletionVector` as it is in the file; `None` if the file does not have it.
    pub(super) fn vectors(&self) -> Result<Option<ArrayRef>, Failed> {
        let path = ["add", "deletionVector"];
        let Some(ArrowType::Struct(members)) = self.part.arrow_type(&path) else { return Ok(None) };
        let first = members.first().and_then(|member| self.part.leaf(&[path[0], path[1], member.name()]));
        let first = first.ok_or(Failed::Unsupported)?;
        let present = pages::defined(self.part.chunk(self.fetched, first)?, self.part.definition_level(first, 2))?;
        // Rows that were not requested count as null, since their members may be missing.
        let present = match self.rows {
            Some(rows) => &present & rows,
            None => present,
        };
        let member = |member: &Arc<Field>| self.leaf(&[path[0], path[1], member.name()])?.ok_or(Failed::Unsupported);
        let values = members.iter().map(member).collect::<Result<Vec<_>, Failed>>()?;
        Ok(Some(Arc::new(StructArray::try_new(members.clone(), values, Some(NullBuffer::new(present)))?)))
    }

    /// Typed values of partition columns. The map of strings is read once for all of them.
    pub(super) fn partitions(&self, columns: &[&PartitionColumn]) -> Result<Vec<ArrayRef>, Failed> {
        if columns.is_empty() {
            return Ok(Vec::new());
        }
        let [key, value] = self.part.map_leaves(["add", "partitionValues"]).ok_or(Failed::Unsupported)?;
        let chunk = |leaf| self.part.chunk(self.fetched, leaf);
        let wanted: Vec<[&str; 2]> = columns.iter().map(|column| column.keys()).collect();
        let found = pages::entries(chunk(key)?, chunk(value)?, &wanted)?;
        columns.iter().zip(found).map(|(column, found)| partition(&column.leaf, &column.name, found)).collect()
    }

    /// Bounds of a column from the typed statistics, with counts of nulls and of rows.
    pub(super) fn typed(
        &self,
        leaf: &Leaf,
        with_counts: bool,
    ) -> Result<(LeafBounds, arrow_array::Int64Array), Failed> {
        let bounds = ["minValues", "maxValues", "nullCount"];
        let [min, max, nulls] = bounds.map(|bound| stats_path(bound, leaf));
        let [min, max] = [self.leaf(&min)?, self.leaf(&max)?];
        let nulls = if with_counts { self.leaf(&nulls)? } else { None };
        let members = bounds.into_iter().zip([min, max, nulls]);
        let mut members: Vec<(&str, ArrayRef)> =
            members.filter_map(|(bound, values)| Some((bound, nested(leaf, values?)))).collect();
        if with_counts && let Some(records) = self.leaf(&["add", "stats_parsed", "numRecords"])? {
            members.push(("numRecords", records));
        }
        if members.is_empty() {
            members.push(("numRecords", new_null_array(&ArrowType::Int64, self.row_count())));
        }
        let fields: Fields = members.iter().map(|(name, a)| Field::new(*name, a.data_type().clone(), true)).collect();
        let stats = StructArray::try_new(fields, members.into_iter().map(|(_, values)| values).collect(), None)?;
        let read = from_struct(&stats, std::slice::from_ref(leaf))?;
        let bounds = read.leaves.into_iter().next().ok_or(Failed::Unsupported)?;
        Ok((bounds, read.num_records))
    }

    /// Calls `read` with the JSON statistics, page by page, and returns its results.
    pub(super) fn json_stats<T>(&self, read: impl FnMut(&[Option<&str>]) -> T) -> Result<Vec<T>, Failed> {
        let leaf = self.part.leaf(&["add", "stats"]).ok_or(Failed::Unsupported)?;
        Ok(pages::strings_by_page(self.part.chunk(self.fetched, leaf)?, self.rows, read)?)
    }

    /// A column without values.
    pub(super) fn nothing(&self, data_type: &ArrowType) -> ArrayRef {
        new_null_array(data_type, self.row_count())
    }
}

/// Typed values of a partition column from its distinct strings.
fn partition(leaf: &Leaf, logical: &str, found: Entries) -> Result<ArrayRef, Failed> {
    // A missing value is treated like an empty string: both mean null.
    let missing = u32::try_from(found.strings.len()).map_err(|_| Failed::Unsupported)?;
    let strings = found.strings.iter().map(String::as_str).chain([""]);
    let values = parse_strings(strings, logical, &leaf.data_type)?;
    let mut codes = found.codes;
    codes.iter_mut().filter(|code| **code == pages::NONE).for_each(|code| *code = missing);
    let codes = UInt32Array::from(codes);
    let bytes: usize = match values.as_any().downcast_ref::<arrow_array::StringArray>() {
        Some(strings) => codes.values().iter().map(|code| strings.value(*code as usize).len()).sum(),
        None => 0,
    };
    if bytes > codes.len().saturating_mul(VALUE_BYTES_PER_ROW).saturating_add(BASE_VALUE_BYTES)
        || i32::try_from(bytes).is_err()
    {
        let message = format!("the values of the partition column `{logical}` are {bytes} bytes in one row group");
        return Err(Failed::Error(Error::corrupt(message)));
    }
    Ok(take(&values, &codes, None)?)
}

/// Values of a leaf inside the structs that lead to it.
fn nested(leaf: &Leaf, values: ArrayRef) -> ArrayRef {
    leaf.path.iter().rev().fold(values, |inner, name| {
        let fields = Fields::from(vec![Field::new(name, inner.data_type().clone(), true)]);
        Arc::new(StructArray::new(fields, vec![inner], None))
    })
}

#[cfg(test)]
mod tests {
    use deltic_protocol::schema::PrimitiveType;

    use super::*;

    #[test]
    fn a_value_that_all_rows_share_does_not_fill_the_memory() {
        let leaf = Leaf { path: vec!["p".to_owned()], data_type: PrimitiveType::String, was_float: false };
        let shared = |bytes: usize, rows: usize| Entries { strings: vec!["x".repeat(bytes)], codes: vec![0; rows] };
        assert!(partition(&leaf, "p", shared(200, 1_000)).is_ok_and(|values| values.len() == 1_000));
        let refused = partition(&leaf, "p", shared(32 * 1024, 1 << 16)).err();
        assert!(matches!(refused, Some(Failed::Error(error)) if error.message().contains("`p`")));
    }
}
