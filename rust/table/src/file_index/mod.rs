//! The file actions of a checkpoint as columns, which are decoded on first use, for each row group separately.
//!
//! A row group is here always one of the checkpoint's own Parquet files, never one of a data file.
//!
//! A query has two phases: first the columns of the predicate are decoded and files pruned; then paths and other columns
//! are decoded, only for the remaining files. Columns are kept up to a limit of bytes (`cache`), packed when they are not
//! in use, and are shared by all snapshots that use the checkpoint. Rows keep their places in the row group, whatever
//! action they hold.
//!
//! The commits after the checkpoint are not considered here: callers exclude the files that they superseded.
//!
//! Invariant: cached columns equal decoded ones (`file_index::cached_columns_equal_decoded_ones`).
//!
//! PROTOCOL.md: "Checkpoints", "Per-file Statistics".

mod cache;
mod chunked;
mod column;
mod decode;
mod direct;
mod encoded;
mod file_bounds;
mod groups;
mod packed;
mod part_columns;
pub(crate) mod sidecar_stats;
mod values;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, StringArray, StructArray};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::filter::filter;
use deltic_protocol::action::batch::{AddBatch, Origin};
use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::predicate::BoundPredicate;
use deltic_protocol::prune;
use futures::stream::{self, StreamExt, TryStreamExt};
use parquet::arrow::arrow_reader::RowSelection;

pub use self::cache::DEFAULT_LIMIT;
use self::cache::{Cache, CachedColumn};

pub(crate) use self::column::{IndexColumn, PartitionColumn};
use self::file_bounds::FileBounds;
use self::sidecar_stats::SidecarStats;
use self::values::Values;
use crate::checkpoint::action_file::{ActionFile, DecodeOptions};
use crate::checkpoint::actions::action_rows;
use crate::checkpoint::read::{AddColumns, OpenCheckpoint};
use crate::error::{Error, Result};
use crate::log::tail::Tail;
use crate::once::Once;

/// Rows that are pruned at once: their unpacked values are still in the processor's cache when they are read.
const PRUNE_BATCH_ROWS: usize = 16 * 1024;
/// Approximate rows in a page of paths, in checkpoints of other writers and in ours: a query that needs rows of most pages
/// decodes all pages.
const PAGE_ROWS: usize = 4096;
const OWN_PAGE_ROWS: usize = 1024;
/// If a query needs fewer than one of so many rows, all rows are cached encoded, for later queries, and only those few are
/// decoded.
const SPARSE_RATIO: usize = 8;
/// Files of a checkpoint opened at once.
const CONCURRENT_FILES: usize = 16;

/// A predicate, divided into the part that partition values decide and the rest, with the columns that each needs.
#[derive(Debug)]
pub(crate) struct Pruning {
    /// Conjuncts over partition columns alone.
    pub(crate) partition: Option<BoundPredicate>,
    /// The other conjuncts.
    pub(crate) statistics: Option<BoundPredicate>,
    /// The columns that `partition` needs, by logical path.
    partition_columns: Vec<(Vec<String>, IndexColumn)>,
    /// The columns that `statistics` needs, by logical path.
    statistics_columns: Vec<(Vec<String>, IndexColumn)>,
}

/// The keys of some files of a row group: paths and deletion vectors.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    /// Paths as they are in the log.
    pub(crate) paths: StringArray,
    /// Deletion vectors, if any file of the row group has one.
    pub(crate) vectors: Option<StructArray>,
}

/// Row groups of one file of the checkpoint.
type Groups = Vec<(Arc<ActionFile>, usize)>;

/// The file actions of a checkpoint.
#[derive(Debug)]
pub struct FileIndex {
    checkpoint: OpenCheckpoint,
    /// Row groups with file actions, for each file of the checkpoint. Of `n` files, row group `i` of file `f` has the number
    /// `i * n + f`: so each row group has a number although the counts of other files are unknown.
    groups: Vec<Once<Groups>>,
    cache: Arc<Cache>,
    /// The numbers of [`DecodeCounts`].
    decoded: [AtomicU64; 2],
}

/// How often columns of a row group were decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeCounts {
    /// Directly from the pages.
    pub direct: u64,
    /// By the parquet crate.
    pub fallback: u64,
}

