//! ``a, b.c, `d.e` ``: paths of columns, in which names that are not plain are quoted with back-ticks.
//!
//! Inside arrays and maps the path goes through `element`, `key` and `value`. [`parse`] reads what [`print`] prints.
//!
//! PROTOCOL.md: "Table Properties" (`delta.dataSkippingStatsColumns`).

use crate::error::{Error, Result};

/// The path of one column, top-down.
///
/// # Errors
/// `Invalid` if it is none.
pub fn parse(text: &str) -> Result<Vec<String>> {
    let wrong = |why: &str| Error::invalid(format!("`{text}` is not a column path: {why}"));
    let mut paths = parse_list(text).map_err(|why| wrong(&why))?.into_iter();
    match (paths.next(), paths.next()) {
        (Some(path), None) => Ok(path),
        (None, _) => Err(wrong("it is empty")),
        (Some(_), Some(_)) => Err(wrong("it has a comma; quote the name in back-ticks")),
    }
}

/// A path as text, with back-ticks around names that are not plain.
pub fn print(path: &[String]) -> String {
    path.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(".")
}

/// A name as it is written in a path.
fn quoted(name: &str) -> String {
    let is_plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if is_plain { name.to_owned() } else { format!("`{}`", name.replace('`', "``")) }
}

/// The paths of a list, top-down each.
pub(crate) fn parse_list(text: &str) -> Result<Vec<Vec<String>>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut columns = Vec::new();
    let mut path = Vec::new();
    let mut rest = text.trim_start();
    loop {
        let (name, after) = name(rest)?;
        path.push(name);
        rest = after.trim_start();
        match rest.split_at_checked(1) {
            Some((".", after)) => rest = after.trim_start(),
            Some((",", after)) => {
                columns.push(std::mem::take(&mut path));
                rest = after.trim_start();
            }
            None if rest.is_empty() => {
                columns.push(path);
                return Ok(columns);
            }
            Some(_) | None => return Err("a quoted name must be followed by a dot, a comma or nothing".to_owned()),
        }
    }
}

/// One name and the text after it.
fn name(text: &str) -> Result<(String, &str), String> {
    let Some(quoted) = text.strip_prefix('`') else {
        let end = text.find([',', '.', '`']).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        let name = name.trim_end();
        return if name.is_empty() || rest.starts_with('`') {
            Err("it must be column names with commas between them; quote unusual ones in back-ticks".to_owned())
        } else {
            Ok((name.to_owned(), rest))
        };
    };
    let mut name = String::new();
    let mut rest = quoted;
    loop {
        let (part, after) = rest.split_once('`').ok_or_else(|| "a back-tick is not closed".to_owned())?;
        name.push_str(part);
        // Two back-ticks inside quotes mean one.
        match after.strip_prefix('`') {
            Some(after) => {
                name.push('`');
                rest = after;
            }
            None if name.is_empty() => return Err("a quoted name is empty".to_owned()),
            None => return Ok((name, after)),
        }
    }
}
