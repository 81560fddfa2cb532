//! Planning: which files a query must read, and how many were skipped by partition values and by statistics.
//!
//! Partition values are checked first and need no statistics; statistics decide about the remaining files. A plan consists
//! of columns, from the log to the caller: there is no object for a file before the tasks that read it.
//!
//! Invariant: a file is left out only if no row of it can make the predicate TRUE (`prune`).

pub(crate) mod balanced;
mod columns;
pub(crate) mod files_in_partitions;
pub mod list_files;
mod row_groups;

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::builder::Int64Builder;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray, StructArray};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use arrow_schema::{DataType as ArrowType, Field, Schema, SchemaRef};
use arrow_select::filter::filter;
use deltic_protocol::action::Add;
use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::log_bounds::{LogBounds, TableShape, statistics};
use deltic_protocol::predicate::{BoundPredicate, Column};
use deltic_protocol::property::Properties;
use deltic_protocol::prune;
use deltic_protocol::schema::{StructType, check_requested_once};
use deltic_protocol::stats::json::whole_adds;

use crate::checkpoint::read::AddColumns;
use crate::error::{Error, Result};
use crate::events::TARGET;
use crate::file_index::{FileIndex, IndexColumn, PartitionColumn, Pruning, scatter};
use crate::log::tail::Tail;
use crate::once::Once;
use crate::parallel::{join_ordered, parallelism, spawn_async};
use crate::scan::filter::ScanFilter;
use crate::scan::read::check_types;
use crate::scan::row_tracking;
use crate::scan::task::{FileTask, ReadSpec, TaskGroup};
use crate::snapshot::Snapshot;
use balanced::balanced;
use columns::{base_columns, base_fields, partition_fields, structure};
use row_groups::{KeptGroup, TASK_MEMBERS, file_index, live, prune_row_group};

/// How many files a plan skipped, by the reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Files whose partition values exclude them.
    pub partition: u64,
    /// Files whose statistics exclude them.
    pub statistics: u64,
}

/// What a query will read.
#[derive(Debug, Clone)]
pub struct ScanPlan {
    snapshot: Snapshot,
    spec: ReadSpec,
    pruning: Arc<Pruning>,
    /// Files to read that are not in the checkpoint's [`FileIndex`]: those of the commits
    /// after it, and of a checkpoint in JSON.
    unindexed_adds: Vec<AddBatch>,
    unindexed_totals: Totals,
    /// Files to read that are in row groups of the checkpoint.
    groups: Arc<Vec<KeptGroup>>,
    adds: Arc<Once<Vec<AddBatch>>>,
    totals: Arc<Once<Totals>>,
    /// Files to read.
    pub files_kept: u64,
}

/// The files that a plan reads and skips.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Live files of the snapshot.
    pub files: u64,
    /// Bytes of the live files.
    pub bytes: u64,
    /// Files that are skipped.
    pub skipped: Skipped,
}

impl ScanPlan {
    /// Plans to read `columns` (all if `None`) of the rows that make `filter` TRUE.
    ///
    /// # Errors
    /// `Invalid` for an unknown column or a predicate that does not fit the schema.
    pub async fn new(snapshot: &Snapshot, columns: Option<&[String]>, filter: Option<&str>) -> Result<Self> {
        let planned = match Self::plan(snapshot, columns, filter).await {
            // The reason may be a damaged checkpoint, without which the version can still be read.
            Err(error) if error.is_corrupt() || snapshot.is_gone() => match snapshot.with_readable_sidecars().await {
                Ok(whole) => Self::plan(&whole, columns, filter).await,
                Err(_) => Err(error),
            },
            planned => planned,
        };
        let plan = planned.map_err(|e| e.in_table(snapshot.storage().location()))?;
        if log::log_enabled!(target: TARGET, log::Level::Debug) {
            let (kept, version, location) = (plan.files_kept, snapshot.version(), snapshot.storage().location());
            // The number of all files is logged only if the checksum has it: counting them may cost more than the plan.
            let all = snapshot.checksum().map_or_else(String::new, |checksum| format!(" of {}", checksum.num_files));
            log::debug!(target: TARGET, "a scan of version {version} of {location} keeps {kept}{all} files");
        }
        Ok(plan)
    }

