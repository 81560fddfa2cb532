//! `_deltic.Transaction`: a transaction that Python builds, and its commit.
//!
//! The first Ctrl-C does not drop a commit but cancels further attempts. The current attempt completes, and the exception says
//! whether it committed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use deltic_entry::entry;
use deltic_protocol::error::{Error, Result as CoreResult};
use deltic_protocol::schema::arrow::to_arrow_schema;
use deltic_store::{Storage, Syncing};
use deltic_table::copies::ClonePlan;
use deltic_table::scan::count::count_rows;
use deltic_table::scan::read::{ReadOptions, Reader};
use deltic_table::scan::task::TaskGroup;
use deltic_table::table::Table as CoreTable;
use deltic_table::transaction::builder::{
    Outcome, Transaction as Builder, TransactionEnd, TransactionHeader, TransactionOptions, WriteOptions,
};
use deltic_table::write::plan::DataFile;
use deltic_table::write::writer::DataWriter;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use serde_json::json;

use crate::alter::parse;
use crate::arrow::{ArrowSchema, ArrowStream, Batches, consume_batches, reader_from_py, schema_from_py};
use crate::clock::Clock;
use crate::errors::{Failure, Result, barrier};
use crate::row_changes::{all_rows, assignments, request_of};
use crate::runtime::{Runtime, run};
use crate::table::{Snapshot, Table, json_text, read_tasks};

/// Summary of a commit as JSON, and the lines of its file if the caller wants them.
type CommitSummary<'py> = (String, Option<Bound<'py, PyBytes>>);

/// The builder of a transaction, `None` after its end; its table; and whether it was abandoned.
#[pyclass(frozen, module = "deltic._deltic")]
pub(crate) struct Transaction {
    builder: Mutex<Option<Builder>>,
    table: CoreTable,
    abandoned: Arc<AtomicBool>,
}

impl Transaction {
    fn of(table: &CoreTable, builder: Builder) -> Self {
        Self { builder: Mutex::new(Some(builder)), table: table.clone(), abandoned: Arc::default() }
    }

    /// Runs a step on the builder. The builder is kept if the step fails, is interrupted or panics: it knows which files were
    /// written.
    pub(crate) fn with<T>(&self, step: impl FnOnce(&mut Builder) -> Result<T>) -> Result<T> {
        let mut builder = self.take()?;
        let done = barrier(|| step(&mut builder));
        *self.builder.lock().unwrap_or_else(PoisonError::into_inner) = Some(builder);
        done
    }

    fn take(&self) -> Result<Builder> {
        let taken = self.builder.lock().unwrap_or_else(PoisonError::into_inner).take();
        let message = "the transaction has ended, or another thread is using it; begin another";
        Ok(taken.ok_or_else(|| Error::invalid(message))?)
    }
}

/// Begins a transaction.
#[entry]
#[pyfunction]
pub(crate) fn begin(py: Python<'_>, table: &Table, options_json: &str) -> Result<Transaction> {
    let options: TransactionOptions = parse_options(options_json)?;
    let builder = run(py, table.0.begin(options, &Clock::default(), Clock::now()))?;
    Ok(Transaction::of(&table.0, builder))
}

/// Begins a write of rows with a schema. It creates the table if there is none.
#[entry]
#[pyfunction]
pub(crate) fn plan_write(
    py: Python<'_>,
    table: &Table,
    schema: &Bound<'_, PyAny>,
    options_json: &str,
) -> Result<Transaction> {
    let options: WriteOptions = parse_options(options_json)?;
    let schema = schema_from_py(schema)?;
    let builder = run(py, table.0.write(&schema, &options, &Clock::default(), Clock::now()))?;
    Ok(Transaction::of(&table.0, builder))
}

