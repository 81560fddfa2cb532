//! What a caller says of a transaction when it begins.

use std::collections::BTreeMap;

use deltic_protocol::schema::StructType;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::after_commit::HandleState;
use crate::snapshot::Snapshot;

/// What a handle knows of its table.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// What its last commit left.
    pub state: Option<HandleState>,
    /// The newest version that it opened.
    pub latest: Option<Snapshot>,
    /// The current time in milliseconds since the epoch.
    pub now_ms: Option<i64>,
}

/// Options of any transaction.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TransactionOptions {
    /// Name of the operation.
    pub operation: String,
    /// Its parameters, as the history shows them.
    pub parameters: Map<String, Value>,
    /// The isolation, instead of the table's.
    pub isolation: Option<String>,
    /// Free text for the commit info.
    pub user_metadata: Option<String>,
    /// The application's id, for transactions that must happen once.
    pub app_id: Option<String>,
    /// The application's own version of this transaction.
    pub app_version: Option<i64>,
    /// Whether to commit even if there is nothing to say.
    pub commit_empty: bool,
}

/// What happens to the rows that are there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// They stay.
    #[default]
    Append,
    /// The new rows take their place.
    Overwrite,
    /// There must be no table yet.
    Error,
}

/// Options of a write of rows; the rest follows from the table.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WriteOptions {
    /// What happens to the rows that are there.
    pub mode: Mode,
    /// Partition columns of a new table; those of one that is there must be the same.
    pub partition_by: Option<Vec<String>>,
    /// Properties of a new table.
    pub properties: BTreeMap<String, String>,
    /// Name of a new table.
    pub name: Option<String>,
    /// Description of a new table.
    pub description: Option<String>,
    /// Bytes at which a data file is closed and another begun.
    pub target_file_size: Option<u64>,
    /// Parquet codec.
    pub compression: Option<String>,
    /// Free text for the commit info.
    pub user_metadata: Option<String>,
    /// The application's id, for writes that must happen once.
    pub app_id: Option<String>,
    /// The application's own version of this write.
    pub app_version: Option<i64>,
}

/// A table to be.
#[derive(Debug, Clone)]
pub struct TableDefinition {
    /// Its schema.
    pub schema: StructType,
    /// Columns of it, in order.
    pub partition_by: Vec<String>,
    /// Table properties.
    pub properties: BTreeMap<String, String>,
    /// Name for people.
    pub name: Option<String>,
    /// Description for people.
    pub description: Option<String>,
}

/// What identifies a new table and a new transaction; passed in, since neither may come from hidden randomness.
pub trait Ids: Send + Sync {
    /// A new unique id.
    fn unique(&self) -> String;
}
