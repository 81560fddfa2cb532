//! Files of the local disk that are written piece by piece, and become visible when they are complete.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tokio::task::JoinHandle;

use super::disk::{LocalDisk, MIN_BYTES_FOR_THREAD, blocking, failed, folder_of, sized, sync_folder};
use super::naming::Temporary;
use crate::error::{Error, Result};
use crate::syncing::Syncing;

/// How many bytes a writer passes to a worker thread at a time.
const CHUNK: usize = 1024 * 1024;
/// A file is synced after so many bytes, while more of it is written.
const SYNCED_AHEAD: usize = 32 * 1024 * 1024;

/// A file that is written under a temporary name. Dropping it deletes the file.
pub(crate) struct LocalWriter {
    disk: LocalDisk,
    target: PathBuf,
    file: Growing,
    pending: Vec<Bytes>,
    pending_bytes: usize,
    size: u64,
    /// Bytes written since the last sync began, and that sync.
    unsynced: usize,
    sync: Option<JoinHandle<Result<()>>>,
}

enum Growing {
    /// No file yet: a small one is created at the end.
    NotBegun,
    Begun(Temporary),
    /// A write failed.
    Broken,
}

impl Growing {
    /// Appends to the file, which is created if it does not exist yet.
    fn with(self, pending: &[Bytes], target: &Path, durable: bool) -> Result<Temporary> {
        let mut temporary = match self {
            Self::NotBegun => Temporary::create(target, durable)?,
            Self::Begun(temporary) => temporary,
            Self::Broken => return Err(Error::storage(false, "an earlier write to this file failed; write it anew")),
        };
        pending.iter().try_for_each(|data| temporary.write(data))?;
        Ok(temporary)
    }
}

impl LocalWriter {
    pub(super) fn new(disk: LocalDisk, target: PathBuf) -> Self {
        let (file, pending) = (Growing::NotBegun, Vec::new());
        Self { disk, target, file, pending, pending_bytes: 0, size: 0, unsynced: 0, sync: None }
    }

    pub(crate) async fn write(&mut self, data: Bytes) -> Result<()> {
        self.size += data.len() as u64;
        self.pending_bytes += data.len();
        self.pending.push(data);
        if self.pending_bytes < CHUNK {
            return Ok(());
        }
        let file = std::mem::replace(&mut self.file, Growing::Broken);
        let pending = std::mem::take(&mut self.pending);
        self.unsynced += std::mem::take(&mut self.pending_bytes);
        let (target, durable) = (self.target.clone(), self.disk.durable);
        self.file = Growing::Begun(blocking(move || file.with(&pending, &target, durable)).await?);
        self.sync_ahead().await
    }

    /// Appends up to `most` bytes from the position of `source`; returns `source` and how many were copied.
    pub(super) async fn copy(&mut self, mut source: File, most: u64) -> Result<(File, u64)> {
        let file = std::mem::replace(&mut self.file, Growing::Broken);
        let pending = std::mem::take(&mut self.pending);
        let (target, durable) = (self.target.clone(), self.disk.durable);
        let (temporary, source, copied) = blocking(move || {
            let mut temporary = file.with(&pending, &target, durable)?;
            let copied = io::copy(&mut Read::take(&mut source, most), &mut temporary.file);
            let copied = copied.map_err(|e| failed("write", &temporary.path, e))?;
            Ok((temporary, source, copied))
        })
        .await?;
        self.file = Growing::Begun(temporary);
        self.size = self.size.saturating_add(copied);
        self.unsynced +=
            std::mem::take(&mut self.pending_bytes).saturating_add(usize::try_from(copied).unwrap_or(usize::MAX));
        self.sync_ahead().await?;
        Ok((source, copied))
    }

