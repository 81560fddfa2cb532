//! The smallest set of log files that defines a version, chosen from a listing.
//!
//! A pure function of names, sizes and times, never of contents. Duplicated names, stray files and unsorted listings
//! are fine; a checkpoint with a missing part is ignored.
//!
//! Invariant: a [`Segment`] that exists is complete. Its checkpoint has all parts and its tail covers every version
//! after the checkpoint (or from 0) up to its own exactly once (`log::properties::segments_cover_exactly_once`, against
//! a naive search).
//!
//! PROTOCOL.md: "Checkpoints", "Log Compaction Files".

use std::collections::{BTreeMap, BTreeSet};

use super::name::{CheckpointFormat, LogName};
use crate::error::{Error, Result};

/// A segment with at most this many commits after its checkpoint is extended rather than chosen again from a newer checkpoint,
/// which would have to be decoded.
const MAX_EXTENDED_TAIL: u64 = 100;

/// A file found in `_delta_log`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFile {
    /// What its name says.
    pub name: LogName,
    /// Its name in the log's folder.
    pub file_name: String,
    /// Bytes.
    pub size: u64,
    /// Milliseconds since the epoch when the store says it was written.
    pub modified_ms: i64,
}

impl LogFile {
    /// A file of the log, or `None` if the protocol gives the name no meaning.
    pub fn parse(file_name: &str, size: u64, modified_ms: i64) -> Option<Self> {
        LogName::parse(file_name).map(|name| Self { name, file_name: file_name.to_owned(), size, modified_ms })
    }
}

/// How a checkpoint is named, which says how to read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointKind {
    /// One Parquet file, of either checkpoint spec.
    Classic,
    /// Several Parquet files of the V1 spec.
    MultiPart,
    /// One file of the V2 spec.
    Uuid(CheckpointFormat),
}

/// A complete checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The version it holds.
    pub version: u64,
    /// The file, or all parts in order.
    pub files: Vec<LogFile>,
    /// How it is named.
    pub kind: CheckpointKind,
}

/// The files that define one version of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The version.
    pub version: u64,
    /// Newest complete checkpoint not after the version; `None` when replay starts at commit 0.
    pub checkpoint: Option<Checkpoint>,
    /// Commits and compactions after the checkpoint, ascending, each version covered exactly once.
    pub tail: Vec<LogFile>,
    /// Newest checksum that is neither after the version nor before the checkpoint.
    pub checksum: Option<LogFile>,
    /// Every listed commit up to the version, ascending, whether replay needs it or not: the history. The last one is
    /// the version's own commit, unless log cleanup removed it ([`Segment::latest_commit`]).
    pub commits: Vec<LogFile>,
}

