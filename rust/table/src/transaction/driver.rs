//! Runs the commit loop of the protocol with a committer, a clock and a retry policy.
//!
//! [`CommitLoop`] documents what the loop does, and why. Clock, back-off and cancellation are passed in, so that a
//! simulation can run this, too (`tests/rust/simulation/main.rs`).
//!
//! PROTOCOL.md: "Commit Protocol".

use std::pin::pin;
use std::time::Duration;

use deltic_protocol::action::batch::Origin;
use deltic_protocol::action::json::{Wanted, parse_commit};
use deltic_protocol::action::{DomainMetadata, Metadata};
use deltic_protocol::commit::state::PutAnswer;
use deltic_protocol::commit::{
    CLUSTERING_DOMAIN, CommitLoop, ROW_TRACKING_DOMAIN, Step, TableState, clustering_columns, watermark,
};
use deltic_protocol::commit::{Committed, Failed, PreparedCommit};
use deltic_protocol::feature;
use deltic_protocol::log::name::commit_name;
use deltic_protocol::property::Properties;
use futures::future::{Either, select};
use futures::stream::{self, StreamExt, TryStreamExt};

use crate::committers::Committer;
use crate::error::{Error, Kind, Result};
use crate::events::TARGET;
use crate::log::{LogSource, log_file_path};
use crate::snapshot::Snapshot;
use deltic_store::Put;

use super::vectors::{NoVectors, VectorFiles};

/// The time between two checks for a cancellation while waiting.
const NOTICE: Duration = Duration::from_millis(50);

/// How many deletion vectors of a winner are read at once.
const CONCURRENT_VECTORS: usize = 16;

/// Stops the work if the caller cancels it. `interrupted`: the message for this.
///
/// # Errors
/// Those of the work; `Interrupted` if it was cancelled.
pub(crate) async fn unless_cancelled<T>(
    work: impl Future<Output = Result<T>>,
    retry: &dyn RetryPolicy,
    interrupted: impl FnOnce() -> String,
) -> Result<T> {
    let cancelled = async {
        while !retry.is_cancelled() {
            tokio::time::sleep(NOTICE).await;
        }
    };
    match select(pin!(work), pin!(cancelled)).await {
        Either::Left((done, _)) => done,
        Either::Right(_) => Err(Error::interrupted(interrupted())),
    }
}

/// The message for work before a commit, for [`unless_cancelled`]. [`CommitSeries`](super::CommitSeries) names earlier commits.
pub(crate) fn nothing_committed() -> String {
    "interrupted: nothing was committed".to_owned()
}

/// The clock, the back-off and the cancellation of the loop.
pub trait RetryPolicy: Send + Sync {
    /// Called when a commit begins: its attempts and its time are counted from here. Commits may use one policy one after
    /// the other.
    fn start(&self) {}

    /// Milliseconds since the epoch.
    fn now_ms(&self) -> i64;

    /// How long to wait after this many attempts; `None` to give up.
    fn back_off(&self, attempts: u32) -> Option<Duration>;

    /// Whether the caller wants no further attempt. A running attempt is finished.
    fn is_cancelled(&self) -> bool {
        false
    }

    /// Called when a commit was made, with its version.
    fn committed(&self, _version: u64) {}
}

/// Commits, after all commits since the version that `prepared` is based on.
///
/// # Errors
/// `Conflict` if a winner conflicts with it, `Storage` if the store fails or the retry policy gives up, `Interrupted` if it is
/// cancelled. After a `Storage` error whose message says so the outcome is unknown: the log tells, by the transaction id.
pub async fn commit(prepared: PreparedCommit, committer: &dyn Committer, retry: &dyn RetryPolicy) -> Result<Committed> {
    Ok(try_commit(prepared, (committer, &NoVectors), retry).await?)
}

/// As [`commit`], also for commits with deletion vectors, and with errors that tell whether the commit certainly failed.
///
/// # Errors
/// As [`commit`].
pub async fn try_commit(
    prepared: PreparedCommit,
    (committer, vectors): (&dyn Committer, &dyn VectorFiles),
    retry: &dyn RetryPolicy,
) -> Result<Committed, Failed> {
    let mut commit_loop = CommitLoop::new(prepared).map_err(Failed::NotWritten)?;
    retry.start();
    let (mut tried, mut attempts) = (None, 0_u32);
    loop {
        if retry.is_cancelled() {
            commit_loop.cancel();
        }
        match commit_loop.next(retry.now_ms()) {
            Step::CheckBaseBeforePut { base, version } => {
                commit_loop.base_checked_before_put(was_cleaned_past(committer, &[base, version], version).await);
            }
            Step::Put { version, lines } => {
                log_another(tried.replace(version), version, attempts);
                attempts = attempts.saturating_add(1);
                commit_loop.put_answered(answer(committer.commit(version, lines).await));
            }
            Step::StoreVectors { vectors: unstored } => commit_loop.vectors_stored(vectors.store(unstored).await),
            Step::ReadVectors { descriptors } => {
                let reads = descriptors.into_iter().map(|descriptor| vectors.read(descriptor));
                commit_loop.vectors_read(stream::iter(reads).buffered(CONCURRENT_VECTORS).try_collect().await);
            }
            Step::FindMovedRows { moved } => {
                let found = unless_cancelled(vectors.find_moved(moved), retry, nothing_committed).await;
                commit_loop.moved_rows_found(found);
            }
            Step::SearchAddedRows { added } => {
                let found = unless_cancelled(vectors.search_added(added), retry, nothing_committed).await;
                commit_loop.added_rows_searched(found);
            }
            Step::Wait { attempts } => {
                let wait = retry.back_off(attempts);
                sleep(wait.unwrap_or_default(), retry).await;
                commit_loop.waited(wait.is_some());
            }
            Step::ReadFrom { version, count } => {
                let versions = (0..count as u64).map(|more| version.saturating_add(more));
                let mut reads = stream::iter(versions).map(|version| committer.read(version)).buffered(count);
                while let Some(read) = reads.next().await {
                    if !commit_loop.read(read) {
                        break;
                    }
                }
            }
            Step::MakeDurable { version } => commit_loop.made_durable(committer.make_durable(version).await),
            Step::CheckBaseAfterPut { base, version } => {
                commit_loop.base_checked_after_put(was_cleaned_past(committer, &[base], version).await);
            }
            Step::Done(committed) => {
                retry.committed(committed.version);
                return Ok(*committed);
            }
            Step::Failed(failed) => return Err(failed),
        }
    }
}

