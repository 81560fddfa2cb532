//! What all operations of the local disk have in common: durability, threads, and the meaning of failures.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use crate::counts::Tally;
use crate::error::{Error, Result};
use crate::listing::Entry;
use crate::parallel::try_blocking;

/// The size from which on a file is made on a worker thread.
pub(super) const MIN_BYTES_FOR_THREAD: u64 = 32 * 1024;

/// The local disk: files by absolute path.
#[derive(Clone)]
pub(crate) struct LocalDisk {
    pub(crate) durable: bool,
    pub(crate) tally: Arc<Tally>,
}

pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    try_blocking(work, |e| Error::internal("a task for the local disk did not finish").caused_by(e)).await
}

/// Does little work on this thread, and more on a worker thread.
pub(super) async fn sized<T: Send + 'static>(
    is_little: bool,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if is_little { work() } else { blocking(work).await }
}

impl LocalDisk {
    /// The disk for files that need not be durable.
    pub(crate) fn not_durable(self) -> Self {
        Self { durable: false, ..self }
    }

    /// Whether a file of `length` bytes is so small that it is made on this thread.
    pub(super) fn is_little(&self, length: u64) -> bool {
        !self.durable && length < MIN_BYTES_FOR_THREAD
    }
}

/// An absolute path, with symbolic links followed in the part that exists.
pub(crate) async fn real_path(path: String) -> Result<String> {
    blocking(move || {
        let path = Path::new(&path);
        for folder in path.ancestors() {
            let real = match fs::canonicalize(folder) {
                Ok(real) => real,
                Err(e) if is_missing(&e) => continue,
                Err(e) => return Err(failed("read", folder, e)),
            };
            let rest = path.strip_prefix(folder).unwrap_or(Path::new(""));
            let real = if rest.as_os_str().is_empty() { real } else { real.join(rest) };
            let not_text = || {
                Error::unsupported(
                    "path that is not UTF-8",
                    "a symbolic link leads to a folder whose name is not UTF-8",
                )
            };
            return real.to_str().map(str::to_owned).ok_or_else(not_text);
        }
        Ok(path.to_string_lossy().into_owned())
    })
    .await
}

pub(super) fn entry(name: String, metadata: &fs::Metadata) -> Entry {
    let millis = |d: std::time::Duration| i64::try_from(d.as_millis()).unwrap_or(i64::MAX);
    let modified_ms = match metadata.modified().map(|time| time.duration_since(UNIX_EPOCH)) {
        Ok(Ok(after)) => millis(after),
        Ok(Err(before)) => -millis(before.duration()),
        Err(_) => 0,
    };
    Entry { name, size: metadata.len(), modified_ms }
}

pub(super) fn folder_of(path: &Path) -> Result<&Path> {
    path.parent().ok_or_else(|| Error::corrupt("the root of the file system is not a file"))
}

/// Creates `folder` and missing folders above it. Each entry is synced in its parent folder.
pub(super) fn create_folder(folder: &Path, durable: bool) -> io::Result<()> {
    let missing: Vec<&Path> = folder.ancestors().take_while(|ancestor| !ancestor.exists()).collect();
    for new in missing.into_iter().rev() {
        match fs::create_dir(new) {
            // Another process created it, and may not have synced it yet.
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            other => other?,
        }
        if let Some(parent) = new.parent() {
            sync_folder(parent, durable)?;
        }
    }
    Ok(())
}

pub(super) fn sync_folder(folder: &Path, durable: bool) -> io::Result<()> {
    if !durable || !cfg!(unix) {
        return Ok(());
    }
    match File::open(folder)?.sync_all() {
        // Some file systems cannot sync a folder; there is no other way on those.
        Err(e) if is_unsupported(&e) => Ok(()),
        other => other,
    }
}

pub(super) fn is_missing(error: &io::Error) -> bool {
    // If there is a file instead of a folder, there is no file below it, either.
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// The error with the path and the remedy.
pub(super) fn failed(action: &str, path: &Path, error: io::Error) -> Error {
    let shown = path.display();
    let folder = path.parent().unwrap_or(path).display();
    let error_of = match error.kind() {
        _ if action != "write" && is_missing(&error) => Error::not_found(format!("{shown} does not exist")),
        ErrorKind::PermissionDenied if action == "write" => Error::storage(
            false,
            format!("no permission to write in the folder {folder}; change its permissions or its owner"),
        ),
        ErrorKind::PermissionDenied => {
            Error::storage(false, format!("no permission to {action} {shown}; change its permissions or its owner"))
        }
        ErrorKind::StorageFull => {
            Error::storage(false, format!("the disk that holds {folder} is full; free some space and try again"))
        }
        ErrorKind::QuotaExceeded => {
            Error::storage(false, format!("the disk quota for {folder} is used up; free some space and try again"))
        }
        ErrorKind::ReadOnlyFilesystem => Error::storage(false, format!("the file system of {folder} is read-only")),
        ErrorKind::NotADirectory => {
            Error::storage(false, format!("{folder} cannot be a folder: a part of it is a file"))
        }
        ErrorKind::InvalidFilename => Error::storage(false, format!("the file system cannot hold the name {shown}")),
        ErrorKind::Interrupted | ErrorKind::TimedOut | ErrorKind::WouldBlock | ErrorKind::StaleNetworkFileHandle => {
            Error::storage(true, format!("could not {action} {shown} just now"))
        }
        _ => Error::storage(is_out_of_handles(&error), format!("could not {action} {shown}")),
    };
    error_of.caused_by(error)
}

/// "Too many open files" ends when others are closed.
pub(super) fn is_out_of_handles(error: &io::Error) -> bool {
    #[cfg(unix)]
    {
        use rustix::io::Errno;
        matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
    }
    #[cfg(not(unix))]
    {
        let _ = error;
        false
    }
}

/// A file system may report an unsupported operation as an invalid argument.
pub(super) fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::InvalidInput)
}
