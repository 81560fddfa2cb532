//! Moves the files after the last readable version out of the log.

use std::cmp::Reverse;

use deltic_protocol::log::name::{LAST_CHECKPOINT, LOG_DIR, LogName};
use deltic_protocol::log::segment::{LogFile, Segment};

use super::contents::{changed, is_commit};
use crate::commit::{RetryPolicy, stop_if_cancelled};
use crate::error::{Error, Result};
use crate::log::log_file_path;
use crate::parallel::run_to_end;
use crate::snapshot::Snapshot;
use deltic_store::Stop;

/// The folder in the log's folder that has a folder for each recovery.
pub(super) const FOLDER: &str = "_unreadable";

/// The ending of the moved files. No client takes such a name for a file of a log, even if it lists subfolders too.
const ENDING: &str = "unreadable";

/// Files that are copied at once.
const CONCURRENT_COPIES: usize = 16;

/// By how many milliseconds the time of a file may differ from that in a listing, which may have fractions of a second.
const TIME_TOLERANCE_MS: u64 = 1000;

/// The files to be moved.
pub(crate) struct Recovery {
    /// The last readable version.
    pub(crate) snapshot: Snapshot,
    /// What is wrong, and what is done about it.
    pub(crate) message: String,
    /// The files of later versions.
    pub(super) later: Vec<LogFile>,
    /// The bytes of `_last_checkpoint`, if it is to be moved.
    pub(super) hint: Option<u64>,
    /// Names and sizes of Hadoop's checksum files of files that are moved, and of missing ones.
    pub(super) checksum_files: Vec<(String, u64)>,
}

impl Recovery {
    /// The paths of the files to be moved, in the order in which they are deleted: commits last, newest first. As long as one of
    /// them is there, the log does not end at the last readable version.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.names().into_iter().map(|(name, _)| log_file_path(&name)).collect()
    }

    /// Names and sizes of these files.
    fn names(&self) -> Vec<(String, u64)> {
        let mut later: Vec<&LogFile> = self.later.iter().collect();
        later.sort_by_key(|file| (is_commit(file), Reverse((file.name.version(), file.file_name.clone()))));
        let hint = self.hint.map(|size| (LAST_CHECKPOINT.to_owned(), size));
        let later = later.into_iter().map(|file| (file.file_name.clone(), file.size));
        hint.into_iter().chain(self.checksum_files.iter().cloned()).chain(later).collect()
    }

    /// Moves the files, and returns the folder in which they are, relative to the table. `run`: a unique name.
    ///
    /// # Errors
    /// `Conflict` if the log is not what it was when the files were found; `Interrupted` before a file is deleted; those of the
    /// store.
    pub(crate) async fn carry_out(&self, run: &str, retry: &dyn RetryPolicy) -> Result<String> {
        let folder = format!("{LOG_DIR}/{FOLDER}/{run}");
        let (stop, interrupted) = (Stop::default(), || "interrupted: nothing was moved out of the log".to_owned());
        let copied = async {
            self.check_unchanged().await?;
            let copies = self.names().into_iter().map(|(name, size)| self.copy(name, size, &folder, &stop));
            if let (_, Some(error)) = run_to_end(copies, CONCURRENT_COPIES, &stop).await {
                return Err(error);
            }
            self.check_unchanged().await
        };
        stop_if_cancelled(copied, &stop, retry, interrupted).await?;

        let storage = self.snapshot.storage();
        let is_last = |name: &str| matches!(LogName::parse(name), Some(LogName::Commit { .. }));
        let (commits, others): (Vec<_>, Vec<_>) = self.names().into_iter().partition(|(name, _)| is_last(name));
        for group in [others, commits] {
            for (name, _) in group {
                self.check_file(&name, &folder).await?;
                storage.delete(&log_file_path(&name)).await?;
            }
            // Otherwise a power cut could bring back a checksum or a compaction of a version whose commit is gone.
            self.sync().await?;
        }
        self.check_end(&folder).await?;
        Ok(folder)
    }

    /// Copies a file to the folder.
    async fn copy(&self, name: String, size: u64, folder: &str, stop: &Stop) -> Result<()> {
        let storage = self.snapshot.storage();
        let (from, to) = (log_file_path(&name), format!("{folder}/{name}.{ENDING}"));
        let copied = storage.copy_unless_stopped(storage, &from, &to, size, stop).await;
        copied.map_err(|e| match e.is_not_found() || e.is_corrupt() {
            true => changed(None).in_file(&from).caused_by(e),
            false => e,
        })?;
        match storage.head(&to).await?.size == size {
            true => Ok(()),
            false => Err(Error::storage(true, "the store has not copied the whole file").in_file(to)),
        }
    }

    /// Checks that the log has the files of the last readable version, and of later versions exactly those that were found.
    async fn check_unchanged(&self) -> Result<()> {
        let now = self.snapshot.log().list(0).await?;
        let (later, earlier): (Vec<_>, Vec<_>) =
            now.iter().partition(|file| file.name.version() > self.snapshot.version());
        let segment = self.snapshot.segment();
        let checkpoint = segment.checkpoint.iter().flat_map(|checkpoint| &checkpoint.files);
        let is_kept = checkpoint.chain(&segment.tail).all(|file| earlier.contains(&file));
        match is_kept && later.into_iter().eq(&self.later) {
            true => Ok(()),
            false => Err(changed(None)),
        }
    }

    /// Checks, right before a file is deleted, that it is the one that was copied.
    async fn check_file(&self, name: &str, folder: &str) -> Result<()> {
        let Some(planned) = self.later.iter().find(|file| file.file_name == name) else { return Ok(()) };
        let path = log_file_path(name);
        match self.snapshot.storage().head(&path).await {
            Ok(now)
                if now.size == planned.size && now.modified_ms.abs_diff(planned.modified_ms) <= TIME_TOLERANCE_MS =>
            {
                Ok(())
            }
            Ok(_) => Err(changed(Some(folder)).in_file(path)),
            Err(e) if e.is_not_found() => Err(changed(Some(folder)).in_file(path)),
            Err(e) => Err(e),
        }
    }

    /// Makes the deletions durable.
    async fn sync(&self) -> Result<()> {
        let segment = self.snapshot.segment();
        let checkpoint = segment.checkpoint.iter().flat_map(|checkpoint| &checkpoint.files);
        // Any file of the folder will do.
        let Some(kept) = checkpoint.chain(&segment.tail).next().map(|file| log_file_path(&file.file_name)) else {
            return Ok(());
        };
        self.snapshot.storage().make_durable(&kept).await
    }

    /// Checks that the log now ends at a version that can be read, and not after a commit that was made meanwhile.
    async fn check_end(&self, folder: &str) -> Result<()> {
        let now = self.snapshot.log().list(0).await?;
        match Segment::choose(&now, None, true) {
            Ok(_) => Ok(()),
            Err(e) => Err(changed(Some(folder)).caused_by(e)),
        }
    }
}
