//! Maintenance of a table: OPTIMIZE. Options and results are JSON text.

use deltic_entry::entry;
use deltic_table::maintenance::{OptimizeOptions, Optimized};
use pyo3::prelude::*;

use crate::clock::Clock;
use crate::errors::Result;
use crate::runtime::run;
use crate::table::{Table, json_text};
use crate::transaction::{parse_options, run_to_end};

/// Writes files of a table again, or says what that would do; what was done, as JSON text.
#[entry]
#[pyfunction]
pub(crate) fn optimize(
    py: Python<'_>,
    table: &Table,
    options_json: &str,
    dry_run: bool,
    max_attempts: Option<u64>,
) -> Result<String> {
    let options: OptimizeOptions = parse_options(options_json)?;
    let clock = Clock::with_attempts(max_attempts);
    let optimized = if dry_run {
        run(py, table.0.plan_optimize(&options, (&clock, Clock::now)))?
    } else {
        let optimize = table.0.optimize(&options, (&clock, Clock::now), &clock);
        run_to_end(py, optimize, &clock, |optimized: &Optimized| optimized.versions.last().copied())?
    };
    json_text(&optimized)
}
