//! The work after a commit.

use std::sync::Arc;

use deltic_protocol::action::{CommitInfo, Metadata};
use deltic_protocol::log::crc::VersionChecksum;
use deltic_protocol::log::name::checksum_name;
use deltic_protocol::property::Properties;

use super::cached_log_tail::CachedLogTail;
use super::checksum::{compute_and_write_checksum, write_incremental_checksum};
use super::handle_state::HandleState;
use crate::checkpoint_writer::{WrittenCheckpoint, is_due, of_snapshot};
use crate::cleanup::clean_log;
use crate::committers::{CommitFile, Committer};
use crate::error::{Error, Result};
use crate::log::{LogSource, log_file_path};
use crate::manifests::{are_enabled, update_manifests};
use crate::snapshot::Snapshot;
use deltic_protocol::commit::Committed;

/// Commits between checkpoints of a table whose property cannot be read.
const CHECKPOINT_INTERVAL: u64 = 10;

/// Checkpoints between two log cleanups, each of which lists the whole log.
const CHECKPOINTS_PER_CLEANUP: u64 = 10;

/// Up to this many files are counted again after a checkpoint that did not read all of them.
const MAX_RECOUNTED_FILES: u64 = 100_000;

/// A step of the work after a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostCommitStep {
    /// The version's checksum.
    Checksum,
    /// A checkpoint.
    Checkpoint,
    /// The cleanup of expired log files.
    Cleanup,
    /// Manifests of the partitions that the commit touched.
    Manifests,
    /// The compaction of small files.
    Compaction,
}

impl PostCommitStep {
    /// The name of its error in the result of a commit.
    pub fn error_name(self) -> &'static str {
        match self {
            Self::Checksum => "checksumError",
            Self::Checkpoint => "checkpointError",
            Self::Cleanup => "cleanupError",
            Self::Manifests => "manifestError",
            Self::Compaction => "compactionError",
        }
    }
}

/// The result of the work after a commit.
#[derive(Debug)]
pub struct PostCommit {
    /// The state that the next commit may build on.
    pub handle_state: HandleState,
    /// The version that packed small files after it, if one did.
    pub compaction: Option<u64>,
    /// The steps that failed, with their errors.
    pub failed: Vec<(PostCommitStep, Error)>,
}

impl PostCommit {
    /// Does the work that is due. `known`: the state of the version that the commit was prepared on. `verified`: whether that
    /// version is still there, which is found out while the checksum is written.
    ///
    /// # Errors
    /// That of `verified`. The checksum is deleted then, since it may be wrong about the version, and readers can do
    /// without it.
    pub(crate) async fn run<E>(
        log: &LogSource,
        committer: &dyn Committer,
        committed: &Committed,
        known: Option<&HandleState>,
        verified: impl Future<Output = Result<(), E>>,
        now_ms: i64,
    ) -> Result<Self, E> {
        let (verified, checksum) =
            futures::join!(verified, write_incremental_checksum(log, committer, committed, known));
        if let Err(error) = verified {
            if !matches!(checksum, Ok(None)) {
                let _deleted = log.storage().delete(&log_file_path(&checksum_name(committed.version))).await;
            }
            return Err(error);
        }
        Ok(Self::run_remaining(log, committer, committed, known, checksum, now_ms).await)
    }

