//! Units of work: an open file, and some of its row groups.

use std::collections::BTreeSet;
use std::sync::Arc;

use deltic_protocol::predicate::BoundPredicate;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::arrow::push_decoder::RowGroupSelection;

use super::adapt::Adapter;
use super::fetch::FileBytes;

/// What all units of one file have in common.
#[derive(Debug)]
pub(crate) struct OpenFile {
    /// The path as in the log, for messages.
    pub(crate) path: String,
    pub(crate) bytes: FileBytes,
    pub(crate) metadata: ArrowReaderMetadata,
    pub(crate) filter: Filter,
    /// Returns the output columns, and after them those that only [`Filter::After`] needs.
    pub(crate) adapter: Adapter,
    /// Number of output columns.
    pub(crate) width: usize,
}

impl OpenFile {
    /// Indexes of the leaves that are decoded, in order.
    pub(crate) fn needed_leaves(&self) -> BTreeSet<usize> {
        let mut leaves: BTreeSet<usize> = self.adapter.leaves().iter().copied().collect();
        if let Filter::Before(_, first) = &self.filter {
            leaves.extend(first.leaves());
        }
        leaves
    }
}

/// How rows are chosen.
#[derive(Debug)]
pub(crate) enum Filter {
    /// All rows of the file qualify.
    None,
    /// The predicate's columns are decoded first, the others only for the rows that it keeps.
    Before(Arc<BoundPredicate>, Arc<Adapter>),
    /// All columns are decoded, and then the predicate is evaluated.
    After(Arc<BoundPredicate>),
}

/// Row groups that are decoded one after the other.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) file: Arc<OpenFile>,
    pub(crate) row_groups: Vec<RowGroupSelection>,
    /// Rows of the row groups that are not deleted, before the predicate.
    pub(crate) rows: u64,
}
