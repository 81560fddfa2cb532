//! The state of the table on which commits are based.
//!
//! PROTOCOL.md: "Row Tracking", "Clustered Table", "In-Commit Timestamps".

use deltic_protocol::action::batch::Origin;
use deltic_protocol::action::json::{Wanted, parse_commit};
use deltic_protocol::action::{DomainMetadata, Metadata};
use deltic_protocol::commit::{CLUSTERING_DOMAIN, ROW_TRACKING_DOMAIN, TableState, clustering_columns, watermark};
use deltic_protocol::feature;
use deltic_protocol::log::name::commit_name;
use deltic_protocol::property::Properties;

use crate::error::{Error, Result};
use crate::log::log_file_path;
use crate::snapshot::Snapshot;

/// Loads the state of the table at a snapshot, as far as commits depend on it. Reads protocol and metadata only, unless commits
/// must have in-commit timestamps, rows are tracked or the table is clustered.
///
/// # Errors
/// Those of reading the log.
pub async fn load_table_state(snapshot: &Snapshot) -> Result<TableState> {
    let (protocol, metadata) = (snapshot.protocol().clone(), snapshot.metadata().clone());
    let supported = feature::supported(&protocol);
    let (tracks_rows, is_clustered) = (supported.contains("rowTracking"), supported.contains("clustering"));
    let domains = if tracks_rows || is_clustered { load_domains(snapshot).await? } else { Vec::new() };
    let domain = |name: &str| domains.iter().find(|d| d.domain == name && !d.removed).map(|d| d.configuration.as_str());
    let row_id_watermark = domain(ROW_TRACKING_DOMAIN).filter(|_| tracks_rows).map(watermark).transpose();
    let clustering = domain(CLUSTERING_DOMAIN).filter(|_| is_clustered).map(clustering_columns).transpose();
    let in_table = |e: Error| e.in_table(snapshot.storage().location());
    let timestamp = load_timestamp(snapshot, &metadata).await?;
    Ok(TableState {
        version: snapshot.version(),
        protocol,
        metadata,
        row_id_watermark: row_id_watermark.map_err(in_table)?,
        clustering: clustering.map_err(in_table)?.unwrap_or_default(),
        timestamp,
    })
}

async fn load_domains(snapshot: &Snapshot) -> Result<Vec<DomainMetadata>> {
    match snapshot.checksum().and_then(|checksum| checksum.domain_metadata.clone()) {
        Some(domains) => Ok(domains),
        None => snapshot.domains().await,
    }
}

async fn load_timestamp(snapshot: &Snapshot, metadata: &Metadata) -> Result<Option<i64>> {
    let version = snapshot.version();
    let listed = snapshot.segment().latest_commit();
    if Properties::of(metadata).in_commit_timestamps()?.is_none() {
        return Ok(listed.map(|file| file.modified_ms));
    }
    if let Some(time) = snapshot.checksum().and_then(|checksum| checksum.in_commit_timestamp_opt) {
        return Ok(Some(time));
    }
    let path = log_file_path(&commit_name(version));
    match snapshot.log().read_commit(version).await? {
        Some(lines) => {
            let with_context = |e: Error| e.at_version(version).in_file(&path).in_table(snapshot.storage().location());
            let info =
                parse_commit(&lines, Origin::Commit(version), Wanted::NoFiles).map_err(with_context)?.commit_info;
            let time = info.and_then(|info| info.in_commit_timestamp());
            time.map(Some).ok_or_else(|| {
                with_context(Error::corrupt("the commit has no inCommitTimestamp, which its table requires"))
            })
        }
        // Log cleanup has deleted the commit: the current time is later than the time of so old a commit.
        None => Ok(None),
    }
}
