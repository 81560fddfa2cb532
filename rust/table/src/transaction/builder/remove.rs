//! Steps that remove files from the table: by paths, or by a filter.
//!
//! PROTOCOL.md: "Add File and Remove File", "Append-only Tables".

use std::collections::HashSet;

use deltic_protocol::action::Action;
use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::commit::{Actions, PredicatesRead, ReadSet};
use deltic_protocol::predicate::parse;
use deltic_protocol::property::Properties;
use deltic_protocol::replay::canonical_path;
use deltic_protocol::replay::paths::PathSet;
use futures::TryStreamExt;

use super::Transaction;
use super::whole_files::{batch_of, remove_columns, require_fully_matching};
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::write::plan::DataFile;

impl Transaction {
    /// Removes files by their paths in the log.
    ///
    /// # Errors
    /// `Invalid` if one of them is not in the table, including the changes of this transaction.
    pub async fn remove_paths(&mut self, paths: &[String], now_ms: i64) -> Result<u64> {
        if self.already_committed_version.is_some() {
            return Ok(0);
        }
        self.refuse_after_change_files()?;
        let snapshot = self.removable().await?;
        let mut wanted: HashSet<String> = paths.iter().map(|path| canonical_path(path).into_owned()).collect();
        let added: HashSet<String> =
            self.files.added.local().map(|file| canonical_path(&file.add.path).into_owned()).collect();
        let added: HashSet<String> = added.into_iter().filter(|path| wanted.remove(path)).collect();
        let (mut removes, mut files) = (Actions::new(), PathSet::default());
        if !wanted.is_empty() {
            let mut live = std::pin::pin!(snapshot.live_files(&remove_columns(Vec::new())).await?);
            while let Some(adds) = live.try_next().await? {
                for (row, path) in adds.path().iter().enumerate() {
                    let path = path.unwrap_or_default();
                    if !self.is_removed(path) && wanted.remove(canonical_path(path).as_ref()) {
                        removes.push(Action::Remove(adds.add(row)?.removed(now_ms)))?;
                        files.insert(path);
                    }
                }
            }
        }
        if let Some(path) = wanted.into_iter().min() {
            return Err(self.in_table(Error::invalid("the file is not in the table").in_file(path)));
        }
        let removed = removes.num_removed() as u64;
        self.read.extend(ReadSet::Files(files));
        self.remove_files(removes)?;
        self.discard(|file| added.contains(canonical_path(&file.add.path).as_ref()));
        Ok(removed + added.len() as u64)
    }

    /// Removes the rows that make `filter` TRUE, if they are all rows of their files.
    ///
    /// # Errors
    /// `Invalid`, naming the file, if a file may have other rows too.
    pub async fn remove_where(&mut self, filter: &str, now_ms: i64) -> Result<u64> {
        if self.already_committed_version.is_some() {
            return Ok(0);
        }
        self.refuse_after_change_files()?;
        let snapshot = self.removable().await?;
        let shape = snapshot.shape().clone();
        let predicate = parse(filter)?.bind(&shape.schema).map_err(|e| self.in_table(e))?;
        let mut leaves = Vec::new();
        for column in predicate.columns() {
            leaves.extend(shape.leaf(&column.path)?.map(|leaf| leaf.path));
        }
        let (mut removes, mut files) = (Actions::new(), PathSet::default());
        let mut live = std::pin::pin!(snapshot.live_files(&remove_columns(leaves)).await?);
        while let Some(adds) = live.try_next().await? {
            let is_gone = |path: &str| self.is_removed(path);
            for row in require_fully_matching(&adds, &shape, &predicate, is_gone).map_err(|e| self.in_table(e))? {
                let path = adds.path().value(row);
                if !self.is_removed(path) {
                    removes.push(Action::Remove(adds.add(row)?.removed(now_ms)))?;
                }
                files.insert(path);
            }
        }
        let mut dropped = HashSet::new();
        if let Some(added) = self.local_adds()? {
            let rows = require_fully_matching(&added, &shape, &predicate, |_| false).map_err(|e| self.in_table(e))?;
            dropped.extend(rows.into_iter().map(|row| added.path().value(row).to_owned()));
        }
        self.discard(|file| dropped.contains(&file.add.path));
        let removed = (removes.num_removed() + dropped.len()) as u64;
        let read = PredicatesRead::new(shape, predicate, files);
        self.read.extend(ReadSet::Predicates(read));
        self.remove_files(removes)?;
        Ok(removed)
    }

    /// Removes files that this transaction has added.
    pub(crate) fn discard(&mut self, should_remove: impl Fn(&DataFile) -> bool) {
        self.files.discarded.extend(self.files.added.discard(should_remove));
    }

    /// The files of this process as columns, if there are any.
    pub(crate) fn local_adds(&self) -> Result<Option<AddBatch>> {
        let mut adds = self.files.added.local().map(|file| file.add.clone()).peekable();
        if adds.peek().is_none() { Ok(None) } else { batch_of(adds).map(Some) }
    }

    /// The version to remove files from. Whether the table is append-only depends on the version that is read, which may be
    /// newer than the cached one.
    pub(crate) async fn removable(&mut self) -> Result<Snapshot> {
        let snapshot = self.searchable().await?;
        if Properties::of(snapshot.metadata()).append_only()? {
            let message = "the table is append-only (`delta.appendOnly`), so its rows cannot be removed";
            return Err(self.in_table(Error::invalid(message)));
        }
        Ok(snapshot)
    }

    /// The version that is searched for rows, with the columns as this transaction has changed them.
    pub(crate) async fn searchable(&mut self) -> Result<Snapshot> {
        self.refuse_after_external_files("remove files")?;
        self.snapshot_after().await
    }

    /// Refuses to remove files after change files were written: they may have rows of these files.
    pub(super) fn refuse_after_change_files(&self) -> Result<()> {
        match self.files.rows.change_files.is_empty() {
            true => Ok(()),
            false => {
                let message = "this transaction has written change files already (`delta.enableChangeDataFeed`); \
                               remove files before the step that wrote them";
                Err(self.in_table(Error::invalid(message)))
            }
        }
    }

    /// Refuses a step after files of other processes were added: these are not read again.
    pub(super) fn refuse_after_external_files(&self, what: &str) -> Result<()> {
        match self.files.added.has_external_files() {
            false => Ok(()),
            true => {
                let message = format!("files that other processes wrote were added already; {what} before adding them");
                Err(self.in_table(Error::invalid(message)))
            }
        }
    }
}
