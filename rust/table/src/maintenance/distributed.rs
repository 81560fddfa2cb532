//! OPTIMIZE by several processes: the driver plans and commits; tasks rewrite the bins.
//!
//! They exchange plain bytes: a [`RewriteTask`], which has all that rewriting one bin needs except access to the store, and its
//! result. A task that is carried out twice, or whose process dies, leaves unreferenced files.
//!
//! Invariant: files of tasks that were not committed are found by their names, which have an id for the tasks of each commit,
//! so that a committed file is never among them (`optimize::bins_are_rewritten_by_tasks`).
//!
//! Proved by `tests/rust/table/optimize.rs` and `tests/spark/test_maintenance.py`.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::bins::{Rewriting, Rewritten};
use super::commit::BinCommits;
use super::layout::Layout;
use super::optimize::{Plan, commit_options, plan, split_into_commits};
use super::options::{Limits, OptimizeOptions, Optimized};
use super::pack::Bin;
use crate::commit::{CommitContext, CommitSeries};
use crate::envelope::{pack, unpack};
use crate::error::{Error, Result};
use crate::post_commit::HandleState;
use crate::progress::Progress;
use crate::rewrite::Copying;
use crate::scan::task::ReadSpec;
use crate::snapshot::Snapshot;
use crate::transaction::builder::{Ids, TransactionOptions, delete_written};
use crate::write::layout::{has_id_prefix, id_prefix};
use crate::write::plan::{DataFile, WriteSpec};
use crate::write::unclaimed::Unclaimed;
use crate::write::writer::Clock;
use deltic_store::{Stop, Storage};

/// The kinds of these bytes, in their envelopes.
const TASK: &str = "rewrite task";
const REWRITTEN: &str = "rewritten group of files";

/// A group of files to be rewritten, and all that is needed for it except access to the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RewriteTask {
    location: String,
    /// The id of its task set: the tasks of one commit.
    task_set_id: String,
    /// Its index in the task set.
    number: usize,
    /// The id of the cube: of the files that are clustered together.
    cube: String,
    bin: Bin,
    read: ReadSpec,
    write: WriteSpec,
    layout: Layout,
    target: u64,
    limits: Limits,
}

/// The result of a task.
#[derive(Debug, Serialize, Deserialize)]
struct RewrittenBin {
    task_set_id: String,
    number: usize,
    files: Vec<DataFile>,
}

