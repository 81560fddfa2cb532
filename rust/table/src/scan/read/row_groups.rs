//! Bounds of a data file's row groups, for pruning them before they are read.
//!
//! Values are those of the footer, converted to the table's types; partition columns have their one value.
//! [`prune`](deltic_protocol::prune) evaluates the predicate.
//!
//! Invariant: bounds that cannot be trusted are left out: those of INT96, the deprecated pair of bounds if
//! its order was not defined, and those of values whose order the conversion to the table's type does not keep (such as
//! timestamps of the hybrid calendar).
//! Proved by the test below and by `read::pruning_never_changes_the_result`.

use arrow_array::{ArrayRef, Int64Array};
use arrow_schema::Field;
use deltic_protocol::error::Result;
use deltic_protocol::predicate::Column;
use deltic_protocol::prune::Bounds;
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::StructType;
use deltic_protocol::schema::arrow::to_arrow_type;
use deltic_protocol::schema::mapping::ColumnMapping;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::file::metadata::RowGroupMetaData;

use super::adapt::{Constants, FileSchema, Leaf, find_leaf};
use crate::footer::has_ordered_bounds;

/// The row groups of one file.
pub(crate) struct RowGroupBounds<'a> {
    metadata: &'a ArrowReaderMetadata,
    file: &'a FileSchema,
    table: &'a StructType,
    mapping: ColumnMapping,
    constants: &'a Constants,
}

impl<'a> RowGroupBounds<'a> {
    pub(crate) fn new(
        metadata: &'a ArrowReaderMetadata,
        file: &'a FileSchema,
        table: &'a StructType,
        mapping: ColumnMapping,
        constants: &'a Constants,
    ) -> Self {
        Self { metadata, file, table, mapping, constants }
    }

    fn row_groups(&self) -> &'a [RowGroupMetaData] {
        self.metadata.metadata().row_groups()
    }

    /// The partition value, the same in all row groups.
    fn constant(&self, column: &Column) -> Option<&Scalar> {
        match column.path.as_slice() {
            [name] => self.constants.get(name),
            _ => None,
        }
    }

    /// The leaf of the column in the file; `None` for a partition column. If it cannot be read, reading the column reports
    /// that.
    pub(super) fn leaf(&self, column: &Column) -> Option<Leaf> {
        if self.constant(column).is_some() {
            return None;
        }
        find_leaf(self.table, &column.path, self.mapping, self.file).ok().flatten()
    }

    /// The smallest or largest value of each row group in the table's type.
    fn extreme(&self, column: &Column, end: End) -> Result<Option<ArrayRef>> {
        if let Some(value) = self.constant(column) {
            return value.to_array(column.primitive()?, self.containers()).map(Some);
        }
        let Some(leaf) = self
            .leaf(column)
            .filter(|leaf| leaf.conversion.keeps_order() && has_ordered_bounds(self.metadata, leaf.index))
        else {
            return Ok(None);
        };
        let file = self.metadata.metadata().file_metadata();
        let field = Field::new(column.to_string(), leaf.file_type.clone(), true);
        let values = StatisticsConverter::from_column_index(leaf.index, &field, file.schema_descr())
            .map(|converter| converter.with_column_orders(file.column_orders().map(Vec::as_slice)))
            .and_then(|converter| match end {
                End::Smallest => converter.row_group_mins(self.row_groups()),
                End::Largest => converter.row_group_maxes(self.row_groups()),
            });
        // Bounds that cannot be converted are ignored; the values themselves may still be valid.
        Ok(values.ok().and_then(|values| leaf.conversion.apply(&values, &to_arrow_type(&column.data_type)).ok()))
    }
}

impl Bounds for RowGroupBounds<'_> {
    fn containers(&self) -> usize {
        self.row_groups().len()
    }

    fn min(&self, column: &Column) -> Result<Option<ArrayRef>> {
        self.extreme(column, End::Smallest)
    }

    fn max(&self, column: &Column) -> Result<Option<ArrayRef>> {
        self.extreme(column, End::Largest)
    }

    fn null_count(&self, column: &Column) -> Result<Option<Int64Array>> {
        if let Some(value) = self.constant(column) {
            let nulls = |group: &RowGroupMetaData| if *value == Scalar::Null { group.num_rows() } else { 0 };
            return Ok(Some(self.row_groups().iter().map(nulls).map(Some).collect()));
        }
        let Some(leaf) = self.leaf(column) else { return Ok(None) };
        let nulls = |group: &RowGroupMetaData| {
            let nulls = group.columns().get(leaf.index)?.statistics()?.null_count_opt()?;
            i64::try_from(nulls).ok()
        };
        Ok(Some(self.row_groups().iter().map(nulls).collect()))
    }

    fn row_count(&self) -> Result<Option<Int64Array>> {
        Ok(Some(self.row_groups().iter().map(|group| Some(group.num_rows())).collect()))
    }

    fn is_exact(&self, column: &Column) -> bool {
        self.constant(column).is_some()
    }
}

