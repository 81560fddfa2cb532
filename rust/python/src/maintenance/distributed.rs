//! Maintenance by several processes: one plans and commits, others write files or read footers.

use std::collections::HashMap;
use std::future::ready;

use deltic_entry::entry;
use deltic_table::commit::CommitContext;
use deltic_table::convert::{DistributedConvert as CoreConvert, FootersTask};
use deltic_table::error::Error;
use deltic_table::maintenance::{
    Cluster, DistributedOptimize as CoreOptimize, DistributedVacuum as CoreVacuum, Divided, Division, NextTasks,
    OptimizeOptions, RewriteTask, SampleTask, SplitTask, SweepTask,
};
use deltic_table::table::Table as CoreTable;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::arrow::{ArrowSchema, ArrowStream, Batches, consume_batches, reader_from_py};
use crate::clock::Clock;
use crate::errors::Result;
use crate::maintenance::convert::{converted_json, options_of, version};
use crate::maintenance::vacuum;
use crate::runtime::{Runtime, run};
use crate::table::{Table, json_text, storage};
use crate::transaction::{parse_options, run_to_end};
use crate::work::Work;

type StorageOptions = Option<HashMap<String, String>>;

/// Tasks for `rewrite_files`, and tasks for `sample_rows`.
type Tasks = (Vec<Vec<u8>>, Vec<Vec<u8>>);

/// An OPTIMIZE whose groups of files other processes rewrite.
#[pyclass(frozen, module = "deltic._deltic")]
pub(crate) struct DistributedOptimize {
    work: Work<CoreOptimize>,
    table: CoreTable,
}

/// Plans an OPTIMIZE. Writes nothing.
#[entry]
#[pyfunction]
pub(crate) fn optimize_distributed(py: Python<'_>, table: &Table, options_json: &str) -> Result<DistributedOptimize> {
    let options: OptimizeOptions = parse_options(options_json)?;
    let clock = Clock::default();
    let planned = run(py, CoreOptimize::plan(table.0.log(), None, &options, &clock, Clock::now))?;
    Ok(DistributedOptimize { work: Work::new(planned), table: table.0.clone() })
}

#[entry]
#[pymethods]
impl DistributedOptimize {
    /// The plan and the result so far, as JSON text.
    fn result(&self) -> Result<String> {
        self.work.with(|optimize| json_text(optimize.result()))
    }

    /// The first tasks of the next commit: those for `rewrite_files`, and those for `sample_rows`. None when all is done.
    /// `cluster`: how many tasks run at a time, the most tasks, and the bytes of files that are worth a task that reads them;
    /// without it there is nothing to sample.
    #[pyo3(signature = (cluster = None))]
    fn next_tasks(&self, py: Python<'_>, cluster: Option<(usize, Option<usize>, u64)>) -> Result<Option<Tasks>> {
        let cluster = cluster.map(|(cores, max_tasks, min_task_bytes)| Cluster { cores, max_tasks, min_task_bytes });
        let next = |optimize: &mut CoreOptimize| optimize.next_tasks(cluster.as_ref(), &Clock::default());
        let tasks = self.work.with(|optimize| run(py, async { next(optimize) }))?;
        Ok(tasks.map(|NextTasks { rewrite, sample }| (rewrite, sample)))
    }

    /// Divides groups of files by the results of `sample_rows`. Returns the division, tasks for `split_rows`, and the number
    /// of intervals, which `write_interval` writes.
    fn divide(&self, py: Python<'_>, samples: Vec<PyBackedBytes>) -> Result<(Vec<u8>, Vec<Vec<u8>>, usize)> {
        let divided = self.work.with(|optimize| run(py, async { optimize.divide(&samples) }))?;
        let Divided { division, tasks, intervals } = divided;
        Ok((division, tasks, intervals))
    }

    /// Commits the results of `rewrite_files` and `write_interval`.
    fn commit(&self, py: Python<'_>, written: Vec<PyBackedBytes>) -> Result<()> {
        let clock = Clock::default();
        self.work.with(|optimize| {
            let committer = self.table.committer_for_operation();
            let context = CommitContext { committer: committer.as_ref(), retry: &clock };
            let committed = async {
                optimize.commit(&written, &clock, context).await?;
                Ok(optimize.result().versions.last().copied())
            };
            run_to_end(py, committed, &clock, |version| *version).map(|_| ())
        })
    }

