//! Limits of a writer's memory, and its use.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::error::{Error, Result};

/// Most bytes of rows and encoded pages that a writer has in memory by default.
pub const DEFAULT_MEMORY: usize = 512 * 1024 * 1024;

/// The least limit that a caller may choose.
pub const LEAST_MEMORY: u64 = 1024 * 1024;

/// Checks the `memory_limit` of a write or a merge.
///
/// # Errors
/// `Invalid` for a limit below [`LEAST_MEMORY`].
pub(crate) fn check_memory_limit(bytes: Option<u64>) -> Result<()> {
    match bytes.is_some_and(|bytes| bytes < LEAST_MEMORY) {
        true => Err(Error::invalid(format!("memory_limit must be at least 1 MB ({LEAST_MEMORY} bytes)"))),
        false => Ok(()),
    }
}

/// How many files may be open at a time.
const OPEN_FILES: usize = 64;

/// Bytes of the memory limit for each open file. An upload's buffer is as large.
const MEMORY_OF_FILE: usize = 8 * 1024 * 1024;

/// Bytes of rows that are processed at a time.
const AT_ONCE: usize = 16 * 1024 * 1024;

/// Limits of a writer, for any number of partitions.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most open files. Each has an upload's buffer, which `memory` does not count.
    pub open_files: usize,
    /// The most bytes of rows and encoded pages. Beyond it, rows of open files are encoded and uploaded, and others are
    /// written to a temporary file.
    pub memory: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self::of_memory(DEFAULT_MEMORY)
    }
}

impl Limits {
    /// Limits for so many bytes of memory, with a matching number of open files.
    pub fn of_memory(memory: usize) -> Self {
        Self { open_files: (memory / MEMORY_OF_FILE).clamp(1, OPEN_FILES), memory }
    }

    /// The limits of a caller, or the defaults.
    pub(super) fn chosen(memory: Option<u64>) -> Self {
        memory.map_or_else(Self::default, |bytes| Self::of_memory(usize::try_from(bytes).unwrap_or(usize::MAX)))
    }

    /// About how many bytes of rows are processed at a time.
    pub(super) fn at_once(self) -> usize {
        (self.memory / 8).clamp(1, AT_ONCE)
    }

    /// Most bytes of one partition's rows that are read from the temporary file at a time.
    pub(super) fn at_once_of_partition(self) -> usize {
        (self.memory / 8).max(1)
    }

    /// Bytes of other partitions' rows after which a partition counts as idle.
    pub(super) fn idle_after_bytes(self) -> u64 {
        (self.memory / 2) as u64
    }
}

/// Memory use of a writer, which may be read while it writes and afterwards.
#[derive(Debug, Default)]
pub struct MemoryUse {
    peak: AtomicUsize,
    spilled: AtomicU64,
}

impl MemoryUse {
    /// Peak bytes of rows and encoded pages.
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// Bytes of rows that were spilled to a temporary file.
    pub fn spilled(&self) -> u64 {
        self.spilled.load(Ordering::Relaxed)
    }

    pub(super) fn note(&self, held: usize) {
        self.peak.fetch_max(held, Ordering::Relaxed);
    }

    pub(super) fn note_spilled(&self, bytes: usize) {
        self.spilled.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
