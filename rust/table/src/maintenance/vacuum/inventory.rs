//! The files of an inventory, in a temporary file, since an inventory may be larger than the memory.
//!
//! The file has no name if the system allows that, and disappears when its handle is closed, also in a killed process. It is
//! read twice: first for the files that the inventory has several times, then in its order. Memory holds 8 bytes for each
//! file.
//!
//! Proved by `tests/python/test_vacuum_inventory.py`.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use deltic_protocol::replay::paths::salted_hash;
use deltic_protocol::replay::retention::is_before_cutoff;
use futures::future::ready;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};

use super::candidates::Listing;
use crate::error::{Error, Result};
use crate::parallel::try_blocking;
use deltic_store::{FileMeta, Storage};

/// Files that are read from the temporary file at a time.
const READ_AT_ONCE: usize = 1000;

/// Files to examine: paths (relative to the table or absolute), sizes, and modification times.
#[derive(Debug, Clone)]
pub struct Inventory {
    file: Arc<Mutex<File>>,
    bytes: u64,
}

impl Inventory {
    /// Writes the files to a temporary file.
    ///
    /// # Errors
    /// Those of the stream; `Storage` if the folder for temporary files has no space, or cannot be written.
    pub async fn of(files: impl Stream<Item = Result<Vec<FileMeta>>>) -> Result<Self> {
        let mut files = pin!(files);
        let mut writer = BufWriter::new(on_disk(tempfile::tempfile).await?);
        let mut bytes = 0_u64;
        while let Some(some) = files.try_next().await? {
            let write = move || {
                let mut written = 0;
                for file in some {
                    written += write_file(&mut writer, &file)?;
                }
                Ok((writer, written))
            };
            let written;
            (writer, written) = on_disk(write).await?;
            bytes = bytes.saturating_add(written);
        }
        let file = on_disk(move || Ok(writer.into_inner()?)).await?;
        Ok(Self { file: Arc::new(Mutex::new(file)), bytes })
    }

    /// The files, with paths relative to the table, each once. If the inventory has a file several times, the latest
    /// modification time counts.
    ///
    /// # Errors
    /// `Invalid` for a file that is not below the table; those of the disk.
    pub(super) async fn listing(self, storage: &Storage, cutoff_ms: i64) -> Result<Listing> {
        let storage = storage.clone();
        let mut repeated = self.repeated(&storage, cutoff_ms).await?;
        let once = move |file: FileMeta| {
            ready(below(&storage, file).map(|file| repeated.is_taken(&file, cutoff_ms).then_some(file)))
        };
        Ok(self.files().try_filter_map(once).boxed())
    }

    /// All files, in the order of the inventory.
    fn files(&self) -> impl Stream<Item = Result<FileMeta>> + Send + use<> {
        let chunks = stream::try_unfold((self.clone(), 0), |(inventory, at)| async move {
            let (files, end) = inventory.read(at).await?;
            Ok::<_, Error>((!files.is_empty()).then_some((files, (inventory, end))))
        });
        chunks.map_ok(|files| stream::iter(files.into_iter().map(Ok))).try_flatten()
    }

    /// The files from this position on, some at a time, and the position after them.
    async fn read(&self, mut at: u64) -> Result<(Vec<FileMeta>, u64)> {
        let (file, bytes) = (Arc::clone(&self.file), self.bytes);
        let read = move || {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            file.seek(SeekFrom::Start(at))?;
            let (mut reader, mut files) = (BufReader::new(&mut *file), Vec::new());
            while at < bytes && files.len() < READ_AT_ONCE {
                let (file, length) = read_file(&mut reader)?;
                at = at.saturating_add(length);
                files.push(file);
            }
            Ok((files, at))
        };
        on_disk(read).await
    }

    async fn repeated(&self, storage: &Storage, cutoff_ms: i64) -> Result<Repeated> {
        let (mut all, mut young) = (Vec::new(), Vec::new());
        let mut files = pin!(self.files());
        while let Some(file) = files.try_next().await? {
            let file = below(storage, file)?;
            let hash = salted_hash("", &file.path);
            all.push(hash);
            if !is_before_cutoff(file.modified_ms, cutoff_ms) {
                young.push(hash);
            }
        }
        all.sort_unstable();
        let twice = all.windows(2).filter_map(|two| match two {
            [one, other] if one == other => Some(*one),
            _ => None,
        });
        let mut files: HashMap<u64, Repetition> = twice.map(|hash| (hash, Repetition::default())).collect();
        for hash in young {
            if let Some(file) = files.get_mut(&hash) {
                file.is_young = true;
            }
        }
        Ok(Repeated(files))
    }
}

/// A few files that need no temporary file, each once.
///
/// # Errors
/// `Invalid` for a file that is not below the table.
pub(super) fn distinct(files: Vec<FileMeta>, storage: &Storage) -> Result<Listing> {
    let files: Vec<FileMeta> = files.into_iter().map(|file| below(storage, file)).collect::<Result<_>>()?;
    let mut paths = HashSet::new();
    let once: Vec<FileMeta> = files.into_iter().filter(|file| paths.insert(file.path.clone())).collect();
    Ok(stream::iter(once.into_iter().map(Ok)).boxed())
}

/// Files that an inventory has several times, by the hashes of their paths. Of two files with one hash, one would be kept.
struct Repeated(HashMap<u64, Repetition>);

#[derive(Default)]
struct Repetition {
    /// Whether one of its modification times is not before the cutoff.
    is_young: bool,
    is_taken: bool,
}

impl Repeated {
    /// Whether this row of the inventory is the one that counts for its file.
    fn is_taken(&mut self, file: &FileMeta, cutoff_ms: i64) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let Some(repetition) = self.0.get_mut(&salted_hash("", &file.path)) else { return true };
        if repetition.is_taken || (repetition.is_young && is_before_cutoff(file.modified_ms, cutoff_ms)) {
            return false;
        }
        repetition.is_taken = true;
        true
    }
}

fn below(storage: &Storage, file: FileMeta) -> Result<FileMeta> {
    match storage.below_root(&file.path) {
        Some(path) => Ok(FileMeta { path, ..file }),
        None => Err(Error::invalid("the inventory has a file that is not below the table").in_file(file.path)),
    }
}

/// Writes the length of the path, the path, the size and the time. Returns the number of bytes.
fn write_file(to: &mut impl Write, file: &FileMeta) -> io::Result<u64> {
    let length = file.path.len() as u64;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(file.path.as_bytes())?;
    to.write_all(&file.size.to_le_bytes())?;
    to.write_all(&file.modified_ms.to_le_bytes())?;
    Ok(length.saturating_add(24))
}

/// Reads what [`write_file`] wrote.
fn read_file(from: &mut impl Read) -> io::Result<(FileMeta, u64)> {
    let mut number = [0; 8];
    from.read_exact(&mut number)?;
    let length = u64::from_le_bytes(number);
    let mut path = String::new();
    from.by_ref().take(length).read_to_string(&mut path)?;
    from.read_exact(&mut number)?;
    let size = u64::from_le_bytes(number);
    from.read_exact(&mut number)?;
    let modified_ms = i64::from_le_bytes(number);
    Ok((FileMeta { path, size, modified_ms }, length.saturating_add(24)))
}

/// Works on the temporary file, on a worker thread.
async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T> {
    let work = || {
        work().map_err(|e| {
            let message =
                "an inventory needs space in the folder for temporary files (TMPDIR), which could not be used";
            Error::storage(false, message).caused_by(e)
        })
    };
    try_blocking(work, |e| Error::internal("a task for a temporary file did not finish").caused_by(e)).await
}
