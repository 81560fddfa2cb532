//! Table types to Arrow types and back.
//!
//! One Arrow type per table type: strings are `Utf8`, timestamps are microseconds (`UTC` or no zone), decimals are
//! `Decimal128`, variants are struct<metadata: binary, value: binary>. Every Arrow type that can be converted
//! without loss becomes a table type; others are refused, and the error says what to cast to. Geometries, geographies and
//! variants are marked by field metadata: `delta.type` has the table type, and GeoArrow's extension `geoarrow.wkb` the
//! reference system and the edges, for programs that know it. Other extension types are refused at every depth, except
//! those whose values mean what they are stored as. Column metadata belong to the definition of a table, not to the result
//! of a scan: rows have only metadata that describe their values.
//!
//! Invariant: apart from that, a schema is the same after conversion to Arrow and back
//! (`schema::properties::arrow_round_trips`).
//!
//! PROTOCOL.md: "Primitive Types".

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType as ArrowType, Field, Fields, Schema, TimeUnit};
use serde_json::{Map, Value};

use super::arrow_name::arrow_name;
use super::char_length::CHAR_VARCHAR_TYPE;
use super::json::MAX_DEPTH;
use super::{ArrayType, DataType, MapType, PrimitiveType, StructField, StructType, json};
use crate::error::{Error, Result};

/// Field metadata that keeps the table type of a column whose Arrow type is only its encoding.
const TABLE_TYPE: &str = "delta.type";

/// Field metadata with the name of an Arrow extension type.
const EXTENSION_NAME: &str = "ARROW:extension:name";
/// Field metadata with the parameters of an Arrow extension type.
const EXTENSION_METADATA: &str = "ARROW:extension:metadata";

/// Extension types whose values mean what they are stored as; and variants, which are a table type.
const TRANSPARENT: [&str; 6] = ["arrow.json", VARIANT[0], "arrow.uuid", "geoarrow.wkb", "geoarrow.wkt", VARIANT[1]];

/// Names of the extension type of variants.
const VARIANT: [&str; 2] = ["arrow.parquet.variant", "parquet.variant"];

/// Column metadata that describe values, in any table; all others define a column of one table.
const DESCRIBES: [&str; 2] = ["comment", CHAR_VARCHAR_TYPE];

/// Field metadata of rows: a JSON object of further metadata for the column. A program sets it if it knows which
/// keys a user has added; Arrow's metadata in general does not say where it comes from.
const USER_METADATA: &str = "deltic.user_metadata";
/// Prefixes of keys that define a column, and that no user may set.
const DEFINES: [&str; 8] =
    ["delta.", "identity.", "parquet.", "__", "CURRENT_DEFAULT", "EXISTS_DEFAULT", "GENERATION_EXPRESSION", "deltic."];

/// Column metadata that are not strings, which is all that Arrow's metadata can hold.
const TYPED_KEYS: [&str; 7] = [
    "delta.columnMapping.id",
    "delta.columnMapping.nested.ids",
    "delta.identity.start",
    "delta.identity.step",
    "delta.identity.highWaterMark",
    "delta.identity.allowExplicitInsert",
    "delta.typeChanges",
];

/// A table's definition as an Arrow schema, with all column metadata.
pub fn to_arrow_schema(schema: &StructType) -> Schema {
    Schema::new(to_arrow_fields(schema))
}

/// The Arrow schema of rows of `schema`, with only the column metadata that describe the values.
pub fn to_rows_schema(schema: &StructType) -> Schema {
    to_arrow_schema(&described(schema))
}

/// The Arrow schema of rows from which [`from_rows_schema`] makes `schema` again, with the metadata that users have added.
pub fn to_source_schema(schema: &StructType) -> Schema {
    let pack = |metadata: &Map<String, Value>| {
        let (mut packed, user): (Map<_, _>, Map<_, _>) =
            metadata.clone().into_iter().partition(|(key, _)| DESCRIBES.contains(&key.as_str()));
        if !user.is_empty() {
            packed.insert(USER_METADATA.to_owned(), Value::String(Value::Object(user).to_string()));
        }
        packed
    };
    to_arrow_schema(&with_metadata(schema, &pack))
}

