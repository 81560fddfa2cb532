//! Options and result of OPTIMIZE: plain data.

use std::collections::BTreeMap;

use deltic_protocol::action::PartitionValues;
use serde::{Deserialize, Serialize};

/// Options of an OPTIMIZE.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimizeOptions {
    /// Which partitions, if not all: a condition on partition columns.
    pub filter: Option<String>,
    /// Columns by which rows are ordered along a Z-order curve; inner ones by dotted paths.
    pub zorder_by: Vec<String>,
    /// Bytes that a file should have.
    pub target_file_size: Option<u64>,
    /// Whether files of a clustered table are written again that are clustered already.
    pub full: bool,
    /// Bins that are written at a time.
    pub max_tasks: Option<usize>,
    /// How much is done at once.
    #[serde(skip)]
    pub limits: Limits,
}

/// How much is done at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of files that one commit replaces, about.
    pub commit_bytes: u64,
    /// Least bytes of a group of files, clustered together, that is not clustered again.
    pub min_cube_bytes: u64,
    /// Bytes that are clustered together at most.
    pub max_cube_bytes: u64,
    /// Bytes of rows that are sorted in memory, by all bins together.
    pub sort_bytes: usize,
    /// Bytes of rows and pages that writers hold, all together.
    pub write_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const GIB: u64 = 1 << 30;
        Self {
            commit_bytes: 64 * GIB,
            min_cube_bytes: 100 * GIB,
            max_cube_bytes: 150 * GIB,
            sort_bytes: 256 << 20,
            write_bytes: 256 << 20,
        }
    }
}

/// Result of an OPTIMIZE, or of its dry run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Optimized {
    /// The version whose files were looked at.
    pub read_version: u64,
    /// The versions that were committed, in order.
    pub versions: Vec<u64>,
    /// `compact`, `zorder` or `hilbert`.
    pub layout: String,
    /// The columns of a curve, with dots inside structs.
    pub columns: Vec<String>,
    /// Bytes that a file should have.
    pub target_file_size: u64,
    /// Live files.
    pub files_total: u64,
    /// Those in the partitions that were asked for.
    pub files_considered: u64,
    /// Number of these files that are not rewritten.
    pub files_skipped: u64,
    /// Number of files that were not replaced, because another writer changed a file of the same bin meanwhile.
    pub files_lost: u64,
    /// Files that are written again.
    pub files_to_rewrite: u64,
    /// Their bytes.
    pub bytes_to_rewrite: u64,
    /// Estimated number of new files.
    pub expected_files: u64,
    /// The partitions whose files are written again.
    pub partitions: Vec<PartitionToOptimize>,
    /// Counters, as in the `operationMetrics` of the commits, of all of them.
    pub metrics: BTreeMap<String, u64>,
}

/// A partition whose files are written again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PartitionToOptimize {
    /// Text forms by column name.
    pub values: PartitionValues,
    /// How many files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Estimated number of new files.
    pub expected_files: u64,
}
