//! Finds files that still hold rows that match a condition: data files and change files of the versions that can be read.
//!
//! Files whose partition values or statistics rule out a match are skipped. The other files are read until a row matches,
//! whether a deletion vector deletes that row or not. A file that a vacuum has deleted holds no rows. It is unknown whether a
//! file holds matching rows if it cannot be read; if it is missing and not below the table; or if it belongs to a version in
//! which a column of the condition differs from the newest version: another type, another column of the same name, or a
//! partition column in only one of the two versions.
//!
//! Files whose tombstones are in the oldest readable version are examined too.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use arrow_array::{Array, RecordBatch};
use deltic_protocol::action::batch::{AddBatch, Origin};
use deltic_protocol::action::json::CommitActions;
use deltic_protocol::action::{Cdc, Protocol};
use deltic_protocol::log::segment::{LogFile, readable_commits};
use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::property::Properties;
use deltic_protocol::replay::canonical_path;
use deltic_protocol::schema::widen::is_widening;
use deltic_protocol::schema::{DataType, is_same_name};
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::Serialize;

use crate::checkpoint::read::AddColumns;
use crate::error::{Error, Kind, Result};
use crate::events::TARGET;
use crate::log::LogSource;
use crate::maintenance::dispensable;
use crate::parallel::{join_ordered, spawn_async, worker_count};
use crate::progress::{Progress, Unit};
use crate::scan::dropped_columns::may_have_dropped_columns;
use crate::scan::limit::read_first;
use crate::scan::plan::{ScanPlan, task};
use crate::scan::read::{ReadOptions, Reader};
use crate::scan::task::FileTask;
use crate::snapshot::Snapshot;
use deltic_store::{FileMeta, Storage, decode_path};

/// Commits that are read at once.
const CONCURRENT_COMMITS: usize = 16;

/// The versions and files that still hold matching rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RetainedRows {
    /// Readable versions that have such rows, or whose change files have them.
    pub versions: Vec<u64>,
    /// Number of data files that hold such rows.
    pub files: u64,
    /// Bytes of these data files.
    pub bytes: u64,
    /// Number of change files that hold such rows.
    pub change_files: u64,
    /// Bytes of these change files.
    pub change_bytes: u64,
    /// Paths of all these files, as the log names them.
    pub paths: Vec<String>,
    /// Number of these files that a vacuum with the table's retention would delete now.
    pub vacuum_files: u64,
    /// Bytes of the files that such a vacuum would delete.
    pub vacuum_bytes: u64,
    /// When such a vacuum can delete all of them, in milliseconds since 1970. `None` if there is nothing to delete.
    pub vacuum_from_ms: Option<i64>,
    /// Number of these files of which it is unknown whether they hold such rows: they cannot be read, or not with the
    /// schemas of their versions.
    pub files_unreadable: u64,
    /// Number of these files that no vacuum of this table deletes, since they are not below its directory.
    pub files_elsewhere: u64,
}

/// Whether a file holds a matching row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MatchResult {
    No,
    Yes,
    /// The file cannot be read, or not with the schema of its version.
    Unknown,
}

/// A file that may hold matching rows.
#[derive(Debug, Clone)]
struct CandidateFile {
    task: FileTask,
    is_change: bool,
    /// Whether a version that has the file has other columns than the condition needs.
    has_other_schema: bool,
    /// Ranges of versions that have the file: the version that adds it, and the one that removes it, if any. Empty if the
    /// oldest version has only its tombstone.
    version_ranges: Vec<(u64, Option<u64>)>,
    /// When the file was removed, in milliseconds since 1970.
    removed_ms: Option<i64>,
}

/// Finds files with matching rows. It caches the result of each file, so that no file is read twice.
#[derive(Debug, Default)]
pub(super) struct RetainedRowsFinder {
    cache: HashMap<String, MatchResult>,
}

