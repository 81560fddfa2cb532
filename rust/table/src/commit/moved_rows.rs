//! Finds rows that another writer moved to other files, by their row ids: OPTIMIZE rewrote files of which a commit deletes rows
//! by deletion vectors.
//!
//! Of the old files the row ids of the deleted rows are read, of the new ones all row ids; no other columns. Memory holds the
//! ids and positions of the rows, compressed, and a batch of ids for each file, or unit of a file, that is read at a time.
//!
//! Proved by `tests/rust/table/moved_rows.rs`.
//!
//! PROTOCOL.md: "Row Tracking".

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use deltic_protocol::action::Add;
use deltic_protocol::commit::{MarkedFile, MovedRows};
use deltic_protocol::deletion_vector::DeletionVector;
use futures::TryStreamExt;

use crate::error::{Error, Result};
use crate::parallel::{join_ordered, spawn_async, worker_count};
use crate::scan::read::{ReadOptions, Reader};
use crate::scan::row_tracking::{ROW_ID, ROW_INDEX};
use crate::scan::task::{FileTask, ReadSpec, task_of};
use crate::scan::vectors::read_vector;
use deltic_store::Storage;

/// The files that have the rows now, with these rows; `None` if not every row is found exactly once.
///
/// # Errors
/// Those of reading the files.
pub(super) async fn find_moved_rows(storage: &Storage, moved: &MovedRows) -> Result<Option<Vec<MarkedFile>>> {
    let columns = [ROW_INDEX, ROW_ID].map(str::to_owned).to_vec();
    let spec = ReadSpec { row_tracking: Some(moved.tracking.clone()), ..ReadSpec::new(&moved.shape, columns) };
    // A column of the table with such a name would be read instead.
    let is_table_column = |name: &String| spec.schema.fields.iter().any(|field| field.name.eq_ignore_ascii_case(name));
    if spec.columns.iter().any(is_table_column) {
        return Ok(None);
    }
    let reader = Reader::new(storage.clone(), spec)?;
    let mut ids = DeletionVector::default();
    let options = ReadOptions::one_of(moved.from.len());
    let read = moved.from.iter().cloned().map(|file| spawn_async(ids_of(reader.clone(), file, options.clone())));
    for of_file in join_ordered(read, worker_count()).await? {
        ids.extend(of_file.iter());
    }
    let wanted: u64 = moved.from.iter().map(|file| file.rows.cardinality()).sum();
    let ids = Arc::new(ids);
    let options = ReadOptions::one_of(moved.to.len());
    let find = |add| spawn_async(find_in_file(storage.clone(), reader.clone(), options.clone(), add, ids.clone()));
    let mut files = Vec::new();
    let (mut found_rows, mut found_ids) = (0, DeletionVector::default());
    for (file, of_file) in join_ordered(moved.to.iter().cloned().map(find), worker_count()).await?.into_iter().flatten()
    {
        found_rows += file.rows.cardinality();
        found_ids.extend(of_file.iter());
        files.push(file);
    }
    let is_complete = ids.cardinality() == wanted && found_ids == *ids && found_rows == wanted;
    Ok(is_complete.then_some(files))
}

/// The ids of the rows of a file that a commit deletes.
async fn ids_of(reader: Reader, file: MarkedFile, options: ReadOptions) -> Result<DeletionVector> {
    let only_rows = Some(file.rows.to_inline()?);
    let task = FileTask { deletion_vector: None, only_rows, ..task_of(&file.add) };
    let mut ids = DeletionVector::default();
    read_ids(reader, task, options, |_, id| ids.extend([id])).await?;
    Ok(ids)
}

/// A file with those of its live rows that have one of some ids, and these ids; none if there is no such row.
async fn find_in_file(
    storage: Storage,
    reader: Reader,
    options: ReadOptions,
    add: Add,
    ids: Arc<DeletionVector>,
) -> Result<Option<(MarkedFile, DeletionVector)>> {
    let rows_deleted_before_commit = match &add.deletion_vector {
        Some(descriptor) => read_vector(&storage, descriptor).await.map_err(|e| e.in_file(&add.path))?,
        None => DeletionVector::default(),
    };
    let (mut rows, mut found, mut live_rows) = (DeletionVector::default(), DeletionVector::default(), 0_u64);
    read_ids(reader, task_of(&add), options, |position, id| {
        live_rows += 1;
        if ids.contains(id) {
            rows.extend([position]);
            found.extend([id]);
        }
    })
    .await?;
    let physical_rows = live_rows.saturating_add(rows_deleted_before_commit.cardinality());
    let is_there = !rows.is_empty();
    Ok(is_there.then_some((MarkedFile { add, physical_rows, rows_deleted_before_commit, rows, vector: None }, found)))
}

/// Calls `found` with the position and the id of each row that a task reads.
async fn read_ids(reader: Reader, task: FileTask, options: ReadOptions, mut found: impl FnMut(u64, u64)) -> Result<()> {
    let mut batches = std::pin::pin!(reader.read(vec![task], options));
    while let Some(batch) = batches.try_next().await? {
        let numbers = |at: usize| {
            let column = batch.columns().get(at).and_then(|column| column.as_primitive_opt::<Int64Type>());
            column.ok_or_else(|| Error::internal("the ids of rows were not read"))
        };
        for (position, id) in numbers(0)?.values().iter().zip(numbers(1)?.values()) {
            found(position.cast_unsigned(), id.cast_unsigned());
        }
    }
    Ok(())
}
