//! Commits rewritten bins.
//!
//! All bins of a commit are based on the version whose files were chosen, so that later commits are
//! checked by the conflict rules. If another writer has removed a file of a bin, or deleted rows from one, that bin is
//! given up, its new files are deleted, and the other bins are committed.
//!
//! Invariant: a file that a commit may name is never deleted here: from the first attempt on the transaction owns the files,
//! and returns them only with a conflict.

use std::collections::HashMap;

use deltic_protocol::action::DeletionVectorDescriptor;
use deltic_protocol::commit::Conflict;
use deltic_protocol::replay::canonical_path;
use futures::TryStreamExt;
use serde_json::json;

use super::bins::{Rewritten, delete};
use super::options::Optimized;
use crate::checkpoint::read::AddColumns;
use crate::commit::CommitContext;
use crate::error::{Kind, Result};
use crate::post_commit::HandleState;
use crate::snapshot::Snapshot;
use crate::transaction::builder::{HandleCache, Ids, Transaction, TransactionEnd, TransactionOptions};
use crate::write::unclaimed::Unclaimed;

/// The commits of one OPTIMIZE.
pub(super) struct BinCommits<'a> {
    pub(super) snapshot: Snapshot,
    pub(super) base: HandleState,
    /// Options of the commits: the operation, its parameters and metrics for the history.
    pub(super) options: TransactionOptions,
    pub(super) ids: &'a dyn Ids,
    pub(super) context: CommitContext<'a>,
}

impl BinCommits<'_> {
    /// Commits bins, except those whose files other writers have changed, and adds the results to `done`.
    pub(super) async fn commit(&self, mut bins: Vec<Rewritten>, done: &mut Optimized) -> Result<()> {
        while !bins.is_empty() {
            let conflict = match self.attempt(&mut bins, done).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let Kind::Conflict(kind) = conflict.kind() else {
                delete(bins).await;
                return Err(conflict);
            };
            // After a conflict the files are not the transaction's any more.
            for bin in &mut bins {
                bin.unclaimed.hold(&bin.files)?;
            }
            let took_rows = matches!(kind, Conflict::ConcurrentDeleteRead | Conflict::ConcurrentDeleteDelete);
            let are_live = if took_rows { self.are_live(&bins).await } else { Ok(vec![false; bins.len()]) };
            let are_live = match are_live {
                Ok(are_live) => are_live,
                Err(error) => {
                    delete(bins).await;
                    return Err(error);
                }
            };
            let (mut live, mut lost) = (Vec::new(), Vec::new());
            for (bin, is_live) in bins.into_iter().zip(are_live) {
                if is_live { live.push(bin) } else { lost.push(bin) }
            }
            // The table's metadata has changed, or no bin is found that caused the conflict.
            let gives_up = !took_rows || lost.is_empty();
            done.files_lost += lost.iter().map(|bin| bin.bin.files.len() as u64).sum::<u64>();
            delete(lost).await;
            if gives_up {
                delete(live).await;
                return Err(conflict);
            }
            bins = live;
        }
        Ok(())
    }

    async fn attempt(&self, bins: &mut [Rewritten], done: &mut Optimized) -> Result<()> {
        let log = self.snapshot.log();
        let cache =
            HandleCache { state: Some(self.base.clone()), latest: None, now_ms: Some(self.context.retry.now_ms()) };
        let mut transaction = Transaction::begin(log, cache, self.options.clone(), self.ids).await?;
        let counts = counters(bins);
        let metrics = counts.iter().map(|(name, value)| ((*name).to_owned(), json!(value.to_string())));
        let removed = bins.iter().flat_map(|bin| bin.bin.files.iter().map(|file| file.add.clone()));
        let files = bins.iter().flat_map(|bin| bin.files.iter().cloned()).collect();
        transaction.rearrange(removed, files, metrics.collect(), self.context.retry.now_ms())?;
        for bin in bins.iter_mut() {
            std::mem::replace(&mut bin.unclaimed, Unclaimed::new(log.storage().clone())).claim();
        }
        if let TransactionEnd::Committed(outcome) =
            transaction.commit(self.context.committer, self.context.retry).await?
        {
            done.versions.push(outcome.committed.version);
            add_counts(done, &counts);
        }
        Ok(())
    }

    /// For each bin whether its files are all live with the same deletion vectors: others conflict.
    async fn are_live(&self, bins: &[Rewritten]) -> Result<Vec<bool>> {
        let mut vectors: HashMap<String, (usize, Option<String>)> = HashMap::new();
        let mut missing: Vec<usize> = Vec::with_capacity(bins.len());
        for (number, bin) in bins.iter().enumerate() {
            missing.push(bin.bin.files.len());
            for file in &bin.bin.files {
                let vector = file.add.deletion_vector.as_ref().map(DeletionVectorDescriptor::unique_id);
                vectors.insert(canonical_path(&file.add.path).into_owned(), (number, vector));
            }
        }
        let newest = self.snapshot.refresh().await?;
        let columns = AddColumns { members: vec!["path", "deletionVector"], ..AddColumns::default() };
        let mut live = std::pin::pin!(newest.live_files(&columns).await?);
        while let Some(adds) = live.try_next().await? {
            for (row, path) in adds.path().iter().enumerate() {
                let file = path.and_then(|path| vectors.get(canonical_path(path).as_ref()));
                let Some((number, vector)) = file else { continue };
                let current = adds.deletion_vector(row)?.map(|vector| vector.unique_id());
                if let (true, Some(missing)) = (&current == vector, missing.get_mut(*number)) {
                    *missing = missing.saturating_sub(1);
                }
            }
        }
        Ok(missing.into_iter().map(|missing| missing == 0).collect())
    }
}

