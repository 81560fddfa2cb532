//! The alias of a single table, as in `t.id = 1`: in SQL and in names of assigned columns.
//!
//! As in Spark, `t.x` is the column `x` of the table called `t` if there is such a column, even beside a column `t`.
//!
//! Proved by `row_merge::an_alias_of_a_table_is_left_out`.

use crate::error::Result;
use crate::expression::{Name, parse_value};
use crate::schema::{is_same_name, path};

/// The columns that a caller's SQL names, as written.
///
/// # Errors
/// `Invalid` for SQL that cannot be read.
pub fn named_columns(sql: &str) -> Result<Vec<Name>> {
    Ok(parse_value(sql)?.columns().into_iter().cloned().collect())
}

/// The SQL without the alias of a table with these columns. SQL without it stays as it is.
///
/// # Errors
/// `Invalid` for SQL that cannot be read.
pub fn without_alias(sql: &str, alias: &str, columns: &[String]) -> Result<String> {
    let parsed = parse_value(sql)?;
    let rest = |name: &Name| after_alias(&name.0, alias, columns).map(|path| Name(path.to_vec()));
    match parsed.columns().into_iter().any(|name| rest(name).is_some()) {
        true => Ok(format!("{:#}", parsed.rename(&rest))),
        false => Ok(sql.to_owned()),
    }
}

/// The path of an assigned column without the alias of its table. What is no path stays as it is.
pub fn assigned_without_alias(key: &str, alias: &str, columns: &[String]) -> String {
    if has(columns, key) {
        return key.to_owned();
    }
    let parsed = path::parse(key).ok();
    let rest = parsed.as_deref().and_then(|parsed| after_alias(parsed, alias, columns));
    rest.map_or_else(|| key.to_owned(), path::print)
}

/// The path after the alias, if it begins with it.
fn after_alias<'a>(path: &'a [String], alias: &str, columns: &[String]) -> Option<&'a [String]> {
    let (first, rest) = path.split_first()?;
    let is_alias = has(columns, rest.first()?) || !has(columns, first);
    (is_alias && is_same_name(first, alias)).then_some(rest)
}

fn has(columns: &[String], name: &str) -> bool {
    columns.iter().any(|column| is_same_name(column, name))
}
