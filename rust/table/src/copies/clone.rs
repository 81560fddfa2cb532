//! CLONE: one commit makes a table at another location equal to a version of this one.
//!
//! A shallow clone names data files and deletion vectors where they are, by absolute URIs, but those below its own root by
//! relative paths, so that one file never has two names there. A deep clone has copies of them under the same relative paths;
//! files that the source itself names by absolute URIs get new names. Files are copied before the commit. If one cannot be
//! copied, those in progress end before the clone fails. Whole copies stay: the next run uses those whose names have a UUID,
//! and refuses the others. Memory holds the actions that are committed, the paths to be copied, and fingerprints of the files
//! of both tables.
//!
//! PROTOCOL.md: "Add File and Remove File" (path), "Deletion Vectors" (`p` and `u`).

use std::collections::{BTreeMap, HashMap};

use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::action::{Action, Add, DeletionVectorDescriptor};
use deltic_protocol::commit::Actions;
use deltic_protocol::deletion_vector::{self, DeletionVectorPath, Source, encode_path, relative_path};
use deltic_protocol::feature;
use deltic_protocol::replay::canonical_path;
use deltic_protocol::replay::paths::Fingerprints;
use deltic_protocol::stats::json::whole_adds;
use futures::TryStreamExt;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::copy::{Copying, copy_all, count_all};
use super::files::{LiveFiles, MAX_NAMED_FILES, describe_missing, missing, stored_files};
use crate::checkpoint::read::AddColumns;
use crate::commit::{RetryPolicy, nothing_committed, unless_cancelled};
use crate::committers::Committer;
use crate::error::{Error, Result};
use crate::log::LogSource;
use crate::snapshot::Snapshot;
use crate::transaction::builder::{HandleCache, Ids, Transaction, TransactionEnd, TransactionOptions, remove_columns};
use crate::vector_file::literal;
use crate::write::layout::encode_add_path;
use deltic_store::{Storage, decode_path};

/// What happens if there is a table already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CloneMode {
    /// The clone fails.
    #[default]
    Error,
    /// The files of that table are removed, except those that both tables have, and its history continues.
    Replace,
    /// As [`CloneMode::Replace`], but nothing is committed if nothing differs.
    Update,
}

/// How a table is cloned.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CloneOptions {
    /// Whether files are copied rather than named where they are.
    pub deep: bool,
    /// What happens if there is a table already.
    pub mode: CloneMode,
    /// Properties of the clone besides those of the source, or instead of them.
    pub properties: BTreeMap<String, String>,
    /// Whether the clone fails if files of the source are missing, since the caller names its version.
    #[serde(skip)]
    pub checks_files: bool,
    /// Options of the commit.
    pub commit: TransactionOptions,
}

/// The metrics of a clone, as the history has them.
#[derive(Debug, Default)]
struct CloneMetrics {
    /// Bytes of the data files of the source.
    source_table_size: u64,
    /// Data files of the source.
    source_num_of_files: u64,
    /// Files that are removed from the table that was at the target.
    num_removed_files: u64,
    /// Bytes of them.
    removed_files_size: u64,
    /// Files that were copied, including those of deletion vectors.
    num_copied_files: u64,
    /// Bytes of them.
    copied_files_size: u64,
}

impl CloneMetrics {
    /// As the operation metrics of the commit.
    fn metrics(&self) -> Map<String, Value> {
        let counts = [
            ("sourceTableSize", self.source_table_size),
            ("sourceNumOfFiles", self.source_num_of_files),
            ("numRemovedFiles", self.num_removed_files),
            ("numCopiedFiles", self.num_copied_files),
            ("removedFilesSize", self.removed_files_size),
            ("copiedFilesSize", self.copied_files_size),
        ];
        counts.into_iter().map(|(name, count)| (name.to_owned(), json!(count.to_string()))).collect()
    }
}