/// `schema` with only the column metadata that describe values, at any depth.
fn described(schema: &StructType) -> StructType {
    let describing = |metadata: &Map<String, Value>| {
        let describes = DESCRIBES.iter().filter_map(|key| Some(((*key).to_owned(), metadata.get(*key)?.clone())));
        user_metadata(metadata).into_iter().chain(describes).collect()
    };
    with_metadata(schema, &describing)
}

/// Maps the metadata of a column to that of the result.
type MetadataChange<'c> = &'c dyn Fn(&Map<String, Value>) -> Map<String, Value>;

/// `schema` with other column metadata, at any depth.
fn with_metadata(schema: &StructType, change: MetadataChange<'_>) -> StructType {
    let of_type = |data_type: &DataType| type_with_metadata(data_type, change);
    let field = |field: &StructField| StructField {
        name: field.name.clone(),
        data_type: of_type(&field.data_type),
        nullable: field.nullable,
        metadata: change(&field.metadata),
    };
    StructType::new(schema.fields.iter().map(field).collect())
}

fn type_with_metadata(data_type: &DataType, change: MetadataChange<'_>) -> DataType {
    let of_type = |data_type: &DataType| type_with_metadata(data_type, change);
    match data_type {
        DataType::Struct(inner) => DataType::Struct(Arc::new(with_metadata(inner, change))),
        DataType::Array(array) => DataType::Array(Arc::new(ArrayType {
            element: of_type(&array.element),
            contains_null: array.contains_null,
        })),
        DataType::Map(map) => DataType::Map(Arc::new(MapType {
            key: of_type(&map.key),
            value: of_type(&map.value),
            value_contains_null: map.value_contains_null,
        })),
        DataType::Primitive(_) | DataType::Variant | DataType::Foreign(_) => data_type.clone(),
    }
}

/// The metadata of a column that a user has added, from [`USER_METADATA`].
fn user_metadata(metadata: &Map<String, Value>) -> Map<String, Value> {
    let given = metadata.get(USER_METADATA).and_then(Value::as_str);
    let mut given: Map<String, Value> = given.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    given.retain(|key, _| !DEFINES.iter().any(|defines| key.starts_with(defines)));
    given
}

/// The fields of [`to_arrow_schema`].
pub fn to_arrow_fields(schema: &StructType) -> Fields {
    schema.fields.iter().map(to_arrow_field).collect()
}

/// Casts values to another Arrow type. A value that does not fit is an error, not null.
///
/// # Errors
/// Those of Arrow's cast.
pub fn cast_strictly(values: &dyn Array, to: &ArrowType) -> Result<ArrayRef> {
    Ok(cast_with_options(values, to, &CastOptions { safe: false, ..CastOptions::default() })?)
}

/// One field with its name, nullability and column metadata.
pub fn to_arrow_field(field: &StructField) -> Field {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut metadata: HashMap<String, String> =
        field.metadata.iter().map(|(key, value)| (key.clone(), text(value))).collect();
    metadata.extend(explained(&field.data_type));
    Field::new(&field.name, to_arrow_type(&field.data_type), field.nullable).with_metadata(metadata)
}

/// An element, key or value.
fn to_inner_field(name: &str, data_type: &DataType, nullable: bool) -> Field {
    Field::new(name, to_arrow_type(data_type), nullable).with_metadata(explained(data_type))
}

/// The field metadata of a type whose Arrow type is only its encoding.
fn explained(data_type: &DataType) -> HashMap<String, String> {
    let primitive = match data_type {
        DataType::Primitive(primitive) => primitive,
        DataType::Foreign(foreign) => {
            let definition = foreign.definition.as_str().map_or_else(|| foreign.definition.to_string(), str::to_owned);
            return HashMap::from([(TABLE_TYPE.to_owned(), definition)]);
        }
        DataType::Variant => return HashMap::from([(TABLE_TYPE.to_owned(), data_type.to_string())]),
        DataType::Struct(_) | DataType::Array(_) | DataType::Map(_) => return HashMap::new(),
    };
    let extension = match primitive {
        PrimitiveType::Geometry { crs } => geoarrow(crs, None),
        // Without the name of its edges, readers would take a geography for a geometry.
        PrimitiveType::Geography { crs, algorithm } if EDGES.contains(&algorithm.as_str()) => {
            geoarrow(crs, Some(algorithm))
        }
        PrimitiveType::Geography { .. } => Vec::new(),
        _ => return HashMap::new(),
    };
    extension.into_iter().chain([(TABLE_TYPE.to_owned(), data_type.to_string())]).collect()
}

