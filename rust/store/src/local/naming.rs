//! Gives files of the local disk their names atomically.
//!
//! A file is written under a temporary name, and gets its own by a link or an exclusive rename: of several that want one
//! name, only one gets it. Unfinished files of killed writers are deleted when they are old.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::disk::{create_folder, entry, failed, folder_of, is_unsupported, sync_folder};
use crate::error::{Error, Result};
use crate::put::{Body, Put};

/// The prefix of the names of unfinished files.
pub(super) const TEMPORARY: &str = ".tmp-";

/// An unfinished file. When this is dropped, the file is deleted, whatever its name, unless it is kept.
pub(super) struct Temporary {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) kept: bool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.kept {
            // A file that cannot be deleted has a name that readers ignore, or that nothing refers to.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Temporary {
    /// Creates a file beside `target`, and its folder if that is missing.
    pub(super) fn create(target: &Path, durable: bool) -> Result<Self> {
        let folder = folder_of(target)?;
        let path = folder.join(format!("{TEMPORARY}{}", uuid::Uuid::new_v4()));
        let open = || OpenOptions::new().write(true).create_new(true).open(&path);
        let opened = match open() {
            Err(e) if e.kind() == ErrorKind::NotFound => create_folder(folder, durable).and_then(|()| open()),
            other => other,
        };
        let file = opened.map_err(|e| failed("write", target, e))?;
        Ok(Self { path, file, kept: false })
    }

    pub(super) fn write(&mut self, data: &[u8]) -> Result<()> {
        self.file.write_all(data).map_err(|e| failed("write", &self.path, e))
    }

    pub(super) fn sync(&self, durable: bool) -> Result<()> {
        if durable { self.file.sync_all().map_err(|e| failed("write", &self.path, e)) } else { Ok(()) }
    }

    /// Renames the file to its final name, and replaces any file with that name.
    pub(super) fn replace(mut self, target: &Path, durable: bool) -> Result<()> {
        self.sync(durable)?;
        self.rename(target)?;
        self.kept = true;
        sync_folder(folder_of(target)?, durable).map_err(|e| failed("write", target, e))
    }

    pub(super) fn rename(&mut self, target: &Path) -> Result<()> {
        delete_hadoop_checksum(target).map_err(|e| failed("write", target, e))?;
        fs::rename(&self.path, target).map_err(|e| failed("write", target, e))?;
        target.clone_into(&mut self.path);
        Ok(())
    }

    /// The outcome if both the link and the exclusive rename failed.
    pub(super) fn not_renamed(&mut self, target: &Path, error: io::Error, of_link: io::Error) -> Result<Put> {
        // A network file system may report an error although it has renamed the file.
        if fs::symlink_metadata(&self.path).is_err_and(|e| e.kind() == ErrorKind::NotFound) {
            self.kept = true;
            return Ok(Put::Unknown(failed("write", target, error)));
        }
        match Refused::of(&error) {
            Refused::Taken => Ok(Put::Exists),
            Refused::Passing => Ok(Put::Unknown(failed("write", target, error))),
            Refused::ForGood => Err(failed("write", target, error)),
            Refused::ThisWay if is_unsupported(&error) || is_not_permitted(&error) => Err(Error::unsupported(
                "conditional put",
                format!(
                    "this file system has neither hard links ({of_link}) nor an exclusive rename ({error}), so concurrent \
                     commits could overwrite each other; keep the table on another file system"
                ),
            )
            .caused_by(error)),
            Refused::ThisWay => Err(failed("write", target, error)),
        }
    }

    /// Whether the file has a second name: a network file system may report an error although it has made the link.
    fn is_linked(&self) -> bool {
        #[cfg(unix)]
        return self.file.metadata().is_ok_and(|m| std::os::unix::fs::MetadataExt::nlink(&m) > 1);
        #[cfg(not(unix))]
        return false;
    }
}

/// Deletes `.<name>.crc`, in which Hadoop keeps the checksum of a file on a local disk, before a file gets the name. Spark
/// refuses a file that does not match its checksum, and reads one that has none.
fn delete_hadoop_checksum(of: &Path) -> io::Result<()> {
    let Some(name) = of.file_name() else { return Ok(()) };
    let mut checksum = OsString::from(".");
    checksum.push(name);
    checksum.push(".crc");
    match fs::remove_file(of.with_file_name(checksum)) {
        // If `.<name>.crc` is too long for a file name, there is no checksum.
        Err(e) if e.kind() != ErrorKind::NotFound && e.kind() != ErrorKind::InvalidFilename => Err(e),
        _ => Ok(()),
    }
}

