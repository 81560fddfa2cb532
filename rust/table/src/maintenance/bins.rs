//! Rewrites the rows of a bin, a group of files of one partition.

use std::collections::BTreeMap;
use std::sync::Arc;

use deltic_protocol::action::Add;
use futures::TryStreamExt;
use serde_json::json;

use super::layout::ranges::Sampler;
use super::layout::{CurveLayout, Layout};
use super::options::Limits;
use super::pack::{Bin, CUBE_COLUMNS, CUBE_ID, PROVIDER};
use super::sort::sort_by_curve;
use crate::error::{Error, Result};
use crate::progress::ProgressShare;
use crate::rewrite::{Copying, Written};
use crate::scan::read::{ReadOptions, Reader};
use crate::scan::task::{FileTask, ReadSpec, task_of};
use crate::write::plan::{DataFile, WriteSpec};
use crate::write::unclaimed::Unclaimed;
use crate::write::writer::{Clock, Limits as WriteLimits};
use deltic_store::{Stop, Storage};

/// How bins are rewritten.
#[derive(Debug, Clone)]
pub(super) struct Rewriting {
    pub(super) storage: Storage,
    pub(super) copying: Copying,
    pub(super) layout: Layout,
    /// The target size of files in bytes.
    pub(super) target: u64,
    pub(super) limits: Limits,
    /// How many bins are rewritten at a time.
    pub(super) tasks: usize,
    pub(super) clock: Clock,
    /// Requested when the bins are not to be rewritten any more.
    pub(super) stop: Stop,
}

/// A bin and the files that replace it, which are deleted unless a commit claims them.
pub(super) struct Rewritten {
    pub(super) bin: Bin,
    pub(super) files: Vec<DataFile>,
    pub(super) unclaimed: Unclaimed,
}

/// Deletes the files of bins that are not committed.
pub(super) async fn delete(written: Vec<Rewritten>) {
    for bin in written {
        bin.unclaimed.delete().await;
    }
}

impl Rewriting {
    /// Rewrites the rows of a bin, and reports progress. `cube`: the id of files that are clustered together.
    ///
    /// # Errors
    /// Those of reading and writing; no file is left then.
    pub(super) async fn write(self, bin: Bin, cube: String, mut progress: ProgressShare) -> Result<Rewritten> {
        let (mut files, syncing) = match &self.layout {
            Layout::Compact => self.compact(&bin, &mut progress).await?,
            Layout::Curve(layout) => self.arrange(&bin, layout, &mut progress).await?,
        };
        let mut unclaimed = Unclaimed::new(self.storage.clone());
        unclaimed.hold(&files)?;
        if let Layout::Curve(layout @ CurveLayout { curve: super::layout::curve::Curve::Hilbert, .. }) = &self.layout {
            files.iter_mut().for_each(|file| mark_clustered(&mut file.add, &cube, layout));
        }
        if let Err(error) = syncing.wait().await {
            unclaimed.delete().await;
            return Err(error);
        }
        progress.end();
        Ok(Rewritten { bin, files, unclaimed })
    }

    /// Writes the rows into one file, in their order.
    async fn compact(&self, bin: &Bin, progress: &mut ProgressShare) -> Result<Written> {
        // One file that is somewhat too large is better than a large and a small one.
        let target_file_size = self.target.saturating_mul(2);
        let copying = self.copying(|spec| WriteSpec { target_file_size, ..spec });
        let rows = self.stop.guard(copying.rows(&self.storage, tasks(bin), self.reading(bin))?);
        let rows = rows.inspect_ok(|batch| progress.advance(batch.num_rows() as u64));
        copying.write(&self.storage, rows, self.clock).await
    }

    /// Writes the rows into files with equal numbers of rows, in the order of a curve.
    async fn arrange(&self, bin: &Bin, layout: &CurveLayout, progress: &mut ProgressShare) -> Result<Written> {
        let mut columns: Vec<String> = layout.columns.iter().filter_map(|path| path.first().cloned()).collect();
        columns.sort();
        columns.dedup();
        let keys = ReadSpec { columns, row_tracking: None, ..self.copying.read.clone() };
        let keys = Reader::new(self.storage.clone(), keys)?.read(tasks(bin), self.reading(bin));
        let mut keys = std::pin::pin!(self.stop.guard(keys));
        let mut sampler = Sampler::new(layout.clone());
        while let Some(batch) = keys.try_next().await? {
            sampler.update(&batch)?;
            progress.advance(batch.num_rows() as u64);
        }
        let (rows, expected) = (sampler.rows(), bin.expected(self.target));
        let Some(ranges) = sampler.finish()? else {
            return match rows {
                0 => Ok(Written::default()),
                _ => Err(Error::internal("rows were read, and none of them was sampled")),
            };
        };
        let max_rows_per_file = Some(rows.div_ceil(expected).max(1));
        let copying = self.copying(|spec| WriteSpec { max_rows_per_file, target_file_size: u64::MAX, ..spec });
        let all = self.stop.guard(copying.rows(&self.storage, tasks(bin), self.reading(bin))?);
        let bytes = self.limits.sort_bytes / self.tasks;
        let all = all.inspect_ok(|batch| progress.advance(batch.num_rows() as u64));
        let ordered = sort_by_curve(all, Arc::new(ranges), rows, bytes, self.tasks).await?;
        let written = copying.write(&self.storage, self.stop.guard(ordered), self.clock).await?;
        let written_rows: u64 = written.0.iter().map(|file| file.rows).sum();
        if written_rows != rows {
            let mut unclaimed = Unclaimed::new(self.storage.clone());
            unclaimed.hold(&written.0)?;
            unclaimed.delete().await;
            return Err(Error::internal(format!("{rows} rows were to be sorted, and {written_rows} were written")));
        }
        Ok(written)
    }

    fn copying(&self, change: impl FnOnce(WriteSpec) -> WriteSpec) -> Copying {
        let write = change(self.copying.write.clone());
        let memory = self.limits.write_bytes / self.tasks;
        self.copying.to_files(write, WriteLimits { memory, ..WriteLimits::default() })
    }

    /// The parts of a large file, or several small files, are read at once; all bins together read as much at once as one scan.
    fn reading(&self, bin: &Bin) -> ReadOptions {
        let options = ReadOptions::default();
        let concurrent_files = (2 * options.concurrent_files / self.tasks).clamp(2, bin.files.len().max(2));
        ReadOptions { concurrent_files, ..options }
    }
}

fn tasks(bin: &Bin) -> Vec<FileTask> {
    bin.files.iter().map(|file| task_of(&file.add)).collect()
}

/// Records in the `add` action the clustering provider, and by which columns the file was clustered.
fn mark_clustered(add: &mut Add, cube: &str, layout: &CurveLayout) {
    add.clustering_provider = Some(PROVIDER.to_owned());
    let tags: BTreeMap<String, Option<String>> = BTreeMap::from([
        (CUBE_ID.to_owned(), Some(cube.to_owned())),
        (CUBE_COLUMNS.to_owned(), Some(cube_columns(layout))),
    ]);
    add.tags.get_or_insert_with(BTreeMap::new).extend(tags);
}

/// The columns of a cube in the form of its tag.
pub(super) fn cube_columns(layout: &CurveLayout) -> String {
    let names: Vec<String> = layout.columns.iter().map(|path| path.join(".")).collect();
    json!(names).to_string()
}
