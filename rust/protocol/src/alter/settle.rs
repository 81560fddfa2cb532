//! Completes every change of metadata: checks it, and derives the table features and properties that it needs.

use std::collections::BTreeMap;

use serde_json::Value;

use super::mentions::mentions;
use super::properties::constraint_name;
use super::step::{Altered, Before, RequestedChange};
use crate::action::Metadata;
use crate::error::{Error, Result};
use crate::feature;
use crate::property::Properties;
use crate::schema::assign::{Names, assign, assign_nested};
use crate::schema::char_length::Lengths;
use crate::schema::evolve::{Difference, differences, replace};
use crate::schema::mapping::{ColumnMapping, FIELD_ID, MatchBy};
use crate::schema::widen::Record;
use crate::schema::{DataType, StructField, StructType, is_same_name, json, path};
use crate::validation::{self, MAX_COLUMN_ID};

const STATS_COLUMNS: &str = "delta.dataSkippingStatsColumns";

/// Completes a requested change, and checks it.
pub(super) fn settle(
    before: Before<'_>,
    requested: RequestedChange,
    unique: &mut dyn FnMut() -> String,
) -> Result<Altered> {
    let RequestedChange { mut metadata, properties, clustering, operation, parameters } = requested;
    let old_schema = before.metadata.schema()?;
    let mapping = Properties::of(before.metadata).column_mapping_mode()?;
    let mut schema = json::parse(&metadata.schema_string)?;
    let maps = Properties::of(&metadata).column_mapping_mode()? != ColumnMapping::None;
    if mapping != ColumnMapping::None {
        // If a name or id is missing, a new one would hide the values that files have.
        mapping.physical_schema(&old_schema)?;
        if assign(&old_schema, 0, Names::Logical)?.0 != *old_schema {
            return Err(Error::corrupt(format!("a column has no `{FIELD_ID}` although the table maps columns")));
        }
    } else if maps {
        // The existing files have the columns under their logical names.
        let (named, _) = assign(&old_schema, 0, Names::Logical)?;
        schema = replace(&named, &schema);
    }
    schema = mapped(&schema, &mut metadata, unique)?;
    name_row_tracking_columns(&mut metadata.configuration, unique)?;
    let differences = differences(&old_schema, &schema, mapping.match_by());
    if mapping != ColumnMapping::None {
        follow_names(before, &mut metadata, &differences)?;
    }
    differences.iter().try_for_each(|difference| refuse_mentioned(before.metadata, &old_schema, difference))?;
    refuse_clustered(before, &schema)?;
    metadata.schema_string = json::to_json(&schema);
    validation::check_change(before.metadata, &metadata)?;
    check_char_lengths(&old_schema, &schema, mapping.match_by())?;
    let supported = feature::supported(before.protocol);
    let is_preview = supported.contains("typeWidening-preview") && !supported.contains("typeWidening");
    let record = Record { match_by: mapping.match_by(), version: is_preview.then_some(before.version) };
    schema = record.changes(&old_schema, &schema);
    // An unchanged schema keeps its text, as another client may have written it.
    metadata.schema_string = match schema == *old_schema {
        true => before.metadata.schema_string.clone(),
        false => json::to_json(&schema),
    };
    let protocol = feature::upgraded(before.protocol, (&old_schema, &schema), &properties)?;
    Ok(Altered { metadata, protocol, clustering, operation, parameters })
}

/// Gives a new table the ids and names that its properties ask for.
///
/// # Errors
/// `Corrupt` for a property that cannot be read, `Invalid` if there are no more ids.
pub fn name_new_columns(
    schema: &StructType,
    metadata: &mut Metadata,
    unique: &mut dyn FnMut() -> String,
) -> Result<StructType> {
    name_row_tracking_columns(&mut metadata.configuration, unique)?;
    mapped(schema, metadata, unique)
}

