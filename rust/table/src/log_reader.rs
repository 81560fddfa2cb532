//! Reading `_delta_log`: the hint, the listing, the commits.
//!
//! What the listing means is decided by `deltic_protocol::log`; this only moves bytes. One LIST from the hint; a hint
//! that leads nowhere costs one more from the beginning.
//!
//! PROTOCOL.md: "Delta Log Entries", "Last Checkpoint File".

mod absent;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use deltic_protocol::action::batch::Origin;
use deltic_protocol::action::json::{CommitActions, Reading, Together, Wanted, parse_commit};
use deltic_protocol::log::hint::LastCheckpoint;
use deltic_protocol::log::listing;
use deltic_protocol::log::name::{LAST_CHECKPOINT, LOG_DIR, LogName, version_prefix};
use deltic_protocol::log::segment::{LogFile, Segment};
use futures::stream::{self, Stream, StreamExt};

pub(crate) use self::absent::explain;
use crate::error::{Error, Result};
use crate::parallel::{in_parallel, parallelism};
use crate::storage::Storage;

/// How many log files are fetched at once.
const CONCURRENT_GETS: usize = 16;
/// Commits of no more bytes than these together are not worth another thread.
const FEW_BYTES: u64 = 32 * 1024;
/// Commits of so many bytes together have their files in the same columns.
const SHARED_BYTES: usize = 16 * 1024 * 1024;

/// A commit that was read and parsed.
#[derive(Debug)]
pub struct Loaded {
    /// What it says.
    pub actions: CommitActions,
    /// The file it stands in.
    pub file: LogFile,
    /// Its bytes.
    pub bytes: Bytes,
}

/// The path of a file of the log, relative to the table's root.
pub fn log_path(file_name: &str) -> String {
    format!("{LOG_DIR}/{file_name}")
}

/// All log files from `version` on. A folder that is not there is an empty log.
///
/// One LIST, and one more if the first has a gap: it may have missed a commit that was made meanwhile.
pub async fn list(storage: &Storage, version: u64) -> Result<Vec<LogFile>> {
    let found = list_once(storage, version).await?;
    match listing::gap(&found) {
        Some(gap) => Ok(listing::completed(found, list_once(storage, gap.first).await?, gap.newest)),
        None => Ok(found),
    }
}

async fn list_once(storage: &Storage, version: u64) -> Result<Vec<LogFile>> {
    let found = storage.list_from(LOG_DIR, &version_prefix(version)).await?;
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    Ok(found.iter().filter_map(|f| LogFile::parse(&name(&f.path), f.size, f.modified_ms)).collect())
}

/// The newest checkpoint that `_last_checkpoint` speaks of. Only a hint: whatever is wrong with it, there is none.
pub async fn last_checkpoint(storage: &Storage) -> Option<LastCheckpoint> {
    LastCheckpoint::parse(&storage.get(&log_path(LAST_CHECKPOINT)).await.ok()?)
}

/// The files that define `target`, or the newest version.
pub async fn segment(storage: &Storage, target: Option<u64>) -> Result<Segment> {
    let place = |e: Error| e.in_table(storage.location());
    let hint = last_checkpoint(storage).await.map(|h| h.version);
    let hinted = hint.filter(|v| target.is_none_or(|target| *v <= target));
    if let Some(version) = hinted {
        let listing = list(storage, version).await.map_err(place)?;
        // A hint may be stale or wrong in any way: only a segment that starts at its checkpoint is taken from it.
        if let Ok(segment) = Segment::choose(&listing, target, true)
            && segment.checkpoint_version() >= Some(version)
        {
            return Ok(segment);
        }
    }
    let listing = list(storage, 0).await.map_err(place)?;
    Segment::choose(&listing, target, true).map_err(place)
}

/// Fetches and parses commits, in the order given, but for those whose bytes are `known` by the name of their file. None
/// of their file actions is read.
pub fn load(
    storage: &Storage,
    files: Vec<LogFile>,
    known: HashMap<String, Bytes>,
) -> impl Stream<Item = Result<Loaded>> + use<> {
    let one = |(file, bytes): (LogFile, Bytes)| {
        let actions = parse(&file, &bytes, Wanted::NoFiles)?;
        Ok(Loaded { actions, file, bytes })
    };
    in_groups(storage.clone(), files, known, move |group| group.into_iter().map(one).collect())
}

