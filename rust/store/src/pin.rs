//! Reads of one file that must all be of the same file, though another may take its place.
//!
//! A checkpoint of the classic name may be written again, by anybody, with the same content in another layout: what was
//! read of the first and what is read of the second do not belong together.

use std::fs::Metadata;
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

use object_store::ObjectMeta;

use super::location::Scheme;
use crate::error::{Error, Result};

/// What the first read of a file saw, which all others must see, too.
#[derive(Debug, Clone, Default)]
pub struct Pin {
    size: Option<u64>,
    first: Arc<OnceLock<Identity>>,
}

/// What tells a file from another in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    size: u64,
    /// When it was written, as exactly as the store tells.
    modified: i128,
    /// The store's own name for its content.
    tag: Option<String>,
    /// The number of the file, where files have one.
    number: u64,
}

impl Pin {
    /// For a file that a listing gave this size.
    pub fn of_size(size: u64) -> Self {
        Self { size: Some(size), first: Arc::default() }
    }

    /// # Errors
    /// `NotFound` if it is another file than before.
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

    /// Web servers that share their load may each have a tag of their own for a file.
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
