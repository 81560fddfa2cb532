//! CLONE: one commit after which a table elsewhere is what a version of this one is.
//!
//! A shallow clone names the files where they are, by absolute URIs, deletion vectors too. A deep one has copies of them
//! under the same relative paths; files that this table has by absolute URIs itself get new names. Files are copied
//! before the commit and stay if it fails, so that the next run finds them. Memory holds the actions that are committed.
//!
//! PROTOCOL.md: "Add File and Remove File" (path), "Deletion Vectors" (`p` and `u`).

use std::collections::BTreeMap;

use deltic_protocol::action::{Action, Add, DeletionVectorDescriptor};
use deltic_protocol::alter::Alteration;
use deltic_protocol::commit::Actions;
use deltic_protocol::deletion_vector::{self, DeletionVectorPath, Source, encode_path};
use deltic_protocol::replay::canonical_path;
use deltic_protocol::replay::paths::Fingerprints;
use deltic_protocol::stats::text::whole_adds;
use futures::TryStreamExt;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::copy::{Copying, copy_all};
use super::files::LiveFiles;
use crate::checkpoint::read::AddColumns;
use crate::committers::Committer;
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::storage::{Storage, decode_path};
use crate::transaction::RetryPolicy;
use crate::transaction::builder::{Ended, Ids, Known, Transaction, TransactionOptions, remove_columns};

/// What happens where there is a table already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CloneMode {
    /// It is an error.
    #[default]
    Error,
    /// All its files go, but for those that both have, and its history goes on.
    Replace,
    /// The same, and where nothing differs nothing is committed.
    Update,
}

/// How a table is cloned.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CloneOptions {
    /// Whether files are copied rather than named where they are.
    pub deep: bool,
    /// What happens where there is a table already.
    pub mode: CloneMode,
    /// Properties of the clone besides those of the source, or instead of them.
    pub properties: BTreeMap<String, String>,
    /// What any commit may be told.
    pub commit: TransactionOptions,
}

/// What a clone is of.
#[derive(Debug, Default)]
struct Counted {
    /// Bytes of the data files of the source.
    source_table_size: u64,
    /// Its data files.
    source_num_of_files: u64,
    /// Files of the table that was there that are part of it no more.
    num_removed_files: u64,
    /// Bytes of them.
    removed_files_size: u64,
    /// Files that were copied, those of deletion vectors among them.
    num_copied_files: u64,
    /// Bytes of them.
    copied_files_size: u64,
}

