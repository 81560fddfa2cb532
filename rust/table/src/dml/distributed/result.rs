//! The result of a task as plain data, and the checks before the driver uses it: the driver does not trust these bytes.

use std::collections::{HashMap, HashSet};

use deltic_protocol::action::DeletionVectorDescriptor;
use deltic_protocol::deletion_vector::{self, DeletionVector, Source};
use deltic_protocol::error::Kind;
use serde::{Deserialize, Serialize};

use crate::dml::find::{Candidate, TouchedFile};
use crate::envelope::{pack, unpack};
use crate::error::{Error, Result};
use crate::scan::task::FileTask;
use crate::transaction::row_counts::MergeCounts;
use crate::write::plan::DataFile;

/// The kind of these bytes, in their envelope.
const RESULT: &str = "result of a task of a row change";

/// What a task returns.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TaskResult {
    /// The id of the row change.
    pub(super) row_change_id: String,
    /// The index of the task.
    pub(super) number: usize,
    pub(super) end: TaskEnd,
}

/// How a task ended.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum TaskEnd {
    Changed(Box<TaskChanges>),
    Failed(PermanentError),
}

/// What a task found and wrote.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskChanges {
    /// The files with matching rows.
    pub(super) touched: Vec<FileMatches>,
    /// Files written in place of files of the base.
    pub(super) rewritten: Vec<DataFile>,
    /// Change files.
    pub(super) changes: Vec<DataFile>,
    /// Which rows of a merge's source match.
    pub(super) merged: Option<SourceMatches>,
    /// Milliseconds that finding the rows took.
    pub(super) scan_ms: i64,
}

/// Positions of rows, as a deletion vector with inline bytes; none if there are no rows.
pub(super) type InlineDeletionVector = Option<DeletionVectorDescriptor>;

/// The matching rows of a file: a [`TouchedFile`] as plain data.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileMatches {
    path: String,
    deleted: InlineDeletionVector,
    updated: InlineDeletionVector,
    deleted_before: InlineDeletionVector,
    physical_rows: u64,
}

/// Which rows of the source of a merge match rows in the files of a task.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SourceMatches {
    /// How many rows the source has.
    pub(super) source_rows: u64,
    pub(super) rows: InlineDeletionVector,
    /// Files with rows that match and are not changed.
    pub(super) unchanged: Vec<String>,
    pub(super) counts: MergeCounts,
}

/// An error that would occur again wherever the task runs, so that it is not worth running again.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum PermanentError {
    Invalid(ErrorMessage),
    Corrupt(ErrorMessage),
    Unsupported(Vec<String>, ErrorMessage),
}

/// The message of an error, and the file that it is about.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ErrorMessage {
    message: String,
    path: Option<String>,
}

impl PermanentError {
    /// # Errors
    /// The error itself if another attempt may succeed.
    pub(super) fn of(error: Error) -> Result<Self> {
        let message = ErrorMessage { message: error.message().to_owned(), path: error.path().map(str::to_owned) };
        match error.kind() {
            Kind::Invalid => Ok(Self::Invalid(message)),
            Kind::Corrupt => Ok(Self::Corrupt(message)),
            Kind::Unsupported { features } => Ok(Self::Unsupported(features.clone(), message)),
            _ => Err(error),
        }
    }

    pub(super) fn into_error(self) -> Error {
        let (kind, ErrorMessage { message, path }) = match self {
            Self::Invalid(message) => (Kind::Invalid, message),
            Self::Corrupt(message) => (Kind::Corrupt, message),
            Self::Unsupported(features, message) => (Kind::Unsupported { features }, message),
        };
        let error = Error::new(kind, message);
        match path {
            Some(path) => error.in_file(path),
            None => error,
        }
    }
}

impl TaskResult {
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>> {
        pack(RESULT, self)
    }

    /// The results of all tasks of a row change, in the order of the tasks.
    ///
    /// # Errors
    /// `Invalid` unless there is one result of each task; the error that a task failed with.
    pub(super) fn of_row_change(
        results: &[impl AsRef<[u8]>],
        row_change_id: &str,
        tasks: usize,
    ) -> Result<Vec<TaskChanges>> {
        let mut ends: Vec<Option<TaskEnd>> = (0..tasks).map(|_| None).collect();
        for bytes in results {
            let Self { row_change_id: of, number, end } = unpack(RESULT, bytes.as_ref())?;
            if of != row_change_id {
                return Err(Error::invalid(
                    "a result belongs to a task of another operation; pass the results of this operation's tasks",
                ));
            }
            match ends.get_mut(number) {
                Some(place @ None) => *place = Some(end),
                Some(Some(_)) => {
                    return Err(Error::invalid("the result of a task was passed twice; pass each result once"));
                }
                None => return Err(Error::invalid("a result belongs to a task that this operation does not have")),
            }
        }
        let ends = ends.into_iter().collect::<Option<Vec<_>>>();
        let ends =
            ends.ok_or_else(|| Error::invalid("the result of a task is missing; pass the results of all tasks"))?;
        let changed = |end| match end {
            TaskEnd::Changed(changed) => Ok(*changed),
            TaskEnd::Failed(error) => Err(error.into_error()),
        };
        ends.into_iter().map(changed).collect()
    }
}

