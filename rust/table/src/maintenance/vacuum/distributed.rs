//! VACUUM by several processes: one reads the log, others list folders of the table and delete.
//!
//! A [`SweepTask`] travels as bytes. It has the cutoff and the hashes of the files to keep in its folders, and decides by the
//! same [`Rule`] as a local vacuum. Files younger than the cutoff stay, however late the task runs. Files directly in the root,
//! those of an inventory and those that the log names are chosen by the driver and deleted by tasks; on a disk only if they are
//! still old. A task deletes nothing unless it finds the VACUUM START commit: its process may reach another store.
//!
//! Proved by `tests/spark/test_swept.py`.

use deltic_protocol::log::name::commit_name;
use deltic_protocol::replay::retention::is_old;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};

use super::begun::StartedVacuum;
use super::options::{Search, VacuumOptions, Vacuumed};
use super::sweep::{Rule, Sweep, SweepResult, is_itself};
use crate::committers::Committer;
use crate::envelope::{pack, unpack};
use crate::error::{Error, Kind, Result};
use crate::log::log_file_path;
use crate::transaction::RetryPolicy;
use crate::transaction::builder::Ids;
use deltic_store::{FileMeta, Listed, Storage};

/// The kinds of what travels.
const TASK: &str = "vacuum task";
const RESULT: &str = "result of a vacuum task";

/// Files that one task deletes, at most.
const FILES_OF_A_TASK: usize = 10_000;
/// Files that are chosen here before others delete them, at most.
const FILES_OF_A_ROUND: usize = 200_000;
/// Hashes that travel at a time.
const HASHES_OF_A_ROUND: usize = 8_000_000;
/// Hashes of a task, some 20 bytes each: Spark sends tasks below 128 MiB.
const HASHES_OF_A_TASK: usize = 4_000_000;

/// Path, size and time of modification.
type File = (String, u64, i64);

/// Folders to be result, or files to be deleted.
#[derive(Debug, Serialize, Deserialize)]
pub struct SweepTask {
    location: String,
    /// The id of its round.
    round: String,
    /// Which one of that.
    number: usize,
    dry_run: bool,
    /// The VACUUM START commit, which the task must find. `None` for a dry run.
    start: Option<StartCommit>,
    work: Work,
}

/// A commit file.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StartCommit {
    path: String,
    text: String,
}

impl StartCommit {
    async fn read(storage: &Storage, version: u64) -> Result<Self> {
        let path = log_file_path(&commit_name(version));
        let text = String::from_utf8_lossy(&storage.get(&path).await?).into_owned();
        Ok(Self { path, text })
    }

    /// Fails where the table is another one.
    async fn check(&self, storage: &Storage) -> Result<()> {
        let is_there = match storage.get(&self.path).await {
            Ok(found) => String::from_utf8_lossy(&found) == self.text,
            Err(e) if e.is_not_found() => false,
            Err(e) => return Err(e),
        };
        let message = "a task does not find the commit with which this vacuum begins: the store that it reaches is another \
                       one than the driver's; pass endpoint and credentials as storage_options, which reach every task";
        if is_there { Ok(()) } else { Err(Error::invalid(message).in_file(self.path.clone())) }
    }
}

#[derive(Debug, Serialize, Deserialize)]
enum Work {
    /// Files that were chosen for being older than this time.
    Delete(Vec<File>, i64),
    /// Folders of the root.
    Sweep(Vec<String>, Rule),
}

/// The result of a task.
#[derive(Debug, Serialize, Deserialize)]
struct TaskResult {
    round: String,
    number: usize,
    seen: u64,
    deleted: u64,
    bytes: u64,
    folders: u64,
    failed: u64,
    /// Why the first file could not be deleted.
    failure: Option<Failure>,
    /// Why it stopped early.
    ended: Option<Failure>,
    found: Vec<File>,
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
    /// Reads what [`DistributedVacuum::next_tasks`] gave.
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

