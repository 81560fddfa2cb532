//! Reads a version without its checkpoint, if that is torn or one of its sidecars is missing.
//!
//! Older checkpoints and the commits after them give the same version, if they still exist; a warning says that
//! they were needed. Proved by `tests/python/test_other_writers.py`.

use deltic_protocol::log::segment::{Checkpoint, LogFile, Segment};

use super::Snapshot;
use crate::error::{Error, Result};
use crate::events::TARGET;
use crate::log::LogSource;

impl Snapshot {
    /// Opens the version from files older than the checkpoint, which cannot be read.
    ///
    /// # Errors
    /// The error of reading the checkpoint, if the version cannot be read without it.
    pub(super) async fn without_checkpoint(
        log: &LogSource,
        version: u64,
        mut damaged: Option<Checkpoint>,
        error: Error,
    ) -> Result<Self> {
        let Ok(mut listing) = log.list(0).await else { return Err(error) };
        let (newest, location) = (damaged.as_ref().map(|checkpoint| checkpoint.version), log.location());
        let is_listed = |file: &LogFile| listing.contains(file);
        let error = match &damaged {
            _ if error.is_corrupt() => error,
            Some(checkpoint) if checkpoint.files.iter().all(is_listed) => {
                Error::corrupt("a file that the checkpoint names is missing; restore it").caused_by(error)
            }
            // The log was cleaned, or belongs to another table by now.
            _ => return Err(error),
        };
        while let Some(checkpoint) = damaged {
            listing.retain(|file| !checkpoint.files.iter().any(|gone| gone.file_name == file.file_name));
            let Ok(older) = Segment::choose(&listing, Some(version), true) else { return Err(error) };
            damaged = older.checkpoint.clone();
            let opened = async {
                let opened = Self::load_segment(log, older).await?;
                // If there is a checksum, this checkpoint has not been read yet.
                if let Some(open) = opened.checkpoint().await? {
                    open.load_footers().await.map_err(|e| match open.is_gone() {
                        true => Error::corrupt("a file of the checkpoint is missing").caused_by(e),
                        false => e,
                    })?;
                }
                Ok::<_, Error>(opened)
            };
            match opened.await {
                Ok(opened) => {
                    let passed = newest.unwrap_or(checkpoint.version);
                    log::warn!(
                        target: TARGET,
                        "skipped checkpoint {passed} of {location}, which cannot be read: version {version} is read \
                         from older files of the log: {error}"
                    );
                    return Ok(opened);
                }
                Err(e) if e.is_corrupt() => {}
                Err(e) => return Err(e),
            }
        }
        Err(error)
    }

    /// This snapshot, or, if its checkpoint cannot be read, the same version without it. (A snapshot with a checksum
    /// is opened without reading the checkpoint.) Sidecars are not checked.
    ///
    /// # Errors
    /// The error of reading the checkpoint, if the version cannot be read without it.
    pub(crate) async fn with_readable_checkpoint(&self) -> Result<Self> {
        match self.checkpoint().await {
            Ok(_) => Ok(self.clone()),
            Err(error) if error.is_corrupt() => self.past_checkpoint(error).await,
            Err(error) => Err(error),
        }
    }

    /// As [`Snapshot::with_readable_checkpoint`], but the sidecars are checked too, for callers that read every file of the
    /// checkpoint.
    ///
    /// # Errors
    /// Those of [`Snapshot::with_readable_checkpoint`].
    pub(crate) async fn with_readable_sidecars(&self) -> Result<Self> {
        let sound = self.with_readable_checkpoint().await?;
        let loaded = match sound.checkpoint().await? {
            Some(open) => open.load_footers().await,
            None => Ok(()),
        };
        match loaded {
            Ok(()) => Ok(sound),
            Err(error) if error.is_corrupt() || sound.is_gone() => sound.past_checkpoint(error).await,
            Err(error) => Err(error),
        }
    }

    async fn past_checkpoint(&self, error: Error) -> Result<Self> {
        let (checkpoint, reason) = (self.segment().checkpoint.clone(), error.to_string());
        let opened = Self::without_checkpoint(self.log(), self.version(), checkpoint, error).await?;
        // A new table may have been made at the same location.
        match opened.metadata().id == self.metadata().id {
            // The metadata of this snapshot may not be in the log: see [`Snapshot::with_metadata`].
            true => opened.with_metadata(self.protocol().clone(), self.metadata().clone()).await,
            false => Err(Error::corrupt(format!(
                "there is a new table at this location, and the checkpoint of this one cannot be read: {reason}"
            ))),
        }
    }
}
