//! The state of a table that a handle keeps after a commit of its own.

use std::sync::Arc;

use deltic_protocol::commit::TableState;
use deltic_protocol::log::crc::VersionChecksum;

use super::cached_log_tail::CachedLogTail;
use crate::commit::load_table_state;
use crate::committers::CommitFile;
use crate::error::Result;
use crate::snapshot::Snapshot;

/// What a handle knows of the table after a commit of its own: enough for the next commit to begin without reading.
#[derive(Debug, Clone)]
pub struct HandleState {
    /// The state of the table.
    pub state: TableState,
    /// The version's checksum, if it is known.
    pub checksum: Option<VersionChecksum>,
    /// The commits since a snapshot, if there are few enough to keep in memory.
    pub(super) tail: Option<Arc<CachedLogTail>>,
    /// The file of the version's commit, if the log has it. It shows whether the table is still the same.
    pub(super) commit_file: Option<CommitFile>,
    /// Whether this comes from a commit of the handle, and the log was not read since.
    pub(super) is_cached: bool,
}

impl HandleState {
    /// Loads the state of the table at a snapshot.
    ///
    /// # Errors
    /// Those of reading the log.
    pub async fn load(snapshot: &Snapshot) -> Result<Self> {
        let (state, checksum) = (load_table_state(snapshot).await?, snapshot.checksum().cloned());
        let commit_file = snapshot.segment().latest_commit().map(CommitFile::listed);
        Ok(Self { state, checksum, tail: CachedLogTail::new(snapshot).map(Arc::new), commit_file, is_cached: false })
    }

    /// The state that another process read.
    pub(crate) fn from_other_process(state: TableState, commit_file: Option<CommitFile>) -> Self {
        Self { state, checksum: None, tail: None, commit_file, is_cached: false }
    }

    /// Whether this is from a commit of the handle rather than read from the log. The table may have changed since, or may have
    /// been created again.
    pub fn is_cached(&self) -> bool {
        self.is_cached
    }

    /// The file of the version's commit, if the log has it.
    pub(crate) fn commit_file(&self) -> Option<CommitFile> {
        self.commit_file
    }
}
