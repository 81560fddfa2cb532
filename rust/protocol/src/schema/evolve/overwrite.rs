//! The schema of a table after an overwrite that replaces the schema.
//!
//! PROTOCOL.md: "Column Mapping".

use std::sync::Arc;

use crate::schema::mapping::{FIELD_ID, NESTED_IDS, PHYSICAL_NAME};
use crate::schema::{ArrayType, DataType, MapType, StructType};

/// The metadata that an existing column keeps.
const KEPT: [&str; 4] = [FIELD_ID, PHYSICAL_NAME, NESTED_IDS, "comment"];

/// `given`, in which a column that `schema` has with the same type keeps its id, its physical name and its comment. Other
/// definitions of a column are removed together with the rows that they were for.
pub fn overwrite(schema: &StructType, given: &StructType) -> StructType {
    let mut after = given.clone();
    for field in &mut after.fields {
        let Some(old) = schema.field(&field.name) else { continue };
        let Some(data_type) = kept(&old.data_type, &field.data_type) else { continue };
        field.data_type = data_type;
        for key in KEPT {
            if let (Some(value), None) = (old.metadata.get(key), field.metadata.get(key)) {
                field.metadata.insert(key.to_owned(), value.clone());
            }
        }
    }
    after
}

/// The type, if it is the same except for the fields of structs.
fn kept(old: &DataType, new: &DataType) -> Option<DataType> {
    Some(match (old, new) {
        (DataType::Struct(old), DataType::Struct(new)) => DataType::Struct(Arc::new(overwrite(old, new))),
        (DataType::Array(old), DataType::Array(new)) => DataType::Array(Arc::new(ArrayType {
            element: kept(&old.element, &new.element)?,
            contains_null: new.contains_null,
        })),
        (DataType::Map(old), DataType::Map(new)) => DataType::Map(Arc::new(MapType {
            key: kept(&old.key, &new.key)?,
            value: kept(&old.value, &new.value)?,
            value_contains_null: new.value_contains_null,
        })),
        (old, new) if old == new => new.clone(),
        _ => return None,
    })
}
