//! `add`, `remove` and `cdc`: the data files of the table.
//!
//! These structs are for writing and for few files; replay works on columns (`batch`).
//!
//! PROTOCOL.md: "Add File and Remove File", "Add CDC File".

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Partition values by physical column name, in their text form; `None` is null.
pub type PartitionValues = BTreeMap<String, Option<String>>;

/// A data file that is part of the table.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Add {
    /// Percent-encoded URI, relative to the table's root or absolute.
    pub path: String,
    /// One entry for each partition column.
    #[serde(default)]
    pub partition_values: PartitionValues,
    /// Bytes.
    #[serde(deserialize_with = "super::loose::needed")]
    pub size: i64,
    /// Milliseconds since the epoch.
    #[serde(deserialize_with = "super::loose::needed")]
    pub modification_time: i64,
    /// Whether the file changes the table's rows; `false` for a rearrangement.
    #[serde(default, deserialize_with = "super::loose::is_true")]
    pub data_change: bool,
    /// Statistics as JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<String>,
    /// Free metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, Option<String>>>,
    /// Rows of the file that are deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_vector: Option<DeletionVectorDescriptor>,
    /// First row id of the file (feature `rowTracking`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_row_id: Option<i64>,
    /// Version that added the rows (feature `rowTracking`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_row_commit_version: Option<i64>,
    /// The implementation that clustered the file (feature `clustering`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clustering_provider: Option<String>,
}

impl Add {
    /// The action that removes the file from the table.
    pub fn removed(self, now_ms: i64) -> Remove {
        Remove {
            path: self.path,
            deletion_timestamp: Some(now_ms),
            data_change: true,
            extended_file_metadata: Some(true),
            partition_values: Some(self.partition_values),
            size: Some(self.size),
            deletion_vector: self.deletion_vector,
            base_row_id: self.base_row_id,
            default_row_commit_version: self.default_row_commit_version,
            ..Remove::default()
        }
    }
}

/// A data file that is no longer part of the table.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Remove {
    /// As in the [`Add`] it removes.
    pub path: String,
    /// Milliseconds since the epoch when the file was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<i64>,
    /// Whether rows are removed with it; `false` for a rearrangement.
    #[serde(default, deserialize_with = "super::loose::is_true")]
    pub data_change: bool,
    /// Whether the members below are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extended_file_metadata: Option<bool>,
    /// As in the [`Add`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_values: Option<PartitionValues>,
    /// Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// Statistics as JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<String>,
    /// As in the [`Add`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, Option<String>>>,
    /// As in the [`Add`]: part of the logical file's identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_vector: Option<DeletionVectorDescriptor>,
    /// As in the [`Add`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_row_id: Option<i64>,
    /// As in the [`Add`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_row_commit_version: Option<i64>,
}

/// A change data file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cdc {
    /// Percent-encoded URI, relative to the table's root or absolute.
    pub path: String,
    /// One entry for each partition column.
    #[serde(default, deserialize_with = "super::loose::or_default")]
    pub partition_values: PartitionValues,
    /// Bytes.
    #[serde(deserialize_with = "super::loose::needed")]
    pub size: i64,
    /// Always `false`.
    #[serde(default, deserialize_with = "super::loose::is_true")]
    pub data_change: bool,
    /// Free metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, Option<String>>>,
}

/// Where a deletion vector is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletionVectorDescriptor {
    /// `u` (relative, by UUID), `i` (inline) or `p` (absolute path).
    pub storage_type: String,
    /// By storage type: random prefix and Z85 UUID, Z85 data, or a path.
    pub path_or_inline_dv: String,
    /// Byte position in the file, absent for inline ones.
    #[serde(default, deserialize_with = "super::loose::whole32", skip_serializing_if = "Option::is_none")]
    pub offset: Option<i32>,
    /// Bytes of the serialised vector.
    #[serde(deserialize_with = "super::loose::needed32")]
    pub size_in_bytes: i32,
    /// Number of rows deleted.
    #[serde(deserialize_with = "super::loose::needed")]
    pub cardinality: i64,
}

impl DeletionVectorDescriptor {
    /// The id that, with the path, identifies a logical file.
    pub fn unique_id(&self) -> String {
        match self.offset {
            Some(offset) => format!("{}{}@{offset}", self.storage_type, self.path_or_inline_dv),
            None => format!("{}{}", self.storage_type, self.path_or_inline_dv),
        }
    }
}
