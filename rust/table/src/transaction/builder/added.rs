//! The files that a transaction adds; they are deleted if they stay unreferenced.

use std::collections::{BTreeMap, HashMap};

use deltic_protocol::action::lines::{Lines, file_action_of};
use deltic_protocol::action::{Action, Add};
use deltic_protocol::commit::Actions;
use futures::StreamExt;

use crate::error::Result;
use crate::scan::task::{FileTask, task_of};
use crate::write::layout::has_id_prefix;
use crate::write::plan::DataFile;
use deltic_store::{Storage, decode_path};

/// Files that were written for a transaction.
#[derive(Debug, Clone, Default)]
pub(super) struct AddedFiles {
    /// Files that this process wrote with new rows.
    new_rows: Vec<DataFile>,
    /// Files that this process wrote with rows of the base, some of them changed.
    rewritten: Vec<DataFile>,
    /// `add` actions of files that other processes wrote, as JSON.
    external: Actions,
    external_totals: Totals,
    /// For each identity column, the least and the greatest number that writers assigned.
    identities: BTreeMap<String, (i64, i64)>,
}

/// The kind of rows in a file that the transaction has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileOrigin {
    /// New rows.
    New,
    /// Rows of the base, some of them changed.
    Rewritten,
}

/// Totals over files.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) files: u64,
    pub(super) rows: u64,
    pub(super) bytes: u64,
}

impl Totals {
    fn with(self, file: &DataFile) -> Self {
        Self {
            files: self.files + 1,
            rows: self.rows.saturating_add(file.rows),
            bytes: self.bytes.saturating_add(u64::try_from(file.add.size).unwrap_or_default()),
        }
    }
}

impl AddedFiles {
    pub(super) fn extend(&mut self, files: Vec<DataFile>) {
        files.iter().for_each(|file| self.count_identities(file));
        self.new_rows.extend(files);
    }

    fn count_identities(&mut self, file: &DataFile) {
        for (column, last) in &file.identities {
            let (least, greatest) = self.identities.entry(column.clone()).or_insert((*last, *last));
            (*least, *greatest) = ((*least).min(*last), (*greatest).max(*last));
        }
    }

    /// Whether numbers were assigned for identity columns.
    pub(super) fn has_identities(&self) -> bool {
        !self.identities.is_empty()
    }

    /// The high water mark: the last number, in the direction of `step`, that was assigned for an identity column.
    pub(super) fn high_water_mark(&self, column: &str, step: i64) -> Option<i64> {
        self.identities.get(column).map(|(least, greatest)| if step > 0 { *greatest } else { *least })
    }

    pub(super) fn extend_rewritten(&mut self, files: Vec<DataFile>) {
        self.rewritten.extend(files);
    }

    pub(super) fn extend_each(&mut self, files: impl Iterator<Item = Result<DataFile>>) -> Result<()> {
        for file in files {
            let file = file?;
            self.external_totals = self.external_totals.with(&file);
            self.count_identities(&file);
            self.external.push(Action::Add(file.add))?;
        }
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.new_rows.is_empty() && self.rewritten.is_empty() && self.external.is_empty()
    }

    /// Whether there are files that this process did not write.
    pub(super) fn has_external_files(&self) -> bool {
        !self.external.is_empty()
    }

    /// The files that this process wrote.
    pub(super) fn local(&self) -> impl Iterator<Item = &DataFile> {
        self.new_rows.iter().chain(&self.rewritten)
    }

    /// The kind of rows in the files of this process, by path.
    pub(super) fn local_by_path(&self) -> HashMap<&str, FileOrigin> {
        let new = self.new_rows.iter().map(|file| (file.add.path.as_str(), FileOrigin::New));
        let rewritten = self.rewritten.iter().map(|file| (file.add.path.as_str(), FileOrigin::Rewritten));
        new.chain(rewritten).collect()
    }

