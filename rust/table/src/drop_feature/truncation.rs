//! Drops a feature after the log of the versions with traces of it was deleted.
//!
//! A version is deleted only if it was replaced longer ago than `delta.dropFeatureTruncateHistory.retentionDuration`: until
//! then running reads and writes may need it. The log is kept from the first version on that has no trace and is followed by
//! none; a checkpoint of that version is written first. If checkpoints are protected, the protected ones are deleted all at
//! once or not at all.
//!
//! Invariant: the log that the last transaction is based on has no trace, and a commit after it is a conflict. Proved by
//! `tests/python/test_truncated_history.py`.
//!
//! RFC "Checkpoint Protection".

use deltic_protocol::alter::Dropping;
use deltic_protocol::feature;
use deltic_protocol::property::Properties;
use deltic_protocol::scalar::iso_instant;

use super::Steps;
use super::traces::{LogTraces, first_without_traces};
use crate::checkpoint_writer::of_snapshot;
use crate::cleanup::truncate_log;
use crate::error::{Error, Result};
use crate::history::{Timeline, commits};
use crate::snapshot::Snapshot;
use crate::transaction::builder::{Outcome, TransactionOptions};

const MINUTE_MS: i64 = 60_000;

impl Steps<'_> {
    /// Deletes the log of versions with traces of the feature, and drops it.
    ///
    /// # Errors
    /// `Invalid` if these versions are too new, with the time from which on they can be deleted.
    pub(super) async fn drop_after_truncation(&self) -> Result<Box<Outcome>> {
        for has_truncated in [false, true] {
            let mut transaction = self.begin(TransactionOptions::default()).await?;
            let snapshot = transaction.snapshot().await?;
            self.refuse_gaps().await?;
            let traces = first_without_traces(&snapshot, self.name).await?;
            let mut first = match traces {
                LogTraces::None => {
                    let outcome = self.drop_from_protocol(transaction, Dropping::TruncatedLog).await?;
                    // Without it, readers of the newest version read the protocol actions that have the feature.
                    self.checkpoint_if_possible().await;
                    return Ok(outcome);
                }
                LogTraces::Before(first) => first,
            };
            if has_truncated {
                break;
            }
            let (version, properties) = (snapshot.version(), Properties::of(snapshot.metadata()));
            if feature::supported(snapshot.protocol()).contains("checkpointProtection") {
                first = first.max(properties.checkpoint_protection()?);
            }
            if first > version.saturating_add(1) {
                return Err(self.protected(first, version));
            }
            if first > version {
                // The log can only be truncated before a commit without traces.
                self.commit_and_checkpoint().await?;
            }
            self.truncate(first, properties.dropped_feature_retention()?).await?;
        }
        Err(Error::invalid(format!(
            "the feature `{}` was not dropped: another writer has used it meanwhile; call it again",
            self.name
        )))
    }

    /// Deletes the log before the version `first`, if that is old enough.
    async fn truncate(&self, first: u64, retention_ms: i64) -> Result<()> {
        let now_ms = self.context.retry.now_ms();
        let timeline = Timeline::load(self.log).await?;
        let Some(replaced_ms) = timeline.time_of(first).await? else {
            return Err(Error::corrupt(format!("the log lacks the commit of version {first}")).at_version(first));
        };
        // Rounded down to a whole minute, as other writers do.
        let oldest_kept = now_ms.saturating_sub(retention_ms);
        if replaced_ms > oldest_kept.saturating_sub(oldest_kept.rem_euclid(MINUTE_MS)) {
            let from = replaced_ms.saturating_add(retention_ms).saturating_add(MINUTE_MS);
            return Err(self.too_new(first, from));
        }
        let snapshot = timeline.snapshot(first).await?;
        if !has_checkpoint(&snapshot).await? {
            of_snapshot(&snapshot, now_ms).await?;
        }
        truncate_log(self.log, first, now_ms).await?;
        Ok(())
    }

    /// Refuses a log that lacks a commit. A compaction may have it, but it cannot be searched for traces of single versions, and
    /// is not used with a checkpoint of one of its versions.
    async fn refuse_gaps(&self) -> Result<()> {
        let commits = commits(&self.log.list(0).await?);
        let versions = commits.iter().map(|file| file.name.version());
        let gap = versions.clone().zip(versions.skip(1)).find(|(one, next)| one.saturating_add(1) != *next);
        let Some((before, _)) = gap else { return Ok(()) };
        let message = format!(
            "the log cannot be truncated, since it lacks the commit of version {}; leave truncate_history out",
            before.saturating_add(1)
        );
        Err(Error::unsupported("truncateHistory", message))
    }

    fn too_new(&self, first: u64, from_ms: i64) -> Error {
        Error::invalid(format!(
            "the feature `{}` is not dropped yet: versions before {first} have traces of it and are kept for \
             `delta.dropFeatureTruncateHistory.retentionDuration` after version {first}; call it again at {} or \
             later{}",
            self.name,
            iso_instant(from_ms),
            self.advice()
        ))
    }

    fn protected(&self, first: u64, newest: u64) -> Error {
        Error::invalid(format!(
            "the feature `{}` is not dropped yet: checkpoints before version {first} are protected \
             (`delta.requireCheckpointProtectionBeforeVersion`), and the newest version is {newest}; call it again when the \
             table has version {first}{}",
            self.name,
            self.advice()
        ))
    }

    fn advice(&self) -> &'static str {
        match self.name {
            "checkpointProtection" => "",
            _ => ", or now without truncate_history, which keeps the history",
        }
    }
}

/// Whether there is a checkpoint of the snapshot's version that can be read.
async fn has_checkpoint(snapshot: &Snapshot) -> Result<bool> {
    let readable = snapshot.with_readable_sidecars().await?;
    Ok(readable.checkpoint().await?.is_some_and(|checkpoint| checkpoint.version() == snapshot.version()))
}
