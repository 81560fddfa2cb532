//! Creating tables and writing to them, in the three steps of a [`WriteJob`].

use std::collections::{BTreeMap, HashMap};

use deltic_entry::entry;
use deltic_protocol::error::Error;
use deltic_protocol::schema::arrow::from_arrow_schema;
use deltic_table::job::{Mode, NewTable, WriteJob, WriteOptions};
use deltic_table::storage::Storage;
use deltic_table::write::spec::DataFile;
use deltic_table::write::writer::DataWriter;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::arrow::{Batches, reader_from_py, run_fed, schema_from_py};
use crate::clock::Clock;
use crate::errors::Result;
use crate::runtime::run;
use crate::table::storage;
use crate::transaction::run_to_end;

type Options = Option<HashMap<String, String>>;

/// Creates an empty table; gives its version.
#[entry]
#[pyfunction]
#[pyo3(signature = (uri, storage_options, schema, partition_by, properties, name, description))]
#[expect(clippy::too_many_arguments, reason = "the signature that Python sees")]
pub(crate) fn create(
    py: Python<'_>,
    uri: &str,
    storage_options: Options,
    schema: &Bound<'_, PyAny>,
    partition_by: Option<Vec<String>>,
    properties: Option<BTreeMap<String, String>>,
    name: Option<String>,
    description: Option<String>,
) -> Result<u64> {
    let table = NewTable {
        schema: from_arrow_schema(&schema_from_py(schema)?)?,
        partition_by: partition_by.unwrap_or_default(),
        properties: properties.unwrap_or_default(),
        name,
        description,
    };
    let (storage, clock) = (storage(uri, storage_options)?, Clock::default());
    run(py, table.create(&storage, (&clock, &clock)))
}

/// Plans a write; gives the job in its byte form.
#[entry]
#[pyfunction]
pub(crate) fn write_spec(
    py: Python<'_>,
    uri: &str,
    storage_options: Options,
    schema: &Bound<'_, PyAny>,
    mode: &str,
    partition_by: Option<Vec<String>>,
    options_json: &str,
) -> Result<Vec<u8>> {
    let mode = match mode {
        "append" => Mode::Append,
        "overwrite" => Mode::Overwrite,
        "error" => Mode::Error,
        other => {
            return Err(Error::invalid(format!("`{other}` is no mode; it may be append, overwrite or error")).into());
        }
    };
    let options: WriteOptions = serde_json::from_str(options_json)
        .map_err(|e| Error::invalid("the write options are not readable").caused_by(e))?;
    let schema = schema_from_py(schema)?;
    let (storage, clock) = (storage(uri, storage_options)?, Clock::default());
    let job = WriteJob::plan(&storage, &schema, mode, partition_by.as_deref(), options, (&clock, &clock));
    Ok(run(py, job)?.to_bytes()?)
}

/// Writes data files; gives each in its byte form. After an error or Ctrl-C none is left.
#[entry]
#[pyfunction]
#[pyo3(signature = (spec, storage_options, data, in_memory = false))]
pub(crate) fn write_files(
    py: Python<'_>,
    spec: &[u8],
    storage_options: Options,
    data: &Bound<'_, PyAny>,
    in_memory: bool,
) -> Result<Vec<Vec<u8>>> {
    let (job, storage) = open(spec, storage_options)?;
    let rows = reader_from_py(data)?;
    let mut writer = DataWriter::new(storage, job.spec(), Clock::now)?;
    let (gone, location) = (writer.gone(), job.location.clone());
    let write = |rows: Batches| async move { writer.write_all(rows).await.map_err(|e| e.in_table(location)) };
    let files = run_fed(py, (rows, in_memory), write, gone)?;
    Ok(files.iter().map(DataFile::to_bytes).collect::<Result<_, _>>()?)
}

/// Removes written files that will not be committed, as far as the store lets it.
#[entry]
#[pyfunction]
pub(crate) fn abort_files(py: Python<'_>, spec: &[u8], storage_options: Options, files: Vec<Vec<u8>>) -> Result<()> {
    let (job, storage) = open(spec, storage_options)?;
    let files = data_files(&files)?;
    let abort = async {
        job.abort(&storage, files).await;
        Ok(())
    };
    run(py, abort)
}

/// Commits written files; gives JSON text of what was done.
#[entry]
#[pyfunction]
pub(crate) fn commit_files(
    py: Python<'_>,
    spec: &[u8],
    storage_options: Options,
    files: Vec<PyBackedBytes>,
) -> Result<String> {
    let (job, storage) = open(spec, storage_options)?;
    let clock = Clock::default();
    let files = files.into_iter().map(|bytes| DataFile::from_bytes(&bytes));
    let commit = job.commit_each(&storage, files, &clock);
    let outcome = run_to_end(py, commit, &clock, |outcome| (outcome.attempts > 0).then_some(outcome.version))?;
    let text = serde_json::to_string(&outcome);
    Ok(text.map_err(|e| Error::internal("a commit's outcome has no JSON form").caused_by(e))?)
}

fn open(spec: &[u8], storage_options: Options) -> Result<(WriteJob, Storage)> {
    let job = WriteJob::from_bytes(spec)?;
    let storage = storage(&job.location, storage_options)?;
    Ok((job, storage))
}

fn data_files(files: &[Vec<u8>]) -> Result<Vec<DataFile>> {
    Ok(files.iter().map(|bytes| DataFile::from_bytes(bytes)).collect::<Result<_, _>>()?)
}
