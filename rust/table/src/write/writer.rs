//! Writing data files, without making them part of the table.
//!
//! Batches are brought into the table's schema, split by partition, gathered until encoding is worth it, encoded on
//! the blocking pool and streamed to storage; a file that has reached its size ends and another begins. Memory is
//! bounded however many partitions there are. Nothing here commits: files that no commit names are garbage, and
//! [`DataWriter::abort`] removes them, as dropping the writer does in the background.
//!
//! Invariant: every row written is in exactly one of the files [`DataWriter::finish`] returns, and those are complete
//! in storage (`write::round_trips`); after an error, an abort or a drop no file is left (`write::abort_leaves_nothing`,
//! `write::a_dropped_writer_leaves_nothing`).
//!
//! PROTOCOL.md: "Data Files", "Add File and Remove File".

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_array::{RecordBatch, UInt64Array};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use bytes::Bytes;
use deltic_protocol::action::Add;
use deltic_protocol::error::{Error, Result};
use futures::{Stream, StreamExt, stream};
use tokio::task::{JoinHandle, spawn_blocking};
use uuid::Uuid;

use super::encoder::{Encoded, Encoder};
use super::input::identity::Identities;
use super::layout::{DataPath, file_id, file_name, random_prefix};
pub use super::options::Compression;
use super::partition::PartitionKey;
use super::pieces::{memory, pieces};
pub use super::plan::{DataFile, WriteSpec};
use super::setup::Setup;
pub use super::setup::{Clock, check};
use super::unclaimed::Unclaimed;
use crate::parallel::worker_count;
use crate::progress::{Progress, Unit};
use deltic_store::{FileWriter, Storage, Syncing};

/// What a writer may hold at a time, however many partitions there are.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Files begun and not ended; the one that has rested longest is ended for another. Each has an upload's buffer,
    /// which `memory` does not count.
    pub open_files: usize,
    /// Bytes of rows and encoded pages; the partition with most of them hands its own to storage.
    pub memory: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { open_files: 64, memory: 512 * 1024 * 1024 }
    }
}

/// Batches of a partition that are put together rather than kept apart.
const MAX_PENDING_BATCHES: usize = 64;

/// Bytes that are worked on at once rather than on the blocking pool: going there and back takes longer.
const WORTH_A_THREAD: usize = 32 * 1024;

/// Files ended at a time when the writer finishes.
const FINISHING: usize = 32;

/// Files that may still be on their way to the disk after the writer finished. Each is open until then.
const MAX_SYNCING: usize = 16;

/// Writes the data files of one table.
pub struct DataWriter {
    storage: Storage,
    setup: Arc<Setup>,
    partitions: HashMap<PartitionKey, Partition>,
    finished: Vec<DataFile>,
    stored: Unclaimed,
    files_named: usize,
    limits: Limits,
    /// Counts pieces, to know which partition has rested longest.
    now: u64,
    /// Rows taken in, by which a row is named.
    rows: u64,
    identities: Identities,
    /// Whether a write failed, or was dropped while it ran: what is held is no longer what was passed.
    broken: bool,
    progress: Progress,
}

/// Rows of one partition on their way.
#[derive(Default)]
struct Partition {
    pending: Vec<RecordBatch>,
    pending_bytes: usize,
    /// Rows of its file, those among them that are pending.
    rows: u64,
    file: Option<OpenFile>,
    last_used: u64,
}

struct OpenFile {
    path: DataPath,
    /// Absent only while the blocking pool has it.
    encoder: Option<Encoder>,
    /// Opened with the first bytes.
    upload: Option<FileWriter>,
}

