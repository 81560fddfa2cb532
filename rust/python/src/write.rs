//! Creates tables, and writes data files for a transaction on executors.

use std::collections::{BTreeMap, HashMap};

use deltic_entry::entry;
use deltic_protocol::error::Error;
use deltic_protocol::schema::StructType;
use deltic_protocol::schema::arrow::{check_new_geometries, from_arrow_schema};
use deltic_store::Storage;
use deltic_table::convert::{self, ExternalLayout};
use deltic_table::transaction::builder::{CreateMode, TableDefinition, delete_written};
use deltic_table::write::plan::{DataFile, WritePlan};
use deltic_table::write::writer::DataWriter;
use pyo3::prelude::*;
use serde::Deserialize;

use crate::arrow::{Batches, consume_batches, reader_from_py, schema_from_py};
use crate::clock::Clock;
use crate::errors::Result;
use crate::runtime::run;
use crate::table::{Table, json_text, storage};
use crate::transaction::{committed_json, parse_options, run_to_end, version_of};

type Options = Option<HashMap<String, String>>;

/// Creates the empty table. Returns a summary as JSON text.
#[entry]
#[pyfunction]
pub(crate) fn create(
    py: Python<'_>,
    table: &Table,
    schema: &Bound<'_, PyAny>,
    definition_json: &str,
) -> Result<String> {
    let definition: Definition = parse_options(definition_json)?;
    let columns = schema_from_py(schema)?;
    check_new_geometries(columns.fields(), &StructType::default())?;
    let table_definition = TableDefinition {
        schema: from_arrow_schema(&columns)?,
        partition_by: definition.partition_by,
        cluster_by: definition.cluster_by,
        properties: definition.properties,
        constraints: definition.constraints,
        name: definition.name,
        description: definition.description,
        largest_column_id: None,
    };
    let clock = Clock::default();
    let create = table.0.create(table_definition, definition.mode, &clock, &clock);
    let created = run_to_end(py, create, &clock, version_of)?;
    committed_json(&created).ok_or_else(|| Error::internal("creating a table committed nothing").into())
}

/// The definition of a table to be created, without its columns.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Definition {
    mode: CreateMode,
    #[serde(default)]
    partition_by: Vec<String>,
    #[serde(default)]
    cluster_by: Vec<String>,
    #[serde(default)]
    properties: BTreeMap<String, String>,
    #[serde(default)]
    constraints: BTreeMap<String, String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    description: Option<String>,
}

/// Writes data files by a plan, in any process. Returns each in its byte form. After an error or Ctrl-C
/// none is left. `task`: the index of this task, among those of one plan, by which rows are numbered.
#[entry]
#[pyfunction]
#[pyo3(signature = (plan, storage_options, data, in_memory = false, task = None))]
pub(crate) fn write_files(
    py: Python<'_>,
    plan: &[u8],
    storage_options: Options,
    data: &Bound<'_, PyAny>,
    in_memory: bool,
    task: Option<u32>,
) -> Result<Vec<Vec<u8>>> {
    let (plan, storage) = open(plan, storage_options)?;
    let rows = reader_from_py(data)?;
    let spec = plan.spec.of_task(task).map_err(|e| e.in_table(&plan.location))?;
    let mut writer = DataWriter::new(storage, &spec, Clock::now)?;
    let released = writer.released();
    let write = |rows: Batches| async move { writer.write_all(rows).await.map_err(|e| e.in_table(plan.location)) };
    let files = consume_batches(py, rows, in_memory, write, released)?;
    Ok(files.iter().map(DataFile::to_bytes).collect::<Result<_, _>>()?)
}

/// Deletes all files that were written by a plan, best effort. Only for files that stay unreferenced.
#[entry]
#[pyfunction]
pub(crate) fn delete_files(py: Python<'_>, plan: &[u8], storage_options: Options) -> Result<()> {
    let (plan, storage) = open(plan, storage_options)?;
    let delete = async {
        delete_written(&storage, plan.spec.id_prefix).await;
        Ok(())
    };
    run(py, delete)
}

/// The layout of a plan for another engine's Parquet writer, for rows with a schema, as JSON text.
#[entry]
#[pyfunction]
pub(crate) fn external_layout(plan: &[u8], schema: &Bound<'_, PyAny>) -> Result<String> {
    let plan = WritePlan::from_bytes(plan)?;
    json_text(&ExternalLayout::of(&plan, &schema_from_py(schema)?)?)
}

/// What the engine that has the rows must evaluate for a plan, as JSON text; `None` if there is nothing.
#[entry]
#[pyfunction]
pub(crate) fn external_rules(plan: &[u8]) -> Result<Option<String>> {
    WritePlan::from_bytes(plan)?.external_rules().map(|rules| json_text(&rules)).transpose()
}

/// Takes the files that another engine has written by a plan, with so many rows together. Returns each in its byte form.
#[entry]
#[pyfunction]
pub(crate) fn take_external(py: Python<'_>, plan: &[u8], storage_options: Options, rows: u64) -> Result<Vec<Vec<u8>>> {
    let (plan, storage) = open(plan, storage_options)?;
    let files = run(py, convert::take_external(&storage, &plan, rows))?;
    Ok(files.iter().map(DataFile::to_bytes).collect::<Result<_, _>>()?)
}

/// Deletes all files that another engine has written by a plan, best effort. Only for files that stay unreferenced.
#[entry]
#[pyfunction]
pub(crate) fn delete_external(py: Python<'_>, plan: &[u8], storage_options: Options) -> Result<()> {
    let (plan, storage) = open(plan, storage_options)?;
    let delete = async {
        convert::delete_external(&storage, &plan).await;
        Ok(())
    };
    run(py, delete)
}

fn open(plan: &[u8], storage_options: Options) -> Result<(WritePlan, Storage)> {
    let plan = WritePlan::from_bytes(plan)?;
    let storage = storage(&plan.location, storage_options)?;
    Ok((plan, storage))
}
