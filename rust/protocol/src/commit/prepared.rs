//! A prepared commit, its serialisation for each attempt, and the commit once it is in the log.
//!
//! PROTOCOL.md: "Commit Provenance Information".

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::attempt::{Attempt, SerializedCommit};
use super::pending::{CLUSTERING_DOMAIN, Pending, ROW_TRACKING_DOMAIN, TableState, clustering_columns, watermark};
use crate::action::CommitInfo;
use crate::action::batch::Origin;
use crate::action::json::{CommitActions, Wanted, parse_commit};
use crate::action::lines::Lines;
use crate::error::{Error, Result};
use crate::log::increment::FileSizes;
use crate::log::name::MAX_VERSION;
use crate::property::Properties;

/// What is recorded as the writer of a commit.
pub const ENGINE_INFO: &str = concat!("deltic/", env!("CARGO_PKG_VERSION"));

/// Maximum size of a commit in bytes: the columns that readers parse it into count with 32 bits.
const MAX_COMMIT_BYTES: u64 = i32::MAX as u64;

/// Members of commit info that clients give a meaning and a type.
const RESERVED_KEYS: [&str; 15] = [
    "version",
    "timestamp",
    "inCommitTimestamp",
    "operation",
    "operationParameters",
    "operationMetrics",
    "readVersion",
    "isolationLevel",
    "isBlindAppend",
    "engineInfo",
    "userMetadata",
    "txnId",
    "tags",
    "job",
    "notebook",
];

/// Members that clients read as strings.
const STRING_KEYS: [&str; 3] = ["userId", "userName", "clusterId"];

/// An older base than this is always looked for, even if the log's retention is longer: it may have been shortened since.
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// Everything that one commit writes.
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
    /// Further commit info of the user: see [`check_info`].
    pub info: Map<String, Value>,
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
    /// Its lines in the log.
    pub lines: Lines,
    /// Its non-file actions, parsed from these lines.
    pub actions: Arc<CommitActions>,
    /// The table after it.
    pub state: TableState,
    /// The in-commit timestamp, if the table has them.
    pub in_commit_timestamp: Option<i64>,
    /// Number of files that it added.
    pub num_added: usize,
    /// The sums and counts of its files that checksums need.
    pub sizes: Arc<FileSizes>,
    /// Whether its files were in the table before, and were only added again.
    pub is_re_add: bool,
    /// Whether there was no winner, so that the version before it is the one that it was prepared on.
    pub follows_base: bool,
}

/// Why a commit, or a checkpoint file, failed, and whether it may be in the log nonetheless.
#[derive(Debug)]
pub enum Failed {
    /// It is not there, and will not be made.
    NotWritten(Error),
    /// It may be there, or may still be made.
    Unknown(Error),
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::NotWritten(error) | Failed::Unknown(error) => error,
        }
    }
}

/// What all attempts at a commit have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct FirstAttempt {
    /// The version that it was to make.
    pub(super) version: u64,
    /// Whether rows were tracked at that version.
    pub(super) tracks_rows: bool,
}

impl PreparedCommit {
    /// The first attempt, if the commit is valid.
    pub(super) fn first_attempt(&self) -> Result<FirstAttempt> {
        self.pending.check_duplicates()?;
        Ok(FirstAttempt { version: self.pending.version(), tracks_rows: self.tracks_rows()? })
    }

    /// The version that the commit builds on, if it is so old that log cleanup may have deleted it.
    pub(super) fn base_that_may_be_cleaned(&self, now_ms: i64) -> Option<u64> {
        let state = self.pending.state.as_ref()?;
        let kept = Properties::of(&state.metadata).log_retention().unwrap_or(DAY_MS).min(DAY_MS);
        let is_young = state.timestamp.is_some_and(|timestamp| now_ms.saturating_sub(timestamp) < kept);
        (!is_young).then_some(state.version)
    }

    /// Whether rows are tracked in the state that this commit builds on.
    fn tracks_rows(&self) -> Result<bool> {
        match (self.pending.protocol(), self.pending.metadata()) {
            (Some(protocol), Some(metadata)) => Ok(Properties::of(metadata).row_tracking(protocol)?.is_some()),
            (None, _) | (_, None) => Ok(false),
        }
    }

    /// Serialises one attempt.
    pub(super) fn serialize_attempt(&self, first: FirstAttempt, now_ms: i64) -> Result<SerializedCommit> {
        // Beyond the last version no reader takes a file for a commit.
        if self.pending.version() > MAX_VERSION {
            return Err(Error::corrupt("the log has reached the largest possible version"));
        }
        let mut attempt = Attempt::new(&self.pending, first.version, now_ms)?;
        let commit = attempt.serialize(self.commit_info(first, now_ms)?, &self.pending, now_ms)?;
        if commit.lines.len() > MAX_COMMIT_BYTES {
            let message =
                "the commit would be larger than 2 GiB, which no reader accepts; split it into several commits";
            return Err(Error::invalid(message));
        }
        Ok(commit)
    }

