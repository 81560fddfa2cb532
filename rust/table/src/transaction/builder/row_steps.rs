//! Steps on rows: taking some out of files of the base that stay, and recording what changed.
//!
//! Nothing here decides which rows change; what does stands above (`dml`). Rows that are marked are gone for every later
//! step. With the commit one file holds the deletion vectors of all files, each united with what the file's own vector
//! deletes.
//!
//! Proved by `tests/rust/table/dml.rs`, above all `vectors_are_united`.
//!
//! PROTOCOL.md: "Deletion Vectors", "Writer Requirement for Deletion Vectors".

use std::collections::HashMap;

use deltic_protocol::action::Cdc;
use deltic_protocol::alter::MetadataChange;
use deltic_protocol::commit::{Actions, MarkedFile, ReadSet};
use deltic_protocol::deletion_vector::DeletionVector;
use deltic_protocol::feature;
use deltic_protocol::property::{Properties, RowTracking};
use deltic_protocol::schema::StructType;

use super::rows::Unsettled;
use super::{Ids, Own, Transaction};
use crate::error::{Error, Result};
use crate::scan::plan::read_spec;
use crate::scan::task::{FileTask, ReadSpec};
use crate::snapshot::Snapshot;
use crate::transaction::TableVectors;
use crate::transaction::row_counts::RowCounts;
use crate::write::plan::{DataFile, FileKind, WriteSpec};
use deltic_store::Syncing;

impl Transaction {
    /// A file of the base as the transaction sees it; none if it is gone.
    ///
    /// # Errors
    /// `Invalid` if more rows of it are gone than can be said.
    pub(crate) fn seen(&self, mut task: FileTask) -> Result<Option<FileTask>> {
        if self.is_removed(&task.path) {
            return Ok(None);
        }
        if let Some(marked) = self.rows.marked.get(&task.path) {
            task.deletion_vector = Some(marked.united().to_inline()?);
        }
        Ok(Some(task))
    }

    /// What the transaction's own files hold, by path.
    pub(crate) fn own(&self) -> HashMap<&str, Own> {
        self.added.own_by_path()
    }

    /// Takes a step that replaces rows, if there is one to take: `None` from then on. The columns are those of the base until
    /// [`Transaction::resettle`].
    pub(crate) fn take_replaced(&mut self) -> Option<(String, Unsettled)> {
        let filter = self.replaces.take()?;
        (self.shape, self.planned) = (None, None);
        Some((filter, Unsettled(self.protocol.take(), self.metadata.take())))
    }

    /// Gives the table the columns again that the write has settled.
    pub(crate) fn resettle(&mut self, Unsettled(protocol, metadata): Unsettled) {
        (self.protocol, self.metadata) = (protocol, metadata);
        (self.shape, self.planned) = (None, None);
    }

    /// Gives the table other columns, which a step brings; what it had until then, for [`Transaction::resettle`].
    ///
    /// # Errors
    /// Those of [`Transaction::set_metadata`].
    pub(crate) fn settle(&mut self, schema: StructType, ids: &dyn Ids) -> Result<Unsettled> {
        let before = Unsettled(self.protocol.clone(), self.metadata.clone());
        let change = MetadataChange { schema: Some(schema), ..MetadataChange::default() };
        let told = self.told.len();
        let settled = self.set_metadata(change, ids);
        // The step itself is told of.
        self.told.truncate(told);
        match settled {
            Ok(()) => Ok(before),
            Err(error) => {
                self.resettle(before);
                Err(error)
            }
        }
    }

    /// How all columns of the table as it will be are read from files of the base, and from new ones.
    ///
    /// # Errors
    /// Those of [`read_spec`].
    pub(crate) fn rows_spec(&mut self, snapshot: &Snapshot) -> Result<ReadSpec> {
        let spec = read_spec(snapshot, None)?;
        if self.metadata.is_none() {
            return Ok(spec);
        }
        let shape = self.shape_after()?;
        Ok(ReadSpec {
            columns: shape.schema.fields.iter().map(|field| field.name.clone()).collect(),
            schema: shape.schema.clone(),
            partition_columns: shape.partition_columns.clone(),
            column_mapping: shape.mapping.as_str().to_owned(),
            ..spec
        })
    }

    /// Takes rows out of a file of the base, which stays.
    pub(crate) fn mark(&mut self, marked: MarkedFile) {
        self.rows.marked.mark(marked);
    }

