//! `_deltic.Table.check`: the findings of a check, as JSON text.

use deltic_table::check::{Finding, check};
use deltic_table::log::LogSource;
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::errors::Result;
use crate::runtime::run;

/// `{"version": …, "findings": [{"kind", "message", "path"}, …]}`
pub(crate) fn check_text(py: Python<'_>, log: &LogSource, version: Option<u64>, files: bool) -> Result<String> {
    let checked = run(py, check(log, version, files))?;
    let finding = |f: &Finding| json!({"kind": f.kind.name(), "message": f.message, "path": f.path});
    let findings: Vec<Value> = checked.findings.iter().map(finding).collect();
    Ok(json!({"version": checked.version, "findings": findings}).to_string())
}
