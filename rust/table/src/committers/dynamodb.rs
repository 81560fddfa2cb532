//! Commits through DynamoDB, for buckets without conditional puts.
//!
//! This is the method of delta-spark's `S3DynamoDBLogStore`, so that both can write to one table:
//! 1. Write the commit to a temporary file.
//! 2. Put an item with the commit's name into the DynamoDB table, if absent. One writer succeeds. The item *is* the commit.
//! 3. Copy the file to the commit's name, and mark the item complete.
//!
//! If a writer dies after step 2, the next reader or writer does step 3 (`log/claimed.rs`).
//!
//! Invariant: before version N is claimed, version N-1 is under its own name. Proved by the tests in
//! `tests/rust/table/storage/dynamodb.rs`, with a scripted DynamoDB and with a real one.

use bytes::Bytes;
use deltic_protocol::action::lines::Lines;
use deltic_protocol::commit::TableState;
use deltic_protocol::log::name::{LogName, commit_name};
use futures::future::BoxFuture;

use super::committer::{CommitFile, Committer, OtherLogFile};
use super::log::{is_same_table, log_continues_past};
use crate::error::{Error, Result};
use crate::log::claimed::ClaimedCommits;
use crate::log::{LogSource, log_file_path};
use deltic_store::dynamodb::{Claim, Item, LockTable, TablePaths, now_seconds};
use deltic_store::{Put, Syncing};

/// The directory of temporary files, below the log.
const TEMPORARY: &str = ".tmp";

/// Commits by claiming `_delta_log/<version>.json` in a table of DynamoDB.
#[derive(Debug, Clone)]
pub struct DynamoDbCommitter {
    log: LogSource,
    claimed: ClaimedCommits,
}

impl DynamoDbCommitter {
    /// Commits to this log, if the options of its storage name a DynamoDB table for commits.
    pub fn of(log: &LogSource) -> Option<Self> {
        log.claimed().map(|claimed| Self { log: log.clone(), claimed: claimed.clone() })
    }

    /// Writes a file of the log if there is none.
    ///
    /// # Errors
    /// Those of the bucket and of DynamoDB; nothing was written then.
    pub async fn put_if_absent(&self, name: &str, data: Bytes) -> Result<Put> {
        let with_context = |e: Error| e.in_table(self.log.location()).in_file(log_file_path(name));
        match self.claim(name, data).await.map_err(with_context)? {
            Put::Unknown(lost) => Ok(Put::Unknown(with_context(lost))),
            known => Ok(known),
        }
    }

    async fn claim(&self, name: &str, data: Bytes) -> Result<Put> {
        let (locks, paths) = self.claimed.locks()?;
        let path = log_file_path(name);
        // Items of complete commits expire after a day; files do not.
        if self.claimed.exists(&path).await? {
            return Ok(Put::Exists);
        }
        if let Some(previous) = previous(name) {
            self.claimed.finish_file(&previous).await?;
        }
        refuse_other_name(&locks, paths).await?;

        let temp_path = format!("{TEMPORARY}/{name}.{}", uuid::Uuid::new_v4());
        let temporary = log_file_path(&temp_path);
        self.log.storage().put(&temporary, data.clone()).await?;
        let claim = match locks.claim(&paths.own, name, &temp_path).await {
            Ok(claim) => claim,
            Err(error) => {
                // Nothing refers to the file, so it does no harm.
                let _ = self.log.storage().delete(&temporary).await;
                return Err(error);
            }
        };
        match is_ours(&locks, paths, claim, name, &temp_path).await {
            Ok(true) => {}
            Ok(false) => {
                let _ = self.log.storage().delete(&temporary).await;
                return self.finish_winner(paths, name, data).await;
            }
            // The claim may still arrive. The temporary file stays for the writer that finds the claim.
            Err(lost) => return Ok(Put::Unknown(lost)),
        }
        // The commit exists now. If a step below fails, the next writer finishes it.
        let item = Item { file_name: name.to_owned(), temp_path, complete: false, expire_time: None };
        if self.log.storage().put(&path, data).await.is_ok() && locks.complete(&paths.own, &item).await.is_ok() {
            let _ = self.log.storage().delete(&temporary).await;
        }
        Ok(Put::Created)
    }

