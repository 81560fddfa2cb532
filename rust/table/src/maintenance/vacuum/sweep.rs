//! Decides which files are deleted, in a local vacuum and in tasks, and deletes them.

use deltic_protocol::replay::retention::{Retention, is_before_cutoff};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::candidates::{Folders, Listing, partitions};
use super::nested_tables::NestedTables;
use super::options::Vacuumed;
use super::retained_files::RetainedFiles;
use crate::error::{Error, Result};
use crate::progress::{Progress, Unit};
use crate::snapshot::Snapshot;
use deltic_store::{FileMeta, Stop, Storage};

/// The maximum number of files of one deletion.
const MAX_FILES_PER_DELETE: usize = 1000;
/// Deletions that run at once, while the next files are listed.
const CONCURRENT_DELETES: usize = 16;

/// Decides which files are deleted: those modified before the cutoff, in milliseconds since 1970, that are not retained.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Rule {
    cutoff_ms: i64,
    /// Partition columns whose folder names begin with `_` or `.`, as those of hidden folders do.
    partitions: Vec<String>,
    pub(super) retained: RetainedFiles,
}

impl Rule {
    /// `salt` of the hashes is secret, so that no writer can choose names that collide.
    pub(super) async fn of(snapshot: &Snapshot, retention: Retention, salt: String) -> Result<Self> {
        let retained = RetainedFiles::of(snapshot, retention, salt).await?;
        Ok(Self { cutoff_ms: retention.cutoff_ms, partitions: partitions(snapshot), retained })
    }

    /// The rule for files in these top-level directories.
    pub(super) fn within(&self, folders: &[String]) -> Self {
        let (cutoff_ms, partitions) = (self.cutoff_ms, self.partitions.clone());
        Self { cutoff_ms, partitions, retained: self.retained.within(folders) }
    }
}

/// What the sweep has done so far.
#[derive(Debug, Default)]
pub(super) struct SweepResult {
    pub(super) vacuumed: Vacuumed,
    pub(super) folders: u64,
    pub(super) failed: Failures,
}

/// Chooses and deletes files, and counts them.
pub(super) struct Sweep {
    storage: Storage,
    folders: Folders,
    /// `None` if all files are known to belong to this table.
    nested_tables: Option<NestedTables>,
    /// Whether files are only reported, not deleted.
    dry_run: bool,
    done: SweepResult,
    /// Requested when no more files are to be deleted.
    stop: Stop,
}

impl Sweep {
    pub(super) fn new(storage: Storage, rule: &Rule, dry_run: bool) -> Self {
        Self::with(storage, rule.partitions.clone(), dry_run)
    }

    /// `partitions`: columns whose directories may begin with `_` or `.`, as hidden ones do.
    pub(super) fn with(storage: Storage, partitions: Vec<String>, dry_run: bool) -> Self {
        let (folders, nested_tables) = (Folders::with(partitions), Some(NestedTables::default()));
        Self { storage, folders, nested_tables, dry_run, done: SweepResult::default(), stop: Stop::default() }
    }

    /// Does not look for other tables in the directories of the files: files from the table's log belong to this table.
    pub(super) fn skip_nested_table_check(&mut self) {
        self.nested_tables = None;
    }

    /// Asks [`Sweep::run`] to stop.
    pub(super) fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// The results so far.
    pub(super) fn into_done(self) -> SweepResult {
        let mut done = self.done;
        done.vacuumed.nested_tables.extend(self.nested_tables.map(NestedTables::into_paths).unwrap_or_default());
        done.vacuumed.nested_tables.sort_unstable();
        done.vacuumed.nested_tables.dedup();
        done
    }

    /// Adds the results of a task.
    pub(super) fn add_done(&mut self, other: SweepResult) {
        let (ours, theirs) = (&mut self.done.vacuumed, other.vacuumed);
        ours.files_seen = ours.files_seen.saturating_add(theirs.files_seen);
        ours.files_deleted = ours.files_deleted.saturating_add(theirs.files_deleted);
        ours.bytes_deleted = ours.bytes_deleted.saturating_add(theirs.bytes_deleted);
        ours.found.extend(theirs.found);
        ours.nested_tables.extend(theirs.nested_tables);
        self.done.folders = self.done.folders.saturating_add(other.folders);
        self.done.failed.add(other.failed);
    }

    /// Deletes files by the rule while the next ones are listed. It continues when a file cannot be deleted. When the listing
    /// fails, or it is asked to stop, it first waits for the deletions that were started.
    pub(super) async fn run(&mut self, rule: &Rule, listing: Listing) -> Result<()> {
        let progress = Progress::begin("VACUUM", Unit::Files, None);
        let mut pages = std::pin::pin!(self.stop.guard(listing).chunks(MAX_FILES_PER_DELETE));
        let mut deletions = JoinSet::new();
        let listed = async {
            while let Some(page) = pages.next().await {
                progress.advance(page.len() as u64);
                let files = self.choose(rule, page.into_iter().collect::<Result<Vec<_>>>()?).await?;
                if files.is_empty() {
                    continue;
                }
                if deletions.len() == CONCURRENT_DELETES {
                    self.end_a_deletion(&mut deletions).await?;
                }
                deletions.spawn(Deleted::of(self.storage.clone(), files));
            }
            Ok(())
        };
        let mut ended = listed.await;
        while !deletions.is_empty() {
            ended = ended.and(self.end_a_deletion(&mut deletions).await);
        }
        ended
    }

