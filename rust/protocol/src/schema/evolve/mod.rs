//! Steps from one schema to the next: columns are added, renamed, dropped and altered, at any depth.
//!
//! A path goes through structs by name, and through arrays and maps by `element`, `key` and `value`. A step
//! changes the schema and checks nothing else: `validation` decides whether a table may have the new schema.
//! Cases are in `tests/data/text/evolve.txt`.
//!
//! PROTOCOL.md: "Schema Serialization Format", "Column Mapping", "Type Widening".

use std::fmt;
use std::sync::Arc;

use serde_json::json;

use super::{ArrayType, DataType, MapType, StructField, StructType, is_same_name, path};
use crate::error::{Error, Result};

mod difference;
mod merge;
mod overwrite;

pub use difference::{Difference, differences};
pub use merge::{merge, replace};
pub use overwrite::overwrite;

/// Column metadata key of the comment.
pub const COMMENT: &str = "comment";
/// Column metadata key of the default.
pub const CURRENT_DEFAULT: &str = "CURRENT_DEFAULT";

/// Most columns that a message names.
const MAX_NAMED: usize = 20;

/// The position of a column among those of the same struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Position {
    /// Before all others.
    First,
    /// After the one at this path.
    After(String),
}

impl Position {
    /// Reads `first`, or `after` and a column.
    ///
    /// # Errors
    /// `Invalid` for anything else.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        match text.split_once(char::is_whitespace) {
            None if text.eq_ignore_ascii_case("first") => Ok(Self::First),
            Some((after, column)) if after.eq_ignore_ascii_case("after") => Ok(Self::After(column.trim().to_owned())),
            _ => Err(Error::invalid(format!("the position `{text}` is neither `first` nor `after` and a column"))),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => f.write_str("FIRST"),
            Self::After(column) => write!(f, "AFTER {column}"),
        }
    }
}

/// A change of a column; parts that are `None` stay.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ColumnChange {
    /// The type.
    pub data_type: Option<DataType>,
    /// Whether values may be null.
    pub nullable: Option<bool>,
    /// The comment; an empty one removes it.
    pub comment: Option<String>,
    /// The default, as SQL; `Some(None)` removes it.
    pub default: Option<Option<String>>,
    /// The place.
    pub position: Option<Position>,
}

/// A column, element, key or value that was found by its path.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundField {
    /// Its path in the schema's spelling.
    pub path: Vec<String>,
    /// The field; an element, key or value has no metadata.
    pub field: StructField,
}

/// Finds the column, element, key or value at a path.
///
/// # Errors
/// `Invalid` if there is none; the error lists what there is.
pub fn find(schema: &StructType, path: &[String]) -> Result<FoundField> {
    let mut at = StructField::new("", DataType::Struct(Arc::new(schema.clone())), false);
    let mut spelled = Vec::new();
    for name in path {
        let Some(found) = child(&at.data_type, name) else { return Err(missing(schema, path, &spelled, &at)) };
        spelled.push(found.name.clone());
        at = found;
    }
    if spelled.is_empty() {
        return Err(Error::invalid("no column is named"));
    }
    Ok(FoundField { path: spelled, field: at })
}

/// The field, element, key or value directly inside a type.
fn child(container: &DataType, name: &str) -> Option<StructField> {
    let part = |spelled: &str, data_type: &DataType, nullable: bool| {
        name.eq_ignore_ascii_case(spelled).then(|| StructField::new(spelled, data_type.clone(), nullable))
    };
    match container {
        DataType::Struct(inner) => inner.field(name).cloned(),
        DataType::Array(array) => part("element", &array.element, array.contains_null),
        DataType::Map(map) => {
            part("key", &map.key, false).or_else(|| part("value", &map.value, map.value_contains_null))
        }
        DataType::Primitive(_) | DataType::Variant | DataType::Foreign(_) => None,
    }
}

fn missing(schema: &StructType, path: &[String], found: &[String], at: &StructField) -> Error {
    let shown = path::print(path);
    if path.len() > 1 && schema.field(&path.join(".")).is_some() {
        let name = path.join(".");
        return Error::invalid(format!(
            "there is no column `{shown}`; the column that has a dot in its name is written in back-ticks: ``{name}``"
        ));
    }
    let inside = if found.is_empty() { "the table".to_owned() } else { format!("`{}`", path::print(found)) };
    let has = match &at.data_type {
        DataType::Struct(fields) => {
            let names = fields.fields.iter().take(MAX_NAMED).map(|field| format!("`{}`", field.name));
            let more = if fields.fields.len() > MAX_NAMED { ", …" } else { "" };
            format!("{inside} has {}{more}", names.collect::<Vec<_>>().join(", "))
        }
        DataType::Array(_) => format!("{inside} is an array, which has `element`"),
        DataType::Map(_) => format!("{inside} is a map, which has `key` and `value`"),
        other => format!("{inside} is of the type {other}, which has no columns inside"),
    };
    Error::invalid(format!("there is no column `{shown}`: {has}"))
}

