//! Maintenance of a table: OPTIMIZE, PURGE, repair and manifests. Options and results are JSON text.

pub(crate) mod convert;
pub(crate) mod copies;
pub(crate) mod distributed;
mod inventory;
pub(crate) mod vacuum;

use deltic_entry::entry;
use deltic_table::maintenance::{OptimizeOptions, Optimized};
use deltic_table::manifests;
use deltic_table::purge::{PurgeOptions, Purged};
use deltic_table::repair::Repaired;
use deltic_table::table::At;
use pyo3::prelude::*;

use crate::clock::Clock;
use crate::errors::Result;
use crate::runtime::run;
use crate::table::{Table, json_text};
use crate::transaction::{parse_options, run_to_end};

/// Rewrites files of a table, or plans that. Returns the result as JSON text.
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
        run(py, table.0.plan_optimize(&options, &clock, Clock::now))?
    } else {
        let optimize = table.0.optimize(&options, &clock, Clock::now, &clock);
        run_to_end(py, optimize, &clock, |optimized: &Optimized| optimized.versions.last().copied())?
    };
    json_text(&optimized)
}

/// Purges a table, or plans that. Returns the result as JSON text.
#[entry]
#[pyfunction]
pub(crate) fn purge(
    py: Python<'_>,
    table: &Table,
    options_json: &str,
    dry_run: bool,
    max_attempts: Option<u64>,
) -> Result<String> {
    let options: PurgeOptions = parse_options(options_json)?;
    let clock = Clock::with_attempts(max_attempts);
    let purged = if dry_run {
        run(py, table.0.plan_purge(&options, &clock, Clock::now))?
    } else {
        let purge = table.0.purge(&options, &clock, Clock::now, &clock);
        run_to_end(py, purge, &clock, |purged: &Purged| purged.versions.last().copied())?
    };
    json_text(&purged)
}

/// Repairs a table, or plans that; with `recover_to` the end of its log. Returns the result as JSON text.
#[entry]
#[pyfunction]
pub(crate) fn repair(
    py: Python<'_>,
    table: &Table,
    dry_run: bool,
    recover_to: Option<u64>,
    max_attempts: Option<u64>,
) -> Result<String> {
    let clock = Clock::with_attempts(max_attempts);
    let repair = async {
        match recover_to {
            Some(version) => table.0.recover(version, dry_run, &clock, &clock).await,
            None => table.0.repair(dry_run, &clock, &clock).await,
        }
    };
    let repaired = run_to_end(py, repair, &clock, |repaired: &Repaired| repaired.committed)?;
    json_text(&repaired)
}

/// Writes the manifests of the newest version, or plans that. Returns the result as JSON text.
#[entry]
#[pyfunction]
pub(crate) fn write_manifests(py: Python<'_>, table: &Table, dry_run: bool) -> Result<String> {
    let write = async {
        let snapshot = table.0.snapshot(At::Newest).await?;
        manifests::write_manifests(&snapshot, dry_run).await
    };
    json_text(&run(py, write)?)
}
