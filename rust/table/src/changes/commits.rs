//! The commits of a feed: finds them, follows their protocol and metadata, and turns each into files to read.
//!
//! Commits are fetched and parsed a few at a time and processed in order: protocol and metadata of one apply
//! from that commit on. PROTOCOL.md: "In-Commit Timestamps", "Change Metadata".

use std::future::ready;
use std::ops::RangeInclusive;
use std::sync::Arc;

use deltic_protocol::action::json::CommitActions;
use deltic_protocol::action::{Metadata, Protocol};
use deltic_protocol::feature;
use deltic_protocol::log::segment::LogFile;
use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::property::Properties;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};

use super::files::{self, CommitColumns, FileChange};
use super::shape;
use crate::error::{Error, Kind, Result};
use crate::history;
use crate::log::LogSource;
use crate::scan::task::FileTask;
use crate::snapshot::Snapshot;
use deltic_store::{Storage, decode_path};

/// Commits that are fetched or parsed at once; about as many are in memory.
const CONCURRENT_COMMITS: usize = 8;

/// Files that are asked for their size at once.
const CONCURRENT_SIZES: usize = 8;

/// A commit of the feed.
#[derive(Debug, Clone)]
pub(super) struct Commit {
    file: LogFile,
    /// When its file was written, made later than those of the commits before.
    modified_ms: i64,
}

impl Commit {
    pub(super) fn version(&self) -> u64 {
        self.file.name.version()
    }
}

/// The commits of `versions`, the last of which has this metadata. Fails if one is missing.
pub(super) async fn list(log: &LogSource, versions: RangeInclusive<u64>, last: &Metadata) -> Result<Vec<Commit>> {
    let (start, end) = versions.into_inner();
    let own_times = Properties::of(last).in_commit_timestamps()?;
    let all_have = own_times.is_some_and(|times| times.since.is_none_or(|(version, _)| version <= start));
    // The adjusted time of a file depends on all files before it; commits with in-commit timestamps do not need it.
    let listing = log.list(if all_have { start } else { 0 }).await?;
    let mut commits = history::commits(&listing);
    commits.dedup_by_key(|file| file.name.version());
    let times = history::monotone(&commits);
    let oldest = commits.first().map(|file| file.name.version());
    let commits = commits.into_iter().zip(times).map(|(file, modified_ms)| Commit { file, modified_ms });
    let commits: Vec<Commit> = commits.filter(|commit| (start..=end).contains(&commit.version())).collect();
    let mut expected = start;
    for commit in &commits {
        if commit.version() != expected {
            break;
        }
        expected = expected.saturating_add(1);
    }
    if expected > end {
        return Ok(commits);
    }
    let message = format!("the changes of versions {start} to {end} cannot be read: ");
    Err(match oldest {
        Some(oldest) if oldest < expected => Error::corrupt(format!(
            "{message}the log has no commit for version {expected}; restore that file, or read a range without it"
        )),
        Some(oldest) => Error::version_not_found(
            format!(
                "{message}the commit of version {expected} is no longer in the log; start at version {oldest} or later"
            ),
            Some(oldest),
            None,
        ),
        None => Error::version_not_found(
            format!("{message}the commit of version {expected} is no longer in the log"),
            None,
            None,
        ),
    }
    .at_version(expected))
}

/// Protocol and metadata of the table at a commit, and the schema that the feed's rows must have.
#[derive(Debug, Clone)]
pub(super) struct TableAtCommit {
    protocol: Protocol,
    metadata: Metadata,
    feed_schema: Arc<FeedSchema>,
}

/// The schema of the feed's rows: that of its last version.
#[derive(Debug)]
struct FeedSchema {
    version: u64,
    shape: TableShape,
}

impl TableAtCommit {
    /// The table at the feed's first version, whose schema is checked against the last one's.
    pub(super) fn new(first: &Snapshot, last: &Snapshot) -> Result<Self> {
        let table = Self {
            protocol: first.protocol().clone(),
            metadata: first.metadata().clone(),
            feed_schema: Arc::new(FeedSchema { version: last.version(), shape: last.shape().clone() }),
        };
        table.check(first.version())?;
        Ok(table)
    }

    /// Applies protocol and metadata of the commit of `version`.
    fn follow(&mut self, version: u64, actions: &mut CommitActions) -> Result<()> {
        let (protocol, metadata) = (actions.protocol.take(), actions.metadata.take());
        if protocol.is_none() && metadata.is_none() {
            return Ok(());
        }
        if let Some(protocol) = protocol {
            feature::check_readable(&protocol).map_err(|e| e.at_version(version))?;
            self.protocol = protocol;
        }
        if let Some(metadata) = metadata {
            self.metadata = metadata;
        }
        self.check(version)
    }

