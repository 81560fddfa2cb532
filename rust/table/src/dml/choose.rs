//! What becomes of files with rows that go, and writing what takes their place.
//!
//! Of a file of the base rows are marked in a deletion vector, or the file is written again; the transaction's own files
//! are always written again, for nobody knows them yet. Whatever is written is deleted again unless it is applied.

use std::collections::HashSet;

use deltic_protocol::action::Action;
use deltic_protocol::commit::MarkedFile;
use deltic_protocol::deletion_vector::DeletionVector;

use super::changed::{Part, Updating};
use super::find::{Covered, Found, Touched};
use crate::error::{Error, Result};
use crate::progress::{Progress, Unit};
use crate::rewrite::{Copying, Written};
use crate::scan::task::FileTask;
use crate::snapshot::Snapshot;
use crate::transaction::builder::change_files::{Change, changes_spec, write_changes};
use crate::transaction::builder::{Own, Transaction};
use crate::write::plan::FileKind;
use crate::write::unclaimed::Unclaimed;
use crate::write::writer::Clock;
use deltic_store::Storage;

/// Files with rows that go, by what becomes of them.
#[derive(Debug)]
pub(super) struct Chosen {
    /// Files of the base that go as a whole.
    pub(super) covered: Covered,
    /// Files of the transaction's own that go, as a whole or for others that take their place, by path.
    own_gone: HashSet<String>,
    /// Files of the base of which rows are marked.
    pub(super) marked: Vec<Touched>,
    /// Files with rows of the base that are written again.
    pub(super) copied: Vec<Touched>,
    /// Files with new rows that are written again.
    copied_new: Vec<Touched>,
    /// Rows that go, where they are known to be found.
    pub(super) rows: u64,
}

/// Sorts files with rows that are found.
///
/// # Errors
/// `Unsupported` for rows that the transaction has changed before, on a table that records changes.
pub(super) fn choose(tx: &Transaction, found: &mut Found, now_ms: i64) -> Result<Chosen> {
    let (marks, feeds, own) = (tx.uses_vectors()?, tx.feeds_changes()?, tx.own());
    let mut chosen = Chosen {
        covered: std::mem::take(&mut found.covered),
        own_gone: std::mem::take(&mut found.own_covered),
        marked: Vec::new(),
        copied: Vec::new(),
        copied_new: Vec::new(),
        rows: found.own_covered_rows,
    };
    for mut touched in std::mem::take(&mut found.touched) {
        let (path, rows) = (touched.task.path.clone(), touched.rows.cardinality());
        let goes = touched.is_whole() && touched.changed.is_empty();
        match (own.get(path.as_str()).copied(), touched.is_whole()) {
            (Some(_), _) if goes => drop(chosen.own_gone.insert(path)),
            (Some(own), _) => {
                chosen.own_gone.insert(path);
                if own == Own::New { &mut chosen.copied_new } else { &mut chosen.copied }.push(touched);
            }
            (None, _) if goes => {
                found.read.insert(&path);
                let add = touched.add.take().ok_or_else(unknown)?;
                chosen.covered.push(add, Some(rows), now_ms)?;
                continue;
            }
            (None, false) if marks => chosen.marked.push(touched),
            (None, _) => {
                found.read.insert(&path);
                chosen.copied.push(touched);
            }
        }
        chosen.rows += rows;
    }
    if let Some(path) = chosen.own_gone.iter().find(|path| feeds && own.get(path.as_str()) == Some(&Own::Rewritten)) {
        let message = "this transaction has changed rows of the file already, and the table records changes \
                       (`delta.enableChangeDataFeed`): a row is changed once in a transaction; commit first";
        return Err(Error::unsupported("changeDataFeed", message).in_file(path));
    }
    Ok(chosen)
}

fn unknown() -> Error {
    Error::internal("a file that was planned is not in the log")
}

/// What was written in the place of files.
pub(super) struct Replaced {
    rewritten: Written,
    new: Written,
    changes: Vec<Written>,
    unclaimed: Unclaimed,
}

impl Chosen {
    /// Rows that are copied as they are.
    pub(super) fn copied_rows(&self) -> u64 {
        let copied = |touched: &Touched| touched.counted().saturating_sub(touched.rows.cardinality());
        self.copied.iter().chain(&self.copied_new).map(copied).sum()
    }

