//! The trait of committers, which make a version of a table exist, once.
//!
//! PROTOCOL.md: "Delta Log Entries".

use bytes::Bytes;
use deltic_protocol::action::lines::Lines;
use deltic_protocol::commit::TableState;
use deltic_protocol::log::segment::LogFile;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use deltic_store::{FileMeta, Put, Syncing};

/// Writes commits, each version once.
pub trait Committer: Send + Sync {
    /// Writes `version` unless it exists, when the files that it names are durable. `Unknown` if it is not known whether it was
    /// written.
    ///
    /// `syncing` is awaited whatever the answer is, since the next version is tried without it.
    ///
    /// # Errors
    /// Nothing was written then, nor will be.
    fn commit(&self, version: u64, lines: Lines, syncing: Syncing) -> BoxFuture<'_, Result<Put>>;

    /// Writes a checksum or a compacted log file, unless it exists, in a way that all writers of the table use. Checkpoints, and
    /// files that replace others, are put into the store.
    fn put_other<'a>(&'a self, name: &'a str, file: OtherLogFile) -> BoxFuture<'a, Result<Put>>;

    /// Reads `version`, `None` if it does not exist.
    fn read(&self, version: u64) -> BoxFuture<'_, Result<Option<Bytes>>>;

    /// Makes `version` durable after an unknown outcome, when it was found to exist: on a local disk the folder is synced.
    fn make_durable(&self, version: u64) -> BoxFuture<'_, Result<()>>;

    /// Whether the log goes on after `version` without that commit: there is a later commit or a checkpoint, and the commit of
    /// `version` is missing or newer than that. Then log cleanup has deleted `version`, and readers begin after it.
    fn log_continues_past(&self, version: u64) -> BoxFuture<'_, Result<bool>>;

    /// Whether the table that a writer has read is still there: the commit of `base` is the same file as before, or a log of
    /// the same table leads to one of `versions`.
    ///
    /// The default is for stores in which tables are not deleted: true.
    fn is_same_table<'a>(
        &'a self,
        _base: &'a TableState,
        _file: CommitFile,
        _versions: &'a [u64],
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(std::future::ready(Ok(true)))
    }
}

/// The content of a file of the log that is no commit.
#[derive(Debug)]
pub enum OtherLogFile {
    /// Reconciled actions of several commits.
    Compacted(Lines),
    /// What readers can do without. It is not synced: after a power cut it may be missing or incomplete.
    Hint(Bytes),
}

/// Identifies the file of a commit, so that a writer can tell whether it was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitFile {
    length: u64,
    /// When it was written, in milliseconds since the epoch.
    modified_ms: Option<i64>,
    /// By how many milliseconds the store's time may differ from that.
    clock_tolerance_ms: u64,
}

impl CommitFile {
    /// From a listing. Its time may differ by up to a second from that of a HEAD, which has whole seconds.
    pub fn listed(file: &LogFile) -> Self {
        Self { length: file.size, modified_ms: Some(file.modified_ms), clock_tolerance_ms: 1000 }
    }

    /// From a write of this process. The time is that of this process's clock before the put, so the tolerance is 5 seconds. If
    /// the store's time differs by more, each check needs another request.
    pub fn written(length: u64, at_ms: Option<i64>) -> Self {
        Self { length, modified_ms: at_ms, clock_tolerance_ms: 5000 }
    }

    /// Whether it is the file with this metadata. The length alone does not suffice: a table that was deleted and made again
    /// has commits of the same lengths.
    pub(super) fn matches(&self, meta: &FileMeta) -> bool {
        let is_time = |modified_ms: i64| modified_ms.abs_diff(meta.modified_ms) < self.clock_tolerance_ms;
        self.length == meta.size && self.modified_ms.is_some_and(is_time)
    }
}
