//! Turns a file task into the units of work that read it.
//!
//! This fetches the footer and the deletion vector, finds the columns, decides how the predicate is applied, skips row
//! groups without matching rows, and divides the others into [`Unit`]s. A file that its partition values rule out costs no
//! request.
//!
//! Invariant: a deletion vector counts rows from the start of the file, whatever row groups are skipped
//! (`read::deletion_vectors_span_row_groups`).
//!
//! PROTOCOL.md: "Reader Requirements for Deletion Vectors", "Partition Value Serialization".

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use deltic_protocol::action::DeletionVectorDescriptor;
use deltic_protocol::deletion_vector::DeletionVector;
use deltic_protocol::error::{Error, Result};
use deltic_protocol::predicate::{BoundPredicate, Column, keep};
use deltic_protocol::property::RowTracking;
use deltic_protocol::prune;
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::arrow::to_rows_schema;
use deltic_protocol::schema::mapping::ColumnMapping;
use deltic_protocol::schema::{DataType, StructField, StructType, TableSchema, with_article};
use parquet::arrow::arrow_reader::{RowSelection, RowSelector};
use parquet::arrow::push_decoder::RowGroupSelection;
use parquet::file::metadata::ParquetMetaData;

use super::adapt::{Adapter, Constants, FileSchema, LogValues, count_leaves};
use super::bloom_filters::{self, Lookup};
use super::decode::blocking;
use super::fetch::{FileBytes, parse_footer};
use super::pruned::PrunedRowGroups;
use super::row_groups::RowGroupBounds;
use super::unit::{Filter, OpenFile, Unit};
use crate::error::corrupt_parquet;
use crate::footer;
use crate::footer::calendar::Calendars;
use crate::scan::row_tracking::{self, Tracked};
use crate::scan::task::FileTask;
use crate::scan::vectors::read_vector;
use deltic_store::{Storage, decode_path};

/// Compressed bytes of needed columns that make a unit; smaller row groups share a unit.
const UNIT_BYTES: u64 = 16 * 1024 * 1024;

/// What all files of one scan have in common.
#[derive(Debug)]
pub(crate) struct ScanContext {
    pub(crate) storage: Storage,
    pub(crate) table: TableSchema,
    pub(crate) mapping: ColumnMapping,
    /// Logical names.
    pub(crate) partition_columns: BTreeSet<String>,
    pub(crate) output: StructType,
    pub(crate) schema: SchemaRef,
    pub(crate) filter: Option<ReadFilter>,
    /// How the table tracks rows.
    pub(crate) row_tracking: Option<RowTracking>,
    /// Whether rows may lack row ids and versions.
    pub(crate) may_lack_row_ids: bool,
    pub(super) pruned: PrunedRowGroups,
}

/// The predicate and the columns it needs.
#[derive(Debug)]
pub(crate) struct ReadFilter {
    pub(crate) predicate: Arc<BoundPredicate>,
    pub(crate) columns: StructType,
    pub(crate) schema: SchemaRef,
    /// The output columns, and after them those that only the predicate needs.
    pub(crate) with_output: StructType,
    pub(crate) with_output_schema: SchemaRef,
}

/// The work that reads the rows of `task`, in their order.
pub(crate) async fn open(scan: Arc<ScanContext>, task: FileTask) -> Result<Vec<Unit>> {
    let path = task.path.clone();
    open_task(scan, task).await.map_err(|e| e.in_file(path))
}

