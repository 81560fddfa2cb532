//! A file that is written piece by piece.

use std::fmt;

use bytes::Bytes;

use crate::cloud::writer::RemoteWriter;
use crate::error::Result;
use crate::error_context::ErrorContext;
use crate::local::growing::LocalWriter;

use crate::syncing::Syncing;

/// A file that is being written. If this is dropped before it is finished, no file is left.
pub struct FileWriter {
    context: ErrorContext,
    sink: Sink,
}

pub(crate) enum Sink {
    Local(LocalWriter),
    Remote(RemoteWriter),
}

impl fmt::Debug for FileWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileWriter").field("context", &self.context).finish_non_exhaustive()
    }
}

impl FileWriter {
    pub(crate) fn new(context: ErrorContext, sink: Sink) -> Self {
        Self { context, sink }
    }

    /// Appends `data`. Waits while too many bytes are being sent.
    pub async fn write(&mut self, data: Bytes) -> Result<()> {
        let written = match &mut self.sink {
            Sink::Local(writer) => writer.write(data).await,
            Sink::Remote(writer) => writer.write(data).await,
        };
        written.map_err(|e| self.context.add_to(e))
    }

    /// Makes the file visible under its name, and returns its size. It is durable then.
    pub async fn finish(self) -> Result<u64> {
        let finished = match self.sink {
            Sink::Local(writer) => writer.finish().await,
            Sink::Remote(writer) => writer.finish().await,
        };
        finished.map_err(|e| self.context.add_to(e))
    }

    /// Makes the file visible under its name, and returns its size, and the syncing after which it is durable.
    /// For files with new names, which nothing may refer to before that: after a power cut they may be incomplete. `alone`: the
    /// caller makes no other file meanwhile.
    pub async fn finish_unsynced(self, alone: bool) -> Result<(u64, Syncing)> {
        let appeared = match self.sink {
            Sink::Local(writer) => writer.finish_unsynced(alone).await,
            Sink::Remote(writer) => writer.finish().await.map(|size| (size, Syncing::default())),
        };
        let (size, syncing) = appeared.map_err(|e| self.context.add_to(e))?;
        Ok((size, syncing.with_context(self.context)))
    }

    /// Deletes the written bytes.
    pub async fn abort(self) -> Result<()> {
        let aborted = match self.sink {
            Sink::Local(writer) => {
                drop(writer);
                Ok(())
            }
            Sink::Remote(writer) => writer.abort().await,
        };
        aborted.map_err(|e| self.context.add_to(e))
    }
}
