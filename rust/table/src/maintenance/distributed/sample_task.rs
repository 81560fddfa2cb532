//! Samples the rows of some files of a bin in any process.

use std::pin::pin;

use futures::TryStreamExt;
use serde::{Deserialize, Serialize};

use super::written::check_task_set;
use crate::envelope::{pack, unpack};
use crate::error::{Error, Result};
use crate::maintenance::layout::CurveLayout;
use crate::maintenance::layout::ranges::{SampleLimits, Sampler};
use crate::maintenance::layout::sent::Sample;
use crate::scan::read::{ReadOptions, Reader};
use crate::scan::task::{FileTask, ReadSpec};
use deltic_store::Storage;

/// The kinds of these bytes, in their envelopes.
const TASK: &str = "sample task";
const SAMPLED: &str = "sample of rows";

/// Files whose rows are to be sampled, and all that is needed for it except access to the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampleTask {
    pub(super) location: String,
    /// The id of its task set: the tasks of one commit.
    pub(super) task_set_id: String,
    /// Its index among the sample tasks of the commit.
    pub(super) number: usize,
    /// Reads the columns of the curve.
    pub(super) read: ReadSpec,
    pub(super) layout: CurveLayout,
    pub(super) limits: SampleLimits,
    pub(super) files: Vec<FileTask>,
}

/// The result of a task.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Sampled {
    task_set_id: String,
    pub(super) number: usize,
    pub(super) sample: Sample,
}

impl Sampled {
    /// Reads the result of a task of this task set.
    ///
    /// # Errors
    /// `Invalid` if the bytes are something else.
    pub(super) fn from_bytes(bytes: &[u8], task_set_id: &str) -> Result<Self> {
        let sampled: Self = unpack(SAMPLED, bytes)?;
        check_task_set(&sampled.task_set_id, task_set_id)?;
        Ok(sampled)
    }
}

impl SampleTask {
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>> {
        pack(TASK, self)
    }

    /// Reads what [`DistributedOptimize::next_tasks`](super::DistributedOptimize::next_tasks) gave.
    ///
    /// # Errors
    /// `Invalid` if the bytes are something else, or of another release of deltic.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let task: Self = unpack(TASK, bytes)?;
        task.layout.check().map_err(|e| e.in_table(&task.location))?;
        Ok(task)
    }

    /// Where the table is.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// Samples the rows. Returns the result for [`DistributedOptimize::divide`](super::DistributedOptimize::divide).
    ///
    /// # Errors
    /// Those of reading.
    pub async fn carry_out(self, storage: Storage) -> Result<Vec<u8>> {
        let Self { location, task_set_id, number, read, layout, limits, files } = self;
        let sampled = async {
            let mut rows = pin!(Reader::new(storage, read)?.read(files, ReadOptions::default()));
            let mut sampler = Sampler::of_part(layout, number as u64, limits);
            while let Some(batch) = rows.try_next().await? {
                sampler.update(&batch)?;
            }
            pack(SAMPLED, &Sampled { task_set_id, number, sample: Sample::of(&sampler) })
        };
        sampled.await.map_err(|e: Error| e.in_table(&location))
    }
}
