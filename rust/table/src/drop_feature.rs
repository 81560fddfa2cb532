//! DROP FEATURE, also for features that readers of older versions need.
//!
//! The feature is disabled, and for deletion vectors the files that have them are rewritten. Three checkpoints follow,
//! each of an empty commit; then one commit removes the feature from the protocol and protects those checkpoints, so that
//! no reader needs versions before them and no writer makes other checkpoints there. A process that dies in between leaves a
//! valid table, and running it again continues from there.
//!
//! PROTOCOL.md: "Protocol Evolution"; RFC "Checkpoint Protection".

use crate::checkpoint_writer::checkpoint;
use crate::error::{Error, Result};
use crate::events::TARGET;
use crate::maintenance::{ReorgOptions, reorganize};
use crate::transaction::builder::{HandleCache, Ids, Outcome, Transaction, TransactionEnd, TransactionOptions};
use crate::transaction::{CommitContext, CommitSeries};
use crate::write::writer::Clock;
use deltic_store::Storage;

/// How many checkpoints keep readers from older versions. delta-spark skips up to one less of those that it cannot read.
const CHECKPOINTS: usize = 3;

/// Drops a feature from the table at `storage`, and returns the commit. If the checkpoint after it fails, that is only logged.
///
/// # Errors
/// `Invalid` if the table does not have the feature, it cannot be dropped or traces of it are left, with what to do;
/// `Unsupported` if the history is to be truncated; those of committing and of writing checkpoints. Steps that were done
/// remain: running it again continues from there.
pub async fn drop_feature(
    storage: &Storage,
    name: &str,
    truncates_history: bool,
    ids: &dyn Ids,
    clock: Clock,
    context: CommitContext<'_>,
) -> Result<Box<Outcome>> {
    let commits = CommitSeries::after(&[], context.retry);
    let context = CommitContext { retry: &commits, ..context };
    let dropped = drop_in_steps(storage, name, truncates_history, ids, clock, context).await;
    dropped.map_err(|e| commits.name_committed_versions(e))
}

async fn drop_in_steps(
    storage: &Storage,
    name: &str,
    truncates_history: bool,
    ids: &dyn Ids,
    clock: Clock,
    context: CommitContext<'_>,
) -> Result<Box<Outcome>> {
    let CommitContext { committer, retry } = context;
    let options = TransactionOptions::default;
    let mut transaction = Transaction::begin(storage, HandleCache::default(), options(), ids).await?;
    let guards = transaction.guards_history(name).map_err(|e| e.in_table(storage.location()))?;
    if truncates_history {
        return Err(refuse_truncation(name, guards).in_table(storage.location()));
    }
    if !guards {
        transaction.drop_from_protocol(name, false).await?;
        return committed(transaction.commit(committer, retry).await?);
    }
    if transaction.disable_feature(name).await? {
        transaction.commit(committer, retry).await?;
    }
    if name == "deletionVectors" {
        // No writer adds deletion vectors any more.
        reorganize(storage, None, &ReorgOptions::default(), ids, clock, context).await?;
    }
    for _ in 0..CHECKPOINTS {
        let operation = "Empty Commit".to_owned();
        let empty = TransactionOptions { operation, commit_empty: true, ..options() };
        let transaction = Transaction::begin(storage, HandleCache::default(), empty, ids).await?;
        transaction.commit(committer, retry).await?;
        checkpoint(storage, retry.now_ms()).await?;
    }
    let mut transaction = Transaction::begin(storage, HandleCache::default(), options(), ids).await?;
    transaction.drop_from_protocol(name, true).await?;
    let outcome = committed(transaction.commit(committer, retry).await?)?;
    // With this checkpoint, readers that check every protocol action they read need not read the older ones.
    if let Err(error) = checkpoint(storage, retry.now_ms()).await {
        log::warn!(target: TARGET, "the feature was dropped, and the checkpoint after it failed: {error}");
    }
    Ok(outcome)
}

fn committed(ended: TransactionEnd) -> Result<Box<Outcome>> {
    match ended {
        TransactionEnd::Committed(outcome) => Ok(outcome),
        TransactionEnd::Replayed(_) | TransactionEnd::Nothing => {
            Err(Error::internal("dropping a feature committed nothing"))
        }
    }
}

fn refuse_truncation(name: &str, guards: bool) -> Error {
    if guards {
        let message = format!(
            "deltic drops the feature `{name}` by protecting checkpoints and keeps the history; leave truncate_history out"
        );
        return Error::unsupported("truncateHistory", message);
    }
    Error::invalid(format!("dropping `{name}` needs no other history; leave truncate_history out"))
}