    async fn plan(snapshot: &Snapshot, columns: Option<&[String]>, filter: Option<&str>) -> Result<Self> {
        let mut spec = read_spec(snapshot, columns)?;
        spec.filter = ScanFilter::bind_some(filter, &snapshot.shape().schema)?;
        let pruning = Arc::new(pruning(snapshot.shape(), spec.filter.as_ref())?);
        // The commits are replayed while the checkpoint is pruned.
        let ((unindexed_adds, unindexed_totals), groups) =
            futures::future::try_join(prune_unindexed(snapshot, &pruning), prune_row_groups(snapshot, &pruning))
                .await?;
        let kept =
            unindexed_adds.iter().map(AddBatch::len).chain(groups.iter().map(|kept_group| kept_group.paths.len()));
        Ok(Self {
            snapshot: snapshot.clone(),
            spec,
            files_kept: kept.map(|files| files as u64).sum(),
            pruning,
            unindexed_adds,
            unindexed_totals,
            groups: Arc::new(groups),
            adds: Arc::default(),
            totals: Arc::default(),
        })
    }

    /// The snapshot of the plan.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Keeps the given files if they may have matching rows; deleted rows count too. They may be files of older versions.
    pub(crate) fn keep_with_deleted(&self, adds: AddBatch) -> Result<AddBatch> {
        // Tight bounds of a file with a deletion vector may leave out the deleted rows.
        let bounds = statistics(&adds, &[])?.tight_bounds;
        let has_wide_bounds = |row: usize| bounds.is_valid(row) && !bounds.value(row);
        let mut bounds_exclude_deleted_rows = BooleanBufferBuilder::new(adds.len());
        for row in 0..adds.len() {
            bounds_exclude_deleted_rows.append(adds.deletion_vector(row)?.is_some() && !has_wide_bounds(row));
        }
        let bounds_exclude_deleted_rows = bounds_exclude_deleted_rows.finish();
        let shape = self.snapshot.shape();
        let by_statistics = prune_adds(adds.filter(!&bounds_exclude_deleted_rows)?, &self.pruning, shape)?.1;
        let by_partition = self.pruning.by_partition();
        let rest = prune_adds(adds.filter(bounds_exclude_deleted_rows)?, &by_partition, shape)?.1;
        let origin = by_statistics.origin;
        Ok(AddBatch::concat(&[by_statistics, rest])?.unwrap_or_else(|| AddBatch::none(origin)))
    }

    /// What all tasks have in common.
    pub fn spec(&self) -> &ReadSpec {
        &self.spec
    }

    /// The exact numbers of files that are read and skipped. For this every live file is counted, unlike in planning: the
    /// first use costs as much as listing all files.
    pub async fn totals(&self) -> Result<Totals> {
        let totals = self.totals.get_or_try_init(|| self.count()).await.copied();
        totals.map_err(|e| e.in_table(self.snapshot.storage().location()))
    }

    async fn count(&self) -> Result<Totals> {
        let mut totals = self.unindexed_totals;
        let groups = match self.snapshot.files().await? {
            Some(files) => files.groups().await?,
            None => Vec::new(),
        };
        let by_partition = Arc::new(self.pruning.by_partition());
        let count = |group| count_group(self.snapshot.clone(), by_partition.clone(), group);
        for group in for_each_row_group(groups.into_iter().map(count)).await? {
            totals = totals.and(group);
        }
        // Files that partition values keep and the plan does not were skipped by statistics.
        totals.skipped.statistics = totals.files - totals.skipped.partition - self.files_kept;
        Ok(totals)
    }

    /// Bytes of the files to read.
    pub async fn bytes_kept(&self) -> Result<u64> {
        let of_group = |at: usize| group_bytes(self.snapshot.clone(), self.groups.clone(), at);
        let in_groups = for_each_row_group((0..self.groups.len()).map(of_group)).await?;
        Ok(self.unindexed_adds.iter().map(bytes).chain(in_groups).fold(0, u64::saturating_add))
    }

    /// The files to read, with all members that reading needs.
    async fn adds(&self) -> Result<&[AddBatch]> {
        let load = async || {
            let members = |at: usize| group_adds(self.snapshot.clone(), self.groups.clone(), at);
            let in_groups = for_each_row_group((0..self.groups.len()).map(members)).await?;
            Ok(self.unindexed_adds.iter().cloned().chain(in_groups).collect())
        };
        self.adds.get_or_try_init(load).await.map(Vec::as_slice)
    }

