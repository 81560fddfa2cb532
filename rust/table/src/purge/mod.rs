//! PURGE: rewrites live files so that none holds deleted rows or dropped columns.
//!
//! Files with deletion vectors or dropped columns are rewritten ([`maintenance`](crate::maintenance), REORG). With a condition,
//! the files of all readable versions are read first, to find those with matching rows ([`retained_rows`]), so that an error
//! leaves the table unchanged. Next the matching rows are deleted, by rewriting files rather than by deletion vectors. Files of
//! older versions keep the rows until a vacuum deletes them.
//!
//! Invariant: no rows are deleted but those that match the condition. Proved by `tests/python/test_purge.py`.
//!
//! PROTOCOL.md: "Deletion Vectors", "Column Mapping", "Add CDC File".

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::commit::{CommitContext, CommitSeries};
use crate::error::{Error, Result};
use crate::log::LogSource;
use crate::maintenance::{Footers, PartitionToOptimize, ReorgOptions, Reorganized, plan_reorganize, reorganize};
use crate::snapshot::Snapshot;
use crate::transaction::builder::{HandleCache, Ids, Transaction, TransactionEnd, TransactionOptions};
use crate::write::writer::Clock;

mod retained_rows;

pub use retained_rows::RetainedRows;
use retained_rows::RetainedRowsFinder;

/// Options of a purge.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PurgeOptions {
    /// The condition: rows for which it is TRUE are deleted, without deletion vectors.
    pub filter: Option<String>,
    /// Most bins that are rewritten at the same time.
    pub max_tasks: Option<usize>,
    /// `userMetadata` of the commits.
    pub user_metadata: Option<String>,
}

/// Rows that a purge deletes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DeletedRows {
    /// Number of rows. `None` if a file that was removed unread has no row count.
    pub rows: Option<u64>,
    /// Number of files that held such rows.
    pub files: u64,
}

/// What a purge did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Purged {
    /// The version that was read.
    pub read_version: u64,
    /// The versions that were committed, in order.
    pub versions: Vec<u64>,
    /// Number of live files.
    pub files_total: u64,
    /// Number of live files with deletion vectors.
    pub files_with_vectors: u64,
    /// Number of other live files with dropped columns.
    pub files_with_dropped_columns: u64,
    /// Number of files to rewrite.
    pub files_to_rewrite: u64,
    /// Bytes of the files to rewrite.
    pub bytes_to_rewrite: u64,
    /// Estimated number of new files.
    pub expected_files: u64,
    /// Number of files that were not replaced, because another writer changed a file of the same bin meanwhile.
    pub files_lost: u64,
    /// The partitions whose files are rewritten.
    pub partitions: Vec<PartitionToOptimize>,
    /// Counters as in the `operationMetrics` of the commits that rewrite files.
    pub metrics: BTreeMap<String, u64>,
    /// The rows that match the condition.
    pub deleted: Option<DeletedRows>,
    /// The versions and files that still hold such rows.
    pub retained: Option<RetainedRows>,
}

/// What [`purge`] would do to the newest version.
///
/// # Errors
/// As [`purge`], except those of writing and of committing.
pub async fn plan_purge(
    log: &LogSource,
    latest: Option<Snapshot>,
    options: &PurgeOptions,
    ids: &dyn Ids,
    clock: Clock,
) -> Result<Purged> {
    let planned = async {
        let planned = plan_reorganize(log, latest.clone(), &reorg_options(options), ids, clock).await?;
        let mut purged = Purged::of(planned);
        if let Some(filter) = &options.filter {
            let cache = HandleCache { state: None, latest, now_ms: Some(clock()) };
            let mut transaction = Transaction::begin(log, cache, TransactionOptions::default(), ids).await?;
            let preview = transaction.delete_preview(Some(filter), clock).await?;
            let files = preview.files_removed + preview.files_marked + preview.files_rewritten;
            purged.deleted = Some(DeletedRows { rows: preview.rows, files });
            let snapshot = transaction.snapshot().await?;
            purged.retained = Some(RetainedRowsFinder::default().find(&snapshot, filter, clock()).await?);
        }
        Ok(purged)
    };
    planned.await.map_err(|e: Error| e.in_table(log.location()))
}

