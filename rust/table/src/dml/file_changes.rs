//! Decides how each file with matching rows is changed: it is removed, gets a deletion vector or is rewritten. Writes the
//! new files.
//!
//! Files that the transaction itself has written are always rewritten: no commit names them yet. New files are deleted
//! unless the transaction takes them over ([`ChangedFiles::apply`]).

use std::collections::HashSet;

use deltic_protocol::action::Action;
use deltic_protocol::commit::MarkedFile;
use deltic_protocol::deletion_vector::DeletionVector;

use super::copied_columns::copy_columns;
use super::find::{FindResult, RemovedFiles, TouchedFile};
use super::specs::WriteSpecs;
use super::update_writer::{UpdateTask, UpdateWriter};
use crate::error::{Error, Result};
use crate::progress::{Progress, Unit};
use crate::rewrite::{Copying, Written};
use crate::scan::task::{FileTask, ReadSpec};
use crate::snapshot::Snapshot;
use crate::transaction::builder::change_files::{Change as ChangeType, changes_spec, write_changes};
use crate::transaction::builder::{FileOrigin, Transaction};
use crate::transaction::row_counts::StepCounts;
use crate::write::plan::{DataFile, WriteSpec};
use crate::write::unclaimed::Unclaimed;
use crate::write::writer::Clock;
use deltic_store::{Storage, Syncing};

/// The files with deleted or updated rows, divided by how they are changed.
#[derive(Debug, Default)]
pub(super) struct ChangedFiles {
    /// Files of the base that are removed as a whole.
    pub(super) removed_files: RemovedFiles,
    /// Paths of the transaction's own files that are removed or rewritten.
    own_removed: HashSet<String>,
    /// Files of the base whose rows are marked in a deletion vector.
    pub(super) marked: Vec<TouchedFile>,
    /// Files of the base, and own ones with rows of the base, that are rewritten.
    pub(super) rewritten: Vec<TouchedFile>,
    /// Own files with new rows that are rewritten.
    rewritten_new: Vec<TouchedFile>,
    /// Rows that are deleted or updated, without those of `removed_files`.
    pub(super) matching_rows: u64,
}

/// How a file with matching rows is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TouchedFileAction {
    /// No row is left: it is removed.
    Remove,
    /// Its rows are marked in a deletion vector.
    Mark,
    /// It is rewritten, without the deleted rows and with the updated ones.
    Rewrite,
}

impl TouchedFileAction {
    /// How a file is changed; `marks`: whether deletion vectors are allowed.
    pub(super) fn of(touched: &TouchedFile, marks: bool) -> Self {
        match touched.all_rows_match() {
            true if touched.updated.is_empty() => Self::Remove,
            false if marks => Self::Mark,
            _ => Self::Rewrite,
        }
    }
}

/// Chooses for each file how it is changed.
///
/// # Errors
/// `Unsupported` for rows that the transaction has changed before, on a table with a change data feed.
pub(super) fn choose(tx: &Transaction, found: &mut FindResult, now_ms: i64) -> Result<ChangedFiles> {
    let (marks, feeds, own) = (tx.writes_deletion_vectors()?, tx.has_change_data_feed()?, tx.local_files());
    let mut chosen = ChangedFiles {
        removed_files: std::mem::take(&mut found.removed_files),
        own_removed: std::mem::take(&mut found.own_removed),
        marked: Vec::new(),
        rewritten: Vec::new(),
        rewritten_new: Vec::new(),
        matching_rows: found.own_removed_rows,
    };
    for mut touched in std::mem::take(&mut found.touched_files) {
        let (path, rows) = (touched.task.path.clone(), touched.matching.cardinality());
        match (own.get(path.as_str()).copied(), TouchedFileAction::of(&touched, marks)) {
            (Some(_), TouchedFileAction::Remove) => drop(chosen.own_removed.insert(path)),
            (Some(own), _) => {
                chosen.own_removed.insert(path);
                if own == FileOrigin::New { &mut chosen.rewritten_new } else { &mut chosen.rewritten }.push(touched);
            }
            (None, TouchedFileAction::Remove) => {
                found.read.insert(&path);
                let add = touched.add.take().ok_or_else(unknown)?;
                chosen.removed_files.push(add, Some(rows), now_ms)?;
                continue;
            }
            (None, TouchedFileAction::Mark) => chosen.marked.push(touched),
            (None, TouchedFileAction::Rewrite) => {
                found.read.insert(&path);
                chosen.rewritten.push(touched);
            }
        }
        chosen.matching_rows += rows;
    }
    if let Some(path) =
        chosen.own_removed.iter().find(|path| feeds && own.get(path.as_str()) == Some(&FileOrigin::Rewritten))
    {
        let message = "this transaction has changed rows of the file already, and the table has a change data feed \
                       (`delta.enableChangeDataFeed`), for which a transaction can change a row only once; commit \
                       first";
        return Err(Error::unsupported("changeDataFeed", message).in_file(path));
    }
    Ok(chosen)
}

