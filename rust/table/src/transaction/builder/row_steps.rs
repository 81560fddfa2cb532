//! Steps on rows: marking rows of files of the base as deleted, and adding change files.
//!
//! Which rows change is decided in `dml`. Later steps do not see rows that are marked. The commit writes the deletion
//! vectors of all files into one file, each united with the file's earlier deletion vector.
//!
//! Proved by `tests/rust/table/dml.rs`, mainly `deletion_vectors_are_merged`.
//!
//! PROTOCOL.md: "Deletion Vectors", "Writer Requirement for Deletion Vectors".

use std::collections::HashMap;

use deltic_protocol::action::Cdc;
use deltic_protocol::alter::{Alteration, MetadataChange};
use deltic_protocol::commit::{Actions, MarkedFile, ReadSet};
use deltic_protocol::deletion_vector::DeletionVector;
use deltic_protocol::feature;
use deltic_protocol::property::{Properties, RowTracking};
use deltic_protocol::schema::StructType;

use super::rows::SavedMetadata;
use super::{Derived, FileOrigin, Ids, Transaction};
use crate::commit::TableVectors;
use crate::error::{Error, Result};
use crate::scan::plan::read_spec;
use crate::scan::task::{FileTask, ReadSpec};
use crate::snapshot::Snapshot;
use crate::transaction::row_counts::RowCounts;
use crate::write::plan::{DataFile, FileKind, WriteSpec};
use deltic_store::Syncing;

impl Transaction {
    /// A file of the base with the rows that the transaction has deleted; none if the transaction has removed the file.
    ///
    /// # Errors
    /// `Invalid` if the deletion vector is too large.
    pub(crate) fn with_own_deletes(&self, mut task: FileTask) -> Result<Option<FileTask>> {
        if self.is_removed(&task.path) {
            return Ok(None);
        }
        if let Some(marked) = self.files.rows.marked.get(&task.path) {
            task.deletion_vector = Some(marked.all_deleted().to_inline()?);
        }
        Ok(Some(task))
    }

    /// The files that the transaction has written, by path, and whether their rows are new.
    pub(crate) fn local_files(&self) -> HashMap<&str, FileOrigin> {
        self.files.added.local_by_path()
    }

    /// Takes the condition of a write that replaces rows, once. The columns are those of the base until
    /// [`Transaction::restore_metadata`].
    pub(crate) fn take_replace_condition(&mut self) -> Option<(String, SavedMetadata)> {
        let filter = self.write.replace_where_pending.take()?;
        self.derived = Derived::default();
        Some((filter, SavedMetadata(self.table.protocol.take(), self.table.metadata.take())))
    }

    /// Restores the protocol and the metadata that a step saved.
    pub(crate) fn restore_metadata(&mut self, SavedMetadata(protocol, metadata): SavedMetadata) {
        (self.table.protocol, self.table.metadata) = (protocol, metadata);
        self.derived = Derived::default();
    }

    /// Sets the schema that a step needs: only with new nullable columns and wider types, so that files that were written
    /// before remain valid. Returns what was set before, for [`Transaction::restore_metadata`].
    ///
    /// # Errors
    /// Those of [`Transaction::set_metadata`].
    pub(crate) fn set_step_schema(&mut self, schema: StructType, ids: &dyn Ids) -> Result<SavedMetadata> {
        let before = SavedMetadata(self.table.protocol.clone(), self.table.metadata.clone());
        let change = Alteration::Set(MetadataChange { schema: Some(schema), ..MetadataChange::default() });
        let operations = self.history.operations.len();
        let changed = self.altered(&change, ids).map_err(|e| self.in_table(e));
        // The history has the step, not its schema change.
        self.history.operations.truncate(operations);
        match changed {
            Ok(()) => Ok(before),
            Err(error) => {
                self.restore_metadata(before);
                Err(error)
            }
        }
    }

    /// How to read all columns of the table, including changes of this transaction, from files of the base and from new ones.
    ///
    /// # Errors
    /// Those of [`read_spec`].
    pub(crate) fn rows_spec(&mut self, snapshot: &Snapshot) -> Result<ReadSpec> {
        let spec = read_spec(snapshot, None)?;
        if self.table.metadata.is_none() {
            return Ok(spec);
        }
        let shape = self.shape_after()?;
        let columns = shape.schema.fields.iter().map(|field| field.name.clone()).collect();
        Ok(ReadSpec::new(&shape, columns))
    }

    /// Marks rows of a file of the base as deleted; the file stays.
    pub(crate) fn mark(&mut self, marked: MarkedFile) {
        self.files.rows.marked.mark(marked);
    }

