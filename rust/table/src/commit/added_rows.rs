//! Searches rows of files that another writer added, with the predicates of a commit.
//!
//! Only the columns of the predicates are read, of row groups that their statistics do not rule out. The search ends with the
//! first row that is found.
//!
//! Proved by `tests/rust/table/added_rows.rs`.

use std::sync::Arc;

use deltic_protocol::commit::{AddedRows, Search};
use deltic_protocol::predicate::BoundPredicate;
use futures::{StreamExt, TryStreamExt, stream};

use crate::error::Result;
use crate::parallel::{spawn_async, worker_count};
use crate::scan::read::{ReadOptions, Reader};
use crate::scan::task::{FileTask, ReadSpec, task_of};
use deltic_store::Storage;

/// The path of a file with a row that makes one of the predicates TRUE; `None` if there is none.
///
/// # Errors
/// Those of reading the files.
pub(super) async fn search_added_rows(storage: &Storage, added: &AddedRows) -> Result<Option<String>> {
    for Search { shape, predicates } in &added.searches {
        let spec = ReadSpec::new(shape, Vec::new());
        let predicate = Arc::new(BoundPredicate::any_of(predicates.clone())?);
        let reader = Reader::with_predicate(storage.clone(), spec, Some(predicate))?;
        let tasks: Vec<FileTask> = added.files.iter().map(task_of).collect();
        let options = ReadOptions::one_of(tasks.len());
        let searches =
            stream::iter(tasks).map(move |task| spawn_async(has_match(reader.clone(), task, options.clone())));
        let mut searched = searches.buffer_unordered(worker_count());
        while let Some(found) = searched.try_next().await? {
            if found.is_some() {
                return Ok(found);
            }
        }
    }
    Ok(None)
}

/// The path of the file if it has a row that makes the predicate of the reader TRUE.
async fn has_match(reader: Reader, task: FileTask, options: ReadOptions) -> Result<Option<String>> {
    let path = task.path.clone();
    let mut batches = std::pin::pin!(reader.read(vec![task], options));
    while let Some(batch) = batches.next().await {
        if batch?.num_rows() > 0 {
            return Ok(Some(path));
        }
    }
    Ok(None)
}
