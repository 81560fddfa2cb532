//! OPTIMIZE by several processes: the driver plans and commits; tasks rewrite the bins.
//!
//! They exchange plain bytes. A [`RewriteTask`] rewrites one bin. A large bin along a curve is divided into intervals of the
//! curve: [`SampleTask`]s sample its rows, the driver makes a [`Division`] of the samples, [`SplitTask`]s read the files, and
//! the rows of each interval, which others bring together, are sorted and written.
//!
//! A task that is carried out twice, or whose process dies, leaves unreferenced files.
//!
//! Invariants: files of tasks that were not committed are found by their names, which have an id for the tasks of each commit,
//! so that a committed file is never among them (`optimize::bins_are_rewritten_by_tasks`). A divided bin is committed only with
//! all its intervals, and as many rows as it has (`optimize_intervals::results_of_intervals_are_checked`).
//!
//! Proved by `tests/rust/table/optimize_intervals.rs` and `tests/spark/test_intervals.py`.

mod division;
mod driver;
mod rewrite_task;
mod sample_task;
mod written;

pub use division::{Division, SplitTask};
pub use driver::{Cluster, DistributedOptimize, Divided, NextTasks};
pub use rewrite_task::RewriteTask;
pub use sample_task::SampleTask;