    /// As [`ScanPlan::adds`], with the statistics of the filter's columns.
    pub(super) async fn adds_with_stats(&self) -> Result<Vec<AddBatch>> {
        let of_group = |at: usize| {
            let pruning = self.pruning.clone();
            group_adds_with_stats(self.snapshot.clone(), self.groups.clone(), at, pruning)
        };
        let in_groups = for_each_row_group((0..self.groups.len()).map(of_group)).await?;
        Ok(self.unindexed_adds.iter().cloned().chain(in_groups).collect())
    }

    /// The whole `add` actions of the files to read that have one of these paths, as they are in the log.
    pub(crate) async fn adds_at(&self, paths: &HashSet<String>) -> Result<Vec<Add>> {
        let mut actions = Vec::with_capacity(paths.len());
        let is_wanted = |path: &StringArray| {
            BooleanBuffer::collect_bool(path.len(), |row| path.is_valid(row) && paths.contains(path.value(row)))
        };
        for adds in &self.unindexed_adds {
            let wanted = is_wanted(adds.path());
            actions.extend(whole_adds(adds, wanted.set_indices())?.collect::<Result<Vec<_>, _>>()?);
        }
        for kept_group in self.groups.iter() {
            let wanted = is_wanted(&kept_group.paths);
            if wanted.count_set_bits() == 0 {
                continue;
            }
            let paths = filter(&kept_group.paths, &BooleanArray::new(wanted.clone(), None))?;
            let (files, rows) = (file_index(&self.snapshot).await?, scatter(&kept_group.rows, &wanted));
            let adds = files.members(kept_group.group, &rows, &AddColumns::all(), paths.as_string()).await?;
            actions.extend(whole_adds(&adds, 0..adds.len())?.collect::<Result<Vec<_>, _>>()?);
        }
        Ok(actions)
    }

    /// The filter.
    pub(crate) fn filter(&self) -> Option<BoundPredicate> {
        let conjuncts = [&self.pruning.partition, &self.pruning.statistics].into_iter().flatten();
        conjuncts.cloned().reduce(|one, other| BoundPredicate::And(vec![one, other]))
    }

    /// One task for each file to read.
    pub async fn tasks(&self) -> Result<Vec<FileTask>> {
        let adds = self.adds().await.map_err(|e| e.in_table(self.snapshot.storage().location()))?;
        let rows = adds.iter().flat_map(|adds| (0..adds.len()).map(move |row| (adds, row)));
        rows.map(|(adds, row)| task(adds, row)).collect()
    }

    /// At most `count` groups of tasks, balanced by bytes, in their byte form.
    pub async fn task_groups(&self, count: usize) -> Result<Vec<Vec<u8>>> {
        let groups = balanced(self.tasks().await?, count, |task| (task.size, &task.path)).into_iter();
        groups.map(|tasks| TaskGroup { spec: self.spec.clone(), tasks }.to_bytes()).collect()
    }

    /// The tasks as columns: path, size, modification_time, partition values if the table has partitions, deletion
    /// vector's cardinality.
    pub async fn to_batches(&self) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        let batches = self.batches().await;
        batches.map_err(|e| e.in_table(self.snapshot.storage().location()))
    }

    async fn batches(&self) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        let shape = self.snapshot.shape();
        let mut fields = base_fields(shape);
        fields.push(Field::new("deleted_rows", ArrowType::Int64, true));
        let schema = Arc::new(Schema::new(fields));
        let unindexed_batch = |adds: &AddBatch| plan_batch(adds, shape, schema.clone());
        let mut batches = self.unindexed_adds.iter().map(unindexed_batch).collect::<Result<Vec<_>>>()?;
        let in_group = |at| group_batch(self.snapshot.clone(), self.groups.clone(), at, schema.clone());
        batches.extend(for_each_row_group((0..self.groups.len()).map(in_group)).await?);
        Ok((schema, batches))
    }
}

