//! RESTORE: one commit that makes the table what an older version was. Older versions stay readable. If that is the newest
//! version there is nothing to restore, and no commit.
//!
//! First it is checked that all files which must come back exist, except those that are live now: nothing is written if one is
//! missing. Any concurrent change of files or metadata is a conflict, since the restore would undo it unnoticed.
//! Memory holds the actions of added and removed files, and some fingerprints of 16 bytes for each file of both versions.
//!
//! PROTOCOL.md: "Add File and Remove File", "Change Metadata", "Add CDC File" (none are written: readers derive the changes
//! from the files).

use std::collections::HashSet;

use deltic_protocol::action::{Action, Add};
use deltic_protocol::commit::Actions;
use deltic_protocol::replay::paths::Fingerprints;
use deltic_protocol::stats::json::whole_adds;
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::files::{LiveFiles, describe_missing, missing, stored_files};
use crate::checkpoint::read::AddColumns;
use crate::commit::{CommitContext, nothing_committed, unless_cancelled};
use crate::error::{Error, Result};
use crate::history;
use crate::log::LogSource;
use crate::snapshot::Snapshot;
use crate::transaction::builder::{HandleCache, Ids, Transaction, TransactionEnd, TransactionOptions, remove_columns};

/// The version to restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreTo {
    /// The version with this number.
    Version(u64),
    /// The newest version at this time, in milliseconds since the epoch, and the time as a string for the history.
    Time(i64, String),
}

/// Options of a restore.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RestoreOptions {
    /// Whether files that no longer exist are left out, with their rows, instead of being an error.
    pub ignore_missing_files: bool,
    /// Whether features that the older version did not have are removed from the protocol.
    pub protocol_downgrade_allowed: bool,
    /// Whether nothing is committed.
    pub dry_run: bool,
    /// Options of the commit.
    pub commit: TransactionOptions,
}

/// What a restore did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// The version of the commit; none after a dry run, and if the newest version was to be restored. If the application's
    /// transaction was committed before, its version.
    pub version: Option<u64>,
    /// The version that was restored.
    pub restored_version: u64,
    /// Files that come back.
    pub num_restored_files: u64,
    /// Bytes of them.
    pub restored_files_size: u64,
    /// Files that are removed.
    pub num_removed_files: u64,
    /// Bytes of them.
    pub removed_files_size: u64,
    /// Files of the table after the restore.
    pub num_of_files_after_restore: u64,
    /// Bytes of them.
    pub table_size_after_restore: u64,
    /// Files that would have to come back and do not exist any more, including those of deletion vectors.
    pub missing: Vec<String>,
}

impl Restored {
    /// As the operation metrics of the commit.
    fn metrics(&self) -> Map<String, Value> {
        let counts = [
            ("numRestoredFiles", self.num_restored_files),
            ("restoredFilesSize", self.restored_files_size),
            ("numRemovedFiles", self.num_removed_files),
            ("removedFilesSize", self.removed_files_size),
            ("numOfFilesAfterRestore", self.num_of_files_after_restore),
            ("tableSizeAfterRestore", self.table_size_after_restore),
        ];
        counts.into_iter().map(|(name, count)| (name.to_owned(), json!(count.to_string()))).collect()
    }
}

/// Makes the table equal to an older version.
///
/// # Errors
/// `VersionNotFound` if the log does not have the version any more, or not yet; `Invalid` if files are missing (naming
/// them), if the table is append-only and files would be removed, or row tracking was dropped since;
/// `Conflict` if another writer changed files or metadata meanwhile; `Unsupported` if deltic could not write the table;
/// `Interrupted`.
pub async fn restore(
    log: &LogSource,
    latest: Option<Snapshot>,
    to: &RestoreTo,
    options: RestoreOptions,
    ids: &dyn Ids,
    context: CommitContext<'_>,
) -> Result<Restored> {
    let CommitContext { committer, retry } = context;
    let in_table = |e: Error| e.in_table(log.location());
    let (mut commit, has_app_id) = (options.commit.clone(), options.commit.app_id.is_some());
    "RESTORE".clone_into(&mut commit.operation);
    commit.commit_empty = true;
    commit.parameters = match to {
        RestoreTo::Version(version) => members(json!({"version": version, "timestamp": null})),
        RestoreTo::Time(_, time) => members(json!({"version": null, "timestamp": time})),
    };
    let cache = HandleCache { latest, now_ms: Some(retry.now_ms()), ..HandleCache::default() };
    let mut transaction = Transaction::begin(log, cache, commit, ids).await?;
    if let Some(version) = transaction.already_committed_version() {
        return Ok(Restored { version: Some(version), ..Restored::default() });
    }
    let newest = transaction.snapshot().await?;
    let compared = async {
        let old = older(&newest, to).await?;
        let (files, done) = difference(&newest, &old, retry.now_ms()).await?;
        Ok::<_, Error>((old, files, done))
    };
    let (old, files, mut done) = unless_cancelled(compared, retry, nothing_committed).await.map_err(in_table)?;
    if !options.dry_run && !options.ignore_missing_files && !done.missing.is_empty() {
        return Err(in_table(refusal(&done)).at_version(old.version()));
    }
    if old.version() == newest.version() && !has_app_id {
        return Ok(done);
    }
    transaction.return_to(&old, files, options.protocol_downgrade_allowed).await?;
    if options.dry_run {
        return Ok(done);
    }
    transaction.count(done.metrics());
    if let TransactionEnd::Committed(outcome) = transaction.commit(committer, retry).await? {
        done.version = Some(outcome.committed.version);
    }
    Ok(done)
}

fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// The snapshot of the version to restore.
async fn older(newest: &Snapshot, to: &RestoreTo) -> Result<Snapshot> {
    let version = match to {
        RestoreTo::Version(version) => *version,
        RestoreTo::Time(time, _) => history::version_at(newest.log(), *time).await?,
    };
    newest.at(version).await
}

fn refusal(done: &Restored) -> Error {
    Error::invalid(format!(
        "version {} cannot be restored: {}; nothing was changed. To restore it without their rows, pass \
         ignore_missing_files=True",
        done.restored_version,
        describe_missing(done.missing.len(), &done.missing)
    ))
}

/// The actions that lead from one version to an older one, and their metrics. Missing files are left out.
async fn difference(newest: &Snapshot, old: &Snapshot, now_ms: i64) -> Result<(Actions, Restored)> {
    let now = LiveFiles::of(newest).await?;
    let mut done = Restored { restored_version: old.version(), ..Restored::default() };
    let restored = restored_files(&now, old, &mut done).await?;
    let absent: HashSet<String> = done.missing.iter().cloned().collect();
    let mut actions = Actions::new();
    for add in restored {
        let size = u64::try_from(add.size).unwrap_or_default();
        let stored = stored_files(&add.path, add.deletion_vector.as_ref())?;
        if stored.iter().any(|path| absent.contains(path)) {
            done.num_of_files_after_restore -= 1;
            done.table_size_after_restore = done.table_size_after_restore.saturating_sub(size);
            continue;
        }
        done.num_restored_files += 1;
        done.restored_files_size = done.restored_files_size.saturating_add(size);
        actions.push(Action::Add(Add { data_change: true, ..add }))?;
    }
    let then = LiveFiles::of(old).await?;
    let mut live = std::pin::pin!(newest.live_files(&remove_columns(Vec::new())).await?);
    while let Some(adds) = live.try_next().await? {
        for row in then.logical().missing(&adds)? {
            let remove = adds.add(row)?.removed(now_ms);
            let size = remove.size.and_then(|size| u64::try_from(size).ok()).unwrap_or_default();
            done.num_removed_files += 1;
            done.removed_files_size = done.removed_files_size.saturating_add(size);
            actions.push(Action::Remove(remove))?;
        }
    }
    Ok((actions, done))
}

/// The files of an older version that are not live now; those that the store does not have go to `done.missing`.
async fn restored_files(now: &LiveFiles, old: &Snapshot, done: &mut Restored) -> Result<Vec<Add>> {
    let (mut coming, mut unseen, mut asked) = (Vec::new(), Vec::new(), Fingerprints::default());
    let mut live = std::pin::pin!(old.live_files(&AddColumns::all()).await?);
    while let Some(adds) = live.try_next().await? {
        done.num_of_files_after_restore += adds.len() as u64;
        let sizes = adds.size().into_iter().flatten().flatten();
        let bytes = sizes.map(|size| u64::try_from(size).unwrap_or_default());
        done.table_size_after_restore = bytes.fold(done.table_size_after_restore, u64::saturating_add);
        if let Some(path) = now.logical().find_row_id_mismatch(&adds)? {
            let message = "the rows of this file have other ids now: since that version row tracking was dropped, or a \
                           version without it was restored, and it was enabled again. The table cannot be restored to \
                           that version; clone it instead";
            return Err(Error::invalid(message).in_file(path));
        }
        let rows = now.logical().missing(&adds)?;
        for add in whole_adds(&adds, rows.into_iter())? {
            let add = add?;
            for path in stored_files(&add.path, add.deletion_vector.as_ref())? {
                if !now.has_stored(&path) && asked.insert(&path.as_str()) {
                    unseen.push(path);
                }
            }
            coming.push(add);
        }
    }
    done.missing = missing(old.storage(), unseen, "RESTORE").await?;
    Ok(coming)
}
