//! The source of bounds, and a cache of checked bounds.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, Int64Array, PrimitiveArray};
use arrow_buffer::BooleanBuffer;
use arrow_schema::DataType as ArrowType;

use super::column_bounds::ColumnBounds;
use crate::error::{Error, Result};
use crate::predicate::Column;
use crate::schema::arrow::to_arrow_type;

/// Bounds of columns in N files, row groups or pages.
///
/// Columns are named by their logical paths; one call of [`keep`](super::keep) asks for nothing twice.
pub trait Bounds {
    /// N.
    fn containers(&self) -> usize;

    /// N values, each at most as great as every value of the column in that container; null is unknown, and so is
    /// `None` for all. In the column's Arrow type. Of strings and bytes it may be the beginning of such a value; in
    /// floats, NaN values need not have been counted.
    fn min(&self, column: &Column) -> Result<Option<ArrayRef>>;

    /// N values, each at least as great as every value of the column in that container; null is unknown, and so is
    /// `None` for all. In the column's Arrow type. Of strings and bytes it may be the beginning of such a value; in
    /// floats, NaN values need not have been counted.
    fn max(&self, column: &Column) -> Result<Option<ArrayRef>>;

    /// Whether no container has a null in the column. Then its counts are not asked for.
    fn has_no_nulls(&self, _column: &Column) -> bool {
        false
    }

    /// How many rows have no value in the column; null is unknown.
    fn null_count(&self, column: &Column) -> Result<Option<Int64Array>>;

    /// How many rows there are, deleted ones included; null is unknown.
    fn row_count(&self) -> Result<Option<Int64Array>>;

    /// Whether `min` and `max` limit every value as they stand, never shortened and with NaN counted as the greatest.
    /// Partition values do; then `<>`, NOT IN and NaN can skip as well.
    fn is_exact(&self, _column: &Column) -> bool {
        false
    }
}

/// The answers of one [`Bounds`], kept while one predicate is looked at.
pub(super) struct Cache<'b> {
    bounds: &'b dyn Bounds,
    containers: usize,
    row_count: Option<Int64Array>,
    columns: HashMap<Vec<String>, ColumnBounds>,
}

impl<'b> Cache<'b> {
    pub(super) fn new(bounds: &'b dyn Bounds) -> Result<Self> {
        let containers = bounds.containers();
        let row_count = bounds.row_count()?;
        check_length("row counts", row_count.as_ref().map(|a| a as &dyn Array), containers)?;
        Ok(Self { bounds, containers, row_count, columns: HashMap::new() })
    }

    pub(super) fn containers(&self) -> usize {
        self.containers
    }

    /// All but the containers that are known to be empty.
    pub(super) fn may_have_rows(&self) -> BooleanBuffer {
        match &self.row_count {
            Some(rows) => all_but(rows, |rows| rows == 0),
            None => BooleanBuffer::new_set(self.containers),
        }
    }

    /// Where a column may have values and where nulls.
    pub(super) fn presence_of(&mut self, column: &Column) -> Result<&mut ColumnBounds> {
        match self.columns.entry(column.path.clone()) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(vacant) if self.bounds.has_no_nulls(column) => {
                let (may_have_value, may_have_null) =
                    (BooleanBuffer::new_set(self.containers), BooleanBuffer::new_unset(self.containers));
                Ok(vacant.insert(ColumnBounds::unbounded(may_have_value, may_have_null)))
            }
            Entry::Vacant(vacant) => {
                let nulls = self.bounds.null_count(column)?;
                check_length("null counts", nulls.as_ref().map(|a| a as &dyn Array), self.containers)?;
                Ok(vacant.insert(presence(self.containers, nulls.as_ref(), self.row_count.as_ref())))
            }
        }
    }

    /// [`Cache::presence_of`] and the column's limits.
    pub(super) fn bounds_of(&mut self, column: &Column) -> Result<&ColumnBounds> {
        let (bounds, containers) = (self.bounds, self.containers);
        let column_bounds = self.presence_of(column)?;
        if !column_bounds.bounded {
            column_bounds.is_exact = bounds.is_exact(column);
            column_bounds.min = check_bound("minima", bounds.min(column)?, column, containers, column_bounds.is_exact)?;
            column_bounds.max = check_bound("maxima", bounds.max(column)?, column, containers, column_bounds.is_exact)?;
            column_bounds.bounded = true;
        }
        Ok(column_bounds)
    }
}

fn presence(containers: usize, nulls: Option<&Int64Array>, rows: Option<&Int64Array>) -> ColumnBounds {
    let may_have_null = match nulls {
        Some(nulls) => all_but(nulls, |nulls| nulls == 0),
        None => BooleanBuffer::new_set(containers),
    };
    let may_have_value = match (nulls, rows) {
        (Some(nulls), Some(rows)) => {
            let differ: BooleanBuffer = nulls.values().iter().zip(rows.values()).map(|(n, r)| n != r).collect();
            [nulls, rows].into_iter().filter_map(Array::nulls).fold(differ, |sum, known| &sum | &!known.inner())
        }
        (None, _) | (_, None) => BooleanBuffer::new_set(containers),
    };
    ColumnBounds::unbounded(may_have_value, may_have_null)
}

/// All but the counts that are known and of which `test` is true.
fn all_but(counts: &Int64Array, test: impl Fn(i64) -> bool) -> BooleanBuffer {
    let kept: BooleanBuffer = counts.values().iter().map(|count| !test(*count)).collect();
    match counts.nulls() {
        Some(known) => &kept | &!known.inner(),
        None => kept,
    }
}

fn check_length(what: &str, array: Option<&dyn Array>, containers: usize) -> Result<()> {
    match array {
        Some(array) if array.len() != containers => {
            Err(Error::internal(format!("{} {what} were given for {containers} containers", array.len())))
        }
        Some(_) | None => Ok(()),
    }
}

fn check_bound(
    what: &str,
    bound: Option<ArrayRef>,
    column: &Column,
    containers: usize,
    is_exact: bool,
) -> Result<Option<ArrayRef>> {
    check_length(what, bound.as_deref(), containers)?;
    let Some(array) = bound else { return Ok(None) };
    let expected = to_arrow_type(&column.data_type);
    if *array.data_type() != expected {
        let found = array.data_type();
        return Err(Error::internal(format!("{what} of column {column} come as {found}, and {expected} is needed")));
    }
    Ok(Some(match expected {
        ArrowType::Float32 => normalise::<Float32Type>(&array, is_exact, f32::is_nan, |v| v + 0.0, f32::NAN),
        ArrowType::Float64 => normalise::<Float64Type>(&array, is_exact, f64::is_nan, |v| v + 0.0, f64::NAN),
        _ => array,
    }))
}

/// One spelling of zero and of NaN; a NaN that need not have been counted says nothing.
fn normalise<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    is_exact: bool,
    is_nan: impl Fn(T::Native) -> bool,
    positive_zero: impl Fn(T::Native) -> T::Native,
    nan: T::Native,
) -> ArrayRef {
    let array: &PrimitiveArray<T> = array.as_primitive();
    let normal: PrimitiveArray<T> =
        array.unary_opt(|v| if is_nan(v) { is_exact.then_some(nan) } else { Some(positive_zero(v)) });
    std::sync::Arc::new(normal)
}