    /// Deletes; what [`DistributedVacuum::take`] takes, failures of the store included. Doing so again is fine.
    ///
    /// # Errors
    /// `Internal` if that has no byte form, which the types rule out.
    pub async fn carry_out(self, storage: Storage) -> Result<Vec<u8>> {
        let Self { round, number, dry_run, start, work, .. } = self;
        let mut sweep = match &work {
            Work::Delete(..) => Sweep::with((storage.clone(), Vec::new()), dry_run),
            Work::Sweep(_, rule) => Sweep::new((storage.clone(), rule), dry_run),
        };
        let ended = async {
            if let Some(start) = start {
                start.check(&storage).await?;
            }
            match work {
                Work::Delete(files, cutoff_ms) => {
                    let files = files.into_iter().map(file_of).collect();
                    sweep.delete(still_old(&storage, files, cutoff_ms).await).await;
                }
                Work::Sweep(folders, rule) => {
                    for folder in folders {
                        sweep.run(&rule, storage.list_recursive(&folder)).await?;
                    }
                }
            }
            Ok(())
        };
        let ended: Result<()> = ended.await;
        let done = sweep.done;
        let SweepResult { vacuumed, folders, failed } = done;
        pack(
            RESULT,
            &TaskResult {
                round,
                number,
                seen: vacuumed.files_seen,
                deleted: vacuumed.files_deleted,
                bytes: vacuumed.bytes_deleted,
                folders,
                failed: failed.files,
                failure: failed.first.as_ref().map(Failure::of),
                ended: ended.err().as_ref().map(Failure::of),
                found: vacuumed.found.into_iter().map(|file| (file.path, file.size, file.modified_ms)).collect(),
            },
        )
    }
}

/// On a disk, the files that are still older than the cutoff. In a bucket that would take a request for each file, so all of
/// them are returned.
async fn still_old(storage: &Storage, mut files: Vec<FileMeta>, cutoff_ms: i64) -> Vec<FileMeta> {
    if !storage.is_local() {
        return files;
    }
    for file in &mut files {
        if let Ok(found) = storage.head(&file.path).await {
            file.modified_ms = found.modified_ms;
        }
    }
    files.retain(|file| is_old(file.modified_ms, cutoff_ms));
    files
}

fn file_of((path, size, modified_ms): File) -> FileMeta {
    FileMeta { path, size, modified_ms }
}

/// A VACUUM whose files other processes delete.
pub struct DistributedVacuum {
    begun: StartedVacuum,
    start: Option<StartCommit>,
    rule: Rule,
    sweep: Sweep,
    /// What is chosen from here.
    listing: Option<BoxStream<'static, Result<Listed>>>,
    /// Folders of the root to come.
    folders: Vec<String>,
    /// The id of its rounds.
    id: String,
    /// Rounds so far.
    rounds: u64,
    step: Step,
    ended: Result<()>,
}

/// How far it is.
enum Step {
    Between,
    /// So many tasks are under way.
    Running(usize),
    AllDone,
    Failed,
}

impl DistributedVacuum {
    /// Tells the history, and finds out what is kept.
    ///
    /// # Errors
    /// As [`vacuum`](super::vacuum).
    pub async fn begin(
        storage: &Storage,
        committer: &dyn Committer,
        options: VacuumOptions,
        (ids, retry): (&dyn Ids, &dyn RetryPolicy),
    ) -> Result<Self> {
        let place = |e: Error| e.in_table(storage.location());
        let begun = StartedVacuum::new(storage, committer, &options, (ids, retry)).await?;
        let id = ids.unique();
        let dry_run = options.dry_run;
        let prepared = async {
            let start = match begun.start {
                Some(version) => Some(StartCommit::read(storage, version).await?),
                None => None,
            };
            let rule = Rule::of(&begun.snapshot, begun.retention, id.clone()).await?;
            let listing = match options.search {
                Search::Full => storage.list_folder(""),
                search => begun.listing(search).await?.map_ok(Listed::File).boxed(),
            };
            Ok((start, rule, listing))
        };
        let (start, rule, listing) = match prepared.await.map_err(place) {
            Ok(prepared) => prepared,
            Err(failure) => {
                let ended = begun.end(SweepResult::default(), Err(failure), committer, (ids, retry)).await;
                return Err(ended.err().unwrap_or_else(|| Error::internal("a vacuum that failed came to its end")));
            }
        };
        let sweep = Sweep::new((storage.clone(), &rule), dry_run);
        let (folders, step, listing) = (Vec::new(), Step::Between, Some(listing));
        Ok(Self { begun, start, rule, sweep, listing, folders, id, rounds: 0, step, ended: Ok(()) })
    }

