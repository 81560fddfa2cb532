//! Gaps in a listing of the log: stores do not list a folder atomically.
//!
//! A folder, or a bucket of several pages, is listed while others write: a commit that was made meanwhile may be missing
//! although a later one is found. Each version is there before the next one is made, so if a version below a commit that
//! was found is missing, it is there by now, and a second listing has it.
//!
//! PROTOCOL.md: "Delta Log Entries".

use std::collections::HashSet;

use super::name::LogName;
use super::segment::LogFile;

/// A version that is missing from a listing between others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The first such version.
    pub first: u64,
    /// The last version that was found.
    pub newest: u64,
}

/// The first gap between the commits of a listing.
pub fn gap(listing: &[LogFile]) -> Option<Gap> {
    let mut versions: Vec<u64> = listing.iter().filter_map(commit).collect();
    versions.sort_unstable();
    let newest = *versions.last()?;
    let before = versions.windows(2).find_map(|pair| match pair {
        [before, after] if after - before > 1 => Some(before),
        _ => None,
    });
    Some(Gap { first: before?.saturating_add(1), newest })
}

/// A listing, completed up to `newest` by a later one. Of newer versions the later listing may again lack some.
pub fn fill_gap(listing: Vec<LogFile>, later: Vec<LogFile>, newest: u64) -> Vec<LogFile> {
    let known: HashSet<String> = listing.iter().map(|file| file.file_name.clone()).collect();
    let missed = later.into_iter().filter(|file| file.name.version() <= newest && !known.contains(&file.file_name));
    let mut all: Vec<LogFile> = listing.into_iter().chain(missed).collect();
    all.sort_by(|a, b| a.file_name.cmp(&b.file_name));
    all
}

fn commit(file: &LogFile) -> Option<u64> {
    match file.name {
        LogName::Commit { version } => Some(version),
        _ => None,
    }
}
