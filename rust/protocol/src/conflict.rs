//! May this commit follow that one?
//!
//! PROTOCOL.md: "Commit Protocol"; the reasons carry delta-spark's exception names.

use std::fmt;

/// Why a commit may not follow the one that won.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Conflict {
    /// The winner added files that this commit should have read.
    ConcurrentAppend,
    /// The winner removed a file that this commit read.
    ConcurrentDeleteRead,
    /// The winner removed a file that this commit removes too.
    ConcurrentDeleteDelete,
    /// The winner changed the table's metadata.
    MetadataChanged,
    /// The winner changed the table's protocol.
    ProtocolChanged,
    /// The winner advanced an application transaction or metadata domain that this commit depends on.
    ConcurrentTransaction,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ConcurrentAppend => "ConcurrentAppend",
            Self::ConcurrentDeleteRead => "ConcurrentDeleteRead",
            Self::ConcurrentDeleteDelete => "ConcurrentDeleteDelete",
            Self::MetadataChanged => "MetadataChanged",
            Self::ProtocolChanged => "ProtocolChanged",
            Self::ConcurrentTransaction => "ConcurrentTransaction",
        })
    }
}
