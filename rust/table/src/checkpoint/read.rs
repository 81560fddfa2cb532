//! Reads checkpoints of every kind: one file, parts, UUID-named, JSON or Parquet, with sidecars.
//!
//! Opening reads footers (and a JSON top level) but no sidecar, and decodes the actions other than file actions. File actions
//! are decoded on demand, one row group in each task, only the leaves that are asked for. Row groups that have none of the
//! wanted actions, by their null counts, are not fetched.
//!
//! PROTOCOL.md: "Checkpoints", "Sidecar Files".

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::RecordBatch;
use deltic_protocol::action::Sidecar;
use deltic_protocol::action::batch::{ADD_SCHEMA, AddBatch, KeyBatch, Origin};
use deltic_protocol::action::json::{CommitActions, Wanted, parse_commit};
use deltic_protocol::action::rows::NonFileActions;
use deltic_protocol::log::name::{CheckpointFormat, LOG_DIR, SIDECARS_DIR};
use deltic_protocol::log::segment::{Checkpoint, CheckpointKind};
use futures::stream::{self, Stream, StreamExt, TryStreamExt};

use super::action_file::{ActionFile, CONCURRENT_FOOTERS, Footer};
use super::actions::action_rows;
use crate::error::{Error, NotFoundFlag, Result};
use crate::log::LogSource;
use crate::once::Once;
use crate::parallel::try_compute;
use deltic_store::{Storage, decode_path};

/// Row groups that are processed at once; fetching one overlaps decoding others.
const CONCURRENT_ROW_GROUPS: usize = 4;

/// What to decode of each `add`.
#[derive(Debug, Clone, Default)]
pub struct AddColumns {
    /// Members of `add`, without the statistics.
    pub members: Vec<&'static str>,
    /// Leaf columns, by physical path, whose statistics are wanted: typed ones if there are any, or else the JSON string.
    pub stats: Vec<Vec<String>>,
    /// Whether the number of records (with no column's statistics) is wanted too.
    pub num_records: bool,
    /// Whether the JSON string is wanted as it is.
    pub stats_json: bool,
    /// Whether all typed statistics are wanted unchanged.
    pub stats_typed: bool,
}

/// A checkpoint whose footers are known.
#[derive(Debug)]
pub struct OpenCheckpoint {
    version: u64,
    non_file_actions: NonFileActions,
    /// File actions of a JSON top level.
    json_actions: Option<CommitActions>,
    files: Arc<Files>,
    /// How many of the files are not sidecars.
    num_checkpoint_files: usize,
    /// The sidecar actions of the other files.
    sidecars: Vec<Sidecar>,
    sidecar_files: Vec<(String, u64)>,
}

/// The Parquet files of a checkpoint: its own, whose footers are decoded on first use, then its sidecars, whose footers
/// are read then.
#[derive(Debug)]
struct Files {
    storage: Storage,
    files: Vec<File>,
    /// Whether a file was missing when its footer was read.
    not_found: NotFoundFlag,
}

#[derive(Debug)]
struct File {
    source: Source,
    opened: Once<Arc<ActionFile>>,
}

/// What a file is opened from.
#[derive(Debug)]
enum Source {
    Footer(Footer),
    Store { path: String, size: u64 },
}

impl OpenCheckpoint {
    /// Reads the footers, and all actions other than file actions.
    pub async fn open(log: &LogSource, checkpoint: &Checkpoint) -> Result<Self> {
        let version = checkpoint.version;
        Self::open_files(log, checkpoint).await.map_err(|e| e.at_version(version).in_table(log.location()))
    }