impl RetainedRowsFinder {
    /// Finds the versions, up to that of the snapshot, and the files with rows for which `filter` is TRUE.
    ///
    /// # Errors
    /// `Invalid` for a filter that does not fit the schema, and those of reading the log and files.
    pub(super) async fn find(&mut self, snapshot: &Snapshot, filter: &str, now_ms: i64) -> Result<RetainedRows> {
        let (files, times) = self.find_files(snapshot, filter).await?;
        let retention_ms = Properties::of(snapshot.metadata()).deleted_file_retention()?;
        summary(snapshot, &files, &times, now_ms, retention_ms).await
    }

    /// Reads the candidate files, so that errors occur before anything is changed.
    ///
    /// # Errors
    /// As [`RetainedRowsFinder::find`].
    pub(super) async fn read(&mut self, snapshot: &Snapshot, filter: &str) -> Result<()> {
        self.find_files(snapshot, filter).await.map(drop)
    }

    /// The files that hold, or may hold, such rows, in the order of their paths; and the timestamp of each version.
    ///
    /// # Errors
    /// As [`RetainedRowsFinder::find`].
    async fn find_files(
        &mut self,
        snapshot: &Snapshot,
        filter: &str,
    ) -> Result<(Vec<(CandidateFile, MatchResult)>, BTreeMap<u64, i64>)> {
        let plan = ScanPlan::new(snapshot, Some(&[]), Some(filter)).await?;
        let log = snapshot.log();
        let mut commits = readable_commits(&log.list(0).await?);
        commits.retain(|file| file.name.version() <= snapshot.version());
        let times = commits.iter().map(|file| (file.name.version(), file.modified_ms));
        let mut times: BTreeMap<u64, i64> = times.collect();
        let oldest = oldest(snapshot, &commits).await?;
        times.entry(oldest.version()).or_insert(i64::MIN);
        let condition_columns =
            plan.filter().iter().flat_map(|filter| filter.columns()).map(|column| column.path.clone()).collect();
        let has_dropped_columns = may_have_dropped_columns(snapshot);
        let protocol = oldest.protocol().clone();
        let mut history = History {
            plan: &plan,
            condition_columns,
            has_dropped_columns,
            protocol,
            has_same_columns: true,
            files: HashMap::new(),
            times,
        };
        history.read(&oldest, snapshot, log, commits).await?;
        let mut files = self.read_candidates(snapshot.storage(), &plan, history.files).await?;
        files.sort_by(|(one, _), (other, _)| one.task.path.cmp(&other.task.path));
        Ok((files, history.times))
    }

    /// Reads the candidates that are not in the cache, and returns those that hold matching rows, or may.
    async fn read_candidates(
        &mut self,
        storage: &Storage,
        plan: &ScanPlan,
        files: HashMap<String, CandidateFile>,
    ) -> Result<Vec<(CandidateFile, MatchResult)>> {
        let reader = Reader::new(storage.clone(), plan.spec().clone())?;
        let unread: Vec<_> = files.iter().filter(|(path, _)| !self.cache.contains_key(path.as_str())).collect();
        let progress = Progress::begin("PURGE", Unit::Files, Some(unread.len() as u64));
        let read = |(path, file): (&String, &CandidateFile)| {
            let (path, file, reader) = (path.clone(), file.clone(), reader.clone());
            let (storage, progress) = (storage.clone(), progress.clone());
            spawn_async(async move {
                let matches = has_matching_row(&storage, reader, file).await?;
                progress.advance(1);
                Ok((path, matches))
            })
        };
        let reads: Vec<_> = unread.into_iter().map(read).collect();
        let results: Vec<(String, MatchResult)> = join_ordered(reads, worker_count()).await?;
        self.cache.extend(results);
        let files = files.into_iter().filter_map(|(path, file)| Some((file, self.cache.get(&path).copied()?)));
        Ok(files.filter(|(_, matches)| *matches != MatchResult::No).collect())
    }
}

/// The oldest readable version: that of the first commit, or of a checkpoint directly before it.
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

