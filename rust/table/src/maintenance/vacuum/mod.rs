//! VACUUM: files that no version within the retention needs are deleted.
//!
//! What is kept is collected first ([`kept`]), then the table's folder is listed, or the log is read for what it removed
//! ([`candidates`]), and what is older than the retention and not kept goes, a thousand at a time. The history says that it
//! begins and how it ends.
//!
//! Invariant: every version that was current within the retention can be read after it, and so can what writers that
//! began within the retention commit later (`tests/python/test_vacuum.py`). Memory holds 8 bytes for each file that is kept
//! (16 on a disk) and a page of the listing.
//!
//! PROTOCOL.md: "Vacuum Protocol Check", "Add File and Remove File", "Add CDC File".

use deltic_protocol::feature;
use deltic_protocol::property::Properties;
use deltic_protocol::replay::retention::Retention;
use serde_json::{Map, Value, json};

use crate::committers::Committer;
use crate::error::{Error, Result};
use crate::history::Timeline;
use crate::snapshot::Snapshot;
use crate::transaction::RetryPolicy;
use crate::transaction::builder::{Ids, Known, Transaction, TransactionOptions};
use deltic_store::{FileMeta, Storage};

mod candidates;
mod distributed;
mod kept;
mod last;
mod sweep;

use candidates::Listing;
pub use distributed::{DistributedVacuum, SweepTask};
use sweep::{Done, Rule, Sweep};

const HOUR_MS: i64 = 60 * 60 * 1000;

/// Where files to delete are looked for.
#[derive(Debug, Clone, Default)]
pub enum Search {
    /// In the table's folder, which is listed to its end.
    #[default]
    Full,
    /// In the log: files that commits removed. Those of writers that never committed are not found.
    Lite,
    /// In a list that somebody else made: paths below the table or absolute, sizes, and times of modification.
    Inventory(Vec<FileMeta>),
}

/// What a caller says of a vacuum.
#[derive(Debug, Clone, Default)]
pub struct VacuumOptions {
    /// Milliseconds for which files that are no longer part of the table are kept, instead of the table's property.
    pub retention_ms: Option<i64>,
    /// Where files are looked for.
    pub search: Search,
    /// Whether files are only found.
    pub dry_run: bool,
    /// Whether the retention may be shorter than the table's.
    pub force: bool,
}

/// What a vacuum did, or would do.
#[derive(Debug, Default)]
pub struct Vacuumed {
    /// The retention in milliseconds.
    pub retention_ms: i64,
    /// Files that were looked at.
    pub files_seen: u64,
    /// Files that were deleted or would be.
    pub files_deleted: u64,
    /// Bytes of them, as far as their sizes are known.
    pub bytes_deleted: u64,
    /// The files, of a vacuum that only finds them.
    pub found: Vec<FileMeta>,
}

/// Deletes files that no version within the retention needs.
///
/// # Errors
/// `Invalid` for a retention that is shorter than the table's without `force`, and for a search of a log that no longer
/// says what was removed; `Unsupported` if the table has a feature that deltic does not follow; those of reading the log
/// and of the store. Files that could not be deleted are counted in the error, and the table is whole: it can be repeated.
pub async fn vacuum(
    storage: &Storage,
    committer: &dyn Committer,
    options: VacuumOptions,
    (ids, retry): (&dyn Ids, &dyn RetryPolicy),
) -> Result<Vacuumed> {
    let place = |e: Error| e.in_table(storage.location());
    let begun = Begun::new(storage, committer, &options, (ids, retry)).await?;
    let rule = Rule::of(&begun, ids.unique()).await.map_err(place)?;
    let mut sweep = Sweep::new((storage.clone(), &rule), options.dry_run);
    let ended = async {
        let listing = begun.listing(options.search).await?;
        sweep.run(&rule, listing).await
    };
    let ended = ended.await.map_err(place);
    begun.end(sweep.done, ended, committer, (ids, retry)).await
}

/// Of these files below the table, how many a vacuum with the table's retention takes now, and their bytes.
///
/// # Errors
/// As those of a dry run.
pub(crate) async fn dispensable(snapshot: &Snapshot, files: Vec<FileMeta>, now_ms: i64) -> Result<(u64, u64)> {
    let lengths = Lengths::new(snapshot, &VacuumOptions::default())?;
    let begun = Begun::at(snapshot.clone(), lengths, (now_ms, true), false).await?;
    let rule = Rule::of(&begun, String::new()).await?;
    let mut sweep = Sweep::new((snapshot.storage().clone(), &rule), true);
    sweep.run(&rule, candidates::told(snapshot.storage(), files)).await?;
    Ok((sweep.done.vacuumed.files_deleted, sweep.done.vacuumed.bytes_deleted))
}

fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        _ => Map::new(),
    }
}

/// How long files are kept, in milliseconds.
struct Lengths {
    chosen_ms: i64,
    default_ms: i64,
}

impl Lengths {
    fn new(snapshot: &Snapshot, options: &VacuumOptions) -> Result<Self> {
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
struct Begun {
    snapshot: Snapshot,
    retention_ms: i64,
    retention: Retention,
    dry_run: bool,
    /// Whether it looks at all that commits removed.
    is_listing: bool,
}

impl Begun {
    async fn new(
        storage: &Storage,
        committer: &dyn Committer,
        options: &VacuumOptions,
        (ids, retry): (&dyn Ids, &dyn RetryPolicy),
    ) -> Result<Self> {
        let place = |e: Error| e.in_table(storage.location());
        let now_ms = retry.now_ms();
        let mut snapshot = Snapshot::open(storage, None).await?;
        let lengths = Lengths::new(&snapshot, options).map_err(place)?;
        if !options.dry_run {
            let specified = options.retention_ms.map(|ms| json!(ms)).unwrap_or_default();
            let begins = json!({"retentionCheckEnabled": !options.force, "specifiedRetentionMillis": specified,
                "defaultRetentionMillis": lengths.default_ms});
            tell(storage, ("VACUUM START", begins, json!({})), committer, (ids, retry)).await?;
            // Whoever committed before sees that it begins; what they added is kept.
            snapshot = snapshot.refresh().await?;
        }
        let is_listing = !matches!(options.search, Search::Inventory(_));
        Self::at(snapshot, lengths, (now_ms, options.dry_run), is_listing).await.map_err(place)
    }

    async fn at(
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
        Ok(Self { snapshot, retention_ms: lengths.chosen_ms, retention, dry_run, is_listing })
    }

    async fn listing(&self, search: Search) -> Result<Listing> {
        let storage = self.snapshot.storage();
        match search {
            Search::Full => Ok(candidates::listed(storage)),
            Search::Lite => candidates::removed(&self.snapshot, self.retention.current).await,
            Search::Inventory(files) => Ok(candidates::told(storage, files)),
        }
    }

    /// Tells the history how it ended.
    async fn end(
        &self,
        mut done: Done,
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

async fn tell(
    storage: &Storage,
    (operation, parameters, metrics): (&str, Value, Value),
    committer: &dyn Committer,
    (ids, retry): (&dyn Ids, &dyn RetryPolicy),
) -> Result<()> {
    let options = TransactionOptions {
        operation: operation.to_owned(),
        parameters: members(parameters),
        metrics: members(metrics),
        commit_empty: true,
        ..TransactionOptions::default()
    };
    let transaction = Transaction::begin(storage, Known::default(), options, ids).await?;
    transaction.commit(committer, retry).await.map(drop)
}