fn answer(put: Result<Put>) -> PutAnswer<Error> {
    match put {
        Ok(Put::Created) => PutAnswer::Created,
        Ok(Put::Exists) => PutAnswer::Exists,
        Ok(Put::Unknown(lost)) => PutAnswer::Unknown(lost),
        Err(error) => PutAnswer::Refused(error),
    }
}

/// Whether the log was cleaned past `version`. It was not if one of `needed` still exists: the loop then reads and checks
/// every commit after it.
async fn was_cleaned_past(committer: &dyn Committer, needed: &[u64], version: u64) -> Result<bool> {
    for needed in needed {
        if committer.read(*needed).await?.is_some() {
            return Ok(false);
        }
    }
    committer.log_continues_past(version).await
}

/// Logs that a commit was made in the table at `location`.
pub(crate) fn log_committed(committed: &Committed, location: &str) {
    let (version, attempts, files) = (committed.version, committed.attempts, committed.num_added);
    log::info!(target: TARGET, "committed version {version} of {location} (attempts: {attempts}, files added: {files})");
}

/// Logs why there is another attempt, if there was one before.
fn log_another(tried: Option<u64>, version: u64, attempts: u32) {
    match tried {
        Some(tried) if tried == version => {
            log::debug!(target: TARGET, "attempt {attempts}: version {version} is tried again");
        }
        Some(tried) => {
            log::debug!(target: TARGET, "attempt {attempts}: version {tried} is taken, {version} is tried next");
        }
        None => {}
    }
}

/// Logs the conflict with another writer, if the error is one.
pub(crate) fn log_conflict(error: &Error) {
    if let Kind::Conflict(conflict) = error.kind() {
        log::info!(target: TARGET, "nothing was committed, {conflict}: {error}");
    }
}

/// The state of the table at a snapshot, as far as commits depend on it. Reads protocol and metadata only, unless commits
/// must have in-commit timestamps, rows are tracked or the table is clustered.
///
/// # Errors
/// Those of reading the log.
pub async fn state_of(snapshot: &Snapshot) -> Result<TableState> {
    let (protocol, metadata) = (snapshot.protocol().clone(), snapshot.metadata().clone());
    let supported = feature::supported(&protocol);
    let (tracks_rows, is_clustered) = (supported.contains("rowTracking"), supported.contains("clustering"));
    let domains = if tracks_rows || is_clustered { domains(snapshot).await? } else { Vec::new() };
    let domain = |name: &str| domains.iter().find(|d| d.domain == name && !d.removed).map(|d| d.configuration.as_str());
    let row_id_watermark = domain(ROW_TRACKING_DOMAIN).filter(|_| tracks_rows).map(watermark).transpose();
    let clustering = domain(CLUSTERING_DOMAIN).filter(|_| is_clustered).map(clustering_columns).transpose();
    let in_table = |e: Error| e.in_table(snapshot.storage().location());
    let timestamp = timestamp(snapshot, &metadata).await?;
    Ok(TableState {
        version: snapshot.version(),
        protocol,
        metadata,
        row_id_watermark: row_id_watermark.map_err(in_table)?,
        clustering: clustering.map_err(in_table)?.unwrap_or_default(),
        timestamp,
    })
}

async fn domains(snapshot: &Snapshot) -> Result<Vec<DomainMetadata>> {
    match snapshot.checksum().and_then(|checksum| checksum.domain_metadata.clone()) {
        Some(domains) => Ok(domains),
        None => snapshot.domains().await,
    }
}

async fn timestamp(snapshot: &Snapshot, metadata: &Metadata) -> Result<Option<i64>> {
    let version = snapshot.version();
    let listed = snapshot.segment().latest_commit();
    if Properties::of(metadata).in_commit_timestamps()?.is_none() {
        return Ok(listed.map(|file| file.modified_ms));
    }
    if let Some(time) = snapshot.checksum().and_then(|checksum| checksum.in_commit_timestamp_opt) {
        return Ok(Some(time));
    }
    let path = log_file_path(&commit_name(version));
    match LogSource::of(snapshot.storage()).read_commit(version).await? {
        Some(lines) => {
            let with_context = |e: Error| e.at_version(version).in_file(&path).in_table(snapshot.storage().location());
            let info =
                parse_commit(&lines, Origin::Commit(version), Wanted::NoFiles).map_err(with_context)?.commit_info;
            let time = info.and_then(|info| info.in_commit_timestamp());
            time.map(Some).ok_or_else(|| {
                with_context(Error::corrupt("the commit has no inCommitTimestamp, which its table requires"))
            })
        }
        // Log cleanup has deleted the commit: the current time is later than the time of so old a commit.
        None => Ok(None),
    }
}

/// Waits in steps, so that a cancellation is noticed.
async fn sleep(mut wait: Duration, retry: &dyn RetryPolicy) {
    while !wait.is_zero() && !retry.is_cancelled() {
        let piece = wait.min(NOTICE);
        tokio::time::sleep(piece).await;
        wait = wait.saturating_sub(piece);
    }
}
