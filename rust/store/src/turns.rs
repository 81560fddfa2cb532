//! Commits to a bucket that cannot refuse to overwrite: writers take turns through a table of DynamoDB.
//!
//! As delta-spark's `S3DynamoDBLogStore` does it, so that both can write to one table. A commit's text goes to a temporary
//! file; then the item that claims the commit's name is added, which one writer alone achieves and which *is* the commit;
//! then the text is copied to the name, and the item says so. Whoever dies in between has committed nonetheless: the next
//! one to list the log, to read that commit or to write the following one copies the text. Copies never differ, so it does
//! not matter how many there are.
//!
//! Invariant: before version N is claimed, version N-1 is under its own name. Proved by the tests in
//! `tests/rust/table/storage/turns.rs`, with a scripted DynamoDB and with a real one.

use deltic_protocol::log::name::{LOG_DIR, LogName, commit_name};
use object_store::PutPayload;

use super::Put;
use super::dynamodb::{Claim, Item, LockTable, now_seconds};
use super::location::Location;
use super::remote::Remote;
use crate::error::{Error, Result};

/// Where temporary files are, below the log.
const TEMPORARY: &str = ".tmp";

/// The log whose writers take turns.
#[derive(Clone)]
pub(super) struct Turns {
    /// Key of the log's folder.
    dir: String,
    /// The table's root as items name it: not encoded, as Hadoop has it.
    table_path: String,
    /// The same by the other of the two schemes, under which somebody might look for it.
    other_path: String,
}

impl Turns {
    /// The log of the table at `location`.
    pub(super) fn of(location: &Location) -> Result<Self> {
        let bucket = location.base.split_once("://").map_or("", |(_, bucket)| bucket);
        let path = |scheme: &str| format!("{scheme}://{bucket}/{}", location.root);
        let (ours, other) = match location.text.split_once("://") {
            Some(("s3", _)) => ("s3", "s3a"),
            Some(("s3a", _)) => ("s3a", "s3"),
            _ => {
                return Err(Error::invalid(
                    "writers that take turns through DynamoDB know a table by its s3:// or s3a:// location; use that",
                ));
            }
        };
        let dir = if location.root.is_empty() { LOG_DIR.to_owned() } else { format!("{}/{LOG_DIR}", location.root) };
        Ok(Self { dir, table_path: path(ours), other_path: path(other) })
    }

    /// Whether `dir` is the log.
    pub(super) fn is_log(&self, dir: &str) -> bool {
        dir == self.dir
    }

