//! The columns of the file index.

use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::stats::read::Leaf;

use crate::error::{Error, Result};

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
    Partition(PartitionColumn),
    /// Least and greatest values of a column.
    Bounds {
        /// Its physical path, and its type.
        leaf: Leaf,
        /// Whether counts of nulls and rows are needed even if the bounds are known.
        with_counts: bool,
    },
}

/// A partition column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PartitionColumn {
    /// Its name in the table.
    pub(crate) name: String,
    /// Its physical path, and its type.
    pub(crate) leaf: Leaf,
    /// The keys that `add.partitionValues` may have for it, in order of preference.
    pub(crate) keys: [String; 2],
}

impl PartitionColumn {
    /// The partition column of a table with this name.
    ///
    /// # Errors
    /// `Corrupt` if it has no type that partition values can have, or no physical name.
    pub(crate) fn of(shape: &TableShape, name: &str) -> Result<Self> {
        let leaf = shape.partition_leaf(name)?;
        let field = shape.schema.field(name).ok_or_else(|| Error::internal(format!("`{name}` is not a column")))?;
        let keys = shape.mapping.partition_keys(&shape.schema, field)?.map(str::to_owned);
        Ok(Self { name: name.to_owned(), leaf, keys })
    }

    /// Its keys as text.
    pub(super) fn keys(&self) -> [&str; 2] {
        self.keys.each_ref().map(String::as_str)
    }
}
