//! Paths of files of the log.

use deltic_protocol::log::name::LOG_DIR;

/// The path of a file of the log, relative to the table's root.
pub fn log_file_path(file_name: &str) -> String {
    format!("{LOG_DIR}/{file_name}")
}
