//! Type widening: which types may replace narrower ones, and how a schema records it.
//!
//! PROTOCOL.md: "Type Widening", "Type Change Metadata".

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::mapping::MatchBy;
use super::{ArrayType, DataType, MapType, PrimitiveType, StructType};

/// Column metadata key of the types that a column had.
pub const TYPE_CHANGES: &str = "delta.typeChanges";

/// Whether every value of `from` is a value of `to`, and a table with the feature `typeWidening` may change the one to the
/// other.
pub fn is_widening(from: &PrimitiveType, to: &PrimitiveType) -> bool {
    use PrimitiveType::{Byte, Date, Decimal, Double, Float, Integer, Long, Short, TimestampNtz};
    match (from, to) {
        (Byte, Short | Integer | Long | Double)
        | (Short, Integer | Long | Double)
        | (Integer, Long | Double)
        | (Float, Double)
        | (Date, TimestampNtz) => true,
        (Byte | Short | Integer, Decimal { precision, scale }) => *precision >= 10_u8.saturating_add(*scale),
        (Long, Decimal { precision, scale }) => *precision >= 20_u8.saturating_add(*scale),
        (Decimal { precision: p, scale: s }, Decimal { precision, scale }) => {
            (p, s) != (precision, scale) && scale >= s && precision >= p && precision - p >= scale - s
        }
        _ => false,
    }
}

/// Whether a write of wider values may widen the column by itself: whole numbers stay whole numbers.
pub fn is_automatic(from: &PrimitiveType, to: &PrimitiveType) -> bool {
    use PrimitiveType::{Byte, Decimal, Double, Integer, Long, Short};
    let leaves_whole_numbers = matches!((from, to), (Byte | Short | Integer | Long, Decimal { .. } | Double));
    is_widening(from, to) && !leaves_whole_numbers
}

/// Whether Iceberg allows the change too, which tables that are readable as Iceberg need.
pub fn is_in_iceberg(from: &PrimitiveType, to: &PrimitiveType) -> bool {
    use PrimitiveType::{Byte, Date, Decimal, Double, Integer, Long, Short, TimestampNtz};
    match (from, to) {
        (Byte | Short | Integer | Long, Double | Decimal { .. }) | (Date, TimestampNtz) => false,
        (Decimal { scale: s, .. }, Decimal { scale, .. }) if s != scale => false,
        _ => is_widening(from, to),
    }
}

/// How the columns of two schemas are paired, and what is recorded of a change.
#[derive(Debug, Clone, Copy)]
pub struct Record {
    /// How a column is found in the other schema.
    pub match_by: MatchBy,
    /// The version that is made, which only the preview of the feature records.
    pub version: Option<u64>,
}

impl Record {
    /// `after` with a record of each type that differs from `before`.
    pub fn changes(self, before: &StructType, after: &StructType) -> StructType {
        let mut schema = after.clone();
        for field in &mut schema.fields {
            let Some(old) = before.fields.iter().find(|old| self.match_by.is_same(old, field)) else { continue };
            let mut changes = Vec::new();
            field.data_type = self.inside(&old.data_type, &field.data_type, "", &mut changes);
            if !changes.is_empty() {
                let known = field.metadata.get(TYPE_CHANGES).and_then(Value::as_array);
                let all: Vec<Value> = known.into_iter().flatten().cloned().chain(changes).collect();
                field.metadata.insert(TYPE_CHANGES.to_owned(), Value::Array(all));
            }
        }
        schema
    }

    /// `after` with the records of changes inside it. Changes of arrays and maps between the column and the structs in it
    /// are recorded in the column's metadata.
    fn inside(self, before: &DataType, after: &DataType, at: &str, changes: &mut Vec<Value>) -> DataType {
        let below = |part: &str| if at.is_empty() { part.to_owned() } else { format!("{at}.{part}") };
        match (before, after) {
            (DataType::Struct(old), DataType::Struct(new)) => DataType::Struct(Arc::new(self.changes(old, new))),
            (DataType::Array(old), DataType::Array(new)) => DataType::Array(Arc::new(ArrayType {
                element: self.inside(&old.element, &new.element, &below("element"), changes),
                contains_null: new.contains_null,
            })),
            (DataType::Map(old), DataType::Map(new)) => DataType::Map(Arc::new(MapType {
                key: self.inside(&old.key, &new.key, &below("key"), changes),
                value: self.inside(&old.value, &new.value, &below("value"), changes),
                value_contains_null: new.value_contains_null,
            })),
            (DataType::Primitive(from), DataType::Primitive(to)) if from != to => {
                changes.push(self.entry(from, to, at));
                after.clone()
            }
            (_, after) => after.clone(),
        }
    }

    fn entry(self, from: &PrimitiveType, to: &PrimitiveType, at: &str) -> Value {
        let mut entry = Map::new();
        let mut say = |key: &str, value: Value| drop(entry.insert(key.to_owned(), value));
        if let Some(version) = self.version {
            say("tableVersion", json!(version));
        }
        say("fromType", json!(from.to_string()));
        say("toType", json!(to.to_string()));
        if !at.is_empty() {
            say("fieldPath", json!(at));
        }
        Value::Object(entry)
    }
}