/// Resumes a write that another process planned.
#[entry]
#[pyfunction]
pub(crate) fn resume(header: &[u8], storage_options: Option<HashMap<String, String>>) -> Result<Transaction> {
    let header = TransactionHeader::from_bytes(header)?;
    let table = CoreTable::open(header.location(), storage_options, None)?;
    let builder = table.resume(header)?;
    Ok(Transaction::of(&table, builder))
}

pub(crate) fn parse_options<T: serde::de::DeserializeOwned>(json: &str) -> Result<T> {
    let options = serde_json::from_str(json);
    Ok(options.map_err(|e| Error::invalid("the options are not valid JSON").caused_by(e))?)
}

#[entry]
#[pymethods]
impl Transaction {
    /// The version that already has the application's transaction (`txn`).
    fn replayed(&self) -> Result<Option<u64>> {
        self.with(|builder| Ok(builder.already_committed_version()))
    }

    /// Whether the transaction uses the cached state of the handle, without reading the log.
    fn uses_cached_state(&self) -> Result<bool> {
        self.with(|builder| Ok(builder.uses_cached_state()))
    }

    fn snapshot(&self, py: Python<'_>) -> Result<Snapshot> {
        self.with(|builder| Ok(Snapshot(run(py, builder.snapshot())?)))
    }

    /// The schema of the table after the commit.
    fn schema(&self, py: Python<'_>) -> Result<ArrowSchema> {
        let snapshot = self.with(|builder| run(py, builder.snapshot_after()))?;
        Ok(ArrowSchema::new(to_arrow_schema(&snapshot.shape().schema)))
    }

    #[pyo3(signature = (columns = None, filter = None))]
    fn scan(&self, py: Python<'_>, columns: Option<Vec<String>>, filter: Option<String>) -> Result<TransactionScan> {
        self.with(|builder| {
            let group = run(py, builder.scan(columns.as_deref(), filter.as_deref()))?;
            let abandoned = self.abandoned.clone();
            Ok(TransactionScan { storage: builder.storage().clone(), group, abandoned, reads_own: builder.has_added() })
        })
    }

    #[pyo3(signature = (data, in_memory = false))]
    fn append(&self, py: Python<'_>, data: &Bound<'_, PyAny>, in_memory: bool) -> Result<u64> {
        let rows = reader_from_py(data)?;
        self.with(|builder| {
            if builder.already_committed_version().is_some() {
                return Ok(0);
            }
            run(py, builder.replace_rows(Clock::now))?;
            let schema = rows.schema();
            let plan = run(py, builder.take_step(|builder| builder.plan_write(schema)))?;
            let mut writer = DataWriter::new(builder.storage().clone(), &plan.spec, Clock::now)?;
            let released = writer.released();
            let write = |rows: Batches| async move {
                writer.reporting().write_unclaimed(rows).await.map_err(|e| e.in_table(plan.location))
            };
            let ended = consume_batches(py, rows, in_memory, write, released)?;
            let written = match builder.should_wait_for_syncs() {
                true => (run(py, ended.durable())?, Syncing::default()),
                false => ended.claim(),
            };
            let rows = written.0.iter().map(|file| file.rows).sum();
            builder.append_unsynced(written);
            Ok(rows)
        })
    }

    /// Checks that rows with this schema can be written, before any is read.
    fn check_rows(&self, py: Python<'_>, schema: &Bound<'_, PyAny>) -> Result<()> {
        let schema = schema_from_py(schema)?;
        self.with(|builder| run(py, builder.take_step(|builder| builder.check_rows(&schema))))
    }

    /// The data that executors need to write files.
    fn write_plan(&self, schema: &Bound<'_, PyAny>) -> Result<Vec<u8>> {
        let schema = schema_from_py(schema)?;
        self.with(|builder| Ok(builder.plan_write(&schema)?.to_bytes()?))
    }

    /// The data that another process needs to commit.
    fn header(&self) -> Result<Vec<u8>> {
        self.with(|builder| Ok(builder.header()?.to_bytes()?))
    }