/// Makes the table at `target` equal to a version of another one. If an update finds no difference, it returns the existing
/// version as [`TransactionEnd::Replayed`].
///
/// # Errors
/// `TableExists` if there is one and the mode forbids it; `Invalid` if one of the two lies below the other, for properties that
/// the clone cannot have, if another file has the path of a copy, or if files of the requested version are missing;
/// `Corrupt` for a file that has not the size that the log records, or whose copy would lie in the log or outside of the clone;
/// `Unsupported` if the clone could not read files where they are, or deltic could not write the table; `Conflict` if another
/// writer changed the clone meanwhile; `Interrupted`.
pub async fn clone(
    source: &Snapshot,
    target: &LogSource,
    options: CloneOptions,
    committer: &dyn Committer,
    ids: &dyn Ids,
    retry: &dyn RetryPolicy,
) -> Result<TransactionEnd> {
    let PreparedClone { mut transaction, copies, mut metrics, .. } =
        match prepare(source, target, options, ids, retry).await? {
            Preparation::Ready(prepared) => *prepared,
            Preparation::Unchanged(version) => return Ok(TransactionEnd::Replayed(version)),
        };
    // Every check that could refuse the clone was made before: copying comes last.
    (metrics.num_copied_files, metrics.copied_files_size) =
        copy_all(source.storage(), target.storage(), copies, retry).await?;
    transaction.count(metrics.metrics());
    transaction.commit(committer, retry).await
}

/// What a clone would do.
#[derive(Debug, Clone, PartialEq)]
pub struct ClonePlan {
    /// The version that it would make; the existing one if it would commit nothing.
    pub version: u64,
    /// Data files that it would add.
    pub num_added: usize,
    /// The operation metrics of its commit; none if it would commit nothing.
    pub metrics: Map<String, Value>,
}

/// What [`clone`] would do. Nothing is written; each file that would be copied costs up to three requests.
///
/// # Errors
/// Those of [`clone`], except those of copying and committing.
pub async fn plan_clone(
    source: &Snapshot,
    target: &LogSource,
    options: CloneOptions,
    ids: &dyn Ids,
    retry: &dyn RetryPolicy,
) -> Result<ClonePlan> {
    let mut prepared = match prepare(source, target, options, ids, retry).await? {
        Preparation::Ready(prepared) => *prepared,
        Preparation::Unchanged(version) => return Ok(ClonePlan { version, num_added: 0, metrics: Map::new() }),
    };
    let counting = count_all(source.storage(), target.storage(), prepared.copies);
    (prepared.metrics.num_copied_files, prepared.metrics.copied_files_size) =
        unless_cancelled(counting, retry, nothing_committed).await?;
    prepared.transaction.abandon().await;
    let version = prepared.existing.map_or(0, |version| version.saturating_add(1));
    Ok(ClonePlan { version, num_added: prepared.num_added, metrics: prepared.metrics.metrics() })
}

/// A clone after its checks.
enum Preparation {
    /// Nothing is to be committed: the table at the target has this version.
    Unchanged(u64),
    /// Files are to be copied, and then it is committed.
    Ready(Box<PreparedClone>),
}

/// A clone for which only files are to be copied before it is committed.
struct PreparedClone {
    transaction: Transaction,
    /// The version of the table that is at the target already.
    existing: Option<u64>,
    copies: Vec<Copying>,
    num_added: usize,
    metrics: CloneMetrics,
}

/// Checks a clone, and compares both tables.
async fn prepare(
    source: &Snapshot,
    target: &LogSource,
    options: CloneOptions,
    ids: &dyn Ids,
    retry: &dyn RetryPolicy,
) -> Result<Preparation> {
    let (from, to) = (source.storage(), target.storage());
    check_apart(from, to).await?;
    if !options.deep {
        to.check_reachable(&decode_path(&from.absolute_uri("_")?)?)?;
    }
    let mut metrics = CloneMetrics::default();
    let commit = commit_options(source, &options)?;
    let cache = HandleCache { now_ms: Some(retry.now_ms()), ..HandleCache::default() };
    let mut transaction =
        Transaction::copy_of(source, target, cache, commit, options.mode != CloneMode::Error, ids).await?;
    if let Some(version) = transaction.already_committed_version() {
        return Ok(Preparation::Unchanged(version));
    }
    if !options.properties.is_empty() {
        transaction.set_properties_of_copy(&options.properties, ids)?;
    }
    let existing = transaction.replaced().cloned();
    let mut plan = Plan::new(source, to, options.deep, transaction.gives_row_ids()?);
    plan.checks_files = options.checks_files;
    if !options.deep {
        plan.real_root = to.real_path("").await?;
    }
    let compared = async {
        if let Some(snapshot) = &existing {
            plan.read_existing(snapshot).await?;
        }
        plan.add_all(source, &mut metrics).await?;
        plan.refuse_missing(source.version())?;
        match &existing {
            Some(snapshot) => plan.remove_others(snapshot, &mut metrics, retry.now_ms()).await,
            None => Ok(()),
        }
    };
    unless_cancelled(compared, retry, nothing_committed).await?;
    let (num_added, copies) = (plan.actions.num_added(), plan.copies);
    let differs = transaction.become_like(source, plan.actions).await?;
    let existing = existing.map(|snapshot| snapshot.version());
    Ok(match existing.filter(|_| !differs && options.mode == CloneMode::Update) {
        Some(version) => Preparation::Unchanged(version),
        None => Preparation::Ready(Box::new(PreparedClone { transaction, existing, copies, num_added, metrics })),
    })
}

