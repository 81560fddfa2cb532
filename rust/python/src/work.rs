//! Work of several steps that Python holds between them.

use std::sync::{Mutex, PoisonError};

use deltic_protocol::error::Error;

use crate::errors::{Result, barrier};

/// Work of several steps, taken away while one runs, and when it ends.
pub(crate) struct Work<T>(Mutex<Option<T>>);

impl<T> Work<T> {
    pub(crate) fn new(work: T) -> Self {
        Self(Mutex::new(Some(work)))
    }

    pub(crate) fn take(&self) -> Result<T> {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(taken.ok_or_else(|| Error::invalid("this has ended, or another thread is using it; begin another"))?)
    }

    /// Runs a step, after which it is what the step left, whether or not that failed.
    pub(crate) fn with<D>(&self, step: impl FnOnce(&mut T) -> Result<D>) -> Result<D> {
        let mut work = self.take()?;
        let done = barrier(|| step(&mut work));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(work);
        done
    }
}
