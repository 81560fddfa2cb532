//! Continues a write that another process began.
//!
//! PROTOCOL.md: "Commit Provenance Information".

use super::options::Overwrites;
use super::{HandleState, Transaction, TransactionHeader};
use crate::error::{Error, Result};
use crate::log::LogSource;

impl Transaction {
    /// The header with which another process can commit this write. Committing it several times makes only one commit.
    ///
    /// # Errors
    /// `Internal` if the transaction has parts that a header cannot have: rows, removed files, changes of rows and domains.
    pub fn header(&self) -> Result<TransactionHeader> {
        let has_steps = !self.files.is_empty() || !self.table.domains.is_empty();
        if !self.write.is_write || has_steps {
            return Err(Error::internal("only a write that has no rows yet goes to another process"));
        }
        Ok(TransactionHeader {
            location: self.log.location().to_owned(),
            base: self.base.state.as_ref().map(|base| base.state.clone()),
            base_file: self.base.state.as_ref().and_then(HandleState::commit_file),
            protocol: self.table.protocol.clone(),
            metadata: self.table.metadata.clone(),
            overwrites: self.write.overwrites,
            delete_first: self.write.replace_where_pending.clone(),
            rearrange_only: self.write.rearrange_only,
            replayed: self.already_committed_version,
            options: self.options.clone(),
            parameters: self.history.parameters.clone(),
            txn_id: self.txn_id.clone(),
        })
    }

    /// Continues a write that another process began. If it was committed already, committing it again returns the same
    /// version.
    ///
    /// # Errors
    /// `Invalid` if it is for another table or its options do not fit together, `Unsupported` if deltic cannot write the
    /// table.
    pub fn resume(log: &LogSource, header: TransactionHeader) -> Result<Self> {
        if header.location != log.location() {
            let message = format!("the write was started on the table at {}", header.location);
            return Err(Error::invalid(message).in_table(log.location()));
        }
        let mut resumed = Self::new(log, header.options)?;
        resumed.txn_id = header.txn_id;
        resumed.base.state = header.base.map(|state| HandleState::from_other_process(state, header.base_file));
        (resumed.table.protocol, resumed.table.metadata) = (header.protocol, header.metadata);
        (resumed.already_committed_version, resumed.history.parameters) = (header.replayed, header.parameters);
        (resumed.base.is_resumed, resumed.write.is_write) = (true, true);
        (resumed.write.replace_where_pending, resumed.write.rearrange_only) =
            (header.delete_first, header.rearrange_only);
        resumed.check_writable().map_err(|e| resumed.in_table(e))?;
        match header.overwrites {
            Overwrites::Nothing => {}
            Overwrites::Partitions => resumed.overwrite_partitions()?,
            Overwrites::Table => resumed.overwrite()?,
        }
        Ok(resumed)
    }
}
