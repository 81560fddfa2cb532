//! The actions of the log: as structs (when written or few), as JSON lines, and as columns (when many).
//!
//! PROTOCOL.md: "Actions".

pub mod batch;
mod checkpoint;
mod columns;
mod commit;
mod file;
mod file_line;
pub mod json;
pub mod lines;
mod loose;
mod metadata;
mod protocol;
pub mod rows;
mod scan;

pub use checkpoint::{CheckpointMetadata, Sidecar};
pub use commit::{CommitInfo, DomainMetadata, Txn};
pub use file::{Add, Cdc, DeletionVectorDescriptor, PartitionValues, Remove};
pub use metadata::{Format, Metadata};
pub use protocol::Protocol;

/// One action, as it is written to a commit.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Provenance; first in the commit.
    CommitInfo(CommitInfo),
    /// Which clients may read and write.
    Protocol(Protocol),
    /// Identity, schema, partitioning, properties.
    Metadata(Metadata),
    /// An application's progress.
    Txn(Txn),
    /// A named configuration.
    DomainMetadata(DomainMetadata),
    /// A file joins the table.
    Add(Add),
    /// A file leaves the table.
    Remove(Remove),
    /// A change data file.
    Cdc(Cdc),
}
