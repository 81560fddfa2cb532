//! The commits after a checkpoint, replayed: which files they leave live, and which files of the checkpoint they supersede.
//!
//! A tail can be extended by newer commits: the actions parsed before are shared, not replayed
//! again.
//!
//! Invariant: a tail that was extended equals one that was replayed at once (`file_index::cached_columns_equal_decoded_ones`).
//!
//! PROTOCOL.md: "Action Reconciliation".

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use arrow_select::filter::filter_record_batch;
use deltic_protocol::action::batch::{AddBatch, KeyBatch};
use deltic_protocol::action::json::{CommitActions, CommitBatch};
use deltic_protocol::replay::Replay;
use futures::future::join;
use futures::stream::{Stream, StreamExt};

use crate::error::{Error, Result};
use crate::parallel::try_compute;

/// The newest layers are joined with the next older one as long as it has at most so many times their files. So there
/// are few layers, so that looking up a file is cheap; and large ones are seldom joined, so that extending is cheap.
const LAYER_RATIO: usize = 8;
/// Small batches of adds are merged up to so many files and bytes.
const MERGED_BATCH_ROWS: usize = 4096;
const MERGED_BATCH_BYTES: usize = 64 * 1024 * 1024;
/// A batch with at least so many files is not merged with others.
const MIN_BATCH_ROWS: usize = 1024;
/// How many groups of commits are replayed together, if they have been fetched.
const GROUPS_AT_ONCE: usize = 4;
/// With fewer files than this, replay does not use a worker thread: handing it over would take longer.
const MIN_FILES_FOR_THREAD: usize = 128;

/// The commits after the checkpoint, replayed.
#[derive(Debug, Clone)]
pub struct Tail {
    /// The commits, newest first, without adds and removes, which are in the members below.
    pub commits: Vec<Arc<CommitActions>>,
    /// Files that the tail adds and does not remove again.
    pub live: Vec<AddBatch>,
    /// Tombstones of files that were not added again later, as the columns of `remove`.
    pub tombstones: Vec<RecordBatch>,
    /// Every logical file that the tail mentions, in layers, newest first.
    layers: Vec<Arc<Replay>>,
}

impl Tail {
    /// Replays commits given newest first; `None` if one of them was compacted without being reconciled.
    ///
    /// Commits are replayed while the next ones are fetched and parsed.
    pub async fn replay(newest_first: impl Stream<Item = Result<CommitBatch>>) -> Result<Option<Self>> {
        let mut commits = std::pin::pin!(newest_first.ready_chunks(GROUPS_AT_ONCE));
        let (mut replaying, mut fetched) = (Some(Replaying::default()), commits.next().await);
        while let Some(groups) = fetched {
            let Some(replayed) = replaying else { return Ok(None) };
            let groups = groups.into_iter().collect::<Result<Vec<_>>>()?;
            let (replayed, next) = join(replayed.replay_next(groups), commits.next()).await;
            (replaying, fetched) = (replayed?, next);
        }
        replaying.map(Replaying::finish).transpose()
    }

    /// This tail extended by newer commits.
    pub fn extended(&self, newer: Self) -> Result<Self> {
        let Self { mut commits, mut live, mut tombstones, mut layers } = newer;
        // Usually commits only add new files.
        let overlaps_newer = self.layers.iter().any(|older| layers.iter().any(|newer| older.overlaps(newer)));
        for adds in &self.live {
            if !overlaps_newer {
                live.push(adds.clone());
                continue;
            }
            let unseen = unseen(&layers, &adds.keys()?);
            // Usually no file is superseded, and there may be a batch for each commit.
            let adds = if unseen.count_set_bits() == adds.len() { adds.clone() } else { adds.filter(unseen)? };
            live.extend((!adds.is_empty()).then_some(adds));
        }
        for rows in &self.tombstones {
            if !overlaps_newer {
                tombstones.push(rows.clone());
                continue;
            }
            let newest = BooleanArray::new(unseen(&layers, &KeyBatch::new(rows)?), None);
            tombstones.push(filter_record_batch(rows, &newest)?);
        }
        commits.extend(self.commits.iter().cloned());
        layers.extend(self.layers.iter().cloned());
        Ok(Self { commits, live, tombstones, layers: join_newest_layers(layers) })
    }

    /// Whether no file is mentioned, so that nothing older is superseded.
    pub fn mentions_no_file(&self) -> bool {
        self.layers.is_empty()
    }

    /// A bit for each file that the tail does not mention.
    pub fn unseen(&self, keys: &KeyBatch) -> BooleanBuffer {
        unseen(&self.layers, keys)
    }

    /// Whether the tail mentions the file with this path and deletion vector.
    pub fn mentions(&self, path: &str, deletion_vector: Option<(&str, &str, Option<i32>)>) -> bool {
        self.layers.iter().any(|layer| layer.contains(path, deletion_vector))
    }
}

/// Joins the newest layers by [`LAYER_RATIO`]; layers are given newest first.
fn join_newest_layers(mut layers: Vec<Arc<Replay>>) -> Vec<Arc<Replay>> {
    let (mut newest_count, mut files) = (0, 0_usize);
    for layer in &layers {
        if newest_count > 0 && layer.len() > files.saturating_mul(LAYER_RATIO) {
            break;
        }
        files = files.saturating_add(layer.len());
        newest_count += 1;
    }
    if let Some(newest) = layers.get(..newest_count).filter(|newest| newest.len() > 1) {
        let joined = Arc::new(Replay::merge(newest));
        layers.splice(..newest_count, [joined]);
    }
    layers
}

