//! `_delta_log/_last_vacuum_info`: the last version whose removed files a vacuum has deleted, in the form of delta-spark.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::log::{LogSource, log_file_path};
use deltic_store::Storage;

const FILE: &str = "_last_vacuum_info";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LastVacuum {
    latest_commit_version_outside_of_retention_window: Option<u64>,
}

/// The version. `None` if the file does not exist or cannot be parsed: LITE then reads the whole log.
pub(super) async fn read(log: &LogSource) -> Result<Option<u64>> {
    match log.read(FILE).await {
        Ok(bytes) => {
            let last = serde_json::from_slice::<LastVacuum>(&bytes).ok();
            Ok(last.and_then(|last| last.latest_commit_version_outside_of_retention_window))
        }
        Err(e) if e.is_not_found() => Ok(None),
        Err(e) => Err(e),
    }
}

/// Records that the files which commits up to `version` removed have been deleted.
pub(super) async fn write(storage: &Storage, version: u64) -> Result<()> {
    let last = LastVacuum { latest_commit_version_outside_of_retention_window: Some(version) };
    let json = serde_json::to_vec(&last).map_err(|e| Error::internal("a version cannot be serialised").caused_by(e))?;
    storage.put(&log_file_path(FILE), Bytes::from(json)).await
}
