//! One commit: what it does, whether it may follow the commits that won, and the loop that gets it into the log.
//!
//! PROTOCOL.md: "Commit Protocol".

mod actions;
mod conflict;
mod matrix;
mod pending;
pub mod rebase;

pub use crate::error::Conflict;
pub use actions::Actions;
pub use conflict::{CHECKS, COMPATIBLE, Check, MAINTENANCE};
pub use matrix::{docs_checks, docs_matrix};
pub use pending::{Pending, PredicatesRead, ROW_TRACKING_DOMAIN, ReadSet, TableState, watermark};
