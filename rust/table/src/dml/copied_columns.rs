//! Rewrites the files of an UPDATE without decoding the columns that keep their values: their column chunks are copied.
//!
//! Only the columns that the new values and the table's rules need are read, and only the assigned ones are encoded. Small files,
//! and files whose column chunks cannot be copied, are left to [`UpdateWriter::copy`], which rewrites all columns. Memory holds
//! the copied and the encoded column chunks of a row group.
//!
//! Proved by `tests/python/test_copied_columns.py`.
//!
//! PROTOCOL.md: "Data Files".

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use deltic_pages::limits::{self, CheckedPages, DataPage};
use futures::{Stream, StreamExt};
use log::debug;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::basic::Type as PhysicalType;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::page_index::index_reader::decode_column_index;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use tokio::sync::Semaphore;

use super::update_writer::{NarrowUpdate, UpdateTask, UpdateWriter};
use crate::error::{Error, Result, corrupt_parquet};
use crate::events::TARGET;
use crate::footer::calendar::Calendars;
use crate::footer::{arrow_metadata, has_ordered_bounds};
use crate::parallel::{run_to_end, spawn_async, worker_count};
use crate::rewrite::{Copying, Written};
use crate::scan::read::{FileBytes, ReadOptions, blocking, parse_footer};
use crate::scan::task::ReadSpec;
use crate::write::column_rewrite::{ColumnRewrite, CopiedChunk, EndedFile, FileRewrite, NewFile, NotCopied};
use crate::write::plan::DataFile;
use crate::write::unclaimed::Unclaimed;
use crate::write::writer::Clock;
use deltic_store::{FileWriter, Stop, Storage, Syncing, decode_path};

/// Smaller files are rewritten with all their columns, which packs their rows into larger files.
const MIN_FILE_BYTES: u64 = 64 * 1024;

/// The most copied bytes of a row group, and the most encoded ones. Both are in memory.
const MAX_ROW_GROUP_BYTES: u64 = 128 * 1024 * 1024;

/// Bytes of row groups in memory, over all files. Each row group counts twice: once as it is read, once as it is written.
const MEMORY_LIMIT: u64 = 512 * 1024 * 1024;

/// How many of these bytes one permit of the semaphore allows.
const BYTES_PER_PERMIT: u64 = 1024 * 1024;

/// The most bytes of the index of a column chunk, whose decoded form may be much larger.
const MAX_PAGE_INDEX_BYTES: u64 = 4 * 1024 * 1024;

/// The most row groups of a file.
const MAX_ROW_GROUPS: usize = i16::MAX as usize;

/// Rewrites the files of one UPDATE.
struct ColumnCopier {
    storage: Storage,
    /// How all columns are rewritten; here for progress reports.
    copying: Copying,
    rewrite: ColumnRewrite,
    /// Computes the new values.
    writer: UpdateWriter,
    /// Reads the needed columns.
    read: ReadSpec,
    /// Positions of the new columns among those.
    new_columns: Vec<usize>,
    memory: Semaphore,
    /// Requested when a file cannot be rewritten.
    stop: Stop,
}

/// A row group of a file whose columns are copied.
struct RowGroup {
    rows: u64,
    /// The column chunks to copy.
    chunks: Vec<ChunkRanges>,
    /// Uncompressed bytes of the other column chunks.
    other_bytes: u64,
}

/// The byte ranges of a column chunk and of its page indexes.
struct ChunkRanges {
    leaf: usize,
    bytes: Range<u64>,
    offset_index: Option<Range<u64>>,
    column_index: Option<Range<u64>>,
}

/// A file whose columns are copied.
struct SourceFile {
    path: String,
    bytes: FileBytes,
    metadata: ArrowReaderMetadata,
    groups: Vec<RowGroup>,
}

