//! Reading a snapshot: planning which files are read, and reading their rows.

pub mod count;
pub(crate) mod dropped_columns;
pub(crate) mod file_footer;
pub mod filter;
pub mod limit;
pub mod plan;
pub mod read;
pub(crate) mod row_group_counts;
pub mod row_tracking;
pub mod task;
pub(crate) mod vectors;

pub use plan::list_files;
