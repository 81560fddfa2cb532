//! Finds files that still hold rows that match a condition: data files and change files of the versions that can be read.
//!
//! Files whose partition values or statistics rule it out are skipped; the others are read until a row matches, whether a
//! deletion vector deletes it or not. A file that a vacuum has deleted holds nothing. One may hold anything that cannot
//! be read, that is not below the table and not there, or that is of a version in which the condition's columns are others
//! than now: of another type, another column by the same name, partition columns then and not now or the other way round.
//!
//! Files that the oldest version which can be read has removed are looked at as well, as far as it still names them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use arrow_array::{Array, RecordBatch};
use deltic_protocol::action::batch::{AddBatch, Origin};
use deltic_protocol::action::json::CommitActions;
use deltic_protocol::action::{Cdc, Protocol};
use deltic_protocol::log::segment::{LogFile, readable_commits};
use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::property::Properties;
use deltic_protocol::replay::canonical_path;
use deltic_protocol::schema::DataType;
use deltic_protocol::schema::widen::is_widening;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::Serialize;

use crate::checkpoint::read::AddColumns;
use crate::error::{Error, Kind, Result};
use crate::events::TARGET;
use crate::log::LogSource;
use crate::maintenance::dispensable;
use crate::parallel::{all_of, in_parallel, worker_count};
use crate::progress::{Progress, Unit};
use crate::scan::limit::read_first;
use crate::scan::plan::{ScanPlan, task};
use crate::scan::read::{ReadOptions, Reader, may_have_dropped_columns};
use crate::scan::task::FileTask;
use crate::snapshot::Snapshot;
use deltic_store::{FileMeta, Storage, decode_path};

/// Commits that are read at once.
const CONCURRENT_COMMITS: usize = 16;

/// What still holds the rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RetainedRows {
    /// Versions that have them, or whose changes do, and can be read.
    pub versions: Vec<u64>,
    /// Data files that hold any.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Change files that hold any.
    pub change_files: u64,
    /// Their bytes.
    pub change_bytes: u64,
    /// All these files, as the log names them.
    pub paths: Vec<String>,
    /// Those of them that a vacuum with the table's retention takes now.
    pub vacuum_files: u64,
    /// Their bytes.
    pub vacuum_bytes: u64,
    /// From when on such a vacuum takes all, in milliseconds since the epoch; none if nothing is to be taken.
    pub vacuum_from_ms: Option<i64>,
    /// Those of all these files that cannot be read, or not as their versions have them, so that it is not known
    /// whether they hold such rows.
    pub files_unreadable: u64,
    /// Files that no vacuum of this table takes, for they are not below its folder.
    pub files_elsewhere: u64,
}

/// Whether a file holds any of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    None,
    Some,
    /// It cannot be read, or not as its version has it.
    Unknown,
}

/// A file that may hold some of the rows.
#[derive(Debug, Clone)]
struct FileWithRows {
    task: FileTask,
    is_change: bool,
    /// Whether the condition's columns were others in a version that has it.
    is_unknown: bool,
    /// The versions that have it, from the first to the one that has it no longer, if there is one; none of a file that the
    /// oldest version has removed.
    spans: Vec<(u64, Option<u64>)>,
    /// When that was, in milliseconds since the epoch.
    removed_ms: Option<i64>,
}

/// Finds what holds rows, and remembers which files do, so that none is read twice.
#[derive(Debug, Default)]
pub(super) struct RetainedRowsFinder {
    known: HashMap<String, Holds>,
}

impl RetainedRowsFinder {
    /// What holds rows that make `filter` TRUE in the versions up to that of a snapshot.
    ///
    /// # Errors
    /// `Invalid` for a filter that does not fit, and those of reading the log and files.
    pub(super) async fn find(&mut self, snapshot: &Snapshot, filter: &str, now_ms: i64) -> Result<RetainedRows> {
        let (holders, times) = self.look(snapshot, filter).await?;
        let retention_ms = Properties::of(snapshot.metadata()).deleted_file_retention()?;
        summary(snapshot, &holders, (&times, now_ms, retention_ms)).await
    }