    /// Deletes the files of the tasks, if they are not to be committed.
    fn discard(&self, py: Python<'_>) -> Result<()> {
        self.work.with(|optimize| {
            let discard = async {
                optimize.discard().await;
                Ok(())
            };
            run(py, discard)
        })
    }
}

/// Rewrites a group of files, in any process. Returns the result for `DistributedOptimize.commit`. After an error
/// no file is left; after Ctrl-C files are deleted while this process still runs.
#[entry]
#[pyfunction]
pub(crate) fn rewrite_files(py: Python<'_>, task: &[u8], storage_options: StorageOptions) -> Result<Vec<u8>> {
    let task = RewriteTask::from_bytes(task)?;
    let storage = storage(task.location(), storage_options)?;
    run(py, task.carry_out(storage, Clock::now))
}

/// Samples the rows of files, in any process. Returns the result for `DistributedOptimize.divide`.
#[entry]
#[pyfunction]
pub(crate) fn sample_rows(py: Python<'_>, task: &[u8], storage_options: StorageOptions) -> Result<Vec<u8>> {
    let task = SampleTask::from_bytes(task)?;
    let storage = storage(task.location(), storage_options)?;
    run(py, task.carry_out(storage))
}

/// The rows of files by interval, in any process: batches with the columns `interval`, an index, and `rows`, some of its rows
/// as bytes.
#[entry]
#[pyfunction]
pub(crate) fn split_rows(
    py: Python<'_>,
    task: &[u8],
    division: &[u8],
    storage_options: StorageOptions,
) -> Result<ArrowStream> {
    let (task, division) =
        py.detach(|| Ok::<_, Error>((SplitTask::from_bytes(task)?, Division::from_bytes(division)?)))?;
    let storage = storage(division.location(), storage_options)?;
    let (schema, rows) = py.detach(|| division.split(storage, task))?;
    Ok(ArrowStream::from_stream(schema, rows, Runtime::of_process(py)?))
}

/// Writes the rows of an interval, in any process: all that `split_rows` gave for it, in the column `rows` of a stream. Returns
/// the result for `DistributedOptimize.commit`. After an error no file is left; after Ctrl-C files are deleted while this
/// process still runs.
#[entry]
#[pyfunction]
pub(crate) fn write_interval(
    py: Python<'_>,
    division: &[u8],
    interval: usize,
    rows: &Bound<'_, PyAny>,
    storage_options: StorageOptions,
) -> Result<Vec<u8>> {
    let division = py.detach(|| Division::from_bytes(division))?;
    let storage = storage(division.location(), storage_options)?;
    let rows = reader_from_py(rows)?;
    let write = move |rows: Batches| division.write_interval(storage, interval, rows, Clock::now);
    consume_batches(py, rows, false, write, ready(()))
}

/// A CONVERT whose footers other processes read.
#[pyclass(frozen, module = "deltic._deltic")]
pub(crate) struct DistributedConvert {
    work: Work<CoreConvert>,
    table: CoreTable,
}

/// Begins to list files.
#[entry]
#[pyfunction]
pub(crate) fn convert_distributed(
    py: Python<'_>,
    table: &Table,
    partition_schema: &Bound<'_, PyAny>,
    options_json: &str,
    dry_run: bool,
) -> Result<DistributedConvert> {
    let options = options_of(partition_schema, options_json, dry_run)?;
    let started = run(py, CoreConvert::begin(table.0.log(), options, &Clock::default()))?;
    Ok(DistributedConvert { work: Work::new(started), table: table.0.clone() })
}

#[entry]
#[pymethods]
impl DistributedConvert {
    /// At most so many tasks of so many files each, for `read_footers`; none when there are no more files.
    fn next_tasks(&self, py: Python<'_>, tasks: usize, files_per_task: usize) -> Result<Vec<Vec<u8>>> {
        self.work.with(|convert| run(py, convert.next_tasks(tasks, files_per_task)))
    }