/// The commit's options, with the operation and its parameters for the history.
fn commit_options(source: &Snapshot, options: &CloneOptions) -> Result<TransactionOptions> {
    let mut commit = options.commit.clone();
    "CLONE".clone_into(&mut commit.operation);
    commit.commit_empty = true;
    let root = match source.storage().is_local() {
        true => source.storage().absolute_uri("")?,
        // An absolute URI of it may not exist.
        false => source.storage().location().to_owned(),
    };
    let parameters = [
        ("source", json!(format!("delta.`{}`", root.trim_end_matches('/')))),
        ("sourceVersion", json!(source.version())),
        ("isShallow", json!(!options.deep)),
    ];
    commit.parameters = parameters.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    Ok(commit)
}

/// A vacuum of one of the two would delete the files of the other, if that were below it.
async fn check_apart(source: &Storage, target: &Storage) -> Result<()> {
    if source.overlaps(target).await? {
        let message = format!(
            "a table cannot be cloned into its own folder, nor to one above or below it ({}): each would take the files of \
             the other for its own",
            target.location()
        );
        return Err(Error::invalid(message).in_table(source.location()));
    }
    Ok(())
}

/// The files of a clone.
struct Plan<'a> {
    source: &'a Storage,
    target: &'a Storage,
    deep: bool,
    /// Whether the source tracks rows, and whether the clone gives row ids to files that have none.
    ids_of_rows: [bool; 2],
    actions: Actions,
    /// All files of the clone.
    files: LiveFiles,
    /// The files of the table that is at the target already, as [`exact`] describes them; those of them that have row ids;
    /// and the same with their row ids.
    existing: Fingerprints,
    existing_with_ids: Fingerprints,
    existing_by_ids: Fingerprints,
    existing_by_name: LiveFiles,
    copies: Vec<Copying>,
    /// Paths that files are copied to, and pairs of source and target path.
    taken: Fingerprints,
    /// The root of the clone, if it is on a local disk, with symbolic links followed.
    real_root: Option<String>,
    /// For folders that were looked up: their path below the root of the clone, if they are below it.
    folders: HashMap<String, Option<String>>,
    /// Whether it is checked that the files of the source exist.
    checks_files: bool,
    checked: Fingerprints,
    /// How many files are missing, and some of their names.
    num_missing: usize,
    missing: Vec<String>,
}

impl<'a> Plan<'a> {
    fn new(source: &'a Snapshot, target: &'a Storage, deep: bool, gives_ids: bool) -> Self {
        Self {
            source: source.storage(),
            target,
            deep,
            ids_of_rows: [feature::supported(source.protocol()).contains("rowTracking"), gives_ids],
            actions: Actions::new(),
            files: LiveFiles::default(),
            existing: Fingerprints::default(),
            existing_with_ids: Fingerprints::default(),
            existing_by_ids: Fingerprints::default(),
            existing_by_name: LiveFiles::default(),
            copies: Vec::new(),
            taken: Fingerprints::default(),
            real_root: None,
            folders: HashMap::new(),
            checks_files: false,
            checked: Fingerprints::default(),
            num_missing: 0,
            missing: Vec::new(),
        }
    }

