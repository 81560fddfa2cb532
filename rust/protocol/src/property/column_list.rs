//! ``a, b.c, `d.e` ``: a list of column paths, in which back-ticks quote what is not a plain name.

use crate::error::{Error, Result as Checked};

/// The paths of a list, one list of names each.
///
/// # Errors
/// `Invalid`, saying why it is no such list.
pub fn column_paths(text: &str) -> Checked<Vec<Vec<String>>> {
    parse(text).map_err(|why| Error::invalid(format!("`{text}` names no columns: {why}")))
}

/// The paths, one list of names each.
pub(super) fn parse(text: &str) -> Result<Vec<Vec<String>>, String> {
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
        // Two back-ticks inside quotes are one.
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
