//! The driver of an OPTIMIZE by several processes.

use std::collections::HashSet;

use super::division::{DividedBin, Division, SplitTask, key_schema};
use super::rewrite_task::RewriteTask;
use super::sample_task::{SampleTask, Sampled};
use super::written::{Written, WrittenFiles, all, put};
use crate::commit::{CommitContext, CommitSeries};
use crate::error::{Error, Result};
use crate::log::LogSource;
use crate::maintenance::bins::{Rewriting, Rewritten, key_spec};
use crate::maintenance::commit::BinCommits;
use crate::maintenance::layout::Layout;
use crate::maintenance::layout::ranges::SampleLimits;
use crate::maintenance::layout::sent::{Sample, SentRanges};
use crate::maintenance::optimize::{Plan, commit_options, plan, split_into_commits};
use crate::maintenance::options::{OptimizeOptions, Optimized};
use crate::maintenance::pack::Bin;
use crate::post_commit::HandleState;
use crate::scan::plan::balanced::balanced;
use crate::scan::task::{FileTask, task_of};
use crate::snapshot::Snapshot;
use crate::transaction::builder::{Ids, TransactionOptions, delete_written};
use crate::write::layout::{has_id_prefix, id_prefix};
use crate::write::plan::{DataFile, WriteSpec};
use crate::write::unclaimed::Unclaimed;
use crate::write::writer::Clock;

/// The most intervals of the bins of one commit.
const MAX_INTERVALS: usize = 1000;

/// The most bytes of files that one task samples or splits, unless the number of tasks is limited.
const MAX_TASK_BYTES: u64 = 1 << 30;

/// The processes among which bins are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cluster {
    /// How many tasks it runs at a time.
    pub cores: usize,
    /// The most intervals of a commit, and the most tasks that read files, if they are limited.
    pub max_tasks: Option<usize>,
    /// Bytes of files that are worth a task that reads them.
    pub min_task_bytes: u64,
}

/// The tasks with which a commit begins.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NextTasks {
    /// Tasks that each rewrite a bin, in the byte form of [`RewriteTask`].
    pub rewrite: Vec<Vec<u8>>,
    /// Tasks that sample bins that are to be divided, in the byte form of [`SampleTask`].
    pub sample: Vec<Vec<u8>>,
}

/// How bins are divided into intervals.
#[derive(Debug, PartialEq, Eq)]
pub struct Divided {
    /// The byte form of the [`Division`].
    pub division: Vec<u8>,
    /// Tasks that divide the rows of files, in the byte form of [`SplitTask`].
    pub tasks: Vec<Vec<u8>>,
    /// How many intervals there are, in all bins together.
    pub intervals: usize,
}

/// A bin that is divided.
struct DividingBin {
    /// Its index among the bins of the commit.
    number: usize,
    /// The most intervals.
    most: usize,
    cube: String,
    /// Its files, by the task that samples and splits them.
    parts: Vec<Vec<FileTask>>,
    /// Its rows and intervals, once they are known.
    known: Option<KnownIntervals>,
}

struct KnownIntervals {
    rows: u64,
    /// The index of its first interval, among those of all bins.
    first: usize,
    intervals: usize,
}

/// An OPTIMIZE whose groups of files other processes rewrite.
pub struct DistributedOptimize {
    snapshot: Snapshot,
    base: HandleState,
    options: TransactionOptions,
    rewriting: Rewriting,
    /// The bins of the following commits.
    left: std::vec::IntoIter<Vec<Bin>>,
    /// The bins of the current commit.
    current: Vec<Bin>,
    /// Those of them that are divided.
    dividing: Vec<DividingBin>,
    /// The id of the current task set.
    task_set_id: String,
    /// The beginning of the ids in the names of its files.
    id_prefix: Option<u64>,
    done: Optimized,
}

impl DistributedOptimize {
    /// Plans an OPTIMIZE of the newest version.
    ///
    /// # Errors
    /// As [`plan_optimize`](crate::maintenance::plan_optimize).
    pub async fn plan(
        log: &LogSource,
        latest: Option<Snapshot>,
        options: &OptimizeOptions,
        ids: &dyn Ids,
        clock: Clock,
    ) -> Result<Self> {
        let planned = plan(log, latest, options, ids, clock).await;
        let Plan { snapshot, base, rewriting, bins, result: done } = planned.map_err(|e| e.in_table(log.location()))?;
        let left = split_into_commits(bins, rewriting.limits.commit_bytes).into_iter();
        let options = commit_options(&rewriting.layout, options, false);
        Ok(Self {
            snapshot,
            base,
            options,
            rewriting,
            left,
            current: Vec::new(),
            dividing: Vec::new(),
            task_set_id: String::new(),
            id_prefix: None,
            done,
        })
    }

