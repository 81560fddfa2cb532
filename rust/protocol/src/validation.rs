//! Is this metadata one that a table may have, and one that it may be given after the one it has?
//!
//! Everything here is known before a file is written. Values of properties are checked by `property`, what they ask of
//! the protocol by `feature`.
//!
//! PROTOCOL.md: "Change Metadata", "Schema Serialization Format", "Column Mapping", "Add CDC File".

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use crate::action::Metadata;
use crate::constraint;
use crate::error::{Error, Result};
use crate::property::{Properties, check_exclusive};
use crate::schema::mapping::{ColumnMapping, FIELD_ID, PHYSICAL_NAME, field_id};
use crate::schema::{ArrayType, DataType, MapType, StructField, StructType};

/// Columns that a change feed has beside the table's own.
const CHANGE_COLUMNS: [&str; 3] = ["_change_type", "_commit_version", "_commit_timestamp"];

/// The commit that enabled times in commits, and its time.
const ENABLEMENT: [&str; 2] =
    ["delta.inCommitTimestampEnablementVersion", "delta.inCommitTimestampEnablementTimestamp"];

/// Refuses a schema, partitioning and properties that no table may have. Partition columns are given the schema's
/// spelling.
///
/// # Errors
/// `Invalid`, naming the column.
pub fn check_new(
    schema: &StructType,
    partition_by: &mut [String],
    configuration: &BTreeMap<String, String>,
) -> Result<()> {
    check_schema(None, schema, Properties::new(configuration))?;
    check_exclusive(configuration)?;
    check_partitioning(schema, partition_by)?;
    constraint::check(schema, Properties::new(configuration))?;
    if partition_by.len() == schema.fields.len() {
        return Err(Error::invalid("every column is a partition column; leave at least one for the data files"));
    }
    Ok(())
}

/// What a table has already, whoever made it, it may keep.
#[derive(Clone, Copy)]
struct Known<'a> {
    schema: &'a StructType,
    properties: Properties<'a>,
}

fn check_schema(known: Option<Known<'_>>, schema: &StructType, properties: Properties<'_>) -> Result<()> {
    let before = known.map(|known| known.schema);
    if schema.fields.is_empty() && before.is_none_or(|before| !before.fields.is_empty()) {
        return Err(Error::invalid("a table needs at least one column"));
    }
    let mapping = properties.column_mapping_mode()?;
    check_fields(before, schema, "", mapping)?;
    let recorded_before = match known {
        Some(known) => known.properties.change_data_feed()?,
        None => false,
    };
    let is_kept =
        |f: &StructField| recorded_before && before.is_some_and(|known| known.fields.iter().any(|k| k.name == f.name));
    let taken = |f: &&StructField| CHANGE_COLUMNS.iter().any(|taken| f.name.eq_ignore_ascii_case(taken)) && !is_kept(f);
    if properties.change_data_feed()?
        && let Some(field) = schema.fields.iter().find(taken)
    {
        return Err(Error::invalid(format!(
            "the column name `{}` is taken where changes are recorded (`delta.enableChangeDataFeed`); rename it",
            field.name
        )));
    }
    check_mapping(schema, mapping, properties)
}

