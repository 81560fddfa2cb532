//! One version of a table: immutable, cheap to open, read from only as far as asked.
//!
//! Opening reads no file action: protocol and metadata come from the newest checksum, else from the commits after the
//! checkpoint, else from the checkpoint's few other rows. The commits' file actions are parsed once, on first use; the
//! checkpoint's are streamed, column by column, each time.
//!
//! PROTOCOL.md: "Action Reconciliation", "Version Checksum File".

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_select::filter::filter_record_batch;
use bytes::Bytes;
use deltic_protocol::action::batch::{AddBatch, KeyBatch};
use deltic_protocol::action::json::{CommitActions, Wanted};
use deltic_protocol::action::{DomainMetadata, Metadata, Protocol, Txn};
use deltic_protocol::feature;
use deltic_protocol::log::crc::VersionChecksum;
use deltic_protocol::log::segment::{LogFile, Segment};
use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::property::Properties;
use deltic_protocol::replay::Replay;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use tokio::sync::OnceCell;

use crate::checkpoint::read::{AddColumns, OpenCheckpoint};
use crate::error::{Error, Result};
use crate::log_reader;
use crate::storage::Storage;

/// Commits parsed at once.
const CONCURRENT_PARSES: usize = 4;

/// One version of a table. Cloning shares everything.
#[derive(Debug, Clone)]
pub struct Snapshot(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    storage: Storage,
    segment: Segment,
    protocol: Protocol,
    metadata: Metadata,
    shape: TableShape,
    checksum: Option<VersionChecksum>,
    fetched: Vec<(LogFile, Bytes)>,
    tail: OnceCell<Tail>,
    checkpoint: OnceCell<Option<OpenCheckpoint>>,
}

/// The commits after the checkpoint, replayed.
#[derive(Debug)]
pub struct Tail {
    /// Newest first. Their adds and removes are not in them but below.
    pub commits: Vec<CommitActions>,
    /// Files that the tail adds and does not remove again.
    pub live: Vec<AddBatch>,
    /// Tombstones that no later add took back, as the columns of `remove`.
    pub tombstones: Vec<RecordBatch>,
    /// Every logical file that the tail mentions.
    pub replay: Replay,
}

impl Snapshot {
    /// Opens `version`, or the newest one.
    ///
    /// # Errors
    /// `NotFound` if there is no table or no such version, `Unsupported` if a reader feature is missing, `Corrupt` if
    /// the log is.
    pub async fn open(storage: &Storage, version: Option<u64>) -> Result<Self> {
        let segment = log_reader::segment(storage, version).await?;
        let at = segment.version;
        let opened = Self::of_segment(storage, segment).await;
        opened.map_err(|e| vanished(e).in_table(storage.location()).at_version(at))
    }

    async fn of_segment(storage: &Storage, segment: Segment) -> Result<Self> {
        let checksum = checksum(storage, &segment).await;
        let known = checksum.as_ref().map(|(version, _)| *version);
        let newer = segment.tail.iter().rev().filter(|f| known.is_none_or(|known| f.name.version() > known));
        let newer: Vec<LogFile> = newer.cloned().collect();
        let fetched: Vec<_> = log_reader::fetch(storage, newer).try_collect().await?;

        let (mut protocol, mut metadata) = (None, None);
        for (file, bytes) in &fetched {
            let actions = log_reader::parse(file, bytes, Wanted::NoFiles)?;
            protocol = protocol.or(actions.protocol);
            metadata = metadata.or(actions.metadata);
            if protocol.is_some() && metadata.is_some() {
                break;
            }
        }
        if let Some((_, checksum)) = &checksum {
            protocol = protocol.or_else(|| Some(checksum.protocol.clone()));
            metadata = metadata.or_else(|| Some(checksum.metadata.clone()));
        }
        let checkpoint = OnceCell::new();
        if (protocol.is_none() || metadata.is_none())
            && let Some(found) = &segment.checkpoint
        {
            let open = OpenCheckpoint::open(storage, found).await?;
            protocol = protocol.or_else(|| open.state().protocol.clone());
            metadata = metadata.or_else(|| open.state().metadata.clone());
            // A fresh cell is empty, so this cannot fail.
            let _first = checkpoint.set(Some(open));
        }
        let protocol = protocol.ok_or_else(|| Error::corrupt("the log has no protocol action"))?;
        feature::check_readable(&protocol)?;
        let metadata = metadata.ok_or_else(|| Error::corrupt("the log has no metaData action"))?;
        if !metadata.format.provider.eq_ignore_ascii_case("parquet") {
            let name = format!("format {}", metadata.format.provider);
            return Err(Error::unsupported(name, "the table's data files are not Parquet"));
        }
        let shape = TableShape {
            schema: metadata.schema()?,
            partition_columns: metadata.partition_columns.clone(),
            mapping: Properties::of(&metadata).column_mapping(&protocol)?,
        };
        let checksum = checksum.filter(|(version, _)| *version == segment.version).map(|(_, checksum)| checksum);
        let storage = storage.clone();
        let tail = OnceCell::new();
        Ok(Self(Arc::new(Inner { storage, segment, protocol, metadata, shape, checksum, fetched, tail, checkpoint })))
    }

