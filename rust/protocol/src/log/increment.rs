//! The checksum of a version from the one before and the commit in between, without looking at any other file.
//!
//! Never a guess: what cannot be told exactly (a removed file of unknown size) gives no checksum, and members that the
//! checksum before did not have stay out. Equal to counting all live files (`builder::checksums_follow_and_equal_counting`).
//!
//! PROTOCOL.md: "Version Checksum File".

use super::crc::{VersionChecksum, deleted_records_bin};
use crate::action::{Action, Add, DeletionVectorDescriptor, DomainMetadata, Metadata, Protocol, Remove, Txn};
use crate::property::Properties;

/// One commit, as far as the checksum depends on it.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    /// Its files.
    pub files: &'a FileSizes,
    /// Whether the files that it adds were there before.
    pub is_re_add: bool,
    /// The applications that it advances.
    pub txns: &'a [Txn],
    /// The domains that it sets and removes.
    pub domains: &'a [DomainMetadata],
    /// Protocol after it.
    pub protocol: &'a Protocol,
    /// Metadata after it.
    pub metadata: &'a Metadata,
    /// Its transaction id.
    pub txn_id: Option<&'a str>,
    /// Its own time, if it carries one.
    pub in_commit_timestamp: Option<i64>,
}

/// What checksums count of the files of a commit: all sizes, for a checksum may count files by size with bounds of its own.
#[derive(Debug, Clone, Default)]
pub struct FileSizes {
    added: Sizes,
    removed: Sizes,
}

#[derive(Debug, Clone, Default)]
struct Sizes {
    /// Of each file.
    bytes: Vec<i64>,
    /// Of each file that has a deletion vector.
    deleted_rows: Vec<i64>,
    /// Whether there are files whose size is not known.
    has_unknown: bool,
}

impl FileSizes {
    /// A file joins the table.
    pub fn add(&mut self, add: &Add) {
        self.added.push(Some(add.size), add.deletion_vector.as_ref());
    }

    /// A file leaves it.
    pub fn remove(&mut self, remove: &Remove) {
        self.removed.push(remove.size, remove.deletion_vector.as_ref());
    }

    /// A file joins the table or leaves it, if that is what the action says.
    pub fn push(&mut self, action: &Action) {
        match action {
            Action::Add(add) => self.add(add),
            Action::Remove(remove) => self.remove(remove),
            _ => {}
        }
    }

    /// Those of another after these.
    pub fn append(&mut self, other: Self) {
        self.added.append(other.added);
        self.removed.append(other.removed);
    }
}

impl Sizes {
    fn push(&mut self, size: Option<i64>, vector: Option<&DeletionVectorDescriptor>) {
        match size.filter(|size| *size >= 0) {
            Some(size) => self.bytes.push(size),
            None => self.has_unknown = true,
        }
        self.deleted_rows.extend(vector.map(|vector| vector.cardinality));
    }

    fn append(&mut self, other: Self) {
        self.bytes.extend(other.bytes);
        self.deleted_rows.extend(other.deleted_rows);
        self.has_unknown |= other.has_unknown;
    }

    /// Counts the files in (1) or out (-1); `None` if a size is unknown, or more would go out than there is.
    fn count(&self, sum: &mut VersionChecksum, sign: i64) -> Option<()> {
        if self.has_unknown {
            return None;
        }
        let change = |total: &mut i64, by: i64| {
            *total = total.checked_add(sign.checked_mul(by)?).filter(|total| *total >= 0)?;
            Some(())
        };
        let number = |len: usize| i64::try_from(len).ok();
        let total = |values: &[i64]| values.iter().try_fold(0_i64, |total, value| total.checked_add(*value));
        change(&mut sum.num_files, number(self.bytes.len())?)?;
        change(&mut sum.table_size_bytes, total(&self.bytes)?)?;
        if let Some(histogram) = &mut sum.file_size_histogram {
            for size in &self.bytes {
                let bounds = &histogram.sorted_bin_boundaries;
                let bin = bounds.partition_point(|start| start <= size).checked_sub(1)?;
                change(histogram.file_counts.get_mut(bin)?, 1)?;
                change(histogram.total_bytes.get_mut(bin)?, *size)?;
            }
        }
        if let Some(records) = &mut sum.num_deleted_records_opt {
            change(records, total(&self.deleted_rows)?)?;
        }
        if let Some(vectors) = &mut sum.num_deletion_vectors_opt {
            change(vectors, number(self.deleted_rows.len())?)?;
        }
        if let Some(histogram) = &mut sum.deleted_record_counts_histogram_opt {
            for deleted in &self.deleted_rows {
                change(histogram.deleted_record_counts.get_mut(deleted_records_bin(*deleted))?, 1)?;
            }
            let whole = number(self.bytes.len().checked_sub(self.deleted_rows.len())?)?;
            change(histogram.deleted_record_counts.get_mut(deleted_records_bin(0))?, whole)?;
        }
        Some(())
    }
}

/// The checksum after a commit, if it can be told; without one before, the commit creates the table.
pub fn following(previous: Option<&VersionChecksum>, step: Step<'_>) -> Option<VersionChecksum> {
    let mut sum = match previous {
        Some(previous) => previous.clone(),
        None => {
            let mut empty = VersionChecksum::new(step.metadata.clone(), step.protocol.clone(), 0, 0);
            empty.set_transactions = Some(Vec::new());
            empty.domain_metadata = Some(Vec::new());
            empty
        }
    };
    sum.metadata = step.metadata.clone();
    sum.protocol = step.protocol.clone();
    sum.txn_id = step.txn_id.map(str::to_owned);
    sum.in_commit_timestamp_opt = step.in_commit_timestamp;
    if !step.is_re_add {
        // What leaves was there before.
        step.files.removed.count(&mut sum, -1)?;
        step.files.added.count(&mut sum, 1)?;
    }
    sum.set_transactions = transactions(sum.set_transactions.take(), step);
    if let Some(domains) = &mut sum.domain_metadata {
        for domain in step.domains {
            domains.retain(|known| known.domain != domain.domain);
            domains.extend((!domain.removed).then(|| domain.clone()));
        }
    }
    Some(sum)
}

/// Where the table forgets applications, which ones are there depends on the clock: it is not said.
fn transactions(known: Option<Vec<Txn>>, step: Step<'_>) -> Option<Vec<Txn>> {
    let forgets = Properties::of(step.metadata).set_transaction_retention();
    let mut known = known.filter(|_| matches!(forgets, Ok(None)))?;
    for txn in step.txns {
        known.retain(|other| other.app_id != txn.app_id);
        known.push(txn.clone());
    }
    Some(known)
}
