//! VACUUM by several processes: the driver reads the log; tasks list directories of the table and delete files.
//!
//! A [`SweepTask`] is sent as bytes. It has the cutoff and the hashes of the files to retain in its directories, and decides
//! by the same [`Rule`] as a local vacuum. The cutoff is fixed by the driver, however late the task runs. The driver chooses
//! among the files directly in the root, those of an inventory and those that the log names; tasks delete them, on a disk only
//! if they are still older than the cutoff. A task deletes nothing unless it finds the newest commit of the version that the
//! driver read (VACUUM START, if the vacuum is in the history): its process may access another store.
//!
//! Proved by `tests/spark/test_swept.py`.

use deltic_protocol::log::name::commit_name;
use deltic_protocol::replay::retention::is_before_cutoff;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};

use super::options::{Search, VacuumOptions, Vacuumed};
use super::started::StartedVacuum;
use super::sweep::{Failures, Rule, Sweep, SweepResult, is_itself};
use crate::commit::CommitContext;
use crate::envelope::{pack, unpack};
use crate::error::{Error, Kind, Result};
use crate::log::{LogSource, log_file_path};
use crate::transaction::builder::Ids;
use deltic_store::{FileMeta, Listed, Storage};

/// The kinds of these bytes, in their envelopes.
const TASK: &str = "vacuum task";
const RESULT: &str = "result of a vacuum task";

/// The maximum number of files that one task deletes.
const MAX_FILES_PER_TASK: usize = 10_000;
/// The maximum number of files that the driver chooses for one task set.
const MAX_FILES_PER_TASK_SET: usize = 200_000;
/// The maximum number of hashes that the tasks of one set have together.
const MAX_HASHES_PER_TASK_SET: usize = 8_000_000;
/// The maximum number of hashes of one task, some 20 bytes each: Spark sends tasks below 128 MiB.
const MAX_HASHES_PER_TASK: usize = 4_000_000;

/// Path, size in bytes, and modification time.
type File = (String, u64, i64);

/// Top-level directories to vacuum, or files to delete.
#[derive(Debug, Serialize, Deserialize)]
pub struct SweepTask {
    location: String,
    /// The id of its task set.
    task_set_id: String,
    /// Its index in the task set.
    number: usize,
    dry_run: bool,
    /// A commit that the task must find. `None` for a dry run.
    known: Option<KnownCommit>,
    work: SweepWork,
}

/// The newest commit that the driver has read: VACUUM START, if the vacuum is in the history.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct KnownCommit {
    version: u64,
    lines: String,
}

impl KnownCommit {
    /// Reads the commit of `version`.
    async fn read(log: &LogSource, version: u64) -> Result<Self> {
        let found = log.read_commit(version).await?;
        let missing = || Error::not_found("this commit is not in the log any more").at_version(version);
        let lines = String::from_utf8_lossy(&found.ok_or_else(missing)?).into_owned();
        Ok(Self { version, lines })
    }

    /// Fails if the log does not have this commit: the task accesses another table.
    async fn check(&self, log: &LogSource) -> Result<()> {
        let found = log.read_commit(self.version).await?;
        if found.is_some_and(|found| String::from_utf8_lossy(&found) == self.lines) {
            return Ok(());
        }
        let message = "a task does not find the newest commit that the driver found: it accesses another store than the \
                       driver; pass endpoint and credentials as storage_options, which reach every task";
        Err(Error::invalid(message).in_file(log_file_path(&commit_name(self.version))))
    }
}

#[derive(Debug, Serialize, Deserialize)]
enum SweepWork {
    /// Files to delete, and the cutoff. On a disk their modification times are checked again; in a bucket they are not.
    Delete(Vec<File>, i64),
    /// Top-level directories to list.
    Sweep(Vec<String>, Rule),
}

/// The result of a task.
#[derive(Debug, Serialize, Deserialize)]
struct TaskResult {
    task_set_id: String,
    number: usize,
    seen: u64,
    deleted: u64,
    bytes: u64,
    folders: u64,
    failed: u64,
    /// Why the first file could not be deleted.
    failure: Option<Failure>,
    /// Why the task stopped before its end.
    aborted_by: Option<Failure>,
    found: Vec<File>,
    nested_tables: Vec<String>,
}

/// An error of a store.
#[derive(Debug, Serialize, Deserialize)]
struct Failure {
    retryable: bool,
    message: String,
}

impl Failure {
    fn of(error: &Error) -> Self {
        let retryable = matches!(error.kind(), Kind::Storage { retryable: true });
        Self { retryable, message: error.to_string() }
    }

