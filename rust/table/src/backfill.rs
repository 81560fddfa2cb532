//! Enables row tracking on a table that has files already: assigns row ids to all of them (backfill).
//!
//! Three steps, each with commits of its own: the protocol gets the feature, so that every writer assigns row ids to new
//! files; files without row ids are added again with ids, some at a time; and when none is left, the property is set. If the
//! process dies in between, the table is as usable as before, and running it again continues. Other
//! writers may commit meanwhile: files that they removed or replaced are left out ([`Actions::re_add`]).
//!
//! PROTOCOL.md: "Row Tracking".

use std::collections::BTreeMap;

use arrow_array::Array;
use deltic_protocol::action::Action;
use deltic_protocol::alter::Alteration;
use deltic_protocol::commit::Actions;
use deltic_protocol::feature;
use deltic_protocol::property::Properties;
use futures::TryStreamExt;
use serde_json::{Map, json};

use crate::checkpoint::read::AddColumns;
use crate::commit::{CommitSeries, RetryPolicy};
use crate::committers::Committer;
use crate::error::{Error, Result};
use crate::log::LogSource;
use crate::snapshot::Snapshot;
use crate::transaction::builder::{HandleCache, Ids, Transaction, TransactionEnd, TransactionOptions, add_again};

/// Files that one commit gives ids to.
const FILES_PER_COMMIT: usize = 100_000;

/// The operation, by which other writers recognise a commit that only adds files again.
const OPERATION: &str = "ROW TRACKING BACKFILL";

const ENABLED: &str = "delta.enableRowTracking";

/// The result of enabling row tracking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enabled {
    /// The version from which on every row has an id, or a later one.
    pub version: u64,
    /// Files that were given ids.
    pub files: u64,
}

/// Enables row tracking. If it is enabled, nothing is done.
///
/// # Errors
/// `Invalid` if a file's statistics do not say how many rows it has, or row ids are suspended; those of committing. Steps that
/// were done stay: running it again continues from there.
pub async fn enable_row_tracking(
    log: &LogSource,
    committer: &dyn Committer,
    ids: &dyn Ids,
    retry: &dyn RetryPolicy,
) -> Result<Enabled> {
    let enabled = enable(log, committer, ids, retry, FILES_PER_COMMIT).await;
    enabled.map_err(|e| e.in_table(log.location()))
}

/// As [`enable_row_tracking`], with another number of files to a commit.
///
/// # Errors
/// As [`enable_row_tracking`].
pub async fn enable(
    log: &LogSource,
    committer: &dyn Committer,
    ids: &dyn Ids,
    retry: &dyn RetryPolicy,
    files_per_commit: usize,
) -> Result<Enabled> {
    let commits = CommitSeries::after(&[], retry);
    let enabled = enable_in_steps(log, committer, ids, &commits, files_per_commit).await;
    enabled.map_err(|e| commits.name_committed_versions(e))
}

async fn enable_in_steps(
    log: &LogSource,
    committer: &dyn Committer,
    ids: &dyn Ids,
    retry: &dyn RetryPolicy,
    files_per_commit: usize,
) -> Result<Enabled> {
    let (mut files, mut batch) = (0, 0_u32);
    let mut cache = HandleCache::default();
    loop {
        let mut transaction = Transaction::begin(log, cache, TransactionOptions::default(), ids).await?;
        let snapshot = transaction.snapshot().await?;
        cache = HandleCache { latest: Some(snapshot.clone()), ..HandleCache::default() };
        let properties = Properties::of(snapshot.metadata());
        if properties.row_tracking(snapshot.protocol())?.is_some() {
            return Ok(Enabled { version: snapshot.version(), files });
        }
        if properties.is_true("delta.rowTrackingSuspended")? {
            let message = "row ids are suspended (`delta.rowTrackingSuspended`); unset that first";
            return Err(Error::invalid(message));
        }
        if !feature::supported(snapshot.protocol()).contains("rowTracking") {
            transaction.add_feature("rowTracking")?;
            transaction.commit(committer, retry).await?;
            continue;
        }
        let actions = without_ids(&snapshot, files_per_commit).await?;
        if actions.num_added() > 0 {
            let parameters = Map::from_iter([("batchId".to_owned(), json!(batch.to_string()))]);
            transaction.set_operation(OPERATION, parameters);
            transaction.re_add(actions);
            if let TransactionEnd::Committed(outcome) = transaction.commit(committer, retry).await? {
                files += outcome.committed.num_added as u64;
            }
            batch += 1;
            continue;
        }
        // On the version that was read: a later commit gives ids to the files that it adds.
        let properties = BTreeMap::from([(ENABLED.to_owned(), "true".to_owned())]);
        transaction.every_file_has_ids();
        transaction.alter(&Alteration::SetProperties(properties), ids)?;
        if let TransactionEnd::Committed(outcome) = transaction.commit(committer, retry).await? {
            return Ok(Enabled { version: outcome.committed.version, files });
        }
    }
}

/// Some files without ids, as actions that add them again.
async fn without_ids(snapshot: &Snapshot, max_files: usize) -> Result<Actions> {
    let columns = AddColumns::all();
    let mut actions = Actions::re_add();
    let mut live = std::pin::pin!(snapshot.live_files(&columns).await?);
    while let Some(adds) = live.try_next().await? {
        let has_id = |name: &str, row: usize| adds.int64(name).is_some_and(|ids| ids.is_valid(row));
        let rows = (0..adds.len()).filter(|row| !has_id("baseRowId", *row) || !has_id("defaultRowCommitVersion", *row));
        let left = max_files.saturating_sub(actions.num_added());
        for add in add_again(&adds, rows.take(left))? {
            actions.push(Action::Add(add))?;
        }
        if actions.num_added() >= max_files {
            break;
        }
    }
    Ok(actions)
}
