//! Where a commit is decided.
//!
//! A [`Committer`] makes one version exist, once. What to do when it already exists, or when nobody knows, is the
//! transaction's business. Catalogs that decide commits themselves will come in through this door.
//!
//! PROTOCOL.md: "Delta Log Entries": a version must never be overwritten.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use deltic_protocol::action::lines::Lines;
use deltic_protocol::log::name::commit_name;
use futures::future::BoxFuture;

use crate::error::Result;
use crate::log_reader::log_path;
use crate::storage::{Body, Put, Storage, Syncing};

/// Makes versions exist.
pub trait Committer: Send + Sync {
    /// Writes `version` unless it exists. `Unknown` if nobody can say whether it was written.
    fn commit(&self, version: u64, lines: Lines) -> BoxFuture<'_, Result<Put>>;

    /// Reads `version`, `None` if it does not exist.
    fn read(&self, version: u64) -> BoxFuture<'_, Result<Option<Bytes>>>;
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
}
