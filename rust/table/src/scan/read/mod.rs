//! Reading data files: turns tasks into batches of the rows that qualify.
//!
//! [`Reader::new`] binds a [`ReadSpec`]; [`Reader::read`] returns a stream that does nothing before it is polled, reads a
//! bounded amount ahead, and stops all work when it is dropped. The predicate is applied exactly. Rows come in the
//! order of the tasks and of the files.
//!
//! Proved by `read::nothing_is_requested_before_the_first_poll` and the other cases of `tests/rust/table/read.rs`.

mod adapt;
mod batch_rows;
mod bloom_filters;
mod cast;
mod decode;
mod fetch;
mod file_columns;
mod open;
mod row_groups;
mod unit;

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use deltic_protocol::error::{Error, Result};
use deltic_protocol::predicate::BoundPredicate;
use deltic_protocol::schema::arrow::to_rows_schema;
use deltic_protocol::schema::mapping::ColumnMapping;
use deltic_protocol::schema::{DataType, StructField, StructType, check_requested_once};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::compute_threads::processors;
use crate::error::replacing;
use crate::parallel::{TaskGuard, spawn_async, worker_count};
use crate::scan::row_group_counts::{PrunedRowGroups, RowGroupCounts};
use crate::scan::row_tracking;
use crate::scan::task::{FileTask, ReadSpec};
pub(crate) use adapt::{Constants, FileSchema, check_types};
pub(crate) use decode::blocking;
use decode::decode;
use deltic_store::Storage;
pub(crate) use fetch::{FileBytes, parse_footer};
pub(crate) use file_columns::parquet_id;
use open::{ReadFilter, ScanContext, open};
pub(crate) use row_groups::RowGroupBounds;
use unit::Unit;

/// Limits on the memory and the parallelism of a [`Reader`].
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// The most rows of a batch.
    pub batch_rows: usize,
    /// Files, or units of large files, that are read at once. A few more are opened ahead, which hides the latency of
    /// their footers.
    pub concurrent_files: usize,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self { batch_rows: 64 * 1024, concurrent_files: processors() }
    }
}

impl ReadOptions {
    /// Options for one of `files` readers that run at once, one for each file, so that together they use all workers. A few
    /// files are divided into several units each.
    pub(crate) fn one_of(files: usize) -> Self {
        let workers = worker_count();
        Self { concurrent_files: (workers / files.clamp(1, workers)).max(1), ..Self::default() }
    }
}

/// Reads files of one snapshot with one projection and one predicate. Cloning it shares what was bound.
#[derive(Debug, Clone)]
pub struct Reader {
    scan: Arc<ScanContext>,
}

impl Reader {
    /// Binds `spec`: schema, column mapping, projection, predicate. There is no I/O.
    pub fn new(storage: Storage, spec: ReadSpec) -> Result<Self> {
        let predicate = spec.filter.as_ref().map(|filter| filter.bound(&spec.schema)).transpose()?;
        Self::with_predicate(storage, spec, predicate)
    }

    /// As [`Reader::new`], with a predicate in place of the filter of `spec`.
    pub(crate) fn with_predicate(
        storage: Storage,
        spec: ReadSpec,
        predicate: Option<Arc<BoundPredicate>>,
    ) -> Result<Self> {
        let table = spec.schema.clone();
        let mapping = ColumnMapping::parse(&spec.column_mapping)?;
        let output = pick(&table, &spec)?;
        check_requested_once(output.fields.iter().map(|field| field.name.as_str()))?;
        let filter = predicate.map(|predicate| read_filter(predicate, &table, &output));
        let schema = Arc::new(to_rows_schema(&output));
        let partition_columns = spec.partition_columns.into_iter().collect();
        let scan = ScanContext {
            storage,
            table,
            mapping,
            partition_columns,
            output,
            schema,
            filter,
            row_tracking: spec.row_tracking,
            may_lack_row_ids: spec.may_lack_row_ids,
            pruned: PrunedRowGroups::default(),
        };
        Ok(Self { scan: Arc::new(scan) })
    }

    /// Schema of the batches: the columns of the spec in its order.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.scan.schema)
    }

    /// The row groups of the files that were opened so far.
    pub(crate) fn row_groups(&self) -> RowGroupCounts {
        self.scan.pruned.counts()
    }

    /// Whether there is a predicate, so that rows may be left out.
    pub(crate) fn has_filter(&self) -> bool {
        self.scan.filter.is_some()
    }

    /// The qualifying rows of `tasks`, in order. To be polled inside a tokio runtime. Ends after the first error.
    pub fn read(
        self,
        tasks: Vec<FileTask>,
        options: ReadOptions,
    ) -> impl Stream<Item = Result<RecordBatch>> + Send + 'static {
        self.read_stream(stream::iter(tasks.into_iter().map(Ok)), options).map(|rows| rows.map_err(missing))
    }

    /// [`Reader::read`] for a stream of tasks; these too are requested a bounded number ahead. A file
    /// that does not exist is reported as `NotFound`: what this means depends on the origin of the tasks.
    pub fn read_stream(
        self,
        tasks: impl Stream<Item = Result<FileTask>> + Send + 'static,
        options: ReadOptions,
    ) -> impl Stream<Item = Result<RecordBatch>> + Send + 'static {
        stream::unfold(ReadState::Idle(self.scan, tasks.boxed(), options), async |state| {
            let mut running = match state {
                ReadState::Idle(scan, tasks, options) => RunningScan::start(scan, tasks, options),
                ReadState::Running(running) => running,
                ReadState::Done => return None,
            };
            match running.advance().await {
                Ok(Some(batch)) => Some((Ok(batch), ReadState::Running(running))),
                Ok(None) => None,
                Err(e) => Some((Err(e), ReadState::Done)),
            }
        })
        .fuse()
    }
}

