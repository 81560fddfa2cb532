//! Repair: fixes the findings of a check, one after the other, and reports those that cannot be fixed.
//!
//! First it repairs the log ([`log_repair`]): damaged checkpoints, `_last_checkpoint`, the checksum of the newest version. Then
//! it removes missing files from the table by one commit ([`missing`]).
//!
//! Invariants: if two sources of a version disagree and nothing proves one of them right, both remain. Only a damaged
//! checkpoint that was replaced is deleted. A dry run changes nothing. Proved by `tests/python/test_repair.py`.
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

use log_repair::LogRepair;
use missing::Missing;
use steps::{CHECKPOINTS, FILES};
pub use steps::{RepairStep, Repaired};

/// Repairs the newest version of the table, or reports what that would do.
///
/// # Errors
/// `NotFound` if there is no table; `Corrupt` if its newest version cannot be read from any checkpoint or the commits; those
/// of the store and of committing. Earlier repairs remain after an error; running it again continues from there.
pub async fn repair(
    storage: &Storage,
    dry_run: bool,
    ids: &dyn Ids,
    committer: &dyn Committer,
    retry: &dyn RetryPolicy,
) -> Result<Repaired> {
    let repaired = async {
        let listing = LogSource::of(storage).list(0).await?;
        let log = LogRepair::find(storage, &listing).await?;
        let mut done = Repaired { version: log.snapshot.version(), ..Repaired::default() };
        log.plan(&listing, &mut done).await?;
        let missing = Missing::find(&log.snapshot).await?;
        missing.report(&mut done);
        refuse(&mut done, &log)?;
        if !dry_run {
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
    const ALL: [FindingKind; 5] = [
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
