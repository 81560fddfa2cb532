//! Files of the table that the store does not have, or has with another size. Missing files are removed from the table.
//!
//! Invariant: a file counts as missing only if it is below the table and the store reports that it does not exist. A file
//! outside the table may come back. Proved by `tests/python/test_repair.py`.

use std::collections::BTreeMap;

use deltic_protocol::commit::Conflict;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::json;

use super::steps::{FILES, RepairStep, Repaired};
use crate::check::{FindingKind, identity};
use crate::committers::Committer;
use crate::error::{Error, Kind, Result};
use crate::progress::{Progress, Unit};
use crate::snapshot::Snapshot;
use crate::transaction::RetryPolicy;
use crate::transaction::builder::{HandleCache, Ids, Transaction, TransactionEnd, TransactionOptions};
use crate::vector_file::VectorFile;
use deltic_store::{Storage, decode_path};

/// The name of the operation, as in delta-rs.
const OPERATION: &str = "FSCK";

/// Files whose sizes are requested at the same time.
const CONCURRENT_HEADS: usize = 64;

/// Files of the table that the store does not have, or has with another size.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// Data files that are missing.
    data: Vec<String>,
    /// Data files with another size than in the log, and what is wrong.
    changed: Vec<(String, String)>,
    /// Files of deletion vectors that are missing or too short; what is wrong; and the data files that use them.
    vectors: Vec<(String, String, Vec<String>)>,
    /// Missing files outside the table, such as those of a shallow clone's source.
    elsewhere: Vec<String>,
    /// Data files to remove from the table.
    removed: Vec<String>,
}

impl Missing {
    pub(super) async fn find(snapshot: &Snapshot) -> Result<Self> {
        let storage = snapshot.storage();
        let mut missing = Self::default();
        // By file of deletion vectors: the length that its vectors need, and the data files that use them.
        let mut vectors: BTreeMap<String, (u64, Vec<String>)> = BTreeMap::new();
        let num_files = snapshot.checksum().and_then(|checksum| u64::try_from(checksum.num_files).ok());
        let progress = Progress::begin(OPERATION, Unit::Files, num_files);
        let mut live = std::pin::pin!(snapshot.live_files(&identity()).await?);
        while let Some(adds) = live.try_next().await? {
            let mut files = Vec::with_capacity(adds.len());
            for row in 0..adds.len() {
                let path = adds.path().value(row).to_owned();
                let size = adds.size().map(|sizes| sizes.value(row)).and_then(|size| u64::try_from(size).ok());
                if let Some(vector) = VectorFile::of_row(&adds, row)? {
                    let (length, users) = vectors.entry(vector.path).or_default();
                    *length = vector.end.max(*length);
                    users.push(path.clone());
                }
                files.push((path, size));
            }
            let head = |(path, size): (String, Option<u64>)| async move {
                let found = size_of(storage, &decode_path(&path)?).await.map_err(|e| e.in_file(&path))?;
                Ok::<_, Error>((path, size, found))
            };
            let mut sizes = stream::iter(files).map(head).buffered(CONCURRENT_HEADS);
            while let Some((path, size, found)) = sizes.try_next().await? {
                progress.advance(1);
                match (found, size) {
                    (None, _) if storage.below_root(&decode_path(&path)?).is_none() => missing.elsewhere.push(path),
                    (None, _) => missing.data.push(path),
                    (Some(found), Some(size)) if found != size => {
                        missing.changed.push((path, format!("it has {found} bytes, and the log says {size}")));
                    }
                    (Some(_), _) => {}
                }
            }
        }
        let head = |(path, needed): (String, (u64, Vec<String>))| async move {
            let found = size_of(storage, &path).await.map_err(|e| e.in_file(&path))?;
            Ok::<_, Error>((path, needed, found))
        };
        let mut sizes = stream::iter(vectors).map(head).buffered(CONCURRENT_HEADS);
        while let Some((path, (length, users), found)) = sizes.try_next().await? {
            let wrong = match found {
                None if storage.below_root(&path).is_none() => {
                    missing.elsewhere.push(path);
                    continue;
                }
                None => "is not there".to_owned(),
                Some(found) if found < length => format!("has {found} bytes, and the log's vectors need {length}"),
                Some(_) => continue,
            };
            missing.vectors.push((path, wrong, users));
        }
        missing.removed.clone_from(&missing.data);
        missing.removed.extend(missing.vectors.iter().flat_map(|(_, _, users)| users.iter().cloned()));
        missing.removed.sort();
        missing.removed.dedup();
        Ok(missing)
    }

