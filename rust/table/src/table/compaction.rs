//! Auto compaction: when a commit is followed by a compaction of small files.
//!
//! The commit remains whatever happens, even a panic: a failure is logged and reported. Small files are not counted in a
//! table with few files, and only if a compaction may be due (`due`).
//!
//! Proved by `tests/python/test_auto_compact.py`.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;

use deltic_protocol::action::batch::Origin;
use deltic_protocol::action::json::{Wanted, parse_commit};
use deltic_protocol::action::lines::file_action_of;
use deltic_protocol::action::{Action, PartitionValues};
use deltic_protocol::commit::Committed;
use deltic_protocol::property::Properties;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;

use super::due::Reservation;
use super::{At, Table};
use crate::commit::{CommitContext, RetryPolicy};
use crate::committers::Committer;
use crate::error::{Error, Result};
use crate::events::TARGET;
use crate::maintenance::{self, AutoCompacted, MIN_FILES};
use crate::post_commit::PostCommitStep;
use crate::snapshot::Snapshot;
use crate::transaction::builder::{Ids, Outcome};
use crate::write::writer::Clock;

impl Table {
    /// Compacts small files after a commit, if the table's properties ask for it and there are many.
    pub(super) async fn compact_after(
        &self,
        outcome: &mut Outcome,
        ids: &dyn Ids,
        clock: Clock,
        retry: &dyn RetryPolicy,
    ) {
        let compacting: BoxFuture<'_, Result<()>> = self.try_compact_after(outcome, ids, clock, retry).boxed();
        let compacted = AssertUnwindSafe(compacting).catch_unwind().await;
        let compacted = compacted.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason is known");
            Err(Error::internal(format!("compacting small files panicked: {text}")))
        });
        let Err(error) = compacted else { return };
        let (version, place) = (outcome.committed.version, self.log.location());
        if retry.is_cancelled() {
            log::info!(target: TARGET, "compacting small files after version {version} of {place} was interrupted");
        } else {
            log::warn!(target: TARGET, "small files were not compacted after version {version} of {place}: {error}");
        }
        outcome.post_commit.failed.push((PostCommitStep::Compaction, error));
    }

    async fn try_compact_after(
        &self,
        outcome: &mut Outcome,
        ids: &dyn Ids,
        clock: Clock,
        retry: &dyn RetryPolicy,
    ) -> Result<()> {
        let committed = &outcome.committed;
        let (version, added) = (committed.version, committed.num_added);
        let may_be_due = added > 0 && !committed.is_re_add && !retry.is_cancelled();
        if !may_be_due || !Properties::of(&committed.state.metadata).auto_compact()? {
            return Ok(());
        }
        let live = outcome.post_commit.handle_state.checksum.as_ref().map(|checksum| checksum.num_files);
        if live.and_then(|live| usize::try_from(live).ok()).is_some_and(|live| live < MIN_FILES) {
            return Ok(());
        }
        let added = added_to(committed)?;
        if !self.locked(|cached| cached.compaction_budget.is_due_after(version, &added)) {
            return Ok(());
        }
        let table = (self.log.location().to_owned(), committed.state.metadata.id.clone());
        let Some(mut reservation) = Reservation::take(table) else { return Ok(()) };
        // Stays set unless the compaction succeeds.
        reservation.has_failed = true;
        let compacted = self.compact(outcome, added.into_keys().collect(), ids, clock, retry).await;
        reservation.has_failed = compacted.is_err() && !retry.is_cancelled();
        compacted
    }

    /// Compacts the small files of these partitions, unless another process has done so since.
    async fn compact(
        &self,
        outcome: &mut Outcome,
        touched: BTreeSet<PartitionValues>,
        ids: &dyn Ids,
        clock: Clock,
        retry: &dyn RetryPolicy,
    ) -> Result<()> {
        let committer = self.committer.as_ref();
        let snapshot = self.snapshot(At::Newest).await?;
        if !Properties::of(snapshot.metadata()).auto_compact()?
            || was_compacted_since(outcome.committed.version, &snapshot, committer).await?
        {
            return Ok(());
        }
        let context = CommitContext { committer, retry };
        match maintenance::auto_compact(&snapshot, &touched, ids, clock, context).await? {
            AutoCompacted::Spare(files) => {
                self.locked(|cached| cached.compaction_budget.set(snapshot.version(), files));
                Ok(())
            }
            AutoCompacted::Done(done, failed) => {
                if let Some(last) = done.versions.last() {
                    outcome.post_commit.compaction = Some(*last);
                    self.invalidate();
                } else if done.files_lost > 0 {
                    let (lost, place) = (done.files_lost, self.log.location());
                    let message = "were not compacted: another writer has changed them";
                    log::info!(target: TARGET, "{lost} small files of {place} {message}");
                }
                failed.map_or(Ok(()), |error| Err(error.in_table(self.log.location())))
            }
        }
    }
}

/// How many files a commit added to each partition.
fn added_to(committed: &Committed) -> Result<BTreeMap<PartitionValues, usize>> {
    let mut added: BTreeMap<PartitionValues, usize> = BTreeMap::new();
    committed.lines.each(|line| {
        if let Some(Action::Add(add)) = file_action_of(line)? {
            let count = added.entry(add.partition_values).or_default();
            *count = count.saturating_add(1);
        }
        Ok(())
    })?;
    Ok(added)
}

/// Whether a commit after this version, up to the newest, was such a compaction.
async fn was_compacted_since(version: u64, newest: &Snapshot, committer: &dyn Committer) -> Result<bool> {
    for later in version.saturating_add(1)..=newest.version() {
        let Some(bytes) = committer.read(later).await? else { continue };
        let info = parse_commit(&bytes, Origin::Commit(later), Wanted::NoFiles)?.commit_info;
        let is_auto = info.is_some_and(|info| {
            let auto = info.0.get("operationParameters").and_then(|parameters| parameters.get("auto"));
            let is_true = auto.is_some_and(|auto| auto.as_bool() == Some(true) || auto.as_str() == Some("true"));
            info.0.get("operation").and_then(Value::as_str) == Some("OPTIMIZE") && is_true
        });
        if is_auto {
            return Ok(true);
        }
    }
    Ok(false)
}