    /// Bytes and deletion vectors of the files that go or are replaced.
    pub(super) fn gone(&self) -> (u64, u64) {
        let (mut bytes, mut vectors) = (self.covered.bytes, self.covered.vectors);
        for add in self.copied.iter().filter_map(|touched| touched.add.as_ref()) {
            bytes = bytes.saturating_add(u64::try_from(add.size).unwrap_or_default());
            vectors += u64::from(add.deletion_vector.is_some());
        }
        (bytes, vectors)
    }

    /// Begins to count the rows that are deleted, changed, copied beside those, or inserted, so many of them. Those that
    /// are deleted count at once.
    pub(super) fn progress(&self, operation: &str, inserted: u64) -> Progress {
        let changed = |touched: &Touched| touched.changed.cardinality();
        let changed: u64 = [&self.marked, &self.copied, &self.copied_new].into_iter().flatten().map(changed).sum();
        let known = self.rows.saturating_add(self.covered.rows.unwrap_or_default());
        let deleted = known.saturating_sub(changed);
        let all = known.saturating_add(self.copied_rows()).saturating_add(inserted);
        let progress = Progress::begin(operation, Unit::Rows, self.covered.rows.map(|_| all));
        progress.advance(deleted);
        progress
    }

    /// Writes the rows that stay or are changed, and records those that go or are. `updating`: what rows become, if they do
    /// not go. `progress`: of [`Chosen::progress`].
    ///
    /// # Errors
    /// Those of reading and writing; no file is left then.
    pub(super) async fn replace(
        &self,
        tx: &mut Transaction,
        snapshot: &Snapshot,
        (updating, clock): (Option<&Updating>, Clock),
        progress: &Progress,
    ) -> Result<Replaced> {
        let storage = tx.storage().clone();
        let mut replaced = Replaced {
            rewritten: Written::default(),
            new: Written::default(),
            changes: Vec::new(),
            unclaimed: Unclaimed::new(storage.clone()),
        };
        let writing = self.write(tx, (snapshot, &storage), &mut replaced, (updating, clock), progress);
        match Box::pin(writing).await {
            Ok(()) => Ok(replaced),
            Err(error) => {
                replaced.unclaimed.delete().await;
                Err(error)
            }
        }
    }

    async fn write(
        &self,
        tx: &mut Transaction,
        (snapshot, storage): (&Snapshot, &Storage),
        replaced: &mut Replaced,
        (updating, clock): (Option<&Updating>, Clock),
        progress: &Progress,
    ) -> Result<()> {
        let mut parts = self.copied.iter().map(whole_part).collect::<Result<Vec<_>>>()?;
        for touched in self.marked.iter().filter(|touched| !touched.changed.is_empty()) {
            parts.push(changed_part(touched)?);
        }
        if !parts.is_empty() {
            let specs = (tx.rows_spec(snapshot)?, tx.rewrite_spec(FileKind::Data)?);
            let copying = Copying::new(snapshot, specs, tx.tracks_rows()?)?.reporting(progress);
            replaced.rewritten = copy(storage, &copying, parts, (updating, clock)).await?;
            replaced.unclaimed.hold(&replaced.rewritten.0)?;
        }
        if !self.copied_new.is_empty() {
            let specs = (tx.rows_spec(snapshot)?, tx.rewrite_spec(FileKind::Data)?);
            let copying = Copying::new(snapshot, specs, None)?.reporting(progress);
            let parts = self.copied_new.iter().map(whole_part).collect::<Result<_>>()?;
            replaced.new = copy(storage, &copying, parts, (updating, clock)).await?;
            replaced.unclaimed.hold(&replaced.new.0)?;
        }
        match tx.feeds_changes()? {
            true => self.record(tx, (snapshot, storage), replaced, updating).await,
            false => Ok(()),
        }
    }

