//! The part of a DELETE, an UPDATE or a MERGE that an executor carries out: it finds the rows in its files and writes new
//! files.
//!
//! It uses the same functions as a transaction that does everything itself. Deletion vectors are not written: the positions
//! of the marked rows are returned, since the commit unites them with those of other writers.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BinaryArray, Int64Array, RecordBatch};
use arrow_schema::{DataType as ArrowType, Field, Schema, SchemaRef};
use deltic_protocol::deletion_vector::DeletionVector;
use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::row_update::NewValue;
use deltic_protocol::schema::StructType;
use deltic_protocol::schema::mapping::ColumnMapping;
use futures::{Stream, StreamExt};
use serde::{Deserialize, Serialize};

use super::result::{FileMatches, PermanentError, SourceMatches, TaskChanges, TaskEnd, TaskResult, to_vector};
use crate::dml::file_changes::{ChangedFiles, DurableFiles, TouchedFileAction};
use crate::dml::find::{Candidate, DELETE, FindRequest, RowAction, UPDATE, read_candidates};
use crate::dml::merge::{self, Join, MergeKeys, MergeRequest, MergeSource, SourceRows};
use crate::dml::specs::WriteSpecs;
use crate::dml::update::update_writer;
use crate::dml::update_writer::{UpdateWriter, numbered, with_file_number};
use crate::envelope::{pack, unpack};
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::scan::read::{ReadOptions, Reader};
use crate::scan::task::ReadSpec;
use crate::write::rules::WriteRules;
use crate::write::unclaimed::Unclaimed;
use crate::write::writer::Clock;
use deltic_store::Storage;

/// The kind of these bytes, in their envelope.
const TASK: &str = "task of a row change";

/// Stands for the keys of files that cannot be read.
pub const FAILED_HASH: i64 = i64::MIN;

/// A DELETE, an UPDATE or a MERGE. It is not part of the tasks: it is the same for all, and the source of a merge may be large.
#[derive(Debug, Clone)]
pub enum RowChange {
    /// Rows are deleted.
    Delete,
    /// Columns are set.
    Update(Vec<(String, NewValue)>),
    /// Rows of a source are merged into the table.
    Merge {
        /// The rows of the source.
        source: (SchemaRef, Vec<RecordBatch>),
        /// Which rows these are.
        source_rows: SourceRows,
        /// The condition and the clauses.
        request: Box<MergeRequest>,
    },
}

impl RowChange {
    pub(super) fn action(&self) -> RowAction {
        match self {
            Self::Delete => RowAction::Delete,
            Self::Update(_) => RowAction::Update,
            Self::Merge { .. } => RowAction::Merge,
        }
    }
}

/// Files whose rows may change, and all that is needed to change them except the [`RowChange`] and access to the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RowChangeTask {
    pub(super) location: String,
    /// The id of the row change.
    pub(super) row_change_id: String,
    /// The index of the task.
    pub(super) number: usize,
    pub(super) action: RowAction,
    pub(super) files: Vec<Candidate>,
    /// How files are read to find the rows: with the columns of the table before the row change.
    pub(super) find: ReadSpec,
    /// Whether rows are marked in deletion vectors.
    pub(super) marks: bool,
    pub(super) specs: WriteSpecs,
    pub(super) rules: WriteRules,
}

impl RowChangeTask {
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>> {
        pack(TASK, self)
    }

