//! Conclusions from the failure of a commit.

use deltic_protocol::commit::Conflict;

use crate::error::Kind;
use deltic_protocol::commit::Failed;

/// Whether a failure proves that the files are unreferenced and stay so. A resumed transaction may have been committed
/// by the process that began it, which only a failure found after reading the log rules out. If it marks rows, a conflict may
/// also mean that a file could not be read, which may have been different for the other process.
pub(super) fn proves_no_commit(failed: &Failed, is_resumed: bool, marks_rows: bool) -> bool {
    let Failed::NotWritten(error) = failed else { return false };
    let is_of_log = matches!(error.kind(), Kind::Conflict(_) | Kind::Invalid | Kind::Unsupported { .. });
    !is_resumed || (is_of_log && !marks_rows)
}

/// Whether a commit failed because of a conflict with another writer's commit.
pub(super) fn is_conflict(failed: &Failed) -> bool {
    matches!(failed, Failed::NotWritten(error) if matches!(error.kind(), Kind::Conflict(_)))
}

/// Whether a commit failed because the table's schema, properties or protocol have changed, or because the table was made
/// anew. Then the outer retry may help:
/// `Transaction::retry_on_newest_version`.
pub(super) fn is_table_changed(failed: &Failed) -> bool {
    match failed {
        Failed::NotWritten(error) => {
            matches!(error.kind(), Kind::Conflict(Conflict::MetadataChanged | Conflict::ProtocolChanged))
        }
        Failed::Unknown(_) => false,
    }
}
