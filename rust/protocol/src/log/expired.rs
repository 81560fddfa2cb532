//! Which files of the log can be deleted.
//!
//! It is decided by version alone: the caller knows the times and says which version is old enough. The newest checkpoint
//! that is old enough is kept, with its commit and everything newer; it replaces everything older.
//!
//! PROTOCOL.md: "Metadata Cleanup".

use super::{LogFile, LogName, Segment};

/// The files of the log that can be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expired {
    /// Version of the checkpoint from which on the log is kept.
    pub kept_from: u64,
    /// The files before it, in the order of the listing.
    pub files: Vec<LogFile>,
}

/// The files of `listing` that may be deleted if everything up to version `newest_expired` has expired. None if there
/// is no complete checkpoint at or before that, or nothing before it.
pub fn expired(listing: &[LogFile], newest_expired: u64) -> Option<Expired> {
    // Choosing the segment of that version finds its newest complete checkpoint.
    let kept_from = Segment::choose(listing, Some(newest_expired), false).ok()?.checkpoint_version()?;
    let goes = |file: &&LogFile| match file.name {
        LogName::Commit { version }
        | LogName::Checksum { version }
        | LogName::CheckpointClassic { version }
        | LogName::CheckpointMultiPart { version, .. }
        | LogName::CheckpointUuid { version, .. } => version < kept_from,
        // Its commits are in the checkpoint; if it has later ones too, these are still there.
        LogName::Compacted { start, .. } => start <= kept_from,
    };
    let files: Vec<LogFile> = listing.iter().filter(goes).cloned().collect();
    (!files.is_empty()).then_some(Expired { kept_from, files })
}