fn unknown() -> Error {
    Error::internal("a file that was planned is not in the log")
}

/// When a step began, and when it had found its rows, in milliseconds since the epoch; the clock says when it ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepTimes {
    pub(super) begun_ms: i64,
    pub(super) found_ms: i64,
    pub(super) clock: Clock,
}

/// The files that an executor has written, which are durable.
pub(super) struct DurableFiles {
    /// Files with rows of the base.
    pub(super) rewritten: Vec<DataFile>,
    /// Change files.
    pub(super) changes: Vec<DataFile>,
    /// Deletes the files when dropped, unless they are claimed.
    pub(super) unclaimed: Unclaimed,
}

/// The files that were written in place of others.
pub(super) struct WrittenFiles {
    rewritten: Written,
    new: Written,
    changes: Vec<Written>,
    unclaimed: Unclaimed,
}

impl ChangedFiles {
    /// The number of rows that a DELETE deletes; none if a file that was not read does not say how many it has.
    pub(super) fn deleted_rows(&self) -> Option<u64> {
        self.removed_files.live_rows.map(|rows| rows.saturating_add(self.matching_rows))
    }

    /// Rows of the files that are written in place of files of the base.
    pub(super) fn rewritten_rows(&self) -> u64 {
        let kept = |touched: &TouchedFile| touched.live_rows().saturating_sub(touched.deleted().cardinality());
        let kept = self.rewritten.iter().map(kept);
        kept.chain(self.marked.iter().map(|touched| touched.updated.cardinality())).fold(0, u64::saturating_add)
    }

    /// Rows of the change files that are written for files of the base.
    pub(super) fn recorded_rows(&self) -> u64 {
        let all = self.rewritten.iter().chain(&self.marked);
        let updated = all.map(|touched| touched.updated.cardinality().saturating_mul(2));
        updated.chain(self.rewritten.iter().map(|touched| touched.deleted().cardinality())).fold(0, u64::saturating_add)
    }

    /// Rows of rewritten files that are copied unchanged.
    pub(super) fn copied_rows(&self) -> u64 {
        let copied = |touched: &TouchedFile| touched.live_rows().saturating_sub(touched.matching.cardinality());
        self.rewritten.iter().chain(&self.rewritten_new).map(copied).sum()
    }

    /// The bytes of the files that are removed or rewritten, and how many of them have deletion vectors.
    pub(super) fn removed_totals(&self) -> (u64, u64) {
        let (mut bytes, mut vectors) = (self.removed_files.bytes, self.removed_files.vectors);
        for add in self.rewritten.iter().filter_map(|touched| touched.add.as_ref()) {
            bytes = bytes.saturating_add(u64::try_from(add.size).unwrap_or_default());
            vectors += u64::from(add.deletion_vector.is_some());
        }
        (bytes, vectors)
    }

    /// Begins to report progress over the rows that are deleted, updated, copied or inserted (`inserted` of them). Deleted
    /// rows count as done at once.
    pub(super) fn progress(&self, operation: &str, inserted: u64) -> Progress {
        let updated = |touched: &TouchedFile| touched.updated.cardinality();
        let updated: u64 =
            [&self.marked, &self.rewritten, &self.rewritten_new].into_iter().flatten().map(updated).sum();
        let known = self.matching_rows.saturating_add(self.removed_files.live_rows.unwrap_or_default());
        let deleted = known.saturating_sub(updated);
        let all = known.saturating_add(self.copied_rows()).saturating_add(inserted);
        let progress = Progress::begin(operation, Unit::Rows, self.removed_files.live_rows.map(|_| all));
        progress.advance(deleted);
        progress
    }

    /// Writes the rewritten files and, for a table with a change data feed, the change files. `specs`: of
    /// [`ChangedFiles::specs`]. `update`: what sets the updated rows, if any. `progress`: of [`ChangedFiles::progress`].
    ///
    /// # Errors
    /// Those of reading and writing; no file is left then.
    pub(super) async fn replace(
        &self,
        (storage, specs): (&Storage, Option<&WriteSpecs>),
        (update, clock): (Option<&UpdateWriter>, Clock),
        progress: &Progress,
    ) -> Result<WrittenFiles> {
        let mut written = WrittenFiles::none(storage);
        let Some(specs) = specs else { return Ok(written) };
        let writing = self.write((storage, specs), &mut written, (update, clock), progress);
        match Box::pin(writing).await {
            Ok(()) => Ok(written),
            Err(error) => {
                written.unclaimed.delete().await;
                Err(error)
            }
        }
    }