/// Adds a column, whose name is its path, at `position` or at the end.
///
/// # Errors
/// `Invalid` if there is a column of that name, or no struct for it.
pub fn add(schema: &StructType, column: &StructField, position: Option<&Position>) -> Result<StructType> {
    let (parent, name) = parted(path::parse(&column.name)?)?;
    let above = struct_at(schema, &parent)?;
    edit_struct(schema, &above, &mut |fields| {
        if fields.fields.iter().any(|field| is_same_name(&field.name, &name)) {
            return Err(Error::invalid(format!("there is a column `{}` already", shown(&above, &name))));
        }
        let mut added = fields.fields.clone();
        let at = place(fields, &above, position)?.unwrap_or(added.len());
        added.insert(at, StructField { name: name.clone(), ..column.clone() });
        Ok(StructType::new(added))
    })
}

/// Renames a column. Returns its new path. `name` may include the path.
///
/// # Errors
/// `Invalid` if there is no such column, or one of the new name.
pub fn rename(schema: &StructType, column: &[String], name: &str) -> Result<(StructType, Vec<String>)> {
    let found = find(schema, column)?;
    let (above, old) = parted(found.path)?;
    let (given, name) = parted(path::parse(name)?)?;
    if !given.is_empty() && !is_same_path(&given, &above) {
        let (old, new) = (shown(&above, &old), shown(&given, &name));
        return Err(Error::invalid(format!("the column `{old}` cannot be moved to `{new}`: only its name can change")));
    }
    struct_at(schema, &above)?;
    let renamed = edit_struct(schema, &above, &mut |fields| {
        let taken = |field: &&StructField| field.name != old && is_same_name(&field.name, &name);
        if fields.fields.iter().any(|field| taken(&field)) || old == name {
            return Err(Error::invalid(format!("there is a column `{}` already", shown(&above, &name))));
        }
        let mut fields = fields.clone();
        fields.fields.iter_mut().filter(|field| field.name == old).for_each(|field| field.name.clone_from(&name));
        Ok(fields)
    })?;
    Ok((renamed, above.into_iter().chain([name]).collect()))
}

/// Drops a column.
///
/// # Errors
/// `Invalid` if there is no such column, or it is the last one of its struct.
pub fn drop_column(schema: &StructType, column: &[String]) -> Result<StructType> {
    let (above, name) = parted(find(schema, column)?.path)?;
    struct_at(schema, &above)?;
    edit_struct(schema, &above, &mut |fields| {
        if fields.fields.len() == 1 {
            let parent = if above.is_empty() { "the table".to_owned() } else { format!("`{}`", path::print(&above)) };
            let column = shown(&above, &name);
            return Err(Error::invalid(format!(
                "the column `{column}` is the only one of {parent}, and one must stay"
            )));
        }
        Ok(StructType::new(fields.fields.iter().filter(|field| field.name != name).cloned().collect()))
    })
}

/// Alters a column, or the type of an element, key or value.
///
/// # Errors
/// `Invalid` if there is no such column, or an element, key or value would get more than a type.
pub fn alter(schema: &StructType, column: &[String], change: &ColumnChange) -> Result<StructType> {
    let found = find(schema, column)?;
    let (above, name) = parted(found.path)?;
    edit_inside(schema, &above, &mut |container| match container {
        DataType::Struct(fields) => altered(fields, &above, &name, change).map(|s| DataType::Struct(Arc::new(s))),
        part => {
            let only_type = ColumnChange { data_type: change.data_type.clone(), ..ColumnChange::default() };
            if only_type != *change {
                let shown = shown(&above, &name);
                return Err(Error::invalid(format!(
                    "`{shown}` is not a column but inside one: only its type can change"
                )));
            }
            Ok(with_child(part, &name, change.data_type.as_ref()))
        }
    })
}

fn altered(fields: &StructType, above: &[String], name: &str, change: &ColumnChange) -> Result<StructType> {
    let mut others = fields.fields.clone();
    let at = others.iter().position(|field| field.name == name).ok_or_else(|| lost(name))?;
    let mut field = others.remove(at);
    field.data_type = change.data_type.clone().unwrap_or(field.data_type);
    field.nullable = change.nullable.unwrap_or(field.nullable);
    let mut say = |key: &str, value: Option<&str>| match value {
        Some(value) => drop(field.metadata.insert(key.to_owned(), json!(value))),
        None => drop(field.metadata.remove(key)),
    };
    if let Some(comment) = &change.comment {
        say(COMMENT, Some(comment.as_str()).filter(|comment| !comment.is_empty()));
    }
    if let Some(default) = &change.default {
        say(CURRENT_DEFAULT, default.as_deref());
    }
    let others = StructType::new(others);
    let is_itself = |given: Vec<String>| {
        parted(given).is_ok_and(|(parent, last)| {
            is_same_name(&last, name) && (parent.is_empty() || is_same_path(&parent, above))
        })
    };
    let at = match &change.position {
        // "After itself" means its present position.
        Some(Position::After(column)) if is_itself(path::parse(column)?) => at,
        position => place(&others, above, position.as_ref())?.unwrap_or(at),
    };
    let mut fields = others.fields;
    fields.insert(at, field);
    Ok(StructType::new(fields))
}

