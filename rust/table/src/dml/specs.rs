//! How the rows of changed files are read and written, as plain data that other processes can use too.

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::rewrite::Copying;
use crate::scan::task::ReadSpec;
use crate::snapshot::Snapshot;
use crate::transaction::builder::Transaction;
use crate::write::plan::{FileKind, WriteSpec};
use deltic_store::Storage;

/// How rows are read and written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WriteSpecs {
    /// Reads all columns of the table.
    pub(super) rows: ReadSpec,
    /// Reads rows of the base, with their ids if the table tracks rows.
    read: ReadSpec,
    /// Writes those rows.
    write: WriteSpec,
    /// Writes rows that the transaction itself has added, when their files are rewritten.
    new: WriteSpec,
    /// Writes change files, if the table has a change data feed.
    pub(super) changes: Option<WriteSpec>,
}

impl WriteSpecs {
    /// The specs for the table as the transaction has changed it.
    ///
    /// # Errors
    /// `Corrupt` for properties that cannot be read; `Unsupported` for a table with a column named like one that is
    /// needed besides its own.
    pub(super) fn of(tx: &mut Transaction, snapshot: &Snapshot) -> Result<Self> {
        let (rows, new) = (tx.rows_spec(snapshot)?, tx.rewrite_spec(FileKind::Data)?);
        let Copying { read, write, .. } = Copying::new(snapshot, (rows.clone(), new.clone()), tx.tracks_rows()?)?;
        let changes = match tx.has_change_data_feed()? {
            true => Some(tx.rewrite_spec(FileKind::Change)?),
            false => None,
        };
        Ok(Self { rows, read, write, new, changes })
    }

    /// The same, with this half of the id in the names of the files.
    #[must_use]
    pub(super) fn with_ids(mut self, id_prefix: Option<u64>) -> Self {
        for spec in [&mut self.write, &mut self.new].into_iter().chain(&mut self.changes) {
            spec.id_prefix = id_prefix;
        }
        self
    }

    /// Copies rows of the base.
    ///
    /// # Errors
    /// As [`Copying::of_specs`].
    pub(super) fn copying(&self, storage: &Storage) -> Result<Copying> {
        Copying::of_specs(storage, self.read.clone(), self.write.clone())
    }

    /// Copies rows that are new, and have no ids yet.
    ///
    /// # Errors
    /// As [`Copying::of_specs`].
    pub(super) fn copying_new(&self, storage: &Storage) -> Result<Copying> {
        let read = ReadSpec { may_lack_row_ids: true, ..self.rows.clone() };
        Copying::of_specs(storage, read, self.new.clone())
    }
}
