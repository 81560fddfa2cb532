//! Repair: fixes the findings of a check, one after the other, and reports those that cannot be fixed.
//!
//! First it moves aside the newest versions if nobody can read them ([`unreadable`]). Then it repairs the log ([`log_repair`]):
//! damaged checkpoints, `_last_checkpoint`, the checksum of the newest version. At last it removes missing files from the table by
//! one commit ([`missing`]).
//!
//! Invariants: if two sources of a version disagree and nothing proves one of them right, both remain. Only a damaged
//! checkpoint that was replaced is deleted, and files of versions that cannot be read are kept in a folder. A dry run changes nothing. Proved by `tests/python/test_repair.py`.
//!
//! PROTOCOL.md: "Version Checksum File", "Last Checkpoint File", "Checkpoints".

use deltic_protocol::feature;
use deltic_protocol::property::Properties;

use crate::check::FindingKind;
use crate::committers::Committer;
use crate::error::{Error, Result};
use crate::log::LogSource;
use crate::snapshot::Snapshot;
use crate::transaction::RetryPolicy;
use crate::transaction::builder::Ids;
use deltic_store::Storage;

mod log_repair;
mod missing;
mod steps;
mod unreadable;

use log_repair::LogRepair;
use missing::Missing;
use steps::{CHECKPOINTS, FILES};
pub use steps::{RepairStep, Repaired};
use unreadable::UnreadableVersions;

/// Repairs the newest version of the table, or reports what that would do.
///
/// # Errors
/// `NotFound` if there is no table; `Corrupt` if no version can be read from any checkpoint or the commits; those
/// of the store and of committing. Earlier repairs remain after an error; running it again continues from there.
pub async fn repair(
    storage: &Storage,
    dry_run: bool,
    ids: &dyn Ids,
    committer: &dyn Committer,
    retry: &dyn RetryPolicy,
) -> Result<Repaired> {
    let repaired = async {
        let mut listing = LogSource::of(storage).list(0).await?;
        let found = match LogRepair::find(storage, &listing).await {
            Ok(log) => log.check_readable().await.map(|()| log),
            Err(e) => Err(e),
        };
        let (unreadable, log) = match found {
            Err(damage) if damage.is_corrupt() => {
                let (unreadable, log) = UnreadableVersions::find(storage, &listing, damage).await?;
                (Some(unreadable), log)
            }
            found => (None, found?),
        };
        let mut done = Repaired { version: log.snapshot.version(), ..Repaired::default() };
        if let Some(unreadable) = &unreadable {
            listing = unreadable.readable(&listing);
            unreadable.report(storage, &mut done)?;
        }
        log.plan(&listing, &mut done).await?;
        let missing = Missing::find(&log.snapshot).await?;
        missing.report(&mut done);
        refuse(&mut done, &log)?;
        if !dry_run {
            if let Some(unreadable) = &unreadable {
                if !done.mends(&[FindingKind::Commit]) {
                    return Ok(done);
                }
                unreadable.set_aside(storage).await?;
            }
            log.mend(retry.now_ms(), &mut done).await?;
            if done.mends(&FILES) {
                missing.remove(&log.snapshot, ids, committer, retry, &mut done).await?;
            }
        }
        Ok(done)
    };
    repaired.await.map_err(|e: Error| e.in_table(storage.location()))
}

/// Marks the steps that cannot be carried out, before anything is changed.
fn refuse(done: &mut Repaired, log: &LogRepair) -> Result<()> {
    const ALL: [FindingKind; 6] = [
        FindingKind::Commit,
        FindingKind::Checksum,
        FindingKind::LastCheckpoint,
        FindingKind::Checkpoint,
        FindingKind::DataFile,
        FindingKind::DeletionVector,
    ];
    let snapshot: &Snapshot = &log.snapshot;
    let (protocol, metadata) = (snapshot.protocol(), snapshot.metadata());
    let is_miscounted = |step: &RepairStep| step.kind == FindingKind::Checksum && !step.mends;
    if done.steps.iter().any(is_miscounted) {
        // A new checkpoint would hide that the log may have lost actions, and `_last_checkpoint` may be the only trace of them.
        let message = "the checksum of the version and the log disagree about files, see that step";
        done.refuse_kinds(&CHECKPOINTS, Err(Error::invalid(message)))?;
    }
    done.refuse_kinds(&ALL, feature::check_writable(protocol, metadata, &snapshot.shape().schema))?;
    if log.is_disputed {
        done.refuse_kinds(&ALL, Err(Error::unsupported("repair", "parts of the log disagree, see above")))?;
    }
    done.refuse_kinds(&CHECKPOINTS, feature::check_checkpointable(protocol, metadata, snapshot.version()))?;
    if Properties::of(metadata).append_only()? {
        let message = "the table is append-only (`delta.appendOnly`), so its rows cannot be removed";
        done.refuse_kinds(&FILES, Err(Error::invalid(message)))?;
    }
    Ok(())
}
