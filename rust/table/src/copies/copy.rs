//! Copies files, many at once. A file that exists already under a unique name is not copied again, so that an interrupted
//! copy can be continued.

use futures::stream::{self, StreamExt, TryStreamExt};

use crate::commit::{RetryPolicy, stop_if_cancelled};
use crate::error::{Error, Result};
use crate::parallel::run_to_end;
use crate::progress::{Progress, Unit};
use deltic_store::{Stop, Storage};

/// Files that are copied at once; each holds a piece of 8 MiB.
const CONCURRENT_COPIES: usize = 16;

/// A file to be copied, by the paths that the two stores take.
#[derive(Debug, Clone)]
pub(super) struct Copying {
    pub(super) from: String,
    pub(super) to: String,
    /// Its size in bytes, if the log has it.
    pub(super) size: Option<u64>,
}

/// Copies the files. Returns how many were copied, and their bytes: without those that existed already. No copy is in progress
/// after an error: those that were have ended, or left no file.
pub(super) async fn copy_all(
    source: &Storage,
    target: &Storage,
    files: Vec<Copying>,
    retry: &dyn RetryPolicy,
) -> Result<(u64, u64)> {
    let progress = &Progress::begin("CLONE", Unit::Files, Some(files.len() as u64));
    let stop = &Stop::default();
    let one = |file: Copying| async move {
        let copied = copy(source, target, file, stop).await?;
        progress.advance(1);
        Ok(copied)
    };
    let all = async {
        match run_to_end(files.into_iter().map(one), CONCURRENT_COPIES, stop).await {
            (copied, None) => Ok(copied.into_iter().fold((0, 0), plus)),
            (_, Some(error)) => Err(error),
        }
    };
    let interrupted = || "interrupted: nothing was committed; the next run takes the files that were copied".to_owned();
    stop_if_cancelled(all, stop, retry, interrupted).await
}

/// How many files [`copy_all`] would copy, and their bytes.
pub(super) async fn count_all(source: &Storage, target: &Storage, files: Vec<Copying>) -> Result<(u64, u64)> {
    let progress = Progress::begin("CLONE", Unit::Files, Some(files.len() as u64));
    let one = |file: Copying| async move { bytes_to_copy(source, target, &file).await };
    let sizes = stream::iter(files).map(one).buffer_unordered(CONCURRENT_COPIES).inspect_ok(|_| progress.advance(1));
    sizes.try_fold((0, 0), |counted, size| async move { Ok(plus(counted, size)) }).await
}

fn plus((files, bytes): (u64, u64), size: Option<u64>) -> (u64, u64) {
    size.map_or((files, bytes), |size| (files + 1, bytes.saturating_add(size)))
}

/// Copies a file, and returns its bytes; none if it existed already.
async fn copy(source: &Storage, target: &Storage, file: Copying, stop: &Stop) -> Result<Option<u64>> {
    let Some(size) = bytes_to_copy(source, target, &file).await? else { return Ok(None) };
    let copied = target.copy_unless_stopped(source, &file.from, &file.to, size, stop).await;
    copied.map_err(|e| missing_file(e, source, &file.from))?;
    Ok(Some(size))
}

/// The bytes of a file that is to be copied; none if the copy exists already.
async fn bytes_to_copy(source: &Storage, target: &Storage, file: &Copying) -> Result<Option<u64>> {
    let found = async || match source.head(&file.from).await {
        Ok(found) => Ok(found.size),
        Err(e) => Err(missing_file(e, source, &file.from)),
    };
    let size = match file.size {
        Some(size) => size,
        None => found().await?,
    };
    match target.head(&file.to).await {
        Ok(found) if found.size == size && has_uuid(&file.to) => return Ok(None),
        // On Azure a copy that is still pending is an empty file.
        Ok(found) if found.size == 0 && has_uuid(&file.to) => {}
        Ok(_) => {
            let message = "there is a file of this name already, which may be different; clone to another location";
            return Err(Error::invalid(message).in_table(target.location()).in_file(&file.to));
        }
        Err(e) if e.is_not_found() => {}
        Err(e) => return Err(e),
    }
    if let Some(size) = file.size {
        // Of a larger file only a part would be copied, and the clone would not notice.
        let found = found().await?;
        if found != size {
            let message = format!("the log says that the file has {size} bytes, and it has {found}");
            return Err(Error::corrupt(message).in_table(source.location()).in_file(&file.from));
        }
    }
    Ok(Some(size))
}

/// The error for a file that the log names and the store does not have.
fn missing_file(error: Error, source: &Storage, path: &str) -> Error {
    if !error.is_not_found() {
        return error;
    }
    let message = "the log names a file that is gone; if VACUUM removed it, clone a later version of the table";
    // The error of the store is left out, since it would name the file again.
    Error::corrupt(message).in_table(source.location()).in_file(path)
}

/// Whether the name of a file, without its folders, has a UUID in its string form.
fn has_uuid(path: &str) -> bool {
    let is_uuid = |bytes: &[u8]| {
        bytes.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    let name = path.rsplit('/').next().unwrap_or(path);
    name.as_bytes().windows(36).any(is_uuid)
}
