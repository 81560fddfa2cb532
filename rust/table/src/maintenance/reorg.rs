//! REORG (PURGE): rewrites files that have more than the table's rows and columns, without the rest.
//!
//! The rest is rows that deletion vectors delete, and columns that were dropped. The log has the former; to find the latter,
//! footers are read, if the table has column mapping and a column was dropped.
//!
//! PROTOCOL.md: "Deletion Vectors", "Column Mapping".

use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::json;

use super::files::{Candidate, list};
use super::layout::Layout;
use super::optimize::{Plan, check, rewriting, target_file_size};
use super::options::{OptimizeOptions, Optimized};
use super::pack;
use crate::error::Result;
use crate::post_commit::HandleState;
use crate::scan::dropped_columns::{KnownColumns, may_have_dropped_columns};
use crate::snapshot::Snapshot;
use crate::transaction::CommitContext;
use crate::transaction::builder::{HandleCache, Ids, Transaction, TransactionOptions};
use crate::write::writer::Clock;
use deltic_store::Storage;

/// The name of the operation in the commit info.
const OPERATION: &str = "REORG";

/// Footers that are read at once.
const CONCURRENT_FOOTERS: usize = 64;

/// Options of a REORG.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReorgOptions {
    /// Whether files with columns that the table dropped are rewritten too, for which footers are read.
    pub(crate) dropped_columns: bool,
    /// How many groups of files are rewritten at a time.
    pub(crate) max_tasks: Option<usize>,
    /// Free text for the commit info.
    pub(crate) user_metadata: Option<String>,
}

/// Result of a REORG, or of its dry run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reorganized {
    /// Files that have deletion vectors.
    pub(crate) with_vectors: u64,
    /// Other files that have columns which the table dropped.
    pub(crate) with_dropped_columns: u64,
    /// The files that were rewritten, or would be.
    pub(crate) files: Optimized,
}

/// Plans a REORG of the newest version.
///
/// # Errors
/// As [`reorganize`], except those of reading rows, of writing and of committing.
pub(crate) async fn plan_reorganize(
    storage: &Storage,
    latest: Option<Snapshot>,
    options: &ReorgOptions,
    ids: &dyn Ids,
    clock: Clock,
) -> Result<Reorganized> {
    let (plan, found) = plan(storage, latest, options, ids, clock).await?;
    Ok(Reorganized { files: plan.result, ..found })
}

/// Rewrites all files of the newest version that have deletion vectors or, if requested, columns that were dropped, and
/// commits them.
///
/// # Errors
/// As [`optimize`](super::optimize), and those of reading footers.
pub(crate) async fn reorganize(
    storage: &Storage,
    latest: Option<Snapshot>,
    options: &ReorgOptions,
    ids: &dyn Ids,
    clock: Clock,
    context: CommitContext<'_>,
) -> Result<Reorganized> {
    let (plan, found) = plan(storage, latest, options, ids, clock).await?;
    let parameters = [("predicate", json!("[]")), ("applyPurge", json!(true))];
    let parameters = parameters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let user_metadata = options.user_metadata.clone();
    let commit_options = TransactionOptions {
        operation: OPERATION.to_owned(),
        parameters,
        user_metadata,
        ..TransactionOptions::default()
    };
    Ok(Reorganized { files: plan.rewrite_and_commit(commit_options, ids, context).await?, ..found })
}

async fn plan(
    storage: &Storage,
    latest: Option<Snapshot>,
    options: &ReorgOptions,
    ids: &dyn Ids,
    clock: Clock,
) -> Result<(Plan, Reorganized)> {
    let dropped_columns = options.dropped_columns;
    let options = &OptimizeOptions { max_tasks: options.max_tasks, ..OptimizeOptions::default() };
    check(options)?;
    let cache = HandleCache { state: None, latest, now_ms: Some(clock()) };
    let mut transaction = Transaction::begin(storage, cache, TransactionOptions::default(), ids).await?;
    let snapshot = transaction.snapshot().await?;
    let base = HandleState::load(&snapshot).await?;
    let target = target_file_size(options, &snapshot)?;
    let rewriting = rewriting(&mut transaction, &snapshot, Layout::Compact, target, options, clock)?;
    let looks_inside = dropped_columns && may_have_dropped_columns(&snapshot);
    let has_vector = |file: &Candidate| file.add.deletion_vector.is_some();
    let listed = list(&snapshot, None, |file| looks_inside || has_vector(file)).await?;
    let (mut files, others): (Vec<_>, Vec<_>) = listed.candidates.into_iter().partition(has_vector);
    let with_vectors = files.len() as u64;
    if !others.is_empty() {
        files.extend(with_dropped_columns(&snapshot, others).await?);
    }
    let with_dropped_columns = (files.len() as u64).saturating_sub(with_vectors);
    let plan = Plan::new(snapshot, base, rewriting, pack::all(files, target), listed.total, listed.considered);
    Ok((plan, Reorganized { with_vectors, with_dropped_columns, ..Reorganized::default() }))
}

/// Those of the files that have columns which the table no longer has.
async fn with_dropped_columns(snapshot: &Snapshot, files: Vec<Candidate>) -> Result<Vec<Candidate>> {
    let columns = KnownColumns::of(snapshot)?;
    let look = |file: Candidate| {
        let columns = &columns;
        async move { Ok(columns.are_exceeded(&file.add.path, file.bytes()).await?.then_some(file)) }
    };
    stream::iter(files)
        .map(look)
        .buffered(CONCURRENT_FOOTERS)
        .try_filter_map(|file| async { Ok(file) })
        .try_collect()
        .await
}
