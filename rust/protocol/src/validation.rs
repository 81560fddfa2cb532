//! Checks the metadata of new tables, and changes of metadata.
//!
//! All checks are made before a file is written. `property` checks values of properties, `feature` what they need of
//! the protocol.
//!
//! PROTOCOL.md: "Change Metadata", "Schema Serialization Format", "Column Mapping", "Add CDC File".

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use crate::action::Metadata;
use crate::constraint;
use crate::error::{Error, Result};
use crate::property::{Properties, check_exclusive, check_manifests};
use crate::schema::evolve::{CURRENT_DEFAULT, Difference, differences};
use crate::schema::mapping::{ColumnMapping, FIELD_ID, MatchBy, PHYSICAL_NAME, field_id};
use crate::schema::widen::{TYPE_CHANGES, is_in_iceberg, is_widening};
use crate::schema::{DataType, StructField, StructType, identity, path};

/// The property that has the largest id of a column.
pub const MAX_COLUMN_ID: &str = "delta.columnMapping.maxColumnId";

/// Columns that the change data feed adds to those of the table.
const CHANGE_COLUMNS: [&str; 3] = ["_change_type", "_commit_version", "_commit_timestamp"];

/// The properties that record the commit that enabled in-commit timestamps, and its time.
const ENABLEMENT: [&str; 2] =
    ["delta.inCommitTimestampEnablementVersion", "delta.inCommitTimestampEnablementTimestamp"];

/// Refuses a schema, partitioning and properties that no table may have. Partition columns get the schema's
/// spelling.
///
/// # Errors
/// `Invalid`, naming the column.
pub fn check_new(
    schema: &StructType,
    partition_by: &mut [String],
    configuration: &BTreeMap<String, String>,
) -> Result<()> {
    check_whole(None, schema, partition_by, configuration)
}

/// As [`check_new`] for an overwrite that replaces the columns: a column that the table has already keeps its name, even an
/// invalid one.
///
/// # Errors
/// `Invalid`, naming the column.
pub fn check_replaced(before: &Metadata, schema: &StructType, after: &mut Metadata) -> Result<()> {
    let before_schema = before.schema()?;
    let table = TableBefore { schema: &before_schema, properties: Properties::of(before) };
    check_whole(Some(table), schema, &mut after.partition_columns, &after.configuration)
}

fn check_whole(
    table: Option<TableBefore<'_>>,
    schema: &StructType,
    partition_by: &mut [String],
    configuration: &BTreeMap<String, String>,
) -> Result<()> {
    check_schema(table, schema, Properties::new(configuration))?;
    for field in &schema.fields {
        // In an existing table this is damage; in a new one it is the caller's mistake.
        identity::Identity::of(field).map_err(|e| Error::invalid(e.message().to_owned()))?;
    }
    check_exclusive(configuration)?;
    check_manifests(configuration)?;
    check_partitioning(schema, partition_by)?;
    // Rules that were invalid before may stay, since another engine may evaluate them.
    let keeps_invalid = table.is_some_and(|before| constraint::check(before.schema, before.properties).is_err());
    if !keeps_invalid {
        constraint::check(schema, Properties::new(configuration))?;
    }
    if partition_by.len() == schema.fields.len() {
        return Err(Error::invalid("every column is a partition column; leave at least one for the data files"));
    }
    Ok(())
}

/// What a table has already it may keep.
#[derive(Clone, Copy)]
struct TableBefore<'a> {
    schema: &'a StructType,
    properties: Properties<'a>,
}

fn check_schema(table: Option<TableBefore<'_>>, schema: &StructType, properties: Properties<'_>) -> Result<()> {
    let before = table.map(|table| table.schema);
    if schema.fields.is_empty() && before.is_none_or(|before| !before.fields.is_empty()) {
        return Err(Error::invalid("a table needs at least one column"));
    }
    let mapping = properties.column_mapping_mode()?;
    check_fields(before, schema, "", mapping)?;
    let recorded_before = match table {
        Some(table) => table.properties.change_data_feed()?,
        None => false,
    };
    let is_kept = |f: &StructField| {
        recorded_before && before.is_some_and(|before| before.fields.iter().any(|k| k.name == f.name))
    };
    let taken = |f: &&StructField| CHANGE_COLUMNS.iter().any(|taken| f.name.eq_ignore_ascii_case(taken)) && !is_kept(f);
    if properties.change_data_feed()?
        && let Some(field) = schema.fields.iter().find(taken)
    {
        return Err(Error::invalid(format!(
            "the column name `{}` is reserved in a table with a change data feed (`delta.enableChangeDataFeed`); \
             rename it",
            field.name
        )));
    }
    check_mapping(schema, mapping, properties)
}

