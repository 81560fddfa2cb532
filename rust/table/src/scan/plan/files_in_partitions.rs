//! The files of some partitions, found by partition values alone.
//!
//! Proved by `tests/rust/table/builder/overwrite.rs` and `tests/python/test_auto_compact.py`.

use std::collections::BTreeSet;
use std::sync::Arc;

use deltic_protocol::action::PartitionValues;
use deltic_protocol::action::batch::AddBatch;
use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::predicate::{BoundPredicate, Column, Op};
use deltic_protocol::scalar::Scalar;

use super::row_groups::{KeptGroup, file_index};
use super::{for_each_row_group, prune_row_groups, prune_unindexed};
use crate::checkpoint::read::AddColumns;
use crate::error::Result;
use crate::file_index::Pruning;
use crate::snapshot::Snapshot;

/// The values of a file's partition columns, in the table's order.
type Key = Vec<Option<String>>;

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
    let shape = snapshot.shape();
    let filter = (!shape.partition_columns.is_empty()).then(|| in_partitions(shape, partitions)).transpose()?;
    let pruning = Arc::new(Pruning::split(shape, filter)?);
    let ((mut adds, _), groups) =
        futures::future::try_join(prune_unindexed(&snapshot, &pruning), prune_row_groups(&snapshot, &pruning)).await?;
    let columns = Arc::new(columns.clone());
    let members = |kept: KeptGroup| {
        let (snapshot, columns) = (snapshot.clone(), columns.clone());
        async move { file_index(&snapshot).await?.members(kept.group, &kept.rows, &columns, &kept.paths).await }
    };
    adds.extend(for_each_row_group(groups.into_iter().map(members)).await?);
    Ok(adds)
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
