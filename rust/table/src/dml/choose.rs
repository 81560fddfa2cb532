//! Chooses for each file with matching rows whether it is removed, gets a deletion vector or is rewritten, and writes the
//! new files.
//!
//! Files that the transaction itself has written are always rewritten: no commit names them yet. New files are deleted
//! unless the transaction takes them over ([`ChangedFiles::apply`]).

use std::collections::HashSet;

use deltic_protocol::action::Action;
use deltic_protocol::commit::MarkedFile;
use deltic_protocol::deletion_vector::DeletionVector;

use super::changed::{UpdateTask, UpdateWriter};
use super::find::{FindResult, RemovedFiles, TouchedFile};
use crate::error::{Error, Result};
use crate::progress::{Progress, Unit};
use crate::rewrite::{Copying, Written};
use crate::scan::task::FileTask;
use crate::snapshot::Snapshot;
use crate::transaction::builder::change_files::{Change, changes_spec, write_changes};
use crate::transaction::builder::{FileOrigin, Transaction};
use crate::write::plan::FileKind;
use crate::write::unclaimed::Unclaimed;
use crate::write::writer::Clock;
use deltic_store::Storage;

/// Files with deleted or updated rows, by how they are changed.
#[derive(Debug)]
pub(super) struct ChangedFiles {
    /// Files of the base that are removed as a whole.
    pub(super) removed_files: RemovedFiles,
    /// Paths of the transaction's own files that are removed or rewritten.
    own_removed: HashSet<String>,
    /// Files of the base whose rows are marked in a deletion vector.
    pub(super) marked: Vec<TouchedFile>,
    /// Files with rows of the base that are rewritten.
    pub(super) copied: Vec<TouchedFile>,
    /// Files with new rows that are rewritten.
    copied_new: Vec<TouchedFile>,
    /// Rows that are deleted or updated, without those of `removed_files`.
    pub(super) matching_rows: u64,
}

/// Chooses for each file how it is changed.
///
/// # Errors
/// `Unsupported` for rows that the transaction has changed before, on a table that records changes.
pub(super) fn choose(tx: &Transaction, found: &mut FindResult, now_ms: i64) -> Result<ChangedFiles> {
    let (marks, feeds, own) = (tx.writes_deletion_vectors()?, tx.has_change_data_feed()?, tx.own());
    let mut chosen = ChangedFiles {
        removed_files: std::mem::take(&mut found.removed_files),
        own_removed: std::mem::take(&mut found.own_removed),
        marked: Vec::new(),
        copied: Vec::new(),
        copied_new: Vec::new(),
        matching_rows: found.own_removed_rows,
    };
    for mut touched in std::mem::take(&mut found.touched_files) {
        let (path, rows) = (touched.task.path.clone(), touched.matching.cardinality());
        let is_removed = touched.all_rows_match() && touched.updated.is_empty();
        match (own.get(path.as_str()).copied(), touched.all_rows_match()) {
            (Some(_), _) if is_removed => drop(chosen.own_removed.insert(path)),
            (Some(own), _) => {
                chosen.own_removed.insert(path);
                if own == FileOrigin::New { &mut chosen.copied_new } else { &mut chosen.copied }.push(touched);
            }
            (None, _) if is_removed => {
                found.read.insert(&path);
                let add = touched.add.take().ok_or_else(unknown)?;
                chosen.removed_files.push(add, Some(rows), now_ms)?;
                continue;
            }
            (None, false) if marks => chosen.marked.push(touched),
            (None, _) => {
                found.read.insert(&path);
                chosen.copied.push(touched);
            }
        }
        chosen.matching_rows += rows;
    }
    if let Some(path) =
        chosen.own_removed.iter().find(|path| feeds && own.get(path.as_str()) == Some(&FileOrigin::Rewritten))
    {
        let message = "this transaction has changed rows of the file already, and the table records changes \
                       (`delta.enableChangeDataFeed`): a row is changed once in a transaction; commit first";
        return Err(Error::unsupported("changeDataFeed", message).in_file(path));
    }
    Ok(chosen)
}

fn unknown() -> Error {
    Error::internal("a file that was planned is not in the log")
}

/// The files that were written in place of others.
pub(super) struct WrittenFiles {
    rewritten: Written,
    new: Written,
    changes: Vec<Written>,
    unclaimed: Unclaimed,
}