    async fn open_files(log: &LogSource, checkpoint: &Checkpoint) -> Result<Self> {
        let (version, storage) = (checkpoint.version, log.storage());
        let paths: Vec<(String, u64)> =
            checkpoint.files.iter().map(|f| (format!("{LOG_DIR}/{}", f.file_name), f.size)).collect();
        let (mut non_file_actions, mut json_actions, mut files) = (NonFileActions::default(), None, Vec::new());
        match checkpoint.kind {
            CheckpointKind::Uuid(CheckpointFormat::Json) => {
                for ((path, _), file) in paths.iter().zip(&checkpoint.files) {
                    let bytes = log.read(&file.file_name).await?;
                    let parse = move || parse_commit(&bytes, Origin::Checkpoint(version), Wanted::All);
                    let panicked = |e| Error::internal("parsing a checkpoint failed").caused_by(e);
                    let actions = try_compute(parse, panicked).await.map_err(|e| e.in_file(path))?;
                    non_file_actions = non_file_actions_of(&actions);
                    check_complete(&non_file_actions).map_err(|e| e.in_file(path))?;
                    json_actions = Some(actions);
                }
            }
            CheckpointKind::Uuid(CheckpointFormat::Parquet) | CheckpointKind::Classic | CheckpointKind::MultiPart => {
                let footers = Footer::read_all(storage, paths).await?;
                let pruned = |footer: &Footer| ActionFile::pruned(storage, footer, &NonFileActions::COLUMNS);
                let opened = footers.iter().map(pruned).collect::<Result<Vec<_>>>()?;
                let opened: Vec<_> = opened.into_iter().map(|(file, is_all)| (Arc::new(file), is_all)).collect();
                non_file_actions = read_non_file_actions(&opened).await?;
                let file = |(footer, (file, is_all)): (Footer, (Arc<ActionFile>, bool))| File {
                    source: Source::Footer(footer),
                    opened: is_all.then_some(file).map(Once::from).unwrap_or_default(),
                };
                files.extend(footers.into_iter().zip(opened).map(file));
            }
        }
        let sidecar = |s: &Sidecar| -> Result<(String, u64)> {
            let size = u64::try_from(s.size_in_bytes).map_err(|_| Error::corrupt("a sidecar has a negative size"))?;
            let path = if s.path.contains('/') { decode_path(&s.path)? } else { sidecar_path(&decode_path(&s.path)?) };
            Ok((path, size))
        };
        let sidecars = std::mem::take(&mut non_file_actions.sidecars);
        let sidecar_files = sidecars.iter().map(sidecar).collect::<Result<Vec<_>>>()?;
        let num_checkpoint_files = files.len();
        let unread =
            |(path, size): (String, u64)| File { source: Source::Store { path, size }, opened: Once::default() };
        files.extend(sidecar_files.iter().cloned().map(unread));
        let files = Arc::new(Files { storage: storage.clone(), files, not_found: NotFoundFlag::default() });
        Ok(Self { version, non_file_actions, json_actions, files, num_checkpoint_files, sidecars, sidecar_files })
    }

    /// The version that the checkpoint holds.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether deltic wrote it.
    pub async fn is_our_own(&self) -> Result<bool> {
        Ok(self.num_checkpoint_files > 0 && self.files.open(0).await?.is_our_own())
    }

    /// Whether one of its files was missing when it was read.
    pub(crate) fn is_gone(&self) -> bool {
        let mut opened = self.files.files.iter().filter_map(|file| file.opened.get());
        self.files.not_found.is_noted() || opened.any(|file| file.is_gone())
    }

    /// Reads the footers that were not read yet, of all files.
    pub(crate) async fn load_footers(&self) -> Result<()> {
        self.files.open_all((0..self.file_count()).collect()).await.map(drop)
    }

    /// All actions other than file actions.
    pub fn non_file_actions(&self) -> &NonFileActions {
        &self.non_file_actions
    }

    /// Paths and sizes of its sidecars.
    pub fn sidecars(&self) -> &[(String, u64)] {
        &self.sidecar_files
    }

    /// The actions of its sidecars.
    pub(crate) fn sidecar_actions(&self) -> &[Sidecar] {
        &self.sidecars
    }

    /// How many Parquet files it has, its sidecars last.
    pub(crate) fn file_count(&self) -> usize {
        self.files.files.len()
    }

    /// The action of a file that is a sidecar.
    pub(crate) fn sidecar(&self, file: usize) -> Option<&Sidecar> {
        self.sidecars.get(file.checked_sub(self.num_checkpoint_files)?)
    }

    /// A file, its footer read on first use.
    pub(crate) async fn file(&self, file: usize) -> Result<Arc<ActionFile>> {
        self.files.open(file).await
    }

    /// Leaf columns, by physical path, for which some file action may have typed statistics, in sidecars too.
    pub async fn typed_stats(&self) -> Result<HashSet<Vec<String>>> {
        let files = self.files.open_all((0..self.file_count()).collect()).await?;
        let leaves = files.iter().flat_map(|file| file.leaves());
        let below = leaves.filter_map(|leaf| match leaf {
            [add, stats, bound, path @ ..] if add == "add" && stats == "stats_parsed" && !path.is_empty() => {
                matches!(bound.as_str(), "minValues" | "maxValues" | "nullCount").then(|| path.to_vec())
            }
            _ => None,
        });
        Ok(below.collect())
    }

    /// The files of a JSON top level.
    pub(crate) fn inline_adds(&self) -> Option<&AddBatch> {
        self.json_actions.as_ref().map(|actions| &actions.adds)
    }

