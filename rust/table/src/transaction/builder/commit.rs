//! The commit of a transaction: making the prepared commit from its steps, running the commit loop, and cleaning up after a
//! failure.
//!
//! Two retries are nested. The inner one is the commit loop, which puts the prepared commit after each winner that it does
//! not conflict with. The outer one, [`Transaction::retry_on_newest_version`], prepares the commit again: if rows were
//! only added to the cached state of a handle, and schema, properties or protocol have changed since, or the table was
//! made anew.
//!
//! PROTOCOL.md: "Delta Log Entries", "Commit Provenance Information".

use std::collections::BTreeSet;

use deltic_protocol::action::{Action, Txn};
use deltic_protocol::commit::Pending;
use deltic_protocol::property::{IsolationLevel, Properties};

use super::added::delete_files;
use super::failures::{is_conflict, is_table_changed, proves_no_commit};
use super::options::{Mode, Overwrites};
use super::{Outcome, Transaction, TransactionEnd};
use crate::commit::{RetryPolicy, TableVectors, log_committed, log_conflict, try_commit};
use crate::committers::Committer;
use crate::error::{Error, Result};
use crate::post_commit::{PostCommit, check_same_table, verify_same_table};
use crate::snapshot::Snapshot;
use deltic_protocol::commit::{Failed, PreparedCommit};
use deltic_store::Syncing;

impl Transaction {
    /// Commits, unless no step changed anything and no empty commit was requested. The files of a commit that is refused
    /// are deleted; if it is not known whether the commit was made, they stay.
    ///
    /// # Errors
    /// As [`commit`](crate::commit::commit); `Conflict` also if the table is not the one that the handle has cached.
    pub async fn commit(self, committer: &dyn Committer, retry: &dyn RetryPolicy) -> Result<TransactionEnd> {
        if let Some(version) = self.already_committed_version {
            self.abandon().await;
            return Ok(TransactionEnd::Replayed(version));
        }
        let (log, discarded) = (self.log.clone(), self.files.discarded.clone());
        delete_files(log.storage(), discarded).await;
        let (retry_copy, mode) = (self.copy_for_retry(), self.write.mode);
        let mut this = self;
        let completed = async {
            this.complete(retry.now_ms()).await?;
            this.vector_store()
        };
        let vectors = match completed.await {
            Ok(vectors) => vectors,
            Err(error) => {
                // The process that started a resumed write may have committed it already, which the error does not show.
                let paths = if this.base.is_resumed { this.written_paths().only_local() } else { this.written_paths() };
                paths.delete(log.storage()).await;
                return Err(error.in_table(log.location()));
            }
        };
        let (paths, is_resumed, marks_rows) =
            (this.written_paths(), this.base.is_resumed, !this.files.rows.marked.is_empty());
        // After a conflict OPTIMIZE commits its rewritten files again, except those of bins that a winner changed.
        let reuses_files = this.files.optimize_metrics.is_some();
        let mut syncing = std::mem::take(&mut this.files.syncing);
        let mut ended = Box::pin(this.commit_once(committer, &vectors, &mut syncing, retry)).await;
        if let Some(copy) = retry_copy.filter(|_| ended.as_ref().is_err_and(is_table_changed)) {
            ended =
                Box::pin(copy.retry_on_newest_version(committer, &vectors, &mut syncing, retry)).await.unwrap_or(ended);
        }
        let failed = match ended {
            Ok(outcome) => {
                vectors.delete_unreferenced(true).await;
                return Ok(
                    outcome.map_or(TransactionEnd::Nothing, |outcome| TransactionEnd::Committed(Box::new(outcome)))
                );
            }
            Err(failed) => failed,
        };
        if proves_no_commit(&failed, is_resumed, marks_rows) {
            vectors.delete_unreferenced(false).await;
            if !(reuses_files && is_conflict(&failed)) {
                paths.delete(log.storage()).await;
            }
        }
        // With these modes the transaction was to create the table, so another writer has created it meanwhile.
        let error = match mode {
            Mode::Ignore if is_table_changed(&failed) => {
                return Ok(TransactionEnd::Replayed(Snapshot::open(&log, None).await?.version()));
            }
            Mode::Error if is_table_changed(&failed) => Error::table_exists().caused_by(Error::from(failed)),
            _ => Error::from(failed),
        };
        Err(error.in_table(log.location())).inspect_err(log_conflict)
    }

