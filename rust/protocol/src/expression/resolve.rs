//! Finds the column a name means: exact spelling first, else the only one that differs in case.

use std::borrow::Borrow;

use super::ast::Name;
use super::column::Column;
use crate::error::{Error, Result};
use crate::schema::{DataType, StructType};

/// How many similar names an error suggests.
const MAX_SUGGESTIONS: usize = 3;
/// Longest name compared letter by letter for a suggestion.
const MAX_COMPARED_LENGTH: usize = 64;
/// Most columns that are all named where none is similar.
const MAX_LISTED: usize = 8;
/// Most names looked at for a suggestion.
const MAX_CANDIDATES: usize = 2000;

pub(crate) fn resolve(schema: &StructType, path: &[String]) -> Result<Column> {
    let (first, fields) = path.split_first().ok_or_else(|| Error::invalid("a column's name is empty"))?;
    let index = schema.index_of(first).ok_or_else(|| unknown(schema, &[], first))?;
    let column = schema.fields.get(index).ok_or_else(|| unknown(schema, &[], first))?;
    let mut resolved = vec![column.name.clone()];
    let mut data_type = &column.data_type;
    for name in fields {
        let DataType::Struct(inner) = data_type else {
            let parent = Name(resolved);
            return Err(Error::invalid(match data_type {
                DataType::Array(_) | DataType::Map(_) | DataType::Variant | DataType::Foreign(_) => {
                    format!("a filter cannot look inside column {parent} of type {data_type}")
                }
                DataType::Primitive(_) | DataType::Struct(_) => {
                    let whole = Name(vec![path.join(".")]);
                    format!(
                        "column {parent} of type {data_type} has no field `{name}`; a column of that whole name is written {whole}"
                    )
                }
            }));
        };
        let field = inner.field(name).ok_or_else(|| unknown(inner, &resolved, name))?;
        resolved.push(field.name.clone());
        data_type = &field.data_type;
    }
    Ok(Column { path: resolved, index, data_type: data_type.clone() })
}

fn unknown(schema: &StructType, parent: &[String], name: &str) -> Error {
    let lower = name.to_lowercase();
    if parent.is_empty() && (lower == "_metadata" || lower.starts_with("_metadata.")) {
        return Error::invalid(format!(
            "there is no column `{name}`; columns under `_metadata` can be read but not used in a filter: read them, \
             and filter the resulting rows"
        ));
    }
    let what = if parent.is_empty() {
        format!("there is no column `{name}`")
    } else {
        format!("column {} has no field `{name}`", Name(parent.to_vec()))
    };
    let alike = schema.fields.iter().filter(|field| field.name.to_lowercase() == lower).count();
    if alike > 1 {
        return Error::invalid(format!("{what}, and {alike} differ from it in case only; spell it exactly"));
    }
    match (nearest_column(schema, name), schema.fields.len()) {
        (Some(names), _) => Error::invalid(format!("{what}; {names}")),
        (None, 0) => Error::invalid(format!("{what}, there are none at all")),
        (None, 1..=MAX_LISTED) => {
            let names: Vec<String> = schema.fields.iter().map(|f| Name(vec![f.name.clone()]).to_string()).collect();
            Error::invalid(format!("{what}; there are {}", names.join(", ")))
        }
        (None, count) => Error::invalid(format!("{what}, and none of the {count} is spelled like it")),
    }
}

/// The error that there is no column of this name, if a value may be meant; `hint` says how to write the value.
pub(crate) fn unknown_value(schema: &StructType, path: &[String], hint: &str) -> Option<Error> {
    let first = path.first()?;
    if schema.index_of(first).is_some() {
        return None;
    }
    let near = nearest_column(schema, first).map(|names| format!(" ({names})")).unwrap_or_default();
    Some(Error::invalid(format!("there is no column `{first}`{near}; {hint}")))
}

fn nearest_column(schema: &StructType, name: &str) -> Option<String> {
    let found = nearest(schema.fields.iter().map(|field| field.name.as_str()), name);
    sentence(&found.into_iter().map(|name| Name(vec![name.to_owned()]).to_string()).collect::<Vec<_>>())
}

/// The names that differ in few letters, or begin or end with the name.
pub(super) fn nearest<'a>(names: impl Iterator<Item = &'a str>, name: &str) -> Vec<&'a str> {
    let lower = name.to_lowercase();
    let length = lower.chars().count();
    let is_near = |candidate: &str, distance: usize| {
        let longer = length.max(candidate.chars().count());
        (distance <= length.div_ceil(3) && distance < longer)
            || (length >= 3 && (candidate.starts_with(&lower) || candidate.ends_with(&lower)))
    };
    let mut found: Vec<(usize, &str)> = names
        .take(MAX_CANDIDATES)
        .filter_map(|name| {
            let candidate = name.to_lowercase();
            let distance = distance(&candidate, &lower);
            is_near(&candidate, distance).then_some((distance, name))
        })
        .collect();
    found.sort_by_key(|(distance, _)| *distance);
    found.into_iter().take(MAX_SUGGESTIONS).map(|(_, name)| name).collect()
}

/// What an error says of the nearest names.
pub(super) fn sentence<S: Borrow<str>>(names: &[S]) -> Option<String> {
    match names {
        [] => None,
        [one] => Some(format!("the nearest is {}", one.borrow())),
        several => Some(format!("the nearest are {}", several.join(", "))),
    }
}

/// How many letters must be put in, taken out or replaced to make one of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(MAX_COMPARED_LENGTH).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().take(MAX_COMPARED_LENGTH).enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, to) in row.iter_mut().skip(1).zip(&b) {
            let above = *cell;
            left = (left + 1).min(above + 1).min(diagonal + usize::from(from != *to));
            diagonal = above;
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}
