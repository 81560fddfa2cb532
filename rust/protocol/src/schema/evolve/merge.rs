//! Merges two schemas: for a write with new columns, or for a caller who passes the complete new schema.
//!
//! PROTOCOL.md: "Type Widening".

use std::sync::Arc;

use crate::schema::widen::is_automatic;
use crate::schema::{ArrayType, DataType, MapType, StructField, StructType};

/// `schema` with the further columns of `incoming`. New columns come last in their struct and are nullable,
/// since existing files lack them. With `widens`, a type becomes that of the rows if that is wider. Everything else stays;
/// the write checks whether the rows fit. Names are compared without regard to case.
pub fn merge(schema: &StructType, incoming: &StructType, widens: bool) -> StructType {
    let mut merged = schema.clone();
    for new in &incoming.fields {
        match merged.index_of(&new.name).and_then(|at| merged.fields.get_mut(at)) {
            Some(field) => field.data_type = merged_type(&field.data_type, &new.data_type, widens),
            None => merged.fields.push(StructField { nullable: true, ..new.clone() }),
        }
    }
    merged
}

fn merged_type(existing: &DataType, incoming: &DataType, widens: bool) -> DataType {
    match (existing, incoming) {
        (DataType::Struct(existing), DataType::Struct(new)) => DataType::Struct(Arc::new(merge(existing, new, widens))),
        (DataType::Array(existing), DataType::Array(new)) => DataType::Array(Arc::new(ArrayType {
            element: merged_type(&existing.element, &new.element, widens),
            contains_null: existing.contains_null,
        })),
        (DataType::Map(existing), DataType::Map(new)) => DataType::Map(Arc::new(MapType {
            key: merged_type(&existing.key, &new.key, widens),
            value: merged_type(&existing.value, &new.value, widens),
            value_contains_null: existing.value_contains_null,
        })),
        (DataType::Primitive(from), DataType::Primitive(to)) if widens && is_automatic(from, to) => incoming.clone(),
        (existing, _) => existing.clone(),
    }
}

/// `given` as the next version of `schema`. Columns that `schema` has keep their spelling, and keep their metadata
/// if `given` has none, or the same values as strings, since schemas from elsewhere have only strings as
/// values.
pub fn replace(schema: &StructType, given: &StructType) -> StructType {
    let keep = |field: &StructField| {
        let Some(old) = schema.field(&field.name) else { return field.clone() };
        let mut field = StructField { name: old.name.clone(), ..field.clone() };
        for (key, value) in &old.metadata {
            let existing = field.metadata.entry(key.clone()).or_insert_with(|| value.clone());
            let printed = (!value.is_string()).then(|| value.to_string());
            if printed.is_some() && existing.as_str() == printed.as_deref() {
                *existing = value.clone();
            }
        }
        field.data_type = replaced_type(&old.data_type, &field.data_type);
        field
    };
    StructType::new(given.fields.iter().map(keep).collect())
}

fn replaced_type(before: &DataType, after: &DataType) -> DataType {
    match (before, after) {
        (DataType::Struct(old), DataType::Struct(new)) => DataType::Struct(Arc::new(replace(old, new))),
        (DataType::Array(old), DataType::Array(new)) => DataType::Array(Arc::new(ArrayType {
            element: replaced_type(&old.element, &new.element),
            contains_null: new.contains_null,
        })),
        (DataType::Map(old), DataType::Map(new)) => DataType::Map(Arc::new(MapType {
            key: replaced_type(&old.key, &new.key),
            value: replaced_type(&old.value, &new.value),
            value_contains_null: new.value_contains_null,
        })),
        (_, new) => new.clone(),
    }
}