/// Reads a file until a row matches.
async fn has_matching_row(storage: &Storage, reader: Reader, file: CandidateFile) -> Result<MatchResult> {
    let mut task = file.task;
    let path = decode_path(&task.path)?;
    // The size of a tombstone is optional.
    if file.has_other_schema || task.size == 0 {
        match storage.head(&path).await {
            Ok(_) if file.has_other_schema => return Ok(MatchResult::Unknown),
            Ok(meta) => task.size = meta.size,
            Err(error) => return result_of_missing(storage, &path, error),
        }
    }
    let options = ReadOptions { concurrent_files: 1, ..ReadOptions::default() };
    let mut rows = std::pin::pin!(read_first(reader, vec![task], 1, options));
    loop {
        match rows.try_next().await {
            Ok(Some(batch)) if batch.num_rows() > 0 => return Ok(MatchResult::Yes),
            Ok(Some(_)) => {}
            Ok(None) => return Ok(MatchResult::No),
            Err(error) => {
                return match storage.head(&path).await {
                    Err(missing) if missing.is_not_found() => result_of_missing(storage, &path, missing),
                    Ok(_) if matches!(error.kind(), Kind::Corrupt | Kind::Unsupported { .. } | Kind::Invalid) => {
                        let message = "may have rows that the purge should delete, and cannot be read";
                        log::warn!(target: TARGET, "{message}: {error}");
                        Ok(MatchResult::Unknown)
                    }
                    Ok(_) | Err(_) => Err(error),
                };
            }
        }
    }
}

/// The result of a file that cannot be opened: `No` if it is missing below the table, since a vacuum has deleted it. A missing
/// file outside the table may come back.
fn result_of_missing(storage: &Storage, path: &str, error: Error) -> Result<MatchResult> {
    match (error.is_not_found(), storage.below_root(path)) {
        (true, Some(_)) => Ok(MatchResult::No),
        (true, None) => Ok(MatchResult::Unknown),
        (false, _) => Err(error),
    }
}

/// How the files of a version have a column: its physical path, its type, and whether it is a partition column.
fn column_in(shape: &TableShape, path: &[String]) -> Result<Option<(Vec<String>, DataType, bool)>> {
    let (mut level, mut physical) = (&*shape.schema, Vec::with_capacity(path.len()));
    for (depth, name) in path.iter().enumerate() {
        let Some(field) = level.fields.iter().find(|field| is_same_name(&field.name, name)) else {
            return Ok(None);
        };
        physical.push(shape.mapping.physical_name(field)?.to_owned());
        match &field.data_type {
            DataType::Struct(inner) if depth + 1 < path.len() => level = inner,
            data_type => {
                let is_partition = depth == 0 && shape.is_partition_column(&field.name);
                return Ok(Some((physical, data_type.clone(), is_partition)));
            }
        }
    }
    Ok(None)
}

/// Whether a column means the same in an older version as in the newest. A column that did not exist yet is null.
fn is_same(older: Option<(Vec<String>, DataType, bool)>, newest: Option<(Vec<String>, DataType, bool)>) -> bool {
    match (older, newest) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some((path, older, is_partition)), Some((newest_path, newest, is_newest_partition))) => {
            let has_same_type = match (&older, &newest) {
                (DataType::Primitive(older), DataType::Primitive(newest)) => {
                    older == newest || is_widening(older, newest)
                }
                _ => older == newest,
            };
            path == newest_path && is_partition == is_newest_partition && has_same_type
        }
    }
}

/// Replays the readable versions, and collects the files that may hold matching rows.
struct History<'a> {
    plan: &'a ScanPlan,
    /// Paths of the columns of the condition.
    condition_columns: Vec<Vec<String>>,
    /// Whether columns may have been dropped, so that a tombstone's file may have another column of the same name.
    has_dropped_columns: bool,
    /// The protocol of the current version: the last commit that was replayed.
    protocol: Protocol,
    /// Whether the condition's columns are the same in the current version as in the newest.
    has_same_columns: bool,
    files: HashMap<String, CandidateFile>,
    /// Timestamps of the versions, in milliseconds since 1970.
    times: BTreeMap<u64, i64>,
}