    /// At most so many tasks, in the byte form of [`SweepTask`]; none when all is done, or after a failure of the store.
    ///
    /// # Errors
    /// `Invalid` while a round is not taken in, or if that failed; those of listing files.
    pub async fn next_tasks(&mut self, tasks: usize) -> Result<Vec<Vec<u8>>> {
        match self.step {
            Step::Between => {}
            Step::AllDone => return Ok(Vec::new()),
            Step::Running(_) => return Err(self.refused("take in what the tasks before did first")),
            Step::Failed => return Err(self.refused("it failed before; begin another vacuum")),
        }
        self.step = Step::Failed;
        let tasks = tasks.max(1);
        let works = if self.ended.is_ok() { self.next_works(tasks).await } else { Ok(Vec::new()) };
        let storage = self.begun.snapshot.storage();
        let works = works.map_err(|e| e.in_table(storage.location()))?;
        if works.is_empty() {
            self.step = Step::AllDone;
            return Ok(Vec::new());
        }
        self.rounds += 1;
        let (location, dry_run) = (storage.location(), self.begun.dry_run);
        let task = |(number, work): (usize, Work)| {
            let (location, start) = (location.to_owned(), self.start.clone());
            pack(TASK, &SweepTask { location, round: self.round(), number, dry_run, start, work })
        };
        let packed = works.into_iter().enumerate().map(task).collect::<Result<Vec<_>>>()?;
        self.step = Step::Running(packed.len());
        Ok(packed)
    }

    async fn next_works(&mut self, tasks: usize) -> Result<Vec<Work>> {
        let most = tasks.saturating_mul(FILES_OF_A_TASK).min(FILES_OF_A_ROUND);
        loop {
            let going = self.next_files(most).await?;
            if !going.is_empty() {
                let cutoff_ms = self.begun.retention.cutoff_ms;
                let each = going.len().div_ceil(tasks).min(FILES_OF_A_TASK);
                let files: Vec<File> = going.into_iter().map(|file| (file.path, file.size, file.modified_ms)).collect();
                return Ok(files.chunks(each).map(|files| Work::Delete(files.to_vec(), cutoff_ms)).collect());
            }
            let is_large = |folder: &String| self.weight(folder) + self.rule.kept.names() > HASHES_OF_A_TASK;
            let Some(at) = self.folders.iter().position(is_large) else { return Ok(self.next_folders(tasks)) };
            // More hashes than may travel to a task: it is listed here.
            let folder = self.folders.swap_remove(at);
            let listing = self.begun.snapshot.storage().list_recursive(&folder);
            self.listing = Some(listing.map_ok(Listed::File).boxed());
        }
    }

