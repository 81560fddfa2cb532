//! The storage of a table: each call resolves a path to its backend, and adds the table and the file to errors.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};

use crate::cloud::remote::Remote;
use crate::config::options::{Options, with_secrets};
use crate::counts::{Counts, Tally};
use crate::dynamodb::{self, LockTable, TablePaths};
use crate::error::{Error, Kind, Result};
use crate::error_context::ErrorContext;
use crate::failures::no_memory;
use crate::file_writer::{FileWriter, Sink};
use crate::listing::FileMeta;
use crate::local::LocalDisk;
use crate::location::{Location, Scheme, Target};
use crate::pin::Pin;
use crate::put::{Body, Put};
use crate::syncing::Syncing;

mod copies;
mod elsewhere;
mod many;

/// How many files are fetched from a bucket at once.
const CONCURRENT_GETS: usize = 16;
/// The most entries of a page of a listing, in stores that have pages.
const MAX_PAGE_ENTRIES: usize = 1000;

/// A table's root. Clones share connections and counts.
#[derive(Clone)]
pub struct Storage {
    inner: Arc<Inner>,
}

struct Inner {
    location: Location,
    options: Options,
    tally: Arc<Tally>,
    backend: Backend,
    /// The names of the table in DynamoDB, if its commits go through that.
    lock_paths: Option<TablePaths>,
    foreign_stores: Mutex<HashMap<String, Remote>>,
}

#[derive(Clone)]
enum Backend {
    Local(LocalDisk),
    Remote(Remote),
}

impl Backend {
    async fn put(self, key: String, data: Bytes) -> Result<()> {
        match self {
            Self::Local(disk) => disk.put(key, data).await,
            Self::Remote(remote) => remote.put(&key, data).await,
        }
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Storage").field(&self.location()).finish()
    }
}

impl Storage {
    /// Opens a root, without a request.
    ///
    /// `uri` is a path (a relative one starts at the current folder; `~` is a name like any other) or a URL: `file`,
    /// `s3`, `s3a`, `az`, `abfs`, `abfss`, `adl`, `gs`, `http`, `https`, or `memory://name`, which lives as long as the
    /// process. Options have the names of the object store crate (`aws_region`, `azure_storage_account_name`, …, in any
    /// case), override the environment, and are refused if no backend knows them. `deltic.durability` = `none` lets
    /// writes to a local disk return before they are durable. `deltic.s3.log_store` = `dynamodb` makes
    /// commits to a bucket without conditional puts exclude each other through a DynamoDB table (`deltic.s3.dynamodb.*`).
    pub fn open(uri: &str, options: &HashMap<String, String>) -> Result<Self> {
        let location = Location::parse(uri)?;
        let options = Options::parse(&with_secrets(options.clone(), &location))?;
        let tally = Arc::new(Tally::default());
        let backend = match location.scheme {
            Scheme::Local => Backend::Local(LocalDisk { durable: options.durable, tally: tally.clone() }),
            Scheme::Memory | Scheme::S3 | Scheme::Azure | Scheme::Gcs | Scheme::Http => {
                Backend::Remote(Remote::new(&location, options.clone(), tally.clone()))
            }
        };
        let lock_paths = match location.scheme {
            Scheme::S3 if options.commits_through_dynamodb => Some(TablePaths::of(&location)?),
            _ => None,
        };
        let foreign_stores = Mutex::default();
        Ok(Self { inner: Arc::new(Inner { location, options, tally, backend, lock_paths, foreign_stores }) })
    }

    /// Splits the secrets off `uri`: returns its location without them, and the options with them. Together these open the
    /// same storage in another process.
    pub fn split_secrets(uri: &str, options: HashMap<String, String>) -> Result<(String, HashMap<String, String>)> {
        let location = Location::parse(uri)?;
        let options = with_secrets(options, &location);
        Ok((location.text, options))
    }

