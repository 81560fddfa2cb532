//! Copies that a store makes by itself, so that the bytes of a file are not transferred.
//!
//! The library copies within one bucket, by one request. If a store does not do that (because of permissions, limits or its
//! interface), the caller reads and writes the file. The size of a copy is checked.
//!
//! Proved by `stores_copy_files_themselves` and the tests beside it in `tests/rust/table/storage/copying.rs`.

use std::time::Duration;

use object_store::ObjectStoreExt;

use super::finding::{Finding, finding};
use super::remote::{Remote, key};
use crate::error::{Error, Kind, Result};
use crate::events::TARGET;
use crate::location::Scheme;

/// The largest object that S3 copies by one request; the library cannot copy larger ones in parts.
const MAX_COPY_BYTES_OF_S3: u64 = 5 * 1024 * 1024 * 1024;
/// Azure may finish a copy after its answer: how long deltic waits for it, and the longest pause between two checks.
const MAX_WAIT: Duration = Duration::from_secs(300);
const MAX_PAUSE: Duration = Duration::from_secs(5);

impl Remote {
    /// Whether the store can copy the other's files by itself: same bucket or container, same credentials and settings.
    pub(crate) fn can_copy_from(&self, other: &Self) -> bool {
        let (ours, theirs) = (self.location(), other.location());
        let can_copy = matches!(ours.scheme, Scheme::S3 | Scheme::Azure | Scheme::Gcs | Scheme::Memory);
        can_copy && ours.base == theirs.base && self.options().opens_as(other.options())
    }

    /// Lets the store copy a file of `size` bytes; false if it did not.
    ///
    /// # Errors
    /// `Corrupt` if the copy has another size: it is deleted. `Storage` if Azure has not finished it after five minutes. Those
    /// of asking for the size.
    pub(crate) async fn copy(&self, from: &str, to: &str, size: u64) -> Result<bool> {
        let (clients, from, to) = (self.clients()?, key(from)?, key(to)?);
        if self.scheme() == Scheme::S3 && size > MAX_COPY_BYTES_OF_S3 {
            return Ok(false);
        }
        self.tally().put(0);
        // Without retries: if it fails, the file is read and written instead, with retries.
        if let Err(error) = clients.once.copy(&from, &to).await {
            if finding(&error) != Finding::Missing {
                let failed = self.fail("copy", error);
                log::debug!(target: TARGET, "{failed}: deltic reads and writes the {size} bytes of `{from}` instead");
            }
            return Ok(false);
        }
        let found = match self.size_of_copy(to.as_ref(), size).await {
            // The store said that it made a copy, but there is none.
            Err(error) if *error.kind() == Kind::NotFound => return Ok(false),
            found => found?,
        };
        if found == size {
            return Ok(true);
        }
        // Otherwise the next run would refuse it as a different file.
        let _ = self.delete(to.as_ref()).await;
        Err(Error::corrupt(format!(
            "the copy that the store made of `{from}` has {found} bytes, and the file should have {size}; it was deleted"
        )))
    }

    /// Azure may make a copy after its answer; until then the file is empty.
    async fn size_of_copy(&self, to: &str, size: u64) -> Result<u64> {
        let (mut waited, mut pause) = (Duration::ZERO, Duration::from_millis(100));
        loop {
            let found = self.head(to).await?.size;
            if found > 0 || size == 0 || self.scheme() != Scheme::Azure {
                return Ok(found);
            }
            if waited >= MAX_WAIT {
                let message = "the store did not finish a copy in time; run this again: finished copies are kept";
                return Err(Error::storage(true, message));
            }
            tokio::time::sleep(pause).await;
            waited += pause;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }
}
