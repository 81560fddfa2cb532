//! The log of a table: where it is read from, how its commits are parsed, and what they leave when they are replayed.
//!
//! All reads go through [`LogSource`]. What a listing means is decided by `deltic_protocol::log`.
//!
//! PROTOCOL.md: "Delta Log Entries".

use deltic_protocol::log::name::LOG_DIR;

mod absent;
pub(crate) mod claimed;
mod reader;
mod source;
pub mod tail;

pub use reader::{Loaded, parse_file};
pub use source::LogSource;

/// The path of a file of the log, relative to the table's root.
pub fn log_path(file_name: &str) -> String {
    format!("{LOG_DIR}/{file_name}")
}
