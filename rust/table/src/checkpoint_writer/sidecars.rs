//! Sidecars of a checkpoint. Unchanged sidecars of the last checkpoint are reused, so that the cost depends on the changes.
//!
//! A sidecar is kept as long as every file in it is live. Which ones lost files is known from the least and greatest path
//! in their tags, or else from their paths, which are decoded for this. The files of the others, and new
//! ones, go into new sidecars. Small sidecars are rewritten with them if there are too many of about their size, so that
//! the number of sidecars stays bounded by that of files. Tombstones, which all expire, are written again each time.
//!
//! Sidecars that are not referenced any more are not deleted here: older checkpoints may need them. Log cleanup
//! deletes those that no checkpoint names and that are more than a day old. So a sidecar that is older than half a day is not
//! named again but copied to a new name, since it could be deleted while the checkpoint is written.
//!
//! PROTOCOL.md: "Sidecar Files", "V2 spec".

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use deltic_protocol::action::Sidecar;
use deltic_protocol::action::batch::KeyBatch;
use deltic_protocol::log::name::{LOG_DIR, SIDECARS_DIR};
use deltic_protocol::property::Properties;
use deltic_protocol::replay::canonical_path;
use deltic_protocol::stats::read::Leaf;
use futures::future::try_join;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use parquet::arrow::ArrowSchemaConverter;
use tokio::sync::mpsc;

use super::columns::CheckpointSchema;
use super::encode::{Encoded, Encoding, Group, Output, SCHEMA_ROOT, blocking, encode_all};
use super::work::{Work, check_count};
use crate::checkpoint::action_file::ActionFile;
use crate::checkpoint::actions::action_rows;
use crate::checkpoint::read::OpenCheckpoint;
use crate::error::{Error, Result};
use crate::file_index::sidecar_stats::{SidecarStats, TAG};
use crate::file_index::{IndexColumn, PartitionColumn};
use crate::log::tail::Tail;
use crate::snapshot::Snapshot;
use deltic_store::Storage;

/// The most files of a sidecar.
pub(super) const MAX_SIDECAR_FILES: u64 = 250_000;
/// Files of a range of keys for one sidecar: fewer than the limit, since ranges differ in size.
const RANGE_FILES: u64 = 220_000;
/// Sidecars that are written at once.
const MAX_RANGES: usize = 64;
/// Most sidecars of about the same size before they are joined; size classes differ by this factor.
const FANOUT: u64 = 4;
/// Files of the smallest class of sidecars.
const SMALL_FILES: u64 = 1_000;
/// Columns with statistics whose bounds are put into tags.
const TAGGED_COLUMNS: usize = 8;
/// Sidecars looked at together.
const CONCURRENT_SIDECARS: usize = 4;
/// Age in milliseconds up to which a sidecar is named again: half of that from which log cleanup may delete it.
pub(crate) const MAX_REUSED_AGE_MS: i64 = 12 * 60 * 60 * 1000;

/// The sidecars of a checkpoint.
pub(super) struct Sidecars {
    /// All sidecars, the reused ones first.
    pub(super) all: Vec<Sidecar>,
    /// How many are reused from the last checkpoint.
    pub(super) reused: u64,
    /// Files in them.
    pub(super) adds: u64,
    /// Tombstones in them.
    pub(super) removes: u64,
}

impl Sidecars {
    /// Deletes the new ones, because the checkpoint failed.
    pub(super) async fn discard(self, storage: &Storage) {
        for sidecar in self.all.iter().skip(usize::try_from(self.reused).unwrap_or(usize::MAX)) {
            // If one cannot be deleted, no checkpoint references it.
            let _deleted = storage.delete(&path_of(&sidecar.path)).await;
        }
    }
}

/// A sidecar of the last checkpoint whose files are all live.
#[derive(Clone)]
struct ReusableSidecar {
    /// Its position among the files of the checkpoint.
    file: usize,
    sidecar: Sidecar,
    files: u64,
    /// Whether it is so old that log cleanup may soon delete it.
    needs_copy: bool,
}

