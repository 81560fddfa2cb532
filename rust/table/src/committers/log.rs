//! Commits to a store that can refuse to overwrite: a version exists once its file is put, if absent.
//!
//! PROTOCOL.md: "Delta Log Entries".

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use deltic_protocol::action::lines::Lines;
use deltic_protocol::commit::TableState;
use deltic_protocol::log::name::{LogName, commit_name};
use futures::future::BoxFuture;

use super::committer::{CommitFile, Committer, body};
use crate::error::{Kind, Result};
use crate::log::{LogSource, log_file_path};
use crate::snapshot::Snapshot;
use deltic_store::{Put, Storage, Syncing};

/// Commits by putting `_delta_log/<version>.json` if it is absent.
#[derive(Debug, Clone)]
pub struct LogCommitter {
    storage: Storage,
    log: LogSource,
    /// What the first commit waits for.
    before: Arc<Mutex<Syncing>>,
}

impl LogCommitter {
    /// Commits to the log of the table at `storage`.
    pub fn new(storage: Storage) -> Self {
        Self { log: LogSource::of(&storage), storage, before: Arc::default() }
    }

    /// Delays the next commit until the files that it names are durable. They are synced while the
    /// commit is written.
    #[must_use]
    pub fn after(self, files: Syncing) -> Self {
        self.before.lock().unwrap_or_else(PoisonError::into_inner).extend(files);
        self
    }
}

impl Committer for LogCommitter {
    fn commit(&self, version: u64, lines: Lines) -> BoxFuture<'_, Result<Put>> {
        let body = body(&lines);
        let before = std::mem::take(&mut *self.before.lock().unwrap_or_else(PoisonError::into_inner));
        Box::pin(
            async move { self.storage.put_if_absent_after(&log_file_path(&commit_name(version)), body, before).await },
        )
    }

    fn read(&self, version: u64) -> BoxFuture<'_, Result<Option<Bytes>>> {
        Box::pin(self.log.read_commit(version))
    }

    fn make_durable(&self, version: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.storage.make_durable(&log_file_path(&commit_name(version))).await })
    }

    fn log_continues_past(&self, version: u64) -> BoxFuture<'_, Result<bool>> {
        Box::pin(log_continues_past(&self.log, version))
    }

    fn is_same_table<'a>(
        &'a self,
        base: &'a TableState,
        file: CommitFile,
        versions: &'a [u64],
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(is_same_table(&self.storage, base, file, versions))
    }
}

/// [`Committer::log_continues_past`] where commits are files of the log.
pub(super) async fn log_continues_past(log: &LogSource, version: u64) -> Result<bool> {
    let listing = log.list(version).await?;
    let own = listing.iter().find(|file| file.name == LogName::Commit { version });
    let is_later = |name: &LogName| name.version() > version || name.is_checkpoint();
    // A commit or checkpoint that was made after a commit is not older than it.
    let is_older = |modified_ms: i64| own.is_none_or(|own| modified_ms < own.modified_ms);
    Ok(listing.iter().any(|file| is_later(&file.name) && is_older(file.modified_ms)))
}

/// [`Committer::is_same_table`] where commits are files of the log.
pub(super) async fn is_same_table(
    storage: &Storage,
    base: &TableState,
    file: CommitFile,
    versions: &[u64],
) -> Result<bool> {
    match storage.head(&log_file_path(&commit_name(base.version))).await {
        Ok(meta) if file.matches(&meta) => return Ok(true),
        Ok(_) => {}
        Err(e) if e.is_not_found() => {}
        Err(e) => return Err(e),
    }
    // The commit may be missing because log cleanup deleted it.
    for at in versions {
        match Snapshot::open(storage, Some(*at)).await {
            Ok(snapshot) => return Ok(snapshot.metadata().id == base.metadata.id),
            Err(e) if e.is_not_found() || e.is_version_not_found() || *e.kind() == Kind::Corrupt => {}
            Err(e) if matches!(e.kind(), Kind::Unsupported { .. }) => return Ok(false),
            Err(e) => return Err(e),
        }
    }
    Ok(false)
}
