//! Counts the requests to a [`Storage`](super::Storage), for tests and benchmarks.
//!
//! Requests are counted once, without retries inside a client. An object written in parts is one put.

use std::sync::atomic::{AtomicU64, Ordering};

/// Requests made so far by a [`Storage`](super::Storage) and all its clones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// LIST requests: one for each page if the store has pages, otherwise one for each folder.
    pub lists: u64,
    /// Reads of a whole file or of one range of it.
    pub gets: u64,
    /// Requests for metadata only.
    pub heads: u64,
    /// Files written, including failed attempts.
    pub puts: u64,
    /// Deletions: one for each file, or for each request that deletes many.
    pub deletes: u64,
    /// Bytes received by reads.
    pub bytes_read: u64,
    /// Bytes passed to writes.
    pub bytes_written: u64,
}

impl Counts {
    /// The requests since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            lists: self.lists.saturating_sub(earlier.lists),
            gets: self.gets.saturating_sub(earlier.gets),
            heads: self.heads.saturating_sub(earlier.heads),
            puts: self.puts.saturating_sub(earlier.puts),
            deletes: self.deletes.saturating_sub(earlier.deletes),
            bytes_read: self.bytes_read.saturating_sub(earlier.bytes_read),
            bytes_written: self.bytes_written.saturating_sub(earlier.bytes_written),
        }
    }
}

/// The running totals behind [`Counts`].
#[derive(Debug, Default)]
pub(super) struct Tally {
    lists: AtomicU64,
    gets: AtomicU64,
    heads: AtomicU64,
    puts: AtomicU64,
    deletes: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

impl Tally {
    pub(super) fn list(&self) {
        self.lists.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn get(&self) {
        self.gets.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn received(&self, bytes: usize) {
        self.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn head(&self) {
        self.heads.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn put(&self, bytes: u64) {
        self.puts.fetch_add(1, Ordering::Relaxed);
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn delete(&self) {
        self.deletes.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> Counts {
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Counts {
            lists: read(&self.lists),
            gets: read(&self.gets),
            heads: read(&self.heads),
            puts: read(&self.puts),
            deletes: read(&self.deletes),
            bytes_read: read(&self.bytes_read),
            bytes_written: read(&self.bytes_written),
        }
    }
}
