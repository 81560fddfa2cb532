//! PURGE: rewrites live files so that none holds deleted rows or dropped columns, and deletes rows for good.
//!
//! Files with deletion vectors or dropped columns are written again ([`maintenance`](crate::maintenance), REORG). Rows that
//! a condition chooses are deleted before, with their files written again rather than marked. What still has them then, in
//! older versions, is looked for in the files themselves ([`held`]).
//!
//! Invariant: no row changes but for those that the condition chooses. Proved by `tests/python/test_purge.py`.
//!
//! PROTOCOL.md: "Deletion Vectors", "Column Mapping", "Add CDC File".

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::committers::Committer;
use crate::error::{Error, Result};
use crate::maintenance::{PartitionToOptimize, ReorgOptions, Reorganized, plan_reorganize, reorganize};
use crate::snapshot::Snapshot;
use crate::transaction::RetryPolicy;
use crate::transaction::builder::{HandleCache, Ids, Transaction, TransactionEnd, TransactionOptions};
use crate::write::writer::Clock;
use deltic_store::Storage;

mod held;

pub use held::RetainedRows;
use held::RetainedRowsFinder;

/// What is asked for.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PurgeOptions {
    /// Which rows are to be forgotten, if any: those that make it TRUE.
    pub filter: Option<String>,
    /// Groups of files that are written at a time.
    pub max_tasks: Option<usize>,
    /// Free text for the commit infos.
    pub user_metadata: Option<String>,
}

/// Rows that a purge deletes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DeletedRows {
    /// How many, unless a file that went unread does not say how many it has.
    pub rows: Option<u64>,
    /// Files that hold any.
    pub files: u64,
}

/// What a purge did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Purged {
    /// The version whose files were looked at.
    pub read_version: u64,
    /// The versions that were committed, in order.
    pub versions: Vec<u64>,
    /// Live files.
    pub files_total: u64,
    /// Those with deletion vectors.
    pub files_with_vectors: u64,
    /// Others with columns that the table dropped.
    pub files_with_dropped_columns: u64,
    /// Files that are written again for one or the other.
    pub files_to_rewrite: u64,
    /// Their bytes.
    pub bytes_to_rewrite: u64,
    /// Files that take their place, about.
    pub expected_files: u64,
    /// Those that stay because another writer changed rows of them, or of others of their group, meanwhile.
    pub files_lost: u64,
    /// The partitions whose files are written again.
    pub partitions: Vec<PartitionToOptimize>,
    /// Counters, as in the `operationMetrics` of the commits that write files again.
    pub metrics: BTreeMap<String, u64>,
    /// The rows that a condition chooses.
    pub deleted: Option<DeletedRows>,
    /// What still holds them.
    pub held: Option<RetainedRows>,
}

/// What [`purge`] would do to the newest version.
///
/// # Errors
/// As [`purge`], but for those of writing and of committing.
pub async fn plan_purge(
    (storage, latest): (&Storage, Option<Snapshot>),
    options: &PurgeOptions,
    (ids, clock): (&dyn Ids, Clock),
) -> Result<Purged> {
    let planned = async {
        let planned = plan_reorganize((storage, latest.clone()), &reorg(options), (ids, clock)).await?;
        let mut purged = Purged::of(planned);
        if let Some(filter) = &options.filter {
            let known = HandleCache { state: None, latest, now_ms: Some(clock()) };
            let mut transaction = Transaction::begin(storage, known, TransactionOptions::default(), ids).await?;
            let preview = transaction.delete_preview(Some(filter), clock).await?;
            let files = preview.files_removed + preview.files_marked + preview.files_rewritten;
            purged.deleted = Some(DeletedRows { rows: preview.rows, files });
            let snapshot = transaction.snapshot().await?;
            purged.held = Some(RetainedRowsFinder::default().find(&snapshot, filter, clock()).await?);
        }
        Ok(purged)
    };
    planned.await.map_err(|e: Error| e.in_table(storage.location()))
}

