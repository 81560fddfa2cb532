//! `schemaString` to [`StructType`] and back.
//!
//! The text comes from storage: deeper nesting than [`MAX_DEPTH`] and missing members are
//! [`Kind::Corrupt`](crate::error::Kind::Corrupt) with the path of the field; unknown types are [`ForeignType`]s, so that
//! one column does not keep others from being read; recursion is limited. Serialising a schema of at most that depth and
//! parsing it gives the same schema (`schema::properties::schema_json_round_trips`).
//!
//! PROTOCOL.md: "Schema Serialization Format".

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{ArrayType, DataType, ForeignType, MapType, PrimitiveType, StructField, StructType};
use crate::error::{Error, Result};

/// How deep a schema may nest. Engines give up far earlier. A struct in a struct is three levels of JSON, and the JSON
/// parser stops at 128 of those: a larger limit here would let schemas be written that cannot be read again.
pub const MAX_DEPTH: usize = 40;

/// Reads a `schemaString`.
pub fn parse(text: &str) -> Result<StructType> {
    // serde_json itself refuses nesting beyond 128, before any recursion here begins.
    let value: Value =
        serde_json::from_str(text).map_err(|e| Error::corrupt("the schemaString is not JSON").caused_by(e))?;
    match parse_type(&value, "", 0)? {
        DataType::Struct(s) => Ok(Arc::unwrap_or_clone(s)),
        other => Err(Error::corrupt(format!("the schemaString is a {other}, not a struct"))),
    }
}

/// Serialises a schema as a `schemaString`.
pub fn to_json(schema: &StructType) -> String {
    struct_value(schema).to_string()
}

fn parse_type(value: &Value, path: &str, depth: usize) -> Result<DataType> {
    if depth > MAX_DEPTH {
        return Err(Error::corrupt(format!("the schema nests deeper than {MAX_DEPTH} levels at `{path}`")));
    }
    match value {
        Value::String(name) => Ok(known(name).unwrap_or_else(|| foreign(value.clone(), name))),
        Value::Object(map) => match map.get("type").and_then(Value::as_str) {
            Some("struct") => Ok(DataType::Struct(Arc::new(parse_struct(map, path, depth)?))),
            Some("array") => Ok(DataType::Array(Arc::new(ArrayType {
                element: parse_type(member(map, "elementType", path)?, &join(path, "element"), depth + 1)?,
                contains_null: map.get("containsNull").and_then(Value::as_bool).unwrap_or(true),
            }))),
            Some("map") => Ok(DataType::Map(Arc::new(MapType {
                key: parse_type(member(map, "keyType", path)?, &join(path, "key"), depth + 1)?,
                value: parse_type(member(map, "valueType", path)?, &join(path, "value"), depth + 1)?,
                value_contains_null: map.get("valueContainsNull").and_then(Value::as_bool).unwrap_or(true),
            }))),
            Some("udt") => Ok(DataType::Foreign(Arc::new(ForeignType {
                definition: value.clone(),
                stored_as: user_defined(map).map(|stored| parse_type(stored, path, depth + 1)).transpose()?,
            }))),
            // Some writers wrap a primitive: {"type": "integer"}.
            Some(name) => Ok(known(name).unwrap_or_else(|| foreign(value.clone(), name))),
            None => Err(Error::corrupt(format!("the type of `{path}` in the schema has no name"))),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            Err(Error::corrupt(format!("the type of `{path}` in the schema is neither a name nor an object")))
        }
    }
}

fn parse_struct(map: &Map<String, Value>, path: &str, depth: usize) -> Result<StructType> {
    let fields = member(map, "fields", path)?
        .as_array()
        .ok_or_else(|| Error::corrupt(format!("`fields` of the struct `{path}` in the schema is not an array")))?;
    let parse_field = |field: &Value| -> Result<StructField> {
        let field = field
            .as_object()
            .ok_or_else(|| Error::corrupt(format!("a field of the struct `{path}` in the schema is not an object")))?;
        let name = member(field, "name", path)?.as_str().ok_or_else(|| {
            Error::corrupt(format!("a field of `{path}` in the schema has a name that is not a string"))
        })?;
        let path = join(path, name);
        Ok(StructField {
            name: name.to_owned(),
            data_type: parse_type(member(field, "type", &path)?, &path, depth + 1)?,
            nullable: field.get("nullable").and_then(Value::as_bool).unwrap_or(true),
            metadata: field.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default(),
        })
    };
    fields.iter().map(parse_field).collect::<Result<_>>().map(StructType::new)
}

/// The type that a user-defined type is stored as, if its definition is valid: all other members are strings or null. Null
/// as stored type counts as unknown.
fn user_defined(map: &Map<String, Value>) -> Option<&Value> {
    let is_annotation = |(key, value): (&String, &Value)| key == "sqlType" || value.is_string() || value.is_null();
    map.get("sqlType").filter(|stored| !stored.is_null() && map.iter().all(is_annotation))
}