/// Rewrites the files whose columns can be copied. Returns the new files, and the tasks of the files that are left.
///
/// # Errors
/// Those of reading and writing; no file is left then.
pub(super) async fn copy_columns(
    update: &UpdateWriter,
    (storage, copying): (&Storage, &Copying),
    tasks: Vec<UpdateTask>,
    clock: Clock,
) -> Result<(Written, Vec<UpdateTask>)> {
    let Some(update) = update.narrow() else { return Ok((Written::default(), tasks)) };
    let copier = match ColumnCopier::new(update, (storage, copying), clock) {
        Ok(copier) => Arc::new(copier),
        Err(NotCopied::Refused(why)) => {
            debug!(target: TARGET, "{}: UPDATE writes all columns again: {why}", storage.location());
            return Ok((Written::default(), tasks));
        }
        Err(NotCopied::Failed(error)) => return Err(error),
    };
    let mut unclaimed = Unclaimed::new(storage.clone());
    let mut work = Vec::with_capacity(tasks.len());
    for (number, task) in tasks.into_iter().enumerate() {
        let name = copier.rewrite.name(number, &task.task.partition_values);
        if let Ok(new_file) = &name {
            unclaimed.push(new_file.path.key.clone());
        }
        let copier = Arc::clone(&copier);
        work.push(spawn_async(async move {
            let copied = match name {
                Ok(name) => copier.copy(&task, name).await,
                Err(error) => Err(error),
            };
            match copied {
                Ok(file) => Ok((Some(file), None)),
                Err(NotCopied::Failed(error)) => Err(error),
                Err(NotCopied::Refused(why)) => {
                    debug!(target: TARGET, "{}: UPDATE writes all its columns again: {why}", task.task.path);
                    Ok((None, Some(task)))
                }
            }
        }));
    }
    // Files wait until they are durable, while others are written.
    match run_to_end(work, 2 * worker_count(), &copier.stop).await {
        (done, None) => {
            unclaimed.claim();
            let (files, left): (Vec<_>, Vec<_>) = done.into_iter().unzip();
            Ok(((files.into_iter().flatten().collect(), Syncing::default()), left.into_iter().flatten().collect()))
        }
        (_, Some(error)) => {
            unclaimed.delete().await;
            Err(error)
        }
    }
}

impl ColumnCopier {
    fn new(update: &NarrowUpdate, (storage, copying): (&Storage, &Copying), clock: Clock) -> Result<Self, NotCopied> {
        let NarrowUpdate { update, needed, changed } = update;
        let rewrite = ColumnRewrite::new(&copying.write, changed, clock)?;
        let read = ReadSpec { columns: needed.clone(), row_tracking: None, ..copying.read.clone() };
        let new_columns = (0..needed.len()).filter(|at| needed.get(*at).is_some_and(|name| changed.contains(name)));
        let new_columns = new_columns.collect();
        let writer = UpdateWriter::new(update.clone());
        let memory = Semaphore::new(usize::try_from(MEMORY_LIMIT / BYTES_PER_PERMIT).unwrap_or(Semaphore::MAX_PERMITS));
        Ok(Self {
            storage: storage.clone(),
            copying: copying.clone(),
            rewrite,
            writer,
            read,
            new_columns,
            memory,
            stop: Stop::default(),
        })
    }

    /// Rewrites a file.
    async fn copy(&self, task: &UpdateTask, new_file: NewFile) -> Result<DataFile, NotCopied> {
        let refuse = |why| Err(NotCopied::Refused(why));
        if task.task.deletion_vector.is_some() || task.task.only_rows.is_some() {
            return refuse("not all its rows are written");
        }
        if task.task.size < MIN_FILE_BYTES {
            return refuse("it is small");
        }
        if task.task.size > self.rewrite.target_file_size() {
            return refuse("it is larger than files should be");
        }
        let Some(stats) = &task.stats else { return refuse("the log has no statistics of it") };
        let source = self.open(task).await?;
        let rows = source.groups.iter().map(|group| group.rows).fold(0, u64::saturating_add);
        let file = self.rewrite.begin(stats, rows, is_by_deltic(source.metadata.metadata()))?;
        let memory = source.groups.iter().map(|group| group.bytes().saturating_add(group.other_bytes)).max();
        let permits = memory.unwrap_or_default().saturating_mul(2) / BYTES_PER_PERMIT + 1;
        let permits = u32::try_from(permits.min(MEMORY_LIMIT / BYTES_PER_PERMIT)).unwrap_or(u32::MAX);
        let _held = self.memory.acquire_many(permits).await.map_err(|e| Error::internal("closed").caused_by(e))?;
        self.stop.check()?;
        let mut upload = self.storage.create_file(&new_file.path.key).await?;
        match self.write(task, (source, file), &mut upload).await {
            Ok(ended) => {
                upload.write(ended.rest.clone()).await?;
                let (size, syncing) = upload.finish_unsynced(false).await?;
                syncing.wait().await?;
                self.copying.advance(rows);
                Ok(self.rewrite.data_file(&ended, stats, new_file, size)?)
            }
            Err(error) => {
                // The error of writing is returned, not one of the cleanup.
                let _ = upload.abort().await;
                Err(error)
            }
        }
    }

