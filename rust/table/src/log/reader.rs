//! Fetches and parses commits, several at once.
//!
//! PROTOCOL.md: "Delta Log Entries", "Log Compaction Files".

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use deltic_protocol::action::batch::Origin;
use deltic_protocol::action::json::{CommitActions, CommitBatch, CommitBatchReader, Wanted, parse_commit};
use deltic_protocol::log::name::LogName;
use deltic_protocol::log::segment::LogFile;
use futures::stream::{self, Stream, StreamExt};

use super::path::log_file_path;
use crate::error::{Error, Result};
use crate::parallel::{parallelism, spawn_async};
use deltic_store::Storage;

/// How many log files are fetched at once.
const CONCURRENT_GETS: usize = 16;
/// Known commits of fewer bytes in all are parsed without a worker thread.
const MAX_INLINE_PARSE_BYTES: u64 = 32 * 1024;
/// The file actions of commits are collected in shared columns, up to so many bytes of commits.
const MAX_SHARED_BYTES: usize = 16 * 1024 * 1024;

/// A commit that was read and parsed.
#[derive(Debug)]
pub struct Loaded {
    /// Its actions.
    pub actions: CommitActions,
    /// Its file.
    pub file: LogFile,
    /// The content of the file.
    pub bytes: Bytes,
}

/// Fetches and parses commits, in the given order; those whose content is in `known`, by file name, are not fetched. File
/// actions are not parsed.
pub(super) fn load(
    storage: &Storage,
    files: Vec<LogFile>,
    known: HashMap<String, Bytes>,
) -> impl Stream<Item = Result<Loaded>> + use<> {
    let one = |(file, bytes): (LogFile, Bytes)| {
        let actions = parse_file(&file, &bytes, Wanted::NoFiles)?;
        Ok(Loaded { actions, file, bytes })
    };
    in_groups(storage.clone(), files, known, move |group| group.into_iter().map(one).collect())
}

/// As [`load`], but with all actions; the file actions of several commits are in the same columns.
pub(super) fn load_whole(
    storage: &Storage,
    files: Vec<LogFile>,
    known: HashMap<String, Bytes>,
) -> impl Stream<Item = Result<CommitBatch>> + use<> {
    let parse = |group: Vec<(LogFile, Bytes)>| {
        let first = group.first().map_or(&[][..], |(_, first)| first);
        let (mut all, mut reading, mut bytes) = (Vec::new(), CommitBatchReader::new(group.len(), first), 0_usize);
        for (file, commit) in group {
            bytes = bytes.saturating_add(commit.len());
            if bytes > MAX_SHARED_BYTES {
                all.extend(std::mem::take(&mut reading).finish()?);
                bytes = commit.len();
            }
            let is_compacted = matches!(file.name, LogName::Compacted { .. });
            let read = reading.read(&commit, Origin::Commit(version_of(&file)), is_compacted);
            read.map_err(|e| with_context(e, &file))?;
        }
        all.extend(reading.finish()?);
        Ok(all)
    };
    in_groups(storage.clone(), files, known, move |group| match parse(group) {
        Ok(all) => all.into_iter().map(Ok).collect(),
        Err(e) => vec![Err(e)],
    })
}

/// Fetches commits in groups, and parses the commits of a group on one worker thread. Most commits are small: a thread for each
/// would cost more than parsing it.
fn in_groups<T: Send + 'static>(
    storage: Storage,
    files: Vec<LogFile>,
    known: HashMap<String, Bytes>,
    parse: impl Fn(Vec<(LogFile, Bytes)>) -> Vec<Result<T>> + Copy + Send + 'static,
) -> impl Stream<Item = Result<T>> {
    let group_size = (files.len() / (2 * parallelism())).clamp(1, CONCURRENT_GETS);
    let all_known: Option<u64> = files.iter().map(|file| Some(known.get(&file.file_name)?.len() as u64)).sum();
    let parses_inline = all_known.is_some_and(|bytes| bytes < MAX_INLINE_PARSE_BYTES);
    let (known, is_local) = (Arc::new(known), storage.is_local());
    let some = move |files: Vec<LogFile>| {
        let (storage, known) = (storage.clone(), known.clone());
        let work = async move {
            let unknown = files.iter().filter(|file| !known.contains_key(&file.file_name));
            let paths: Vec<String> = unknown.map(|file| log_file_path(&file.file_name)).collect();
            let mut fetched = storage.get_all(&paths).await?.into_iter();
            let commits = files.into_iter().map(|file| {
                let bytes = known.get(&file.file_name).cloned().or_else(|| fetched.next());
                Ok((file, bytes.ok_or_else(|| Error::internal("a commit was not fetched"))?))
            });
            Ok(parse(commits.collect::<Result<_>>()?))
        };
        async move { if parses_inline { work.await } else { spawn_async(work).await } }
    };
    let mut files = files.into_iter();
    let groups = std::iter::from_fn(move || {
        let (mut group, mut bytes) = (Vec::new(), 0_u64);
        while group.len() < CONCURRENT_GETS
            && (group.len() < group_size || bytes < MAX_INLINE_PARSE_BYTES)
            && let Some(file) = files.next()
        {
            bytes = bytes.saturating_add(file.size);
            group.push(file);
        }
        (!group.is_empty()).then_some(group)
    });
    // Results come in order; on a local disk, where fetching takes almost no time, more groups are parsed ahead.
    let at_once = parallelism() * if is_local { 4 } else { 1 };
    let loaded = stream::iter(groups).map(some).buffered(at_once.max(CONCURRENT_GETS / group_size));
    loaded.flat_map(|group| stream::iter(group.unwrap_or_else(|e| vec![Err(e)])))
}

/// Parses a commit or compacted range, naming the file in errors.
pub fn parse_file(file: &LogFile, bytes: &Bytes, wanted: Wanted) -> Result<CommitActions> {
    parse_commit(bytes, Origin::Commit(version_of(file)), wanted).map_err(|e| with_context(e, file))
}

/// The version of a commit, or the last version of a compacted range.
fn version_of(file: &LogFile) -> u64 {
    match file.name {
        LogName::Compacted { end, .. } => end,
        _ => file.name.version(),
    }
}

/// Names the file.
fn with_context(error: deltic_protocol::error::Error, file: &LogFile) -> Error {
    error.at_version(version_of(file)).in_file(log_file_path(&file.file_name))
}
