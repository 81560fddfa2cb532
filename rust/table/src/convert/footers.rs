//! What the footers of Parquet files say: columns, rows, and bounds that become statistics.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int64Array};
use arrow_schema::{DataType as ArrowType, Field, TimeUnit};
use arrow_select::concat::concat;
use deltic_protocol::error::{Error, Result};
use deltic_protocol::predicate::Column;
use deltic_protocol::prune::Bounds;
use deltic_protocol::schema::arrow::from_arrow_schema;
use deltic_protocol::schema::mapping::ColumnMapping;
use deltic_protocol::schema::{DataType, PrimitiveType, StructType};
use deltic_protocol::stats::collect::{IndexedColumns, KnownColumn, StatsCollector};
use parquet::arrow::arrow_reader::ArrowReaderMetadata;

use super::columns::nullable;
use crate::footer::calendar::Calendars;
use crate::scan::read::{Constants, FileSchema, RowGroupBounds, look_at_footer};
use crate::storage::{FileMeta, Storage};

/// What is known of a file.
#[derive(Debug)]
pub(super) struct Footer {
    pub(super) rows: u64,
    /// Its columns without those of the folders; anything may be null.
    pub(super) schema: StructType,
    /// The text of `add.stats`.
    pub(super) stats: String,
}

/// Reads footers.
#[derive(Debug)]
pub(super) struct Footers {
    storage: Storage,
    settings: Arc<Settings>,
}

#[derive(Debug)]
struct Settings {
    /// Columns whose values the folders say, whatever files have.
    partition_columns: Vec<String>,
    /// The columns with statistics, if there are to be any.
    indexed: Option<IndexedColumns>,
}

impl Footers {
    pub(super) fn new(storage: &Storage, partitions: &StructType, indexed: Option<IndexedColumns>) -> Self {
        let partition_columns = partitions.fields.iter().map(|field| field.name.clone()).collect();
        Self { storage: storage.clone(), settings: Arc::new(Settings { partition_columns, indexed }) }
    }

    /// Reads the footer of a file.
    ///
    /// # Errors
    /// `Invalid` for a file that is no Parquet, and for columns that no table has.
    pub(super) async fn read(&self, file: &FileMeta) -> Result<Footer> {
        let settings = Arc::clone(&self.settings);
        let described = look_at_footer(&self.storage, (&file.path, file.size), move |file| settings.describe(file));
        described.await.map_err(|e| if e.is_corrupt() { no_parquet(&e) } else { e })
    }
}

/// A file that cannot be read, where there is no table yet that it could be missing from.
fn no_parquet(error: &Error) -> Error {
    let why = std::error::Error::source(error).map_or_else(|| error.message().to_owned(), ToString::to_string);
    Error::invalid(format!(
        "the file cannot be read as Parquet ({why}), which all files that are not hidden must be; move it elsewhere"
    ))
}

impl Settings {
    fn describe(&self, metadata: &ArrowReaderMetadata) -> Result<Footer> {
        let fields = metadata.schema().fields();
        fields.iter().try_for_each(|field| check_type(field, field.name()))?;
        let mut schema = nullable(&from_arrow_schema(metadata.schema())?);
        let is_in_folders = |name: &str| self.partition_columns.iter().any(|column| column.eq_ignore_ascii_case(name));
        schema.fields.retain(|field| !is_in_folders(&field.name));
        let rows = u64::try_from(metadata.metadata().file_metadata().num_rows()).unwrap_or_default();
        let stats = match &self.indexed {
            Some(indexed) => statistics(metadata, &schema, indexed)?,
            None => format!(r#"{{"numRecords":{rows}}}"#),
        };
        Ok(Footer { rows, schema, stats })
    }
}

/// Refuses types that Spark does not read as what they are.
fn check_type(field: &Field, path: &str) -> Result<()> {
    let inner = |child: &Field| check_type(child, &format!("{path}.{}", child.name()));
    let refuse = |what: &str, instead: &str| {
        Err(Error::invalid(format!(
            "the column `{path}` has {what}, which other clients do not read; write the file again with {instead}"
        )))
    };
    match field.data_type() {
        ArrowType::Timestamp(TimeUnit::Nanosecond, _) => refuse("timestamps in nanoseconds", "microseconds"),
        ArrowType::Float16 => refuse("half-precision numbers", "floats"),
        ArrowType::Struct(fields) => fields.iter().try_for_each(|child| inner(child)),
        ArrowType::List(child) | ArrowType::Map(child, _) => inner(child),
        _ => Ok(()),
    }
}

/// The text of `add.stats`, by the bounds of the row groups.
fn statistics(metadata: &ArrowReaderMetadata, schema: &StructType, indexed: &IndexedColumns) -> Result<String> {
    let calendars = Calendars::of(metadata.metadata().file_metadata());
    let columns = FileSchema { fields: metadata.schema().fields().clone(), calendars };
    let constants = Constants::new();
    let bounds = RowGroupBounds::new(metadata, &columns, schema, ColumnMapping::None, &constants);
    let known = |path: &[&str]| match column_at(schema, path) {
        Some(column) => known_column(&bounds, &column),
        None => Ok(KnownColumn::default()),
    };
    let rows = u64::try_from(metadata.metadata().file_metadata().num_rows()).unwrap_or_default();
    let mut collector = StatsCollector::new(schema, indexed);
    collector.update_known(rows, &known)?;
    Ok(collector.finish())
}

/// The column at a path of names; none of one that is no primitive.
fn column_at(schema: &StructType, path: &[&str]) -> Option<Column> {
    let (first, rest) = path.split_first()?;
    let index = schema.fields.iter().position(|field| field.name == *first)?;
    let mut data_type = &schema.fields.get(index)?.data_type;
    for name in rest {
        let DataType::Struct(inner) = data_type else { return None };
        data_type = &inner.fields.iter().find(|field| field.name == *name)?.data_type;
    }
    data_type.as_primitive()?;
    let path = path.iter().map(|name| (*name).to_owned()).collect();
    Some(Column { path, index, data_type: data_type.clone() })
}

/// What the row groups say of a column.
fn known_column(bounds: &RowGroupBounds<'_>, column: &Column) -> Result<KnownColumn> {
    let null_counts = bounds.null_count(column)?;
    let nulls = null_counts.as_ref().and_then(total);
    if matches!(column.primitive()?, PrimitiveType::Float | PrimitiveType::Double) {
        return Ok(KnownColumn { extremes: None, nulls });
    }
    let (Some(min), Some(max)) = (bounds.min(column)?, bounds.max(column)?) else {
        return Ok(KnownColumn { extremes: None, nulls });
    };
    let rows = bounds.row_count()?;
    let is_empty = |group: usize| {
        let (Some(rows), Some(nulls)) = (&rows, &null_counts) else { return false };
        nulls.is_valid(group) && nulls.value(group) == rows.value(group)
    };
    let is_known = |group: usize| (min.is_valid(group) && max.is_valid(group)) || is_empty(group);
    let extremes = (0..min.len()).all(is_known).then(|| both(&min, &max)).transpose()?;
    Ok(KnownColumn { extremes, nulls })
}

fn both(min: &ArrayRef, max: &ArrayRef) -> Result<ArrayRef> {
    concat(&[min.as_ref(), max.as_ref()]).map_err(|e| Error::internal("bounds of a footer do not fit").caused_by(e))
}

/// The sum of counts, all of which are known.
fn total(counts: &Int64Array) -> Option<u64> {
    if counts.null_count() > 0 {
        return None;
    }
    counts.values().iter().try_fold(0_u64, |sum, count| sum.checked_add(u64::try_from(*count).ok()?))
}
