//! `_deltic.Table.check`: the findings of a check, as JSON text.

use deltic_store::Storage;
use deltic_table::check::{Finding, check};
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::errors::Result;
use crate::runtime::run;

/// `{"version": …, "findings": [{"kind", "message", "path"}, …]}`
pub(crate) fn check_text(py: Python<'_>, storage: &Storage, version: Option<u64>, files: bool) -> Result<String> {
    let checked = run(py, check(storage, version, files))?;
    let finding = |f: &Finding| json!({"kind": f.kind.name(), "message": f.message, "path": f.path});
    let findings: Vec<Value> = checked.findings.iter().map(finding).collect();
    Ok(json!({"version": checked.version, "findings": findings}).to_string())
}