    fn into_error(self) -> Error {
        Error::storage(self.retryable, self.message)
    }
}

impl SweepTask {
    /// Reads a task that [`DistributedVacuum::next_tasks`] returned.
    ///
    /// # Errors
    /// `Invalid` if the bytes are something else, or of another release of deltic.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        unpack(TASK, bytes)
    }

    /// Where the table is.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// Deletes files. Returns the result for [`DistributedVacuum::take`], which includes failures of the store. The task may
    /// run several times.
    ///
    /// # Errors
    /// `Internal` if the result cannot be encoded (cannot happen).
    pub async fn carry_out(self, storage: Storage) -> Result<Vec<u8>> {
        let Self { task_set_id, number, dry_run, known, work, .. } = self;
        let mut sweep = match &work {
            SweepWork::Delete(..) => Sweep::with(storage.clone(), Vec::new(), dry_run),
            SweepWork::Sweep(_, rule) => Sweep::new(storage.clone(), rule, dry_run),
        };
        let ended = async {
            if let Some(known) = known {
                known.check(&LogSource::of(&storage)).await?;
            }
            match work {
                SweepWork::Delete(files, cutoff_ms) => {
                    let files = files.into_iter().map(file_of).collect();
                    sweep.delete(still_expired(&storage, files, cutoff_ms).await).await;
                }
                SweepWork::Sweep(folders, rule) => {
                    for folder in folders {
                        sweep.run(&rule, storage.list_recursive(&folder)).await?;
                    }
                }
            }
            Ok(())
        };
        let ended: Result<()> = ended.await;
        let SweepResult { vacuumed, folders, failed } = sweep.into_done();
        pack(
            RESULT,
            &TaskResult {
                task_set_id,
                number,
                seen: vacuumed.files_seen,
                deleted: vacuumed.files_deleted,
                bytes: vacuumed.bytes_deleted,
                folders,
                failed: failed.files,
                failure: failed.first.as_ref().map(Failure::of),
                aborted_by: ended.err().as_ref().map(Failure::of),
                found: vacuumed.found.into_iter().map(|file| (file.path, file.size, file.modified_ms)).collect(),
                nested_tables: vacuumed.nested_tables,
            },
        )
    }
}

/// On a disk, the files that are still older than the cutoff. In a bucket this would take a request for each file, so all
/// files are returned.
async fn still_expired(storage: &Storage, mut files: Vec<FileMeta>, cutoff_ms: i64) -> Vec<FileMeta> {
    if !storage.is_local() {
        return files;
    }
    for file in &mut files {
        if let Ok(found) = storage.head(&file.path).await {
            file.modified_ms = found.modified_ms;
        }
    }
    files.retain(|file| is_before_cutoff(file.modified_ms, cutoff_ms));
    files
}

fn file_of((path, size, modified_ms): File) -> FileMeta {
    FileMeta { path, size, modified_ms }
}

/// A VACUUM whose files are deleted by tasks in other processes.
pub struct DistributedVacuum {
    started: StartedVacuum,
    known: Option<KnownCommit>,
    rule: Rule,
    sweep: Sweep,
    /// The files that the driver chooses from.
    listing: Option<BoxStream<'static, Result<Listed>>>,
    /// Top-level directories that no task has yet.
    folders: Vec<String>,
    /// The beginning of the ids of its task sets.
    id: String,
    /// How many task sets have been returned so far.
    task_sets: u64,
    phase: Phase,
    ended: Result<()>,
}

/// State of a distributed vacuum.
enum Phase {
    BetweenTaskSets,
    /// A task set with this number of tasks is running.
    Running(usize),
    AllDone,
    Failed,
}