/// GeoArrow's interpolations of edges, which are the same as Delta's.
const EDGES: [&str; 5] = ["spherical", "vincenty", "thomas", "andoyer", "karney"];

/// The field metadata of GeoArrow's type for well-known binary.
///
/// A reference system is `authority:code`, `srid:number` (0 for none), or `projjson:property`; the last names a table
/// property, which a schema does not have, so that only [`TABLE_TYPE`] has it.
fn geoarrow(crs: &str, edges: Option<&str>) -> Vec<(String, String)> {
    let mut parameters = Map::new();
    match crs.split_once(':') {
        Some((kind, _)) if kind.eq_ignore_ascii_case("projjson") => {}
        Some((kind, "0")) if kind.eq_ignore_ascii_case("srid") => {}
        Some((kind, srid)) if kind.eq_ignore_ascii_case("srid") => {
            parameters.insert("crs".to_owned(), srid.into());
            parameters.insert("crs_type".to_owned(), "srid".into());
        }
        Some(_) => {
            parameters.insert("crs".to_owned(), crs.into());
            parameters.insert("crs_type".to_owned(), "authority_code".into());
        }
        None => {
            parameters.insert("crs".to_owned(), crs.into());
        }
    }
    if let Some(edges) = edges {
        parameters.insert("edges".to_owned(), edges.into());
    }
    let mut metadata = vec![(EXTENSION_NAME.to_owned(), "geoarrow.wkb".to_owned())];
    if !parameters.is_empty() {
        metadata.push((EXTENSION_METADATA.to_owned(), Value::Object(parameters).to_string()));
    }
    metadata
}

/// The Arrow type of values of `data_type`.
pub fn to_arrow_type(data_type: &DataType) -> ArrowType {
    match data_type {
        DataType::Primitive(p) => primitive_to_arrow(p),
        DataType::Struct(s) => ArrowType::Struct(to_arrow_fields(s)),
        DataType::Array(a) => ArrowType::List(Arc::new(to_inner_field("element", &a.element, a.contains_null))),
        DataType::Map(m) => {
            let entries = Fields::from(vec![
                to_inner_field("key", &m.key, false),
                to_inner_field("value", &m.value, m.value_contains_null),
            ]);
            ArrowType::Map(Arc::new(Field::new("key_value", ArrowType::Struct(entries), false)), false)
        }
        DataType::Variant => ArrowType::Struct(Fields::from(vec![
            Field::new("metadata", ArrowType::Binary, false),
            Field::new("value", ArrowType::Binary, false),
        ])),
        // What cannot be read has no values.
        DataType::Foreign(foreign) => foreign.stored_as.as_ref().map_or(ArrowType::Null, to_arrow_type),
    }
}

fn primitive_to_arrow(primitive: &PrimitiveType) -> ArrowType {
    match primitive {
        PrimitiveType::String => ArrowType::Utf8,
        PrimitiveType::Long => ArrowType::Int64,
        PrimitiveType::Integer => ArrowType::Int32,
        PrimitiveType::Short => ArrowType::Int16,
        PrimitiveType::Byte => ArrowType::Int8,
        PrimitiveType::Float => ArrowType::Float32,
        PrimitiveType::Double => ArrowType::Float64,
        PrimitiveType::Decimal { precision, scale } => ArrowType::Decimal128(*precision, scale.cast_signed()),
        PrimitiveType::Boolean => ArrowType::Boolean,
        PrimitiveType::Binary | PrimitiveType::Geometry { .. } | PrimitiveType::Geography { .. } => ArrowType::Binary,
        PrimitiveType::Date => ArrowType::Date32,
        PrimitiveType::Timestamp => ArrowType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        PrimitiveType::TimestampNtz => ArrowType::Timestamp(TimeUnit::Microsecond, None),
        PrimitiveType::Void => ArrowType::Null,
    }
}

/// The name of the table type for an Arrow type, for messages; if there is none, Arrow's name as its
/// documentation spells it (`uint64`).
pub fn table_type_name(arrow: &ArrowType) -> String {
    from_arrow_type(arrow, "", 0).map_or_else(|_| arrow_name(arrow), |data_type| data_type.to_string())
}

