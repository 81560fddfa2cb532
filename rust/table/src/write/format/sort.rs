//! Sorts rows by columns that a caller has chosen.
//!
//! The rows that a writer has gathered are sorted together and become row groups of their own: each row group is sorted, and
//! so is a file whose rows were gathered at once. The order is ascending, nulls first; NaN is greater than every number;
//! equal rows keep their order.
//!
//! Proved by `write::row_groups_are_sorted`.

use arrow_array::RecordBatch;
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{DataType as ArrowType, Schema};
use arrow_select::interleave::interleave_record_batch;
use deltic_protocol::error::{Error, Result};
use parquet::file::metadata::SortingColumn;

/// Columns by which the rows of files are sorted.
#[derive(Debug)]
pub(super) struct SortOrder {
    columns: Vec<usize>,
}

impl SortOrder {
    /// Sorts by the columns at these positions of `file`. `None` if there are no positions.
    ///
    /// # Errors
    /// `Invalid`, naming the column, if its type has no order.
    pub(super) fn new(file: &Schema, columns: Vec<usize>) -> Result<Option<Self>> {
        for &column in &columns {
            let field = file.field(column);
            if has_map(field.data_type()) {
                let message = format!("rows cannot be sorted by `{}`: maps have no order", field.name());
                return Err(Error::invalid(message));
            }
        }
        Ok((!columns.is_empty()).then_some(Self { columns }))
    }

    /// The order that the file declares: the leading columns whose order is the same for every reader. `leaf_of` returns
    /// the index of a column without inner ones among the leaves.
    pub(super) fn declared(&self, file: &Schema, leaf_of: impl Fn(usize) -> Option<usize>) -> Vec<SortingColumn> {
        let leaf = |&column: &usize| {
            let data_type = file.field(column).data_type();
            let is_nested = data_type.is_nested();
            let is_float = matches!(data_type, ArrowType::Float32 | ArrowType::Float64);
            let leaf = leaf_of(column).filter(|_| !is_nested && !is_float)?;
            Some(SortingColumn { column_idx: i32::try_from(leaf).ok()?, descending: false, nulls_first: true })
        };
        self.columns.iter().map_while(leaf).collect()
    }

    /// Passes the rows of all batches to `take` in order, a limited number at a time.
    ///
    /// # Errors
    /// Those of `take`.
    pub(super) fn sort(
        &self,
        batches: &[RecordBatch],
        rows_at_once: usize,
        mut take: impl FnMut(RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let keys = batches.iter().map(|batch| self.keys(batch)).collect::<Result<Vec<Rows>>>()?;
        let rows_of = |(batch, keys): (usize, &Rows)| (0..keys.num_rows()).map(move |row| (batch, row));
        let mut order: Vec<(usize, usize)> = keys.iter().enumerate().flat_map(rows_of).collect();
        let key = |&(batch, row): &(usize, usize)| keys.get(batch).map(|keys| keys.row(row));
        order.sort_unstable_by(|a, b| key(a).cmp(&key(b)).then(a.cmp(b)));
        let batches: Vec<&RecordBatch> = batches.iter().collect();
        order.chunks(rows_at_once.max(1)).try_for_each(|rows| take(interleave_record_batch(&batches, rows)?))
    }

    fn keys(&self, batch: &RecordBatch) -> Result<Rows> {
        let columns = batch.project(&self.columns)?;
        let fields = columns.columns().iter().map(|column| SortField::new(column.data_type().clone())).collect();
        Ok(RowConverter::new(fields)?.convert_columns(columns.columns())?)
    }
}

fn has_map(data_type: &ArrowType) -> bool {
    match data_type {
        ArrowType::Map(..) => true,
        ArrowType::List(element) => has_map(element.data_type()),
        ArrowType::Struct(fields) => fields.iter().any(|field| has_map(field.data_type())),
        _ => false,
    }
}
