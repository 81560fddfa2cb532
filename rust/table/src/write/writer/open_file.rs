//! The pending rows of one partition, and its open file.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{RecordBatch, UInt64Array};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use bytes::Bytes;
use deltic_protocol::action::Add;
use deltic_protocol::error::{Error, Result};
use tokio::task::{JoinHandle, spawn_blocking};

use super::spill::Runs;
use crate::parallel::worker_count;
use crate::write::format::encoder::{Encoded, Encoder};
use crate::write::layout::DataPath;
use crate::write::partition::PartitionKey;
use crate::write::pieces::memory;
use crate::write::plan::DataFile;
use crate::write::setup::Setup;
use deltic_store::{FileWriter, Storage, Syncing};

/// From this number on, pending batches of a partition are joined.
const MAX_PENDING_BATCHES: usize = 64;

/// The most bytes of a joined batch: offsets of strings end at 2 GiB.
const MAX_TOGETHER: usize = 64 * 1024 * 1024;

/// Fewer bytes than this are encoded at once rather than on a worker thread: handing them over would take longer.
pub(super) const WORTH_A_THREAD: usize = 32 * 1024;

/// The rows of one partition that are not in a finished file.
#[derive(Default)]
pub(super) struct Partition {
    pub(super) pending: Vec<RecordBatch>,
    pub(super) pending_bytes: usize,
    /// How many rows its file has, including pending ones.
    pub(super) rows: u64,
    pub(super) file: Option<OpenFile>,
    /// Rows in the temporary file, which come before the pending ones. The partition has no open file then.
    pub(super) spilled: Runs,
    /// The bytes that the writer had received for all partitions when this one last received rows.
    pub(super) last_used: u64,
}

pub(super) struct OpenFile {
    path: DataPath,
    /// None only while a worker thread uses it.
    pub(super) encoder: Option<Encoder>,
    /// Bytes of rows and encoded pages in memory while a worker thread uses the encoder.
    pub(super) encoding_bytes: usize,
    /// Opened with the first bytes.
    upload: Option<FileWriter>,
}

pub(super) type Encoding = JoinHandle<Result<(Encoder, Bytes)>>;

impl OpenFile {
    pub(super) fn new(path: DataPath) -> Self {
        Self { path, encoder: None, encoding_bytes: 0, upload: None }
    }

    pub(super) fn path(&self) -> &DataPath {
        &self.path
    }

    pub(super) fn into_upload(self) -> Option<FileWriter> {
        self.upload
    }
}

impl Partition {
    /// Adds rows. Returns whether encoding is worth while now.
    pub(super) fn push(&mut self, rows: RecordBatch, worth_encoding: usize) -> Result<bool> {
        let bytes = memory(&rows);
        self.pending_bytes += bytes;
        self.rows += rows.num_rows() as u64;
        let is_due = self.pending_bytes >= worth_encoding;
        // A pending slice would keep the whole batch in memory, so it is copied.
        let pins = !is_due && rows.get_array_memory_size() > bytes.saturating_mul(2);
        let all = || UInt64Array::from_iter_values(0..rows.num_rows() as u64);
        self.pending.push(if pins { take_record_batch(&rows, &all())? } else { rows });
        if !is_due && self.pending.len() >= MAX_PENDING_BATCHES {
            self.put_together()?;
        }
        Ok(is_due)
    }

    /// Joins the last batches, as long as those after one have together at least half of its rows: so each row is copied
    /// only a few times, however many batches there are.
    fn put_together(&mut self) -> Result<()> {
        let (mut rows, mut bytes) = (0, 0_usize);
        let is_small = |batch: &&RecordBatch| {
            bytes = bytes.saturating_add(memory(batch));
            let is_small = rows == 0 || (batch.num_rows() / 2 <= rows && bytes <= MAX_TOGETHER);
            rows += batch.num_rows();
            is_small
        };
        let count = self.pending.iter().rev().take_while(is_small).count();
        if count < 2 {
            return Ok(());
        }
        let last = self.pending.split_off(self.pending.len() - count);
        if let Some(schema) = last.first().map(RecordBatch::schema) {
            self.pending.push(concat_batches(&schema, &last)?);
        }
        Ok(())
    }

    pub(super) fn memory(&self) -> usize {
        let of_file = |file: &OpenFile| file.encoder.as_ref().map_or(file.encoding_bytes, Encoder::memory);
        self.pending_bytes + self.file.as_ref().map_or(0, of_file)
    }

    /// Takes the pending rows, if any, as those of a partition without a file.
    pub(super) fn split_pending(&mut self) -> Option<Self> {
        let pending = std::mem::take(&mut self.pending);
        let rows = pending.iter().map(|batch| batch.num_rows() as u64).sum();
        let pending_bytes = std::mem::take(&mut self.pending_bytes);
        self.rows -= rows;
        let next = Self { pending, pending_bytes, rows, last_used: self.last_used, ..Self::default() };
        (rows > 0).then_some(next)
    }
}

pub(super) fn start_encoding(
    setup: &Arc<Setup>,
    encoder: Option<Encoder>,
    batches: Vec<RecordBatch>,
    (end_group, threads): (bool, usize),
) -> Encoding {
    let setup = Arc::clone(setup);
    spawn_blocking(move || {
        let mut encoder = encoder.map_or_else(|| Encoder::new(&setup.format, &batches), Ok)?;
        encoder.write_all(&setup.format, &batches, threads)?;
        if end_group {
            encoder.end_group()?;
        }
        let bytes = encoder.take();
        Ok((encoder, bytes))
    })
}

pub(super) async fn upload(storage: &Storage, file: &mut OpenFile, bytes: Bytes) -> Result<()> {
    match &mut file.upload {
        Some(upload) => upload.write(bytes).await,
        None => file.upload.insert(storage.create_file(&file.path.key).await?).write(bytes).await,
    }
}

/// Encodes the pending rows of a partition and ends its file. `alone`: no other is ended meanwhile.
pub(super) async fn end(
    storage: Storage,
    setup: Arc<Setup>,
    key: PartitionKey,
    path: DataPath,
    partition: Partition,
    alone: bool,
) -> Result<(DataFile, Syncing)> {
    let (encoder, opened) = partition.file.map_or((None, None), |file| (file.encoder, file.upload));
    let mut file = OpenFile { upload: opened, ..OpenFile::new(path) };
    let result = end_upload(&storage, &setup, &mut file, (encoder, partition.pending), alone).await;
    let (size, syncing, encoded) = match result {
        Ok(ended) => ended,
        Err(error) => {
            if let Some(upload) = file.upload {
                // The error of encoding is returned, not one of the cleanup.
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

/// The size of the file, its syncing, and the end of its encoding.
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
        let mut encoder = begun.map_or_else(|| Encoder::new(&format.format, &pending), Ok)?;
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
    let (size, syncing) = upload.finish_unsynced(alone).await?;
    Ok((size, syncing, encoded))
}

/// Waits for work on a worker thread.
pub(super) async fn joined<T>(handle: JoinHandle<Result<T>>) -> Result<T> {
    handle.await.unwrap_or_else(|e| Err(Error::internal("a worker thread failed while writing").caused_by(e)))
}
