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

use crate::committers::Committer;
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::transaction::RetryPolicy;
use crate::transaction::builder::Ids;
use deltic_store::{FileMeta, Storage};

mod begun;
mod candidates;
mod distributed;
mod kept;
mod last;
mod options;
mod sweep;

use begun::{Lengths, StartedVacuum};
use candidates::partitions;
pub use distributed::{DistributedVacuum, SweepTask};
pub use options::{Search, VacuumOptions, Vacuumed};
use sweep::{Rule, Sweep};

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
    let begun = StartedVacuum::new(storage, committer, &options, (ids, retry)).await?;
    let mut sweep = Sweep::with((storage.clone(), partitions(&begun.snapshot)), options.dry_run);
    let ended = async {
        let rule = Rule::of(&begun.snapshot, begun.retention, ids.unique()).await?;
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
    let begun = StartedVacuum::at(snapshot.clone(), lengths, (now_ms, true), false).await?;
    let rule = Rule::of(&begun.snapshot, begun.retention, String::new()).await?;
    let mut sweep = Sweep::new((snapshot.storage().clone(), &rule), true);
    sweep.run(&rule, candidates::from_inventory(snapshot.storage(), files)).await?;
    Ok((sweep.done.vacuumed.files_deleted, sweep.done.vacuumed.bytes_deleted))
}