    /// Adds files that executors wrote, each in its byte form.
    fn append_files(&self, py: Python<'_>, files: Vec<PyBackedBytes>) -> Result<()> {
        let files = files.into_iter().map(|bytes| DataFile::from_bytes(&bytes));
        self.with(|builder| {
            run(py, builder.replace_rows(Clock::now))?;
            run(py, async { builder.append_each(files) })
        })
    }

    fn remove_paths(&self, py: Python<'_>, paths: Vec<String>) -> Result<u64> {
        self.with(|builder| run(py, builder.remove_paths(&paths, Clock::now())))
    }

    /// Deletes rows. Returns how many, if that is known.
    #[pyo3(signature = (filter = None))]
    fn delete(&self, py: Python<'_>, filter: Option<String>) -> Result<Option<u64>> {
        self.with(|builder| run(py, builder.delete(filter.as_deref(), Clock::now)))
    }

    /// What deleting rows would do, as JSON.
    #[pyo3(signature = (filter = None))]
    fn delete_preview(&self, py: Python<'_>, filter: Option<String>) -> Result<String> {
        let preview = self.with(|builder| run(py, builder.delete_preview(filter.as_deref(), Clock::now)))?;
        json_text(&preview)
    }

    /// Sets columns of rows. Returns how many rows. `set`: columns, each with an expression, or none if `values` has a value.
    #[pyo3(signature = (set, values, filter = None))]
    fn update(
        &self,
        py: Python<'_>,
        set: Vec<(String, Option<String>)>,
        values: &Bound<'_, PyAny>,
        filter: Option<String>,
    ) -> Result<u64> {
        let set = assignments(py, set, values)?;
        self.with(|builder| run(py, builder.update(set, filter.as_deref(), Clock::now)))
    }

    /// What setting columns of rows would do, as JSON.
    #[pyo3(signature = (set, values, filter = None))]
    fn update_preview(
        &self,
        py: Python<'_>,
        set: Vec<(String, Option<String>)>,
        values: &Bound<'_, PyAny>,
        filter: Option<String>,
    ) -> Result<String> {
        let set = assignments(py, set, values)?;
        let preview = self.with(|builder| run(py, builder.update_preview(set, filter.as_deref(), Clock::now)))?;
        json_text(&preview)
    }

    /// Merges rows. Returns the counts as JSON. `request`: as JSON. `values`: as for
    /// [`Transaction::update`], for all clauses.
    fn merge(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        request: &str,
        values: &Bound<'_, PyAny>,
    ) -> Result<String> {
        let (source, request) = (all_rows(py, data)?, request_of(py, request, values)?);
        let ids = Clock::default();
        let counts = self.with(|builder| run(py, builder.merge(source, request, (&ids, Clock::now))))?;
        json_text(&counts)
    }

    /// What merging rows would do, as JSON.
    fn merge_preview(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        request: &str,
        values: &Bound<'_, PyAny>,
    ) -> Result<String> {
        let (source, request) = (all_rows(py, data)?, request_of(py, request, values)?);
        let ids = Clock::default();
        let preview = self.with(|builder| run(py, builder.merge_preview(source, request, (&ids, Clock::now))))?;
        json_text(&preview)
    }

    fn remove_where(&self, py: Python<'_>, filter: &str) -> Result<u64> {
        self.with(|builder| run(py, builder.remove_where(filter, Clock::now())))
    }

    /// Takes a step that does not change rows: the request as JSON, and the columns in it.
    #[pyo3(signature = (change, schema = None))]
    fn alter(&self, py: Python<'_>, change: &str, schema: Option<&Bound<'_, PyAny>>) -> Result<()> {
        let alteration = parse(change, schema)?;
        let clock = Clock::default();
        self.with(|builder| run(py, builder.take_step(|builder| builder.alter(&alteration, &clock))))
    }

