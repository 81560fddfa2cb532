//! Planning: which files a query must read, and what was skipped by what.
//!
//! Partition values decide first and need no statistics; statistics decide among what is left. A plan is columns, from
//! the log to the caller: nothing is made per file but the tasks that are read.
//!
//! Invariant: a file is left out only if no row of it can make the predicate TRUE (`prune`).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use arrow_array::builder::Int64Builder;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StructArray};
use arrow_schema::{DataType as ArrowType, Field, Fields, Schema, SchemaRef};
use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::log_bounds::{LogBounds, TableShape, statistics};
use deltic_protocol::predicate::{BoundPredicate, Column, parse};
use deltic_protocol::property::Properties;
use deltic_protocol::prune;
use deltic_protocol::schema::arrow::to_arrow_type;
use deltic_protocol::schema::{DataType, StructField};
use futures::stream::{Stream, TryStreamExt};

use super::row_tracking;
use super::task::{FileTask, ReadSpec, TaskGroup};
use crate::checkpoint::read::AddColumns;
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;

/// Batches in work at once.
const CONCURRENT_BATCHES: usize = 4;

/// Members of `add` that reading a file needs.
const TASK_MEMBERS: [&str; 7] =
    ["path", "partitionValues", "size", "modificationTime", "deletionVector", "baseRowId", "defaultRowCommitVersion"];

/// How many files a plan left out, by what.
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
    kept: Vec<AddBatch>,
    /// Live files of the snapshot.
    pub files_total: u64,
    /// Files to read.
    pub files_kept: u64,
    /// Bytes of the live files.
    pub bytes_total: u64,
    /// Bytes of the files to read.
    pub bytes_kept: u64,
    /// Files left out.
    pub skipped: Skipped,
}

/// A predicate split by what can decide it.
struct Pruning {
    /// Conjuncts over partition columns alone.
    partition: Option<BoundPredicate>,
    /// The other conjuncts.
    statistics: Option<BoundPredicate>,
}

impl Pruning {
    fn of(shape: &TableShape, filter: Option<&str>) -> Result<Self> {
        let Some(filter) = filter else { return Ok(Self { partition: None, statistics: None }) };
        let bound = parse(filter)?.bind(&shape.schema)?;
        let by_partition = |c: &&Column| c.path.first().is_some_and(|name| shape.is_partition_column(name));
        let (partition, statistics): (Vec<_>, Vec<_>) =
            bound.split_conjuncts().into_iter().cloned().partition(|c| c.columns().iter().all(by_partition));
        let all = |terms: Vec<BoundPredicate>| (!terms.is_empty()).then_some(BoundPredicate::And(terms));
        Ok(Self { partition: all(partition), statistics: all(statistics) })
    }

    /// Physical leaf paths whose statistics the predicate can use.
    fn leaves(&self, shape: &TableShape) -> Result<Vec<Vec<String>>> {
        let mut leaves = Vec::new();
        for column in self.statistics.iter().flat_map(BoundPredicate::columns) {
            let partition = column.path.first().is_some_and(|name| shape.is_partition_column(name));
            if let Some(leaf) = shape.leaf(&column.path)?.filter(|leaf| !partition && !leaves.contains(&leaf.path)) {
                leaves.push(leaf.path);
            }
        }
        Ok(leaves)
    }

    fn by_partition(&self, adds: AddBatch, shape: &TableShape) -> Result<AddBatch> {
        let Some(predicate) = &self.partition else { return Ok(adds) };
        let bounds = LogBounds::of_partitions(&adds, shape, &predicate.columns())?;
        adds.filter(prune::keep(predicate, &bounds)?)
    }

    fn by_statistics(&self, adds: AddBatch, shape: &TableShape) -> Result<AddBatch> {
        let Some(predicate) = &self.statistics else { return Ok(adds) };
        let bounds = LogBounds::of_statistics(&adds, shape, &predicate.columns())?;
        adds.filter(prune::keep(predicate, &bounds)?)
    }
}

