//! When a commit is followed by a compaction of small files.
//!
//! The commit stands whatever comes of it: a failure is logged and told. Small files are counted as seldom as will do: not in
//! a table that has few files, and after a count not before a partition could have enough.
//!
//! Proved by `tests/python/test_auto_compact.py`.

use deltic_protocol::property::Properties;

use super::{At, Table};
use crate::committers::for_table;
use crate::error::Result;
use crate::events::TARGET;
use crate::maintenance::{self, MIN_FILES};
use crate::transaction::RetryPolicy;
use crate::transaction::builder::{Ids, Outcome};
use crate::write::writer::Clock;

impl Table {
    /// Packs small files after a commit, where the table asks for it and they are many.
    pub(super) async fn compact_after(
        &self,
        outcome: &mut Outcome,
        (ids, clock): (&dyn Ids, Clock),
        retry: &dyn RetryPolicy,
    ) {
        if let Err(error) = self.try_compact_after(outcome, (ids, clock), retry).await {
            let (version, place) = (outcome.committed.version, self.storage.location());
            log::warn!(target: TARGET, "small files were not packed after version {version} of {place}: {error}");
            outcome.after.failed.push(("compactionError", error));
        }
    }

    async fn try_compact_after(
        &self,
        outcome: &mut Outcome,
        (ids, clock): (&dyn Ids, Clock),
        retry: &dyn RetryPolicy,
    ) -> Result<()> {
        let committed = &outcome.committed;
        let (version, added) = (committed.version, committed.num_added);
        let is_asked_for = added > 0 && !committed.is_re_add && !retry.is_cancelled();
        if !is_asked_for || !Properties::of(&committed.state.metadata).auto_compact()? {
            return Ok(());
        }
        let live = outcome.after.base.checksum.as_ref().map(|checksum| checksum.num_files);
        if live.and_then(|live| usize::try_from(live).ok()).is_some_and(|live| live < MIN_FILES)
            || !self.is_due(version, added)
        {
            return Ok(());
        }
        let snapshot = self.snapshot(At::Newest).await?;
        if !Properties::of(snapshot.metadata()).auto_compact()? {
            return Ok(());
        }
        let committer = for_table(&self.storage);
        let compacted = maintenance::auto_compact(&snapshot, (ids, clock), (committer.as_ref(), retry)).await?;
        let Some(done) = compacted.done else {
            self.with(|known| known.spare_files = Some((snapshot.version(), compacted.spare_files)));
            return Ok(());
        };
        if let Some(last) = done.versions.last() {
            outcome.after.compaction = Some(*last);
            self.forget();
        } else if done.files_lost > 0 {
            let (lost, place) = (done.files_lost, self.storage.location());
            log::info!(target: TARGET, "{lost} small files of {place} were not packed: another writer got to them");
        }
        Ok(())
    }

    /// Whether small files may be many after a commit of this handle that added some, and are to be counted. Meanwhile no
    /// other thread counts them.
    fn is_due(&self, version: u64, added: usize) -> bool {
        self.with(|known| {
            let spare = known.spare_files.filter(|(at, _)| at.saturating_add(1) == version).map(|(_, spare)| spare);
            let left = spare.and_then(|spare| spare.checked_sub(added)).filter(|left| *left > 0);
            known.spare_files = Some((version, left.unwrap_or(MIN_FILES)));
            left.is_none()
        })
    }
}