    /// How rows are written; none if no row has to be written.
    ///
    /// # Errors
    /// As [`WriteSpecs::of`].
    pub(super) fn specs(&self, tx: &mut Transaction, snapshot: &Snapshot) -> Result<Option<WriteSpecs>> {
        let has_updates = self.marked.iter().any(|touched| !touched.updated.is_empty());
        let writes = has_updates || !self.rewritten.is_empty() || !self.rewritten_new.is_empty();
        writes.then(|| WriteSpecs::of(tx, snapshot)).transpose()
    }

    async fn write(
        &self,
        (storage, specs): (&Storage, &WriteSpecs),
        written: &mut WrittenFiles,
        (update, clock): (Option<&UpdateWriter>, Clock),
        progress: &Progress,
    ) -> Result<()> {
        let mut parts = self.rewritten.iter().map(rewrite_task).collect::<Result<Vec<_>>>()?;
        for touched in self.marked.iter().filter(|touched| !touched.updated.is_empty()) {
            parts.push(update_task(touched)?);
        }
        if !parts.is_empty() {
            let copying = specs.copying(storage)?.reporting(progress);
            written.rewritten = copy(storage, &copying, parts, (update, clock)).await?;
            written.unclaimed.hold(&written.rewritten.0)?;
            self.check_rewritten(&written.rewritten.0)?;
        }
        if !self.rewritten_new.is_empty() {
            let copying = specs.copying_new(storage)?.reporting(progress);
            let parts = self.rewritten_new.iter().map(rewrite_task).collect::<Result<_>>()?;
            written.new = copy(storage, &copying, parts, (update, clock)).await?;
            written.unclaimed.hold(&written.new.0)?;
        }
        match &specs.changes {
            Some(changes) => self.record(storage, (&specs.rows, changes), written, update).await,
            None => Ok(()),
        }
    }

    /// Fails if the new files do not have as many rows as the log says.
    fn check_rewritten(&self, files: &[DataFile]) -> Result<()> {
        let (expected, written) =
            (self.rewritten_rows(), files.iter().map(|file| file.rows).fold(0, u64::saturating_add));
        if expected == written {
            return Ok(());
        }
        let error = Error::corrupt(format!(
            "by the statistics in the log {expected} rows have to be rewritten, but {written} rows were: the log gives a wrong \
             number of rows for a file; rewrite that file, or restore it"
        ));
        Err(match self.rewritten.as_slice() {
            [only] => error.in_file(&only.task.path),
            _ => error,
        })
    }

    /// Writes change files for what `add` and `remove` actions do not show: updated rows, and rows deleted from rewritten
    /// files.
    async fn record(
        &self,
        storage: &Storage,
        (read, write): (&ReadSpec, &WriteSpec),
        written: &mut WrittenFiles,
        update: Option<&UpdateWriter>,
    ) -> Result<()> {
        let all = self.rewritten.iter().chain(&self.marked);
        let parts = all.filter(|touched| !touched.updated.is_empty()).map(update_task).collect::<Result<Vec<_>>>()?;
        if let Some(update) = update.filter(|_| !parts.is_empty()) {
            // Also refuses a column with the name of one of the feed's columns.
            changes_spec(read.clone())?;
            let changed = update.record(storage, (read, write.clone()), parts).await?;
            written.unclaimed.hold(&changed.0)?;
            written.changes.push(changed);
        }
        let mut tasks = Vec::new();
        for touched in &self.rewritten {
            let deleted = touched.deleted();
            if !deleted.is_empty() {
                let only_rows = Some(deleted.to_inline()?);
                tasks.push(ChangeType::Delete.of(FileTask { only_rows, ..touched.task.clone() }));
            }
        }
        if !tasks.is_empty() {
            let deleted = write_changes(storage, changes_spec(read.clone())?, write.clone(), tasks).await?;
            written.unclaimed.hold(&deleted.0)?;
            written.changes.push(deleted);
        }
        Ok(())
    }

    /// Ends a step: adds its read set, its new files and its metrics to the transaction.
    ///
    /// # Errors
    /// `Internal` if an action cannot be serialised (cannot happen).
    pub(super) fn end_step(
        self,
        tx: &mut Transaction,
        (found, written): (FindResult, WrittenFiles),
        times: StepTimes,
    ) -> Result<()> {
        let (copied_rows, removed) = (self.copied_rows(), self.removed_totals());
        tx.has_read(found.into_read_set()?);
        self.apply(tx, written, times.begun_ms)?;
        let times_ms = [times.begun_ms, times.found_ms, (times.clock)()];
        let step = StepCounts { times_ms, copied_rows, removed };
        tx.count_rows(|counts| counts.add(step));
        Ok(())
    }

