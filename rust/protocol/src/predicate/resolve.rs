//! Finds the column a name means: exact spelling first, else the only one that differs in case.

use super::ast::Name;
use super::bound::Column;
use crate::error::{Error, Result};
use crate::schema::{DataType, StructType};

/// How many similar names an error suggests.
const SUGGESTIONS: usize = 3;
/// Longest name compared letter by letter for a suggestion.
const COMPARED: usize = 64;
/// Most names looked at for a suggestion.
const CANDIDATES: usize = 2000;

pub(super) fn resolve(schema: &StructType, path: &[String]) -> Result<Column> {
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
                    format!("a predicate cannot look inside column {parent} of type {data_type}")
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
            "there is no column `{name}`; what stands under `_metadata` can be read as a column and not filtered by: \
             ask for it and filter the rows that come out"
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
    let mut nearest: Vec<(usize, &str)> = schema
        .fields
        .iter()
        .take(CANDIDATES)
        .map(|f| (distance(&f.name.to_lowercase(), &lower), f.name.as_str()))
        .collect();
    nearest.sort_by_key(|(distance, _)| *distance);
    let names: Vec<String> =
        nearest.iter().take(SUGGESTIONS).map(|(_, name)| Name(vec![(*name).to_owned()]).to_string()).collect();
    match names.as_slice() {
        [] => Error::invalid(format!("{what}, there are none at all")),
        names => Error::invalid(format!("{what}; the nearest are {}", names.join(", "))),
    }
}

/// How many letters must be put in, taken out or replaced to make one of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(COMPARED).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().take(COMPARED).enumerate() {
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
