//! What still holds rows that match a condition: files of the versions that can be read, and their change files.
//!
//! Files whose partition values or statistics rule it out are passed over; the others are read until a row matches,
//! whether a deletion vector deletes it or not. A file that a vacuum took holds nothing; one that cannot be read, such as
//! of columns that have other types by now, may hold anything.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use deltic_protocol::action::Cdc;
use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::action::json::{CommitActions, Wanted};
use deltic_protocol::log::segment::{LogFile, readable_commits};
use deltic_protocol::property::Properties;
use deltic_protocol::replay::canonical_path;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::Serialize;

use crate::checkpoint::read::AddColumns;
use crate::error::{Error, Kind, Result};
use crate::events::TARGET;
use crate::log::{LogSource, parse_file};
use crate::maintenance::dispensable;
use crate::parallel::{all_of, in_parallel, worker_count};
use crate::scan::limit::read_first;
use crate::scan::plan::{ScanPlan, task};
use crate::scan::read::{ReadOptions, Reader};
use crate::scan::task::FileTask;
use crate::snapshot::Snapshot;
use crate::storage::{FileMeta, Storage, decode_path};

/// Commits that are read at once.
const CONCURRENT_COMMITS: usize = 16;

/// What still holds the rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Held {
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
    /// Those of all these files that cannot be read, so that nobody knows whether they do.
    pub files_unreadable: u64,
    /// Files that no vacuum of this table takes, for they are not below its folder.
    pub files_elsewhere: u64,
}

/// Whether a file holds any of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    None,
    Some,
    /// It cannot be read.
    Unknown,
}

/// A file that may hold some of the rows.
#[derive(Debug, Clone)]
struct Holder {
    task: FileTask,
    is_change: bool,
    /// The versions that have it, from the first to the one that has it no longer, if there is one.
    spans: Vec<(u64, Option<u64>)>,
}

/// Finds what holds rows, and remembers which files do, so that none is read twice.
#[derive(Debug, Default)]
pub(super) struct Holders {
    known: HashMap<String, Holds>,
}

impl Holders {
    /// What holds rows that make `filter` TRUE in the versions up to that of a snapshot.
    ///
    /// # Errors
    /// `Invalid` for a filter that does not fit, and those of reading the log and files.
    pub(super) async fn find(&mut self, snapshot: &Snapshot, filter: &str, now_ms: i64) -> Result<Held> {
        let plan = ScanPlan::new(snapshot, Some(&[]), Some(filter)).await?;
        let storage = snapshot.storage();
        let log = LogSource::of(storage);
        let mut commits = readable_commits(&log.list(0).await?);
        commits.retain(|file| file.name.version() <= snapshot.version());
        let times = commits.iter().map(|file| (file.name.version(), file.modified_ms));
        let mut times: BTreeMap<u64, i64> = times.collect();
        let oldest = oldest(snapshot, &commits).await?;
        times.entry(oldest.version()).or_insert(i64::MIN);
        let mut history = History { plan: &plan, files: HashMap::new() };
        history.read((&oldest, snapshot), &log, commits).await?;
        let mut holders = self.holding(storage, &plan, history.files).await?;
        holders.sort_by(|(one, _), (other, _)| one.task.path.cmp(&other.task.path));
        let retention_ms = Properties::of(snapshot.metadata()).deleted_file_retention()?;
        summary(snapshot, &holders, (&times, now_ms, retention_ms)).await
    }

