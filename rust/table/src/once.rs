//! Values that are made on first use.
//!
//! With tokio's `OnceCell` later callers wait for the first one, which computes the value. A child process made by `fork`
//! inherits that state without the thread, and would wait for ever: so each process has its own cell until there is a value.

use std::process;
use std::sync::OnceLock;

use tokio::sync::OnceCell;

/// A value that the first caller makes, while others wait.
#[derive(Debug)]
pub(crate) struct Once<T> {
    cell: OnceCell<T>,
    /// The process whose threads may be making it.
    process: u32,
    /// The cell for child processes.
    of_child: OnceLock<Box<Self>>,
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self { cell: OnceCell::new(), process: process::id(), of_child: OnceLock::new() }
    }
}

impl<T> From<T> for Once<T> {
    fn from(value: T) -> Self {
        Self { cell: OnceCell::new_with(Some(value)), ..Self::default() }
    }
}

impl<T> Once<T> {
    /// The value, if it exists, whichever process made it.
    pub(crate) fn get(&self) -> Option<&T> {
        let of_child = || self.of_child.get().and_then(|child| child.get());
        self.cell.get().or_else(of_child)
    }

    /// The value, which is made now if it does not exist.
    pub(crate) async fn get_or_try_init<E, F: Future<Output = Result<T, E>>>(
        &self,
        make: impl FnOnce() -> F,
    ) -> Result<&T, E> {
        if let Some(value) = self.get() {
            return Ok(value);
        }
        let (mut own, process) = (self, process::id());
        while own.process != process {
            own = own.of_child.get_or_init(Box::default);
        }
        own.cell.get_or_try_init(make).await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::future::{pending, ready};
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<T>(future: impl Future<Output = T>) -> Poll<T> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_child_does_not_wait_for_a_thread_of_its_parent() {
        let mut once = Once::<i32>::default();
        // As a child finds it: another process, one of whose threads was about to make the value.
        once.process += 1;
        let mut made_by_parent = pin!(once.cell.get_or_try_init(pending::<Result<i32, ()>>));
        assert!(made_by_parent.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(once.get(), None);
        assert_eq!(poll(once.get_or_try_init(|| ready(Ok::<_, ()>(5)))), Poll::Ready(Ok(&5)));
        assert_eq!(
            (once.get(), poll(once.get_or_try_init(pending::<Result<i32, ()>>))),
            (Some(&5), Poll::Ready(Ok(&5)))
        );
    }

    #[test]
    fn what_the_parent_has_made_is_there() {
        let mut once = Once::from(5);
        once.process += 1;
        assert_eq!(poll(once.get_or_try_init(pending::<Result<i32, ()>>)), Poll::Ready(Ok(&5)));
    }
}