/// As [`load`], but all of what commits say; several have their files in the same columns.
pub fn load_whole(
    storage: &Storage,
    files: Vec<LogFile>,
    known: HashMap<String, Bytes>,
) -> impl Stream<Item = Result<Together>> + use<> {
    let parse = |group: Vec<(LogFile, Bytes)>| {
        let first = group.first().map_or(&[][..], |(_, first)| first);
        let (mut all, mut reading, mut bytes) = (Vec::new(), Reading::new(group.len(), first), 0_usize);
        for (file, commit) in group {
            bytes = bytes.saturating_add(commit.len());
            if bytes > SHARED_BYTES {
                all.extend(std::mem::take(&mut reading).finish()?);
                bytes = commit.len();
            }
            let is_compacted = matches!(file.name, LogName::Compacted { .. });
            let read = reading.read(&commit, Origin::Commit(version_of(&file)), is_compacted);
            read.map_err(|e| placed(e, &file))?;
        }
        all.extend(reading.finish()?);
        Ok(all)
    };
    in_groups(storage.clone(), files, known, move |group| match parse(group) {
        Ok(all) => all.into_iter().map(Ok).collect(),
        Err(e) => vec![Err(e)],
    })
}

/// Several go together: most commits are small, and handing each from thread to thread would cost more than reading it.
fn in_groups<T: Send + 'static>(
    storage: Storage,
    files: Vec<LogFile>,
    known: HashMap<String, Bytes>,
    parse: impl Fn(Vec<(LogFile, Bytes)>) -> Vec<Result<T>> + Copy + Send + 'static,
) -> impl Stream<Item = Result<T>> {
    let together = (files.len() / (2 * parallelism())).clamp(1, CONCURRENT_GETS);
    let all_known: Option<u64> = files.iter().map(|file| Some(known.get(&file.file_name)?.len() as u64)).sum();
    let is_little = all_known.is_some_and(|bytes| bytes < FEW_BYTES);
    let (known, is_local) = (Arc::new(known), storage.is_local());
    let some = move |files: Vec<LogFile>| {
        let (storage, known) = (storage.clone(), known.clone());
        let work = async move {
            let unknown = files.iter().filter(|file| !known.contains_key(&file.file_name));
            let paths: Vec<String> = unknown.map(|file| log_path(&file.file_name)).collect();
            let mut fetched = storage.get_all(&paths).await?.into_iter();
            let commits = files.into_iter().map(|file| {
                let bytes = known.get(&file.file_name).cloned().or_else(|| fetched.next());
                Ok((file, bytes.ok_or_else(|| Error::internal("a commit was not fetched"))?))
            });
            Ok(parse(commits.collect::<Result<_>>()?))
        };
        async move { if is_little { work.await } else { in_parallel(work).await } }
    };
    let mut files = files.into_iter();
    let groups = std::iter::from_fn(move || {
        let (mut group, mut bytes) = (Vec::new(), 0_u64);
        while group.len() < CONCURRENT_GETS
            && (group.len() < together || bytes < FEW_BYTES)
            && let Some(file) = files.next()
        {
            bytes = bytes.saturating_add(file.size);
            group.push(file);
        }
        (!group.is_empty()).then_some(group)
    });
    // They come in their order, so that where reading takes no time, who waits for one has others to work on.
    let at_once = parallelism() * if is_local { 4 } else { 1 };
    let loaded = stream::iter(groups).map(some).buffered(at_once.max(CONCURRENT_GETS / together));
    loaded.flat_map(|group| stream::iter(group.unwrap_or_else(|e| vec![Err(e)])))
}

/// Parses a commit or compacted range, naming the file in errors.
pub fn parse(file: &LogFile, bytes: &Bytes, wanted: Wanted) -> Result<CommitActions> {
    parse_commit(bytes, Origin::Commit(version_of(file)), wanted).map_err(|e| placed(e, file))
}

/// The version that a commit makes, or the last that a compacted range does.
fn version_of(file: &LogFile) -> u64 {
    match file.name {
        LogName::Compacted { end, .. } => end,
        _ => file.name.version(),
    }
}

/// Names the file.
fn placed(error: deltic_protocol::error::Error, file: &LogFile) -> Error {
    error.at_version(version_of(file)).in_file(log_path(&file.file_name))
}