/// Deletes the rows that match the condition, then rewrites files of the newest version so that none has a deletion vector or
/// a dropped column.
///
/// # Errors
/// As [`Transaction::delete`] and [`optimize`](crate::maintenance::optimize), and those of reading the files of older
/// versions, before anything is changed. Earlier commits of this purge remain after an error; running it again continues
/// from there.
pub async fn purge(
    log: &LogSource,
    latest: Option<Snapshot>,
    options: &PurgeOptions,
    ids: &dyn Ids,
    clock: Clock,
    context: CommitContext<'_>,
) -> Result<Purged> {
    let commits = CommitSeries::after(&[], context.retry);
    let context = CommitContext { retry: &commits, ..context };
    let purged = async {
        let mut finder = RetainedRowsFinder::default();
        let deleted = match &options.filter {
            None => None,
            Some(filter) => {
                let cache = HandleCache { state: None, latest: latest.clone(), now_ms: Some(clock()) };
                let transaction = Transaction::begin(log, cache, delete_options(filter, options), ids).await?;
                Some((filter, delete(transaction, filter, &mut finder, clock, context).await?))
            }
        };
        let done = reorganize(log, latest, &reorg_options(options), ids, clock, context).await?;
        let mut purged = Purged::of(done);
        if let Some((filter, (rows, version))) = deleted {
            purged.versions.splice(0..0, version);
            purged.deleted = Some(rows);
            let newest = Snapshot::open(log, None).await?;
            purged.retained = Some(finder.find(&newest, filter, clock()).await?);
        }
        Ok(purged)
    };
    purged.await.map_err(|e: Error| commits.name_committed_versions(e).in_table(log.location()))
}

/// Deletes the rows that match, without deletion vectors. Returns their number and the version.
async fn delete(
    mut transaction: Transaction,
    filter: &str,
    finder: &mut RetainedRowsFinder,
    clock: Clock,
    context: CommitContext<'_>,
) -> Result<(DeletedRows, Option<u64>)> {
    let snapshot = transaction.snapshot().await?;
    // Files that cannot be read fail the purge before anything is changed.
    finder.read(&snapshot, filter).await?;
    transaction.disable_deletion_vectors();
    let rows = transaction.delete(Some(filter), clock).await?;
    match Box::pin(transaction.commit(context.committer, context.retry)).await? {
        TransactionEnd::Committed(outcome) => {
            let files = outcome.metrics.get("numRemovedFiles").and_then(Value::as_str).and_then(|n| n.parse().ok());
            Ok((DeletedRows { rows, files: files.unwrap_or_default() }, Some(outcome.committed.version)))
        }
        TransactionEnd::Replayed(_) | TransactionEnd::Nothing => Ok((DeletedRows { rows, files: 0 }, None)),
    }
}

/// Options of the DELETE commit.
fn delete_options(filter: &str, options: &PurgeOptions) -> TransactionOptions {
    let predicate = json!(json!([filter]).to_string());
    TransactionOptions {
        operation: "DELETE".to_owned(),
        parameters: [("predicate".to_owned(), predicate)].into_iter().collect(),
        user_metadata: options.user_metadata.clone(),
        ..TransactionOptions::default()
    }
}

fn reorg_options(options: &PurgeOptions) -> ReorgOptions {
    let user_metadata = options.user_metadata.clone();
    ReorgOptions { footers: Footers::DroppedColumns, max_tasks: options.max_tasks, user_metadata }
}

impl Purged {
    fn of(Reorganized { with_vectors, by_footer, files }: Reorganized) -> Self {
        Self {
            read_version: files.read_version,
            versions: files.versions,
            files_total: files.files_total,
            files_with_vectors: with_vectors,
            files_with_dropped_columns: by_footer,
            files_to_rewrite: files.files_to_rewrite,
            bytes_to_rewrite: files.bytes_to_rewrite,
            expected_files: files.expected_files,
            files_lost: files.files_lost,
            partitions: files.partitions,
            metrics: files.metrics,
            deleted: None,
            retained: None,
        }
    }
}
