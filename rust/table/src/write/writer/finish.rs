//! Ending the files of a writer: those of rows in memory, and then those of rows in its temporary file.
//!
//! Spilled rows are read again, in groups of partitions that fit into a quarter of the memory, in the order of each partition: a
//! partition has one file, unless that exceeds the target size.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::RecordBatch;
use deltic_protocol::error::Result;
use futures::{StreamExt, stream};
use tokio::task::spawn_blocking;

use super::ended_files::EndedFiles;
use super::open_file::{end, joined};
use super::spill::{Runs, SpilledRows};
use super::{DataWriter, FINISHING, MAX_SYNCING};
use crate::write::partition::PartitionKey;
use crate::write::pieces::memory;
use deltic_store::Syncing;

/// Partitions whose rows are read from a temporary file.
type PartitionGroup = Vec<(PartitionKey, Runs)>;

impl DataWriter {
    pub(super) async fn end_all(mut self) -> Result<EndedFiles> {
        let ended = match self.check_intact() {
            Ok(()) => self.end_each().await,
            Err(error) => Err(error),
        };
        match ended {
            Ok(syncing) => {
                let mut files = std::mem::take(&mut self.finished);
                files.sort_by(|a, b| a.add.path.cmp(&b.add.path));
                for file in &mut files {
                    file.identities.clone_from(self.identities.last());
                }
                Ok(EndedFiles { files, syncing, stored: self.stored })
            }
            Err(error) => {
                self.abort().await;
                Err(error)
            }
        }
    }

    async fn end_each(&mut self) -> Result<Syncing> {
        let (spilled, ready): (Vec<_>, Vec<_>) = self
            .partitions
            .keys()
            .cloned()
            .partition(|key| self.partitions.get(key).is_some_and(|p| !p.spilled.is_empty()));
        let syncing = self.end_partitions(&ready).await?;
        if spilled.is_empty() {
            return Ok(syncing);
        }
        syncing.wait().await?;
        self.write_spilled(spilled).await?;
        Ok(Syncing::default())
    }

    /// Ends the files of these partitions with all their pending rows, several at once. Returns the syncing after which they
    /// are durable.
    pub(super) async fn end_partitions(&mut self, keys: &[PartitionKey]) -> Result<Syncing> {
        self.end_encoding().await?;
        self.end_encoded(keys).await
    }

    /// As [`DataWriter::end_partitions`], for partitions of whose rows none are being encoded.
    pub(super) async fn end_encoded(&mut self, keys: &[PartitionKey]) -> Result<Syncing> {
        let mut ending = Vec::with_capacity(keys.len());
        let (waits, alone) = (keys.len() > MAX_SYNCING, keys.len() == 1);
        for key in keys {
            let Some(partition) = self.partitions.remove(key) else { continue };
            let path = match &partition.file {
                Some(file) => file.path().clone(),
                None => {
                    self.files_named += 1;
                    self.setup.name_file(self.files_named - 1, key)
                }
            };
            self.stored.push(path.key.clone());
            let ended = end(self.storage.clone(), Arc::clone(&self.setup), key.clone(), path, partition, alone);
            ending.push(async move {
                match ended.await? {
                    (file, syncing) if waits => syncing.wait().await.map(|()| (file, Syncing::default())),
                    soon => Ok(soon),
                }
            });
        }
        let ended: Vec<Result<_>> = stream::iter(ending).buffer_unordered(FINISHING).collect().await;
        let mut syncing = Syncing::default();
        for (file, its) in ended.into_iter().collect::<Result<Vec<_>>>()? {
            self.finished.push(file);
            syncing.extend(its);
        }
        Ok(syncing)
    }

    async fn write_spilled(&mut self, keys: Vec<PartitionKey>) -> Result<()> {
        self.spill(keys.clone()).await?;
        let Some(file) = self.spill.take() else { return Ok(()) };
        let mut rows = joined(spawn_blocking(move || file.finish())).await?;
        let mut left: PartitionGroup = Vec::with_capacity(keys.len());
        for key in keys {
            left.extend(self.partitions.remove(&key).map(|partition| (key, partition.spilled)));
        }
        left.sort_unstable_by_key(|(_, runs)| runs.first());
        let mut left = VecDeque::from(left);
        while !left.is_empty() {
            let group = self.next_group(&mut left);
            rows = self.write_group(rows, group).await?;
        }
        Ok(())
    }

    /// Partitions whose rows fit into a quarter of the memory, one of them maybe in parts. With many rows to encode, no
    /// more than there may be open files.
    fn next_group(&self, left: &mut VecDeque<(PartitionKey, Runs)>) -> PartitionGroup {
        let (share, each) = (self.limits.at_once_of_partition(), self.read_at_once());
        let (mut group, mut bytes, mut files) = (PartitionGroup::new(), 0, 0);
        while let Some((_, runs)) = left.front() {
            bytes += runs.bytes().min(share);
            files += usize::from(runs.bytes() >= each);
            if !group.is_empty() && (bytes > 2 * share || files > self.limits.open_files) {
                break;
            }
            group.extend(left.pop_front());
        }
        group
    }

    /// Bytes of a partition's rows that are read at a time.
    fn read_at_once(&self) -> usize {
        self.setup.worth_encoding.min(self.limits.at_once_of_partition())
    }

    /// Writes the files of some partitions, reading a bounded number of bytes of each in turn.
    async fn write_group(&mut self, mut rows: SpilledRows, mut group: PartitionGroup) -> Result<SpilledRows> {
        let keys: Vec<PartitionKey> = group.iter().map(|(key, _)| key.clone()).collect();
        let each = self.read_at_once();
        while !group.is_empty() {
            let read: Vec<(PartitionKey, Vec<RecordBatch>)>;
            (rows, group, read) = joined(spawn_blocking(move || {
                let mut read = Vec::with_capacity(group.len());
                for (key, runs) in &mut group {
                    read.push((key.clone(), rows.take(runs, each)?));
                }
                group.retain(|(_, runs)| !runs.is_empty());
                Ok((rows, group, read))
            }))
            .await?;
            self.free_memory_of_files(read.iter().flat_map(|(_, batches)| batches).map(memory).sum()).await?;
            let mut due = Vec::new();
            for (key, batches) in read {
                let mut is_due = false;
                for batch in batches {
                    is_due = self.buffer_rows(&key, batch).await?;
                }
                due.extend(is_due.then_some(key));
            }
            self.memory_use.note(self.memory_in_use());
            self.start_encoding(due, false).await?;
        }
        self.end_partitions(&keys).await?.wait().await?;
        Ok(rows)
    }
}
