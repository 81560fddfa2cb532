//! A vacuum that has committed VACUUM START, if it is in the history: its retention, the files that it examines, and its VACUUM
//! END commit.

use std::error::Error as StdError;
use std::io::{self, ErrorKind};

use deltic_protocol::feature;
use deltic_protocol::property::Properties;
use deltic_protocol::replay::retention::Retention;
use serde_json::{Map, Value, json};

use super::candidates::{self, Listing};
use super::last_vacuum_info;
use super::options::{Search, VacuumOptions, Vacuumed};
use super::sweep::SweepResult;
use crate::commit::CommitContext;
use crate::error::{Error, Result};
use crate::events::TARGET;
use crate::history::Timeline;
use crate::log::LogSource;
use crate::snapshot::Snapshot;
use crate::transaction::builder::{HandleCache, Ids, Transaction, TransactionEnd, TransactionOptions};

const HOUR_MS: i64 = 60 * 60 * 1000;

/// How long removed files are retained, in milliseconds.
pub(super) struct RetentionDurations {
    /// The caller's duration, or else the table's.
    chosen_ms: i64,
    /// `delta.deletedFileRetentionDuration`.
    default_ms: i64,
}

impl RetentionDurations {
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
                 readers of older versions and writers that have not committed yet may need the files. If there are \
                 none, pass force=True",
                hours(chosen_ms),
                hours(default_ms)
            )));
        }
        Ok(Self { chosen_ms, default_ms })
    }
}

/// A vacuum that has committed VACUUM START, unless it is a dry run or not in the history.
pub(super) struct StartedVacuum {
    pub(super) snapshot: Snapshot,
    retention_ms: i64,
    pub(super) retention: Retention,
    pub(super) dry_run: bool,
    /// Whether it is in the history.
    is_logged: bool,
    /// Whether its end is recorded in `_last_vacuum_info`. An inventory may lack files that commits removed.
    records_last_vacuum: bool,
}

impl StartedVacuum {
    pub(super) async fn new(
        log: &LogSource,
        options: &VacuumOptions,
        ids: &dyn Ids,
        context: CommitContext<'_>,
    ) -> Result<Self> {
        let in_table = |e: Error| e.in_table(log.location());
        let now_ms = context.retry.now_ms();
        let mut snapshot = Snapshot::open(log, None).await?;
        let durations = RetentionDurations::new(&snapshot, options).map_err(in_table)?;
        let is_logged = options.log && !options.dry_run;
        if is_logged {
            let specified = options.retention_ms.map(|ms| json!(ms)).unwrap_or_default();
            let parameters = json!({"retentionCheckEnabled": !options.force, "specifiedRetentionMillis": specified,
                "defaultRetentionMillis": durations.default_ms});
            let committed = commit_vacuum_info(log, "VACUUM START", parameters, json!({}), ids, context).await;
            committed.map_err(for_full_disk)?;
            // Files that the commits before VACUUM START added are retained.
            snapshot = snapshot.refresh().await?;
        }
        let records_last_vacuum = !matches!(options.search, Search::Inventory(_));
        let started =
            Self::at(snapshot, durations, now_ms, options.dry_run, records_last_vacuum).await.map_err(in_table)?;
        Ok(Self { is_logged, ..started })
    }

    pub(super) async fn at(
        snapshot: Snapshot,
        durations: RetentionDurations,
        now_ms: i64,
        dry_run: bool,
        records_last_vacuum: bool,
    ) -> Result<Self> {
        let cutoff_ms = now_ms.saturating_sub(durations.chosen_ms);
        let current = match Timeline::load(snapshot.log()).await?.until(cutoff_ms).await {
            Ok(version) => Some(version),
            Err(e) if e.is_version_not_found() => None,
            Err(e) => return Err(e),
        };
        let retention = Retention { cutoff_ms, current, newest: snapshot.version() };
        Ok(Self {
            snapshot,
            retention_ms: durations.chosen_ms,
            retention,
            dry_run,
            is_logged: false,
            records_last_vacuum,
        })
    }

    /// The files that are examined.
    pub(super) async fn listing(&self, search: Search) -> Result<Listing> {
        let storage = self.snapshot.storage();
        match search {
            Search::Full => Ok(candidates::listed(storage)),
            Search::Lite => candidates::removed(&self.snapshot, self.retention.current).await,
            Search::Inventory(inventory) => inventory.listing(storage, self.retention.cutoff_ms).await,
        }
    }

    /// Commits VACUUM END with the outcome.
    pub(super) async fn end(
        &self,
        mut done: SweepResult,
        ended: Result<()>,
        ids: &dyn Ids,
        context: CommitContext<'_>,
    ) -> Result<Vacuumed> {
        let log = self.snapshot.log();
        let ended = ended.and_then(|()| done.failed.take().into_result().map_err(|e| e.in_table(log.location())));
        done.vacuumed.retention_ms = self.retention_ms;
        if self.dry_run {
            return ended.map(|()| done.vacuumed);
        }
        if self.is_logged {
            self.commit_end(&mut done, ended, ids, context).await?;
        } else {
            ended?;
        }
        if self.records_last_vacuum
            && let Some(version) = self.retention.current
        {
            let written = last_vacuum_info::write(log.storage(), version).await;
            // Without it, the next vacuum of the mode "lite" reads more of the log.
            if let Err(error) = written {
                if self.is_logged {
                    return Err(error);
                }
                log::warn!(target: TARGET, "{}: the vacuum is not recorded: {error}", log.location());
            }
        }
        Ok(done.vacuumed)
    }

    async fn commit_end(
        &self,
        done: &mut SweepResult,
        ended: Result<()>,
        ids: &dyn Ids,
        context: CommitContext<'_>,
    ) -> Result<()> {
        let log = self.snapshot.log();
        let status = if ended.is_ok() { "COMPLETED" } else { "FAILED" };
        let counts = json!({"numDeletedFiles": done.vacuumed.files_deleted.to_string(),
            "numVacuumedDirectories": done.folders.to_string()});
        let recorded = commit_vacuum_info(log, "VACUUM END", json!({"status": status}), counts, ids, context).await;
        ended?;
        done.vacuumed.version = recorded.map_err(|e| {
            Error::new(
                e.kind().clone(),
                format!("the files are deleted, and VACUUM END is not recorded: {}", e.message()),
            )
        })?;
        Ok(())
    }
}

/// Adds to an error of VACUUM START on a full disk how to run the vacuum.
fn for_full_disk(error: Error) -> Error {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(&error);
    while let Some(this) = cause {
        let kind = this.downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(kind, Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded)) {
            let message = "VACUUM START could not be committed, and no file was deleted; with log=False a vacuum needs no \
                           space, and is not in the history";
            return Error::new(error.kind().clone(), message).caused_by(error);
        }
        cause = this.source();
    }
    error
}

/// Commits nothing but a `commitInfo` with this operation. Returns its version.
async fn commit_vacuum_info(
    log: &LogSource,
    operation: &str,
    parameters: Value,
    metrics: Value,
    ids: &dyn Ids,
    context: CommitContext<'_>,
) -> Result<Option<u64>> {
    let options = TransactionOptions {
        operation: operation.to_owned(),
        parameters: members(parameters),
        metrics: members(metrics),
        commit_empty: true,
        ..TransactionOptions::default()
    };
    let transaction = Transaction::begin(log, HandleCache::default(), options, ids).await?;
    match transaction.commit(context.committer, context.retry).await? {
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
