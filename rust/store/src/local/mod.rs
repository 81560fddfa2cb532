//! The local disk.
//!
//! The object store crate's code is not used: a commit must be complete, exclusive and synced before it counts, and a
//! listing of a long log must not read the metadata of every old file. Blocking calls run on worker threads,
//! those that belong together in one task. Handing a task over takes longer than making a small file whose sync is not awaited,
//! so this is done on the calling thread. Independent syncs run at once, since the disk then combines
//! them.
//!
//! Invariants: a file becomes visible under its name complete or not at all; of several `put_if_absent` exactly one
//! creates; a file that was reported as synced is durable (unless durability is `none`). Unfinished files are
//! named `.tmp-<uuid>`, which listings of a folder leave out. Proved by `conformance` and `race` in the storage tests; that
//! the data reaches the medium depends on the operating system's `fsync`.

mod disk;
pub(crate) mod growing;
mod naming;
mod tree;

use std::fs::{self, File, FileType};
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::future::join;
use futures::stream::{self, StreamExt};

pub(crate) use self::disk::{LocalDisk, real_path};
use self::disk::{blocking, entry, failed, folder_of, is_missing, sized, sync_folder};
use self::growing::LocalWriter;
use self::naming::{TEMPORARY, Temporary, delete_unfinished, give_name, prepare};
use crate::counts::Tally;
use crate::error::{Error, Result};
use crate::failures::{no_memory, short_read};
use crate::listing::Entry;
use crate::parallel;
use crate::pin::{Identity, Pin};
use crate::put::{Body, Put};
use crate::ranges::merge;
use crate::stop::Stop;
use crate::syncing::Syncing;

/// Ranges closer than this are read as one.
const GAP: u64 = 64 * 1024;
/// How many files are opened together, and up to how many bytes they are read into one piece of memory.
const MAX_OPEN_FILES: usize = 16;
const MAX_JOINED_BYTES: u64 = 4 * 1024 * 1024;
/// Bytes that are copied between two checks whether to stop.
const COPY_STEP_BYTES: u64 = 64 * 1024 * 1024;
/// How many files one thread deletes in a row, and how many threads do so.
const DELETE_BATCH: usize = 256;
const CONCURRENT_DELETES: usize = 4;

impl LocalDisk {
    pub(crate) async fn list(&self, dir: String, start_at: String, most: usize) -> Result<Vec<Entry>> {
        self.tally.list();
        blocking(move || list(Path::new(&dir), &start_at, most)).await
    }

    pub(crate) async fn get(&self, path: String) -> Result<Bytes> {
        self.tally.get();
        let bytes = blocking(move || {
            let (mut file, size) = open(Path::new(&path))?;
            read(&mut file, 0..size, Path::new(&path))
        })
        .await?;
        self.tally.received(bytes.len());
        Ok(bytes)
    }

    /// Reads each file. An error comes with the index of the file.
    pub(crate) async fn get_all(&self, paths: Vec<String>) -> std::result::Result<Vec<Bytes>, (usize, Error)> {
        let tally = self.tally.clone();
        let some = move |(number, some): (usize, &[String])| {
            read_together(some, &tally).map_err(|(at, e)| (number * MAX_OPEN_FILES + at, e))
        };
        let all = move || {
            let all = paths.chunks(MAX_OPEN_FILES).enumerate().map(some);
            Ok(all.collect::<std::result::Result<Vec<_>, _>>()?.concat())
        };
        let failed = |e| (0, Error::internal("a task for the local disk did not finish").caused_by(e));
        parallel::try_blocking(all, failed).await
    }

    /// Reads each range, opening the file once.
    pub(crate) async fn get_ranges(
        &self,
        path: String,
        wanted: Vec<Range<u64>>,
        pin: Option<&Pin>,
    ) -> Result<Vec<Bytes>> {
        let (spans, pin) = (merge(&wanted, GAP), pin.cloned());
        let ranges = spans.spans.clone();
        let tally = self.tally.clone();
        let read = blocking(move || {
            let path = Path::new(&path);
            let (mut file, size) = open_pinned(path, pin.as_ref())?;
            let one = |range: Range<u64>| {
                if range.end > size {
                    return Err(short_read(&range, size));
                }
                tally.get();
                let bytes = read(&mut file, range, path)?;
                tally.received(bytes.len());
                Ok(bytes)
            };
            ranges.into_iter().map(one).collect::<Result<Vec<_>>>()
        })
        .await?;
        spans.cut(&wanted, &read)
    }

    /// Reads a range, and appends it to `memory`.
    pub(crate) async fn append(
        &self,
        path: String,
        range: Range<u64>,
        mut memory: Vec<u8>,
        pin: Option<&Pin>,
    ) -> Result<Vec<u8>> {
        let (pin, tally) = (pin.cloned(), self.tally.clone());
        blocking(move || {
            let path = Path::new(&path);
            let (mut file, size) = open_pinned(path, pin.as_ref())?;
            if range.end > size {
                return Err(short_read(&range, size));
            }
            tally.get();
            let length = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
            append(&mut memory, &mut file, range, path)?;
            tally.received(length);
            Ok(memory)
        })
        .await
    }