    /// The plan, and the result so far.
    pub fn result(&self) -> &Optimized {
        &self.done
    }

    /// The first tasks of the next commit; none when all is done. Without a `cluster` no bin is divided.
    ///
    /// # Errors
    /// `Internal` if a task has no byte form (cannot happen).
    pub fn next_tasks(&mut self, cluster: Option<&Cluster>, ids: &dyn Ids) -> Result<Option<NextTasks>> {
        self.current = self.left.next().unwrap_or_default();
        self.dividing.clear();
        if self.current.is_empty() {
            return Ok(None);
        }
        self.task_set_id = ids.unique();
        self.id_prefix = id_prefix(&self.task_set_id);
        let most = cluster.map_or_else(Vec::new, |cluster| self.intervals(cluster));
        let mut rewrite = Vec::new();
        for (number, bin) in self.current.iter().enumerate() {
            match (most.get(number), cluster) {
                (Some(most @ 2..), Some(cluster)) => {
                    let (most, cube, parts) = (*most, ids.unique(), self.parts(bin, cluster));
                    self.dividing.push(DividingBin { number, most, cube, parts, known: None });
                }
                _ => rewrite.push(self.rewrite_task(number, bin, ids.unique()).to_bytes()?),
            }
        }
        Ok(Some(NextTasks { rewrite, sample: self.sample_tasks()? }))
    }

    /// The most intervals of each bin. A bin that is not larger than half a core's share of the work is not divided: the
    /// others take longer.
    fn intervals(&self, cluster: &Cluster) -> Vec<usize> {
        let all = self.current.iter().map(Bin::bytes).fold(0, u64::saturating_add);
        let share = all / (2 * cluster.cores.max(1) as u64);
        let expected = |bin: &Bin| match self.rewriting.layout {
            Layout::Curve(_) if cluster.cores > 1 && bin.bytes() > share => bin.expected(self.rewriting.target),
            Layout::Curve(_) | Layout::Compact => 1,
        };
        let expected: Vec<u64> = self.current.iter().map(expected).collect();
        let large = expected.iter().filter(|files| **files > 1).count();
        let most = cluster.max_tasks.unwrap_or(MAX_INTERVALS) / large.max(1);
        expected.into_iter().map(|files| usize::try_from(files).unwrap_or(most).min(most)).collect()
    }

    /// The files of a bin, in parts that are worth a task.
    fn parts(&self, bin: &Bin, cluster: &Cluster) -> Vec<Vec<FileTask>> {
        let all = self.current.iter().map(Bin::bytes).fold(0, u64::saturating_add);
        let tasks = cluster.max_tasks.unwrap_or_else(|| cluster.cores.saturating_mul(2)).max(1);
        let most = if cluster.max_tasks.is_some() { u64::MAX } else { MAX_TASK_BYTES };
        let bytes = (all / tasks as u64).max(cluster.min_task_bytes).min(most).max(1);
        let files = bin.files.iter().map(|file| task_of(&file.add)).collect();
        let count = usize::try_from(bin.bytes() / bytes).unwrap_or(usize::MAX);
        balanced(files, count.max(1), |file: &FileTask| (file.size, &file.path))
    }

    fn rewrite_task(&self, number: usize, bin: &Bin, cube: String) -> RewriteTask {
        let Rewriting { storage, copying, layout, target, limits, .. } = &self.rewriting;
        RewriteTask {
            location: storage.location().to_owned(),
            task_set_id: self.task_set_id.clone(),
            number,
            cube,
            bin: bin.clone(),
            read: copying.read.clone(),
            write: self.write_spec(),
            layout: layout.clone(),
            target: *target,
            limits: *limits,
        }
    }

    fn write_spec(&self) -> WriteSpec {
        WriteSpec { id_prefix: self.id_prefix, ..self.rewriting.copying.write.clone() }
    }