    /// The outer retry: commits the same files again, prepared on the newest version. `None` if they do not fit the
    /// table as it is now.
    async fn retry_on_newest_version(
        self,
        committer: &dyn Committer,
        vectors: &TableVectors,
        syncing: &mut Syncing,
        retry: &dyn RetryPolicy,
    ) -> Option<Result<Option<Outcome>, Failed>> {
        match Box::pin(self.on_newest_version()).await {
            Ok(Some(rebased)) => Some(Box::pin(rebased.commit_once(committer, vectors, syncing, retry)).await),
            Ok(None) => None,
            Err(error) => Some(Err(Failed::NotWritten(error))),
        }
    }

    /// Prepares the commit, puts it into the log, and does the work after a commit. Only the commit loop retries here.
    async fn commit_once(
        self,
        committer: &dyn Committer,
        vectors: &TableVectors,
        syncing: &mut Syncing,
        retry: &dyn RetryPolicy,
    ) -> Result<Option<Outcome>, Failed> {
        let (log, base, is_resumed) = (self.log.clone(), self.base.state.clone(), self.base.is_resumed);
        let prepared = self.prepare(retry.now_ms()).await.map_err(Failed::NotWritten)?;
        let Some(prepared) = prepared else { return Ok(None) };
        if let Some(base) = &base {
            check_same_table(committer, base).await?;
        }
        let metrics = prepared.metrics.clone();
        let committed = try_commit(prepared, committer, vectors, syncing, retry).await?;
        log_committed(&committed, log.location());
        let verified = async {
            match &base {
                Some(base) => verify_same_table(committer, &committed, base).await,
                None => Ok(()),
            }
        };
        // A resumed write does not know the table's counts.
        let counted_base = base.as_ref().filter(|_| !is_resumed);
        let post_commit = PostCommit::run(&log, committer, &committed, counted_base, verified, retry.now_ms()).await?;
        Ok(Some(Outcome { committed, metrics, post_commit }))
    }

    /// After the last step, writes and reads once what the commit needs.
    async fn complete(&mut self, now_ms: i64) -> Result<()> {
        if !self.files.are_complete {
            // Boxed: few transactions need these futures, which are as large as a writer.
            Box::pin(self.remove_overwritten(now_ms)).await?;
            Box::pin(self.complete_changes()).await?;
            self.files.are_complete = true;
        }
        Ok(())
    }

    /// The prepared commit; `None` if no step changed anything and no empty commit was requested.
    ///
    /// # Errors
    /// Those of reading the log, if all files of the table are removed.
    async fn prepare(mut self, now_ms: i64) -> Result<Option<PreparedCommit>> {
        if self.changes_nothing() && self.options.app_id.is_none() && !self.options.commit_empty {
            return Ok(None);
        }
        self.complete(now_ms).await?;
        let isolation = match (self.isolation, &self.base.state) {
            (Some(isolation), _) => isolation,
            (None, Some(base)) => {
                Properties::of(&base.state.metadata).isolation_level().map_err(|e| self.in_table(e))?
            }
            (None, None) => IsolationLevel::default(),
        };
        let metrics = self.metrics(now_ms);
        let with_watermarks = self.metadata_with_identity_watermarks().map_err(|e| self.in_table(e))?;
        let (operation, parameters) = self.take_operation();
        let mut others = Vec::new();
        others.extend(self.table.protocol.map(Action::Protocol));
        others.extend(with_watermarks.or(self.table.metadata).map(Action::Metadata));
        if let (Some(app_id), Some(version)) = (&self.options.app_id, self.options.app_version) {
            let txn = Txn { app_id: app_id.clone(), version, last_updated: Some(now_ms) };
            others.push(Action::Txn(txn));
        }
        others.extend(self.table.domains.into_values().map(Action::DomainMetadata));
        let mut actions = self.files.only_file_actions.unwrap_or(self.files.removed);
        others.into_iter().try_for_each(|action| actions.push(action))?;
        let marked = std::mem::take(&mut self.files.rows.marked);
        self.files.rows.add_to(&mut actions)?;
        self.files.added.add_to(&mut actions)?;
        let state = self.base.state.map(|base| base.state);
        Ok(Some(PreparedCommit {
            pending: Pending { state, read: self.read, read_apps: BTreeSet::new(), isolation, actions, marked },
            operation,
            parameters,
            metrics,
            user_metadata: self.options.user_metadata,
            info: self.options.commit_info,
            txn_id: self.txn_id,
        }))
    }

    /// Whether no step has changed anything.
    pub(crate) fn changes_nothing(&self) -> bool {
        self.files.is_empty() && self.write.overwrites == Overwrites::Nothing && self.table.is_empty()
    }
}