impl ChangedFiles {
    /// Rows of rewritten files that are copied unchanged.
    pub(super) fn copied_rows(&self) -> u64 {
        let copied = |touched: &TouchedFile| touched.live_rows().saturating_sub(touched.matching.cardinality());
        self.copied.iter().chain(&self.copied_new).map(copied).sum()
    }

    /// The bytes of the files that are removed or rewritten, and how many of them have deletion vectors.
    pub(super) fn removed_totals(&self) -> (u64, u64) {
        let (mut bytes, mut vectors) = (self.removed_files.bytes, self.removed_files.vectors);
        for add in self.copied.iter().filter_map(|touched| touched.add.as_ref()) {
            bytes = bytes.saturating_add(u64::try_from(add.size).unwrap_or_default());
            vectors += u64::from(add.deletion_vector.is_some());
        }
        (bytes, vectors)
    }

    /// Begins to report progress over the rows that are deleted, updated, copied or inserted (`inserted` of them). Deleted
    /// rows count as done at once.
    pub(super) fn progress(&self, operation: &str, inserted: u64) -> Progress {
        let updated = |touched: &TouchedFile| touched.updated.cardinality();
        let updated: u64 = [&self.marked, &self.copied, &self.copied_new].into_iter().flatten().map(updated).sum();
        let known = self.matching_rows.saturating_add(self.removed_files.live_rows.unwrap_or_default());
        let deleted = known.saturating_sub(updated);
        let all = known.saturating_add(self.copied_rows()).saturating_add(inserted);
        let progress = Progress::begin(operation, Unit::Rows, self.removed_files.live_rows.map(|_| all));
        progress.advance(deleted);
        progress
    }

    /// Writes the rewritten files and, for a table with a change data feed, the change files. `update`: what sets the
    /// updated rows, if any. `progress`: of [`ChangedFiles::progress`].
    ///
    /// # Errors
    /// Those of reading and writing; no file is left then.
    pub(super) async fn replace(
        &self,
        tx: &mut Transaction,
        snapshot: &Snapshot,
        (update, clock): (Option<&UpdateWriter>, Clock),
        progress: &Progress,
    ) -> Result<WrittenFiles> {
        let storage = tx.storage().clone();
        let mut written = WrittenFiles {
            rewritten: Written::default(),
            new: Written::default(),
            changes: Vec::new(),
            unclaimed: Unclaimed::new(storage.clone()),
        };
        let writing = self.write(tx, (snapshot, &storage), &mut written, (update, clock), progress);
        match Box::pin(writing).await {
            Ok(()) => Ok(written),
            Err(error) => {
                written.unclaimed.delete().await;
                Err(error)
            }
        }
    }

    async fn write(
        &self,
        tx: &mut Transaction,
        (snapshot, storage): (&Snapshot, &Storage),
        written: &mut WrittenFiles,
        (update, clock): (Option<&UpdateWriter>, Clock),
        progress: &Progress,
    ) -> Result<()> {
        let mut parts = self.copied.iter().map(rewrite_task).collect::<Result<Vec<_>>>()?;
        for touched in self.marked.iter().filter(|touched| !touched.updated.is_empty()) {
            parts.push(update_task(touched)?);
        }
        if !parts.is_empty() {
            let specs = (tx.rows_spec(snapshot)?, tx.rewrite_spec(FileKind::Data)?);
            let copying = Copying::new(snapshot, specs, tx.tracks_rows()?)?.reporting(progress);
            written.rewritten = copy(storage, &copying, parts, (update, clock)).await?;
            written.unclaimed.hold(&written.rewritten.0)?;
        }
        if !self.copied_new.is_empty() {
            let specs = (tx.rows_spec(snapshot)?, tx.rewrite_spec(FileKind::Data)?);
            let copying = Copying::new(snapshot, specs, None)?.reporting(progress);
            let parts = self.copied_new.iter().map(rewrite_task).collect::<Result<_>>()?;
            written.new = copy(storage, &copying, parts, (update, clock)).await?;
            written.unclaimed.hold(&written.new.0)?;
        }
        match tx.has_change_data_feed()? {
            true => self.record(tx, (snapshot, storage), written, update).await,
            false => Ok(()),
        }
    }