    /// The name of a commit, given its key.
    pub(super) fn commit<'a>(&self, key: &'a str) -> Option<&'a str> {
        self.name(key).filter(|name| version(name).is_some())
    }

    /// The name of a file directly in the log.
    pub(super) fn name<'a>(&self, key: &'a str) -> Option<&'a str> {
        key.strip_prefix(&self.dir)?.strip_prefix('/').filter(|name| !name.is_empty() && !name.contains('/'))
    }

    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.dir)
    }

    /// Finishes the newest commit if its writer did not.
    pub(super) async fn finish_newest(&self, bucket: &Remote, locks: &LockTable) -> Result<()> {
        match locks.newest(&self.table_path).await? {
            Some(item) => self.finish(bucket, locks, &item).await,
            None => Ok(()),
        }
    }

    /// Finishes one commit if it was claimed and its writer did not; whether that was so.
    pub(super) async fn finish_one(&self, bucket: &Remote, locks: &LockTable, name: &str) -> Result<bool> {
        match locks.item(&self.table_path, name).await? {
            Some(item) if !item.complete => self.finish(bucket, locks, &item).await.map(|()| true),
            _ => Ok(false),
        }
    }

    async fn finish(&self, bucket: &Remote, locks: &LockTable, item: &Item) -> Result<()> {
        if item.complete {
            return Ok(());
        }
        let key = self.key(&item.file_name);
        if !exists(bucket, &key).await? {
            match bucket.get_now(&self.key(&item.temp_path)).await {
                Ok(text) => bucket.put(&key, text).await?,
                Err(error) if error.is_not_found() => return self.finished_meanwhile(locks, item).await,
                Err(error) => return Err(error),
            }
        }
        locks.complete(&self.table_path, item).await
    }

    /// Temporary files go when a commit is complete, which may have happened since the item was read.
    async fn finished_meanwhile(&self, locks: &LockTable, item: &Item) -> Result<()> {
        match locks.item(&self.table_path, &item.file_name).await? {
            Some(now) if !now.complete && now.temp_path == item.temp_path => Err(Error::corrupt(format!(
                "the DynamoDB table says that the commit {} is to be copied from {}, which does not exist",
                item.file_name, item.temp_path
            ))),
            _ => Ok(()),
        }
    }

    /// Writes a file of the log if there is none.
    pub(super) async fn put_if_absent(
        &self,
        bucket: &Remote,
        locks: &LockTable,
        name: &str,
        data: PutPayload,
    ) -> Result<Put> {
        let key = self.key(name);
        // Items go after a day, files do not.
        if exists(bucket, &key).await? {
            return Ok(Put::Exists);
        }
        if let Some(previous) = previous(name) {
            self.finish_one(bucket, locks, &previous).await?;
        }
        self.refuse_other_name(locks).await?;

        let temp_path = format!("{TEMPORARY}/{name}.{}", uuid::Uuid::new_v4());
        let temp_key = self.key(&temp_path);
        bucket.put(&temp_key, data.clone()).await?;
        let claim = match locks.claim(&self.table_path, name, &temp_path).await {
            Ok(claim) => claim,
            Err(error) => {
                // Nobody knows of the file, so that it stays is no harm.
                let _ = bucket.delete(&temp_key).await;
                return Err(error);
            }
        };
        match self.is_ours(locks, claim, (name, &temp_path)).await {
            Ok(true) => {}
            Ok(false) => {
                let _ = bucket.delete(&temp_key).await;
                return self.taken(bucket, locks, name).await;
            }
            // Perhaps still on its way. The text stays for whoever finds the claim.
            Err(lost) => return Ok(Put::Unknown(lost)),
        }
        // The commit is made. What fails from here on is finished by whoever comes next.
        let item = Item { file_name: name.to_owned(), temp_path, complete: false, expire_time: None };
        if bucket.put(&key, data).await.is_ok() && locks.complete(&self.table_path, &item).await.is_ok() {
            let _ = bucket.delete(&temp_key).await;
        }
        Ok(Put::Created)
    }

    /// Whether a claim that was sent is ours; an error if nobody can say.
    async fn is_ours(&self, locks: &LockTable, claim: Claim, (name, temp_path): (&str, &str)) -> Result<bool> {
        let lost = match claim {
            Claim::Made => return Ok(true),
            Claim::Taken => None,
            Claim::Unknown(lost) => Some(lost),
        };
        // Something on the way may have sent the claim twice, so it can be ours that is there.
        match (locks.item(&self.table_path, name).await, lost) {
            (Ok(Some(item)), _) => Ok(item.temp_path == temp_path),
            // It has gone, as no incomplete one does.
            (Ok(None), None) => Ok(false),
            (Ok(None) | Err(_), Some(lost)) | (Err(lost), None) => Err(lost),
        }
    }

    /// Somebody else has the name: sees to it that the file is there.
    async fn taken(&self, bucket: &Remote, locks: &LockTable, name: &str) -> Result<Put> {
        if self.finish_one(bucket, locks, name).await? || exists(bucket, &self.key(name)).await? {
            return Ok(Put::Exists);
        }
        Err(Error::storage(
            false,
            format!(
                "the DynamoDB table has {name} of a table that was at {} before; delete the items with that tablePath, or \
                 wait a day until they expire",
                self.table_path
            ),
        ))
    }

    /// Writers that spell the location in two ways would not see each other.
    async fn refuse_other_name(&self, locks: &LockTable) -> Result<()> {
        match locks.newest(&self.other_path).await? {
            Some(item) if !item.complete || item.expire_time.is_none_or(|at| at > now_seconds()) => {
                Err(Error::invalid(format!(
                    "other writers know this table as {} in DynamoDB; use that location, since writers that name a \
                     table differently do not take turns",
                    self.other_path
                )))
            }
            _ => Ok(()),
        }
    }
}

async fn exists(bucket: &Remote, key: &str) -> Result<bool> {
    match bucket.head(key).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// The commit before the one with this name.
fn previous(name: &str) -> Option<String> {
    version(name)?.checked_sub(1).map(commit_name)
}

fn version(name: &str) -> Option<u64> {
    match LogName::parse(name) {
        Some(LogName::Commit { version }) => Some(version),
        _ => None,
    }
}
