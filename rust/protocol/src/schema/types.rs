//! The table schema's types, as PROTOCOL.md names them.
//!
//! Plain immutable data. Parsing and printing is in `json`, Arrow in `arrow`, physical names in `mapping`.
//!
//! PROTOCOL.md: "Schema Serialization Format".

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// A type without children.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PrimitiveType {
    /// UTF-8 string.
    String,
    /// 64-bit signed integer.
    Long,
    /// 32-bit signed integer.
    Integer,
    /// 16-bit signed integer.
    Short,
    /// 8-bit signed integer.
    Byte,
    /// 32-bit float.
    Float,
    /// 64-bit float.
    Double,
    /// Fixed point: precision 1 to 38, scale 0 to precision.
    Decimal {
        /// Total digits.
        precision: u8,
        /// Digits after the point.
        scale: u8,
    },
    /// True or false.
    Boolean,
    /// Bytes.
    Binary,
    /// Days since 1970-01-01, no zone.
    Date,
    /// Microseconds since the epoch, UTC-adjusted.
    Timestamp,
    /// Microseconds since 1970-01-01T00:00:00 of no particular zone (feature `timestampNtz`).
    TimestampNtz,
    /// Always null; never stored in data files.
    Void,
    /// Well-known-binary geometry with its coordinate reference system (feature `geospatial`).
    Geometry {
        /// As written in the schema, e.g. `OGC:CRS84`.
        crs: String,
    },
    /// Well-known-binary geography with its coordinate reference system and edge algorithm (feature `geospatial`).
    Geography {
        /// As written in the schema, e.g. `OGC:CRS84`.
        crs: String,
        /// As written in the schema, e.g. `spherical`.
        algorithm: String,
    },
}

/// Any type of a column or of something inside one.
#[derive(Debug, Clone, PartialEq)]
pub enum DataType {
    /// A type without children.
    Primitive(PrimitiveType),
    /// Named fields.
    Struct(Arc<StructType>),
    /// Elements of one type.
    Array(Arc<ArrayType>),
    /// Key-value pairs.
    Map(Arc<MapType>),
    /// Semi-structured value, stored as struct<metadata, value> (feature `variantType`).
    Variant,
    /// A type of another engine, or one that is not known.
    Foreign(Arc<ForeignType>),
}

/// A type of which at most the stored type is known: a user-defined type, an interval, or a name that deltic does not
/// know. Values are read as they are stored; if the stored type is not known, the column cannot be read, but others can.
#[derive(Debug, Clone, PartialEq)]
pub struct ForeignType {
    /// As the schema has it: a name, or an object.
    pub definition: Value,
    /// The type that files have for it.
    pub stored_as: Option<DataType>,
}

/// Named fields, in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StructType {
    /// The fields in order.
    pub fields: Vec<StructField>,
}

/// One named field.
#[derive(Debug, Clone, PartialEq)]
pub struct StructField {
    /// Logical name.
    pub name: String,
    /// Type of the values.
    pub data_type: DataType,
    /// Whether values may be null.
    pub nullable: bool,
    /// Column metadata: column mapping, type changes, generation expressions, comments.
    pub metadata: Map<String, Value>,
}

/// Elements of one type.
#[derive(Debug, Clone, PartialEq)]
pub struct ArrayType {
    /// Type of the elements.
    pub element: DataType,
    /// Whether elements may be null.
    pub contains_null: bool,
}

/// Key-value pairs.
#[derive(Debug, Clone, PartialEq)]
pub struct MapType {
    /// Type of the keys, never null.
    pub key: DataType,
    /// Type of the values.
    pub value: DataType,
    /// Whether values may be null.
    pub value_contains_null: bool,
}

/// Whether two names of columns, fields or aliases are the same: case does not count, in any alphabet.
pub fn is_same_name(one: &str, other: &str) -> bool {
    one == other || one.to_lowercase() == other.to_lowercase()
}

