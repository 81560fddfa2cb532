//! VACUUM: deletes files that no version within the retention needs.
//!
//! A vacuum first collects the files to retain ([`retained_files`]). Then it lists the table's directory, or reads from the
//! log which files commits removed ([`candidates`]), or takes those of an [`inventory`]. It deletes files that are older than
//! the retention and not retained, with up to four deletions of a thousand files at once; when it fails or is stopped, it
//! waits for those in progress. It commits VACUUM START before it deletes and VACUUM END afterwards, unless the caller wants
//! neither.
//!
//! Invariant: every version that was current within the retention can be read afterwards, and so can the commits of writers
//! that began within the retention (`tests/python/test_vacuum.py`). Memory holds 8 bytes for each retained file (16 on a
//! disk) and a few pages of the listing.
//!
//! PROTOCOL.md: "Vacuum Protocol Check", "Add File and Remove File", "Add CDC File".

use crate::commit::{CommitContext, stop_if_cancelled, unless_cancelled};
use crate::error::{Error, Result};
use crate::log::LogSource;
use crate::snapshot::Snapshot;
use crate::transaction::builder::Ids;
use deltic_store::FileMeta;

mod candidates;
mod distributed;
mod inventory;
mod last_vacuum_info;
mod nested_tables;
mod options;
mod retained_files;
mod started;
mod sweep;

use candidates::partitions;
pub use distributed::{DistributedVacuum, SweepTask};
pub use inventory::Inventory;
pub use options::{Search, VacuumOptions, Vacuumed};
use started::{RetentionDurations, StartedVacuum};
use sweep::{Rule, Sweep};

/// Deletes files that no version within the retention needs.
///
/// # Errors
/// `Invalid` for a retention that is shorter than the table's without `force`, and for LITE if the log no longer
/// has all commits that removed files; `Unsupported` if the table has a feature that deltic does not know; those of reading
/// the log and of the store. The error counts the files that could not be deleted. The table is intact then, and the vacuum
/// can be repeated.
pub async fn vacuum(
    log: &LogSource,
    options: VacuumOptions,
    ids: &dyn Ids,
    context: CommitContext<'_>,
) -> Result<Vacuumed> {
    let in_table = |e: Error| e.in_table(log.location());
    let started = StartedVacuum::new(log, &options, ids, context).await?;
    let mut sweep = Sweep::with(log.storage().clone(), partitions(&started.snapshot), options.dry_run);
    if matches!(options.search, Search::Lite) {
        sweep.skip_nested_table_check();
    }
    let stop = sweep.stop();
    let interrupted = || "interrupted: the files that were deleted are gone, the others stay; run it again".to_owned();
    let ended = async {
        let read = async {
            let rule = Rule::of(&started.snapshot, started.retention, ids.unique()).await?;
            Ok((rule, started.listing(options.search).await?))
        };
        let (rule, listing) = unless_cancelled(read, context.retry, interrupted).await?;
        stop_if_cancelled(sweep.run(&rule, listing), &stop, context.retry, interrupted).await
    };
    let ended: Result<()> = ended.await.map_err(in_table);
    started.end(sweep.into_done(), ended, ids, context).await
}

/// How many of these files a vacuum with the table's retention would delete now, and their bytes.
///
/// # Errors
/// As those of a dry run.
pub(crate) async fn dispensable(snapshot: &Snapshot, files: Vec<FileMeta>, now_ms: i64) -> Result<(u64, u64)> {
    let durations = RetentionDurations::new(snapshot, &VacuumOptions::default())?;
    let started = StartedVacuum::at(snapshot.clone(), durations, now_ms, true, false).await?;
    let rule = Rule::of(&started.snapshot, started.retention, String::new()).await?;
    let mut sweep = Sweep::new(snapshot.storage().clone(), &rule, true);
    sweep.skip_nested_table_check();
    let listing = inventory::distinct(files, snapshot.storage())?;
    sweep.run(&rule, listing).await?;
    let vacuumed = sweep.into_done().vacuumed;
    Ok((vacuumed.files_deleted, vacuumed.bytes_deleted))
}
