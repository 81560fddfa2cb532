//! Searches rows of files that another writer added, with the predicates of a commit.
//!
//! Only the columns of the predicates are read, of row groups that their statistics do not rule out. The search ends with the
//! first row that is found.
//!
//! Proved by `tests/rust/table/added_rows.rs`.

use std::sync::Arc;

use deltic_protocol::action::Add;
use deltic_protocol::commit::AddedRows;
use futures::{StreamExt, TryStreamExt, stream};

use crate::error::Result;
use crate::parallel::{spawn_async, worker_count};
use crate::scan::read::{ReadOptions, Reader};
use crate::scan::task::{ReadSpec, task_of};
use deltic_store::Storage;

/// The path of a file with a row that makes one of the predicates TRUE; `None` if there is none.
///
/// # Errors
/// Those of reading the files.
pub(super) async fn search_added_rows(storage: &Storage, added: &AddedRows) -> Result<Option<String>> {
    let spec = ReadSpec {
        schema: added.shape.schema.clone(),
        partition_columns: added.shape.partition_columns.clone(),
        column_mapping: added.shape.mapping.as_str().to_owned(),
        columns: Vec::new(),
        filter: None,
        row_tracking: None,
        may_lack_row_ids: false,
    };
    let reader = |predicate| Reader::with_predicate(storage.clone(), spec.clone(), Some(Arc::new(predicate)));
    let readers = added.predicates.iter().cloned().map(reader).collect::<Result<Vec<_>>>()?;
    let mut searches = Vec::with_capacity(added.files.len() * readers.len());
    for file in &added.files {
        searches.extend(readers.iter().map(|reader| spawn_async(has_match(reader.clone(), file.clone()))));
    }
    let mut searched = stream::iter(searches).buffer_unordered(worker_count());
    while let Some(found) = searched.try_next().await? {
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The path of the file if it has a row that makes the predicate of the reader TRUE.
async fn has_match(reader: Reader, file: Add) -> Result<Option<String>> {
    let options = ReadOptions { concurrent_files: 1, ..ReadOptions::default() };
    let mut batches = std::pin::pin!(reader.read(vec![task_of(&file)], options));
    while let Some(batch) = batches.next().await {
        if batch?.num_rows() > 0 {
            return Ok(Some(file.path));
        }
    }
    Ok(None)
}
