//! Finds the last readable version of a log, and the files after it.

use std::collections::{BTreeSet, HashMap};

use deltic_protocol::feature;
use deltic_protocol::log::hint::LastCheckpoint;
use deltic_protocol::log::listing;
use deltic_protocol::log::name::{LAST_CHECKPOINT, LOG_DIR, LogName, STAGED_COMMITS_DIR, StagedCommit};
use deltic_protocol::log::segment::{Checkpoint, LogFile, Segment, checkpoints};

use super::super::log_repair::{contents_of, contents_of_checkpoint, is_damage};
use super::contents::{self, Content, is_commit};
use super::move_aside::Recovery;
use crate::error::{Error, Result};
use crate::log::{LogSource, log_file_path};
use crate::snapshot::Snapshot;

/// Features of tables whose versions are not decided by the log alone.
const DECIDED_ELSEWHERE: [&str; 4] =
    ["catalogManaged", "catalogOwned-preview", "coordinatedCommits-preview", "multiTableTransaction"];

/// Temporary files of writers that commit through DynamoDB, below the log.
const DYNAMODB_FILES: &str = ".tmp";

/// How a log ends.
pub(crate) enum LogEnd {
    /// The newest version can be read. If older commits are damaged, a sentence says so.
    Readable(Box<Snapshot>, Option<String>),
    /// The newest version cannot be read.
    Unreadable(Box<Recovery>),
}

/// Finds out how the log ends.
///
/// # Errors
/// `NotFound` if there is no table; `Corrupt` if no version can be read, or the log is damaged in another way than by missing
/// and torn commits; `Unsupported` if something else than the log decides about versions, or the table has a feature that
/// deltic cannot write; those of the store.
pub(crate) async fn find(log: &LogSource) -> Result<LogEnd> {
    refuse_other_committers(log).await?;
    let listing = log.list(0).await?;
    let Some(newest) = newest_version(&listing) else {
        let error = Segment::choose(&listing, None, true).err();
        return Err(error.unwrap_or_else(|| Error::internal("a log without files has a version")));
    };
    let base = newest_readable_checkpoint(log, &listing).await?;
    let first = base.map_or(0, |version| version.saturating_add(1));
    let contents = contents::read(log, replayed(&listing, first)).await?;
    let end = last_readable(&contents, base).ok_or_else(|| {
        Error::corrupt(format!(
            "no version can be read: the log has no complete checkpoint that can be read, and {}",
            fault(&contents, 0)
        ))
    })?;
    refuse_unused_compaction(&contents, base, end)?;

    let (kept, later): (Vec<LogFile>, Vec<LogFile>) =
        listing.iter().cloned().partition(|file| file.name.version() <= end);
    let mut segment = Segment::choose(&kept, Some(end), true)?;
    segment.checksum = None;
    let snapshot = Snapshot::open_segment(log, segment).await?;
    contents_of(&snapshot).await?;
    if end == newest {
        return Ok(LogEnd::Readable(Box::new(snapshot), harmless_gap(&listing, base)));
    }
    refuse_features(&snapshot, &contents, end)?;
    refuse_empty_commit(&contents, end, newest)?;
    let fault = fault(&contents, end.saturating_add(1));
    let is_torn = |content: &&Content| content.torn.is_some() && is_commit(&content.file);
    let torn = contents.iter().filter(|content| content.file.name.version() > end).filter(is_torn).count() as u64;
    let found = later.iter().filter(|file| is_commit(file)).count() as u64;
    let count = newest.saturating_sub(end);
    let message = format!(
        "version {end} is the last that can be read: {fault}. {}: {torn} torn and {} missing commits, and {} that cannot be \
         replayed without these. Their files are moved out of the log, to a folder below `{LOG_DIR}/{}`. No version names \
         their data files then, and a vacuum deletes these",
        lost_versions(end.saturating_add(1), newest, count),
        count.saturating_sub(found),
        found.saturating_sub(torn),
        super::move_aside::FOLDER,
    );
    let hint = outdated_hint(log, end).await?;
    let checksum_files = hadoop_checksums(log, end, hint.is_some()).await?;
    Ok(LogEnd::Unreadable(Box::new(Recovery { snapshot, message, later, hint, checksum_files })))
}

fn lost_versions(first: u64, newest: u64, count: u64) -> String {
    match count {
        1 => format!("Version {first} is lost"),
        count => format!("The {count} versions {first} to {newest} are lost"),
    }
}

