//! Parses updates and merges that Python passes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;
use deltic_entry::entry;
use deltic_protocol::constraint::ExternalRules;
use deltic_protocol::error::Error;
use deltic_protocol::row_update::NewValue;
use deltic_table::dml::{
    Clause, ClauseAction, MergeRequest, Operation, RowChange, SourceConformer as CoreConformer, SourceRows, When,
};
use futures::TryStreamExt;
use pyo3::prelude::*;
use serde::Deserialize;

use crate::arrow::{
    ArrowBatch, ArrowSchema, Batches, check_announced, consume_batches, reader_from_py, schema_from_py,
};
use crate::errors::Result;

/// A column and its expression as SQL; none if it gets a value.
type Assigned = (String, Option<String>);

/// A merge, as JSON.
#[derive(Deserialize)]
struct Request {
    on: String,
    source_alias: String,
    target_alias: String,
    evolves: bool,
    #[serde(default)]
    operation: Operation,
    clauses: Vec<Asked>,
}

/// A clause, as JSON.
#[derive(Deserialize)]
struct Asked {
    when: String,
    condition: Option<String>,
    /// None if rows are deleted, or get all columns.
    set: Option<Vec<Assigned>>,
    /// Columns that are left out of all columns.
    except: Option<Vec<String>>,
    /// The rules of the table that Spark has evaluated for the rows.
    #[serde(default)]
    external: Option<ExternalRules>,
}

/// All rows of the data that Python passes.
pub(crate) fn all_rows(py: Python<'_>, data: &Bound<'_, PyAny>) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let rows = reader_from_py(data)?;
    let schema = Arc::clone(rows.schema());
    let read = |rows: Batches| async move { rows.try_collect::<Vec<RecordBatch>>().await };
    Ok((schema, consume_batches(py, rows, true, read, std::future::ready(()))?))
}

/// The values of the single row that Python passes.
fn values_of(py: Python<'_>, values: &Bound<'_, PyAny>) -> Result<std::vec::IntoIter<ArrayRef>> {
    let (_, rows) = all_rows(py, values)?;
    let values: Vec<ArrayRef> =
        rows.iter().filter(|rows| rows.num_rows() == 1).flat_map(RecordBatch::columns).map(Arc::clone).collect();
    Ok(values.into_iter())
}

fn assign(set: Vec<Assigned>, values: &mut impl Iterator<Item = ArrayRef>) -> Result<Vec<(String, NewValue)>> {
    let one = |(column, sql): Assigned| {
        let value = match sql {
            Some(sql) => NewValue::Expression(sql),
            None => match values.next() {
                Some(value) => NewValue::Value(value),
                None => return Err(Error::internal("a column is set to a value that is not there").into()),
            },
        };
        Ok((column, value))
    };
    set.into_iter().map(one).collect()
}

/// Columns and their new values: expressions, or values from the single row of `values`, in the order of the columns.
pub(crate) fn assignments(
    py: Python<'_>,
    set: Vec<Assigned>,
    values: &Bound<'_, PyAny>,
) -> Result<Vec<(String, NewValue)>> {
    assign(set, &mut values_of(py, values)?)
}

/// Parses the request of a merge.
pub(crate) fn request_of(py: Python<'_>, json: &str, values: &Bound<'_, PyAny>) -> Result<MergeRequest> {
    let request: Request =
        serde_json::from_str(json).map_err(|e| Error::internal("a merge is not readable").caused_by(e))?;
    let mut values = values_of(py, values)?;
    let mut clauses = Vec::with_capacity(request.clauses.len());
    for Asked { when, condition, set, except, external } in request.clauses {
        let when = match when.as_str() {
            "matched" => When::Matched,
            "not matched" => When::NotMatched,
            "not matched by source" => When::NotMatchedBySource,
            _ => return Err(Error::internal("a clause is of no kind").into()),
        };
        let action = match (set, except) {
            (Some(set), _) => ClauseAction::Set(assign(set, &mut values)?),
            (None, Some(except)) => ClauseAction::All { except },
            (None, None) => ClauseAction::Delete,
        };
        clauses.push(Clause { when, condition, action, external });
    }
    let Request { on, source_alias, target_alias, evolves, operation, .. } = request;
    Ok(MergeRequest { on, source_alias, target_alias, clauses, evolves, operation })
}

/// Converts the rows of a merge's source to a table's types, batch by batch.
#[pyclass(frozen, module = "deltic._deltic")]
pub(crate) struct SourceConformer {
    announced: SchemaRef,
    core: Mutex<CoreConformer>,
}

#[entry]
#[pymethods]
impl SourceConformer {
    #[new]
    #[pyo3(signature = (schema, memory_limit = None))]
    fn new(schema: &Bound<'_, PyAny>, memory_limit: Option<u64>) -> Result<Self> {
        let announced = Arc::new(schema_from_py(schema)?);
        let core = Mutex::new(CoreConformer::new(&announced, memory_limit)?);
        Ok(Self { announced, core })
    }

    /// The columns of converted rows.
    #[getter]
    fn schema(&self) -> ArrowSchema {
        ArrowSchema::new(Arc::clone(self.core().schema()))
    }

    /// How many bytes of rows may be in memory.
    #[getter]
    fn memory_limit(&self) -> u64 {
        self.core().memory_limit()
    }

    /// The rows of the next batch, converted and cut into pieces of about a quarter of the memory limit, at most 16 MiB.
    fn conform(&self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> Result<Vec<ArrowBatch>> {
        let mut rows = reader_from_py(batch)?;
        let mut conformed = Vec::new();
        while let Some(batch) = rows.pull(py)? {
            check_batch(&batch.schema(), &self.announced)?;
            conformed.extend(py.detach(|| self.core().conform(&batch))?.into_iter().map(ArrowBatch::new));
        }
        Ok(conformed)
    }
}

impl SourceConformer {
    fn core(&self) -> MutexGuard<'_, CoreConformer> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses a batch whose columns are not those that the source announced.
fn check_batch(schema: &SchemaRef, announced: &SchemaRef) -> Result<()> {
    check_announced(schema, announced)?;
    match schema.fields().iter().zip(announced.fields()).find(|(found, wanted)| found.name() != wanted.name()) {
        None => Ok(()),
        Some((found, wanted)) => {
            let (found, wanted) = (found.name(), wanted.name());
            Err(Error::invalid(format!("a batch has the column `{found}` where its reader announced `{wanted}`"))
                .into())
        }
    }
}

/// A [`RowChange`] as Python passes it: its kind, its request as JSON, the values that columns are set
/// to, and the source of a merge.
pub(crate) type PassedRowChange<'py> = (String, String, Bound<'py, PyAny>, Option<Bound<'py, PyAny>>);

/// Parses a row change. `source_rows`: which rows of a merge's source are passed.
pub(crate) fn row_change_of(
    py: Python<'_>,
    (kind, asked, values, source): &PassedRowChange<'_>,
    source_rows: SourceRows,
) -> Result<RowChange> {
    let unreadable = || Error::internal("a row change is not readable");
    match (kind.as_str(), source) {
        ("delete", None) => Ok(RowChange::Delete),
        ("update", None) => {
            let set = serde_json::from_str(asked).map_err(|e| unreadable().caused_by(e))?;
            Ok(RowChange::Update(assignments(py, set, values)?))
        }
        ("merge", Some(source)) => {
            let (source, request) = (all_rows(py, source)?, Box::new(request_of(py, asked, values)?));
            Ok(RowChange::Merge { source, source_rows, request })
        }
        _ => Err(unreadable().into()),
    }
}