impl ScanPlan {
    /// Plans reading `columns` (all when `None`) of the rows that make `filter` TRUE.
    ///
    /// # Errors
    /// `Invalid` for an unknown column or a predicate that does not fit the schema.
    pub async fn new(snapshot: &Snapshot, columns: Option<&[String]>, filter: Option<&str>) -> Result<Self> {
        let in_table = |e: Error| e.in_table(snapshot.storage().location());
        let shape = snapshot.shape().clone();
        let spec = read_spec(snapshot, columns, filter).map_err(in_table)?;
        let pruning = Pruning::of(&shape, filter).map_err(in_table)?;
        let wanted =
            AddColumns { members: TASK_MEMBERS.to_vec(), stats: pruning.leaves(&shape)?, ..AddColumns::default() };
        let mut plan = Self {
            snapshot: snapshot.clone(),
            spec,
            kept: Vec::new(),
            files_total: 0,
            files_kept: 0,
            bytes_total: 0,
            bytes_kept: 0,
            skipped: Skipped::default(),
        };
        let live = snapshot.live_files(&wanted).await?;
        let pruning = Arc::new((pruning, shape));
        let pruned = live.map_ok(|adds| prune_batch(adds, pruning.clone())).try_buffered(CONCURRENT_BATCHES);
        let mut pruned = std::pin::pin!(pruned);
        while let Some((totals, kept)) = pruned.try_next().await.map_err(in_table)? {
            plan.take(totals, kept);
        }
        Ok(plan)
    }

    fn take(&mut self, totals: Totals, kept: AddBatch) {
        self.files_total += totals.files;
        self.bytes_total = self.bytes_total.saturating_add(totals.bytes);
        self.skipped.partition += totals.files - totals.after_partition;
        self.skipped.statistics += totals.after_partition - kept.len() as u64;
        self.files_kept += kept.len() as u64;
        self.bytes_kept = self.bytes_kept.saturating_add(bytes(&kept));
        if !kept.is_empty() {
            self.kept.push(kept);
        }
    }

    /// The snapshot that the plan is of.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// What all tasks share.
    pub fn spec(&self) -> &ReadSpec {
        &self.spec
    }

    /// One task for each file to read.
    pub fn tasks(&self) -> Result<Vec<FileTask>> {
        let rows = self.kept.iter().flat_map(|adds| (0..adds.len()).map(move |row| (adds, row)));
        rows.map(|(adds, row)| task(adds, row)).collect()
    }

    /// At most `count` groups of tasks, balanced by bytes, in their byte form.
    pub fn task_groups(&self, count: usize) -> Result<Vec<Vec<u8>>> {
        let mut tasks = self.tasks()?;
        // Largest first into the lightest group: within a third of the best balance there is.
        tasks.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| a.path.cmp(&b.path)));
        let count = count.clamp(1, tasks.len().max(1));
        let mut groups: Vec<Vec<FileTask>> = vec![Vec::new(); count];
        let mut lightest: BinaryHeap<_> = (0..count).map(|index| Reverse((0_u64, index))).collect();
        for task in tasks {
            if let Some(mut top) = lightest.peek_mut() {
                let Reverse((bytes, index)) = &mut *top;
                *bytes = bytes.saturating_add(task.size.max(1));
                if let Some(group) = groups.get_mut(*index) {
                    group.push(task);
                }
            }
        }
        let groups = groups.into_iter().filter(|tasks| !tasks.is_empty());
        groups.map(|tasks| TaskGroup { spec: self.spec.clone(), tasks }.to_bytes()).collect()
    }

    /// The tasks as columns: path, size, modification_time, partition values, deletion vector's cardinality.
    pub fn to_batches(&self) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        let shape = self.snapshot.shape();
        let schema = Arc::new(Schema::new(vec![
            Field::new("path", ArrowType::Utf8, false),
            Field::new("size", ArrowType::Int64, true),
            Field::new("modification_time", ArrowType::Int64, true),
            Field::new("partition", ArrowType::Struct(partition_fields(shape)), false),
            Field::new("deleted_rows", ArrowType::Int64, true),
        ]));
        let batch = |adds: &AddBatch| {
            let mut columns = base_columns(adds, shape)?;
            columns.push(deleted_rows(adds));
            Ok(RecordBatch::try_new(schema.clone(), columns)?)
        };
        let batches = self.kept.iter().map(batch).collect::<Result<_>>()?;
        Ok((schema, batches))
    }
}

struct Totals {
    files: u64,
    bytes: u64,
    after_partition: u64,
}

