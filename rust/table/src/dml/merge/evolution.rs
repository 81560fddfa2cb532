//! The schema change of a merge: columns that it adds, and types that it widens. It is rolled back if the merge fails.
//!
//! Invariant: a merge that fails, panics or is interrupted leaves the transaction's metadata as it was
//! (`dml::a_merge_that_is_interrupted_adds_no_columns`).

use std::ops::{Deref, DerefMut};

use arrow_schema::{FieldRef, Fields, SchemaRef};
use deltic_protocol::row_merge::Sides;
use deltic_protocol::schema::StructType;
use deltic_protocol::schema::arrow::check_new_geometries;

use super::clauses::evolved;
use super::request::{MergeRequest, sides_of};
use crate::error::Result;
use crate::snapshot::Snapshot;
use crate::transaction::builder::{Ids, SavedMetadata, Transaction};

/// A transaction with the schema change of a merge, which is rolled back on drop unless it is kept.
pub(crate) struct EvolvedTransaction<'a> {
    transaction: &'a mut Transaction,
    /// The metadata without these columns; none if the merge changes no column.
    before: Option<SavedMetadata>,
}

impl<'a> EvolvedTransaction<'a> {
    /// For a transaction that already has the columns. `before`: its metadata without them.
    pub(crate) fn resume(transaction: &'a mut Transaction, before: Option<SavedMetadata>) -> Self {
        Self { transaction, before }
    }

    /// Keeps the columns. Returns the metadata without them, for [`EvolvedTransaction::resume`].
    pub(crate) fn keep(mut self) -> Option<SavedMetadata> {
        self.before.take()
    }
}

impl Deref for EvolvedTransaction<'_> {
    type Target = Transaction;

    fn deref(&self) -> &Transaction {
        self.transaction
    }
}

impl DerefMut for EvolvedTransaction<'_> {
    fn deref_mut(&mut self) -> &mut Transaction {
        self.transaction
    }
}

impl Drop for EvolvedTransaction<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            self.transaction.restore_metadata(before);
        }
    }
}

impl Transaction {
    /// The two sides of a merge, and this transaction with the columns that the merge adds or widens.
    pub(crate) fn evolve_columns(
        &mut self,
        snapshot: &Snapshot,
        schema: &SchemaRef,
        request: &MergeRequest,
        ids: &dyn Ids,
    ) -> Result<(Sides, EvolvedTransaction<'_>)> {
        let sides = sides_of(StructType::clone(&snapshot.shape().schema), schema, request)?;
        let evolved = match request.evolves {
            true => evolved(&request.clauses, &sides, self.widens_types()?),
            false => None,
        };
        if let Some(evolved) = &evolved {
            let is_kept = |field: &&FieldRef| evolved.field(field.name()).is_some();
            let kept: Fields = schema.fields().iter().filter(is_kept).cloned().collect();
            check_new_geometries(&kept, &snapshot.shape().schema)?;
        }
        let before = evolved.map(|schema| self.set_step_schema(schema, ids)).transpose()?;
        Ok((sides, EvolvedTransaction::resume(self, before)))
    }
}
