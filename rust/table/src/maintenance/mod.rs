//! Maintenance that changes no rows: OPTIMIZE, REORG and VACUUM.
//!
//! OPTIMIZE chooses files (`files`), packs them into bins (`pack`), rewrites each bin in the requested layout
//! (`layout`, `bins`), and commits bins together (`commit`). A layout along a curve orders the rows of a bin by ranges of
//! sampled values (`layout::ranges`, `layout::curve`), within bounded memory (`sort`). REORG does the same for other files
//! (`reorg`), auto compaction for small ones (`auto_compact`), and removing column mapping for all
//! (`column_mapping`). Other processes may rewrite the bins, or parts of a bin (`distributed`). All of it commits by a
//! [`Transaction`](crate::transaction::builder::Transaction).
//!
//! Invariant: before and after it the table has the same rows, with the same ids where it tracks rows
//! (`optimize::rows_and_ids_stay`).
//!
//! Proved by `tests/rust/table/optimize.rs` and `tests/python/test_optimize.py`.
//!
//! PROTOCOL.md: "Add File and Remove File" (`dataChange`), "Row Tracking", "Clustered Table".

mod auto_compact;
mod bins;
mod column_mapping;
mod commit;
mod distributed;
mod files;
mod layout;
mod optimize;
mod options;
mod pack;
mod reorg;
mod sort;
mod vacuum;

pub use auto_compact::{AutoCompacted, MIN_FILES, auto_compact};
pub(crate) use column_mapping::remove_column_mapping;
pub use distributed::{Cluster, DistributedOptimize, Divided, Division, NextTasks, RewriteTask, SampleTask, SplitTask};
pub use optimize::{optimize, plan_optimize};
pub use options::{Limits, OptimizeOptions, Optimized, PartitionToOptimize};
pub(crate) use reorg::{Footers, ReorgOptions, Reorganized, plan_reorganize, reorganize};
pub(crate) use vacuum::dispensable;
pub use vacuum::{DistributedVacuum, Inventory, Search, SweepTask, VacuumOptions, Vacuumed, vacuum};