#[derive(Debug, Clone, Copy)]
enum End {
    Smallest,
    Largest,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use parquet::basic::{ColumnOrder, SortOrder};
    use std::sync::Arc;

    use arrow_array::Array;
    use deltic_protocol::schema::{DataType, StructField};
    use parquet::arrow::arrow_reader::ArrowReaderOptions;
    use parquet::data_type::{ByteArray, Int96};
    use parquet::file::metadata::{ColumnChunkMetaData, FileMetaData, ParquetMetaData};
    use parquet::file::statistics::Statistics;
    use parquet::schema::parser::parse_message_type;
    use parquet::schema::types::SchemaDescriptor;

    use super::*;

    /// One row group with a string, a number and an INT96 column.
    fn footer(statistics: [Statistics; 3], orders: Option<ColumnOrder>) -> ArrowReaderMetadata {
        let message = "message m { required binary s (STRING); required int32 n; required int96 t; }";
        let schema = Arc::new(SchemaDescriptor::new(Arc::new(parse_message_type(message).unwrap())));
        let columns = schema.columns().iter().zip(statistics).map(|(column, statistics)| {
            ColumnChunkMetaData::builder(Arc::clone(column)).set_statistics(statistics).build().unwrap()
        });
        let group = RowGroupMetaData::builder(Arc::clone(&schema))
            .set_num_rows(5)
            .set_column_metadata(columns.collect())
            .build()
            .unwrap();
        let orders = orders.map(|order| vec![order; 3]);
        let file = FileMetaData::new(1, 5, None, None, schema, orders);
        let metadata = Arc::new(ParquetMetaData::new(file, vec![group]));
        ArrowReaderMetadata::try_new(metadata, ArrowReaderOptions::new().with_skip_arrow_metadata(true)).unwrap()
    }

    fn statistics(deprecated: bool) -> [Statistics; 3] {
        let text = Some(ByteArray::from("m"));
        let mut instant = Int96::new();
        instant.set_data(0, 0, 2_440_588);
        [
            Statistics::byte_array(text.clone(), text, None, None, deprecated),
            Statistics::int32(Some(7), Some(7), None, Some(2), deprecated),
            Statistics::int96(Some(instant), Some(instant), None, None, deprecated),
        ]
    }

    /// Which of the columns have bounds.
    fn bounded(metadata: &ArrowReaderMetadata) -> [bool; 3] {
        let columns = [("s", DataType::STRING), ("n", DataType::INTEGER), ("t", DataType::TIMESTAMP)];
        let table = StructType::new(columns.iter().map(|(n, t)| StructField::new(*n, t.clone(), true)).collect());
        let constants = Constants::new();
        let file = FileSchema { fields: metadata.schema().fields().clone(), ..FileSchema::default() };
        let bounds = RowGroupBounds::new(metadata, &file, &table, ColumnMapping::None, &constants);
        columns.map(|(name, data_type)| {
            let column = Column { path: vec![name.to_owned()], index: 0, data_type };
            let has_no_nulls = |array: Option<ArrayRef>| array.is_some_and(|array| array.null_count() == 0);
            let (min, max) = (has_no_nulls(bounds.min(&column).unwrap()), has_no_nulls(bounds.max(&column).unwrap()));
            assert_eq!(min, max, "{name}");
            let nulls = bounds.null_count(&column).unwrap().unwrap();
            assert_eq!(nulls.is_valid(0), name == "n", "a count that is not there is not zero: {name}");
            min
        })
    }

    #[test]
    fn bounds_in_no_defined_order_are_absent() {
        let defined = Some(ColumnOrder::TYPE_DEFINED_ORDER(SortOrder::UNSIGNED));
        for (deprecated, order, expected) in [
            (false, defined, [true, true, false]),
            (true, defined, [false, true, false]),
            (false, None, [false, true, false]),
            (true, None, [false, true, false]),
            (false, Some(ColumnOrder::UNKNOWN), [false, false, false]),
        ] {
            let metadata = footer(statistics(deprecated), order);
            assert_eq!(bounded(&metadata), expected, "deprecated: {deprecated}, order: {order:?}");
        }
    }
}