impl StructType {
    /// A struct of these fields.
    pub fn new(fields: Vec<StructField>) -> Self {
        Self { fields }
    }

    /// The field called `name`: with the exact spelling, or else the only one that differs in case.
    pub fn field(&self, name: &str) -> Option<&StructField> {
        self.index_of(name).and_then(|i| self.fields.get(i))
    }

    /// Position of [`StructType::field`].
    pub fn index_of(&self, name: &str) -> Option<usize> {
        if let Some(i) = self.fields.iter().position(|f| f.name == name) {
            return Some(i);
        }
        let lower = name.to_lowercase();
        let mut hits = self.fields.iter().enumerate().filter(|(_, f)| f.name.to_lowercase() == lower);
        match (hits.next(), hits.next()) {
            (Some((i, _)), None) => Some(i),
            _ => None,
        }
    }

    /// The error for a column that a caller names and the table does not have.
    pub fn unknown_column(&self, name: &str) -> Error {
        let names: Vec<&str> = self.fields.iter().map(|field| field.name.as_str()).collect();
        Error::invalid(format!("the table has no column `{name}`; it has {}", names.join(", ")))
    }
}

/// Refuses a column that a caller requests twice.
///
/// # Errors
/// `Invalid`, naming the column.
pub fn check_requested_once<'a>(mut columns: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut requested = HashSet::new();
    match columns.find(|name| !requested.insert(*name)) {
        Some(twice) => Err(Error::invalid(format!("the column `{twice}` is requested twice"))),
        None => Ok(()),
    }
}

/// The fields of a struct by name.
#[derive(Debug)]
pub struct FieldsByName<'a> {
    fields: &'a StructType,
    exact: HashMap<&'a str, &'a StructField>,
}

impl<'a> FieldsByName<'a> {
    /// As [`StructType::field`].
    pub fn field(&self, name: &str) -> Option<&'a StructField> {
        self.exact.get(name).copied().or_else(|| self.fields.field(name))
    }
}

impl StructType {
    /// The fields by name, for many lookups.
    pub fn by_name(&self) -> FieldsByName<'_> {
        let mut exact = HashMap::with_capacity(self.fields.len());
        for field in &self.fields {
            exact.entry(field.name.as_str()).or_insert(field);
        }
        FieldsByName { fields: self, exact }
    }

    /// Visits every field at any depth, with its path below `above`. Schemas nest at most
    /// [`MAX_DEPTH`](super::json::MAX_DEPTH) deep.
    pub(crate) fn each_field(&self, above: &str, visit: &mut dyn FnMut(&str, &StructField)) {
        for field in &self.fields {
            let path = if above.is_empty() { field.name.clone() } else { format!("{above}.{}", field.name) };
            visit(&path, field);
            field.data_type.each(&mut |data_type| {
                if let DataType::Struct(inner) = data_type {
                    inner.each_field(&path, visit);
                }
            });
        }
    }

    /// The path of the first field, at any depth, that meets a condition.
    pub(crate) fn first_field(&self, meets: &dyn Fn(&StructField) -> bool) -> Option<String> {
        let mut found = None;
        self.each_field("", &mut |path, field| {
            if found.is_none() && meets(field) {
                found = Some(path.to_owned());
            }
        });
        found
    }
}

impl StructField {
    /// A field without metadata.
    pub fn new(name: impl Into<String>, data_type: DataType, nullable: bool) -> Self {
        Self { name: name.into(), data_type, nullable, metadata: Map::new() }
    }
}

impl DataType {
    /// `string`.
    pub const STRING: Self = Self::Primitive(PrimitiveType::String);
    /// `long`.
    pub const LONG: Self = Self::Primitive(PrimitiveType::Long);
    /// `integer`.
    pub const INTEGER: Self = Self::Primitive(PrimitiveType::Integer);
    /// `double`.
    pub const DOUBLE: Self = Self::Primitive(PrimitiveType::Double);
    /// `boolean`.
    pub const BOOLEAN: Self = Self::Primitive(PrimitiveType::Boolean);
    /// `date`.
    pub const DATE: Self = Self::Primitive(PrimitiveType::Date);
    /// `timestamp`.
    pub const TIMESTAMP: Self = Self::Primitive(PrimitiveType::Timestamp);

