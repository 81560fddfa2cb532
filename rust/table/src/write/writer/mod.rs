//! Writes data files, without committing them.
//!
//! The writer converts batches to the table's schema, splits them by partition, buffers rows until encoding is worth while,
//! encodes on worker threads while it buffers further rows, and streams to storage. A file that reaches its target size
//! ends and another begins. Memory is bounded for any number of partitions: rows beyond the limit are spilled to a temporary
//! file. The writer does not commit. [`DataWriter::abort`] deletes its files, as dropping the writer does in the background.
//!
//! Invariant: every row written is in exactly one of the files [`DataWriter::finish`] returns, and those are complete
//! in storage (`write::round_trips`); after an error, an abort or a drop no file is left (`write::abort_leaves_nothing`,
//! `write::a_dropped_writer_leaves_no_files`).
//!
//! PROTOCOL.md: "Data Files", "Add File and Remove File".

mod ended_files;
mod finish;
mod limits;
mod memory_limit;
mod open_file;
mod spill;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_array::RecordBatch;
use deltic_protocol::error::{Error, Result};
use futures::{Stream, StreamExt, stream};
use tokio::task::spawn_blocking;

pub use self::ended_files::EndedFiles;
pub(crate) use self::limits::check_memory_limit;
pub use self::limits::{DEFAULT_MEMORY, LEAST_MEMORY, Limits, MemoryUse};
use self::open_file::{Encoding, OpenFile, Partition, WORTH_A_THREAD, joined, start_encoding, upload};
use self::spill::SpillFile;
use super::input::identity::Identities;
pub use super::options::Compression;
use super::partition::{PartitionKey, Parts};
use super::pieces::{memory, pieces};
pub use super::plan::{DataFile, WriteSpec};
use super::setup::Setup;
pub use super::setup::{Clock, check};
use super::unclaimed::Unclaimed;
use crate::parallel::worker_count;
use crate::progress::{Progress, Unit};
use deltic_store::{FileWriter, Storage, Syncing};

/// How many files are ended at a time when the writer finishes.
const FINISHING: usize = 32;

/// Most files that may still be syncing to disk after the writer finished. Each of them is open until then.
const MAX_SYNCING: usize = 16;

/// Writes the data files of one table.
pub struct DataWriter {
    storage: Storage,
    setup: Arc<Setup>,
    partitions: HashMap<PartitionKey, Partition>,
    /// Rows that are being encoded while further rows are buffered.
    encoding: Vec<(PartitionKey, Encoding)>,
    finished: Vec<DataFile>,
    stored: Unclaimed,
    files_named: usize,
    limits: Limits,
    memory_use: Arc<MemoryUse>,
    /// Bytes of rows written so far, by which idle partitions are found.
    bytes_taken: u64,
    /// Partitions whose files were ended because they were idle.
    ended_idle: HashSet<PartitionKey>,
    /// Whether one of these partitions had rows after that.
    reopened_partition: bool,
    /// Rows of partitions that have no open file.
    spill: Option<SpillFile>,
    /// Rows written so far, by which error messages name a row.
    rows: u64,
    identities: Identities,
    /// Whether the last columns of the rows are the strings of their partition values.
    has_partition_strings: bool,
    /// Whether a write failed, or was dropped while it ran: rows may be missing.
    broken: bool,
    progress: Progress,
}

impl DataWriter {
    /// A writer into the table at `storage`.
    ///
    /// # Errors
    /// As [`check`].
    pub fn new(storage: Storage, spec: &WriteSpec, clock: Clock) -> Result<Self> {
        Ok(Self {
            stored: Unclaimed::new(storage.clone()),
            storage,
            setup: Arc::new(Setup::new(spec, clock)?),
            partitions: HashMap::new(),
            encoding: Vec::new(),
            finished: Vec::new(),
            files_named: 0,
            limits: Limits::chosen(spec.memory_limit),
            memory_use: Arc::default(),
            bytes_taken: 0,
            ended_idle: HashSet::new(),
            reopened_partition: false,
            spill: None,
            rows: 0,
            identities: Identities::new(spec.identities.clone()),
            has_partition_strings: false,
            broken: false,
            progress: Progress::default(),
        })
    }

    /// Sets the limits, instead of the defaults.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Rows have strings after the columns of the table: for each partition column the one that the log gets for the value, or
    /// NULL if the value is printed.
    #[must_use]
    pub(crate) fn with_partition_strings(mut self) -> Self {
        self.has_partition_strings = true;
        self
    }

