//! VACUUM: files that no version within the retention needs are deleted.
//!
//! What is kept is collected first ([`kept`]), then the table's folder is listed, or the log is read for what it removed
//! ([`candidates`]), and what is older than the retention and not kept goes, a thousand at a time. The history says that it
//! begins and how it ends.
//!
//! Invariant: every version that was current within the retention can be read after it, and so can what writers that
//! began within the retention commit later (`tests/python/test_vacuum.py`). Memory holds 32 bytes for each file that is kept
//! and a page of the listing.
//!
//! PROTOCOL.md: "Vacuum Protocol Check", "Add File and Remove File", "Add CDC File".

use deltic_protocol::feature;
use deltic_protocol::property::Properties;
use deltic_protocol::replay::retention::Retention;
use futures::{StreamExt, TryStreamExt};
use serde_json::{Map, Value, json};

use crate::committers::Committer;
use crate::error::{Error, Result};
use crate::history::Timeline;
use crate::progress::{Progress, Unit};
use crate::snapshot::Snapshot;
use crate::transaction::RetryPolicy;
use crate::transaction::builder::{Ids, Known, Transaction, TransactionOptions};
use deltic_store::{FileMeta, Storage};

mod candidates;
mod kept;
mod last;

use candidates::{Folders, Listing};
use kept::Kept;

/// Files deleted at a time.
const TOGETHER: usize = 1000;
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
    let now_ms = retry.now_ms();
    let snapshot = Snapshot::open(storage, None).await?;
    let lengths = Lengths::new(&snapshot, &options).map_err(place)?;
    if options.dry_run {
        let plan = Plan::new(&snapshot, &lengths, now_ms).await.map_err(place)?;
        return plan.find(options.search).await.map_err(place);
    }
    let told = |operation: &str, parameters: Value, metrics: Value| TransactionOptions {
        operation: operation.to_owned(),
        parameters: members(parameters),
        metrics: members(metrics),
        commit_empty: true,
        ..TransactionOptions::default()
    };
    let specified = options.retention_ms.map(|ms| json!(ms)).unwrap_or_default();
    let begins = json!({"retentionCheckEnabled": !options.force, "specifiedRetentionMillis": specified,
        "defaultRetentionMillis": lengths.default_ms});
    let tell = async |options: TransactionOptions| {
        let transaction = Transaction::begin(storage, Known::default(), options, ids).await?;
        transaction.commit(committer, retry).await.map(drop)
    };
    tell(told("VACUUM START", begins, json!({}))).await?;
    // Whoever committed before sees that it begins; what they added is kept.
    let snapshot = snapshot.refresh().await?;
    let plan = Plan::new(&snapshot, &lengths, now_ms).await.map_err(place)?;
    let is_listing = !matches!(options.search, Search::Inventory(_));
    let (mut done, ended) = plan.delete(options.search).await;
    let status = if ended.is_ok() { "COMPLETED" } else { "FAILED" };
    let counted = json!({"numDeletedFiles": done.vacuumed.files_deleted.to_string(),
        "numVacuumedDirectories": done.folders.to_string()});
    let told = tell(told("VACUUM END", json!({"status": status}), counted)).await;
    ended.map_err(place)?;
    told?;
    if is_listing && let Some(version) = plan.retention.current {
        last::write(storage, version).await?;
    }
    done.vacuumed.retention_ms = plan.retention_ms;
    Ok(done.vacuumed)
}

/// Of these files below the table, how many a vacuum with the table's retention takes now, and their bytes.
///
/// # Errors
/// As those of a dry run.
pub(crate) async fn dispensable(snapshot: &Snapshot, files: Vec<FileMeta>, now_ms: i64) -> Result<(u64, u64)> {
    let lengths = Lengths::new(snapshot, &VacuumOptions::default())?;
    let found = Plan::new(snapshot, &lengths, now_ms).await?.find(Search::Inventory(files)).await?;
    Ok((found.files_deleted, found.bytes_deleted))
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

/// What a vacuum goes by.
struct Plan<'a> {
    snapshot: &'a Snapshot,
    retention_ms: i64,
    retention: Retention,
    kept: Kept,
}

/// What was done until an end or a failure.
#[derive(Default)]
struct Done {
    vacuumed: Vacuumed,
    folders: u64,
}