    /// Visits this type, the types inside arrays and maps, and the stored types of foreign types; structs are
    /// visited but not entered.
    pub(crate) fn each(&self, visit: &mut dyn FnMut(&Self)) {
        visit(self);
        match self {
            Self::Array(array) => array.element.each(visit),
            Self::Map(map) => {
                map.key.each(visit);
                map.value.each(visit);
            }
            Self::Foreign(foreign) => foreign.stored_as.iter().for_each(|stored| stored.each(visit)),
            Self::Primitive(_) | Self::Struct(_) | Self::Variant => {}
        }
    }

    /// The primitive inside, if it is one.
    pub fn as_primitive(&self) -> Option<&PrimitiveType> {
        match self {
            Self::Primitive(p) => Some(p),
            Self::Struct(_) | Self::Array(_) | Self::Map(_) | Self::Variant | Self::Foreign(_) => None,
        }
    }

    /// The name of a type, at any depth, whose values cannot be read.
    pub fn unreadable(&self) -> Option<String> {
        match self {
            Self::Primitive(_) | Self::Variant => None,
            Self::Struct(inner) => inner.fields.iter().find_map(|field| field.data_type.unreadable()),
            Self::Array(array) => array.element.unreadable(),
            Self::Map(map) => map.key.unreadable().or_else(|| map.value.unreadable()),
            Self::Foreign(foreign) => match &foreign.stored_as {
                Some(stored) => stored.unreadable(),
                None => Some(foreign.to_string()),
            },
        }
    }
}

impl fmt::Display for PrimitiveType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::String => f.write_str("string"),
            Self::Long => f.write_str("long"),
            Self::Integer => f.write_str("integer"),
            Self::Short => f.write_str("short"),
            Self::Byte => f.write_str("byte"),
            Self::Float => f.write_str("float"),
            Self::Double => f.write_str("double"),
            Self::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            Self::Boolean => f.write_str("boolean"),
            Self::Binary => f.write_str("binary"),
            Self::Date => f.write_str("date"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::TimestampNtz => f.write_str("timestamp_ntz"),
            Self::Void => f.write_str("void"),
            Self::Geometry { crs } => write!(f, "geometry({crs})"),
            Self::Geography { crs, algorithm } => write!(f, "geography({crs}, {algorithm})"),
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Primitive(p) => p.fmt(f),
            Self::Struct(s) => {
                f.write_str("struct<")?;
                for (i, field) in s.fields.iter().enumerate() {
                    write!(f, "{}{}: {}", if i > 0 { ", " } else { "" }, field.name, field.data_type)?;
                }
                f.write_str(">")
            }
            Self::Array(a) => write!(f, "array<{}>", a.element),
            Self::Map(m) => write!(f, "map<{}, {}>", m.key, m.value),
            Self::Variant => f.write_str("variant"),
            Self::Foreign(foreign) => foreign.fmt(f),
        }
    }
}

/// A type with its article, as messages have it: `an integer`, `a long`.
pub fn with_article(data_type: impl fmt::Display) -> String {
    let name = data_type.to_string();
    let article = if name.starts_with(['a', 'e', 'i', 'o']) { "an" } else { "a" };
    format!("{article} {name}")
}

impl fmt::Display for ForeignType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |key: &str| self.definition.get(key).and_then(Value::as_str);
        match (&self.definition, text("type"), text("class").or_else(|| text("pyClass"))) {
            (Value::String(name), ..) => f.write_str(name),
            (_, Some(kind), Some(class)) => write!(f, "{kind}({class})"),
            (_, Some(kind), None) => f.write_str(kind),
            (other, None, _) => write!(f, "{other}"),
        }
    }
}
