//! Auto compaction: after a write, if the table's properties ask for it, OPTIMIZE of the partitions with many small files.
//!
//! The rules are delta-spark's. Only partitions to which the write added files are considered. A file is small if it has less
//! than half of the target size (`delta.targetFileSize`, by default 128 MiB). A partition is compacted when it has 50 small
//! files in the newest version; files of other writers count. There is one commit of bounded size; other files are compacted
//! after the next write to their partition. In a clustered table only files that were never clustered are compacted.
//!
//! Proved by `tests/python/test_auto_compact.py`.
//!
//! PROTOCOL.md: "Add File and Remove File" (`dataChange`).

use std::collections::{BTreeMap, BTreeSet};

use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::action::{Add, PartitionValues};
use deltic_protocol::property::Properties;

use super::files::{Candidate, list_in};
use super::layout::Layout;
use super::optimize::{Plan, commit_options, rewriting};
use super::options::{OptimizeOptions, Optimized};
use super::pack::{self, Bin, CUBE_ID};
use crate::checkpoint::read::AddColumns;
use crate::commit::CommitContext;
use crate::error::{Error, Result};
use crate::post_commit::HandleState;
use crate::scan::plan::files_in_partitions::files_in;
use crate::snapshot::Snapshot;
use crate::transaction::builder::{HandleCache, Ids, Transaction, TransactionOptions};
use crate::write::writer::Clock;

/// How many small files a partition must have to be compacted.
pub const MIN_FILES: usize = 50;

/// The target size of files in bytes, unless the table's properties have one.
const TARGET_FILE_SIZE: u64 = 128 << 20;

/// Limits of one compaction, so that it does not delay the write for long: partitions, files and their bytes.
const MAX_PARTITIONS: usize = 128;
const MAX_FILES: usize = 10_000;
const MAX_BYTES: u64 = 2 << 30;

/// Result of an auto compaction.
#[derive(Debug)]
pub enum AutoCompacted {
    /// No partition had too many small files. How many may be added to each partition before it has.
    Spare(BTreeMap<PartitionValues, usize>),
    /// The result of the compaction, and the error if a part of it failed.
    Done(Box<Optimized>, Option<Error>),
}

/// Compacts the small files of the partitions to which a write added files, if there are many.
///
/// # Errors
/// As [`optimize`](super::optimize).
pub async fn auto_compact(
    snapshot: &Snapshot,
    touched: &BTreeSet<PartitionValues>,
    ids: &dyn Ids,
    clock: Clock,
    context: CommitContext<'_>,
) -> Result<AutoCompacted> {
    let compacted = run(snapshot, touched, ids, clock, context).await;
    compacted.map_err(|e| e.in_table(snapshot.storage().location()))
}

async fn run(
    snapshot: &Snapshot,
    touched: &BTreeSet<PartitionValues>,
    ids: &dyn Ids,
    clock: Clock,
    context: CommitContext<'_>,
) -> Result<AutoCompacted> {
    let base = HandleState::load(snapshot).await?;
    let target = Properties::of(snapshot.metadata()).target_file_size()?.unwrap_or(TARGET_FILE_SIZE);
    let small = Small { below: target / 2, is_clustered: !base.state.clustering.is_empty() };
    let counts = count(snapshot, touched, small).await?;
    if counts.values().all(|count| *count < MIN_FILES) {
        let spare = |(partition, count)| (partition, MIN_FILES.saturating_sub(count));
        return Ok(AutoCompacted::Spare(counts.into_iter().map(spare).collect()));
    }
    let chosen = choose(counts, MAX_PARTITIONS);
    let mut taken = 0_usize;
    let is_taken = |file: &Candidate| {
        let is_taken = taken < MAX_FILES && small.has(&file.add) && chosen.contains(&file.add.partition_values);
        taken = taken.saturating_add(usize::from(is_taken));
        is_taken
    };
    let listed = list_in(snapshot, &chosen, is_taken).await?;
    let bins = within_one_commit(pack::compact(listed.candidates, target.min(MAX_BYTES)), MAX_BYTES);
    let cache = HandleCache { state: Some(base.clone()), latest: None, now_ms: Some(clock()) };
    let mut transaction = Transaction::begin(snapshot.log(), cache, TransactionOptions::default(), ids).await?;
    let (options, layout) = (OptimizeOptions::default(), Layout::Compact);
    let commit = commit_options(&layout, &options, true);
    let rewriting = rewriting(&mut transaction, snapshot, layout, target, &options, clock)?;
    let plan = Plan::new(snapshot.clone(), base, rewriting, bins, listed.total, listed.considered);
    let (done, failed) = plan.rewrite_with_partial_failures(commit, ids, context).await?;
    Ok(AutoCompacted::Done(Box::new(done), failed))
}

