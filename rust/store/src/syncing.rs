//! Syncs of files to the disk, in the background.
//!
//! A write starts the syncs of its files and continues meanwhile. A writer that refers to the files waits for the syncs first.

use tokio::task::JoinHandle;

use crate::error::{Error, Result};
use crate::error_context::ErrorContext;

/// Syncs that are running. Dropping this does not stop them.
#[derive(Debug, Default)]
pub struct Syncing {
    tasks: Vec<JoinHandle<Result<()>>>,
    /// The table, and the first of the files, for errors.
    context: Option<ErrorContext>,
}

impl Syncing {
    pub(super) fn push(&mut self, task: JoinHandle<Result<()>>) {
        self.tasks.push(task);
    }

    pub(crate) fn with_context(mut self, context: ErrorContext) -> Self {
        self.context = Some(context);
        self
    }

    /// Whether there is nothing to wait for.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// How many syncs are not done yet. Syncs of files keep the files open.
    pub fn under_way(&self) -> usize {
        self.tasks.iter().filter(|task| !task.is_finished()).count()
    }

    /// Adds the syncs of another write.
    pub fn extend(&mut self, other: Self) {
        self.tasks.extend(other.tasks);
        self.context = self.context.take().or(other.context);
    }

    /// Waits until all files are durable.
    ///
    /// # Errors
    /// `Storage` if a sync failed.
    pub async fn wait(self) -> Result<()> {
        let mut ended = Ok(());
        for task in self.tasks {
            let synced = task.await.unwrap_or_else(|e| Err(Error::internal("a sync did not finish").caused_by(e)));
            ended = ended.and(synced);
        }
        ended.map_err(|e| match &self.context {
            Some(context) => context.add_to(e),
            None => e,
        })
    }
}
