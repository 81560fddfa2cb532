//! A vacuum whose beginning the history tells: how long files are kept, where they are looked for, how it ends.

use deltic_protocol::feature;
use deltic_protocol::property::Properties;
use deltic_protocol::replay::retention::Retention;
use serde_json::{Map, Value, json};

use super::candidates::{self, Listing};
use super::last;
use super::options::{Search, VacuumOptions, Vacuumed};
use super::sweep::SweepResult;
use crate::committers::Committer;
use crate::error::{Error, Result};
use crate::history::Timeline;
use crate::snapshot::Snapshot;
use crate::transaction::RetryPolicy;
use crate::transaction::builder::{HandleCache, Ids, Transaction, TransactionEnd, TransactionOptions};
use deltic_store::Storage;

const HOUR_MS: i64 = 60 * 60 * 1000;

/// How long files are kept, in milliseconds.
pub(super) struct Lengths {
    chosen_ms: i64,
    default_ms: i64,
}

impl Lengths {
    pub(super) fn new(snapshot: &Snapshot, options: &VacuumOptions) -> Result<Self> {
        feature::check_writable(snapshot.protocol(), snapshot.metadata(), &snapshot.shape().schema)?;
        let default_ms = Properties::of(snapshot.metadata()).deleted_file_retention()?;
        let chosen_ms = options.retention_ms.unwrap_or(default_ms);
        if chosen_ms < 0 {
            return Err(Error::invalid("the retention is negative"));
        }
        if chosen_ms < default_ms && !options.force {
            let hours = |ms: i64| ms / HOUR_MS;
            return Err(Error::invalid(format!(
                "a retention of {} h is shorter than the {} h of the table (`delta.deletedFileRetentionDuration`): \
                 readers of older versions and writers that have not committed yet may need the files. If there are none, \
                 write force=True",
                hours(chosen_ms),
                hours(default_ms)
            )));
        }
        Ok(Self { chosen_ms, default_ms })
    }
}

/// A vacuum whose beginning the history tells.
pub(super) struct StartedVacuum {
    pub(super) snapshot: Snapshot,
    retention_ms: i64,
    pub(super) retention: Retention,
    pub(super) dry_run: bool,
    /// The version of VACUUM START. `None` for a dry run.
    pub(super) start: Option<u64>,
    /// Whether it looks at all that commits removed.
    is_listing: bool,
}

impl StartedVacuum {
    pub(super) async fn new(
        storage: &Storage,
        committer: &dyn Committer,
        options: &VacuumOptions,
        (ids, retry): (&dyn Ids, &dyn RetryPolicy),
    ) -> Result<Self> {
        let place = |e: Error| e.in_table(storage.location());
        let now_ms = retry.now_ms();
        let mut snapshot = Snapshot::open(storage, None).await?;
        let lengths = Lengths::new(&snapshot, options).map_err(place)?;
        let mut start = None;
        if !options.dry_run {
            let specified = options.retention_ms.map(|ms| json!(ms)).unwrap_or_default();
            let begins = json!({"retentionCheckEnabled": !options.force, "specifiedRetentionMillis": specified,
                "defaultRetentionMillis": lengths.default_ms});
            start = tell(storage, ("VACUUM START", begins, json!({})), committer, (ids, retry)).await?;
            // The commits before it are read, and the files that they added are kept.
            snapshot = snapshot.refresh().await?;
        }
        let is_listing = !matches!(options.search, Search::Inventory(_));
        let begun = Self::at(snapshot, lengths, (now_ms, options.dry_run), is_listing).await.map_err(place)?;
        Ok(Self { start, ..begun })
    }

    pub(super) async fn at(
        snapshot: Snapshot,
        lengths: Lengths,
        (now_ms, dry_run): (i64, bool),
        is_listing: bool,
    ) -> Result<Self> {
        let cutoff_ms = now_ms.saturating_sub(lengths.chosen_ms);
        let current = match Timeline::load(snapshot.storage()).await?.until(cutoff_ms).await {
            Ok(version) => Some(version),
            Err(e) if e.is_version_not_found() => None,
            Err(e) => return Err(e),
        };
        let retention = Retention { cutoff_ms, current, newest: snapshot.version() };
        Ok(Self { snapshot, retention_ms: lengths.chosen_ms, retention, dry_run, start: None, is_listing })
    }

    pub(super) async fn listing(&self, search: Search) -> Result<Listing> {
        let storage = self.snapshot.storage();
        match search {
            Search::Full => Ok(candidates::listed(storage)),
            Search::Lite => candidates::removed(&self.snapshot, self.retention.current).await,
            Search::Inventory(files) => Ok(candidates::from_inventory(storage, files)),
        }
    }

    /// Tells the history how it ended.
    pub(super) async fn end(
        &self,
        mut done: SweepResult,
        ended: Result<()>,
        committer: &dyn Committer,
        with: (&dyn Ids, &dyn RetryPolicy),
    ) -> Result<Vacuumed> {
        let storage = self.snapshot.storage();
        let ended = ended.and_then(|()| done.failed.take().into_result().map_err(|e| e.in_table(storage.location())));
        done.vacuumed.retention_ms = self.retention_ms;
        if self.dry_run {
            return ended.map(|()| done.vacuumed);
        }
        let status = if ended.is_ok() { "COMPLETED" } else { "FAILED" };
        let counted = json!({"numDeletedFiles": done.vacuumed.files_deleted.to_string(),
            "numVacuumedDirectories": done.folders.to_string()});
        let told = tell(storage, ("VACUUM END", json!({"status": status}), counted), committer, with).await;
        ended?;
        told?;
        if self.is_listing
            && let Some(version) = self.retention.current
        {
            last::write(storage, version).await?;
        }
        Ok(done.vacuumed)
    }
}

/// Commits an entry of the history; its version.
async fn tell(
    storage: &Storage,
    (operation, parameters, metrics): (&str, Value, Value),
    committer: &dyn Committer,
    (ids, retry): (&dyn Ids, &dyn RetryPolicy),
) -> Result<Option<u64>> {
    let options = TransactionOptions {
        operation: operation.to_owned(),
        parameters: members(parameters),
        metrics: members(metrics),
        commit_empty: true,
        ..TransactionOptions::default()
    };
    let transaction = Transaction::begin(storage, HandleCache::default(), options, ids).await?;
    match transaction.commit(committer, retry).await? {
        TransactionEnd::Committed(outcome) => Ok(Some(outcome.committed.version)),
        TransactionEnd::Replayed(_) | TransactionEnd::Nothing => Ok(None),
    }
}

fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        _ => Map::new(),
    }
}