/// The error for a missing file of a snapshot. It must not be taken for a missing table.
fn missing(error: Error) -> Error {
    if !error.is_not_found() {
        return error;
    }
    let missing = Error::corrupt(
        "the log names a file that is gone; if VACUUM removed it, read a later version of the table, otherwise \
         restore the file, or have `repair` remove it from the table",
    );
    replacing(&error, missing)
}

/// The columns to return.
fn pick(table: &StructType, spec: &ReadSpec) -> Result<StructType> {
    let fields_by_name = table.by_name();
    let field = |name: &String| -> Result<StructField> {
        match fields_by_name.field(name) {
            Some(field) => Ok(field.clone()),
            None if row_tracking::is_column(name) || name == row_tracking::ROW_INDEX => {
                row_tracking::field(name, spec.row_tracking.as_ref(), spec.may_lack_row_ids)
            }
            None => Err(table.unknown_column(name)),
        }
    };
    let picked = spec.columns.iter().map(field).collect::<Result<_>>().map(StructType::new)?;
    check_types(&picked)?;
    Ok(picked)
}

/// The predicate, with the columns to decode for it.
fn read_filter(predicate: Arc<BoundPredicate>, table: &StructType, output: &StructType) -> ReadFilter {
    let columns = {
        let needed = predicate.columns();
        narrow(table, &needed.iter().map(|column| column.path.as_slice()).collect::<Vec<_>>())
    };
    let mut with_output = output.clone();
    for field in &columns.fields {
        if !output.fields.iter().any(|f| f.name == field.name) {
            with_output.fields.push(field.clone());
        }
    }
    ReadFilter {
        predicate,
        schema: Arc::new(to_rows_schema(&columns)),
        columns,
        with_output_schema: Arc::new(to_rows_schema(&with_output)),
        with_output,
    }
}

/// The part of `columns` that `paths` need: of a struct only those fields.
fn narrow(columns: &StructType, paths: &[&[String]]) -> StructType {
    let mut narrowed = StructType::default();
    for field in &columns.fields {
        let inside: Vec<&[String]> = paths
            .iter()
            .filter_map(|path| path.split_first())
            .filter(|(first, _)| **first == field.name)
            .map(|(_, rest)| rest)
            .collect();
        let mut field = field.clone();
        match &field.data_type {
            _ if inside.is_empty() => continue,
            DataType::Struct(fields) if inside.iter().all(|rest| !rest.is_empty()) => {
                field.data_type = DataType::Struct(Arc::new(narrow(fields, &inside)));
            }
            _ => {}
        }
        narrowed.fields.push(field);
    }
    narrowed
}

type Tasks = BoxStream<'static, Result<FileTask>>;

enum ReadState {
    Idle(Arc<ScanContext>, Tasks, ReadOptions),
    Running(RunningScan),
    Done,
}

/// The batches of one unit, and the task that reads them, whose error comes last.
struct UnitBatches {
    batches: mpsc::Receiver<RecordBatch>,
    work: TaskGuard<()>,
}

/// A started stream: a planner opens files and starts their units in order; the units are read in order.
struct RunningScan {
    current: Option<UnitBatches>,
    units: mpsc::Receiver<UnitBatches>,
    planner: TaskGuard<()>,
}

/// How many files are opened ahead for each file that is read. An opened one takes the memory of its footer, and of at most
/// 8 MiB of bloom filters until they are used.
const OPENED_AHEAD: usize = 4;

/// How many batches a unit may be ahead of the reader.
const BATCHES_AHEAD: usize = 2;

impl RunningScan {
    fn start(scan: Arc<ScanContext>, tasks: Tasks, options: ReadOptions) -> Self {
        let (sender, units) = mpsc::channel(options.concurrent_files.max(1));
        let planner = TaskGuard::spawn(start_units(scan, tasks, options, sender));
        Self { current: None, units, planner }
    }

    async fn advance(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let Some(unit) = &mut self.current else {
                self.current = self.units.recv().await;
                if self.current.is_none() {
                    return self.planner.outcome().await.map(|()| None);
                }
                continue;
            };
            if let Some(batch) = unit.batches.recv().await {
                return Ok(Some(batch));
            }
            unit.work.outcome().await?;
            self.current = None;
        }
    }
}

/// Opens files ahead, and starts their units in order, at most as many at once as allowed.
async fn start_units(
    scan: Arc<ScanContext>,
    tasks: Tasks,
    options: ReadOptions,
    sender: mpsc::Sender<UnitBatches>,
) -> Result<()> {
    let concurrent_files = options.concurrent_files.max(1);
    let permits = Arc::new(Semaphore::new(concurrent_files.min(Semaphore::MAX_PERMITS)));
    let open = |task: Result<FileTask>| {
        let scan = Arc::clone(&scan);
        async move { spawn_async(open(scan, task?)).await }
    };
    let mut opened = tasks.map(open).buffered(concurrent_files.saturating_mul(OPENED_AHEAD));
    while let Some(units) = opened.try_next().await? {
        for unit in units {
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return Ok(()) };
            if sender.send(start(unit, options.batch_rows.max(1), permit)).await.is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn start(unit: Unit, batch_rows: usize, permit: OwnedSemaphorePermit) -> UnitBatches {
    let (sender, batches) = mpsc::channel(BATCHES_AHEAD);
    let work = TaskGuard::spawn(async move {
        let outcome = decode(unit, batch_rows, sender).await;
        drop(permit);
        outcome
    });
    UnitBatches { batches, work }
}
