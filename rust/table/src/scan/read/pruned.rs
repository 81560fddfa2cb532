//! Counts the row groups that a reader skips in the files that it opens, and why.

use std::sync::atomic::{AtomicU64, Ordering};

/// Row groups of the files that were opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RowGroupCounts {
    pub(crate) total: u64,
    /// Those without a row that qualifies, by the statistics in the footers.
    pub(crate) skipped_by_footer: u64,
    /// Others without one, by bloom filters.
    pub(crate) skipped_by_bloom_filter: u64,
}

/// The same, while files are being opened.
#[derive(Debug, Default)]
pub(super) struct PrunedRowGroups {
    total: AtomicU64,
    by_footer: AtomicU64,
    by_bloom_filter: AtomicU64,
}

impl PrunedRowGroups {
    /// Adds a file of which so many row groups are left.
    pub(super) fn add_file(&self, row_groups: usize, left: usize) {
        self.total.fetch_add(row_groups as u64, Ordering::Relaxed);
        self.by_footer.fetch_add(row_groups.saturating_sub(left) as u64, Ordering::Relaxed);
    }

    /// Adds row groups that bloom filters rule out.
    pub(super) fn add_by_bloom_filter(&self, row_groups: usize) {
        self.by_bloom_filter.fetch_add(row_groups as u64, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> RowGroupCounts {
        RowGroupCounts {
            total: self.total.load(Ordering::Relaxed),
            skipped_by_footer: self.by_footer.load(Ordering::Relaxed),
            skipped_by_bloom_filter: self.by_bloom_filter.load(Ordering::Relaxed),
        }
    }
}
