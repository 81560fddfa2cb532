//! One Parquet file of a checkpoint: its footer, and row groups decoded on demand.
//!
//! It knows leaves and row groups, and nothing of actions. Only the bytes of wanted leaves are fetched; decoding runs on
//! worker threads, never on the threads that wait for the store. Positions in a footer are checked first.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema};
use bytes::Bytes;
use deltic_pages::decode::string_lengths::{self, StringLeaf};
use deltic_pages::decode::{Chunk, Failure};
use deltic_pages::footer_pruning::{Leaf, prune_row_groups};
use deltic_pages::limits::{self, Chunks};
use futures::stream::{self, StreamExt, TryStreamExt};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder, RowSelection,
};
use parquet::basic::{Repetition, Type as PhysicalType};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

use super::leaves::{Leaves, may_hold};
use crate::error::{Error, NotFoundFlag, Result, corrupt_parquet};
use crate::footer;
use crate::parallel::try_compute;
use deltic_store::{Pin, Storage};

/// How many bytes of the file's end are fetched at first: footers of checkpoints are mostly smaller than the minimum,
/// and those of sidecars in many row groups are about a 300th of the file.
const MIN_FOOTER_PREFETCH: u64 = 64 * 1024;
const MAX_FOOTER_PREFETCH: u64 = 256 * 1024;
const FOOTER_FRACTION: u64 = 256;
/// Footers fetched at once.
pub(super) const CONCURRENT_FOOTERS: usize = 16;
/// Rows decoded into one batch.
const BATCH_ROWS: usize = 128 * 1024;
/// The limit for the rows of a file: a constant, and a number for each of its bytes. Nulls and repeated values take nearly
/// no space in Parquet, but a row of a checkpoint is an action, and actions differ at least in their paths.
const BASE_ROWS: u64 = 64 * 1024;
const MAX_ROWS_PER_BYTE: u64 = 4;
/// Limits of a decoded column chunk: a constant, and further bytes (and elements of lists and maps) for each of its bytes and
/// rows. All rows of a group are in memory at once.
const BASE_DECODED_BYTES: u64 = 64 * 1024 * 1024;
const MAX_EXPANSION_RATIO: u64 = 1024;
const DECODED_BYTES_PER_ROW: u64 = 4096;
const BASE_ELEMENTS: u64 = 1 << 20;
const ELEMENTS_PER_ROW: u64 = 256;
/// The writer in the footer. Parquet libraries check it before they trust statistics, and expect this form.
pub(crate) const CREATED_BY: &str = concat!("deltic version ", env!("CARGO_PKG_VERSION"));
/// Not known yet.
const UNKNOWN: u8 = 2;

/// One Parquet file with actions: a checkpoint, a part of a multi-part one, a sidecar, or a sorted run.
#[derive(Debug)]
pub(crate) struct ActionFile {
    storage: Storage,
    path: String,
    size: u64,
    metadata: ArrowReaderMetadata,
    /// The footer with the long strings of `add` as views, which are not copied when decoded.
    views: ArrowReaderMetadata,
    leaves: Leaves,
    /// Pins the file, so that all reads are of the same bytes.
    pin: Pin,
    /// For each leaf whether its bounds are in the order of its values: [`UNKNOWN`], 0 or 1.
    ordered: Vec<AtomicU8>,
    not_found: NotFoundFlag,
}

/// The encoded footer of a file.
#[derive(Debug, Clone)]
pub(crate) struct Footer {
    path: String,
    size: u64,
    metadata: Bytes,
    pin: Pin,
}

/// How to decode a row group.
#[derive(Debug, Default)]
pub(crate) struct DecodeOptions {
    /// Whether long strings of `add` (path, statistics, partition values) come as views into the decoded pages.
    pub(crate) views: bool,
    /// The rows to decode; all when `None`.
    pub(crate) rows: Option<RowSelection>,
    /// Rows of a batch at most; [`BATCH_ROWS`] when `None`.
    pub(crate) batch_rows: Option<usize>,
    /// Approximate bytes of strings in a batch.
    pub(crate) batch_bytes: Option<usize>,
}

/// Column chunks of one row group, fetched.
pub(crate) struct FetchedChunks {
    group: usize,
    leaves: Vec<usize>,
    chunks: Chunks,
}

