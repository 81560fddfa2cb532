//! Work after a commit, best effort: the version's checksum, a checkpoint if one is due, cleanup of expired log files
//! from time to time, and manifests if the table asks for them (`work`).
//!
//! Failures are reported, not raised, since the commit is made. There is one exception: if the version before it is missing
//! from the log, it is not known whether the commit counts, and that is an error (`same_table`). The next commit of the same
//! handle begins with a [`HandleState`], without reading the log.
//!
//! PROTOCOL.md: "Version Checksum File", "Checkpoints".

mod cached_log_tail;
mod checksum;
mod handle_state;
mod same_table;
mod work;

pub(crate) use checksum::rebuild_checksum;
pub use checksum::write_checksum;
pub use handle_state::HandleState;
pub(crate) use same_table::{check_same_table, verify_same_table};
pub use work::{PostCommit, PostCommitStep};
