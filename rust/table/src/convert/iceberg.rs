//! Finds the newest metadata file of an Iceberg table, and reads bytes of the files that it names. Python parses them.
//!
//! A file name does not prove that the file is the newest. If names, hint and times do not settle it, the table is refused.
//!
//! Iceberg's specification: "Table Metadata", "File System Tables".

use bytes::Bytes;
use deltic_protocol::error::{Error, Result};
use futures::TryStreamExt;
use uuid::Uuid;

use deltic_store::{FileMeta, Storage};

/// The folder of an Iceberg table's metadata.
const FOLDER: &str = "metadata";

/// Suffixes of the names of metadata files, longer ones first.
const ENDINGS: [&str; 3] = [".gz.metadata.json", ".metadata.json.gz", ".metadata.json"];

/// The hint: a file with the newest version at the time when it was written.
const HINT: &str = "metadata/version-hint.text";

/// Advice in errors that are raised if the newest metadata file is not certain.
const INSTEAD: &str = "pass the metadata file that the catalog names";

/// The metadata of an Iceberg table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundMetadata {
    /// The newest file, below the table's root.
    pub newest: String,
    /// The one that was written before it, if there is one.
    pub before: Option<String>,
    /// All metadata files.
    pub files: Vec<String>,
}

/// The newest metadata file of the Iceberg table at `storage`; none if there is no such table.
///
/// # Errors
/// `Invalid` if the newest metadata file is not certain; those of the store.
pub async fn newest_metadata(storage: &Storage) -> Result<Option<FoundMetadata>> {
    let found = async {
        let mut files = list(storage).await?;
        if files.is_empty() {
            return Ok(None);
        }
        let newest = newest(storage, &files).await?;
        files.sort_by_key(|file| file.modified_ms);
        let before = files.iter().rev().find(|file| file.path != newest).map(|file| file.path.clone());
        Ok(Some(FoundMetadata { newest, before, files: files.into_iter().map(|file| file.path).collect() }))
    };
    found.await.map_err(|e: Error| e.in_table(storage.location()))
}

/// All metadata files of the Iceberg table at `storage`.
///
/// # Errors
/// Those of the store.
pub async fn metadata_files(storage: &Storage) -> Result<Vec<String>> {
    let files = list(storage).await.map_err(|e| e.in_table(storage.location()))?;
    Ok(files.into_iter().map(|file| file.path).collect())
}

/// Refuses a table that has metadata files which are not in `before`.
pub(super) async fn check_unchanged(storage: &Storage, before: &[String]) -> Result<()> {
    match metadata_files(storage).await?.into_iter().find(|path| !before.contains(path)) {
        None => Ok(()),
        Some(path) => Err(Error::invalid(format!(
            "the Iceberg table was written meanwhile: `{path}` is new; stop its writers and convert again"
        ))
        .in_table(storage.location())),
    }
}

async fn list(storage: &Storage) -> Result<Vec<FileMeta>> {
    let is_metadata = |path: &str| is_metadata(path) && path.matches('/').count() == 1;
    let files = storage.list_recursive(FOLDER);
    files.try_filter(|file| std::future::ready(is_metadata(&file.path))).try_collect().await
}

/// Whether a name is one of a metadata file.
pub(super) fn is_metadata(path: &str) -> bool {
    ENDINGS.iter().any(|ending| path.ends_with(ending))
}

async fn newest(storage: &Storage, files: &[FileMeta]) -> Result<String> {
    let hinted = hinted(storage).await?;
    let newest = match files {
        [one] if hinted.as_ref().is_none_or(|hinted| hinted.names(&one.path)) => one,
        _ => of_largest_number(files, hinted.as_ref())?,
    };
    if let Some(later) = files.iter().find(|file| file.modified_ms > newest.modified_ms) {
        return Err(Error::invalid(format!(
            "by its name `{}` is the newest metadata of the Iceberg table, and `{}` was written after it: it may be of another \
             table that was here before, or of a commit that failed; {INSTEAD}",
            newest.path, later.path
        )));
    }
    Ok(newest.path.clone())
}