/// The table schema that an Arrow schema defines, with all column metadata, or
/// [`Kind::Invalid`](crate::error::Kind::Invalid) with what to cast or rename.
pub fn from_arrow_schema(schema: &Schema) -> Result<StructType> {
    check_extensions(schema)?;
    from_arrow_fields(schema.fields(), "", 0)
}

/// The schema of a table for rows of an Arrow schema. The table gets only the metadata that describe values:
/// the others belong to the table or the program that the rows come from.
///
/// # Errors
/// As [`from_arrow_schema`].
pub fn from_rows_schema(schema: &Schema) -> Result<StructType> {
    from_arrow_schema(schema).map(|schema| described(&schema))
}

/// Refuses columns of an extension type, at any depth, whose stored values would lose their meaning: ordinals, codes,
/// addresses.
///
/// # Errors
/// `Invalid`, naming the column and the extension type.
pub fn check_extensions(schema: &Schema) -> Result<()> {
    schema.fields().iter().try_for_each(|field| check_each(field, field.name(), 0, &check_extension))
}

/// Refuses columns of GeoArrow, at any depth, that the table does not have (`current`) and that are not marked as a geometry or
/// geography: as new columns they would be plain binary or strings, without their reference system.
///
/// # Errors
/// `Invalid`, naming the column and the extension type.
pub fn check_new_geometries(fields: &Fields, current: &StructType) -> Result<()> {
    fields.iter().try_for_each(|field| check_new_geometry(field, field.name(), current))
}

fn check_new_geometry(field: &Field, path: &str, siblings: &StructType) -> Result<()> {
    match siblings.field(field.name()) {
        None => check_each(field, path, 0, &check_geometry),
        Some(known) => check_new_geometries_inside(field.data_type(), path, &known.data_type),
    }
}