    /// Begins to sync a large file, so that little is left at the end.
    async fn sync_ahead(&mut self) -> Result<()> {
        let Growing::Begun(temporary) = &self.file else { return Ok(()) };
        let is_busy = self.sync.as_ref().is_some_and(|sync| !sync.is_finished());
        if !self.disk.durable || self.unsynced < SYNCED_AHEAD || is_busy {
            return Ok(());
        }
        let (path, file) = (temporary.path.clone(), temporary.file.try_clone());
        let before = self.sync.take();
        self.unsynced = 0;
        self.sync = Some(tokio::task::spawn_blocking(move || {
            file.and_then(|file| file.sync_data()).map_err(|e| failed("write", &path, e))
        }));
        ended(before).await
    }

    pub(crate) async fn finish(self) -> Result<u64> {
        self.disk.tally.put(self.size);
        let Self { disk, target, file, pending, size, sync, .. } = self;
        // The system reports a failed write only once, to the first sync.
        ended(sync).await?;
        let is_little = disk.is_little(size);
        sized(is_little, move || file.with(&pending, &target, disk.durable)?.replace(&target, disk.durable)).await?;
        Ok(size)
    }

    /// Gives the file its name before it is synced. `alone`: no other files are made meanwhile, for which the pool has more
    /// than one thread.
    pub(crate) async fn finish_unsynced(self, alone: bool) -> Result<(u64, Syncing)> {
        self.disk.tally.put(self.size);
        let Self { disk, target, file, pending, size, sync, .. } = self;
        ended(sync).await?;
        let (durable, folder) = (disk.durable, folder_of(&target)?.to_owned());
        let rename = move || {
            let mut temporary = file.with(&pending, &target, durable)?;
            temporary.rename(&target)?;
            Ok((temporary, target))
        };
        // A new folder must be synced.
        let syncs = durable && !folder.is_dir();
        let (mut temporary, target) = sized(alone && size < MIN_BYTES_FOR_THREAD && !syncs, rename).await?;
        // Only now is the file kept: if the caller stops waiting for the pool before, none is left.
        temporary.kept = true;
        let mut syncing = Syncing::default();
        if durable {
            let path = target.clone();
            syncing.push(tokio::task::spawn_blocking(move || temporary.sync(true)));
            syncing.push(tokio::task::spawn_blocking(move || {
                sync_folder(folder_of(&path)?, true).map_err(|e| failed("sync", &path, e))
            }));
        }
        Ok((size, syncing))
    }
}

async fn ended(sync: Option<JoinHandle<Result<()>>>) -> Result<()> {
    match sync {
        Some(sync) => sync.await.unwrap_or_else(|e| Err(Error::internal("a sync did not finish").caused_by(e))),
        None => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_large_file_is_synced_while_it_grows() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("large");
        let mut writer = LocalDisk { durable: true, tally: std::sync::Arc::default() }
            .create_file(target.to_str().unwrap().to_owned());
        let piece = |at: usize| Bytes::from(vec![at as u8; CHUNK + 1]);
        let pieces = SYNCED_AHEAD / CHUNK + 3;
        for at in 0..pieces {
            writer.write(piece(at)).await.unwrap();
        }
        assert!(writer.sync.is_some() && writer.unsynced < SYNCED_AHEAD && !target.exists());
        assert_eq!(writer.finish().await.unwrap(), (pieces * (CHUNK + 1)) as u64);
        let read = std::fs::read(&target).unwrap();
        assert!(read.chunks(CHUNK + 1).enumerate().all(|(at, there)| there == piece(at)));
        assert_eq!((read.len(), std::fs::read_dir(folder.path()).unwrap().count()), (pieces * (CHUNK + 1), 1));
    }

    #[tokio::test]
    async fn what_a_sync_says_is_heard() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("large");
        let mut writer = LocalDisk { durable: true, tally: std::sync::Arc::default() }
            .create_file(target.to_str().unwrap().to_owned());
        writer.write(Bytes::from(vec![0; CHUNK])).await.unwrap();
        writer.sync = Some(tokio::spawn(async { Err(Error::storage(false, "the disk is on fire")) }));
        let error = writer.finish().await.unwrap_err();
        assert!(error.to_string().contains("fire"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
    }
}
