//! What an executor needs to read files of a snapshot: plain data with a versioned byte form.

use std::collections::BTreeMap;

use deltic_protocol::action::DeletionVectorDescriptor;
use serde::{Deserialize, Serialize};

/// One file to read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileTask {
    /// As in the log: percent-encoded, relative to the table's root or absolute.
    pub path: String,
    /// Bytes, as the log says; spares a request for the length.
    pub size: u64,
    /// Text forms by physical column name; `None` is null.
    pub partition_values: BTreeMap<String, Option<String>>,
    /// Rows to leave out.
    pub deletion_vector: Option<DeletionVectorDescriptor>,
    /// Rows in the file before deletion, when the statistics say.
    pub num_records: Option<i64>,
    /// First row id (feature `rowTracking`).
    pub base_row_id: Option<i64>,
    /// Version that added the rows (feature `rowTracking`).
    pub default_row_commit_version: Option<i64>,
}

/// What all tasks of one scan share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReadSpec {
    /// The table's whole logical schema, as a `schemaString`.
    pub schema_string: String,
    /// Logical names of the partition columns.
    pub partition_columns: Vec<String>,
    /// Value of `delta.columnMapping.mode`: none, name or id.
    pub column_mapping: String,
    /// Logical names of the top-level columns to return, in order.
    pub columns: Vec<String>,
    /// Text of the predicate that rows must make TRUE, if any.
    pub predicate: Option<String>,
}