impl Pruning {
    /// Whether statistics need counts of nulls and rows besides the bounds.
    pub(crate) fn needs_counts(&self) -> bool {
        self.statistics_columns
            .iter()
            .any(|(_, column)| !matches!(column, IndexColumn::Bounds { with_counts: false, .. }))
    }

    /// The physical paths of the columns whose bounds `statistics` needs.
    pub(crate) fn statistics_leaves(&self) -> Vec<Vec<String>> {
        let leaf = |(_, column): &(Vec<String>, IndexColumn)| match column {
            IndexColumn::Bounds { leaf, .. } => Some(leaf.path.clone()),
            _ => None,
        };
        self.statistics_columns.iter().filter_map(leaf).collect()
    }

    /// Divides a predicate over the columns of a table.
    pub(crate) fn split(shape: &TableShape, filter: Option<BoundPredicate>) -> Result<Self> {
        let is_partition = |path: &[String]| path.first().is_some_and(|name| shape.is_partition_column(name));
        let conjuncts = filter.iter().flat_map(BoundPredicate::split_conjuncts).cloned();
        let (partition, statistics): (Vec<_>, Vec<_>) =
            conjuncts.partition(|c| c.columns().iter().all(|column| is_partition(&column.path)));
        let all = |terms: Vec<BoundPredicate>| (!terms.is_empty()).then_some(BoundPredicate::And(terms));
        let (partition, statistics) = (all(partition), all(statistics));
        let columns = |predicate: &Option<BoundPredicate>| {
            let mut needed: Vec<(Vec<String>, IndexColumn)> = Vec::new();
            // A partition value that is null is null in all rows of its file, so the row count is needed beside it.
            let has_partition_column = |p: &BoundPredicate| p.columns().iter().any(|column| is_partition(&column.path));
            let needs_counts = predicate.as_ref().is_some_and(|p| !p.is_decided_by_bounds() || has_partition_column(p));
            for column in predicate.iter().flat_map(BoundPredicate::columns) {
                let index_column = match column.path.first() {
                    Some(name) if is_partition(&column.path) => {
                        Some(IndexColumn::Partition(PartitionColumn::of(shape, name)?))
                    }
                    _ => shape.leaf(&column.path)?.map(|leaf| IndexColumn::Bounds { leaf, with_counts: needs_counts }),
                };
                if let Some(index_column) = index_column.filter(|_| needed.iter().all(|(path, _)| *path != column.path))
                {
                    needed.push((column.path.clone(), index_column));
                }
            }
            Ok::<_, Error>(needed)
        };
        let (partition_columns, statistics_columns) = (columns(&partition)?, columns(&statistics)?);
        Ok(Self { partition, statistics, partition_columns, statistics_columns })
    }

    /// The part that partition values decide alone.
    pub(crate) fn by_partition(&self) -> Self {
        Self {
            partition: self.partition.clone(),
            statistics: None,
            partition_columns: self.partition_columns.clone(),
            statistics_columns: Vec::new(),
        }
    }
}

