//! RESTORE. Options and results are JSON text.

use deltic_entry::entry;
use deltic_table::copies::{RestoreOptions, RestoreTo, Restored};
use pyo3::prelude::*;

use crate::clock::Clock;
use crate::errors::Result;
use crate::table::{Table, json_text};
use crate::transaction::{parse_options, run_to_end};

/// Makes a table what it was at a version, or at a time in milliseconds and as the history shows it; what was done.
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
        (_, Some((ms, text))) => RestoreTo::Time(ms, text),
        (version, None) => RestoreTo::Version(version.unwrap_or_default()),
    };
    let clock = Clock::with_attempts(max_attempts);
    let restored = table.0.restore((&to, options), (&clock, &clock));
    json_text(&run_to_end(py, restored, &clock, |restored: &Restored| restored.version)?)
}
