//! Overwrites: new rows replace all rows, or those of the partitions that they belong to (dynamic partition overwrite).
//!
//! Which files are removed is known once all rows are written, so they are removed when the transaction is complete. The
//! read set is the removed files and those partitions: a winner that adds files to one of them is a conflict, one that adds
//! to another partition is none.
//!
//! Proved by `tests/rust/table/builder/overwrite.rs`.
//!
//! PROTOCOL.md: "Add File and Remove File", "Append-only Tables".

use std::collections::BTreeSet;

use deltic_protocol::action::{Action, PartitionValues, Remove};
use deltic_protocol::commit::{Actions, PredicatesRead, ReadSet};
use deltic_protocol::log_bounds::{LogBounds, TableShape};
use deltic_protocol::predicate::BoundPredicate;
use deltic_protocol::property::Properties;
use deltic_protocol::prune;
use deltic_protocol::replay::paths::PathSet;
use deltic_protocol::schema::collation::check_compared;
use futures::TryStreamExt;

use crate::error::{Error, Result};
use crate::scan::plan::files_in_partitions::in_partitions;
use crate::snapshot::Snapshot;
use crate::transaction::builder::Transaction;
use crate::transaction::builder::options::Overwrites;
use crate::transaction::builder::whole_files::remove_columns;

impl Transaction {
    /// Removes all files of the table.
    ///
    /// # Errors
    /// `Invalid` if the table is append-only.
    pub fn overwrite(&mut self) -> Result<()> {
        self.check_replaceable()?;
        self.read.extend(ReadSet::AllRows);
        self.discard(|_| true);
        self.files.rows.marked.retain(|_| false);
        self.write.overwrites = Overwrites::Table;
        Ok(())
    }

    /// Removes the files of the partitions that have new rows; all files of a table without partitions.
    ///
    /// # Errors
    /// `Invalid` if the table is append-only; `Unsupported` if a partition column has a collation.
    pub fn overwrite_partitions(&mut self) -> Result<()> {
        let shape = self.shape_after()?;
        if shape.partition_columns.is_empty() {
            return self.overwrite();
        }
        for name in &shape.partition_columns {
            check_compared(&shape.schema, std::slice::from_ref(name)).map_err(|e| self.in_table(e))?;
        }
        self.check_replaceable()?;
        self.write.overwrites = Overwrites::Partitions;
        Ok(())
    }

    pub(super) fn check_replaceable(&self) -> Result<()> {
        if Properties::of(self.protocol_and_metadata()?.1).append_only()? {
            let message = "the table is append-only (`delta.appendOnly`), so its rows cannot be replaced";
            return Err(self.in_table(Error::invalid(message)));
        }
        self.refuse_after_external_files("remove files")?;
        self.refuse_after_change_files()
    }

    /// Removes the files that are overwritten.
    pub(in super::super) async fn remove_overwritten(&mut self, now_ms: i64) -> Result<()> {
        let Some(base) = self.base.state.as_ref().filter(|_| self.write.overwrites != Overwrites::Nothing) else {
            return Ok(());
        };
        let snapshot = match &self.base.snapshot {
            Some(snapshot) => snapshot.clone(),
            None => Snapshot::open(&self.log, Some(base.state.version)).await?,
        };
        let shape = snapshot.shape().clone();
        let partitions = match self.write.overwrites {
            Overwrites::Nothing | Overwrites::Table => None,
            Overwrites::Partitions => Some(self.written_partitions(&shape)?),
        };
        let (data_change, mut removes, mut files) = (!self.write.rearrange_only, Actions::new(), PathSet::default());
        let mut live = std::pin::pin!(snapshot.live_files(&remove_columns(Vec::new())).await?);
        while let Some(adds) = live.try_next().await? {
            let adds = match &partitions {
                None => adds,
                Some(predicate) => {
                    let bounds = LogBounds::of_partitions(&adds, &shape, &predicate.columns())?;
                    // Partition values are exact, so this keeps exactly the files in the partitions.
                    adds.filter(prune::keep(predicate, &bounds)?)?
                }
            };
            for (row, path) in adds.path().iter().flatten().enumerate() {
                if !self.files.removed.removes(path) {
                    let remove = Remove { data_change, ..adds.add(row)?.removed(now_ms) };
                    removes.push(Action::Remove(remove))?;
                    files.insert(path);
                }
            }
        }
        self.remove_files(removes)?;
        if let Some(predicate) = partitions {
            self.read.extend(ReadSet::Predicates(PredicatesRead::new(shape, predicate, files)));
        }
        Ok(())
    }

    /// A predicate that is TRUE in the partitions that have new rows.
    fn written_partitions(&self, shape: &TableShape) -> Result<BoundPredicate> {
        let mut partitions: BTreeSet<PartitionValues> = BTreeSet::new();
        self.files.added.each_new(|add| {
            partitions.insert(add.partition_values.clone());
            Ok(())
        })?;
        in_partitions(shape, &partitions)
    }
}
