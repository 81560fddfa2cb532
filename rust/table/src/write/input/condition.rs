//! Checks that new rows fulfil the condition of the rows that they replace.
//!
//! Rows are checked as they will be read: an empty string in a partition column is null. A condition that is NULL is not
//! fulfilled.
//!
//! Invariant: rows that pass make the condition TRUE (`tests/python/test_replace_where.py`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StructArray};
use arrow_schema::{DataType as ArrowType, Field, Fields, Schema};
use deltic_protocol::error::{Error, Result};
use deltic_protocol::predicate::{BoundPredicate, keep, parse};
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::StructType;
use deltic_protocol::schema::arrow::to_arrow_field;

/// A condition that must be TRUE for every row.
#[derive(Debug)]
pub(in crate::write) struct Condition {
    text: String,
    bound: BoundPredicate,
    /// The positions of its columns in the rows, and their fields in the condition.
    columns: Vec<(usize, Field)>,
}

impl Condition {
    /// A condition on rows with the columns of `schema`, in order.
    ///
    /// # Errors
    /// `Invalid` if it cannot be read or does not fit the columns.
    pub(in crate::write) fn new(text: &str, schema: &StructType) -> Result<Self> {
        let wrong = |e: Error| Error::new(e.kind().clone(), format!("replace_where: {}", e.message()));
        let bound = parse(text).and_then(|parsed| parsed.bind(schema)).map_err(wrong)?;
        let mut columns: Vec<(usize, Field)> = Vec::new();
        for column in bound.columns() {
            let at = column.path.first().and_then(|name| schema.index_of(name));
            let field = at.and_then(|at| Some((at, to_arrow_field(schema.fields.get(at)?))));
            columns.extend(field.filter(|(at, _)| columns.iter().all(|(known, _)| known != at)));
        }
        Ok(Self { text: text.to_owned(), bound, columns })
    }

    /// Checks rows as they are stored. `first` is the number of the first of them.
    ///
    /// # Errors
    /// `Invalid`, naming the first row for which the condition is not TRUE, with its values.
    pub(in crate::write) fn check(&self, rows: &RecordBatch, first: u64) -> Result<()> {
        let named = self.named(rows)?;
        let held = keep(&self.bound.evaluate(&named)?);
        let Some(row) = held.values().iter().position(|holds| !holds) else { return Ok(()) };
        let number = first.saturating_add(row as u64);
        let shown: Vec<String> =
            self.bound.columns().iter().filter_map(|column| shown(&named, column.path.as_slice(), row)).collect();
        let values = if shown.is_empty() { String::new() } else { format!(": {}", shown.join(", ")) };
        Err(Error::invalid(format!(
            "row {number} (the first is 0) of the data is not among the rows that replace_where ({}) replaces{values}; leave it \
             out, or write it by itself",
            self.text
        )))
    }

    /// The columns of the condition, by the names in it.
    fn named(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let mut fields = Vec::with_capacity(self.columns.len());
        let mut arrays = Vec::with_capacity(self.columns.len());
        for (at, field) in &self.columns {
            let array =
                rows.columns().get(*at).ok_or_else(|| Error::internal("rows lack a column of the condition"))?;
            let array = renamed(array, field.data_type())?;
            fields.push(Field::new(field.name(), array.data_type().clone(), true));
            arrays.push(array);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?)
    }
}

/// Renames the fields of structs to those of a type; of arrays and maps only the nulls matter.
fn renamed(array: &ArrayRef, wanted: &ArrowType) -> Result<ArrayRef> {
    let (Some(parts), ArrowType::Struct(wanted)) = (array.as_struct_opt(), wanted) else {
        return Ok(Arc::clone(array));
    };
    let mut fields = Vec::with_capacity(wanted.len());
    let mut columns = Vec::with_capacity(wanted.len());
    for (field, column) in wanted.iter().zip(parts.columns()) {
        let column = renamed(column, field.data_type())?;
        fields.push(Field::new(field.name(), column.data_type().clone(), true));
        columns.push(column);
    }
    Ok(Arc::new(StructArray::try_new(Fields::from(fields), columns, parts.nulls().cloned())?))
}

/// A value for a message; none if it has no short form.
fn shown(rows: &RecordBatch, path: &[String], row: usize) -> Option<String> {
    let (first, inner) = path.split_first()?;
    let mut array = Arc::clone(rows.column_by_name(first)?);
    for name in inner {
        if array.is_null(row) {
            return Some(format!("`{}` is null", path.join(".")));
        }
        array = Arc::clone(array.as_struct_opt()?.column_by_name(name)?);
    }
    let value = Scalar::from_array(&array, row).ok()?;
    Some(match value {
        Scalar::Null => format!("`{}` is null", path.join(".")),
        value => format!("`{}` is {value}", path.join(".")),
    })
}