    /// The files that were live, batch by batch.
    pub fn adds(&self, columns: &AddColumns) -> impl Stream<Item = Result<AddBatch>> + Send + use<> {
        let origin = Origin::Checkpoint(self.version);
        let json_actions: Vec<_> = self.json_actions.iter().map(|actions| Ok(actions.adds.clone())).collect();
        let columns = Arc::new(columns.clone());
        let read = move |(file, group): (Arc<ActionFile>, usize)| {
            let projection = columns.of(&file);
            async move {
                let wanted = move |path: &[String]| projection.wants(path);
                let batches = file.read(group, &wanted).await?;
                let batches = batches.iter().map(|rows| AddBatch::new(origin, action_rows(rows, "add", true)?));
                batches.collect::<Result<Vec<_>>>().map_err(|e| e.in_file(file.path()))
            }
        };
        let batches = self.row_groups("add", None).map_ok(read).try_buffered(CONCURRENT_ROW_GROUPS);
        stream::iter(json_actions)
            .chain(batches.map_ok(|batches| stream::iter(batches.into_iter().map(Ok))).try_flatten())
    }

    /// The tombstones, as the columns of `remove`, batch by batch.
    pub fn removes(&self) -> impl Stream<Item = Result<(KeyBatch, RecordBatch)>> + Send + use<> {
        let json_actions: Vec<_> =
            self.json_actions.iter().map(|a| Ok((a.removes.clone(), a.remove_rows.clone()))).collect();
        let read = |(file, group): (Arc<ActionFile>, usize)| async move {
            let wanted = |path: &[String]| path.first().is_some_and(|root| root == "remove");
            let keyed = |rows: &RecordBatch| {
                let rows = action_rows(rows, "remove", true)?;
                Ok((KeyBatch::new(&rows)?, rows))
            };
            let batches = file.read(group, &wanted).await?;
            batches.iter().map(keyed).collect::<Result<Vec<_>>>().map_err(|e| e.in_file(file.path()))
        };
        let batches = self.row_groups("remove", None).map_ok(read).try_buffered(CONCURRENT_ROW_GROUPS);
        stream::iter(json_actions)
            .chain(batches.map_ok(|batches| stream::iter(batches.into_iter().map(Ok))).try_flatten())
    }

    /// The row groups that may hold such file actions, those of sidecars last; of its files only `which`, by position, if
    /// given.
    pub(crate) async fn row_groups_of(
        &self,
        action: &'static str,
        which: Option<Vec<usize>>,
    ) -> Result<Vec<(Arc<ActionFile>, usize)>> {
        self.row_groups(action, which).try_collect().await
    }

    /// The row groups that may hold such file actions, those of sidecars last.
    fn row_groups(
        &self,
        action: &'static str,
        which: Option<Vec<usize>>,
    ) -> impl Stream<Item = Result<(Arc<ActionFile>, usize)>> + Send + use<> {
        let files = self.files.clone();
        let which = which.unwrap_or_else(|| (0..files.files.len()).collect());
        let opened = stream::once(async move { files.open_all(which).await });
        let groups = move |files: Vec<Arc<ActionFile>>| {
            let of_file = move |file: Arc<ActionFile>| {
                let groups = file.groups_with(action, "path");
                groups.into_iter().map(move |group| Ok((file.clone(), group)))
            };
            stream::iter(files.into_iter().flat_map(of_file))
        };
        opened.map_ok(groups).try_flatten()
    }
}

impl Files {
    async fn open(&self, file: usize) -> Result<Arc<ActionFile>> {
        let file = self.files.get(file).ok_or_else(|| Error::internal("a checkpoint has no such file"))?;
        let open = async || match &file.source {
            Source::Footer(footer) => ActionFile::of_footer(&self.storage, footer),
            Source::Store { path, size } => ActionFile::open(&self.storage, path.clone(), *size).await,
        };
        let opened = file.opened.get_or_try_init(async || open().await.map(Arc::new)).await.cloned();
        opened.map_err(|e| self.not_found.note(e))
    }

    async fn open_all(&self, which: Vec<usize>) -> Result<Vec<Arc<ActionFile>>> {
        stream::iter(which).map(|file| self.open(file)).buffered(CONCURRENT_FOOTERS).try_collect().await
    }
}

/// The actions of a JSON top level other than file actions.
fn non_file_actions_of(actions: &CommitActions) -> NonFileActions {
    NonFileActions {
        protocol: actions.protocol.clone(),
        metadata: actions.metadata.clone(),
        txns: actions.txns.clone(),
        domains: actions.domains.clone(),
        sidecars: actions.sidecars.clone(),
        checkpoint_metadata: actions.checkpoint_metadata.clone(),
    }
}

