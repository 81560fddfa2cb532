//! OPTIMIZE: chooses files, rewrites them, and commits.
//!
//! A large table takes several commits, which do not depend on each other: after an interruption the earlier commits remain,
//! and running it again continues from there.

use std::collections::BTreeMap;

use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::property::Properties;
use futures::future::FutureExt;
use serde_json::{Map, Value, json};

use super::bins::{Rewriting, Rewritten, cube_columns, delete};
use super::commit::BinCommits;
use super::files::{Candidate, list, partition_filter};
use super::layout::curve::Curve;
use super::layout::{CurveLayout, Layout};
use super::options::{OptimizeOptions, Optimized, PartitionToOptimize};
use super::pack::{self, Bin};
use crate::commit::{CommitContext, CommitSeries, nothing_committed, stop_if_cancelled};
use crate::error::{Error, Result};
use crate::log::LogSource;
use crate::parallel::{run_to_end, spawn_async, worker_count};
use crate::post_commit::HandleState;
use crate::progress::{Progress, Unit};
use crate::rewrite::Copying;
use crate::scan::plan::read_spec;
use crate::snapshot::Snapshot;
use crate::transaction::builder::{HandleCache, Ids, Transaction, TransactionOptions};
use crate::write::writer::Clock;
use deltic_store::Stop;

/// The default target size of files in bytes, as in delta-spark.
const TARGET_FILE_SIZE: u64 = 1 << 30;

/// The operation in the commit info.
pub(super) const OPERATION: &str = "OPTIMIZE";

/// The plan of an OPTIMIZE.
pub(super) struct Plan {
    pub(super) snapshot: Snapshot,
    pub(super) base: HandleState,
    pub(super) rewriting: Rewriting,
    pub(super) bins: Vec<Bin>,
    pub(super) result: Optimized,
}

/// Plans an OPTIMIZE of the newest version.
///
/// # Errors
/// As [`optimize`], except those of reading data files, of writing and of committing.
pub async fn plan_optimize(
    log: &LogSource,
    latest: Option<Snapshot>,
    options: &OptimizeOptions,
    ids: &dyn Ids,
    clock: Clock,
) -> Result<Optimized> {
    let planned = plan(log, latest, options, ids, clock).await;
    Ok(planned.map_err(|e| e.in_table(log.location()))?.result)
}

/// Rewrites files of the newest version and commits them, in one or several versions.
///
/// # Errors
/// `Invalid` for what does not fit the table's columns, `Unsupported` if deltic cannot write the table, `Conflict` if
/// another writer changed the table's schema or properties meanwhile, those of reading and writing, `Interrupted`. Earlier
/// commits remain: running it again continues from there.
pub async fn optimize(
    log: &LogSource,
    latest: Option<Snapshot>,
    options: &OptimizeOptions,
    ids: &dyn Ids,
    clock: Clock,
    context: CommitContext<'_>,
) -> Result<Optimized> {
    let commits = CommitSeries::after(&[], context.retry);
    let optimized = run(log, latest, options, ids, clock, CommitContext { retry: &commits, ..context }).await;
    optimized.map_err(|e| commits.name_committed_versions(e).in_table(log.location()))
}

async fn run(
    log: &LogSource,
    latest: Option<Snapshot>,
    options: &OptimizeOptions,
    ids: &dyn Ids,
    clock: Clock,
    context: CommitContext<'_>,
) -> Result<Optimized> {
    let plan = plan(log, latest, options, ids, clock).await?;
    let commit_options = commit_options(&plan.rewriting.layout, options, false);
    plan.rewrite_and_commit(commit_options, ids, context).await
}

/// Operation and parameters for the history. `auto`: it follows a write.
pub(super) fn commit_options(layout: &Layout, options: &OptimizeOptions, auto: bool) -> TransactionOptions {
    let parameters = parameters(layout, options, auto);
    TransactionOptions { operation: OPERATION.to_owned(), parameters, ..TransactionOptions::default() }
}

impl Plan {
    /// A plan to rewrite these bins, given the number of live files and of those in the requested partitions.
    pub(super) fn new(
        snapshot: Snapshot,
        base: HandleState,
        mut rewriting: Rewriting,
        bins: Vec<Bin>,
        files_total: u64,
        files_considered: u64,
    ) -> Self {
        let (layout, target) = (&rewriting.layout, rewriting.target);
        let files_to_rewrite = bins.iter().map(|bin| bin.files.len() as u64).sum();
        let result = Optimized {
            read_version: snapshot.version(),
            layout: layout.name().to_owned(),
            columns: layout.columns(),
            target_file_size: target,
            files_total,
            files_considered,
            files_skipped: files_considered.saturating_sub(files_to_rewrite),
            files_to_rewrite,
            bytes_to_rewrite: bins.iter().map(Bin::bytes).fold(0, u64::saturating_add),
            expected_files: bins.iter().map(|bin| expected(bin, layout, target)).sum(),
            partitions: partitions(&bins, layout, target, snapshot.shape()),
            ..Optimized::default()
        };
        rewriting.tasks = rewriting.tasks.clamp(1, bins.len().max(1));
        Self { snapshot, base, rewriting, bins, result }
    }