impl FileIndex {
    /// The index of a checkpoint. Decodes nothing yet.
    pub fn new(checkpoint: OpenCheckpoint) -> Self {
        let groups = (0..checkpoint.file_count()).map(|_| Once::default()).collect();
        Self { checkpoint, groups, cache: Arc::default(), decoded: Default::default() }
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> &OpenCheckpoint {
        &self.checkpoint
    }

    /// Sets how many bytes of columns are kept at most.
    pub fn limit_cache(&self, bytes: usize) {
        self.cache.limit(bytes);
    }

    /// Whether decoded columns are cached at all.
    fn is_cache_enabled(&self) -> bool {
        self.cache.has_room_for(1)
    }

    /// How many bytes of columns are kept now.
    pub fn cached_bytes(&self) -> usize {
        self.cache.bytes()
    }

    /// How often columns of a row group were decoded.
    pub fn decode_counts(&self) -> DecodeCounts {
        let [direct, fallback] = self.decoded.each_ref().map(|count| count.load(Ordering::Relaxed));
        DecodeCounts { direct, fallback }
    }

    /// Packs all columns that are kept.
    pub fn pack(&self) {
        self.cache.pack(None);
    }

    pub(crate) fn origin(&self) -> Origin {
        Origin::Checkpoint(self.checkpoint.version())
    }

    /// The row groups that may have files.
    pub(crate) async fn groups(&self) -> Result<Vec<usize>> {
        self.groups_of((0..self.groups.len()).collect()).await
    }

    /// The row groups that may have `add` actions, in these files of the checkpoint.
    async fn groups_of(&self, files: Vec<usize>) -> Result<Vec<usize>> {
        let count = self.groups.len();
        let numbers = |file: usize| async move {
            let groups = self.file(file).await?.len();
            Ok::<_, Error>((0..groups).map(move |at| at * count + file).collect::<Vec<_>>())
        };
        let groups: Vec<Vec<usize>> = stream::iter(files).map(numbers).buffered(CONCURRENT_FILES).try_collect().await?;
        Ok(groups.concat())
    }

    async fn file(&self, file: usize) -> Result<&[(Arc<ActionFile>, usize)]> {
        let groups = self.groups.get(file).ok_or_else(|| Error::internal("the file index is out of range"))?;
        let open = async || {
            let part = self.checkpoint.file(file).await?;
            let groups = part.groups_with("add", "path").into_iter();
            Ok(groups.map(|group| (part.clone(), group)).collect())
        };
        groups.get_or_try_init(open).await.map(Vec::as_slice)
    }

    async fn group(&self, number: usize) -> Result<&(Arc<ActionFile>, usize)> {
        let missing = || Error::internal("the row group number is out of range");
        let files = self.groups.len();
        let (at, file) =
            (number.checked_div(files).ok_or_else(missing)?, number.checked_rem(files).ok_or_else(missing)?);
        self.file(file).await?.get(at).ok_or_else(missing)
    }

    /// The row groups that are excluded neither by the tags of sidecars nor by the bounds in footers.
    pub(crate) async fn row_groups_for(&self, pruning: &Pruning) -> Result<Vec<usize>> {
        self.cache.plan();
        let terms =
            [(&pruning.partition, &pruning.partition_columns), (&pruning.statistics, &pruning.statistics_columns)];
        let terms = terms.into_iter().filter_map(|(predicate, columns)| Some((predicate.as_ref()?, columns)));
        let terms: Vec<_> = terms.filter(|(_, columns)| !columns.is_empty()).collect();
        let mut files: Vec<usize> = (0..self.groups.len()).collect();
        let stats: Vec<Option<SidecarStats>> =
            files.iter().map(|file| self.checkpoint.sidecar(*file).and_then(SidecarStats::of)).collect();
        files.retain(|file| stats.get(*file).is_none_or(|stats| stats.as_ref().is_none_or(|stats| stats.files > 0)));
        for (predicate, columns) in &terms {
            let possible = prune::keep(predicate, &sidecar_stats::of_files(&stats, columns))?;
            files.retain(|file| possible.value(*file));
        }
        let mut kept = Vec::new();
        for number in self.groups_of(files).await? {
            kept.push((number, self.group(number).await?.clone()));
        }
        for (predicate, columns) in terms {
            let groups: Vec<(Arc<ActionFile>, usize)> = kept.iter().map(|(_, group)| group.clone()).collect();
            let possible = prune::keep(predicate, &groups::of_groups(&groups, columns))?;
            let mut at = 0..;
            kept.retain(|_| at.next().is_some_and(|at| possible.value(at)));
        }
        Ok(kept.into_iter().map(|(number, _)| number).collect())
    }

    /// The files of a row group that may have a matching row, including superseded ones.
    pub(crate) async fn prune_row_group(&self, group: usize, pruning: &Pruning) -> Result<BooleanBuffer> {
        let mut rows = self.presence(group).await?;
        let terms =
            [(&pruning.partition, &pruning.partition_columns), (&pruning.statistics, &pruning.statistics_columns)];
        for (predicate, columns) in terms {
            if let Some(predicate) = predicate.as_ref().filter(|_| rows.count_set_bits() > 0) {
                let wanted: Vec<IndexColumn> = columns.iter().map(|(_, column)| column.clone()).collect();
                let values = self.columns(group, &wanted, &rows).await?;
                rows = prune_rows(predicate, columns, &values, &rows)?;
            }
        }
        Ok(rows)
    }

    /// Which rows have a file.
    pub(crate) async fn presence(&self, group: usize) -> Result<BooleanBuffer> {
        let (part, index) = self.group(group).await?;
        if part_columns::is_all_adds(part, *index) {
            return Ok(BooleanBuffer::new_set(part.rows(*index)));
        }
        let all = BooleanBuffer::new_set(part.rows(*index));
        let values = self.columns(group, &[IndexColumn::Presence], &all).await?;
        let rows = match values.first().map(|column| column.range(0, all.len())).transpose()? {
            Some(Values::Rows(rows)) => rows,
            _ => return Err(Error::internal("presence was not decoded")),
        };
        // An `add` without a path is not a file. If the footer says that as many rows have a path as have an `add`, the paths,
        // which are long, need not be decoded to see that.
        let adds = rows.count_set_bits() as u64;
        let with_path = part_columns::nulls(part, *index, &part_columns::PATH)
            .and_then(|nulls| (all.len() as u64).checked_sub(nulls));
        if part_columns::is_path_required(part) || with_path == Some(adds) {
            return Ok(rows);
        }
        let paths = self.arrays(group, &[IndexColumn::Path], &all).await?;
        let nulls = paths.first().and_then(|paths| paths.nulls());
        Ok(nulls.map_or_else(|| rows.clone(), |nulls| &rows & nulls.inner()))
    }

    /// Whether files of a row group may have deletion vectors.
    pub(crate) async fn may_have_vectors(&self, group: usize) -> Result<bool> {
        let (part, index) = self.group(group).await?;
        Ok(part_columns::may_have_vectors(part, *index))
    }

    /// The keys of the files at `rows`, in their order.
    pub(crate) async fn keys(&self, group: usize, rows: &BooleanBuffer) -> Result<Keys> {
        let (part, _) = self.group(group).await?;
        let mut wanted = vec![IndexColumn::Path];
        if self.may_have_vectors(group).await? {
            wanted.push(IndexColumn::DeletionVector);
        }
        let mut arrays = self.arrays(group, &wanted, rows).await?.into_iter();
        let paths = arrays.next().and_then(|a| a.as_string_opt().cloned());
        let paths = paths.ok_or_else(|| Error::corrupt("the paths are not strings").in_file(part.path()))?;
        if paths.null_count() > 0 {
            return Err(Error::corrupt("an `add` action has no path").in_file(part.path()));
        }
        Ok(Keys { paths, vectors: arrays.next().and_then(|a| a.as_struct_opt().cloned()) })
    }

    /// Columns with one value for each file, for the files at `rows`, in their order.
    pub(crate) async fn arrays(
        &self,
        group: usize,
        columns: &[IndexColumn],
        rows: &BooleanBuffer,
    ) -> Result<Vec<ArrayRef>> {
        let array = |column: &CachedColumn| match column.select(rows)? {
            Values::Array(array) => Ok(array),
            _ => Err(Error::internal("a column was not decoded")),
        };
        let columns = self.columns(group, columns, rows).await?;
        let (part, _) = self.group(group).await?;
        columns.iter().map(array).collect::<Result<_>>().map_err(|e| e.in_file(part.path()))
    }

    /// Members of `add` for the files at `rows`, whose paths are given, in their order.
    pub(crate) async fn members(
        &self,
        group: usize,
        rows: &BooleanBuffer,
        columns: &AddColumns,
        paths: &StringArray,
    ) -> Result<AddBatch> {
        let (part, index) = self.group(group).await?;
        let projection = columns.of(part);
        let wanted = |path: &[String]| projection.wants(path);
        let fetched = part.fetch(*index, &wanted).await?;
        let (rows, paths, origin) = (rows.clone(), paths.clone(), self.origin());
        part.blocking(move |part| {
            let all = rows.count_set_bits() == rows.len();
            let how = DecodeOptions { rows: (!all).then(|| selection(&rows)), ..DecodeOptions::default() };
            let batches = part.decode(fetched, how)?;
            let mut read = Vec::new();
            for batch in batches {
                let batch = batch.map_err(|e| crate::error::corrupt_parquet(part.path(), e.into()))?;
                read.push(action_rows(&batch, "add", false).map_err(|e| e.in_file(part.path()))?);
            }
            let schema = read.first().map(RecordBatch::schema);
            let schema = schema.ok_or_else(|| Error::corrupt("rows are missing").in_file(part.path()))?;
            let batch = arrow_select::concat::concat_batches(&schema, &read)?;
            with_paths(origin, &batch, paths).map_err(|e| e.in_file(part.path()))
        })
        .await
    }

    /// Columns of a row group, cached or decoded together, with a place for every row. Only the values at `rows` are
    /// needed: if that saves work, or if nothing is cached anyway, the values of other rows may be missing.
    async fn columns(&self, group: usize, wanted: &[IndexColumn], rows: &BooleanBuffer) -> Result<Vec<CachedColumn>> {
        let cached: Vec<Option<CachedColumn>> = wanted.iter().map(|column| self.cache.get(column, group)).collect();
        let mut missing: Vec<IndexColumn> =
            wanted.iter().zip(&cached).filter(|(_, c)| c.is_none()).map(|(w, _)| w.clone()).collect();
        if missing.is_empty() {
            return Ok(cached.into_iter().flatten().collect());
        }
        let (part, index) = self.group(group).await?;
        let page_rows = if part.is_our_own() { OWN_PAGE_ROWS } else { PAGE_ROWS };
        let mut is_kept = is_dense(rows, page_rows) && self.is_cache_enabled();
        // A query that needs paths needs these next, and they follow the paths in the file: one request gets all of them.
        if is_kept && missing.contains(&IndexColumn::Path) {
            let beside = [IndexColumn::Size, IndexColumn::ModificationTime];
            missing.extend(beside.into_iter().filter(|c| !wanted.contains(c) && self.cache.get(c, group).is_none()));
        }
        let mut plan = decode::ColumnPlan::of(part, *index, missing);
        let bytes = part.wanted_bytes(*index, &|path| plan.wants(path))?;
        is_kept &= self.cache.has_room_for(usize::try_from(bytes).unwrap_or(usize::MAX));
        if is_kept && rows.count_set_bits() < rows.len() / SPARSE_RATIO {
            plan.keep_encoded();
        }
        let plan = Arc::new(plan);
        let rows = (!is_kept && rows.count_set_bits() < rows.len()).then(|| rows.clone());
        let decoded_in_pieces = chunked::read(part, *index, &plan, rows.as_ref()).await?;
        let fetched = part.fetch(*index, &|path| plan.wants(path) && !decoded_in_pieces.has(path)).await?;
        let work = plan.clone();
        let (mut decoded, is_direct) = part
            .blocking(move |part| {
                work.decode(part, fetched, rows.as_ref(), decoded_in_pieces).map_err(|e| e.in_file(part.path()))
            })
            .await?;
        let [direct, fallback] = &self.decoded;
        (if is_direct { direct } else { fallback }).fetch_add(1, Ordering::Relaxed);
        if is_kept {
            plan.columns().iter().zip(&decoded).for_each(|(column, values)| self.cache.put(column, group, values));
            if self.cache.is_packing_due(group) {
                let cache = self.cache.clone();
                let pack = move |_: &ActionFile| {
                    cache.pack(Some(group));
                    Ok(())
                };
                part.blocking(pack).await?;
            }
        }
        decoded.truncate(cached.iter().filter(|column| column.is_none()).count());
        decoded.reverse();
        let all = cached.into_iter().map(|column| column.or_else(|| decoded.pop().map(CachedColumn::Plain)));
        let all = all.collect::<Option<Vec<_>>>();
        all.ok_or_else(|| Error::internal("a column was not decoded"))
    }
}

/// The files at `rows` that may have a matching row.
fn prune_rows(
    predicate: &BoundPredicate,
    columns: &[(Vec<String>, IndexColumn)],
    cached: &[CachedColumn],
    rows: &BooleanBuffer,
) -> Result<BooleanBuffer> {
    let block = if cached.iter().any(CachedColumn::is_packed) { PRUNE_BATCH_ROWS } else { rows.len() };
    let mut kept = BooleanBufferBuilder::new(rows.len());
    for start in (0..rows.len()).step_by(block.max(1)) {
        let rows = rows.slice(start, block.min(rows.len() - start));
        if rows.count_set_bits() == 0 {
            kept.append_n(rows.len(), false);
            continue;
        }
        let mut bounds = Vec::with_capacity(columns.len());
        for ((path, column), cached) in columns.iter().zip(cached) {
            let with_counts = matches!(column, IndexColumn::Bounds { with_counts: true, .. });
            bounds.push((path.clone(), with_counts, cached.range(start, rows.len())?));
        }
        kept.append_buffer(&(&rows & &prune::keep(predicate, &FileBounds::new(&rows, bounds.into_iter()))?));
    }
    Ok(kept.finish())
}

impl Keys {
    /// A bit for each file that the tail does not mention.
    pub(crate) fn unseen(&self, tail: &Tail) -> BooleanBuffer {
        let string_column =
            |name: &str| self.vectors.as_ref().and_then(|v| v.column_by_name(name)?.as_string_opt::<i32>());
        let (types, places) = (string_column("storageType"), string_column("pathOrInlineDv"));
        let offsets = self.vectors.as_ref().and_then(|v| v.column_by_name("offset")?.as_primitive_opt::<Int32Type>());
        let vector = |row: usize| {
            let (types, places) = (types?, places?);
            let offset = offsets.filter(|o| o.is_valid(row)).map(|o| o.value(row));
            (types.is_valid(row) && places.is_valid(row)).then(|| (types.value(row), places.value(row), offset))
        };
        BooleanBuffer::collect_bool(self.len(), |row| !tail.mentions(self.paths.value(row), vector(row)))
    }