async fn open_task(scan: Arc<ScanContext>, task: FileTask) -> Result<Vec<Unit>> {
    let log_values = LogValues { constants: scan.constants(&task)?, tracked: scan.tracked(&task) };
    if !scan.may_have_matching_row(&log_values)? {
        return Ok(Vec::new());
    }
    let path = decode_path(&task.path)?;
    let mut rows = None;
    if task.only_rows.is_some() {
        let listed = scan.rows(&task).await?;
        if matches!(&listed, Rows::Only(rows) if rows.cardinality() == 0) {
            return Ok(Vec::new());
        }
        rows = Some(listed);
    }
    let listed = async {
        match rows {
            Some(rows) => Ok(rows),
            None => scan.rows(&task).await,
        }
    };
    let fetch = async {
        let bytes = FileBytes::open(scan.storage.clone(), path, task.size).await?;
        let footer = bytes.footer().await?;
        Ok((bytes, footer))
    };
    let ((bytes, footer), rows) = futures::future::try_join(fetch, listed).await?;
    let path = task.path.clone();
    let context = Arc::clone(&scan);
    let planned = blocking(&path, move || {
        let metadata = Arc::new(parse_footer(&task.path, &footer)?);
        Ok(match plan(&scan, &task.path, bytes, metadata, &log_values)? {
            None => Opened::Units(Vec::new()),
            Some(PlannedFile { file, row_groups, lookups }) if lookups.is_empty() => {
                Opened::Units(units(Arc::new(file), &row_groups, &rows)?)
            }
            Some(planned) => Opened::WithFilters(Box::new((planned, rows))),
        })
    });
    let (PlannedFile { file, mut row_groups, lookups }, rows) = match planned.await? {
        Opened::Units(units) => return Ok(units),
        Opened::WithFilters(planned) => *planned,
    };
    let filters = bloom_filters::fetch(&file.bytes, &lookups).await?;
    blocking(&path, move || {
        let before = row_groups.len();
        bloom_filters::prune(&mut row_groups, &lookups, &filters);
        context.pruned.add_by_bloom_filter(before.saturating_sub(row_groups.len()));
        units(Arc::new(file), &row_groups, &rows)
    })
    .await
}

/// A file whose footer was read.
enum Opened {
    Units(Vec<Unit>),
    /// Its bloom filters are checked first.
    WithFilters(Box<(PlannedFile, Rows)>),
}

impl ScanContext {
    /// The values that are the same in all rows of a file: partition values, and constants of the task.
    fn constants(&self, task: &FileTask) -> Result<Constants> {
        let mut constants = Constants::new();
        for name in &self.partition_columns {
            let field = self
                .table
                .field(name)
                .ok_or_else(|| Error::corrupt(format!("the partition column `{name}` is not in the table's schema")))?;
            let is_requested = || {
                let filter_columns = self.filter.iter().flat_map(|filter| &filter.columns.fields);
                self.output.fields.iter().chain(filter_columns).any(|f| f.name == field.name)
            };
            let primitive = match (&field.data_type, field.data_type.as_primitive()) {
                (_, Some(primitive)) => primitive,
                (DataType::Foreign(_), None) if !is_requested() => continue,
                (DataType::Foreign(foreign), None) => {
                    let message = format!("the partition column `{name}` has the type {foreign}; leave it out");
                    return Err(Error::unsupported(format!("type {foreign}"), message));
                }
                (other, None) => {
                    return Err(Error::corrupt(format!("the partition column `{name}` is {}", with_article(other))));
                }
            };
            let [key, other_key] = self.mapping.partition_keys(&self.table, field)?;
            let values = &task.partition_values;
            let value = values.get(key).or_else(|| values.get(other_key)).and_then(Option::as_deref);
            constants.insert(field.name.clone(), Scalar::parse_partition(value, primitive)?);
        }
        for (name, value) in &task.constants {
            let field = self.table.field(name);
            let primitive = field.and_then(|field| field.data_type.as_primitive());
            let primitive = primitive.ok_or_else(|| Error::invalid(format!("`{name}` cannot be a constant")))?;
            constants.insert(name.clone(), Scalar::parse_partition(Some(value), primitive)?);
        }
        Ok(constants)
    }