/// Refuses metadata that no table may have, and changes that would make existing files unreadable or wrong.
///
/// # Errors
/// `Invalid`, saying what and where.
pub fn check_change(before: &Metadata, after: &Metadata) -> Result<()> {
    let schema = after.schema().map_err(|e| Error::invalid(e.message().to_owned()))?;
    let schema_before = before.schema()?;
    check_schema(
        Some(TableBefore { schema: &schema_before, properties: Properties::of(before) }),
        &schema,
        Properties::of(after),
    )?;
    check_exclusive(&after.configuration)?;
    // What a table has already it may keep.
    if check_manifests(&before.configuration).is_ok() {
        check_manifests(&after.configuration)?;
    }
    check_partitioning(&schema, &mut after.partition_columns.clone())?;
    if after.partition_columns.len() == schema.fields.len()
        && schema_before.fields.len() > before.partition_columns.len()
    {
        return Err(Error::invalid("every column is a partition column then; leave at least one for the data files"));
    }
    if before.id != after.id {
        return Err(Error::invalid("a table keeps its id"));
    }
    let match_by = Properties::of(before).column_mapping_mode()?.match_by();
    if !has_same_partitioning(&schema_before, before, &schema, after, match_by) {
        return Err(Error::invalid("the partitioning of a table with files cannot be changed; write to another table"));
    }
    if !after.format.provider.eq_ignore_ascii_case("parquet") {
        return Err(Error::invalid(format!("data files are Parquet, not {}", after.format.provider)));
    }
    let (old, new) = (Properties::of(before), Properties::of(after));
    let modes = (old.column_mapping_mode()?, new.column_mapping_mode()?);
    if modes.0 != modes.1 && modes != (ColumnMapping::None, ColumnMapping::Name) {
        let hint = match modes.1 {
            ColumnMapping::None => "call `Table.drop_feature(\"columnMapping\")`",
            _ => "a table that has files can only go from none to name",
        };
        let (from, to) = (modes.0.as_str(), modes.1.as_str());
        return Err(Error::invalid(format!("the column mapping mode cannot go from {from} to {to}; {hint}")));
    }
    let largest = |p: Properties<'_>| p.max_column_id();
    if largest(new)? < largest(old)? {
        return Err(Error::invalid(format!(
            "`{MAX_COLUMN_ID}` cannot become smaller: old ids would be assigned again"
        )));
    }
    let [version, time] = ENABLEMENT;
    let is_half = |p: Properties<'_>| p.get(version).is_some() != p.get(time).is_some();
    if is_half(new) && !is_half(old) {
        return Err(Error::invalid(format!("`{version}` and `{time}` belong together; keep both or neither")));
    }
    check_steps(&schema_before, &schema, match_by, old, new)?;
    // A constraint that was invalid before may stay.
    let rules = constraint::check(&schema, new);
    if constraint::check(&schema_before, old).is_ok() { rules } else { Ok(()) }
}

/// Whether the same columns partition the table, even if they are renamed.
fn has_same_partitioning(
    schema_before: &StructType,
    before: &Metadata,
    schema: &StructType,
    after: &Metadata,
    match_by: MatchBy,
) -> bool {
    let columns = before.partition_columns.iter().zip(&after.partition_columns);
    before.partition_columns.len() == after.partition_columns.len()
        && columns.into_iter().all(|(old, new)| {
            let pair = schema_before.field(old).zip(schema.field(new));
            pair.is_some_and(|(old, new)| match_by.is_same(old, new))
        })
}

