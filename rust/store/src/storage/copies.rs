//! Files as other tables see them: their absolute URIs, and copies of them.

use percent_encoding::{AsciiSet, utf8_percent_encode};

use super::Storage;
use crate::error::{Error, Result};
use crate::location::{IN_URI, Target};

/// Bytes that a copy reads at a time.
const PIECE: u64 = 8 * 1024 * 1024;

/// What no path of a URI has to Java, either.
const ABSOLUTE: &AsciiSet = &IN_URI.add(b'[').add(b']');

impl Storage {
    /// The absolute, percent-encoded URI of a literal reference, as Hadoop spells it (`file:/folder/name` on a disk).
    ///
    /// # Errors
    /// `Corrupt` if it leads out of the root, or nowhere.
    pub fn absolute_uri(&self, reference: &str) -> Result<String> {
        let place = |e: Error| e.in_table(self.location()).in_file(reference);
        Ok(match self.inner.location.resolve(reference).map_err(place)? {
            Target::Local(path) => format!("file:{}", utf8_percent_encode(&path, ABSOLUTE)),
            Target::Here(key) => format!("{}/{}", self.inner.location.base, utf8_percent_encode(&key, ABSOLUTE)),
            Target::Elsewhere(there) => there.text,
        })
    }

    /// Says whether a literal reference would be followed, without touching it.
    ///
    /// # Errors
    /// `Unsupported` if it leads to a store that this table may not name.
    pub fn check_reachable(&self, reference: &str) -> Result<()> {
        self.resolve_file(reference).map(drop)
    }

    /// Copies a file of `size` bytes from there, piece by piece; it appears when it is whole, and would survive a power cut.
    ///
    /// # Errors
    /// `NotFound` if it is not there, `Corrupt` if it is shorter.
    pub async fn copy_from(&self, (source, from): (&Self, &str), to: &str, size: u64) -> Result<()> {
        let mut writer = self.create_file(to).await?;
        let mut at = 0;
        while at < size {
            let end = size.min(at.saturating_add(PIECE));
            let copied = match source.get_range(from, at..end).await {
                Ok(piece) => writer.write(piece).await,
                Err(e) => Err(e),
            };
            if let Err(error) = copied {
                // What is left of it is not seen by anyone.
                let _aborted = writer.abort().await;
                return Err(error);
            }
            at = end;
        }
        writer.finish().await.map(drop)
    }
}