    /// Removes files of this process from the transaction again, and returns their paths.
    pub(super) fn discard(&mut self, should_remove: impl Fn(&DataFile) -> bool) -> Vec<String> {
        let mut paths = Vec::new();
        for files in [&mut self.new_rows, &mut self.rewritten] {
            let (gone, rest): (Vec<_>, _) = std::mem::take(files).into_iter().partition(|file| should_remove(file));
            *files = rest;
            paths.extend(gone.into_iter().map(|file| file.add.path));
        }
        paths
    }

    /// Tasks that read the rows of this process.
    pub(super) fn tasks(&self) -> impl Iterator<Item = FileTask> {
        self.local().map(|file| task_of(&file.add))
    }

    /// Totals over the files with new rows.
    pub(super) fn totals(&self) -> Totals {
        self.new_rows.iter().fold(self.external_totals, Totals::with)
    }

    /// Totals over the files with rows of the base.
    pub(super) fn rewritten_totals(&self) -> Totals {
        self.rewritten.iter().fold(Totals::default(), Totals::with)
    }

    pub(super) fn add_to(self, actions: &mut Actions) -> Result<()> {
        actions.append(self.external)?;
        let files = self.new_rows.into_iter().chain(self.rewritten);
        files.into_iter().try_for_each(|file| actions.push(Action::Add(file.add)))
    }

    /// The paths of the files.
    pub(super) fn paths(&self) -> WrittenPaths {
        let paths = self.local().map(|file| file.add.path.clone()).collect();
        WrittenPaths { paths, external: self.external.files().clone() }
    }

    /// Calls `visit` with each file with new rows.
    ///
    /// # Errors
    /// Those of `visit`.
    pub(super) fn each_new(&self, mut visit: impl FnMut(&Add) -> Result<()>) -> Result<()> {
        self.new_rows.iter().try_for_each(|file| visit(&file.add))?;
        self.external.files().each(|line| match file_action_of(line)? {
            Some(Action::Add(add)) => visit(&add),
            _ => Ok(()),
        })
    }
}

/// The paths of files, with little memory.
#[derive(Debug)]
pub(super) struct WrittenPaths {
    paths: Vec<String>,
    external: Lines,
}

impl WrittenPaths {
    /// Adds paths.
    pub(super) fn and(mut self, paths: impl Iterator<Item = String>) -> Self {
        self.paths.extend(paths);
        self
    }

    /// Leaves out the files of other processes.
    pub(super) fn only_local(self) -> Self {
        Self { paths: self.paths, external: Lines::default() }
    }

    /// Deletes the files, best effort.
    pub(super) async fn delete(self, storage: &Storage) {
        delete_files(storage, self.paths).await;
        let mut external_paths = Vec::new();
        let listed = self.external.each(|line| {
            if let Some(Action::Add(add)) = file_action_of(line)? {
                external_paths.push(add.path);
            }
            Ok(())
        });
        // These lines were made here, so they can be parsed; otherwise the files would stay, as orphans.
        drop(listed);
        delete_files(storage, external_paths).await;
    }
}

/// Deletes unreferenced data files, best effort: one that stays is an orphan that vacuum finds.
pub(super) async fn delete_files(storage: &Storage, paths: Vec<String>) {
    for path in paths {
        if let Ok(path) = decode_path(&path) {
            let _deleted = storage.delete(&path).await;
        }
    }
}

/// Deletes the files whose names begin with this half of an id, whichever process wrote them. Only for files that no commit
/// will name: files that the store does not list or delete stay.
pub async fn delete_written(storage: &Storage, id_prefix: Option<u64>) {
    let Some(id_prefix) = id_prefix else { return };
    let mut files = storage.list_recursive("");
    let mut paths = Vec::new();
    while let Some(Ok(file)) = files.next().await {
        if has_id_prefix(&file.path, id_prefix) {
            paths.push(file.path);
        }
    }
    let _deleted = storage.delete_many(&paths).await;
}
