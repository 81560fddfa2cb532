//! Entries of listings.

/// A file in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileMeta {
    /// The path for reading it: the folder as it was passed, and the name.
    pub path: String,
    /// The size in bytes.
    pub size: u64,
    /// The time of its last modification, in milliseconds since 1970, by the store's clock.
    pub modified_ms: i64,
}

/// An entry directly in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed {
    /// A file.
    File(FileMeta),
    /// A folder, by its path: the folder as it was passed, and the name.
    Folder(String),
}

/// A file in the listing of a backend.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The name, relative to the listed folder.
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) modified_ms: i64,
}

impl Entry {
    /// The file with its path: `prefix` is the folder with a slash, or empty.
    pub(crate) fn below(self, prefix: &str) -> FileMeta {
        FileMeta { path: format!("{prefix}{}", self.name), size: self.size, modified_ms: self.modified_ms }
    }
}