    fn check(&self, version: u64) -> Result<()> {
        let at_version = |e: Error| e.at_version(version);
        let properties = Properties::of(&self.metadata);
        if !properties.change_data_feed().map_err(at_version)? {
            return Err(at_version(Error::invalid(format!(
                "the change data feed was off at version {version}: `delta.enableChangeDataFeed` was not true, and \
                 changes were not recorded; read a range without that version"
            ))));
        }
        let schema = self.metadata.schema().map_err(at_version)?;
        let mapping = properties.column_mapping(&self.protocol, &schema).map_err(at_version)?;
        let older = TableShape { schema, partition_columns: self.metadata.partition_columns.clone(), mapping };
        shape::check(&older, version, &self.feed_schema.shape, self.feed_schema.version)
    }

    /// When the commit was made.
    fn time_ms(&self, commit: &Commit, actions: &CommitActions) -> Result<i64> {
        let version = commit.version();
        let enabled = Properties::of(&self.metadata).in_commit_timestamps().map_err(|e| e.at_version(version))?;
        if enabled.is_some_and(|times| times.since.is_none_or(|(since, _)| since <= version)) {
            let time = actions.commit_info.as_ref().and_then(|info| info.in_commit_timestamp());
            return time.ok_or_else(|| history::lacks_time(&commit.file));
        }
        Ok(commit.modified_ms)
    }

    /// The files with the changes of `commit`.
    fn files(
        &mut self,
        commit: &Commit,
        mut actions: CommitActions,
    ) -> Result<impl Iterator<Item = Result<FileChange>> + Send + use<>> {
        let version = commit.version();
        self.follow(version, &mut actions)?;
        let commit_columns = CommitColumns::new(version, self.time_ms(commit, &actions)?)?;
        files::of(actions, commit_columns, !self.feed_schema.shape.partition_columns.is_empty())
    }
}

/// The files to read, commit by commit.
pub(super) fn tasks(
    log: LogSource,
    commits: Vec<Commit>,
    table: Option<TableAtCommit>,
) -> BoxStream<'static, Result<FileTask>> {
    let Some(table) = table else { return stream::empty().boxed() };
    let (before, storage) = (log.clone(), log.storage().clone());
    let (first, feed_schema) = (commits.first().map(Commit::version), table.feed_schema.clone());
    stream::iter(commits)
        .map(move |commit| load(log.clone(), commit))
        .buffered(CONCURRENT_COMMITS)
        .and_then(move |loaded| {
            let (log, feed_schema) = (before.clone(), feed_schema.clone());
            async move {
                let (commit, actions) = loaded;
                // The feed has checked the schema before every later commit.
                if first == Some(commit.version()) {
                    check_removed(&log, &feed_schema, &commit, &actions).await?;
                }
                Ok((commit, actions))
            }
        })
        .scan(table, |table, commit| ready(Some(commit.and_then(|(commit, actions)| table.files(&commit, actions)))))
        .map_ok(stream::iter)
        .try_flatten()
        .map(move |change| sized(storage.clone(), change))
        .buffered(CONCURRENT_SIZES)
        .boxed()
}

async fn load(log: LogSource, commit: Commit) -> Result<(Commit, CommitActions)> {
    let actions = log.load_commit(&commit.file).await?;
    Ok((commit, actions))
}

/// Refuses a commit that removes rows of a schema that it replaces, if their values do not fit the last one.
async fn check_removed(
    log: &LogSource,
    feed_schema: &FeedSchema,
    commit: &Commit,
    actions: &CommitActions,
) -> Result<()> {
    let removes = actions.metadata.is_some() && actions.cdc.is_empty() && actions.remove_rows.num_rows() > 0;
    let Some(before) = commit.version().checked_sub(1).filter(|_| removes) else { return Ok(()) };
    match Snapshot::open(log, Some(before)).await {
        Ok(before) => shape::check_removed(before.shape(), commit.version(), &feed_schema.shape, feed_schema.version),
        // The log begins after that version.
        Err(e) if matches!(e.kind(), Kind::VersionNotFound { .. }) => Ok(()),
        Err(e) => Err(e),
    }
}

/// Asks the store for the size if the log does not have it.
async fn sized(storage: Storage, change: Result<FileChange>) -> Result<FileTask> {
    let FileChange { mut task, size } = change?;
    task.size = match size {
        Some(size) => size,
        None => {
            let path = decode_path(&task.path)?;
            storage.head(&path).await.map_err(|e| e.in_file(&task.path))?.size
        }
    };
    Ok(task)
}