impl<'a> Plan<'a> {
    async fn new(snapshot: &'a Snapshot, lengths: &Lengths, now_ms: i64) -> Result<Self> {
        let cutoff_ms = now_ms.saturating_sub(lengths.chosen_ms);
        let current = match Timeline::load(snapshot.storage()).await?.until(cutoff_ms).await {
            Ok(version) => Some(version),
            Err(e) if e.is_version_not_found() => None,
            Err(e) => return Err(e),
        };
        let retention = Retention { cutoff_ms, current, newest: snapshot.version() };
        let kept = Kept::of(snapshot, retention).await?;
        Ok(Self { snapshot, retention_ms: lengths.chosen_ms, retention, kept })
    }

    async fn listing(&self, search: Search) -> Result<Listing> {
        let storage = self.snapshot.storage();
        match search {
            Search::Full => Ok(candidates::listed(storage)),
            Search::Lite => candidates::removed(self.snapshot, self.retention.current).await,
            Search::Inventory(files) => Ok(candidates::told(storage, files)),
        }
    }

    /// Whether a file that was found may go.
    fn is_dispensable(&self, file: &FileMeta, folders: &Folders) -> bool {
        let is_old = self.retention.is_old(file.modified_ms);
        // A name that reads as a place elsewhere, such as one in a folder `file:`, cannot be told to the store.
        let is_itself = self.snapshot.storage().below_root(&file.path).is_some_and(|place| place == file.path);
        is_old && is_itself && folders.may_hold_data(&file.path) && !self.kept.contains(&file.path)
    }

    /// Finds what would be deleted.
    async fn find(&self, search: Search) -> Result<Vacuumed> {
        let folders = Folders::of(self.snapshot);
        let mut found = Vacuumed { retention_ms: self.retention_ms, ..Vacuumed::default() };
        let progress = Progress::begin("VACUUM", Unit::Files, None);
        let mut listing = self.listing(search).await?;
        while let Some(file) = listing.try_next().await? {
            found.files_seen += 1;
            progress.advance(1);
            if self.is_dispensable(&file, &folders) {
                found.files_deleted += 1;
                found.bytes_deleted = found.bytes_deleted.saturating_add(file.size);
                found.found.push(file);
            }
        }
        Ok(found)
    }

    /// Deletes what may go, and goes on where a file cannot be deleted.
    async fn delete(&self, search: Search) -> (Done, Result<()>) {
        let mut done = Done::default();
        let mut failed = Failures::default();
        let ended = self.delete_pages(search, &mut done, &mut failed).await;
        (done, ended.and_then(|()| failed.into_result()))
    }

    async fn delete_pages(&self, search: Search, done: &mut Done, failed: &mut Failures) -> Result<()> {
        let storage = self.snapshot.storage();
        let progress = Progress::begin("VACUUM", Unit::Files, None);
        let mut folders = Folders::of(self.snapshot);
        let mut pages = self.listing(search).await?.chunks(TOGETHER);
        while let Some(page) = pages.next().await {
            let mut going = Vec::new();
            for file in page {
                let file = file?;
                done.vacuumed.files_seen += 1;
                progress.advance(1);
                if let Some(folder) = folders.enter(&file.path) {
                    done.folders += 1;
                    if folder.is_empty() || storage.below_root(&folder).is_some_and(|place| place == folder) {
                        storage.delete_unfinished(&folder, self.retention.cutoff_ms).await?;
                    }
                }
                if self.is_dispensable(&file, &folders) {
                    going.push(file);
                }
            }
            let paths: Vec<String> = going.iter().map(|file| file.path.clone()).collect();
            for (file, outcome) in going.into_iter().zip(storage.delete_many(&paths).await) {
                match outcome {
                    Ok(()) => {
                        done.vacuumed.files_deleted += 1;
                        done.vacuumed.bytes_deleted = done.vacuumed.bytes_deleted.saturating_add(file.size);
                    }
                    Err(e) => failed.push(e),
                }
            }
        }
        Ok(())
    }
}

/// Files that could not be deleted.
#[derive(Default)]
struct Failures {
    files: u64,
    first: Option<Error>,
}

impl Failures {
    fn push(&mut self, error: Error) {
        self.files += 1;
        self.first.get_or_insert(error);
    }

    fn into_result(self) -> Result<()> {
        let Some(first) = self.first else { return Ok(()) };
        let message = format!("files that could not be deleted: {}; the others are gone. Run it again", self.files);
        Err(Error::new(first.kind().clone(), message).caused_by(first))
    }
}