fn unseen(layers: &[Arc<Replay>], keys: &KeyBatch) -> BooleanBuffer {
    let mut unseen = BooleanBuffer::new_set(keys.len());
    for layer in layers {
        unseen = &unseen & &layer.not_contained(keys);
    }
    unseen
}

/// The state of a replay.
#[derive(Default)]
struct Replaying {
    commits: Vec<Arc<CommitActions>>,
    live: MergedBatches,
    tombstones: Vec<RecordBatch>,
    replay: Replay,
}

impl Replaying {
    /// Replays the next commits.
    async fn replay_next(self, groups: Vec<CommitBatch>) -> Result<Option<Self>> {
        if groups.iter().map(|group| group.adds.len() + group.removes.len()).sum::<usize>() < MIN_FILES_FOR_THREAD {
            return self.replay_groups(groups);
        }
        let failed = |e| Error::internal("replaying the commits failed").caused_by(e);
        try_compute(move || self.replay_groups(groups), failed).await
    }

    fn replay_groups(mut self, groups: Vec<CommitBatch>) -> Result<Option<Self>> {
        for CommitBatch { commits, adds, removes, remove_rows, ends } in groups {
            let keys = adds.keys()?;
            let shown = (self.replay.add_batch(keys.clone()), self.replay.add_batch(removes.clone()));
            let mut newest = (BooleanBufferBuilder::new(adds.len()), BooleanBufferBuilder::new(removes.len()));
            let mut done = (0, 0);
            for (commit, ends) in commits.into_iter().zip(ends) {
                let rows = (done.0..ends.0, done.1..ends.1);
                if commit.is_compacted && mention_a_file_twice([(&keys, rows.0.clone()), (&removes, rows.1.clone())]) {
                    return Ok(None);
                }
                self.replay.insert_rows(shown.0, rows.0, &mut newest.0);
                self.replay.insert_rows(shown.1, rows.1, &mut newest.1);
                self.commits.push(Arc::new(commit));
                done = ends;
            }
            self.live.push(adds.filter(newest.0.finish())?)?;
            if !removes.is_empty() {
                let newest = BooleanArray::new(newest.1.finish(), None);
                self.tombstones.push(filter_record_batch(&remove_rows, &newest)?);
            }
        }
        Ok(Some(self))
    }

    fn finish(self) -> Result<Tail> {
        let layers = if self.replay.is_empty() { Vec::new() } else { vec![Arc::new(self.replay)] };
        Ok(Tail { commits: self.commits, live: self.live.finish()?, tombstones: self.tombstones, layers })
    }
}

/// Merges small batches of adds, since each batch costs time, however few files it has.
#[derive(Default)]
struct MergedBatches {
    all: Vec<AddBatch>,
    run: Vec<AddBatch>,
    rows: usize,
    bytes: usize,
}

impl MergedBatches {
    fn push(&mut self, batch: AddBatch) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let (rows, bytes) = (batch.len(), batch.rows().get_array_memory_size());
        let has_same_schema = self.run.last().is_none_or(|last| last.rows().schema() == batch.rows().schema());
        let is_full = self.rows + rows > MERGED_BATCH_ROWS || self.bytes.saturating_add(bytes) > MERGED_BATCH_BYTES;
        if is_full || !has_same_schema {
            self.end_run()?;
        }
        if rows >= MIN_BATCH_ROWS {
            self.end_run()?;
            self.all.push(batch);
            return Ok(());
        }
        self.rows += rows;
        self.bytes = self.bytes.saturating_add(bytes);
        self.run.push(batch);
        Ok(())
    }

    fn end_run(&mut self) -> Result<()> {
        self.all.extend(AddBatch::concat(&self.run)?);
        self.run.clear();
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<AddBatch>> {
        self.end_run()?;
        Ok(self.all)
    }
}

/// Whether any of the rows mention the same file.
fn mention_a_file_twice(rows: [(&KeyBatch, Range<usize>); 2]) -> bool {
    let (mut replay, mut newest) = (Replay::new(), BooleanBufferBuilder::new(0));
    for (keys, rows) in rows {
        let shown = replay.add_batch(keys.clone());
        replay.insert_rows(shown, rows, &mut newest);
    }
    let newest = newest.finish();
    newest.count_set_bits() < newest.len()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use arrow_array::StringArray;
    use arrow_schema::{DataType, Field, Schema};

    use super::*;

    fn layer(files: usize) -> Arc<Replay> {
        let schema = Arc::new(Schema::new(vec![Field::new("path", DataType::Utf8, false)]));
        let paths = StringArray::from_iter_values((0..files).map(|file| format!("{files}-{file}")));
        let mut replay = Replay::new();
        replay.insert(&KeyBatch::new(&RecordBatch::try_new(schema, vec![Arc::new(paths)]).unwrap()).unwrap());
        Arc::new(replay)
    }

    #[test]
    fn layers_are_few_and_a_large_one_is_seldom_joined() {
        let base = layer(100_000);
        let (mut layers, mut joined_files) = (vec![base.clone()], 0);
        for commit in 1..=300 {
            layers.insert(0, layer(20 + commit));
            let before = layers.len();
            layers = join_newest_layers(layers);
            assert!(layers.len() <= 5, "{}", layers.len());
            if layers.len() < before {
                joined_files += layers[0].len();
            }
        }
        // None is lost. Joining all of them every fourth time would be three times as much work.
        let files: usize = layers.iter().map(|layer| layer.len()).sum();
        assert_eq!(files, 100_000 + (1..=300).map(|commit| 20 + commit).sum::<usize>());
        assert!(joined_files < 20 * files, "{joined_files} of {files}");
    }
}