/// Which files are small.
#[derive(Debug, Clone, Copy)]
struct Small {
    /// Small files have fewer bytes than this.
    below: u64,
    /// Whether the table is clustered, so that clustered files are left alone.
    is_clustered: bool,
}

impl Small {
    fn has(self, add: &Add) -> bool {
        let is_in_order = || {
            let in_cube = add.tags.as_ref().is_some_and(|tags| tags.contains_key(CUBE_ID));
            self.is_clustered && (in_cube || add.clustering_provider.is_some())
        };
        self.is_size(add.size) && !is_in_order()
    }

    fn is_size(self, size: i64) -> bool {
        u64::try_from(size).is_ok_and(|size| size < self.below)
    }
}

/// How many small files each of these partitions has.
async fn count(
    snapshot: &Snapshot,
    touched: &BTreeSet<PartitionValues>,
    small: Small,
) -> Result<BTreeMap<PartitionValues, usize>> {
    let mut members = vec!["path", "size", "partitionValues"];
    if small.is_clustered {
        members.extend(["tags", "clusteringProvider"]);
    }
    let columns = AddColumns { members, ..AddColumns::default() };
    let mut counts: BTreeMap<_, _> = touched.iter().map(|partition| (partition.clone(), 0_usize)).collect();
    for adds in files_in(snapshot, touched, &columns).await? {
        for row in 0..adds.len() {
            if let Some(partition) = small_in(&adds, row, small)?
                && let Some(count) = counts.get_mut(&partition)
            {
                *count = count.saturating_add(1);
            }
        }
    }
    Ok(counts)
}

/// The partition of a file, if it is small.
fn small_in(adds: &AddBatch, row: usize, small: Small) -> Result<Option<PartitionValues>> {
    if small.is_clustered {
        let add = adds.sized_add(row)?;
        return Ok(small.has(&add).then_some(add.partition_values));
    }
    match adds.size().is_some_and(|sizes| small.is_size(sizes.value(row))) {
        true => Ok(Some(adds.partition_values_at(row)?)),
        false => Ok(None),
    }
}

/// The partitions with the most small files, at most `most`.
fn choose(counts: BTreeMap<PartitionValues, usize>, most: usize) -> BTreeSet<PartitionValues> {
    let mut many: Vec<_> = counts.into_iter().filter(|(_, count)| *count >= MIN_FILES).collect();
    many.sort_by(|(_, one), (_, other)| other.cmp(one));
    many.into_iter().take(most).map(|(partition, _)| partition).collect()
}

/// The first bins that have at most `most` bytes together, but at least one.
fn within_one_commit(bins: Vec<Bin>, most: u64) -> Vec<Bin> {
    let mut bytes = 0_u64;
    let fits = |bin: &Bin| {
        let is_first = bytes == 0;
        bytes = bytes.saturating_add(bin.bytes());
        is_first || bytes <= most
    };
    bins.into_iter().take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(value: &str) -> PartitionValues {
        [("p".to_owned(), Some(value.to_owned()))].into()
    }

    #[test]
    fn the_partitions_with_the_most_small_files_are_chosen() {
        let counts = [("a", 49), ("b", 50), ("c", 90), ("d", 60)].map(|(name, count)| (partition(name), count));
        let chosen = |most| choose(counts.clone().into(), most);
        assert_eq!(chosen(2), [partition("c"), partition("d")].into());
        assert_eq!(chosen(9), [partition("b"), partition("c"), partition("d")].into());
    }

    #[test]
    fn one_commit_stops_before_the_bin_that_is_too_much() {
        let bin = |size| {
            let add = Add { size, ..Add::default() };
            Bin { partition: PartitionValues::new(), files: vec![Candidate { add, physical_rows: None }] }
        };
        let taken = |sizes: &[i64]| within_one_commit(sizes.iter().map(|size| bin(*size)).collect(), 100).len();
        assert_eq!(taken(&[60, 40, 1]), 2);
        assert_eq!(taken(&[60, 41, 1]), 1);
        assert_eq!(taken(&[200, 1]), 1, "the first is taken in any case");
        assert_eq!(taken(&[]), 0);
    }
}
