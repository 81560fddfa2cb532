//! Copies that a store makes by itself, so that the bytes of a file do not come here.
//!
//! The library copies within one bucket, by one request. What a store does not copy so (by its permissions, its limits, its
//! interface), the caller reads and writes; what it has copied is asked for its size.
//!
//! Proved by `stores_copy_files_themselves` and the tests beside it in `tests/rust/table/storage/copying.rs`.

use std::time::Duration;

use object_store::ObjectStoreExt;

use super::finding::{Finding, finding};
use super::remote::{Remote, key};
use crate::error::{Error, Kind, Result};
use crate::events::TARGET;
use crate::location::Scheme;

/// What S3 copies at once; its parts of larger files cannot be copied through the library.
const LARGEST_OF_S3: u64 = 5 * 1024 * 1024 * 1024;
/// How long a copy of Azure is waited for, which may be made after the answer; and how often it is asked for.
const LONGEST_WAIT: Duration = Duration::from_secs(300);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl Remote {
    /// Whether this client, with the other's credentials, names the other's files by the same keys.
    pub(crate) fn has_files_of(&self, other: &Self) -> bool {
        let (ours, theirs) = (self.location(), other.location());
        let can_copy = matches!(ours.scheme, Scheme::S3 | Scheme::Azure | Scheme::Gcs | Scheme::Memory);
        can_copy && ours.base == theirs.base && self.options().opens_as(other.options())
    }

    /// Lets the store copy a file of `size` bytes; false if it did not.
    ///
    /// # Errors
    /// `Corrupt` if the copy has another size: it is deleted.
    pub(crate) async fn copy(&self, from: &str, to: &str, size: u64) -> Result<bool> {
        let (clients, from, to) = (self.clients()?, key(from)?, key(to)?);
        if self.scheme() == Scheme::S3 && size > LARGEST_OF_S3 {
            return Ok(false);
        }
        self.tally().put(0);
        // Sent once: what fails for a while is read and written, with repetitions.
        if let Err(error) = clients.once.copy(&from, &to).await {
            if finding(&error) != Finding::Missing {
                let failed = self.fail("copy", error);
                log::debug!(target: TARGET, "{failed}: deltic reads and writes the {size} bytes of `{from}` instead");
            }
            return Ok(false);
        }
        let found = match self.size_of_copy(to.as_ref(), size).await {
            // The store says that it has made a copy, and has none.
            Err(error) if *error.kind() == Kind::NotFound => return Ok(false),
            found => found?,
        };
        if found == size {
            return Ok(true);
        }
        // Who copies again would take it for another file.
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
            if waited >= LONGEST_WAIT {
                let message =
                    "the store did not finish a copy in time; do the same again, and what is copied by then stays";
                return Err(Error::storage(true, message));
            }
            tokio::time::sleep(pause).await;
            waited += pause;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