    /// Reads the footer of a file, and finds out whether its columns can be copied.
    async fn open(&self, task: &UpdateTask) -> Result<SourceFile, NotCopied> {
        let (path, size) = (task.task.path.clone(), task.task.size);
        let opened = async {
            let bytes = FileBytes::open(self.storage.clone(), decode_path(&path)?, size).await?;
            let footer = bytes.footer().await?;
            Ok((bytes, footer))
        };
        let (bytes, footer) = opened.await.map_err(|e: Error| e.in_file(&path))?;
        let place = path.clone();
        let metadata = blocking(&path, move || {
            let metadata = Arc::new(parse_footer(&place, &footer)?);
            arrow_metadata(metadata, Some("UTC")).map_err(|e| corrupt_parquet(&place, e))
        });
        let metadata = metadata.await?;
        let groups = self.groups(metadata.metadata(), size).map_err(NotCopied::Refused)?;
        Ok(SourceFile { path, bytes, metadata, groups })
    }

    /// The row groups of a file of this size, or why its column chunks cannot be copied.
    fn groups(&self, metadata: &ParquetMetaData, size: u64) -> Result<Vec<RowGroup>, &'static str> {
        let file = metadata.file_metadata();
        if !self.rewrite.fits(file.schema_descr()) {
            return Err("its columns are not as they would be written");
        }
        let calendars = Calendars::of(file);
        if file.schema_descr().columns().iter().any(|leaf| calendars.may_differ(leaf)) {
            return Err("its dates may be of another calendar");
        }
        let is_new = self.rewrite.is_new();
        let (mut groups, mut all) = (Vec::with_capacity(metadata.num_row_groups()), Vec::new());
        for group in metadata.row_groups() {
            let rows = u64::try_from(group.num_rows()).unwrap_or_default();
            if rows == 0 || group.columns().len() != is_new.len() || groups.len() >= MAX_ROW_GROUPS {
                return Err("a row group has no rows or other columns, or there are too many");
            }
            let copied = group.columns().iter().enumerate().filter(|(leaf, _)| is_new.get(*leaf) == Some(&false));
            let chunks = copied.map(|(leaf, column)| chunk(leaf, column, rows));
            let other = group.columns().iter().enumerate().filter(|(leaf, _)| is_new.get(*leaf) == Some(&true));
            let other = other.map(|(_, column)| u64::try_from(column.uncompressed_size()).unwrap_or_default());
            let other_bytes = other.fold(0, u64::saturating_add);
            let group = RowGroup { rows, chunks: chunks.collect::<Result<_, _>>()?, other_bytes };
            if group.bytes() > MAX_ROW_GROUP_BYTES {
                return Err("a row group is large");
            }
            if group.bytes() > size || group.chunks.iter().flat_map(ChunkRanges::parts).any(|part| part.end > size) {
                return Err("its column chunks or their indexes are outside");
            }
            all.extend(group.chunks.iter().map(|chunk| chunk.bytes.clone()));
            groups.push(group);
        }
        all.sort_unstable_by_key(|bytes| bytes.start);
        let overlap = all.windows(2).any(|two| matches!(two, [one, next] if one.end > next.start));
        if groups.is_empty() || overlap {
            return Err("it has no rows, or its column chunks overlap");
        }
        Ok(groups)
    }

    /// Writes all row groups of a file, and uploads them but for the last bytes.
    async fn write(
        &self,
        task: &UpdateTask,
        (source, mut file): (SourceFile, FileRewrite),
        upload: &mut FileWriter,
    ) -> Result<EndedFile, NotCopied> {
        let options = ReadOptions { concurrent_files: 1, ..ReadOptions::default() };
        let read = task.clone();
        let rows = self.writer.updated_rows(&self.storage, (&self.read, vec![read]), options)?;
        let mut rows = RowStream { stream: Box::pin(self.stop.guard(rows)), rest: None };
        for (index, group) in source.groups.iter().enumerate() {
            let (copied, encoded) =
                futures::future::join(source.fetch(index, group), self.encode(&mut file, group.rows, &mut rows)).await;
            encoded?;
            let bytes = file.end_group(copied?)?;
            if !bytes.is_empty() {
                upload.write(bytes).await?;
            }
        }
        match rows.next(u64::MAX).await? {
            None => Ok(file.finish()?),
            Some(_) => Err(NotCopied::Refused("it has more rows than its footer says")),
        }
    }

    /// Encodes the rows of a row group.
    async fn encode(&self, file: &mut FileRewrite, rows: u64, from: &mut RowStream) -> Result<(), NotCopied> {
        let mut left = rows;
        while left > 0 {
            let Some(batch) = from.next(left).await? else {
                return Err(NotCopied::Refused("it has fewer rows than its footer says"));
            };
            left -= batch.num_rows() as u64;
            self.rewrite.write(file, &batch.project(&self.new_columns).map_err(Error::from)?)?;
            if file.memory() as u64 > MAX_ROW_GROUP_BYTES {
                return Err(NotCopied::Refused("a row group becomes large"));
            }
        }
        Ok(())
    }
}

