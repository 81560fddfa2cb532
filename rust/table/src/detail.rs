//! The facts about one version of a table that `DESCRIBE DETAIL` shows.
//!
//! Files and bytes come from the version's checksum, if it has one; rows are counted from the log, and no data file is
//! opened.
//!
//! PROTOCOL.md: "Per-file Statistics", "Version Checksum File", "Clustered Table".

use arrow_buffer::BooleanBuffer;
use deltic_protocol::feature;
use deltic_protocol::schema::path;
use futures::TryStreamExt;

use crate::checkpoint::read::AddColumns;
use crate::commit::load_table_state;
use crate::error::{Error, Result};
use crate::scan::count::known_rows;
use crate::snapshot::Snapshot;

/// Counts and times of a version; the rest is in its metadata and protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detail {
    /// Data files.
    pub num_files: u64,
    /// Their bytes.
    pub size_in_bytes: u64,
    /// Their rows without the deleted ones; none if the statistics of a file lack the number of rows.
    pub num_rows: Option<u64>,
    /// When the version was committed, in milliseconds since the epoch.
    pub last_modified: Option<i64>,
    /// Paths of the columns by which it is clustered.
    pub clustering_columns: Vec<String>,
    /// The features of the protocol, listed or implied by its versions.
    pub table_features: Vec<String>,
}

impl Detail {
    /// Collects them.
    ///
    /// # Errors
    /// Those of reading the log.
    pub async fn of(snapshot: &Snapshot) -> Result<Self> {
        let columns =
            AddColumns { members: vec!["path", "size", "deletionVector"], num_records: true, ..AddColumns::default() };
        let (mut num_files, mut size_in_bytes, mut num_rows) = (0_u64, 0_u64, Some(0_u64));
        let mut live = std::pin::pin!(snapshot.live_files(&columns).await?);
        let in_table = |e: Error| e.in_table(snapshot.storage().location());
        while let Some(adds) = live.try_next().await? {
            num_files = num_files.saturating_add(adds.len() as u64);
            let sizes = adds.size().into_iter().flatten().flatten();
            size_in_bytes = sizes.fold(size_in_bytes, |all, size| all.saturating_add(size.try_into().unwrap_or(0)));
            let counts = known_rows(&adds, &BooleanBuffer::new_set(adds.len())).map_err(in_table)?;
            let rows = counts.into_iter().try_fold(0_u64, |all, rows| Some(all.saturating_add(rows?)));
            num_rows = num_rows.zip(rows).map(|(all, more)| all.saturating_add(more));
        }
        let state = load_table_state(snapshot).await?;
        let shape = snapshot.shape();
        let logical = |physical: &Vec<String>| {
            let named = shape.mapping.logical_path(&shape.schema, physical);
            path::print(named.as_ref().unwrap_or(physical))
        };
        Ok(Self {
            num_files,
            size_in_bytes,
            num_rows,
            last_modified: state.timestamp,
            clustering_columns: state.clustering.iter().map(logical).collect(),
            table_features: feature::supported(snapshot.protocol()).into_iter().collect(),
        })
    }
}
