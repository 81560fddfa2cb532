//! The changes of one commit, as files to read.
//!
//! A pure function from actions to files. If the commit has change files, they have all changes. Otherwise the rows of an added
//! file are inserts and those of a removed one deletes. A file that is removed and added in the same commit has only another
//! deletion vector: rows that only the new vector deletes were deleted, rows that only the old one deletes were restored.
//! Actions that only rearrange rows (`dataChange` false) are not changes.
//!
//! PROTOCOL.md: "Reader Requirements for AddCDCFile".

use std::collections::{BTreeMap, HashMap};

use arrow_array::Array;
use arrow_array::cast::AsArray;
use deltic_protocol::action::Cdc;
use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::action::json::CommitActions;
use deltic_protocol::replay::canonical_path;
use deltic_protocol::scalar::Scalar;

use super::columns::{COMMIT_TIMESTAMP, COMMIT_VERSION};
use crate::error::{Error, Result};
use crate::scan::task::{CHANGE_TYPE, FileTask};

const INSERT: &str = "insert";
const DELETE: &str = "delete";

/// A file with changes.
#[derive(Debug)]
pub(super) struct FileChange {
    /// The task that reads it, still without its size.
    pub(super) task: FileTask,
    /// Bytes, when the log says.
    pub(super) size: Option<u64>,
}

/// The columns of a feed that are the same in all rows of a commit.
#[derive(Debug)]
pub(super) struct CommitColumns {
    version: u64,
    constants: BTreeMap<String, String>,
}

impl CommitColumns {
    /// The version and its time as columns.
    pub(super) fn new(version: u64, time_ms: i64) -> Result<Self> {
        let too_far = || Error::corrupt(format!("the commit's time {time_ms} ms is impossible")).at_version(version);
        let time = Scalar::Timestamp(time_ms.checked_mul(1000).ok_or_else(too_far)?);
        let constants = BTreeMap::from([
            (COMMIT_VERSION.to_owned(), version.to_string()),
            (COMMIT_TIMESTAMP.to_owned(), time.to_string()),
        ]);
        Ok(Self { version, constants })
    }
}

/// The files with the changes of one commit, deletes first. `Corrupt` if the actions contradict each other.
pub(super) fn of(
    actions: CommitActions,
    commit_columns: CommitColumns,
    is_partitioned: bool,
) -> Result<impl Iterator<Item = Result<FileChange>> + Send> {
    let version = commit_columns.version;
    let at_version = |e: Error| e.at_version(version);
    let files = Files {
        removes: AddBatch::new(actions.adds.origin, actions.remove_rows).map_err(at_version)?,
        adds: actions.adds,
        cdc: actions.cdc,
        commit_columns,
        is_partitioned,
    };
    let steps = files.steps().map_err(at_version)?;
    Ok(steps.into_iter().map(move |step| files.change(step).map_err(|e| e.at_version(version))))
}

struct Files {
    cdc: Vec<Cdc>,
    adds: AddBatch,
    removes: AddBatch,
    commit_columns: CommitColumns,
    is_partitioned: bool,
}

/// A file to read, by its index in [`Files`].
#[derive(Debug, Clone, Copy)]
enum Step {
    Recorded(usize),
    Inserted(usize),
    Deleted(usize),
    /// Rows that only the vector of the add deletes.
    DeletedByVector {
        remove: usize,
        add: usize,
    },
    /// Rows that only the vector of the remove deleted.
    Restored {
        remove: usize,
        add: usize,
    },
}

impl Files {
    fn steps(&self) -> Result<Vec<Step>> {
        if !self.cdc.is_empty() {
            return Ok((0..self.cdc.len()).map(Step::Recorded).collect());
        }
        let (adds, removes) = (changing(&self.adds)?, changing(&self.removes)?);
        if adds.is_empty() || removes.is_empty() {
            let deleted = removes.into_iter().map(Step::Deleted);
            return Ok(deleted.chain(adds.into_iter().map(Step::Inserted)).collect());
        }
        let (added, removed) = (by_path(&self.adds, &adds)?, by_path(&self.removes, &removes)?);
        let mut steps = Vec::with_capacity(adds.len() + removes.len());
        for remove in removes {
            match added.get(canonical_path(self.removes.path().value(remove)).as_ref()) {
                None => steps.push(Step::Deleted(remove)),
                Some(&add) if has_own_vector(&self.adds, add, &self.removes, remove)? => {
                    steps.push(Step::DeletedByVector { remove, add });
                }
                Some(_) => {}
            }
        }
        for add in adds {
            match removed.get(canonical_path(self.adds.path().value(add)).as_ref()) {
                None => steps.push(Step::Inserted(add)),
                Some(&remove) if has_own_vector(&self.removes, remove, &self.adds, add)? => {
                    steps.push(Step::Restored { remove, add });
                }
                Some(_) => {}
            }
        }
        Ok(steps)
    }

