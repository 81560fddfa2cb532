//! The rows that a merge inserts, computed and written by the processes that have the rows of its source.
//!
//! Proved by `tests/spark/test_divided_source.py`.

use arrow_array::{Array, Int64Array, RecordBatch};
use arrow_schema::SchemaRef;
use deltic_protocol::deletion_vector::DeletionVector;
use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::schema::TableSchema;
use serde::{Deserialize, Serialize};

use super::result::{InlineDeletionVector, from_vector, to_vector};
use crate::dml::merge::{Inserter, MergeRequest, MergedTable, of_source_row};
use crate::envelope::{pack, unpack};
use crate::error::{Error, Result};
use crate::write::rules::WriteRules;

/// The kind of these bytes, in their envelope.
const INSERTS: &str = "description of inserted rows";

/// What processes need to compute the rows that a merge inserts, except the merge itself.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InsertSpec {
    /// The columns of the table before the merge.
    pub(super) before: TableSchema,
    /// Those after it.
    pub(super) after: TableSchema,
    pub(super) partition_columns: Vec<String>,
    pub(super) rules: WriteRules,
    /// The numbers of the rows of the source that match.
    pub(super) matched: InlineDeletionVector,
}

impl InsertSpec {
    pub(super) fn new(
        before: &TableSchema,
        after: &TableShape,
        rules: &WriteRules,
        matched: &DeletionVector,
    ) -> Result<Self> {
        Ok(Self {
            before: before.clone(),
            after: after.schema.clone(),
            partition_columns: after.partition_columns.clone(),
            rules: rules.clone(),
            matched: to_vector(matched)?,
        })
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>> {
        pack(INSERTS, self)
    }
}

/// Computes the rows that a merge inserts, from rows of its source.
#[derive(Debug)]
pub struct MergeInserter {
    inserter: Inserter,
    matched: DeletionVector,
}

impl MergeInserter {
    /// `spec`: what [`DistributedRowChange::inserts`](super::DistributedRowChange::inserts) returned. `source`: the columns
    /// of the source. `group`: which of the schemas of inserted rows is computed.
    ///
    /// # Errors
    /// `Invalid` if the bytes are something else, of another release of deltic, or of another merge.
    pub fn new(spec: &[u8], source: SchemaRef, request: MergeRequest, group: usize) -> Result<Self> {
        let InsertSpec { before, after, partition_columns, rules, matched } = unpack(INSERTS, spec)?;
        let table = MergedTable { before: &before, after: &after, partition_columns: &partition_columns };
        let inserter = Inserter::new(table, &rules, source, request, group)?;
        Ok(Self { inserter, matched: from_vector(matched.as_ref())? })
    }

    /// The schema of the inserted rows.
    pub fn schema(&self) -> &SchemaRef {
        self.inserter.schema()
    }

    /// The inserted ones of some rows of the source, which have these numbers, batch by batch.
    ///
    /// # Errors
    /// `Invalid` for values that do not fit.
    pub fn rows(
        &self,
        rows: &RecordBatch,
        numbers: &Int64Array,
    ) -> Result<impl Iterator<Item = Result<RecordBatch>> + use<>> {
        if numbers.len() != rows.num_rows() || numbers.null_count() > 0 {
            return Err(Error::invalid("rows of a source came without their numbers"));
        }
        let matched: Vec<bool> =
            numbers.values().iter().map(|row| self.matched.contains(row.cast_unsigned())).collect();
        let rows = self.inserter.rows(rows, &matched).map_err(|e| of_source_row(&e))?;
        Ok(rows.map(|rows| rows.map_err(|e| of_source_row(&e))))
    }
}
