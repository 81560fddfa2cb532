//! A transaction: prepared once, committed once, after every commit that came in between.
//!
//! The loop: put the next version if it is absent. Created: done. Exists, or unknown: read the commits from there on. One
//! carries our transaction id: it was ours. None is there: the same version again. Otherwise each winner is judged in
//! order, the actions are said anew on what it left, and the version after the last one is tried at once: who has to wait
//! waits before it reads. A version is never tried before the one below it was read.
//!
//! Clock, back-off and cancellation are passed in, so that a simulation can drive the loop.
//!
//! PROTOCOL.md: "Commit Protocol", "Commit Provenance Information".

use std::sync::Arc;
use std::time::Duration;

use deltic_protocol::action::batch::Origin;
use deltic_protocol::action::json::{CommitActions, Wanted, parse_commit};
use deltic_protocol::action::lines::Lines;
use deltic_protocol::action::{CommitInfo, Metadata};
use deltic_protocol::conflict::rebase::{Attempt, watermark};
use deltic_protocol::conflict::{Pending, ROW_TRACKING_DOMAIN, TableState};
use deltic_protocol::feature;
use deltic_protocol::log::name::{MAX_VERSION, commit_name};
use deltic_protocol::property::Properties;
use futures::stream::{self, StreamExt};
use serde_json::{Map, Value, json};

use crate::commit::Committer;
pub use crate::error::Failed;
use crate::error::{Error, Kind, Result};
use crate::events::TARGET;
use crate::log_reader::log_path;
use crate::snapshot::Snapshot;
use crate::storage::Put;

pub mod builder;

/// What is recorded as the writer of a commit.
pub const ENGINE_INFO: &str = concat!("deltic/", env!("CARGO_PKG_VERSION"));

/// Missed commits that are read at once.
const CONCURRENT_READS: usize = 16;

/// Of a commit: the columns that it is read into count with 32 bits.
const MOST_BYTES: u64 = i32::MAX as u64;

/// How long a cancellation may go unnoticed while waiting.
const NOTICE: Duration = Duration::from_millis(50);
/// How old a version may be, however long the log is kept, without being looked for: the retention may have been cut since.
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// Everything that one commit will say.
#[derive(Debug, Clone)]
pub struct PreparedCommit {
    /// What it has read and does, and the table it builds on.
    pub pending: Pending,
    /// Name of the operation, e.g. `WRITE`.
    pub operation: String,
    /// Parameters of the operation.
    pub parameters: Map<String, Value>,
    /// Counters of the operation.
    pub metrics: Map<String, Value>,
    /// Free text of the user.
    pub user_metadata: Option<String>,
    /// Unique id, by which the commit is recognised after a lost answer.
    pub txn_id: String,
}

/// A commit that is in the log.
#[derive(Debug, Clone)]
pub struct Committed {
    /// Its version.
    pub version: u64,
    /// How many puts it took.
    pub attempts: u32,
    /// What stands in the log.
    pub lines: Lines,
    /// Of that, what is not of files, read back.
    pub said: Arc<CommitActions>,
    /// The table after it.
    pub state: TableState,
    /// The commit's time, where commits carry one.
    pub in_commit_timestamp: Option<i64>,
    /// Files that joined the table.
    pub num_added: usize,
    /// Whether they were there before, and were only said anew.
    pub says_again: bool,
    /// Whether it met no other writer, so that the version before it is the one that it was prepared on.
    pub follows_base: bool,
}

impl Committed {
    /// Logs that it was made in the table at `location`.
    pub(crate) fn log(&self, location: &str) {
        let (version, attempts, files) = (self.version, self.attempts, self.num_added);
        log::info!(target: TARGET, "committed version {version} of {location} (attempts: {attempts}, files added: {files})");
    }
}

/// Logs that another writer is in the way of a commit, if that is what the error is.
pub(crate) fn log_conflict(error: &Error) {
    if let Kind::Conflict(conflict) = error.kind() {
        log::info!(target: TARGET, "nothing was committed, {conflict}: {error}");
    }
}

