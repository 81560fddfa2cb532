//! DELETE, UPDATE and MERGE by several processes: one plans and commits, others read and write files.

pub(crate) mod divided_source;
pub(crate) mod source_conformer;

use std::collections::HashMap;

use deltic_entry::entry;
use deltic_table::dml::{DistributedRowChange as CoreRowChange, Places, RowChangeTask, SourceRows, TaskLimits};
use deltic_table::write::plan::DataFile;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use self::divided_source::numbers_from_py;
use crate::arrow::{ArrowStream, schema_from_py};
use crate::clock::Clock;
use crate::errors::Result;
use crate::row_changes::{PassedRowChange, all_rows, row_change_of};
use crate::runtime::{Runtime, run};
use crate::table::{json_text, storage};
use crate::transaction::Transaction;
use crate::work::Work;

/// A row change whose files other processes read and write.
#[pyclass(frozen, module = "deltic._deltic")]
pub(crate) struct DistributedRowChange(Work<CoreRowChange>);

/// Plans it as a step of a transaction. Writes nothing. None if the transaction was committed before, or if there
/// are fewer than two tasks: then the transaction does it alone. `limits`: the most tasks, and the bytes from which another
/// task is worth while. `summaries`: those of the source of a merge, if other processes have it; then the source passed here
/// has no rows, and there may be any number of tasks.
#[entry]
#[pyfunction]
#[pyo3(signature = (transaction, row_change, filter, limits, summaries = None))]
pub(crate) fn plan_row_change(
    py: Python<'_>,
    transaction: &Transaction,
    row_change: PassedRowChange<'_>,
    filter: Option<String>,
    limits: (usize, u64),
    summaries: Option<Bound<'_, PyAny>>,
) -> Result<Option<DistributedRowChange>> {
    let is_elsewhere = summaries.is_some();
    let source_rows = match summaries {
        Some(summaries) => SourceRows::Elsewhere(all_rows(py, &summaries)?.1),
        None => SourceRows::All,
    };
    let row_change = (row_change_of(py, &row_change, source_rows)?, filter.as_deref());
    let (world, limits) = (Clock::default(), TaskLimits { tasks: limits.0, bytes: limits.1 });
    transaction.with(|builder| {
        let planned = run(py, builder.plan_row_change(row_change, limits, (&world, Clock::now)))?;
        let Some(planned) = planned else { return Ok(None) };
        if planned.num_tasks() < 2 && !is_elsewhere {
            planned.forget(builder);
            return Ok(None);
        }
        Ok(Some(DistributedRowChange(Work::new(planned))))
    })
}

#[entry]
#[pymethods]
impl DistributedRowChange {
    /// The tasks, for `change_rows`.
    fn tasks(&self, py: Python<'_>) -> Result<Vec<Vec<u8>>> {
        self.0.with(|rows| run(py, async { rows.tasks() }))
    }

    /// What `MergeInserter` needs to compute the rows that a merge inserts, by the results of all tasks. None if it inserts
    /// none, or if this process has the source.
    fn inserts(
        &self,
        py: Python<'_>,
        transaction: &Transaction,
        results: Vec<PyBackedBytes>,
    ) -> Result<Option<Vec<u8>>> {
        self.0.with(|rows| transaction.with(|builder| run(py, async { rows.inserts(builder, &results) })))
    }

    /// How many schemas these rows have.
    fn num_insert_schemas(&self) -> Result<usize> {
        self.0.with(|rows| Ok(rows.num_insert_schemas()))
    }

    /// The plan by which the rows of a schema are written. `earlier`: the files with the rows of others.
    fn plan_inserts(
        &self,
        py: Python<'_>,
        transaction: &Transaction,
        schema: usize,
        earlier: Vec<PyBackedBytes>,
    ) -> Result<Vec<u8>> {
        let earlier: Vec<DataFile> =
            earlier.iter().map(|bytes| DataFile::from_bytes(bytes)).collect::<std::result::Result<_, _>>()?;
        let plan = self
            .0
            .with(|rows| transaction.with(|builder| run(py, async { rows.plan_inserts(builder, schema, &earlier) })));
        Ok(plan?.to_bytes()?)
    }

