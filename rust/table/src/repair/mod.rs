//! Repair: fixes what a check finds, one finding after the other, and reports what cannot be fixed.
//!
//! First the log ([`sound`]): a checkpoint that cannot be read or that checksums prove wrong, the hint to it, the checksum
//! of the newest version. Then the table ([`missing`]): files that are not there leave it, by one commit.
//!
//! Invariants: where two sources of a version disagree and nothing proves one of them right, both stay; nothing is
//! deleted but a damaged checkpoint that was replaced; a dry run changes nothing. Proved
//! by `tests/python/test_repair.py`.
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

mod missing;
mod sound;
mod steps;

use missing::Missing;
use sound::Sound;
use steps::{CHECKPOINTS, FILES};
pub use steps::{RepairStep, Repaired};

/// Mends the newest version of the table, or says what that would do.
///
/// # Errors
/// `NotFound` if there is no table, `Corrupt` if nothing leads to its newest version, those of the store and of
/// committing. What was mended by then is: running it again goes on from there.
pub async fn repair(
    storage: &Storage,
    dry_run: bool,
    ids: &dyn Ids,
    (committer, retry): (&dyn Committer, &dyn RetryPolicy),
) -> Result<Repaired> {
    let repaired = async {
        let listing = LogSource::of(storage).list(0).await?;
        let sound = Sound::find(storage, &listing).await?;
        let mut done = Repaired { version: sound.snapshot.version(), ..Repaired::default() };
        sound.plan(&listing, &mut done).await?;
        let missing = Missing::find(&sound.snapshot).await?;
        missing.tell(&mut done);
        refuse(&mut done, &sound)?;
        if !dry_run {
            sound.mend(retry.now_ms(), &mut done).await?;
            if done.mends(&FILES) {
                missing.leave(&sound.snapshot, ids, (committer, retry), &mut done).await?;
            }
        }
        Ok(done)
    };
    repaired.await.map_err(|e: Error| e.in_table(storage.location()))
}

/// What cannot be done is found out before anything is.
fn refuse(done: &mut Repaired, sound: &Sound) -> Result<()> {
    const ALL: [FindingKind; 5] = [
        FindingKind::Checksum,
        FindingKind::LastCheckpoint,
        FindingKind::Checkpoint,
        FindingKind::DataFile,
        FindingKind::DeletionVector,
    ];
    let snapshot: &Snapshot = &sound.snapshot;
    let (protocol, metadata) = (snapshot.protocol(), snapshot.metadata());
    let is_miscounted = |step: &RepairStep| step.kind == FindingKind::Checksum.name() && !step.mends;
    if done.steps.iter().any(is_miscounted) {
        // A checkpoint would make good what the log may have lost, and the hint may be the last that knows of it.
        let message = "the checksum of the version counts other files than the log, see there";
        done.refuse_kinds(&CHECKPOINTS, Err(Error::invalid(message)))?;
    }
    done.refuse_kinds(&ALL, feature::check_writable(protocol, metadata, &snapshot.shape().schema))?;
    if sound.is_disputed {
        done.refuse_kinds(&ALL, Err(Error::unsupported("repair", "accounts of the log disagree, see above")))?;
    }
    done.refuse_kinds(&CHECKPOINTS, feature::check_checkpointable(protocol, metadata, snapshot.version()))?;
    if Properties::of(metadata).append_only()? {
        let message = "the table is append-only (`delta.appendOnly`), so its rows cannot be removed";
        done.refuse_kinds(&FILES, Err(Error::invalid(message)))?;
    }
    Ok(())
}
