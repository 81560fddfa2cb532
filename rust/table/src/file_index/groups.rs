//! Bounds of whole row groups of a checkpoint, from the footer: row groups without matching files are not read.
//!
//! The least of all files' least values is a lower bound for all of them, if every file has one; likewise the greatest. If one
//! is missing, nothing is known; nor if one may be NaN, which stands for an unknown bound. Only typed statistics and
//! partition values have useful bounds.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Decimal128Type;
use arrow_array::{ArrayRef, Int64Array, StringArray, StructArray, new_null_array};
use arrow_schema::{DataType as ArrowType, Field, Fields};
use arrow_select::concat::concat;
use deltic_protocol::error::Result;
use deltic_protocol::predicate::Column;
use deltic_protocol::prune::Bounds;
use deltic_protocol::schema::arrow::to_arrow_type;
use deltic_protocol::stats::near_any_double;
use deltic_protocol::stats::read::{Leaf, from_struct};
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;

use super::column::{IndexColumn, PartitionColumn};
use super::part_columns::{has_typed_partition, is_complete, stats_path, typed_partition_path};
use crate::checkpoint::action_file::ActionFile;

/// Writers shorten strings to 32 characters, or to 64 bytes; one that keeps fewer rounds the maximum up.
const MIN_PREFIX_CHARS: usize = 16;

/// Bounds of containers of files, for columns by logical path: those that `bound` returns, without counts.
pub(super) struct ContainerBounds<'a, F> {
    columns: &'a [(Vec<String>, IndexColumn)],
    containers: usize,
    bound: F,
}

/// Bounds of row groups, from their footers.
pub(super) fn of_groups<'a>(
    groups: &'a [(Arc<ActionFile>, usize)],
    columns: &'a [(Vec<String>, IndexColumn)],
) -> ContainerBounds<'a, impl Fn(usize, &IndexColumn, bool) -> Option<ArrayRef>> {
    ContainerBounds::new(groups.len(), columns, |at, column, upper| {
        let (part, group) = groups.get(at)?;
        match column {
            IndexColumn::Partition(PartitionColumn { leaf, .. }) if has_typed_partition(part, *group, leaf) => {
                extreme(part, *group, &typed_partition_path(leaf), upper)
            }
            IndexColumn::Bounds { leaf, .. } => stored_bound(part, *group, leaf, upper),
            _ => None,
        }
    })
}

impl<'a, F: Fn(usize, &IndexColumn, bool) -> Option<ArrayRef>> ContainerBounds<'a, F> {
    /// `bound` returns the least or, with `true`, the greatest value of a column in one container, if it is known.
    pub(super) fn new(containers: usize, columns: &'a [(Vec<String>, IndexColumn)], bound: F) -> Self {
        Self { columns, containers, bound }
    }

    fn bounds(&self, column: &Column, upper: bool) -> Result<Option<ArrayRef>> {
        let Some((_, wanted)) = self.columns.iter().find(|(path, _)| *path == column.path) else { return Ok(None) };
        let target = to_arrow_type(&column.data_type);
        let of_one = |at: usize| {
            let value = (self.bound)(at, wanted, upper);
            value.filter(|value| *value.data_type() == target).unwrap_or_else(|| new_null_array(&target, 1))
        };
        let bounds: Vec<ArrayRef> = (0..self.containers).map(of_one).collect();
        if bounds.is_empty() {
            return Ok(None);
        }
        Ok(Some(concat(&bounds.iter().map(AsRef::as_ref).collect::<Vec<_>>())?))
    }
}

/// The least of the stored minima, or the greatest of the maxima, made so wide that it also holds for shortened bounds.
fn stored_bound(part: &ActionFile, group: usize, leaf: &Leaf, upper: bool) -> Option<ArrayRef> {
    let member = if upper { "maxValues" } else { "minValues" };
    let path = stats_path(member, leaf);
    if !is_complete(part, group, &path) {
        return None;
    }
    let value = extreme(part, group, &path, upper)?;
    let nested = leaf.path.iter().rev().chain([&member.to_owned()]).fold(value, |inner, name| {
        let field = Field::new(name, inner.data_type().clone(), true);
        Arc::new(StructArray::new(Fields::from(vec![field]), vec![inner], None))
    });
    let stats = from_struct(nested.as_any().downcast_ref()?, std::slice::from_ref(leaf)).ok()?;
    let bounds = stats.leaves.into_iter().next()?;
    let bound = if upper { bounds.max } else { bounds.min };
    Some(bound_of_all(bound, upper))
}

/// How far a file's bound may be from its values depends on the digits or the string, so another file's bound may reach
/// further than the least or the greatest one.
fn bound_of_all(bound: ArrayRef, upper: bool) -> ArrayRef {
    if let Some(decimals) = bound.as_primitive_opt::<Decimal128Type>() {
        let widened = decimals.unary::<_, Decimal128Type>(|value| near_any_double(value, upper));
        return Arc::new(widened.with_data_type(bound.data_type().clone()));
    }
    match bound.as_string_opt::<i32>().filter(|_| upper) {
        // The greatest string may be shortened, and so may another one, which is a prefix of it.
        Some(strings) => Arc::new(strings.iter().map(|string| string.map(kept_prefix)).collect::<StringArray>()),
        None => bound,
    }
}

/// The prefix of a string that every writer keeps that shortens strings.
fn kept_prefix(string: &str) -> &str {
    string.char_indices().nth(MIN_PREFIX_CHARS).and_then(|(end, _)| string.get(..end)).unwrap_or(string)
}

/// The least or greatest value of a column chunk, if its order is known.
fn extreme(part: &ActionFile, group: usize, path: &[&str], upper: bool) -> Option<ArrayRef> {
    let index = part.leaf(path)?;
    if !part.has_ordered_bounds(index) {
        return None;
    }
    let found: &ArrowType = part.arrow_type(path)?;
    let field = Field::new("bound", found.clone(), true);
    let metadata = part.metadata().metadata();
    let chunk = metadata.row_groups().get(group)?;
    // The least and the greatest value leave out NaN, which a file's bound may be.
    let nan_count = chunk.columns().get(index)?.statistics()?.nan_count_opt();
    if found.is_floating() && nan_count != Some(0) {
        return None;
    }
    let converter =
        StatisticsConverter::from_column_index(index, &field, metadata.file_metadata().schema_descr()).ok()?;
    let converter = converter.with_column_orders(metadata.file_metadata().column_orders().map(Vec::as_slice));
    let value = if upper { converter.row_group_maxes([chunk]) } else { converter.row_group_mins([chunk]) };
    value.ok()
}

impl<F: Fn(usize, &IndexColumn, bool) -> Option<ArrayRef>> Bounds for ContainerBounds<'_, F> {
    fn containers(&self) -> usize {
        self.containers
    }

    fn min(&self, column: &Column) -> Result<Option<ArrayRef>> {
        self.bounds(column, false)
    }

    fn max(&self, column: &Column) -> Result<Option<ArrayRef>> {
        self.bounds(column, true)
    }

    fn null_count(&self, _column: &Column) -> Result<Option<Int64Array>> {
        Ok(None)
    }

    fn row_count(&self) -> Result<Option<Int64Array>> {
        Ok(None)
    }
}