impl Totals {
    fn and(self, other: Self) -> Self {
        Self {
            files: self.files + other.files,
            bytes: self.bytes.saturating_add(other.bytes),
            skipped: Skipped {
                partition: self.skipped.partition + other.skipped.partition,
                statistics: self.skipped.statistics + other.skipped.statistics,
            },
        }
    }
}

pub(super) fn pruning(shape: &TableShape, filter: Option<&ScanFilter>) -> Result<Pruning> {
    let bound = filter.map(|filter| filter.bound(&shape.schema)).transpose()?;
    Pruning::split(shape, bound.map(Arc::unwrap_or_clone))
}

/// The files that the predicate keeps, of those that are in no row group of the checkpoint, and totals of all these.
async fn prune_unindexed(snapshot: &Snapshot, pruning: &Arc<Pruning>) -> Result<(Vec<AddBatch>, Totals)> {
    let (tail, files) = futures::future::try_join(snapshot.tail(), snapshot.files()).await?;
    let (mut unindexed_adds, mut unindexed_totals) = (Vec::new(), Totals::default());
    for (totals, kept) in prune_unindexed_batches(snapshot, pruning, tail, files).await? {
        unindexed_totals = unindexed_totals.and(totals);
        unindexed_adds.extend((!kept.is_empty()).then_some(kept));
    }
    Ok((unindexed_adds, unindexed_totals))
}

/// The files of the checkpoint's row groups that are live and that the predicate keeps.
async fn prune_row_groups(snapshot: &Snapshot, pruning: &Arc<Pruning>) -> Result<Vec<KeptGroup>> {
    let Some(files) = snapshot.files().await? else { return Ok(Vec::new()) };
    let prune = |group| prune_row_group(snapshot.clone(), pruning.clone(), group);
    let mut kept = for_each_row_group(files.row_groups_for(pruning).await?.into_iter().map(prune)).await?;
    kept.retain(|kept_group| !kept_group.paths.is_empty());
    Ok(kept)
}

/// The files of the commits after the checkpoint, and of a checkpoint in JSON, that the predicate keeps.
async fn prune_unindexed_batches(
    snapshot: &Snapshot,
    pruning: &Arc<Pruning>,
    tail: &Tail,
    files: Option<&FileIndex>,
) -> Result<Vec<(Totals, AddBatch)>> {
    let inline = files.and_then(|files| files.checkpoint().inline_adds());
    let unseen = |adds: &AddBatch| adds.filter(tail.unseen(&adds.keys()?));
    let inline = inline.map(unseen).transpose()?;
    let batches: Vec<AddBatch> = tail.live.iter().cloned().chain(inline).collect();
    let prune = |adds| {
        let (snapshot, pruning) = (snapshot.clone(), pruning.clone());
        spawn_async(async move { prune_adds(adds, &pruning, snapshot.shape()) })
    };
    join_ordered(batches.into_iter().map(prune), parallelism()).await
}

pub(super) fn prune_adds(adds: AddBatch, pruning: &Pruning, shape: &TableShape) -> Result<(Totals, AddBatch)> {
    let (files, all_bytes) = (adds.len() as u64, bytes(&adds));
    let adds = prune_batch(adds, pruning.partition.as_ref(), shape, LogBounds::of_partitions)?;
    let partition = files - adds.len() as u64;
    let needs_counts = pruning.needs_counts();
    let bounds = |adds: &AddBatch, shape: &TableShape, columns: &[&Column]| {
        LogBounds::of_statistics(adds, shape, columns, needs_counts)
    };
    let kept = prune_batch(adds, pruning.statistics.as_ref(), shape, bounds)?;
    let skipped = Skipped { partition, statistics: files - partition - kept.len() as u64 };
    Ok((Totals { files, bytes: all_bytes, skipped }, kept))
}

fn prune_batch(
    adds: AddBatch,
    predicate: Option<&BoundPredicate>,
    shape: &TableShape,
    bounds: impl Fn(&AddBatch, &TableShape, &[&Column]) -> Result<LogBounds, deltic_protocol::error::Error>,
) -> Result<AddBatch> {
    match predicate.filter(|_| !adds.is_empty()) {
        Some(predicate) => {
            let keep = prune::keep(predicate, &bounds(&adds, shape, &predicate.columns())?)?;
            Ok(adds.filter(keep)?)
        }
        None => Ok(adds),
    }
}