/// Refuses metadata that no table may have, and steps that would make files that are there unreadable or wrong.
///
/// # Errors
/// `Invalid`, saying what and where.
pub fn check_change(before: &Metadata, after: &Metadata) -> Result<()> {
    let schema = after.schema().map_err(|e| Error::invalid(e.message().to_owned()))?;
    let known = before.schema()?;
    check_schema(Some(Known { schema: &known, properties: Properties::of(before) }), &schema, Properties::of(after))?;
    check_exclusive(&after.configuration)?;
    check_partitioning(&schema, &mut after.partition_columns.clone())?;
    if before.id != after.id {
        return Err(Error::invalid("a table keeps its id"));
    }
    // What could not be followed before may stay.
    if let Err(error) = constraint::check(&schema, Properties::of(after))
        && constraint::check(&known, Properties::of(before)).is_ok()
    {
        return Err(error);
    }
    if before.partition_columns != after.partition_columns {
        return Err(Error::invalid("the partitioning of a table with files cannot be changed; write to another table"));
    }
    if !after.format.provider.eq_ignore_ascii_case("parquet") {
        return Err(Error::invalid(format!("data files are Parquet, not {}", after.format.provider)));
    }
    let (old, new) = (Properties::of(before), Properties::of(after));
    let modes = (old.column_mapping_mode()?, new.column_mapping_mode()?);
    if modes.0 != modes.1 && modes != (ColumnMapping::None, ColumnMapping::Name) {
        return Err(Error::invalid(format!(
            "the column mapping mode cannot go from {} to {}",
            modes.0.as_str(),
            modes.1.as_str()
        )));
    }
    let key = "delta.columnMapping.maxColumnId";
    let largest = |p: Properties<'_>| p.get(key).and_then(|id| id.trim().parse::<i64>().ok());
    if largest(new) < largest(old) {
        return Err(Error::invalid(format!("`{key}` cannot become smaller: old ids would be given out again")));
    }
    let [version, time] = ENABLEMENT;
    let is_half = |p: Properties<'_>| p.get(version).is_some() != p.get(time).is_some();
    if is_half(new) && !is_half(old) {
        return Err(Error::invalid(format!("`{version}` and `{time}` belong together; keep both or neither")));
    }
    if modes.0 == ColumnMapping::None { keep_columns(&known, &schema, "") } else { Ok(()) }
}

/// A new schema with what the old one says of the columns that stay, comments and type changes among it, where the new
/// one says nothing of it, or says the same in text: schemas that come from elsewhere have no other values.
pub fn with_column_metadata(before: &StructType, after: &StructType) -> StructType {
    let keep = |field: &StructField| {
        let mut field = field.clone();
        if let Some(old) = before.fields.iter().find(|old| old.name == field.name) {
            for (key, value) in &old.metadata {
                let said = field.metadata.entry(key.clone()).or_insert_with(|| value.clone());
                let printed = (!value.is_string()).then(|| value.to_string());
                if printed.is_some() && said.as_str() == printed.as_deref() {
                    *said = value.clone();
                }
            }
            field.data_type = inside(&old.data_type, &field.data_type);
        }
        field
    };
    StructType::new(after.fields.iter().map(keep).collect())
}

fn inside(before: &DataType, after: &DataType) -> DataType {
    match (before, after) {
        (DataType::Struct(old), DataType::Struct(new)) => DataType::Struct(Arc::new(with_column_metadata(old, new))),
        (DataType::Array(old), DataType::Array(new)) => DataType::Array(Arc::new(ArrayType {
            element: inside(&old.element, &new.element),
            contains_null: new.contains_null,
        })),
        (DataType::Map(old), DataType::Map(new)) => DataType::Map(Arc::new(MapType {
            key: inside(&old.key, &new.key),
            value: inside(&old.value, &new.value),
            value_contains_null: new.value_contains_null,
        })),
        (_, new) => new.clone(),
    }
}

/// Names and column metadata at any depth. What `before` has at the same place is not judged: files and other clients
/// know it already. Schemas nest no deeper than they can be written (`schema::json::MAX_DEPTH`).
fn check_fields(before: Option<&StructType>, schema: &StructType, above: &str, mapping: ColumnMapping) -> Result<()> {
    let mut seen = HashMap::new();
    for field in &schema.fields {
        let path = path_of(above, &field.name);
        let known = before.and_then(|before| before.fields.iter().find(|known| known.name == field.name));
        let twice = seen.insert(field.name.to_lowercase(), known.is_some());
        if twice.is_some_and(|both_known| !both_known || known.is_none()) {
            return Err(Error::invalid(format!("the column `{path}` is there twice; names differ by more than case")));
        }
        if known.is_none() {
            check_name(&field.name, &path, mapping)?;
        }
        check_keys(known, field, &path, mapping)?;
        each_struct(&field.data_type, known.map(|known| &known.data_type), &mut |inner, known| {
            check_fields(known, inner, &path, mapping)
        })?;
    }
    Ok(())
}

