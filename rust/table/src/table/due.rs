//! Decides when an auto compaction may be due, by what this process knows.
//!
//! Small files are counted again only if a partition may have enough of them. There is only one compaction of
//! a table at a time, and none for some time after one that failed.
//!
//! Proved by `tests/python/test_auto_compact.py`.

use std::collections::BTreeMap;
use std::process;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use deltic_protocol::action::PartitionValues;

/// How long there is no compaction after a failure, since the next one would probably fail too.
const AFTER_FAILURE: Duration = Duration::from_secs(600);

/// The maximum number of partitions that are kept.
const MAX_PARTITIONS: usize = 10_000;

/// The compactions in this process, by location and id of the table.
static TABLES: Mutex<BTreeMap<(String, String), Compacting>> = Mutex::new(BTreeMap::new());

/// A compaction, and its process: a forked child does not wait for its parent's.
struct Compacting {
    process: u32,
    /// When it failed; none while it is running.
    failed: Option<Instant>,
}

/// The right to compact a table, until it is dropped.
pub(super) struct Reservation {
    table: (String, String),
    /// Whether the compaction has failed, so that none is tried again for some time.
    pub(super) has_failed: bool,
}

impl Reservation {
    /// None if there is another compaction, or one has failed recently.
    pub(super) fn take(table: (String, String)) -> Option<Self> {
        // In a forked child the lock may be held for ever; it does not compact then.
        let mut tables = TABLES.try_lock().ok()?;
        let is_free = |known: &Compacting| {
            known.process != process::id() || known.failed.is_some_and(|failed| failed.elapsed() >= AFTER_FAILURE)
        };
        if !tables.get(&table).is_none_or(is_free) {
            return None;
        }
        tables.retain(|_, known| !is_free(known));
        tables.insert(table.clone(), Compacting { process: process::id(), failed: None });
        drop(tables);
        Some(Self { table, has_failed: false })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
        if self.has_failed {
            let failed = Compacting { process: process::id(), failed: Some(Instant::now()) };
            tables.insert(self.table.clone(), failed);
        } else {
            tables.remove(&self.table);
        }
    }
}

/// A version, and how many files may be added to each of its partitions before its small files are counted again.
#[derive(Debug, Default)]
pub(super) struct CompactionBudget {
    version: u64,
    files: BTreeMap<PartitionValues, usize>,
}

impl CompactionBudget {
    /// Whether one of the partitions may have many small files after a commit that added so many.
    pub(super) fn is_due_after(&mut self, version: u64, added: &BTreeMap<PartitionValues, usize>) -> bool {
        if self.version.checked_add(1) != Some(version) {
            // Another writer has committed in between.
            self.files.clear();
        }
        self.version = version;
        let mut is_due = false;
        for (partition, added) in added {
            let left = self.files.get(partition).and_then(|budget| budget.checked_sub(*added)).filter(|left| *left > 0);
            match left {
                Some(left) => drop(self.files.insert(partition.clone(), left)),
                None => {
                    self.files.remove(partition);
                    is_due = true;
                }
            }
        }
        is_due
    }

    /// Sets how many files may be added to the partitions that were counted.
    pub(super) fn set(&mut self, version: u64, counted: BTreeMap<PartitionValues, usize>) {
        if self.version != version || self.files.len().saturating_add(counted.len()) > MAX_PARTITIONS {
            self.files.clear();
        }
        self.version = version;
        self.files.extend(counted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_due_one_by_one() {
        let of = |name: &str, files| -> BTreeMap<PartitionValues, usize> {
            [([("p".to_owned(), Some(name.to_owned()))].into(), files)].into()
        };
        let mut budget = CompactionBudget::default();
        assert!(budget.is_due_after(1, &of("a", 1)), "nothing was counted");
        budget.set(1, of("a", 3));
        assert!(!budget.is_due_after(2, &of("a", 1)));
        assert!(budget.is_due_after(3, &of("b", 1)));
        budget.set(3, of("b", 9));
        assert!(!budget.is_due_after(4, &of("a", 1)), "what another partition has is still known");
        assert!(budget.is_due_after(5, &of("a", 1)));
        assert!(!budget.is_due_after(6, &of("b", 1)));
        assert!(budget.is_due_after(8, &of("b", 1)), "another writer came between");
    }

    #[test]
    fn one_at_a_time_and_none_after_a_failure() {
        let table = |id: &str| ("memory:///".to_owned(), id.to_owned());
        let first = Reservation::take(table("a"));
        assert!(first.is_some());
        assert!(Reservation::take(table("a")).is_none());
        assert!(Reservation::take(table("b")).is_some());
        drop(first);
        let mut second = Reservation::take(table("a"));
        second.iter_mut().for_each(|second| second.has_failed = true);
        drop(second);
        assert!(Reservation::take(table("a")).is_none());
    }
}
