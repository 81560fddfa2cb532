//! Runs the commit loop of the protocol with a committer, a clock and a retry policy.
//!
//! [`CommitLoop`] documents what the loop does, and why. Clock, back-off and cancellation are passed in, so that a
//! simulation can run this, too (`tests/rust/simulation/main.rs`).
//!
//! PROTOCOL.md: "Commit Protocol".

use deltic_protocol::commit::state::PutAnswer;
use deltic_protocol::commit::{CommitLoop, Committed, Failed, PreparedCommit, Step};
use futures::stream::{self, StreamExt, TryStreamExt};

use super::retry::{RetryPolicy, nothing_committed, sleep, unless_cancelled};
use super::vectors::{DeletionVectorStore, NoDeletionVectors};
use crate::committers::Committer;
use crate::error::{Error, Kind, Result};
use crate::events::TARGET;
use deltic_store::{Put, Syncing};

/// How many deletion vectors of a winner are read at once.
const CONCURRENT_VECTORS: usize = 16;

/// Commits, after all commits since the version that `prepared` is based on. The files that it names are durable.
///
/// # Errors
/// `Conflict` if a winner conflicts with it, `Storage` if the store fails or the retry policy gives up, `Interrupted` if it is
/// cancelled. After a `Storage` error whose message says so the outcome is unknown: the log tells, by the transaction id.
pub async fn commit(prepared: PreparedCommit, committer: &dyn Committer, retry: &dyn RetryPolicy) -> Result<Committed> {
    Ok(try_commit(prepared, committer, &NoDeletionVectors, &mut Syncing::default(), retry).await?)
}

/// As [`commit`], also for commits with deletion vectors, and with errors that tell whether the commit certainly failed.
/// `syncing`: that of the files which it names. The first put takes it; it is left if there was no put.
///
/// # Errors
/// As [`commit`].
pub async fn try_commit(
    prepared: PreparedCommit,
    committer: &dyn Committer,
    vectors: &dyn DeletionVectorStore,
    syncing: &mut Syncing,
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
                log_retry(tried.replace(version), version, attempts);
                attempts = attempts.saturating_add(1);
                commit_loop.put_answered(answer(committer.commit(version, lines, std::mem::take(syncing)).await));
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
            Step::ReadFrom { version, count } => read_from(&mut commit_loop, committer, version, count).await,
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

/// Reads versions in order, up to `count` at once, until the loop needs no more.
async fn read_from(commit_loop: &mut CommitLoop, committer: &dyn Committer, version: u64, count: usize) {
    let versions = (0..count as u64).map(|more| version.saturating_add(more));
    let mut reads = stream::iter(versions).map(|version| committer.read(version)).buffered(count);
    while let Some(read) = reads.next().await {
        if !commit_loop.read(read) {
            break;
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

/// Logs why a commit is tried again. `tried`: the version of the last put, if there was one.
fn log_retry(tried: Option<u64>, version: u64, attempts: u32) {
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
