//! Reading a snapshot: planning which files, and reading their rows.

mod adapt;
mod batch_rows;
mod cast;
pub mod count;
mod decode;
mod fetch;
pub mod files;
pub mod filter;
pub mod limit;
mod open;
pub mod plan;
pub mod read;
mod row_groups;
pub mod row_tracking;
pub mod task;
mod variant;
