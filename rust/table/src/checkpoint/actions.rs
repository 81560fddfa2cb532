//! Actions of a checkpoint, converted to the types that they have when read from commits.
//!
//! Writers differ in integer widths, string layouts and the members of a deletion vector.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, RecordBatch, StringArray, StructArray, cast::AsArray, new_null_array,
};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema};
use arrow_select::filter::{filter, filter_record_batch};
use deltic_protocol::action::batch::{ADD_SCHEMA, KeyBatch};

use crate::error::{Error, Result};

/// The members of one kind of action as columns, rows of other actions left out, by the path if that was decoded.
///
/// The members get the types that they have when read from commits.
pub(crate) fn action_rows(rows: &RecordBatch, action: &str, with_path: bool) -> Result<RecordBatch> {
    let column = rows.column_by_name(action).and_then(|c| c.as_struct_opt());
    let Some(column) = column else {
        return Err(Error::corrupt(format!("the checkpoint's column `{action}` is missing or not a struct")));
    };
    let path = match with_path {
        true => {
            let path =
                column.column_by_name("path").ok_or_else(|| Error::corrupt(format!("`{action}` has no path")))?;
            path.logical_nulls()
        }
        false => None,
    };
    // A path that may not be null is empty where the whole action is.
    let valid = NullBuffer::union(column.nulls(), path.as_ref());
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for (field, column) in column.fields().iter().zip(column.columns()) {
        let column = conform(field.name(), column).map_err(|e| {
            Error::corrupt(format!("`{action}.{}` in the checkpoint cannot be read", field.name())).caused_by(e)
        })?;
        fields.push(Field::new(field.name(), column.data_type().clone(), true));
        columns.push(column);
    }
    let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
    match valid {
        Some(nulls) if nulls.null_count() > 0 => {
            Ok(filter_record_batch(&rows, &BooleanArray::new(nulls.inner().clone(), None))?)
        }
        Some(_) | None => Ok(rows),
    }
}

/// Files whose paths are views, without a copy of any path. `wanted` gets which rows have a path, and the other members, and
/// says which rows to keep. `None` if the paths are not views.
pub(crate) fn adds_in_views(
    rows: &RecordBatch,
    wanted: impl FnOnce(KeyBatch) -> Result<BooleanBuffer>,
) -> Result<Option<(RecordBatch, ArrayRef)>> {
    let Some(add) = rows.column_by_name("add").and_then(|c| c.as_struct_opt()) else { return Ok(None) };
    let Some(paths) = add.column_by_name("path").and_then(|paths| paths.as_string_view_opt()) else { return Ok(None) };
    let conformed = |field: &FieldRef, column: &ArrayRef| {
        conform(field.name(), column).map_err(|e| {
            Error::corrupt(format!("`add.{}` in the checkpoint cannot be read", field.name())).caused_by(e)
        })
    };
    let members = || add.fields().iter().zip(add.columns()).filter(|(field, _)| field.name() != "path");
    let vectors = members().find(|(field, _)| field.name() == "deletionVector");
    let vectors = vectors.map(|(field, column)| conformed(field, column)).transpose()?;
    let mut keep = wanted(KeyBatch::of_views(paths.clone(), vectors.as_ref().and_then(|v| v.as_struct_opt()))?)?;
    if let Some(there) = NullBuffer::union(add.nulls(), paths.nulls()) {
        keep = &keep & there.inner();
    }
    let keep = BooleanArray::new(keep, None);
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for (field, column) in members() {
        let column = conformed(field, &filter(column, &keep)?)?;
        fields.push(Field::new(field.name(), column.data_type().clone(), true));
        columns.push(column);
    }
    // The views are used instead.
    fields.push(Field::new("path", DataType::Utf8, false));
    columns.push(Arc::new(StringArray::new_repeated("", keep.true_count())));
    Ok(Some((RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?, filter(paths, &keep)?)))
}

/// A member of a file action in the type that it has in actions read from JSON.
pub(crate) fn conform(member: &str, column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let expected = match member {
        "deletionTimestamp" => &DataType::Int64,
        "extendedFileMetadata" => &DataType::Boolean,
        member => match ADD_SCHEMA.field_with_name(member) {
            Ok(field) => field.data_type(),
            Err(_) => return Ok(column.clone()),
        },
    };
    match (expected, column.as_struct_opt()) {
        // Long strings that were decoded as views stay views.
        (DataType::Utf8, _) if member == "stats" && column.data_type() == &DataType::Utf8View => Ok(column.clone()),
        (DataType::Struct(members), Some(found)) => {
            let child = |field: &FieldRef| match found.column_by_name(field.name()) {
                Some(child) => cast(child, field.data_type()),
                None => Ok(new_null_array(field.data_type(), found.len())),
            };
            let children = members.iter().map(child).collect::<Result<_, _>>()?;
            Ok(Arc::new(StructArray::try_new(members.clone(), children, found.nulls().cloned())?))
        }
        (DataType::Map(..), None) => cast(column, &without_views(column.data_type())),
        (expected, None) if !expected.is_nested() && column.data_type() != expected => cast(column, expected),
        _ => Ok(column.clone()),
    }
}

/// The type with plain strings instead of views.
fn without_views(data_type: &DataType) -> DataType {
    let inside = |field: &FieldRef| Arc::new(field.as_ref().clone().with_data_type(without_views(field.data_type())));
    match data_type {
        DataType::Utf8View => DataType::Utf8,
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(inside).collect()),
        DataType::Map(entries, sorted) => DataType::Map(inside(entries), *sorted),
        other => other.clone(),
    }
}