/// Time, as the loop sees it.
pub trait RetryPolicy: Send + Sync {
    /// A commit begins, whose attempts and time are counted from here: several may share one policy, one after the other.
    fn start(&self) {}

    /// Milliseconds since the epoch.
    fn now_ms(&self) -> i64;

    /// How long to wait after this many attempts; `None` gives up.
    fn back_off(&self, attempts: u32) -> Option<Duration>;

    /// Whether the caller wants no further attempt. One that is under way is finished.
    fn is_cancelled(&self) -> bool {
        false
    }
}

impl PreparedCommit {
    /// Commits, after whatever was committed since the version it builds on.
    ///
    /// # Errors
    /// `Conflict` if a winner does not allow it, `Storage` if the store fails, the retry policy gives up or is cancelled. After a
    /// `Storage` error whose message says so the outcome is unknown: the log tells, by the transaction id.
    pub async fn commit(self, committer: &dyn Committer, retry: &dyn RetryPolicy) -> Result<Committed> {
        Ok(self.try_commit(committer, retry).await?)
    }

    /// As [`PreparedCommit::commit`], for who has to know whether a failure is certain.
    ///
    /// # Errors
    /// As [`PreparedCommit::commit`].
    pub async fn try_commit(mut self, committer: &dyn Committer, retry: &dyn RetryPolicy) -> Result<Committed, Failed> {
        let first = self.pending.version();
        let prepared = self.pending.check_duplicates().and_then(|()| self.tracks_rows());
        let tracked = prepared.map_err(Failed::Certainly)?;
        retry.start();
        self.check_not_passed(committer, retry.now_ms()).await?;
        let mut attempts = 0;
        // Why it is not known whether a put of `version` landed, or still will.
        let mut unknown = None;
        loop {
            if retry.is_cancelled() {
                return Err(self.failed(attempts, unknown, interrupted(attempts)));
            }
            attempts += 1;
            let version = self.pending.version();
            let (lines, others) = match self.print((first, tracked), retry.now_ms()) {
                Ok(printed) => printed,
                Err(error) => return Err(self.failed(attempts, unknown, error)),
            };
            match committer.commit(version, lines.clone()).await {
                Ok(Put::Created) => {
                    self.check_not_late(committer, attempts, retry.now_ms()).await?;
                    return self.landed((lines, others), attempts, version == first).map_err(Failed::Perhaps);
                }
                // Something on the way may have sent the request twice, so it can be ours that is there.
                Ok(Put::Exists) => unknown = unknown.or_else(|| Some(unread(version))),
                Ok(Put::Unknown(lost)) => unknown = Some(lost),
                Err(error) => return Err(self.failed(attempts, unknown, error)),
            }
            drop(lines);
            // The wait is before the reading: an attempt that followed a wait would nearly always come too late where many
            // write, and who writes without a pause would win every time.
            let wait = retry.back_off(attempts);
            sleep(wait.unwrap_or_default(), retry).await;
            match self.follow(committer).await {
                Ok(Some(found)) => {
                    let others = found.others().map_err(Failed::Perhaps)?;
                    self.check_not_late(committer, attempts, retry.now_ms()).await?;
                    let follows_base = self.pending.version() == first;
                    return self.landed((found, others), attempts, follows_base).map_err(Failed::Perhaps);
                }
                Ok(None) if self.pending.version() == version => {
                    log::debug!(target: TARGET, "attempt {attempts}: version {version} is tried again");
                }
                // Whoever has the version keeps it: a put of ours that is still under way cannot land any more.
                Ok(None) => {
                    let after = self.pending.version();
                    log::debug!(target: TARGET, "attempt {attempts}: others have version {version}, {after} is tried next");
                    unknown = None;
                }
                Err(Failed::Perhaps(error)) if matches!(error.kind(), Kind::Storage { .. }) => {
                    return Err(Failed::Perhaps(self.unknown_outcome(attempts, unknown.unwrap_or(error))));
                }
                Err(failed) => return Err(failed),
            }
            if wait.is_none() {
                return Err(self.failed(attempts, unknown, race_lost(attempts)));
            }
        }
    }

