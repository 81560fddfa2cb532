//! The checksum of a version from the one before and the commit in between, without looking at any other file.
//!
//! Never a guess: what cannot be told exactly (a removed file of unknown size) gives no checksum, and members that the
//! checksum before did not have stay out. Equal to counting all live files (`draft::checksums_follow_and_equal_counting`).
//!
//! PROTOCOL.md: "Version Checksum File".

use super::crc::{VersionChecksum, deleted_records_bin};
use crate::action::{Action, DeletionVectorDescriptor, DomainMetadata, Metadata, Protocol, Txn};
use crate::property::Properties;

/// One commit, as far as the checksum depends on it.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    /// The files that it adds and removes; other actions are passed over.
    pub files: &'a [Action],
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
    for action in step.files {
        match action {
            Action::Add(add) => count(&mut sum, 1, add.size, add.deletion_vector.as_ref())?,
            Action::Remove(remove) => count(&mut sum, -1, remove.size?, remove.deletion_vector.as_ref())?,
            _ => {}
        }
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

/// Counts a file in (1) or out (-1); `None` if more would go out than there is.
fn count(sum: &mut VersionChecksum, sign: i64, size: i64, vector: Option<&DeletionVectorDescriptor>) -> Option<()> {
    if size < 0 {
        return None;
    }
    let change = |total: &mut i64, by: i64| {
        *total = total.checked_add(by).filter(|total| *total >= 0)?;
        Some(())
    };
    change(&mut sum.num_files, sign)?;
    change(&mut sum.table_size_bytes, sign.checked_mul(size)?)?;
    if let Some(histogram) = &mut sum.file_size_histogram {
        let bin = histogram.sorted_bin_boundaries.partition_point(|start| *start <= size).checked_sub(1)?;
        change(histogram.file_counts.get_mut(bin)?, sign)?;
        change(histogram.total_bytes.get_mut(bin)?, sign.checked_mul(size)?)?;
    }
    let deleted = vector.map_or(0, |vector| vector.cardinality);
    if let Some(records) = &mut sum.num_deleted_records_opt {
        change(records, sign.checked_mul(deleted)?)?;
    }
    if let (Some(vectors), Some(_)) = (&mut sum.num_deletion_vectors_opt, vector) {
        change(vectors, sign)?;
    }
    if let Some(histogram) = &mut sum.deleted_record_counts_histogram_opt {
        change(histogram.deleted_record_counts.get_mut(deleted_records_bin(deleted))?, sign)?;
    }
    Some(())
}