fn check_name(name: &str, path: &str, mapping: ColumnMapping) -> Result<()> {
    if name.is_empty() {
        return Err(Error::invalid(format!("a column has no name (`{path}`); give it one")));
    }
    if name.contains('\0') {
        let path = path.replace('\0', "\\0");
        return Err(Error::invalid(format!("the column name `{path}` has a NUL character (\\0); rename it")));
    }
    let forbidden = |c: &char| mapping == ColumnMapping::None && " ,;{}()\n\t=".contains(*c);
    match name.chars().find(forbidden) {
        Some(bad) => Err(Error::invalid(format!(
            "the column name `{path}` has the character {bad:?}, which Delta allows only with column mapping; rename it"
        ))),
        None => Ok(()),
    }
}

/// Refuses new column metadata that means something to Delta and would not be followed. What generated columns,
/// identities, defaults and invariants ask is refused by `feature`.
fn check_keys(known: Option<&StructField>, field: &StructField, path: &str, mapping: ColumnMapping) -> Result<()> {
    const JUDGED_AS_FEATURES: [&str; 3] = ["delta.generationExpression", "delta.identity.", "delta.invariants"];
    let is_new = |key: &&String| known.is_none_or(|known| !known.metadata.contains_key(*key));
    for key in field.metadata.keys().filter(|key| key.starts_with("delta.")).filter(is_new) {
        let is_mapping = key.starts_with("delta.columnMapping.");
        if (is_mapping && mapping != ColumnMapping::None) || JUDGED_AS_FEATURES.iter().any(|k| key.starts_with(k)) {
            continue;
        }
        let feature = match key.as_str() {
            _ if is_mapping => "columnMapping",
            "delta.typeChanges" => "typeWidening",
            other => other,
        };
        return Err(Error::unsupported(
            feature,
            format!(
                "the column `{path}` has the metadata `{key}`, which deltic cannot give to a column (`{feature}`); take \
                 it out of the schema"
            ),
        ));
    }
    Ok(())
}

type VisitStruct<'a> = &'a mut dyn FnMut(&StructType, Option<&StructType>) -> Result<()>;

/// Visits the structs right inside a type, each with what `before` has in its place.
fn each_struct(data_type: &DataType, before: Option<&DataType>, visit: VisitStruct<'_>) -> Result<()> {
    match (data_type, before) {
        (DataType::Struct(inner), Some(DataType::Struct(before))) => visit(inner, Some(before)),
        (DataType::Struct(inner), _) => visit(inner, None),
        (DataType::Array(array), Some(DataType::Array(before))) => {
            each_struct(&array.element, Some(&before.element), visit)
        }
        (DataType::Array(array), _) => each_struct(&array.element, None, visit),
        (DataType::Map(map), Some(DataType::Map(before))) => {
            each_struct(&map.key, Some(&before.key), visit)?;
            each_struct(&map.value, Some(&before.value), visit)
        }
        (DataType::Map(map), _) => {
            each_struct(&map.key, None, visit)?;
            each_struct(&map.value, None, visit)
        }
        (DataType::Primitive(_) | DataType::Variant | DataType::Foreign(_), _) => Ok(()),
    }
}

fn path_of(above: &str, name: &str) -> String {
    if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") }
}

fn check_partitioning(schema: &StructType, partition_by: &mut [String]) -> Result<()> {
    let mut chosen = HashSet::new();
    for name in partition_by.iter_mut() {
        let Some(field) = schema.field(name) else {
            return Err(Error::invalid(format!("the partition column `{name}` is not in the schema")));
        };
        if field.data_type.as_primitive().is_none() {
            return Err(Error::invalid(format!(
                "the column `{name}` has the type {}; a table is partitioned by columns without children",
                field.data_type
            )));
        }
        if !chosen.insert(field.name.clone()) {
            return Err(Error::invalid(format!("the partition column `{name}` is there twice")));
        }
        name.clone_from(&field.name);
    }
    Ok(())
}

