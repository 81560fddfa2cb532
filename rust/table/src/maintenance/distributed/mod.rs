//! OPTIMIZE by several processes: the driver plans and commits; tasks rewrite the bins.
//!
//! They exchange plain bytes. A [`RewriteTask`] has all that rewriting one bin needs except access to the store. A bin that is
//! large, and whose rows are ordered along a curve, is divided into intervals of the curve, so that all processes work on it:
//!
//! 1. A [`SampleTask`] samples the rows of some of its files. The driver merges the samples, and finds ranges of values, and the
//!    positions on the curve at which intervals of about the same numbers of rows begin: the [`Division`].
//! 2. A split task reads some of its files, and returns the rows of each interval in Arrow's IPC format.
//! 3. These rows are brought together by interval, which is not done here. An interval is sorted, and its files are written.
//!
//! So a row's columns are read once, those of the curve twice. An interval has the positions from its beginning up to the
//! next one's; all processes compute them from the same ranges, so that every row is in one interval.
//!
//! A task that is carried out twice, or whose process dies, leaves unreferenced files.
//!
//! Invariants: files of tasks that were not committed are found by their names, which have an id for the tasks of each commit,
//! so that a committed file is never among them (`optimize::bins_are_rewritten_by_tasks`). A bin is committed only with the
//! files of all its intervals, and if they have as many rows as it has (`optimize::results_of_intervals_are_checked`).
//!
//! Proved by `tests/rust/table/optimize.rs`, `tests/rust/table/optimize_intervals.rs` and `tests/spark/test_maintenance.py`.

mod division;
mod driver;
mod rewrite_task;
mod sample_task;
mod written;

pub use division::{Division, SplitTask};
pub use driver::{Cluster, DistributedOptimize, Divided, NextTasks};
pub use rewrite_task::RewriteTask;
pub use sample_task::SampleTask;