/// Checks names and column metadata at any depth. Fields that `before` has at the same place are not checked: files and
/// other clients use them already. Schemas nest at most `schema::json::MAX_DEPTH` deep.
fn check_fields(before: Option<&StructType>, schema: &StructType, above: &str, mapping: ColumnMapping) -> Result<()> {
    let mut seen = HashMap::new();
    for field in &schema.fields {
        let path = path_of(above, &field.name);
        let match_by = mapping.match_by();
        let old = before.and_then(|before| before.fields.iter().find(|old| is_known(old, field, match_by)));
        let is_kept = old.is_some_and(|old| old.name == field.name);
        let twice = seen.insert(field.name.to_lowercase(), is_kept);
        if twice.is_some_and(|both_kept| !both_kept || !is_kept) {
            let message = format!("the column `{path}` is there twice; names must differ in more than case");
            return Err(Error::invalid(message));
        }
        if !is_kept {
            check_name(&field.name, &path, mapping)?;
        }
        check_keys(old, field, &path, mapping)?;
        each_struct(&field.data_type, old.map(|old| &old.data_type), &mut |inner, before| {
            check_fields(before, inner, &path, mapping)
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
    match forbidden_character(name).filter(|_| mapping == ColumnMapping::None) {
        Some(bad) => Err(Error::invalid(format!(
            "the column name `{path}` has the character {bad:?}, which Delta allows only with column mapping; rename it, or \
             set the property delta.columnMapping.mode to name: properties={{\"delta.columnMapping.mode\": \"name\"}} of a \
             new table, set_properties of an existing one"
        ))),
        None => Ok(()),
    }
}

/// A character of a column name that Delta allows only with column mapping.
pub fn forbidden_character(name: &str) -> Option<char> {
    name.chars().find(|c| " ,;{}()\n\t=".contains(*c))
}

/// Whether two fields are the same column: by their ids if both have one, or else by name.
fn is_known(old: &StructField, field: &StructField, match_by: MatchBy) -> bool {
    match (match_by, field_id(old)) {
        (MatchBy::Id, Some(_)) => MatchBy::Id.is_same(old, field),
        _ => MatchBy::Name.is_same(old, field),
    }
}

/// Refuses new column metadata that have a meaning in Delta and are not supported here. Identities of new
/// tables are checked by [`check_new`], other uses of features by `feature`.
fn check_keys(old: Option<&StructField>, field: &StructField, path: &str, mapping: ColumnMapping) -> Result<()> {
    const JUDGED_AS_FEATURES: [&str; 3] = ["delta.generationExpression", "delta.identity.", "delta.invariants"];
    let is_new = |key: &&String| old.is_none_or(|old| !old.metadata.contains_key(*key));
    for key in field.metadata.keys().filter(|key| key.starts_with("delta.")).filter(is_new) {
        let is_mapping = key.starts_with("delta.columnMapping.");
        if (is_mapping && mapping != ColumnMapping::None) || JUDGED_AS_FEATURES.iter().any(|k| key.starts_with(k)) {
            continue;
        }
        let feature = match key.as_str() {
            _ if is_mapping => "columnMapping",
            TYPE_CHANGES => "typeWidening",
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

/// Visits the structs directly inside a type, each with the struct that `before` has at the same place.
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

/// Checks that every column has a positive id, unique and no larger than the property says, and a unique physical name.
fn check_mapping(schema: &StructType, mapping: ColumnMapping, properties: Properties<'_>) -> Result<()> {
    if mapping == ColumnMapping::None {
        return Ok(());
    }
    let largest = properties.max_column_id()?;
    let unset = || Error::invalid(format!("columns are mapped, so `{MAX_COLUMN_ID}` must be set"));
    let largest = largest.ok_or_else(unset)?;
    let (mut ids, mut names) = (HashMap::new(), HashMap::new());
    check_ids(schema, "", largest, &mut ids, &mut names)
}

fn check_ids(
    schema: &StructType,
    above: &str,
    largest: i32,
    ids: &mut HashMap<i32, String>,
    names: &mut HashMap<String, String>,
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
        each_struct(&field.data_type, None, &mut |inner, _| check_ids(inner, &path, largest, ids, names))?;
    }
    Ok(())
}

/// Checks each difference: existing files have a column by its name, or where columns are mapped by its id, and with its
/// type; a column that they lack is null in them.
fn check_steps(
    before: &StructType,
    after: &StructType,
    match_by: MatchBy,
    old: Properties<'_>,
    new: Properties<'_>,
) -> Result<()> {
    for difference in differences(before, after, match_by) {
        match difference {
            Difference::Dropped { path } | Difference::Renamed { path, .. } if match_by == MatchBy::Name => {
                return Err(Error::invalid(format!(
                    "the column `{}` would be gone; without column mapping columns cannot be dropped or renamed: set \
                     `delta.columnMapping.mode` to `name` first, as with \
                     `set_properties({{\"delta.columnMapping.mode\": \"name\"}})`",
                    path::print(&path)
                )));
            }
            Difference::Dropped { .. } | Difference::Renamed { .. } => {}
            Difference::Added { path, field } => check_added(&path, &field, match_by, old)?,
            Difference::Tightened { path } => {
                let path = path::print(&path);
                let message = format!("the column `{path}` may hold nulls already, so it stays nullable");
                return Err(Error::invalid(message));
            }
            Difference::Retyped { path, from, to } => check_type_change(&path, &from, &to, new)?,
        }
    }
    check_promises(before, after, match_by)?;
    if match_by == MatchBy::Id { check_physical_names_stay(before, after) } else { Ok(()) }
}

/// Refuses new metadata that promise something of a column's values: existing rows may break it, so it can only be set when
/// the table is created.
fn check_promises(before: &StructType, after: &StructType, match_by: MatchBy) -> Result<()> {
    const PROMISES: [(&str, &str); 7] = [
        ("delta.generationExpression", "generated"),
        ("delta.identity.start", "an identity"),
        ("delta.identity.step", "an identity"),
        ("delta.identity.allowExplicitInsert", "an identity"),
        ("delta.invariants", "checked by an invariant"),
        ("delta.identity.highWaterMark", "an identity"),
        (TYPE_CHANGES, ""),
    ];
    let key = |path: &str, field: &StructField| match match_by {
        MatchBy::Id => field_id(field).map_or_else(|| path.to_owned(), |id| id.to_string()),
        MatchBy::Name => path.to_owned(),
    };
    let mut old_keys = HashMap::new();
    before.each_field("", &mut |path, field| drop(old_keys.insert(key(path, field), field.metadata.clone())));
    let mut broken = None;
    after.each_field("", &mut |path, field| {
        let old = old_keys.get(&key(path, field));
        for (promise, what) in PROMISES {
            let (was, is) = (old.and_then(|old| old.get(promise)), field.metadata.get(promise));
            if is.is_none() || was == is {
                continue;
            }
            let why = match promise {
                TYPE_CHANGES => "would have another history of type changes".to_owned(),
                _ => format!("cannot become {what}: its existing values are not; create the table with such a column"),
            };
            broken.get_or_insert_with(|| format!("the column `{path}` {why} (`{promise}`)"));
        }
    });
    broken.map_or(Ok(()), |message| Err(Error::invalid(message)))
}

fn check_added(path: &[String], field: &StructField, match_by: MatchBy, old: Properties<'_>) -> Result<()> {
    let path = path::print(path);
    if !field.nullable {
        let message = format!("the new column `{path}` must be nullable: existing files do not have it");
        return Err(Error::invalid(message));
    }
    if field.metadata.contains_key(CURRENT_DEFAULT) {
        return Err(Error::invalid(format!(
            "the new column `{path}` cannot have a default: existing rows would have null; add it without"
        )));
    }
    let largest = old.max_column_id()?;
    match field_id(field).zip(largest) {
        Some((id, largest)) if match_by == MatchBy::Id && id <= largest => {
            Err(Error::invalid(format!("the new column `{path}` has the id {id}, which was assigned before")))
        }
        _ => Ok(()),
    }
}

fn check_type_change(path: &[String], from: &DataType, to: &DataType, new: Properties<'_>) -> Result<()> {
    let path = path::print(path);
    let widens = from.as_primitive().zip(to.as_primitive()).filter(|(from, to)| is_widening(from, to));
    let Some((narrow, wide)) = widens else {
        return Err(Error::invalid(format!("the column `{path}` cannot go from the type {from} to {to}")));
    };
    if !new.is_true("delta.enableTypeWidening")? {
        return Err(Error::invalid(format!(
            "the column `{path}` cannot go from the type {from} to {to} unless types may be widened: set \
             `delta.enableTypeWidening` to true first"
        )));
    }
    for key in ["delta.enableIcebergCompatV1", "delta.enableIcebergCompatV2", "delta.enableIcebergCompatV3"] {
        if new.is_true(key)? && !is_in_iceberg(narrow, wide) {
            return Err(Error::invalid(format!(
                "the column `{path}` cannot go from the type {from} to {to}: Iceberg has no such change, and the table \
                 is readable as Iceberg (`{key}`)"
            )));
        }
    }
    Ok(())
}

fn check_physical_names_stay(before: &StructType, after: &StructType) -> Result<()> {
    let mut names = HashMap::new();
    before.each_field("", &mut |_, field| {
        names.extend(field_id(field).zip(field.metadata.get(PHYSICAL_NAME).cloned()));
    });
    let mut other = None;
    after.each_field("", &mut |path, field| {
        let old_name = field_id(field).and_then(|id| names.get(&id));
        if old_name.is_some_and(|old_name| Some(old_name) != field.metadata.get(PHYSICAL_NAME)) {
            other.get_or_insert_with(|| path.to_owned());
        }
    });
    match other {
        Some(path) => Err(Error::invalid(format!("the column `{path}` has another `{PHYSICAL_NAME}` than before"))),
        None => Ok(()),
    }
}
