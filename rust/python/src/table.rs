//! `_deltic.Table`, `Snapshot` and `Plan`.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;

use deltic_entry::entry;
use deltic_protocol::error::Error;
use deltic_protocol::schema::arrow::to_arrow_schema;
use deltic_store::Storage;
use deltic_table::detail::Detail;
use deltic_table::scan::limit::read_first;
use deltic_table::scan::list_files::list_files;
use deltic_table::scan::plan::ScanPlan;
use deltic_table::scan::read::{ReadOptions, Reader};
use deltic_table::scan::task::{FileTask, TaskGroup};
use deltic_table::snapshot::Snapshot as TableSnapshot;
use deltic_table::table::{At, Table as CoreTable};
use futures::stream::{self, StreamExt, TryStreamExt};
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::arrow::{ArrowSchema, ArrowStream};
use crate::changes::{Changes, End};
use crate::check::check_text;
use crate::clock::Clock;
use crate::errors::Result;
use crate::runtime::{Runtime, run};

/// A handle of a table. Making one needs no I/O.
#[pyclass(frozen, module = "deltic._deltic")]
pub(crate) struct Table(pub(crate) CoreTable);

/// The storage at `uri`.
pub(crate) fn storage(uri: &str, options: Option<HashMap<String, String>>) -> Result<Storage> {
    Ok(Storage::open(uri, &options.unwrap_or_default())?)
}

#[entry]
#[pymethods]
impl Table {
    #[new]
    #[pyo3(signature = (uri, storage_options = None, cache_bytes = None))]
    fn new(uri: &str, storage_options: Option<HashMap<String, String>>, cache_bytes: Option<usize>) -> Result<Self> {
        Ok(Self(CoreTable::open(uri, storage_options, cache_bytes)?))
    }

    #[getter]
    fn uri(&self) -> &str {
        self.0.storage().location()
    }

    #[getter]
    fn storage_options(&self) -> Option<HashMap<String, String>> {
        self.0.storage_options().cloned()
    }

    #[getter]
    fn cache_bytes(&self) -> Option<usize> {
        self.0.cache_bytes()
    }

    fn exists(&self, py: Python<'_>) -> Result<bool> {
        run(py, self.0.exists())
    }

    #[pyo3(signature = (version = None, timestamp_ms = None))]
    fn snapshot(&self, py: Python<'_>, version: Option<u64>, timestamp_ms: Option<i64>) -> Result<Snapshot> {
        let at = match (version, timestamp_ms) {
            (_, Some(time)) => At::Time(time),
            (Some(version), None) => At::Version(version),
            (None, None) => At::Newest,
        };
        Ok(Snapshot(run(py, self.0.snapshot(at))?))
    }

    /// Whether the next transaction can use the state after the last commit.
    fn remembers(&self) -> bool {
        self.0.has_cached_state()
    }

    #[pyo3(signature = (start, end, columns = None, filter = None))]
    fn changes(
        &self,
        py: Python<'_>,
        start: End,
        end: End,
        columns: Option<Vec<String>>,
        filter: Option<String>,
    ) -> Result<Changes> {
        Changes::plan(py, self.0.log(), start, end, columns.as_deref(), filter.as_deref())
    }

    #[pyo3(signature = (limit = None))]
    fn history(&self, py: Python<'_>, limit: Option<usize>) -> Result<Vec<String>> {
        let entries = run(py, self.0.history(limit))?;
        Ok(entries.into_iter().map(|entry| Value::Object(entry).to_string()).collect())
    }

    #[pyo3(signature = (version = None, files = false))]
    fn check(&self, py: Python<'_>, version: Option<u64>, files: bool) -> Result<String> {
        check_text(py, self.0.log(), version, files)
    }

    fn checkpoint(&self, py: Python<'_>) -> Result<u64> {
        run(py, self.0.checkpoint(Clock::now()))
    }

    fn write_checksum(&self, py: Python<'_>) -> Result<u64> {
        run(py, self.0.write_checksum())
    }

