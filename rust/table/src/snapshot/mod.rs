//! One version of a table: immutable, cheap to open, and read only as far as needed.
//!
//! Opening reads no file action: protocol and metadata come from the newest checksum, otherwise from the commits after the
//! checkpoint, otherwise from the checkpoint's rows of other actions. The commits' file actions are parsed once, on first
//! use; the checkpoint's are streamed, column by column, each time.
//!
//! PROTOCOL.md: "Action Reconciliation", "Version Checksum File".

mod without_checkpoint;

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::action::json::CommitBatch;
use deltic_protocol::action::{DomainMetadata, Metadata, Protocol, Txn};
use deltic_protocol::feature;
use deltic_protocol::log::crc::VersionChecksum;
use deltic_protocol::log::segment::{LogFile, Segment};
use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::property::Properties;
use futures::future::{OptionFuture, join};
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use tokio::time::sleep;

use crate::checkpoint::read::{AddColumns, OpenCheckpoint};
use crate::error::{Error, NotFoundFlag, Result, vanished};
use crate::file_index::FileIndex;
use crate::log::tail::Tail;
use crate::log::{Loaded, LogSource};
use crate::once::Once;
use crate::parallel::try_compute;
use deltic_store::Storage;

/// How many commits, or batches of a checkpoint, are processed at once.
const CONCURRENT_PARSES: usize = 4;

/// One version of a table. Clones share everything.
#[derive(Debug, Clone)]
pub struct Snapshot(Arc<Inner>);

/// The file index of the checkpoint, opened on first use.
type LazyFileIndex = Arc<Once<Option<FileIndex>>>;

#[derive(Debug)]
struct Inner {
    log: LogSource,
    segment: Segment,
    protocol: Protocol,
    metadata: Metadata,
    shape: TableShape,
    /// The checksum of this version, if there is one; it is read on first use unless opening has read it.
    checksum: Once<Option<VersionChecksum>>,
    fetched: Mutex<Vec<(LogFile, Bytes)>>,
    tail: Once<Tail>,
    /// Shared with snapshots that this one was made from or that are made from it.
    files: LazyFileIndex,
    /// Whether the checkpoint or a commit was missing when it was needed: log cleanup has deleted it.
    not_found: Arc<NotFoundFlag>,
    /// How many bytes `files` may keep decoded, once it is opened; [`CACHE_LIMIT_UNSET`] until a caller sets it.
    cache_bytes: AtomicUsize,
}

impl Inner {
    /// Takes the commits that opening has fetched.
    fn take_fetched(&self) -> Vec<(LogFile, Bytes)> {
        // This does not wait for the lock, which may have been held when the process was forked.
        self.fetched.try_lock().map(|mut fetched| std::mem::take(&mut *fetched)).unwrap_or_default()
    }
}

/// No limit was set, so that [`FileIndex`] uses its own default.
const CACHE_LIMIT_UNSET: usize = usize::MAX;
/// Opening keeps the bytes of fetched commits for the first plan, unless they are more than this.
const MAX_FETCHED_BYTES: usize = 128 * 1024 * 1024;
/// More bytes than this are kept only for [`FETCHED_BYTES_LIFETIME`].
const MAX_LASTING_FETCHED_BYTES: usize = 1024 * 1024;
const FETCHED_BYTES_LIFETIME: Duration = Duration::from_secs(10);

impl Snapshot {
    /// Opens `version`, or the newest one.
    ///
    /// # Errors
    /// `NotFound` if there is no table, `VersionNotFound` if there is no such version, `Unsupported` if a reader feature is
    /// missing, `Corrupt` if the log is.
    pub async fn open(log: &LogSource, version: Option<u64>) -> Result<Self> {
        match log.segment(version).await {
            Ok(segment) => Self::open_segment(log, segment).await,
            Err(error) => Err(log.explain(error).await),
        }
    }

    /// Opens the version that a segment defines, without its checkpoint if that cannot be read.
    pub async fn open_segment(log: &LogSource, segment: Segment) -> Result<Self> {
        let (version, checkpoint) = (segment.version, segment.checkpoint.clone());
        match Self::load_segment(log, segment).await {
            Err(error) if error.is_corrupt() && checkpoint.is_some() => {
                Self::without_checkpoint(log, version, checkpoint, error).await
            }
            opened => opened,
        }
    }

