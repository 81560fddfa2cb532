//! `_deltic.Transaction`: a transaction while Python puts it together, and how it ends.
//!
//! A commit is not dropped at the first Ctrl-C but told to stop: the attempt under way ends, and the exception says what
//! came of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use deltic_entry::entry;
use deltic_protocol::error::{Error, Result as CoreResult};
use deltic_protocol::schema::arrow::from_arrow_schema;
use deltic_table::after_commit::HandleState;
use deltic_table::backfill;
use deltic_table::committers::for_table_after;
use deltic_table::draft::{Draft, DraftOptions, MetadataChange, Outcome};
use deltic_table::scan::count::count_rows;
use deltic_table::scan::read::{ReadOptions, Reader};
use deltic_table::scan::task::TaskGroup;
use deltic_table::storage::Storage;
use deltic_table::write::writer::DataWriter;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::json;

use crate::arrow::{ArrowSchema, ArrowStream, Batches, reader_from_py, run_fed, schema_from_py};
use crate::clock::Clock;
use crate::errors::{Failure, Result, barrier};
use crate::runtime::{Runtime, run};
use crate::table::{Snapshot, Table, read_tasks};

/// How long what a commit left may be built on unasked. The longer, the more often it is found outdated when the commit was
/// put already.
const FRESH: Duration = Duration::from_secs(60);

/// What a handle knows of its table after a commit of its own, and since when.
#[pyclass(frozen, module = "deltic._deltic")]
pub(crate) struct Base(HandleState, Instant);

#[entry]
#[pymethods]
impl Base {
    #[getter]
    fn version(&self) -> u64 {
        self.0.state.version
    }
}

/// What is said of a commit: JSON text, its lines if they were asked for, and what its handle knows now.
type Landed<'py> = (String, Option<Bound<'py, PyBytes>>, Base);

/// A transaction that is being put together, taken away when it ends; and whether it was abandoned.
#[pyclass(frozen, module = "deltic._deltic")]
pub(crate) struct Transaction(Mutex<Option<Draft>>, Arc<AtomicBool>);

impl Transaction {
    /// Runs a step on the draft, which stays what it is if the step fails, is interrupted or panics: it knows which files
    /// were written.
    fn with<T>(&self, step: impl FnOnce(&mut Draft) -> Result<T>) -> Result<T> {
        let mut draft = self.take()?;
        let done = barrier(|| step(&mut draft));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(draft);
        done
    }

    fn take(&self) -> Result<Draft> {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let gone = "the transaction has ended, or another thread is using it; begin another";
        Ok(taken.ok_or_else(|| Error::invalid(gone))?)
    }
}

#[entry]
#[pymethods]
impl Transaction {
    #[new]
    #[pyo3(signature = (table, options_json, base = None))]
    fn new(py: Python<'_>, table: &Table, options_json: &str, base: Option<&Base>) -> Result<Self> {
        let options: DraftOptions = serde_json::from_str(options_json)
            .map_err(|e| Error::invalid("the options of the transaction are not readable").caused_by(e))?;
        let (clock, known) =
            (Clock::default(), base.filter(|base| base.1.elapsed() < FRESH).map(|base| base.0.clone()));
        let draft = run(py, Draft::begin(table.storage(), (known, table.latest()), options, &clock))?;
        Ok(Self(Mutex::new(Some(draft)), Arc::default()))
    }

    fn replayed(&self, py: Python<'_>) -> Result<Option<u64>> {
        self.with(|draft| run(py, draft.replayed()))
    }

    fn snapshot(&self, py: Python<'_>) -> Result<Snapshot> {
        self.with(|draft| Ok(Snapshot(run(py, draft.snapshot())?)))
    }

    #[pyo3(signature = (columns = None, filter = None))]
    fn scan(&self, py: Python<'_>, columns: Option<Vec<String>>, filter: Option<String>) -> Result<TransactionScan> {
        self.with(|draft| {
            let group = run(py, draft.scan(columns.as_deref(), filter.as_deref()))?;
            let abandoned = self.1.clone();
            Ok(TransactionScan { storage: draft.storage().clone(), group, abandoned, reads_own: draft.has_added() })
        })
    }

    #[pyo3(signature = (data, in_memory = false))]
    fn append(&self, py: Python<'_>, data: &Bound<'_, PyAny>, in_memory: bool) -> Result<u64> {
        let rows = reader_from_py(data)?;
        self.with(|draft| {
            let schema = rows.schema();
            let spec = run(py, draft.attempt(|draft| draft.write_spec(schema)))?;
            let storage = draft.storage().clone();
            let location = storage.location().to_owned();
            let mut writer = DataWriter::new(storage, &spec, Clock::now)?;
            let gone = writer.gone();
            let write =
                |rows: Batches| async move { writer.write_all_soon(rows).await.map_err(|e| e.in_table(location)) };
            let written = run_fed(py, (rows, in_memory), write, gone)?;
            let rows = written.0.iter().map(|file| file.rows).sum();
            draft.append_soon(written);
            Ok(rows)
        })
    }

    fn remove_paths(&self, py: Python<'_>, paths: Vec<String>) -> Result<u64> {
        self.with(|draft| run(py, draft.remove_paths(&paths, Clock::now())))
    }

    fn remove_where(&self, py: Python<'_>, filter: &str) -> Result<u64> {
        self.with(|draft| run(py, draft.remove_where(filter, Clock::now())))
    }

