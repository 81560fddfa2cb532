//! What follows a commit, as far as it works out: the version's checksum, a checkpoint when one is due, and now and then
//! a look for log files that have expired.
//!
//! The commit stands whatever happens here: failures are reported, never raised.
//!
//! PROTOCOL.md: "Version Checksum File", "Checkpoints".

use bytes::Bytes;
use deltic_protocol::action::CommitInfo;
use deltic_protocol::action::batch::Origin;
use deltic_protocol::action::json::{Wanted, parse_commit};
use deltic_protocol::conflict::TableState;
use deltic_protocol::log::crc::VersionChecksum;
use deltic_protocol::log::increment::{Step, following};
use deltic_protocol::log::name::checksum_name;
use deltic_protocol::property::Properties;
use futures::TryStreamExt;

use crate::checkpoint;
use crate::checkpoint::read::AddColumns;
use crate::cleanup::clean_log;
use crate::error::{Error, Result};
use crate::log_reader::log_path;
use crate::snapshot::Snapshot;
use crate::storage::{Put, Storage};
use crate::transaction::{Committed, state_of};

/// Commits between checkpoints of a table whose property cannot be read.
const CHECKPOINT_INTERVAL: u64 = 10;

/// Checkpoints between looks for log files that have expired, which list the whole log.
const CHECKPOINTS_PER_CLEANUP: u64 = 10;

/// What a handle knows of the table after a commit of its own: enough for the next one to begin without asking.
#[derive(Debug, Clone)]
pub struct Base {
    /// The table.
    pub state: TableState,
    /// Its counts, if they are known.
    pub checksum: Option<VersionChecksum>,
}

impl Base {
    /// What a snapshot knows.
    pub async fn of(snapshot: &Snapshot) -> Result<Self> {
        Ok(Self { state: state_of(snapshot).await?, checksum: snapshot.checksum().cloned() })
    }
}

/// What was done after a commit.
#[derive(Debug)]
pub struct AfterCommit {
    /// What the next commit may build on.
    pub base: Base,
    /// What went wrong, by what was tried.
    pub failed: Vec<(&'static str, Error)>,
}

impl AfterCommit {
    /// Writes what is due. `known` is what was known of the version that the commit was prepared on.
    pub async fn run(storage: &Storage, committed: &Committed, known: Option<&Base>, now_ms: i64) -> Self {
        let mut failed = Vec::new();
        let (version, metadata) = (committed.version, &committed.state.metadata);
        // A property that only checkpoints depend on must not stop anything else.
        let interval = Properties::of(metadata).checkpoint_interval().unwrap_or(CHECKPOINT_INTERVAL);
        let checksum = match increment(storage, committed, known).await {
            Ok(checksum) => checksum,
            Err(error) => {
                failed.push(("checksumError", error));
                None
            }
        };
        if let Some(error) = checkpoint::write::when_due(storage, version, interval, now_ms).await {
            failed.push(("checkpointError", error));
        }
        let cleans = Properties::of(metadata).expired_log_cleanup().unwrap_or(false);
        let every = interval.saturating_mul(CHECKPOINTS_PER_CLEANUP);
        if cleans && version > 0 && version.checked_rem(every) == Some(0) {
            let cleaned = clean_log(storage, now_ms).await;
            failed.extend(cleaned.err().map(|error| ("cleanupError", error)));
        }
        Self { base: Base { state: committed.state.clone(), checksum }, failed }
    }
}

/// Writes the checksum of a commit, if the counts before it are known.
async fn increment(storage: &Storage, committed: &Committed, known: Option<&Base>) -> Result<Option<VersionChecksum>> {
    let before = match (committed.version.checked_sub(1), known) {
        (None, _) => None,
        (Some(before), Some(Base { state, checksum: Some(checksum) })) if state.version == before => {
            Some(checksum.clone())
        }
        (Some(before), _) => match read(storage, before).await {
            Some(checksum) => Some(checksum),
            None => return Ok(None),
        },
    };
    let said = parse_commit(&committed.others.clone().into(), Origin::Commit(committed.version), Wanted::NoFiles)?;
    let step = Step {
        lines: &committed.lines,
        says_again: committed.says_again,
        txns: &said.txns,
        domains: &said.domains,
        protocol: &committed.state.protocol,
        metadata: &committed.state.metadata,
        txn_id: said.commit_info.as_ref().and_then(CommitInfo::txn_id),
        in_commit_timestamp: committed.in_commit_timestamp,
    };
    let Some(checksum) = following(before.as_ref(), step)? else { return Ok(None) };
    write(storage, committed.version, &checksum).await?;
    Ok(Some(checksum))
}

/// The checksum of a version; an unreadable one is none.
async fn read(storage: &Storage, version: u64) -> Option<VersionChecksum> {
    let bytes = storage.get(&log_path(&checksum_name(version))).await.ok()?;
    VersionChecksum::parse(&bytes).ok()
}

/// Never in the place of one that is there.
async fn write(storage: &Storage, version: u64, checksum: &VersionChecksum) -> Result<()> {
    match storage.put_if_absent(&log_path(&checksum_name(version)), Bytes::from(checksum.print()?)).await? {
        Put::Created | Put::Exists => Ok(()),
        Put::Unknown(lost) => Err(lost),
    }
}

/// Counts the live files of a snapshot and writes its checksum, unless it has one.
///
/// # Errors
/// Those of replaying the log and of the store.
pub async fn write_checksum(snapshot: &Snapshot) -> Result<u64> {
    if snapshot.checksum().is_some() {
        return Ok(snapshot.version());
    }
    let columns = AddColumns { members: vec!["path", "size", "deletionVector"], ..AddColumns::default() };
    let mut live = std::pin::pin!(snapshot.live_files(&columns).await?);
    let (mut files, mut bytes) = (0_i64, 0_i64);
    while let Some(adds) = live.try_next().await? {
        let place = |e: Error| e.in_table(snapshot.storage().location());
        let sizes = adds.size().filter(|sizes| arrow_array::Array::null_count(*sizes) == 0);
        let sizes = sizes.ok_or_else(|| place(Error::corrupt("a file of the log has no size")))?;
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
    write(snapshot.storage(), snapshot.version(), &checksum).await?;
    Ok(snapshot.version())
}