/// Ids are there, positive, given once and no larger than the property says; physical names are there and given once.
fn check_mapping(schema: &StructType, mapping: ColumnMapping, properties: Properties<'_>) -> Result<()> {
    if mapping == ColumnMapping::None {
        return Ok(());
    }
    let key = "delta.columnMapping.maxColumnId";
    let largest = properties.get(key).and_then(|id| id.trim().parse::<i32>().ok());
    let largest = largest.ok_or_else(|| Error::invalid(format!("columns are mapped, so `{key}` must be set")))?;
    let (mut ids, mut names) = (HashMap::new(), HashMap::new());
    check_ids(schema, "", largest, (&mut ids, &mut names))
}

type Given<'a, T> = &'a mut HashMap<T, String>;

fn check_ids(
    schema: &StructType,
    above: &str,
    largest: i32,
    (ids, names): (Given<'_, i32>, Given<'_, String>),
) -> Result<()> {
    for field in &schema.fields {
        let path = path_of(above, &field.name);
        let id = field_id(field).filter(|id| *id > 0);
        let id = id.ok_or_else(|| Error::invalid(format!("the column `{path}` has no valid `{FIELD_ID}`")))?;
        if id > largest {
            let message = format!("the column `{path}` has the id {id}, larger than `delta.columnMapping.maxColumnId`");
            return Err(Error::invalid(message));
        }
        if let Some(other) = ids.insert(id, path.clone()) {
            return Err(Error::invalid(format!("the columns `{other}` and `{path}` have one id, {id}")));
        }
        let physical = field.metadata.get(PHYSICAL_NAME).and_then(Value::as_str).filter(|name| !name.is_empty());
        let physical =
            physical.ok_or_else(|| Error::invalid(format!("the column `{path}` has no `{PHYSICAL_NAME}`")))?;
        if let Some(other) = names.insert(path_of(above, physical), path.clone()) {
            return Err(Error::invalid(format!("the columns `{other}` and `{path}` have one physical name")));
        }
        each_struct(&field.data_type, None, &mut |inner, _| check_ids(inner, &path, largest, (ids, names)))?;
    }
    Ok(())
}

/// Without column mapping every column stays, as it was, since files know it by its name and type; new ones are null in
/// old files.
fn keep_columns(before: &StructType, after: &StructType, above: &str) -> Result<()> {
    for old in &before.fields {
        let path = path_of(above, &old.name);
        let Some(new) = after.fields.iter().find(|f| f.name == old.name) else {
            return Err(Error::invalid(format!(
                "the column `{path}` would be gone; without column mapping columns cannot be dropped or renamed"
            )));
        };
        if old.nullable && !new.nullable {
            return Err(Error::invalid(format!("the column `{path}` may hold nulls already, so it stays nullable")));
        }
        keep_type(&old.data_type, &new.data_type, &path)?;
    }
    let is_new = |field: &&StructField| before.fields.iter().all(|old| old.name != field.name);
    match after.fields.iter().filter(is_new).find(|field| !field.nullable) {
        Some(field) => Err(Error::invalid(format!(
            "the new column `{}` must be nullable: files that are there do not have it",
            path_of(above, &field.name)
        ))),
        None => Ok(()),
    }
}

fn keep_type(before: &DataType, after: &DataType, path: &str) -> Result<()> {
    match (before, after) {
        (DataType::Struct(old), DataType::Struct(new)) => keep_columns(old, new, path),
        (DataType::Array(old), DataType::Array(new)) if old.contains_null <= new.contains_null => {
            keep_type(&old.element, &new.element, path)
        }
        (DataType::Map(old), DataType::Map(new)) if old.value_contains_null <= new.value_contains_null => {
            keep_type(&old.key, &new.key, path)?;
            keep_type(&old.value, &new.value, path)
        }
        (old, new) if old == new => Ok(()),
        (old, new) => Err(Error::invalid(format!("the column `{path}` cannot go from the type {old} to {new}"))),
    }
}