impl DistributedVacuum {
    /// Commits VACUUM START and collects the files to retain.
    ///
    /// # Errors
    /// As [`vacuum`](super::vacuum).
    pub async fn begin(
        log: &LogSource,
        options: VacuumOptions,
        ids: &dyn Ids,
        context: CommitContext<'_>,
    ) -> Result<Self> {
        let in_table = |e: Error| e.in_table(log.location());
        let started = StartedVacuum::new(log, &options, ids, context).await?;
        let id = ids.unique();
        let (dry_run, is_lite) = (options.dry_run, matches!(options.search, Search::Lite));
        let prepared = async {
            let known = match dry_run {
                true => None,
                false => Some(KnownCommit::read(log, started.snapshot.version()).await?),
            };
            let rule = Rule::of(&started.snapshot, started.retention, id.clone()).await?;
            let listing = match options.search {
                Search::Full => log.storage().list_folder(""),
                search => started.listing(search).await?.map_ok(Listed::File).boxed(),
            };
            Ok((known, rule, listing))
        };
        let (known, rule, listing) = match prepared.await.map_err(in_table) {
            Ok(prepared) => prepared,
            Err(failure) => {
                let ended = started.end(SweepResult::default(), Err(failure), ids, context).await;
                let message = "VACUUM END succeeded although the vacuum failed";
                return Err(ended.err().unwrap_or_else(|| Error::internal(message)));
            }
        };
        let mut sweep = Sweep::new(log.storage().clone(), &rule, dry_run);
        if is_lite {
            sweep.skip_nested_table_check();
        }
        let (folders, phase, listing) = (Vec::new(), Phase::BetweenTaskSets, Some(listing));
        Ok(Self { started, known, rule, sweep, listing, folders, id, task_sets: 0, phase, ended: Ok(()) })
    }

    /// At most `tasks` tasks of the next set, in the byte form of [`SweepTask`]. Empty when all is done, or after a failure
    /// of the store.
    ///
    /// # Errors
    /// `Invalid` while a task set is running, or after one failed; errors of listing files.
    pub async fn next_tasks(&mut self, tasks: usize) -> Result<Vec<Vec<u8>>> {
        match self.phase {
            Phase::BetweenTaskSets => {}
            Phase::AllDone => return Ok(Vec::new()),
            Phase::Running(_) => return Err(self.refused("pass the results of the previous tasks first")),
            Phase::Failed => return Err(self.refused("it failed before; begin another vacuum")),
        }
        self.phase = Phase::Failed;
        let tasks = tasks.max(1);
        let work = if self.ended.is_ok() { self.choose_work(tasks).await } else { Ok(Vec::new()) };
        let log = self.started.snapshot.log();
        let work = work.map_err(|e| e.in_table(log.location()))?;
        if work.is_empty() {
            self.phase = Phase::AllDone;
            return Ok(Vec::new());
        }
        self.task_sets += 1;
        let (location, dry_run) = (log.location(), self.started.dry_run);
        let task = |(number, work): (usize, SweepWork)| {
            let (location, known) = (location.to_owned(), self.known.clone());
            pack(TASK, &SweepTask { location, task_set_id: self.task_set_id(), number, dry_run, known, work })
        };
        let packed = work.into_iter().enumerate().map(task).collect::<Result<Vec<_>>>()?;
        self.phase = Phase::Running(packed.len());
        Ok(packed)
    }

    /// The work of the next task set.
    async fn choose_work(&mut self, tasks: usize) -> Result<Vec<SweepWork>> {
        let most = tasks.saturating_mul(MAX_FILES_PER_TASK).min(MAX_FILES_PER_TASK_SET);
        loop {
            let chosen = self.choose_files(most).await?;
            if !chosen.is_empty() {
                let cutoff_ms = self.started.retention.cutoff_ms;
                let each = chosen.len().div_ceil(tasks).min(MAX_FILES_PER_TASK);
                let files: Vec<File> =
                    chosen.into_iter().map(|file| (file.path, file.size, file.modified_ms)).collect();
                return Ok(files.chunks(each).map(|files| SweepWork::Delete(files.to_vec(), cutoff_ms)).collect());
            }
            let is_large = |folder: &String| self.weight(folder) + self.rule.retained.names() > MAX_HASHES_PER_TASK;
            let Some(at) = self.folders.iter().position(is_large) else { return Ok(self.divide_directories(tasks)) };
            // A directory with more hashes than one task may have is listed by the driver.
            let folder = self.folders.swap_remove(at);
            let listing = self.started.snapshot.storage().list_recursive(&folder);
            self.listing = Some(listing.map_ok(Listed::File).boxed());
        }
    }

    /// Chooses files of the listing, and collects its directories.
    async fn choose_files(&mut self, most: usize) -> Result<Vec<FileMeta>> {
        let mut chosen = Vec::new();
        while let Some(listing) = &mut self.listing
            && chosen.len() < most
        {
            let page: Vec<Listed> = listing.take(1000).try_collect().await?;
            if page.is_empty() {
                self.listing = None;
                self.folders.sort_unstable();
                self.folders.dedup();
                break;
            }
            let mut files = Vec::with_capacity(page.len());
            for listed in page {
                match listed {
                    Listed::File(file) => files.push(file),
                    // A name that the store would resolve to another location is skipped.
                    Listed::Folder(folder) if is_itself(self.started.snapshot.storage(), &folder) => {
                        self.folders.push(folder);
                    }
                    Listed::Folder(_) => {}
                }
            }
            chosen.extend(self.sweep.choose(&self.rule, files).await?);
        }
        Ok(chosen)
    }

