//! Uploads files whose length is not known at the beginning.

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload, WriteMultipart};

use super::remote::{Remote, key};
use crate::error::Result;

/// The size of the parts of an upload. Files that fit into one are sent whole.
pub(crate) const PART: usize = 8 * 1024 * 1024;
/// How many parts of one upload are sent at a time.
pub(crate) const CONCURRENT_PARTS: usize = 8;

impl Remote {
    pub(crate) fn create_file(&self, path: &str) -> Result<RemoteWriter> {
        Ok(self.writer(key(path)?))
    }

    pub(crate) fn writer(&self, path: Path) -> RemoteWriter {
        RemoteWriter { remote: self.clone(), path, pending: Vec::new(), pending_bytes: 0, upload: None, size: 0 }
    }
}

/// An upload: whole if it is small, otherwise in parts, which become visible as a file at the end.
pub(crate) struct RemoteWriter {
    remote: Remote,
    path: Path,
    pending: Vec<Bytes>,
    pending_bytes: usize,
    upload: Option<WriteMultipart>,
    size: u64,
}

impl RemoteWriter {
    pub(crate) async fn write(&mut self, data: Bytes) -> Result<()> {
        self.size += data.len() as u64;
        if self.upload.is_none() {
            self.pending_bytes += data.len();
            self.pending.push(data);
            if self.pending_bytes <= PART {
                return Ok(());
            }
            let clients = self.remote.clients()?;
            let upload = clients.store.put_multipart(&self.path).await.map_err(|e| self.remote.fail("write", e))?;
            let upload = self.upload.insert(WriteMultipart::new_with_chunk_size(upload, PART));
            for data in self.pending.drain(..) {
                upload.put(data);
            }
        } else if let Some(upload) = &mut self.upload {
            upload.put(data);
        }
        match &mut self.upload {
            Some(upload) => upload.wait_for_capacity(CONCURRENT_PARTS).await.map_err(|e| self.remote.fail("write", e)),
            None => Ok(()),
        }
    }

    pub(crate) async fn finish(mut self) -> Result<u64> {
        self.remote.tally().put(self.size);
        let done = match self.upload.take() {
            Some(upload) => upload.finish().await,
            None => {
                let clients = self.remote.clients()?;
                let payload: PutPayload = std::mem::take(&mut self.pending).into_iter().collect();
                clients.store.put(&self.path, payload).await
            }
        };
        done.map_err(|e| self.remote.fail("write", e))?;
        Ok(self.size)
    }

    pub(crate) async fn abort(mut self) -> Result<()> {
        match self.upload.take() {
            Some(upload) => upload.abort().await.map_err(|e| self.remote.fail("abort a write", e)),
            None => Ok(()),
        }
    }
}

impl Drop for RemoteWriter {
    fn drop(&mut self) {
        // Parts of an abandoned upload are invisible, but cost money until they are deleted.
        if let (Some(upload), Ok(runtime)) = (self.upload.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(upload.abort());
        }
    }
}