    /// Records the files of the table that is at the target already.
    async fn read_existing(&mut self, existing: &Snapshot) -> Result<()> {
        let members = vec!["path", "deletionVector", "size", "modificationTime", "baseRowId"];
        let columns = AddColumns { members, ..AddColumns::default() };
        let mut live = std::pin::pin!(existing.live_files(&columns).await?);
        while let Some(adds) = live.try_next().await? {
            for row in 0..adds.len() {
                let add = adds.add(row)?;
                let file = exact(&add);
                self.existing.insert(&file);
                if add.base_row_id.is_some() {
                    self.existing_with_ids.insert(&file);
                    self.existing_by_ids.insert(&(file, add.base_row_id));
                }
                self.existing_by_name.insert(&add.path, add.deletion_vector.as_ref())?;
            }
        }
        Ok(())
    }

    /// Adds the files of the source, except those that the target has already.
    async fn add_all(&mut self, source: &Snapshot, done: &mut CloneMetrics) -> Result<()> {
        let mut live = std::pin::pin!(source.live_files(&AddColumns::all()).await?);
        while let Some(adds) = live.try_next().await? {
            if self.checks_files {
                self.find_missing(&adds).await?;
            }
            for add in whole_adds(&adds, 0..adds.len())? {
                let add = add?;
                let size = u64::try_from(add.size).unwrap_or_default();
                done.source_num_of_files += 1;
                done.source_table_size = done.source_table_size.saturating_add(size);
                let path = add.path.clone();
                let (add, copies) = self.add_in_clone(add).await.map_err(|e| e.in_file(path))?;
                self.files.insert(&add.path, add.deletion_vector.as_ref())?;
                if self.existing.contains(&exact(&add)) {
                    if !self.has_its_ids(&add) {
                        self.actions.push_re_add(add)?;
                    }
                    continue;
                }
                if self.existing_by_name.logical().contains(&add.path, add.deletion_vector.as_ref()) {
                    let message = "the existing table has another file of this name; clone to another location";
                    return Err(Error::invalid(message).in_table(self.target.location()).in_file(add.path));
                }
                copies.into_iter().try_for_each(|copying| self.copy(copying))?;
                self.actions.push(Action::Add(Add { data_change: true, ..add }))?;
            }
        }
        Ok(())
    }

    /// Whether the existing file has the row ids that it needs in the clone.
    fn has_its_ids(&self, add: &Add) -> bool {
        let [source_has_ids, gives_ids] = self.ids_of_rows;
        match add.base_row_id {
            Some(_) => self.existing_by_ids.contains(&(exact(add), add.base_row_id)),
            // The ids that the clone has given to it are kept, unless they may be ids of another file of the source.
            None => !gives_ids || !source_has_ids && self.existing_with_ids.contains(&exact(add)),
        }
    }

    /// Checks that files of the source exist, and records those that are missing.
    async fn find_missing(&mut self, adds: &AddBatch) -> Result<()> {
        let mut unseen = Vec::new();
        for row in 0..adds.len() {
            for path in stored_files(adds.path().value(row), adds.deletion_vector(row)?.as_ref())? {
                if self.checked.insert(&path.as_str()) {
                    unseen.push(path);
                }
            }
        }
        for path in missing(self.source, unseen, "CLONE").await? {
            self.num_missing += 1;
            if self.missing.len() < MAX_NAMED_FILES {
                self.missing.push(path);
            }
        }
        Ok(())
    }

    fn refuse_missing(&self, version: u64) -> Result<()> {
        if self.num_missing == 0 {
            return Ok(());
        }
        let message = format!(
            "version {version} cannot be cloned: {}; nothing was written. Clone a later version",
            describe_missing(self.num_missing, &self.missing)
        );
        Err(Error::invalid(message).in_table(self.source.location()).at_version(version))
    }

    /// Removes the files of the table that is at the target, except those that are part of the clone.
    async fn remove_others(&mut self, existing: &Snapshot, done: &mut CloneMetrics, now_ms: i64) -> Result<()> {
        let mut live = std::pin::pin!(existing.live_files(&remove_columns(Vec::new())).await?);
        while let Some(adds) = live.try_next().await? {
            for row in self.files.logical().missing(&adds)? {
                let remove = adds.add(row)?.removed(now_ms);
                let size = remove.size.and_then(|size| u64::try_from(size).ok()).unwrap_or_default();
                done.num_removed_files += 1;
                done.removed_files_size = done.removed_files_size.saturating_add(size);
                self.actions.push(Action::Remove(remove))?;
            }
        }
        Ok(())
    }

