//! Reads a table's log: the files of `_delta_log`, and commits that DynamoDB has and that are not there yet.
//!
//! `deltic_protocol::log` interprets the files; this module only fetches them. A snapshot takes one LIST from the
//! version of the hint on; a wrong hint costs one more LIST from the beginning.
//!
//! PROTOCOL.md: "Delta Log Entries", "Last Checkpoint File".

use std::collections::HashMap;

use bytes::Bytes;
use deltic_protocol::action::json::{CommitActions, CommitBatch, Wanted};
use deltic_protocol::log::hint::LastCheckpoint;
use deltic_protocol::log::listing;
use deltic_protocol::log::name::{LAST_CHECKPOINT, LOG_DIR, SIDECARS_DIR, commit_name, version_prefix};
use deltic_protocol::log::segment::{LogFile, Segment};
use futures::stream::Stream;

use super::absent;
use super::claimed::ClaimedCommits;
use super::path::log_file_path;
use super::reader::{self, Loaded};
use crate::error::{Error, Result};
use crate::parallel::try_compute;
use deltic_store::{FileMeta, Storage};

/// The log of one table: lists it and reads files. `reader` fetches many files at once.
#[derive(Debug, Clone)]
pub struct LogSource {
    storage: Storage,
    /// If commits are made by DynamoDB: those that it has and the log may not have yet.
    claimed: Option<ClaimedCommits>,
}

impl LogSource {
    /// The log of the table at `storage`.
    pub fn of(storage: &Storage) -> Self {
        Self { storage: storage.clone(), claimed: ClaimedCommits::of(storage) }
    }

    /// Where the table is. Parquet files of checkpoints are read from there, and all files are written there but those that
    /// the committer writes.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The location of the table.
    pub fn location(&self) -> &str {
        self.storage.location()
    }

    /// The commits that DynamoDB has, if it makes the commits of this table.
    pub(crate) fn claimed(&self) -> Option<&ClaimedCommits> {
        self.claimed.as_ref()
    }

    /// All log files from `version` on. A missing folder is an empty log.
    ///
    /// Takes one LIST, and one more if the first has a gap: it may have missed a commit that was made meanwhile.
    pub async fn list(&self, version: u64) -> Result<Vec<LogFile>> {
        let found = self.list_once(version).await?;
        match listing::gap(&found) {
            Some(gap) => Ok(listing::fill_gap(found, self.list_once(gap.first).await?, gap.newest)),
            None => Ok(found),
        }
    }

    async fn list_once(&self, version: u64) -> Result<Vec<LogFile>> {
        if let Some(claimed) = &self.claimed {
            claimed.finish_newest().await?;
        }
        let found = self.storage.list_from(LOG_DIR, &version_prefix(version)).await?;
        let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        Ok(found.iter().filter_map(|f| LogFile::parse(&name(&f.path), f.size, f.modified_ms)).collect())
    }

    /// All files in the log's folder, whatever they are.
    pub(crate) async fn list_everything(&self) -> Result<Vec<FileMeta>> {
        self.storage.list_from(LOG_DIR, "").await
    }

    /// Some of the files in a folder of the log, such as that of staged commits; none if it is empty or missing.
    pub(crate) async fn list_some(&self, folder: &str) -> Result<Vec<FileMeta>> {
        self.storage.list_some(&format!("{LOG_DIR}/{folder}")).await
    }

    /// The sidecar files of checkpoints.
    pub async fn list_sidecars(&self) -> Result<Vec<FileMeta>> {
        self.storage.list_from(&format!("{LOG_DIR}/{SIDECARS_DIR}"), "").await
    }

    /// A file of the log, by its name.
    pub async fn read(&self, file_name: &str) -> Result<Bytes> {
        let path = log_file_path(file_name);
        match (self.storage.get(&path).await, &self.claimed) {
            // It may be committed without the file, if its writer died before copying it.
            (Err(error), Some(claimed)) if error.is_not_found() => match claimed.finish_commit(file_name).await? {
                true => self.storage.get(&path).await,
                false => Err(error),
            },
            (read, _) => read,
        }
    }

    /// The first `bytes` bytes of a listed file, which is larger.
    pub async fn read_head(&self, file: &LogFile, bytes: u64) -> Result<Bytes> {
        self.storage.get_range(&log_file_path(&file.file_name), 0..bytes).await
    }

    /// All actions of a listed commit, parsed on a worker thread.
    ///
    /// # Errors
    /// `Corrupt` for content that is not a commit, and those of the store, with file and version.
    pub async fn load_commit(&self, file: &LogFile) -> Result<CommitActions> {
        let with_context = |e: Error| e.in_file(log_file_path(&file.file_name)).at_version(file.name.version());
        let bytes = self.read(&file.file_name).await.map_err(with_context)?;
        let file = file.clone();
        let parse = move || reader::parse_file(&file, &bytes, Wanted::All);
        try_compute(parse, |e| Error::internal("parsing a commit failed").caused_by(e)).await
    }

    /// The file of a commit, without its content.
    pub async fn head_commit(&self, version: u64) -> Result<FileMeta> {
        self.storage.head(&log_file_path(&commit_name(version))).await
    }

    /// The commit of a version, `None` if there is none.
    pub async fn read_commit(&self, version: u64) -> Result<Option<Bytes>> {
        match self.read(&commit_name(version)).await {
            Ok(lines) => Ok(Some(lines)),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The checkpoint that `_last_checkpoint` names. It is only a hint: none if the file is missing or invalid.
    pub async fn last_checkpoint(&self) -> Option<LastCheckpoint> {
        LastCheckpoint::parse(&self.read(LAST_CHECKPOINT).await.ok()?).ok()
    }

    /// The files that define `target`, or the newest version.
    pub async fn segment(&self, target: Option<u64>) -> Result<Segment> {
        let in_table = |e: Error| e.in_table(self.storage.location());
        let hint = self.last_checkpoint().await.map(|h| h.version);
        let hinted = hint.filter(|v| target.is_none_or(|target| *v <= target));
        if let Some(version) = hinted {
            let listing = self.list(version).await.map_err(in_table)?;
            // A hint may be stale or wrong: it is used only if it leads to a segment that begins with its checkpoint.
            if let Ok(segment) = Segment::choose(&listing, target, true)
                && segment.checkpoint_version() >= Some(version)
            {
                return Ok(segment);
            }
        }
        let listing = self.list(0).await.map_err(in_table)?;
        Segment::choose(&listing, target, true).map_err(in_table)
    }

    /// Fetches and parses listed commits, in the given order; those whose content is in `known`, by file
    /// name, are not fetched. File actions are not parsed.
    ///
    /// Unlike [`LogSource::read`], this does not look for claimed commits: [`LogSource::list`] has finished the newest one, so
    /// that listed files are in the log folder.
    pub fn load(
        &self,
        files: Vec<LogFile>,
        known: HashMap<String, Bytes>,
    ) -> impl Stream<Item = Result<Loaded>> + use<> {
        reader::load(&self.storage, files, known)
    }

    /// As [`LogSource::load`], but with all actions; the file actions of several commits are in the same columns.
    pub fn load_whole(
        &self,
        files: Vec<LogFile>,
        known: HashMap<String, Bytes>,
    ) -> impl Stream<Item = Result<CommitBatch>> + use<> {
        reader::load_whole(&self.storage, files, known)
    }

    /// The error for a log without a version, extended by what is at the location.
    pub(crate) async fn explain(&self, error: Error) -> Error {
        absent::explain(&self.storage, error).await
    }
}
