//! `sidecar` and `checkpointMetadata`: what V2 checkpoints say of themselves.
//!
//! PROTOCOL.md: "Sidecar File Information", "Checkpoint Metadata".

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A file in `_delta_log/_sidecars` that holds file actions of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sidecar {
    /// File name, or an absolute URI.
    #[serde(deserialize_with = "super::loose::string")]
    pub path: String,
    /// Bytes.
    #[serde(deserialize_with = "super::loose::needed")]
    pub size_in_bytes: i64,
    /// Milliseconds since the epoch.
    #[serde(deserialize_with = "super::loose::needed")]
    pub modification_time: i64,
    /// Free metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, Option<String>>>,
}

/// The version a V2 checkpoint is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointMetadata {
    /// Table version.
    #[serde(deserialize_with = "super::loose::needed")]
    pub version: i64,
    /// Free metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, Option<String>>>,
}
