//! Gives columns the ids and the physical names by which column mapping finds them.
//!
//! Invariant: an id is assigned only once in the life of a table, and a column keeps its id and its physical name.
//!
//! PROTOCOL.md: "Column Mapping", "Writer Requirements for Column Mapping", "Writer Requirements for IcebergCompatV2".

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::mapping::{FIELD_ID, NESTED_IDS, PHYSICAL_NAME, field_id};
use super::{ArrayType, DataType, MapType, StructField, StructType};
use crate::error::{Error, Result};

/// The physical names for columns that have none.
pub enum Names<'a> {
    /// Their logical names: the files of an existing table have the columns under these.
    Logical,
    /// New ones, `col-` and a unique id, which no file has.
    Unique(&'a mut dyn FnMut() -> String),
}

/// Gives each column of `schema`, at any depth, an id above `largest` and a physical name, unless it has them. Returns the
/// largest id from then on.
///
/// # Errors
/// `Invalid` if there are no more ids.
pub fn assign(schema: &StructType, largest: i32, names: Names<'_>) -> Result<(StructType, i32)> {
    let mut assigner = Assigner { largest: largest.max(largest_id(schema)), names };
    let schema = assigner.fields(schema)?;
    Ok((schema, assigner.largest))
}

/// Gives the elements, keys and values inside columns ids, unless they have them, as Iceberg needs them. Returns the
/// largest id from then on.
///
/// # Errors
/// As [`assign`].
pub fn assign_nested(schema: &StructType, largest: i32) -> Result<(StructType, i32)> {
    let mut assigner = Assigner { largest: largest.max(largest_id(schema)), names: Names::Logical };
    let schema = assigner.nested_fields(schema)?;
    Ok((schema, assigner.largest))
}

/// `schema` without ids and physical names.
pub fn strip(schema: &StructType) -> StructType {
    let plain = |field: &StructField| {
        let mut field = field.clone();
        [FIELD_ID, PHYSICAL_NAME, NESTED_IDS, "parquet.field.id"]
            .iter()
            .for_each(|key| drop(field.metadata.remove(*key)));
        field
    };
    map_each(schema, &plain)
}

/// `schema` with each field, at any depth, replaced by the result of `map`.
pub(crate) fn map_each(schema: &StructType, map: &dyn Fn(&StructField) -> StructField) -> StructType {
    let mapped = map_fields(schema, &mut |field| Ok::<_, std::convert::Infallible>(map(field)));
    mapped.unwrap_or_else(|never| match never {})
}

/// The largest id in the schema, those of elements, keys and values included.
pub fn largest_id(schema: &StructType) -> i32 {
    let mut largest = 0;
    schema.each_field("", &mut |_, field| {
        let nested = field.metadata.get(NESTED_IDS).and_then(Value::as_object);
        let nested = nested.into_iter().flat_map(Map::values).filter_map(id_of);
        largest = field_id(field).into_iter().chain(nested).fold(largest, i32::max);
    });
    largest
}

/// How many ids of a schema are assigned.
pub fn count_ids(schema: &StructType) -> usize {
    let mut count = 0;
    schema.each_field("", &mut |_, field| {
        let nested = field.metadata.get(NESTED_IDS).and_then(Value::as_object).map_or(0, Map::len);
        count += usize::from(field_id(field).is_some()) + nested;
    });
    count
}

fn id_of(value: &Value) -> Option<i32> {
    value.as_i64().and_then(|id| i32::try_from(id).ok())
}

/// Assigns ids and physical names.
struct Assigner<'a> {
    largest: i32,
    names: Names<'a>,
}

impl Assigner<'_> {
    fn id(&mut self) -> Result<i32> {
        let more = self.largest.checked_add(1);
        self.largest = more.ok_or_else(|| Error::invalid("the table has assigned all column ids"))?;
        Ok(self.largest)
    }

    fn fields(&mut self, schema: &StructType) -> Result<StructType> {
        map_fields(schema, &mut |field| self.field(field))
    }

    fn field(&mut self, field: &StructField) -> Result<StructField> {
        let mut field = field.clone();
        if field_id(&field).is_none() {
            field.metadata.insert(FIELD_ID.to_owned(), json!(self.id()?));
        }
        if !field.metadata.get(PHYSICAL_NAME).is_some_and(Value::is_string) {
            let name = match &mut self.names {
                Names::Logical => field.name.clone(),
                Names::Unique(unique) => format!("col-{}", unique()),
            };
            field.metadata.insert(PHYSICAL_NAME.to_owned(), json!(name));
        }
        Ok(field)
    }

    fn nested_fields(&mut self, schema: &StructType) -> Result<StructType> {
        map_fields(schema, &mut |field| {
            let mut field = field.clone();
            let top = field.metadata.get(PHYSICAL_NAME).and_then(Value::as_str).unwrap_or(&field.name).to_owned();
            let known = field.metadata.get(NESTED_IDS).and_then(Value::as_object);
            let mut ids = known.cloned().unwrap_or_default();
            self.nested_type(&field.data_type, &top, &mut ids)?;
            if !ids.is_empty() {
                field.metadata.insert(NESTED_IDS.to_owned(), Value::Object(ids));
            }
            Ok(field)
        })
    }

    /// The arrays and maps between a column and the structs inside it. Fields of these structs have ids of their own.
    fn nested_type(&mut self, data_type: &DataType, at: &str, ids: &mut Map<String, Value>) -> Result<()> {
        let parts: Vec<(&str, &DataType)> = match data_type {
            DataType::Array(array) => vec![("element", &array.element)],
            DataType::Map(map) => vec![("key", &map.key), ("value", &map.value)],
            DataType::Primitive(_) | DataType::Struct(_) | DataType::Variant | DataType::Foreign(_) => Vec::new(),
        };
        for (part, data_type) in parts {
            let at = format!("{at}.{part}");
            if ids.get(&at).and_then(id_of).is_none() {
                ids.insert(at.clone(), json!(self.id()?));
            }
            self.nested_type(data_type, &at, ids)?;
        }
        Ok(())
    }
}

/// `schema` with each field, at any depth, replaced by the result of `map`: a field first, then those inside it.
fn map_fields<E>(
    schema: &StructType,
    map: &mut dyn FnMut(&StructField) -> Result<StructField, E>,
) -> Result<StructType, E> {
    let mut fields = Vec::with_capacity(schema.fields.len());
    for field in &schema.fields {
        let mut field = map(field)?;
        field.data_type = map_type(&field.data_type, map)?;
        fields.push(field);
    }
    Ok(StructType::new(fields))
}

fn map_type<E>(
    data_type: &DataType,
    map: &mut dyn FnMut(&StructField) -> Result<StructField, E>,
) -> Result<DataType, E> {
    Ok(match data_type {
        DataType::Struct(inner) => DataType::Struct(Arc::new(map_fields(inner, map)?)),
        DataType::Array(array) => DataType::Array(Arc::new(ArrayType {
            element: map_type(&array.element, map)?,
            contains_null: array.contains_null,
        })),
        DataType::Map(entries) => DataType::Map(Arc::new(MapType {
            key: map_type(&entries.key, map)?,
            value: map_type(&entries.value, map)?,
            value_contains_null: entries.value_contains_null,
        })),
        // The table does not name anything inside these types.
        DataType::Primitive(_) | DataType::Variant | DataType::Foreign(_) => data_type.clone(),
    })
}