/// The rows of a file, with the new values, as many at a time as the caller asks for.
struct RowStream {
    stream: Pin<Box<dyn Stream<Item = Result<RecordBatch>> + Send>>,
    /// Rows that were read and not taken yet.
    rest: Option<RecordBatch>,
}

impl RowStream {
    /// The next rows, at most `most`; none at the end of the file.
    async fn next(&mut self, most: u64) -> Result<Option<RecordBatch>> {
        let batch = loop {
            match self.rest.take() {
                Some(batch) if batch.num_rows() > 0 => break batch,
                _ => match self.stream.next().await {
                    Some(batch) => self.rest = Some(batch?),
                    None => return Ok(None),
                },
            }
        };
        let now = usize::try_from(most).unwrap_or(usize::MAX).min(batch.num_rows());
        self.rest = Some(batch.slice(now, batch.num_rows() - now));
        Ok(Some(batch.slice(0, now)))
    }
}

impl RowGroup {
    /// Bytes to read for the copied columns.
    fn bytes(&self) -> u64 {
        self.chunks.iter().flat_map(ChunkRanges::parts).map(|part| part.end - part.start).fold(0, u64::saturating_add)
    }
}

impl ChunkRanges {
    /// All its ranges.
    fn parts(&self) -> impl Iterator<Item = Range<u64>> {
        [Some(&self.bytes), self.offset_index.as_ref(), self.column_index.as_ref()].into_iter().flatten().cloned()
    }
}

/// The ranges of a column chunk, or why it cannot be copied. They may be beyond the end of the file.
fn chunk(leaf: usize, column: &ColumnChunkMetaData, rows: u64) -> Result<ChunkRanges, &'static str> {
    let outside = "a column chunk is outside of it";
    let (dictionary, data) = (column.dictionary_page_offset(), column.data_page_offset());
    let start = dictionary.unwrap_or(data);
    let end = start.checked_add(column.compressed_size()).ok_or(outside)?;
    if start < 4 || start > data || data >= end || column.uncompressed_size() < 0 {
        return Err(outside);
    }
    if column.uncompressed_size() > i64::from(i32::MAX) * 4 {
        return Err("a column chunk is large");
    }
    if column.file_path().is_some() {
        return Err("a column chunk is in another file");
    }
    if column.bloom_filter_offset().is_some() {
        return Err("it has bloom filters");
    }
    let is_flat = column.column_descr().max_rep_level() == 0;
    if is_flat && u64::try_from(column.num_values()).ok() != Some(rows) {
        return Err("a column chunk has another number of rows than its row group");
    }
    let (offset_index, column_index) = (column.offset_index_range(), column.column_index_range());
    if [&offset_index, &column_index].into_iter().flatten().any(|index| index.end - index.start > MAX_PAGE_INDEX_BYTES)
    {
        return Err("an index of pages is large");
    }
    Ok(ChunkRanges { leaf, bytes: start.cast_unsigned()..end.cast_unsigned(), offset_index, column_index })
}

impl SourceFile {
    /// Fetches the copied chunks of a row group, and checks their pages.
    async fn fetch(&self, index: usize, group: &RowGroup) -> Result<Vec<CopiedChunk>, NotCopied> {
        let ranges: Vec<Range<u64>> = group.chunks.iter().flat_map(ChunkRanges::parts).collect();
        let fetched = self.bytes.ranges(&ranges).await.map_err(|e| e.in_file(&self.path))?;
        let mut fetched = fetched.into_iter();
        let mut parts = Vec::with_capacity(group.chunks.len());
        for chunk in &group.chunks {
            let bytes = fetched.next();
            let offset_index = chunk.offset_index.as_ref().and_then(|_| fetched.next());
            let column_index = chunk.column_index.as_ref().and_then(|_| fetched.next());
            let (leaf, start) = (chunk.leaf, chunk.bytes.start);
            parts.extend(bytes.map(|bytes| FetchedChunk { leaf, start, bytes, offset_index, column_index }));
        }
        let (metadata, path) = (self.metadata.clone(), self.path.clone());
        let checked = blocking(&self.path, move || {
            let mut chunks = Vec::with_capacity(parts.len());
            for part in parts {
                let Some(chunk) = part.checked(&metadata, index, &path)? else { return Ok(None) };
                chunks.push(chunk);
            }
            Ok(Some(chunks))
        });
        checked.await?.ok_or(NotCopied::Refused("its pages are not as they should be"))
    }
}