    fn add_constraint(&self, py: Python<'_>, name: &str, expression: &str) -> Result<()> {
        let clock = Clock::default();
        self.with(|builder| run(py, builder.add_constraint(name, expression, &clock)))
    }

    fn add_feature(&self, py: Python<'_>, name: &str) -> Result<()> {
        self.with(|builder| run(py, builder.take_step(|builder| builder.add_feature(name))))
    }

    fn drop_feature(&self, py: Python<'_>, name: &str) -> Result<()> {
        self.with(|builder| run(py, builder.drop_feature(name)))
    }

    #[pyo3(signature = (domain, configuration))]
    fn set_domain(&self, py: Python<'_>, domain: &str, configuration: Option<&str>) -> Result<()> {
        self.with(|builder| run(py, builder.take_step(|builder| builder.set_domain(domain, configuration))))
    }

    /// Commits. Returns a summary as JSON, and the lines of the commit if they are requested. None if there was nothing
    /// to commit.
    #[pyo3(signature = (max_attempts = None, wants_lines = false))]
    fn commit<'py>(
        &self,
        py: Python<'py>,
        max_attempts: Option<u64>,
        wants_lines: bool,
    ) -> Result<Option<CommitSummary<'py>>> {
        let clock = Clock::with_attempts(max_attempts);
        let commit = self.table.commit(self.take()?, &clock, Clock::now, &clock);
        let ended = run_to_end(py, commit, &clock, version_of)?;
        let lines = match &ended {
            TransactionEnd::Committed(outcome) if wants_lines => {
                Some(PyBytes::new(py, &outcome.committed.lines.to_bytes()?))
            }
            TransactionEnd::Committed(_) | TransactionEnd::Replayed(_) | TransactionEnd::Nothing => None,
        };
        Ok(committed_json(&ended).map(|committed| (committed, lines)))
    }

    fn abandon(&self, py: Python<'_>) -> Result<()> {
        self.abandoned.store(true, Ordering::Relaxed);
        let taken = self.builder.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(builder) = taken else { return Ok(()) };
        // The first Ctrl-C waits until the files are deleted.
        let ((), interrupt) = Runtime::of_process(py)?.block_on_to_end(py, self.table.abandon(builder), || {})?;
        interrupt.map_or(Ok(()), |interrupt| Err(Failure::Python(interrupt)))
    }
}

/// The version that was committed.
pub(crate) fn version_of(ended: &TransactionEnd) -> Option<u64> {
    match ended {
        TransactionEnd::Committed(outcome) => Some(outcome.committed.version),
        TransactionEnd::Replayed(_) | TransactionEnd::Nothing => None,
    }
}

/// Summary of a commit as JSON. `None` if nothing was committed.
pub(crate) fn committed_json(ended: &TransactionEnd) -> Option<String> {
    match ended {
        TransactionEnd::Committed(outcome) => Some(summary(outcome)),
        TransactionEnd::Replayed(version) => {
            Some(json!({"version": version, "attempts": 0, "num_added_files": 0, "metrics": {}}).to_string())
        }
        TransactionEnd::Nothing => None,
    }
}

/// As [`committed_json`], for a clone that is only planned.
pub(crate) fn planned_json(plan: &ClonePlan) -> String {
    let ClonePlan { version, num_added, metrics } = plan;
    json!({"version": version, "attempts": 0, "num_added_files": num_added, "metrics": metrics}).to_string()
}

fn summary(outcome: &Outcome) -> String {
    let (committed, mut metrics) = (&outcome.committed, outcome.metrics.clone());
    let failed =
        outcome.post_commit.failed.iter().map(|(step, error)| (step.error_name().to_owned(), json!(error.to_string())));
    metrics.extend(failed);
    let summary = json!({"version": committed.version, "attempts": committed.attempts,
        "num_added_files": committed.num_added, "metrics": metrics, "compaction": outcome.post_commit.compaction});
    summary.to_string()
}

