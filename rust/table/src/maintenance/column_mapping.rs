//! Removes column mapping: rewrites all files with the names of the schema, and removes ids and physical names from it.
//!
//! Files are packed as in OPTIMIZE. One commit replaces all of them with the metadata, since readers find the columns of all
//! files in the same way. It has read the whole table, so every concurrent commit that adds or removes files is a conflict.
//!
//! Invariant: until the commit, the table does not change, and the new files are deleted unless it is made.
//! Proved by `tests/python/test_dropped_column_mapping.py`.
//!
//! PROTOCOL.md: "Column Mapping".

use serde_json::{Map, Value, json};

use super::bins::Rewritten;
use super::files::list;
use super::layout::Layout;
use super::optimize::{rewriting, target_file_size, write_all};
use super::options::OptimizeOptions;
use super::pack::{self, Bin};
use crate::commit::{CommitContext, nothing_committed, stop_if_cancelled};
use crate::error::{Kind, Result};
use crate::progress::{Progress, Unit};
use crate::transaction::builder::{Ids, Transaction};
use crate::write::plan::DataFile;
use crate::write::unclaimed::Unclaimed;
use crate::write::writer::Clock;

/// Removes column mapping from the table, but not the feature from its protocol. `transaction` has no steps yet.
///
/// # Errors
/// `Invalid` if a name needs column mapping, `Conflict` if another writer commits meanwhile, those of reading and writing,
/// `Interrupted`.
pub(crate) async fn remove_column_mapping(
    mut transaction: Transaction,
    ids: &dyn Ids,
    clock: Clock,
    context: CommitContext<'_>,
) -> Result<()> {
    let snapshot = transaction.snapshot().await?;
    transaction.remove_column_mapping()?;
    let options = OptimizeOptions::default();
    let target = target_file_size(&options, &snapshot)?;
    let mut rewriting = rewriting(&mut transaction, &snapshot, Layout::Compact, target, &options, clock)?;
    let bins = pack::all(list(&snapshot, None, |_| true).await?.candidates, target);
    rewriting.tasks = rewriting.tasks.clamp(1, bins.len().max(1));
    let bytes = bins.iter().map(Bin::bytes).fold(0, u64::saturating_add);
    let progress = Progress::begin("REMOVE COLUMN MAPPING", Unit::Bytes, Some(bytes));
    let writing = write_all(&rewriting, bins, ids, &progress);
    let written = stop_if_cancelled(writing, &rewriting.stop, context.retry, nothing_committed).await?;
    let files: Vec<DataFile> = written.iter().flat_map(|bin| bin.files.iter().cloned()).collect();
    let removed = written.iter().flat_map(|bin| bin.bin.files.iter().map(|file| file.add.clone()));
    transaction.rearrange(removed, files.clone(), metrics(&written), context.retry.now_ms())?;
    written.into_iter().for_each(|bin| bin.unclaimed.claim());
    let committed = Box::pin(transaction.commit(context.committer, context.retry)).await;
    // After a conflict the files are not the transaction's any more.
    if committed.as_ref().is_err_and(|error| matches!(error.kind(), Kind::Conflict(_))) {
        let mut unclaimed = Unclaimed::new(snapshot.storage().clone());
        unclaimed.hold(&files)?;
        unclaimed.delete().await;
    }
    committed.map(drop)
}

/// The metrics of the commit, with delta-spark's names.
fn metrics(bins: &[Rewritten]) -> Map<String, Value> {
    let removed = || bins.iter().flat_map(|bin| &bin.bin.files);
    let added = || bins.iter().flat_map(|bin| &bin.files);
    let size = |size: i64| u64::try_from(size).unwrap_or_default();
    let counts = [
        ("numRewrittenFiles", removed().count() as u64),
        ("numRemovedBytes", removed().map(|file| file.bytes()).fold(0, u64::saturating_add)),
        ("numOutputBytes", added().map(|file| size(file.add.size)).fold(0, u64::saturating_add)),
        ("numCopiedRows", added().map(|file| file.rows).fold(0, u64::saturating_add)),
        ("numDeletionVectorsRemoved", removed().filter(|file| file.add.deletion_vector.is_some()).count() as u64),
    ];
    counts.into_iter().map(|(name, value)| (name.to_owned(), json!(value.to_string()))).collect()
}
