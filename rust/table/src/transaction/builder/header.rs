//! A write that is committed by another process than the one that began it.
//!
//! Spark commits what a data source writes in a process of its own. What that needs of the transaction is the driver's
//! business and no executor's, which is why it is no part of a [`WritePlan`](crate::write::plan::WritePlan).
//!
//! PROTOCOL.md: "Commit Provenance Information".

use deltic_protocol::action::{Metadata, Protocol};
use deltic_protocol::commit::TableState;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::options::{Overwrites, TransactionOptions};
use crate::committers::CommitFile;
use crate::envelope::{pack, unpack};
use crate::error::Result;

/// A transaction of which nothing was done yet, but for what is planned: plain data.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TransactionHeader {
    pub(super) location: String,
    pub(super) base: Option<TableState>,
    /// The file of the base's commit: when the write is committed, the table may be another.
    pub(super) base_file: Option<CommitFile>,
    pub(super) protocol: Option<Protocol>,
    pub(super) metadata: Option<Metadata>,
    pub(super) overwrites: Overwrites,
    /// The condition of the rows that are deleted before any is added.
    pub(super) delete_first: Option<String>,
    pub(super) rearrange_only: bool,
    pub(super) replayed: Option<u64>,
    pub(super) options: TransactionOptions,
    pub(super) parameters: Map<String, Value>,
    pub(super) txn_id: String,
}

impl TransactionHeader {
    /// Where the table is.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// The form that travels.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        pack("transaction", self)
    }

    /// Reads what [`TransactionHeader::to_bytes`] wrote.
    ///
    /// # Errors
    /// `Invalid` if the bytes are something else, or of another release of deltic.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        unpack("transaction", bytes)
    }
}
