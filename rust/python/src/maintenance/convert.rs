//! Converts a folder of Parquet files, or an Iceberg table, to a table.

use deltic_entry::entry;
use deltic_protocol::schema::arrow::{from_arrow_schema, to_arrow_schema};
use deltic_table::convert::{ConvertOptions, Converted, FoundMetadata, metadata_files, newest_metadata, read_named};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::json;

use crate::arrow::{ArrowSchema, schema_from_py};
use crate::clock::Clock;
use crate::errors::Result;
use crate::runtime::run;
use crate::table::Table;
use crate::transaction::{parse_options, run_to_end};

/// `{"version", "files", "rows", "bytes"}` as JSON text, without a version if nothing was written, and the columns.
#[entry]
#[pyfunction]
pub(crate) fn convert(
    py: Python<'_>,
    table: &Table,
    partition_schema: &Bound<'_, PyAny>,
    options_json: &str,
    dry_run: bool,
) -> Result<(String, ArrowSchema)> {
    let options = options_of(partition_schema, options_json, dry_run)?;
    let clock = Clock::default();
    Ok(converted_json(&run_to_end(py, table.0.convert(options, &clock, &clock), &clock, version)?))
}

/// The newest metadata file of the Iceberg table at this location, the one before it, and all of them, with paths below its
/// root; none if there is no such table.
#[entry]
#[pyfunction]
pub(crate) fn iceberg_metadata(py: Python<'_>, table: &Table) -> Result<Option<(String, Option<String>, Vec<String>)>> {
    let found = run(py, newest_metadata(table.0.storage()))?;
    Ok(found.map(|FoundMetadata { newest, before, files }| (newest, before, files)))
}

/// All metadata files of the Iceberg table at this location, with paths below its root.
#[entry]
#[pyfunction]
pub(crate) fn iceberg_metadata_files(py: Python<'_>, table: &Table) -> Result<Vec<String>> {
    run(py, metadata_files(table.0.storage()))
}

/// The bytes of a file that such metadata names.
#[entry]
#[pyfunction]
pub(crate) fn read_named_file<'py>(py: Python<'py>, table: &Table, path: &str) -> Result<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(py, &run(py, read_named(table.0.storage(), path))?))
}

/// The options of a conversion that Python passes.
pub(crate) fn options_of(
    partition_schema: &Bound<'_, PyAny>,
    options_json: &str,
    dry_run: bool,
) -> Result<ConvertOptions> {
    let mut options: ConvertOptions = parse_options(options_json)?;
    options.partition_schema = from_arrow_schema(&schema_from_py(partition_schema)?)?;
    options.dry_run = dry_run;
    Ok(options)
}

/// The version that was committed.
pub(crate) fn version(converted: &Converted) -> Option<u64> {
    converted.outcome.as_ref().map(|outcome| outcome.committed.version)
}

/// The result in the form of `convert`.
pub(crate) fn converted_json(converted: &Converted) -> (String, ArrowSchema) {
    let result = json!({"version": version(converted), "files": converted.files, "rows": converted.rows,
        "bytes": converted.bytes});
    (result.to_string(), ArrowSchema::new(to_arrow_schema(&converted.schema)))
}