    /// The requested columns of row tracking. A column of the table with the same name takes precedence.
    fn tracked(&self, task: &FileTask) -> BTreeMap<&'static str, Tracked> {
        let mut tracked = row_tracking::of_file(self.row_tracking.as_ref(), task, self.may_lack_row_ids);
        let is_requested =
            |name: &str| self.output.fields.iter().any(|f| f.name == name) && self.table.field(name).is_none();
        tracked.retain(|name, _| is_requested(name));
        tracked
    }

    /// False if the values that are the same in all rows of a file show that no row matches.
    fn may_have_matching_row(&self, log_values: &LogValues) -> Result<bool> {
        let Some(filter) = &self.filter else { return Ok(true) };
        let is_known = |field: &&StructField| log_values.constants.contains_key(&field.name);
        let known_columns = StructType::new(filter.columns.fields.iter().filter(is_known).cloned().collect());
        let schema = Arc::new(to_rows_schema(&known_columns));
        let adapter = Adapter::new(&known_columns, schema, self.mapping, &FileSchema::default(), log_values)?;
        for conjunct in filter.predicate.split_conjuncts() {
            let is_known = |column: &&Column| column.path.first().is_some_and(|n| log_values.constants.contains_key(n));
            if conjunct.columns().iter().all(is_known) && !always(conjunct, &adapter)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Which rows of a file count.
    async fn rows(&self, task: &FileTask) -> Result<Rows> {
        let deleted = self.vector(task.deletion_vector.as_ref());
        let only = self.vector(task.only_rows.as_ref());
        Ok(match futures::future::try_join(only, deleted).await? {
            (None, None) => Rows::All,
            (None, Some(deleted)) => Rows::Without(deleted),
            (Some(only), None) => Rows::Only(only),
            (Some(only), Some(deleted)) => Rows::Only(only.minus(&deleted)),
        })
    }

    async fn vector(&self, descriptor: Option<&DeletionVectorDescriptor>) -> Result<Option<DeletionVector>> {
        match descriptor {
            Some(descriptor) => read_vector(&self.storage, descriptor).await.map(Some),
            None => Ok(None),
        }
    }
}

/// Which rows of a file count.
#[derive(Debug)]
enum Rows {
    All,
    Without(DeletionVector),
    Only(DeletionVector),
}

impl Rows {
    /// Their ranges among the `total` rows of the file, ascending; `None` for all of them.
    fn row_ranges(&self, total: u64) -> Result<Option<Vec<Range<u64>>>> {
        Ok(match self {
            Self::All => None,
            Self::Without(deleted) => Some(deleted.kept_ranges(total)?.collect()),
            Self::Only(rows) => {
                // Fails on a row that the file does not have.
                drop(rows.kept_ranges(total)?);
                Some(rows.deleted_ranges().collect())
            }
        })
    }
}

/// Whether a predicate over columns that are the same in all rows of a file is TRUE.
fn always(predicate: &BoundPredicate, adapter: &Adapter) -> Result<bool> {
    Ok(keep(&predicate.evaluate(&adapter.constant(1)?)?).true_count() == 1)
}

/// A file to read.
struct PlannedFile {
    file: OpenFile,
    /// The row groups that bounds do not exclude.
    row_groups: Vec<usize>,
    /// The bloom filters that may exclude more of them.
    lookups: Vec<Lookup>,
}

/// Decides how a file is read; `None` if no row qualifies.
fn plan(
    scan: &ScanContext,
    path: &str,
    bytes: FileBytes,
    metadata: Arc<ParquetMetaData>,
    log_values: &LogValues,
) -> Result<Option<PlannedFile>> {
    let (metadata, fields) =
        footer::with_positions(metadata, log_values.needs_positions()).map_err(|e| corrupt_parquet(path, e))?;
    if fields.iter().map(|f| count_leaves(f.data_type())).sum::<usize>() != metadata.parquet_schema().num_columns() {
        return Err(Error::corrupt("the file's schema has columns without a type; rewrite the file"));
    }
    let calendars = Calendars::of(metadata.metadata().file_metadata());
    let columns = FileSchema { fields, calendars };
    let adapter = |wanted: &StructType, schema: &SchemaRef| {
        Adapter::new(wanted, Arc::clone(schema), scan.mapping, &columns, log_values)
    };
    let mut output = adapter(&scan.output, &scan.schema)?;
    let mut filter = Filter::None;
    let mut row_groups: Vec<usize> = (0..metadata.metadata().num_row_groups()).collect();
    let mut lookups = Vec::new();
    if let Some(read_filter) = &scan.filter {
        let first = adapter(&read_filter.columns, &read_filter.schema)?;
        if first.leaves().is_empty() {
            if !always(&read_filter.predicate, &first)? {
                scan.pruned.add_file(row_groups.len(), 0);
                return Ok(None);
            }
        } else {
            let bounds = RowGroupBounds::new(&metadata, &columns, &scan.table, scan.mapping, &log_values.constants);
            let kept = prune::keep(&read_filter.predicate, &bounds)?;
            row_groups.retain(|group| *group >= kept.len() || kept.value(*group));
            let needed: BTreeSet<usize> = first.leaves().iter().chain(output.leaves()).copied().collect();
            lookups = bloom_filters::lookups(&read_filter.predicate, &metadata, &bounds, &row_groups, &needed)?;
            filter = if output.leaves().iter().all(|leaf| first.leaves().binary_search(leaf).is_ok()) {
                output = adapter(&read_filter.with_output, &read_filter.with_output_schema)?;
                Filter::After(Arc::clone(&read_filter.predicate))
            } else {
                Filter::Before(Arc::clone(&read_filter.predicate), Arc::new(first))
            };
        }
    }
    scan.pruned.add_file(metadata.metadata().num_row_groups(), row_groups.len());
    let (path, width) = (path.to_owned(), scan.output.fields.len());
    let file = OpenFile { path, bytes, metadata, filter, adapter: output, width };
    Ok(Some(PlannedFile { file, row_groups, lookups }))
}

/// Divides the row groups into units and leaves out rows that do not count.
fn units(file: Arc<OpenFile>, groups: &[usize], rows: &Rows) -> Result<Vec<Unit>> {
    let metadata = Arc::clone(file.metadata.metadata());
    let total = u64::try_from(metadata.file_metadata().num_rows()).unwrap_or(0);
    let kept = rows.row_ranges(total)?;
    let needed = file.needed_leaves();
    let mut units: Vec<Unit> = Vec::new();
    let (mut start, mut bytes) = (0_u64, u64::MAX);
    for (index, group) in metadata.row_groups().iter().enumerate() {
        let rows = start..start.saturating_add(u64::try_from(group.num_rows()).unwrap_or(0));
        start = rows.end;
        if groups.binary_search(&index).is_err() {
            continue;
        }
        let (selection, left) = match &kept {
            Some(kept) => select(kept, &rows),
            None => (None, rows.end - rows.start),
        };
        if left == 0 {
            continue;
        }
        let size = needed
            .iter()
            .filter_map(|leaf| group.columns().get(*leaf))
            .map(|column| u64::try_from(column.compressed_size()).unwrap_or(0))
            .fold(0, u64::saturating_add);
        bytes = bytes.saturating_add(size);
        let selection = RowGroupSelection::new(index, selection);
        match units.last_mut() {
            Some(unit) if bytes <= UNIT_BYTES => {
                unit.row_groups.push(selection);
                unit.rows = unit.rows.saturating_add(left);
            }
            Some(_) | None => {
                bytes = size;
                units.push(Unit { file: Arc::clone(&file), row_groups: vec![selection], rows: left });
            }
        }
    }
    Ok(units)
}

/// The rows among `rows` that are in the sorted ranges `kept`, counted from the first; `None` for all of them.
fn select(kept: &[Range<u64>], rows: &Range<u64>) -> (Option<RowSelection>, u64) {
    let from = kept.partition_point(|range| range.end <= rows.start);
    let (mut selectors, mut left, mut position) = (Vec::new(), 0, rows.start);
    for range in kept.iter().skip(from).take_while(|range| range.start < rows.end) {
        let (start, end) = (range.start.max(position), range.end.min(rows.end));
        if start < end {
            selectors.push(RowSelector::skip(count(start - position)));
            selectors.push(RowSelector::select(count(end - start)));
            left += end - start;
            position = end;
        }
    }
    if left == rows.end - rows.start {
        return (None, left);
    }
    selectors.push(RowSelector::skip(count(rows.end - position)));
    (Some(RowSelection::from(selectors)), left)
}

/// Row groups that do not fit the address space cannot be decoded; their counts only have to be consistent.
fn count(rows: u64) -> usize {
    usize::try_from(rows).unwrap_or(usize::MAX)
}
