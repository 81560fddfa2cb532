//! Numbers rows: computes the identity columns that the data does not have.
//!
//! A single writer counts one by one. If several tasks write for one transaction, they interleave:
//! task `t` assigns every [`TASKS`]th number, from the `t`th on, so that no two tasks assign the same. The last
//! assigned number is returned with the files, and the commit sets the column's high watermark to it.
//!
//! Invariant: the numbers of one transaction are distinct, and beyond the high watermark at the time of the plan
//! (`tests/python/test_identity.py`). Two transactions cannot assign the same: both change the metadata, which is a conflict.
//!
//! PROTOCOL.md: "Identity Columns".

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Fields, Schema};
use deltic_protocol::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// How many tasks may write for one transaction.
pub const TASKS: u32 = 1 << 16;

/// How one column is numbered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Numbering {
    /// The logical name of the column.
    pub column: String,
    /// The first number.
    pub first: i64,
    /// The difference between a number and the next.
    pub step: i64,
    /// Whether the data may have the column.
    pub allows_explicit: bool,
}

impl Numbering {
    /// The numbering of one task.
    ///
    /// # Errors
    /// `Invalid` if the index of the task is not below [`TASKS`], or the column has no numbers left for it.
    pub fn of_task(&self, task: u32) -> Result<Self> {
        if task >= TASKS {
            let message =
                format!("task {task} cannot number rows: {TASKS} tasks can at most; repartition the rows to fewer");
            return Err(Error::invalid(message));
        }
        let step = self.step.checked_mul(i64::from(TASKS));
        let first = self.step.checked_mul(i64::from(task)).and_then(|by| self.first.checked_add(by));
        match first.zip(step) {
            Some((first, step)) => Ok(Self { first, step, ..self.clone() }),
            None => Err(exhausted(&self.column)),
        }
    }

    /// Continues after the last number of an earlier writer of the same commit.
    ///
    /// # Errors
    /// `Invalid` if the column has no number left.
    pub fn go_on_after(&mut self, last: i64) -> Result<()> {
        self.first = last.checked_add(self.step).ok_or_else(|| exhausted(&self.column))?;
        Ok(())
    }
}

/// The error of a column that has no number left.
pub fn exhausted(column: &str) -> Error {
    Error::invalid(format!(
        "the identity column `{column}` has no number left: the next would be out of the range of a long"
    ))
}

/// Numbers the rows of one writer.
#[derive(Debug)]
pub struct Identities {
    columns: Vec<Numbering>,
    /// The last assigned number of each column.
    last: BTreeMap<String, i64>,
}

impl Identities {
    /// Numbers these columns.
    pub fn new(columns: Vec<Numbering>) -> Self {
        Self { columns, last: BTreeMap::new() }
    }

    /// The last assigned number of each column that has one.
    pub fn last(&self) -> &BTreeMap<String, i64> {
        &self.last
    }

    /// Refuses data with a column that only the table may fill.
    ///
    /// # Errors
    /// `Invalid`, naming the column.
    pub fn check(&self, fields: &Fields) -> Result<()> {
        match self.columns.iter().find(|column| !column.allows_explicit && is_given(&column.column, fields)) {
            None => Ok(()),
            Some(column) => Err(Error::invalid(format!(
                "the column `{}` is GENERATED ALWAYS AS IDENTITY, so the table numbers its rows; drop it from the data",
                column.column
            ))),
        }
    }

    /// Adds the numbered columns to rows; columns that the data has are kept.
    ///
    /// # Errors
    /// `Invalid` as [`Identities::check`], and if there are not enough numbers.
    pub fn fill(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        if self.columns.is_empty() {
            return Ok(batch);
        }
        let schema = batch.schema();
        self.check(schema.fields())?;
        let mut fields = schema.fields().to_vec();
        let mut columns = batch.columns().to_vec();
        for numbering in self.columns.iter().filter(|column| !is_given(&column.column, schema.fields())) {
            let name = &numbering.column;
            let rows = i64::try_from(batch.num_rows()).map_err(|_| exhausted(name))?;
            let first = match self.last.get(name) {
                None => Some(numbering.first),
                Some(last) => last.checked_add(numbering.step),
            };
            let last = |first: i64| (rows - 1).checked_mul(numbering.step).and_then(|by| first.checked_add(by));
            let numbers: ArrayRef = match first.filter(|_| rows > 0).map(|first| (first, last(first))) {
                Some((first, Some(last))) => {
                    self.last.insert(name.clone(), last);
                    // The last number was computed above, so no number before it overflows.
                    Arc::new(Int64Array::from_iter_values(
                        (0..rows).map(|row| first.wrapping_add(row.wrapping_mul(numbering.step))),
                    ))
                }
                None if rows == 0 => Arc::new(Int64Array::new_null(0)),
                Some((_, None)) | None => return Err(exhausted(name)),
            };
            fields.push(Arc::new(Field::new(name, DataType::Int64, false)));
            columns.push(numbers);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let schema = Schema::new_with_metadata(fields, schema.metadata().clone());
        Ok(RecordBatch::try_new_with_options(Arc::new(schema), columns, &options)?)
    }
}

/// Whether the data has the column, by its exact name or with another case.
pub fn is_given(column: &str, fields: &Fields) -> bool {
    let lower = column.to_lowercase();
    fields.iter().any(|field| field.name() == column || field.name().to_lowercase() == lower)
}