/// Writes files of the newest version again, so that none has a deletion vector or a dropped column, after deleting the
/// rows that are to be forgotten.
///
/// # Errors
/// As [`Transaction::delete`] and [`optimize`](crate::maintenance::optimize), and those of reading the files of older
/// versions, before anything is changed. What was committed by then is committed: running it again goes on from there.
pub async fn purge(
    (storage, latest): (&Storage, Option<Snapshot>),
    options: &PurgeOptions,
    (ids, clock): (&dyn Ids, Clock),
    (committer, retry): (&dyn Committer, &dyn RetryPolicy),
) -> Result<Purged> {
    let purged = async {
        let mut holders = RetainedRowsFinder::default();
        let begun = match &options.filter {
            None => None,
            Some(filter) => {
                let known = HandleCache { state: None, latest: latest.clone(), now_ms: Some(clock()) };
                let transaction = Transaction::begin(storage, known, deleting(filter, options), ids).await?;
                Some((filter, delete(transaction, (filter, &mut holders), clock, (committer, retry)).await?))
            }
        };
        let history =
            TransactionOptions { user_metadata: options.user_metadata.clone(), ..TransactionOptions::default() };
        let done = reorganize((storage, latest), &reorg(options), (ids, clock), (history, committer, retry)).await?;
        let mut purged = Purged::of(done);
        if let Some((filter, (deleted, version))) = begun {
            purged.versions.splice(0..0, version);
            purged.deleted = Some(deleted);
            let newest = Snapshot::open(storage, None).await?;
            purged.held = Some(holders.find(&newest, filter, clock()).await?);
        }
        Ok(purged)
    };
    purged.await.map_err(|e: Error| e.in_table(storage.location()))
}

/// Deletes rows, and leaves none of them in a file that stays; what went, and the version that did.
async fn delete(
    mut transaction: Transaction,
    (filter, holders): (&str, &mut RetainedRowsFinder),
    clock: Clock,
    (committer, retry): (&dyn Committer, &dyn RetryPolicy),
) -> Result<(DeletedRows, Option<u64>)> {
    let snapshot = transaction.snapshot().await?;
    // What cannot be read shows before anything is changed.
    holders.read(&snapshot, filter).await?;
    transaction.disable_deletion_vectors();
    let rows = transaction.delete(Some(filter), clock).await?;
    match Box::pin(transaction.commit(committer, retry)).await? {
        TransactionEnd::Committed(outcome) => {
            let files = outcome.metrics.get("numRemovedFiles").and_then(Value::as_str).and_then(|n| n.parse().ok());
            Ok((DeletedRows { rows, files: files.unwrap_or_default() }, Some(outcome.committed.version)))
        }
        TransactionEnd::Replayed(_) | TransactionEnd::Nothing => Ok((DeletedRows { rows, files: 0 }, None)),
    }
}

/// Options of the commit that deletes, with operation and parameters for the history.
fn deleting(filter: &str, options: &PurgeOptions) -> TransactionOptions {
    let predicate = json!(json!([filter]).to_string());
    TransactionOptions {
        operation: "DELETE".to_owned(),
        parameters: [("predicate".to_owned(), predicate)].into_iter().collect(),
        user_metadata: options.user_metadata.clone(),
        ..TransactionOptions::default()
    }
}

fn reorg(options: &PurgeOptions) -> ReorgOptions {
    ReorgOptions { dropped_columns: true, max_tasks: options.max_tasks }
}

impl Purged {
    fn of(Reorganized { with_vectors, with_dropped_columns, files }: Reorganized) -> Self {
        Self {
            read_version: files.read_version,
            versions: files.versions,
            files_total: files.files_total,
            files_with_vectors: with_vectors,
            files_with_dropped_columns: with_dropped_columns,
            files_to_rewrite: files.files_to_rewrite,
            bytes_to_rewrite: files.bytes_to_rewrite,
            expected_files: files.expected_files,
            files_lost: files.files_lost,
            partitions: files.partitions,
            metrics: files.metrics,
            deleted: None,
            held: None,
        }
    }
}