    async fn end_a_deletion(&mut self, deletions: &mut JoinSet<Deleted>) -> Result<()> {
        match deletions.join_next().await {
            Some(Ok(deleted)) => self.add(deleted),
            Some(Err(error)) => return Err(Error::internal("a task that deletes files did not end").caused_by(error)),
            None => {}
        }
        Ok(())
    }

    /// The files to delete. A dry run reports them instead, and returns none.
    pub(super) async fn choose(&mut self, rule: &Rule, page: Vec<FileMeta>) -> Result<Vec<FileMeta>> {
        let (mut chosen, mut entered) = (Vec::new(), Vec::new());
        for file in page {
            self.done.vacuumed.files_seen += 1;
            if let Some(folder) = self.folders.enter(&file.path) {
                self.done.folders += 1;
                if folder.is_empty() || is_itself(&self.storage, &folder) {
                    entered.push(format!("{folder}/"));
                }
            }
            // A listed path that the store would resolve to another location, such as `file:/x`, cannot be deleted.
            let is_deletable = is_before_cutoff(file.modified_ms, rule.cutoff_ms)
                && is_itself(&self.storage, &file.path)
                && self.folders.may_hold_data(&file.path)
                && !rule.retained.contains(&file.path);
            if is_deletable {
                chosen.push(file);
            }
        }
        if let Some(nested) = &mut self.nested_tables {
            // Only a disk has unfinished files.
            let folders = entered.iter().filter(|_| self.storage.is_local());
            let paths = chosen.iter().map(|file: &FileMeta| &file.path).chain(folders);
            nested.check(&self.storage, &self.folders, paths.map(String::as_str)).await?;
            chosen.retain(|file| !nested.contain(&file.path));
            entered.retain(|folder| !nested.contain(folder));
        }
        if !self.dry_run {
            for folder in entered {
                self.storage.delete_unfinished(folder.trim_end_matches('/'), rule.cutoff_ms).await?;
            }
        } else {
            chosen.iter().for_each(|file| self.count(1, file.size));
            self.done.vacuumed.found.append(&mut chosen);
        }
        Ok(chosen)
    }

    /// Deletes files that [`Sweep::choose`] returned.
    pub(super) async fn delete(&mut self, files: Vec<FileMeta>) {
        let deleted = Deleted::of(self.storage.clone(), files).await;
        self.add(deleted);
    }

    fn add(&mut self, deleted: Deleted) {
        self.count(deleted.files, deleted.bytes);
        self.done.failed.add(deleted.failed);
    }

    fn count(&mut self, files: u64, bytes: u64) {
        let vacuumed = &mut self.done.vacuumed;
        vacuumed.files_deleted += files;
        vacuumed.bytes_deleted = vacuumed.bytes_deleted.saturating_add(bytes);
    }
}

/// How many files were deleted, their bytes, and those that could not be.
#[derive(Debug, Default)]
struct Deleted {
    files: u64,
    bytes: u64,
    failed: Failures,
}

impl Deleted {
    async fn of(storage: Storage, files: Vec<FileMeta>) -> Self {
        let mut deleted = Self::default();
        let paths: Vec<String> = files.iter().map(|file| file.path.clone()).collect();
        for (file, outcome) in files.iter().zip(storage.delete_many(&paths).await) {
            match outcome {
                Ok(()) => {
                    deleted.files += 1;
                    deleted.bytes = deleted.bytes.saturating_add(file.size);
                }
                Err(error) => deleted.failed.push(error),
            }
        }
        deleted
    }
}

/// Whether the store resolves a path to exactly this path below the root.
pub(super) fn is_itself(storage: &Storage, path: &str) -> bool {
    storage.below_root(path).is_some_and(|resolved| resolved == path)
}

/// Files that could not be deleted.
#[derive(Debug, Default)]
pub(super) struct Failures {
    pub(super) files: u64,
    pub(super) first: Option<Error>,
}

impl Failures {
    fn push(&mut self, error: Error) {
        self.files += 1;
        self.first.get_or_insert(error);
    }

    fn add(&mut self, other: Self) {
        self.files += other.files;
        self.first = self.first.take().or(other.first);
    }

    pub(super) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    pub(super) fn into_result(self) -> Result<()> {
        let Some(first) = self.first else { return Ok(()) };
        let message = format!("files that could not be deleted: {}; the others were deleted. Run it again", self.files);
        Err(Error::new(first.kind().clone(), message).caused_by(first))
    }
}