/// Refuses logs whose versions are decided by something else: a file of the log is not all of a version there.
async fn refuse_other_committers(log: &LogSource) -> Result<()> {
    let through_dynamodb = || {
        let message = "commits of this table go through DynamoDB, whose items would still name the versions that are moved; \
                       repair the log by hand, together with the items";
        Error::unsupported("repair of a log that DynamoDB decides", message)
    };
    if log.claimed().is_some() || !log.list_some(DYNAMODB_FILES).await?.is_empty() {
        return Err(through_dynamodb());
    }
    let staged = log.list_some(STAGED_COMMITS_DIR).await?;
    if staged.iter().any(|file| StagedCommit::parse(file_name(&file.path)).is_some()) {
        let message = format!(
            "the log has staged commits (`{LOG_DIR}/{STAGED_COMMITS_DIR}`), about which a catalog decides; repair the table \
             through its catalog"
        );
        return Err(Error::unsupported("repair of a log that a catalog decides", message));
    }
    Ok(())
}

/// Refuses tables that deltic cannot write, and those that are, or became in a lost version, managed by a catalog.
fn refuse_features(snapshot: &Snapshot, contents: &[Content], end: u64) -> Result<()> {
    feature::check_writable(snapshot.protocol(), snapshot.metadata(), &snapshot.shape().schema)?;
    let lost = contents.iter().filter(|content| content.file.name.version() > end);
    for protocol in lost.filter_map(|content| content.protocol.as_ref()) {
        let supported = feature::supported(protocol);
        if let Some(name) = DECIDED_ELSEWHERE.iter().find(|name| supported.contains(**name)) {
            let message = format!(
                "a version that cannot be replayed enabled `{name}`, so that not the log alone decides what is committed; \
                 repair the table through its catalog"
            );
            return Err(Error::unsupported(*name, message));
        }
    }
    Ok(())
}

/// Refuses a log with a compaction that begins before the last readable version and reaches beyond it. Readers do not use it,
/// because they read its first versions from other files, and it may be all that is left of the later ones.
fn refuse_unused_compaction(contents: &[Content], base: Option<u64>, end: u64) -> Result<()> {
    let unused = contents.iter().filter(|content| content.torn.is_none()).find_map(|Content { file, .. }| {
        let (start, last) = range(file)?;
        (start <= end && last > end).then_some((file, start, last))
    });
    let Some((file, start, last)) = unused else { return Ok(()) };
    let others = base.map_or_else(String::new, |base| format!(", such as the checkpoint of version {base}"));
    let message = format!(
        "the compaction holds versions {start} to {last}, and readers do not use it because they read version {end} from other \
         files{others}. Move these away if older files lead to version {start}, or else the compaction, and repair the log again"
    );
    Err(Error::unsupported("repair of a log with an unused compaction", message)
        .in_file(log_file_path(&file.file_name)))
}

/// Refuses a log with a commit without actions before others: other clients may read it as a version without changes, and the
/// versions after it.
fn refuse_empty_commit(contents: &[Content], end: u64, newest: u64) -> Result<()> {
    let is_between = |version: u64| end < version && version < newest;
    let empty =
        |content: &&Content| content.is_empty && is_commit(&content.file) && is_between(content.file.name.version());
    let Some(Content { file, .. }) = contents.iter().find(empty) else { return Ok(()) };
    let message = format!(
        "the commit has no action, and other clients may read the versions after it, up to {newest}. If they do, write \
         `{{\"commitInfo\":{{}}}}` into it; or else move it and all later ones out of the log by hand"
    );
    Err(Error::unsupported("repair of a log with an empty commit", message).in_file(log_file_path(&file.file_name)))
}

/// The newest version that the log names, whether it can be read or not.
fn newest_version(listing: &[LogFile]) -> Option<u64> {
    let commits = listing.iter().filter(|file| is_commit(file)).map(|file| file.name.version());
    commits.chain(checkpoints(listing).into_keys()).max()
}

/// The version of the newest checkpoint that can be read to its end.
async fn newest_readable_checkpoint(log: &LogSource, listing: &[LogFile]) -> Result<Option<u64>> {
    let mut listing = listing.to_vec();
    while let Some((version, checkpoint)) = checkpoints(&listing).pop_last() {
        match contents_of_checkpoint(log, &checkpoint).await {
            Ok(_) => return Ok(Some(version)),
            Err(e) if is_damage(&e) => listing.retain(|file| !has(&checkpoint, file)),
            Err(e) => return Err(e),
        }
    }
    Ok(None)
}