    fn change(&self, step: Step) -> Result<FileChange> {
        match step {
            Step::Recorded(index) => {
                let cdc = self.cdc.get(index).ok_or_else(|| Error::internal("a change data file got lost"))?;
                let task = FileTask {
                    path: cdc.path.clone(),
                    partition_values: cdc.partition_values.clone(),
                    constants: self.commit_columns.constants.clone(),
                    ..FileTask::default()
                };
                Ok(FileChange { task, size: Some(size(cdc.size, &cdc.path)?) })
            }
            Step::Inserted(add) => self.whole(&self.adds, add, INSERT),
            Step::Deleted(remove) => self.whole(&self.removes, remove, DELETE),
            Step::DeletedByVector { remove, add } => {
                let mut change = self.whole(&self.adds, add, DELETE)?;
                change.task.only_rows = change.task.deletion_vector.take();
                change.task.deletion_vector = self.removes.deletion_vector(remove)?;
                Ok(change)
            }
            Step::Restored { remove, add } => {
                let mut change = self.whole(&self.adds, add, INSERT)?;
                change.task.only_rows = self.removes.deletion_vector(remove)?;
                Ok(change)
            }
        }
    }

    /// All rows of a file that its deletion vector does not delete.
    fn whole(&self, files: &AddBatch, row: usize, change_type: &str) -> Result<FileChange> {
        let path = files.path().value(row);
        let in_file = |e: Error| e.in_file(path);
        if self.is_partitioned && files.partition_values().is_none_or(|values| values.is_null(row)) {
            return Err(in_file(Error::corrupt(
                "the action has no partition values, so the rows of its file are not known; read a range without that \
                 version",
            )));
        }
        let mut constants = self.commit_columns.constants.clone();
        constants.insert(CHANGE_TYPE.to_owned(), change_type.to_owned());
        let bytes = files.size().filter(|sizes| sizes.is_valid(row)).map(|sizes| sizes.value(row));
        let task = FileTask {
            path: path.to_owned(),
            partition_values: files.partition_values_at(row).map_err(in_file)?,
            deletion_vector: files.deletion_vector(row).map_err(in_file)?,
            constants,
            ..FileTask::default()
        };
        Ok(FileChange { task, size: bytes.map(|bytes| size(bytes, path)).transpose()? })
    }
}

/// Whether a file has another deletion vector than in its other action, so that only this one may delete some rows.
fn has_own_vector(files: &AddBatch, row: usize, others: &AddBatch, other: usize) -> Result<bool> {
    let Some(vector) = files.deletion_vector(row)? else { return Ok(false) };
    Ok(others.deletion_vector(other)?.is_none_or(|other| other.unique_id() != vector.unique_id()))
}

fn size(bytes: i64, path: &str) -> Result<u64> {
    u64::try_from(bytes).map_err(|_| Error::corrupt("the file's size in the log is negative").in_file(path))
}

/// Rows whose action changes the table's rows.
fn changing(files: &AddBatch) -> Result<Vec<usize>> {
    let mut changing = Vec::new();
    let column = files.rows().column_by_name("dataChange").and_then(|column| column.as_boolean_opt());
    for row in 0..files.len() {
        match column.filter(|column| column.is_valid(row)) {
            Some(column) if column.value(row) => changing.push(row),
            Some(_) => {}
            None => {
                let missing = "the action does not say whether it changes rows: it has no dataChange";
                return Err(Error::corrupt(missing).in_file(files.path().value(row)));
            }
        }
    }
    Ok(changing)
}

fn by_path(files: &AddBatch, rows: &[usize]) -> Result<HashMap<String, usize>> {
    let mut rows_by_path = HashMap::with_capacity(rows.len());
    for row in rows {
        let path = files.path().value(*row);
        if rows_by_path.insert(canonical_path(path).into_owned(), *row).is_some() {
            return Err(Error::corrupt("the commit adds or removes the file twice").in_file(path));
        }
    }
    Ok(rows_by_path)
}
