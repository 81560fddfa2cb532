//! `_deltic.vacuum`: the result of a vacuum as JSON text, and the files that a dry run would delete as Arrow.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use deltic_entry::entry;
use deltic_table::error::Error;
use deltic_table::maintenance::{Search, VacuumOptions, Vacuumed};
use pyo3::prelude::*;
use serde_json::json;

use super::inventory::inventory_of;
use crate::arrow::ArrowStream;
use crate::clock::Clock;
use crate::errors::Result;
use crate::table::Table;
use crate::transaction::run_to_end;

/// `{"retention_ms", "files_seen", "files_deleted", "bytes_deleted", "nested_tables"}`, and in a dry run the files: `path`,
/// `size` and `modification_time`. `retention`: milliseconds, and whether it may be shorter than the table's. `log`:
/// whether it is in the history. An `inventory` has the columns `path`, `length`, `isDir` and `modificationTime`.
#[entry]
#[pyfunction]
#[pyo3(signature = (table, retention, lite, dry_run, log, inventory = None))]
pub(crate) fn vacuum(
    py: Python<'_>,
    table: &Table,
    retention: (Option<i64>, bool),
    lite: bool,
    dry_run: bool,
    log: bool,
    inventory: Option<&Bound<'_, PyAny>>,
) -> Result<(String, Option<ArrowStream>)> {
    let options = options_of(py, retention, lite, (dry_run, log), inventory)?;
    let clock = Clock::default();
    let done = run_to_end(py, table.0.vacuum(options, &clock, &clock), &clock, |done| done.version)?;
    result(py, &done, dry_run)
}

/// The options of a vacuum that Python passes.
pub(crate) fn options_of(
    py: Python<'_>,
    retention: (Option<i64>, bool),
    lite: bool,
    (dry_run, log): (bool, bool),
    inventory: Option<&Bound<'_, PyAny>>,
) -> Result<VacuumOptions> {
    let search = match inventory {
        Some(files) => Search::Inventory(inventory_of(py, files)?),
        None if lite => Search::Lite,
        None => Search::Full,
    };
    Ok(VacuumOptions { retention_ms: retention.0, search, dry_run, force: retention.1, log })
}

/// The result in the form of `vacuum`.
pub(crate) fn result(py: Python<'_>, done: &Vacuumed, dry_run: bool) -> Result<(String, Option<ArrowStream>)> {
    let counts = json!({"retention_ms": done.retention_ms, "files_seen": done.files_seen,
        "files_deleted": done.files_deleted, "bytes_deleted": done.bytes_deleted, "nested_tables": done.nested_tables});
    let found = if dry_run { Some(stream_of(py, done)?) } else { None };
    Ok((counts.to_string(), found))
}

fn stream_of(py: Python<'_>, done: &Vacuumed) -> Result<ArrowStream> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("path", DataType::Utf8, false),
        Field::new("size", DataType::Int64, false),
        Field::new("modification_time", DataType::Int64, true),
    ]));
    let paths = StringArray::from_iter_values(done.found.iter().map(|file| &file.path));
    let sizes: Int64Array = done.found.iter().map(|file| i64::try_from(file.size).ok()).collect();
    let times: Int64Array =
        done.found.iter().map(|file| Some(file.modified_ms).filter(|time| *time != i64::MIN)).collect();
    let columns: Vec<ArrayRef> = vec![Arc::new(paths), Arc::new(sizes), Arc::new(times)];
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).map_err(Error::from)?;
    ArrowStream::from_batches(py, schema, vec![batch])
}
