//! Repair: fixes the findings of a check, one after the other, and reports those that cannot be fixed.
//!
//! First it repairs the log ([`log_repair`]): damaged checkpoints, `_last_checkpoint`, the checksum of the newest version. Then
//! it removes missing files from the table by one commit ([`missing`]). If the newest version cannot be read, neither is
//! possible; a recovery ([`recovery`]), which has to be asked for, moves the versions that cannot be read out of the log.
//!
//! Invariants: if two sources of a version disagree and nothing proves one of them right, both remain. Without a recovery
//! only a damaged checkpoint that was replaced is deleted. A dry run changes nothing. Proved by `tests/python/test_repair.py`.
//!
//! PROTOCOL.md: "Version Checksum File", "Last Checkpoint File", "Checkpoints".

use deltic_protocol::feature;
use deltic_protocol::property::Properties;

use crate::check::FindingKind;
use crate::commit::{RetryPolicy, nothing_committed, unless_cancelled};
use crate::committers::Committer;
use crate::error::{Error, Result};
use crate::log::LogSource;
use crate::snapshot::Snapshot;
use crate::transaction::builder::Ids;

mod log_repair;
mod missing;
mod recovery;
mod steps;

use log_repair::LogRepair;
use missing::Missing;
use recovery::LogEnd;
use steps::{CHECKPOINTS, FILES};
pub use steps::{RepairStep, Repaired};

/// Repairs the newest version of the table, or reports what that would do.
///
/// # Errors
/// `NotFound` if there is no table; `Corrupt` if its newest version cannot be read from any checkpoint or the commits; those
/// of the store and of committing. Earlier repairs remain after an error; running it again continues from there.
pub async fn repair(
    log: &LogSource,
    dry_run: bool,
    ids: &dyn Ids,
    committer: &dyn Committer,
    retry: &dyn RetryPolicy,
) -> Result<Repaired> {
    let repaired = async {
        let examined = async {
            let listing = log.list(0).await?;
            let repair = LogRepair::find(log, &listing).await?;
            let mut done = Repaired { version: repair.snapshot.version(), ..Repaired::default() };
            repair.plan(&listing, &mut done).await?;
            let missing = Missing::find(&repair.snapshot).await?;
            Ok((repair, missing, done))
        };
        let (repair, missing, mut done) = match examined.await {
            Err(e) => return Err(with_recovery(log, e).await),
            Ok(examined) => examined,
        };
        missing.report(&mut done);
        refuse(&mut done, &repair)?;
        if !dry_run {
            repair.mend(retry.now_ms(), &mut done).await?;
            if done.mends(&FILES) {
                missing.remove(&repair.snapshot, ids, committer, retry, &mut done).await?;
            }
        }
        Ok(done)
    };
    repaired.await.map_err(|e: Error| e.in_table(log.location()))
}

/// The error of a log that cannot be read, with the version to which it can be recovered, if there is one.
async fn with_recovery(log: &LogSource, error: Error) -> Error {
    if !error.is_corrupt() {
        return error;
    }
    let Ok(LogEnd::Unreadable(recovery)) = recovery::find(log).await else { return error };
    let message = format!(
        "{}. Version {version} is the last that can be read: a repair with recover_to={version} moves the later versions out of \
         the log",
        error.message(),
        version = recovery.snapshot.version()
    );
    let extended = Error::corrupt(message);
    let extended = error.path().into_iter().fold(extended, Error::in_file);
    error.version().into_iter().fold(extended, Error::at_version)
}

/// Moves the versions after `version`, which cannot be read, out of the log, or reports what that would do. Nothing is done if
/// `version` is the newest one and can be read.
///
/// # Errors
/// `Invalid` if `version` is not the last readable version; `Corrupt` if no version can be read, or the log is damaged in another
/// way than by missing and torn commits; `Unsupported` if something else than the log decides about its versions, or deltic
/// cannot write the table; `Conflict` if the log changes meanwhile; those of the store. After an error the next call goes on.
pub async fn recover(
    log: &LogSource,
    version: u64,
    dry_run: bool,
    ids: &dyn Ids,
    retry: &dyn RetryPolicy,
) -> Result<Repaired> {
    let recovered = async {
        let recovery = match unless_cancelled(recovery::find(log), retry, nothing_committed).await? {
            LogEnd::Readable(snapshot, _) if snapshot.version() != version => {
                return Err(Error::invalid(format!(
                    "version {}, the newest, can be read, so the log is not repaired; `restore` makes an older version the \
                     newest one",
                    snapshot.version()
                )));
            }
            LogEnd::Readable(_, gap) => {
                let steps = gap.map(|gap| RepairStep::new(FindingKind::Log, gap, Vec::new(), false));
                return Ok(Repaired { version, steps: steps.into_iter().collect(), ..Repaired::default() });
            }
            LogEnd::Unreadable(recovery) => recovery,
        };
        if recovery.snapshot.version() != version {
            return Err(Error::invalid(format!(
                "the last version that can be read is {}, not {version}: only to that one a log is repaired",
                recovery.snapshot.version()
            )));
        }
        let mut done = Repaired { version, ..Repaired::default() };
        done.push(FindingKind::Log, recovery.message.clone(), recovery.paths());
        Missing::find(&recovery.snapshot).await?.report(&mut done);
        let message = "the log is repaired first; repair the table again afterwards";
        done.refuse_kinds(&FILES, Err(Error::invalid(message)))?;
        if !dry_run {
            done.moved_to = Some(recovery.carry_out(&ids.unique(), retry).await?);
        }
        Ok(done)
    };
    recovered.await.map_err(|e: Error| e.in_table(log.location()))
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
