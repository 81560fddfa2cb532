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

use crate::log::LogSource;

mod committer;
mod dynamodb;
mod log;
mod memory;

pub use committer::{CommitFile, Committer, OtherLogFile};
pub use dynamodb::DynamoDbCommitter;
pub use log::LogCommitter;
pub use memory::MemoryCommitter;

/// The committer of a table, by its options.
pub fn for_table(log: &LogSource) -> Arc<dyn Committer> {
    match DynamoDbCommitter::of(log) {
        Some(committer) => Arc::new(committer),
        None => Arc::new(LogCommitter::new(log.clone())),
    }
}