/// Refuses a JSON file that was cut off at the end of a line. A Parquet file that was cut off has no footer.
fn check_complete(actions: &NonFileActions) -> Result<()> {
    let missing = match (&actions.protocol, &actions.metadata) {
        (None, _) => "protocol",
        (Some(_), None) => "metaData",
        (Some(_), Some(_)) => return Ok(()),
    };
    Err(Error::corrupt(format!("the checkpoint has no {missing} action: the file is incomplete")))
}

fn sidecar_path(name: &str) -> String {
    format!("{LOG_DIR}/{SIDECARS_DIR}/{name}")
}

/// All actions other than file actions, from the row groups that may have any.
async fn read_non_file_actions(files: &[(Arc<ActionFile>, bool)]) -> Result<NonFileActions> {
    let mut actions = NonFileActions::default();
    for (file, _) in files {
        let mut groups: Vec<usize> =
            NonFileActions::COLUMNS.iter().flat_map(|(root, key)| file.groups_with(root, key)).collect();
        groups.sort_unstable();
        groups.dedup();
        for group in groups {
            let wanted = |path: &[String]| {
                path.first().is_some_and(|root| NonFileActions::COLUMNS.iter().any(|(name, _)| name == root))
            };
            // These are a few rows of many, so no memory is reserved for the others.
            let keys: Vec<usize> =
                NonFileActions::COLUMNS.iter().filter_map(|path| file.leaf(&<[&str; 2]>::from(*path))).collect();
            for rows in file.read_defined(group, keys, &wanted).await? {
                actions.take(&rows).map_err(|e| e.in_file(file.path()))?;
            }
        }
    }
    Ok(actions)
}

/// The leaves of `add` to decode from one file.
#[derive(Debug, Clone)]
pub(crate) struct Projection {
    members: Vec<&'static str>,
    typed: HashSet<Vec<String>>,
    num_records: bool,
    wants_json: bool,
    wants_typed: bool,
}

impl AddColumns {
    /// All members of a file action that a new checkpoint needs.
    pub(crate) fn all() -> Self {
        let members = ADD_SCHEMA.fields().iter().map(|field| field.name().as_str());
        let members = members.filter(|name| !matches!(*name, "stats" | "dataChange")).collect();
        Self { members, stats_json: true, stats_typed: true, ..Self::default() }
    }

    /// The leaves to decode for them.
    pub(crate) fn of(&self, file: &ActionFile) -> Projection {
        let wants_stats = self.num_records || !self.stats.is_empty();
        let typed = wants_stats && can_use_typed_stats(file, &self.stats);
        Projection {
            members: self.members.clone(),
            typed: if typed { self.stats.iter().cloned().collect() } else { HashSet::new() },
            num_records: typed,
            wants_json: self.stats_json || (wants_stats && !typed),
            wants_typed: self.stats_typed,
        }
    }
}

impl Projection {
    /// Whether a leaf is among them.
    pub(crate) fn wants(&self, path: &[String]) -> bool {
        let Some((root, rest)) = path.split_first() else { return false };
        let Some((member, rest)) = rest.split_first() else { return false };
        if root != "add" {
            return false;
        }
        match member.as_str() {
            "stats" => self.wants_json,
            "stats_parsed" if self.wants_typed => true,
            "stats_parsed" => match rest.split_first() {
                Some((bound, [])) => self.num_records && bound == "numRecords",
                Some((bound, leaf)) => {
                    matches!(bound.as_str(), "minValues" | "maxValues" | "nullCount") && self.typed.contains(leaf)
                }
                None => false,
            },
            member => self.members.contains(&member),
        }
    }
}

/// Whether typed statistics are used: if they are filled and have every wanted column, or if there is no JSON string.
pub(crate) fn can_use_typed_stats(file: &ActionFile, leaves: &[Vec<String>]) -> bool {
    let below = |bound: &str, leaf: &[String]| {
        let path: Vec<&str> =
            ["add", "stats_parsed", bound].into_iter().chain(leaf.iter().map(String::as_str)).collect();
        file.leaf(&path).is_some()
    };
    let count = ["add", "stats_parsed", "numRecords"].map(str::to_owned);
    let filled = file.has_leaf(&count) && !file.is_empty_leaf(&count);
    let known = |leaf: &Vec<String>| below("minValues", leaf) || below("nullCount", leaf);
    let no_json = file.is_empty_leaf(&["add", "stats"].map(str::to_owned));
    filled && (no_json || leaves.iter().all(known))
}