impl Footer {
    /// Reads the end of a file.
    async fn read(storage: &Storage, path: String, size: u64, pin: Pin) -> Result<Self> {
        let parquet = |e| corrupt_parquet(&path, e);
        let cut = || Error::corrupt("the Parquet file is cut off").in_file(&path);
        if size <= footer::TRAILER {
            return Err(cut());
        }
        let start = size.saturating_sub((size / FOOTER_FRACTION).clamp(MIN_FOOTER_PREFETCH, MAX_FOOTER_PREFETCH));
        let mut end = pinned(storage, &path, start..size, &pin).await?;
        let length = footer::metadata_length(&end).map_err(parquet)?;
        let from = size.checked_sub(footer::TRAILER).and_then(|at| at.checked_sub(length)).ok_or_else(cut)?;
        if from < start {
            let head = pinned(storage, &path, from..start, &pin).await?;
            end = Bytes::from([head, end].concat());
        }
        let skip = usize::try_from(from.saturating_sub(start)).unwrap_or(usize::MAX);
        let stop = end.len().saturating_sub(footer::TRAILER as usize);
        if skip > stop {
            return Err(cut());
        }
        Ok(Self { metadata: end.slice(skip..stop), path, size, pin })
    }

    /// Reads the footers of files, given by path and size from a listing.
    pub(crate) async fn read_all(storage: &Storage, files: Vec<(String, u64)>) -> Result<Vec<Self>> {
        let read = |(path, size)| Self::read(storage, path, size, Pin::of_size(size));
        stream::iter(files).map(read).buffered(CONCURRENT_FOOTERS).try_collect().await
    }
}

impl FetchedChunks {
    /// The row group.
    pub(crate) fn group(&self) -> usize {
        self.group
    }

    /// Positions of its leaves that were fetched.
    pub(super) fn leaves(&self) -> &[usize] {
        &self.leaves
    }

    /// The bytes of a leaf.
    pub(super) fn bytes(&self, leaf: usize) -> Result<&Bytes> {
        // The positions ascend.
        let at = self.leaves.binary_search(&leaf).ok();
        let bytes = at.and_then(|at| self.chunks.chunks.get(at)).map(|(_, bytes)| bytes);
        bytes.ok_or_else(|| Error::internal("a leaf was not fetched"))
    }
}

impl ActionFile {
    /// Reads the footer of a file.
    pub(crate) async fn open(storage: &Storage, path: String, size: u64) -> Result<Self> {
        // The size of a sidecar is from the checkpoint.
        Self::of_footer(storage, &Footer::read(storage, path, size, Pin::default()).await?)
    }

    /// Decodes a whole footer.
    pub(crate) fn of_footer(storage: &Storage, footer: &Footer) -> Result<Self> {
        Self::of_metadata(storage, footer, &footer.metadata)
    }

