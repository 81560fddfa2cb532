//! The reading side of commits by DynamoDB: a writer may have died after it claimed a commit and before the file was in the
//! log.
//!
//! This is the method of delta-spark's `S3DynamoDBLogStore`: the item that claims a commit's name *is* the commit, and names a
//! temporary file with its content. Whoever lists the log, reads that commit or writes the following one copies the file and
//! marks the item as complete. All copies are equal, so it does not matter if several processes copy.
//!
//! The writing side is `committers/dynamodb.rs`. Proved by the tests in `tests/rust/table/storage/dynamodb.rs`.

use std::sync::Arc;

use deltic_protocol::log::name::LogName;

use super::path::log_file_path;
use crate::error::{Error, Result};
use deltic_store::Storage;
use deltic_store::dynamodb::{Item, LockTable, TablePaths};

/// The commits of one table that DynamoDB has.
#[derive(Debug, Clone)]
pub(crate) struct ClaimedCommits {
    storage: Storage,
}

impl ClaimedCommits {
    /// The commits of the table at `storage`, if its commits are made by DynamoDB.
    pub(crate) fn of(storage: &Storage) -> Option<Self> {
        storage.lock_paths().map(|_| Self { storage: storage.clone() })
    }

    /// The items, and the table's names in them.
    pub(crate) fn locks(&self) -> Result<(Arc<LockTable>, &TablePaths)> {
        match (self.storage.lock_table()?, self.storage.lock_paths()) {
            (Some(locks), Some(paths)) => Ok((locks, paths)),
            _ => Err(Error::internal("the table has no DynamoDB lock table")),
        }
    }

    /// Finishes the newest commit if its writer did not.
    pub(crate) async fn finish_newest(&self) -> Result<()> {
        let (locks, paths) = self.locks()?;
        match locks.newest(&paths.own).await.map_err(|e| self.in_table(e))? {
            Some(item) => self.finish(&locks, paths, &item).await,
            None => Ok(()),
        }
    }

    /// Finishes a commit, given its file's name, if its writer did not. Returns whether there was such a commit.
    pub(crate) async fn finish_commit(&self, file_name: &str) -> Result<bool> {
        match LogName::parse(file_name) {
            Some(LogName::Commit { .. }) => self.finish_file(file_name).await,
            _ => Ok(false),
        }
    }

    /// As [`ClaimedCommits::finish_commit`], for any file of the log.
    pub(crate) async fn finish_file(&self, file_name: &str) -> Result<bool> {
        let (locks, paths) = self.locks()?;
        match locks.item(&paths.own, file_name).await.map_err(|e| self.in_table(e))? {
            Some(item) if !item.complete => self.finish(&locks, paths, &item).await.map(|()| true),
            _ => Ok(false),
        }
    }

    async fn finish(&self, locks: &LockTable, paths: &TablePaths, item: &Item) -> Result<()> {
        if item.complete {
            return Ok(());
        }
        let path = log_file_path(&item.file_name);
        if !self.exists(&path).await? {
            match self.storage.get(&log_file_path(&item.temp_path)).await {
                Ok(bytes) => self.storage.put(&path, bytes).await?,
                Err(error) if error.is_not_found() => return self.finished_meanwhile(locks, paths, item).await,
                Err(error) => return Err(error),
            }
        }
        locks.complete(&paths.own, item).await.map_err(|e| self.in_table(e))
    }

    /// A missing temporary file is no error if another process has finished the commit since the item was read.
    async fn finished_meanwhile(&self, locks: &LockTable, paths: &TablePaths, item: &Item) -> Result<()> {
        match locks.item(&paths.own, &item.file_name).await.map_err(|e| self.in_table(e))? {
            Some(now) if !now.complete && now.temp_path == item.temp_path => {
                Err(self.in_table(Error::corrupt(format!(
                    "the DynamoDB table says that the commit {} is to be copied from {}, which does not exist",
                    item.file_name, item.temp_path
                ))))
            }
            _ => Ok(()),
        }
    }

    /// Whether a file exists.
    pub(crate) async fn exists(&self, path: &str) -> Result<bool> {
        match self.storage.head(path).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn in_table(&self, error: Error) -> Error {
        error.in_table(self.storage.location())
    }
}