    pub(crate) async fn get_suffix(&self, path: String, length: u64) -> Result<(Bytes, u64)> {
        self.tally.get();
        let (bytes, size) = blocking(move || {
            let (mut file, size) = open(Path::new(&path))?;
            Ok((read(&mut file, size.saturating_sub(length)..size, Path::new(&path))?, size))
        })
        .await?;
        self.tally.received(bytes.len());
        Ok((bytes, size))
    }

    pub(crate) async fn head(&self, path: String) -> Result<Entry> {
        self.tally.head();
        blocking(move || {
            let metadata = fs::metadata(&path).map_err(|e| failed("read", Path::new(&path), e))?;
            regular(&metadata)?;
            Ok(entry(String::new(), &metadata))
        })
        .await
    }

    pub(crate) async fn put(&self, path: String, data: Bytes) -> Result<()> {
        self.tally.put(data.len() as u64);
        let durable = self.durable;
        sized(self.is_little(data.len() as u64), move || {
            let target = Path::new(&path);
            let mut temporary = Temporary::create(target, durable)?;
            temporary.write(&data)?;
            temporary.replace(target, durable)
        })
        .await
    }

    pub(crate) async fn put_if_absent(&self, path: String, body: Body) -> Result<Put> {
        self.tally.put(body.length);
        let durable = self.durable;
        sized(self.is_little(body.length), move || {
            let target = Path::new(&path);
            match prepare(target, body, durable)? {
                Some(temporary) => give_name(temporary, target, durable),
                None => Ok(Put::Exists),
            }
        })
        .await
    }

    /// As [`LocalDisk::put_if_absent`], but the file gets its name only after `before` has succeeded.
    pub(crate) async fn put_if_absent_after(&self, path: String, body: Body, before: Syncing) -> Result<Put> {
        self.tally.put(body.length);
        let (durable, target) = (self.durable, PathBuf::from(path));
        let path = target.clone();
        let (prepared, synced) = join(blocking(move || prepare(&path, body, durable)), before.wait()).await;
        synced?;
        match prepared? {
            Some(temporary) => blocking(move || give_name(temporary, &target, durable)).await,
            None => Ok(Put::Exists),
        }
    }

    /// Syncs the directory of a file. The file itself was synced before it got its name.
    pub(crate) async fn make_durable(&self, path: String) -> Result<()> {
        let durable = self.durable;
        blocking(move || {
            let path = Path::new(&path);
            sync_folder(folder_of(path)?, durable).map_err(|e| failed("sync", path, e))
        })
        .await
    }

    pub(crate) async fn delete(&self, path: String) -> Result<()> {
        self.tally.delete();
        blocking(move || delete(Path::new(&path))).await
    }

    /// Deletes files. Returns an outcome for each, in their order.
    pub(crate) async fn delete_many(&self, paths: Vec<String>) -> Vec<Result<()>> {
        let some = |paths: &[String]| {
            let (paths, tally) = (paths.to_vec(), self.tally.clone());
            async move {
                let length = paths.len();
                let one = move |path: &String| {
                    tally.delete();
                    delete(Path::new(path))
                };
                let deleted = blocking(move || Ok(paths.iter().map(one).collect::<Vec<_>>())).await;
                deleted.unwrap_or_else(|e| (0..length).map(|_| Err(Error::internal(e.message()))).collect())
            }
        };
        let chunks: Vec<_> = paths.chunks(DELETE_BATCH).map(some).collect();
        let deleted: Vec<_> = stream::iter(chunks).buffered(CONCURRENT_DELETES).collect().await;
        deleted.into_iter().flatten().collect()
    }

    /// Deletes unfinished files that were last written before this time, so that their writers must be dead. Returns how many.
    pub(crate) async fn delete_unfinished(&self, dir: String, before_ms: i64) -> Result<u64> {
        blocking(move || Ok(delete_unfinished(Path::new(&dir), before_ms))).await
    }

    pub(crate) fn create_file(&self, path: String) -> LocalWriter {
        let (disk, target) = (self.clone(), PathBuf::from(path));
        LocalWriter::new(disk, target)
    }

    /// Opens a file that is to be copied.
    pub(crate) async fn open_to_copy(&self, path: String) -> Result<File> {
        self.tally.get();
        blocking(move || Ok(open(Path::new(&path))?.0)).await
    }

    /// Copies the first `size` bytes of a file. The file system may share the blocks of both.
    pub(crate) async fn copy(&self, mut source: File, path: String, size: u64, stop: &Stop) -> Result<()> {
        let (mut writer, mut at) = (self.create_file(path), 0_u64);
        while at < size {
            stop.check()?;
            let wanted = COPY_STEP_BYTES.min(size - at);
            let (file, copied) = writer.copy(source, wanted).await?;
            if copied < wanted {
                return Err(short_read(&(at..size), at.saturating_add(copied)));
            }
            (source, at) = (file, at.saturating_add(wanted));
        }
        writer.finish().await.map(drop)
    }
}

