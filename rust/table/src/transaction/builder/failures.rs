//! Why a commit failed, and what that says of its files and of the table.

use deltic_protocol::commit::Conflict;

use crate::error::Kind;
use crate::transaction::Failed;

/// Whether a failure proves that no commit names the files, nor ever will. One that was begun elsewhere may have been
/// committed before, which only an answer that came after reading the log rules out.
pub(super) fn is_refused(failed: &Failed, travelled: bool) -> bool {
    let Failed::Certainly(error) = failed else { return false };
    !travelled || matches!(error.kind(), Kind::Conflict(_) | Kind::Invalid | Kind::Unsupported { .. })
}

/// Whether another writer is in the way.
pub(super) fn is_conflict(failed: &Failed) -> bool {
    matches!(failed, Failed::Certainly(error) if matches!(error.kind(), Kind::Conflict(_)))
}

/// Whether a commit failed for what the table has become.
pub(super) fn is_outdated(failed: &Failed) -> bool {
    match failed {
        Failed::Certainly(error) => {
            matches!(error.kind(), Kind::Conflict(Conflict::MetadataChanged | Conflict::ProtocolChanged))
        }
        Failed::Perhaps(_) => false,
    }
}