    fn commit_info(&self, first: FirstAttempt, now_ms: i64) -> Result<CommitInfo> {
        let mut info = self.info.clone();
        info.insert("timestamp".to_owned(), json!(now_ms));
        info.insert("operation".to_owned(), json!(self.operation));
        info.insert("operationParameters".to_owned(), Value::Object(self.parameters.clone()));
        if self.pending.state.is_some() {
            info.insert("readVersion".to_owned(), json!(first.version.saturating_sub(1)));
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
            // Files that were written before row tracking was enabled have no ids that could be preserved.
            let preserved = first.tracks_rows.to_string();
            info.insert("tags".to_owned(), json!({ "delta.rowTracking.preserved": preserved }));
        }
        Ok(CommitInfo(info))
    }

    /// The commit, now that it is in the log as `commit`.
    pub(super) fn committed(&mut self, commit: SerializedCommit, attempts: u32, first: u64) -> Result<Committed> {
        let version = self.pending.version();
        // The non-file actions are parsed again, so that the state is what readers see.
        let SerializedCommit { lines, non_file_lines } = commit;
        let actions = parse_commit(&non_file_lines.into(), Origin::Commit(version), Wanted::NoFiles)?;
        let in_commit_timestamp = actions.commit_info.as_ref().and_then(CommitInfo::in_commit_timestamp);
        let (Some(protocol), Some(metadata)) = (
            actions.protocol.clone().or_else(|| self.pending.protocol().cloned()),
            actions.metadata.clone().or_else(|| self.pending.metadata().cloned()),
        ) else {
            return Err(Error::internal("a table was created without protocol or metadata"));
        };
        let before = self.pending.state.as_ref();
        let domain = |name: &str| actions.domains.iter().find(|d| d.domain == name);
        let row_id_watermark = match domain(ROW_TRACKING_DOMAIN) {
            Some(domain) if domain.removed => None,
            Some(domain) => Some(watermark(&domain.configuration)?),
            None => before.and_then(|state| state.row_id_watermark),
        };
        let clustering = match domain(CLUSTERING_DOMAIN) {
            Some(domain) if domain.removed => Vec::new(),
            Some(domain) => clustering_columns(&domain.configuration)?,
            None => before.map(|state| state.clustering.clone()).unwrap_or_default(),
        };
        let time = in_commit_timestamp.or_else(|| actions.commit_info.as_ref().and_then(CommitInfo::timestamp));
        let state = TableState {
            version,
            protocol,
            metadata,
            row_id_watermark,
            clustering,
            timestamp: time.max(before.and_then(|state| state.timestamp)),
        };
        let mut sizes = self.pending.actions.take_sizes();
        for marked in self.pending.marked.iter() {
            let [remove, add] = marked.actions(0)?;
            sizes.push(&remove);
            sizes.push(&add);
        }
        Ok(Committed {
            version,
            attempts,
            lines,
            actions: Arc::new(actions),
            state,
            in_commit_timestamp,
            num_added: self.pending.actions.num_added(),
            sizes: Arc::new(sizes),
            is_re_add: self.pending.actions.is_re_add(),
            follows_base: version == first,
        })
    }
}

/// Refuses members of commit info that a user may not set: clients that expect another type could not read the log.
///
/// # Errors
/// `Invalid`, naming the member.
pub fn check_info(info: &Map<String, Value>) -> Result<()> {
    for (name, value) in info {
        let is_one_of = |names: &[&str]| names.iter().any(|taken| taken.eq_ignore_ascii_case(name));
        if is_one_of(&RESERVED_KEYS) {
            let message = format!("commit_info cannot have `{name}`, which Delta's clients write; use another name");
            return Err(Error::invalid(message));
        }
        if is_one_of(&STRING_KEYS) && !value.is_string() {
            return Err(Error::invalid(format!("`{name}` in commit_info is a string to Delta's clients")));
        }
    }
    Ok(())
}

/// The error that a commit may be in the log, or may still be made, for this reason.
pub fn unknown_outcome(txn_id: &str, attempts: u32, source: Error) -> Error {
    let message = format!(
        "the outcome of the commit is unknown (attempts: {attempts}); \
         look for the txnId {txn_id} in the log before writing again"
    );
    Error::storage(false, message).caused_by(source)
}

/// The error that a commit is in the log, but readers may not see it, for this reason.
pub fn committed_but_unreadable(version: u64, txn_id: &str, why: &str) -> Error {
    let message = format!(
        "the outcome of the commit is unknown: it is in the log at version {version}, but {why}, so readers may not see \
         its rows; look at the table, and for the txnId {txn_id} in its log, before writing again"
    );
    Error::storage(false, message).at_version(version)
}