    /// The version that this builds on, if that is so old that the log may have been cleaned of it.
    fn old_base(&self, now_ms: i64) -> Option<u64> {
        let state = self.pending.state.as_ref()?;
        let kept = Properties::of(&state.metadata).log_retention().unwrap_or(DAY_MS).min(DAY_MS);
        let is_young = state.timestamp.is_some_and(|timestamp| now_ms.saturating_sub(timestamp) < kept);
        (!is_young).then_some(state.version)
    }

    /// Refuses to put a version that is free only because the commit that had it was cleaned away: no reader looks there
    /// any more, and nobody judged what was committed since.
    async fn check_not_passed(&self, committer: &dyn Committer, now_ms: i64) -> Result<(), Failed> {
        let Some(base) = self.old_base(now_ms) else { return Ok(()) };
        let version = self.pending.version();
        let is_passed = async {
            // A version that is there is read and judged, whatever became of the one before it.
            for needed in [base, version] {
                if committer.read(needed).await?.is_some() {
                    return Ok(false);
                }
            }
            committer.is_passed(version).await
        };
        if is_passed.await.map_err(Failed::Certainly)? {
            let message = format!(
                "the log was cleaned while this was prepared on version {base}, which is gone, so nothing was \
                 committed; begin again on the newest version"
            );
            return Err(Failed::Certainly(Error::storage(false, message).at_version(version)));
        }
        Ok(())
    }

    /// The same, once a version is put: the log may have been cleaned just before. The commit stays, for others may have
    /// built on it already; that it counts is not said.
    async fn check_not_late(&self, committer: &dyn Committer, attempts: u32, now_ms: i64) -> Result<(), Failed> {
        let Some(base) = self.old_base(now_ms) else { return Ok(()) };
        let version = self.pending.version();
        let is_late = match committer.read(base).await {
            Ok(Some(_)) => Ok(false),
            Ok(None) => committer.is_passed(version).await,
            Err(error) => Err(error),
        };
        match is_late {
            Ok(false) => Ok(()),
            Ok(true) => {
                let why = format!("the log was cleaned of version {base}, which it was prepared on, and goes on later");
                Err(Failed::Perhaps(in_the_log_but(version, &self.txn_id, &why)))
            }
            // It is in the log, and nobody knows whether it counts.
            Err(error) => Err(Failed::Perhaps(self.unknown_outcome(attempts, error))),
        }
    }

    /// Reads and judges the winners from the version that was tried on, until one is not there. A winner that is this
    /// very transaction is given back.
    async fn follow(&mut self, committer: &dyn Committer) -> Result<Option<Lines>, Failed> {
        let tried = self.pending.version();
        // Until the version that was tried is read, it may be ours that is there.
        let unread = |at: u64| if at == tried { Failed::Perhaps } else { Failed::Certainly };
        let mut seen = 0_usize;
        loop {
            let from = self.pending.version();
            // As many at once as there were already: few are missed as a rule, and many are not read one by one.
            let ahead = seen.clamp(1, CONCURRENT_READS);
            let versions = (0..ahead as u64).map(|more| from.saturating_add(more));
            let mut reads = stream::iter(versions).map(|version| committer.read(version)).buffered(ahead);
            while let Some(read) = reads.next().await {
                let at = self.pending.version();
                let Some(lines) = read.map_err(unread(at))? else { return Ok(None) };
                let place = |e: Error| e.at_version(at).in_file(log_path(&commit_name(at)));
                let winner =
                    parse_commit(&lines, Origin::Commit(at), Wanted::All).map_err(place).map_err(unread(at))?;
                if winner.commit_info.as_ref().and_then(CommitInfo::txn_id) == Some(self.txn_id.as_str()) {
                    committer.settle(at).await.map_err(Failed::Perhaps)?;
                    return Lines::of(&lines).map(Some).map_err(Failed::Perhaps);
                }
                self.pending.follow(&winner, at).map_err(Failed::Certainly)?;
                seen += 1;
            }
        }
    }