    /// How many files there are.
    pub(crate) fn len(&self) -> usize {
        self.paths.len()
    }

    /// The keys at the bits that are set.
    pub(crate) fn filter(&self, keep: &BooleanBuffer) -> Result<Self> {
        if keep.count_set_bits() == self.len() {
            return Ok(self.clone());
        }
        let keep = BooleanArray::new(keep.clone(), None);
        let vectors = self.vectors.as_ref().map(|v| filter(v, &keep)).transpose()?;
        let paths = filter(&self.paths, &keep)?;
        Ok(Self { paths: paths.as_string().clone(), vectors: vectors.map(|v| v.as_struct().clone()) })
    }
}

/// Whether the set rows are spread over so many pages that decoding all rows costs about the same.
fn is_dense(rows: &BooleanBuffer, page_rows: usize) -> bool {
    let pages = rows.len().div_ceil(page_rows);
    let touched = (0..pages).filter(|page| {
        let start = page * page_rows;
        rows.slice(start, page_rows.min(rows.len() - start)).count_set_bits() > 0
    });
    let touched = touched.count();
    // With no row set there is nothing to decode, but cached columns still answer the query.
    touched == 0 || touched * 4 > pages
}

/// Bits for the set rows, back in their places.
pub(crate) fn scatter(rows: &BooleanBuffer, bits: &BooleanBuffer) -> BooleanBuffer {
    let mut builder = BooleanBufferBuilder::new(rows.len());
    builder.append_n(rows.len(), false);
    rows.set_indices().enumerate().filter(|(at, _)| bits.value(*at)).for_each(|(_, row)| builder.set_bit(row, true));
    builder.finish()
}

fn selection(rows: &BooleanBuffer) -> RowSelection {
    RowSelection::from_filters(&[BooleanArray::new(rows.clone(), None)])
}

/// Adds the paths, which were decoded before, to other members of `add`.
fn with_paths(origin: Origin, members: &RecordBatch, paths: StringArray) -> Result<AddBatch> {
    let schema = members.schema();
    let path = Arc::new(Field::new("path", DataType::Utf8, false));
    let fields: Vec<_> = std::iter::once(path).chain(schema.fields().iter().cloned()).collect();
    let columns = std::iter::once(Arc::new(paths) as ArrayRef).chain(members.columns().iter().cloned()).collect();
    AddBatch::new(origin, RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}