    /// The file reduced to the row groups that may have a value in one of `leaves`, and whether these are all.
    pub(crate) fn pruned(storage: &Storage, footer: &Footer, leaves: &[Leaf<'_>]) -> Result<(Self, bool)> {
        match prune_row_groups(&footer.metadata, leaves) {
            Some(pruned) => Ok((Self::of_metadata(storage, footer, &pruned)?, false)),
            None => Ok((Self::of_footer(storage, footer)?, true)),
        }
    }

    fn of_metadata(storage: &Storage, footer: &Footer, metadata: &[u8]) -> Result<Self> {
        let Footer { path, size, pin, .. } = footer.clone();
        let parquet = |e| corrupt_parquet(&path, e);
        let metadata = footer::parse(metadata).map_err(parquet)?;
        check_rows(&metadata, size).ok_or_else(|| {
            Error::corrupt("the footer of the Parquet file claims more rows than a file of this size can hold")
                .in_file(&path)
        })?;
        // INT96 values are timestamps in UTC.
        let metadata = footer::arrow_metadata(Arc::new(metadata), Some("UTC")).map_err(parquet)?;
        let views = with_views(&metadata).map_err(parquet)?;
        let leaves = Leaves::of(metadata.metadata().file_metadata(), metadata.schema().fields());
        let ordered = leaves.names().iter().map(|_| AtomicU8::new(UNKNOWN)).collect();
        let (storage, not_found) = (storage.clone(), NotFoundFlag::default());
        Ok(Self { storage, path, size, metadata, views, leaves, pin, ordered, not_found })
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Whether the file was missing when it was read.
    pub(crate) fn is_gone(&self) -> bool {
        self.not_found.is_noted()
    }

    /// The size of the file in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn leaves(&self) -> impl Iterator<Item = &[String]> {
        self.leaves.names().iter().map(Vec::as_slice)
    }

    pub(crate) fn has_leaf(&self, path: &[String]) -> bool {
        self.leaves.position(path).is_some()
    }

    /// Whether a leaf is null in every row, by the statistics.
    pub(crate) fn is_empty_leaf(&self, path: &[String]) -> bool {
        self.leaves
            .position(path)
            .is_none_or(|leaf| !self.metadata.metadata().row_groups().iter().any(|group| may_hold(group, leaf)))
    }

    /// Row groups in which `root.key` may be there.
    pub(crate) fn groups_with(&self, root: &str, key: &str) -> Vec<usize> {
        let Some(leaf) = self.leaf(&[root, key]) else { return Vec::new() };
        let groups = self.metadata.metadata().row_groups().iter().enumerate();
        groups.filter(|(_, group)| group.num_rows() > 0 && may_hold(group, leaf)).map(|(index, _)| index).collect()
    }

    /// Whether deltic wrote it, in small pages.
    pub(crate) fn is_our_own(&self) -> bool {
        self.metadata.metadata().file_metadata().created_by() == Some(CREATED_BY)
    }

    /// The footer.
    pub(crate) fn metadata(&self) -> &ArrowReaderMetadata {
        &self.metadata
    }

    /// Whether the order behind the bounds of a leaf, in all row groups, is the order of its values.
    pub(crate) fn has_ordered_bounds(&self, leaf: usize) -> bool {
        let Some(known) = self.ordered.get(leaf) else { return false };
        // No lock: a process forked while another thread holds it would wait for ever.
        if known.load(Ordering::Relaxed) == UNKNOWN {
            known.store(footer::has_ordered_bounds(&self.metadata, leaf).into(), Ordering::Relaxed);
        }
        known.load(Ordering::Relaxed) == u8::from(true)
    }

    /// Whether a leaf is below `root`.
    pub(super) fn is_below(&self, leaf: usize, root: &str) -> bool {
        self.leaves.names().get(leaf).and_then(|path| path.first()).is_some_and(|name| name == root)
    }

    /// The name of a leaf that has long strings of `add`.
    pub(super) fn string_member(&self, leaf: usize) -> Option<&str> {
        match self.leaves.names().get(leaf)?.as_slice() {
            [root, member] if root == "add" && matches!(member.as_str(), "path" | "stats") => Some(member),
            _ => None,
        }
    }

    /// The position of a leaf.
    pub(crate) fn leaf(&self, path: &[&str]) -> Option<usize> {
        self.leaves.position(path)
    }

    /// The Arrow type of a leaf, or of a struct, inside structs.
    pub(crate) fn arrow_type(&self, path: &[&str]) -> Option<&DataType> {
        if let Some(known) = self.leaf(path).and_then(|leaf| self.leaves.arrow_type(leaf)) {
            return Some(known);
        }
        let (root, rest) = path.split_first()?;
        let root = self.metadata.schema().field_with_name(root).ok()?;
        rest.iter().try_fold(root.data_type(), |level, name| match level {
            DataType::Struct(fields) => fields.find(name).map(|(_, field)| field.data_type()),
            _ => None,
        })
    }

    /// Rows of a row group.
    pub(crate) fn rows(&self, group: usize) -> usize {
        let rows = self.metadata.metadata().row_groups().get(group).map(RowGroupMetaData::num_rows);
        rows.and_then(|rows| usize::try_from(rows).ok()).unwrap_or_default()
    }

    /// Bytes of a row group when it is decompressed, as the footer says.
    pub(crate) fn decoded_bytes(&self, group: usize) -> usize {
        let bytes = self.metadata.metadata().row_groups().get(group).map(RowGroupMetaData::total_byte_size);
        bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or_default()
    }

    /// The positions of the wanted leaves.
    fn wanted(&self, wanted: &dyn Fn(&[String]) -> bool) -> Vec<usize> {
        self.leaves().enumerate().filter(|(_, leaf)| wanted(leaf)).map(|(position, _)| position).collect()
    }

    /// Fetches the wanted leaves of a row group.
    pub(crate) async fn fetch(
        &self,
        group: usize,
        wanted: &(dyn Fn(&[String]) -> bool + Send + Sync),
    ) -> Result<FetchedChunks> {
        let leaves: Vec<usize> = self.wanted(wanted);
        let chunks = self.chunks(group, &leaves)?;
        let bytes = self.storage.get_pinned(&self.path, &chunks, Some(&self.pin)).await;
        let bytes = bytes.map_err(|e| self.not_found.note(e))?;
        let chunks = chunks.into_iter().zip(bytes).map(|(range, bytes)| (range.start, bytes)).collect();
        Ok(FetchedChunks { group, leaves, chunks: Chunks { size: self.size, chunks } })
    }

    /// Bytes of the wanted leaves of a row group.
    pub(crate) fn wanted_bytes(&self, group: usize, wanted: &(dyn Fn(&[String]) -> bool + Send + Sync)) -> Result<u64> {
        let leaves: Vec<usize> = self.wanted(wanted);
        Ok(self.chunks(group, &leaves)?.into_iter().map(|chunk| chunk.end - chunk.start).sum())
    }

    /// Where the bytes of a leaf are in the file.
    pub(crate) fn span(&self, group: usize, leaf: usize) -> Result<Range<u64>> {
        let span = self.chunks(group, &[leaf])?.into_iter().next();
        span.ok_or_else(|| Error::internal("a leaf has no bytes"))
    }

    /// Reads bytes of the file.
    pub(crate) async fn read_range(&self, range: Range<u64>) -> Result<Bytes> {
        pinned(&self.storage, &self.path, range, &self.pin).await.map_err(|e| self.not_found.note(e))
    }

    /// Reads bytes of the file and appends them to `memory`.
    pub(crate) async fn append(&self, range: Range<u64>, memory: Vec<u8>) -> Result<Vec<u8>> {
        self.storage.append(&self.path, range, memory, Some(&self.pin)).await.map_err(|e| self.not_found.note(e))
    }

    /// Whether the file is where small requests cost no more than large ones.
    pub(crate) fn is_local(&self) -> bool {
        self.storage.is_local()
    }

    /// The bytes of a leaf for direct decoding.
    pub(crate) fn chunk<'f>(&self, fetched: &'f FetchedChunks, leaf: usize) -> Result<Chunk<'f>> {
        self.chunk_of(fetched.group, leaf, fetched.bytes(leaf)?)
    }

    /// Bytes of a leaf, which may be a piece of them, with what the footer says of it.
    pub(crate) fn chunk_of<'b>(&self, group: usize, leaf: usize, bytes: &'b [u8]) -> Result<Chunk<'b>> {
        let column = self.metadata.metadata().row_groups().get(group).and_then(|g| g.columns().get(leaf));
        let column = column.ok_or_else(|| Error::internal("leaf index out of range"))?;
        let level = |level: i16| u32::try_from(level).unwrap_or_default();
        let size = i64::try_from(self.size).unwrap_or(i64::MAX);
        Ok(Chunk {
            bytes,
            codec: column.compression(),
            physical: column.column_type(),
            max_definition: level(column.column_descr().max_def_level()),
            max_repetition: level(column.column_descr().max_rep_level()),
            rows: self.rows(group),
            compressed: usize::try_from(column.compressed_size().clamp(0, size)).unwrap_or_default(),
            size: usize::try_from(column.uncompressed_size()).unwrap_or_default(),
        })
    }

    /// The least definition level at which the first `depth` nodes above a leaf are not null.
    pub(crate) fn definition_level(&self, leaf: usize, depth: usize) -> u32 {
        let schema = self.metadata.metadata().file_metadata().schema_descr();
        let mut node = schema.root_schema();
        let mut level = 0;
        for name in self.leaves.names().get(leaf).into_iter().flatten().take(depth) {
            // If two nodes have the same name, the first one may be a leaf.
            if !node.is_group() {
                break;
            }
            let Some(child) = node.get_fields().iter().find(|field| field.name() == name) else { break };
            level += u32::from(child.is_optional() || child.get_basic_info().repetition() == Repetition::REPEATED);
            node = child;
        }
        level
    }

    /// The keys and the values of a map inside a struct.
    pub(crate) fn map_leaves(&self, path: [&str; 2]) -> Option<[usize; 2]> {
        let below = |leaf: &[String]| leaf.len() == 4 && leaf.iter().zip(path).all(|(a, b)| a == b);
        self.wanted(&below).try_into().ok()
    }

    /// The leaf below `root` that has the fewest compressed bytes in a row group and does not repeat: the cheapest way to
    /// find the rows with `root`.
    pub(crate) fn smallest_leaf(&self, group: usize, root: &str) -> Option<usize> {
        let columns = self.metadata.metadata().row_groups().get(group)?.columns();
        let leaves = (0..columns.len())
            .filter(|leaf| self.is_below(*leaf, root))
            .filter(|leaf| columns[*leaf].column_descr().max_rep_level() == 0);
        leaves.min_by_key(|leaf| columns[*leaf].compressed_size())
    }

    /// Runs decoding work on a worker thread.
    pub(crate) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let file = self.clone();
        let panicked = |e| Error::corrupt("decoding the Parquet file failed").caused_by(e).in_file(&self.path);
        try_compute(move || work(&file), panicked).await
    }

    /// Decodes fetched column chunks, batch by batch.
    pub(crate) fn decode(&self, fetched: FetchedChunks, options: DecodeOptions) -> Result<ParquetRecordBatchReader> {
        let all = fetched.leaves.clone();
        self.decode_leaves(fetched, options, &all)
    }

    /// Decodes some leaves of fetched column chunks, batch by batch.
    pub(super) fn decode_leaves(
        &self,
        fetched: FetchedChunks,
        options: DecodeOptions,
        leaves: &[usize],
    ) -> Result<ParquetRecordBatchReader> {
        let rows = self.rows(fetched.group);
        let enough = options.batch_bytes.unwrap_or(usize::MAX);
        let strings = self.check_pages(&fetched, enough as u64).map_err(|e| corrupt_parquet(&self.path, e))?;
        let fit = rows.saturating_mul(enough) / usize::try_from(strings.max(1)).unwrap_or(usize::MAX);
        let metadata = if options.views { &self.views } else { &self.metadata };
        let mask =
            ProjectionMask::leaves(self.metadata.metadata().file_metadata().schema_descr(), leaves.iter().copied());
        let mut reader = ParquetRecordBatchReaderBuilder::new_with_metadata(fetched.chunks, metadata.clone())
            .with_projection(mask)
            .with_row_groups(vec![fetched.group])
            .with_batch_size(options.batch_rows.unwrap_or(BATCH_ROWS).min(rows).min(fit).clamp(1, BATCH_ROWS));
        if let Some(rows) = options.rows {
            reader = reader.with_row_selection(rows);
        }
        reader.build().map_err(|e| corrupt_parquet(&self.path, e))
    }

    /// Checks the decoded sizes that the pages claim. Returns the bytes of strings, exactly only if they may be more than
    /// `enough`.
    fn check_pages(&self, fetched: &FetchedChunks, enough: u64) -> Result<u64, ParquetError> {
        let columns = self.metadata.metadata().row_groups().get(fetched.group).map(|g| g.columns()).unwrap_or_default();
        let rows = self.rows(fetched.group) as u64;
        let most = |free: u64, each: u64| free.saturating_add(rows.saturating_mul(each));
        let mut strings = Vec::new();
        for (leaf, (_, chunk)) in fetched.leaves.iter().zip(&fetched.chunks.chunks) {
            let Some(column) = columns.get(*leaf) else { continue };
            let page_limits = limits::check(chunk, column)?;
            let justified = most(BASE_DECODED_BYTES, DECODED_BYTES_PER_ROW)
                .saturating_add(MAX_EXPANSION_RATIO.saturating_mul(chunk.len() as u64));
            // Nulls of a fixed length take that length when they are decoded.
            let width = limits::fixed_width(column.column_descr()).unwrap_or_default();
            let bytes_of_all =
                page_limits.bytes.saturating_add(page_limits.prefixes).max(page_limits.values.saturating_mul(width));
            if bytes_of_all > justified || page_limits.values > most(BASE_ELEMENTS, ELEMENTS_PER_ROW) {
                return Err(ParquetError::General(format!(
                    "the column chunk `{}` of {} bytes claims {} values in {} bytes, which is impossible for {rows} \
                     rows",
                    column.column_path(),
                    chunk.len(),
                    page_limits.values,
                    bytes_of_all
                )));
            }
            if column.column_type() == PhysicalType::BYTE_ARRAY {
                strings.push(StringLeaf { chunk, column, limits: page_limits });
            }
        }
        string_lengths::check(&strings, rows, enough)
    }

    fn chunks(&self, group: usize, leaves: &[usize]) -> Result<Vec<Range<u64>>> {
        let columns = self.metadata.metadata().row_groups().get(group).map(|g| g.columns()).unwrap_or_default();
        let range = |leaf: &usize| {
            let column = columns.get(*leaf)?;
            let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
            let start = u64::try_from(start).ok()?;
            let end = start.checked_add(u64::try_from(column.compressed_size()).ok()?)?;
            (end <= self.size).then_some(start..end)
        };
        let chunks: Vec<_> = leaves.iter().map(range).collect::<Option<_>>().ok_or_else(|| {
            Error::corrupt("a column chunk lies outside the Parquet file, or is missing").in_file(&self.path)
        })?;
        // A footer cannot make the reader read a file many times.
        let bytes = chunks.iter().fold(0, |sum: u64, chunk| sum.saturating_add(chunk.end.saturating_sub(chunk.start)));
        if bytes > self.size {
            return Err(Error::corrupt("column chunks of the Parquet file overlap").in_file(&self.path));
        }
        Ok(chunks)
    }
}

