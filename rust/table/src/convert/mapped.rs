//! Compares the columns of a file with those of a table that finds columns by Parquet field ids.

use std::collections::{BTreeMap, HashMap};

use arrow_schema::{DataType as ArrowType, Field, Fields, Schema};
use deltic_protocol::error::{Error, Result};
use deltic_protocol::schema::arrow::from_arrow_schema;
use deltic_protocol::schema::mapping::field_id;
use deltic_protocol::schema::{DataType, StructField, StructType};

use super::columns::check_arrow_type;
use crate::scan::read::parquet_id;

/// Refuses a file with a column that has no id, or another type than the table's column with that id. Columns that the table
/// has dropped are allowed.
///
/// # Errors
/// `Invalid` and `Unsupported`, naming the column.
pub(super) fn check_mapped(table: &StructType, file: &Fields, above: &str) -> Result<()> {
    let columns: HashMap<i32, &StructField> =
        table.fields.iter().filter_map(|column| Some((field_id(column)?, column))).collect();
    for field in file {
        let path = if above.is_empty() { field.name().clone() } else { format!("{above}.{}", field.name()) };
        let Some(id) = parquet_id(field) else {
            let message = format!(
                "the column `{path}` of the file has no field id, by which the columns of the table are found; have \
                 the files rewritten by the table's own writer"
            );
            return Err(Error::unsupported("files without field ids", message));
        };
        if let Some(column) = columns.get(&id) {
            check(&column.data_type, field, &path)?;
        }
    }
    Ok(())
}

/// Refuses a file that lacks one of these columns, which are given by name with their field ids.
///
/// # Errors
/// `Unsupported`, naming the column.
pub(super) fn check_stored(stored: &BTreeMap<String, i32>, file: &Fields) -> Result<()> {
    match stored.iter().find(|(_, id)| !file.iter().any(|field| has_id(field, **id))) {
        None => Ok(()),
        Some((name, _)) => {
            let message = format!(
                "the file does not have the column `{name}`: only the metadata of the Iceberg table says its value, as one by \
                 which the file was partitioned, and the Delta table is not partitioned by it; rewrite the data files of \
                 the Iceberg table first (rewrite_data_files)"
            );
            Err(Error::unsupported("partition columns that files lack", message))
        }
    }
}

fn has_id(field: &Field, id: i32) -> bool {
    parquet_id(field) == Some(id)
        || match field.data_type() {
            ArrowType::Struct(inner) => inner.iter().any(|field| has_id(field, id)),
            ArrowType::List(inner) | ArrowType::Map(inner, _) => has_id(inner, id),
            _ => false,
        }
}

fn check(table: &DataType, field: &Field, path: &str) -> Result<()> {
    match (table, field.data_type()) {
        (DataType::Struct(inner), ArrowType::Struct(children)) => check_mapped(inner, children, path),
        (DataType::Array(array), ArrowType::List(element)) => {
            check(&array.element, element, &format!("{path}.element"))
        }
        (DataType::Map(map), ArrowType::Map(entries, _)) => match entries.data_type() {
            ArrowType::Struct(parts) => {
                let types = [("key", &map.key), ("value", &map.value)];
                let mut both = types.into_iter().zip(parts);
                both.try_for_each(|((name, part), field)| check(part, field, &format!("{path}.{name}")))
            }
            _ => Err(Error::invalid(format!("the column `{path}` is a map without keys and values"))),
        },
        (table, _) => check_leaf(table, field, path),
    }
}

fn check_leaf(table: &DataType, field: &Field, path: &str) -> Result<()> {
    check_arrow_type(field, path)?;
    let plain = Schema::new(vec![Field::new(field.name(), field.data_type().clone(), true)]);
    let file = from_arrow_schema(&plain)?;
    match file.fields.first() {
        Some(file) if file.data_type == *table => Ok(()),
        Some(file) => {
            let message = format!(
                "the column `{path}` has the type {} in the file and {table} in the table, whose type was widened \
                 later; have the files rewritten by the table's own writer",
                file.data_type
            );
            Err(Error::unsupported("files with narrower types", message))
        }
        None => Err(Error::internal("a column came to nothing")),
    }
}
