//! What becomes of files with rows that go, and writing what takes their place.
//!
//! Of a file of the base rows are marked in a deletion vector, or the file is written again; the transaction's own files
//! are always written again, for nobody knows them yet. Whatever is written is deleted again unless it is applied.

use std::collections::HashSet;

use deltic_protocol::action::Action;
use deltic_protocol::commit::MarkedFile;
use deltic_protocol::deletion_vector::DeletionVector;

use super::changed::{Part, Updating};
use super::find::{Covered, Fate, Found, Touched};
use super::rewrite::{Copying, Written};
use crate::error::{Error, Result};
use crate::scan::plan::read_spec;
use crate::scan::task::FileTask;
use crate::snapshot::Snapshot;
use crate::storage::{Storage, decode_path};
use crate::transaction::builder::change_files::{Change, changes_spec, write_changes};
use crate::transaction::builder::{Own, Transaction};
use crate::write::plan::FileKind;
use crate::write::unclaimed::Unclaimed;
use crate::write::writer::Clock;

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
pub(super) fn choose(tx: &Transaction, found: &mut Found, (fate, now_ms): (Fate, i64)) -> Result<Chosen> {
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
        match (own.get(path.as_str()).copied(), touched.is_whole()) {
            (Some(_), true) if fate == Fate::Gone => drop(chosen.own_gone.insert(path)),
            (Some(own), _) => {
                chosen.own_gone.insert(path);
                if own == Own::New { &mut chosen.copied_new } else { &mut chosen.copied }.push(touched);
            }
            (None, true) if fate == Fate::Gone => {
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
    changes: Written,
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

    /// Writes the rows that stay or are changed, and records those that go or are. `updating`: what rows become, if they do
    /// not go.
    ///
    /// # Errors
    /// Those of reading and writing; no file is left then.
    pub(super) async fn replace(
        &self,
        tx: &mut Transaction,
        snapshot: &Snapshot,
        (updating, clock): (Option<&Updating>, Clock),
    ) -> Result<Replaced> {
        let storage = tx.storage().clone();
        let mut replaced = Replaced {
            rewritten: Written::default(),
            new: Written::default(),
            changes: Written::default(),
            unclaimed: Unclaimed::new(storage.clone()),
        };
        let written = match updating {
            None => Box::pin(self.write(tx, (snapshot, &storage), &mut replaced, clock)).await,
            Some(updating) => {
                Box::pin(self.write_changed(tx, (snapshot, &storage), &mut replaced, (updating, clock))).await
            }
        };
        match written {
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
        clock: Clock,
    ) -> Result<()> {
        if !self.copied.is_empty() {
            let copying = Copying::new(snapshot, tx.rewrite_spec(FileKind::Data)?, tx.tracks_rows()?)?;
            replaced.rewritten = copying.copy(storage, left(&self.copied)?, clock).await?;
            hold(&mut replaced.unclaimed, &replaced.rewritten)?;
        }
        if !self.copied_new.is_empty() {
            let copying = Copying::new(snapshot, tx.rewrite_spec(FileKind::Data)?, None)?;
            replaced.new = copying.copy(storage, left(&self.copied_new)?, clock).await?;
            hold(&mut replaced.unclaimed, &replaced.new)?;
        }
        if !self.copied.is_empty() && tx.feeds_changes()? {
            let gone = |touched: &Touched| {
                let only_rows = Some(touched.rows.to_inline()?);
                Ok(Change::Delete.of(FileTask { only_rows, ..touched.task.clone() }))
            };
            let tasks = self.copied.iter().map(gone).collect::<Result<_>>()?;
            let specs = (changes_spec(snapshot)?, tx.rewrite_spec(FileKind::Change)?);
            replaced.changes = write_changes(storage, specs, tasks).await?;
            hold(&mut replaced.unclaimed, &replaced.changes)?;
        }
        Ok(())
    }

    async fn write_changed(
        &self,
        tx: &mut Transaction,
        (snapshot, storage): (&Snapshot, &Storage),
        replaced: &mut Replaced,
        (updating, clock): (&Updating, Clock),
    ) -> Result<()> {
        let mut parts = Vec::with_capacity(self.copied.len() + self.marked.len());
        for touched in &self.copied {
            parts.push(whole_part(touched)?);
        }
        for touched in &self.marked {
            parts.push(changed_part(touched)?);
        }
        if !parts.is_empty() {
            let copying = Copying::new(snapshot, tx.rewrite_spec(FileKind::Data)?, tx.tracks_rows()?)?;
            replaced.rewritten = updating.copy(storage, &copying, parts, clock).await?;
            hold(&mut replaced.unclaimed, &replaced.rewritten)?;
        }
        if !self.copied_new.is_empty() {
            let copying = Copying::new(snapshot, tx.rewrite_spec(FileKind::Data)?, None)?;
            let parts = self.copied_new.iter().map(whole_part).collect::<Result<_>>()?;
            replaced.new = updating.copy(storage, &copying, parts, clock).await?;
            hold(&mut replaced.unclaimed, &replaced.new)?;
        }
        if tx.feeds_changes()? && !(self.copied.is_empty() && self.marked.is_empty()) {
            // Also refuses a column of the name of the feed's.
            changes_spec(snapshot)?;
            let parts = self.copied.iter().chain(&self.marked).map(changed_part).collect::<Result<_>>()?;
            let specs = (&read_spec(snapshot, None)?, tx.rewrite_spec(FileKind::Change)?);
            replaced.changes = updating.record(storage, specs, parts).await?;
            hold(&mut replaced.unclaimed, &replaced.changes)?;
        }
        Ok(())
    }

    /// Makes all of it steps of the transaction.
    ///
    /// # Errors
    /// `Internal` if an action cannot be printed, which the types rule out.
    pub(super) fn apply(self, tx: &mut Transaction, replaced: Replaced, (fate, now_ms): (Fate, i64)) -> Result<()> {
        let mut removes = self.covered.removes;
        let mut spoken_of = Vec::new();
        for add in self.copied.into_iter().filter_map(|touched| touched.add) {
            spoken_of.push((add.path.clone(), None));
            removes.push(Action::Remove(add.removed(now_ms)))?;
        }
        tx.remove_files(removes)?;
        tx.discard(|file| self.own_gone.contains(&file.add.path));
        for Touched { add, rows, before, stored, task } in self.marked {
            if fate == Fate::Changed {
                spoken_of.push((task.path, Some(before.union(&rows))));
            }
            tx.mark(MarkedFile { add: add.ok_or_else(unknown)?, stored, before, rows, vector: None });
        }
        let Replaced { rewritten, new, changes, unclaimed } = replaced;
        unclaimed.claim();
        tx.add_rewritten(rewritten);
        tx.append_soon(new);
        if !changes.0.is_empty() {
            tx.record(changes, spoken_of);
        }
        Ok(())
    }
}

/// All rows of a file, some of them to be changed.
fn whole_part(touched: &Touched) -> Result<Part> {
    let rows = (!touched.is_whole()).then(|| touched.rows.clone());
    Ok(Part { task: touched.task.clone(), rows })
}

/// The rows of a file that are changed, and no others.
fn changed_part(touched: &Touched) -> Result<Part> {
    let only_rows = if touched.is_whole() { None } else { Some(touched.rows.to_inline()?) };
    Ok(Part { task: FileTask { only_rows, ..touched.task.clone() }, rows: None })
}

/// What reads the rows that stay.
fn left(touched: &[Touched]) -> Result<Vec<FileTask>> {
    let left = |touched: &Touched| {
        let gone: DeletionVector = touched.before.union(&touched.rows);
        Ok(FileTask { deletion_vector: Some(gone.to_inline()?), ..touched.task.clone() })
    };
    touched.iter().map(left).collect()
}

/// Has files deleted unless they are claimed.
fn hold(unclaimed: &mut Unclaimed, (files, _): &Written) -> Result<()> {
    files.iter().try_for_each(|file| {
        unclaimed.push(decode_path(&file.add.path)?);
        Ok(())
    })
}