/// The error of a file whose pages could not be decoded directly.
pub(super) fn unreadable(failure: Failure, path: &str) -> Error {
    let what = match failure {
        Failure::Unsupported => "its page data does not match the page headers",
        Failure::Corrupt(what) => what,
    };
    Error::corrupt(format!("the Parquet file cannot be read: {what}")).in_file(path)
}

/// Bytes of the file that is pinned, from which all reads with this pin come.
async fn pinned(storage: &Storage, path: &str, range: Range<u64>, pin: &Pin) -> Result<Bytes> {
    let read = storage.get_pinned(path, &[range], Some(pin)).await?.pop();
    read.ok_or_else(|| Error::internal("the store returned no data for a range"))
}

/// The schema with the long strings of `add` as views.
fn with_views(plain: &ArrowReaderMetadata) -> Result<ArrowReaderMetadata, ParquetError> {
    fn viewed(field: &Field) -> Field {
        let inside = |field: &FieldRef| Arc::new(viewed(field));
        let data_type = match field.data_type() {
            DataType::Utf8 => DataType::Utf8View,
            DataType::Struct(fields) => DataType::Struct(fields.iter().map(inside).collect()),
            DataType::Map(entries, sorted) => DataType::Map(inside(entries), *sorted),
            other => other.clone(),
        };
        field.clone().with_data_type(data_type)
    }
    let member = |field: &FieldRef| match field.name().as_str() {
        "path" | "stats" | "partitionValues" => Arc::new(viewed(field)),
        _ => field.clone(),
    };
    let root = |field: &FieldRef| match (field.name().as_str(), field.data_type()) {
        ("add", DataType::Struct(members)) => {
            Arc::new(field.as_ref().clone().with_data_type(DataType::Struct(members.iter().map(member).collect())))
        }
        _ => field.clone(),
    };
    let fields: Fields = plain.schema().fields().iter().map(root).collect();
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true).with_schema(Arc::new(Schema::new(fields)));
    ArrowReaderMetadata::try_new(plain.metadata().clone(), options)
}

/// `None` if there are negative numbers of rows, or too many.
fn check_rows(metadata: &ParquetMetaData, size: u64) -> Option<()> {
    let groups = metadata.row_groups().iter().map(|group| u64::try_from(group.num_rows()).ok());
    let rows = groups.into_iter().try_fold(0_u64, |sum, rows| sum.checked_add(rows?))?;
    (rows <= size.saturating_mul(MAX_ROWS_PER_BYTE).saturating_add(BASE_ROWS)).then_some(())
}
