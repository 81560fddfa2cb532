//! Options of transactions and writes.

use std::collections::BTreeMap;

use arrow_schema::Schema;
use deltic_protocol::schema::StructType;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::post_commit::HandleState;
use crate::snapshot::Snapshot;
use crate::write::options::FileOptions;
use crate::write::plan::WritePlan;

/// What a handle remembers of its table.
#[derive(Debug, Clone, Default)]
pub struct HandleCache {
    /// The state after its last commit.
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
    /// Its parameters for the history.
    pub parameters: Map<String, Value>,
    /// The isolation, instead of the table's.
    pub isolation: Option<String>,
    /// Free text for the commit info.
    pub user_metadata: Option<String>,
    /// Other members for the commit info, with names that it does not use.
    pub commit_info: Map<String, Value>,
    /// The application's id, for transactions that must be committed only once.
    pub app_id: Option<String>,
    /// The application's own version of this transaction.
    pub app_version: Option<i64>,
    /// Operation metrics besides those of its steps.
    #[serde(skip)]
    pub metrics: Map<String, Value>,
    /// Whether to commit even if nothing has changed.
    pub commit_empty: bool,
}

/// What happens to the existing rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// They are kept.
    #[default]
    Append,
    /// The new rows replace them.
    Overwrite,
    /// There must be no table yet.
    Error,
    /// If there is a table already, nothing is done.
    Ignore,
}

impl Mode {
    /// Its name in the operation parameters.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Append => "Append",
            Self::Overwrite => "Overwrite",
            Self::Error => "ErrorIfExists",
            Self::Ignore => "Ignore",
        }
    }
}

/// Which files of the base are removed at the end, besides those that steps have removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Overwrites {
    /// None.
    #[default]
    Nothing,
    /// The files of the partitions that have new rows.
    Partitions,
    /// All.
    Table,
}

/// Which rows an overwrite replaces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartitionOverwrite {
    /// All.
    #[default]
    Static,
    /// The rows in the partitions that have new rows.
    Dynamic,
}

/// How a table is created or replaced, depending on whether it exists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CreateMode {
    /// There must be no table yet.
    #[default]
    Error,
    /// An existing table is kept as it is.
    Ignore,
    /// An empty table replaces the existing one, and the history continues. There must be a table.
    Replace,
    /// An empty table replaces the existing one, if there is one.
    CreateOrReplace,
}

impl CreateMode {
    /// The name of the operation.
    pub(super) fn operation(self) -> &'static str {
        match self {
            Self::Error | Self::Ignore => "CREATE TABLE",
            Self::Replace => "REPLACE TABLE",
            Self::CreateOrReplace => "CREATE OR REPLACE TABLE",
        }
    }
}

/// How the table's columns change if rows have other columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SchemaMode {
    /// Columns that the table lacks are added.
    Merge,
    /// The columns of the rows replace them.
    Overwrite,
}

/// Options of a write of rows; everything else depends on the table.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WriteOptions {
    /// What happens to the existing rows.
    pub mode: Mode,
    /// Partition columns of a new table; those of an existing table must be the same.
    pub partition_by: Option<Vec<String>>,
    /// Which rows an overwrite replaces.
    pub partition_overwrite: PartitionOverwrite,
    /// Which rows an overwrite replaces, as a SQL condition. It must be TRUE for the new rows, too.
    pub replace_where: Option<String>,
    /// How the columns change; if none, they do not.
    pub schema_mode: Option<SchemaMode>,
    /// Properties of a new table.
    pub properties: BTreeMap<String, String>,
    /// Name of a new table.
    pub name: Option<String>,
    /// Description of a new table.
    pub description: Option<String>,
    /// Whether the engine that has the rows evaluates the table's rules that deltic cannot evaluate.
    pub engine_evaluates: bool,
    /// Whether the new rows are those that the table has, in other files: `dataChange` is false.
    pub rearrange_only: bool,
    /// How its files are written.
    pub files: FileOptions,
    /// Free text for the commit info.
    pub user_metadata: Option<String>,
    /// Other members for the commit info, with names that it does not use.
    pub commit_info: Map<String, Value>,
    /// The application's id, for writes that must happen once.
    pub app_id: Option<String>,
    /// The application's own version of this write.
    pub app_version: Option<i64>,
}

impl WriteOptions {
    /// Refuses options that contradict each other.
    ///
    /// # Errors
    /// `Invalid`, naming them.
    pub(super) fn check(&self) -> Result<()> {
        self.check_replace_where()?;
        let message = match (self.mode, self.partition_overwrite, self.schema_mode) {
            (Mode::Overwrite, PartitionOverwrite::Dynamic, Some(SchemaMode::Overwrite)) => {
                "schema_mode=\"overwrite\" is for writes that replace all rows, and partition_overwrite=\"dynamic\" leaves \
                 some"
            }
            (Mode::Overwrite, ..) => return Ok(()),
            (_, PartitionOverwrite::Dynamic, _) => {
                "partition_overwrite=\"dynamic\" is for mode=\"overwrite\": other modes replace no rows"
            }
            (_, _, Some(SchemaMode::Overwrite)) => {
                "schema_mode=\"overwrite\" is for mode=\"overwrite\": other modes leave rows that have the old columns"
            }
            (..) => return Ok(()),
        };
        Err(Error::invalid(message))
    }

    fn check_replace_where(&self) -> Result<()> {
        let message = match (&self.replace_where, self.mode) {
            (None, _) => return Ok(()),
            (Some(_), Mode::Overwrite) if self.partition_overwrite == PartitionOverwrite::Dynamic => {
                "replace_where and partition_overwrite=\"dynamic\" both say which rows are replaced; give one of them"
            }
            (Some(_), Mode::Overwrite) if self.schema_mode == Some(SchemaMode::Overwrite) => {
                "schema_mode=\"overwrite\" is for writes that replace all rows, and replace_where leaves some"
            }
            (Some(_), Mode::Overwrite) if self.rearrange_only => {
                "replace_where changes rows, which contradicts data_change=False; leave one of them out"
            }
            (Some(_), Mode::Overwrite) => return Ok(()),
            (Some(_), Mode::Append | Mode::Error | Mode::Ignore) => {
                "replace_where is for mode=\"overwrite\": other modes replace no rows"
            }
        };
        Err(Error::invalid(message))
    }
}

/// The definition of a table to be created.
#[derive(Debug, Clone, Default)]
pub struct TableDefinition {
    /// Its schema.
    pub schema: StructType,
    /// Its partition columns, in order.
    pub partition_by: Vec<String>,
    /// Paths of its clustering columns.
    pub cluster_by: Vec<String>,
    /// Table properties.
    pub properties: BTreeMap<String, String>,
    /// CHECK constraints: expressions by name.
    pub constraints: BTreeMap<String, String>,
    /// Its name in the metadata.
    pub name: Option<String>,
    /// Its description in the metadata.
    pub description: Option<String>,
    /// The largest field id in files that existed before the table, if columns are found by ids in them.
    pub largest_column_id: Option<i32>,
}

/// Makes ids for new tables and transactions. It is passed in, so that there is no hidden randomness.
pub trait Ids: Send + Sync {
    /// A new unique id.
    fn unique(&self) -> String;
}

/// The write plan for rows of a schema.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    pub(super) rows: Schema,
    pub(super) plan: WritePlan,
    /// Whether rows may have been written with it.
    pub(super) is_used: bool,
}
