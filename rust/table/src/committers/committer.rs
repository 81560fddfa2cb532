//! What a committer is: the place where one version of a table is made to exist, once.
//!
//! PROTOCOL.md: "Delta Log Entries".

use bytes::Bytes;
use deltic_protocol::action::lines::Lines;
use deltic_protocol::commit::TableState;
use deltic_protocol::log::segment::LogFile;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use deltic_store::{Body, FileMeta, Put};

/// Writes commits, each version once.
pub trait Committer: Send + Sync {
    /// Writes `version` unless it exists. `Unknown` if it is not known whether it was written.
    fn commit(&self, version: u64, lines: Lines) -> BoxFuture<'_, Result<Put>>;

    /// Reads `version`, `None` if it does not exist.
    fn read(&self, version: u64) -> BoxFuture<'_, Result<Option<Bytes>>>;

    /// Makes `version` durable, which was found after an unknown outcome: a local disk syncs the folder.
    fn make_durable(&self, version: u64) -> BoxFuture<'_, Result<()>>;

    /// Whether the log continues past `version` without it: there is a later commit or a checkpoint, and the commit of
    /// `version` is missing or newer than that. Then log cleanup deleted `version` before, and readers begin after it.
    fn log_continues_past(&self, version: u64) -> BoxFuture<'_, Result<bool>>;

    /// Whether the table that a writer remembers is still there: the commit of `base` is the file that it was, or a log of
    /// the same table leads to one of `versions`.
    ///
    /// Where tables are not deleted there is nothing to look for.
    fn is_same_table<'a>(
        &'a self,
        (_base, _file): (&'a TableState, CommitFile),
        _versions: &'a [u64],
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(std::future::ready(Ok(true)))
    }
}

/// The file of a commit, by which it is known again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitFile {
    length: u64,
    /// When it was written, in milliseconds since the epoch.
    modified_ms: Option<i64>,
    /// How far from that the store may say it was.
    within_ms: u64,
}

impl CommitFile {
    /// As a listing has it, which may tell fractions of a second that a look at the file does not.
    pub fn listed(file: &LogFile) -> Self {
        Self { length: file.size, modified_ms: Some(file.modified_ms), within_ms: 1000 }
    }

    /// As its writer knows it: by another clock than the store's, and before it was sent. Where that is too far off, more is
    /// asked of the store each time.
    pub fn written(length: u64, at_ms: Option<i64>) -> Self {
        Self { length, modified_ms: at_ms, within_ms: 5000 }
    }

    /// The length alone does not tell: tables that are made anew as they were have commits of the same lengths.
    pub(super) fn is(&self, there: &FileMeta) -> bool {
        let is_time = |modified_ms: i64| modified_ms.abs_diff(there.modified_ms) < self.within_ms;
        self.length == there.size && self.modified_ms.is_some_and(is_time)
    }
}

/// The lines as a file.
pub(super) fn body(lines: &Lines) -> Body {
    Body::of(lines.len(), lines.pieces().map(|piece| piece.map(Bytes::from)))
}
