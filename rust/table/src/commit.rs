//! Where a commit is decided.
//!
//! A [`Committer`] makes one version exist, once. What to do when it already exists, or when nobody knows, is the
//! transaction's business. Catalogs that decide commits themselves will come in through this door.
//!
//! Invariant: a version that exists is never deleted here, whatever is found out about it afterwards: another writer may
//! have built on it. There is no method that could (`simulation::a_commit_that_is_taken_back_is_noticed`).
//!
//! PROTOCOL.md: "Delta Log Entries": a version must never be overwritten.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use deltic_protocol::action::lines::Lines;
use deltic_protocol::commit::TableState;
use deltic_protocol::log::name::{LogName, commit_name};
use deltic_protocol::log::segment::LogFile;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::error::{Kind, Result};
use crate::log_reader::{self, log_path};
use crate::snapshot::Snapshot;
use crate::storage::{Body, FileMeta, Put, Storage, Syncing};

/// Makes versions exist.
pub trait Committer: Send + Sync {
    /// Writes `version` unless it exists. `Unknown` if nobody can say whether it was written.
    fn commit(&self, version: u64, lines: Lines) -> BoxFuture<'_, Result<Put>>;

    /// Reads `version`, `None` if it does not exist.
    fn read(&self, version: u64) -> BoxFuture<'_, Result<Option<Bytes>>>;

    /// Makes sure that `version`, which was found where nobody knew whether it would be, stays there.
    fn settle(&self, version: u64) -> BoxFuture<'_, Result<()>>;

    /// Whether the log has gone on past `version`: there are later files, which are older than its commit if that is there.
    /// Then the log was cleaned, and no reader looks at `version`.
    fn is_passed(&self, version: u64) -> BoxFuture<'_, Result<bool>>;

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
    fn is(&self, there: &FileMeta) -> bool {
        let is_time = |modified_ms: i64| modified_ms.abs_diff(there.modified_ms) < self.within_ms;
        self.length == there.size && self.modified_ms.is_some_and(is_time)
    }
}

/// Commits by putting `_delta_log/<version>.json` if it is absent.
#[derive(Debug, Clone)]
pub struct LogCommitter {
    storage: Storage,
    /// What the first commit waits for.
    before: Arc<Mutex<Syncing>>,
}

impl LogCommitter {
    /// Commits to the log of the table at `storage`.
    pub fn new(storage: Storage) -> Self {
        Self { storage, before: Arc::default() }
    }

    /// Lets the next commit exist only when the files that it names would survive a power cut. They are synced while the
    /// commit is written.
    #[must_use]
    pub fn after(self, files: Syncing) -> Self {
        self.before.lock().unwrap_or_else(PoisonError::into_inner).extend(files);
        self
    }
}

impl Committer for LogCommitter {
    fn commit(&self, version: u64, lines: Lines) -> BoxFuture<'_, Result<Put>> {
        let pieces = lines.pieces().map(|piece| piece.map(Bytes::from));
        let body = Body::of(lines.len(), pieces);
        let before = std::mem::take(&mut *self.before.lock().unwrap_or_else(PoisonError::into_inner));
        Box::pin(async move { self.storage.put_if_absent_after(&log_path(&commit_name(version)), body, before).await })
    }

    fn read(&self, version: u64) -> BoxFuture<'_, Result<Option<Bytes>>> {
        Box::pin(async move {
            match self.storage.get(&log_path(&commit_name(version))).await {
                Ok(lines) => Ok(Some(lines)),
                Err(e) if e.is_not_found() => Ok(None),
                Err(e) => Err(e),
            }
        })
    }

    fn settle(&self, version: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.storage.settle(&log_path(&commit_name(version))).await })
    }

    fn is_passed(&self, version: u64) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let listing = log_reader::list(&self.storage, version).await?;
            let own = listing.iter().find(|file| file.name == LogName::Commit { version });
            let is_later = |name: &LogName| name.version() > version || name.is_checkpoint();
            // Who follows a commit has seen it, and is no older.
            let is_older = |modified_ms: i64| own.is_none_or(|own| modified_ms < own.modified_ms);
            Ok(listing.iter().any(|file| is_later(&file.name) && is_older(file.modified_ms)))
        })
    }

    fn is_same_table<'a>(
        &'a self,
        (base, known): (&'a TableState, CommitFile),
        versions: &'a [u64],
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            match self.storage.head(&log_path(&commit_name(base.version))).await {
                Ok(file) if known.is(&file) => return Ok(true),
                Ok(_) => {}
                Err(e) if e.is_not_found() => {}
                Err(e) => return Err(e),
            }
            // The log of the same table may have been cleaned meanwhile.
            for at in versions {
                match Snapshot::open(&self.storage, Some(*at)).await {
                    Ok(snapshot) => return Ok(snapshot.metadata().id == base.metadata.id),
                    Err(e) if e.is_not_found() || e.is_version_not_found() || *e.kind() == Kind::Corrupt => {}
                    Err(e) if matches!(e.kind(), Kind::Unsupported { .. }) => return Ok(false),
                    Err(e) => return Err(e),
                }
            }
            Ok(false)
        })
    }
}

/// Commits to memory, for simulations.
#[derive(Debug, Default)]
pub struct MemoryCommitter {
    versions: Mutex<BTreeMap<u64, Bytes>>,
}

impl MemoryCommitter {
    /// All versions, ascending.
    pub fn versions(&self) -> BTreeMap<u64, Bytes> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Committer for MemoryCommitter {
    fn commit(&self, version: u64, lines: Lines) -> BoxFuture<'_, Result<Put>> {
        let lines = match lines.to_bytes() {
            Ok(lines) => Bytes::from(lines),
            Err(e) => return Box::pin(std::future::ready(Err(e))),
        };
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        let put = match versions.entry(version) {
            std::collections::btree_map::Entry::Occupied(_) => Put::Exists,
            std::collections::btree_map::Entry::Vacant(slot) => {
                slot.insert(lines);
                Put::Created
            }
        };
        Box::pin(std::future::ready(Ok(put)))
    }

    fn read(&self, version: u64) -> BoxFuture<'_, Result<Option<Bytes>>> {
        let lines = self.versions.lock().unwrap_or_else(PoisonError::into_inner).get(&version).cloned();
        Box::pin(std::future::ready(Ok(lines)))
    }

    fn settle(&self, _version: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn is_passed(&self, _version: u64) -> BoxFuture<'_, Result<bool>> {
        Box::pin(std::future::ready(Ok(false)))
    }
}
