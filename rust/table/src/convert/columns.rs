//! Compares the columns of a file with those of the other files.

use arrow_schema::{DataType as ArrowType, Field, TimeUnit};
use deltic_protocol::error::{Error, Result};
use deltic_protocol::schema::{ArrayType, DataType, MapType, StructField, StructType};
use std::sync::Arc;

/// Refuses a file with a column of another type, or in another spelling, than the files before it have.
///
/// # Errors
/// `Invalid`, naming the column and both types.
pub(super) fn check_same_types(table: &StructType, file: &StructType) -> Result<()> {
    check_fields(table, file, "")
}

fn check_fields(table: &StructType, file: &StructType, above: &str) -> Result<()> {
    for field in &file.fields {
        let path = if above.is_empty() { field.name.clone() } else { format!("{above}.{}", field.name) };
        let Some(column) = table.field(&field.name) else { continue };
        if column.name != field.name {
            return Err(Error::invalid(format!(
                "the column `{path}` is spelled `{}` in other files; rewrite the files with one spelling",
                column.name
            )));
        }
        check_type(&column.data_type, &field.data_type, &path)?;
    }
    Ok(())
}

fn check_type(table: &DataType, file: &DataType, path: &str) -> Result<()> {
    match (table, file) {
        (DataType::Struct(table), DataType::Struct(file)) => check_fields(table, file, path),
        (DataType::Array(table), DataType::Array(file)) => {
            check_type(&table.element, &file.element, &format!("{path}.element"))
        }
        (DataType::Map(table), DataType::Map(file)) => {
            check_type(&table.key, &file.key, &format!("{path}.key"))?;
            check_type(&table.value, &file.value, &format!("{path}.value"))
        }
        (table, file) if table == file => Ok(()),
        (table, file) => Err(Error::invalid(format!(
            "the column `{path}` has the type {file} here and {table} in earlier files; rewrite the files with one \
             type"
        ))),
    }
}

/// Refuses types that Spark reads as another type.
pub(super) fn check_arrow_type(field: &Field, path: &str) -> Result<()> {
    let inner = |child: &Field| check_arrow_type(child, &format!("{path}.{}", child.name()));
    let refuse = |what: &str, instead: &str| {
        Err(Error::invalid(format!(
            "the column `{path}` has {what}, which other clients do not read; rewrite the file with {instead}"
        )))
    };
    match field.data_type() {
        ArrowType::Timestamp(TimeUnit::Nanosecond, _) => refuse("timestamps in nanoseconds", "microseconds"),
        ArrowType::Float16 => refuse("half-precision numbers", "floats"),
        ArrowType::Struct(fields) => fields.iter().try_for_each(|child| inner(child)),
        ArrowType::List(child) | ArrowType::Map(child, _) => inner(child),
        _ => Ok(()),
    }
}

/// The columns of `schema`, all nullable: the next file may lack values that this one has in every row.
pub(super) fn nullable(schema: &StructType) -> StructType {
    let field = |field: &StructField| StructField {
        nullable: true,
        data_type: nullable_type(&field.data_type),
        ..field.clone()
    };
    StructType::new(schema.fields.iter().map(field).collect())
}

fn nullable_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Struct(inner) => DataType::Struct(Arc::new(nullable(inner))),
        DataType::Array(array) => {
            DataType::Array(Arc::new(ArrayType { element: nullable_type(&array.element), contains_null: true }))
        }
        DataType::Map(map) => DataType::Map(Arc::new(MapType {
            key: nullable_type(&map.key),
            value: nullable_type(&map.value),
            value_contains_null: true,
        })),
        other => other.clone(),
    }
}
