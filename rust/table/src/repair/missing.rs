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
use crate::commit::RetryPolicy;
use crate::committers::Committer;
use crate::error::{Error, Kind, Result};
use crate::progress::{Progress, Unit};
use crate::snapshot::Snapshot;
use crate::transaction::builder::{HandleCache, Ids, Transaction, TransactionEnd, TransactionOptions};
use crate::vector_file::VectorFile;
use deltic_store::{Storage, decode_path};

/// The name of the operation, as in delta-rs.
const OPERATION: &str = "FSCK";

/// Files whose sizes are requested at the same time.
const CONCURRENT_HEADS: usize = 64;

/// Files of deletion vectors by their paths: the length that the vectors need, and the data files that refer to them.
type VectorFiles = BTreeMap<String, (u64, Vec<String>)>;

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
    outside_table: Vec<String>,
    /// Data files to remove from the table.
    removed: Vec<String>,
}

impl Missing {
    pub(super) async fn find(snapshot: &Snapshot) -> Result<Self> {
        let mut missing = Self::default();
        let vector_files = missing.check_data_files(snapshot).await?;
        missing.check_vector_files(snapshot.storage(), vector_files).await?;
        missing.removed.clone_from(&missing.data);
        missing.removed.extend(missing.vectors.iter().flat_map(|(_, _, files)| files.iter().cloned()));
        missing.removed.sort();
        missing.removed.dedup();
        Ok(missing)
    }

    /// Compares the sizes of the live data files with the log. Returns the files of their deletion vectors.
    async fn check_data_files(&mut self, snapshot: &Snapshot) -> Result<VectorFiles> {
        let (storage, mut vector_files) = (snapshot.storage(), VectorFiles::new());
        let num_files = snapshot.checksum().and_then(|checksum| u64::try_from(checksum.num_files).ok());
        let progress = Progress::begin(OPERATION, Unit::Files, num_files);
        let mut live = std::pin::pin!(snapshot.live_files(&identity()).await?);
        while let Some(adds) = live.try_next().await? {
            let mut files = Vec::with_capacity(adds.len());
            for row in 0..adds.len() {
                let path = adds.path().value(row).to_owned();
                let size = adds.size().map(|sizes| sizes.value(row)).and_then(|size| u64::try_from(size).ok());
                if let Some(vector) = VectorFile::of_row(&adds, row)? {
                    let (length, referencing_files) = vector_files.entry(vector.path).or_default();
                    *length = vector.end.max(*length);
                    referencing_files.push(path.clone());
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
                    (None, _) if storage.below_root(&decode_path(&path)?).is_none() => self.outside_table.push(path),
                    (None, _) => self.data.push(path),
                    (Some(found), Some(size)) if found != size => {
                        self.changed.push((path, format!("it has {found} bytes, and the log says {size}")));
                    }
                    (Some(_), _) => {}
                }
            }
        }
        Ok(vector_files)
    }

    /// Finds files of deletion vectors that are missing or too short.
    async fn check_vector_files(&mut self, storage: &Storage, vector_files: VectorFiles) -> Result<()> {
        let head = |(path, referenced): (String, (u64, Vec<String>))| async move {
            let found = size_of(storage, &path).await.map_err(|e| e.in_file(&path))?;
            Ok::<_, Error>((path, referenced, found))
        };
        let mut sizes = stream::iter(vector_files).map(head).buffered(CONCURRENT_HEADS);
        while let Some((path, (length, referencing_files), found)) = sizes.try_next().await? {
            let damage = match found {
                None if storage.below_root(&path).is_none() => {
                    self.outside_table.push(path);
                    continue;
                }
                None => "is not there".to_owned(),
                Some(found) if found < length => format!("has {found} bytes, and the log's vectors need {length}"),
                Some(_) => continue,
            };
            self.vectors.push((path, damage, referencing_files));
        }
        Ok(())
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
        if !self.outside_table.is_empty() {
            let message = format!(
                "{} files that the table names by absolute paths do not exist. They may be unreachable only for now, \
                 such as files of a clone's source that is not mounted, so nothing is done about them. If they are \
                 lost, delete their rows, or overwrite the table",
                self.outside_table.len()
            );
            done.steps.push(RepairStep::new(FindingKind::DataFile, message, self.outside_table.clone(), false));
        }
        for (path, damage) in &self.changed {
            let message = format!(
                "the data file is not the one that was written: {damage}. Nothing is done about it, since it is \
                 unknown which of its rows are right; restore the file, or remove it from the table"
            );
            done.steps.push(RepairStep::new(FindingKind::DataFile, message, vec![path.clone()], false));
        }
        for (path, damage, referencing_files) in &self.vectors {
            let message = format!(
                "the file of deletion vectors {damage}, so that it is unknown which rows of {} data files are \
                 deleted. These data files are removed from the table with all their rows, and are deleted only by a \
                 vacuum; to keep the rows, restore the file instead",
                referencing_files.len()
            );
            let paths = std::iter::once(path.clone()).chain(referencing_files.iter().cloned()).collect();
            done.push(FindingKind::DeletionVector, message, paths);
        }
    }

    /// Removes the files from the table by one commit on the version that was examined. It fails if there is a newer version,
    /// since its writer may have restored a file.
    pub(super) async fn remove(
        &self,
        examined: &Snapshot,
        ids: &dyn Ids,
        committer: &dyn Committer,
        retry: &dyn RetryPolicy,
        done: &mut Repaired,
    ) -> Result<()> {
        let metrics = [("dry_run", json!("false")), ("files_removed", json!(self.removed.len().to_string()))];
        let options = TransactionOptions {
            operation: OPERATION.to_owned(),
            metrics: metrics.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            ..TransactionOptions::default()
        };
        let cache = HandleCache { now_ms: Some(retry.now_ms()), ..HandleCache::default() };
        let mut transaction = Transaction::begin(examined.log(), cache, options, ids).await?;
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