impl RewriteTask {
    /// Reads what [`DistributedOptimize::next_tasks`] gave.
    ///
    /// # Errors
    /// `Invalid` if the bytes are something else, or of another release of deltic.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let task: Self = unpack(TASK, bytes)?;
        task.layout.check().map_err(|e| e.in_table(&task.location))?;
        Ok(task)
    }

    /// Where the table is.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// Rewrites the files. Returns the result for [`DistributedOptimize::commit`]. New files are durable then, and after an
    /// error none is left.
    ///
    /// # Errors
    /// Those of reading and writing.
    pub async fn carry_out(self, storage: Storage, clock: Clock) -> Result<Vec<u8>> {
        let Self { location, task_set_id, number, cube, bin, read, write, layout, target, limits } = self;
        let rewritten = async {
            let copying = Copying::of_specs(&storage, read, write)?;
            let rewriting =
                Rewriting { storage, copying, layout, target, limits, tasks: 1, clock, stop: Stop::default() };
            let uncounted = Progress::default().share(0, None);
            let Rewritten { files, unclaimed, .. } = rewriting.write(bin, cube, uncounted).await?;
            let bytes = pack(REWRITTEN, &RewrittenBin { task_set_id, number, files })?;
            unclaimed.claim();
            Ok(bytes)
        };
        rewritten.await.map_err(|e: Error| e.in_table(&location))
    }
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
    /// As [`plan_optimize`](super::plan_optimize).
    pub async fn plan(
        storage: &Storage,
        latest: Option<Snapshot>,
        options: &OptimizeOptions,
        ids: &dyn Ids,
        clock: Clock,
    ) -> Result<Self> {
        let planned = plan(storage, latest, options, ids, clock).await;
        let Plan { snapshot, base, rewriting, bins, result: done } =
            planned.map_err(|e| e.in_table(storage.location()))?;
        let left = split_into_commits(bins, rewriting.limits.commit_bytes).into_iter();
        let options = commit_options(&rewriting.layout, options, false);
        Ok(Self {
            snapshot,
            base,
            options,
            rewriting,
            left,
            current: Vec::new(),
            task_set_id: String::new(),
            id_prefix: None,
            done,
        })
    }

    /// The plan, and the result so far.
    pub fn result(&self) -> &Optimized {
        &self.done
    }

    /// The tasks of the next commit, in the byte form of [`RewriteTask`]; none when all is done.
    ///
    /// # Errors
    /// `Internal` if one has no byte form (cannot happen).
    pub fn next_tasks(&mut self, ids: &dyn Ids) -> Result<Vec<Vec<u8>>> {
        self.current = self.left.next().unwrap_or_default();
        self.task_set_id = ids.unique();
        self.id_prefix = id_prefix(&self.task_set_id);
        let Rewriting { storage, copying, layout, target, limits, .. } = &self.rewriting;
        let task = |(number, bin): (usize, &Bin)| {
            let task = RewriteTask {
                location: storage.location().to_owned(),
                task_set_id: self.task_set_id.clone(),
                number,
                cube: ids.unique(),
                bin: bin.clone(),
                read: copying.read.clone(),
                write: WriteSpec { id_prefix: self.id_prefix, ..copying.write.clone() },
                layout: layout.clone(),
                target: *target,
                limits: *limits,
            };
            pack(TASK, &task)
        };
        self.current.iter().enumerate().map(task).collect()
    }

    /// Commits the results of the tasks of [`DistributedOptimize::next_tasks`], except groups whose files other writers
    /// changed.
    ///
    /// # Errors
    /// `Invalid` if there is not one result of each task, with all rows; otherwise as [`optimize`](super::optimize).
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
        delete_written(&self.rewriting.storage, self.id_prefix.take()).await;
    }

    /// The files of each task, in the order of the tasks.
    fn files_of_tasks(&self, written: &[impl AsRef<[u8]>]) -> Result<Vec<Vec<DataFile>>> {
        let mut files: Vec<Option<Vec<DataFile>>> = vec![None; self.current.len()];
        for bytes in written {
            let of_task: RewrittenBin = unpack(REWRITTEN, bytes.as_ref())?;
            if of_task.task_set_id != self.task_set_id {
                return Err(Error::invalid(
                    "a result belongs to a task of another commit; pass the results of this commit's tasks",
                ));
            }
            match files.get_mut(of_task.number) {
                Some(slot @ None) => *slot = Some(of_task.files),
                Some(Some(_)) => {
                    return Err(Error::invalid("the result of a task was passed twice; pass each result once"));
                }
                None => return Err(Error::invalid("a result belongs to a task that this commit does not have")),
            }
        }
        let all = files.into_iter().collect::<Option<Vec<_>>>();
        let all =
            all.ok_or_else(|| Error::invalid("the result of a task is missing; pass the results of all tasks"))?;
        let mut paths = HashSet::new();
        for (bin, files) in self.current.iter().zip(&all) {
            self.check_files(bin, files, &mut paths)?;
        }
        Ok(all)
    }

    /// Refuses files that no task of this commit wrote, and those that do not have as many rows as the files they replace.
    fn check_files<'a>(&self, bin: &Bin, files: &'a [DataFile], paths: &mut HashSet<&'a str>) -> Result<()> {
        let is_ours = |path: &str| self.id_prefix.is_none_or(|id_prefix| has_id_prefix(path, id_prefix));
        for path in files.iter().map(|file| file.add.path.as_str()) {
            if !is_ours(path) || !paths.insert(path) {
                let message = "a task returned a file that no task of this commit wrote, or a file was returned twice";
                return Err(Error::invalid(message).in_file(path));
            }
        }
        let written = files.iter().map(|file| file.rows).try_fold(0_u64, u64::checked_add);
        match bin.rows() {
            Some(rows) if written != Some(rows) => Err(Error::invalid(format!(
                "the files that a task returned do not have the {rows} rows of the files that they replace; run it again"
            ))),
            _ => Ok(()),
        }
    }
}