impl TaskChanges {
    /// The files with matching rows, of those that the task was given.
    ///
    /// # Errors
    /// `Invalid` for files that the task was not given, for a file that comes twice, and for rows that a file does not have.
    pub(super) fn take_touched(&mut self, files: &[Candidate]) -> Result<Vec<TouchedFile>> {
        let mut asked: HashMap<&str, &Candidate> = files.iter().map(|file| (file.task.path.as_str(), file)).collect();
        let touched = std::mem::take(&mut self.touched).into_iter();
        let known = |rows: FileMatches| {
            let file = asked.remove(rows.path.as_str()).ok_or_else(|| {
                let message = "a task returned rows of a file that it was not given, or rows of a file twice";
                Error::invalid(message).in_file(&rows.path)
            })?;
            rows.in_file(file).map_err(|e| e.in_file(&file.task.path))
        };
        touched.map(known).collect()
    }
}

impl FileMatches {
    pub(super) fn of(file: &TouchedFile) -> Result<Self> {
        Ok(Self {
            path: file.task.path.clone(),
            deleted: to_vector(&file.deleted())?,
            updated: to_vector(&file.updated)?,
            deleted_before: to_vector(&file.rows_deleted_before_commit)?,
            physical_rows: file.physical_rows,
        })
    }

    fn in_file(&self, file: &Candidate) -> Result<TouchedFile> {
        let (deleted, updated) = (from_vector(self.deleted.as_ref())?, from_vector(self.updated.as_ref())?);
        let deleted_before = from_vector(self.deleted_before.as_ref())?;
        let matching = deleted.union(&updated);
        let logged = file.task.deletion_vector.as_ref().map_or(0, |vector| vector.cardinality);
        let fits = deleted.is_disjoint(&updated)
            && matching.is_disjoint(&deleted_before)
            && u64::try_from(logged) == Ok(deleted_before.cardinality())
            && file.physical_rows.is_none_or(|rows| rows == self.physical_rows)
            && matching.last().is_some_and(|last| last < self.physical_rows);
        if !fits {
            return Err(Error::invalid("a task returned rows that the file does not have; run it again"));
        }
        let mut task: FileTask = file.task.clone();
        task.deletion_vector = if deleted_before.is_empty() { None } else { Some(deleted_before.to_inline()?) };
        Ok(TouchedFile {
            task,
            add: None,
            matching,
            updated,
            rows_deleted_before_commit: deleted_before,
            physical_rows: self.physical_rows,
        })
    }
}

impl SourceMatches {
    /// Adds the matches to those of other tasks. `source_rows`: how many rows the source has, if each task has all of them.
    ///
    /// # Errors
    /// `Invalid` if the task had another source, or its result has other files than the task.
    pub(super) fn add_to(
        self,
        (matched, unchanged): (&mut DeletionVector, &mut HashSet<String>),
        source_rows: Option<u64>,
        files: &[Candidate],
    ) -> Result<()> {
        let rows = from_vector(self.rows.as_ref())?;
        if let Some(source_rows) = source_rows {
            if self.source_rows != source_rows {
                return Err(Error::invalid("a task merged another source than the one of the plan"));
            }
            if rows.last().is_some_and(|last| last >= source_rows) {
                return Err(Error::invalid("a task returned a row number that the source does not have"));
            }
        }
        let asked: HashSet<&str> = files.iter().map(|file| file.task.path.as_str()).collect();
        if let Some(path) = self.unchanged.iter().find(|path| !asked.contains(path.as_str())) {
            return Err(Error::invalid("a task returned a file that it was not given").in_file(path));
        }
        *matched = matched.union(&rows);
        unchanged.extend(self.unchanged);
        Ok(())
    }

    /// The numbers of the rows of the source that match.
    pub(super) fn matched_rows(&self) -> Result<DeletionVector> {
        from_vector(self.rows.as_ref())
    }
}

/// Positions of rows as plain data.
pub(super) fn to_vector(rows: &DeletionVector) -> Result<InlineDeletionVector> {
    if rows.is_empty() { Ok(None) } else { rows.to_inline().map(Some) }
}

pub(super) fn from_vector(rows: Option<&DeletionVectorDescriptor>) -> Result<DeletionVector> {
    let Some(descriptor) = rows else { return Ok(DeletionVector::default()) };
    match deletion_vector::source(descriptor)? {
        Source::Inline(bytes) => deletion_vector::parse_inline(&bytes, descriptor),
        Source::File { .. } => {
            Err(Error::invalid("a task returned positions of rows in a separate file; they must be inline"))
        }
    }
}