impl Segment {
    /// The segment of `target`, or of the newest version, out of files listed in any order.
    ///
    /// `NotFound` when there is no table, `VersionNotFound` when there is no such version in it; `Corrupt` when files are
    /// missing in between.
    /// Compactions replace commits only with `use_compaction`, and then wherever this means fewer files.
    pub fn choose(listing: &[LogFile], target: Option<u64>, use_compaction: bool) -> Result<Self> {
        let files = distinct(listing);
        let checkpoints = complete_checkpoints(&files);
        let commits: BTreeMap<u64, &LogFile> = files
            .iter()
            .filter_map(|file| match file.name {
                LogName::Commit { version } => Some((version, *file)),
                _ => None,
            })
            .collect();

        let newest = commits.last_key_value().map(|(v, _)| *v).max(checkpoints.last_key_value().map(|(v, _)| *v));
        let latest = newest.ok_or_else(|| {
            Error::not_found("this is not a Delta table: its log has neither a commit nor a complete checkpoint")
        })?;
        let version = target.unwrap_or(latest);
        if version > latest {
            let oldest = oldest(&commits, &checkpoints).unwrap_or(latest);
            let message = format!("the table has no version {version}; it has versions {oldest} to {latest}");
            return Err(Error::version_not_found(message, Some(oldest), Some(latest)));
        }

        let checkpoint = checkpoints.range(..=version).next_back().map(|(_, candidate)| candidate.clone());
        let first = checkpoint.as_ref().map_or(0, |c| c.version.saturating_add(1));
        let tail =
            cover(&files, first, version, use_compaction).map_err(|missing| match oldest(&commits, &checkpoints) {
                Some(oldest) if missing == 0 && oldest > version => Error::version_not_found(
                    format!("version {version} is no longer in the log; the table has versions {oldest} to {latest}"),
                    Some(oldest),
                    Some(latest),
                ),
                Some(_) | None => Error::corrupt(format!(
                    "version {version} cannot be rebuilt: the log has no commit for version {missing}{}; \
                     restore that file, or read a version before it",
                    match &checkpoint {
                        Some(c) => format!(", which comes after the checkpoint of version {}", c.version),
                        None => ", and no complete checkpoint after it".to_owned(),
                    }
                )),
            })?;

        let checksum_from = checkpoint.as_ref().map_or(0, |c| c.version);
        let checksum = files
            .iter()
            .filter(|f| matches!(f.name, LogName::Checksum { version: v } if (checksum_from..=version).contains(&v)));
        Ok(Self {
            version,
            checksum: checksum.max_by_key(|f| f.name.version()).map(|f| (*f).clone()),
            commits: commits.range(..=version).map(|(_, file)| (*file).clone()).collect(),
            checkpoint,
            tail,
        })
    }

    /// This segment, extended by the commits of a later listing, which starts at the segment's version.
    ///
    /// `None` if the listing does not simply continue it: its last commit is gone or changed, a commit is missing in
    /// between, or the tail would be needlessly long because there is a newer checkpoint. Then choose again.
    pub fn extended(&self, listing: &[LogFile]) -> Option<Self> {
        let files = distinct(listing);
        let mut commits: BTreeMap<u64, &LogFile> = BTreeMap::new();
        for file in &files {
            if let LogName::Commit { version } = file.name {
                commits.insert(version, file);
            }
        }
        (commits.remove(&self.version)? == self.latest_commit()?).then_some(())?;
        let newer: Vec<LogFile> = commits.range(self.version..).map(|(_, file)| (*file).clone()).collect();
        let version = self.version.checked_add(u64::try_from(newer.len()).ok()?)?;
        (newer.last().is_none_or(|last| last.name.version() == version)).then_some(())?;
        let checkpoints = complete_checkpoints(&files);
        let newest = checkpoints.last_key_value().map(|(at, _)| *at).filter(|at| Some(*at) > self.checkpoint_version());
        let base = self.checkpoint_version().unwrap_or_default();
        // A checkpoint after the newest commit means that commits are gone.
        if newest.is_some_and(|at| at > version || version - base > MAX_EXTENDED_TAIL) {
            return None;
        }
        let mut extended = self.clone();
        extended.version = version;
        extended.tail.extend(newer.iter().cloned());
        extended.commits.extend(newer);
        let checksums = files.iter().filter(|f| matches!(f.name, LogName::Checksum { version: v } if v <= version));
        if let Some(checksum) = checksums.max_by_key(|f| f.name.version()) {
            extended.checksum = Some((*checksum).clone());
        }
        Some(extended)
    }

    /// Whether a compaction replaces commits.
    pub fn has_compactions(&self) -> bool {
        self.tail.iter().any(|file| matches!(file.name, LogName::Compacted { .. }))
    }

    /// The tail without compactions.
    ///
    /// # Errors
    /// `Corrupt` if a commit is missing that only a compaction covers.
    pub fn tail_of_commits(&self) -> Result<Vec<LogFile>> {
        let first = self.checkpoint_version().map_or(0, |v| v.saturating_add(1));
        let commits: Vec<&LogFile> = self.commits.iter().collect();
        cover(&commits, first, self.version, false).map_err(|missing| {
            Error::corrupt(format!(
                "the log has no commit for version {missing}, and the compaction over it cannot be used"
            ))
        })
    }