    /// Reads the files that may hold such rows, so that what stands in the way shows.
    ///
    /// # Errors
    /// As [`RetainedRowsFinder::find`].
    pub(super) async fn read(&mut self, snapshot: &Snapshot, filter: &str) -> Result<()> {
        self.look(snapshot, filter).await.map(drop)
    }

    /// The files that hold such rows, in the order of their paths, and when each version was made.
    ///
    /// # Errors
    /// As [`RetainedRowsFinder::find`].
    async fn look(
        &mut self,
        snapshot: &Snapshot,
        filter: &str,
    ) -> Result<(Vec<(FileWithRows, Holds)>, BTreeMap<u64, i64>)> {
        let plan = ScanPlan::new(snapshot, Some(&[]), Some(filter)).await?;
        let storage = snapshot.storage();
        let log = LogSource::of(storage);
        let mut commits = readable_commits(&log.list(0).await?);
        commits.retain(|file| file.name.version() <= snapshot.version());
        let times = commits.iter().map(|file| (file.name.version(), file.modified_ms));
        let mut times: BTreeMap<u64, i64> = times.collect();
        let oldest = oldest(snapshot, &commits).await?;
        times.entry(oldest.version()).or_insert(i64::MIN);
        let judged =
            plan.filter().iter().flat_map(|filter| filter.columns()).map(|column| column.path.clone()).collect();
        let may_lack = may_have_dropped_columns(snapshot);
        let protocol = oldest.protocol().clone();
        let mut history = History { plan: &plan, judged, may_lack, protocol, fits: true, files: HashMap::new(), times };
        history.read((&oldest, snapshot), &log, commits).await?;
        let mut holders = self.holding(storage, &plan, history.files).await?;
        holders.sort_by(|(one, _), (other, _)| one.task.path.cmp(&other.task.path));
        Ok((holders, history.times))
    }

    /// Those that do hold rows.
    async fn holding(
        &mut self,
        storage: &Storage,
        plan: &ScanPlan,
        files: HashMap<String, FileWithRows>,
    ) -> Result<Vec<(FileWithRows, Holds)>> {
        let reader = Reader::new(storage.clone(), plan.spec().clone())?;
        let unknown = files.iter().filter(|(path, _)| !self.known.contains_key(path.as_str()));
        let unknown: Vec<_> = unknown.collect();
        let progress = Progress::begin("PURGE", Unit::Files, Some(unknown.len() as u64));
        let look = |(path, holder): (&String, &FileWithRows)| {
            let (path, holder, reader) = (path.clone(), holder.clone(), reader.clone());
            let (storage, progress) = (storage.clone(), progress.clone());
            in_parallel(async move {
                let holds = holds(&storage, reader, holder).await?;
                progress.advance(1);
                Ok((path, holds))
            })
        };
        let looks: Vec<_> = unknown.into_iter().map(look).collect();
        let looked: Vec<(String, Holds)> = all_of(looks, worker_count()).await?;
        self.known.extend(looked);
        let holders = files.into_iter().filter_map(|(path, holder)| Some((holder, self.known.get(&path).copied()?)));
        Ok(holders.filter(|(_, holds)| *holds != Holds::None).collect())
    }
}

/// The oldest version that can be read: the first commit's, or the one before it that a checkpoint has.
async fn oldest(newest: &Snapshot, commits: &[LogFile]) -> Result<Snapshot> {
    let first = commits.first().map_or(newest.version(), |file| file.name.version());
    if let Some(before) = first.checked_sub(1) {
        match newest.at(before).await {
            Err(e) if e.is_version_not_found() => {}
            opened => return opened,
        }
    }
    newest.at(first).await
}

