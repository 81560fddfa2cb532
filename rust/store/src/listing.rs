//! What a listing says of a file.

/// A file in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileMeta {
    /// The path to pass to get it: the folder as it was passed, and the name.
    pub path: String,
    /// Length in bytes.
    pub size: u64,
    /// Last modification, in milliseconds since 1970, by the store's clock.
    pub modified_ms: i64,
}

/// What there is directly in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed {
    /// A file.
    File(FileMeta),
    /// A folder, by its path: the folder as it was passed, and the name.
    Folder(String),
}

/// A file as backends list it.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Relative to the folder that was listed.
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) modified_ms: i64,
}

impl Entry {
    /// By the path that gets it: `prefix` is the folder with a slash behind it, or nothing.
    pub(crate) fn below(self, prefix: &str) -> FileMeta {
        FileMeta { path: format!("{prefix}{}", self.name), size: self.size, modified_ms: self.modified_ms }
    }
}
