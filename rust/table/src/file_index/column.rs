//! The columns of the file index.

use deltic_protocol::stats::read::Leaf;

/// A column of the file index.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum IndexColumn {
    /// Which rows have an `add`.
    Presence,
    /// `add.path`.
    Path,
    /// `add.size`, bytes.
    Size,
    /// `add.modificationTime`, milliseconds since the epoch.
    ModificationTime,
    /// `add.deletionVector`.
    DeletionVector,
    /// Typed values of a partition column.
    Partition {
        /// Its name in the table.
        name: String,
        /// Its physical path, and its type.
        leaf: Leaf,
    },
    /// Least and greatest values of a column.
    Bounds {
        /// Its physical path, and its type.
        leaf: Leaf,
        /// Whether counts of nulls and rows are needed even if the bounds are known.
        with_counts: bool,
    },
}
