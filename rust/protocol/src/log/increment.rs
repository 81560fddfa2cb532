//! The checksum of a version from the one before and the commit in between, without looking at any other file.
//!
//! Never a guess: what cannot be told exactly (a removed file of unknown size) gives no checksum, and members that the
//! checksum before did not have stay out. Equal to counting all live files (`builder::checksums_follow_and_equal_counting`).
//!
//! PROTOCOL.md: "Version Checksum File".

use serde::Deserialize;

use super::crc::{VersionChecksum, deleted_records_bin};
use crate::action::lines::Lines;
use crate::action::{DomainMetadata, Metadata, Protocol, Txn};
use crate::error::{Error, Result};
use crate::property::Properties;

/// One commit, as far as the checksum depends on it.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    /// What it says; actions that are not of files are passed over.
    pub lines: &'a Lines,
    /// Whether the files that it adds were there before.
    pub says_again: bool,
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

/// What the counts depend on.
#[derive(Deserialize)]
struct Counted {
    add: Option<CountedFile>,
    remove: Option<CountedFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CountedFile {
    size: Option<i64>,
    deletion_vector: Option<CountedVector>,
}

#[derive(Deserialize)]
struct CountedVector {
    cardinality: i64,
}

/// The checksum after a commit, if it can be told; without one before, the commit creates the table.
///
/// # Errors
/// `Internal` if the lines cannot be read back.
pub fn following(previous: Option<&VersionChecksum>, step: Step<'_>) -> Result<Option<VersionChecksum>> {
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
    let mut is_told = true;
    let lines = if step.says_again { &Lines::new() } else { step.lines };
    lines.each(|line| {
        let unreadable = |e| Error::internal("a line of a commit cannot be read back").caused_by(e);
        let Counted { add, remove } = serde_json::from_slice(line).map_err(unreadable)?;
        for (sign, file) in [(1, add), (-1, remove)] {
            is_told &= file.is_none_or(|file| count(&mut sum, sign, &file).is_some());
        }
        Ok(())
    })?;
    if !is_told {
        return Ok(None);
    }
    sum.set_transactions = transactions(sum.set_transactions.take(), step);
    if let Some(domains) = &mut sum.domain_metadata {
        for domain in step.domains {
            domains.retain(|known| known.domain != domain.domain);
            domains.extend((!domain.removed).then(|| domain.clone()));
        }
    }
    Ok(Some(sum))
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

/// Counts a file in (1) or out (-1); `None` if its size is unknown, or more would go out than there is.
fn count(sum: &mut VersionChecksum, sign: i64, file: &CountedFile) -> Option<()> {
    let size = file.size.filter(|size| *size >= 0)?;
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
    let vector = file.deletion_vector.as_ref();
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
