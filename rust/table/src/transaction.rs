//! A transaction: prepared once, committed once, after every commit that came in between.
//!
//! The loop: put the next version if it is absent. Created: done. Exists, or unknown: read the commits from there on. One
//! carries our transaction id: it was ours. None is there: the same version again. Otherwise each winner is judged in
//! order, and the version after the last one is tried. A version is never tried before the one below it was read.
//!
//! Clock and back-off are passed in, so that a simulation can drive the loop.
//!
//! PROTOCOL.md: "Commit Protocol", "Commit Provenance Information".

use std::time::Duration;

use bytes::Bytes;
use deltic_protocol::action::batch::Origin;
use deltic_protocol::action::json::{Wanted, parse_commit, print_commit};
use deltic_protocol::action::{Action, CommitInfo};
use deltic_protocol::conflict::{ReadSet, check};
use deltic_protocol::log::name::commit_name;
use serde_json::{Map, Value, json};

use crate::commit::Committer;
use crate::error::{Error, Kind, Result};
use crate::log_reader::log_path;
use crate::storage::Put;

/// What is recorded as the writer of a commit.
pub const ENGINE_INFO: &str = concat!("deltic/", env!("CARGO_PKG_VERSION"));

/// Everything that one commit will say.
#[derive(Debug, Clone)]
pub struct Transaction {
    /// Version that the transaction was prepared on; `None` creates the table.
    pub base: Option<u64>,
    /// What it has read.
    pub read: ReadSet,
    /// What it does, without the commit info.
    pub actions: Vec<Action>,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// Its version.
    pub version: u64,
    /// How many puts it took.
    pub attempts: u32,
}

/// Time, as the loop sees it.
pub trait Pace: Send + Sync {
    /// Milliseconds since the epoch.
    fn now_ms(&self) -> i64;

    /// How long to wait after this many attempts; `None` gives up.
    fn back_off(&self, attempts: u32) -> Option<Duration>;
}

impl Transaction {
    /// Commits, after whatever was committed since the base.
    ///
    /// # Errors
    /// `Conflict` if a winner does not allow it, `Storage` if the store fails or the pace gives up. After a `Storage`
    /// error whose message says so the outcome is unknown: the log tells, by the transaction id.
    pub async fn commit(&self, committer: &dyn Committer, pace: &dyn Pace) -> Result<Committed> {
        let actions = print_commit(&self.actions)?;
        let mut version = self.base.map_or(0, |base| base.saturating_add(1));
        let mut attempts = 0;
        // Why it is not known whether an earlier put of `version` landed, or still will.
        let mut unknown = None;
        loop {
            attempts += 1;
            let mut lines = print_commit(&[Action::CommitInfo(self.commit_info(pace.now_ms()))])?;
            lines.extend_from_slice(&actions);
            match committer.commit(version, Bytes::from(lines)).await {
                Ok(Put::Created) => return Ok(Committed { version, attempts }),
                Ok(Put::Exists) => {}
                Ok(Put::Unknown(lost)) => unknown = Some(lost),
                Err(error) => return Err(self.failed(attempts, unknown, error)),
            }
            let tried = version;
            match self.follow(committer, &mut version).await {
                Ok(true) => return Ok(Committed { version, attempts }),
                Ok(false) if version == tried => {}
                // Whoever has the version keeps it: a put of ours that is still under way cannot land any more.
                Ok(false) => unknown = None,
                Err(error) if version == tried && matches!(error.kind(), Kind::Storage { .. }) => {
                    return Err(self.failed(attempts, unknown, error));
                }
                Err(error) => return Err(error),
            }
            match pace.back_off(attempts) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(self.failed(attempts, unknown, race_lost(attempts))),
            }
        }
    }

    /// Reads and judges the winners from `version` on, moving it to the first version that is not there. True if a
    /// winner is this very transaction; then `version` is where it stands.
    async fn follow(&self, committer: &dyn Committer, version: &mut u64) -> Result<bool> {
        while let Some(lines) = committer.read(*version).await? {
            let at = *version;
            let place = |e: Error| e.at_version(at).in_file(log_path(&commit_name(at)));
            let winner = parse_commit(&lines, Origin::Commit(at), Wanted::All).map_err(place)?;
            if winner.commit_info.as_ref().and_then(CommitInfo::txn_id) == Some(self.txn_id.as_str()) {
                return Ok(true);
            }
            check(self.read, &self.actions, &winner).map_err(|conflict| {
                Error::new(Kind::Conflict(conflict), format!("{conflict}: {}", conflict.explanation())).at_version(at)
            })?;
            *version = at.saturating_add(1);
        }
        Ok(false)
    }

    /// `error`, unless there is worse to say. An unknown outcome is never retryable: whoever runs the write again may do
    /// it twice.
    fn failed(&self, attempts: u32, unknown: Option<Error>, error: Error) -> Error {
        let Some(lost) = unknown else { return error };
        let id = &self.txn_id;
        let message = format!(
            "the outcome of the commit is unknown (attempts: {attempts}); \
             look for the txnId {id} in the log before writing again"
        );
        Error::storage(false, message).caused_by(lost)
    }

    fn commit_info(&self, now_ms: i64) -> CommitInfo {
        let only_adds = self.actions.iter().all(|a| !matches!(a, Action::Remove(_) | Action::Cdc(_)));
        let mut info = Map::new();
        info.insert("timestamp".to_owned(), json!(now_ms));
        info.insert("operation".to_owned(), json!(self.operation));
        info.insert("operationParameters".to_owned(), Value::Object(self.parameters.clone()));
        if let Some(base) = self.base {
            info.insert("readVersion".to_owned(), json!(base));
        }
        info.insert("isolationLevel".to_owned(), json!("Serializable"));
        info.insert("isBlindAppend".to_owned(), json!(self.read == ReadSet::Nothing && only_adds));
        info.insert("operationMetrics".to_owned(), Value::Object(self.metrics.clone()));
        info.insert("engineInfo".to_owned(), json!(ENGINE_INFO));
        if let Some(text) = &self.user_metadata {
            info.insert("userMetadata".to_owned(), json!(text));
        }
        info.insert("txnId".to_owned(), json!(self.txn_id));
        CommitInfo(info)
    }
}

fn race_lost(attempts: u32) -> Error {
    let message = format!(
        "the commit lost the race to other writers and was not made (attempts: {attempts}); \
         write again, or allow more attempts"
    );
    Error::storage(true, message)
}
