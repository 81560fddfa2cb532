//! RESTORE and CLONE. Options and results are JSON text.

use deltic_entry::entry;
use deltic_protocol::error::Error;
use deltic_table::copies::{CloneOptions, RestoreOptions, RestoreTo, Restored};
use deltic_table::table::At;
use deltic_table::transaction::builder::TransactionEnd;
use pyo3::prelude::*;

use crate::clock::Clock;
use crate::errors::Result;
use crate::runtime::run;
use crate::table::{Table, json_text};
use crate::transaction::{committed_json, parse_options, planned_json, run_to_end};

/// Restores a table to a version, or to a time in milliseconds, given also as text for the history. Returns the result.
#[entry]
#[pyfunction]
pub(crate) fn restore(
    py: Python<'_>,
    table: &Table,
    version: Option<u64>,
    time: Option<(i64, String)>,
    options_json: &str,
    max_attempts: Option<u64>,
) -> Result<String> {
    let options: RestoreOptions = parse_options(options_json)?;
    let to = match (version, time) {
        (None, Some((ms, text))) => RestoreTo::Time(ms, text),
        (Some(version), None) => RestoreTo::Version(version),
        (None, None) | (Some(_), Some(_)) => {
            return Err(Error::invalid("give the version to restore, or a timestamp, and not both").into());
        }
    };
    let clock = Clock::with_attempts(max_attempts);
    let restored = table.0.restore(&to, options, &clock, &clock);
    json_text(&run_to_end(py, restored, &clock, |restored: &Restored| restored.version)?)
}

/// Clones a table, or a version of it, or a time in milliseconds, to another one, or plans that. Returns the commit.
#[entry]
#[pyfunction]
pub(crate) fn clone(
    py: Python<'_>,
    tables: (PyRef<'_, Table>, PyRef<'_, Table>),
    version: Option<u64>,
    time_ms: Option<i64>,
    options_json: &str,
    dry_run: bool,
    max_attempts: Option<u64>,
) -> Result<String> {
    let options: CloneOptions = parse_options(options_json)?;
    let at = match (version, time_ms) {
        (None, Some(time)) => At::Time(time),
        (Some(version), None) => At::Version(version),
        (None, None) => At::Newest,
        (Some(_), Some(_)) => {
            return Err(Error::invalid("give the version to clone, or a timestamp, and not both").into());
        }
    };
    let clock = Clock::with_attempts(max_attempts);
    let (source, target) = (tables.0.0.clone(), tables.1.0.clone());
    if dry_run {
        let planned = run(py, async { source.plan_clone_to(&target, at, options, &clock, &clock).await })?;
        return Ok(planned_json(&planned));
    }
    let cloned = source.clone_to(&target, at, options, &clock, &clock);
    let version = |ended: &TransactionEnd| match ended {
        TransactionEnd::Committed(outcome) => Some(outcome.committed.version),
        TransactionEnd::Replayed(_) | TransactionEnd::Nothing => None,
    };
    let ended = run_to_end(py, cloned, &clock, version)?;
    Ok(committed_json(&ended).ok_or_else(|| Error::internal("a clone committed nothing"))?)
}
