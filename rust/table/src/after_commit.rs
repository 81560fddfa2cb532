//! Work after a commit, best effort: the version's checksum, a checkpoint if one is due, cleanup of expired log files
//! from time to time, and manifests if the table asks for them.
//!
//! Failures are reported, not raised, since the commit is made. There is one exception: if the version before it is missing
//! from the log, it is not known whether the commit counts, and that is an error.
//!
//! PROTOCOL.md: "Version Checksum File", "Checkpoints".

use std::sync::Arc;

use bytes::Bytes;
use deltic_protocol::action::CommitInfo;
use deltic_protocol::commit::{Conflict, TableState, committed_but_unreadable, unknown_outcome};
use deltic_protocol::log::crc::VersionChecksum;
use deltic_protocol::log::increment::{ChecksumDelta, next_checksum};
use deltic_protocol::log::name::checksum_name;
use deltic_protocol::property::Properties;
use futures::TryStreamExt;

use crate::cached_log_tail::CachedLogTail;
use crate::checkpoint::read::AddColumns;
use crate::checkpoint_writer::{WrittenCheckpoint, is_due, of_snapshot};
use crate::cleanup::clean_log;
use crate::committers::{CommitFile, Committer, put_hint_file};
use crate::error::{Error, Kind, Result};
use crate::log::{LogSource, log_file_path};
use crate::manifests::write_manifests;
use crate::snapshot::Snapshot;
use crate::transaction::{Committed, Failed, state_of};
use deltic_store::{Put, Storage};

/// Commits between checkpoints of a table whose property cannot be read.
const CHECKPOINT_INTERVAL: u64 = 10;

/// Checkpoints between two log cleanups, each of which lists the whole log.
const CHECKPOINTS_PER_CLEANUP: u64 = 10;

/// Up to this many files are counted again after a checkpoint that did not read all of them.
const FEW_FILES: u64 = 100_000;

/// What a handle knows of the table after a commit of its own: enough for the next commit to begin without reading.
#[derive(Debug, Clone)]
pub struct HandleState {
    /// The state of the table.
    pub state: TableState,
    /// The version's checksum, if it is known.
    pub checksum: Option<VersionChecksum>,
    /// The commits since a snapshot, if there are few enough to keep in memory.
    tail: Option<Arc<CachedLogTail>>,
    /// The file of the version's commit, if the log has it. It shows whether the table is still the same.
    commit_file: Option<CommitFile>,
    /// Whether this comes from a commit of the handle, and the log was not read since.
    is_remembered: bool,
}

impl HandleState {
    /// The state of a snapshot.
    pub async fn of(snapshot: &Snapshot) -> Result<Self> {
        let (state, checksum) = (state_of(snapshot).await?, snapshot.checksum().cloned());
        let commit_file = snapshot.segment().latest_commit().map(CommitFile::listed);
        Ok(Self { state, checksum, tail: CachedLogTail::of(snapshot).map(Arc::new), commit_file, is_remembered: false })
    }

    /// The state that another process read.
    pub(crate) fn read_elsewhere(state: TableState, commit_file: Option<CommitFile>) -> Self {
        Self { state, checksum: None, tail: None, commit_file, is_remembered: false }
    }

    /// Whether this is remembered rather than read: then the table may have changed, or may have been created again.
    pub fn is_remembered(&self) -> bool {
        self.is_remembered
    }

    /// The file of the version's commit, if the log has it.
    pub(crate) fn commit_file(&self) -> Option<CommitFile> {
        self.commit_file
    }
}

/// The result of the work after a commit.
#[derive(Debug)]
pub struct AfterCommit {
    /// The state that the next commit may build on.
    pub base: HandleState,
    /// The version that packed small files after it, if one did.
    pub compaction: Option<u64>,
    /// The errors, each with the step that failed.
    pub failed: Vec<(&'static str, Error)>,
}

impl AfterCommit {
    /// Does the work that is due. `known`: the state of the version that the commit was prepared on.
    pub async fn run(storage: &Storage, committed: &Committed, known: Option<&HandleState>, now_ms: i64) -> Self {
        let checksum = increment(storage, committed, known).await;
        Self::follow(storage, committed, (known, checksum), now_ms).await
    }