    /// Checks settings: opens the clients with them, and lets these sign requests, which are not sent. For tests.
    #[doc(hidden)]
    pub async fn check_settings(uri: &str, options: &HashMap<String, String>) -> Result<()> {
        let storage = Self::open(uri, options)?;
        let (location, mut options) = (&storage.inner.location, storage.inner.options.clone());
        if location.scheme == Scheme::Local {
            return Ok(());
        }
        options.offline = true;
        let remote = Remote::new(location, options, Arc::default());
        let results = [
            remote.get("x").await.map(drop),
            remote.list("_delta_log", "0", usize::MAX).await.map(drop),
            remote.put_if_absent("_delta_log/x", Bytes::from_static(b"{}").into()).await.map(drop),
        ];
        // The expected answer is that there is no file.
        let is_other = |e: &Error| !e.is_not_found() && *e.kind() != Kind::Storage { retryable: true };
        results.into_iter().find(|result| result.as_ref().is_err_and(is_other)).unwrap_or(Ok(()))
    }

    /// The path that a literal reference resolves to, without a request.
    ///
    /// # Errors
    /// `Corrupt` or `Unsupported` if it cannot be followed.
    pub fn resolve_path(&self, reference: &str) -> Result<String> {
        Ok(match self.inner.location.resolve(reference)? {
            Target::Local(path) => path,
            Target::Here(key) => key,
            Target::Elsewhere(there) => there.text,
        })
    }

    /// The normalised path of a literal reference below the root; none if it is the root, elsewhere or not valid.
    pub fn below_root(&self, reference: &str) -> Option<String> {
        let root = self.inner.location.root.trim_end_matches('/');
        let key = match (self.inner.location.resolve(reference).ok()?, &self.inner.backend) {
            (Target::Local(key), Backend::Local(_)) | (Target::Here(key), Backend::Remote(_)) => key,
            (Target::Elsewhere(there), Backend::Remote(_)) if self.is_same_container(&there) => there.root,
            _ => return None,
        };
        let below =
            if root.is_empty() { key.trim_start_matches('/') } else { key.strip_prefix(root)?.strip_prefix('/')? };
        (!below.is_empty()).then(|| below.to_owned())
    }

    /// The root, normalised: absolute, without a trailing slash, user info, query or secret.
    pub fn location(&self) -> &str {
        &self.inner.location.text
    }

    /// Whether requests for the table's own files cost almost nothing.
    pub fn is_local(&self) -> bool {
        matches!(self.inner.backend, Backend::Local(_))
    }

    /// The names of the table in DynamoDB, if its commits go through that.
    pub fn lock_paths(&self) -> Option<&TablePaths> {
        self.inner.lock_paths.as_ref()
    }

    /// The DynamoDB table through which commits go, if there is one.
    ///
    /// # Errors
    /// `Invalid` for settings with which no client can be made.
    pub fn lock_table(&self) -> Result<Option<Arc<LockTable>>> {
        match (&self.inner.backend, &self.inner.lock_paths) {
            (Backend::Remote(remote), Some(_)) => remote.lock_table(),
            _ => Ok(None),
        }
    }

    /// Requests made so far, by this handle and its clones.
    pub fn counts(&self) -> Counts {
        self.inner.tally.counts()
    }

    /// The files directly in `dir` whose name is `start_at` or greater, by name in byte order. A missing folder has no files.
    pub async fn list_from(&self, dir: &str, start_at: &str) -> Result<Vec<FileMeta>> {
        self.list(dir, start_at, usize::MAX).await
    }

    /// Some of the files directly in `dir`: those that one request returns.
    pub async fn list_some(&self, dir: &str) -> Result<Vec<FileMeta>> {
        self.list(dir, "", MAX_PAGE_ENTRIES).await
    }