/// An array or a map with another type inside.
fn with_child(container: &DataType, part: &str, data_type: Option<&DataType>) -> DataType {
    let Some(data_type) = data_type else { return container.clone() };
    match container {
        DataType::Array(array) => DataType::Array(Arc::new(ArrayType { element: data_type.clone(), ..**array })),
        DataType::Map(map) if part == "key" => {
            DataType::Map(Arc::new(MapType { key: data_type.clone(), ..(**map).clone() }))
        }
        DataType::Map(map) => DataType::Map(Arc::new(MapType { value: data_type.clone(), ..(**map).clone() })),
        DataType::Struct(_) | DataType::Primitive(_) | DataType::Variant | DataType::Foreign(_) => container.clone(),
    }
}

/// A path without its last name, and the last name.
fn parted(mut path: Vec<String>) -> Result<(Vec<String>, String)> {
    let name = path.pop().ok_or_else(|| Error::invalid("no column is named"))?;
    Ok((path, name))
}

fn shown(above: &[String], name: &str) -> String {
    path::print(&above.iter().cloned().chain([name.to_owned()]).collect::<Vec<_>>())
}

fn is_same_path(a: &[String], b: &[String]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same_name(a, b))
}

/// The path of the struct at `parent`, in the schema's spelling.
fn struct_at(schema: &StructType, parent: &[String]) -> Result<Vec<String>> {
    if parent.is_empty() {
        return Ok(Vec::new());
    }
    let found = find(schema, parent)?;
    if !matches!(found.field.data_type, DataType::Struct(_)) {
        let (shown, data_type) = (path::print(&found.path), &found.field.data_type);
        return Err(Error::invalid(format!("`{shown}` is of the type {data_type}, and columns are in structs")));
    }
    Ok(found.path)
}

/// The index of a position in `fields`.
fn place(fields: &StructType, above: &[String], position: Option<&Position>) -> Result<Option<usize>> {
    let Some(position) = position else { return Ok(None) };
    let Position::After(column) = position else { return Ok(Some(0)) };
    let (given, name) = parted(path::parse(column)?)?;
    let at = fields.index_of(&name).filter(|_| given.is_empty() || is_same_path(&given, above));
    match at {
        Some(at) => Ok(Some(at + 1)),
        None => {
            let inside = if above.is_empty() { "the table".to_owned() } else { format!("`{}`", path::print(above)) };
            Err(Error::invalid(format!("there is no column `{column}` in {inside} to come after")))
        }
    }
}

type Edit<'a, T> = &'a mut dyn FnMut(&T) -> Result<T>;

/// Replaces the struct at a path that is there.
fn edit_struct(schema: &StructType, path: &[String], edit: Edit<'_, StructType>) -> Result<StructType> {
    edit_inside(schema, path, &mut |container| match container {
        DataType::Struct(fields) => edit(fields).map(|fields| DataType::Struct(Arc::new(fields))),
        other => Err(Error::internal(format!("{other} was taken for a struct"))),
    })
}

/// Replaces the type at a path that is there.
fn edit_inside(schema: &StructType, path: &[String], edit: Edit<'_, DataType>) -> Result<StructType> {
    match edit_type(&DataType::Struct(Arc::new(schema.clone())), path, edit)? {
        DataType::Struct(schema) => Ok(Arc::unwrap_or_clone(schema)),
        other => Err(Error::internal(format!("the schema became {other}"))),
    }
}

fn edit_type(container: &DataType, path: &[String], edit: Edit<'_, DataType>) -> Result<DataType> {
    let Some((name, rest)) = path.split_first() else { return edit(container) };
    let inside = child(container, name).ok_or_else(|| lost(name))?;
    let edited = edit_type(&inside.data_type, rest, edit)?;
    match container {
        DataType::Struct(fields) => {
            let mut fields = (**fields).clone();
            let field = fields.fields.iter_mut().find(|field| field.name == inside.name);
            field.ok_or_else(|| lost(name))?.data_type = edited;
            Ok(DataType::Struct(Arc::new(fields)))
        }
        part => Ok(with_child(part, &inside.name, Some(&edited))),
    }
}

fn lost(name: &str) -> Error {
    Error::internal(format!("the column `{name}` was found but does not exist"))
}