    fn clean_log(&self, py: Python<'_>) -> Result<u64> {
        run(py, self.0.clean_log(Clock::now()))
    }

    #[pyo3(signature = (start = None, end = None))]
    fn compact_log(&self, py: Python<'_>, start: Option<u64>, end: Option<u64>) -> Result<String> {
        run(py, self.0.compact_log(start, end))
    }

    fn request_counts(&self) -> BTreeMap<&'static str, u64> {
        let counts = self.0.storage().counts();
        BTreeMap::from([
            ("lists", counts.lists),
            ("gets", counts.gets),
            ("heads", counts.heads),
            ("puts", counts.puts),
            ("deletes", counts.deletes),
            ("bytes_read", counts.bytes_read),
            ("bytes_written", counts.bytes_written),
        ])
    }
}

/// One version of a table.
#[pyclass(frozen, module = "deltic._deltic")]
pub(crate) struct Snapshot(pub(crate) TableSnapshot);

#[entry]
#[pymethods]
impl Snapshot {
    #[getter]
    fn version(&self) -> u64 {
        self.0.version()
    }

    #[getter]
    fn uri(&self) -> &str {
        self.0.storage().location()
    }

    fn schema(&self) -> ArrowSchema {
        ArrowSchema::new(to_arrow_schema(&self.0.shape().schema))
    }

    fn metadata(&self) -> Result<String> {
        json_text(self.0.metadata())
    }

    fn protocol(&self) -> Result<String> {
        json_text(self.0.protocol())
    }

    fn num_files(&self, py: Python<'_>) -> Result<u64> {
        run(py, self.0.num_files())
    }

    /// Counts and features, as JSON.
    fn detail(&self, py: Python<'_>) -> Result<String> {
        let detail = run(py, Detail::of(&self.0))?;
        let detail_json = json!({"num_files": detail.num_files, "size_in_bytes": detail.size_in_bytes,
            "num_rows": detail.num_rows, "last_modified": detail.last_modified,
            "table_features": detail.table_features, "clustering_columns": detail.clustering_columns});
        Ok(detail_json.to_string())
    }

    fn transaction_version(&self, py: Python<'_>, app_id: &str) -> Result<Option<i64>> {
        run(py, self.0.transaction_version(app_id, Clock::now()))
    }

    fn domains(&self, py: Python<'_>) -> Result<BTreeMap<String, String>> {
        let domains = run(py, self.0.domains())?;
        Ok(domains.into_iter().map(|domain| (domain.domain, domain.configuration)).collect())
    }

    #[pyo3(signature = (filter = None))]
    fn files(&self, py: Python<'_>, filter: Option<String>) -> Result<ArrowStream> {
        let (schema, batches) = run(py, list_files(&self.0, filter.as_deref()))?;
        Ok(ArrowStream::from_stream(schema, batches, Runtime::of_process(py)?))
    }

    #[pyo3(signature = (columns = None, filter = None))]
    fn plan(&self, py: Python<'_>, columns: Option<Vec<String>>, filter: Option<String>) -> Result<Plan> {
        Ok(Plan(run(py, ScanPlan::new(&self.0, columns.as_deref(), filter.as_deref()))?))
    }
}

/// The plan of a query.
#[pyclass(frozen, module = "deltic._deltic")]
pub(crate) struct Plan(ScanPlan);

#[entry]
#[pymethods]
impl Plan {
    #[getter]
    fn files_total(&self, py: Python<'_>) -> Result<u64> {
        Ok(run(py, self.0.totals())?.files)
    }

    #[getter]
    fn files_kept(&self) -> u64 {
        self.0.files_kept
    }

    #[getter]
    fn bytes_total(&self, py: Python<'_>) -> Result<u64> {
        Ok(run(py, self.0.totals())?.bytes)
    }

    #[getter]
    fn bytes_kept(&self, py: Python<'_>) -> Result<u64> {
        run(py, self.0.bytes_kept())
    }

