//! The checksum of a version: incremented from the one before it, or computed from all files.
//!
//! PROTOCOL.md: "Version Checksum File".

use bytes::Bytes;
use deltic_protocol::action::CommitInfo;
use deltic_protocol::log::crc::VersionChecksum;
use deltic_protocol::log::increment::{ChecksumDelta, next_checksum};
use deltic_protocol::log::name::checksum_name;
use deltic_protocol::property::Properties;
use futures::TryStreamExt;

use super::handle_state::HandleState;
use crate::checkpoint::read::AddColumns;
use crate::commit::load_table_state;
use crate::committers::{Committer, OtherLogFile};
use crate::error::{Error, Result};
use crate::log::{LogSource, log_file_path};
use crate::snapshot::Snapshot;
use deltic_protocol::commit::Committed;
use deltic_store::Put;

/// The transaction id of the commit.
pub(super) fn txn_id(committed: &Committed) -> Option<&str> {
    committed.actions.commit_info.as_ref().and_then(CommitInfo::txn_id)
}

/// Writes the checksum of a commit, if the counts before it are known.
pub(super) async fn write_incremental_checksum(
    log: &LogSource,
    committer: &dyn Committer,
    committed: &Committed,
    known: Option<&HandleState>,
) -> Result<Option<VersionChecksum>> {
    let before = match (committed.version.checked_sub(1), known) {
        (None, _) => None,
        (Some(before), Some(HandleState { state, checksum, .. })) if state.version == before => match checksum {
            Some(checksum) => Some(checksum.clone()),
            None => return Ok(None),
        },
        (Some(before), _) => match read_checksum(log, before).await {
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
    put_checksum(log, committer, committed.version, &checksum).await?;
    Ok(Some(checksum))
}

/// The checksum of a version; `None` also if it cannot be read.
async fn read_checksum(log: &LogSource, version: u64) -> Option<VersionChecksum> {
    let bytes = log.read(&checksum_name(version)).await.ok()?;
    VersionChecksum::parse(&bytes).ok()
}

/// Writes a checksum, but does not replace one that can be read. Readers can do without it, so it is not synced; one that is
/// damaged after a power cut is written again.
async fn put_checksum(
    log: &LogSource,
    committer: &dyn Committer,
    version: u64,
    checksum: &VersionChecksum,
) -> Result<()> {
    let (name, text) = (checksum_name(version), Bytes::from(checksum.to_json()?));
    match committer.put_other(&name, OtherLogFile::Hint(text.clone())).await? {
        Put::Created => Ok(()),
        Put::Exists if read_checksum(log, version).await.is_none() => {
            log.storage().put_hint(&log_file_path(&name), text).await
        }
        Put::Exists => Ok(()),
        Put::Unknown(lost) => Err(lost),
    }
}

/// Counts the live files of a snapshot and writes its checksum, unless it has one.
///
/// # Errors
/// Those of replaying the log and of the store.
pub async fn write_checksum(snapshot: &Snapshot, committer: &dyn Committer) -> Result<u64> {
    if snapshot.checksum().is_none() {
        put_checksum(snapshot.log(), committer, snapshot.version(), &compute_checksum(snapshot).await?).await?;
    }
    Ok(snapshot.version())
}

/// Counts the live files of a snapshot and writes its checksum, replacing any that is there.
///
/// # Errors
/// Those of replaying the log and of the store.
pub(crate) async fn rebuild_checksum(snapshot: &Snapshot) -> Result<()> {
    let text = Bytes::from(compute_checksum(snapshot).await?.to_json()?);
    snapshot.storage().put_hint(&log_file_path(&checksum_name(snapshot.version())), text).await
}

/// Computes the checksum of a snapshot from all its files.
async fn compute_checksum(snapshot: &Snapshot) -> Result<VersionChecksum> {
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
    let state = load_table_state(snapshot).await?;
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

/// Counts all files and writes the checksum of a commit whose previous version has none, because another writer wrote none.
pub(super) async fn compute_and_write_checksum(
    snapshot: &Snapshot,
    committer: &dyn Committer,
    committed: &Committed,
) -> Result<VersionChecksum> {
    let mut checksum = compute_checksum(snapshot).await?;
    checksum.txn_id = txn_id(committed).map(str::to_owned);
    checksum.in_commit_timestamp_opt = committed.in_commit_timestamp;
    put_checksum(snapshot.log(), committer, committed.version, &checksum).await?;
    Ok(checksum)
}
