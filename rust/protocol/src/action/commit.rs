//! `commitInfo`, `txn` and `domainMetadata`: what a commit says beside its files.
//!
//! PROTOCOL.md: "Commit Provenance Information", "Transaction Identifiers", "Domain Metadata".

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::loose::whole_in;

/// Provenance of a commit: free JSON, of which deltic reads some members.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CommitInfo(pub Map<String, Value>);

impl CommitInfo {
    /// Milliseconds since the epoch by the writer's clock.
    pub fn timestamp(&self) -> Option<i64> {
        self.0.get("timestamp").and_then(whole_in)
    }

    /// The time of the commit when in-commit timestamps are enabled.
    pub fn in_commit_timestamp(&self) -> Option<i64> {
        self.0.get("inCommitTimestamp").and_then(whole_in)
    }

    /// Unique id of the transaction, by which a writer recognises its own commit.
    pub fn txn_id(&self) -> Option<&str> {
        self.0.get("txnId").and_then(Value::as_str)
    }

    /// Whether the writer vouches that it read nothing; missing means no.
    pub fn is_blind_append(&self) -> bool {
        self.0.get("isBlindAppend").and_then(Value::as_bool).unwrap_or(false)
    }
}

/// An application's progress: the last `version` that `app_id` committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Txn {
    /// Unique id of the application.
    #[serde(deserialize_with = "super::loose::string")]
    pub app_id: String,
    /// The application's own version.
    #[serde(deserialize_with = "super::loose::needed")]
    pub version: i64,
    /// Milliseconds since the epoch.
    #[serde(default, deserialize_with = "super::loose::whole", skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<i64>,
}

/// Configuration of a named metadata domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainMetadata {
    /// Name; `delta.` is reserved.
    #[serde(deserialize_with = "super::loose::string")]
    pub domain: String,
    /// Text that only the domain's owner interprets.
    #[serde(default, deserialize_with = "super::loose::string_or_empty")]
    pub configuration: String,
    /// Whether the domain was removed.
    #[serde(default, deserialize_with = "super::loose::is_true")]
    pub removed: bool,
}
