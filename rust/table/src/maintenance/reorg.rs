//! REORG (PURGE): rewrites files that hold deleted rows, dropped columns, or values of a narrower type than the table's.
//!
//! The log says which files have deletion vectors. Dropped columns and narrower types are found in the footers, which are read
//! only on request ([`Footers`]).
//!
//! PROTOCOL.md: "Deletion Vectors", "Column Mapping", "Type Widening".

use deltic_protocol::alter::widened_column;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::json;

use super::files::{Candidate, list};
use super::layout::Layout;
use super::optimize::{Plan, check, rewriting, target_file_size};
use super::options::{OptimizeOptions, Optimized};
use super::pack;
use crate::commit::CommitContext;
use crate::error::Result;
use crate::log::LogSource;
use crate::post_commit::HandleState;
use crate::scan::dropped_columns::{KnownColumns, may_have_dropped_columns};
use crate::snapshot::Snapshot;
use crate::transaction::builder::{HandleCache, Ids, Transaction, TransactionOptions};
use crate::write::writer::Clock;

/// The name of the operation in the commit info.
const OPERATION: &str = "REORG";

/// Footers that are read at once.
const CONCURRENT_FOOTERS: usize = 64;

/// Which footers are read, to find more files to rewrite besides those with deletion vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Footers {
    /// Nothing: no footer is read.
    #[default]
    Unread,
    /// Columns that the table dropped.
    DroppedColumns,
    /// Types that are not those of the table.
    OtherTypes,
}

/// Options of a REORG.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReorgOptions {
    /// Which footers are read, to find more files to rewrite.
    pub(crate) footers: Footers,
    /// How many bins are rewritten at a time.
    pub(crate) max_tasks: Option<usize>,
    /// Free text for the commit info.
    pub(crate) user_metadata: Option<String>,
}

/// Result of a REORG, or of its dry run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reorganized {
    /// Files that have deletion vectors.
    pub(crate) with_vectors: u64,
    /// Other files that are rewritten for what their footers say.
    pub(crate) by_footer: u64,
    /// The files that were rewritten, or would be.
    pub(crate) files: Optimized,
}

/// Plans a REORG of the newest version.
///
/// # Errors
/// As [`reorganize`], except those of reading rows, of writing and of committing.
pub(crate) async fn plan_reorganize(
    log: &LogSource,
    latest: Option<Snapshot>,
    options: &ReorgOptions,
    ids: &dyn Ids,
    clock: Clock,
) -> Result<Reorganized> {
    let (plan, found) = plan(log, latest, options, ids, clock).await?;
    Ok(Reorganized { files: plan.result, ..found })
}

/// Rewrites all files of the newest version that have deletion vectors or, if requested, dropped columns or other types,
/// and commits them.
///
/// # Errors
/// As [`optimize`](super::optimize), and those of reading footers.
pub(crate) async fn reorganize(
    log: &LogSource,
    latest: Option<Snapshot>,
    options: &ReorgOptions,
    ids: &dyn Ids,
    clock: Clock,
    context: CommitContext<'_>,
) -> Result<Reorganized> {
    let (plan, found) = plan(log, latest, options, ids, clock).await?;
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
    log: &LogSource,
    latest: Option<Snapshot>,
    options: &ReorgOptions,
    ids: &dyn Ids,
    clock: Clock,
) -> Result<(Plan, Reorganized)> {
    let footers = options.footers;
    let options = &OptimizeOptions { max_tasks: options.max_tasks, ..OptimizeOptions::default() };
    check(options)?;
    let cache = HandleCache { state: None, latest, now_ms: Some(clock()) };
    let mut transaction = Transaction::begin(log, cache, TransactionOptions::default(), ids).await?;
    let snapshot = transaction.snapshot().await?;
    let base = HandleState::load(&snapshot).await?;
    let target = target_file_size(options, &snapshot)?;
    let rewriting = rewriting(&mut transaction, &snapshot, Layout::Compact, target, options, clock)?;
    let looks_inside = match footers {
        Footers::Unread => false,
        Footers::DroppedColumns => may_have_dropped_columns(&snapshot),
        Footers::OtherTypes => widened_column(&snapshot.shape().schema).is_some(),
    };
    let has_vector = |file: &Candidate| file.add.deletion_vector.is_some();
    let listed = list(&snapshot, None, |file| looks_inside || has_vector(file)).await?;
    let (mut files, others): (Vec<_>, Vec<_>) = listed.candidates.into_iter().partition(has_vector);
    let with_vectors = files.len() as u64;
    if !others.is_empty() {
        files.extend(by_footer(&snapshot, others, footers).await?);
    }
    let by_footer = (files.len() as u64).saturating_sub(with_vectors);
    let plan = Plan::new(snapshot, base, rewriting, pack::all(files, target), listed.total, listed.considered);
    Ok((plan, Reorganized { with_vectors, by_footer, ..Reorganized::default() }))
}

/// Those of the files that have columns which the table no longer has, or other types.
async fn by_footer(snapshot: &Snapshot, files: Vec<Candidate>, footers: Footers) -> Result<Vec<Candidate>> {
    let columns = KnownColumns::of(snapshot)?;
    let look = |file: Candidate| {
        let columns = &columns;
        async move {
            let (path, size) = (&file.add.path, file.bytes());
            let differs = match footers {
                Footers::Unread => false,
                Footers::DroppedColumns => columns.are_exceeded(path, size).await?,
                Footers::OtherTypes => columns.have_other_types(path, size).await?,
            };
            Ok(differs.then_some(file))
        }
    };
    stream::iter(files)
        .map(look)
        .buffered(CONCURRENT_FOOTERS)
        .try_filter_map(|file| async { Ok(file) })
        .try_collect()
        .await
}
