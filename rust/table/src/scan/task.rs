//! What a process needs to read files of a snapshot, as plain data with a byte form.
//!
//! Tasks are sent to other processes as a [`TaskGroup`]. Proved by `read::task_groups_have_a_byte_form`.

use std::collections::BTreeMap;

use deltic_protocol::action::{Add, DeletionVectorDescriptor};
use deltic_protocol::error::Result;
use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::property::RowTracking;
use deltic_protocol::schema::TableSchema;
use serde::{Deserialize, Serialize};

use super::filter::ScanFilter;
use crate::envelope::{pack, unpack};

/// The column of change data files with the kind of change. It is not part of the
/// table's schema, so that it has no field id and no physical name.
pub const CHANGE_TYPE: &str = "_change_type";

/// Files to read together, with all that is needed to read them except access to the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskGroup {
    /// What the tasks have in common.
    pub spec: ReadSpec,
    /// The files, in the order in which their rows are returned.
    pub tasks: Vec<FileTask>,
}

impl TaskGroup {
    /// The byte form.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        pack("task group", self)
    }

    /// Reads what [`TaskGroup::to_bytes`] wrote.
    ///
    /// # Errors
    /// `Invalid` if the bytes are something else, or of another release of deltic.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        unpack("task group", bytes)
    }
}

/// One file to read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FileTask {
    /// The path as in the log: percent-encoded, relative to the table's root or absolute.
    pub path: String,
    /// The size in bytes by the log, which saves a request for it.
    pub size: u64,
    /// Text forms of the partition values by physical column name; `None` means null.
    pub partition_values: BTreeMap<String, Option<String>>,
    /// Rows to leave out.
    pub deletion_vector: Option<DeletionVectorDescriptor>,
    /// If given, the only rows to read, apart from those of `deletion_vector`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_rows: Option<DeletionVectorDescriptor>,
    /// Columns that are not in the file and have one value in all its rows: string forms by logical name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub constants: BTreeMap<String, String>,
    /// Rows in the Parquet file, deleted ones included, if the statistics have the number.
    pub num_records: Option<i64>,
    /// First row id (feature `rowTracking`).
    pub base_row_id: Option<i64>,
    /// Version that added the rows (feature `rowTracking`).
    pub default_row_commit_version: Option<i64>,
}

/// The task that reads a file.
pub(crate) fn task_of(add: &Add) -> FileTask {
    FileTask {
        path: add.path.clone(),
        size: u64::try_from(add.size).unwrap_or_default(),
        partition_values: add.partition_values.clone(),
        deletion_vector: add.deletion_vector.clone(),
        base_row_id: add.base_row_id,
        default_row_commit_version: add.default_row_commit_version,
        ..FileTask::default()
    }
}

/// What all tasks of one scan have in common.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReadSpec {
    /// The table's whole logical schema.
    pub schema: TableSchema,
    /// Logical names of the partition columns.
    pub partition_columns: Vec<String>,
    /// Value of `delta.columnMapping.mode`: none, name or id.
    pub column_mapping: String,
    /// Logical names of the top-level columns to return, in order.
    pub columns: Vec<String>,
    /// The condition that must be TRUE for rows, if there is one.
    pub filter: Option<ScanFilter>,
    /// What is needed for the columns of [`row_tracking`](super::row_tracking), if any are requested.
    pub row_tracking: Option<RowTracking>,
    /// Whether rows may lack row ids and versions, which are null then: rows of files that are not committed yet.
    #[serde(default)]
    pub may_lack_row_ids: bool,
}

impl ReadSpec {
    /// Reads these columns of all rows, without columns of row tracking.
    pub fn new(shape: &TableShape, columns: Vec<String>) -> Self {
        Self {
            schema: shape.schema.clone(),
            partition_columns: shape.partition_columns.clone(),
            column_mapping: shape.mapping.as_str().to_owned(),
            columns,
            filter: None,
            row_tracking: None,
            may_lack_row_ids: false,
        }
    }
}