    /// Adds the results of these tasks.
    fn take(&self, py: Python<'_>, read: Vec<PyBackedBytes>) -> Result<()> {
        self.work.with(|convert| run(py, async { convert.take(&read) }))
    }

    /// Commits, and ends. Returns the result in the form of `convert`.
    fn commit(&self, py: Python<'_>) -> Result<(String, ArrowSchema)> {
        let clock = Clock::default();
        let committer = self.table.committer_for_operation();
        self.work.with(|convert| Ok(convert.check_all_read()?))?;
        let commit = self.work.take()?.commit(&clock, committer.as_ref(), &clock);
        Ok(converted_json(&run_to_end(py, commit, &clock, version)?))
    }
}

/// Reads footers, in any process. Returns the result for `DistributedConvert.take`.
#[entry]
#[pyfunction]
pub(crate) fn read_footers(py: Python<'_>, task: &[u8], storage_options: StorageOptions) -> Result<Vec<u8>> {
    let task = FootersTask::from_bytes(task)?;
    let storage = storage(task.location(), storage_options)?;
    run(py, task.carry_out(storage))
}

/// A VACUUM whose files other processes delete.
#[pyclass(frozen, module = "deltic._deltic")]
pub(crate) struct DistributedVacuum {
    work: Work<CoreVacuum>,
    table: CoreTable,
    dry_run: bool,
}

/// Commits VACUUM START, unless `log` is false, and collects the files to retain. The arguments are those of `vacuum`.
#[entry]
#[pyfunction]
#[pyo3(signature = (table, retention, lite, dry_run, log, inventory = None))]
pub(crate) fn vacuum_distributed(
    py: Python<'_>,
    table: &Table,
    retention: (Option<i64>, bool),
    lite: bool,
    dry_run: bool,
    log: bool,
    inventory: Option<&Bound<'_, PyAny>>,
) -> Result<DistributedVacuum> {
    let options = vacuum::options_of(py, retention, lite, (dry_run, log), inventory)?;
    let clock = Clock::default();
    let committer = table.0.committer_for_operation();
    let context = CommitContext { committer: committer.as_ref(), retry: &clock };
    let begin = CoreVacuum::begin(table.0.log(), options, &clock, context);
    let started = run_to_end(py, begin, &clock, |_| None)?;
    Ok(DistributedVacuum { work: Work::new(started), table: table.0.clone(), dry_run })
}

#[entry]
#[pymethods]
impl DistributedVacuum {
    /// At most so many tasks, for `sweep_files`; none when all is done, or the store fails.
    fn next_tasks(&self, py: Python<'_>, tasks: usize) -> Result<Vec<Vec<u8>>> {
        self.work.with(|vacuum| run(py, vacuum.next_tasks(tasks)))
    }

    /// Adds the results of these tasks.
    fn take(&self, py: Python<'_>, results: Vec<PyBackedBytes>) -> Result<()> {
        self.work.with(|vacuum| run(py, async { vacuum.take(&results) }))
    }

    /// Commits VACUUM END, with FAILED unless all was done. Returns the result in the form of `vacuum`.
    fn end(&self, py: Python<'_>) -> Result<(String, Option<ArrowStream>)> {
        let clock = Clock::default();
        let committer = self.table.committer_for_operation();
        let context = CommitContext { committer: committer.as_ref(), retry: &clock };
        let end = self.work.take()?.end(&clock, context);
        vacuum::result(py, &run_to_end(py, end, &clock, |done| done.version)?, self.dry_run)
    }
}

/// Vacuums directories or deletes files, in any process. Returns the result for `DistributedVacuum.take`.
#[entry]
#[pyfunction]
pub(crate) fn sweep_files(py: Python<'_>, task: &[u8], storage_options: StorageOptions) -> Result<Vec<u8>> {
    let task = py.detach(|| SweepTask::from_bytes(task))?;
    let storage = storage(task.location(), storage_options)?;
    run(py, task.carry_out(storage))
}