    /// The version.
    pub fn version(&self) -> u64 {
        self.0.segment.version
    }

    /// Where the table is.
    pub fn storage(&self) -> &Storage {
        &self.0.storage
    }

    /// The files that define the version.
    pub fn segment(&self) -> &Segment {
        &self.0.segment
    }

    /// Which clients may read and write.
    pub fn protocol(&self) -> &Protocol {
        &self.0.protocol
    }

    /// Identity, schema, partitioning, properties.
    pub fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    /// The schema and how the log names its columns.
    pub fn shape(&self) -> &TableShape {
        &self.0.shape
    }

    /// The checksum of this very version, if there is one.
    pub fn checksum(&self) -> Option<&VersionChecksum> {
        self.0.checksum.as_ref()
    }

    /// The commits after the checkpoint, parsed and replayed on first use.
    pub async fn tail(&self) -> Result<&Tail> {
        self.0.tail.get_or_try_init(|| self.load_tail()).await.map_err(|e| e.in_table(self.0.storage.location()))
    }

    async fn load_tail(&self) -> Result<Tail> {
        match Tail::replay(self.load_commits(&self.0.segment.tail).await?).await? {
            Some(tail) => Ok(tail),
            // A compacted file that mentions a logical file twice was never reconciled; its commits were.
            None => {
                let plain = self.0.segment.tail_of_commits()?;
                let tail = Tail::replay(self.load_commits(&plain).await?).await?;
                tail.ok_or_else(|| Error::corrupt("a commit mentions a logical file twice"))
            }
        }
    }

    async fn load_commits(&self, files: &[LogFile]) -> Result<Vec<CommitActions>> {
        let have = |file: &LogFile| self.0.fetched.iter().find(|(f, _)| f == file).cloned();
        let newest_first = files.iter().rev();
        let missing: Vec<LogFile> = newest_first.clone().filter(|f| have(f).is_none()).cloned().collect();
        let mut missing: VecDeque<_> =
            log_reader::fetch(&self.0.storage, missing).try_collect::<Vec<_>>().await?.into();
        let files: Vec<(LogFile, Bytes)> =
            newest_first.filter_map(|file| have(file).or_else(|| missing.pop_front())).collect();
        let parse = |(file, bytes): (LogFile, Bytes)| async move {
            let parsed = tokio::task::spawn_blocking(move || log_reader::parse(&file, &bytes, Wanted::All)).await;
            parsed.map_err(|e| Error::internal("parsing a commit failed").caused_by(e))?
        };
        stream::iter(files).map(parse).buffered(CONCURRENT_PARSES).try_collect().await
    }

    /// The checkpoint, its footers read on first use.
    pub async fn checkpoint(&self) -> Result<Option<&OpenCheckpoint>> {
        let open = async || match &self.0.segment.checkpoint {
            Some(found) => OpenCheckpoint::open(&self.0.storage, found).await.map(Some),
            None => Ok(None),
        };
        self.0.checkpoint.get_or_try_init(open).await.map(Option::as_ref)
    }

    /// The live files: those of the tail with all their columns, those of the checkpoint with the ones asked for.
    pub async fn live_files(&self, columns: &AddColumns) -> Result<impl Stream<Item = Result<AddBatch>> + use<>> {
        self.tail().await?;
        let checkpoint = self.checkpoint().await?.map(|open| open.adds(columns));
        let snapshot = self.clone();
        let unseen = move |batch| unseen(snapshot.clone(), batch);
        let checkpoint = stream::iter(checkpoint).flatten().map_ok(unseen).try_buffered(CONCURRENT_PARSES);
        let tail: Vec<_> = self.tail().await?.live.iter().cloned().map(Ok).collect();
        let location = self.0.storage.location().to_owned();
        Ok(stream::iter(tail).chain(checkpoint).map_err(move |e| e.in_table(location.clone())))
    }