    fn sample_tasks(&self) -> Result<Vec<Vec<u8>>> {
        let Layout::Curve(layout) = &self.rewriting.layout else { return Ok(Vec::new()) };
        let read = key_spec(&self.rewriting.copying.read, layout);
        let of_bin = self.sample_limits();
        let mut tasks = Vec::new();
        for bin in &self.dividing {
            for files in &bin.parts {
                let task = SampleTask {
                    location: self.rewriting.storage.location().to_owned(),
                    task_set_id: self.task_set_id.clone(),
                    number: tasks.len(),
                    read: read.clone(),
                    layout: layout.clone(),
                    limits: of_bin.of_part(bin.parts.len()),
                    files: files.clone(),
                };
                tasks.push(task.to_bytes()?);
            }
        }
        Ok(tasks)
    }

    /// Limits of the sample of each bin.
    fn sample_limits(&self) -> SampleLimits {
        SampleLimits::of_group(self.dividing.len())
    }

    /// Divides bins into intervals by the results of the sample tasks.
    ///
    /// # Errors
    /// `Invalid` if there is not one result of each task.
    pub fn divide(&mut self, samples: &[impl AsRef<[u8]>]) -> Result<Divided> {
        let location = self.rewriting.storage.location().to_owned();
        self.divided(samples).map_err(|e| e.in_table(&location))
    }

    fn divided(&mut self, samples: &[impl AsRef<[u8]>]) -> Result<Divided> {
        let Layout::Curve(layout) = self.rewriting.layout.clone() else {
            return Err(Error::invalid("only rows that are ordered along a curve are divided into intervals"));
        };
        let parts = self.dividing.iter().map(|bin| bin.parts.len()).sum();
        let mut slots: Vec<Option<Sample>> = (0..parts).map(|_| None).collect();
        for bytes in samples {
            let sampled = Sampled::from_bytes(bytes.as_ref(), &self.task_set_id)?;
            put(slots.get_mut(sampled.number), sampled.sample)?;
        }
        let mut samples = all(slots)?.into_iter();
        let copying = &self.rewriting.copying;
        let schema = key_schema(&self.rewriting.storage, &copying.read, &layout)?;
        let (limits, target) = (self.sample_limits(), self.rewriting.target);
        let (mut bins, mut tasks, mut first) = (Vec::new(), Vec::new(), 0);
        for dividing in &mut self.dividing {
            let of_bin = samples.by_ref().take(dividing.parts.len()).collect();
            let sampler = Sample::merge(of_bin, &layout, &schema, limits)?;
            let rows = sampler.rows();
            let bin = self.current.get(dividing.number).ok_or_else(|| Error::internal("a bin is missing"))?;
            let Some(ranges) = sampler.finish()? else {
                // All its rows are deleted.
                dividing.known = Some(KnownIntervals { rows, first, intervals: 0 });
                continue;
            };
            let cuts = ranges.intervals(dividing.most);
            let (cube, rows_per_file) = (dividing.cube.clone(), rows.div_ceil(bin.expected(target)));
            dividing.known = Some(KnownIntervals { rows, first, intervals: cuts.len() + 1 });
            for files in &dividing.parts {
                let (task_set_id, files) = (self.task_set_id.clone(), files.clone());
                tasks.push(SplitTask { task_set_id, bin: bins.len(), files }.to_bytes()?);
            }
            let (at, ranges) = (first, SentRanges::of(&ranges));
            first += cuts.len() + 1;
            bins.push(DividedBin { cube, rows, rows_per_file, first: at, cuts, ranges });
        }
        let (location, task_set_id) = (self.rewriting.storage.location().to_owned(), self.task_set_id.clone());
        let (read, write, limits) = (copying.read.clone(), self.write_spec(), self.rewriting.limits);
        let division = Division { location, task_set_id, read, write, layout, limits, bins };
        Ok(Divided { division: division.to_bytes()?, tasks, intervals: first })
    }