    /// The work after the incremental checksum was written, or failed.
    async fn run_remaining(
        log: &LogSource,
        committer: &dyn Committer,
        committed: &Committed,
        known: Option<&HandleState>,
        checksum: Result<Option<VersionChecksum>>,
        now_ms: i64,
    ) -> Self {
        let mut failed = Vec::new();
        let (version, metadata) = (committed.version, &committed.state.metadata);
        // If a property that only checkpoints depend on is malformed, everything else goes on.
        let interval = Properties::of(metadata).checkpoint_interval().unwrap_or(CHECKPOINT_INTERVAL);
        let mut checksum = checksum.unwrap_or_else(|error| {
            failed.push((PostCommitStep::Checksum, error));
            None
        });
        let mut tail = known.and_then(|base| base.tail.as_ref()).and_then(|tail| tail.with(committed, now_ms));
        if is_due(version, interval) {
            match checkpoint(log, version, tail.take(), checksum.as_ref(), now_ms).await {
                Ok((snapshot, written)) => {
                    if checksum.is_none() && (written.reused == 0 || written.adds <= MAX_RECOUNTED_FILES) {
                        checksum = recount(&snapshot, committer, committed, &mut failed).await;
                    }
                    tail = Some(snapshot).filter(|_| written.sidecars == 0).as_ref().and_then(CachedLogTail::new);
                }
                Err(error) => failed.push((PostCommitStep::Checkpoint, error)),
            }
        } else if checksum.is_none()
            && committed.attempts == 1
            && let Some(tail) = tail.as_ref().filter(|tail| tail.is_short())
        {
            match tail.snapshot(None).await {
                Ok(snapshot) => checksum = recount(&snapshot, committer, committed, &mut failed).await,
                Err(error) => failed.push((PostCommitStep::Checksum, error)),
            }
        }
        let cleans_up = Properties::of(metadata).expired_log_cleanup().unwrap_or(false);
        let every = interval.saturating_mul(CHECKPOINTS_PER_CLEANUP);
        if cleans_up && version > 0 && version.checked_rem(every) == Some(0) {
            let cleaned = clean_log(log, now_ms).await;
            failed.extend(cleaned.err().map(|error| (PostCommitStep::Cleanup, error)));
        }
        let before = known.filter(|_| committed.follows_base).map(|base| &base.state.metadata);
        let manifests = update_manifests_if_enabled(log, committed, before, tail.as_ref(), checksum.as_ref());
        match manifests.await {
            Ok(newest) => {
                let read = newest.filter(|newest| newest.version() == version);
                tail = tail.or_else(|| read.as_ref().and_then(CachedLogTail::new));
            }
            Err(error) => failed.push((PostCommitStep::Manifests, error)),
        }
        let (tail, length) = (tail.map(Arc::new), committed.lines.len());
        let written_ms = committed.actions.commit_info.as_ref().and_then(CommitInfo::timestamp);
        let commit_file = Some(CommitFile::written(length, written_ms));
        let state = committed.state.clone();
        let handle_state = HandleState { state, checksum, tail, commit_file, is_cached: true };
        Self { handle_state, compaction: None, failed }
    }
}

/// Writes the manifests of the partitions that the commit touched, if the table asks for that. Returns the version that was read
/// for it.
async fn update_manifests_if_enabled(
    log: &LogSource,
    committed: &Committed,
    before: Option<&Metadata>,
    tail: Option<&CachedLogTail>,
    checksum: Option<&VersionChecksum>,
) -> Result<Option<Snapshot>> {
    if !are_enabled(&committed.state.metadata)? {
        return Ok(None);
    }
    let newest = match tail {
        Some(tail) => tail.newest(checksum).await?,
        None => Snapshot::open(log, None).await?,
    };
    update_manifests(&newest, committed, before).await?;
    Ok(Some(newest))
}

/// Writes a checkpoint of `version`, from the cached commits if these lead to it.
async fn checkpoint(
    log: &LogSource,
    version: u64,
    tail: Option<CachedLogTail>,
    checksum: Option<&VersionChecksum>,
    now_ms: i64,
) -> Result<(Snapshot, WrittenCheckpoint)> {
    let snapshot = match tail {
        Some(tail) => tail.snapshot(checksum).await?,
        None => Snapshot::open(log, Some(version)).await?,
    };
    let written = of_snapshot(&snapshot, now_ms).await?;
    Ok((snapshot, written))
}

/// Counts all files for the checksum of a commit; records the error if that fails.
async fn recount(
    snapshot: &Snapshot,
    committer: &dyn Committer,
    committed: &Committed,
    failed: &mut Vec<(PostCommitStep, Error)>,
) -> Option<VersionChecksum> {
    let checksum = compute_and_write_checksum(snapshot, committer, committed).await;
    checksum.map_err(|error| failed.push((PostCommitStep::Checksum, error))).ok()
}