/// Of a column of the table: only fields inside it may be new.
fn check_new_geometries_inside(arrow: &ArrowType, path: &str, known: &DataType) -> Result<()> {
    match (arrow, known) {
        (ArrowType::Struct(fields), DataType::Struct(known)) => {
            fields.iter().try_for_each(|field| check_new_geometry(field, &format!("{path}.{}", field.name()), known))
        }
        (
            ArrowType::List(element)
            | ArrowType::LargeList(element)
            | ArrowType::ListView(element)
            | ArrowType::LargeListView(element)
            | ArrowType::FixedSizeList(element, _),
            DataType::Array(known),
        ) => check_new_geometries_inside(element.data_type(), path, &known.element),
        (ArrowType::Map(entries, _), DataType::Map(known)) => match entries.data_type() {
            ArrowType::Struct(fields) => fields
                .iter()
                .zip([&known.key, &known.value])
                .try_for_each(|(field, known)| check_new_geometries_inside(field.data_type(), path, known)),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// As [`check_extensions`], of one field at any depth of the column `path`.
///
/// # Errors
/// As [`check_extensions`].
pub fn check_extension_at(field: &Field, path: &str) -> Result<()> {
    check_each(field, path, 0, &check_extension)
}

fn check_extension(field: &Field, path: &str) -> Result<()> {
    let named = field.metadata().get(EXTENSION_NAME).map(String::as_str);
    if let Some(extension) = named.filter(|name| !name.is_empty() && !TRANSPARENT.contains(name)) {
        let storage = table_type_name(field.data_type());
        return Err(Error::invalid(format!(
            "column `{path}` has the Arrow extension type `{extension}`, which Delta does not have; cast it to its \
             storage type ({storage}) or to a string"
        )));
    }
    Ok(())
}

fn check_geometry(field: &Field, path: &str) -> Result<()> {
    let named = field.metadata().get(EXTENSION_NAME).filter(|name| name.starts_with("geoarrow."));
    if let Some(extension) = named.filter(|_| !field.metadata().contains_key(TABLE_TYPE)) {
        let storage = table_type_name(field.data_type());
        return Err(Error::invalid(format!(
            "column `{path}` has the Arrow extension type `{extension}`, and a new column of it would lose its reference \
             system: cast it to its storage type ({storage}), or make a column of well-known binary first, with \
             `deltic.create` and `deltic.field(name, \"geometry(EPSG:4326)\")`"
        )));
    }
    Ok(())
}

/// Calls `check` for a field and those inside it, with the paths of their columns.
fn check_each(field: &Field, path: &str, depth: usize, check: &dyn Fn(&Field, &str) -> Result<()>) -> Result<()> {
    check(field, path)?;
    match field.data_type() {
        // No table has a column that nests deeper.
        _ if depth > MAX_DEPTH => Ok(()),
        ArrowType::Struct(fields) => {
            fields.iter().try_for_each(|field| check_each(field, &format!("{path}.{}", field.name()), depth + 1, check))
        }
        ArrowType::Map(entries, _) => match entries.data_type() {
            ArrowType::Struct(fields) => fields.iter().try_for_each(|inner| check_each(inner, path, depth + 1, check)),
            _ => Ok(()),
        },
        ArrowType::List(inner)
        | ArrowType::LargeList(inner)
        | ArrowType::ListView(inner)
        | ArrowType::LargeListView(inner)
        | ArrowType::FixedSizeList(inner, _)
        | ArrowType::RunEndEncoded(_, inner) => check_each(inner, path, depth + 1, check),
        _ => Ok(()),
    }
}

fn from_arrow_fields(fields: &Fields, above: &str, depth: usize) -> Result<StructType> {
    let path_of = |field: &Field| match above {
        "" => field.name().clone(),
        above => format!("{above}.{}", field.name()),
    };
    let mut names = HashSet::with_capacity(fields.len());
    for field in fields {
        if !names.insert(field.name().to_lowercase()) {
            return Err(Error::invalid(format!(
                "there are two columns `{}` (case does not count); rename one",
                path_of(field)
            )));
        }
    }
    fields.iter().map(|f| from_arrow_field(f, &path_of(f), depth)).collect::<Result<_>>().map(StructType::new)
}

fn from_arrow_field(field: &Field, path: &str, depth: usize) -> Result<StructField> {
    let foreign = |key: &str| key.starts_with("PARQUET:") || key.starts_with("ARROW:") || key == TABLE_TYPE;
    let metadata: Map<String, Value> = field
        .metadata()
        .iter()
        .filter(|(key, _)| !foreign(key))
        .map(|(key, text)| {
            let typed = TYPED_KEYS.contains(&key.as_str()).then(|| serde_json::from_str(text).ok()).flatten();
            (key.clone(), typed.unwrap_or_else(|| Value::String(text.clone())))
        })
        .collect();
    let data_type = from_explained(field, path, depth + 1)?;
    Ok(StructField { name: field.name().clone(), data_type, nullable: field.is_nullable(), metadata })
}

/// Spark marks a part of a variant instead of the whole.
fn is_variant_of_spark(data_type: &ArrowType) -> bool {
    let ArrowType::Struct(parts) = data_type else { return false };
    let is_marked = |part: &Field| part.metadata().get("variant").is_some_and(|mark| mark == "true");
    parts.iter().any(|part| part.name() == "metadata" && is_marked(part))
}

/// The type of a column or of an element, key or value, which its metadata may mark; `name`: the column's path.
fn from_explained(field: &Field, name: &str, depth: usize) -> Result<DataType> {
    let data_type = from_arrow_type(field.data_type(), name, depth)?;
    if let Some(foreign) = field.metadata().get(TABLE_TYPE).filter(|text| json::known(text).is_none()) {
        return Err(Error::unsupported(
            format!("type {foreign}"),
            format!(
                "column `{name}` has the type {foreign}, which deltic reads as it is stored and does not write; to write what \
                 is stored, cast the data to a schema without the metadata `{TABLE_TYPE}` of that field"
            ),
        ));
    }
    if let (DataType::Primitive(PrimitiveType::Binary), Some(text)) = (&data_type, field.metadata().get(TABLE_TYPE))
        && let Some(DataType::Primitive(p @ (PrimitiveType::Geometry { .. } | PrimitiveType::Geography { .. }))) =
            json::known(text)
    {
        return Ok(DataType::Primitive(p));
    }
    if let DataType::Struct(inner) = &data_type {
        let value = |key: &str| field.metadata().get(key).map(String::as_str);
        let is_variant = value(TABLE_TYPE) == Some("variant")
            || value(EXTENSION_NAME).is_some_and(|name| VARIANT.contains(&name))
            || is_variant_of_spark(field.data_type());
        if is_variant && inner.field("metadata").is_some() && inner.field("value").is_some() {
            return Ok(DataType::Variant);
        }
    }
    Ok(data_type)
}

fn from_arrow_list(element: &Field, name: &str, depth: usize) -> Result<DataType> {
    let contains_null = element.is_nullable();
    let element = from_explained(element, name, depth + 1)?;
    Ok(DataType::Array(Arc::new(ArrayType { element, contains_null })))
}

fn from_arrow_map([key, value]: [&Field; 2], name: &str, depth: usize) -> Result<DataType> {
    Ok(DataType::Map(Arc::new(MapType {
        key: from_explained(key, name, depth + 1)?,
        value: from_explained(value, name, depth + 1)?,
        value_contains_null: value.is_nullable(),
    })))
}

fn from_arrow_type(arrow: &ArrowType, name: &str, depth: usize) -> Result<DataType> {
    if depth > MAX_DEPTH {
        return Err(Error::invalid(format!("column `{name}` nests deeper than {MAX_DEPTH} levels; flatten it")));
    }
    let refuse = |advice: &str| {
        let arrow = arrow_name(arrow);
        Err(Error::invalid(format!("column `{name}` has the Arrow type {arrow}, which Delta cannot hold; {advice}")))
    };
    let primitive = match arrow {
        ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View => PrimitiveType::String,
        ArrowType::Int64 | ArrowType::UInt32 => PrimitiveType::Long,
        ArrowType::Int32 | ArrowType::UInt16 => PrimitiveType::Integer,
        ArrowType::Int16 | ArrowType::UInt8 => PrimitiveType::Short,
        ArrowType::Int8 => PrimitiveType::Byte,
        ArrowType::Float16 | ArrowType::Float32 => PrimitiveType::Float,
        ArrowType::Float64 => PrimitiveType::Double,
        ArrowType::Boolean => PrimitiveType::Boolean,
        ArrowType::Binary | ArrowType::LargeBinary | ArrowType::BinaryView | ArrowType::FixedSizeBinary(_) => {
            PrimitiveType::Binary
        }
        ArrowType::Date32 | ArrowType::Date64 => PrimitiveType::Date,
        ArrowType::Timestamp(_, Some(_)) => PrimitiveType::Timestamp,
        ArrowType::Timestamp(_, None) => PrimitiveType::TimestampNtz,
        ArrowType::Decimal32(p, s) | ArrowType::Decimal64(p, s) | ArrowType::Decimal128(p, s) => {
            match u8::try_from(*s) {
                Ok(scale) if scale <= *p && (1..=38).contains(p) => PrimitiveType::Decimal { precision: *p, scale },
                _ => return refuse("cast it to a decimal of 1 to 38 digits with a scale from 0 to that many"),
            }
        }
        ArrowType::Dictionary(_, value) => return from_arrow_type(value, name, depth + 1),
        ArrowType::RunEndEncoded(_, value) => return from_arrow_type(value.data_type(), name, depth + 1),
        ArrowType::Struct(fields) => return Ok(DataType::Struct(Arc::new(from_arrow_fields(fields, name, depth)?))),
        ArrowType::List(element)
        | ArrowType::LargeList(element)
        | ArrowType::ListView(element)
        | ArrowType::LargeListView(element)
        | ArrowType::FixedSizeList(element, _) => {
            return from_arrow_list(element, name, depth);
        }
        ArrowType::Map(entries, _) => match entries.data_type() {
            ArrowType::Struct(fields) if fields.len() == 2 => {
                return from_arrow_map([&fields[0], &fields[1]], name, depth);
            }
            _ => return refuse("its entries are not key and value"),
        },
        ArrowType::UInt64 => return refuse("cast it to long or decimal(20,0)"),
        ArrowType::Time32(_) => return refuse("cast it to integer or string"),
        ArrowType::Time64(_) | ArrowType::Duration(_) => return refuse("cast it to long or string"),
        ArrowType::Interval(_) => {
            return refuse("store its parts (months, days, nanoseconds) as columns of integers");
        }
        ArrowType::Decimal256(..) => return refuse("cast it to a decimal of at most 38 digits"),
        ArrowType::Null => return refuse("give the column a type"),
        ArrowType::Union(..) => return refuse("split it into one column per member"),
    };
    Ok(DataType::Primitive(primitive))
}
