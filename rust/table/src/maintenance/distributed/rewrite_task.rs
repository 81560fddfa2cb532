//! Rewrites a whole bin in any process.

use serde::{Deserialize, Serialize};

use super::written::{Written, WrittenFiles};
use crate::envelope::{pack, unpack};
use crate::error::{Error, Result};
use crate::maintenance::bins::{Rewriting, Rewritten};
use crate::maintenance::layout::Layout;
use crate::maintenance::options::Limits;
use crate::maintenance::pack::Bin;
use crate::progress::Progress;
use crate::rewrite::Copying;
use crate::scan::task::ReadSpec;
use crate::write::plan::WriteSpec;
use crate::write::writer::Clock;
use deltic_store::{Stop, Storage};

/// The kind of these bytes, in their envelopes.
const TASK: &str = "rewrite task";

/// A group of files to be rewritten, and all that is needed for it except access to the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RewriteTask {
    pub(super) location: String,
    /// The id of its task set: the tasks of one commit.
    pub(super) task_set_id: String,
    /// Its index among the bins of the commit.
    pub(super) number: usize,
    /// The id of the cube: of the files that are clustered together.
    pub(super) cube: String,
    pub(super) bin: Bin,
    pub(super) read: ReadSpec,
    pub(super) write: WriteSpec,
    pub(super) layout: Layout,
    pub(super) target: u64,
    pub(super) limits: Limits,
}

impl RewriteTask {
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

    /// Rewrites the files. Returns the result for [`DistributedOptimize::commit`](super::DistributedOptimize::commit). New files
    /// are durable then, and after an error none is left.
    ///
    /// # Errors
    /// Those of reading and writing.
    pub async fn carry_out(self, storage: Storage, clock: Clock) -> Result<Vec<u8>> {
        let Self { location, task_set_id, number, cube, bin, read, write, layout, target, limits } = self;
        let rewritten = async {
            let copying = Copying::of_specs(&storage, read, write)?;
            let rewriting =
                Rewriting { storage, copying, layout, target, limits, tasks: 1, clock, stop: Stop::default() };
            let uncounted = Progress::default().share(0, None);
            let Rewritten { files, unclaimed, .. } = rewriting.write(bin, cube, uncounted).await?;
            let bytes = WrittenFiles { task_set_id, of: Written::Bin(number), files }.to_bytes()?;
            unclaimed.claim();
            Ok(bytes)
        };
        rewritten.await.map_err(|e: Error| e.in_table(&location))
    }
}
