//! The files of some partitions, found by partition values alone.
//!
//! Proved by `tests/rust/table/builder/overwrite.rs`, `tests/rust/table/builder/manifests.rs` and
//! `tests/python/test_auto_compact.py`.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, BooleanArray, StringArray};
use arrow_buffer::BooleanBuffer;
use arrow_select::filter::filter;
use deltic_protocol::action::PartitionValues;
use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::predicate::{BoundPredicate, Column, Op};
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::PrimitiveType;
use deltic_protocol::stats::read::Leaf;

use super::row_groups::{KeptGroup, file_index};
use super::{for_each_row_group, prune_row_groups, prune_unindexed};
use crate::checkpoint::read::AddColumns;
use crate::error::{Error, Result};
use crate::file_index::{FileIndex, IndexColumn, PartitionColumn, Pruning};
use crate::snapshot::Snapshot;

/// The values of a file's partition columns, in the table's order.
type Key = Vec<Option<String>>;

/// Live files: their paths and the strings of their partition values.
#[derive(Debug)]
pub(crate) enum PartitionFiles {
    /// Files with `path`, `partitionValues` and `deletionVector`.
    Adds(AddBatch),
    /// Files without deletion vectors: their paths, and for each partition column of the table their values; an empty string is
    /// null.
    Columns(StringArray, Vec<StringArray>),
}

/// The live files of these partitions, with the requested columns. Row groups of a checkpoint with other partitions are not
/// read, if their bounds exclude these.
///
/// # Errors
/// Those of reading the log.
pub(crate) async fn files_in(
    snapshot: &Snapshot,
    partitions: &BTreeSet<PartitionValues>,
    columns: &AddColumns,
) -> Result<Vec<AddBatch>> {
    let snapshot = snapshot.with_readable_sidecars().await?;
    let (mut adds, groups) = find(&snapshot, partitions).await?;
    let columns = Arc::new(columns.clone());
    let members = |kept: KeptGroup| {
        let (snapshot, columns) = (snapshot.clone(), columns.clone());
        async move { members(file_index(&snapshot).await?, &kept, &columns).await }
    };
    adds.extend(for_each_row_group(groups.into_iter().map(members)).await?);
    Ok(adds)
}

/// The live files of these partitions, and others whose values are equal to theirs but spelled otherwise. The columns are
/// cached with the checkpoint, so that only the first call reads them.
///
/// # Errors
/// Those of reading the log.
pub(crate) async fn partition_files(
    snapshot: &Snapshot,
    partitions: &BTreeSet<PartitionValues>,
) -> Result<Vec<PartitionFiles>> {
    let snapshot = snapshot.with_readable_sidecars().await?;
    let (adds, groups) = find(&snapshot, partitions).await?;
    let as_string = |name: &String| {
        let column = PartitionColumn::of(snapshot.shape(), name)?;
        let leaf = Leaf { data_type: PrimitiveType::String, ..column.leaf };
        Ok(IndexColumn::Partition(PartitionColumn { leaf, ..column }))
    };
    let columns = snapshot.shape().partition_columns.iter().map(as_string).collect::<Result<Vec<_>>>()?;
    let columns = Arc::new(columns);
    let of_group = |kept| indexed_files(snapshot.clone(), kept, columns.clone());
    let indexed = for_each_row_group(groups.into_iter().map(of_group)).await?;
    Ok(adds.into_iter().map(PartitionFiles::Adds).chain(indexed).collect())
}

