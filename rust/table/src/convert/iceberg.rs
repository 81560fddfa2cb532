//! Where the newest metadata of an Iceberg table is, and the bytes of what it names; others read them.
//!
//! Iceberg's specification: "Table Metadata", "File System Tables".

use bytes::Bytes;
use deltic_protocol::error::{Error, Result};
use futures::TryStreamExt;

use crate::storage::Storage;

/// The folder of it.
const FOLDER: &str = "metadata";

/// What the names of metadata files end with.
const ENDING: &str = ".metadata.json";

/// The file that may say which one is the newest.
const HINT: &str = "metadata/version-hint.text";

/// The newest metadata file of the Iceberg table at `storage`, below its root; none if there is no such table.
///
/// # Errors
/// `Invalid` where several may be the newest; those of the store.
pub async fn newest_metadata(storage: &Storage) -> Result<Option<String>> {
    let files = storage.list_recursive(FOLDER);
    let is_metadata = |path: &str| path.ends_with(ENDING) && path.matches('/').count() == 1;
    let paths = files.try_fold(Vec::new(), |mut paths, file| async move {
        if is_metadata(&file.path) {
            paths.push(file.path);
        }
        Ok(paths)
    });
    let mut paths: Vec<String> = paths.await.map_err(|e| e.in_table(storage.location()))?;
    if paths.is_empty() {
        return Ok(None);
    }
    if let Some(hinted) = hinted(storage, &paths).await {
        return Ok(Some(hinted));
    }
    let newest = paths.iter().map(|path| number(path)).max().flatten();
    paths.retain(|path| number(path) == newest);
    match (paths.pop(), paths.pop()) {
        (Some(one), None) => Ok(Some(one)),
        (Some(one), Some(other)) => Err(Error::invalid(format!(
            "`{one}` and `{other}` may both be the newest metadata of the Iceberg table; pass the location of the one that \
             its catalog names"
        ))
        .in_table(storage.location())),
        (None, _) => Ok(None),
    }
}

/// Bytes of a file that such metadata names, by a path or URI that is not encoded.
///
/// # Errors
/// `Unsupported` if it is in a store that a table at `storage` may not name; those of the store.
pub async fn read_named(storage: &Storage, path: &str) -> Result<Bytes> {
    let read = storage.get(&literal(path)).await;
    read.map_err(|e| e.in_file(path).in_table(storage.location()))
}

/// A path or URI as other formats write it, as stores take it.
pub(super) fn literal(path: &str) -> String {
    path.strip_prefix("file://").map_or_else(|| path.to_owned(), |rest| format!("file:{rest}"))
}

/// What the hint says, if that is there; a hint is no more than that.
async fn hinted(storage: &Storage, paths: &[String]) -> Option<String> {
    let bytes = storage.get(HINT).await.ok()?;
    let version = std::str::from_utf8(&bytes).ok()?.trim();
    let names =
        [format!("{FOLDER}/v{version}{ENDING}"), format!("{FOLDER}/{version}"), format!("{FOLDER}/{version}{ENDING}")];
    names.into_iter().find(|name| paths.contains(name))
}

/// The version in a name such as `v3.metadata.json` or `00003-<id>.metadata.json`.
fn number(path: &str) -> Option<u64> {
    let name = path.rsplit('/').next()?.trim_start_matches('v');
    let digits = name.find(|c: char| !c.is_ascii_digit()).and_then(|end| name.get(..end))?;
    digits.parse().ok()
}