    /// Adds a step for each fault.
    pub(super) fn report(&self, done: &mut Repaired) {
        if !self.data.is_empty() {
            let message = format!(
                "{} data files do not exist. They are removed from the table, and their rows are lost; to keep the \
                 rows, restore the files instead",
                self.data.len()
            );
            done.push(FindingKind::DataFile, message, self.data.clone());
        }
        if !self.elsewhere.is_empty() {
            let message = format!(
                "{} files that the table names by absolute paths do not exist. They may be unreachable only for now, \
                 such as files of a clone's source that is not mounted, so nothing is done about them. If they are \
                 lost, delete their rows, or overwrite the table",
                self.elsewhere.len()
            );
            done.steps.push(RepairStep::new(FindingKind::DataFile, message, self.elsewhere.clone(), false));
        }
        for (path, wrong) in &self.changed {
            let message = format!(
                "the data file is not the one that was written: {wrong}. Nothing is done about it, since it is \
                 unknown which of its rows are right; restore the file, or remove it from the table"
            );
            done.steps.push(RepairStep::new(FindingKind::DataFile, message, vec![path.clone()], false));
        }
        for (path, wrong, users) in &self.vectors {
            let message = format!(
                "the file of deletion vectors {wrong}, so that it is unknown which rows of {} data files are \
                 deleted. These data files are removed from the table with all their rows, and are deleted only by a \
                 vacuum; to keep the rows, restore the file instead",
                users.len()
            );
            let paths = std::iter::once(path.clone()).chain(users.iter().cloned()).collect();
            done.push(FindingKind::DeletionVector, message, paths);
        }
    }

    /// Removes the files from the table by one commit on the version that was examined. It fails if there is a newer version,
    /// since its writer may have restored a file.
    pub(super) async fn remove(
        &self,
        examined: &Snapshot,
        ids: &dyn Ids,
        (committer, retry): (&dyn Committer, &dyn RetryPolicy),
        done: &mut Repaired,
    ) -> Result<()> {
        let metrics = [("dry_run", json!("false")), ("files_removed", json!(self.removed.len().to_string()))];
        let options = TransactionOptions {
            operation: OPERATION.to_owned(),
            metrics: metrics.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            ..TransactionOptions::default()
        };
        let cache = HandleCache { now_ms: Some(retry.now_ms()), ..HandleCache::default() };
        let mut transaction = Transaction::begin(examined.storage(), cache, options, ids).await?;
        if transaction.snapshot().await?.version() != examined.version() {
            let message = "another writer committed while files were looked for; run the repair again";
            return Err(Error::new(Kind::Conflict(Conflict::ConcurrentDeleteRead), message));
        }
        match transaction.remove_paths(&self.removed, retry.now_ms()).await {
            Ok(_) => {}
            // The table is append-only, or another writer has removed one of the files.
            Err(e) if matches!(e.kind(), Kind::Invalid) => {
                done.refuse_kinds(&FILES, Err(e))?;
                transaction.abandon().await;
                return Ok(());
            }
            Err(e) => return Err(e),
        }
        if let TransactionEnd::Committed(outcome) = Box::pin(transaction.commit(committer, retry)).await? {
            done.committed = Some(outcome.committed.version);
        }
        Ok(())
    }
}

/// The size of a file. `None` if it does not exist.
async fn size_of(storage: &Storage, path: &str) -> Result<Option<u64>> {
    match storage.head(path).await {
        Ok(meta) => Ok(Some(meta.size)),
        Err(e) if e.is_not_found() => Ok(None),
        Err(e) => Err(e),
    }
}
