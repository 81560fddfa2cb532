//! Work after a commit, best effort: the version's checksum, a checkpoint when one is due, the cleanup of expired log files
//! from time to time, and manifests where the table asks for them.
//!
//! Failures are reported, never raised: the commit is made. The one exception: if the version before it is missing from the
//! log, it is not known whether the commit counts, and that is an error.
//!
//! PROTOCOL.md: "Version Checksum File", "Checkpoints".

use std::sync::Arc;

use bytes::Bytes;
use deltic_protocol::action::CommitInfo;
use deltic_protocol::commit::{Conflict, TableState, in_the_log_but, unknown_outcome};
use deltic_protocol::log::crc::VersionChecksum;
use deltic_protocol::log::increment::{Step, following};
use deltic_protocol::log::name::checksum_name;
use deltic_protocol::property::Properties;
use futures::TryStreamExt;

use crate::cached_log_tail::CachedLogTail;
use crate::checkpoint::read::AddColumns;
use crate::checkpoint_writer::{Written, is_due, of_snapshot};
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

/// Checkpoints between looks for log files that have expired, which list the whole log.
const CHECKPOINTS_PER_CLEANUP: u64 = 10;

/// Files that are counted anew after a checkpoint that did not look at each of them.
const FEW_FILES: u64 = 100_000;

/// What a handle knows of the table after a commit of its own: enough for the next one to begin without asking.
#[derive(Debug, Clone)]
pub struct HandleState {
    /// The table.
    pub state: TableState,
    /// Its counts, if they are known.
    pub checksum: Option<VersionChecksum>,
    /// Its files, if there are few enough to be kept in mind.
    tail: Option<Arc<CachedLogTail>>,
    /// The file of its commit, by which the table is known again, if the log has it.
    commit_file: Option<CommitFile>,
    /// Whether a commit of the handle's own left all this: the log was not read since.
    is_remembered: bool,
}

impl HandleState {
    /// What a snapshot knows.
    pub async fn of(snapshot: &Snapshot) -> Result<Self> {
        let (state, checksum) = (state_of(snapshot).await?, snapshot.checksum().cloned());
        let commit_file = snapshot.segment().latest_commit().map(CommitFile::listed);
        Ok(Self { state, checksum, tail: CachedLogTail::of(snapshot).map(Arc::new), commit_file, is_remembered: false })
    }

    /// What another process read.
    pub(crate) fn read_elsewhere(state: TableState, commit_file: Option<CommitFile>) -> Self {
        Self { state, checksum: None, tail: None, commit_file, is_remembered: false }
    }

    /// Whether this is remembered rather than read: then the table may be another by now, or have changed.
    pub fn is_remembered(&self) -> bool {
        self.is_remembered
    }

    /// The file of the version's commit, if the log has it.
    pub(crate) fn commit_file(&self) -> Option<CommitFile> {
        self.commit_file
    }
}

/// What was done after a commit.
#[derive(Debug)]
pub struct AfterCommit {
    /// What the next commit may build on.
    pub base: HandleState,
    /// The version that packed small files after it, if one did.
    pub compaction: Option<u64>,
    /// What went wrong, by what was tried.
    pub failed: Vec<(&'static str, Error)>,
}

impl AfterCommit {
    /// Writes what is due. `known` is what was known of the version that the commit was prepared on.
    pub async fn run(storage: &Storage, committed: &Committed, known: Option<&HandleState>, now_ms: i64) -> Self {
        let checksum = increment(storage, committed, known).await;
        Self::follow(storage, committed, (known, checksum), now_ms).await
    }

