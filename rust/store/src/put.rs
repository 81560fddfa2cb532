//! What is put, and how a conditional put ends.

use std::fmt;

use bytes::Bytes;

use crate::error::{Error, Result};

/// How a [`put_if_absent`](crate::Storage::put_if_absent) ended.
#[derive(Debug)]
pub enum Put {
    /// The file is there, and this call put it there.
    Created,
    /// The file existed when the request came: another writer made it, or a retry on the way sent this one twice.
    Exists,
    /// The request was sent and its answer is lost: read the file to find out whose it is.
    Unknown(Error),
}

/// The content of a file to write, piece by piece, so that it need not all be in memory.
pub struct Body {
    pub(crate) length: u64,
    pub(crate) pieces: Box<dyn Iterator<Item = Result<Bytes>> + Send>,
}

impl Body {
    /// Pieces that together have `length` bytes.
    pub fn of(length: u64, pieces: impl Iterator<Item = Result<Bytes>> + Send + 'static) -> Self {
        Self { length, pieces: Box::new(pieces) }
    }
}

impl From<Bytes> for Body {
    fn from(data: Bytes) -> Self {
        Self::of(data.len() as u64, std::iter::once(Ok(data)))
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.length)
    }
}