    /// As [`AfterCommit::run`], for a commit whose base is verified while its checksum is written.
    ///
    /// # Errors
    /// That of `verified`. The checksum is deleted then, since it may be wrong about the version, and readers can do
    /// without it.
    pub(crate) async fn run_if<E>(
        storage: &Storage,
        committed: &Committed,
        (known, verified): (Option<&HandleState>, impl Future<Output = Result<(), E>>),
        now_ms: i64,
    ) -> Result<Self, E> {
        let (verified, checksum) = futures::join!(verified, increment(storage, committed, known));
        if let Err(error) = verified {
            if !matches!(checksum, Ok(None)) {
                let _deleted = storage.delete(&log_file_path(&checksum_name(committed.version))).await;
            }
            return Err(error);
        }
        Ok(Self::follow(storage, committed, (known, checksum), now_ms).await)
    }

    async fn follow(
        storage: &Storage,
        committed: &Committed,
        (known, checksum): (Option<&HandleState>, Result<Option<VersionChecksum>>),
        now_ms: i64,
    ) -> Self {
        let mut failed = Vec::new();
        let (version, metadata) = (committed.version, &committed.state.metadata);
        // If a property that only checkpoints depend on is malformed, everything else goes on.
        let interval = Properties::of(metadata).checkpoint_interval().unwrap_or(CHECKPOINT_INTERVAL);
        let mut checksum = checksum.unwrap_or_else(|error| {
            failed.push(("checksumError", error));
            None
        });
        let mut tail = known.and_then(|base| base.tail.as_ref()).and_then(|tail| tail.with(committed, now_ms));
        if is_due(version, interval) {
            match checkpoint(storage, (version, tail.take()), checksum.as_ref(), now_ms).await {
                Ok((snapshot, written)) => {
                    if checksum.is_none() && (written.reused == 0 || written.adds <= FEW_FILES) {
                        checksum = counted(&snapshot, committed, &mut failed).await;
                    }
                    tail = Some(snapshot).filter(|_| written.sidecars == 0).as_ref().and_then(CachedLogTail::of);
                }
                Err(error) => failed.push(("checkpointError", error)),
            }
        } else if checksum.is_none()
            && committed.attempts == 1
            && let Some(tail) = tail.as_ref().filter(|tail| tail.is_short())
        {
            match tail.snapshot(None).await {
                Ok(snapshot) => checksum = counted(&snapshot, committed, &mut failed).await,
                Err(error) => failed.push(("checksumError", error)),
            }
        }
        let cleans = Properties::of(metadata).expired_log_cleanup().unwrap_or(false);
        let every = interval.saturating_mul(CHECKPOINTS_PER_CLEANUP);
        if cleans && version > 0 && version.checked_rem(every) == Some(0) {
            let cleaned = clean_log(storage, now_ms).await;
            failed.extend(cleaned.err().map(|error| ("cleanupError", error)));
        }
        let manifests = manifests(storage, committed).await;
        failed.extend(manifests.err().map(|error| ("manifestError", error)));
        let (tail, length) = (tail.map(Arc::new), committed.lines.len());
        let written_ms = committed.actions.commit_info.as_ref().and_then(CommitInfo::timestamp);
        let commit_file = Some(CommitFile::written(length, written_ms));
        let state = committed.state.clone();
        let base = HandleState { state, checksum, tail, commit_file, is_remembered: true };
        Self { base, compaction: None, failed }
    }
}

/// Writes the manifests of the newest version, if the table asks for that.
async fn manifests(storage: &Storage, committed: &Committed) -> Result<()> {
    if !Properties::of(&committed.state.metadata).is_true("delta.compatibility.symlinkFormatManifest.enabled")? {
        return Ok(());
    }
    write_manifests(&Snapshot::open(storage, None).await?, false).await.map(drop)
}

/// Writes a checkpoint of `version`, from the cached commits if these lead to it.
async fn checkpoint(
    storage: &Storage,
    (version, tail): (u64, Option<CachedLogTail>),
    checksum: Option<&VersionChecksum>,
    now_ms: i64,
) -> Result<(Snapshot, WrittenCheckpoint)> {
    let snapshot = match tail {
        Some(tail) => tail.snapshot(checksum).await?,
        None => Snapshot::open(storage, Some(version)).await?,
    };
    let written = of_snapshot(&snapshot, now_ms).await?;
    Ok((snapshot, written))
}

/// Counts all files and writes the checksum of a commit whose previous version has none, because another writer wrote none.
async fn counted(
    snapshot: &Snapshot,
    committed: &Committed,
    failed: &mut Vec<(&'static str, Error)>,
) -> Option<VersionChecksum> {
    let counted = async {
        let mut checksum = count(snapshot).await?;
        checksum.txn_id = txn_id(committed).map(str::to_owned);
        checksum.in_commit_timestamp_opt = committed.in_commit_timestamp;
        write(snapshot.storage(), committed.version, &checksum).await?;
        Ok(checksum)
    };
    counted.await.map_err(|error| failed.push(("checksumError", error))).ok()
}

/// The transaction id of the commit.
pub(crate) fn txn_id(committed: &Committed) -> Option<&str> {
    committed.actions.commit_info.as_ref().and_then(CommitInfo::txn_id)
}

/// Writes the checksum of a commit, if the counts before it are known.
async fn increment(
    storage: &Storage,
    committed: &Committed,
    known: Option<&HandleState>,
) -> Result<Option<VersionChecksum>> {
    let before = match (committed.version.checked_sub(1), known) {
        (None, _) => None,
        (Some(before), Some(HandleState { state, checksum, .. })) if state.version == before => match checksum {
            Some(checksum) => Some(checksum.clone()),
            None => return Ok(None),
        },
        (Some(before), _) => match read(storage, before).await {
            Some(checksum) => Some(checksum),
            None => return Ok(None),
        },
    };
    let delta = ChecksumDelta {
        files: &committed.sizes,
        is_re_add: committed.is_re_add,
        txns: &committed.actions.txns,
        domains: &committed.actions.domains,
        protocol: &committed.state.protocol,
        metadata: &committed.state.metadata,
        txn_id: txn_id(committed),
        in_commit_timestamp: committed.in_commit_timestamp,
    };
    let Some(checksum) = next_checksum(before.as_ref(), delta) else { return Ok(None) };
    write(storage, committed.version, &checksum).await?;
    Ok(Some(checksum))
}

/// The checksum of a version; `None` also if it cannot be read.
async fn read(storage: &Storage, version: u64) -> Option<VersionChecksum> {
    let bytes = LogSource::of(storage).read(&checksum_name(version)).await.ok()?;
    VersionChecksum::parse(&bytes).ok()
}

/// Writes a checksum, but does not replace one that can be read. Readers can do without it, so it is not synced; one that a
/// power cut damaged is written again.
async fn write(storage: &Storage, version: u64, checksum: &VersionChecksum) -> Result<()> {
    let (name, text) = (checksum_name(version), Bytes::from(checksum.to_json()?));
    match put_hint_file(storage, &name, text.clone()).await? {
        Put::Created => Ok(()),
        Put::Exists if read(storage, version).await.is_none() => storage.put_hint(&log_file_path(&name), text).await,
        Put::Exists => Ok(()),
        Put::Unknown(lost) => Err(lost),
    }
}

/// Counts the live files of a snapshot and writes its checksum, unless it has one.
///
/// # Errors
/// Those of replaying the log and of the store.
pub async fn write_checksum(snapshot: &Snapshot) -> Result<u64> {
    if snapshot.checksum().is_none() {
        write(snapshot.storage(), snapshot.version(), &count(snapshot).await?).await?;
    }
    Ok(snapshot.version())
}

/// Counts the live files of a snapshot and writes its checksum, replacing any that is there.
///
/// # Errors
/// Those of replaying the log and of the store.
pub(crate) async fn rebuild_checksum(snapshot: &Snapshot) -> Result<()> {
    let text = Bytes::from(count(snapshot).await?.to_json()?);
    snapshot.storage().put_hint(&log_file_path(&checksum_name(snapshot.version())), text).await
}

/// Computes the checksum of a snapshot from all its files.
async fn count(snapshot: &Snapshot) -> Result<VersionChecksum> {
    let columns = AddColumns { members: vec!["path", "size", "deletionVector"], ..AddColumns::default() };
    let mut live = std::pin::pin!(snapshot.live_files(&columns).await?);
    let (mut files, mut bytes) = (0_i64, 0_i64);
    while let Some(adds) = live.try_next().await? {
        let in_table = |e: Error| e.in_table(snapshot.storage().location());
        let sizes = adds.size().filter(|sizes| arrow_array::Array::null_count(*sizes) == 0);
        let sizes = sizes.ok_or_else(|| in_table(Error::corrupt("a file of the log has no size")))?;
        files = files.saturating_add(i64::try_from(adds.len()).unwrap_or(i64::MAX));
        bytes = sizes.iter().flatten().fold(bytes, i64::saturating_add);
    }
    let state = state_of(snapshot).await?;
    let mut checksum = VersionChecksum::new(state.metadata, state.protocol, files, bytes);
    let properties = Properties::of(snapshot.metadata());
    checksum.set_transactions = match properties.set_transaction_retention()? {
        None => Some(snapshot.txns().await?),
        Some(_) => None,
    };
    checksum.domain_metadata = Some(snapshot.domains().await?);
    checksum.in_commit_timestamp_opt = properties.in_commit_timestamps()?.and(state.timestamp);
    Ok(checksum)
}

/// Refuses to commit to a table that was deleted or created again since the commit's base was read, when
/// the base's commit was `file`. Without `file`, the log did not have that commit any more.
///
/// # Errors
/// `Conflict` if it is another table, and those of reading the log. Nothing was put then.
pub(crate) async fn check_same_table(
    committer: &dyn Committer,
    (base, file): (&TableState, Option<CommitFile>),
) -> Result<(), Failed> {
    let Some(file) = file else { return Ok(()) };
    // If the log was cleaned up to the next version, that version is there and is checked; it may be this commit itself.
    let versions = [base.version, base.version.saturating_add(1)];
    if committer.is_same_table((base, file), &versions).await.map_err(Failed::NotWritten)? {
        return Ok(());
    }
    let message = format!(
        "the table was deleted or created again since its version {} was made or read, so nothing was committed; begin again",
        base.version
    );
    Err(Failed::NotWritten(Error::new(Kind::Conflict(Conflict::MetadataChanged), message)))
}

/// The same after a commit was put: the table may have been replaced just before. The commit stays, since others may have
/// built on it already, but it is not reported as made.
///
/// # Errors
/// `Storage`, saying that the outcome is unknown.
pub(crate) async fn verify_same_table(
    committer: &dyn Committer,
    committed: &Committed,
    (base, file): (&TableState, Option<CommitFile>),
) -> Result<(), Failed> {
    let Some(file) = file else { return Ok(()) };
    let version = committed.version;
    // The version before is read, since the checksum of this one has what its writer remembered. But a commit that was found
    // in the log may be the first one that log cleanup left, after a checkpoint of its version.
    let versions = [version.saturating_sub(1), version];
    let txn_id = txn_id(committed).unwrap_or_default();
    match committer.is_same_table((base, file), &versions).await {
        Ok(true) => Ok(()),
        Ok(false) => {
            let why =
                format!("the table was deleted or created again since its version {} was made or read", base.version);
            Err(Failed::Unknown(committed_but_unreadable(version, txn_id, &why)))
        }
        // It is in the log, and it is unknown whether it counts.
        Err(error) => Err(Failed::Unknown(unknown_outcome(txn_id, committed.attempts, error))),
    }
}
