//! DROP FEATURE, also for features that readers of older versions need.
//!
//! A feature that readers of older versions do not need is dropped by one commit. For others:
//! 1. Disable the feature. For `deletionVectors`, `typeWidening` and `columnMapping`, rewrite the files that use it.
//! 2. By default, make three empty commits, each with a checkpoint. One more commit removes the feature from the protocol and
//!    protects these checkpoints: readers need no version before them, and writers make no other checkpoints there.
//! 3. With `truncates_history` instead, delete the log of the versions with traces once they are old enough ([`truncation`]);
//!    then one commit removes the feature.
//!
//! A process that dies in between leaves a valid table, and running it again continues from there.
//!
//! PROTOCOL.md: "Protocol Evolution"; RFC "Checkpoint Protection".

use deltic_protocol::alter::{Dropping, OldLog};

use crate::checkpoint_writer::checkpoint;
use crate::commit::{CommitContext, CommitSeries};
use crate::error::{Error, Result};
use crate::events::TARGET;
use crate::log::LogSource;
use crate::maintenance::{Footers, ReorgOptions, remove_column_mapping, reorganize};
use crate::transaction::builder::{HandleCache, Ids, Outcome, Transaction, TransactionEnd, TransactionOptions};
use crate::write::writer::Clock;

mod traces;
mod truncation;

/// How many checkpoints keep readers from older versions. delta-spark skips up to one less of those that it cannot read.
const CHECKPOINTS: usize = 3;

/// Drops a feature from a table, and returns the commit. If the checkpoint after it fails, that is only logged.
///
/// # Errors
/// `Invalid` if the table does not have the feature, it cannot be dropped or traces of it are left, with what to do; with
/// `truncates_history` also if versions with traces are too new to be deleted, with the time from which on they can be; those
/// of committing, of reading the log and of writing checkpoints. Steps that were done remain: running it again continues from
/// there.
pub async fn drop_feature(
    log: &LogSource,
    name: &str,
    truncates_history: bool,
    ids: &dyn Ids,
    clock: Clock,
    context: CommitContext<'_>,
) -> Result<Box<Outcome>> {
    let commits = CommitSeries::after(&[], context.retry);
    let context = CommitContext { retry: &commits, ..context };
    let steps = Steps { log, name, ids, clock, context };
    let dropped = steps.drop(truncates_history).await;
    dropped.map_err(|e| commits.name_committed_versions(e).in_table(log.location()))
}

/// The steps of dropping one feature.
struct Steps<'a> {
    log: &'a LogSource,
    name: &'a str,
    ids: &'a dyn Ids,
    clock: Clock,
    context: CommitContext<'a>,
}

impl Steps<'_> {
    async fn drop(&self, truncates_history: bool) -> Result<Box<Outcome>> {
        let transaction = self.begin(TransactionOptions::default()).await?;
        match (transaction.old_log(self.name)?, truncates_history) {
            (OldLog::Kept, false) => self.drop_from_protocol(transaction, Dropping::KeepsLog).await,
            (OldLog::Kept, true) => Err(Error::invalid(format!(
                "dropping `{}` needs no other history; leave truncate_history out",
                self.name
            ))),
            (OldLog::ProtectedOrDeleted, false) => {
                Box::pin(self.remove_traces(transaction)).await?;
                self.drop_behind_checkpoints().await
            }
            (OldLog::ProtectedOrDeleted, true) => {
                Box::pin(self.remove_traces(transaction)).await?;
                self.drop_after_truncation().await
            }
            (OldLog::Deleted, true) => self.drop_after_truncation().await,
            (OldLog::Deleted, false) => Err(Error::invalid(format!(
                "the feature `{}` can be dropped only with the versions that it protects: call it with \
                 truncate_history=True",
                self.name
            ))),
        }
    }

    /// Removes all traces of the feature from the newest version, and disables it.
    async fn remove_traces(&self, mut transaction: Transaction) -> Result<()> {
        let CommitContext { committer, retry } = self.context;
        let mut checked = None;
        if matches!(self.name, "typeWidening" | "typeWidening-preview") {
            // No writer widens types any more. Only files of narrower types are left of the feature, and the metadata that
            // readers need for them.
            if transaction.unset_feature(self.name).await? {
                transaction.commit(committer, retry).await?;
            }
            // The footers of its files need not be read again, unless others have committed meanwhile.
            checked = self.rewrite(Footers::OtherTypes).await?;
            transaction = self.begin(TransactionOptions::default()).await?;
        }
        if self.name == "columnMapping" && transaction.mapped_files().await?.is_some() {
            // One commit does both, since the names in all files must be those in the metadata. Boxed, as the other rewrite:
            // these futures are large.
            Box::pin(remove_column_mapping(transaction, self.ids, self.clock, self.context)).await?;
            transaction = self.begin(TransactionOptions::default()).await?;
        }
        if transaction.disable_feature(self.name, checked).await? {
            transaction.commit(committer, retry).await?;
        }
        if self.name == "deletionVectors" {
            // No writer adds deletion vectors any more.
            self.rewrite(Footers::Unread).await?;
        }
        Ok(())
    }

    /// Rewrites files. Returns the version without any such file, if no other writer's commit is in between.
    async fn rewrite(&self, footers: Footers) -> Result<Option<u64>> {
        let options = ReorgOptions { footers, ..ReorgOptions::default() };
        let done = Box::pin(reorganize(self.log, None, &options, self.ids, self.clock, self.context)).await?;
        let (read, versions) = (done.files.read_version, done.files.versions);
        let newest = versions.last().copied().unwrap_or(read);
        let is_alone = newest.checked_sub(read) == u64::try_from(versions.len()).ok();
        Ok((is_alone && done.files.files_lost == 0).then_some(newest))
    }

    async fn drop_behind_checkpoints(&self) -> Result<Box<Outcome>> {
        for _ in 0..CHECKPOINTS {
            self.commit_and_checkpoint().await?;
        }
        let transaction = self.begin(TransactionOptions::default()).await?;
        let outcome = self.drop_from_protocol(transaction, Dropping::ProtectsCheckpoints).await?;
        // With this checkpoint, readers that check every protocol action they read need not read the older ones.
        self.checkpoint_if_possible().await;
        Ok(outcome)
    }

    async fn begin(&self, options: TransactionOptions) -> Result<Transaction> {
        Transaction::begin(self.log, HandleCache::default(), options, self.ids).await
    }

    /// An empty commit and a checkpoint of it.
    async fn commit_and_checkpoint(&self) -> Result<()> {
        let CommitContext { committer, retry } = self.context;
        let operation = "Empty Commit".to_owned();
        let empty = TransactionOptions { operation, commit_empty: true, ..TransactionOptions::default() };
        self.begin(empty).await?.commit(committer, retry).await?;
        checkpoint(self.log, retry.now_ms()).await?;
        Ok(())
    }

    async fn drop_from_protocol(&self, mut transaction: Transaction, dropping: Dropping) -> Result<Box<Outcome>> {
        transaction.drop_from_protocol(self.name, dropping).await?;
        match transaction.commit(self.context.committer, self.context.retry).await? {
            TransactionEnd::Committed(outcome) => Ok(outcome),
            TransactionEnd::Replayed(_) | TransactionEnd::Nothing => {
                Err(Error::internal("dropping a feature committed nothing"))
            }
        }
    }

    async fn checkpoint_if_possible(&self) {
        if let Err(error) = checkpoint(self.log, self.context.retry.now_ms()).await {
            log::warn!(target: TARGET, "the feature was dropped, and the checkpoint after it failed: {error}");
        }
    }
}
