//! The commits of a writer since a snapshot, cached as long as no other writer commits.
//!
//! With it a checkpoint does not read the writer's own commits from the store. If it grows beyond a limit it is dropped, and
//! the log is read again.
//!
//! Invariant: the commits follow the snapshot without a gap, so that replaying them gives the same as reading the log
//! (`builder::checkpoints_from_memory_equal_those_of_the_log`).
//!
//! PROTOCOL.md: "Action Reconciliation".

use bytes::Bytes;
use deltic_protocol::feature;
use deltic_protocol::log::crc::VersionChecksum;
use deltic_protocol::log::name::commit_name;
use deltic_protocol::log::segment::LogFile;

use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use deltic_protocol::commit::Committed;

/// The maximum number of bytes of the cached commits.
const MAX_BYTES: u64 = 4 * 1024 * 1024;
/// The maximum number of commits, including those that the snapshot replays.
const MAX_COMMITS: usize = 100;
/// A checkpoint of at most this many bytes is read quickly.
const SMALL_CHECKPOINT: u64 = 256 * 1024;

/// A snapshot, and the commits that followed it.
#[derive(Debug, Clone)]
pub(super) struct CachedLogTail {
    snapshot: Snapshot,
    commits: Vec<(LogFile, Bytes)>,
    /// Bytes of all commits, including those that the snapshot replays.
    bytes: u64,
}

impl CachedLogTail {
    /// A tail that begins at `snapshot`, unless the snapshot itself replays too many commits.
    pub(super) fn new(snapshot: &Snapshot) -> Option<Self> {
        let tail = Self {
            snapshot: snapshot.clone(),
            commits: Vec::new(),
            bytes: snapshot.segment().tail.iter().map(|file| file.size).fold(0, u64::saturating_add),
        };
        tail.is_within_limits().then_some(tail)
    }

    /// This tail with a further commit. `None` if another writer's commit is in between, or if the tail would be too long.
    pub(super) fn with(&self, committed: &Committed, now_ms: i64) -> Option<Self> {
        let size = committed.lines.len();
        let bytes = self.bytes.saturating_add(size);
        let follows = committed.follows_base && committed.version == self.version().checked_add(1)?;
        if !follows || bytes > MAX_BYTES {
            return None;
        }
        let lines = committed.lines.to_bytes().ok()?;
        let file = LogFile::parse(&commit_name(committed.version), size, now_ms)?;
        let mut tail = Self { bytes, ..self.clone() };
        tail.commits.push((file, Bytes::from(lines)));
        tail.is_within_limits().then_some(tail)
    }

    /// The version at its end.
    fn version(&self) -> u64 {
        self.commits.last().map_or_else(|| self.snapshot.version(), |(file, _)| file.name.version())
    }

    fn is_within_limits(&self) -> bool {
        self.bytes <= MAX_BYTES && self.commits.len() + self.snapshot.segment().tail.len() <= MAX_COMMITS
    }

    /// Whether all files of the table can be read quickly.
    pub(super) fn is_short(&self) -> bool {
        // The size of a checkpoint does not include its sidecars.
        if feature::supported(self.snapshot.protocol()).contains("v2Checkpoint") {
            return false;
        }
        let checkpoint = self.snapshot.segment().checkpoint.as_ref();
        let sizes = checkpoint.into_iter().flat_map(|checkpoint| checkpoint.files.iter().map(|file| file.size));
        sizes.fold(0, u64::saturating_add) <= SMALL_CHECKPOINT
    }

    /// The version at its end.
    ///
    /// # Errors
    /// Those of reading the log, as far as it was not read before.
    pub(super) async fn snapshot(&self, checksum: Option<&VersionChecksum>) -> Result<Snapshot> {
        match self.commits.is_empty() {
            true => Err(Error::internal("the tail holds no commit after its snapshot")),
            false => self.snapshot.followed_by(self.commits.clone(), checksum.cloned()).await,
        }
    }

    /// The newest version: the one at its end, or a later one. Takes one LIST, and work in proportion to later commits.
    ///
    /// # Errors
    /// Those of reading the log.
    pub(super) async fn newest(&self, checksum: Option<&VersionChecksum>) -> Result<Snapshot> {
        let log = self.snapshot.log();
        let mut commits = self.commits.clone();
        let Some((last, _)) = commits.last_mut() else { return Snapshot::open(log, None).await };
        let listing = log.list(self.version()).await?;
        let is_last = |file: &&LogFile| file.name == last.name && file.size == last.size;
        let Some(listed) = listing.iter().find(is_last) else { return Snapshot::open(log, None).await };
        // The time in the listing is the store's, by which the log is recognised later.
        *last = listed.clone();
        let snapshot = self.snapshot.followed_by(commits, checksum.cloned()).await?;
        match listing.iter().any(|file| file.name.version() > self.version()) {
            true => snapshot.refresh().await,
            false => Ok(snapshot),
        }
    }
}