    /// Another writer has claimed the name: finishes its commit, so that the file exists.
    async fn finish_winner(&self, paths: &TablePaths, name: &str, data: Bytes) -> Result<Put> {
        let path = log_file_path(name);
        if self.claimed.finish_file(name).await? || self.claimed.exists(&path).await? {
            return Ok(Put::Exists);
        }
        // A checksum or a compacted file may be deleted, and its item stays. It is the same whoever writes it again.
        if !matches!(LogName::parse(name), Some(LogName::Commit { .. })) {
            self.log.storage().put(&path, data).await?;
            return Ok(Put::Created);
        }
        Err(Error::storage(
            false,
            format!(
                "the DynamoDB table has {name} of an earlier table at {}; delete the items with that tablePath, or \
                 wait a day until they expire",
                paths.own
            ),
        ))
    }
}

impl Committer for DynamoDbCommitter {
    fn commit(&self, version: u64, lines: Lines, syncing: Syncing) -> BoxFuture<'_, Result<Put>> {
        Box::pin(async move {
            syncing.wait().await?;
            self.put_if_absent(&commit_name(version), Bytes::from(lines.to_bytes()?)).await
        })
    }

    /// An item and a file for each, as for commits.
    fn put_other<'a>(&'a self, name: &'a str, file: OtherLogFile) -> BoxFuture<'a, Result<Put>> {
        Box::pin(async move {
            let data = match file {
                OtherLogFile::Compacted(lines) => Bytes::from(lines.to_bytes()?),
                OtherLogFile::Hint(data) => data,
            };
            self.put_if_absent(name, data).await
        })
    }

    fn read(&self, version: u64) -> BoxFuture<'_, Result<Option<Bytes>>> {
        Box::pin(self.log.read_commit(version))
    }

    /// An object that a bucket shows is durable.
    fn make_durable(&self, _version: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn log_continues_past(&self, version: u64) -> BoxFuture<'_, Result<bool>> {
        Box::pin(log_continues_past(&self.log, version))
    }

    fn is_same_table<'a>(
        &'a self,
        base: &'a TableState,
        file: CommitFile,
        versions: &'a [u64],
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(is_same_table(&self.log, base, file, versions))
    }
}

/// Whether a claim that was sent is ours; an error if that cannot be decided.
async fn is_ours(locks: &LockTable, paths: &TablePaths, claim: Claim, name: &str, temp_path: &str) -> Result<bool> {
    let lost = match claim {
        Claim::Made => return Ok(true),
        Claim::Taken => None,
        Claim::Unknown(lost) => Some(lost),
    };
    // The request may have been sent twice on the way, so the existing claim can be ours.
    match (locks.item(&paths.own, name).await, lost) {
        (Ok(Some(item)), _) => Ok(item.temp_path == temp_path),
        // The claim has expired, which incomplete ones do not.
        (Ok(None), None) => Ok(false),
        (Ok(None) | Err(_), Some(lost)) | (Err(lost), None) => Err(lost),
    }
}

/// Refuses a table for which there are claims under another spelling of its location: those writers would not see each other.
async fn refuse_other_name(locks: &LockTable, paths: &TablePaths) -> Result<()> {
    match locks.newest(&paths.other).await? {
        Some(item) if !item.complete || item.expire_time.is_none_or(|at| at > now_seconds()) => {
            Err(Error::invalid(format!(
                "other writers know this table as {} in DynamoDB; use that location, since writers that name a table \
                 differently do not exclude each other",
                paths.other
            )))
        }
        _ => Ok(()),
    }
}

/// The commit before the one with this name.
fn previous(name: &str) -> Option<String> {
    match LogName::parse(name)? {
        LogName::Commit { version } => version.checked_sub(1).map(commit_name),
        _ => None,
    }
}