    /// The writer's memory use, which may be read at any time.
    pub fn memory_use(&self) -> Arc<MemoryUse> {
        Arc::clone(&self.memory_use)
    }

    /// Reports the number of rows written as progress.
    #[must_use]
    pub fn reporting(mut self) -> Self {
        self.progress = Progress::begin("WRITE", Unit::Rows, None);
        self
    }

    /// Writes the rows of `batch`, which has the table's columns in any order.
    ///
    /// After an error, or when dropped while it runs, the writer can only be aborted.
    ///
    /// # Errors
    /// `Invalid`, naming the column, if the batch cannot be converted to rows of the table without loss; those of the store.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.check_intact()?;
        self.broken = true;
        let most = self.setup.target_file_size.min((self.limits.memory / 2) as u64);
        for piece in pieces(batch, most) {
            self.write_piece(piece).await?;
        }
        self.broken = false;
        self.progress.advance(batch.num_rows() as u64);
        Ok(())
    }

    /// Ends when the caller has claimed the files, or they are deleted because the writer failed or was dropped.
    pub fn released(&mut self) -> impl Future<Output = ()> + Send + use<> {
        self.stored.released()
    }

    /// Writes all rows of a stream and finishes; after an error no file is left.
    pub async fn write_all(self, rows: impl Stream<Item = Result<RecordBatch>>) -> Result<Vec<DataFile>> {
        self.write_unclaimed(rows).await?.durable().await
    }

    /// As [`DataWriter::write_all`], without waiting until the files are synced to disk: no commit may name them before the
    /// [`Syncing`] has ended.
    pub async fn write_all_unsynced(
        self,
        rows: impl Stream<Item = Result<RecordBatch>>,
    ) -> Result<(Vec<DataFile>, Syncing)> {
        Ok(self.write_unclaimed(rows).await?.claim())
    }

    /// As [`DataWriter::write_all_unsynced`], but the files are deleted when the result is dropped, unless they are claimed.
    pub async fn write_unclaimed(mut self, rows: impl Stream<Item = Result<RecordBatch>>) -> Result<EndedFiles> {
        let mut rows = std::pin::pin!(rows);
        while let Some(batch) = rows.next().await {
            let written = match batch {
                Ok(batch) => self.write(&batch).await,
                Err(e) => Err(e),
            };
            if let Err(e) = written {
                self.abort().await;
                return Err(e);
            }
        }
        self.end_all().await
    }

    /// Ends all files; they are durable when this returns. If one cannot be ended, all are deleted.
    pub async fn finish(self) -> Result<Vec<DataFile>> {
        self.end_all().await?.durable().await
    }

    /// Deletes all files, as far as the store allows.
    pub async fn abort(self) {
        let uploads = self.partitions.into_values().filter_map(|partition| partition.file?.into_upload());
        stream::iter(uploads).map(FileWriter::abort).buffer_unordered(FINISHING).for_each(|_| async {}).await;
        self.stored.delete().await;
    }

    fn check_intact(&self) -> Result<()> {
        if self.broken {
            return Err(Error::invalid(
                "an earlier write of this writer failed or was interrupted; start another writer",
            ));
        }
        Ok(())
    }

    async fn write_piece(&mut self, piece: RecordBatch) -> Result<()> {
        let setup = Arc::clone(&self.setup);
        let bytes = memory(&piece);
        let is_small = bytes < WORTH_A_THREAD;
        self.bytes_taken += bytes as u64;
        let (first, at_once) = (self.rows, self.limits.at_once());
        self.rows += piece.num_rows() as u64;
        let (piece, strings) = match self.has_partition_strings {
            true => setup.splitter.take_strings(&piece)?,
            false => (piece, Vec::new()),
        };
        let piece = self.identities.fill(piece)?;
        let split = move || {
            let filled = setup.rules.as_ref().map(|rules| rules.fill(piece.clone(), first)).transpose()?;
            let piece = filled.as_ref().map_or(&piece, |filled| &filled.rows);
            let rows = setup.conformer.conform_from(piece, first)?;
            setup.lengths.check(&rows, first)?;
            if setup.rules.is_some() || setup.condition.is_some() {
                // Conditions are evaluated on the rows as they will be read: an empty string in a partition column is NULL.
                let stored = setup.splitter.normalised(&rows)?;
                if let Some((rules, filled)) = setup.rules.as_ref().zip(filled.as_ref()) {
                    rules.check(&stored, filled, first)?;
                }
                setup.condition.as_ref().map_or(Ok(()), |condition| condition.check(&stored, first))?;
            }
            let mut divided = setup.splitter.divide(&rows, &strings)?;
            let parts = divided.take(at_once)?;
            Ok((parts, divided))
        };
        let (mut parts, mut divided) = if is_small { split()? } else { joined(spawn_blocking(split)).await? };
        loop {
            self.buffer_all(parts).await?;
            if divided.is_empty() {
                return Ok(());
            }
            let more = move || divided.take(at_once).map(|parts| (parts, divided));
            (parts, divided) = joined(spawn_blocking(more)).await?;
        }
    }

    async fn buffer_all(&mut self, parts: Parts) -> Result<()> {
        self.free_memory(parts.bytes).await?;
        let mut due = Vec::new();
        for (key, rows) in parts.rows {
            if self.buffer_rows(&key, rows).await? {
                due.push(key);
            }
        }
        self.memory_use.note(self.memory_in_use());
        let due = self.choose_for_files(due).await?;
        self.start_encoding(due, false).await?;
        self.free_memory(0).await
    }

    /// Buffers rows of a partition, and ends files that have the maximum of rows. Returns whether there are enough rows to
    /// be worth encoding.
    async fn buffer_rows(&mut self, key: &PartitionKey, mut rows: RecordBatch) -> Result<bool> {
        self.reopened_partition |=
            !self.ended_idle.is_empty() && !self.partitions.contains_key(key) && self.ended_idle.contains(key);
        loop {
            let partition = self.partitions.entry(key.clone()).or_default();
            partition.last_used = self.bytes_taken;
            if !partition.spilled.is_empty() {
                partition.push(rows, usize::MAX)?;
                return Ok(false);
            }
            let room = usize::try_from(self.setup.max_rows - partition.rows).unwrap_or(usize::MAX);
            let now = rows.num_rows().min(room);
            let is_due = partition.push(rows.slice(0, now), self.setup.worth_encoding)?;
            let is_full = now == room;
            rows = rows.slice(now, rows.num_rows() - now);
            if is_full {
                self.end_file(key).await?;
            }
            if rows.num_rows() == 0 {
                return Ok(is_due && !is_full);
            }
        }
    }

    /// Starts to encode the pending rows of these partitions, all at once, after what is being encoded.
    async fn start_encoding(&mut self, keys: Vec<PartitionKey>, end_groups: bool) -> Result<()> {
        self.end_encoding().await?;
        let threads = worker_count() / keys.len().max(1);
        for key in keys {
            let Some(partition) = self.partitions.get_mut(&key) else { continue };
            let bytes = partition.memory();
            let file = partition.file.get_or_insert_with(|| {
                let path = self.setup.name_file(self.files_named, &key);
                self.files_named += 1;
                OpenFile::new(path)
            });
            file.encoding_bytes = bytes;
            let rows = std::mem::take(&mut partition.pending);
            let job = start_encoding(&self.setup, file.encoder.take(), rows, (end_groups, threads));
            partition.pending_bytes = 0;
            self.encoding.push((key, job));
        }
        if self.setup.max_rows < u64::MAX {
            // How many rows each file may still get depends on whether it ends now.
            self.end_encoding().await?;
        }
        Ok(())
    }

    /// Waits for the rows that are being encoded, uploads them, and ends files that have reached their target size.
    async fn end_encoding(&mut self) -> Result<()> {
        for (key, job) in std::mem::take(&mut self.encoding) {
            let (encoder, bytes) = joined(job).await?;
            let is_full = encoder.size() >= self.setup.target_file_size;
            let Some(file) = self.partitions.get_mut(&key).and_then(|p| p.file.as_mut()) else { continue };
            file.encoding_bytes = 0;
            file.encoder = Some(encoder);
            if !bytes.is_empty() {
                upload(&self.storage, file, bytes).await?;
            }
            if is_full {
                self.end_full_file(key).await?;
            }
        }
        Ok(())
    }

    /// Ends the partition's file. Its pending rows begin the next one.
    async fn end_full_file(&mut self, key: PartitionKey) -> Result<()> {
        let next = self.partitions.get_mut(&key).and_then(Partition::split_pending);
        self.end_encoded(std::slice::from_ref(&key)).await?.wait().await?;
        self.partitions.extend(next.map(|next| (key, next)));
        Ok(())
    }

    /// Ends the partition's file with all its pending rows.
    async fn end_file(&mut self, key: &PartitionKey) -> Result<()> {
        self.end_partitions(std::slice::from_ref(key)).await?.wait().await
    }
}