async fn prune_batch(adds: AddBatch, pruning: Arc<(Pruning, TableShape)>) -> Result<(Totals, AddBatch)> {
    blocking(move || {
        let (pruning, shape) = pruning.as_ref();
        let (files, bytes) = (adds.len() as u64, bytes(&adds));
        let adds = pruning.by_partition(adds, shape)?;
        let totals = Totals { files, bytes, after_partition: adds.len() as u64 };
        Ok((totals, pruning.by_statistics(adds, shape)?))
    })
    .await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|e| Error::internal("planning failed").caused_by(e))?
}

fn bytes(adds: &AddBatch) -> u64 {
    let sizes = adds.size().map(|sizes| sizes.iter().flatten());
    sizes.into_iter().flatten().filter_map(|size| u64::try_from(size).ok()).fold(0, u64::saturating_add)
}

fn read_spec(snapshot: &Snapshot, columns: Option<&[String]>, filter: Option<&str>) -> Result<ReadSpec> {
    let shape = snapshot.shape();
    let is_tracked = |name: &String| row_tracking::is_column(name) && shape.schema.field(name).is_none();
    let row_tracking = match columns.is_some_and(|columns| columns.iter().any(is_tracked)) {
        true => Properties::of(snapshot.metadata()).row_tracking(snapshot.protocol())?,
        false => None,
    };
    let resolve = |name: &String| {
        if is_tracked(name) {
            return row_tracking::field(name, row_tracking.as_ref()).map(|field| field.name);
        }
        let field = shape.schema.field(name).ok_or_else(|| {
            let names: Vec<&str> = shape.schema.fields.iter().map(|f| f.name.as_str()).collect();
            Error::invalid(format!("the table has no column `{name}`; it has {}", names.join(", ")))
        })?;
        Ok(field.name.clone())
    };
    let columns = match columns {
        Some(columns) => {
            let names = columns.iter().map(resolve).collect::<Result<Vec<_>>>();
            names.map_err(|e| e.in_table(snapshot.storage().location()))?
        }
        None => shape.schema.fields.iter().map(|f| f.name.clone()).collect(),
    };
    if let Some(twice) = columns.iter().enumerate().find(|(i, name)| columns[..*i].contains(name)) {
        return Err(Error::invalid(format!("the column `{}` is asked for twice", twice.1)));
    }
    Ok(ReadSpec {
        schema_string: snapshot.metadata().schema_string.clone(),
        partition_columns: shape.partition_columns.clone(),
        column_mapping: shape.mapping.as_str().to_owned(),
        columns,
        predicate: filter.map(str::to_owned),
        row_tracking,
    })
}

fn task(adds: &AddBatch, row: usize) -> Result<FileTask> {
    let number = |name: &str| adds.int64(name).filter(|c| c.is_valid(row)).map(|c| c.value(row));
    let path = adds.path().value(row).to_owned();
    let size = number("size").and_then(|size| u64::try_from(size).ok());
    Ok(FileTask {
        size: size.ok_or_else(|| Error::corrupt("the file's size in the log is missing or negative").in_file(&path))?,
        partition_values: adds.partition_values_at(row),
        deletion_vector: adds.deletion_vector(row)?,
        num_records: None,
        base_row_id: number("baseRowId"),
        default_row_commit_version: number("defaultRowCommitVersion"),
        path,
        ..FileTask::default()
    })
}