    async fn list(&self, dir: &str, start_at: &str, most: usize) -> Result<Vec<FileMeta>> {
        let (backend, key, _) = self.resolve(dir).map_err(|e| self.with_context(e, dir))?;
        let listed = match backend {
            Backend::Local(disk) => disk.list(key, start_at.to_owned(), most).await,
            Backend::Remote(remote) => remote.list(&key, start_at, most).await,
        };
        let entries = listed.map_err(|e| self.with_context(e, dir))?;
        let prefix = if dir.is_empty() || dir.ends_with('/') { dir.to_owned() } else { format!("{dir}/") };
        Ok(entries.into_iter().map(|entry| entry.below(&prefix)).collect())
    }

    /// The whole file.
    pub async fn get(&self, path: &str) -> Result<Bytes> {
        let (backend, key) = self.resolve_file(path)?;
        let got = match backend {
            Backend::Local(disk) => disk.get(key).await,
            Backend::Remote(remote) => remote.get(&key).await,
        };
        got.map_err(|e| self.with_context(e, path))
    }

    /// Several whole files, in the order of `paths`.
    pub async fn get_all(&self, paths: &[String]) -> Result<Vec<Bytes>> {
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        if let Backend::Local(disk) = &self.inner.backend {
            let mut keys = Vec::with_capacity(paths.len());
            for path in paths {
                match self.resolve_file(path)? {
                    (Backend::Local(_), key) => keys.push(key),
                    (Backend::Remote(_), _) => break,
                }
            }
            if keys.len() == paths.len() {
                let got = disk.get_all(keys).await;
                return got.map_err(|(at, e)| self.with_context(e, paths.get(at).map_or("", String::as_str)));
            }
        }
        let gets: Vec<_> = paths.iter().map(|path| self.get(path)).collect();
        stream::iter(gets).buffered(CONCURRENT_GETS).try_collect().await
    }