    /// The commit that made the version, unless log cleanup removed it.
    pub fn latest_commit(&self) -> Option<&LogFile> {
        self.commits.last().filter(|file| file.name.version() == self.version)
    }

    /// Version of the checkpoint, if there is one.
    pub fn checkpoint_version(&self) -> Option<u64> {
        self.checkpoint.as_ref().map(|c| c.version)
    }
}

/// The best complete checkpoint of each version.
pub fn checkpoints(listing: &[LogFile]) -> BTreeMap<u64, Checkpoint> {
    complete_checkpoints(&distinct(listing))
}

/// Multi-part checkpoints that lack parts: version, number of parts, and how many of them are there.
pub fn incomplete_checkpoints(listing: &[LogFile]) -> Vec<(u64, u32, usize)> {
    let mut sets: BTreeMap<(u64, u32), usize> = BTreeMap::new();
    for file in distinct(listing) {
        if let LogName::CheckpointMultiPart { version, parts, .. } = file.name {
            *sets.entry((version, parts)).or_default() += usize::from(file.size > 0);
        }
    }
    sets.retain(|(_, parts), found| usize::try_from(*parts) != Ok(*found));
    sets.into_iter().map(|((version, parts), found)| (version, parts, found)).collect()
}

/// The commits of versions that can be rebuilt, ascending. A commit before the oldest checkpoint of a cleaned log, or after a
/// gap, is still a file, but its version cannot be read.
pub fn readable_commits(listing: &[LogFile]) -> Vec<LogFile> {
    let files = distinct(listing);
    let checkpoints = complete_checkpoints(&files);
    // What a version can be rebuilt from: a checkpoint, or a commit or compaction if the version before its start can be
    // rebuilt.
    let mut sources: Vec<(u64, Option<u64>)> = checkpoints.keys().map(|version| (*version, None)).collect();
    sources.extend(files.iter().filter_map(|file| match file.name {
        LogName::Commit { version } => Some((version, Some(version))),
        // Replay starts at the newest checkpoint, so a compaction that includes its version is not used.
        LogName::Compacted { start, end }
            if file.size > 0 && checkpoints.range(start..).next().is_none_or(|(v, _)| *v > end) =>
        {
            Some((end, Some(start)))
        }
        LogName::Compacted { .. }
        | LogName::Checksum { .. }
        | LogName::CheckpointClassic { .. }
        | LogName::CheckpointMultiPart { .. }
        | LogName::CheckpointUuid { .. } => None,
    }));
    sources.sort_unstable();
    let mut readable = BTreeSet::new();
    for (version, start) in sources {
        if start.and_then(|start| start.checked_sub(1)).is_none_or(|before| readable.contains(&before)) {
            readable.insert(version);
        }
    }
    let commits = files.iter().filter(|f| matches!(f.name, LogName::Commit { version } if readable.contains(&version)));
    commits.map(|f| (*f).clone()).collect()
}

/// One entry for each name, sorted by name. A store may list a file twice while it is rewritten: the later entry is used.
fn distinct(listing: &[LogFile]) -> Vec<&LogFile> {
    let mut files: Vec<&LogFile> = listing.iter().collect();
    files.sort_by(|a, b| {
        a.file_name.cmp(&b.file_name).then(b.modified_ms.cmp(&a.modified_ms)).then(b.size.cmp(&a.size))
    });
    files.dedup_by(|a, b| a.file_name == b.file_name);
    files
}

