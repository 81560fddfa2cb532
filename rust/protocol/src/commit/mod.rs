//! One commit: what it does, whether it may follow the commits that won, and the loop that gets it into the log.
//!
//! PROTOCOL.md: "Commit Protocol".

mod actions;
mod attempt;
mod commit_loop;
mod conflict;
mod marked;
mod pending;
mod prepared;
mod read_set;

pub mod state;

pub use crate::error::Conflict;
pub use actions::{Actions, FileVector};
pub use attempt::{Attempt, SerializedCommit, num_records};
pub use commit_loop::{CommitLoop, Step};
pub use conflict::{CHECKS, Check, METADATA_ONLY_PROPERTIES, PROPERTIES_A_WINNER_MAY_SET};
pub use marked::{AddedFiles, AddedRows, MarkedFile, MarkedFiles, MovedRows, Vectors, WinnerRows};
pub use pending::{CLUSTERING_DOMAIN, Pending, ROW_TRACKING_DOMAIN, TableState, clustering_columns, watermark};
pub use prepared::{
    Committed, ENGINE_INFO, Failed, PreparedCommit, check_info, committed_but_unreadable, unknown_outcome,
};
pub use read_set::{PredicatesRead, ReadSet, Search};
