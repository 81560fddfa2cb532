//! What a table is at one version, in the terms of `DESCRIBE DETAIL`.
//!
//! Files and bytes come from the version's checksum, if it has one; rows are counted from the log, and no data file is
//! opened.
//!
//! PROTOCOL.md: "Per-file Statistics", "Version Checksum File", "Clustered Table".

use arrow_array::Array;
use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::feature;
use deltic_protocol::log_bounds::statistics;
use futures::TryStreamExt;

use crate::checkpoint::read::AddColumns;
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::transaction::state_of;

/// What is counted and collected of a version; the rest is in its metadata and protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detail {
    /// Data files.
    pub num_files: u64,
    /// Their bytes.
    pub size_in_bytes: u64,
    /// Their rows without those that are deleted; none if a file's statistics do not say.
    pub num_rows: Option<u64>,
    /// When the version was committed, in milliseconds since the epoch.
    pub last_modified: Option<i64>,
    /// The features of the protocol, listed or implied by its versions.
    pub table_features: Vec<String>,
}

impl Detail {
    /// Collects it.
    ///
    /// # Errors
    /// Those of reading the log.
    pub async fn of(snapshot: &Snapshot) -> Result<Self> {
        let columns =
            AddColumns { members: vec!["path", "size", "deletionVector"], num_records: true, ..AddColumns::default() };
        let (mut num_files, mut size_in_bytes, mut num_rows) = (0_u64, 0_u64, Some(0_u64));
        let mut live = std::pin::pin!(snapshot.live_files(&columns).await?);
        let place = |e: Error| e.in_table(snapshot.storage().location());
        while let Some(adds) = live.try_next().await? {
            num_files = num_files.saturating_add(adds.len() as u64);
            let sizes = adds.size().into_iter().flatten().flatten();
            size_in_bytes = sizes.fold(size_in_bytes, |all, size| all.saturating_add(size.try_into().unwrap_or(0)));
            num_rows = match num_rows {
                Some(rows) => rows_of(&adds).map_err(place)?.map(|more| rows.saturating_add(more)),
                None => None,
            };
        }
        Ok(Self {
            num_files,
            size_in_bytes,
            num_rows,
            last_modified: state_of(snapshot).await?.timestamp,
            table_features: feature::supported(snapshot.protocol()).into_iter().collect(),
        })
    }
}

/// The rows of some files, if the log has the number of each.
fn rows_of(adds: &AddBatch) -> Result<Option<u64>> {
    let counts = statistics(adds, &[])?.num_records;
    let mut rows = 0_u64;
    for row in 0..adds.len() {
        let deleted = adds.deletion_vector(row)?.map_or(0, |vector| vector.cardinality);
        let stored = counts.is_valid(row).then(|| counts.value(row)).and_then(|stored| stored.checked_sub(deleted));
        match stored.and_then(|rows| u64::try_from(rows).ok()) {
            Some(more) => rows = rows.saturating_add(more),
            None => return Ok(None),
        }
    }
    Ok(Some(rows))
}
