//! The files that a task wrote.

use serde::{Deserialize, Serialize};

use crate::envelope::{pack, unpack};
use crate::error::{Error, Result};
use crate::write::plan::DataFile;

/// The kind of these bytes, in their envelopes.
const WRITTEN: &str = "rewritten group of files";

/// The result of a task that writes files.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WrittenFiles {
    pub(super) task_set_id: String,
    pub(super) of: Written,
    pub(super) files: Vec<DataFile>,
}

/// What the files replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Written {
    /// The bin with this index.
    Bin(usize),
    /// The rows of the interval with this index, among those of all divided bins.
    Interval(usize),
}

impl WrittenFiles {
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>> {
        pack(WRITTEN, self)
    }

    /// Reads the result of a task of this task set.
    ///
    /// # Errors
    /// `Invalid` if the bytes are something else.
    pub(super) fn from_bytes(bytes: &[u8], task_set_id: &str) -> Result<Self> {
        let written: Self = unpack(WRITTEN, bytes)?;
        check_task_set(&written.task_set_id, task_set_id)?;
        Ok(written)
    }
}

/// Refuses the result of a task of another commit.
pub(super) fn check_task_set(found: &str, expected: &str) -> Result<()> {
    match found == expected {
        true => Ok(()),
        false => {
            Err(Error::invalid("a result belongs to a task of another commit; pass the results of this commit's tasks"))
        }
    }
}

/// Puts the result of a task into its slot.
pub(super) fn put<T>(slot: Option<&mut Option<T>>, result: T) -> Result<()> {
    match slot {
        Some(slot @ None) => {
            *slot = Some(result);
            Ok(())
        }
        Some(Some(_)) => Err(Error::invalid("the result of a task was passed twice; pass each result once")),
        None => Err(Error::invalid("a result belongs to a task that this commit does not have")),
    }
}

/// The results of all tasks.
pub(super) fn all<T>(slots: Vec<Option<T>>) -> Result<Vec<T>> {
    let all = slots.into_iter().collect::<Option<Vec<_>>>();
    all.ok_or_else(|| Error::invalid("the result of a task is missing; pass the results of all tasks"))
}
