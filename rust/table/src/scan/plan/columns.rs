//! Columns that listings and plans of files share.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, StructArray};
use arrow_schema::{DataType as ArrowType, Field, Fields};
use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::schema::StructField;
use deltic_protocol::schema::arrow::to_arrow_type;

use crate::error::Result;

/// A struct column; none if it would have no fields, since DuckDB and Parquet have no such type.
pub(super) fn struct_field(name: &str, fields: Fields) -> Option<Field> {
    (!fields.is_empty()).then(|| Field::new(name, ArrowType::Struct(fields), false))
}

/// The values of [`struct_field`].
pub(super) fn structure(fields: &Fields, arrays: Vec<ArrayRef>) -> Result<Option<ArrayRef>> {
    if fields.is_empty() {
        return Ok(None);
    }
    Ok(Some(Arc::new(StructArray::try_new(fields.clone(), arrays, None)?)))
}

pub(super) fn partition_fields(shape: &TableShape) -> Fields {
    let field = |name: &String| shape.schema.field(name).map(|f: &StructField| (&f.name, to_arrow_type(&f.data_type)));
    shape.partition_columns.iter().filter_map(field).map(|(name, arrow)| Field::new(name, arrow, true)).collect()
}

/// The fields of [`base_columns`].
pub(super) fn base_fields(shape: &TableShape) -> Vec<Field> {
    let mut fields = vec![
        Field::new("path", ArrowType::Utf8, false),
        Field::new("size", ArrowType::Int64, true),
        Field::new("modification_time", ArrowType::Int64, true),
    ];
    fields.extend(struct_field("partition", partition_fields(shape)));
    fields
}

pub(super) fn base_columns(adds: &AddBatch, shape: &TableShape) -> Result<Vec<ArrayRef>> {
    let number = |name: &str| -> ArrayRef {
        Arc::new(adds.int64(name).cloned().unwrap_or_else(|| Int64Array::new_null(adds.len())))
    };
    let partitions = partition_fields(shape);
    let values = partitions.iter().map(|f| shape.partition_values(adds, f.name())).collect::<Result<Vec<_>>>()?;
    let mut columns = vec![Arc::new(adds.path().clone()) as ArrayRef, number("size"), number("modificationTime")];
    columns.extend(structure(&partitions, values)?);
    Ok(columns)
}
