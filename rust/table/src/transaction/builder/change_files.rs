//! Change files: the rows that a commit changed, for the change data feed.
//!
//! If a commit has no change files, readers of the feed derive its changes from its `add` and `remove` actions. If it
//! has change files, they read only those, so the change files must have every changed row: steps write those that they
//! know, and at the end of the transaction the rest is written (removed files, marked rows, new rows).
//!
//! Proved by `tests/python/test_row_changes.py`.
//!
//! PROTOCOL.md: "Change Data Files", "Writer Requirements for AddCDCFile".

use deltic_protocol::action::lines::file_action_of;
use deltic_protocol::action::{Action, Remove};
use deltic_protocol::replay::canonical_path;
use deltic_protocol::schema::{DataType, StructField, StructType, TableSchema};

use super::Transaction;
use crate::error::{Error, Result};
use crate::rewrite::with_partition_strings;
use crate::scan::read::{ReadOptions, Reader};
use crate::scan::task::{CHANGE_TYPE, FileTask, ReadSpec, task_of};
use crate::write::plan::{DataFile, FileKind, HiddenColumn, HiddenValues, WriteSpec};
use crate::write::writer::{Clock, DataWriter};
use deltic_store::{Storage, Syncing};

/// The change type of a row, in the column `_change_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// A new row.
    Insert,
    /// A deleted row.
    Delete,
    /// A row before its update.
    Preimage,
    /// A row after its update.
    Postimage,
}

impl Change {
    /// The value in change files.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Delete => "delete",
            Self::Preimage => "update_preimage",
            Self::Postimage => "update_postimage",
        }
    }

    /// Sets this change type for the rows of `task`.
    pub(crate) fn of(self, mut task: FileTask) -> FileTask {
        task.constants.insert(CHANGE_TYPE.to_owned(), self.as_str().to_owned());
        task
    }
}

/// How change rows are read: all columns of the table, which `spec` reads, and the change type. `Invalid` if the table has a
/// column with that name.
pub(crate) fn changes_spec(mut spec: ReadSpec) -> Result<ReadSpec> {
    let mut schema = StructType::clone(&spec.schema);
    if let Some(taken) = schema.fields.iter().find(|field| field.name.eq_ignore_ascii_case(CHANGE_TYPE)) {
        return Err(Error::invalid(format!(
            "the table has a column `{}`, which is the name of a column of the change data feed; rename it",
            taken.name
        )));
    }
    schema.fields.push(StructField::new(CHANGE_TYPE, DataType::STRING, false));
    spec.schema = TableSchema::from(schema);
    spec.columns.push(CHANGE_TYPE.to_owned());
    Ok(spec)
}

/// How change files are written, given how data files are written.
pub(crate) fn change_files_spec(spec: WriteSpec) -> WriteSpec {
    let change = HiddenColumn { name: CHANGE_TYPE.to_owned(), values: HiddenValues::Change, field_id: None };
    WriteSpec { kind: FileKind::Change, hidden_columns: vec![change], ..spec }
}

/// Writes change files with the rows of `tasks`, each of which has its change type.
pub(crate) async fn write_changes(
    storage: &Storage,
    read: ReadSpec,
    write: WriteSpec,
    mut tasks: Vec<FileTask>,
) -> Result<(Vec<DataFile>, Syncing)> {
    // A `cdc` action has no time.
    let no_clock: Clock = || 0;
    let reader = Reader::new(storage.clone(), with_partition_strings(&read, &mut tasks)?)?;
    let writer = DataWriter::new(storage.clone(), &change_files_spec(write), no_clock)?.with_partition_strings();
    writer.write_all_unsynced(reader.read(tasks, ReadOptions::default())).await
}

impl Transaction {
    /// Adds change files for rows that no step has covered, if a step has added any.
    pub(super) async fn complete_changes(&mut self) -> Result<()> {
        if self.files.rows.change_files.is_empty() {
            return Ok(());
        }
        let mut tasks = Vec::new();
        self.files.removed.files().each(|line| {
            if let Some(Action::Remove(remove)) = file_action_of(line)?
                && remove.data_change
            {
                tasks.extend(self.unrecorded_rows(task_of_removed(remove)?)?.map(|task| Change::Delete.of(task)));
            }
            Ok(())
        })?;
        for marked in self.files.rows.marked.iter() {
            let only_rows = Some(marked.rows.to_inline()?);
            let task = FileTask { only_rows, deletion_vector: None, ..task_of(&marked.add) };
            tasks.extend(self.unrecorded_rows(task)?.map(|task| Change::Delete.of(task)));
        }
        self.files.added.each_new(|add| {
            if add.data_change {
                tasks.push(Change::Insert.of(task_of(add)));
            }
            Ok(())
        })?;
        if tasks.is_empty() {
            return Ok(());
        }
        let snapshot = self.snapshot().await?;
        let (read, write) = (changes_spec(self.rows_spec(&snapshot)?)?, self.rewrite_spec(FileKind::Change)?);
        let written = write_changes(self.log.storage(), read, write, tasks).await?;
        self.add_change_files(written, []);
        Ok(())
    }

    /// A task for the rows of a file of the base that no change file has yet.
    fn unrecorded_rows(&self, mut task: FileTask) -> Result<Option<FileTask>> {
        match self.files.rows.recorded_rows.get(canonical_path(&task.path).as_ref()) {
            None => {}
            Some(None) => return Ok(None),
            Some(Some(rows)) => task.deletion_vector = Some(rows.to_inline()?),
        }
        Ok(Some(task))
    }
}

/// A task for the rows of a removed file.
fn task_of_removed(remove: Remove) -> Result<FileTask> {
    let size = remove.size.and_then(|size| u64::try_from(size).ok());
    let missing = || Error::internal("a file is removed without its size");
    Ok(FileTask {
        size: size.ok_or_else(missing)?,
        path: remove.path,
        partition_values: remove.partition_values.unwrap_or_default(),
        deletion_vector: remove.deletion_vector,
        ..FileTask::default()
    })
}