    /// Opens the newest version; `None` if there is no table.
    ///
    /// # Errors
    /// Those of [`Snapshot::open`].
    pub async fn find(log: &LogSource) -> Result<Option<Self>> {
        match log.segment(None).await {
            Ok(segment) => Self::open_segment(log, segment).await.map(Some),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens the version that a segment defines.
    pub async fn load_segment(log: &LogSource, segment: Segment) -> Result<Self> {
        Self::load_segment_with(log, segment, None).await
    }

    /// As [`Snapshot::load_segment`], with the file index of the same checkpoint, if another snapshot has it.
    async fn load_segment_with(log: &LogSource, segment: Segment, files: Option<LazyFileIndex>) -> Result<Self> {
        let at = segment.version;
        // A torn compacted file can be replaced by the commits of its range, if they still exist.
        let without_compactions =
            segment.has_compactions().then(|| segment.tail_of_commits().map(|tail| (tail, segment.clone())));
        let opened = match (Self::load(log, segment, files.clone()).await, without_compactions) {
            (Err(error), Some(Ok((tail, segment)))) if error.is_corrupt() => {
                Self::load(log, Segment { tail, ..segment }, files).await.map_err(|_| error)
            }
            (opened, _) => opened,
        };
        opened.map_err(|e| vanished(e).in_table(log.location()).at_version(at))
    }

    /// Loads a segment. `shared`: the file index of its checkpoint, from a snapshot with the same checkpoint.
    async fn load(log: &LogSource, segment: Segment, shared: Option<LazyFileIndex>) -> Result<Self> {
        let checksum = checksum(log, &segment).await;
        let checksum_version = checksum.as_ref().map(|(version, _)| *version);
        let is_newer = |f: &&LogFile| checksum_version.is_none_or(|version| f.name.version() > version);
        let newer = segment.tail.iter().rev().filter(is_newer);
        let newer: Vec<LogFile> = newer.cloned().collect();
        // Commits seldom have both protocol and metadata, so the checkpoint is opened at the same time; a plan needs it anyway.
        let checkpoint = segment.checkpoint.as_ref().filter(|_| checksum.is_none() && shared.is_none());
        let opened = OptionFuture::from(checkpoint.map(|files| OpenCheckpoint::open(log, files)));
        let (table_actions, opened) = join(read_table_actions(log, newer), opened).await;
        let TableActions { mut protocol, mut metadata, fetched } = table_actions?;
        if let Some((_, checksum)) = &checksum {
            protocol = protocol.or_else(|| Some(checksum.protocol.clone()));
            metadata = metadata.or_else(|| Some(checksum.metadata.clone()));
        }
        let is_missing = protocol.is_none() || metadata.is_none();
        let files = match opened {
            Some(Ok(open)) => Arc::new(Once::from(Some(FileIndex::new(open)))),
            Some(Err(error)) if is_missing => return Err(error),
            // A caller that needs the checkpoint opens it again.
            Some(Err(_)) | None => shared.unwrap_or_default(),
        };
        if let Some(Some(files)) = files.get() {
            let state = files.checkpoint().non_file_actions();
            protocol = protocol.or_else(|| state.protocol.clone());
            metadata = metadata.or_else(|| state.metadata.clone());
        }
        let protocol = protocol.ok_or_else(|| Error::corrupt("the log has no protocol action"))?;
        let metadata = metadata.ok_or_else(|| Error::corrupt("the log has no metaData action"))?;
        let shape = readable_shape(&protocol, &metadata)?;
        let checksum = checksum.filter(|(version, _)| *version == segment.version).map(|(_, checksum)| checksum).into();
        let (log, tail) = (log.clone(), Once::default());
        let bytes = fetched.iter().map(|(_, bytes)| bytes.len()).fold(0, usize::saturating_add);
        let (fetched, bytes) = if bytes > MAX_FETCHED_BYTES { (Vec::new(), 0) } else { (fetched, bytes) };
        let (fetched, cache_bytes) = (Mutex::new(fetched), AtomicUsize::new(CACHE_LIMIT_UNSET));
        let not_found = Arc::default();
        let inner =
            Inner { log, segment, protocol, metadata, shape, checksum, fetched, tail, files, not_found, cache_bytes };
        let opened = Self(Arc::new(inner));
        if bytes > MAX_LASTING_FETCHED_BYTES {
            tokio::spawn(opened.drop_fetched_later());
        }
        Ok(opened)
    }

    /// Drops the bytes that opening fetched after some time, in case no plan is made.
    fn drop_fetched_later(&self) -> impl Future<Output = ()> + use<> {
        let inner = Arc::downgrade(&self.0);
        async move {
            sleep(FETCHED_BYTES_LIFETIME).await;
            if let Some(inner) = inner.upgrade() {
                inner.take_fetched();
            }
        }
    }

    /// The newest version: this snapshot, or a new one that shares everything with it except the newer commits.
    ///
    /// Takes one LIST, and work in proportion to the newer commits. If the log does not simply continue from this version,
    /// it is opened anew.
    ///
    /// # Errors
    /// Those of [`Snapshot::open`].
    pub async fn refresh(&self) -> Result<Self> {
        let log = &self.0.log;
        let in_table = |e: Error| e.in_table(log.location());
        if self.is_gone() {
            return Self::open(log, None).await;
        }
        let listing = log.list(self.version()).await.map_err(in_table)?;
        let Some(segment) = self.0.segment.extended(&listing) else { return Self::open(log, None).await };
        if segment.version == self.version() {
            return Ok(self.clone());
        }
        self.extended_at(segment).await
    }

    /// A version by its number, older or newer; this snapshot itself if it is the same version and the log has not changed.
    ///
    /// Takes one LIST if both have the same checkpoint, whose file index is shared then. For a later version only
    /// the newer commits are read, if the commits of this one were replayed. Otherwise it is opened anew.
    ///
    /// # Errors
    /// Those of [`Snapshot::open`].
    pub async fn at(&self, version: u64) -> Result<Self> {
        let log = &self.0.log;
        let base = self.0.segment.checkpoint_version().unwrap_or_default();
        if version < base || self.is_gone() {
            return Self::open(log, Some(version)).await;
        }
        let listing = log.list(base).await.map_err(|e| e.in_table(log.location()))?;
        let shared = self.0.files.get().is_some_and(Option::is_some).then(|| self.0.files.clone());
        match Segment::choose(&listing, Some(version), true) {
            Ok(segment) if segment.checkpoint != self.0.segment.checkpoint => Self::open_segment(log, segment).await,
            Ok(segment) if version == self.version() && segment.latest_commit() == self.0.segment.latest_commit() => {
                Ok(self.clone())
            }
            Ok(segment) => match self.continued(listing, version) {
                Some(further) => self.extended_at(further).await,
                None => Self::load_segment_with(log, segment, shared).await,
            },
            // Older files than in this listing may help, and make for a better error.
            Err(_) => Self::open(log, Some(version)).await,
        }
    }

    /// The segment of a later version, by a listing that begins no later than this version, if its commits continue those
    /// that this snapshot has replayed.
    fn continued(&self, mut listing: Vec<LogFile>, version: u64) -> Option<Segment> {
        self.replayed().filter(|_| version > self.version())?;
        listing.retain(|file| file.name.version() <= version);
        self.0.segment.extended(&listing).filter(|segment| segment.version == version)
    }

    async fn extended_at(&self, segment: Segment) -> Result<Self> {
        let (at, location) = (segment.version, self.0.log.location());
        self.extended(segment, Vec::new()).await.map_err(|e| vanished(e).in_table(location).at_version(at))
    }

    /// The version after these commits, whose lines are given, ascending from the next version. There are no requests to
    /// the store if this snapshot's own commits were replayed.
    pub(crate) async fn followed_by(
        &self,
        commits: Vec<(LogFile, Bytes)>,
        checksum: Option<VersionChecksum>,
    ) -> Result<Self> {
        self.tail().await?;
        let mut segment = self.0.segment.clone();
        for (file, _) in &commits {
            segment.version = file.name.version();
            segment.tail.push(file.clone());
            segment.commits.push(file.clone());
        }
        Ok(self.extended(segment, commits).await?.with_checksum(checksum))
    }

    /// Sets the checksum of a snapshot that is not shared yet.
    fn with_checksum(mut self, checksum: Option<VersionChecksum>) -> Self {
        if let (Some(inner), Some(checksum)) = (Arc::get_mut(&mut self.0), checksum) {
            inner.checksum = Some(checksum).into();
        }
        self
    }

    /// The later version of `segment`, which has this one's commits and newer ones. `fetched`: newer commits that
    /// need not be read.
    async fn extended(&self, segment: Segment, fetched: Vec<(LogFile, Bytes)>) -> Result<Self> {
        let base = &self.0;
        let newer = segment.tail.iter().filter(|f| f.name.version() > self.version());
        let newer: Vec<_> = self.load_commits(&newer.cloned().collect::<Vec<_>>(), fetched).try_collect().await?;
        let commits = || newer.iter().flat_map(|batch: &CommitBatch| &batch.commits);
        let protocol = commits().find_map(|commit| commit.protocol.clone());
        let metadata = commits().find_map(|commit| commit.metadata.clone());
        let protocol = protocol.unwrap_or_else(|| base.protocol.clone());
        let metadata = metadata.unwrap_or_else(|| base.metadata.clone());
        let shape = readable_shape(&protocol, &metadata)?;
        let newer = Tail::replay(stream::iter(newer.into_iter().map(Ok))).await?;
        let newer = newer.ok_or_else(|| Error::corrupt("a commit mentions a logical file twice"))?;
        let tail = Once::from(self.tail().await?.extended(newer)?);
        let (log, files, fetched) = (base.log.clone(), base.files.clone(), Mutex::default());
        let checksum = Once::default();
        let cache_bytes = AtomicUsize::new(base.cache_bytes.load(Ordering::Relaxed));
        let not_found = base.not_found.clone();
        let inner =
            Inner { log, segment, protocol, metadata, shape, checksum, fetched, tail, files, not_found, cache_bytes };
        Ok(Self(Arc::new(inner)))
    }

    /// This version as it would be with another protocol and other metadata, which are not in the log yet: the same files, read
    /// as a table with these columns.
    ///
    /// # Errors
    /// `Unsupported` if deltic could not read the table; those of reading the commits.
    pub(crate) async fn with_metadata(&self, protocol: Protocol, metadata: Metadata) -> Result<Self> {
        let base = &self.0;
        let shape = readable_shape(&protocol, &metadata)?;
        let inner = Inner {
            log: base.log.clone(),
            segment: base.segment.clone(),
            protocol,
            metadata,
            shape,
            checksum: Once::default(),
            fetched: Mutex::default(),
            tail: Once::from(self.tail().await?.clone()),
            files: base.files.clone(),
            not_found: base.not_found.clone(),
            cache_bytes: AtomicUsize::new(base.cache_bytes.load(Ordering::Relaxed)),
        };
        Ok(Self(Arc::new(inner)))
    }

    /// Whether a file of this version's log was missing when it was needed.
    pub(crate) fn is_gone(&self) -> bool {
        let files = self.0.files.get().and_then(Option::as_ref);
        self.0.not_found.is_noted() || files.is_some_and(|files| files.checkpoint().is_gone())
    }

    /// The version.
    pub fn version(&self) -> u64 {
        self.0.segment.version
    }

    /// The storage of the table.
    pub fn storage(&self) -> &Storage {
        self.0.log.storage()
    }

    /// The log of the table.
    pub fn log(&self) -> &LogSource {
        &self.0.log
    }

    /// The files that define the version.
    pub fn segment(&self) -> &Segment {
        &self.0.segment
    }

    /// The protocol, which decides which clients may read and write.
    pub fn protocol(&self) -> &Protocol {
        &self.0.protocol
    }

    /// The metadata: id, schema, partitioning, properties.
    pub fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    /// The schema, with the physical names of its columns.
    pub fn shape(&self) -> &TableShape {
        &self.0.shape
    }

    /// The checksum of this version, if it was read.
    pub fn checksum(&self) -> Option<&VersionChecksum> {
        self.0.checksum.get().and_then(Option::as_ref)
    }

    /// The checksum of this version, which is read now if it was not before.
    async fn read_checksum(&self) -> Option<&VersionChecksum> {
        let read = async || {
            let segment = &self.0.segment;
            let is_own = segment.checksum.as_ref().is_some_and(|file| file.name.version() == segment.version);
            let checksum = if is_own { checksum(&self.0.log, segment).await } else { None };
            Ok::<_, Infallible>(checksum.map(|(_, checksum)| checksum))
        };
        let Ok(checksum) = self.0.checksum.get_or_try_init(read).await;
        checksum.as_ref()
    }

    /// The commits after the checkpoint, parsed and replayed on first use.
    pub async fn tail(&self) -> Result<&Tail> {
        self.0.tail.get_or_try_init(|| self.load_tail()).await.map_err(|e| e.in_table(self.0.log.location()))
    }

    /// The commits after the checkpoint, if they were replayed already.
    pub(crate) fn replayed(&self) -> Option<&Tail> {
        self.0.tail.get()
    }

    async fn load_tail(&self) -> Result<Tail> {
        let replayed = Tail::replay(self.load_commits(&self.0.segment.tail, self.0.take_fetched())).await;
        let is_torn = |e: &Error| e.is_corrupt() && self.0.segment.has_compactions();
        match replayed {
            Ok(Some(tail)) => Ok(tail),
            Err(error) if !is_torn(&error) => Err(error),
            // A compacted file that mentions a logical file twice was not reconciled, and one that cannot be read was
            // torn; then the commits are read instead.
            Ok(None) | Err(_) => {
                let plain = self.0.segment.tail_of_commits()?;
                let tail = Tail::replay(self.load_commits(&plain, Vec::new())).await?;
                tail.ok_or_else(|| Error::corrupt("a commit mentions a logical file twice"))
            }
        }
    }

    /// Loads commits, newest first, without fetching those again that opening has fetched.
    fn load_commits(
        &self,
        files: &[LogFile],
        fetched: Vec<(LogFile, Bytes)>,
    ) -> impl Stream<Item = Result<CommitBatch>> {
        let fetched = fetched.into_iter().map(|(file, bytes)| (file.file_name, bytes)).collect();
        let newest_first = files.iter().rev().cloned().collect();
        let loaded = self.0.log.load_whole(newest_first, fetched);
        loaded.map_err(|e| self.0.not_found.note(e))
    }

    /// The checkpoint; its footers are read on first use.
    pub async fn checkpoint(&self) -> Result<Option<&OpenCheckpoint>> {
        Ok(self.files().await?.map(FileIndex::checkpoint))
    }

    /// The file index of the checkpoint, whose columns are decoded when they are needed.
    pub async fn files(&self) -> Result<Option<&FileIndex>> {
        let open = async || {
            let Some(checkpoint) = &self.0.segment.checkpoint else { return Ok(None) };
            let open = OpenCheckpoint::open(&self.0.log, checkpoint).await.map_err(|e| self.0.not_found.note(e))?;
            let files = FileIndex::new(open);
            match self.0.cache_bytes.load(Ordering::Relaxed) {
                CACHE_LIMIT_UNSET => {}
                bytes => files.limit_cache(bytes),
            }
            Ok(Some(files))
        };
        self.0.files.get_or_try_init(open).await.map(Option::as_ref)
    }

    /// Sets how many bytes of the checkpoint's decoded columns are kept at most, even if it is opened later. Opens nothing.
    pub fn limit_cache(&self, bytes: usize) {
        self.0.cache_bytes.store(bytes, Ordering::Relaxed);
        if let Some(Some(files)) = self.0.files.get() {
            files.limit_cache(bytes);
        }
    }

    /// The live files: those of the commits after the checkpoint with all columns, those of the checkpoint with the
    /// requested ones.
    pub async fn live_files(&self, columns: &AddColumns) -> Result<impl Stream<Item = Result<AddBatch>> + use<>> {
        self.tail().await?;
        let snapshot = self.with_readable_sidecars().await?;
        let checkpoint = snapshot.checkpoint().await?.map(|open| open.adds(columns));
        let tail: Vec<_> = snapshot.tail().await?.live.iter().cloned().map(Ok).collect();
        let unseen = move |batch| unseen(snapshot.clone(), batch);
        let checkpoint = stream::iter(checkpoint).flatten().map_ok(unseen).try_buffered(CONCURRENT_PARSES);
        let location = self.0.log.location().to_owned();
        Ok(stream::iter(tail).chain(checkpoint).map_err(move |e| e.in_table(location.clone())))
    }

    /// How many files are live.
    pub async fn num_files(&self) -> Result<u64> {
        if let Some(files) = self.read_checksum().await.and_then(|c| u64::try_from(c.num_files).ok()) {
            return Ok(files);
        }
        let columns = AddColumns { members: vec!["path", "deletionVector"], ..AddColumns::default() };
        let live = self.live_files(&columns).await?;
        live.try_fold(0, |files, batch| async move { Ok(files + batch.len() as u64) }).await
    }

    /// The newest `txn` action of each application.
    pub async fn txns(&self) -> Result<Vec<Txn>> {
        self.tail().await?;
        let readable = self.with_readable_checkpoint().await?;
        let newest_first = readable.tail().await?.commits.iter().flat_map(|c| c.txns.iter().rev().cloned());
        let older = readable.checkpoint().await?.map(|c| c.non_file_actions().txns.clone()).unwrap_or_default();
        let mut seen = HashSet::new();
        Ok(newest_first.chain(older).filter(|txn| seen.insert(txn.app_id.clone())).collect())
    }

    /// The last version that an application committed, unless it has expired by `delta.setTransactionRetentionDuration`.
    ///
    /// A transaction without a time never expires: otherwise its writer could write twice.
    pub async fn transaction_version(&self, app_id: &str, now_ms: i64) -> Result<Option<i64>> {
        let retention = Properties::of(&self.0.metadata).set_transaction_retention();
        let retention = retention.map_err(|e| e.in_table(self.0.log.location()))?;
        let expired = |txn: &Txn| match (retention, txn.last_updated) {
            (Some(retention), Some(updated)) => updated <= now_ms.saturating_sub(retention),
            (None, _) | (_, None) => false,
        };
        let txn = self.txns().await?.into_iter().find(|txn| txn.app_id == app_id);
        Ok(txn.filter(|txn| !expired(txn)).map(|txn| txn.version))
    }

    /// Metadata domains that are not removed.
    pub async fn domains(&self) -> Result<Vec<DomainMetadata>> {
        self.tail().await?;
        let readable = self.with_readable_checkpoint().await?;
        let newest_first = readable.tail().await?.commits.iter().flat_map(|c| c.domains.iter().rev().cloned());
        let older = readable.checkpoint().await?.map(|c| c.non_file_actions().domains.clone()).unwrap_or_default();
        let mut seen = HashSet::new();
        let newest = newest_first.chain(older).filter(|domain| seen.insert(domain.domain.clone()));
        Ok(newest.filter(|domain| !domain.removed).collect())
    }
}

/// The shape of a table, if deltic can read it.
fn readable_shape(protocol: &Protocol, metadata: &Metadata) -> Result<TableShape> {
    feature::check_readable(protocol)?;
    if !metadata.format.provider.eq_ignore_ascii_case("parquet") {
        let name = format!("format {}", metadata.format.provider);
        return Err(Error::unsupported(name, "the table's data files are not Parquet"));
    }
    let schema = metadata.schema()?;
    let mapping = Properties::of(metadata).column_mapping(protocol, &schema)?;
    Ok(TableShape { schema, partition_columns: metadata.partition_columns.clone(), mapping })
}

/// The newest protocol and metadata action of some commits.
#[derive(Default)]
struct TableActions {
    protocol: Option<Protocol>,
    metadata: Option<Metadata>,
    /// The commits that were read to find them, newest first.
    fetched: Vec<(LogFile, Bytes)>,
}

/// Reads commits, newest first, until both actions are found.
async fn read_table_actions(log: &LogSource, newest_first: Vec<LogFile>) -> Result<TableActions> {
    let mut found = TableActions::default();
    let mut commits = std::pin::pin!(log.load(newest_first, HashMap::new()));
    while let Some(Loaded { actions, file, bytes }) = commits.try_next().await? {
        found.fetched.push((file, bytes));
        found.protocol = found.protocol.or(actions.protocol);
        found.metadata = found.metadata.or(actions.metadata);
        if found.protocol.is_some() && found.metadata.is_some() {
            break;
        }
    }
    Ok(found)
}

/// The files of a checkpoint's batch that newer commits do not mention.
async fn unseen(snapshot: Snapshot, batch: AddBatch) -> Result<AddBatch> {
    if snapshot.tail().await?.mentions_no_file() {
        return Ok(batch);
    }
    let work = move || match snapshot.0.tail.get() {
        Some(tail) => batch.filter(tail.unseen(&batch.keys()?)),
        None => Err(Error::internal("the replayed commits were dropped")),
    };
    try_compute(work, |e| Error::internal("replaying the checkpoint failed").caused_by(e)).await
}

/// The newest checksum of the segment. It only saves work, so an unreadable one is ignored.
async fn checksum(log: &LogSource, segment: &Segment) -> Option<(u64, VersionChecksum)> {
    let file = segment.checksum.as_ref()?;
    let bytes = log.read(&file.file_name).await.ok()?;
    Some((file.name.version(), VersionChecksum::parse(&bytes).ok()?))
}
