//! The header of a write that another process commits than the one that began it.
//!
//! Spark commits the write of a data source in a separate process. Only that process needs this part of the transaction,
//! not the executors, so it is not part of a [`WritePlan`](crate::write::plan::WritePlan).
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

/// A transaction that has planned a write and has no other steps, as plain data.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TransactionHeader {
    pub(super) location: String,
    pub(super) base: Option<TableState>,
    /// The file of the base's commit, to notice if there is a new table at the location when the write is committed.
    pub(super) base_file: Option<CommitFile>,
    pub(super) protocol: Option<Protocol>,
    pub(super) metadata: Option<Metadata>,
    pub(super) overwrites: Overwrites,
    /// The condition for the rows that are deleted before new ones are added.
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

    /// The byte form.
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
