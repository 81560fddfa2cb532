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
use deltic_protocol::action::json::{Wanted, parse_commit, print_action};
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
        let mut version = self.base.map_or(0, |base| base.saturating_add(1));
        let mut attempts = 0;
        loop {
            attempts += 1;
            let lines = self.lines(pace.now_ms())?;
            let unknown = match committer.commit(version, lines).await? {
                Put::Created => return Ok(Committed { version, attempts }),
                Put::Exists => None,
                Put::Unknown(error) => Some(error),
            };
            match self.follow(committer, version).await? {
                Follow::Ours(version) => return Ok(Committed { version, attempts }),
                Follow::Next(next) => version = next,
            }
            match pace.back_off(attempts) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(self.given_up(attempts, unknown)),
            }
        }
    }

    /// Reads and judges the winners from `version` on.
    async fn follow(&self, committer: &dyn Committer, mut version: u64) -> Result<Follow> {
        while let Some(lines) = committer.read(version).await? {
            let place = |e: Error| e.at_version(version).in_file(log_path(&commit_name(version)));
            let winner = parse_commit(&lines, Origin::Commit(version), Wanted::All).map_err(place)?;
            if winner.commit_info.as_ref().and_then(CommitInfo::txn_id) == Some(self.txn_id.as_str()) {
                return Ok(Follow::Ours(version));
            }
            check(self.read, &self.actions, &winner).map_err(|conflict| {
                Error::new(Kind::Conflict(conflict), format!("{conflict}: {}", conflict.explanation()))
                    .at_version(version)
            })?;
            version = version.saturating_add(1);
        }
        Ok(Follow::Next(version))
    }

    fn given_up(&self, attempts: u32, unknown: Option<Error>) -> Error {
        let id = &self.txn_id;
        match unknown {
            Some(error) => Error::storage(
                true,
                format!(
                    "the outcome of the commit is unknown after {attempts} attempts; \
                     look for the txnId {id} in the log before writing again"
                ),
            )
            .caused_by(error),
            None => Error::storage(
                true,
                format!(
                    "the commit lost the race {attempts} times and was not made; write again, or allow more attempts"
                ),
            ),
        }
    }

    fn lines(&self, now_ms: i64) -> Result<Bytes> {
        let mut lines = Vec::new();
        print_action(&Action::CommitInfo(self.commit_info(now_ms)), &mut lines)?;
        self.actions.iter().try_for_each(|action| print_action(action, &mut lines))?;
        Ok(Bytes::from(lines))
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

enum Follow {
    Ours(u64),
    Next(u64),
}
