//! The files that a vacuum keeps: those of every version within the retention.
//!
//! These are the files of the newest version, files with young tombstones, and files that a commit within the retention
//! removed or recorded as change files, since tombstones have the time of their writer's clock, and checkpoints may lack
//! them. Of commits after the version that was read, also the files that they added. A file that was changed within the
//! retention always stays: its writer may not have committed yet.
//!
//! Invariant: every version that was current within the retention can be read after a vacuum (the simulation,
//! `tests/rust/simulation/vacuum.rs`, deletes beside readers and writers).
//!
//! PROTOCOL.md: "Add File and Remove File", "Add CDC File", "Deletion Vectors".

use crate::action::Cdc;
use crate::action::batch::AddBatch;
use crate::deletion_vector::{DeletionVectorPath, Source, source};
use crate::error::Result;

/// What decides which files a vacuum keeps.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// When the retention begins, in milliseconds since the epoch.
    pub cutoff_ms: i64,
    /// The version that was current then; `None` if the log does not say.
    pub current: Option<u64>,
    /// The newest version that was read.
    pub newest: u64,
}

/// A file in the store that stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeptFile<'a> {
    /// A data file or a change file, by its path as the log spells it.
    Data(&'a str),
    /// A file of deletion vectors.
    Vectors(DeletionVectorPath),
}

/// A function that is called with each file that a vacuum keeps, possibly several times with the same file.
pub type Keep<'k> = &'k mut dyn FnMut(KeptFile<'_>) -> Result<()>;

/// Whether a file was modified before the cutoff, so long ago that no writer will still commit it. Both times are milliseconds
/// since 1970.
pub fn is_before_cutoff(modified_ms: i64, cutoff_ms: i64) -> bool {
    modified_ms < cutoff_ms
}

impl Retention {
    /// Files with younger tombstones stay. A file with a tombstone as old as the cutoff was removed in the version that was
    /// current then.
    pub fn tombstones_after_ms(&self) -> i64 {
        self.cutoff_ms.saturating_sub(1)
    }

    /// The first commit whose removed files stay.
    pub fn first_commit(&self) -> u64 {
        self.current.map_or(0, |version| version.saturating_add(1))
    }

    /// Keeps live files of the newest version, and files with young tombstones.
    ///
    /// # Errors
    /// Those of `keep`, and `Corrupt` for a deletion vector that cannot be read, naming the file.
    pub fn keep_files(&self, files: &AddBatch, keep: Keep<'_>) -> Result<()> {
        for row in 0..files.len() {
            let path = files.path().value(row);
            let mut file = || {
                keep(KeptFile::Data(path))?;
                match files.deletion_vector(row)?.map(|descriptor| source(&descriptor)).transpose()? {
                    Some(Source::File { path, .. }) => keep(KeptFile::Vectors(path)),
                    Some(Source::Inline(_)) | None => Ok(()),
                }
            };
            file().map_err(|e| e.in_file(path))?;
        }
        Ok(())
    }

    /// Keeps the files that a commit from [`Retention::first_commit`] on removed or recorded; of a commit after the newest
    /// version also the files that it added.
    ///
    /// # Errors
    /// As [`Retention::keep_files`].
    pub fn keep_files_of_commit<'c>(
        &self,
        version: u64,
        adds: &AddBatch,
        removes: &AddBatch,
        cdc: impl IntoIterator<Item = &'c Cdc>,
        keep: Keep<'_>,
    ) -> Result<()> {
        if version > self.newest {
            self.keep_files(adds, keep)?;
        }
        self.keep_files(removes, keep)?;
        cdc.into_iter().try_for_each(|change| keep(KeptFile::Data(&change.path)).map_err(|e| e.in_file(&change.path)))
    }
}
