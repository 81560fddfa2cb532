//! What is decoded: an open file, and some of its row groups.

use std::collections::BTreeSet;
use std::sync::Arc;

use deltic_protocol::predicate::BoundPredicate;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::arrow::push_decoder::RowGroupSelection;

use super::adapt::Adapter;
use super::fetch::FileBytes;

/// What all units of one file share.
#[derive(Debug)]
pub(crate) struct OpenFile {
    /// As in the log; for messages.
    pub(crate) path: String,
    pub(crate) bytes: FileBytes,
    pub(crate) metadata: ArrowReaderMetadata,
    pub(crate) filter: Filter,
    /// Gives the output columns, and behind them those that [`Filter::After`] needs in addition.
    pub(crate) adapter: Adapter,
    /// Number of output columns.
    pub(crate) width: usize,
}

impl OpenFile {
    /// Positions of the leaves that are decoded, in order.
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
    /// The predicate's columns are decoded first, the others only for the rows it keeps.
    Before(Arc<BoundPredicate>, Arc<Adapter>),
    /// The predicate is evaluated on what was decoded.
    After(Arc<BoundPredicate>),
}

/// Row groups that are decoded one after the other.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) file: Arc<OpenFile>,
    pub(crate) row_groups: Vec<RowGroupSelection>,
    /// Rows that the row groups hold after deletion, before the predicate.
    pub(crate) rows: u64,
}
