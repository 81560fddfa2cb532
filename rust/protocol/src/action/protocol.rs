//! `protocol`: which clients may read and write the table.
//!
//! PROTOCOL.md: "Protocol Evolution".

use serde::{Deserialize, Serialize};

/// Minimum versions and, from reader 3 and writer 7 on, named features.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Protocol {
    /// Lowest reader version that may read the table.
    #[serde(deserialize_with = "super::loose::needed32")]
    pub min_reader_version: i32,
    /// Lowest writer version that may write the table.
    #[serde(deserialize_with = "super::loose::needed32")]
    pub min_writer_version: i32,
    /// Features a reader must have; present exactly when the reader version is 3.
    #[serde(default, deserialize_with = "super::loose::strings_or_null", skip_serializing_if = "Option::is_none")]
    pub reader_features: Option<Vec<String>>,
    /// Features a writer must have; present exactly when the writer version is 7.
    #[serde(default, deserialize_with = "super::loose::strings_or_null", skip_serializing_if = "Option::is_none")]
    pub writer_features: Option<Vec<String>>,
}