/// Whether a file is there and holds a row that matches.
async fn holds(storage: &Storage, reader: Reader, holder: FileWithRows) -> Result<Holds> {
    let mut task = holder.task;
    let place = decode_path(&task.path)?;
    // Tombstones need not say how large a file is.
    if holder.is_unknown || task.size == 0 {
        match storage.head(&place).await {
            Ok(_) if holder.is_unknown => return Ok(Holds::Unknown),
            Ok(found) => task.size = found.size,
            Err(error) => return gone(storage, &place, error),
        }
    }
    let options = ReadOptions { concurrent_files: 1, ..ReadOptions::default() };
    let mut rows = std::pin::pin!(read_first(reader, vec![task], 1, options));
    loop {
        match rows.try_next().await {
            Ok(Some(batch)) if batch.num_rows() > 0 => return Ok(Holds::Some),
            Ok(Some(_)) => {}
            Ok(None) => return Ok(Holds::None),
            Err(error) => {
                return match storage.head(&place).await {
                    Err(missing) if missing.is_not_found() => gone(storage, &place, missing),
                    Ok(_) if matches!(error.kind(), Kind::Corrupt | Kind::Unsupported { .. } | Kind::Invalid) => {
                        log::warn!(target: TARGET, "may hold rows that are to be forgotten, and cannot be read: {error}");
                        Ok(Holds::Unknown)
                    }
                    Ok(_) | Err(_) => Err(error),
                };
            }
        }
    }
}

/// What a file holds that cannot be looked at: nothing if a vacuum took it. One elsewhere may be back later.
fn gone(storage: &Storage, place: &str, error: Error) -> Result<Holds> {
    match (error.is_not_found(), storage.below_root(place)) {
        (true, Some(_)) => Ok(Holds::None),
        (true, None) => Ok(Holds::Unknown),
        (false, _) => Err(error),
    }
}

/// What a column is in the files of a version: its physical path, its type, and whether it partitions the table.
fn column_in(shape: &TableShape, path: &[String]) -> Result<Option<(Vec<String>, DataType, bool)>> {
    let (mut level, mut physical) = (&*shape.schema, Vec::with_capacity(path.len()));
    for (depth, name) in path.iter().enumerate() {
        let Some(field) = level.fields.iter().find(|field| field.name.to_lowercase() == name.to_lowercase()) else {
            return Ok(None);
        };
        physical.push(shape.mapping.physical_name(field)?.to_owned());
        match &field.data_type {
            DataType::Struct(inner) if depth + 1 < path.len() => level = inner,
            found => {
                let partitions = depth == 0 && shape.is_partition_column(&field.name);
                return Ok(Some((physical, found.clone(), partitions)));
            }
        }
    }
    Ok(None)
}

/// Whether a column of an older version can be judged as the one of now. What was not there yet is null.
fn is_same(then: Option<(Vec<String>, DataType, bool)>, now: Option<(Vec<String>, DataType, bool)>) -> bool {
    match (then, now) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some((path, then, partitions)), Some((now_path, now, now_partitions))) => {
            let is_typed_alike = match (&then, &now) {
                (DataType::Primitive(then), DataType::Primitive(now)) => then == now || is_widening(then, now),
                _ => then == now,
            };
            path == now_path && partitions == now_partitions && is_typed_alike
        }
    }
}

/// The files of the versions that can be read, as far as they may hold the rows.
struct History<'a> {
    plan: &'a ScanPlan,
    /// Paths of the columns of the condition.
    judged: Vec<Vec<String>>,
    /// Whether files of versions that were not read may have had others by their names.
    may_lack: bool,
    /// The protocol of the version that was reached.
    protocol: Protocol,
    /// Whether the columns are in that version what they are in the newest.
    fits: bool,
    files: HashMap<String, FileWithRows>,
    /// When each version was made, in milliseconds since the epoch.
    times: BTreeMap<u64, i64>,
}

