//! Compaction after a write, where the table asks for it: OPTIMIZE of the partitions that have many small files.
//!
//! The rules are delta-spark's: a file is small below half of the target size, 128 MiB, and a partition is taken when it
//! has 50 of them. They are counted in the newest version, whoever wrote them and whenever. One commit of bounded size is
//! made; what is left is taken after the next write. Of a clustered table only files that nothing has clustered are taken,
//! for the others are in order already.
//!
//! Proved by `tests/python/test_auto_compact.py`.
//!
//! PROTOCOL.md: "Add File and Remove File" (`dataChange`).

use std::collections::{BTreeMap, BTreeSet};

use deltic_protocol::action::{Add, PartitionValues};
use deltic_protocol::property::Properties;
use futures::TryStreamExt;

use super::bins::Rewriting;
use super::files::{Candidate, list};
use super::layout::Layout;
use super::optimize::{Plan, commit_options};
use super::options::{OptimizeOptions, Optimized};
use super::pack::{self, Bin, CUBE_ID};
use crate::after_commit::HandleState;
use crate::checkpoint::read::AddColumns;
use crate::committers::Committer;
use crate::error::Result;
use crate::parallel::worker_count;
use crate::rewrite::Copying;
use crate::scan::plan::read_spec;
use crate::snapshot::Snapshot;
use crate::transaction::RetryPolicy;
use crate::transaction::builder::{Ids, Known, Transaction, TransactionOptions};
use crate::write::writer::Clock;

/// Small files from which on a partition is taken.
pub const MIN_FILES: usize = 50;

/// Bytes that a file should have where the table does not say.
const TARGET_FILE_SIZE: u64 = 128 << 20;

/// What one commit takes at most, so that the write that it follows ends soon: partitions, files and their bytes.
const MOST_PARTITIONS: usize = 128;
const MOST_FILES: usize = 10_000;
const MOST_BYTES: u64 = 2 << 30;

/// What compaction after a write did.
#[derive(Debug)]
pub struct AutoCompacted {
    /// Files that may be added before any partition has too many small ones.
    pub spare_files: usize,
    /// What was done, if there was anything to do.
    pub done: Option<Optimized>,
}

/// Packs the small files of a version, if they are many.
///
/// # Errors
/// As [`optimize`](super::optimize).
pub async fn auto_compact(
    snapshot: &Snapshot,
    (ids, clock): (&dyn Ids, Clock),
    (committer, retry): (&dyn Committer, &dyn RetryPolicy),
) -> Result<AutoCompacted> {
    let compacted = run(snapshot, (ids, clock), (committer, retry)).await;
    compacted.map_err(|e| e.in_table(snapshot.storage().location()))
}

async fn run(
    snapshot: &Snapshot,
    (ids, clock): (&dyn Ids, Clock),
    (committer, retry): (&dyn Committer, &dyn RetryPolicy),
) -> Result<AutoCompacted> {
    let base = HandleState::of(snapshot).await?;
    let target = Properties::of(snapshot.metadata()).target_file_size()?.unwrap_or(TARGET_FILE_SIZE);
    let small = Small { below: target / 2, is_clustered: !base.state.clustering.is_empty() };
    let counts = count(snapshot, small).await?;
    let most = counts.values().copied().max().unwrap_or_default();
    if most < MIN_FILES {
        return Ok(AutoCompacted { spare_files: MIN_FILES.saturating_sub(most), done: None });
    }
    let chosen = choose(counts);
    let mut taken = 0_usize;
    let is_taken = |file: &Candidate| {
        let is_taken = taken < MOST_FILES && small.has(&file.add) && chosen.contains(&file.add.partition_values);
        taken = taken.saturating_add(usize::from(is_taken));
        is_taken
    };
    let listed = list(snapshot, None, is_taken).await?;
    let bins = some(pack::compact(listed.candidates, target));
    let known = Known { state: Some(base.clone()), latest: None, now_ms: Some(clock()) };
    let storage = snapshot.storage().clone();
    let mut transaction = Transaction::begin(&storage, known, TransactionOptions::default(), ids).await?;
    let specs = (read_spec(snapshot, None)?, transaction.rearrange_spec()?);
    let copying = Copying::new(snapshot, specs, transaction.tracks_rows()?)?;
    let (options, layout, tasks) = (OptimizeOptions::default(), Layout::Compact, worker_count());
    let told = commit_options(&layout, &options, true);
    let rewriting = Rewriting { storage, copying, layout, target, limits: options.limits, tasks, clock };
    let plan = Plan::new((snapshot.clone(), base), rewriting, bins, (listed.total, listed.considered));
    let done = plan.carry_out(told, ids, (committer, retry)).await?;
    Ok(AutoCompacted { spare_files: 0, done: Some(done) })
}

/// Which files are small.
#[derive(Debug, Clone, Copy)]
struct Small {
    /// Bytes that they have less than.
    below: u64,
    /// Whether files may be clustered, and are left alone then.
    is_clustered: bool,
}

impl Small {
    fn has(self, add: &Add) -> bool {
        let is_in_order = || {
            let in_cube = add.tags.as_ref().is_some_and(|tags| tags.contains_key(CUBE_ID));
            self.is_clustered && (in_cube || add.clustering_provider.is_some())
        };
        u64::try_from(add.size).is_ok_and(|size| size < self.below) && !is_in_order()
    }
}

/// How many small files each partition has.
async fn count(snapshot: &Snapshot, small: Small) -> Result<BTreeMap<PartitionValues, usize>> {
    let mut members = vec!["path", "size", "partitionValues"];
    if small.is_clustered {
        members.extend(["tags", "clusteringProvider"]);
    }
    let columns = AddColumns { members, ..AddColumns::default() };
    let mut live = std::pin::pin!(snapshot.live_files(&columns).await?);
    let mut counts: BTreeMap<PartitionValues, usize> = BTreeMap::new();
    while let Some(adds) = live.try_next().await? {
        let sizes = adds.size();
        for row in 0..adds.len() {
            let is_large = |size: i64| u64::try_from(size).is_ok_and(|size| size >= small.below);
            if sizes.is_some_and(|sizes| is_large(sizes.value(row))) {
                continue;
            }
            let add = adds.sized_add(row)?;
            if small.has(&add) {
                let count = counts.entry(add.partition_values).or_default();
                *count = count.saturating_add(1);
            }
        }
    }
    Ok(counts)
}

/// The partitions with the most small files.
fn choose(counts: BTreeMap<PartitionValues, usize>) -> BTreeSet<PartitionValues> {
    let mut many: Vec<_> = counts.into_iter().filter(|(_, count)| *count >= MIN_FILES).collect();
    many.sort_by(|(_, one), (_, other)| other.cmp(one));
    many.into_iter().take(MOST_PARTITIONS).map(|(partition, _)| partition).collect()
}

/// As many bins as one commit takes.
fn some(bins: Vec<Bin>) -> Vec<Bin> {
    let mut bytes = 0_u64;
    let fits = |bin: &Bin| {
        let fits = bytes < MOST_BYTES;
        bytes = bytes.saturating_add(bin.bytes());
        fits
    };
    bins.into_iter().take_while(fits).collect()
}
