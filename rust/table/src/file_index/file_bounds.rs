//! The bounds of each file, from decoded columns, for pruning.

use std::collections::HashMap;

use arrow_array::{Array, ArrayRef, Int64Array};
use arrow_buffer::BooleanBuffer;
use deltic_protocol::predicate::Column;
use deltic_protocol::prune::Bounds;
use deltic_protocol::stats::read::LeafBounds;

use super::values::Values;

/// Bounds of the columns of a predicate, for each file.
pub(super) struct FileBounds {
    files: usize,
    records: Option<Int64Array>,
    columns: HashMap<Vec<String>, ColumnBounds>,
}

struct ColumnBounds {
    min: ArrayRef,
    max: ArrayRef,
    nulls: Option<Int64Array>,
    has_no_nulls: bool,
    is_exact: bool,
}

impl FileBounds {
    /// `columns`: by logical path, with whether the predicate needs counts. Rows other than `files` have no file, and
    /// may get any value.
    pub(super) fn new(files: &BooleanBuffer, columns: impl Iterator<Item = (Vec<String>, bool, Values)>) -> Self {
        let has_null = |values: &ArrayRef| {
            values.nulls().is_some_and(|valid| (valid.inner() & files).count_set_bits() < files.count_set_bits())
        };
        // Counts show whether unknown bounds mean that there is no value; if all bounds are known, they are of no use.
        let needs_counts = |(path, with_counts, values): (Vec<String>, bool, Values)| {
            let needs = match &values {
                Values::Bounds { min, max, .. } => with_counts || has_null(min) || has_null(max),
                Values::Array(values) => has_null(values),
                Values::Rows(_) | Values::Encoded(_) => false,
            };
            (path, needs, values)
        };
        let columns: Vec<_> = columns.map(needs_counts).collect();
        let records = columns.iter().find_map(|(_, needs, values)| match values {
            Values::Bounds { counts: Some(counts), .. } if *needs => Some(counts.records.clone()),
            _ => None,
        });
        // All rows of a file have the same partition values: unless there are counts to compare with, each file counts as
        // one row.
        let needs_one = columns.iter().any(|(_, needs, values)| *needs && matches!(values, Values::Array(_)));
        let records = records.or_else(|| needs_one.then(|| Int64Array::from_value(1, files.len())));
        let bounds = |(path, needs, values): (Vec<String>, bool, Values)| {
            let bounds = match values {
                Values::Bounds { min, max, counts } => {
                    let nulls = counts.filter(|_| needs).map(|counts| counts.nulls);
                    ColumnBounds { min, max, nulls, has_no_nulls: false, is_exact: false }
                }
                Values::Array(values) => {
                    let row_counts = records.as_ref().filter(|_| needs);
                    let nulls = row_counts.map(|records| LeafBounds::of_values(values.clone(), records).null_count);
                    ColumnBounds { min: values.clone(), max: values, nulls, has_no_nulls: !needs, is_exact: true }
                }
                Values::Rows(_) | Values::Encoded(_) => return None,
            };
            Some((path, bounds))
        };
        let columns = columns.into_iter().filter_map(bounds).collect();
        Self { files: files.len(), records, columns }
    }
}

impl Bounds for FileBounds {
    fn containers(&self) -> usize {
        self.files
    }

    fn min(&self, column: &Column) -> deltic_protocol::error::Result<Option<ArrayRef>> {
        Ok(self.columns.get(&column.path).map(|c| c.min.clone()))
    }

    fn max(&self, column: &Column) -> deltic_protocol::error::Result<Option<ArrayRef>> {
        Ok(self.columns.get(&column.path).map(|c| c.max.clone()))
    }

    fn null_count(&self, column: &Column) -> deltic_protocol::error::Result<Option<Int64Array>> {
        Ok(self.columns.get(&column.path).and_then(|c| c.nulls.clone()))
    }

    fn row_count(&self) -> deltic_protocol::error::Result<Option<Int64Array>> {
        Ok(self.records.clone())
    }

    fn has_no_nulls(&self, column: &Column) -> bool {
        self.columns.get(&column.path).is_some_and(|c| c.has_no_nulls)
    }

    fn is_exact(&self, column: &Column) -> bool {
        self.columns.get(&column.path).is_some_and(|c| c.is_exact)
    }
}
