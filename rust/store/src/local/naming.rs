//! How a file of the local disk comes to its name, whole or not at all.
//!
//! It grows under a temporary name, and gets its own by a link or an exclusive rename: of several that want one name, one
//! has it. What writers left that were killed is deleted when it is old.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::disk::{create_folder, entry, failed, folder_of, is_unsupported, sync_folder};
use crate::error::{Error, Result};
use crate::put::{Body, Put};

/// What the names of unfinished files begin with.
pub(super) const TEMPORARY: &str = ".tmp-";

/// An unfinished file; deleted unless it is kept, under whatever name it has.
pub(super) struct Temporary {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) kept: bool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.kept {
            // What cannot be deleted stays behind under a name that readers ignore, or that nothing refers to.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Temporary {
    /// Opens a file beside `target`, creating its folder when that is missing.
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

    /// Takes the final name, in the place of any file that has it.
    pub(super) fn replace(mut self, target: &Path, durable: bool) -> Result<()> {
        self.sync(durable)?;
        self.rename(target)?;
        self.kept = true;
        sync_folder(folder_of(target)?, durable).map_err(|e| failed("write", target, e))
    }

    pub(super) fn rename(&mut self, target: &Path) -> Result<()> {
        fs::rename(&self.path, target).map_err(|e| failed("write", target, e))?;
        target.clone_into(&mut self.path);
        Ok(())
    }

    /// What it means that neither a link nor an exclusive rename gave the name.
    pub(super) fn not_renamed(&mut self, target: &Path, error: io::Error, of_link: io::Error) -> Result<Put> {
        // A network file system may report an error for what it did.
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

    /// Whether a second name of the file exists: a network file system may report an error for a link that it made.
    fn is_linked(&self) -> bool {
        #[cfg(unix)]
        return self.file.metadata().is_ok_and(|m| std::os::unix::fs::MetadataExt::nlink(&m) > 1);
        #[cfg(not(unix))]
        return false;
    }
}

/// The whole file under a temporary name, synced; `None` if its name is taken.
pub(super) fn prepare(target: &Path, body: Body, durable: bool) -> Result<Option<Temporary>> {
    // Spares the loser of a race that is already over its two syncs; what decides is the link.
    if fs::symlink_metadata(target).is_ok() {
        return Ok(None);
    }
    let mut temporary = Temporary::create(target, durable)?;
    for piece in body.pieces {
        temporary.write(&piece?)?;
    }
    temporary.sync(durable)?;
    Ok(Some(temporary))
}

/// Gives a file its name, unless that is taken: by a link, or where links are not to be had by an exclusive rename.
pub(super) fn give_name(temporary: Temporary, target: &Path, durable: bool) -> Result<Put> {
    give_name_by(temporary, target, durable, (|from: &Path, to: &Path| fs::hard_link(from, to), rename_if_absent))
}

/// As [`give_name`], by these ways of giving a name.
pub(super) fn give_name_by(
    mut temporary: Temporary,
    target: &Path,
    durable: bool,
    (link, rename): (impl Fn(&Path, &Path) -> io::Result<()>, impl Fn(&Path, &Path) -> io::Result<()>),
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
        // The name is there for all to see, but may not be after a power cut.
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

/// What an error of giving a name says about the next attempt. Only what is known to pass is worth waiting for: a file
/// system may refuse what it cannot do with any error there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// The name has a file.
    Taken,
    /// It may have been done, and may go better in a moment.
    Passing,
    /// Nothing was done, and no other way would do.
    ForGood,
    /// Perhaps because this cannot be done here: another way may be there.
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
            // EPERM is not EACCES: the folder is writable, or the temporary file would not exist.
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

/// The operation as such is not permitted.
fn is_not_permitted(error: &io::Error) -> bool {
    #[cfg(unix)]
    return rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::PERM);
    #[cfg(not(unix))]
    {
        let _ = error;
        false
    }
}

/// A name that [`Temporary::create`] gives.
fn is_temporary(name: &str) -> bool {
    name.strip_prefix(TEMPORARY).is_some_and(|id| uuid::Uuid::try_parse(id).is_ok())
}

/// What cannot be listed or deleted stays, and does no harm.
pub(super) fn delete_unfinished(dir: &Path, before_ms: i64) -> u64 {
    let mut deleted = 0;
    for item in fs::read_dir(dir).into_iter().flatten().flatten() {
        let is_ours = item.file_name().to_str().is_some_and(is_temporary);
        let is_old =
            |metadata: fs::Metadata| metadata.is_file() && entry(String::new(), &metadata).modified_ms < before_ms;
        // Not that of what a link leads to.
        if is_ours && item.metadata().is_ok_and(is_old) && fs::remove_file(item.path()).is_ok() {
            deleted += 1;
        }
    }
    deleted
}
