//! Keeps a writer within its limits of memory and open files.
//!
//! Above the limit of memory, the writer encodes and uploads rows of partitions with open files. It ends the files of idle
//! partitions, so that input sorted by partition needs no temporary file. If a partition receives rows after its file was
//! ended, the input is not sorted: from then on the writer ends no file early. Rows of partitions without open files are
//! spilled to a temporary file, together with all later rows of these partitions.
//!
//! Proved by `tests/rust/table/write/many_partitions.rs`.

use std::sync::Arc;

use deltic_protocol::error::Result;
use tokio::task::spawn_blocking;

use super::DataWriter;
use super::open_file::{Partition, joined};
use super::spill::SpillFile;
use crate::write::partition::PartitionKey;

/// Idle partitions are ended only if they have at least one `IDLE_DIVISOR`th of the memory in use. Otherwise the other
/// partitions would soon use up the memory that this frees.
const IDLE_DIVISOR: usize = 4;

impl DataWriter {
    /// Bytes of rows and encoded pages that the writer has in memory.
    pub(super) fn memory_in_use(&self) -> usize {
        self.partitions.values().map(Partition::memory).sum()
    }

    /// Frees memory if `coming` more bytes would exceed the limit. Ending idle partitions comes first; if that is not enough,
    /// the largest partitions leave memory until half of the limit is free.
    pub(super) async fn free_memory(&mut self, coming: usize) -> Result<()> {
        self.memory_use.note(self.memory_in_use());
        if self.memory_in_use().saturating_add(coming) <= self.limits.memory {
            return Ok(());
        }
        // The rows that are being encoded count until they are.
        self.end_encoding().await?;
        let used = self.memory_in_use();
        if used.saturating_add(coming) <= self.limits.memory {
            return Ok(());
        }
        let idle = self.idle_partitions(used);
        if !idle.is_empty() {
            self.end_partitions(&idle).await?.wait().await?;
            self.ended_idle.extend(idle);
            if self.memory_in_use().saturating_add(coming) <= self.limits.memory {
                return Ok(());
            }
        }
        let (with_files, without_files) = self.largest_partitions();
        self.encode_groups(with_files).await?;
        self.spill(without_files).await
    }

    /// As [`DataWriter::free_memory`], but only by encoding rows of open files and of files that may be opened: rows read from
    /// the temporary file are not spilled again.
    pub(super) async fn free_memory_of_files(&mut self, coming: usize) -> Result<()> {
        if self.memory_in_use().saturating_add(coming) <= self.limits.memory {
            return Ok(());
        }
        let (with_files, _) = self.largest_partitions();
        self.encode_groups(with_files).await
    }

    /// Encodes the pending rows of these partitions and ends their row groups, which frees the memory of both.
    async fn encode_groups(&mut self, keys: Vec<PartitionKey>) -> Result<()> {
        self.start_encoding(keys, true).await?;
        self.end_encoding().await
    }

    /// Chooses those of the partitions that have an open file or may open one. It ends files of idle partitions to stay within
    /// the limit of open files. The other partitions keep their rows in memory.
    pub(super) async fn choose_for_files(&mut self, keys: Vec<PartitionKey>) -> Result<Vec<PartitionKey>> {
        let mut chosen = Vec::with_capacity(keys.len());
        let mut open = self.open_files();
        for key in keys {
            if self.partitions.get(&key).is_none_or(|partition| partition.file.is_none()) {
                if open >= self.limits.open_files {
                    let Some(idle) = self.longest_idle_file() else { continue };
                    self.end_file(&idle).await?;
                    self.ended_idle.insert(idle);
                    open -= 1;
                }
                open += 1;
            }
            chosen.push(key);
        }
        Ok(chosen)
    }

    fn open_files(&self) -> usize {
        self.partitions.values().filter(|partition| partition.file.is_some()).count()
    }

