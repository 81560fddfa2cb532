//! Makes sure that several reads are of the same file, even if another one replaces it.
//!
//! A checkpoint with the classic name may be overwritten by any writer, with the same content in another layout: bytes that
//! were read of the first and of the second do not fit together.

use std::fs::Metadata;
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

use object_store::ObjectMeta;

use super::location::Scheme;
use crate::error::{Error, Result};

/// The identity of a file by its first read, which all other reads must find, too.
#[derive(Debug, Clone, Default)]
pub struct Pin {
    size: Option<u64>,
    first: Arc<OnceLock<Identity>>,
}

/// What distinguishes a file from another one that replaced it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    size: u64,
    /// The time when it was written, in the store's precision.
    modified: i128,
    /// The store's tag of its content.
    tag: Option<String>,
    /// The file number (inode), if there is one.
    number: u64,
}

impl Pin {
    /// A pin for a file that has this size in a listing.
    pub fn of_size(size: u64) -> Self {
        Self { size: Some(size), first: Arc::default() }
    }

    /// # Errors
    /// `NotFound` if it is not the same file as before.
    pub(super) fn check(&self, found: Identity) -> Result<()> {
        let is_listed = self.size.is_none_or(|size| size == found.size);
        if is_listed && self.first.get_or_init(|| found.clone()).is(&found) {
            return Ok(());
        }
        Err(Error::not_found("another file took its place since the log was listed"))
    }
}

impl Identity {
    pub(super) fn of_file(metadata: &Metadata) -> Self {
        let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified = modified.and_then(|time| i128::try_from(time.as_nanos()).ok()).unwrap_or_default();
        #[cfg(unix)]
        let number = std::os::unix::fs::MetadataExt::ino(metadata);
        #[cfg(not(unix))]
        let number = 0;
        Self { size: metadata.len(), modified, tag: None, number }
    }

    /// Tags of web servers are ignored: servers that share their load may have different ones for a file.
    pub(super) fn of_object(meta: &ObjectMeta, scheme: Scheme) -> Self {
        let modified = i128::from(meta.last_modified.timestamp_micros());
        let tag = meta.e_tag.clone().filter(|_| scheme != Scheme::Http);
        Self { size: meta.size, modified, tag, number: 0 }
    }

    fn is(&self, other: &Self) -> bool {
        match (&self.tag, &other.tag) {
            (Some(tag), Some(other)) => tag == other,
            _ => (self.size, self.modified, self.number) == (other.size, other.modified, other.number),
        }
    }
}
