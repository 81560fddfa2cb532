//! ALTER TABLE on columns: add, rename, drop, change type, nullability and comment.

use serde_json::{Map, Value, json};

use super::step::{Before, RequestedChange};
use crate::error::{Error, Result};
use crate::property::Properties;
use crate::schema::evolve::{
    self, ColumnChange, Difference, Position, differences, drop_column, find, rename as renamed,
};
use crate::schema::mapping::ColumnMapping;
use crate::schema::{DataType, StructField, StructType, json as schema_json, path};

/// The requested change to another schema.
fn with_schema(
    before: Before<'_>,
    schema: &StructType,
    operation: &'static str,
    parameters: Vec<(&str, Value)>,
) -> RequestedChange {
    let mut metadata = before.metadata.clone();
    metadata.schema_string = schema_json::to_json(schema);
    let parameters = parameters.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    RequestedChange { metadata, properties: Default::default(), clustering: None, operation, parameters }
}

pub(super) fn add(before: Before<'_>, columns: &[StructField], after: Option<&str>) -> Result<RequestedChange> {
    if columns.is_empty() {
        return Err(Error::invalid("there is no column to add"));
    }
    let mut schema = (*before.metadata.schema()?).clone();
    let mut position = after.map(|column| Position::After(column.to_owned()));
    let mut described = Vec::new();
    for column in columns {
        let path = path::parse(&column.name)?;
        schema = evolve::add(&schema, column, position.as_ref())?;
        let found = find(&schema, &path)?;
        let mut parameters = Map::from_iter([("column".to_owned(), description(&found.path, &found.field))]);
        parameters.extend(position.as_ref().map(|position| ("position".to_owned(), json!(position.to_string()))));
        described.push(Value::Object(parameters));
        // The next one comes after this one, not before it.
        position = position.map(|_| Position::After(path::print(&found.path)));
    }
    Ok(with_schema(before, &schema, "ADD COLUMNS", vec![("columns", json!(json!(described).to_string()))]))
}

pub(super) fn rename(before: Before<'_>, column: &str, name: &str) -> Result<RequestedChange> {
    let schema = before.metadata.schema()?;
    let old = find(&schema, &path::parse(column)?)?.path;
    refuse_unmapped(before, &old, "renamed")?;
    let (schema, new) = renamed(&schema, &old, name)?;
    let parameters = vec![("oldColumnPath", json!(path::print(&old))), ("newColumnPath", json!(path::print(&new)))];
    Ok(with_schema(before, &schema, "RENAME COLUMN", parameters))
}

pub(super) fn drop_all(before: Before<'_>, columns: &[String]) -> Result<RequestedChange> {
    if columns.is_empty() {
        return Err(Error::invalid("there is no column to drop"));
    }
    let mut schema = (*before.metadata.schema()?).clone();
    let mut names = Vec::new();
    for column in columns {
        let path = find(&schema, &path::parse(column)?)?.path;
        refuse_unmapped(before, &path, "dropped")?;
        schema = drop_column(&schema, &path)?;
        names.push(path::print(&path));
    }
    Ok(with_schema(before, &schema, "DROP COLUMNS", vec![("columns", json!(json!(names).to_string()))]))
}

/// Refuses a change for which columns must be mapped: otherwise files have a column under its name.
fn refuse_unmapped(before: Before<'_>, path: &[String], what: &str) -> Result<()> {
    if Properties::of(before.metadata).column_mapping_mode()? != ColumnMapping::None {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the column `{}` cannot be {what}: data files have it under its name, unless columns are mapped; set \
         `delta.columnMapping.mode` to `name` first, as with `set_properties({{\"delta.columnMapping.mode\": \"name\"}})`",
        path::print(path)
    )))
}

pub(super) fn change(before: Before<'_>, column: &str, change: &ColumnChange) -> Result<RequestedChange> {
    if *change == ColumnChange::default() {
        return Err(Error::invalid(format!("no change of the column `{column}` is given; pass at least one")));
    }
    let schema = before.metadata.schema()?;
    let path = find(&schema, &path::parse(column)?)?.path;
    if change.default.is_some() && path.len() > 1 {
        let shown = path::print(&path);
        return Err(Error::invalid(format!("`{shown}` is inside a column, and only whole columns have defaults")));
    }
    let schema = evolve::alter(&schema, &path, change)?;
    let mut parameters = vec![("column", json!(description(&path, &find(&schema, &path)?.field).to_string()))];
    parameters.extend(change.position.as_ref().map(|position| ("position", json!(position.to_string()))));
    Ok(with_schema(before, &schema, "CHANGE COLUMN", parameters))
}

pub(super) fn replace_all(before: Before<'_>, given: &StructType) -> Result<RequestedChange> {
    let known = before.metadata.schema()?;
    let schema = evolve::replace(&known, given);
    refuse_ambiguous(before, &known, &schema)?;
    let described: Vec<Value> =
        schema.fields.iter().map(|field| description(std::slice::from_ref(&field.name), field)).collect();
    Ok(with_schema(before, &schema, "REPLACE COLUMNS", vec![("columns", json!(json!(described).to_string()))]))
}

/// Refuses a schema with one column less and one more, which may be the same column renamed or two different ones.
pub(super) fn refuse_ambiguous(before: Before<'_>, known: &StructType, schema: &StructType) -> Result<()> {
    let match_by = Properties::of(before.metadata).column_mapping_mode()?.match_by();
    let parent = |path: &[String]| path.split_last().map(|(_, above)| above.to_vec());
    let found = differences(known, schema, match_by);
    for difference in &found {
        let Difference::Dropped { path: dropped } = difference else { continue };
        let new = found.iter().find_map(|other| match other {
            Difference::Added { path, .. } if parent(path) == parent(dropped) => Some(path),
            _ => None,
        });
        if let Some(new) = new {
            return Err(Error::invalid(format!(
                "the new schema lacks the column `{}` and has the new column `{}`, which may be the same column \
                 renamed; use `rename_column`, or drop and add one after the other",
                path::print(dropped),
                path::print(new)
            )));
        }
    }
    Ok(())
}

/// A column in the form of the parameters of operations.
fn description(path: &[String], field: &StructField) -> Value {
    let kind = match &field.data_type {
        DataType::Struct(_) => "struct".to_owned(),
        DataType::Array(_) => "array".to_owned(),
        DataType::Map(_) => "map".to_owned(),
        other => other.to_string(),
    };
    json!({"name": path::print(path), "type": kind, "nullable": field.nullable, "metadata": field.metadata})
}
