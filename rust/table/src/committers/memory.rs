//! Commits to memory, for tests.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use deltic_protocol::action::lines::Lines;
use futures::future::BoxFuture;

use super::committer::{Committer, OtherLogFile};
use crate::error::Result;
use deltic_store::{Put, Syncing};

/// Commits to memory, for tests.
#[derive(Debug, Default)]
pub struct MemoryCommitter {
    versions: Mutex<BTreeMap<u64, Bytes>>,
    others: Mutex<BTreeMap<String, Bytes>>,
}

impl MemoryCommitter {
    /// All versions, ascending.
    pub fn versions(&self) -> BTreeMap<u64, Bytes> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Committer for MemoryCommitter {
    fn commit(&self, version: u64, lines: Lines, syncing: Syncing) -> BoxFuture<'_, Result<Put>> {
        Box::pin(async move {
            syncing.wait().await?;
            let lines = Bytes::from(lines.to_bytes()?);
            Ok(put(&mut self.versions.lock().unwrap_or_else(PoisonError::into_inner), version, lines))
        })
    }

    fn put_other<'a>(&'a self, name: &'a str, file: OtherLogFile) -> BoxFuture<'a, Result<Put>> {
        Box::pin(async move {
            let content = match file {
                OtherLogFile::Compacted(lines) => Bytes::from(lines.to_bytes()?),
                OtherLogFile::Hint(data) => data,
            };
            let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(put(&mut others, name.to_owned(), content))
        })
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

fn put<K: Ord>(files: &mut BTreeMap<K, Bytes>, name: K, content: Bytes) -> Put {
    match files.entry(name) {
        Entry::Occupied(_) => Put::Exists,
        Entry::Vacant(free) => {
            free.insert(content);
            Put::Created
        }
    }
}