    /// Whether the partition has had no rows among the last [`Limits::idle_after_bytes`](super::Limits::idle_after_bytes)
    /// bytes, so that it probably gets no more.
    fn is_idle(&self, partition: &Partition) -> bool {
        let since = self.bytes_taken - partition.last_used;
        !self.reopened_partition && partition.spilled.is_empty() && since >= self.limits.idle_after_bytes()
    }

    /// The partition with an open file that has been idle longest, if any is idle. This is a function of its own since the
    /// caller's loop awaits storage: a borrow of the encoders in it would keep the future from being `Send`.
    fn longest_idle_file(&self) -> Option<PartitionKey> {
        let open = self.partitions.iter().filter(|(_, partition)| partition.file.is_some() && self.is_idle(partition));
        open.min_by_key(|(_, partition)| partition.last_used).map(|(key, _)| key.clone())
    }

    /// The idle partitions, if there are more partitions than open files allowed and ending the idle ones frees enough memory.
    fn idle_partitions(&self, used: usize) -> Vec<PartitionKey> {
        if self.partitions.len() <= self.limits.open_files {
            return Vec::new();
        }
        let idle = || self.partitions.iter().filter(|(_, partition)| self.is_idle(partition));
        let bytes: usize = idle().map(|(_, partition)| partition.memory()).sum();
        if bytes < used / IDLE_DIVISOR {
            return Vec::new();
        }
        idle().map(|(key, _)| key.clone()).collect()
    }

    /// The largest partitions, whose rows must leave memory so that half of the limit is free. First those to encode: they have
    /// an open file or may open one. Then those to spill.
    fn largest_partitions(&self) -> (Vec<PartitionKey>, Vec<PartitionKey>) {
        let mut partitions: Vec<(usize, &PartitionKey, &Partition)> =
            self.partitions.iter().map(|(key, partition)| (partition.memory(), key, partition)).collect();
        let mut used: usize = partitions.iter().map(|(bytes, ..)| bytes).sum();
        partitions.sort_unstable_by_key(|(bytes, ..)| std::cmp::Reverse(*bytes));
        // If not every partition may have a file, opening more files would give them small row groups.
        let each_may_open = self.partitions.len() <= self.limits.open_files;
        let (mut with_files, mut without_files) = (Vec::new(), Vec::new());
        for (bytes, key, partition) in partitions {
            if used <= self.limits.memory / 2 {
                break;
            }
            used = used.saturating_sub(bytes);
            if partition.file.is_some() || (each_may_open && partition.spilled.is_empty()) {
                with_files.push(key.clone());
            } else {
                without_files.push(key.clone());
            }
        }
        (with_files, without_files)
    }

    /// Appends the pending rows of these partitions, which have no open files, to the temporary file.
    pub(super) async fn spill(&mut self, keys: Vec<PartitionKey>) -> Result<()> {
        let mut pending = Vec::with_capacity(keys.len());
        for key in keys {
            let Some(partition) = self.partitions.get_mut(&key) else { continue };
            if partition.pending.is_empty() {
                continue;
            }
            (partition.pending_bytes, partition.rows) = (0, 0);
            let rows = std::mem::take(&mut partition.pending);
            pending.push((key, rows, std::mem::take(&mut partition.spilled)));
        }
        let Some(schema) = pending.first().and_then(|(_, rows, _)| Some(rows.first()?.schema())) else { return Ok(()) };
        let (file, run, memory_use) =
            (self.spill.take(), self.limits.at_once_of_partition(), Arc::clone(&self.memory_use));
        let (file, spilled) = joined(spawn_blocking(move || {
            let mut file = file.map_or_else(|| SpillFile::new(&schema, run), Ok)?;
            let mut spilled = Vec::with_capacity(pending.len());
            for (key, rows, mut runs) in pending {
                let before = runs.bytes();
                file.push(rows, &mut runs)?;
                memory_use.note_spilled(runs.bytes() - before);
                spilled.push((key, runs));
            }
            Ok((file, spilled))
        }))
        .await?;
        self.spill = Some(file);
        for (key, runs) in spilled {
            if let Some(partition) = self.partitions.get_mut(&key) {
                partition.spilled = runs;
            }
        }
        Ok(())
    }
}
