//! Absolute URIs of files, and copies between tables.

use percent_encoding::{AsciiSet, utf8_percent_encode};

use super::{Backend, Storage};
use crate::error::{Error, Result};
use crate::local::real_path;
use crate::location::{IN_URI, Location, Scheme, Target, split_scheme};
use crate::stop::Stop;

/// Bytes that a copy reads at a time.
const PIECE: u64 = 8 * 1024 * 1024;

/// Also the characters that Java does not allow in the path of a URI.
const ABSOLUTE: &AsciiSet = &IN_URI.add(b'[').add(b']');

impl Storage {
    /// The absolute, percent-encoded URI of a literal reference, in Hadoop's form (`file:/folder/name` on a disk), with
    /// the scheme that the location was given with.
    ///
    /// # Errors
    /// `Corrupt` if it leads out of the root or is not valid; `Unsupported` in a container of Azure whose account is not known.
    pub fn absolute_uri(&self, reference: &str) -> Result<String> {
        let with_context = |e: Error| e.in_table(self.location()).in_file(reference);
        let own = &self.inner.location;
        let (base, key) = match own.resolve(reference).map_err(with_context)? {
            Target::Local(path) => return Ok(format!("file:{}", utf8_percent_encode(&path, ABSOLUTE))),
            Target::Here(key) if split_scheme(reference).is_some() => {
                (self.base_for_others(&Location::named(reference).map_err(with_context)?), key)
            }
            Target::Here(key) => (self.base_for_others(own), key),
            Target::Elsewhere(there) => (self.base_for_others(&there), there.root),
        };
        Ok(format!("{}/{}", base.map_err(with_context)?, utf8_percent_encode(&key, ABSOLUTE)))
    }

    /// The URL of a bucket, container or server, which others understand without the settings of this table.
    fn base_for_others(&self, location: &Location) -> Result<String> {
        let Some((None, container)) = location.container() else { return Ok(location.base_as_given().to_owned()) };
        match self.public_account(location) {
            Some(account) => Ok(format!("abfss://{container}@{account}.dfs.core.windows.net")),
            None => Err(Error::unsupported(
                "absolute URI without an account",
                format!(
                    "`{}` has no Azure account, so an absolute URI of a file there could be another file for others; \
                     open the table as abfss://container@account.dfs.core.windows.net/path",
                    location.base_as_given()
                ),
            )),
        }
    }

    /// Whether the roots of two tables are the same, or one is inside the other, however they are written. On a
    /// disk, symbolic links are followed.
    ///
    /// # Errors
    /// Those of the disk.
    pub async fn overlaps(&self, other: &Self) -> Result<bool> {
        let (ours, theirs) = (&self.inner.location, &other.inner.location);
        let is_same_store = match (ours.container(), theirs.container()) {
            (Some((_, own)), Some((_, name))) => own == name && self.account(ours) == other.account(theirs),
            _ => ours.base == theirs.base,
        };
        if !is_same_store {
            return Ok(false);
        }
        let (mut one, mut two) = (ours.root.clone(), theirs.root.clone());
        if ours.scheme == Scheme::Local {
            one = real_path(one).await.map_err(|e| e.in_table(self.location()))?;
            two = real_path(two).await.map_err(|e| e.in_table(other.location()))?;
        }
        let below = |outer: &str, inner: &str| {
            let outer = outer.trim_end_matches('/');
            outer.is_empty() || inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        Ok(below(&one, &two) || below(&two, &one))
    }

    /// The path of a literal reference on the disk, with symbolic links followed; none if it is in another store.
    ///
    /// # Errors
    /// `Corrupt` if it leads out of the root or is not valid; those of the disk.
    pub async fn real_path(&self, reference: &str) -> Result<Option<String>> {
        let with_context = |e: Error| e.in_table(self.location()).in_file(reference);
        match self.inner.location.resolve(reference).map_err(with_context)? {
            Target::Local(path) => real_path(path).await.map(Some).map_err(with_context),
            Target::Here(_) | Target::Elsewhere(_) => Ok(None),
        }
    }

    /// Checks that a literal reference would be followed, without a request.
    ///
    /// # Errors
    /// `Unsupported` if it leads to a store that this table may not name.
    pub fn check_reachable(&self, reference: &str) -> Result<()> {
        self.resolve_file(reference).map(drop)
    }

    /// Copies a file of `size` bytes from another storage; the copy is durable. A disk copies it by itself, and so does a
    /// store that has both files and the same credentials; otherwise it is read and written piece by piece. It becomes
    /// visible when it is complete, except on Azure, where a copy may be empty for some time.
    ///
    /// # Errors
    /// `NotFound` if it does not exist, `Corrupt` if it is shorter, or if the store's own copy has another size; `Storage` if
    /// the store has not finished its copy in time.
    pub async fn copy_from(&self, source: &Self, from: &str, to: &str, size: u64) -> Result<()> {
        self.copy_unless_stopped(source, from, to, size, &Stop::default()).await
    }

    /// As [`Storage::copy_from`]. If it is asked to stop, it ends between two pieces with `Interrupted`, and no file is left.
    pub async fn copy_unless_stopped(&self, source: &Self, from: &str, to: &str, size: u64, stop: &Stop) -> Result<()> {
        stop.check()?;
        match (source.resolve_file(from)?, self.resolve_file(to)?) {
            ((Backend::Local(there), from_key), (Backend::Local(here), to_key)) => {
                let file = there.open_to_copy(from_key).await.map_err(|e| source.with_context(e, from))?;
                return here.copy(file, to_key, size, stop).await.map_err(|e| self.with_context(e, to));
            }
            ((Backend::Remote(there), from_key), (Backend::Remote(here), to_key)) if here.can_copy_from(&there) => {
                let is_copied = here.copy(&from_key, &to_key, size).await.map_err(|e| self.with_context(e, to))?;
                if is_copied {
                    return Ok(());
                }
            }
            _ => {}
        }
        self.copy_in_pieces(source, from, to, size, stop).await
    }

    async fn copy_in_pieces(&self, source: &Self, from: &str, to: &str, size: u64, stop: &Stop) -> Result<()> {
        let mut writer = self.create_file(to).await?;
        let mut at = 0;
        while at < size {
            let end = size.min(at.saturating_add(PIECE));
            let copied = async {
                stop.check()?;
                writer.write(source.get_range(from, at..end).await?).await
            };
            let copied: Result<()> = copied.await;
            if let Err(error) = copied {
                // The rest of it is invisible.
                let _aborted = writer.abort().await;
                return Err(error);
            }
            at = end;
        }
        writer.finish().await.map(drop)
    }
}