    /// Chooses files of the listing, and notes its folders.
    async fn next_files(&mut self, most: usize) -> Result<Vec<FileMeta>> {
        let mut going = Vec::new();
        while let Some(listing) = &mut self.listing
            && going.len() < most
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
                    // What reads as a place elsewhere is left alone.
                    Listed::Folder(folder) if is_itself(self.begun.snapshot.storage(), &folder) => {
                        self.folders.push(folder);
                    }
                    Listed::Folder(_) => {}
                }
            }
            going.extend(self.sweep.choose(&self.rule, files).await?);
        }
        Ok(going)
    }

    /// Folders divided by the files that are kept in them, as far as their hashes may travel at a time.
    fn next_folders(&mut self, tasks: usize) -> Vec<Work> {
        let names = self.rule.kept.names();
        let at_once = (HASHES_OF_A_ROUND / names.max(1)).clamp(1, tasks);
        let all: usize = self.folders.iter().map(|folder| self.weight(folder)).sum();
        let each = (all / at_once).clamp(1, HASHES_OF_A_TASK);
        let (mut works, mut hashes) = (Vec::new(), 0);
        while works.len() < tasks && hashes < HASHES_OF_A_ROUND && !self.folders.is_empty() {
            let (mut together, mut weighs) = (Vec::new(), 0);
            while weighs < each
                && let Some(folder) = self.folders.pop()
            {
                weighs += self.weight(&folder);
                together.push(folder);
            }
            hashes += weighs + names;
            let rule = self.rule.within(&together);
            works.push(Work::Sweep(together, rule));
        }
        works
    }

    /// Hashes of a folder's files, and something for listing it.
    fn weight(&self, folder: &str) -> usize {
        self.rule.kept.count_in(folder) + 100
    }

    /// Takes in what each task of the round did.
    ///
    /// # Errors
    /// `Invalid` if there is no round, or if it is not what each of them did, once. The vacuum has failed then.
    pub fn take(&mut self, results: &[impl AsRef<[u8]>]) -> Result<()> {
        let Step::Running(tasks) = self.step else {
            return Err(self.refused("no tasks are under way; ask for the next ones first"));
        };
        self.step = Step::Failed;
        let mut all: Vec<Option<TaskResult>> = std::iter::repeat_with(|| None).take(tasks).collect();
        let wrong = || Error::invalid("these are not the results of the tasks; pass what each task gave, once");
        for bytes in results {
            let result: TaskResult = unpack(RESULT, bytes.as_ref())?;
            let round = self.round();
            let place = all.get_mut(result.number).filter(|place| place.is_none() && result.round == round);
            *place.ok_or_else(wrong)? = Some(result);
        }
        let all = all.into_iter().collect::<Option<Vec<_>>>().ok_or_else(wrong)?;
        for result in all {
            let SweepResult { vacuumed, folders, failed } = &mut self.sweep.done;
            vacuumed.files_seen = vacuumed.files_seen.saturating_add(result.seen);
            vacuumed.files_deleted = vacuumed.files_deleted.saturating_add(result.deleted);
            vacuumed.bytes_deleted = vacuumed.bytes_deleted.saturating_add(result.bytes);
            vacuumed.found.extend(result.found.into_iter().map(file_of));
            *folders = folders.saturating_add(result.folders);
            failed.files = failed.files.saturating_add(result.failed);
            if let Some(failure) = result.failure {
                failed.first.get_or_insert(failure.into_error());
            }
            if let Some(failure) = result.ended
                && self.ended.is_ok()
            {
                self.ended = Err(failure.into_error());
            }
        }
        self.step = Step::Between;
        Ok(())
    }

    /// Refuses to end while tasks are missing.
    ///
    /// # Errors
    /// `Invalid` until [`DistributedVacuum::next_tasks`] gave none.
    pub fn check_all_done(&self) -> Result<()> {
        match self.step {
            Step::AllDone => Ok(()),
            Step::Failed => Err(self.refused("it failed before; begin another vacuum")),
            Step::Between | Step::Running(_) => {
                Err(self.refused("there may be more files; end when there are no tasks"))
            }
        }
    }

    /// Tells the history how it ended: that it failed, unless all was done.
    ///
    /// # Errors
    /// As [`DistributedVacuum::check_all_done`] and [`vacuum`](super::vacuum).
    pub async fn end(self, committer: &dyn Committer, with: (&dyn Ids, &dyn RetryPolicy)) -> Result<Vacuumed> {
        let ended = self.check_all_done().and(self.ended);
        self.begun.end(self.sweep.done, ended, committer, with).await
    }

    /// The id of the round under way.
    fn round(&self) -> String {
        format!("{}-{}", self.id, self.rounds)
    }

    fn refused(&self, instead: &str) -> Error {
        let message = format!("the vacuum is not at this step: {instead}");
        Error::invalid(message).in_table(self.begun.snapshot.storage().location())
    }
}