    /// Ends: adds the results of these tasks to the transaction, and the files with inserted rows if other processes wrote
    /// them. Returns the counts of rows as JSON text. After an error the files of the tasks are deleted.
    #[pyo3(signature = (transaction, results, inserted = Vec::new()))]
    fn apply(
        &self,
        py: Python<'_>,
        transaction: &Transaction,
        results: Vec<PyBackedBytes>,
        inserted: Vec<PyBackedBytes>,
    ) -> Result<String> {
        let rows = self.0.take()?;
        let applied = transaction.with(|builder| {
            let apply = async {
                match inserted.iter().map(|bytes| DataFile::from_bytes(bytes)).collect() {
                    Ok(inserted) => rows.apply(builder, (&results, inserted), Clock::now).await,
                    Err(unreadable) => {
                        rows.discard(builder).await;
                        Err(unreadable)
                    }
                }
            };
            run(py, apply)
        });
        json_text(&applied?)
    }

    /// Ends: deletes the files of the tasks.
    fn discard(&self, py: Python<'_>, transaction: &Transaction) -> Result<()> {
        let rows = self.0.take()?;
        transaction.with(|builder| {
            let discard = async {
                rows.discard(builder).await;
                Ok(())
            };
            run(py, discard)
        })
    }
}

/// What Spark must evaluate for rows that are changed or inserted and have these columns, as JSON text; `None` if there is
/// nothing. From now on the rows of the transaction need it.
#[entry]
#[pyfunction]
pub(crate) fn row_rules(transaction: &Transaction, given: &Bound<'_, PyAny>) -> Result<Option<String>> {
    let given = schema_from_py(given)?;
    let rules = transaction.with(|builder| {
        builder.let_engine_evaluate();
        Ok(builder.plan_write(&given)?.external_rules())
    })?;
    rules.map(|rules| json_text(&rules)).transpose()
}

/// The rows of a task that may change, after its index: these columns, the position of each row and the index of its file.
#[entry]
#[pyfunction]
pub(crate) fn task_rows(
    py: Python<'_>,
    task: &[u8],
    storage_options: Option<HashMap<String, String>>,
    columns: Vec<String>,
) -> Result<(usize, ArrowStream)> {
    let task = py.detach(|| RowChangeTask::from_bytes(task))?;
    let storage = storage(task.location(), storage_options)?;
    let number = task.number();
    let (schema, rows) = task.rows(storage, columns)?;
    Ok((number, ArrowStream::from_stream(schema, rows, Runtime::of_process(py)?)))
}

/// Finds rows and writes new files, in any process. Returns the result for `DistributedRowChange.apply`.
/// After an error no file is left; after Ctrl-C files are deleted while this process still runs. `numbers`: those of the
/// passed rows of a merge's source among all, if they are a part of it. `places`: instead of these, if the sides are joined
/// already, the numbers, the index of the file of each row in the task, and the position of its row of the target there.
#[entry]
#[pyfunction]
#[pyo3(signature = (task, storage_options, row_change, numbers = None, places = None))]
pub(crate) fn change_rows(
    py: Python<'_>,
    task: &[u8],
    storage_options: Option<HashMap<String, String>>,
    row_change: PassedRowChange<'_>,
    numbers: Option<Bound<'_, PyAny>>,
    places: Option<Bound<'_, PyAny>>,
) -> Result<Vec<u8>> {
    let task = py.detach(|| RowChangeTask::from_bytes(task))?;
    let source_rows = match (numbers, places) {
        (_, Some(places)) => {
            let [numbers, files, positions] = numbers_from_py(py, &places)?;
            SourceRows::Placed(Box::new(Places { numbers, files, positions }))
        }
        (Some(numbers), None) => {
            let [numbers] = numbers_from_py(py, &numbers)?;
            SourceRows::Part(numbers)
        }
        (None, None) => SourceRows::All,
    };
    let row_change = row_change_of(py, &row_change, source_rows)?;
    let storage = storage(task.location(), storage_options)?;
    run(py, task.carry_out(storage, row_change, Clock::now))
}
