//! Structs that lack fields of the type in which they are stored, completed with these fields.
//!
//! A completed struct has the fields that it had and then the missing ones, at any depth: NULL, or, in structs that are not
//! in arrays or maps, the values of the old row. A struct that is NULL stays NULL unless the old one has values to keep.
//! These are the rules of MERGE WITH SCHEMA EVOLUTION in delta-spark.
//!
//! Proved by `tests/python/test_merge_structs.py`, and beside delta-spark by `tests/interop/test_merge_structs.py`.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, ListArray, MapArray, StructArray, new_null_array};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType as ArrowType, Field, FieldRef, Fields};
use arrow_select::nullif::nullif;

use super::super::kernel::unexpected;
use crate::error::{Error, Result};
use crate::schema::arrow::{cast_strictly, to_arrow_type};
use crate::schema::{ArrayType, DataType, MapType, StructField, StructType};

/// What becomes of the fields that an assigned struct lacks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MissingFields {
    /// The assignment is refused.
    #[default]
    Refused,
    /// They are NULL.
    Null,
    /// They keep the values of the old row. In arrays and maps they are NULL.
    Kept,
}

/// The type `from`, with the fields that it lacks of `to`.
pub(super) fn completed_type(from: &DataType, to: &DataType) -> DataType {
    match (from, to) {
        (DataType::Struct(from), DataType::Struct(to)) => {
            let of = |field: &StructField| match to.field(&field.name) {
                Some(wanted) => {
                    StructField { data_type: completed_type(&field.data_type, &wanted.data_type), ..field.clone() }
                }
                None => field.clone(),
            };
            let mut fields: Vec<StructField> = from.fields.iter().map(of).collect();
            fields.extend(missing(from, to).map(|field| StructField::new(&field.name, field.data_type.clone(), true)));
            DataType::Struct(Arc::new(StructType::new(fields)))
        }
        (DataType::Array(from), DataType::Array(to)) => DataType::Array(Arc::new(ArrayType {
            element: completed_type(&from.element, &to.element),
            contains_null: from.contains_null,
        })),
        (DataType::Map(from), DataType::Map(to)) => DataType::Map(Arc::new(MapType {
            key: completed_type(&from.key, &to.key),
            value: completed_type(&from.value, &to.value),
            value_contains_null: from.value_contains_null,
        })),
        _ => from.clone(),
    }
}

/// Values of the type `from` in the type [`completed_type`]. `old`: the values to keep, of the type `to`, if any are kept.
pub(super) fn completed(
    values: &ArrayRef,
    (from, to): (&DataType, &DataType),
    old: Option<&ArrayRef>,
) -> Result<ArrayRef> {
    if completed_type(from, to) == *from {
        return Ok(Arc::clone(values));
    }
    match (from, to) {
        (DataType::Struct(from), DataType::Struct(to)) => completed_struct(values, (from, to), old),
        (DataType::Array(from), DataType::Array(to)) => {
            let given = values.as_list_opt::<i32>().ok_or_else(|| unexpected(values))?;
            let elements = completed(given.values(), (&from.element, &to.element), None)?;
            let field = Arc::new(Field::new("element", elements.data_type().clone(), true));
            Ok(Arc::new(ListArray::try_new(field, given.offsets().clone(), elements, given.nulls().cloned())?))
        }
        (DataType::Map(from), DataType::Map(to)) => {
            let given = values.as_map_opt().ok_or_else(|| unexpected(values))?;
            let keys = completed(given.keys(), (&from.key, &to.key), None)?;
            let items = completed(given.values(), (&from.value, &to.value), None)?;
            let fields: Fields = vec![
                Field::new("key", keys.data_type().clone(), false),
                Field::new("value", items.data_type().clone(), true),
            ]
            .into();
            let field = Arc::new(Field::new("entries", ArrowType::Struct(fields.clone()), false));
            let entries = StructArray::try_new(fields, vec![keys, items], None)?;
            Ok(Arc::new(MapArray::try_new(field, given.offsets().clone(), entries, given.nulls().cloned(), false)?))
        }
        _ => Err(Error::internal("values without fields were to be completed")),
    }
}

fn completed_struct(
    values: &ArrayRef,
    (from, to): (&StructType, &StructType),
    old: Option<&ArrayRef>,
) -> Result<ArrayRef> {
    let given = values.as_struct_opt().ok_or_else(|| unexpected(values))?;
    let old = old.map(|old| old.as_struct_opt().ok_or_else(|| unexpected(old))).transpose()?;
    let (mut fields, mut columns): (Vec<FieldRef>, Vec<ArrayRef>) = (Vec::new(), Vec::new());
    let mut push = |name: &str, column: ArrayRef| {
        fields.push(Arc::new(Field::new(name, column.data_type().clone(), true)));
        columns.push(column);
    };
    for field in &from.fields {
        let column = given.column_by_name(&field.name).ok_or_else(|| unexpected(values))?;
        let column = null_where(column, given.nulls())?;
        push(
            &field.name,
            match to.field(&field.name) {
                Some(wanted) => {
                    let old = old.map(|old| old_values(old, wanted)).transpose()?;
                    completed(&column, (&field.data_type, &wanted.data_type), old.as_ref())?
                }
                None => column,
            },
        );
    }
    for field in missing(from, to) {
        push(
            &field.name,
            match old {
                Some(old) => cast_strictly(&old_values(old, field)?, &to_arrow_type(&field.data_type))?,
                None => new_null_array(&to_arrow_type(&field.data_type), given.len()),
            },
        );
    }
    let nulls = match old.filter(|_| lacks_fields(from, to)) {
        Some(old) => either_valid(given.nulls(), old.nulls()),
        None => given.nulls().cloned(),
    };
    Ok(Arc::new(StructArray::try_new_with_length(fields.into(), columns, nulls, given.len())?))
}

fn missing<'a>(from: &StructType, to: &'a StructType) -> impl Iterator<Item = &'a StructField> {
    to.fields.iter().filter(|field| from.field(&field.name).is_none())
}

/// Whether a struct lacks fields, or one of its structs does; those in arrays and maps do not count.
fn lacks_fields(from: &StructType, to: &StructType) -> bool {
    to.fields.iter().any(|wanted| match (from.field(&wanted.name).map(|field| &field.data_type), &wanted.data_type) {
        (None, _) => true,
        (Some(DataType::Struct(from)), DataType::Struct(to)) => lacks_fields(from, to),
        _ => false,
    })
}

/// The values of a field of the old rows; NULL where the struct is.
fn old_values(old: &StructArray, field: &StructField) -> Result<ArrayRef> {
    let column = old.column_by_name(&field.name);
    let column = column.ok_or_else(|| Error::internal(format!("old rows lack the field `{}`", field.name)))?;
    null_where(column, old.nulls())
}

/// `column`, but NULL wherever its struct is.
fn null_where(column: &ArrayRef, parent: Option<&NullBuffer>) -> Result<ArrayRef> {
    match parent {
        Some(parent) => Ok(nullif(column, &BooleanArray::new(!parent.inner(), None))?),
        None => Ok(Arc::clone(column)),
    }
}

/// Valid where one of the two is.
fn either_valid(one: Option<&NullBuffer>, other: Option<&NullBuffer>) -> Option<NullBuffer> {
    Some(NullBuffer::new(one?.inner() | other?.inner()))
}