    /// Removes files of the base.
    ///
    /// # Errors
    /// `Internal` if they cannot be serialised (cannot happen).
    pub(crate) fn remove_files(&mut self, removes: Actions) -> Result<()> {
        self.files.removed.append(removes)?;
        let removed = &self.files.removed;
        self.files.rows.marked.retain(|path| !removed.removes(path));
        Ok(())
    }

    /// Adds to the read set.
    pub(crate) fn has_read(&mut self, read: ReadSet) {
        self.read.extend(read);
    }

    /// Adds files with rows of the base, some of them updated.
    pub(crate) fn add_rewritten(&mut self, (files, syncing): (Vec<DataFile>, Syncing)) {
        self.files.added.extend_rewritten(files);
        self.files.syncing.extend(syncing);
    }

    /// Adds change files. `recorded_rows`: the rows of files of the base that they cover, by path; none for all rows.
    pub(crate) fn add_change_files(
        &mut self,
        (files, syncing): (Vec<DataFile>, Syncing),
        recorded_rows: impl IntoIterator<Item = (String, Option<DeletionVector>)>,
    ) {
        self.files.rows.change_files.extend(files.into_iter().map(|file| Cdc {
            path: file.add.path,
            partition_values: file.add.partition_values,
            size: file.add.size,
            data_change: false,
            tags: None,
        }));
        self.files.syncing.extend(syncing);
        recorded_rows.into_iter().for_each(|(path, rows)| self.files.rows.add_recorded_rows(&path, rows));
    }

    /// The rows of a file of the base that the transaction has marked as deleted.
    pub(crate) fn marked_rows(&self, path: &str) -> DeletionVector {
        self.files.rows.marked.get(path).map(|marked| marked.rows.clone()).unwrap_or_default()
    }

    /// Changes the counts of the row steps.
    pub(crate) fn count_rows(&mut self, count: impl FnOnce(&mut RowCounts)) {
        count(self.files.rows.counts());
    }

    /// Whether deleted rows are marked in deletion vectors rather than files rewritten (`delta.enableDeletionVectors`).
    ///
    /// # Errors
    /// `Corrupt` if the property cannot be read.
    pub(crate) fn writes_deletion_vectors(&self) -> Result<bool> {
        let (protocol, metadata) = self.protocol_and_metadata()?;
        let may_mark =
            feature::supported(protocol).contains("deletionVectors") && !self.files.rows.without_deletion_vectors;
        Ok(may_mark && Properties::of(metadata).deletion_vectors()?)
    }

    /// Rewrites files rather than write deletion vectors, whatever the table's properties say: no deleted row stays in a
    /// live file.
    pub(crate) fn disable_deletion_vectors(&mut self) {
        self.files.rows.without_deletion_vectors = true;
    }

    /// Whether the table has a change data feed (`delta.enableChangeDataFeed`).
    ///
    /// # Errors
    /// `Corrupt` if the property cannot be read.
    pub(crate) fn has_change_data_feed(&self) -> Result<bool> {
        let (protocol, metadata) = self.protocol_and_metadata()?;
        Ok(feature::supported(protocol).contains("changeDataFeed") && Properties::of(metadata).change_data_feed()?)
    }

    /// The columns by which rows keep their ids, if the table tracks rows.
    ///
    /// # Errors
    /// `Corrupt` if the table tracks rows and does not name these columns.
    pub(crate) fn tracks_rows(&self) -> Result<Option<RowTracking>> {
        let (protocol, metadata) = self.protocol_and_metadata()?;
        let tracking = Properties::of(metadata).row_tracking(protocol)?;
        if let Some(RowTracking { row_id_column: None, .. } | RowTracking { row_commit_version_column: None, .. }) =
            &tracking
        {
            return Err(self.in_table(Error::corrupt(
                "row tracking: the properties `delta.rowTracking.materializedRowIdColumnName` and \
                 `…RowCommitVersionColumnName` are missing",
            )));
        }
        Ok(tracking)
    }

    /// How to write files with rows of the base.
    ///
    /// # Errors
    /// `Corrupt` for a property that cannot be read.
    pub(crate) fn rewrite_spec(&mut self, kind: FileKind) -> Result<WriteSpec> {
        let shape = self.shape_after()?;
        let mut spec = WriteSpec { kind, ..self.file_spec(&shape)? };
        // Change files do not have the partition columns.
        spec.materializes_partition_columns &= kind == FileKind::Data;
        Ok(spec)
    }

    /// Where this commit's deletion vectors are stored.
    pub(super) fn vector_store(&mut self) -> Result<TableVectors> {
        let prefix_length = match self.files.rows.marked.is_empty() {
            true => None,
            false => self.rewrite_spec(FileKind::Data)?.random_prefix_length,
        };
        Ok(TableVectors::new(self.log.storage().clone(), prefix_length))
    }
}