    #[pyo3(signature = (name, description, schema, properties, unset))]
    fn set_metadata(
        &self,
        py: Python<'_>,
        name: Option<String>,
        description: Option<String>,
        schema: Option<&Bound<'_, PyAny>>,
        properties: BTreeMap<String, String>,
        unset: Vec<String>,
    ) -> Result<()> {
        let schema = match schema {
            Some(schema) => Some(from_arrow_schema(&schema_from_py(schema)?)?),
            None => None,
        };
        let change = MetadataChange { name, description, schema, properties, unset };
        let clock = Clock::default();
        self.with(|draft| run(py, draft.attempt(|draft| draft.set_metadata(change.clone(), &clock))))
    }

    fn add_feature(&self, py: Python<'_>, name: &str) -> Result<()> {
        self.with(|draft| run(py, draft.attempt(|draft| draft.add_feature(name))))
    }

    #[pyo3(signature = (domain, configuration))]
    fn set_domain(&self, py: Python<'_>, domain: &str, configuration: Option<&str>) -> Result<()> {
        self.with(|draft| run(py, draft.attempt(|draft| draft.set_domain(domain, configuration))))
    }

    /// Commits; gives JSON text of what was done, the lines of the commit if they are wanted, and what the handle knows
    /// now. None if there was nothing to commit.
    #[pyo3(signature = (max_attempts = None, wants_lines = false))]
    fn commit<'py>(
        &self,
        py: Python<'py>,
        max_attempts: Option<u64>,
        wants_lines: bool,
    ) -> Result<Option<Landed<'py>>> {
        let mut draft = self.take()?;
        let clock = Clock::with_attempts(max_attempts);
        let (storage, syncing) = (draft.storage().clone(), draft.take_syncing());
        let committer = for_table_after(&storage, syncing);
        let commit = draft.commit(committer.as_ref(), &clock);
        let Some(Outcome { committed, mut metrics, after }) =
            run_to_end(py, commit, &clock, |outcome| outcome.as_ref().map(|o| o.committed.version))?
        else {
            return Ok(None);
        };
        metrics.extend(after.failed.iter().map(|(what, error)| ((*what).to_owned(), json!(error.to_string()))));
        let told = json!({"version": committed.version, "attempts": committed.attempts,
            "num_added_files": committed.num_added, "metrics": metrics});
        let lines = if wants_lines { Some(PyBytes::new(py, &committed.lines.to_bytes()?)) } else { None };
        Ok(Some((told.to_string(), lines, Base(after.base, Instant::now()))))
    }

    fn abandon(&self, py: Python<'_>) -> Result<()> {
        self.1.store(true, Ordering::Relaxed);
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(draft) = taken else { return Ok(()) };
        // The first Ctrl-C waits until the files are gone.
        let ((), interrupt) = Runtime::of_process(py)?.block_on_to_end(py, draft.abandon(), || {})?;
        interrupt.map_or(Ok(()), |interrupt| Err(Failure::Python(interrupt)))
    }
}

/// Enables row tracking, giving ids to the files of the table; gives the version and how many files.
#[entry]
#[pyfunction]
#[pyo3(signature = (table, max_attempts = None))]
pub(crate) fn enable_row_tracking(py: Python<'_>, table: &Table, max_attempts: Option<u64>) -> Result<(u64, u64)> {
    let clock = Clock::with_attempts(max_attempts);
    let enable = backfill::enable_row_tracking(table.storage(), (&clock, &clock));
    let enabled = run_to_end(py, enable, &clock, |enabled| Some(enabled.version))?;
    Ok((enabled.version, enabled.files))
}

/// Runs a commit to its end even when it is interrupted, and says in the exception what came of it.
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
    let told = match outcome {
        Ok(done) => match version(&done) {
            Some(version) => format!("interrupted: the commit was made, as version {version}"),
            None => "interrupted: nothing was committed".to_owned(),
        },
        Err(error) => error.to_string(),
    };
    let raised = interrupt.get_type(py).call1((told,)).map(PyErr::from_value)?;
    raised.set_cause(py, Some(interrupt));
    Err(Failure::Python(raised))
}

/// The rows that a transaction sees.
#[pyclass(frozen, module = "deltic._deltic")]
pub(crate) struct TransactionScan {
    storage: Storage,
    group: TaskGroup,
    abandoned: Arc<AtomicBool>,
    /// Whether rows that the transaction wrote are among them.
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

    /// The number of rows that reading gives.
    fn count(&self, py: Python<'_>) -> Result<u64> {
        self.check_rows()?;
        let TaskGroup { spec, tasks } = self.group.clone();
        run(py, count_rows(&self.storage, &spec, tasks, ReadOptions::default()))
    }

    /// The rows, or as many of them as `limit` says.
    #[pyo3(signature = (batch_size = None, limit = None))]
    fn read(
        &self,
        py: Python<'_>,
        batch_size: Option<std::num::NonZeroUsize>,
        limit: Option<u64>,
    ) -> Result<ArrowStream> {
        self.check_rows()?;
        read_tasks(py, self.storage.clone(), self.group.clone(), (batch_size, limit))
    }
}

impl TransactionScan {
    /// Fails if rows that were there are gone.
    fn check_rows(&self) -> Result<()> {
        if self.reads_own && self.abandoned.load(Ordering::Relaxed) {
            let gone = "the transaction was abandoned, and the rows that it wrote are gone; scan the table";
            return Err(Error::invalid(gone).in_table(self.storage.location()).into());
        }
        Ok(())
    }
}
