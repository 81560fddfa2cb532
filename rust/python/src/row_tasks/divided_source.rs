//! A source of a merge whose rows are in other processes: their keys, their summaries, and those that are inserted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::SchemaRef;
use deltic_entry::entry;
use deltic_protocol::error::Error;
use deltic_table::dml::{
    MergeInserter as CoreInserter, MergeKeys as CoreKeys, RowChangeTask, SourceSummary as CoreSummary,
};
use pyo3::prelude::*;

use crate::arrow::{ArrowBatch, ArrowSchema, ArrowStream, reader_from_py, schema_from_py};
use crate::clock::Clock;
use crate::errors::Result;
use crate::row_changes::{all_rows, request_of};
use crate::runtime::{Runtime, run};
use crate::table::storage;
use crate::transaction::Transaction;

/// Checks a merge, and returns what `MergeKeys` needs. None if no equality joins the sides. `request` and `values`: as for
/// `Transaction.merge`.
#[entry]
#[pyfunction]
pub(crate) fn merge_keys(
    py: Python<'_>,
    transaction: &Transaction,
    source: &Bound<'_, PyAny>,
    request: &str,
    values: &Bound<'_, PyAny>,
) -> Result<Option<Vec<u8>>> {
    let (source, request): (SchemaRef, _) = (Arc::new(schema_from_py(source)?), request_of(py, request, values)?);
    let clock = Clock::default();
    transaction.with(|builder| run(py, builder.merge_keys(&source, &request, (&clock, Clock::now))))
}

/// The keys of a merge.
#[pyclass(frozen, module = "deltic._deltic")]
pub(crate) struct MergeKeys(CoreKeys);

#[entry]
#[pymethods]
impl MergeKeys {
    #[new]
    fn new(keys: &[u8]) -> Result<Self> {
        Ok(Self(CoreKeys::from_bytes(keys)?))
    }

    /// A column `hash` with the hash of the key of each row of the source; null for keys that equal none.
    fn hashes(&self, py: Python<'_>, rows: &Bound<'_, PyAny>) -> Result<ArrowBatch> {
        let rows = batch_from_py(py, rows)?;
        let hashes: ArrayRef = Arc::new(py.detach(|| self.0.hashes(&rows))?);
        Ok(ArrowBatch::new(RecordBatch::try_from_iter_with_nullable([("hash", hashes, true)]).map_err(Error::from)?))
    }
}

/// The index of a task of a merge, and the hashes of the keys in its files. If the files cannot be read wherever the task
/// runs, the last batch has the hash `FAILED_HASH`, and in its second column the result of the task.
#[entry]
#[pyfunction]
pub(crate) fn key_hashes(
    py: Python<'_>,
    task: &[u8],
    storage_options: Option<HashMap<String, String>>,
    keys: &[u8],
) -> Result<(usize, ArrowStream)> {
    let (task, keys) = py.detach(|| Ok::<_, Error>((RowChangeTask::from_bytes(task)?, CoreKeys::from_bytes(keys)?)))?;
    let storage = storage(task.location(), storage_options)?;
    let number = task.number();
    let (schema, hashes) = task.key_hashes(storage, keys)?;
    Ok((number, ArrowStream::from_stream(schema, hashes, Runtime::of_process(py)?)))
}

/// How many rows of a source a process has, and the bounds of their keys.
#[pyclass(frozen, module = "deltic._deltic")]
pub(crate) struct SourceSummary(Mutex<CoreSummary>);

#[entry]
#[pymethods]
impl SourceSummary {
    #[new]
    fn new(keys: Option<&[u8]>) -> Result<Self> {
        let keys = keys.map(CoreKeys::from_bytes).transpose()?;
        Ok(Self(Mutex::new(CoreSummary::new(keys))))
    }

    /// Adds rows, in the types of a table.
    fn add(&self, py: Python<'_>, rows: &Bound<'_, PyAny>) -> Result<()> {
        let rows = batch_from_py(py, rows)?;
        Ok(py.detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).add(&rows))?)
    }

    /// The summary as a batch of one row. Its columns `rows` and `bytes` say how many there are.
    fn to_batch(&self) -> Result<ArrowBatch> {
        Ok(ArrowBatch::new(self.0.lock().unwrap_or_else(PoisonError::into_inner).to_batch()?))
    }
}

/// Computes the rows that a merge inserts, from rows of its source.
#[pyclass(frozen, module = "deltic._deltic")]
pub(crate) struct MergeInserter(CoreInserter);

#[entry]
#[pymethods]
impl MergeInserter {
    /// `spec`: what `DistributedRowChange.inserts` returned. `source`: the columns of the source. `schema`: the index of a
    /// schema of inserted rows.
    #[new]
    fn new(
        py: Python<'_>,
        spec: &[u8],
        source: &Bound<'_, PyAny>,
        request: &str,
        values: &Bound<'_, PyAny>,
        schema: usize,
    ) -> Result<Self> {
        let (source, request) = (Arc::new(schema_from_py(source)?), request_of(py, request, values)?);
        Ok(Self(CoreInserter::new(spec, source, request, schema)?))
    }

    /// The columns of inserted rows.
    #[getter]
    fn schema(&self) -> ArrowSchema {
        ArrowSchema::new(Arc::clone(self.0.schema()))
    }

    /// The inserted ones of some rows of the source. `numbers`: a column with the number of each of them among all.
    fn rows(&self, py: Python<'_>, rows: &Bound<'_, PyAny>, numbers: &Bound<'_, PyAny>) -> Result<ArrowStream> {
        let (rows, [numbers]) = (batch_from_py(py, rows)?, numbers_from_py(py, numbers)?);
        let inserted = py.detach(|| self.0.rows(&rows, &numbers))?;
        let schema = Arc::clone(self.0.schema());
        Ok(ArrowStream::from_stream(schema, futures::stream::iter(inserted), Runtime::of_process(py)?))
    }
}

fn batch_from_py(py: Python<'_>, rows: &Bound<'_, PyAny>) -> Result<RecordBatch> {
    let mut rows = reader_from_py(rows)?;
    let batch = rows.pull(py)?;
    Ok(batch.ok_or_else(|| Error::internal("a batch has no rows, not even none"))?)
}

/// The first columns of data, which are numbers.
pub(crate) fn numbers_from_py<const N: usize>(py: Python<'_>, numbers: &Bound<'_, PyAny>) -> Result<[Int64Array; N]> {
    let (_, batches) = all_rows(py, numbers)?;
    let mut all: [Vec<Option<i64>>; N] = std::array::from_fn(|_| Vec::new());
    for batch in &batches {
        for (at, all) in all.iter_mut().enumerate() {
            let numbers = batch.columns().get(at).and_then(|column| column.as_primitive_opt::<Int64Type>());
            let numbers = numbers.ok_or_else(|| Error::internal("rows of a source came without their numbers"))?;
            all.extend(numbers.iter());
        }
    }
    Ok(all.map(Into::into))
}
