//! The body of a put, and the outcome of a conditional put.

use std::fmt;

use bytes::Bytes;

use crate::error::{Error, Result};

/// The outcome of [`put_if_absent`](crate::Storage::put_if_absent).
#[derive(Debug)]
pub enum Put {
    /// This call has created the file.
    Created,
    /// The file existed already: another writer made it, or this request was sent twice in transit.
    Exists,
    /// The request was sent, and its answer is lost: read the file to find out who made it.
    Unknown(Error),
}

/// The content of a file to write, piece by piece, so that it need not all be in memory.
pub struct Body {
    pub(crate) length: u64,
    pub(crate) pieces: Box<dyn Iterator<Item = Result<Bytes>> + Send>,
}

impl Body {
    /// A body of pieces that have `length` bytes together.
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
