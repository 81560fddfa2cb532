//! Other tables in folders of a table. A file below a folder with a `_delta_log` belongs to the table of that folder, so a
//! vacuum of the table around it keeps it.
//!
//! Proved by `tests/python/test_vacuum.py`.

use std::collections::BTreeSet;

use deltic_protocol::log::name::LOG_DIR;
use deltic_protocol::replay::paths::Fingerprints;
use futures::TryStreamExt;

use super::candidates::Folders;
use crate::error::Result;
use deltic_store::Storage;

/// The folders that are tables of their own, as far as they were looked at.
#[derive(Debug, Default)]
pub(super) struct NestedTables {
    looked_at: Fingerprints,
    found: BTreeSet<String>,
}

impl NestedTables {
    /// Whether a file is in another table. Folders of partitions hold none, and take no request.
    pub(super) async fn contain(&mut self, storage: &Storage, folders: &Folders, path: &str) -> Result<bool> {
        for (end, _) in path.match_indices('/') {
            let folder = path.get(..end).unwrap_or_default();
            if folders.is_of_the_table(folder) {
                continue;
            }
            if self.looked_at.insert(&folder) && has_log(storage, folder).await? {
                self.found.insert(folder.to_owned());
            }
            if self.found.contains(folder) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Paths of the folders, relative to the root.
    pub(super) fn into_paths(self) -> Vec<String> {
        self.found.into_iter().collect()
    }
}

async fn has_log(storage: &Storage, folder: &str) -> Result<bool> {
    Ok(storage.list_folder(&format!("{folder}/{LOG_DIR}")).try_next().await?.is_some())
}