    /// Reads what [`DistributedRowChange::tasks`](super::DistributedRowChange::tasks) gave.
    ///
    /// # Errors
    /// `Invalid` if the bytes are something else, or of another release of deltic.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        unpack(TASK, bytes)
    }

    /// Where the table is.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// The index of the task.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The rows that may change: these columns, then the position of each row in its file and the index of the file. An engine
    /// that has joined them with other rows or computed values of them passes the places of these ([`Places`](crate::dml::Places)).
    ///
    /// # Errors
    /// Those of reading the files; `Invalid` for columns that the table does not have.
    pub fn rows(
        self,
        storage: Storage,
        columns: Vec<String>,
    ) -> Result<(SchemaRef, impl Stream<Item = Result<RecordBatch>> + Send + 'static)> {
        let location = self.location;
        let files = numbered(self.files.into_iter().map(|file| file.task).collect());
        let read = with_file_number(&ReadSpec { columns, ..self.find })?;
        let reader = Reader::new(storage, read).map_err(|e| e.in_table(&location))?;
        let schema = reader.schema();
        let rows = reader.read(files, ReadOptions::default());
        Ok((schema, rows.map(move |batch| batch.map_err(|e| e.in_table(&location)))))
    }

    /// The hashes of the keys of a merge in the task's files, in batches of two columns: the task needs the rows of the source
    /// with these hashes. If the files cannot be read, and could not be wherever the task runs, the last batch has the hash
    /// [`FAILED_HASH`] and the result of the task.
    ///
    /// # Errors
    /// Those of reading the files that another attempt may not meet.
    pub fn key_hashes(
        self,
        storage: Storage,
        keys: MergeKeys,
    ) -> Result<(SchemaRef, impl Stream<Item = Result<RecordBatch>> + Send + 'static)> {
        let columns = vec![Field::new("hash", ArrowType::Int64, false), Field::new("failure", ArrowType::Binary, true)];
        let (schema, location) = (Arc::new(Schema::new(columns)), self.location);
        let (row_change_id, number) = (self.row_change_id, self.number);
        let files = self.files.into_iter().map(|file| file.task).collect();
        let hashes = keys.of_files(storage, self.find, files).map_err(|e| e.in_table(&location))?;
        let announced = Arc::clone(&schema);
        let to_batch = move |hashes: Result<HashSet<i64>>| -> Result<RecordBatch> {
            let (hashes, failure): (Vec<i64>, _) = match hashes {
                Ok(hashes) => (hashes.into_iter().collect(), None),
                Err(error) => {
                    let end = TaskEnd::Failed(PermanentError::of(error).map_err(|e: Error| e.in_table(&location))?);
                    let row_change_id = row_change_id.clone();
                    (vec![FAILED_HASH], Some(TaskResult { row_change_id, number, end }.to_bytes()?))
                }
            };
            let failures: BinaryArray = hashes.iter().map(|_| failure.as_deref()).collect();
            let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(hashes)), Arc::new(failures)];
            Ok(RecordBatch::try_new(Arc::clone(&announced), columns)?)
        };
        let until_failure = move |failed: &mut bool, hashes: Result<HashSet<i64>>| {
            let is_over = std::mem::replace(failed, hashes.is_err());
            std::future::ready((!is_over).then(|| to_batch(hashes)))
        };
        Ok((schema, hashes.scan(false, until_failure)))
    }

    /// Finds the rows and writes the new files. Returns the result for
    /// [`DistributedRowChange::apply`](super::DistributedRowChange::apply). Files are durable then, and after an error
    /// none is left. An error that would occur again wherever the task runs is returned as a result, for the driver to raise.
    ///
    /// # Errors
    /// `Invalid` if the row change is not the one that was planned; those errors of reading and writing that
    /// another attempt may not meet.
    pub async fn carry_out(self, storage: Storage, row_change: RowChange, clock: Clock) -> Result<Vec<u8>> {
        let (location, row_change_id, number) = (self.location.clone(), self.row_change_id.clone(), self.number);
        let carried_out = async {
            let mut unclaimed = None;
            let end = match Box::pin(self.change(storage, row_change, clock)).await {
                Ok((changed, files)) => {
                    unclaimed = Some(files);
                    TaskEnd::Changed(Box::new(changed))
                }
                Err(error) => TaskEnd::Failed(PermanentError::of(error)?),
            };
            let bytes = TaskResult { row_change_id, number, end }.to_bytes()?;
            if let Some(files) = unclaimed {
                files.claim();
            }
            Ok(bytes)
        };
        carried_out.await.map_err(|e: Error| e.in_table(&location))
    }

    async fn change(self, storage: Storage, row_change: RowChange, clock: Clock) -> Result<(TaskChanges, Unclaimed)> {
        let Self { action, mut files, find, marks, specs, rules, .. } = self;
        if row_change.action() != action {
            return Err(Error::invalid("a task was run with another operation than it was planned for"));
        }
        let begun_ms = clock();
        let shape = shape_of(&specs.rows)?;
        let (mut update, mut join, mut numbers) = (None, None, None);
        let of = |operation| FindRequest { operation, action, now_ms: begun_ms, columns: Vec::new(), matcher: None };
        let request = match row_change {
            RowChange::Delete => of(DELETE),
            RowChange::Update(set) => {
                update = Some(update_writer(&shape, set, &rules)?);
                of(UPDATE)
            }
            RowChange::Merge { source, source_rows, request } => {
                let request = *request;
                let (schema, batches) = source;
                let sides = merge::sides_of(StructType::clone(&find.schema), &schema, &request)?;
                let placed = match &source_rows {
                    SourceRows::Placed(places) => {
                        let paths: Vec<&str> = files.iter().map(|file| file.task.path.as_str()).collect();
                        Some(places.in_files(&paths)?)
                    }
                    SourceRows::All | SourceRows::Part(_) | SourceRows::Elsewhere(_) => None,
                };
                let source = MergeSource { schema, batches, source_rows: &source_rows, placed, sides };
                let (joined, _) = merge::join(source, (&shape, &rules), request)?;
                numbers = numbers_of(source_rows, &joined)?;
                if numbers.is_some() && joined.source_rows() == 0 && !joined.changes_unmatched_rows() {
                    files.clear();
                }
                merge::find_request(join.insert(joined), begun_ms)
            }
        };
        let (touched, _) = read_candidates(&storage, &find, files, request).await?;
        let scan_ms = clock().saturating_sub(begun_ms);
        let mut merged = None;
        if let Some(join) = join {
            join.check_places()?;
            let (writer, matched) = outcome(&join, numbers.as_ref())?;
            (update, merged) = (Some(writer), Some(matched));
        }
        let (mut changed, mut removed) = (ChangedFiles::default(), Vec::new());
        for file in touched {
            let of_its_kind = match TouchedFileAction::of(&file, marks) {
                TouchedFileAction::Remove => &mut removed,
                TouchedFileAction::Mark => &mut changed.marked,
                TouchedFileAction::Rewrite => &mut changed.rewritten,
            };
            of_its_kind.push(file);
        }
        let all = removed.iter().chain(&changed.marked).chain(&changed.rewritten);
        let touched = all.map(FileMatches::of).collect::<Result<_>>()?;
        let progress = Progress::default();
        let written = changed.replace((&storage, Some(&specs)), (update.as_ref(), clock), &progress).await?;
        let DurableFiles { rewritten, changes, unclaimed } = written.durable().await?;
        Ok((TaskChanges { touched, rewritten, changes, merged, scan_ms }, unclaimed))
    }
}

