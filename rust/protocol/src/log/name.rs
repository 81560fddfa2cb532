//! File names of `_delta_log`, parsed and printed.
//!
//! A name either has exactly the form that the protocol gives it, or deltic ignores the file: stray files are common in
//! real logs and must not stop a reader. Only the file's own name counts, never a folder.
//!
//! Invariant: what parses prints back to the same text (`log::names`, `log::properties::parsed_names_print_back`).
//!
//! PROTOCOL.md: "Delta Log Entries", "Checkpoints", "Log Compaction Files", "Version Checksum File", "Staged Commit".

use std::fmt;

/// Largest version a table may have: versions are signed 64-bit integers everywhere else in the log.
pub const MAX_VERSION: u64 = i64::MAX as u64;

/// Name of the folder that holds the log, below the table's root.
pub const LOG_DIR: &str = "_delta_log";

/// Name of the hint to the newest checkpoint, in the log's folder.
pub const LAST_CHECKPOINT: &str = "_last_checkpoint";

/// Name of the folder of sidecar files, in the log's folder.
pub const SIDECARS_DIR: &str = "_sidecars";

/// Name of the folder of staged commits, in the log's folder.
pub const STAGED_COMMITS_DIR: &str = "_staged_commits";

/// Encoding of the top level of a UUID-named checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CheckpointFormat {
    /// One action per line.
    Json,
    /// One action per row.
    Parquet,
}

/// What a file of `_delta_log` is, by its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LogName {
    /// `<version>.json`
    Commit {
        /// The version it makes.
        version: u64,
    },
    /// `<start>.<end>.compacted.json`, the reconciled actions of the commits `start..=end`.
    Compacted {
        /// First version.
        start: u64,
        /// Last version, greater than `start`.
        end: u64,
    },
    /// `<version>.crc`
    Checksum {
        /// The version it describes.
        version: u64,
    },
    /// `<version>.checkpoint.parquet`
    CheckpointClassic {
        /// The version it holds.
        version: u64,
    },
    /// `<version>.checkpoint.<part>.<parts>.parquet`
    CheckpointMultiPart {
        /// The version it holds.
        version: u64,
        /// From 1 to `parts`.
        part: u32,
        /// How many there are.
        parts: u32,
    },
    /// `<version>.checkpoint.<uuid>.<json|parquet>`
    CheckpointUuid {
        /// The version it holds.
        version: u64,
        /// As it is written in the name.
        uuid: String,
        /// By the extension.
        format: CheckpointFormat,
    },
}

impl LogName {
    /// Reads a file name (without folders). `None` for everything the protocol does not define.
    pub fn parse(name: &str) -> Option<Self> {
        let mut segments = name.split('.');
        // No name has more than five segments; a sixth one shows that there are too many.
        let parts: [Option<&str>; 6] = std::array::from_fn(|_| segments.next());
        match parts {
            [Some(v), Some("json"), None, ..] => Some(Self::Commit { version: version(v)? }),
            [Some(v), Some("crc"), None, ..] => Some(Self::Checksum { version: version(v)? }),
            [Some(v), Some("checkpoint"), Some("parquet"), None, ..] => {
                Some(Self::CheckpointClassic { version: version(v)? })
            }
            [Some(v), Some("checkpoint"), Some(uuid), Some(extension), None, ..] => {
                let format = match extension {
                    "json" => CheckpointFormat::Json,
                    "parquet" => CheckpointFormat::Parquet,
                    _ => return None,
                };
                let version = version(v)?;
                is_uuid(uuid).then(|| Self::CheckpointUuid { version, uuid: uuid.to_owned(), format })
            }
            [Some(v), Some("checkpoint"), Some(part), Some(parts), Some("parquet"), None] => {
                let (version, part, parts) = (version(v)?, part_number(part)?, part_number(parts)?);
                (1..=parts).contains(&part).then_some(Self::CheckpointMultiPart { version, part, parts })
            }
            [Some(start), Some(end), Some("compacted"), Some("json"), None, ..] => {
                let (start, end) = (version(start)?, version(end)?);
                (start < end).then_some(Self::Compacted { start, end })
            }
            _ => None,
        }
    }

    /// The version the file makes, holds or describes; the last one for a compaction.
    pub fn version(&self) -> u64 {
        match self {
            Self::Commit { version }
            | Self::Checksum { version }
            | Self::CheckpointClassic { version }
            | Self::CheckpointMultiPart { version, .. }
            | Self::CheckpointUuid { version, .. } => *version,
            Self::Compacted { end, .. } => *end,
        }
    }

    /// Whether the file is a checkpoint or a part of one.
    pub fn is_checkpoint(&self) -> bool {
        match self {
            Self::CheckpointClassic { .. } | Self::CheckpointMultiPart { .. } | Self::CheckpointUuid { .. } => true,
            Self::Commit { .. } | Self::Compacted { .. } | Self::Checksum { .. } => false,
        }
    }
}

impl fmt::Display for LogName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Commit { version } => write!(f, "{version:020}.json"),
            Self::Compacted { start, end } => write!(f, "{start:020}.{end:020}.compacted.json"),
            Self::Checksum { version } => write!(f, "{version:020}.crc"),
            Self::CheckpointClassic { version } => write!(f, "{version:020}.checkpoint.parquet"),
            Self::CheckpointMultiPart { version, part, parts } => {
                write!(f, "{version:020}.checkpoint.{part:010}.{parts:010}.parquet")
            }
            Self::CheckpointUuid { version, uuid, format } => {
                let extension = match format {
                    CheckpointFormat::Json => "json",
                    CheckpointFormat::Parquet => "parquet",
                };
                write!(f, "{version:020}.checkpoint.{uuid}.{extension}")
            }
        }
    }
}

/// A staged commit, which is written but not made yet: `<version>.<uuid>.json` in `_staged_commits`. The catalog that decides
/// the table's commits ratifies one for each version; readers of the log alone ignore them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StagedCommit {
    /// The version that it would make.
    pub version: u64,
    /// As it is written in the name.
    pub uuid: String,
}

impl StagedCommit {
    /// Reads a file name (without folders). `None` for everything else.
    pub fn parse(name: &str) -> Option<Self> {
        let (at, rest) = name.split_once('.')?;
        let uuid = rest.strip_suffix(".json").filter(|uuid| is_uuid(uuid))?;
        Some(Self { version: version(at)?, uuid: uuid.to_owned() })
    }

    /// Its path, from the log's folder.
    pub fn path(&self) -> String {
        format!("{STAGED_COMMITS_DIR}/{self}")
    }
}

impl fmt::Display for StagedCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:020}.{}.json", self.version, self.uuid)
    }
}

/// Name of the commit that makes `version`.
pub fn commit_name(version: u64) -> String {
    LogName::Commit { version }.to_string()
}

/// Name of the checksum of `version`.
pub fn checksum_name(version: u64) -> String {
    LogName::Checksum { version }.to_string()
}

/// Name of the classic checkpoint of `version`.
pub fn checkpoint_name(version: u64) -> String {
    LogName::CheckpointClassic { version }.to_string()
}

/// The prefix of the names of all files of `version`. In a sorted listing `version` starts there.
pub fn version_prefix(version: u64) -> String {
    format!("{version:020}")
}

fn version(text: &str) -> Option<u64> {
    digits(text, 20).filter(|v| *v <= MAX_VERSION)
}

fn part_number(text: &str) -> Option<u32> {
    digits(text, 10).and_then(|n| u32::try_from(n).ok())
}

fn digits(text: &str, count: usize) -> Option<u64> {
    (text.len() == count && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(i, b)| match i {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_hexdigit(),
        })
}