/// Runs one future for each row group, several at once.
pub(super) async fn for_each_row_group<T, W>(groups: impl Iterator<Item = W>) -> Result<Vec<T>>
where
    T: Send + 'static,
    W: Future<Output = Result<T>> + Send + 'static,
{
    join_ordered(groups.map(spawn_async), parallelism()).await
}

/// Totals of a row group: of all its files, and of those that partition values keep.
async fn count_group(snapshot: Snapshot, by_partition: Arc<Pruning>, group: usize) -> Result<Totals> {
    let files = file_index(&snapshot).await?;
    let (rows, _) = live(&snapshot, files, group, files.presence(group).await?).await?;
    if rows.count_set_bits() == 0 {
        return Ok(Totals::default());
    }
    let sizes = files.arrays(group, &[IndexColumn::Size], &rows).await?;
    let bytes = sizes.first().and_then(|sizes| sizes.as_primitive_opt::<Int64Type>().map(total)).unwrap_or_default();
    let live_files = rows.count_set_bits() as u64;
    let kept_files = prune_row_group(snapshot.clone(), by_partition, group).await?.paths.len() as u64;
    let skipped = Skipped { partition: live_files.saturating_sub(kept_files), statistics: 0 };
    Ok(Totals { files: live_files, bytes, skipped })
}

/// Bytes of the files to read of a row group.
async fn group_bytes(snapshot: Snapshot, groups: Arc<Vec<KeptGroup>>, at: usize) -> Result<u64> {
    let kept_group = groups.get(at).ok_or_else(|| Error::internal("the row group index is out of range"))?;
    let sizes = file_index(&snapshot).await?.arrays(kept_group.group, &[IndexColumn::Size], &kept_group.rows).await?;
    Ok(sizes.first().and_then(|sizes| sizes.as_primitive_opt::<Int64Type>().map(total)).unwrap_or_default())
}

/// The files to read of a row group, with all members that reading needs.
async fn group_adds(snapshot: Snapshot, groups: Arc<Vec<KeptGroup>>, at: usize) -> Result<AddBatch> {
    let kept_group = groups.get(at).ok_or_else(|| Error::internal("the row group index is out of range"))?;
    let wanted = AddColumns { members: TASK_MEMBERS.to_vec(), ..AddColumns::default() };
    file_index(&snapshot).await?.members(kept_group.group, &kept_group.rows, &wanted, &kept_group.paths).await
}

/// As [`group_adds`], with the statistics of the filter's columns.
async fn group_adds_with_stats(
    snapshot: Snapshot,
    groups: Arc<Vec<KeptGroup>>,
    at: usize,
    pruning: Arc<Pruning>,
) -> Result<AddBatch> {
    let kept_group = groups.get(at).ok_or_else(|| Error::internal("the row group index is out of range"))?;
    let members = TASK_MEMBERS.to_vec();
    let wanted = AddColumns { members, stats: pruning.statistics_leaves(), num_records: true, ..AddColumns::default() };
    file_index(&snapshot).await?.members(kept_group.group, &kept_group.rows, &wanted, &kept_group.paths).await
}

/// Files to read, as columns.
fn plan_batch(adds: &AddBatch, shape: &TableShape, schema: SchemaRef) -> Result<RecordBatch> {
    let mut columns = base_columns(adds, shape)?;
    columns.push(deleted_rows(adds.structure("deletionVector"), adds.len()));
    Ok(RecordBatch::try_new(schema, columns)?)
}

