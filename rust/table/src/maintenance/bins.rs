//! Rewrites the rows of a bin: files of one partition that are rewritten together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;
use deltic_protocol::action::Add;
use futures::{Stream, TryStreamExt};
use serde_json::json;

use super::layout::ranges::{Ranges, Sampler};
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
        let written = match &self.layout {
            Layout::Compact => self.compact(&bin, &mut progress).await?,
            Layout::Curve(layout) => self.arrange(&bin, layout, &mut progress).await?,
        };
        let (files, unclaimed) = self.finish(written, &cube).await?;
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
        let keys = Reader::new(self.storage.clone(), key_spec(&self.copying.read, layout))?;
        let mut keys = std::pin::pin!(self.stop.guard(keys.read(tasks(bin), self.reading(bin))));
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
        let all = self.stop.guard(self.copying.rows(&self.storage, tasks(bin), self.reading(bin))?);
        let all = all.inspect_ok(|batch| progress.advance(batch.num_rows() as u64));
        let written = self.write_in_order(all, ranges, rows, |_| expected).await?;
        self.check_rows(written, rows).await
    }

    /// Writes rows in the order of a curve, into files with equal numbers of rows. `about`: about how many rows there are.
    /// `files`: how many files so many rows become.
    async fn write_in_order(
        &self,
        rows: impl Stream<Item = Result<RecordBatch>> + Send,
        ranges: Ranges,
        about: u64,
        files: impl FnOnce(u64) -> u64,
    ) -> Result<Written> {
        let count = AtomicU64::new(0);
        let counted = rows.inspect_ok(|batch| {
            count.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
        });
        let bytes = self.limits.sort_bytes / self.tasks;
        // It has read all rows when it returns.
        let ordered = sort_by_curve(counted, Arc::new(ranges), about, bytes, self.tasks).await?;
        let count = count.load(Ordering::Relaxed);
        let max_rows_per_file = Some(count.div_ceil(files(count).max(1)).max(1));
        let copying = self.copying(|spec| WriteSpec { max_rows_per_file, target_file_size: u64::MAX, ..spec });
        let written = copying.write(&self.storage, self.stop.guard(ordered), self.clock).await?;
        self.check_rows(written, count).await
    }

    /// Deletes files that do not have all rows.
    async fn check_rows(&self, written: Written, rows: u64) -> Result<Written> {
        let written_rows: u64 = written.0.iter().map(|file| file.rows).sum();
        if written_rows != rows {
            let mut unclaimed = Unclaimed::new(self.storage.clone());
            unclaimed.hold(&written.0)?;
            unclaimed.delete().await;
            return Err(Error::internal(format!("{rows} rows were to be sorted, and {written_rows} were written")));
        }
        Ok(written)
    }

    /// Writes the rows of an interval of a curve. Each file has about `rows_per_file`. `about`: about how many rows there are.
    ///
    /// # Errors
    /// Those of the rows and of writing; no file is left then.
    pub(super) async fn write_interval(
        self,
        rows: impl Stream<Item = Result<RecordBatch>> + Send,
        ranges: Ranges,
        (about, rows_per_file): (u64, u64),
        cube: &str,
    ) -> Result<(Vec<DataFile>, Unclaimed)> {
        let rows_per_file = rows_per_file.max(1);
        let files = |rows: u64| rows.saturating_add(rows_per_file / 2) / rows_per_file;
        let written = self.write_in_order(rows, ranges, about, files).await?;
        self.finish(written, cube).await
    }

    /// Waits until files are durable. `cube`: the id of files that are clustered together.
    async fn finish(&self, (mut files, syncing): Written, cube: &str) -> Result<(Vec<DataFile>, Unclaimed)> {
        let mut unclaimed = Unclaimed::new(self.storage.clone());
        unclaimed.hold(&files)?;
        if let Layout::Curve(layout @ CurveLayout { curve: super::layout::curve::Curve::Hilbert, .. }) = &self.layout {
            files.iter_mut().for_each(|file| mark_clustered(&mut file.add, cube, layout));
        }
        if let Err(error) = syncing.wait().await {
            unclaimed.delete().await;
            return Err(error);
        }
        Ok((files, unclaimed))
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

/// Reads the columns of a curve, in the way of `all`, which reads whole rows.
pub(super) fn key_spec(all: &ReadSpec, layout: &CurveLayout) -> ReadSpec {
    let mut columns: Vec<String> = layout.columns.iter().filter_map(|path| path.first().cloned()).collect();
    columns.sort();
    columns.dedup();
    ReadSpec { columns, row_tracking: None, ..all.clone() }
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
