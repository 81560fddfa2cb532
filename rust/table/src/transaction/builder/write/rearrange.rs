//! Rearranging writes (OPTIMIZE, REORG): rows of the base move to other files, and no row is added, deleted or updated.
//!
//! The read set is the removed files: a winner that adds files is no conflict, one that deletes rows of a removed file is.
//! After a conflict the new files stay, and the caller retries with those whose source files are unchanged.
//!
//! Proved by `tests/rust/table/optimize.rs`.
//!
//! PROTOCOL.md: "Add File and Remove File" (`dataChange`).

use deltic_protocol::action::{Action, Add, Remove};
use deltic_protocol::commit::{Actions, ReadSet};
use deltic_protocol::replay::paths::PathSet;
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::transaction::builder::Transaction;
use crate::write::plan::{DataFile, FileKind, WriteSpec};
use deltic_store::Syncing;

impl Transaction {
    /// How files are written with existing rows of which none changes.
    ///
    /// # Errors
    /// `Corrupt` for a property that cannot be read.
    pub(crate) fn rearrange_spec(&mut self) -> Result<WriteSpec> {
        Ok(WriteSpec { rearrange_only: true, ..self.rewrite_spec(FileKind::Data)? })
    }

    /// Replaces files of the base by durable files with the same rows. `metrics`: those of the commit.
    ///
    /// # Errors
    /// `Internal` if one of the files changes data, or an action cannot be serialised (cannot happen).
    pub(crate) fn rearrange(
        &mut self,
        gone: impl Iterator<Item = Add>,
        files: Vec<DataFile>,
        metrics: Map<String, Value>,
        now_ms: i64,
    ) -> Result<()> {
        if let Some(file) = files.iter().find(|file| file.add.data_change) {
            return Err(Error::internal("a file that changes data takes no other's place").in_file(&file.add.path));
        }
        let (mut removes, mut read) = (Actions::new(), PathSet::default());
        for add in gone {
            read.insert(&add.path);
            removes.push(Action::Remove(Remove { data_change: false, ..add.removed(now_ms) }))?;
        }
        self.remove_files(removes)?;
        self.has_read(ReadSet::Files(read));
        self.add_rewritten((files, Syncing::default()));
        self.files.optimize_metrics = Some(metrics);
        Ok(())
    }
}