/// Where columns are mapped, gives each an id and a physical name, and records the largest id.
fn mapped(schema: &StructType, metadata: &mut Metadata, unique: &mut dyn FnMut() -> String) -> Result<StructType> {
    let properties = Properties::of(metadata);
    if properties.column_mapping_mode()? == ColumnMapping::None {
        return Ok(schema.clone());
    }
    let largest = properties.max_column_id()?.unwrap_or(0);
    let (mut schema, mut largest) = assign(schema, largest, Names::Unique(unique))?;
    if properties.is_true("delta.enableIcebergCompatV2")? || properties.is_true("delta.enableIcebergCompatV3")? {
        (schema, largest) = assign_nested(&schema, largest)?;
    }
    metadata.configuration.insert(MAX_COLUMN_ID.to_owned(), largest.to_string());
    Ok(schema)
}

/// Where row tracking is enabled, names the columns in which rewritten files keep ids; no other column has these names.
fn name_row_tracking_columns(
    configuration: &mut BTreeMap<String, String>,
    unique: &mut dyn FnMut() -> String,
) -> Result<()> {
    if Properties::new(configuration).is_true("delta.enableRowTracking")? {
        for (key, prefix) in [
            ("delta.rowTracking.materializedRowIdColumnName", "_row-id-col-"),
            ("delta.rowTracking.materializedRowCommitVersionColumnName", "_row-commit-version-col-"),
        ] {
            configuration.entry(key.to_owned()).or_insert_with(|| format!("{prefix}{}", unique()));
        }
    }
    Ok(())
}

/// Renames columns in the partitioning and in the list of columns with statistics.
fn follow_names(before: Before<'_>, metadata: &mut Metadata, differences: &[Difference]) -> Result<()> {
    if differences.is_empty() {
        return Ok(());
    }
    for difference in differences {
        match difference {
            Difference::Renamed { path, name } => {
                if let [top] = path.as_slice() {
                    let columns = before.metadata.partition_columns.iter().zip(&mut metadata.partition_columns);
                    columns.filter(|(old, _)| *old == top).for_each(|(_, new)| new.clone_from(name));
                }
            }
            Difference::Dropped { path } => {
                if let [top] = path.as_slice()
                    && before.metadata.partition_columns.contains(top)
                {
                    return Err(Error::invalid(format!(
                        "the table is partitioned by `{top}`, so it cannot be dropped"
                    )));
                }
            }
            _ => {}
        }
    }
    let Some(columns) = Properties::of(before.metadata).data_skipping_stats_columns()? else { return Ok(()) };
    if metadata.configuration.get(STATS_COLUMNS) != before.metadata.configuration.get(STATS_COLUMNS) {
        return Ok(());
    }
    let followed: Vec<String> =
        columns.into_iter().filter_map(|column| followed(column, differences)).map(|path| path::print(&path)).collect();
    metadata.configuration.insert(STATS_COLUMNS.to_owned(), followed.join(","));
    Ok(())
}

/// A path with the present names of its parts; `None` if a part was dropped.
fn followed(column: Vec<String>, differences: &[Difference]) -> Option<Vec<String>> {
    let mut now = column.clone();
    for difference in differences {
        match difference {
            Difference::Dropped { path } if is_below(&column, path) => return None,
            Difference::Renamed { path, name } if is_below(&column, path) => {
                if let Some(part) = path.len().checked_sub(1).and_then(|at| now.get_mut(at)) {
                    part.clone_from(name);
                }
            }
            _ => {}
        }
    }
    Some(now)
}

/// Whether a path is `above`, or leads inside it.
fn is_below(path: &[String], above: &[String]) -> bool {
    path.len() >= above.len() && path.iter().zip(above).all(|(a, b)| is_same_name(a, b))
}

/// Refuses to change a column that an expression mentions.
fn refuse_mentioned(metadata: &Metadata, old_schema: &StructType, difference: &Difference) -> Result<()> {
    let (path, what) = match difference {
        Difference::Dropped { path } => (path, "be dropped"),
        Difference::Renamed { path, .. } => (path, "be renamed"),
        Difference::Retyped { path, .. } => (path, "change its type"),
        Difference::Added { .. } | Difference::Tightened { .. } => return Ok(()),
    };
    let refuse = |by: String| {
        let path = path::print(path);
        Err(Error::invalid(format!("the column `{path}` cannot {what}: {by} mentions it")))
    };
    for (key, expression) in &metadata.configuration {
        if let Some(name) = constraint_name(key).filter(|_| mentions(expression, path)) {
            return refuse(format!("the constraint `{name}` ({expression})"));
        }
    }
    let mut generated = None;
    old_schema.each_field("", &mut |name, field| {
        let expression = field.metadata.get("delta.generationExpression").and_then(Value::as_str);
        if let Some(expression) = expression.filter(|expression| mentions(expression, path)) {
            generated.get_or_insert_with(|| format!("the generated column `{name}` ({expression})"));
        }
    });
    generated.map_or(Ok(()), refuse)
}