    /// Rewrites the bins and commits them with `options`.
    pub(super) async fn rewrite_and_commit(
        self,
        options: TransactionOptions,
        ids: &dyn Ids,
        context: CommitContext<'_>,
    ) -> Result<Optimized> {
        let Self { snapshot, base, rewriting, bins, result: mut done } = self;
        let commits = BinCommits { snapshot, base, options, ids, context };
        let progress = Progress::begin(&commits.options.operation, Unit::Bytes, Some(done.bytes_to_rewrite));
        for bins in split_into_commits(bins, rewriting.limits.commit_bytes) {
            let writing = write_all(&rewriting, bins, ids, &progress);
            let written = stop_if_cancelled(writing, &rewriting.stop, context.retry, nothing_committed).await?;
            commits.commit(written, &mut done).await?;
        }
        Ok(done)
    }

    /// As [`Plan::rewrite_and_commit`], in one commit of the bins that could be rewritten. Also returns the error of one that
    /// could not.
    pub(super) async fn rewrite_with_partial_failures(
        self,
        options: TransactionOptions,
        ids: &dyn Ids,
        context: CommitContext<'_>,
    ) -> Result<(Optimized, Option<Error>)> {
        let Self { snapshot, base, rewriting, bins, result: mut done } = self;
        let commits = BinCommits { snapshot, base, options, ids, context };
        let progress = Progress::begin(&commits.options.operation, Unit::Bytes, Some(done.bytes_to_rewrite));
        let writing = try_all(&rewriting, bins, ids, &progress);
        let (written, failed) = stop_if_cancelled(writing, &rewriting.stop, context.retry, nothing_committed).await?;
        if !written.is_empty() {
            commits.commit(written, &mut done).await?;
        }
        Ok((done, failed))
    }
}

/// Rewrites bins, several at once. After an error none is being rewritten, and no file is left.
pub(super) async fn write_all(
    rewriting: &Rewriting,
    bins: Vec<Bin>,
    ids: &dyn Ids,
    progress: &Progress,
) -> Result<Vec<Rewritten>> {
    let write = |bin: Bin| write(rewriting, bin, ids, progress);
    match run_to_end(bins.into_iter().map(write), rewriting.tasks, &rewriting.stop).await {
        (written, None) => Ok(written),
        (written, Some(error)) => {
            delete(written).await;
            Err(error)
        }
    }
}