impl Counted {
    /// As the history counts it.
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

/// Makes the table at `target` what a version of another one is. Needless, as of the version that is there, if an update finds
/// nothing that differs.
///
/// # Errors
/// `TableExists` if there is one and the mode forbids it; `Invalid` if one of the two lies below the other, for properties that
/// the clone cannot have, or where another file is in the place of a copy; `Unsupported` if the clone could not read files
/// where they are, or deltic could not write the table; `Conflict` if another writer changed the clone meanwhile.
pub async fn clone(
    source: &Snapshot,
    (target, committer): (&Storage, &dyn Committer),
    options: CloneOptions,
    (ids, retry): (&dyn Ids, &dyn RetryPolicy),
) -> Result<Ended> {
    check_apart(source.storage(), target)?;
    if !options.deep {
        target.check_reachable(&decode_path(&source.storage().absolute_uri("_")?)?)?;
    }
    let mut done = Counted::default();
    let told = told(source, &options)?;
    let known = Known { now_ms: Some(retry.now_ms()), ..Known::default() };
    let replaces = options.mode != CloneMode::Error;
    let mut transaction = Transaction::copy_of(source, (target, known), (told, replaces), ids).await?;
    if let Some(version) = transaction.replayed() {
        return Ok(Ended::Replayed(version));
    }
    if !options.properties.is_empty() {
        transaction.alter(&Alteration::SetProperties(options.properties.clone()), ids)?;
    }
    let there = transaction.replaced().cloned();
    let mut plan = Plan::new(source.storage(), target, &options);
    if let Some(snapshot) = &there {
        plan.look_at(snapshot).await?;
    }
    plan.add_all(source, &mut done).await?;
    if let Some(snapshot) = &there {
        plan.remove_others(snapshot, &mut done, retry.now_ms()).await?;
    }
    (done.num_copied_files, done.copied_files_size) = copy_all(source.storage(), target, plan.copies).await?;
    let differs = transaction.become_like(source, plan.actions).await?;
    if let Some(snapshot) = there.filter(|_| !differs && options.mode == CloneMode::Update) {
        return Ok(Ended::Replayed(snapshot.version()));
    }
    transaction.count(done.metrics());
    transaction.commit(committer, retry).await
}

/// The commit's options, with what the history is told.
fn told(source: &Snapshot, options: &CloneOptions) -> Result<TransactionOptions> {
    let mut told = options.commit.clone();
    "CLONE".clone_into(&mut told.operation);
    told.commit_empty = true;
    let root = source.storage().absolute_uri("")?;
    let parameters = [
        ("source", json!(format!("delta.`{}`", root.trim_end_matches('/')))),
        ("sourceVersion", json!(source.version())),
        ("isShallow", json!(!options.deep)),
    ];
    told.parameters = parameters.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    Ok(told)
}

/// A vacuum of one of the two would delete the files of the other, if that were below it.
fn check_apart(source: &Storage, target: &Storage) -> Result<()> {
    let below = |outer: &Storage, inner: &Storage| {
        let (outer, inner) = (outer.location().trim_end_matches('/'), inner.location().trim_end_matches('/'));
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if below(source, target) || below(target, source) {
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
    actions: Actions,
    /// All files that it will have.
    files: LiveFiles,
    /// Those of the table that is there, as [`exact`] has them.
    there: Fingerprints,
    there_by_name: LiveFiles,
    copies: Vec<Copying>,
    /// Where copies go.
    taken: Fingerprints,
}

impl<'a> Plan<'a> {
    fn new(source: &'a Storage, target: &'a Storage, options: &CloneOptions) -> Self {
        Self {
            source,
            target,
            deep: options.deep,
            actions: Actions::new(),
            files: LiveFiles::default(),
            there: Fingerprints::default(),
            there_by_name: LiveFiles::default(),
            copies: Vec::new(),
            taken: Fingerprints::default(),
        }
    }

    /// Takes note of the files of the table that is there.
    async fn look_at(&mut self, there: &Snapshot) -> Result<()> {
        let members = vec!["path", "deletionVector", "size", "modificationTime"];
        let columns = AddColumns { members, ..AddColumns::default() };
        let mut live = std::pin::pin!(there.live_files(&columns).await?);
        while let Some(adds) = live.try_next().await? {
            for row in 0..adds.len() {
                let add = adds.add(row)?;
                self.there.insert(&exact(&add));
                self.there_by_name.insert(&add.path, add.deletion_vector.as_ref())?;
            }
        }
        Ok(())
    }

    /// Adds the files of the source, but for those that are there already.
    async fn add_all(&mut self, source: &Snapshot, done: &mut Counted) -> Result<()> {
        let mut live = std::pin::pin!(source.live_files(&AddColumns::all()).await?);
        while let Some(adds) = live.try_next().await? {
            for add in whole_adds(&adds, 0..adds.len())? {
                let add = add?;
                let size = u64::try_from(add.size).unwrap_or_default();
                done.source_num_of_files += 1;
                done.source_table_size = done.source_table_size.saturating_add(size);
                let path = add.path.clone();
                let (add, copies) = self.moved(add).map_err(|e| e.in_file(path))?;
                self.files.insert(&add.path, add.deletion_vector.as_ref())?;
                if self.there.contains(&exact(&add)) {
                    continue;
                }
                if self.there_by_name.has(&add.path, add.deletion_vector.as_ref()) {
                    let message =
                        "the table that is there has a file of this name, which is another; clone to another place";
                    return Err(Error::invalid(message).in_table(self.target.location()).in_file(add.path));
                }
                copies.into_iter().try_for_each(|copying| self.copy(copying))?;
                self.actions.push(Action::Add(Add { data_change: true, ..add }))?;
            }
        }
        Ok(())
    }

    /// Removes the files of the table that is there, but for those that the clone has.
    async fn remove_others(&mut self, there: &Snapshot, done: &mut Counted, now_ms: i64) -> Result<()> {
        let mut live = std::pin::pin!(there.live_files(&remove_columns(Vec::new())).await?);
        while let Some(adds) = live.try_next().await? {
            for row in self.files.others(&adds)? {
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
        // Vectors of many files stand in one.
        if self.taken.insert(&(copying.from.as_str(), copying.to.as_str())) {
            if !self.taken.insert(&copying.to.as_str()) {
                let message = "two files of the table would be copied to the same place; clone it shallow";
                return Err(Error::unsupported("files of one name", message).in_file(copying.from));
            }
            self.copies.push(copying);
        }
        Ok(())
    }

    /// A file as the clone names it, and what is to be copied for that.
    fn moved(&self, mut add: Add) -> Result<(Add, Vec<Copying>)> {
        let literal = decode_path(&add.path)?;
        let vector = add.deletion_vector.take();
        if !self.deep {
            add.path = self.reachable(&literal)?;
            add.deletion_vector = vector.map(|vector| self.absolute_vector(vector)).transpose()?;
            return Ok((add, Vec::new()));
        }
        let size = u64::try_from(add.size).ok();
        let mut copies = Vec::new();
        let to = match is_absolute(&add.path) {
            true => {
                let uri = self.source.absolute_uri(&literal)?;
                let name = literal.rsplit('/').next().unwrap_or(&literal);
                add.path = format!("{}-{}", mark(&uri), uri.rsplit('/').next().unwrap_or(&uri));
                format!("{}-{name}", mark(&uri))
            }
            false => literal.clone(),
        };
        copies.push(Copying { from: literal, to, size });
        if let Some(vector) = vector {
            let (vector, copying) = copied_vector(vector)?;
            add.deletion_vector = Some(vector);
            copies.extend(copying);
        }
        Ok((add, copies))
    }

    /// The absolute URI of a file of the source, which readers of the clone must be able to follow.
    fn reachable(&self, literal: &str) -> Result<String> {
        let uri = self.source.absolute_uri(literal)?;
        self.target.check_reachable(&decode_path(&uri)?)?;
        Ok(uri)
    }

    fn absolute_vector(&self, vector: DeletionVectorDescriptor) -> Result<DeletionVectorDescriptor> {
        let literal = match deletion_vector::source(&vector)? {
            Source::Inline(_) => return Ok(vector),
            Source::File { path: DeletionVectorPath::Relative(relative), .. } => relative,
            Source::File { path: DeletionVectorPath::Absolute(uri), .. } => decode_path(&uri)?,
        };
        let path_or_inline_dv = self.reachable(&literal)?;
        Ok(DeletionVectorDescriptor { storage_type: "p".to_owned(), path_or_inline_dv, ..vector })
    }
}

/// A deletion vector as a deep clone has it, and its file.
fn copied_vector(vector: DeletionVectorDescriptor) -> Result<(DeletionVectorDescriptor, Option<Copying>)> {
    let of_size = |from: String, to: String| Some(Copying { from, to, size: None });
    match deletion_vector::source(&vector)? {
        Source::Inline(_) => Ok((vector, None)),
        Source::File { path: DeletionVectorPath::Relative(path), .. } => Ok((vector, of_size(path.clone(), path))),
        Source::File { path: DeletionVectorPath::Absolute(uri), .. } => {
            let from = decode_path(&uri)?;
            let name = from.rsplit('/').next().unwrap_or(&from);
            let id = name.strip_prefix("deletion_vector_").and_then(|name| name.strip_suffix(".bin"));
            let Some(id) = id.and_then(|id| Uuid::parse_str(id).ok()) else {
                let message = format!(
                    "the deletion vector file `{name}` is not named as the protocol names those below a table, so it has \
                     no relative path; clone the table shallow"
                );
                return Err(Error::unsupported("deletion vector file of another name", message));
            };
            let to = format!("deletion_vector_{id}.bin");
            let path_or_inline_dv = encode_path("", id.as_bytes());
            let vector = DeletionVectorDescriptor { storage_type: "u".to_owned(), path_or_inline_dv, ..vector };
            Ok((vector, of_size(from, to)))
        }
    }
}

/// A file as it is carried from one log to another.
fn exact(add: &Add) -> (String, Option<String>, i64, i64) {
    let vector = add.deletion_vector.as_ref().map(DeletionVectorDescriptor::unique_id);
    (canonical_path(&add.path).into_owned(), vector, add.size, add.modification_time)
}

/// Whether a path of a log stands for itself.
fn is_absolute(path: &str) -> bool {
    let scheme = path.split_once(':').filter(|(scheme, rest)| scheme.len() > 1 && rest.starts_with('/'));
    path.starts_with('/')
        || scheme.is_some_and(|(scheme, _)| scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)))
}

/// Eight digits that tell URIs apart whose last names are the same: the same ones in every process.
fn mark(uri: &str) -> String {
    let fold = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    format!("{:08x}", uri.bytes().fold(0x811c_9dc5, fold))
}
