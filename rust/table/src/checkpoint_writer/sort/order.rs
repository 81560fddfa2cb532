//! The order of file actions in a checkpoint, so that row groups and sidecars hold neighbours and others can be skipped.
//!
//! Files are sorted by the clustering columns of the table, else by its partition columns, unknown values first; others stay as
//! they came. Tables with neither kind of column keep the order in which files were read, which is that of the commits. Not
//! here: how many rows are sorted together (`runs`).
//!
//! PROTOCOL.md: "Clustered Table", "Checkpoint Schema".

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::SortOptions;
use deltic_protocol::action::DomainMetadata;
use deltic_protocol::commit::{CLUSTERING_DOMAIN, clustering_columns};
use deltic_protocol::log_bounds::TableShape;

use crate::error::Result;

/// What a file is sorted by: comparing the bytes compares the files.
pub(crate) type Key = Box<[u8]>;

/// What file actions are sorted by.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Order {
    /// Paths of the sort keys below `add`, by the names that they have in the checkpoint.
    keys: Vec<Vec<String>>,
    /// Physical paths of the clustering columns.
    clustering: Vec<Vec<String>>,
}

impl Order {
    /// The order for a table; `None` if it has no layout that files could follow.
    pub(crate) fn of(shape: &TableShape, domains: &[DomainMetadata]) -> Result<Option<Self>> {
        let domain = domains.iter().find(|domain| domain.domain == CLUSTERING_DOMAIN && !domain.removed);
        // A domain that cannot be read means no order, not an error: a checkpoint does not depend on it.
        let clustering = domain.and_then(|domain| clustering_columns(&domain.configuration).ok()).unwrap_or_default();
        let below = |head: &[&str], path: &[String]| -> Vec<String> {
            head.iter().map(|name| (*name).to_owned()).chain(path.iter().cloned()).collect()
        };
        let mut keys: Vec<_> = clustering.iter().map(|path| below(&["stats_parsed", "minValues"], path)).collect();
        if keys.is_empty() {
            for name in &shape.partition_columns {
                let leaf = shape.partition_leaf(name)?;
                keys.push(below(&["partitionValues_parsed"], &leaf.path));
            }
        }
        Ok((!keys.is_empty()).then_some(Self { keys, clustering }))
    }

    /// The order by one member of `add`.
    #[cfg(test)]
    pub(crate) fn by(key: &[&str]) -> Self {
        Self { keys: vec![key.iter().map(|name| (*name).to_owned()).collect()], clustering: Vec::new() }
    }

    /// Physical paths of the clustering columns.
    pub(crate) fn clustering(&self) -> &[Vec<String>] {
        &self.clustering
    }

    /// Whether the order depends on the files' statistics.
    pub(crate) fn needs_stats(&self) -> bool {
        !self.clustering.is_empty()
    }

    /// The sort keys of rows whose columns are the members of `add`: as bytes, and the same for the
    /// same values in all pieces of a checkpoint. `None` if the rows have none of the columns to sort by.
    pub(crate) fn keys(&self, piece: &RecordBatch) -> Result<Option<Rows>> {
        let columns: Vec<ArrayRef> = self.keys.iter().filter_map(|key| find(piece, key)).collect();
        if columns.is_empty() {
            return Ok(None);
        }
        let options = SortOptions { descending: false, nulls_first: true };
        let field = |c: &ArrayRef| SortField::new_with_options(c.data_type().clone(), options);
        let converter = RowConverter::new(columns.iter().map(field).collect())?;
        Ok(Some(converter.convert_columns(&columns)?))
    }

    /// The rows in this order, each as the index of its piece and of the row in it; equal rows keep their order. `None` as for
    /// [`Self::keys`].
    pub(crate) fn sorted(&self, pieces: &[RecordBatch]) -> Result<Option<Vec<(u32, u32)>>> {
        let keys = pieces.iter().map(|piece| self.keys(piece)).collect::<Result<Option<Vec<Rows>>>>()?;
        let Some(keys) = keys else { return Ok(None) };
        let key = |(piece, row): (u32, u32)| keys.get(piece as usize).map(|rows| rows.row(row as usize));
        // Most keys differ in their first bytes, which are compared without a look at the keys themselves. Zeros in the
        // place of missing bytes do no harm: no key is the beginning of another.
        let head = |at: (u32, u32)| (key(at).map(|key| head(key.as_ref())).unwrap_or_default(), at);
        let mut sorted: Vec<(u64, (u32, u32))> = all_rows(keys.iter().map(Rows::num_rows)).map(head).collect();
        let length = |rows: &Rows| rows.lengths().all(|length| length <= size_of::<u64>());
        if keys.iter().all(length) {
            sorted.sort_unstable();
        } else {
            let rest = |a: (u32, u32), b: (u32, u32)| key(a).cmp(&key(b)).then(a.cmp(&b));
            sorted.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| rest(a.1, b.1)));
        }
        Ok(Some(sorted.into_iter().map(|(_, at)| at).collect()))
    }
}

/// All rows of pieces with these numbers of rows, each as the index of its piece and of the row in it.
pub(crate) fn all_rows(pieces: impl Iterator<Item = usize>) -> impl Iterator<Item = (u32, u32)> {
    let rows = |(piece, rows): (u32, usize)| (0..).take(rows).map(move |row: u32| (piece, row));
    (0..).zip(pieces).flat_map(rows)
}

/// The column at `path`.
fn find(rows: &RecordBatch, path: &[String]) -> Option<ArrayRef> {
    let (first, rest) = path.split_first()?;
    let mut found = rows.column_by_name(first)?.clone();
    for name in rest {
        let child = found.as_struct_opt()?.column_by_name(name)?.clone();
        found = child;
    }
    (!found.data_type().is_nested()).then_some(found)
}

/// The first eight bytes as a number, which is greater only if the bytes are.
fn head(bytes: &[u8]) -> u64 {
    let mut head = [0; 8];
    head.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    u64::from_be_bytes(head)
}
