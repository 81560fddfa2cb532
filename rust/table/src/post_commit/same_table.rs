//! Checks that a commit goes to the table that its base was read from, not to a new one at the same location.

use deltic_protocol::commit::{Conflict, committed_but_unreadable, unknown_outcome};

use super::checksum::txn_id;
use super::handle_state::HandleState;
use crate::committers::Committer;
use crate::error::{Error, Kind};
use deltic_protocol::commit::{Committed, Failed};

/// Refuses to commit to a table that was deleted or created again since the commit's base was read, when
/// the base's commit file is known. Without it, the log did not have that commit any more.
///
/// # Errors
/// `Conflict` if it is another table, and those of reading the log. Nothing was put then.
pub(crate) async fn check_same_table(committer: &dyn Committer, base: &HandleState) -> Result<(), Failed> {
    let Some(file) = base.commit_file() else { return Ok(()) };
    let base = &base.state;
    // If the log was cleaned up to the next version, that version is there and is checked; it may be this commit itself.
    let versions = [base.version, base.version.saturating_add(1)];
    if committer.is_same_table(base, file, &versions).await.map_err(Failed::NotWritten)? {
        return Ok(());
    }
    let message = format!(
        "the table was deleted or created again since its version {} was made or read, so nothing was committed; begin again",
        base.version
    );
    Err(Failed::NotWritten(Error::new(Kind::Conflict(Conflict::MetadataChanged), message)))
}

/// Checks after a commit was put that the table was not deleted or created again just before. The commit stays, since other
/// writers may have built on it already, but it is not reported as made.
///
/// # Errors
/// `Storage`, saying that the outcome is unknown.
pub(crate) async fn verify_same_table(
    committer: &dyn Committer,
    committed: &Committed,
    base: &HandleState,
) -> Result<(), Failed> {
    let Some(file) = base.commit_file() else { return Ok(()) };
    let base = &base.state;
    let version = committed.version;
    // The version before is read, since the checksum of this one has what its writer had cached. But a commit that was found
    // in the log may be the first one that log cleanup left, after a checkpoint of its version.
    let versions = [version.saturating_sub(1), version];
    let txn_id = txn_id(committed).unwrap_or_default();
    match committer.is_same_table(base, file, &versions).await {
        Ok(true) => Ok(()),
        Ok(false) => {
            let why =
                format!("the table was deleted or created again since its version {} was made or read", base.version);
            Err(Failed::Unknown(committed_but_unreadable(version, txn_id, &why)))
        }
        // It is in the log, and it is unknown whether it counts.
        Err(error) => Err(Failed::Unknown(unknown_outcome(txn_id, committed.attempts, error))),
    }
}