/// The metrics of an OPTIMIZE, as delta-spark counts them.
fn counters(bins: &[Rewritten]) -> Vec<(&'static str, u64)> {
    let sum = |numbers: &[u64]| numbers.iter().copied().fold(0, u64::saturating_add);
    let removed: Vec<u64> = bins.iter().flat_map(|bin| bin.bin.files.iter().map(|file| file.bytes())).collect();
    let vectors = bins.iter().flat_map(|bin| &bin.bin.files).filter(|file| file.add.deletion_vector.is_some()).count();
    let size = |size: i64| u64::try_from(size).unwrap_or_default();
    let mut added: Vec<u64> = bins.iter().flat_map(|bin| bin.files.iter().map(|file| size(file.add.size))).collect();
    added.sort_unstable();
    let quarter = |quarters: usize| {
        let at = (added.len() * quarters / 4).min(added.len().saturating_sub(1));
        added.get(at).copied().unwrap_or_default()
    };
    vec![
        ("numAddedFiles", added.len() as u64),
        ("numAddedBytes", sum(&added)),
        ("numRemovedFiles", removed.len() as u64),
        ("numRemovedBytes", sum(&removed)),
        ("numDeletionVectorsRemoved", vectors as u64),
        ("minFileSize", quarter(0)),
        ("p25FileSize", quarter(1)),
        ("p50FileSize", quarter(2)),
        ("p75FileSize", quarter(3)),
        ("maxFileSize", quarter(4)),
    ]
}

/// Adds the metrics of a commit to those of earlier commits. Metrics of the size distribution are those of the last commit.
fn add_counts(done: &mut Optimized, counts: &[(&'static str, u64)]) {
    for (name, value) in counts {
        let all = done.metrics.entry((*name).to_owned()).or_default();
        *all = match *name {
            "minFileSize" if *all > 0 => (*all).min(*value),
            "maxFileSize" => (*all).max(*value),
            name if name.starts_with("num") => all.saturating_add(*value),
            _ => *value,
        };
    }
}
