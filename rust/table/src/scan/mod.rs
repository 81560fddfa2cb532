//! Reading a snapshot: planning which files, and reading their rows.

pub mod plan;
pub mod read;
pub mod task;