/// The files to read of a row group, as columns.
async fn group_batch(
    snapshot: Snapshot,
    groups: Arc<Vec<KeptGroup>>,
    at: usize,
    schema: SchemaRef,
) -> Result<RecordBatch> {
    let (files, shape) = (file_index(&snapshot).await?, snapshot.shape());
    let kept_group = groups.get(at).ok_or_else(|| Error::internal("the row group index is out of range"))?;
    let mut wanted = vec![IndexColumn::Size, IndexColumn::ModificationTime];
    let partitions = partition_fields(shape);
    for field in &partitions {
        wanted.push(IndexColumn::Partition(PartitionColumn::of(shape, field.name())?));
    }
    let has_vectors = files.may_have_vectors(kept_group.group).await?;
    wanted.extend(has_vectors.then_some(IndexColumn::DeletionVector));
    let mut arrays = match files.arrays(kept_group.group, &wanted, &kept_group.rows).await {
        Err(error) if error.is_corrupt() => {
            return plan_batch(&group_adds(snapshot.clone(), groups.clone(), at).await?, shape, schema);
        }
        arrays => arrays?,
    };
    let vectors = if has_vectors { arrays.pop() } else { None };
    let values = arrays.split_off(2);
    let mut columns = vec![Arc::new(kept_group.paths.clone()) as ArrayRef];
    columns.extend(arrays);
    columns.extend(structure(&partitions, values)?);
    columns.push(deleted_rows(vectors.as_ref().and_then(|v| v.as_struct_opt()), kept_group.paths.len()));
    Ok(RecordBatch::try_new(schema, columns)?)
}

fn bytes(adds: &AddBatch) -> u64 {
    adds.size().map(total).unwrap_or_default()
}

fn total(sizes: &Int64Array) -> u64 {
    sizes.iter().flatten().filter_map(|size| u64::try_from(size).ok()).fold(0, u64::saturating_add)
}

/// The spec of a scan without a filter.
///
/// # Errors
/// `Invalid` for an unknown column, `Unsupported` for one whose values cannot be read.
pub(crate) fn read_spec(snapshot: &Snapshot, columns: Option<&[String]>) -> Result<ReadSpec> {
    let shape = snapshot.shape();
    let is_tracked = |name: &String| row_tracking::is_column(name) && shape.schema.field(name).is_none();
    let row_tracking = match columns.is_some_and(|columns| columns.iter().any(is_tracked)) {
        true => Properties::of(snapshot.metadata()).row_tracking(snapshot.protocol())?,
        false => None,
    };
    let in_table = |e: Error| e.in_table(snapshot.storage().location());
    let fields_by_name = shape.schema.by_name();
    let resolve = |name: &String| {
        if is_tracked(name) {
            return row_tracking::field(name, row_tracking.as_ref(), false).map(|field| field.name);
        }
        let field = fields_by_name.field(name).ok_or_else(|| shape.schema.unknown_column(name))?;
        Ok(field.name.clone())
    };
    let columns = match columns {
        Some(columns) => columns.iter().map(resolve).collect::<Result<Vec<_>>>().map_err(in_table)?,
        None => shape.schema.fields.iter().map(|f| f.name.clone()).collect(),
    };
    check_requested_once(columns.iter().map(String::as_str)).map_err(in_table)?;
    let fields = columns.iter().filter_map(|name| fields_by_name.field(name)).cloned().collect();
    check_types(&StructType::new(fields)).map_err(in_table)?;
    Ok(ReadSpec { row_tracking, ..ReadSpec::new(shape, columns) })
}

pub(crate) fn task(adds: &AddBatch, row: usize) -> Result<FileTask> {
    let number = |name: &str| adds.int64(name).filter(|c| c.is_valid(row)).map(|c| c.value(row));
    let path = adds.path().value(row).to_owned();
    let size = number("size").and_then(|size| u64::try_from(size).ok());
    Ok(FileTask {
        size: size.ok_or_else(|| Error::corrupt("the file's size in the log is missing or negative").in_file(&path))?,
        partition_values: adds.partition_values_at(row)?,
        deletion_vector: adds.deletion_vector(row)?,
        num_records: None,
        base_row_id: number("baseRowId"),
        default_row_commit_version: number("defaultRowCommitVersion"),
        path,
        ..FileTask::default()
    })
}

fn deleted_rows(vectors: Option<&StructArray>, files: usize) -> ArrayRef {
    let cardinality = vectors.and_then(|d| d.column_by_name("cardinality"));
    match (vectors, cardinality.and_then(|c| c.as_primitive_opt::<Int64Type>())) {
        (Some(vectors), Some(cardinality)) => {
            let mut rows = Int64Builder::with_capacity(files);
            (0..files).for_each(|row| {
                let has_cardinality = vectors.is_valid(row) && cardinality.is_valid(row);
                rows.append_option(has_cardinality.then(|| cardinality.value(row)));
            });
            Arc::new(rows.finish())
        }
        _ => Arc::new(Int64Array::new_null(files)),
    }
}