    /// Those that do hold rows.
    async fn holding(
        &mut self,
        storage: &Storage,
        plan: &ScanPlan,
        files: HashMap<String, Holder>,
    ) -> Result<Vec<(Holder, Holds)>> {
        let reader = Reader::new(storage.clone(), plan.spec().clone())?;
        let unknown = files.iter().filter(|(path, _)| !self.known.contains_key(path.as_str()));
        let look = |(path, holder): (&String, &Holder)| {
            let (path, task, reader) = (path.clone(), holder.task.clone(), reader.clone());
            let storage = storage.clone();
            in_parallel(async move { Ok((path, holds(&storage, reader, task).await?)) })
        };
        let looked: Vec<(String, Holds)> = all_of(unknown.map(look).collect::<Vec<_>>(), worker_count()).await?;
        self.known.extend(looked);
        let told = files.into_iter().filter_map(|(path, holder)| Some((holder, self.known.get(&path).copied()?)));
        Ok(told.filter(|(_, holds)| *holds != Holds::None).collect())
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
async fn holds(storage: &Storage, reader: Reader, task: FileTask) -> Result<Holds> {
    let place = decode_path(&task.path)?;
    let options = ReadOptions { concurrent_files: 1, ..ReadOptions::default() };
    let mut rows = std::pin::pin!(read_first(reader, vec![task], 1, options));
    loop {
        match rows.try_next().await {
            Ok(Some(batch)) if batch.num_rows() > 0 => return Ok(Holds::Some),
            Ok(Some(_)) => {}
            Ok(None) => return Ok(Holds::None),
            Err(error) => {
                return match storage.head(&place).await {
                    Err(e) if e.is_not_found() => Ok(Holds::None),
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

/// The files of the versions that can be read, as far as they may hold the rows.
struct History<'a> {
    plan: &'a ScanPlan,
    files: HashMap<String, Holder>,
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
        let mut live = std::pin::pin!(oldest.live_files(&columns).await?);
        while let Some(adds) = live.try_next().await? {
            self.join(first, adds)?;
        }
        let load = |file: LogFile| async move {
            let bytes = log.read(&file.file_name).await?;
            Ok::<_, Error>((file.name.version(), parse_file(&file, &bytes, Wanted::All)?))
        };
        let mut loaded = stream::iter(commits).map(load).buffered(CONCURRENT_COMMITS);
        while let Some((version, actions)) = loaded.try_next().await? {
            self.follow((version, version > first), actions)?;
        }
        Ok(())
    }

    /// What a commit did; that to the files of the first version is known.
    fn follow(&mut self, (version, is_later): (u64, bool), actions: CommitActions) -> Result<()> {
        if is_later {
            let removes = AddBatch::new(actions.adds.origin, actions.remove_rows)?;
            for path in removes.path().iter().flatten() {
                let holder = self.files.get_mut(canonical_path(path).as_ref());
                let last = holder.and_then(|holder| holder.spans.last_mut());
                if let Some((_, end @ None)) = last {
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
        let adds = self.plan.kept(adds)?;
        for row in 0..adds.len() {
            let path = canonical_path(adds.path().value(row)).into_owned();
            let task = FileTask { deletion_vector: None, ..task(&adds, row)? };
            let holder = self.files.entry(path);
            let holder = holder.or_insert_with(|| Holder { task, is_change: false, spans: Vec::new() });
            holder.spans.push((version, None));
        }
        Ok(())
    }

    fn record(&mut self, version: u64, change: Cdc) {
        let path = canonical_path(&change.path).into_owned();
        let size = u64::try_from(change.size).unwrap_or_default();
        let task =
            FileTask { path: change.path, size, partition_values: change.partition_values, ..FileTask::default() };
        let spans = vec![(version, Some(version.saturating_add(1)))];
        self.files.entry(path).or_insert(Holder { task, is_change: true, spans });
    }
}

async fn summary(
    snapshot: &Snapshot,
    holders: &[(Holder, Holds)],
    (times, now_ms, retention_ms): (&BTreeMap<u64, i64>, i64, i64),
) -> Result<Held> {
    let (mut held, mut versions, mut below) = (Held::default(), BTreeSet::new(), Vec::new());
    for (Holder { task, is_change, spans }, holds) in holders {
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
                let freed_ms = freed.map_or(now_ms, |version| times.get(&version).copied().unwrap_or(now_ms));
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