/// Decides which sidecars stay, and writes the others.
pub(super) async fn write_sidecars(work: &Work) -> Result<Sidecars> {
    let previous = work.snapshot.checkpoint().await?;
    let mut reusable = match previous {
        Some(previous) => reusable(work, previous).await?,
        None => Vec::new(),
    };
    let all_files = previous.map_or(0, OpenCheckpoint::file_count);
    let mut rewritten: Vec<usize> = (0..all_files).filter(|file| reusable.iter().all(|k| k.file != *file)).collect();
    let mut files_to_write = work.snapshot.tail().await?.live.iter().map(|adds| adds.len() as u64).sum::<u64>();
    if let Some(previous) = previous {
        files_to_write = files_to_write.saturating_add(previous.inline_adds().map_or(0, |adds| adds.len() as u64));
        for file in &rewritten {
            files_to_write =
                files_to_write.saturating_add(files_in(previous.file(*file).await?.as_ref()).unwrap_or_default());
        }
    }
    let (joined, files_to_write) = join_small(&mut reusable, files_to_write);
    rewritten.extend(joined);
    let adds = reusable.iter().map(|k| k.files).sum();
    let (old, young): (Vec<_>, Vec<_>) = reusable.into_iter().partition(|k| k.needs_copy);
    let all: Vec<Sidecar> = young.into_iter().map(|k| k.sidecar).collect();
    let mut written = Sidecars { reused: all.len() as u64, adds, removes: 0, all };
    // Reused sidecars count as written.
    work.progress.advance(written.adds);
    let done = match copy_old(work, old, &mut written.all).await {
        Ok(()) => write_new(work, rewritten, files_to_write, &mut written).await,
        Err(error) => Err(error),
    };
    match done {
        Ok(()) => Ok(written),
        Err(error) => {
            written.discard(work.snapshot.storage()).await;
            Err(error)
        }
    }
}

