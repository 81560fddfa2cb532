//! Asks work that changes files to end early.
//!
//! A task that is dropped may still write: a worker thread ends the step that it has begun, and a store carries out a request
//! that was sent. So work that changes files is not dropped, but asked to stop, and awaited.

use futures::future::pending;
use futures::stream::{self, Stream, StreamExt};
use tokio::sync::watch;

use crate::error::{Error, Result};

/// A request to stop. Clones are the same request.
#[derive(Debug, Clone)]
pub struct Stop(watch::Sender<bool>);

impl Default for Stop {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Stop {
    /// Asks the work to stop.
    pub fn request(&self) {
        self.0.send_replace(true);
    }

    /// Whether the work is asked to stop.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Called between two steps of the work.
    ///
    /// # Errors
    /// `Interrupted` if the work is asked to stop.
    pub fn check(&self) -> Result<()> {
        if self.is_requested() { Err(Error::interrupted("stopped, since other work has failed")) } else { Ok(()) }
    }

    /// Ends when the work is asked to stop.
    pub fn requested(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut receiver = self.0.subscribe();
        async move {
            if receiver.wait_for(|is_requested| *is_requested).await.is_err() {
                // Nobody is left who could ask.
                pending::<()>().await;
            }
        }
    }

    /// The items of a stream that only reads; when the work is asked to stop, `Interrupted` is its last item.
    pub fn guard<T, S: Stream<Item = Result<T>>>(&self, items: S) -> impl Stream<Item = Result<T>> + use<T, S> {
        let stop = self.clone();
        let end = stream::once(async move { stop.check() }).filter_map(|ended| async move { ended.err().map(Err) });
        items.take_until(self.requested()).chain(end)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use futures::TryStreamExt;

    use super::*;

    #[tokio::test]
    async fn a_guarded_stream_is_whole_or_fails() {
        let stop = Stop::default();
        let numbers = || stream::iter((0..3).map(Ok));
        assert_eq!(stop.guard(numbers()).try_collect::<Vec<i32>>().await.unwrap(), [0, 1, 2]);
        let mut endless = Box::pin(stop.guard(numbers().chain(stream::pending())));
        assert_eq!(endless.next().await.unwrap().unwrap(), 0);
        stop.clone().request();
        assert!(endless.next().await.unwrap().is_err());
        assert!(endless.next().await.is_none());
        assert!(stop.guard(numbers()).try_collect::<Vec<i32>>().await.is_err());
    }
}
