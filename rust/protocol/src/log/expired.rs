//! Which files of the log nobody needs any more.
//!
//! A choice by version alone: what is old enough is said by the caller, who knows the times. Kept are the newest
//! checkpoint that is old enough, the commit beside it, and everything newer; what is older can be told by it.
//!
//! PROTOCOL.md: "Metadata Cleanup".

use super::{LogFile, LogName, Segment};

/// What can go.
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
        // What it holds is in the checkpoint, unless it goes on after it, and then its commits are there.
        LogName::Compacted { start, .. } => start <= kept_from,
    };
    let files: Vec<LogFile> = listing.iter().filter(goes).cloned().collect();
    (!files.is_empty()).then_some(Expired { kept_from, files })
}
