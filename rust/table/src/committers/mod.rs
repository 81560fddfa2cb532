//! Committers: what makes a version of a table exist.
//!
//! A [`Committer`] makes one version exist, once. What happens if it exists already, or if that is not known, is up to
//! the commit loop. [`for_table`] chooses the one for a table. Catalogs that decide commits themselves would belong here,
//! and commits that they have not published in [`LogSource`](crate::log::LogSource).
//!
//! Invariant: a version that exists is never deleted here, whatever happens afterwards: another writer may
//! have built on it. There is no method that could (`simulation::deleting_a_visible_commit_is_detected`).
//!
//! PROTOCOL.md: "Delta Log Entries": a version must never be overwritten.

use std::sync::Arc;

use bytes::Bytes;
use deltic_protocol::action::lines::Lines;

use crate::error::Result;
use crate::log::log_file_path;
use deltic_store::{Put, Storage, Syncing};

mod committer;
mod dynamodb;
mod log;
mod memory;

use committer::body;
pub use committer::{CommitFile, Committer};
pub use dynamodb::DynamoDbCommitter;
pub use log::LogCommitter;
pub use memory::MemoryCommitter;

/// The committer of the table at `storage`.
pub fn for_table(storage: &Storage) -> Arc<dyn Committer> {
    for_table_after(storage, Syncing::default())
}

/// The committer of the table at `storage`. Its next commit waits until `files`, which it names, are durable.
pub fn for_table_after(storage: &Storage, files: Syncing) -> Arc<dyn Committer> {
    match DynamoDbCommitter::of(storage) {
        Some(committer) => Arc::new(committer.after(files)),
        None => Arc::new(LogCommitter::new(storage.clone()).after(files)),
    }
}

/// Writes a file of the log other than a commit, if it does not exist, in the same way as commits are written.
pub(crate) async fn put_log_file(storage: &Storage, name: &str, lines: &Lines) -> Result<Put> {
    match DynamoDbCommitter::of(storage) {
        Some(committer) => committer.put_if_absent(name, Bytes::from(lines.to_bytes()?)).await,
        None => storage.put_if_absent(&log_file_path(name), body(lines)).await,
    }
}

/// Writes a file of the log that readers can do without, if it does not exist. It is not synced: after a power cut it may be
/// missing or incomplete.
pub(crate) async fn put_hint_file(storage: &Storage, name: &str, data: Bytes) -> Result<Put> {
    match DynamoDbCommitter::of(storage) {
        Some(committer) => committer.put_if_absent(name, data).await,
        None => storage.put_hint_if_absent(&log_file_path(name), data).await,
    }
}