type Encoding = JoinHandle<Result<(Encoder, Bytes)>>;

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
            finished: Vec::new(),
            files_named: 0,
            limits: Limits::default(),
            now: 0,
            rows: 0,
            identities: Identities::new(spec.identities.clone()),
            broken: false,
            progress: Progress::default(),
        })
    }

    /// Holds no more than this at a time, instead of the default.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Tells who waits for it how many rows it has taken in.
    #[must_use]
    pub fn reporting(mut self) -> Self {
        self.progress = Progress::begin("WRITE", Unit::Rows, None);
        self
    }

    /// Takes in the rows of `batch`, whose columns are the table's in any order.
    ///
    /// After an error, or when dropped while it runs, the writer can only be aborted.
    ///
    /// # Errors
    /// `Invalid`, naming the column, if the batch cannot become rows of the table without loss; else what storage says.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.check_intact()?;
        self.broken = true;
        for piece in pieces(batch, self.setup.target_file_size) {
            self.write_piece(piece).await?;
        }
        self.broken = false;
        self.progress.advance(batch.num_rows() as u64);
        Ok(())
    }

    /// Ends when the files are the caller's, or are deleted because the writer failed or was dropped.
    pub fn gone(&mut self) -> impl Future<Output = ()> + Send + use<> {
        self.stored.gone()
    }

    /// Writes all rows of a stream and finishes; after an error no file is left.
    pub async fn write_all(self, rows: impl Stream<Item = Result<RecordBatch>>) -> Result<Vec<DataFile>> {
        self.write_unclaimed(rows).await?.durable().await
    }

    /// As [`DataWriter::write_all`]; the files are durable when what is given back beside them has ended, which nobody
    /// may refer to them before.
    pub async fn write_all_soon(
        self,
        rows: impl Stream<Item = Result<RecordBatch>>,
    ) -> Result<(Vec<DataFile>, Syncing)> {
        Ok(self.write_unclaimed(rows).await?.claim())
    }

    /// As [`DataWriter::write_all_soon`]; dropped, the files are deleted unless they are claimed.
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

    /// Ends all files; they are durable when this returns. If one cannot be ended, all are removed.
    pub async fn finish(self) -> Result<Vec<DataFile>> {
        self.end_all().await?.durable().await
    }

    async fn end_all(mut self) -> Result<EndedFiles> {
        if let Err(error) = self.check_intact() {
            self.abort().await;
            return Err(error);
        }
        let mut ending = Vec::with_capacity(self.partitions.len());
        let (waits, alone) = (self.partitions.len() > MAX_SYNCING, self.partitions.len() == 1);
        for (key, partition) in std::mem::take(&mut self.partitions) {
            let path = partition
                .file
                .as_ref()
                .map_or_else(|| name_file(&self.setup, &mut self.files_named, &key), |file| file.path.clone());
            self.stored.push(path.key.clone());
            let ended = end(self.storage.clone(), Arc::clone(&self.setup), key, path, partition, alone);
            ending.push(async move {
                match ended.await? {
                    (file, syncing) if waits => syncing.wait().await.map(|()| (file, Syncing::default())),
                    soon => Ok(soon),
                }
            });
        }
        let ended: Vec<Result<_>> = stream::iter(ending).buffer_unordered(FINISHING).collect().await;
        match ended.into_iter().collect::<Result<Vec<_>>>() {
            Ok(files) => {
                let mut all = std::mem::take(&mut self.finished);
                let mut syncing = Syncing::default();
                for (file, its) in files {
                    all.push(file);
                    syncing.extend(its);
                }
                all.sort_by(|a, b| a.add.path.cmp(&b.add.path));
                for file in &mut all {
                    file.identities.clone_from(self.identities.last());
                }
                Ok(EndedFiles { files: all, syncing, stored: self.stored })
            }
            Err(error) => {
                self.abort().await;
                Err(error)
            }
        }
    }

    /// Removes everything that was written, as far as storage lets it.
    pub async fn abort(self) {
        let uploads = self.partitions.into_values().filter_map(|partition| partition.file?.upload);
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
        let is_small = memory(&piece) < WORTH_A_THREAD;
        let first = self.rows;
        self.rows += piece.num_rows() as u64;
        let piece = self.identities.fill(piece)?;
        let split = move || {
            let (piece, computed) = match &setup.rules {
                Some(rules) => rules.fill(piece, first)?,
                None => (piece, Vec::new()),
            };
            let rows = setup.conformer.conform_from(&piece, first)?;
            setup.lengths.check(&rows, first)?;
            if setup.rules.is_some() || setup.condition.is_some() {
                // Conditions are about what will be read: an empty string in a partition column is NULL.
                let stored = setup.splitter.normalised(&rows)?;
                setup.rules.as_ref().map_or(Ok(()), |rules| rules.check(&stored, &computed, first))?;
                setup.condition.as_ref().map_or(Ok(()), |condition| condition.check(&stored, first))?;
            }
            setup.splitter.split(&rows)
        };
        let parts = if is_small { split()? } else { joined(spawn_blocking(split)).await? };
        self.now += 1;
        let mut due = Vec::new();
        for (key, rows) in parts {
            if self.take_in(&key, rows).await? {
                due.push(key);
            }
        }
        self.encode(due, false).await?;
        self.make_room().await
    }

    /// Takes in rows of a partition, ending files that have all the rows they may have; whether encoding the rest is worth it
    /// now.
    async fn take_in(&mut self, key: &PartitionKey, mut rows: RecordBatch) -> Result<bool> {
        loop {
            let partition = self.partitions.entry(key.clone()).or_default();
            partition.last_used = self.now;
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

    /// Encodes what is pending in these partitions, all at once, and ends files that have their size.
    async fn encode(&mut self, keys: Vec<PartitionKey>, end_groups: bool) -> Result<()> {
        let threads = worker_count() / keys.len().max(1);
        let mut jobs: Vec<(PartitionKey, Encoding)> = Vec::with_capacity(keys.len());
        for key in keys {
            let Some(partition) = self.partitions.get_mut(&key) else { continue };
            let file = partition.file.get_or_insert_with(|| {
                let path = name_file(&self.setup, &mut self.files_named, &key);
                OpenFile { path, encoder: None, upload: None }
            });
            let rows = std::mem::take(&mut partition.pending);
            let job = start_encoding(&self.setup, file.encoder.take(), rows, (end_groups, threads));
            partition.pending_bytes = 0;
            jobs.push((key, job));
        }
        for (key, job) in jobs {
            let (encoder, bytes) = joined(job).await?;
            let is_full = encoder.size() >= self.setup.target_file_size;
            let Some(file) = self.partitions.get_mut(&key).and_then(|p| p.file.as_mut()) else { continue };
            file.encoder = Some(encoder);
            if !bytes.is_empty() {
                upload(&self.storage, file, bytes).await?;
            }
            if is_full {
                self.end_file(&key).await?;
            }
        }
        Ok(())
    }

    /// Keeps to the limits.
    async fn make_room(&mut self) -> Result<()> {
        self.end_rested().await?;
        for keys in self.largest_holders().chunks(self.limits.open_files.max(1)) {
            self.encode(keys.to_vec(), true).await?;
            self.end_rested().await?;
        }
        Ok(())
    }

    async fn end_rested(&mut self) -> Result<()> {
        while let Some(key) = self.rested_too_long() {
            self.end_file(&key).await?;
        }
        Ok(())
    }

    /// The partition whose file has to end, if too many are open. Not part of a loop that awaits storage: there, a
    /// borrow of the encoders would live on, and the future could not change threads.
    fn rested_too_long(&self) -> Option<PartitionKey> {
        let open = || self.partitions.iter().filter(|(_, partition)| partition.file.is_some());
        let is_too_many = open().count() > self.limits.open_files;
        open().filter(|_| is_too_many).min_by_key(|(_, partition)| partition.last_used).map(|(key, _)| key.clone())
    }

    /// The partitions that have to let go of their rows: none, or enough that half of the memory is free again.
    fn largest_holders(&self) -> Vec<PartitionKey> {
        let mut holders: Vec<(usize, &PartitionKey)> = self.partitions.iter().map(|(k, p)| (p.memory(), k)).collect();
        let mut held: usize = holders.iter().map(|(bytes, _)| bytes).sum();
        if held <= self.limits.memory {
            return Vec::new();
        }
        holders.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        let lets_go = |(bytes, key): (usize, &PartitionKey)| {
            let key = (held > self.limits.memory / 2).then(|| key.clone());
            held = held.saturating_sub(bytes);
            key
        };
        holders.into_iter().map_while(lets_go).collect()
    }

    /// Ends the partition's file with everything pending for it.
    async fn end_file(&mut self, key: &PartitionKey) -> Result<()> {
        let Some(partition) = self.partitions.remove(key) else { return Ok(()) };
        let path = partition
            .file
            .as_ref()
            .map_or_else(|| name_file(&self.setup, &mut self.files_named, key), |file| file.path.clone());
        self.stored.push(path.key.clone());
        let ended = end(self.storage.clone(), Arc::clone(&self.setup), key.clone(), path, partition, true).await?;
        let (file, syncing) = ended;
        syncing.wait().await?;
        self.finished.push(file);
        Ok(())
    }
}

/// All files of a writer, ended.
pub struct EndedFiles {
    files: Vec<DataFile>,
    syncing: Syncing,
    stored: Unclaimed,
}

impl EndedFiles {
    /// The files, which are the caller's from now on, and what ends when they are durable.
    pub fn claim(self) -> (Vec<DataFile>, Syncing) {
        self.stored.claim();
        (self.files, self.syncing)
    }

    /// The files, when they would survive a power cut.
    async fn durable(self) -> Result<Vec<DataFile>> {
        match self.syncing.wait().await {
            Ok(()) => {
                self.stored.claim();
                Ok(self.files)
            }
            Err(error) => {
                self.stored.delete().await;
                Err(error)
            }
        }
    }
}

fn name_file(setup: &Setup, files_named: &mut usize, key: &PartitionKey) -> DataPath {
    let prefix = setup.random_prefix_length.map(|length| random_prefix(std::iter::repeat_with(Uuid::new_v4), length));
    let name = file_name((setup.kind.name(), *files_named), file_id(setup.id_prefix), setup.compression.extension());
    *files_named += 1;
    DataPath::new(key, prefix.as_deref(), &name).below(setup.kind.folder())
}

impl Partition {
    /// Takes in rows; whether encoding is worth it now.
    fn push(&mut self, rows: RecordBatch, worth_encoding: usize) -> Result<bool> {
        let bytes = memory(&rows);
        self.pending_bytes += bytes;
        self.rows += rows.num_rows() as u64;
        let is_due = self.pending_bytes >= worth_encoding;
        // A slice that waits would keep the whole batch it is from in memory.
        let pins = !is_due && rows.get_array_memory_size() > bytes.saturating_mul(2);
        let all = || UInt64Array::from_iter_values(0..rows.num_rows() as u64);
        self.pending.push(if pins { take_record_batch(&rows, &all())? } else { rows });
        if !is_due && self.pending.len() >= MAX_PENDING_BATCHES {
            self.put_together()?;
        }
        Ok(is_due)
    }

    /// Makes one batch of the last ones, as long as those after one have at least half of its rows: each row is copied a few
    /// times only, however many batches come.
    fn put_together(&mut self) -> Result<()> {
        let mut rows = 0;
        let is_small = |batch: &&RecordBatch| {
            let is_small = rows == 0 || batch.num_rows() / 2 <= rows;
            rows += batch.num_rows();
            is_small
        };
        let count = self.pending.iter().rev().take_while(is_small).count();
        let last = self.pending.split_off(self.pending.len() - count);
        if let Some(schema) = last.first().map(RecordBatch::schema) {
            self.pending.push(concat_batches(&schema, &last)?);
        }
        Ok(())
    }

    fn memory(&self) -> usize {
        let encoder = self.file.as_ref().and_then(|file| file.encoder.as_ref());
        self.pending_bytes + encoder.map_or(0, Encoder::memory)
    }
}

fn start_encoding(
    setup: &Arc<Setup>,
    encoder: Option<Encoder>,
    batches: Vec<RecordBatch>,
    (end_group, threads): (bool, usize),
) -> Encoding {
    let setup = Arc::clone(setup);
    spawn_blocking(move || {
        let mut encoder = encoder.map_or_else(|| Encoder::new(&setup.format), Ok)?;
        encoder.write_all(&setup.format, &batches, threads)?;
        if end_group {
            encoder.end_group()?;
        }
        let bytes = encoder.take();
        Ok((encoder, bytes))
    })
}

async fn upload(storage: &Storage, file: &mut OpenFile, bytes: Bytes) -> Result<()> {
    match &mut file.upload {
        Some(upload) => upload.write(bytes).await,
        None => file.upload.insert(storage.create_file(&file.path.key).await?).write(bytes).await,
    }
}

/// Encodes the rest of a partition and ends its file. `alone`: no other is ended meanwhile.
async fn end(
    storage: Storage,
    setup: Arc<Setup>,
    key: PartitionKey,
    path: DataPath,
    partition: Partition,
    alone: bool,
) -> Result<(DataFile, Syncing)> {
    let (encoder, opened) = partition.file.map_or((None, None), |file| (file.encoder, file.upload));
    let mut file = OpenFile { path, encoder: None, upload: opened };
    let result = end_upload(&storage, &setup, &mut file, (encoder, partition.pending), alone).await;
    let (size, syncing, encoded) = match result {
        Ok(ended) => ended,
        Err(error) => {
            if let Some(upload) = file.upload {
                // The error that led here says more than one from cleaning up.
                let _ = upload.abort().await;
            }
            return Err(error);
        }
    };
    let size = i64::try_from(size).map_err(|e| Error::internal("a file is too long for the log").caused_by(e))?;
    let add = Add {
        path: file.path.log,
        partition_values: key.to_partition_values(),
        size,
        modification_time: (setup.clock)(),
        data_change: !setup.rearrange_only,
        stats: Some(encoded.stats),
        ..Add::default()
    };
    Ok((DataFile { add, rows: encoded.rows, identities: BTreeMap::new() }, syncing))
}

/// Size of the file, what to wait for until it is durable, and its end.
async fn end_upload(
    storage: &Storage,
    setup: &Arc<Setup>,
    file: &mut OpenFile,
    (encoder, pending): (Option<Encoder>, Vec<RecordBatch>),
    alone: bool,
) -> Result<(u64, Syncing, Encoded)> {
    let is_small = encoder.is_none() && pending.iter().map(memory).sum::<usize>() < WORTH_A_THREAD;
    let (format, begun) = (Arc::clone(setup), encoder);
    let encode = move || {
        let mut encoder = begun.map_or_else(|| Encoder::new(&format.format), Ok)?;
        let threads = if alone { worker_count() } else { 1 };
        encoder.write_all(&format.format, &pending, threads)?;
        let bytes = encoder.take();
        Ok((bytes, encoder.finish()?))
    };
    let (bytes, mut encoded) = if is_small { encode()? } else { joined(spawn_blocking(encode)).await? };
    if !bytes.is_empty() {
        upload(storage, file, bytes).await?;
    }
    upload(storage, file, std::mem::take(&mut encoded.rest)).await?;
    let Some(upload) = file.upload.take() else { return Err(Error::internal("a file ended without an upload")) };
    let (size, syncing) = upload.appear(alone).await?;
    Ok((size, syncing, encoded))
}

/// The result of work on the blocking pool.
async fn joined<T>(handle: JoinHandle<Result<T>>) -> Result<T> {
    handle.await.unwrap_or_else(|e| Err(Error::internal("a worker thread failed while writing").caused_by(e)))
}