    /// Whether rows are tracked, as far as this transaction knew when it was prepared.
    fn tracks_rows(&self) -> Result<bool> {
        match (self.pending.protocol(), self.pending.metadata()) {
            (Some(protocol), Some(metadata)) => Ok(Properties::of(metadata).row_tracking(protocol)?.is_some()),
            (None, _) | (_, None) => Ok(false),
        }
    }

    /// What is to be said of a commit that is in the log.
    fn landed(self, (lines, others): (Lines, Vec<u8>), attempts: u32, follows_base: bool) -> Result<Committed> {
        let version = self.pending.version();
        // The attempt's own words are the ones that count.
        let said = parse_commit(&others.into(), Origin::Commit(version), Wanted::NoFiles)?;
        let in_commit_timestamp = said.commit_info.as_ref().and_then(CommitInfo::in_commit_timestamp);
        let (Some(protocol), Some(metadata)) = (
            said.protocol.clone().or_else(|| self.pending.protocol().cloned()),
            said.metadata.clone().or_else(|| self.pending.metadata().cloned()),
        ) else {
            return Err(Error::internal("a table was created without protocol or metadata"));
        };
        let domain = said.domains.iter().find(|d| d.domain == ROW_TRACKING_DOMAIN);
        let given = domain.map(|d| watermark(&d.configuration)).transpose()?;
        let before = self.pending.state.as_ref();
        let time = in_commit_timestamp.or_else(|| said.commit_info.as_ref().and_then(CommitInfo::timestamp));
        let state = TableState {
            version,
            protocol,
            metadata,
            row_id_watermark: given.or(before.and_then(|state| state.row_id_watermark)),
            timestamp: time.max(before.and_then(|state| state.timestamp)),
        };
        let (num_added, says_again) = (self.pending.actions.num_added(), self.pending.actions.says_again());
        Ok(Committed {
            version,
            attempts,
            lines,
            said: Arc::new(said),
            state,
            in_commit_timestamp,
            num_added,
            says_again,
            follows_base,
        })
    }

    /// `error`, unless there is worse to say. An unknown outcome is never retryable: whoever runs the write again may do
    /// it twice.
    fn failed(&self, attempts: u32, unknown: Option<Error>, error: Error) -> Failed {
        match unknown {
            Some(lost) => Failed::Perhaps(self.unknown_outcome(attempts, lost)),
            None => Failed::Certainly(error),
        }
    }

    fn unknown_outcome(&self, attempts: u32, lost: Error) -> Error {
        unknown_outcome(&self.txn_id, attempts, lost)
    }

    /// What is to stand in the log, and again what of it is not of files.
    fn print(&self, (first, tracked): (u64, bool), now_ms: i64) -> Result<(Lines, Vec<u8>)> {
        check_version(self.pending.version())?;
        let mut attempt = Attempt::new(&self.pending, first, now_ms)?;
        let info = self.commit_info((first, tracked), now_ms)?;
        let (lines, others) = attempt.print(info, &self.pending.actions)?;
        if lines.len() > MOST_BYTES {
            return Err(Error::invalid("the commit would be larger than 2 GiB, which no reader takes; make several"));
        }
        Ok((lines, others))
    }

    fn commit_info(&self, (first, tracked): (u64, bool), now_ms: i64) -> Result<CommitInfo> {
        let mut info = Map::new();
        info.insert("timestamp".to_owned(), json!(now_ms));
        info.insert("operation".to_owned(), json!(self.operation));
        info.insert("operationParameters".to_owned(), Value::Object(self.parameters.clone()));
        if self.pending.state.is_some() {
            info.insert("readVersion".to_owned(), json!(first.saturating_sub(1)));
        }
        info.insert("isolationLevel".to_owned(), json!(self.pending.effective_isolation().as_str()));
        info.insert("isBlindAppend".to_owned(), json!(self.pending.is_blind_append()));
        info.insert("operationMetrics".to_owned(), Value::Object(self.metrics.clone()));
        info.insert("engineInfo".to_owned(), json!(ENGINE_INFO));
        if let Some(text) = &self.user_metadata {
            info.insert("userMetadata".to_owned(), json!(text));
        }
        info.insert("txnId".to_owned(), json!(self.txn_id));
        if self.tracks_rows()? {
            // Files that were written before row tracking was enabled could not carry ids along.
            info.insert("tags".to_owned(), json!({ "delta.rowTracking.preserved": tracked.to_string() }));
        }
        Ok(CommitInfo(info))
    }
}