    /// As [`AfterCommit::run`], of a commit whose base is looked for while its checksum is written.
    ///
    /// # Errors
    /// That of `verified`. The checksum is deleted then, for it may say of a version what is not so, and readers can do
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
        // A property that only checkpoints depend on must not stop anything else.
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

/// Writes a checkpoint of `version`, from what is in mind if that leads there.
async fn checkpoint(
    storage: &Storage,
    (version, tail): (u64, Option<CachedLogTail>),
    checksum: Option<&VersionChecksum>,
    now_ms: i64,
) -> Result<(Snapshot, Written)> {
    let snapshot = match tail {
        Some(tail) => tail.snapshot(checksum).await?,
        None => Snapshot::open(storage, Some(version)).await?,
    };
    let written = of_snapshot(&snapshot, now_ms).await?;
    Ok((snapshot, written))
}

/// Writes the checksum of a commit that there was none before: another writer left it out.
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

/// The id by which the commit is found in the log.
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
    let step = Step {
        files: &committed.sizes,
        is_re_add: committed.is_re_add,
        txns: &committed.actions.txns,
        domains: &committed.actions.domains,
        protocol: &committed.state.protocol,
        metadata: &committed.state.metadata,
        txn_id: txn_id(committed),
        in_commit_timestamp: committed.in_commit_timestamp,
    };
    let Some(checksum) = following(before.as_ref(), step) else { return Ok(None) };
    write(storage, committed.version, &checksum).await?;
    Ok(Some(checksum))
}

/// The checksum of a version; an unreadable one is none.
async fn read(storage: &Storage, version: u64) -> Option<VersionChecksum> {
    let bytes = LogSource::of(storage).read(&checksum_name(version)).await.ok()?;
    VersionChecksum::parse(&bytes).ok()
}

/// Never in the place of one that can be read. Readers can do without it, so it is not synced; what a power
/// cut left of one is written anew.
async fn write(storage: &Storage, version: u64, checksum: &VersionChecksum) -> Result<()> {
    let (name, text) = (checksum_name(version), Bytes::from(checksum.print()?));
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

/// Counts the live files of a snapshot and writes its checksum, in the place of any that is there.
///
/// # Errors
/// Those of replaying the log and of the store.
pub(crate) async fn rebuild_checksum(snapshot: &Snapshot) -> Result<()> {
    let text = Bytes::from(count(snapshot).await?.print()?);
    snapshot.storage().put_hint(&log_file_path(&checksum_name(snapshot.version())), text).await
}

/// The checksum of a snapshot, of all its files.
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

/// Refuses to commit to a table that was deleted, or made anew, since the version that a commit builds on was read, when
/// that version's commit was `file`. Where none is given, the log did not have that commit any more.
///
/// # Errors
/// `Conflict` if the table is another, and those of reading the log. Nothing was put then.
pub(crate) async fn check_same_table(
    committer: &dyn Committer,
    (base, file): (&TableState, Option<CommitFile>),
) -> Result<(), Failed> {
    let Some(file) = file else { return Ok(()) };
    // Where the log was cleaned up to the next version, that one is there and is judged; it may be this very commit.
    let versions = [base.version, base.version.saturating_add(1)];
    if committer.is_same_table((base, file), &versions).await.map_err(Failed::NotWritten)? {
        return Ok(());
    }
    let message = format!(
        "the table was deleted or made anew since its version {} was made or read, so nothing was committed; begin again",
        base.version
    );
    Err(Failed::NotWritten(Error::new(Kind::Conflict(Conflict::MetadataChanged), message)))
}

/// The same, once a commit is put: the table may have become another just before. The commit stays, for others may have
/// built on it already; that it counts is not said.
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
    // The version before tells, for the checksum of this one says what its writer remembered; but a commit that was found
    // in the log may be the first that cleaning left, behind a checkpoint of its version.
    let versions = [version.saturating_sub(1), version];
    let txn_id = txn_id(committed).unwrap_or_default();
    match committer.is_same_table((base, file), &versions).await {
        Ok(true) => Ok(()),
        Ok(false) => {
            let why = format!("the table was deleted or made anew since its version {} was made or read", base.version);
            Err(Failed::Unknown(in_the_log_but(version, txn_id, &why)))
        }
        // It is in the log, and it is unknown whether it counts.
        Err(error) => Err(Failed::Unknown(unknown_outcome(txn_id, committed.attempts, error))),
    }
}