/// The numbers of the rows among all of the source, if these are a part of it.
fn numbers_of(source_rows: SourceRows, join: &Join) -> Result<Option<Int64Array>> {
    match source_rows {
        SourceRows::All => Ok(None),
        SourceRows::Part(numbers) if numbers.len() == join.source_rows() && numbers.null_count() == 0 => {
            Ok(Some(numbers))
        }
        SourceRows::Placed(places) if places.numbers.len() == join.source_rows() => Ok(Some(places.numbers)),
        SourceRows::Part(_) | SourceRows::Placed(_) => {
            Err(Error::invalid("rows of a source came without their numbers"))
        }
        SourceRows::Elsewhere(_) => Err(Error::invalid("a task of a merge needs rows of the source")),
    }
}

/// The writer of the rows that a merge updates, and the matches of the source.
fn outcome(join: &Join, numbers: Option<&Int64Array>) -> Result<(UpdateWriter, SourceMatches)> {
    let outcome = join.take_outcome();
    let rows = outcome.matched.iter().enumerate().filter(|(_, matched)| **matched);
    let number = |(row, _)| numbers.map_or(row as u64, |numbers| numbers.value(row).cast_unsigned());
    let rows: DeletionVector = rows.map(number).collect();
    let matched = SourceMatches {
        source_rows: join.source_rows() as u64,
        rows: to_vector(&rows)?,
        unchanged: outcome.unchanged.into_iter().collect(),
        counts: outcome.counts,
    };
    Ok((merge::writer(join, outcome.updates), matched))
}

/// The columns of the table that is written.
fn shape_of(rows: &ReadSpec) -> Result<TableShape> {
    Ok(TableShape {
        schema: rows.schema.clone(),
        partition_columns: rows.partition_columns.clone(),
        mapping: ColumnMapping::parse(&rows.column_mapping)?,
    })
}
