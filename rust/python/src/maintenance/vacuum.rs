//! `_deltic.vacuum`: the result of a vacuum as JSON text, and the files that a dry run would delete as Arrow.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use deltic_entry::entry;
use deltic_store::FileMeta;
use deltic_table::error::{Error, Result as CoreResult};
use deltic_table::maintenance::{Search, VacuumOptions, Vacuumed};
use futures::TryStreamExt;
use pyo3::prelude::*;
use serde_json::json;

use crate::arrow::{ArrowStream, Batches, consume_batches, reader_from_py};
use crate::clock::Clock;
use crate::errors::Result;
use crate::table::Table;
use crate::transaction::run_to_end;

/// `{"retention_ms", "files_seen", "files_deleted", "bytes_deleted", "nested_tables"}`, and in a dry run the files: `path`,
/// `size` and `modification_time`. `retention`: milliseconds, and whether it may be shorter than the table's. An `inventory`
/// has the columns `path`, `length` and `modificationTime`.
#[entry]
#[pyfunction]
#[pyo3(signature = (table, retention, lite, dry_run, inventory = None))]
pub(crate) fn vacuum(
    py: Python<'_>,
    table: &Table,
    retention: (Option<i64>, bool),
    lite: bool,
    dry_run: bool,
    inventory: Option<&Bound<'_, PyAny>>,
) -> Result<(String, Option<ArrowStream>)> {
    let options = options_of(py, retention, lite, dry_run, inventory)?;
    let clock = Clock::default();
    let done = run_to_end(py, table.0.vacuum(options, &clock, &clock), &clock, |done| done.version)?;
    result(py, &done, dry_run)
}

/// The options of a vacuum that Python passes.
pub(crate) fn options_of(
    py: Python<'_>,
    retention: (Option<i64>, bool),
    lite: bool,
    dry_run: bool,
    inventory: Option<&Bound<'_, PyAny>>,
) -> Result<VacuumOptions> {
    let search = match inventory {
        Some(files) => {
            let collect = |rows: Batches| async move { rows.try_fold(Vec::new(), take_files).await };
            Search::Inventory(consume_batches(py, reader_from_py(files)?, true, collect, std::future::ready(()))?)
        }
        None if lite => Search::Lite,
        None => Search::Full,
    };
    Ok(VacuumOptions { retention_ms: retention.0, search, dry_run, force: retention.1 })
}

/// The result in the form of `vacuum`.
pub(crate) fn result(py: Python<'_>, done: &Vacuumed, dry_run: bool) -> Result<(String, Option<ArrowStream>)> {
    let counts = json!({"retention_ms": done.retention_ms, "files_seen": done.files_seen,
        "files_deleted": done.files_deleted, "bytes_deleted": done.bytes_deleted, "nested_tables": done.nested_tables});
    let found = if dry_run { Some(stream_of(py, done)?) } else { None };
    Ok((counts.to_string(), found))
}

async fn take_files(mut files: Vec<FileMeta>, batch: RecordBatch) -> CoreResult<Vec<FileMeta>> {
    let missing = || Error::invalid("an inventory has the columns path, length and modificationTime");
    let text = batch.column_by_name("path").and_then(|column| column.as_string_opt::<i32>()).ok_or_else(missing)?;
    let number = |name: &str| {
        let column = batch.column_by_name(name).and_then(|column| column.as_primitive_opt::<Int64Type>());
        column.ok_or_else(missing)
    };
    let (lengths, times) = (number("length")?, number("modificationTime")?);
    files.reserve(batch.num_rows());
    for row in 0..batch.num_rows() {
        if text.is_null(row) || times.is_null(row) {
            return Err(Error::invalid(format!("row {row} of the inventory lacks its path or modificationTime")));
        }
        let size = if lengths.is_valid(row) { u64::try_from(lengths.value(row)).unwrap_or_default() } else { 0 };
        files.push(FileMeta { path: text.value(row).to_owned(), size, modified_ms: times.value(row) });
    }
    Ok(files)
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