/// The live files with everything the log says of them, typed, batch by batch.
///
/// Columns: `path`, `size`, `modification_time` (ms), `partition` (struct of typed values), `num_records`, `min`, `max`,
/// `null_count` (structs with one field for each leaf column, named by its dotted path).
pub async fn files(
    snapshot: &Snapshot,
    filter: Option<&str>,
) -> Result<(SchemaRef, impl Stream<Item = Result<RecordBatch>> + Send + use<>)> {
    let location = snapshot.storage().location().to_owned();
    let shape = snapshot.shape().clone();
    let pruning = Pruning::of(&shape, filter).map_err(|e| e.in_table(&location))?;
    let mut leaves = Vec::new();
    for path in shape.leaf_paths() {
        leaves.extend(shape.leaf(&path)?.map(|leaf| (path.join("."), leaf)));
    }
    let wanted = AddColumns {
        members: TASK_MEMBERS.to_vec(),
        stats: leaves.iter().map(|(_, leaf)| leaf.path.clone()).collect(),
        num_records: true,
        ..AddColumns::default()
    };
    let bound = |(name, leaf): &(String, deltic_protocol::stats::read::Leaf)| {
        Field::new(name, to_arrow_type(&DataType::Primitive(leaf.data_type.clone())), true)
    };
    let bounds: Fields = leaves.iter().map(bound).collect();
    let counts: Fields = leaves.iter().map(|(name, _)| Field::new(name, ArrowType::Int64, true)).collect();
    let schema = Arc::new(Schema::new(vec![
        Field::new("path", ArrowType::Utf8, false),
        Field::new("size", ArrowType::Int64, true),
        Field::new("modification_time", ArrowType::Int64, true),
        Field::new("partition", ArrowType::Struct(partition_fields(&shape)), false),
        Field::new("num_records", ArrowType::Int64, true),
        Field::new("min", ArrowType::Struct(bounds.clone()), false),
        Field::new("max", ArrowType::Struct(bounds.clone()), false),
        Field::new("null_count", ArrowType::Struct(counts.clone()), false),
    ]));
    let leaves: Vec<_> = leaves.into_iter().map(|(_, leaf)| leaf).collect();
    let out = schema.clone();
    let describe = Arc::new(move |adds: AddBatch| {
        let adds = pruning.by_statistics(pruning.by_partition(adds, &shape)?, &shape)?;
        let mut columns = base_columns(&adds, &shape)?;
        let stats = statistics(&adds, &leaves)?;
        columns.push(Arc::new(stats.num_records));
        let of = |fields: &Fields, arrays: Vec<ArrayRef>| structure(fields, arrays, adds.len());
        columns.push(of(&bounds, stats.leaves.iter().map(|l| l.min.clone()).collect())?);
        columns.push(of(&bounds, stats.leaves.iter().map(|l| l.max.clone()).collect())?);
        columns.push(of(&counts, stats.leaves.iter().map(|l| Arc::new(l.null_count.clone()) as _).collect())?);
        Ok(RecordBatch::try_new(out.clone(), columns)?)
    });
    let batch = move |adds| {
        let describe = describe.clone();
        blocking(move || describe(adds))
    };
    let batches = snapshot.live_files(&wanted).await?.map_ok(batch).try_buffered(CONCURRENT_BATCHES);
    Ok((schema, batches.map_err(move |e| e.in_table(&location))))
}

fn structure(fields: &Fields, arrays: Vec<ArrayRef>, rows: usize) -> Result<ArrayRef> {
    if fields.is_empty() {
        return Ok(Arc::new(StructArray::new_empty_fields(rows, None)));
    }
    Ok(Arc::new(StructArray::try_new(fields.clone(), arrays, None)?))
}

fn partition_fields(shape: &TableShape) -> Fields {
    let field = |name: &String| shape.schema.field(name).map(|f: &StructField| (&f.name, to_arrow_type(&f.data_type)));
    shape.partition_columns.iter().filter_map(field).map(|(name, arrow)| Field::new(name, arrow, true)).collect()
}

fn base_columns(adds: &AddBatch, shape: &TableShape) -> Result<Vec<ArrayRef>> {
    let number = |name: &str| -> ArrayRef {
        Arc::new(adds.int64(name).cloned().unwrap_or_else(|| Int64Array::new_null(adds.len())))
    };
    let partitions = partition_fields(shape);
    let values = partitions.iter().map(|f| shape.partition_values(adds, f.name())).collect::<Result<Vec<_>>>()?;
    Ok(vec![
        Arc::new(adds.path().clone()),
        number("size"),
        number("modificationTime"),
        structure(&partitions, values, adds.len())?,
    ])
}

fn deleted_rows(adds: &AddBatch) -> ArrayRef {
    let vectors = adds.structure("deletionVector");
    let cardinality = vectors.and_then(|d| d.column_by_name("cardinality"));
    match (vectors, cardinality.and_then(|c| c.as_primitive_opt::<Int64Type>())) {
        (Some(vectors), Some(cardinality)) => {
            let mut rows = Int64Builder::with_capacity(adds.len());
            (0..adds.len()).for_each(|row| {
                let there = vectors.is_valid(row) && cardinality.is_valid(row);
                rows.append_option(there.then(|| cardinality.value(row)));
            });
            Arc::new(rows.finish())
        }
        _ => Arc::new(Int64Array::new_null(adds.len())),
    }
}