    /// Divides the remaining directories among tasks so that each has about as many hashes of retained files, up to the limits.
    fn divide_directories(&mut self, tasks: usize) -> Vec<SweepWork> {
        let names = self.rule.retained.names();
        let at_once = (MAX_HASHES_PER_TASK_SET / names.max(1)).clamp(1, tasks);
        let all: usize = self.folders.iter().map(|folder| self.weight(folder)).sum();
        let each = (all / at_once).clamp(1, MAX_HASHES_PER_TASK);
        let (mut work, mut hashes) = (Vec::new(), 0);
        while work.len() < tasks && hashes < MAX_HASHES_PER_TASK_SET && !self.folders.is_empty() {
            let (mut directories, mut weighs) = (Vec::new(), 0);
            while weighs < each
                && let Some(folder) = self.folders.pop()
            {
                weighs += self.weight(&folder);
                directories.push(folder);
            }
            hashes += weighs + names;
            let rule = self.rule.within(&directories);
            work.push(SweepWork::Sweep(directories, rule));
        }
        work
    }

    /// Cost of a directory: the hashes of its files, and a constant for listing it.
    fn weight(&self, folder: &str) -> usize {
        self.rule.retained.count_in(folder) + 100
    }

    /// Adds the results of the tasks of the set.
    ///
    /// # Errors
    /// `Invalid` if no task set is running, or if these are not the results of all its tasks, once each. The vacuum has failed
    /// then.
    pub fn take(&mut self, results: &[impl AsRef<[u8]>]) -> Result<()> {
        let Phase::Running(tasks) = self.phase else {
            return Err(self.refused("no tasks are under way; ask for the next ones first"));
        };
        self.phase = Phase::Failed;
        let mut all: Vec<Option<TaskResult>> = std::iter::repeat_with(|| None).take(tasks).collect();
        let wrong = || Error::invalid("these are not the results of the tasks; pass the result of each task once");
        for bytes in results {
            let result: TaskResult = unpack(RESULT, bytes.as_ref())?;
            let task_set_id = self.task_set_id();
            let slot = all.get_mut(result.number).filter(|slot| slot.is_none() && result.task_set_id == task_set_id);
            *slot.ok_or_else(wrong)? = Some(result);
        }
        let all = all.into_iter().collect::<Option<Vec<_>>>().ok_or_else(wrong)?;
        for result in all {
            let vacuumed = Vacuumed {
                files_seen: result.seen,
                files_deleted: result.deleted,
                bytes_deleted: result.bytes,
                found: result.found.into_iter().map(file_of).collect(),
                nested_tables: result.nested_tables,
                ..Vacuumed::default()
            };
            let failed = Failures { files: result.failed, first: result.failure.map(Failure::into_error) };
            self.sweep.add_done(SweepResult { vacuumed, folders: result.folders, failed });
            if let Some(failure) = result.aborted_by
                && self.ended.is_ok()
            {
                self.ended = Err(failure.into_error());
            }
        }
        self.phase = Phase::BetweenTaskSets;
        Ok(())
    }

    /// Checks that no task is left.
    ///
    /// # Errors
    /// `Invalid` until [`DistributedVacuum::next_tasks`] has returned none.
    pub fn check_all_done(&self) -> Result<()> {
        match self.phase {
            Phase::AllDone => Ok(()),
            Phase::Failed => Err(self.refused("it failed before; begin another vacuum")),
            Phase::BetweenTaskSets | Phase::Running(_) => {
                Err(self.refused("there may be more files; end when there are no tasks"))
            }
        }
    }

    /// Commits VACUUM END: FAILED unless all was done.
    ///
    /// # Errors
    /// As [`DistributedVacuum::check_all_done`] and [`vacuum`](super::vacuum).
    pub async fn end(self, ids: &dyn Ids, context: CommitContext<'_>) -> Result<Vacuumed> {
        let ended = self.check_all_done().and(self.ended);
        self.started.end(self.sweep.into_done(), ended, ids, context).await
    }

    /// The id of the current task set.
    fn task_set_id(&self) -> String {
        format!("{}-{}", self.id, self.task_sets)
    }

    fn refused(&self, instead: &str) -> Error {
        let message = format!("the vacuum cannot do this now: {instead}");
        Error::invalid(message).in_table(self.started.snapshot.storage().location())
    }
}
