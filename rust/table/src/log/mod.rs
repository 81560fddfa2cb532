//! The log of a table: where it is read from, how its commits are parsed, and what they leave when they are replayed.
//!
//! All reads go through [`LogSource`]. What a listing means is decided by `deltic_protocol::log`.
//!
//! PROTOCOL.md: "Delta Log Entries".

mod absent;
pub(crate) mod claimed;
mod path;
mod reader;
mod source;
pub mod tail;

pub use path::log_file_path;
pub use reader::{Loaded, parse_file};
pub use source::LogSource;
