//! Bounds of a data file's row groups, for pruning them before they are read.
//!
//! Values are those of the footer, converted to the table's types; partition columns have their one value. Knows
//! nothing of predicates: [`prune`](deltic_protocol::prune) decides.
//!
//! Invariant: bounds that cannot be trusted are absent. That goes for INT96, for the deprecated pair of bounds where
//! its order was not defined, and for values whose order the conversion to the table's type does not keep.
//! Proved by `read::pruned_row_groups_are_not_read` and `read::pruning_never_changes_the_result`.

use arrow_array::{Array, ArrayRef, UInt64Array};
use arrow_schema::Field;
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::arrow::to_arrow_type;
use deltic_protocol::schema::mapping::ColumnMapping;
use deltic_protocol::schema::{DataType, PrimitiveType, StructType};
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::basic::{ColumnOrder, SortOrder, Type as PhysicalType};
use parquet::file::metadata::RowGroupMetaData;

use super::adapt::{Constants, Leaf, find_leaf};

/// The row groups of one file.
pub(crate) struct RowGroupBounds<'a> {
    metadata: &'a ArrowReaderMetadata,
    table: &'a StructType,
    mapping: ColumnMapping,
    constants: &'a Constants,
}

impl<'a> RowGroupBounds<'a> {
    pub(crate) fn new(
        metadata: &'a ArrowReaderMetadata,
        table: &'a StructType,
        mapping: ColumnMapping,
        constants: &'a Constants,
    ) -> Self {
        Self { metadata, table, mapping, constants }
    }

    fn row_groups(&self) -> &'a [RowGroupMetaData] {
        self.metadata.metadata().row_groups()
    }

    /// Number of row groups.
    fn count(&self) -> usize {
        self.row_groups().len()
    }

    /// The partition value under this path.
    fn constant(&self, path: &[&str]) -> Option<(&Scalar, &PrimitiveType)> {
        let [name] = path else { return None };
        let field = self.table.field(name)?;
        Some((self.constants.get(&field.name)?, field.data_type.as_primitive()?))
    }

    /// The type of the leaf under this path.
    fn primitive(&self, path: &[&str]) -> Option<&'a PrimitiveType> {
        let (last, parents) = path.split_last()?;
        let mut columns = self.table;
        for name in parents {
            let DataType::Struct(inner) = &columns.field(name)?.data_type else { return None };
            columns = inner;
        }
        columns.field(last)?.data_type.as_primitive()
    }

    fn leaf(&self, path: &[&str]) -> Option<Leaf> {
        find_leaf(self.table, path, self.mapping, self.metadata.schema().fields()).ok().flatten()
    }

    /// Smallest or largest value of each row group in the table's type; null where it is not known.
    fn extreme(&self, path: &[&str], end: End) -> Option<ArrayRef> {
        if let Some((value, primitive)) = self.constant(path) {
            return value.to_array(primitive, self.count()).ok();
        }
        let leaf = self.leaf(path)?;
        if !leaf.cast.keeps_order() || !self.ordered(&leaf) {
            return None;
        }
        let parquet = self.metadata.parquet_schema();
        let field = Field::new("leaf", leaf.file_type.clone(), true);
        let orders = self.metadata.metadata().file_metadata().column_orders().map(Vec::as_slice);
        let converter =
            StatisticsConverter::from_column_index(leaf.index, &field, parquet).ok()?.with_column_orders(orders);
        let values = match end {
            End::Smallest => converter.row_group_mins(self.row_groups()),
            End::Largest => converter.row_group_maxes(self.row_groups()),
        };
        let target = to_arrow_type(&DataType::Primitive(self.primitive(path)?.clone()));
        leaf.cast.apply(&values.ok()?, &target).ok()
    }

    /// Whether the order behind the bounds is the order of the values.
    fn ordered(&self, leaf: &Leaf) -> bool {
        let Some(column) = self.metadata.parquet_schema().columns().get(leaf.index) else { return false };
        // Numbers are compared as numbers by every writer there ever was. Bytes were not.
        let number = matches!(
            column.physical_type(),
            PhysicalType::BOOLEAN
                | PhysicalType::INT32
                | PhysicalType::INT64
                | PhysicalType::FLOAT
                | PhysicalType::DOUBLE
        ) && column.sort_order() != SortOrder::UNSIGNED;
        let orders = self.metadata.metadata().file_metadata().column_orders();
        let defined = match orders.and_then(|orders| orders.get(leaf.index)) {
            Some(
                ColumnOrder::TYPE_DEFINED_ORDER(_)
                | ColumnOrder::IEEE_754_TOTAL_ORDER
                | ColumnOrder::INT96_TIMESTAMP_ORDER,
            ) => true,
            Some(ColumnOrder::UNKNOWN) => return false,
            Some(ColumnOrder::UNDEFINED) | None => number,
        };
        let deprecated = || {
            self.row_groups()
                .iter()
                .filter_map(|group| group.columns().get(leaf.index)?.statistics())
                .any(|statistics| statistics.is_min_max_deprecated())
        };
        defined && (number || !deprecated())
    }

    /// Nulls in each row group, where known.
    fn nulls(&self, path: &[&str]) -> Option<UInt64Array> {
        if let Some((value, _)) = self.constant(path) {
            let all = *value == Scalar::Null;
            return Some(self.row_groups().iter().map(|group| if all { rows(group) } else { Some(0) }).collect());
        }
        let leaf = self.leaf(path)?;
        let null_count = |group: &RowGroupMetaData| group.columns().get(leaf.index)?.statistics()?.null_count_opt();
        Some(self.row_groups().iter().map(null_count).collect())
    }

    /// Rows in each row group.
    fn rows(&self) -> UInt64Array {
        self.row_groups().iter().map(rows).collect()
    }
}

#[derive(Debug, Clone, Copy)]
enum End {
    Smallest,
    Largest,
}

fn rows(group: &RowGroupMetaData) -> Option<u64> {
    u64::try_from(group.num_rows()).ok()
}
