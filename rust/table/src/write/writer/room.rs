//! Keeping a writer to its limits.
//!
//! Rows of open files are encoded and handed to storage. A partition whose rows do not come any more has its file ended: rows
//! that come partition by partition need no temporary file. Where a partition comes back after that, they do not come so, and
//! none is ended early from then on. The rows of all others go to a temporary file, where their partition's later ones follow.
//!
//! Proved by `tests/rust/table/write/many_partitions.rs`.

use std::sync::Arc;

use deltic_protocol::error::Result;
use tokio::task::spawn_blocking;

use super::DataWriter;
use super::open_file::{Partition, joined};
use super::spill::SpillFile;
use crate::write::partition::PartitionKey;

/// Partitions at rest are ended if they hold this part of what is held: else the others would soon fill the room that they
/// leave.
const PART_AT_REST: usize = 4;

impl DataWriter {
    /// Bytes of rows and encoded pages.
    pub(super) fn held(&self) -> usize {
        self.partitions.values().map(Partition::memory).sum()
    }

    /// Keeps to the limit of memory when so many bytes come: then half of it is free.
    pub(super) async fn make_room(&mut self, coming: usize) -> Result<()> {
        let held = self.held();
        self.memory_use.note(held);
        if held.saturating_add(coming) <= self.limits.memory {
            return Ok(());
        }
        let resting = self.resting(held);
        if !resting.is_empty() {
            self.end_partitions(&resting).await?.wait().await?;
            self.ended.extend(resting);
            if self.held().saturating_add(coming) <= self.limits.memory {
                return Ok(());
            }
        }
        let (open, waiting) = self.largest_holders();
        self.encode(open, true).await?;
        self.spill(waiting).await
    }

    /// As [`DataWriter::make_room`], of the open files and those that may be opened: what is read from the temporary file does
    /// not go back there.
    pub(super) async fn make_room_in_files(&mut self, coming: usize) -> Result<()> {
        if self.held().saturating_add(coming) <= self.limits.memory {
            return Ok(());
        }
        let (open, _) = self.largest_holders();
        self.encode(open, true).await
    }

    /// Those of the partitions that have a file or may have one, instead of a partition at rest perhaps. The others wait.
    pub(super) async fn with_files(&mut self, keys: Vec<PartitionKey>) -> Result<Vec<PartitionKey>> {
        let mut chosen = Vec::with_capacity(keys.len());
        let mut open = self.open_files();
        for key in keys {
            if self.partitions.get(&key).is_none_or(|partition| partition.file.is_none()) {
                if open >= self.limits.open_files {
                    let Some(resting) = self.resting_file() else { continue };
                    self.end_file(&resting).await?;
                    self.ended.insert(resting);
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

    /// Whether other partitions had so many rows since the last of this one that there will be no more.
    fn rests(&self, partition: &Partition) -> bool {
        let since = self.bytes_taken - partition.last_used;
        !self.came_back && partition.spilled.is_empty() && since >= self.limits.resting()
    }

    /// The partition with an open file that has rested longest, if one does. Not part of a loop that awaits storage: there, a
    /// borrow of the encoders would live on, and the future could not change threads.
    fn resting_file(&self) -> Option<PartitionKey> {
        let open = self.partitions.iter().filter(|(_, partition)| partition.file.is_some() && self.rests(partition));
        open.min_by_key(|(_, partition)| partition.last_used).map(|(key, _)| key.clone())
    }

    /// The partitions at rest, if there are too many to have open files and ending them frees much of what is held.
    fn resting(&self, held: usize) -> Vec<PartitionKey> {
        if self.partitions.len() <= self.limits.open_files {
            return Vec::new();
        }
        let resting = || self.partitions.iter().filter(|(_, partition)| self.rests(partition));
        let bytes: usize = resting().map(|(_, partition)| partition.memory()).sum();
        if bytes < held / PART_AT_REST {
            return Vec::new();
        }
        resting().map(|(key, _)| key.clone()).collect()
    }

    /// The partitions that have to let go of their rows so that half of the memory is free: those with a file, or all of them
    /// if each may have one, and the others.
    fn largest_holders(&self) -> (Vec<PartitionKey>, Vec<PartitionKey>) {
        let mut holders: Vec<(usize, &PartitionKey, &Partition)> =
            self.partitions.iter().map(|(key, partition)| (partition.memory(), key, partition)).collect();
        let mut held: usize = holders.iter().map(|(bytes, ..)| bytes).sum();
        holders.sort_unstable_by_key(|(bytes, ..)| std::cmp::Reverse(*bytes));
        // Else many partitions would have files of small row groups.
        let each_may_open = self.partitions.len() <= self.limits.open_files;
        let (mut open, mut waiting) = (Vec::new(), Vec::new());
        for (bytes, key, partition) in holders {
            if held <= self.limits.memory / 2 {
                break;
            }
            held = held.saturating_sub(bytes);
            if partition.file.is_some() || (each_may_open && partition.spilled.is_empty()) {
                open.push(key.clone());
            } else {
                waiting.push(key.clone());
            }
        }
        (open, waiting)
    }

    /// Puts what is pending in these partitions, which have no files, behind what the temporary file has of them.
    pub(super) async fn spill(&mut self, keys: Vec<PartitionKey>) -> Result<()> {
        let mut leaving = Vec::with_capacity(keys.len());
        for key in keys {
            let Some(partition) = self.partitions.get_mut(&key) else { continue };
            if partition.pending.is_empty() {
                continue;
            }
            (partition.pending_bytes, partition.rows) = (0, 0);
            let rows = std::mem::take(&mut partition.pending);
            leaving.push((key, rows, std::mem::take(&mut partition.spilled)));
        }
        let Some(schema) = leaving.first().and_then(|(_, rows, _)| Some(rows.first()?.schema())) else { return Ok(()) };
        let (file, run, memory_use) =
            (self.spill.take(), self.limits.at_once_of_partition(), Arc::clone(&self.memory_use));
        let (file, spilled) = joined(spawn_blocking(move || {
            let mut file = file.map_or_else(|| SpillFile::new(&schema, run), Ok)?;
            let mut spilled = Vec::with_capacity(leaving.len());
            for (key, rows, mut runs) in leaving {
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
