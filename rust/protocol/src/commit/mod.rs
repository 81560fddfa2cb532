//! One commit: what it does, whether it may follow the commits that won, and the loop that gets it into the log.
//!
//! PROTOCOL.md: "Commit Protocol".

mod actions;
mod commit_loop;
mod conflict;
mod marked;
mod matrix;
mod pending;
mod prepared;

pub mod attempt;
pub mod state;

pub use crate::error::Conflict;
pub use actions::{Actions, LogicalFile};
pub use commit_loop::{CommitLoop, Step};
pub use conflict::{AddedRows, CHECKS, COMPATIBLE, Check, MAINTENANCE};
pub use marked::{MarkedFile, MarkedFiles, MovedRows, Vectors, WinnerRows};
pub use matrix::{docs_checks, docs_matrix};
pub use pending::{
    CLUSTERING_DOMAIN, Pending, PredicatesRead, ROW_TRACKING_DOMAIN, ReadSet, TableState, clustering_columns, watermark,
};
pub use prepared::{Committed, ENGINE_INFO, Failed, PreparedCommit, check_info, in_the_log_but, unknown_outcome};