    /// How many files are live.
    pub async fn num_files(&self) -> Result<u64> {
        if let Some(files) = self.0.checksum.as_ref().and_then(|c| u64::try_from(c.num_files).ok()) {
            return Ok(files);
        }
        let columns = AddColumns { members: vec!["path", "deletionVector"], ..AddColumns::default() };
        let live = self.live_files(&columns).await?;
        live.try_fold(0, |files, batch| async move { Ok(files + batch.len() as u64) }).await
    }

    /// Application transactions, the newest of each application.
    pub async fn txns(&self) -> Result<Vec<Txn>> {
        let newest_first = self.tail().await?.commits.iter().flat_map(|c| c.txns.clone());
        let older = self.checkpoint().await?.map(|c| c.state().txns.clone()).unwrap_or_default();
        let mut seen = HashSet::new();
        Ok(newest_first.chain(older).filter(|txn| seen.insert(txn.app_id.clone())).collect())
    }

    /// Metadata domains that are not removed.
    pub async fn domains(&self) -> Result<Vec<DomainMetadata>> {
        let newest_first = self.tail().await?.commits.iter().flat_map(|c| c.domains.clone());
        let older = self.checkpoint().await?.map(|c| c.state().domains.clone()).unwrap_or_default();
        let mut seen = HashSet::new();
        let newest = newest_first.chain(older).filter(|domain| seen.insert(domain.domain.clone()));
        Ok(newest.filter(|domain| !domain.removed).collect())
    }
}

impl Tail {
    /// Replays commits given newest first; `None` if one of them was compacted without being reconciled.
    async fn replay(commits: Vec<CommitActions>) -> Result<Option<Self>> {
        let replayed = tokio::task::spawn_blocking(move || Self::replay_all(commits)).await;
        replayed.map_err(|e| Error::internal("replaying the commits failed").caused_by(e))?
    }

    fn replay_all(mut commits: Vec<CommitActions>) -> Result<Option<Self>> {
        let (mut live, mut tombstones, mut replay) = (Vec::new(), Vec::new(), Replay::new());
        let none = |rows: &RecordBatch| RecordBatch::new_empty(rows.schema());
        for commit in &mut commits {
            if commit.is_compacted && mentions_a_file_twice(commit)? {
                return Ok(None);
            }
            if !commit.adds.is_empty() {
                let rest = AddBatch::new(commit.adds.origin, none(commit.adds.rows()))?;
                let adds = std::mem::replace(&mut commit.adds, rest);
                live.push(adds.filter(replay.remember(&adds.keys()?))?);
            }
            if !commit.removes.is_empty() {
                let rest = none(&commit.remove_rows);
                let removes = std::mem::replace(&mut commit.removes, KeyBatch::new(&rest)?);
                let rows = std::mem::replace(&mut commit.remove_rows, rest);
                let newest = BooleanArray::new(replay.remember(&removes), None);
                tombstones.push(filter_record_batch(&rows, &newest)?);
            }
        }
        Ok(Some(Self { commits, live, tombstones, replay }))
    }
}

/// A listed file that is not there: log cleanup came in between. Not to be taken for a table that does not exist, in
/// whose place another might be created.
fn vanished(error: Error) -> Error {
    match error.is_not_found() {
        true => {
            Error::storage(true, "a file of the log is gone since it was listed; open the table again").caused_by(error)
        }
        false => error,
    }
}

/// The files of a checkpoint's batch that the tail does not mention.
async fn unseen(snapshot: Snapshot, batch: AddBatch) -> Result<AddBatch> {
    if snapshot.tail().await?.replay.is_empty() {
        return Ok(batch);
    }
    let work = move || match snapshot.0.tail.get() {
        Some(tail) => batch.filter(tail.replay.unseen(&batch.keys()?)),
        None => Err(Error::internal("the commits were replayed and are gone")),
    };
    let filtered = tokio::task::spawn_blocking(work).await;
    filtered.map_err(|e| Error::internal("replaying the checkpoint failed").caused_by(e))?
}

fn mentions_a_file_twice(commit: &CommitActions) -> Result<bool> {
    let mut seen = Replay::new();
    let mut all_new = |keys: &KeyBatch| seen.remember(keys).count_set_bits() == keys.len();
    Ok(!(all_new(&commit.adds.keys()?) && all_new(&commit.removes)))
}

/// The newest checksum of the segment. It only saves work: an unreadable one is none.
async fn checksum(storage: &Storage, segment: &Segment) -> Option<(u64, VersionChecksum)> {
    let file = segment.checksum.as_ref()?;
    let bytes = storage.get(&log_reader::log_path(&file.file_name)).await.ok()?;
    Some((file.name.version(), VersionChecksum::parse(&bytes).ok()?))
}
