//! Commits to memory, for tests.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use deltic_protocol::action::lines::Lines;
use futures::future::BoxFuture;

use super::committer::Committer;
use crate::error::Result;
use deltic_store::Put;

/// Commits to memory, for tests.
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

    fn make_durable(&self, _version: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn log_continues_past(&self, _version: u64) -> BoxFuture<'_, Result<bool>> {
        Box::pin(std::future::ready(Ok(false)))
    }
}
