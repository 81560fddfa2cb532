//! Commits to a store that can refuse to overwrite: a version exists once its file is put, if absent.
//!
//! PROTOCOL.md: "Delta Log Entries".

use bytes::Bytes;
use deltic_protocol::action::lines::Lines;
use deltic_protocol::commit::TableState;
use deltic_protocol::log::name::{LogName, commit_name};
use futures::future::BoxFuture;

use super::committer::{CommitFile, Committer, OtherLogFile};
use crate::error::{Kind, Result};
use crate::log::{LogSource, log_file_path};
use crate::snapshot::Snapshot;
use deltic_store::{Body, Put, Syncing};

/// Commits by putting `_delta_log/<version>.json` if it is absent.
#[derive(Debug, Clone)]
pub struct LogCommitter {
    log: LogSource,
}

impl LogCommitter {
    /// Commits to this log.
    pub fn new(log: LogSource) -> Self {
        Self { log }
    }
}

impl Committer for LogCommitter {
    /// The files are synced while the commit is written.
    fn commit(&self, version: u64, lines: Lines, syncing: Syncing) -> BoxFuture<'_, Result<Put>> {
        let (storage, body) = (self.log.storage(), body(&lines));
        Box::pin(async move { storage.put_if_absent_after(&log_file_path(&commit_name(version)), body, syncing).await })
    }

    fn put_other<'a>(&'a self, name: &'a str, file: OtherLogFile) -> BoxFuture<'a, Result<Put>> {
        let (storage, path) = (self.log.storage(), log_file_path(name));
        Box::pin(async move {
            match file {
                OtherLogFile::Compacted(lines) => storage.put_if_absent(&path, body(&lines)).await,
                OtherLogFile::Hint(data) => storage.put_hint_if_absent(&path, data).await,
            }
        })
    }

    fn read(&self, version: u64) -> BoxFuture<'_, Result<Option<Bytes>>> {
        Box::pin(self.log.read_commit(version))
    }

    fn make_durable(&self, version: u64) -> BoxFuture<'_, Result<()>> {
        let storage = self.log.storage();
        Box::pin(async move { storage.make_durable(&log_file_path(&commit_name(version))).await })
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
        Box::pin(is_same_table(&self.log, base, file, versions))
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
    log: &LogSource,
    base: &TableState,
    file: CommitFile,
    versions: &[u64],
) -> Result<bool> {
    match log.head_commit(base.version).await {
        Ok(meta) if file.matches(&meta) => return Ok(true),
        Ok(_) => {}
        Err(e) if e.is_not_found() => {}
        Err(e) => return Err(e),
    }
    // The commit may be missing because log cleanup deleted it.
    for at in versions {
        match Snapshot::open(log, Some(*at)).await {
            Ok(snapshot) => return Ok(snapshot.metadata().id == base.metadata.id),
            Err(e) if e.is_not_found() || e.is_version_not_found() || *e.kind() == Kind::Corrupt => {}
            Err(e) if matches!(e.kind(), Kind::Unsupported { .. }) => return Ok(false),
            Err(e) => return Err(e),
        }
    }
    Ok(false)
}

/// The content of the file.
fn body(lines: &Lines) -> Body {
    Body::of(lines.len(), lines.pieces().map(|piece| piece.map(Bytes::from)))
}