/// A type whose name is not one of Delta's; for intervals the stored type is known.
fn foreign(definition: Value, name: &str) -> DataType {
    let lower = name.to_ascii_lowercase();
    let words: Vec<&str> = lower.split_whitespace().collect();
    let (start, end) = match words[..] {
        ["interval", unit] => (unit, unit),
        ["interval", start, "to", end] => (start, end),
        _ => return DataType::Foreign(Arc::new(ForeignType { definition, stored_as: None })),
    };
    let family = |units: &[&str]| {
        let place = |unit: &str| units.iter().position(|known| *known == unit);
        place(start).zip(place(end)).is_some_and(|(start, end)| start <= end)
    };
    let stored_as = match () {
        () if family(&["year", "month"]) => Some(DataType::INTEGER),
        () if family(&["day", "hour", "minute", "second"]) => Some(DataType::LONG),
        () => None,
    };
    DataType::Foreign(Arc::new(ForeignType { definition, stored_as }))
}

/// A type of Delta, by its name.
pub(crate) fn known(name: &str) -> Option<DataType> {
    let lower = name.trim().to_ascii_lowercase();
    let primitive = match lower.as_str() {
        "string" => PrimitiveType::String,
        "long" | "bigint" => PrimitiveType::Long,
        "integer" | "int" => PrimitiveType::Integer,
        "short" | "smallint" => PrimitiveType::Short,
        "byte" | "tinyint" => PrimitiveType::Byte,
        "float" => PrimitiveType::Float,
        "double" => PrimitiveType::Double,
        "boolean" => PrimitiveType::Boolean,
        "binary" => PrimitiveType::Binary,
        "date" => PrimitiveType::Date,
        "timestamp" => PrimitiveType::Timestamp,
        "timestamp_ntz" => PrimitiveType::TimestampNtz,
        "void" | "null" => PrimitiveType::Void,
        "variant" => return Some(DataType::Variant),
        "decimal" => PrimitiveType::Decimal { precision: 10, scale: 0 },
        _ => parse_parametrised(name.trim(), &lower)?,
    };
    Some(DataType::Primitive(primitive))
}

/// `decimal(p,s)`, `char(n)`, `varchar(n)`, `geometry(crs)`, `geography(crs, algorithm)`.
fn parse_parametrised(name: &str, lower: &str) -> Option<PrimitiveType> {
    let (head, _) = lower.split_once('(').unwrap_or((lower, ""));
    let arguments = name.split_once('(').map(|(_, rest)| rest.strip_suffix(')')).unwrap_or(Some(""))?;
    match head.trim() {
        "decimal" => {
            let mut digits = arguments.split(',').map(str::trim);
            let precision: u8 = digits.next()?.parse().ok()?;
            let scale: u8 = digits.next().unwrap_or("0").parse().ok()?;
            if digits.next().is_some() {
                return None;
            }
            ((1..=38).contains(&precision) && scale <= precision).then_some(PrimitiveType::Decimal { precision, scale })
        }
        "char" | "varchar" => Some(PrimitiveType::String),
        // The name of a reference system may hold commas.
        "geometry" => Some(PrimitiveType::Geometry { crs: or_crs84(arguments) }),
        "geography" => {
            let (crs, algorithm) = arguments.rsplit_once(',').unwrap_or((arguments, "spherical"));
            Some(PrimitiveType::Geography { crs: or_crs84(crs), algorithm: algorithm.trim().to_owned() })
        }
        _ => None,
    }
}

fn or_crs84(crs: &str) -> String {
    let crs = crs.trim();
    if crs.is_empty() { "OGC:CRS84".to_owned() } else { crs.to_owned() }
}

fn member<'a>(map: &'a Map<String, Value>, key: &str, path: &str) -> Result<&'a Value> {
    map.get(key).ok_or_else(|| Error::corrupt(format!("`{key}` is missing at `{path}` in the schema")))
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn struct_value(schema: &StructType) -> Value {
    let fields = schema.fields.iter().map(
        |f| json!({"name": f.name, "type": type_value(&f.data_type), "nullable": f.nullable, "metadata": f.metadata}),
    );
    json!({"type": "struct", "fields": fields.collect::<Vec<_>>()})
}

fn type_value(data_type: &DataType) -> Value {
    match data_type {
        DataType::Primitive(p) => Value::String(p.to_string()),
        DataType::Variant => Value::String("variant".to_owned()),
        DataType::Foreign(foreign) => foreign.definition.clone(),
        DataType::Struct(s) => struct_value(s),
        DataType::Array(a) => {
            json!({"type": "array", "elementType": type_value(&a.element), "containsNull": a.contains_null})
        }
        DataType::Map(m) => json!({
            "type": "map", "keyType": type_value(&m.key), "valueType": type_value(&m.value),
            "valueContainsNull": m.value_contains_null,
        }),
    }
}
