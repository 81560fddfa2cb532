//! What a caller asks of a vacuum, and what it did.

use deltic_store::FileMeta;

/// Where files to delete are looked for.
#[derive(Debug, Clone, Default)]
pub enum Search {
    /// In the table's folder, which is listed to its end.
    #[default]
    Full,
    /// In the log: files that commits removed. Those of writers that never committed are not found.
    Lite,
    /// In a list that somebody else made: paths below the table or absolute, sizes, and times of modification.
    Inventory(Vec<FileMeta>),
}

/// What a caller says of a vacuum.
#[derive(Debug, Clone, Default)]
pub struct VacuumOptions {
    /// Milliseconds for which files that are no longer part of the table are kept, instead of the table's property.
    pub retention_ms: Option<i64>,
    /// Where files are looked for.
    pub search: Search,
    /// Whether files are only found.
    pub dry_run: bool,
    /// Whether the retention may be shorter than the table's.
    pub force: bool,
}

/// What a vacuum did, or would do.
#[derive(Debug, Default)]
pub struct Vacuumed {
    /// The retention in milliseconds.
    pub retention_ms: i64,
    /// Files that were looked at.
    pub files_seen: u64,
    /// Files that were deleted or would be.
    pub files_deleted: u64,
    /// Bytes of them, as far as their sizes are known.
    pub bytes_deleted: u64,
    /// The files, of a vacuum that only finds them.
    pub found: Vec<FileMeta>,
}