/// The file with the largest number in its name. The hint may name an older version: it is written after the commit, or not at
/// all if the writer dies in between.
fn of_largest_number<'a>(files: &'a [FileMeta], hinted: Option<&Hint>) -> Result<&'a FileMeta> {
    let mut versions = Vec::with_capacity(files.len());
    for file in files {
        let Some(version) = Version::of(&file.path) else {
            return Err(Error::invalid(format!(
                "the name of `{}` has no number, so that it cannot be told which metadata of the Iceberg table is the \
                 newest; {INSTEAD}",
                file.path
            )));
        };
        versions.push((version, file));
    }
    let is_counted = |(version, _): &(Version, _)| matches!(version, Version::Counted(_));
    if let (Some((_, one)), Some((_, other))) =
        (versions.iter().find(|file| is_counted(file)), versions.iter().find(|file| !is_counted(file)))
    {
        let (one, other) = (&one.path, &other.path);
        return Err(Error::invalid(format!("`{one}` and `{other}` are numbered by different rules; {INSTEAD}")));
    }
    let Some(largest) = versions.iter().map(|(version, _)| *version).max() else {
        return Err(Error::internal("there is no metadata to choose from"));
    };
    if let Some(hint) = hinted.filter(|hint| hint.version().is_none_or(|version| version > largest)) {
        return Err(Error::invalid(format!("`{HINT}` says `{}`, and there is no such metadata; {INSTEAD}", hint.0)));
    }
    let mut candidates: Vec<&FileMeta> =
        versions.into_iter().filter(|(version, _)| *version == largest).map(|(_, file)| file).collect();
    if candidates.len() > 1
        && let Some(hint) = hinted
        && candidates.iter().any(|file| hint.names(&file.path))
    {
        candidates.retain(|file| hint.names(&file.path));
    }
    match candidates.as_slice() {
        [one] => Ok(one),
        [one, other, ..] => Err(Error::invalid(format!(
            "`{}` and `{}` may both be the newest metadata of the Iceberg table; {INSTEAD}",
            one.path, other.path
        ))),
        [] => Err(Error::internal("there is no metadata to choose from")),
    }
}

/// The content of the hint.
struct Hint(String);

impl Hint {
    /// The name without its ending.
    fn stem(&self) -> String {
        let name = stem(&self.0);
        if name.bytes().all(|c| c.is_ascii_digit()) { format!("v{name}") } else { name.to_owned() }
    }

    fn names(&self, path: &str) -> bool {
        self.stem() == stem(path)
    }

    fn version(&self) -> Option<Version> {
        Version::of(&self.stem())
    }
}

/// Reads the hint, if it exists and has content.
async fn hinted(storage: &Storage) -> Result<Option<Hint>> {
    let bytes = match storage.get(HINT).await {
        Ok(bytes) => bytes,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error),
    };
    let text = std::str::from_utf8(&bytes).map_err(|_| {
        Error::invalid(format!("`{HINT}` is not text, so that it does not say which metadata is the newest; {INSTEAD}"))
    })?;
    // A writer that dies while writing may leave an empty one.
    Ok(Some(text.trim()).filter(|text| !text.is_empty()).map(|text| Hint(text.to_owned())))
}

/// The version number in a name. Tables without a catalog number their files differently from catalogs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    /// `v3.metadata.json`.
    Counted(u64),
    /// `00003-<UUID>.metadata.json`.
    OfCatalog(u64),
}

impl Version {
    fn of(path: &str) -> Option<Self> {
        let name = stem(path);
        if let Some(digits) = name.strip_prefix('v') {
            return number(digits).map(Self::Counted);
        }
        let (digits, id) = name.split_once('-')?;
        let is_id = id.len() == 36 && Uuid::parse_str(id).is_ok();
        number(digits).filter(|_| is_id).map(Self::OfCatalog)
    }
}

fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|c| c.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// The name of a metadata file without folder and ending.
fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    ENDINGS.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name)
}

/// Reads a file that Iceberg metadata names by a path or URI that is not encoded.
///
/// # Errors
/// `Unsupported` if it is in a store that a table at `storage` may not name; those of the store.
pub async fn read_named(storage: &Storage, path: &str) -> Result<Bytes> {
    let read = storage.get(&literal(path)).await;
    read.map_err(|e| e.in_file(path).in_table(storage.location()))
}

/// A path or URI of another format's metadata in the form that stores take.
pub(super) fn literal(path: &str) -> String {
    path.strip_prefix("file://").map_or_else(|| path.to_owned(), |rest| format!("file:{rest}"))
}