    fn copy(&mut self, copying: Copying) -> Result<()> {
        let Some(to) = self.target.below_root(&copying.to).filter(|to| !is_in_log(to)) else {
            let message = "the log names a file whose copy would lie in the log of the clone, or outside of the clone";
            return Err(Error::corrupt(message).in_table(self.source.location()).in_file(copying.from));
        };
        let copying = Copying { to, ..copying };
        // One file may hold the deletion vectors of many data files.
        if self.taken.insert(&(copying.from.as_str(), copying.to.as_str())) {
            if !self.taken.insert(&copying.to.as_str()) {
                let message = "two files of the table would be copied to the same place; clone it shallow";
                return Err(Error::unsupported("files of one name", message).in_file(copying.from));
            }
            self.copies.push(copying);
        }
        Ok(())
    }

    /// The `add` action of a file in the clone, and the files to be copied for it.
    async fn add_in_clone(&mut self, mut add: Add) -> Result<(Add, Vec<Copying>)> {
        let literal = decode_path(&add.path)?;
        // "The first commit version in which an add action with the same path was committed to the table": the clone's.
        add.default_row_commit_version = None;
        let vector = add.deletion_vector.take();
        if !self.deep {
            add.path = match self.name_in_clone(&literal).await? {
                Named::Here(key) => relative_uri(&key),
                Named::Elsewhere(uri) => uri,
            };
            if let Some(vector) = vector {
                add.deletion_vector = Some(self.shallow_vector(vector).await?);
            }
            return Ok((add, Vec::new()));
        }
        let size = u64::try_from(add.size).map_err(|_| Error::corrupt("the log gives the file a negative size"))?;
        let mut copies = Vec::new();
        let to = match is_absolute(&add.path) {
            true => {
                let name = add.path.rsplit('/').next().unwrap_or(&add.path);
                add.path = format!("{}-{name}", mark(&canonical_path(&add.path)));
                decode_path(&add.path)?
            }
            false => literal.clone(),
        };
        copies.push(Copying { from: literal, to, size: Some(size) });
        if let Some(vector) = vector {
            let (vector, copying) = copied_vector(vector)?;
            add.deletion_vector = Some(vector);
            copies.extend(copying);
        }
        Ok((add, copies))
    }

    /// How a shallow clone names a file of the source, so that its readers find it.
    async fn name_in_clone(&mut self, literal: &str) -> Result<Named> {
        let uri = self.source.absolute_uri(literal)?;
        let decoded = decode_path(&uri)?;
        match self.below_target(&decoded).await? {
            Some(key) if is_in_log(&key) => Err(Error::corrupt("the log names a file in the log of the clone")),
            Some(key) => Ok(Named::Here(key)),
            None => {
                self.target.check_reachable(&decoded)?;
                Ok(Named::Elsewhere(uri))
            }
        }
    }

