//! The names of columns in SQL that Python passes.

use deltic_entry::entry;
use deltic_protocol::row_merge::{self, assigned_without_alias, named_columns};
use pyo3::prelude::*;

use crate::errors::Result;

/// The columns that SQL names, as written: each is a path.
#[entry]
#[pyfunction]
pub(crate) fn column_names(sql: &str) -> Result<Vec<Vec<String>>> {
    Ok(named_columns(sql)?.into_iter().map(|name| name.0).collect())
}

/// SQL, or the name of an assigned column, without the alias of a table with these columns.
#[entry]
#[pyfunction]
pub(crate) fn without_alias(text: &str, alias: &str, columns: Vec<String>, is_assigned: bool) -> Result<String> {
    Ok(match is_assigned {
        true => assigned_without_alias(text, alias, &columns),
        false => row_merge::without_alias(text, alias, &columns)?,
    })
}