    /// Commits the results of the tasks that rewrite bins and of all intervals, except bins whose files other writers changed.
    ///
    /// # Errors
    /// `Invalid` if there is not one result of each task and interval, with all rows; otherwise as [`optimize`](crate::maintenance::optimize).
    pub async fn commit(
        &mut self,
        written: &[impl AsRef<[u8]>],
        ids: &dyn Ids,
        context: CommitContext<'_>,
    ) -> Result<()> {
        let storage = self.rewriting.storage.clone();
        let in_table = |e: Error| e.in_table(storage.location());
        let files = self.files_of_tasks(written).map_err(in_table)?;
        let mut bins = Vec::with_capacity(files.len());
        for (bin, files) in std::mem::take(&mut self.current).into_iter().zip(files) {
            let mut unclaimed = Unclaimed::new(storage.clone());
            unclaimed.hold(&files).map_err(in_table)?;
            bins.push(Rewritten { bin, files, unclaimed });
        }
        // From here on the files may belong to a commit, so only the commit may delete them.
        self.id_prefix = None;
        let (snapshot, base, options) = (self.snapshot.clone(), self.base.clone(), self.options.clone());
        let series = CommitSeries::after(&self.done.versions, context.retry);
        let context = CommitContext { retry: &series, ..context };
        let commits = BinCommits { snapshot, base, options, ids, context };
        let committed = commits.commit(bins, &mut self.done).await;
        committed.map_err(|e| in_table(series.name_committed_versions(e)))
    }

    /// Deletes the files of the tasks of [`DistributedOptimize::next_tasks`], best effort, if they are not to be
    /// committed.
    pub async fn discard(&mut self) {
        self.current.clear();
        self.dividing.clear();
        delete_written(&self.rewriting.storage, self.id_prefix.take()).await;
    }

    /// The files of each bin.
    fn files_of_tasks(&self, written: &[impl AsRef<[u8]>]) -> Result<Vec<Vec<DataFile>>> {
        let mut bins: Vec<Option<Vec<DataFile>>> = vec![None; self.current.len()];
        let known = |bin: &DividingBin| bin.known.as_ref().map(|known| known.first + known.intervals);
        let mut intervals: Vec<Option<Vec<DataFile>>> =
            vec![None; self.dividing.iter().filter_map(known).max().unwrap_or_default()];
        for bytes in written {
            let of_task = WrittenFiles::from_bytes(bytes.as_ref(), &self.task_set_id)?;
            let slot = match of_task.of {
                Written::Bin(number) if self.dividing.iter().any(|bin| bin.number == number) => None,
                Written::Bin(number) => bins.get_mut(number),
                Written::Interval(number) => intervals.get_mut(number),
            };
            put(slot, of_task.files)?;
        }
        for bin in &self.dividing {
            if let (Some(KnownIntervals { first, intervals: count, .. }), Some(files)) =
                (&bin.known, bins.get_mut(bin.number))
            {
                let of_bin = intervals.iter_mut().skip(*first).take(*count).map(Option::take).collect();
                *files = Some(all(of_bin)?.into_iter().flatten().collect());
            }
        }
        let all = all(bins)?;
        let mut paths = HashSet::new();
        for (number, (bin, files)) in self.current.iter().zip(&all).enumerate() {
            let dividing = self.dividing.iter().find(|bin| bin.number == number);
            let counted = dividing.and_then(|bin| bin.known.as_ref()).map(|known| known.rows);
            self.check_files(&[bin.rows(), counted], files, &mut paths)?;
        }
        Ok(all)
    }

    /// Refuses files that no task of this commit wrote, and those that do not have as many rows as the files they replace.
    /// `counts`: the numbers of rows of these, as far as they are known.
    fn check_files<'a>(
        &self,
        counts: &[Option<u64>],
        files: &'a [DataFile],
        paths: &mut HashSet<&'a str>,
    ) -> Result<()> {
        let is_ours = |path: &str| self.id_prefix.is_none_or(|id_prefix| has_id_prefix(path, id_prefix));
        for path in files.iter().map(|file| file.add.path.as_str()) {
            if !is_ours(path) || !paths.insert(path) {
                let message = "a task returned a file that no task of this commit wrote, or a file was returned twice";
                return Err(Error::invalid(message).in_file(path));
            }
        }
        let written = files.iter().map(|file| file.rows).try_fold(0_u64, u64::checked_add);
        match counts.iter().flatten().find(|rows| written != Some(**rows)) {
            Some(rows) => Err(Error::invalid(format!(
                "the files that a task returned do not have the {rows} rows of the files that they replace; run it again"
            ))),
            None => Ok(()),
        }
    }
}