    /// The path of a file below the root of the clone, if it is there, also through symbolic links: a table that has one
    /// file by two names loses it when a vacuum deletes one of them.
    async fn below_target(&mut self, literal: &str) -> Result<Option<String>> {
        if let Some(below) = self.target.below_root(literal) {
            return Ok(Some(below));
        }
        let (Some(root), Some(path)) = (&self.real_root, literal.strip_prefix("file:")) else { return Ok(None) };
        let Some((folder, name)) = path.rsplit_once('/') else { return Ok(None) };
        if !self.folders.contains_key(folder) {
            let real = self.target.real_path(&format!("file:{folder}/")).await?;
            let below = real.as_deref().and_then(|real| real.strip_prefix(root.trim_end_matches('/')));
            let below = below.filter(|rest| rest.is_empty() || rest.starts_with('/'));
            self.folders.insert(folder.to_owned(), below.map(|below| below.trim_start_matches('/').to_owned()));
        }
        let below = self.folders.get(folder).and_then(Option::as_ref);
        Ok(below.map(|below| if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") }))
    }

    async fn shallow_vector(&mut self, vector: DeletionVectorDescriptor) -> Result<DeletionVectorDescriptor> {
        let literal = match deletion_vector::source(&vector)? {
            Source::Inline(_) => return Ok(vector),
            Source::File { path, .. } => literal(path)?,
        };
        let (storage_type, path_or_inline_dv) = match self.name_in_clone(&literal).await? {
            Named::Elsewhere(uri) => ("p", uri),
            Named::Here(key) => {
                let (prefix, name) = key.rsplit_once('/').unwrap_or(("", &key));
                let vector_path = vector_id(name).map(|id| encode_path(prefix, id.as_bytes()));
                match vector_path.filter(|vector_path| relative_path(vector_path).is_ok_and(|path| path == key)) {
                    Some(vector_path) => ("u", vector_path),
                    None => return Err(misnamed(&key)),
                }
            }
        };
        Ok(DeletionVectorDescriptor { storage_type: storage_type.to_owned(), path_or_inline_dv, ..vector })
    }
}

/// How a shallow clone names a file.
enum Named {
    /// By its path below the root of the clone.
    Here(String),
    /// By an absolute URI.
    Elsewhere(String),
}

/// A path below the root in the form that a log has, which cannot be taken for an absolute URI.
fn relative_uri(key: &str) -> String {
    let path = encode_add_path(key);
    if is_absolute(&path) { path.replacen(':', "%3A", 1) } else { path }
}

/// Whether a path below a table's root is in its log.
fn is_in_log(key: &str) -> bool {
    key.split('/').next().is_some_and(|first| first.eq_ignore_ascii_case("_delta_log"))
}

/// The UUID in the name of a deletion vector file.
fn vector_id(name: &str) -> Option<Uuid> {
    let id = name.strip_prefix("deletion_vector_")?.strip_suffix(".bin")?;
    Uuid::parse_str(id).ok()
}

fn misnamed(path: &str) -> Error {
    let message = format!(
        "the deletion vector file `{path}` is not named as the protocol requires, so it cannot have a relative path; \
         clone the table to another location, or the other way (shallow or deep)"
    );
    Error::unsupported("deletion vector file of another name", message)
}

/// The descriptor of a deletion vector in a deep clone, and the file to be copied for it.
fn copied_vector(vector: DeletionVectorDescriptor) -> Result<(DeletionVectorDescriptor, Option<Copying>)> {
    let of_size = |from: String, to: String| Some(Copying { from, to, size: None });
    match deletion_vector::source(&vector)? {
        Source::Inline(_) => Ok((vector, None)),
        Source::File { path: DeletionVectorPath::Relative(path), .. } => Ok((vector, of_size(path.clone(), path))),
        Source::File { path: DeletionVectorPath::Absolute(uri), .. } => {
            let from = decode_path(&uri)?;
            let name = from.rsplit('/').next().unwrap_or(&from);
            let id = vector_id(name).ok_or_else(|| misnamed(name))?;
            let to = format!("deletion_vector_{id}.bin");
            let path_or_inline_dv = encode_path("", id.as_bytes());
            let vector = DeletionVectorDescriptor { storage_type: "u".to_owned(), path_or_inline_dv, ..vector };
            Ok((vector, of_size(from, to)))
        }
    }
}

/// What must be equal for a file of one log to be the same file in another: everything except its row ids.
fn exact(add: &Add) -> (String, Option<String>, i64, i64) {
    let vector = add.deletion_vector.as_ref().map(DeletionVectorDescriptor::unique_id);
    (canonical_path(&add.path).into_owned(), vector, add.size, add.modification_time)
}

/// Whether a path in a log is absolute.
fn is_absolute(path: &str) -> bool {
    let scheme = path.split_once(':').filter(|(scheme, rest)| scheme.len() > 1 && rest.starts_with('/'));
    path.starts_with('/')
        || scheme.is_some_and(|(scheme, _)| scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)))
}

/// Eight hexadecimal digits of the hash of a URI. They distinguish files with the same name in different folders.
fn mark(uri: &str) -> String {
    let fold = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    format!("{:08x}", uri.bytes().fold(0x811c_9dc5, fold))
}