/// Copies sidecars to new names, since log cleanup could delete the old ones.
async fn copy_old(work: &Work, old: Vec<ReusableSidecar>, all: &mut Vec<Sidecar>) -> Result<()> {
    let storage = work.snapshot.storage();
    let copy = |ReusableSidecar { sidecar, .. }: ReusableSidecar| async move {
        let name = new_name();
        let size = u64::try_from(sidecar.size_in_bytes).map_err(|_| Error::corrupt("a sidecar has a negative size"))?;
        storage.copy_from(storage, &path_of(&sidecar.path), &path_of(&name), size).await?;
        let stats = SidecarStats::of(&sidecar).map(|stats| stats.of_copy(&name));
        let tags = stats.and_then(tags);
        Ok::<_, Error>(Sidecar { path: name, modification_time: work.now_ms, tags, ..sidecar })
    };
    let copies: Vec<Result<Sidecar>> = stream::iter(old).map(copy).buffered(CONCURRENT_SIDECARS).collect().await;
    let mut failed = None;
    for copied in copies {
        match copied {
            Ok(sidecar) => all.push(sidecar),
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Writes sidecars of about `files` files: those of the sidecars in `rewritten`, and new ones.
async fn write_new(work: &Work, rewritten: Vec<usize>, files: u64, written: &mut Sidecars) -> Result<()> {
    let schema = work.checkpoint_schema.file_schema();
    let encoding = Encoding::new(schema, Properties::of(work.snapshot.metadata()))?;
    let count = usize::try_from(files.div_ceil(RANGE_FILES)).unwrap_or(MAX_RANGES).min(MAX_RANGES);
    let adds = work.adds(Some(rewritten), count, schema).await?;
    written.adds += write_rows(work, &encoding, adds, "add", &mut written.all).await?;
    check_count(&work.snapshot, written.adds)?;
    let removes = work.removes(schema).await?;
    written.removes = write_rows(work, &encoding, removes, "remove", &mut written.all).await?;
    Ok(())
}

/// Removes from `kept`, and returns, the sidecars that are rewritten with `files_to_write` other files: those no larger
/// than the result, if there would be too many of that size. Also returns the number of files to write with them.
fn join_small(kept: &mut Vec<ReusableSidecar>, mut files_to_write: u64) -> (Vec<usize>, u64) {
    let mut joined = Vec::new();
    while files_to_write > 0 {
        let class = class(files_to_write);
        let small = |k: &ReusableSidecar| k.files < MAX_SIDECAR_FILES / FANOUT && self::class(k.files) <= class;
        if (kept.iter().filter(|k| small(k)).count() as u64) < FANOUT {
            break;
        }
        let (small, large): (Vec<_>, Vec<_>) = std::mem::take(kept).into_iter().partition(|k| small(k));
        *kept = large;
        files_to_write = small.iter().fold(files_to_write, |sum, k| sum.saturating_add(k.files));
        joined.extend(small.into_iter().map(|k| k.file));
    }
    (joined, files_to_write)
}

fn class(files: u64) -> u32 {
    (files / SMALL_FILES).checked_ilog(FANOUT).map_or(0, |class| class + 1)
}

/// The sidecars of the last checkpoint that lost no file and have the layout of new ones.
async fn reusable(work: &Work, previous: &OpenCheckpoint) -> Result<Vec<ReusableSidecar>> {
    let mentioned = mentioned_paths(work.snapshot.tail().await?)?;
    let check = |position: usize| {
        let mentioned = &mentioned;
        async move {
            let Some(sidecar) = previous.sidecar(position).cloned() else { return Ok(None) };
            // A sidecar that is not directly in `_sidecars` is not reused, since log cleanup does not manage it.
            let file = previous.file(position).await?;
            let files = files_in(&file).filter(|files| *files > 0);
            let (Some(files), true) =
                (files, !sidecar.path.contains('/') && has_current_schema(&file, &work.checkpoint_schema)?)
            else {
                return Ok(None);
            };
            let lost = has_lost_files(&work.snapshot, &file, SidecarStats::of(&sidecar), mentioned).await?;
            Ok::<_, Error>((!lost).then_some(ReusableSidecar { file: position, sidecar, files, needs_copy: true }))
        }
    };
    let found: Vec<Option<ReusableSidecar>> =
        stream::iter(0..previous.file_count()).map(check).buffered(CONCURRENT_SIDECARS).try_collect().await?;
    let mut found: Vec<ReusableSidecar> = found.into_iter().flatten().collect();
    if !found.is_empty() {
        // The last log cleanup may have deleted some since.
        let there = work.snapshot.log().list_sidecars().await?;
        let times: HashMap<&str, i64> =
            there.iter().filter_map(|file| Some((file.path.rsplit('/').next()?, file.modified_ms))).collect();
        found.retain_mut(|reusable| match times.get(reusable.sidecar.path.as_str()) {
            Some(modified_ms) => {
                reusable.needs_copy = work.now_ms.saturating_sub(*modified_ms) > MAX_REUSED_AGE_MS;
                true
            }
            None => false,
        });
    }
    Ok(found)
}

/// Every path that the tail mentions, in order.
fn mentioned_paths(tail: &Tail) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    for adds in &tail.live {
        paths.extend(adds.path().iter().flatten().map(|path| canonical_path(path).into_owned()));
    }
    for rows in &tail.tombstones {
        let keys = KeyBatch::new(rows)?;
        paths.extend((0..keys.len()).map(|row| canonical_path(keys.path(row)).into_owned()));
    }
    paths.sort_unstable();
    paths.dedup();
    Ok(paths)
}

/// How many files a Parquet file has, if its statistics say.
fn files_in(file: &ActionFile) -> Option<u64> {
    let leaf = file.leaf(&["add", "path"])?;
    file.metadata().metadata().row_groups().iter().try_fold(0_u64, |sum, group| {
        let nulls = group.columns().get(leaf)?.statistics()?.null_count_opt()?;
        sum.checked_add(u64::try_from(group.num_rows()).ok()?.checked_sub(nulls)?)
    })
}

/// Whether a sidecar has the columns of a new one, and no tombstones.
fn has_current_schema(file: &ActionFile, checkpoint_schema: &CheckpointSchema) -> Result<bool> {
    let schema = ArrowSchemaConverter::new().schema_root(SCHEMA_ROOT).convert(checkpoint_schema.file_schema());
    let schema = schema.map_err(|e| Error::internal("a checkpoint's schema has no Parquet form").caused_by(e))?;
    let same = file.metadata().parquet_schema().root_schema() == schema.root_schema();
    Ok(same && file.groups_with("remove", "path").is_empty())
}

/// Whether the tail supersedes any file of a sidecar.
async fn has_lost_files(
    snapshot: &Snapshot,
    file: &Arc<ActionFile>,
    stats: Option<SidecarStats>,
    mentioned: &[String],
) -> Result<bool> {
    if mentioned.is_empty() {
        return Ok(false);
    }
    if let Some((min, max)) = stats.and_then(|stats| stats.paths) {
        let from = mentioned.partition_point(|path| *path < min);
        if mentioned.get(from).is_none_or(|path| *path > max) {
            return Ok(false);
        }
    }
    let wanted = |path: &[String]| matches!(path, [add, member, ..] if add == "add" && (member == "path" || member == "deletionVector"));
    for group in file.groups_with("add", "path") {
        let batches = file.read(group, &wanted).await?;
        let (snapshot, here) = (snapshot.clone(), file.path().to_owned());
        let lost = blocking(move || {
            let tail = snapshot.replayed();
            let tail = tail.ok_or_else(|| Error::internal("the commits were replayed and are gone"))?;
            for batch in &batches {
                let keys = KeyBatch::new(&action_rows(batch, "add", true).map_err(|e| e.in_file(&here))?)?;
                if tail.unseen(&keys).count_set_bits() < keys.len() {
                    return Ok(true);
                }
            }
            Ok(false)
        });
        if lost.await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A sidecar that is being written.
struct SidecarWriter {
    output: Output,
    name: String,
    rows: u64,
    paths: Paths,
}

/// The least and the greatest path so far.
#[derive(Default)]
enum Paths {
    #[default]
    None,
    Between(String, String),
    /// A path was not canonical.
    Unknown,
}

/// Writes rows of one kind of action into new sidecars, and returns how many they are.
async fn write_rows(
    work: &Work,
    encoding: &Arc<Encoding>,
    groups: impl Stream<Item = Result<Group>> + Send,
    action: &'static str,
    all: &mut Vec<Sidecar>,
) -> Result<u64> {
    let encode = |group: Group| {
        let encoding = encoding.clone();
        blocking(move || {
            let mut paths = Paths::None;
            let encoded = encoding.encode(group.pieces, |rows| paths.add(rows, action))?;
            Ok((group.output, encoded, paths))
        })
    };
    let mut writers: BTreeMap<usize, SidecarWriter> = BTreeMap::new();
    let written: Result<u64> = async {
        let (done, mut encoded) = mpsc::channel::<(usize, Encoded, Paths)>(1);
        let write = async {
            let mut count = 0;
            while let Some((output, group, paths)) = encoded.recv().await {
                let rows = group.rows as u64;
                if writers.get(&output).is_some_and(|sidecar| sidecar.rows + rows > MAX_SIDECAR_FILES)
                    && let Some(full) = writers.remove(&output)
                {
                    all.push(full.finish(work, action).await?);
                }
                let sidecar = match writers.entry(output) {
                    Entry::Occupied(there) => there.into_mut(),
                    Entry::Vacant(missing) => missing.insert(SidecarWriter::create(work, encoding).await?),
                };
                count += rows;
                sidecar.rows += rows;
                sidecar.paths = std::mem::take(&mut sidecar.paths).and(paths);
                sidecar.output.append(group).await?;
            }
            Ok(count)
        };
        let (count, ()) = try_join(write, encode_all(groups, encode, done)).await?;
        while let Some((_, whole)) = writers.pop_first() {
            all.push(whole.finish(work, action).await?);
        }
        Ok(count)
    }
    .await;
    for broken in writers.into_values() {
        broken.output.abort().await;
    }
    written
}

impl Paths {
    fn add(&mut self, rows: &RecordBatch, action: &str) {
        let members = rows.column_by_name(action).and_then(|c| c.as_struct_opt());
        let Some(paths) = members.and_then(|members| members.column_by_name("path")) else { return };
        let strings: Box<dyn Iterator<Item = Option<&str>>> =
            match (paths.as_string_view_opt(), paths.as_string_opt::<i32>()) {
                (Some(views), _) => Box::new(views.iter()),
                (None, Some(strings)) => Box::new(strings.iter()),
                (None, None) => {
                    *self = Self::Unknown;
                    return;
                }
            };
        let mut bounds: Option<(&str, &str)> = None;
        for path in strings.flatten() {
            if canonical_path(path) != path {
                *self = Self::Unknown;
                return;
            }
            bounds = Some(bounds.map_or((path, path), |(min, max)| (min.min(path), max.max(path))));
        }
        if let Some((min, max)) = bounds {
            *self = std::mem::take(self).and(Self::Between(min.to_owned(), max.to_owned()));
        }
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, one) | (one, Self::None) => one,
            (Self::Between(a, b), Self::Between(c, d)) => Self::Between(a.min(c), b.max(d)),
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
        }
    }
}

impl SidecarWriter {
    async fn create(work: &Work, encoding: &Arc<Encoding>) -> Result<Self> {
        let name = new_name();
        let output = Output::create(work.snapshot.storage(), &path_of(&name), encoding).await?;
        Ok(Self { output, name, rows: 0, paths: Paths::None })
    }

    async fn finish(self, work: &Work, action: &str) -> Result<Sidecar> {
        let Self { output, name, rows, paths } = self;
        let bytes = output.finish().await?;
        let size_in_bytes = i64::try_from(bytes).map_err(|e| Error::internal("a sidecar is too large").caused_by(e))?;
        let file = ActionFile::open(work.snapshot.storage(), path_of(&name), bytes).await?;
        // Tags that say 0 files let readers skip a sidecar of tombstones.
        let (files, columns) = if action == "add" { (rows, tagged_columns(work)?) } else { (0, Vec::new()) };
        let paths = match paths {
            Paths::Between(min, max) if files > 0 => Some((min, max)),
            Paths::Between(..) | Paths::None | Paths::Unknown => None,
        };
        let stats = SidecarStats::new(name.clone(), files, paths, &file.into(), &columns);
        Ok(Sidecar { path: name, size_in_bytes, modification_time: work.now_ms, tags: tags(stats) })
    }
}

/// The columns whose bounds are put into tags: partition columns, clustering columns, and the first others.
fn tagged_columns(work: &Work) -> Result<Vec<IndexColumn>> {
    let shape = work.snapshot.shape();
    let mut columns = Vec::new();
    for name in &shape.partition_columns {
        columns.push(IndexColumn::Partition(PartitionColumn::of(shape, name)?));
    }
    let leaves = shape.leaves()?.into_iter().map(|(_, leaf)| leaf);
    let typed = work.checkpoint_schema.typed_stats();
    let mut leaves: Vec<Leaf> = leaves.filter(|leaf| typed.contains(&leaf.path)).collect();
    let clustering = work.order.as_ref().map(|order| order.clustering()).unwrap_or_default();
    // The sort is stable, so the others stay in the order of the schema.
    leaves.sort_by_key(|leaf| !clustering.contains(&leaf.path));
    columns
        .extend(leaves.into_iter().take(TAGGED_COLUMNS).map(|leaf| IndexColumn::Bounds { leaf, with_counts: false }));
    Ok(columns)
}

fn tags(stats: SidecarStats) -> Option<BTreeMap<String, Option<String>>> {
    stats.print().map(|stats| BTreeMap::from([(TAG.to_owned(), Some(stats))]))
}

fn new_name() -> String {
    format!("{}.parquet", uuid::Uuid::new_v4())
}

fn path_of(name: &str) -> String {
    format!("{LOG_DIR}/{SIDECARS_DIR}/{name}")
}