/// A column chunk and its page indexes, as they are in the file.
struct FetchedChunk {
    leaf: usize,
    /// Its offset in the file.
    start: u64,
    bytes: Bytes,
    offset_index: Option<Bytes>,
    column_index: Option<Bytes>,
}

impl FetchedChunk {
    /// The chunk with decoded indexes; none if its pages are not where the footer and the indexes say.
    ///
    /// # Errors
    /// `Corrupt` if a page does not have its checksum: writing all rows again would give the damaged page a new one.
    fn checked(self, file: &ArrowReaderMetadata, group: usize, path: &str) -> Result<Option<CopiedChunk>> {
        let column = file.metadata().row_group(group).column(self.leaf);
        let Ok(pages) = limits::check_pages(&self.bytes, column) else { return Ok(None) };
        if !pages.checksums_match {
            let message =
                format!("a page of the column `{}` does not have its checksum", column.column_path().string());
            return Err(corrupt_parquet(path, ParquetError::General(message)));
        }
        Ok(self.with_indexes(file, group, &pages))
    }

    fn with_indexes(self, file: &ArrowReaderMetadata, group: usize, checked: &CheckedPages) -> Option<CopiedChunk> {
        let Self { leaf, start, bytes, offset_index, column_index } = self;
        let CheckedPages { limits: claims, data_pages: pages, .. } = checked;
        let group = file.metadata().row_group(group);
        let metadata = group.column(leaf).clone();
        let first_data_page = start.checked_add(pages.first()?.start)?;
        if i64::try_from(claims.values) != Ok(metadata.num_values())
            || i64::try_from(first_data_page) != Ok(metadata.data_page_offset())
        {
            return None;
        }
        let offset_index = match offset_index {
            Some(encoded) => Some(limits::offset_index(&encoded, pages.len())?),
            None => None,
        };
        let is_flat = metadata.column_descr().max_rep_level() == 0;
        if offset_index.as_ref().is_some_and(|index| !has_pages(index, pages, start, (is_flat, group.num_rows()))) {
            return None;
        }
        let column_index = match column_index.filter(|_| offset_index.is_some()) {
            Some(encoded) => {
                let index = decode_column_index(&encoded, metadata.column_type()).ok()?;
                Some(index).filter(|index| index.num_pages() == pages.len() as u64).map(Some)?
            }
            None => None,
        };
        // Old versions of other libraries compared decimals as unsigned bytes. Readers know them by the name in the footer,
        // which is not copied.
        let compares_decimals =
            is_by_deltic(file.metadata()) || metadata.column_type() != PhysicalType::FIXED_LEN_BYTE_ARRAY;
        let has_ordered_bounds = compares_decimals && has_ordered_bounds(file, leaf);
        Some(CopiedChunk { metadata, bytes, has_ordered_bounds, offset_index, column_index })
    }
}

/// Whether deltic wrote a file.
fn is_by_deltic(file: &ParquetMetaData) -> bool {
    file.file_metadata().created_by().is_some_and(|writer| writer.starts_with("deltic version "))
}

/// Whether an offset index has these pages of a column chunk that begins at `start`. `is_flat`: whether each row has one value;
/// `rows`: the rows of the row group.
fn has_pages(index: &OffsetIndexMetaData, pages: &[DataPage], start: u64, (is_flat, rows): (bool, i64)) -> bool {
    let (mut values, mut last) = (0_u64, None);
    index.page_locations().len() == pages.len()
        && index.page_locations().iter().zip(pages).all(|(place, page)| {
            let is_there = u64::try_from(place.offset).ok() == start.checked_add(page.start)
                && u64::try_from(place.compressed_page_size) == Ok(page.bytes);
            // The first row of a page with lists is not in its header.
            let is_next = match last {
                _ if is_flat => u64::try_from(place.first_row_index) == Ok(values),
                None => place.first_row_index == 0,
                Some(last) => place.first_row_index > last && place.first_row_index < rows,
            };
            last = Some(place.first_row_index);
            values = values.saturating_add(page.values);
            is_there && is_next
        })
}