/// Refuses to drop a column by which the table is clustered.
fn refuse_clustered(before: Before<'_>, schema: &StructType) -> Result<()> {
    let mapping = Properties::of(before.metadata).column_mapping_mode()?;
    for column in before.clustering {
        if mapping.logical_path(schema, column).is_none() {
            let old_schema = before.metadata.schema()?;
            let shown = mapping.logical_path(&old_schema, column).unwrap_or_else(|| column.clone());
            return Err(Error::invalid(format!(
                "the table is clustered by `{}`, so it cannot be dropped; cluster it by others first (`cluster_by`)",
                path::print(&shown)
            )));
        }
    }
    Ok(())
}

/// The lengths of strings are in one string about the whole column. Checks that it still fits the fields inside, and that the
/// strings of existing files fit into the new lengths.
fn check_char_lengths(before: &StructType, after: &StructType, match_by: MatchBy) -> Result<()> {
    for field in &after.fields {
        let old = before.fields.iter().find(|old| match_by.is_same(old, field));
        if let (Some(old), Some(new)) = (old, Lengths::of(field).ok().flatten())
            && let Ok(lengths) = Lengths::of(old)
            && !has_room(&new, lengths.as_ref(), (&field.data_type, &old.data_type), match_by)
        {
            return Err(Error::invalid(format!(
                "the column `{}` may have longer strings already; give it lengths that are not shorter than before, or none",
                field.name
            )));
        }
        let was_read =
            before.fields.iter().find(|old| old.name == field.name).is_none_or(|old| Lengths::of(old).is_ok());
        if was_read && Lengths::of(field).is_err() {
            return Err(Error::unsupported(
                "charVarchar",
                format!(
                    "the column `{}` has strings of char or varchar inside, and deltic does not change what is inside \
                     such a column",
                    field.name
                ),
            ));
        }
    }
    Ok(())
}

/// Whether strings of the old lengths fit into the new ones. `types`: the new and the old type.
fn has_room(new: &Lengths, old: Option<&Lengths>, types: (&DataType, &DataType), match_by: MatchBy) -> bool {
    let part =
        |new: Option<&Lengths>, old: Option<&Lengths>, types| new.is_none_or(|new| has_room(new, old, types, match_by));
    match (new, types) {
        (Lengths::String(new), _) => matches!(old, Some(Lengths::String(old)) if new.most() >= old.most()),
        (Lengths::Array(new), (DataType::Array(after), DataType::Array(before))) => {
            let old = if let Some(Lengths::Array(old)) = old { Some(&**old) } else { None };
            part(Some(new), old, (&after.element, &before.element))
        }
        (Lengths::Map(key, value), (DataType::Map(after), DataType::Map(before))) => {
            let (old_key, old_value) = if let Some(Lengths::Map(key, value)) = old {
                (key.as_deref(), value.as_deref())
            } else {
                (None, None)
            };
            part(key.as_deref(), old_key, (&after.key, &before.key))
                && part(value.as_deref(), old_value, (&after.value, &before.value))
        }
        (Lengths::Struct(fields), (DataType::Struct(after), DataType::Struct(before))) => {
            fields.iter().all(|(at, new)| {
                let same = |field: &StructField| before.fields.iter().position(|old| match_by.is_same(old, field));
                let Some((field, place)) = after.fields.get(*at).and_then(|field| Some((field, same(field)?))) else {
                    return true;
                };
                let old = match old {
                    Some(Lengths::Struct(all)) => all.iter().find(|(at, _)| *at == place).map(|(_, old)| old),
                    _ => None,
                };
                let before = before.fields.get(place).map_or(&field.data_type, |old| &old.data_type);
                part(Some(new), old, (&field.data_type, before))
            })
        }
        // The type changes, which other checks judge.
        _ => true,
    }
}
