//! Files on their way to the platter.
//!
//! What one write leaves to be synced is synced at once, while the work goes on, and waited for before anything refers to
//! it.

use tokio::task::JoinHandle;

use crate::error::{Error, Result};
use crate::place::Place;

/// Syncs that are under way; of none, there is nothing to wait for. Dropping it does not stop them.
#[derive(Debug, Default)]
pub struct Syncing {
    tasks: Vec<JoinHandle<Result<()>>>,
    /// Where the files are, and the first of them.
    place: Option<Place>,
}

impl Syncing {
    pub(super) fn push(&mut self, task: JoinHandle<Result<()>>) {
        self.tasks.push(task);
    }

    pub(crate) fn of(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    /// Whether there is nothing to wait for.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Waits for these as well.
    pub fn extend(&mut self, other: Self) {
        self.tasks.extend(other.tasks);
        self.place = self.place.take().or(other.place);
    }

    /// Waits until all of it would survive a power cut.
    ///
    /// # Errors
    /// `Storage` if the disk says that something might not.
    pub async fn wait(self) -> Result<()> {
        let mut ended = Ok(());
        for task in self.tasks {
            let synced = task.await.unwrap_or_else(|e| Err(Error::internal("a sync did not finish").caused_by(e)));
            ended = ended.and(synced);
        }
        ended.map_err(|e| match &self.place {
            Some(place) => place.of(e),
            None => e,
        })
    }
}
