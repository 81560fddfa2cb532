//! The log of a table: reading its files, parsing commits, and replaying them.
//!
//! All reads use [`LogSource`]. `deltic_protocol::log` chooses the files of a version from a listing.
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
