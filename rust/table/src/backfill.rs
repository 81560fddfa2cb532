//! Row tracking for a table that has files: they get ids, and then the table says that every row has one.
//!
//! Three steps, each of them commits of its own: the protocol gets the feature, from when on whoever adds a file gives it
//! ids; files without row ids are re-added with ids, some at a time; and when none is left, the property is set. A
//! process that dies in between leaves a table that is as good as before, and running it again goes on from there. Other
//! writers may go on meanwhile: what they removed or replaced is left out ([`Actions::re_add`]).
//!
//! PROTOCOL.md: "Row Tracking".

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::Array;
use deltic_protocol::action::Action;
use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::commit::{Actions, Pending, ReadSet};
use deltic_protocol::feature;
use deltic_protocol::property::Properties;
use deltic_protocol::replay::paths::PathSet;
use deltic_protocol::stats::text;
use futures::TryStreamExt;
use serde_json::{Map, json};

use crate::after_commit::AfterCommit;
use crate::checkpoint::read::AddColumns;
use crate::committers::for_table;
use crate::draft::{Draft, DraftOptions, MetadataChange};
use crate::error::{Error, Result};
use crate::job::Ids;
use crate::snapshot::Snapshot;
use crate::storage::Storage;
use crate::transaction::{PreparedCommit, RetryPolicy, commit, state_of};

/// Files that one commit gives ids to.
const FILES_PER_COMMIT: usize = 100_000;

/// The operation by which other writers know that a commit says files again.
const OPERATION: &str = "ROW TRACKING BACKFILL";

const ENABLED: &str = "delta.enableRowTracking";

/// Row tracking that was enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enabled {
    /// The version from which on every row has an id, or a later one.
    pub version: u64,
    /// Files that were given ids.
    pub files: u64,
}

/// Enables row tracking; nothing is done where it is.
///
/// # Errors
/// `Invalid` if a file's statistics do not say how many rows it has, or row ids are suspended; those of committing. What
/// was done by then is done: running it again goes on from there.
pub async fn enable_row_tracking(storage: &Storage, (ids, retry): (&dyn Ids, &dyn RetryPolicy)) -> Result<Enabled> {
    enable(storage, (ids, retry), FILES_PER_COMMIT).await.map_err(|e| e.in_table(storage.location()))
}

/// As [`enable_row_tracking`], with another number of files to a commit.
///
/// # Errors
/// As [`enable_row_tracking`].
pub async fn enable(
    storage: &Storage,
    (ids, retry): (&dyn Ids, &dyn RetryPolicy),
    files_per_commit: usize,
) -> Result<Enabled> {
    let committer = for_table(storage);
    let (mut files, mut batch) = (0, 0);
    let mut latest = None;
    loop {
        let options = |operation: &str| DraftOptions { operation: operation.to_owned(), ..DraftOptions::default() };
        let mut draft = Draft::begin(storage, (None, latest.take()), options("SET TBLPROPERTIES"), ids).await?;
        let snapshot = draft.snapshot().await?;
        let properties = Properties::of(snapshot.metadata());
        if properties.row_tracking(snapshot.protocol())?.is_some() {
            return Ok(Enabled { version: snapshot.version(), files });
        }
        if properties.is_true("delta.rowTrackingSuspended")? {
            let message = "row ids are suspended (`delta.rowTrackingSuspended`); unset that first";
            return Err(Error::invalid(message));
        }
        if !feature::supported(snapshot.protocol()).contains("rowTracking") {
            let known = (None, Some(snapshot));
            let mut upgrade = Draft::begin(storage, known, options("UPGRADE PROTOCOL"), ids).await?;
            upgrade.add_feature("rowTracking")?;
            upgrade.commit(committer.as_ref(), retry).await?;
            continue;
        }
        let actions = without_ids(&snapshot, files_per_commit).await?;
        if actions.num_added() > 0 {
            files += give_ids(&snapshot, actions, batch, (ids, retry)).await?;
            batch += 1;
            latest = Some(snapshot);
            continue;
        }
        // On the very version that was looked at: whoever comes in between gives ids to what they add.
        let properties = BTreeMap::from([(ENABLED.to_owned(), "true".to_owned())]);
        draft.every_file_has_ids();
        draft.set_metadata(MetadataChange { properties, ..MetadataChange::default() }, ids)?;
        if let Some(outcome) = draft.commit(committer.as_ref(), retry).await? {
            return Ok(Enabled { version: outcome.committed.version, files });
        }
    }
}

/// Some files without ids, to be re-added.
async fn without_ids(snapshot: &Snapshot, most: usize) -> Result<Actions> {
    let columns = AddColumns::all();
    let mut actions = Actions::re_add();
    let mut live = std::pin::pin!(snapshot.live_files(&columns).await?);
    while let Some(adds) = live.try_next().await? {
        let has_id = |name: &str, row: usize| adds.int64(name).is_some_and(|ids| ids.is_valid(row));
        let rows = (0..adds.len()).filter(|row| !has_id("baseRowId", *row) || !has_id("defaultRowCommitVersion", *row));
        push_all(&adds, rows, &mut actions, most)?;
        if actions.num_added() >= most {
            break;
        }
    }
    Ok(actions)
}

fn push_all(adds: &AddBatch, rows: impl Iterator<Item = usize>, actions: &mut Actions, most: usize) -> Result<()> {
    let typed = adds.structure("stats_parsed");
    let printed = typed.map(|typed| text::complete(adds.stats()?.as_ref(), typed)).transpose()?;
    for row in rows {
        if actions.num_added() >= most {
            break;
        }
        let mut add = adds.sized_add(row)?;
        let completed = printed.as_ref().filter(|stats| stats.is_valid(row)).map(|stats| stats.value(row).to_owned());
        add.stats = add.stats.or(completed);
        add.data_change = false;
        actions.push(Action::Add(add))?;
    }
    Ok(())
}

/// Commits files again, with the ids that every attempt gives them; how many.
async fn give_ids(
    snapshot: &Snapshot,
    actions: Actions,
    batch: u32,
    (ids, retry): (&dyn Ids, &dyn RetryPolicy),
) -> Result<u64> {
    let storage = snapshot.storage();
    let mut parameters = Map::new();
    parameters.insert("batchId".to_owned(), json!(batch.to_string()));
    let transaction = PreparedCommit {
        pending: Pending {
            state: Some(state_of(snapshot).await?),
            // It has looked at the table, but a winner matters only by the files that both mention.
            read: ReadSet::Files(PathSet::default()),
            read_apps: BTreeSet::new(),
            isolation: Properties::of(snapshot.metadata()).isolation_level()?,
            actions,
        },
        operation: OPERATION.to_owned(),
        parameters,
        metrics: Map::new(),
        user_metadata: None,
        txn_id: ids.unique(),
    };
    let committed = commit(transaction, for_table(storage).as_ref(), retry).await?;
    // Best effort, as after any commit.
    let _after = AfterCommit::run(storage, &committed, None, retry.now_ms()).await;
    Ok(committed.num_added as u64)
}