/// The best complete checkpoint of each version.
///
/// UUID-named before classic before multi-part, and of those the one with fewest parts. All hold the same state; the
/// order follows how they are written: UUID-named files are never overwritten, a classic one may be while it is read,
/// and parts of a multi-part one may come from two writers. Equal candidates are ordered by time, then by name. A file
/// without a byte, which a killed writer leaves in some stores, is not a checkpoint.
fn complete_checkpoints(files: &[&LogFile]) -> BTreeMap<u64, Checkpoint> {
    let mut sets: BTreeMap<(u64, u32), Vec<&LogFile>> = BTreeMap::new();
    let mut best: BTreeMap<u64, Checkpoint> = BTreeMap::new();
    for file in files.iter().filter(|file| file.size > 0) {
        let (version, kind) = match &file.name {
            LogName::CheckpointMultiPart { version, parts, .. } => {
                sets.entry((*version, *parts)).or_default().push(file);
                continue;
            }
            LogName::CheckpointClassic { version } => (*version, CheckpointKind::Classic),
            LogName::CheckpointUuid { version, format, .. } => (*version, CheckpointKind::Uuid(*format)),
            LogName::Commit { .. } | LogName::Compacted { .. } | LogName::Checksum { .. } => continue,
        };
        let candidate = Checkpoint { version, files: vec![(*file).clone()], kind };
        if best.get(&version).is_none_or(|known| rank(&candidate) > rank(known)) {
            best.insert(version, candidate);
        }
    }
    for ((version, parts), set) in sets {
        // Names are distinct and sorted, and a part's number is at most `parts`: so the right number of files is the right set.
        if usize::try_from(parts) == Ok(set.len()) {
            let files = set.into_iter().cloned().collect();
            best.entry(version).or_insert(Checkpoint { version, files, kind: CheckpointKind::MultiPart });
        }
    }
    best
}

fn rank(checkpoint: &Checkpoint) -> (bool, i64, &str) {
    let uuid = matches!(checkpoint.kind, CheckpointKind::Uuid(_));
    checkpoint.files.first().map_or((uuid, i64::MIN, ""), |f| (uuid, f.modified_ms, f.file_name.as_str()))
}

/// The oldest version that can be rebuilt, judged by where the log begins.
fn oldest(commits: &BTreeMap<u64, &LogFile>, checkpoints: &BTreeMap<u64, Checkpoint>) -> Option<u64> {
    if commits.contains_key(&0) { Some(0) } else { checkpoints.first_key_value().map(|(version, _)| *version) }
}

/// How a version is reached: over how many files and bytes, the last file, and the version before that file.
#[derive(Clone, Copy)]
struct Route<'a> {
    cost: (usize, u64),
    last: Option<(&'a LogFile, u64)>,
}

/// The cheapest files (fewest, then smallest) that cover `first..=last` exactly once, or the first version that
/// nothing covers. A shortest path: versions are nodes, files are edges that all lead forward.
fn cover(files: &[&LogFile], first: u64, last: u64, use_compaction: bool) -> Result<Vec<LogFile>, u64> {
    if first > last {
        return Ok(Vec::new());
    }
    let mut edges: Vec<(u64, u64, &LogFile)> = files
        .iter()
        .filter_map(|file| match file.name {
            LogName::Commit { version } => Some((version, version, *file)),
            // An empty file was left by a killed writer.
            LogName::Compacted { start, end } if use_compaction && file.size > 0 => Some((start, end, *file)),
            _ => None,
        })
        .filter(|(start, end, _)| *start >= first && *end <= last)
        .collect();
    edges.sort_by_key(|(start, end, _)| (*start, *end));

    // Keyed by the next version that is needed. Every edge into a key starts before it, so that its start was visited before.
    let mut routes: BTreeMap<u64, Route<'_>> = BTreeMap::from([(first, Route { cost: (0, 0), last: None })]);
    for (start, end, file) in edges {
        let Some(route) = routes.get(&start) else { continue };
        let cost = (route.cost.0 + 1, route.cost.1.saturating_add(file.size));
        let needed = end.saturating_add(1);
        if routes.get(&needed).is_none_or(|known| cost < known.cost) {
            routes.insert(needed, Route { cost, last: Some((file, start)) });
        }
    }

    let goal = last.saturating_add(1);
    if !routes.contains_key(&goal) {
        return Err(routes.last_key_value().map_or(first, |(needed, _)| *needed));
    }
    let mut tail = Vec::new();
    let mut at = goal;
    while let Some((file, start)) = routes.get(&at).and_then(|route| route.last) {
        tail.push(file.clone());
        at = start;
    }
    tail.reverse();
    Ok(tail)
}