impl History<'_> {
    async fn read(
        &mut self,
        (oldest, newest): (&Snapshot, &Snapshot),
        log: &LogSource,
        commits: Vec<LogFile>,
    ) -> Result<()> {
        let (first, shape) = (oldest.version(), newest.shape());
        let mut stats = Vec::new();
        for column in self.plan.filter().iter().flat_map(|filter| filter.columns()) {
            stats.extend(shape.leaf(&column.path)?.map(|leaf| leaf.path));
        }
        let members = vec!["path", "partitionValues", "size", "deletionVector", "baseRowId", "defaultRowCommitVersion"];
        let columns = AddColumns { members, stats, num_records: true, ..AddColumns::default() };
        self.fits = self.fits_in(oldest.shape())?;
        let mut live = std::pin::pin!(oldest.live_files(&columns).await?);
        while let Some(adds) = live.try_next().await? {
            self.join(first, adds)?;
        }
        self.removed(oldest).await?;
        let load = |file: LogFile| async move {
            let actions = log.load_commit(&file).await?;
            Ok::<_, Error>((file.name.version(), actions))
        };
        let mut loaded = stream::iter(commits).map(load).buffered(CONCURRENT_COMMITS);
        while let Some((version, actions)) = loaded.try_next().await? {
            self.follow((version, version > first), actions)?;
        }
        Ok(())
    }

    /// Whether the condition can be judged by what a version says of its columns.
    fn fits_in(&self, shape: &TableShape) -> Result<bool> {
        let newest = self.plan.snapshot().shape();
        for path in &self.judged {
            if !is_same(column_in(shape, path)?, column_in(newest, path)?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Files that the oldest version has removed, and that may be there still.
    async fn removed(&mut self, oldest: &Snapshot) -> Result<()> {
        let sound = oldest.with_readable_sidecars().await?;
        if let Some(open) = sound.checkpoint().await? {
            let mut removes = std::pin::pin!(open.removes());
            while let Some((_, rows)) = removes.try_next().await? {
                self.remember(oldest.version(), rows)?;
            }
        }
        for rows in &sound.tail().await?.tombstones {
            self.remember(oldest.version(), rows.clone())?;
        }
        Ok(())
    }

    fn remember(&mut self, version: u64, rows: RecordBatch) -> Result<()> {
        let removes = AddBatch::new(Origin::Checkpoint(version), rows)?;
        let number = |name: &str, row: usize| {
            removes.int64(name).filter(|numbers| numbers.is_valid(row)).map(|numbers| numbers.value(row))
        };
        let newest = self.plan.snapshot().shape();
        // By physical names, each with whether it partitions the table now.
        let mut judged = Vec::with_capacity(self.judged.len());
        for name in self.judged.iter().filter_map(|path| path.first()) {
            let field = newest.schema.field(name);
            let physical = field.map(|field| newest.mapping.physical_name(field)).transpose()?;
            judged.push((physical.unwrap_or(name).to_owned(), newest.is_partition_column(name)));
        }
        for row in 0..removes.len() {
            let path = removes.path().value(row).to_owned();
            let size = number("size", row).and_then(|size| u64::try_from(size).ok()).unwrap_or_default();
            let partition_values = removes.partition_values_at(row)?;
            let is_other = judged.iter().any(|(name, partitions)| *partitions != partition_values.contains_key(name));
            let holder = FileWithRows {
                is_change: false,
                is_unknown: is_other || self.may_lack || !self.fits,
                spans: Vec::new(),
                removed_ms: number("deletionTimestamp", row),
                task: FileTask { path: path.clone(), size, partition_values, ..FileTask::default() },
            };
            self.files.entry(canonical_path(&path).into_owned()).or_insert(holder);
        }
        Ok(())
    }

    /// What a commit did; that to the files of the first version is known.
    fn follow(&mut self, (version, is_later): (u64, bool), actions: CommitActions) -> Result<()> {
        if let Some(time) = actions.commit_info.as_ref().and_then(|info| info.in_commit_timestamp()) {
            self.times.insert(version, time);
        }
        if let Some(protocol) = &actions.protocol {
            self.protocol.clone_from(protocol);
        }
        if let Some(metadata) = &actions.metadata {
            let (schema, partition_columns) = (metadata.schema()?, metadata.partition_columns.clone());
            let mapping = Properties::of(metadata).column_mapping(&self.protocol, &schema)?;
            self.fits = self.fits_in(&TableShape { schema, partition_columns, mapping })?;
        }
        if is_later {
            let removes = AddBatch::new(actions.adds.origin, actions.remove_rows)?;
            let deleted = removes.int64("deletionTimestamp");
            for row in 0..removes.len() {
                let path = canonical_path(removes.path().value(row));
                let Some(holder) = self.files.get_mut(path.as_ref()) else { continue };
                let deleted_ms = deleted.filter(|times| times.is_valid(row)).map(|times| times.value(row));
                holder.removed_ms = holder.removed_ms.max(deleted_ms);
                if let Some((_, end @ None)) = holder.spans.last_mut() {
                    *end = Some(version);
                }
            }
            self.join(version, actions.adds)?;
        }
        for change in actions.cdc {
            self.record(version, change);
        }
        Ok(())
    }

    fn join(&mut self, version: u64, adds: AddBatch) -> Result<()> {
        // What the files of another shape say of themselves is said of other columns.
        let adds = if self.fits { self.plan.kept_with_deleted(adds)? } else { adds };
        for row in 0..adds.len() {
            let path = canonical_path(adds.path().value(row)).into_owned();
            let task = FileTask { deletion_vector: None, ..task(&adds, row)? };
            let holder = self.files.entry(path);
            let (spans, removed_ms, is_unknown) = (Vec::new(), None, false);
            let new = || FileWithRows { task, is_change: false, is_unknown, spans, removed_ms };
            let holder = holder.or_insert_with(new);
            holder.is_unknown |= !self.fits;
            // One that is there already is added again with something else, such as row ids.
            if !matches!(holder.spans.last(), Some((_, None))) {
                holder.spans.push((version, None));
            }
        }
        Ok(())
    }

    fn record(&mut self, version: u64, change: Cdc) {
        let path = canonical_path(&change.path).into_owned();
        let size = u64::try_from(change.size).unwrap_or_default();
        let task =
            FileTask { path: change.path, size, partition_values: change.partition_values, ..FileTask::default() };
        let spans = vec![(version, Some(version.saturating_add(1)))];
        let is_unknown = !self.fits;
        self.files.entry(path).or_insert(FileWithRows { task, is_change: true, is_unknown, spans, removed_ms: None });
    }
}

async fn summary(
    snapshot: &Snapshot,
    holders: &[(FileWithRows, Holds)],
    (times, now_ms, retention_ms): (&BTreeMap<u64, i64>, i64, i64),
) -> Result<RetainedRows> {
    let (mut held, mut versions, mut below) = (RetainedRows::default(), BTreeSet::new(), Vec::new());
    for (FileWithRows { task, is_change, spans, removed_ms, .. }, holds) in holders {
        held.files_unreadable += u64::from(*holds == Holds::Unknown);
        let (files, bytes) = match is_change {
            true => (&mut held.change_files, &mut held.change_bytes),
            false => (&mut held.files, &mut held.bytes),
        };
        *files += 1;
        *bytes = bytes.saturating_add(task.size);
        for (first, end) in spans {
            let end = end.unwrap_or(snapshot.version().saturating_add(1));
            versions.extend(times.range(*first..end.max(*first)).map(|(version, _)| *version));
        }
        let literal = decode_path(&task.path)?;
        match snapshot.storage().below_root(&literal) {
            None => held.files_elsewhere += 1,
            Some(path) => {
                let freed = spans.last().and_then(|(first, end)| if *is_change { Some(*first) } else { *end });
                // A vacuum goes by both.
                let version_ms = freed.and_then(|version| times.get(&version).copied());
                let freed_ms = version_ms.max(*removed_ms).unwrap_or(now_ms);
                held.vacuum_from_ms = held.vacuum_from_ms.max(Some(freed_ms.saturating_add(retention_ms)));
                below.push(FileMeta { path, size: task.size, modified_ms: i64::MIN });
            }
        }
        held.paths.push(task.path.clone());
    }
    held.versions = versions.into_iter().collect();
    (held.vacuum_files, held.vacuum_bytes) = dispensable(snapshot, below, now_ms).await?;
    Ok(held)
}