impl History<'_> {
    async fn read(
        &mut self,
        oldest: &Snapshot,
        newest: &Snapshot,
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
        self.has_same_columns = self.is_same_in(oldest.shape())?;
        let mut live = std::pin::pin!(oldest.live_files(&columns).await?);
        while let Some(adds) = live.try_next().await? {
            self.add_files(first, adds)?;
        }
        self.add_tombstones(oldest).await?;
        let load = |file: LogFile| async move {
            let actions = log.load_commit(&file).await?;
            Ok::<_, Error>((file.name.version(), actions))
        };
        let mut loaded = stream::iter(commits).map(load).buffered(CONCURRENT_COMMITS);
        while let Some((version, actions)) = loaded.try_next().await? {
            self.replay_commit(version, version > first, actions)?;
        }
        Ok(())
    }

    /// Whether the condition's columns are the same in this version as in the newest.
    fn is_same_in(&self, shape: &TableShape) -> Result<bool> {
        let newest = self.plan.snapshot().shape();
        for path in &self.condition_columns {
            if !is_same(column_in(shape, path)?, column_in(newest, path)?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds files that the oldest version has tombstones of: they may still exist.
    async fn add_tombstones(&mut self, oldest: &Snapshot) -> Result<()> {
        let readable = oldest.with_readable_sidecars().await?;
        if let Some(open) = readable.checkpoint().await? {
            let mut removes = std::pin::pin!(open.removes());
            while let Some((_, rows)) = removes.try_next().await? {
                self.add_removes(oldest.version(), rows)?;
            }
        }
        for rows in &readable.tail().await?.tombstones {
            self.add_removes(oldest.version(), rows.clone())?;
        }
        Ok(())
    }

    fn add_removes(&mut self, version: u64, rows: RecordBatch) -> Result<()> {
        let removes = AddBatch::new(Origin::Checkpoint(version), rows)?;
        let number = |name: &str, row: usize| {
            removes.int64(name).filter(|numbers| numbers.is_valid(row)).map(|numbers| numbers.value(row))
        };
        let newest = self.plan.snapshot().shape();
        // Physical names of top-level columns, and whether each is a partition column of the newest version.
        let mut columns = Vec::with_capacity(self.condition_columns.len());
        for name in self.condition_columns.iter().filter_map(|path| path.first()) {
            let field = newest.schema.field(name);
            let physical = field.map(|field| newest.mapping.physical_name(field)).transpose()?;
            columns.push((physical.unwrap_or(name).to_owned(), newest.is_partition_column(name)));
        }
        for row in 0..removes.len() {
            let path = removes.path().value(row).to_owned();
            let size = number("size", row).and_then(|size| u64::try_from(size).ok()).unwrap_or_default();
            let partition_values = removes.partition_values_at(row)?;
            let is_repartitioned =
                columns.iter().any(|(name, is_partition)| *is_partition != partition_values.contains_key(name));
            let file = CandidateFile {
                is_change: false,
                has_other_schema: is_repartitioned || self.has_dropped_columns || !self.has_same_columns,
                version_ranges: Vec::new(),
                removed_ms: number("deletionTimestamp", row),
                task: FileTask { path: path.clone(), size, partition_values, ..FileTask::default() },
            };
            self.files.entry(canonical_path(&path).into_owned()).or_insert(file);
        }
        Ok(())
    }

    /// Replays a commit. `is_later`: it is newer than the oldest version, whose files are known already.
    fn replay_commit(&mut self, version: u64, is_later: bool, actions: CommitActions) -> Result<()> {
        if let Some(time) = actions.commit_info.as_ref().and_then(|info| info.in_commit_timestamp()) {
            self.times.insert(version, time);
        }
        if let Some(protocol) = &actions.protocol {
            self.protocol.clone_from(protocol);
        }
        if let Some(metadata) = &actions.metadata {
            let (schema, partition_columns) = (metadata.schema()?, metadata.partition_columns.clone());
            let mapping = Properties::of(metadata).column_mapping(&self.protocol, &schema)?;
            self.has_same_columns = self.is_same_in(&TableShape { schema, partition_columns, mapping })?;
        }
        if is_later {
            let removes = AddBatch::new(actions.adds.origin, actions.remove_rows)?;
            let deleted = removes.int64("deletionTimestamp");
            for row in 0..removes.len() {
                let path = canonical_path(removes.path().value(row));
                let Some(file) = self.files.get_mut(path.as_ref()) else { continue };
                let deleted_ms = deleted.filter(|times| times.is_valid(row)).map(|times| times.value(row));
                file.removed_ms = file.removed_ms.max(deleted_ms);
                if let Some((_, end @ None)) = file.version_ranges.last_mut() {
                    *end = Some(version);
                }
            }
            self.add_files(version, actions.adds)?;
        }
        for change in actions.cdc {
            self.add_change_file(version, change);
        }
        Ok(())
    }

    /// Adds the files that a version adds, unless their statistics rule out a match.
    fn add_files(&mut self, version: u64, adds: AddBatch) -> Result<()> {
        // Statistics of files with another schema may be those of other columns.
        let adds = if self.has_same_columns { self.plan.keep_with_deleted(adds)? } else { adds };
        for row in 0..adds.len() {
            let path = canonical_path(adds.path().value(row)).into_owned();
            let task = FileTask { deletion_vector: None, ..task(&adds, row)? };
            let new = || CandidateFile {
                task,
                is_change: false,
                has_other_schema: false,
                version_ranges: Vec::new(),
                removed_ms: None,
            };
            let file = self.files.entry(path).or_insert_with(new);
            file.has_other_schema |= !self.has_same_columns;
            // A file that the version has already is added again with other members, such as row ids.
            if !matches!(file.version_ranges.last(), Some((_, None))) {
                file.version_ranges.push((version, None));
            }
        }
        Ok(())
    }

    fn add_change_file(&mut self, version: u64, change: Cdc) {
        let path = canonical_path(&change.path).into_owned();
        let size = u64::try_from(change.size).unwrap_or_default();
        let task =
            FileTask { path: change.path, size, partition_values: change.partition_values, ..FileTask::default() };
        let version_ranges = vec![(version, Some(version.saturating_add(1)))];
        let has_other_schema = !self.has_same_columns;
        self.files.entry(path).or_insert(CandidateFile {
            task,
            is_change: true,
            has_other_schema,
            version_ranges,
            removed_ms: None,
        });
    }
}

async fn summary(
    snapshot: &Snapshot,
    files: &[(CandidateFile, MatchResult)],
    times: &BTreeMap<u64, i64>,
    now_ms: i64,
    retention_ms: i64,
) -> Result<RetainedRows> {
    let (mut rows, mut versions, mut below) = (RetainedRows::default(), BTreeSet::new(), Vec::new());
    for (CandidateFile { task, is_change, version_ranges, removed_ms, .. }, matches) in files {
        rows.files_unreadable += u64::from(*matches == MatchResult::Unknown);
        let (files, bytes) = match is_change {
            true => (&mut rows.change_files, &mut rows.change_bytes),
            false => (&mut rows.files, &mut rows.bytes),
        };
        *files += 1;
        *bytes = bytes.saturating_add(task.size);
        for (first, end) in version_ranges {
            let end = end.unwrap_or(snapshot.version().saturating_add(1));
            versions.extend(times.range(*first..end.max(*first)).map(|(version, _)| *version));
        }
        let literal = decode_path(&task.path)?;
        match snapshot.storage().below_root(&literal) {
            None => rows.files_elsewhere += 1,
            Some(path) => {
                let freed = version_ranges.last().and_then(|(first, end)| if *is_change { Some(*first) } else { *end });
                // A vacuum considers both the version's timestamp and the tombstone's.
                let version_ms = freed.and_then(|version| times.get(&version).copied());
                let freed_ms = version_ms.max(*removed_ms).unwrap_or(now_ms);
                rows.vacuum_from_ms = rows.vacuum_from_ms.max(Some(freed_ms.saturating_add(retention_ms)));
                below.push(FileMeta { path, size: task.size, modified_ms: i64::MIN });
            }
        }
        rows.paths.push(task.path.clone());
    }
    rows.versions = versions.into_iter().collect();
    (rows.vacuum_files, rows.vacuum_bytes) = dispensable(snapshot, below, now_ms).await?;
    Ok(rows)
}