async fn indexed_files(snapshot: Snapshot, kept: KeptGroup, columns: Arc<Vec<IndexColumn>>) -> Result<PartitionFiles> {
    let files = file_index(&snapshot).await?;
    let present = files.presence(kept.group).await?;
    let is_kept: BooleanBuffer = present.set_indices().map(|row| kept.rows.value(row)).collect();
    let is_kept = BooleanArray::new(is_kept, None);
    let mut wanted = columns.to_vec();
    wanted.extend(files.may_have_vectors(kept.group).await?.then_some(IndexColumn::DeletionVector));
    // Those of all files, since the cache keeps whole columns.
    let mut arrays =
        files.arrays(kept.group, &wanted, &present).await?.into_iter().map(|array| filter(&array, &is_kept));
    let mut values = Vec::with_capacity(columns.len());
    for array in arrays.by_ref().take(columns.len()) {
        let strings = array?.as_string_opt().cloned();
        values.push(strings.ok_or_else(|| Error::internal("partition values were not read as strings"))?);
    }
    match arrays.next().transpose()? {
        Some(vectors) if vectors.null_count() < vectors.len() => {
            let members_read = vec!["path", "partitionValues", "deletionVector"];
            let columns = AddColumns { members: members_read, ..AddColumns::default() };
            Ok(PartitionFiles::Adds(members(files, &kept, &columns).await?))
        }
        Some(_) | None => Ok(PartitionFiles::Columns(kept.paths, values)),
    }
}

async fn members(files: &FileIndex, kept: &KeptGroup, columns: &AddColumns) -> Result<AddBatch> {
    files.members(kept.group, &kept.rows, columns, &kept.paths).await
}

/// The live files of these partitions: those in no row group of the checkpoint, and those in its row groups.
async fn find(snapshot: &Snapshot, partitions: &BTreeSet<PartitionValues>) -> Result<(Vec<AddBatch>, Vec<KeptGroup>)> {
    let shape = snapshot.shape();
    let filter = (!shape.partition_columns.is_empty()).then(|| in_partitions(shape, partitions)).transpose()?;
    let pruning = Arc::new(Pruning::split(shape, filter)?);
    let ((adds, _), groups) =
        futures::future::try_join(prune_unindexed(snapshot, &pruning), prune_row_groups(snapshot, &pruning)).await?;
    Ok((adds, groups))
}

/// A predicate that is TRUE in these partitions, by physical names.
///
/// # Errors
/// `Corrupt` for a value that is not of its column's type.
pub(crate) fn in_partitions(shape: &TableShape, partitions: &BTreeSet<PartitionValues>) -> Result<BoundPredicate> {
    let mut columns = Vec::with_capacity(shape.partition_columns.len());
    let mut physical = Vec::with_capacity(shape.partition_columns.len());
    for name in &shape.partition_columns {
        physical.extend(shape.partition_leaf(name)?.path);
        let field = shape.schema.index_of(name).and_then(|index| Some((index, shape.schema.fields.get(index)?)));
        columns.extend(field.map(|(index, field)| Column {
            path: vec![field.name.clone()],
            index,
            data_type: field.data_type.clone(),
        }));
    }
    let key = |values: &PartitionValues| physical.iter().map(|name| values.get(name).cloned().flatten()).collect();
    let keys: BTreeSet<Key> = partitions.iter().map(key).collect();
    have_one_of(&columns, &keys.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// A predicate that is TRUE if the columns have the values of one of the keys, which are sorted.
fn have_one_of(columns: &[Column], keys: &[&[Option<String>]]) -> Result<BoundPredicate> {
    let Some((column, rest)) = columns.split_first() else { return Ok(BoundPredicate::Constant(Some(true))) };
    let mut terms = Vec::new();
    for same in keys.chunk_by(|a, b| a.first() == b.first()) {
        let value = same.first().and_then(|key| key.first()).and_then(Option::as_deref);
        let is_value = match Scalar::parse_partition(value, column.primitive()?)? {
            Scalar::Null => BoundPredicate::IsNull(column.clone()),
            value => BoundPredicate::Compare { column: column.clone(), op: Op::Eq, value },
        };
        let inner: Vec<&[Option<String>]> = same.iter().filter_map(|key| key.get(1..)).collect();
        terms.push(match rest {
            [] => is_value,
            rest => BoundPredicate::all_of(vec![is_value, have_one_of(rest, &inner)?]),
        });
    }
    BoundPredicate::any_of(terms)
}