    #[getter]
    fn skipped(&self, py: Python<'_>) -> Result<BTreeMap<&'static str, u64>> {
        let skipped = run(py, self.0.totals())?.skipped;
        Ok(BTreeMap::from([("partition", skipped.partition), ("statistics", skipped.statistics)]))
    }

    fn schema(&self) -> Result<ArrowSchema> {
        let reader = Reader::new(self.0.snapshot().storage().clone(), self.0.spec().clone())?;
        Ok(ArrowSchema::new(reader.schema()))
    }

    fn to_arrow(&self, py: Python<'_>) -> Result<ArrowStream> {
        let (schema, batches) = run(py, self.0.to_batches())?;
        ArrowStream::from_batches(py, schema, batches)
    }

    fn task_groups(&self, py: Python<'_>, n: usize) -> Result<Vec<Vec<u8>>> {
        run(py, self.0.task_groups(n))
    }

    /// Paths of the files that have a deletion vector, and the ids of the vectors.
    fn deletion_vectors(&self, py: Python<'_>) -> Result<BTreeMap<String, String>> {
        let tasks = run(py, self.0.tasks())?;
        let named = |task: FileTask| task.deletion_vector.map(|vector| (task.path, vector.unique_id()));
        Ok(tasks.into_iter().filter_map(named).collect())
    }

    /// The number of rows.
    fn count(&self, py: Python<'_>) -> Result<u64> {
        run(py, self.0.count_rows(ReadOptions::default()))
    }

    /// The rows, at most `limit` of them.
    #[pyo3(signature = (batch_size = None, limit = None))]
    fn read(&self, py: Python<'_>, batch_size: Option<NonZeroUsize>, limit: Option<u64>) -> Result<ArrowStream> {
        let reader = Reader::new(self.0.snapshot().storage().clone(), self.0.spec().clone())?;
        let (plan, schema, options) = (self.0.clone(), reader.schema(), read_options(batch_size));
        // The log is read when the first batch is requested.
        let rows = async move {
            Ok::<_, Error>(match limit {
                Some(limit) => read_first(reader, plan.counted_tasks().await?, limit, options).boxed(),
                None => reader.read(plan.tasks().await?, options).boxed(),
            })
        };
        let rows = stream::once(rows).try_flatten();
        Ok(ArrowStream::from_stream(schema, rows, Runtime::of_process(py)?))
    }
}

/// Reads the tasks of one group, in any process.
#[entry]
#[pyfunction]
#[pyo3(signature = (uri, storage_options, group, batch_size = None))]
pub(crate) fn read_task_group(
    py: Python<'_>,
    uri: &str,
    storage_options: Option<HashMap<String, String>>,
    group: &[u8],
    batch_size: Option<NonZeroUsize>,
) -> Result<ArrowStream> {
    read_tasks(py, storage(uri, storage_options)?, TaskGroup::from_bytes(group)?, batch_size, None)
}

pub(crate) fn read_tasks(
    py: Python<'_>,
    storage: Storage,
    group: TaskGroup,
    batch_size: Option<NonZeroUsize>,
    limit: Option<u64>,
) -> Result<ArrowStream> {
    let reader = Reader::new(storage, group.spec)?;
    let (schema, options) = (reader.schema(), read_options(batch_size));
    let rows = match limit {
        Some(limit) => read_first(reader, group.tasks, limit, options).boxed(),
        None => reader.read(group.tasks, options).boxed(),
    };
    Ok(ArrowStream::from_stream(schema, rows, Runtime::of_process(py)?))
}

fn read_options(batch_size: Option<NonZeroUsize>) -> ReadOptions {
    let mut options = ReadOptions::default();
    if let Some(rows) = batch_size {
        options.batch_rows = rows.get();
    }
    options
}

/// The JSON string of a value.
pub(crate) fn json_text(value: &impl serde::Serialize) -> Result<String> {
    let text = serde_json::to_string(value);
    Ok(text.map_err(|e| Error::internal("a value has no JSON form").caused_by(e))?)
}