/// Rewrites bins, several at once. Returns those that succeeded, and the error of one that did not. An error if it is asked to
/// stop: no file is left then.
async fn try_all(
    rewriting: &Rewriting,
    bins: Vec<Bin>,
    ids: &dyn Ids,
    progress: &Progress,
) -> Result<(Vec<Rewritten>, Option<Error>)> {
    let write = |bin: Bin| write(rewriting, bin, ids, progress).map(Ok);
    let (mut written, mut failed) = (Vec::new(), None);
    let (ended, stopped) = run_to_end(bins.into_iter().map(write), rewriting.tasks, &rewriting.stop).await;
    for bin in ended {
        match bin {
            Ok(bin) => written.push(bin),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match stopped {
        None => Ok((written, failed)),
        Some(error) => {
            delete(written).await;
            Err(error)
        }
    }
}

/// Rewrites a bin, on any thread.
fn write(
    rewriting: &Rewriting,
    bin: Bin,
    ids: &dyn Ids,
    progress: &Progress,
) -> impl Future<Output = Result<Rewritten>> + Send + use<> {
    // For a curve, rows are read twice.
    let reads = if rewriting.layout == Layout::Compact { 1 } else { 2 };
    let share = progress.share(bin.bytes(), bin.rows().map(|rows| rows.saturating_mul(reads)));
    spawn_async(rewriting.clone().write(bin, ids.unique(), share))
}

/// Divides bins into groups that are committed together. A group takes bins until it has `commit_bytes` bytes.
pub(super) fn split_into_commits(bins: Vec<Bin>, commit_bytes: u64) -> Vec<Vec<Bin>> {
    let mut groups: Vec<Vec<Bin>> = Vec::new();
    let mut group_bytes = u64::MAX;
    for bin in bins {
        let more = bin.bytes();
        match groups.last_mut() {
            Some(group) if group_bytes < commit_bytes => group.push(bin),
            Some(_) | None => {
                groups.push(vec![bin]);
                group_bytes = 0;
            }
        }
        group_bytes = group_bytes.saturating_add(more);
    }
    groups
}

/// The plan for the newest version.
///
/// # Errors
/// As [`plan_optimize`].
pub(super) async fn plan(
    log: &LogSource,
    latest: Option<Snapshot>,
    options: &OptimizeOptions,
    ids: &dyn Ids,
    clock: Clock,
) -> Result<Plan> {
    check(options)?;
    let cache = HandleCache { state: None, latest, now_ms: Some(clock()) };
    let mut transaction = Transaction::begin(log, cache, TransactionOptions::default(), ids).await?;
    let snapshot = transaction.snapshot().await?;
    let base = HandleState::load(&snapshot).await?;
    let shape = snapshot.shape();
    let layout = Layout::of(shape, &base.state.clustering, options)?;
    let filter = partition_filter(options.filter.as_deref(), shape)?;
    let target = target_file_size(options, &snapshot)?;
    let is_compaction = layout == Layout::Compact;
    let may_be_rewritten = |file: &Candidate| !is_compaction || pack::is_worth_compacting(file, target);
    let listed = list(&snapshot, filter.as_ref(), may_be_rewritten).await?;
    let bins = match &layout {
        Layout::Compact => pack::compact(listed.candidates, target),
        Layout::Curve(along @ CurveLayout { curve: Curve::Hilbert, .. }) => {
            pack::cluster(listed.candidates, &cube_columns(along), options.full, &options.limits)
        }
        Layout::Curve(_) => pack::z_order(listed.candidates),
    };
    let rewriting = rewriting(&mut transaction, &snapshot, layout, target, options, clock)?;
    Ok(Plan::new(snapshot, base, rewriting, bins, listed.total, listed.considered))
}

/// How bins of a version are rewritten.
pub(super) fn rewriting(
    transaction: &mut Transaction,
    snapshot: &Snapshot,
    layout: Layout,
    target: u64,
    options: &OptimizeOptions,
    clock: Clock,
) -> Result<Rewriting> {
    let mut spec = transaction.rearrange_spec()?;
    if let Layout::Curve(layout) = &layout {
        // These columns need statistics, since files are skipped by them.
        spec.clustering = layout.physical.clone();
    }
    let copying = Copying::new(snapshot, (read_spec(snapshot, None)?, spec), transaction.tracks_rows()?)?;
    let tasks = options.max_tasks.unwrap_or_else(worker_count);
    let (storage, limits) = (snapshot.storage().clone(), options.limits);
    Ok(Rewriting { storage, copying, layout, target, limits, tasks, clock, stop: Stop::default() })
}

/// The target size of files in bytes.
pub(super) fn target_file_size(options: &OptimizeOptions, snapshot: &Snapshot) -> Result<u64> {
    match options.target_file_size {
        Some(size) => Ok(size),
        None => Ok(Properties::of(snapshot.metadata()).target_file_size()?.unwrap_or(TARGET_FILE_SIZE)),
    }
}

pub(super) fn check(options: &OptimizeOptions) -> Result<()> {
    match (options.target_file_size, options.max_tasks) {
        (Some(0), _) => Err(Error::invalid("target_file_size must be at least 1 byte")),
        (_, Some(0)) => Err(Error::invalid("max_tasks must be at least 1")),
        (Some(_) | None, _) => Ok(()),
    }
}

/// Estimated number of files that replace a bin.
fn expected(bin: &Bin, layout: &Layout, target: u64) -> u64 {
    if *layout == Layout::Compact { 1 } else { bin.expected(target) }
}

fn partitions(bins: &[Bin], layout: &Layout, target: u64, shape: &TableShape) -> Vec<PartitionToOptimize> {
    let named = |(name, value): (&String, &Option<String>)| {
        let path = shape.mapping.logical_path(&shape.schema, std::slice::from_ref(name));
        (path.and_then(|path| path.into_iter().next()).unwrap_or_else(|| name.clone()), value.clone())
    };
    let mut partitions: BTreeMap<_, PartitionToOptimize> = BTreeMap::new();
    for bin in bins {
        let partition = partitions.entry(&bin.partition).or_default();
        if partition.files == 0 {
            partition.values = bin.partition.iter().map(named).collect();
        }
        partition.files += bin.files.len() as u64;
        partition.bytes = partition.bytes.saturating_add(bin.bytes());
        partition.expected_files += expected(bin, layout, target);
    }
    partitions.into_values().collect()
}

/// The operation parameters for the history, with delta-spark's names. `auto`: whether it follows a write.
fn parameters(layout: &Layout, options: &OptimizeOptions, auto: bool) -> Map<String, Value> {
    let predicate: Vec<&str> = options.filter.as_deref().into_iter().collect();
    let (z_order, cluster) = match layout {
        Layout::Compact => (Vec::new(), Vec::new()),
        Layout::Curve(CurveLayout { curve: Curve::ZOrder, .. }) => (layout.columns(), Vec::new()),
        Layout::Curve(CurveLayout { curve: Curve::Hilbert, .. }) => (Vec::new(), layout.columns()),
    };
    let mut parameters = Map::from_iter([
        ("predicate".to_owned(), json!(json!(predicate).to_string())),
        ("zOrderBy".to_owned(), json!(json!(z_order).to_string())),
        ("clusterBy".to_owned(), json!(json!(cluster).to_string())),
        ("auto".to_owned(), json!(auto)),
    ]);
    if options.full {
        parameters.insert("isFull".to_owned(), json!(true));
    }
    parameters
}