    /// Adds the changes and the written files to the transaction.
    fn apply(self, tx: &mut Transaction, written: WrittenFiles, now_ms: i64) -> Result<()> {
        let mut removes = self.removed_files.removes;
        let mut recorded_rows = Vec::new();
        for TouchedFile { add, physical_rows, .. } in self.rewritten {
            let Some(add) = add else { continue };
            // The change files of this step lack the rows that an earlier step marked.
            let earlier = tx.marked_rows(&add.path);
            let all = earlier.is_empty();
            recorded_rows
                .push((add.path.clone(), (!all).then(|| DeletionVector::first(physical_rows).minus(&earlier))));
            removes.push(Action::Remove(add.removed(now_ms)))?;
        }
        tx.remove_files(removes)?;
        tx.discard(|file| self.own_removed.contains(&file.add.path));
        for TouchedFile { add, matching, updated, rows_deleted_before_commit, physical_rows, task } in self.marked {
            if !updated.is_empty() {
                let deleted_at_base = rows_deleted_before_commit.minus(&tx.marked_rows(&task.path));
                recorded_rows.push((task.path, Some(deleted_at_base.union(&updated))));
            }
            tx.mark(MarkedFile {
                add: add.ok_or_else(unknown)?,
                physical_rows,
                rows_deleted_before_commit,
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
    fn none(storage: &Storage) -> Self {
        Self {
            rewritten: Written::default(),
            new: Written::default(),
            changes: Vec::new(),
            unclaimed: Unclaimed::new(storage.clone()),
        }
    }

    /// Files that other processes wrote: those with rows of the base, and change files. They are durable.
    ///
    /// # Errors
    /// `Corrupt` for an invalid path.
    pub(super) fn of_others(storage: &Storage, rewritten: Vec<DataFile>, changes: Vec<DataFile>) -> Result<Self> {
        let mut written = Self::none(storage);
        written.unclaimed.hold(&rewritten)?;
        written.unclaimed.hold(&changes)?;
        written.rewritten.0 = rewritten;
        if !changes.is_empty() {
            written.changes.push((changes, Syncing::default()));
        }
        Ok(written)
    }

    /// Waits until the files are durable, and returns them for a commit in another process.
    ///
    /// # Errors
    /// `Storage` if they may not be durable; no file is left then.
    pub(super) async fn durable(self) -> Result<DurableFiles> {
        let Self { rewritten: (rewritten, syncing), changes: written, unclaimed, .. } = self;
        syncing.wait().await?;
        let mut changes = Vec::new();
        for (files, syncing) in written {
            syncing.wait().await?;
            changes.extend(files);
        }
        Ok(DurableFiles { rewritten, changes, unclaimed })
    }

    /// Deletes the files.
    pub(super) async fn delete(self) {
        self.unclaimed.delete().await;
    }
}

/// Rewrites files without the deleted rows, in the order of their rows. `update`: what sets the updated rows, if any.
async fn copy(
    storage: &Storage,
    copying: &Copying,
    tasks: Vec<UpdateTask>,
    (update, clock): (Option<&UpdateWriter>, Clock),
) -> Result<Written> {
    match update {
        Some(update) => {
            let (copied, left) = Box::pin(copy_columns(update, (storage, copying), tasks, clock)).await?;
            if left.is_empty() {
                return Ok(copied);
            }
            let mut unclaimed = Unclaimed::new(storage.clone());
            unclaimed.hold(&copied.0)?;
            match update.copy(storage, copying, left, clock).await {
                Ok((mut files, mut syncing)) => {
                    unclaimed.claim();
                    files.extend(copied.0);
                    syncing.extend(copied.1);
                    Ok((files, syncing))
                }
                Err(error) => {
                    unclaimed.delete().await;
                    Err(error)
                }
            }
        }
        None => copying.copy(storage, tasks.into_iter().map(|task| task.task).collect(), clock).await,
    }
}

/// A task that reads the rows of a file that are not deleted, and knows which of them are updated.
fn rewrite_task(touched: &TouchedFile) -> Result<UpdateTask> {
    let deleted = touched.deleted();
    let mut task = touched.task.clone();
    if !deleted.is_empty() {
        task.deletion_vector = Some(touched.rows_deleted_before_commit.union(&deleted).to_inline()?);
    }
    let updated_rows = (!touched.all_rows_match()).then(|| touched.updated.clone());
    let stats = touched.add.as_ref().and_then(|add| add.stats.clone());
    Ok(UpdateTask { task, updated_rows, stats })
}

/// A task that reads only the updated rows of a file.
fn update_task(touched: &TouchedFile) -> Result<UpdateTask> {
    let all = touched.updated.cardinality() >= touched.live_rows();
    let only_rows = if all { None } else { Some(touched.updated.to_inline()?) };
    Ok(UpdateTask { task: FileTask { only_rows, ..touched.task.clone() }, updated_rows: None, stats: None })
}