    /// Writes change files for what `add` and `remove` actions do not show: updated rows, and rows deleted from rewritten
    /// files.
    async fn record(
        &self,
        tx: &mut Transaction,
        (snapshot, storage): (&Snapshot, &Storage),
        written: &mut WrittenFiles,
        update: Option<&UpdateWriter>,
    ) -> Result<()> {
        let all = self.copied.iter().chain(&self.marked);
        let parts = all.filter(|touched| !touched.updated.is_empty()).map(update_task).collect::<Result<Vec<_>>>()?;
        if let Some(update) = update.filter(|_| !parts.is_empty()) {
            let read = tx.rows_spec(snapshot)?;
            // Also refuses a column of the name of the feed's.
            changes_spec(read.clone())?;
            let specs = (&read, tx.rewrite_spec(FileKind::Change)?);
            let changed = update.record(storage, specs, parts).await?;
            written.unclaimed.hold(&changed.0)?;
            written.changes.push(changed);
        }
        let mut tasks = Vec::new();
        for touched in &self.copied {
            let deleted = touched.deleted();
            if !deleted.is_empty() {
                let only_rows = Some(deleted.to_inline()?);
                tasks.push(Change::Delete.of(FileTask { only_rows, ..touched.task.clone() }));
            }
        }
        if !tasks.is_empty() {
            let specs = (changes_spec(tx.rows_spec(snapshot)?)?, tx.rewrite_spec(FileKind::Change)?);
            let deleted = write_changes(storage, specs, tasks).await?;
            written.unclaimed.hold(&deleted.0)?;
            written.changes.push(deleted);
        }
        Ok(())
    }

    /// Takes the changes and the written files over into the transaction.
    ///
    /// # Errors
    /// `Internal` if an action cannot be printed, which the types rule out.
    pub(super) fn apply(self, tx: &mut Transaction, written: WrittenFiles, now_ms: i64) -> Result<()> {
        let mut removes = self.removed_files.removes;
        let mut recorded_rows = Vec::new();
        for TouchedFile { add, physical_rows, .. } in self.copied {
            let Some(add) = add else { continue };
            // The change files of this step do not have the rows that an earlier step marked.
            let earlier = tx.marked_rows(&add.path);
            let all = earlier.is_empty();
            recorded_rows
                .push((add.path.clone(), (!all).then(|| DeletionVector::first(physical_rows).minus(&earlier))));
            removes.push(Action::Remove(add.removed(now_ms)))?;
        }
        tx.remove_files(removes)?;
        tx.discard(|file| self.own_removed.contains(&file.add.path));
        for TouchedFile { add, matching, updated, deleted_before, physical_rows, task } in self.marked {
            if !updated.is_empty() {
                let deleted_at_base = deleted_before.minus(&tx.marked_rows(&task.path));
                recorded_rows.push((task.path, Some(deleted_at_base.union(&updated))));
            }
            tx.mark(MarkedFile {
                add: add.ok_or_else(unknown)?,
                physical_rows,
                deleted_before,
                rows: matching,
                vector: None,
            });
        }
        let WrittenFiles { rewritten, new, changes, unclaimed } = written;
        unclaimed.claim();
        tx.add_rewritten(rewritten);
        tx.append_unsynced(new);
        for changed in changes {
            tx.add_change_files(changed, recorded_rows.drain(..));
        }
        Ok(())
    }
}

impl WrittenFiles {
    /// Deletes the files again.
    pub(super) async fn delete(self) {
        self.unclaimed.delete().await;
    }
}

/// Writes the rows of files again, in their order.
async fn copy(
    storage: &Storage,
    copying: &Copying,
    tasks: Vec<UpdateTask>,
    (update, clock): (Option<&UpdateWriter>, Clock),
) -> Result<Written> {
    match update {
        Some(update) => update.copy(storage, copying, tasks, clock).await,
        None => copying.copy(storage, tasks.into_iter().map(|task| task.task).collect(), clock).await,
    }
}

/// Reads the rows of a file that are not deleted, and says which of them are updated.
fn rewrite_task(touched: &TouchedFile) -> Result<UpdateTask> {
    let deleted = touched.deleted();
    let mut task = touched.task.clone();
    if !deleted.is_empty() {
        task.deletion_vector = Some(touched.deleted_before.union(&deleted).to_inline()?);
    }
    let updated_rows = (!touched.all_rows_match()).then(|| touched.updated.clone());
    Ok(UpdateTask { task, updated_rows })
}

/// Reads only the updated rows of a file.
fn update_task(touched: &TouchedFile) -> Result<UpdateTask> {
    let all = touched.updated.cardinality() >= touched.live_rows();
    let only_rows = if all { None } else { Some(touched.updated.to_inline()?) };
    Ok(UpdateTask { task: FileTask { only_rows, ..touched.task.clone() }, updated_rows: None })
}