fn delete(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if !is_missing(&e) => Err(failed("delete", path, e)),
        _ => Ok(()),
    }
}

fn list(dir: &Path, start_at: &str, most: usize) -> Result<Vec<Entry>> {
    let entries = match fs::read_dir(dir) {
        Err(e) if is_missing(&e) => return Ok(Vec::new()),
        other => other.map_err(|e| failed("list", dir, e))?,
    };
    let mut found = Vec::new();
    for item in entries.take(most) {
        let item = item.map_err(|e| failed("list", dir, e))?;
        let Ok(name) = item.file_name().into_string() else { continue };
        if name.as_str() < start_at || name.starts_with(TEMPORARY) {
            continue;
        }
        let kind = item.file_type();
        if kind.as_ref().is_ok_and(FileType::is_dir) {
            continue;
        }
        // Only links need a lookup by the whole path.
        let is_file = kind.is_ok_and(|kind| kind.is_file());
        match if is_file { item.metadata() } else { fs::metadata(item.path()) } {
            Ok(metadata) if metadata.is_file() => found.push(entry(name, &metadata)),
            Ok(_) => {}
            // It was deleted since, or is a broken link.
            Err(e) if is_missing(&e) => {}
            Err(e) => return Err(failed("read", &item.path(), e)),
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Refuses folders, pipes and devices: a log may name any path, and reading some of them never ends.
fn regular(metadata: &fs::Metadata) -> Result<()> {
    match metadata.is_file() {
        true => Ok(()),
        false => Err(Error::not_found("the path names something that is not a file")),
    }
}

/// Opens a file for reading. Returns also its size.
fn open(path: &Path) -> Result<(File, u64)> {
    let because = |e| failed("read", path, e);
    // Checked before opening, since opening a pipe can wait forever for its other end.
    regular(&fs::metadata(path).map_err(because)?)?;
    let file = File::open(path).map_err(because)?;
    let metadata = file.metadata().map_err(because)?;
    regular(&metadata)?;
    Ok((file, metadata.len()))
}

/// Opens a file for reading, so that all reads with this pin are of the same file. Returns also its size.
fn open_pinned(path: &Path, pin: Option<&Pin>) -> Result<(File, u64)> {
    let (file, size) = open(path)?;
    if let Some(pin) = pin {
        pin.check(Identity::of_file(&file.metadata().map_err(|e| failed("read", path, e))?))?;
    }
    Ok((file, size))
}

/// Reads a range within the size that the file had when it was opened.
fn read(file: &mut File, range: Range<u64>, path: &Path) -> Result<Bytes> {
    let length = range.end.saturating_sub(range.start);
    let capacity = usize::try_from(length).map_err(|_| Error::storage(false, "the file does not fit in memory"))?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(capacity).map_err(no_memory)?;
    append(&mut bytes, file, range, path)?;
    Ok(bytes.into())
}

/// Appends a range of a file to memory.
fn append(memory: &mut Vec<u8>, file: &mut File, range: Range<u64>, path: &Path) -> Result<()> {
    let (before, length) = (memory.len(), usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX));
    memory.try_reserve(length).map_err(no_memory)?;
    file.seek(SeekFrom::Start(range.start)).map_err(|e| failed("read", path, e))?;
    Read::take(file, length as u64).read_to_end(memory).map_err(|e| failed("read", path, e))?;
    let read = memory.len() - before;
    if read == length { Ok(()) } else { Err(short_read(&range, range.start.saturating_add(read as u64))) }
}

/// Reads a few whole files, small ones into one piece of memory. An error comes with the index of the
/// file.
fn read_together(paths: &[String], tally: &Tally) -> std::result::Result<Vec<Bytes>, (usize, Error)> {
    let (mut files, mut length) = (Vec::with_capacity(paths.len()), 0_u64);
    for (at, path) in paths.iter().enumerate() {
        tally.get();
        let (file, size) = open(Path::new(path)).map_err(|e| (at, e))?;
        length = length.saturating_add(size);
        files.push((Path::new(path), file, size));
    }
    let files = files.into_iter().enumerate();
    if length > MAX_JOINED_BYTES {
        let one = |(at, (path, mut file, size)): (usize, (&Path, File, u64))| {
            let bytes = read(&mut file, 0..size, path).map_err(|e| (at, e))?;
            tally.received(bytes.len());
            Ok(bytes)
        };
        return files.map(one).collect();
    }
    let mut memory = Vec::new();
    memory.try_reserve_exact(length as usize).map_err(|e| (0, no_memory(e)))?;
    let mut ends = Vec::with_capacity(paths.len());
    for (at, (path, mut file, size)) in files {
        append(&mut memory, &mut file, 0..size, path).map_err(|e| (at, e))?;
        tally.received(size as usize);
        ends.push(memory.len());
    }
    let (all, mut start) = (Bytes::from(memory), 0);
    Ok(ends.into_iter().map(|end| all.slice(std::mem::replace(&mut start, end)..end)).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
