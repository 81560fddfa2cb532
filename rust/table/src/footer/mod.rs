//! The footer of a Parquet file: its Arrow schema, whether its bounds can be used, and the calendar of its dates.
//!
//! There is no I/O here. [`deltic_pages::footer`] parses the bytes of a footer.

pub(crate) mod calendar;

use std::sync::Arc;

use arrow_schema::{DataType as ArrowType, Field, Fields, Schema, TimeUnit};
pub use deltic_pages::footer::{TRAILER, metadata_length, parse};
use parquet::arrow::RowNumber;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::basic::{ColumnOrder, SortOrder, Type as PhysicalType};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::statistics::Statistics;
use parquet::schema::types::SchemaDescriptor;

/// The Arrow form of a file's schema, from the Parquet types only: an embedded Arrow schema is not trusted.
/// INT96 becomes microseconds in `int96_zone`.
pub fn arrow_metadata(
    metadata: Arc<ParquetMetaData>,
    int96_zone: Option<&str>,
) -> Result<ArrowReaderMetadata, ParquetError> {
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let plain = ArrowReaderMetadata::try_new(Arc::clone(&metadata), options.clone())?;
    match int96_as_micros(&plain, int96_zone) {
        Some(fields) => ArrowReaderMetadata::try_new(metadata, options.with_schema(Arc::new(Schema::new(fields)))),
        None => Ok(plain),
    }
}

/// As [`arrow_metadata`], and the fields of the file. With `positions`, batches get a last column that is not among the fields:
/// the positions of their rows in the file.
pub fn with_positions(
    metadata: Arc<ParquetMetaData>,
    positions: bool,
) -> Result<(ArrowReaderMetadata, Fields), ParquetError> {
    let plain = arrow_metadata(Arc::clone(&metadata), None)?;
    let fields = plain.schema().fields().clone();
    if !positions {
        return Ok((plain, fields));
    }
    let position = Field::new("position", ArrowType::Int64, false).with_extension_type(RowNumber);
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true).with_schema(plain.schema().clone());
    let options = options.with_virtual_columns(vec![Arc::new(position)])?;
    Ok((ArrowReaderMetadata::try_new(with_ordinals(metadata)?, options)?, fields))
}

/// Numbers the row groups in their order, as the decoder needs to find their first rows. The numbers in the footer may be
/// wrong.
fn with_ordinals(metadata: Arc<ParquetMetaData>) -> Result<Arc<ParquetMetaData>, ParquetError> {
    let is_number = |(index, group): (usize, &RowGroupMetaData)| {
        group.ordinal().is_some_and(|ordinal| usize::try_from(ordinal).is_ok_and(|ordinal| ordinal == index))
    };
    if metadata.row_groups().iter().enumerate().all(is_number) {
        return Ok(metadata);
    }
    let mut builder = Arc::unwrap_or_clone(metadata).into_builder();
    let number = |(ordinal, group): (i32, RowGroupMetaData)| group.into_builder().set_ordinal(ordinal).build();
    let groups = (0..).zip(builder.take_row_groups()).map(number).collect::<Result<_, _>>()?;
    Ok(Arc::new(builder.set_row_groups(groups).build()))
}

/// Whether the bounds of a leaf, in all row groups, follow the order of its values.
pub fn has_ordered_bounds(file: &ArrowReaderMetadata, leaf: usize) -> bool {
    let Some(column) = file.parquet_schema().columns().get(leaf) else { return false };
    // All writers have always compared numbers as numbers, but not bytes as unsigned bytes.
    let number = matches!(
        column.physical_type(),
        PhysicalType::BOOLEAN | PhysicalType::INT32 | PhysicalType::INT64 | PhysicalType::FLOAT | PhysicalType::DOUBLE
    ) && column.sort_order() != SortOrder::UNSIGNED;
    let orders = file.metadata().file_metadata().column_orders();
    let defined = match orders.and_then(|orders| orders.get(leaf)) {
        Some(
            ColumnOrder::TYPE_DEFINED_ORDER(_) | ColumnOrder::IEEE_754_TOTAL_ORDER | ColumnOrder::INT96_TIMESTAMP_ORDER,
        ) => true,
        Some(ColumnOrder::UNKNOWN) => return false,
        Some(ColumnOrder::UNDEFINED) | None => number,
    };
    let deprecated = || {
        let statistics =
            file.metadata().row_groups().iter().filter_map(|group| group.columns().get(leaf)?.statistics());
        // If all values are null there are no bounds, and the reader calls the statistics deprecated.
        let has_bounds = |s: &Statistics| s.min_bytes_opt().is_some() || s.max_bytes_opt().is_some();
        statistics.into_iter().any(|statistics| statistics.is_min_max_deprecated() && has_bounds(statistics))
    };
    defined && (number || !deprecated())
}

/// The fields with microseconds in `zone` for INT96; `None` if the file has no INT96.
///
/// By default INT96 becomes nanoseconds, whose range ends in the year 2262.
pub fn int96_as_micros(plain: &ArrowReaderMetadata, zone: Option<&str>) -> Option<Fields> {
    let parquet = plain.parquet_schema();
    if !parquet.columns().iter().any(|leaf| leaf.physical_type() == PhysicalType::INT96) {
        return None;
    }
    let micros = ArrowType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
    let mut leaf = 0;
    let fields = plain.schema().fields().iter();
    Some(fields.map(|field| with_int96(field, &micros, parquet, &mut leaf)).collect())
}

/// `field` with INT96 as `micros`; its first leaf is number `leaf`, which is increased by the number of its leaves.
fn with_int96(field: &Field, micros: &ArrowType, parquet: &SchemaDescriptor, leaf: &mut usize) -> Field {
    let mut inside = |field: &Arc<Field>| Arc::new(with_int96(field, micros, parquet, leaf));
    let data_type = match field.data_type() {
        ArrowType::Struct(fields) => ArrowType::Struct(fields.iter().map(inside).collect()),
        ArrowType::List(element) => ArrowType::List(inside(element)),
        ArrowType::Map(entries, sorted) => ArrowType::Map(inside(entries), *sorted),
        other => {
            let int96 = parquet.columns().get(*leaf).is_some_and(|c| c.physical_type() == PhysicalType::INT96);
            *leaf += 1;
            if int96 { micros.clone() } else { other.clone() }
        }
    };
    field.clone().with_data_type(data_type)
}
