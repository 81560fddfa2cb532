//! Reading a snapshot: planning which files, and reading their rows.

mod adapt;
mod batch_rows;
mod cast;
mod decode;
mod fetch;
pub mod files;
mod open;
pub mod plan;
pub mod read;
mod row_groups;
pub mod row_tracking;
pub mod task;
mod variant;
