//! Finds other tables in folders of a table. A file below a folder with a `_delta_log` belongs to the table of that folder,
//! so a vacuum of the outer table keeps it.
//!
//! Proved by `tests/python/test_vacuum.py`.

use std::collections::BTreeSet;

use deltic_protocol::log::name::LOG_DIR;
use deltic_protocol::replay::paths::Fingerprints;
use futures::stream::{self, StreamExt, TryStreamExt};

use super::candidates::Folders;
use crate::error::{Error, Result};
use deltic_store::Storage;

/// How many folders are checked at a time.
const CONCURRENT_CHECKS: usize = 32;

/// The folders that are tables, as far as they were checked.
#[derive(Debug, Default)]
pub(super) struct NestedTables {
    checked: Fingerprints,
    found: BTreeSet<String>,
}

impl NestedTables {
    /// Checks the folders of these paths. Folders of the table's own partitions are not tables, and need no request.
    pub(super) async fn check<'a>(
        &mut self,
        storage: &Storage,
        folders: &Folders,
        paths: impl Iterator<Item = &'a str>,
    ) -> Result<()> {
        let mut unknown = Vec::new();
        for path in paths {
            let mut is_own = true;
            for folder in folders_of(path) {
                is_own = is_own && folders.is_of_the_table(folder);
                if !is_own && self.checked.insert(&folder) {
                    unknown.push(folder.to_owned());
                }
            }
        }
        let check = |folder: String| async move { Ok::<_, Error>(has_log(storage, &folder).await?.then_some(folder)) };
        let found: Vec<Option<String>> =
            stream::iter(unknown).map(check).buffer_unordered(CONCURRENT_CHECKS).try_collect().await?;
        self.found.extend(found.into_iter().flatten());
        Ok(())
    }

    /// Whether a path is in another table. Its folders must have been checked.
    pub(super) fn contain(&self, path: &str) -> bool {
        !self.found.is_empty() && folders_of(path).any(|folder| self.found.contains(folder))
    }

    /// Paths of the folders, relative to the root.
    pub(super) fn into_paths(self) -> Vec<String> {
        self.found.into_iter().collect()
    }
}

async fn has_log(storage: &Storage, folder: &str) -> Result<bool> {
    Ok(storage.list_folder(&format!("{folder}/{LOG_DIR}")).try_next().await?.is_some())
}

/// The folders of a path, from the top.
fn folders_of(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').filter_map(|(end, _)| path.get(..end))
}