    /// Records what the commit's other actions would not say: rows that are changed, and rows that go with files that are
    /// written again.
    async fn record(
        &self,
        tx: &mut Transaction,
        (snapshot, storage): (&Snapshot, &Storage),
        replaced: &mut Replaced,
        updating: Option<&Updating>,
    ) -> Result<()> {
        let all = self.copied.iter().chain(&self.marked);
        let parts = all.filter(|touched| !touched.changed.is_empty()).map(changed_part).collect::<Result<Vec<_>>>()?;
        if let Some(updating) = updating.filter(|_| !parts.is_empty()) {
            let read = tx.rows_spec(snapshot)?;
            // Also refuses a column of the name of the feed's.
            changes_spec(read.clone())?;
            let specs = (&read, tx.rewrite_spec(FileKind::Change)?);
            let changed = updating.record(storage, specs, parts).await?;
            replaced.unclaimed.hold(&changed.0)?;
            replaced.changes.push(changed);
        }
        let mut tasks = Vec::new();
        for touched in &self.copied {
            let gone = touched.gone();
            if !gone.is_empty() {
                let only_rows = Some(gone.to_inline()?);
                tasks.push(Change::Delete.of(FileTask { only_rows, ..touched.task.clone() }));
            }
        }
        if !tasks.is_empty() {
            let specs = (changes_spec(tx.rows_spec(snapshot)?)?, tx.rewrite_spec(FileKind::Change)?);
            let gone = write_changes(storage, specs, tasks).await?;
            replaced.unclaimed.hold(&gone.0)?;
            replaced.changes.push(gone);
        }
        Ok(())
    }

    /// Makes all of it steps of the transaction.
    ///
    /// # Errors
    /// `Internal` if an action cannot be printed, which the types rule out.
    pub(super) fn apply(self, tx: &mut Transaction, replaced: Replaced, now_ms: i64) -> Result<()> {
        let mut removes = self.covered.removes;
        let mut spoken_of = Vec::new();
        for Touched { add, stored, .. } in self.copied {
            let Some(add) = add else { continue };
            // Rows that an earlier step marked are in none of the change files of this one.
            let earlier = tx.marked_rows(&add.path);
            let all = earlier.is_empty();
            spoken_of.push((add.path.clone(), (!all).then(|| DeletionVector::first(stored).minus(&earlier))));
            removes.push(Action::Remove(add.removed(now_ms)))?;
        }
        tx.remove_files(removes)?;
        tx.discard(|file| self.own_gone.contains(&file.add.path));
        for Touched { add, rows, changed, before, stored, task } in self.marked {
            if !changed.is_empty() {
                let gone_at_base = before.minus(&tx.marked_rows(&task.path));
                spoken_of.push((task.path, Some(gone_at_base.union(&changed))));
            }
            tx.mark(MarkedFile { add: add.ok_or_else(unknown)?, stored, before, rows, vector: None });
        }
        let Replaced { rewritten, new, changes, unclaimed } = replaced;
        unclaimed.claim();
        tx.add_rewritten(rewritten);
        tx.append_soon(new);
        for changed in changes {
            tx.record(changed, spoken_of.drain(..));
        }
        Ok(())
    }
}

impl Replaced {
    /// Deletes what was written.
    pub(super) async fn delete(self) {
        self.unclaimed.delete().await;
    }
}

/// Writes parts of files, in their order.
async fn copy(
    storage: &Storage,
    copying: &Copying,
    parts: Vec<Part>,
    (updating, clock): (Option<&Updating>, Clock),
) -> Result<Written> {
    match updating {
        Some(updating) => updating.copy(storage, copying, parts, clock).await,
        None => copying.copy(storage, parts.into_iter().map(|part| part.task).collect(), clock).await,
    }
}

/// The rows of a file that do not go, some of them to be changed.
fn whole_part(touched: &Touched) -> Result<Part> {
    let gone = touched.gone();
    let mut task = touched.task.clone();
    if !gone.is_empty() {
        task.deletion_vector = Some(touched.before.union(&gone).to_inline()?);
    }
    let rows = (!touched.is_whole()).then(|| touched.changed.clone());
    Ok(Part { task, rows })
}

/// The rows of a file that are changed, and no others.
fn changed_part(touched: &Touched) -> Result<Part> {
    let all = touched.changed.cardinality() >= touched.counted();
    let only_rows = if all { None } else { Some(touched.changed.to_inline()?) };
    Ok(Part { task: FileTask { only_rows, ..touched.task.clone() }, rows: None })
}
