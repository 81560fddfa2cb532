//! Continues a write that another process began.
//!
//! PROTOCOL.md: "Commit Provenance Information".

use super::options::Overwrites;
use super::{HandleState, Transaction, TransactionHeader};
use crate::error::{Error, Result};
use deltic_store::Storage;

impl Transaction {
    /// The header with which another process can commit this write. Committing it several times makes only one commit.
    ///
    /// # Errors
    /// `Internal` if the transaction has parts that a header cannot have: rows, removed files, changes of rows and domains.
    pub fn header(&self) -> Result<TransactionHeader> {
        let has_steps =
            !self.added.is_empty() || !self.removed.is_empty() || !self.rows.is_empty() || !self.domains.is_empty();
        if !self.writes || has_steps {
            return Err(Error::internal("only a write that has no rows yet goes to another process"));
        }
        Ok(TransactionHeader {
            location: self.storage.location().to_owned(),
            base: self.base.as_ref().map(|base| base.state.clone()),
            base_file: self.base.as_ref().and_then(HandleState::commit_file),
            protocol: self.protocol.clone(),
            metadata: self.metadata.clone(),
            overwrites: self.overwrites,
            delete_first: self.delete_first.clone(),
            rearrange_only: self.rearrange_only,
            replayed: self.replayed,
            options: self.options.clone(),
            parameters: self.parameters.clone(),
            txn_id: self.txn_id.clone(),
        })
    }

    /// Continues a write that another process began. If it was committed already, committing it again returns the same
    /// version.
    ///
    /// # Errors
    /// `Invalid` if it is for another table or its options do not fit together, `Unsupported` if deltic cannot write the
    /// table.
    pub fn resume(storage: &Storage, header: TransactionHeader) -> Result<Self> {
        if header.location != storage.location() {
            let message = format!("the write was begun on the table at {}", header.location);
            return Err(Error::invalid(message).in_table(storage.location()));
        }
        let mut resumed = Self::new(storage, header.options)?;
        resumed.txn_id = header.txn_id;
        resumed.base = header.base.map(|state| HandleState::read_elsewhere(state, header.base_file));
        (resumed.protocol, resumed.metadata) = (header.protocol, header.metadata);
        (resumed.replayed, resumed.parameters) = (header.replayed, header.parameters);
        (resumed.is_resumed, resumed.writes) = (true, true);
        (resumed.delete_first, resumed.rearrange_only) = (header.delete_first, header.rearrange_only);
        resumed.check_writable().map_err(|e| resumed.in_table(e))?;
        match header.overwrites {
            Overwrites::Nothing => {}
            Overwrites::Partitions => resumed.overwrite_partitions()?,
            Overwrites::Table => resumed.overwrite()?,
        }
        Ok(resumed)
    }
}
