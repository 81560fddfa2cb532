//! Options and result of a vacuum.

use super::inventory::Inventory;
use deltic_store::FileMeta;

/// Which files a vacuum examines.
#[derive(Debug, Clone, Default)]
pub enum Search {
    /// All files in the table's directory, which is listed recursively.
    #[default]
    Full,
    /// Files that commits removed, by the log. Files of writers that never committed are not among them.
    Lite,
    /// The files of an inventory.
    Inventory(Inventory),
}

/// Options of a vacuum.
#[derive(Debug, Clone)]
pub struct VacuumOptions {
    /// Milliseconds for which removed files are retained, instead of `delta.deletedFileRetentionDuration`.
    pub retention_ms: Option<i64>,
    /// Which files are examined.
    pub search: Search,
    /// Whether files are only reported, not deleted.
    pub dry_run: bool,
    /// Whether the retention may be shorter than the table's.
    pub force: bool,
    /// Whether the history gets VACUUM START and VACUUM END. Without them a vacuum writes nothing before it deletes files, so
    /// that it can make space on a full disk.
    pub log: bool,
}

impl Default for VacuumOptions {
    fn default() -> Self {
        Self { retention_ms: None, search: Search::Full, dry_run: false, force: false, log: true }
    }
}

/// What a vacuum did, or would do.
#[derive(Debug, Default)]
pub struct Vacuumed {
    /// The version of VACUUM END. `None` for a dry run, or if the vacuum is not in the history.
    pub version: Option<u64>,
    /// The retention in milliseconds.
    pub retention_ms: i64,
    /// Number of files that were examined.
    pub files_seen: u64,
    /// Number of files that were deleted, or would be in a dry run.
    pub files_deleted: u64,
    /// Bytes of the deleted files whose sizes are known.
    pub bytes_deleted: u64,
    /// The files that a dry run would delete.
    pub found: Vec<FileMeta>,
    /// Folders of other tables, relative to the root. Their files were kept.
    pub nested_tables: Vec<String>,
}
