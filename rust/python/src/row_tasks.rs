//! DELETE, UPDATE and MERGE by several processes: one plans and commits, others read and write files.

use std::collections::HashMap;

use deltic_entry::entry;
use deltic_table::dml::{DistributedRowChange as CoreRowChange, RowChangeTask, TaskLimits};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::clock::Clock;
use crate::errors::Result;
use crate::row_changes::{PassedRowChange, row_change_of};
use crate::runtime::run;
use crate::table::{json_text, storage};
use crate::transaction::Transaction;
use crate::work::Work;

/// A row change whose files other processes read and write.
#[pyclass(frozen, module = "deltic._deltic")]
pub(crate) struct DistributedRowChange(Work<CoreRowChange>);

/// Plans it as a step of a transaction. Writes nothing. None if the transaction was committed before, or if there
/// are fewer than two tasks: then the transaction does it alone. `limits`: the most tasks, and the bytes from which another
/// task is worth while.
#[entry]
#[pyfunction]
#[pyo3(signature = (transaction, row_change, filter, limits))]
pub(crate) fn plan_row_change(
    py: Python<'_>,
    transaction: &Transaction,
    row_change: PassedRowChange<'_>,
    filter: Option<String>,
    limits: (usize, u64),
) -> Result<Option<DistributedRowChange>> {
    let row_change = (row_change_of(py, &row_change)?, filter.as_deref());
    let (world, limits) = (Clock::default(), TaskLimits { tasks: limits.0, bytes: limits.1 });
    transaction.with(|builder| {
        let planned = run(py, builder.plan_row_change(row_change, limits, (&world, Clock::now)))?;
        let Some(planned) = planned else { return Ok(None) };
        if planned.num_tasks() < 2 {
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

    /// Ends: adds the results of these tasks to the transaction. Returns the counts of rows as JSON text. After an error
    /// the files of the tasks are deleted.
    fn apply(&self, py: Python<'_>, transaction: &Transaction, results: Vec<PyBackedBytes>) -> Result<String> {
        let rows = self.0.take()?;
        json_text(&transaction.with(|builder| run(py, rows.apply(builder, &results, Clock::now)))?)
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

/// Finds rows and writes new files, in any process. Returns the result for `DistributedRowChange.apply`.
/// After an error no file is left; after Ctrl-C files are deleted while this process still runs.
#[entry]
#[pyfunction]
pub(crate) fn change_rows(
    py: Python<'_>,
    task: &[u8],
    storage_options: Option<HashMap<String, String>>,
    row_change: PassedRowChange<'_>,
) -> Result<Vec<u8>> {
    let task = py.detach(|| RowChangeTask::from_bytes(task))?;
    let row_change = row_change_of(py, &row_change)?;
    let storage = storage(task.location(), storage_options)?;
    run(py, task.carry_out(storage, row_change, Clock::now))
}