/// Writes and syncs the file under a temporary name; `None` if the final name is taken.
pub(super) fn prepare(target: &Path, body: Body, durable: bool) -> Result<Option<Temporary>> {
    // Saves two syncs if the name is taken already; the link decides.
    if fs::symlink_metadata(target).is_ok() {
        return Ok(None);
    }
    // A file that was deleted by hand leaves its checksum, since that is hidden.
    delete_hadoop_checksum(target).map_err(|e| failed("write", target, e))?;
    let mut temporary = Temporary::create(target, durable)?;
    for piece in body.pieces {
        temporary.write(&piece?)?;
    }
    temporary.sync(durable)?;
    Ok(Some(temporary))
}

/// Gives a file its name, unless that is taken: by a link, or by an exclusive rename if links are not possible.
pub(super) fn give_name(temporary: Temporary, target: &Path, durable: bool) -> Result<Put> {
    give_name_by(temporary, target, durable, |from: &Path, to: &Path| fs::hard_link(from, to), rename_if_absent)
}

/// As [`give_name`], with these functions for linking and renaming.
pub(super) fn give_name_by(
    mut temporary: Temporary,
    target: &Path,
    durable: bool,
    link: impl Fn(&Path, &Path) -> io::Result<()>,
    rename: impl Fn(&Path, &Path) -> io::Result<()>,
) -> Result<Put> {
    if let Err(error) = link(&temporary.path, target)
        && !temporary.is_linked()
    {
        match Refused::of(&error) {
            Refused::Taken => return Ok(Put::Exists),
            Refused::Passing => return Ok(Put::Unknown(failed("write", target, error))),
            Refused::ForGood => return Err(failed("write", target, error)),
            Refused::ThisWay => match rename(&temporary.path, target) {
                Ok(()) => temporary.kept = true,
                Err(again) => return temporary.not_renamed(target, again, error),
            },
        }
    }
    drop(temporary);
    match sync_folder(folder_of(target)?, durable) {
        Ok(()) => Ok(Put::Created),
        // The file is visible, but may be missing after a power cut.
        Err(e) => Ok(Put::Unknown(failed("sync", target, e))),
    }
}

/// Renames unless the new name is taken, in one step.
#[cfg(any(target_os = "linux", target_os = "macos"))]
pub(super) fn rename_if_absent(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn rename_if_absent(_from: &Path, _to: &Path) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

/// What an error of linking or renaming means for the next attempt. Only errors that are known to be temporary are retried:
/// a file system may report an unsupported operation by any error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// The name is taken.
    Taken,
    /// It may have been done, and a later attempt may succeed.
    Passing,
    /// Nothing was done, and no other way would succeed.
    ForGood,
    /// This way may not be supported here: another one may be.
    ThisWay,
}

impl Refused {
    pub(super) fn of(error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::AlreadyExists => Self::Taken,
            ErrorKind::Interrupted
            | ErrorKind::TimedOut
            | ErrorKind::WouldBlock
            | ErrorKind::StaleNetworkFileHandle
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NetworkDown
            | ErrorKind::NotConnected => Self::Passing,
            // EPERM differs from EACCES: the folder is writable, or the temporary file would not exist.
            ErrorKind::PermissionDenied if is_not_permitted(error) => Self::ThisWay,
            ErrorKind::NotFound
            | ErrorKind::PermissionDenied
            | ErrorKind::StorageFull
            | ErrorKind::QuotaExceeded
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::NotADirectory
            | ErrorKind::InvalidFilename => Self::ForGood,
            _ => Self::ThisWay,
        }
    }
}

/// Whether the operation itself is not permitted.
fn is_not_permitted(error: &io::Error) -> bool {
    #[cfg(unix)]
    return rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::PERM);
    #[cfg(not(unix))]
    {
        let _ = error;
        false
    }
}

/// Whether it is a name by [`Temporary::create`].
fn is_temporary(name: &str) -> bool {
    name.strip_prefix(TEMPORARY).is_some_and(|id| uuid::Uuid::try_parse(id).is_ok())
}

/// Files that cannot be listed or deleted stay, and do no harm.
pub(super) fn delete_unfinished(dir: &Path, before_ms: i64) -> u64 {
    let mut deleted = 0;
    for item in fs::read_dir(dir).into_iter().flatten().flatten() {
        let is_ours = item.file_name().to_str().is_some_and(is_temporary);
        let is_old =
            |metadata: fs::Metadata| metadata.is_file() && entry(String::new(), &metadata).modified_ms < before_ms;
        // The metadata of a link itself, not of its target.
        if is_ours && item.metadata().is_ok_and(is_old) && fs::remove_file(item.path()).is_ok() {
            deleted += 1;
        }
    }
    deleted
}
