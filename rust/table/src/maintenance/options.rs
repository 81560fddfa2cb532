//! Options and result of OPTIMIZE: plain data.

use std::collections::BTreeMap;

use deltic_protocol::action::PartitionValues;
use serde::{Deserialize, Serialize};

/// Options of an OPTIMIZE.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimizeOptions {
    /// A condition on partition columns that chooses partitions; all if none.
    pub filter: Option<String>,
    /// Columns by which rows are ordered along a Z-order curve; inner ones by dotted paths.
    pub zorder_by: Vec<String>,
    /// Bytes that a file should have.
    pub target_file_size: Option<u64>,
    /// Whether also files of a clustered table are rewritten that are clustered already.
    pub full: bool,
    /// How many bins are rewritten at a time.
    pub max_tasks: Option<usize>,
    /// How much is done at once.
    #[serde(skip)]
    pub limits: Limits,
}

/// How much is done at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// About how many bytes of files one commit replaces.
    pub commit_bytes: u64,
    /// The size in bytes from which on a cube (files that were clustered together) is not clustered again.
    pub min_cube_bytes: u64,
    /// Most bytes that are clustered together.
    pub max_cube_bytes: u64,
    /// Bytes of rows that all bins together sort in memory.
    pub sort_bytes: usize,
    /// Bytes of rows and pages that all writers together have in memory.
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
    /// The version whose files were chosen.
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
    /// Live files in the requested partitions.
    pub files_considered: u64,
    /// Number of these files that are not rewritten.
    pub files_skipped: u64,
    /// Number of files that were not replaced, because another writer changed a file of the same bin meanwhile.
    pub files_lost: u64,
    /// Files that are rewritten.
    pub files_to_rewrite: u64,
    /// Their bytes.
    pub bytes_to_rewrite: u64,
    /// Estimated number of new files.
    pub expected_files: u64,
    /// The partitions whose files are rewritten.
    pub partitions: Vec<PartitionToOptimize>,
    /// The `operationMetrics` of all commits together.
    pub metrics: BTreeMap<String, u64>,
}

/// A partition whose files are rewritten.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PartitionToOptimize {
    /// The text forms of its values by column name.
    pub values: PartitionValues,
    /// How many files are rewritten.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Estimated number of new files.
    pub expected_files: u64,
}