/// Enables row tracking, and gives ids to the files of the table. Returns the version and the number of files.
#[entry]
#[pyfunction]
#[pyo3(signature = (table, max_attempts = None))]
pub(crate) fn enable_row_tracking(py: Python<'_>, table: &Table, max_attempts: Option<u64>) -> Result<(u64, u64)> {
    let clock = Clock::with_attempts(max_attempts);
    let enable = table.0.enable_row_tracking(&clock, &clock);
    let enabled = run_to_end(py, enable, &clock, |enabled| Some(enabled.version))?;
    Ok((enabled.version, enabled.files))
}

/// Drops a feature, in as many commits as that needs. Returns a summary of the last one as JSON.
#[entry]
#[pyfunction]
pub(crate) fn drop_feature(py: Python<'_>, table: &Table, name: &str, truncate_history: bool) -> Result<String> {
    let clock = Clock::default();
    let drop = table.0.drop_feature(name, truncate_history, &clock, Clock::now, &clock);
    let outcome = run_to_end(py, drop, &clock, |outcome| Some(outcome.committed.version))?;
    Ok(summary(&outcome))
}

/// Runs a commit to its end even if it is interrupted. The exception then says whether it committed.
pub(crate) fn run_to_end<T, F>(
    py: Python<'_>,
    commit: F,
    clock: &Clock,
    version: impl FnOnce(&T) -> Option<u64>,
) -> Result<T>
where
    F: Future<Output = CoreResult<T>> + Send,
    T: Send,
{
    let (outcome, interrupt) = Runtime::of_process(py)?.block_on_to_end(py, commit, || clock.cancel())?;
    let Some(interrupt) = interrupt else { return Ok(outcome?) };
    let committed = match outcome {
        Ok(done) => match version(&done) {
            Some(version) => format!("interrupted: the commit was made, as version {version}"),
            None => "interrupted: nothing was committed".to_owned(),
        },
        Err(error) => error.to_string(),
    };
    let raised = interrupt.get_type(py).call1((committed,)).map(PyErr::from_value)?;
    raised.set_cause(py, Some(interrupt));
    Err(Failure::Python(raised))
}

/// A scan in a transaction, with its own changes.
#[pyclass(frozen, module = "deltic._deltic")]
pub(crate) struct TransactionScan {
    storage: Storage,
    group: TaskGroup,
    abandoned: Arc<AtomicBool>,
    /// Whether it includes rows that the transaction wrote.
    reads_own: bool,
}

#[entry]
#[pymethods]
impl TransactionScan {
    #[getter]
    fn num_files(&self) -> usize {
        self.group.tasks.len()
    }

    fn schema(&self) -> Result<ArrowSchema> {
        let reader = Reader::new(self.storage.clone(), self.group.spec.clone())?;
        Ok(ArrowSchema::new(reader.schema()))
    }

    /// The number of rows.
    fn count(&self, py: Python<'_>) -> Result<u64> {
        self.check_rows()?;
        let TaskGroup { spec, tasks } = self.group.clone();
        run(py, count_rows(&self.storage, &spec, tasks, ReadOptions::default()))
    }

    /// The rows, at most `limit` of them.
    #[pyo3(signature = (batch_size = None, limit = None))]
    fn read(
        &self,
        py: Python<'_>,
        batch_size: Option<std::num::NonZeroUsize>,
        limit: Option<u64>,
    ) -> Result<ArrowStream> {
        self.check_rows()?;
        read_tasks(py, self.storage.clone(), self.group.clone(), batch_size, limit)
    }
}

impl TransactionScan {
    /// Fails if files of the transaction were deleted because it was abandoned.
    fn check_rows(&self) -> Result<()> {
        if self.reads_own && self.abandoned.load(Ordering::Relaxed) {
            let message = "the transaction was abandoned, and the rows that it wrote are gone; scan the table";
            return Err(Error::invalid(message).in_table(self.storage.location()).into());
        }
        Ok(())
    }
}
