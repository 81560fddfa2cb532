//! Work in several steps, which Python holds in between.

use std::sync::{Mutex, PoisonError};

use deltic_protocol::error::Error;

use crate::errors::{Result, barrier};

/// Work in several steps; taken out while a step runs, and when it ends.
pub(crate) struct Work<T>(Mutex<Option<T>>);

impl<T> Work<T> {
    pub(crate) fn new(work: T) -> Self {
        Self(Mutex::new(Some(work)))
    }

    pub(crate) fn take(&self) -> Result<T> {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(taken.ok_or_else(|| Error::invalid("this has ended, or another thread is using it; begin another"))?)
    }

    /// Runs a step, and keeps the work as the step left it, whether or not the step failed.
    pub(crate) fn with<D>(&self, step: impl FnOnce(&mut T) -> Result<D>) -> Result<D> {
        let mut work = self.take()?;
        let done = barrier(|| step(&mut work));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(work);
        done
    }
}