/// The table at a snapshot, as far as commits depend on it. Reads protocol and metadata only, unless commits must carry
/// times or rows are tracked.
///
/// # Errors
/// Those of reading the log.
pub async fn state_of(snapshot: &Snapshot) -> Result<TableState> {
    let (protocol, metadata) = (snapshot.protocol().clone(), snapshot.metadata().clone());
    let row_id_watermark = match feature::supported(&protocol).contains("rowTracking") {
        true => row_id_watermark(snapshot).await?,
        false => None,
    };
    let timestamp = timestamp(snapshot, &metadata).await?;
    Ok(TableState { version: snapshot.version(), protocol, metadata, row_id_watermark, timestamp })
}

async fn row_id_watermark(snapshot: &Snapshot) -> Result<Option<i64>> {
    let domains = match snapshot.checksum().and_then(|checksum| checksum.domain_metadata.clone()) {
        Some(domains) => domains,
        None => snapshot.domains().await?,
    };
    let domain = domains.iter().find(|d| d.domain == ROW_TRACKING_DOMAIN && !d.removed);
    domain.map(|d| watermark(&d.configuration)).transpose().map_err(|e| e.in_table(snapshot.storage().location()))
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
    let path = log_path(&commit_name(version));
    match snapshot.storage().get(&path).await {
        Ok(lines) => {
            let place = |e: Error| e.at_version(version).in_file(&path).in_table(snapshot.storage().location());
            let info = parse_commit(&lines, Origin::Commit(version), Wanted::NoFiles).map_err(place)?.commit_info;
            let time = info.and_then(|info| info.in_commit_timestamp());
            time.map(Some)
                .ok_or_else(|| place(Error::corrupt("the commit has no inCommitTimestamp, which its table asks for")))
        }
        // Cleaned up behind a checkpoint: a clock that runs is later than what is that old.
        Err(e) if e.is_not_found() => Ok(None),
        Err(e) => Err(e),
    }
}

/// Waits, in pieces, so that a cancellation is noticed.
async fn sleep(mut wait: Duration, retry: &dyn RetryPolicy) {
    while !wait.is_zero() && !retry.is_cancelled() {
        let piece = wait.min(NOTICE);
        tokio::time::sleep(piece).await;
        wait = wait.saturating_sub(piece);
    }
}

/// That a commit may be in the log, or still get there, for the reason that is given.
pub(crate) fn unknown_outcome(txn_id: &str, attempts: u32, lost: Error) -> Error {
    let message = format!(
        "the outcome of the commit is unknown (attempts: {attempts}); \
         look for the txnId {txn_id} in the log before writing again"
    );
    Error::storage(false, message).caused_by(lost)
}

/// That a commit is in the log, and that readers may not see it there, for the reason that is given.
pub(crate) fn in_the_log_but(version: u64, txn_id: &str, why: &str) -> Error {
    let message = format!(
        "the outcome of the commit is unknown: it is in the log at version {version}, but {why}, so readers may not see \
         its rows; look at the table, and for the txnId {txn_id} in its log, before writing again"
    );
    Error::storage(false, message).at_version(version)
}

fn unread(version: u64) -> Error {
    Error::storage(true, format!("version {version} exists and was not read, so nobody knows whose it is"))
}

/// Beyond the last version no reader takes a file for a commit.
fn check_version(version: u64) -> Result<()> {
    if version > MAX_VERSION {
        let message = "the log is at the last version there can be; the file that says so may not belong to it";
        return Err(Error::corrupt(message));
    }
    Ok(())
}

fn race_lost(attempts: u32) -> Error {
    let message = format!(
        "the commit lost the race to other writers and was not made (attempts: {attempts}); \
         write again, or allow more attempts"
    );
    Error::storage(true, message)
}

fn interrupted(attempts: u32) -> Error {
    Error::storage(true, format!("interrupted: nothing was committed (attempts: {attempts})"))
}