fn has(checkpoint: &Checkpoint, file: &LogFile) -> bool {
    checkpoint.files.iter().any(|part| part.file_name == file.file_name)
}

/// The commits and compactions that reach `first` or go beyond it.
fn replayed(listing: &[LogFile], first: u64) -> Vec<LogFile> {
    let is_replayed = |file: &&LogFile| match file.name {
        LogName::Commit { version } => version >= first,
        LogName::Compacted { end, .. } => end >= first,
        LogName::Checksum { .. }
        | LogName::CheckpointClassic { .. }
        | LogName::CheckpointMultiPart { .. }
        | LogName::CheckpointUuid { .. } => false,
    };
    listing.iter().filter(is_replayed).cloned().collect()
}

/// The last version to which files that are not torn lead from the checkpoint, or from version 0.
fn last_readable(contents: &[Content], base: Option<u64>) -> Option<u64> {
    let first = base.map_or(0, |version| version.saturating_add(1));
    let sound = contents.iter().filter(|content| content.torn.is_none());
    let mut ranges: Vec<(u64, u64)> = sound.filter_map(|content| range(&content.file)).collect();
    ranges.sort_unstable();
    let mut next = BTreeSet::from([first]);
    for (start, end) in ranges {
        if next.contains(&start) {
            next.insert(end.saturating_add(1));
        }
    }
    next.last().and_then(|next| next.checked_sub(1))
}

/// The versions of a commit or a compaction.
fn range(file: &LogFile) -> Option<(u64, u64)> {
    match file.name {
        LogName::Commit { version } => Some((version, version)),
        LogName::Compacted { start, end } => Some((start, end)),
        LogName::Checksum { .. }
        | LogName::CheckpointClassic { .. }
        | LogName::CheckpointMultiPart { .. }
        | LogName::CheckpointUuid { .. } => None,
    }
}

/// Why a version cannot be read although the one before it can.
fn fault(contents: &[Content], version: u64) -> String {
    let commit = contents.iter().find(|content| content.file.name == LogName::Commit { version });
    match commit.and_then(|content| content.torn.as_deref()) {
        Some(torn) => format!("the commit of version {version} {torn}"),
        None => format!("the commit of version {version} is missing"),
    }
}

/// A sentence about missing commits before the checkpoint from which the newest version is read.
fn harmless_gap(listing: &[LogFile], base: Option<u64>) -> Option<String> {
    let (base, gap) = (base?, listing::gap(listing)?);
    (gap.first <= base).then(|| {
        format!(
            "the commit of version {} is missing. Newer versions are read from the checkpoint of version {base}; versions \
             between these two cannot be read. Nothing is done: restore the commit if they are wanted",
            gap.first
        )
    })
}

/// `_last_checkpoint`, if it names a later version or cannot be parsed.
async fn outdated_hint(log: &LogSource, end: u64) -> Result<Option<u64>> {
    match log.read(LAST_CHECKPOINT).await {
        Ok(bytes) if LastCheckpoint::parse(&bytes).is_ok_and(|hint| hint.version <= end) => Ok(None),
        Ok(bytes) => Ok(Some(bytes.len() as u64)),
        Err(e) if e.is_not_found() => Ok(None),
        Err(e) => Err(e),
    }
}

/// The checksum files that Hadoop keeps beside files of a local disk, `.<name>.crc`, of later versions: Hadoop would compare new
/// files of the same names with them.
async fn hadoop_checksums(log: &LogSource, end: u64, has_hint: bool) -> Result<Vec<(String, u64)>> {
    if !log.storage().is_local() {
        return Ok(Vec::new());
    }
    let files = log.list_everything().await?;
    let sizes: HashMap<&str, u64> = files.iter().map(|file| (file_name(&file.path), file.size)).collect();
    let is_later = |name: &str| {
        let Some(of) = name.strip_prefix('.').and_then(|name| name.strip_suffix(".crc")) else { return false };
        LogName::parse(of).is_some_and(|of| of.version() > end) || has_hint && of == LAST_CHECKPOINT
    };
    let mut found: Vec<(String, u64)> =
        sizes.into_iter().filter(|(name, _)| is_later(name)).map(|(name, size)| (name.to_owned(), size)).collect();
    found.sort();
    Ok(found)
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