    /// A part of the file. A file that ends before the range is corrupt, since ranges come from the log or the file.
    pub async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        let mut parts = self.get_ranges(path, std::slice::from_ref(&range)).await?;
        parts.pop().ok_or_else(|| Error::internal("the store returned no data for a range"))
    }

    /// Several parts of the file, in the order of `ranges`. Parts near each other are read by one request, distant
    /// ones concurrently.
    pub async fn get_ranges(&self, path: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.get_pinned(path, ranges, None).await
    }

    /// As [`Self::get_ranges`], but all reads with this pin must be of the same file.
    ///
    /// # Errors
    /// `NotFound` also if the file was replaced.
    pub async fn get_pinned(&self, path: &str, ranges: &[Range<u64>], pin: Option<&Pin>) -> Result<Vec<Bytes>> {
        let (backend, key) = self.resolve_file(path)?;
        if let Some(range) = ranges.iter().find(|range| range.start > range.end) {
            let message = format!("the byte range {}..{} ends before it starts", range.start, range.end);
            return Err(self.with_context(Error::corrupt(message), path));
        }
        if ranges.iter().all(|range| range.is_empty()) {
            return Ok(vec![Bytes::new(); ranges.len()]);
        }
        let got = match backend {
            Backend::Local(disk) => disk.get_ranges(key, ranges.to_vec(), pin).await,
            Backend::Remote(remote) => remote.get_ranges(&key, ranges, pin).await,
        };
        got.map_err(|e| self.with_context(e, path))
    }

    /// Reads a part of the file and appends it to `memory`, as [`Self::get_pinned`].
    pub async fn append(
        &self,
        path: &str,
        range: Range<u64>,
        mut memory: Vec<u8>,
        pin: Option<&Pin>,
    ) -> Result<Vec<u8>> {
        match self.resolve_file(path)? {
            (Backend::Local(disk), key) if !range.is_empty() => {
                disk.append(key, range, memory, pin).await.map_err(|e| self.with_context(e, path))
            }
            _ => {
                let read = self.get_pinned(path, &[range], pin).await?;
                for bytes in read {
                    memory.try_reserve(bytes.len()).map_err(no_memory)?;
                    memory.extend_from_slice(&bytes);
                }
                Ok(memory)
            }
        }
    }

    /// The last `length` bytes (all, if the file is shorter), and the size of the file.
    pub async fn get_suffix(&self, path: &str, length: u64) -> Result<(Bytes, u64)> {
        let (backend, key) = self.resolve_file(path)?;
        let got = match backend {
            Backend::Local(disk) => disk.get_suffix(key, length).await,
            Backend::Remote(remote) => remote.get_suffix(&key, length).await,
        };
        got.map_err(|e| self.with_context(e, path))
    }

    /// The size and time of the file.
    pub async fn head(&self, path: &str) -> Result<FileMeta> {
        let (backend, key) = self.resolve_file(path)?;
        let got = match backend {
            Backend::Local(disk) => disk.head(key).await,
            Backend::Remote(remote) => remote.head(&key).await,
        };
        let entry = got.map_err(|e| self.with_context(e, path))?;
        Ok(FileMeta { path: path.to_owned(), size: entry.size, modified_ms: entry.modified_ms })
    }

    /// Makes an existing file durable, if the storage options ask for durability.
    pub async fn make_durable(&self, path: &str) -> Result<()> {
        let (backend, key) = self.resolve_file(path)?;
        match backend {
            Backend::Local(disk) => disk.make_durable(key).await.map_err(|e| self.with_context(e, path)),
            Backend::Remote(_) => Ok(()),
        }
    }

    /// Writes the file, or replaces an existing one. Readers see the old or the new one, never a part.
    pub async fn put(&self, path: &str, data: Bytes) -> Result<()> {
        let (backend, key) = self.resolve_file(path)?;
        backend.put(key, data).await.map_err(|e| self.with_context(e, path))
    }

    /// As [`Storage::put`], for a file that readers can do without: after a power cut it may be missing or incomplete.
    pub async fn put_hint(&self, path: &str, data: Bytes) -> Result<()> {
        let (backend, key) = self.resolve_file(path)?;
        let backend = match backend {
            Backend::Local(disk) => Backend::Local(disk.not_durable()),
            remote @ Backend::Remote(_) => remote,
        };
        backend.put(key, data).await.map_err(|e| self.with_context(e, path))
    }

    /// Writes the file if it does not exist: of any number of callers, at most one gets [`Put::Created`].
    ///
    /// An `Err` means that nothing was written. The request is sent only once: a retry after a lost answer would
    /// find one's own file and take it for another's. A disk gets the pieces one by one; a remote store gets small
    /// files in one request and large ones in parts, unless it does not support conditions for parts.
    pub async fn put_if_absent(&self, path: &str, body: impl Into<Body>) -> Result<Put> {
        self.put_new(path, body.into(), Some(Syncing::default())).await
    }

    /// As [`Storage::put_if_absent`], for a file that refers to others: it becomes visible only when those are durable. An
    /// `Err` may also mean that they are not.
    pub async fn put_if_absent_after(&self, path: &str, body: impl Into<Body>, before: Syncing) -> Result<Put> {
        self.put_new(path, body.into(), Some(before)).await
    }

    /// As [`Storage::put_if_absent`], for a file that readers can do without: after a power cut it may be missing or
    /// incomplete.
    pub async fn put_hint_if_absent(&self, path: &str, data: Bytes) -> Result<Put> {
        self.put_new(path, data.into(), None).await
    }

    /// `before`: the syncing that the file waits for; `None` if it need not be synced itself.
    async fn put_new(&self, path: &str, body: Body, before: Option<Syncing>) -> Result<Put> {
        let (backend, key) = self.resolve_file(path)?;
        if self.inner.lock_paths.is_some() && dynamodb::decides(path) {
            return Err(
                self.with_context(Error::internal("a file of a log that DynamoDB decides was put beside it"), path)
            );
        }
        let put = match (backend, before) {
            (Backend::Local(disk), Some(before)) if before.is_empty() => disk.put_if_absent(key, body).await,
            (Backend::Local(disk), Some(before)) => disk.put_if_absent_after(key, body, before).await,
            (Backend::Local(disk), None) => disk.not_durable().put_if_absent(key, body).await,
            (Backend::Remote(remote), before) => match before.unwrap_or_default().wait().await {
                Ok(()) => remote.put_if_absent(&key, body).await,
                Err(e) => Err(e),
            },
        };
        match put.map_err(|e| self.with_context(e, path))? {
            Put::Unknown(e) => Ok(Put::Unknown(self.with_context(e, path))),
            known => Ok(known),
        }
    }

    /// Starts a file that is written piece by piece and becomes visible when it is finished. An error may occur only
    /// at the end.
    pub async fn create_file(&self, path: &str) -> Result<FileWriter> {
        let (backend, key) = self.resolve_file(path)?;
        let sink = match backend {
            Backend::Local(disk) => Ok(Sink::Local(disk.create_file(key))),
            Backend::Remote(remote) => remote.create_file(&key).map(Sink::Remote),
        };
        let sink = sink.map_err(|e| self.with_context(e, path))?;
        Ok(FileWriter::new(ErrorContext { table: self.location().to_owned(), path: path.to_owned() }, sink))
    }

    /// Deletes the file. A missing file counts as deleted.
    pub async fn delete(&self, path: &str) -> Result<()> {
        let (backend, key) = self.resolve_file(path)?;
        let deleted = match backend {
            Backend::Local(disk) => disk.delete(key).await,
            Backend::Remote(remote) => remote.delete(&key).await,
        };
        deleted.map_err(|e| self.with_context(e, path))
    }

    /// Deletes unfinished files directly in a folder of the table that were last written before this time, so that their
    /// writers must be dead. Returns how many. Only a local disk has such files: in other stores they are never visible.
    pub async fn delete_unfinished(&self, dir: &str, before_ms: i64) -> Result<u64> {
        match self.resolve(dir).map_err(|e| self.with_context(e, dir))? {
            (Backend::Local(disk), key, _) => disk.delete_unfinished(key, before_ms).await,
            (Backend::Remote(_), ..) => Ok(0),
        }
    }

    fn resolve_file(&self, path: &str) -> Result<(Backend, String)> {
        let resolved = self.resolve(path).and_then(|(backend, key, is_root)| match is_root {
            true => Err(Error::corrupt("the path names a folder, not a file")),
            false => Ok((backend, key)),
        });
        resolved.map_err(|e| self.with_context(e, path))
    }

    /// The store of a reference, the full key in it, and whether that is the root of the table or of the store.
    fn resolve(&self, reference: &str) -> Result<(Backend, String, bool)> {
        let inner = &self.inner;
        let (backend, key) = match (inner.location.resolve(reference)?, &inner.backend) {
            (Target::Here(key), backend) | (Target::Local(key), backend @ Backend::Local(_)) => (backend.clone(), key),
            (Target::Local(key), Backend::Remote(_)) => {
                self.allow_foreign("on the local disk")?;
                let disk = LocalDisk { durable: inner.options.durable, tally: inner.tally.clone() };
                return Ok((Backend::Local(disk), key.clone(), key == "/"));
            }
            (Target::Elsewhere(there), backend) => match self.is_same_container(&there) {
                true => (backend.clone(), there.root),
                false => {
                    self.allow_foreign(&format!("at {}", there.base))?;
                    let is_root = there.root.is_empty();
                    return Ok((Backend::Remote(self.foreign(&there)), there.root, is_root));
                }
            },
        };
        let is_root = key.is_empty() || key == inner.location.root;
        Ok((backend, key, is_root))
    }

    /// Adds the table and the file to an error.
    fn with_context(&self, error: Error, path: &str) -> Error {
        error.in_table(self.location()).in_file(path)
    }
}