    /// Takes whole files of the base out of the table.
    ///
    /// # Errors
    /// `Internal` if they cannot be printed, which the types rule out.
    pub(crate) fn remove_files(&mut self, removes: Actions) -> Result<()> {
        self.removed.append(removes)?;
        let removed = &self.removed;
        self.rows.marked.retain(|path| !removed.removes(path));
        Ok(())
    }

    /// Adds what was read to the read set.
    pub(crate) fn has_read(&mut self, read: ReadSet) {
        self.read.extend(read);
    }

    /// Adds files with rows of the base, some of them changed.
    pub(crate) fn add_rewritten(&mut self, (files, syncing): (Vec<DataFile>, Syncing)) {
        self.added.extend_rewritten(files);
        self.syncing.extend(syncing);
    }

    /// Adds change files. `spoken_of`: the files of the base whose rows they are of, and for each which ones, or all.
    pub(crate) fn record(
        &mut self,
        (files, syncing): (Vec<DataFile>, Syncing),
        spoken_of: impl IntoIterator<Item = (String, Option<DeletionVector>)>,
    ) {
        self.rows.recorded.extend(files.into_iter().map(|file| Cdc {
            path: file.add.path,
            partition_values: file.add.partition_values,
            size: file.add.size,
            data_change: false,
            tags: None,
        }));
        self.syncing.extend(syncing);
        spoken_of.into_iter().for_each(|(path, rows)| self.rows.speak_of(&path, rows));
    }

    /// The rows of a file of the base that steps took out of it, while it stays.
    pub(crate) fn marked_rows(&self, path: &str) -> DeletionVector {
        self.rows.marked.get(path).map(|marked| marked.rows.clone()).unwrap_or_default()
    }

    /// Counts what a step did.
    pub(crate) fn count_rows(&mut self, count: impl FnOnce(&mut RowCounts)) {
        count(self.rows.counts());
    }

    /// Whether rows that go are marked rather than their files rewritten (`delta.enableDeletionVectors`).
    ///
    /// # Errors
    /// `Corrupt` if the property cannot be read.
    pub(crate) fn uses_vectors(&self) -> Result<bool> {
        let (protocol, metadata) = self.after()?;
        let may_mark = feature::supported(protocol).contains("deletionVectors") && !self.rows.copies;
        Ok(may_mark && Properties::of(metadata).deletion_vectors()?)
    }

    /// Has files with rows that go written again, whatever the table's properties say: no row that goes stays in a file.
    pub(crate) fn marks_no_rows(&mut self) {
        self.rows.copies = true;
    }

    /// Whether changes of rows are recorded (`delta.enableChangeDataFeed`).
    ///
    /// # Errors
    /// `Corrupt` if the property cannot be read.
    pub(crate) fn feeds_changes(&self) -> Result<bool> {
        let (protocol, metadata) = self.after()?;
        Ok(feature::supported(protocol).contains("changeDataFeed") && Properties::of(metadata).change_data_feed()?)
    }

    /// The columns by which rows keep their ids, if the table tracks rows.
    ///
    /// # Errors
    /// `Corrupt` if the table tracks rows and does not name these columns.
    pub(crate) fn tracks_rows(&self) -> Result<Option<RowTracking>> {
        let (protocol, metadata) = self.after()?;
        let tracking = Properties::of(metadata).row_tracking(protocol)?;
        if let Some(RowTracking { row_id_column: None, .. } | RowTracking { row_commit_version_column: None, .. }) =
            &tracking
        {
            return Err(self.placed(Error::corrupt(
                "the table tracks rows, and its properties do not name the columns by which rows that move keep their ids \
                 (`delta.rowTracking.materializedRowIdColumnName`, `…RowCommitVersionColumnName`)",
            )));
        }
        Ok(tracking)
    }

    /// How files of rows that the table has are written.
    ///
    /// # Errors
    /// `Corrupt` for a property that cannot be read.
    pub(crate) fn rewrite_spec(&mut self, kind: FileKind) -> Result<WriteSpec> {
        let shape = self.shape_after()?;
        let mut spec = WriteSpec { kind, ..self.file_spec(&shape)? };
        // What is asked of data files is not asked of change files.
        spec.materializes_partition_columns &= kind == FileKind::Data;
        Ok(spec)
    }

    /// Where the commit's deletion vectors go.
    pub(super) fn vectors(&mut self) -> Result<TableVectors> {
        let prefix_length = match self.rows.marked.is_empty() {
            true => None,
            false => self.rewrite_spec(FileKind::Data)?.random_prefix_length,
        };
        Ok(TableVectors::new(self.storage.clone(), prefix_length))
    }
}
