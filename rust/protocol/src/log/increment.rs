//! The checksum of a version, computed from the one before and the commit in between, without reading any other file.
//!
//! It is never a guess: if something is not known exactly (the size of a removed file), there is no checksum, and members
//! that the previous checksum did not have are left out. The result equals counting all live files
//! (`builder::incremental_checksums_equal_recomputed_ones`).
//!
//! PROTOCOL.md: "Version Checksum File".

use super::crc::{VersionChecksum, deleted_records_bin};
use crate::action::{Action, Add, DeletionVectorDescriptor, DomainMetadata, Metadata, Protocol, Remove, Txn};
use crate::property::Properties;

/// The parts of a commit that the checksum depends on.
#[derive(Debug, Clone, Copy)]
pub struct ChecksumDelta<'a> {
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
    /// Its in-commit timestamp, if it has one.
    pub in_commit_timestamp: Option<i64>,
}

/// The sizes of a commit's files. All sizes are kept, since each checksum may have other bins in its histogram.
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
    /// Adds an added file.
    pub fn add(&mut self, add: &Add) {
        self.added.push(Some(add.size), add.deletion_vector.as_ref());
    }

    /// Adds a removed file.
    pub fn remove(&mut self, remove: &Remove) {
        self.removed.push(remove.size, remove.deletion_vector.as_ref());
    }

    /// Adds an added or removed file, if the action is one.
    pub fn push(&mut self, action: &Action) {
        match action {
            Action::Add(add) => self.add(add),
            Action::Remove(remove) => self.remove(remove),
            _ => {}
        }
    }

    /// Adds all sizes of another.
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

    /// Adds (1) or subtracts (-1) the files; `None` if a size is unknown, or if more would be subtracted than there is.
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

/// The checksum after a commit, if it is known exactly. Without a previous one, the commit creates the table.
pub fn next_checksum(previous: Option<&VersionChecksum>, delta: ChecksumDelta<'_>) -> Option<VersionChecksum> {
    let mut sum = match previous {
        Some(previous) => previous.clone(),
        None => {
            let mut empty = VersionChecksum::new(delta.metadata.clone(), delta.protocol.clone(), 0, 0);
            empty.set_transactions = Some(Vec::new());
            empty.domain_metadata = Some(Vec::new());
            empty
        }
    };
    sum.metadata = delta.metadata.clone();
    sum.protocol = delta.protocol.clone();
    sum.txn_id = delta.txn_id.map(str::to_owned);
    sum.in_commit_timestamp_opt = delta.in_commit_timestamp;
    if !delta.is_re_add {
        // Removed files were counted before.
        delta.files.removed.count(&mut sum, -1)?;
        delta.files.added.count(&mut sum, 1)?;
    }
    sum.set_transactions = transactions(sum.set_transactions.take(), delta);
    if let Some(domains) = &mut sum.domain_metadata {
        for domain in delta.domains {
            domains.retain(|known| known.domain != domain.domain);
            domains.extend((!domain.removed).then(|| domain.clone()));
        }
    }
    Some(sum)
}

/// If the table forgets applications after some time, the list depends on the clock and is left out.
fn transactions(known: Option<Vec<Txn>>, delta: ChecksumDelta<'_>) -> Option<Vec<Txn>> {
    let forgets = Properties::of(delta.metadata).set_transaction_retention();
    let mut known = known.filter(|_| matches!(forgets, Ok(None)))?;
    for txn in delta.txns {
        known.retain(|other| other.app_id != txn.app_id);
        known.push(txn.clone());
    }
    Some(known)
}
