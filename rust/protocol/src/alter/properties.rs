//! ALTER TABLE on properties, CHECK constraints, name and description.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::columns::refuse_ambiguous;
use super::step::{Before, MetadataChange, RequestedChange};
use crate::action::Metadata;
use crate::error::{Error, Result};
use crate::property::{Properties, check_settable, check_unset, is_instruction, stored};
use crate::schema::evolve::replace;
use crate::schema::json as schema_json;
use crate::schema::mapping::ColumnMapping;

/// The prefix of properties that are constraints.
const CONSTRAINTS: &str = "delta.constraints.";

fn requested(metadata: Metadata, operation: &'static str, parameters: Vec<(&str, Value)>) -> RequestedChange {
    let parameters: Map<String, Value> = parameters.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    RequestedChange { metadata, properties: BTreeMap::new(), clustering: None, operation, parameters }
}

pub(super) fn set(before: Before<'_>, properties: &BTreeMap<String, String>) -> Result<RequestedChange> {
    let mut metadata = before.metadata.clone();
    set_in(&mut metadata, properties)?;
    let parameter = json!(json!(properties).to_string());
    let requested = requested(metadata, "SET TBLPROPERTIES", vec![("properties", parameter)]);
    Ok(RequestedChange { properties: properties.clone(), ..requested })
}

fn set_in(metadata: &mut Metadata, properties: &BTreeMap<String, String>) -> Result<()> {
    check_settable(properties)?;
    if let Some(key) = properties.keys().find(|key| constraint_name(key).is_some()) {
        let message = format!(
            "`{key}` is a constraint, which the rows of the table have to satisfy first: add it with `Table.add_constraint`"
        );
        return Err(Error::invalid(message));
    }
    metadata.configuration.extend(stored(properties));
    Ok(())
}

pub(super) fn unset(before: Before<'_>, keys: &[String]) -> Result<RequestedChange> {
    let mut metadata = before.metadata.clone();
    unset_in(&mut metadata, keys)?;
    let parameters = vec![("properties", json!(json!(keys).to_string())), ("ifExists", json!(false))];
    Ok(requested(metadata, "UNSET TBLPROPERTIES", parameters))
}

fn unset_in(metadata: &mut Metadata, keys: &[String]) -> Result<()> {
    for key in keys {
        check_unset(key)?;
        let maps = Properties::of(metadata).column_mapping_mode()? != ColumnMapping::None;
        if key == "delta.columnMapping.mode" && maps {
            let message = "`delta.columnMapping.mode` cannot be unset: data files have the columns under their physical \
                           names; call `Table.drop_feature(\"columnMapping\")`";
            return Err(Error::invalid(message));
        }
        if is_instruction(key) || metadata.configuration.remove(key).is_none() {
            return Err(Error::invalid(format!("the property `{key}` is not set, so it cannot be unset")));
        }
    }
    Ok(())
}

pub(super) fn name(before: Before<'_>, name: Option<&str>) -> RequestedChange {
    let metadata = Metadata { name: name.map(str::to_owned), ..before.metadata.clone() };
    requested(metadata, "SET TABLE NAME", vec![("name", json!(name))])
}

pub(super) fn describe(before: Before<'_>, text: Option<&str>) -> RequestedChange {
    let metadata = Metadata { description: text.map(str::to_owned), ..before.metadata.clone() };
    match text {
        Some(text) => {
            let parameter = json!(json!({ "comment": text }).to_string());
            requested(metadata, "SET TBLPROPERTIES", vec![("properties", parameter)])
        }
        None => {
            let parameters = vec![("properties", json!(json!(["comment"]).to_string())), ("ifExists", json!(true))];
            requested(metadata, "UNSET TBLPROPERTIES", parameters)
        }
    }
}

/// The name of the constraint, if the property is one.
pub(super) fn constraint_name(key: &str) -> Option<&str> {
    let (head, name) = key.split_at_checked(CONSTRAINTS.len())?;
    head.eq_ignore_ascii_case(CONSTRAINTS).then_some(name)
}

/// The property that holds a constraint. Other writers look for the name in lower case.
pub fn constraint_key(name: &str) -> String {
    format!("{CONSTRAINTS}{}", name.to_lowercase())
}

pub(super) fn add_constraint(before: Before<'_>, name: &str, expression: &str) -> Result<RequestedChange> {
    if name.trim().is_empty() || expression.trim().is_empty() {
        return Err(Error::invalid("a constraint has a name and an expression"));
    }
    if let Some((key, other)) = find_constraint(before.metadata, name) {
        let existing = constraint_name(key).unwrap_or(key);
        return Err(Error::invalid(format!("there is a constraint `{existing}` already: {other}; drop it first")));
    }
    let key = constraint_key(name);
    let mut metadata = before.metadata.clone();
    metadata.configuration.insert(key.clone(), expression.to_owned());
    let requested = requested(metadata, "ADD CONSTRAINT", vec![("name", json!(name)), ("expr", json!(expression))]);
    Ok(RequestedChange { properties: BTreeMap::from([(key, expression.to_owned())]), ..requested })
}

pub(super) fn drop_constraint(before: Before<'_>, name: &str) -> Result<RequestedChange> {
    let Some((key, expression)) = find_constraint(before.metadata, name) else {
        let keys = before.metadata.configuration.keys();
        let names: Vec<String> = keys.filter_map(|key| constraint_name(key)).map(|name| format!("`{name}`")).collect();
        let has = if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
        return Err(Error::invalid(format!("the table has no constraint `{name}`: {has}")));
    };
    let mut metadata = before.metadata.clone();
    metadata.configuration.remove(key);
    let parameters = vec![("name", json!(name)), ("expr", json!(expression)), ("existed", json!("true"))];
    Ok(requested(metadata, "DROP CONSTRAINT", parameters))
}

fn find_constraint<'a>(metadata: &'a Metadata, name: &str) -> Option<(&'a String, &'a String)> {
    let is_named =
        |key: &str| constraint_name(key).is_some_and(|existing| existing.to_lowercase() == name.to_lowercase());
    metadata.configuration.iter().find(|(key, _)| is_named(key))
}

/// A change of several kinds of metadata at once, which has no operation of its own.
pub(super) fn set_all(before: Before<'_>, change: &MetadataChange) -> Result<RequestedChange> {
    let mut metadata = before.metadata.clone();
    metadata.name = change.name.clone().or(metadata.name);
    metadata.description = change.description.clone().or(metadata.description);
    if let Some(given) = &change.schema {
        let old_schema = before.metadata.schema()?;
        let schema = replace(&old_schema, given);
        if Properties::of(before.metadata).column_mapping_mode()? != ColumnMapping::None {
            refuse_ambiguous(before, &old_schema, &schema)?;
        }
        metadata.schema_string = schema_json::to_json(&schema);
    }
    unset_in(&mut metadata, &change.unset)?;
    set_in(&mut metadata, &change.properties)?;
    let requested = requested(metadata, "SET METADATA", Vec::new());
    Ok(RequestedChange { properties: change.properties.clone(), ..requested })
}
