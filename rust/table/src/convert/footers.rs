//! Reads footers of Parquet files: columns, row counts, and bounds that become statistics.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int64Array};
use arrow_select::concat::concat;
use deltic_protocol::error::{Error, Result};
use deltic_protocol::predicate::Column;
use deltic_protocol::prune::Bounds;
use deltic_protocol::schema::arrow::from_arrow_schema;
use deltic_protocol::schema::mapping::ColumnMapping;
use deltic_protocol::schema::{DataType, PrimitiveType, StructType, TableSchema, is_same_name};
use deltic_protocol::stats::collect::{IndexedColumns, PrecomputedStats, STRING_PREFIX_LENGTH, StatsCollector};
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use serde::{Deserialize, Serialize};

use super::columns::{check_arrow_type, nullable};
use super::existing::Existing;
use super::mapped::{check_mapped, check_stored};
use crate::footer::calendar::Calendars;
use crate::scan::file_footer::look_at_footer;
use crate::scan::read::{Constants, FileSchema, RowGroupBounds};
use crate::write::plan::physical_indexed;
use deltic_store::Storage;

/// The key in the footer of files that Iceberg's writers wrote.
const ICEBERG: &str = "iceberg.schema";

/// The contents of one footer.
#[derive(Debug, Clone)]
pub(super) struct Footer {
    pub(super) rows: u64,
    /// Its columns, all nullable, without the partition columns in folder names. `None` if the table's columns are known
    /// already.
    pub(super) schema: Option<StructType>,
    /// The JSON of `add.stats`.
    pub(super) stats: String,
}

/// Reads footers.
#[derive(Debug, Clone)]
pub(super) struct Footers {
    storage: Storage,
    settings: Arc<Settings>,
}

/// Which parts of a footer are read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Settings {
    /// Partition columns: their values come from the directories even if files have them too.
    partition_columns: Vec<String>,
    /// The other columns of the table, if they are known. They are found in files by field id.
    columns: Option<TableSchema>,
    /// The columns with statistics, if there are to be any.
    indexed: Option<IndexedColumns>,
}

impl Footers {
    pub(super) fn with(storage: &Storage, settings: Settings) -> Self {
        Self { storage: storage.clone(), settings: Arc::new(settings) }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Reads the footer of a file.
    ///
    /// # Errors
    /// `Invalid` for a file that is not Parquet, and for columns that no table has; `Unsupported` for those that the table
    /// cannot find or read in it. They name the file.
    pub(super) async fn read(&self, file: &Existing) -> Result<Footer> {
        let (settings, stored) = (Arc::clone(&self.settings), file.stored.clone());
        let describe = move |file: &ArrowReaderMetadata| {
            check_stored(&stored, file.schema().fields())?;
            settings.describe(file)
        };
        let described = look_at_footer(&self.storage, &file.path, file.size, describe);
        described.await.map_err(|e| if e.is_corrupt() { not_parquet(&e) } else { e }.in_file(file.path.clone()))
    }
}

/// The error for a file that is not Parquet; it is not called damage of a table, since there is no table yet.
fn not_parquet(error: &Error) -> Error {
    let why = std::error::Error::source(error).map_or_else(|| error.message().to_owned(), ToString::to_string);
    Error::invalid(format!(
        "the file cannot be read as Parquet ({why}), and all files that are not hidden must be Parquet; move it to \
         another folder"
    ))
}

impl Settings {
    /// Settings for files in folders of partition values.
    pub(super) fn of_folders(partitions: &StructType, indexed: Option<IndexedColumns>) -> Self {
        let partition_columns = partitions.fields.iter().map(|field| field.name.clone()).collect();
        Self { partition_columns, columns: None, indexed }
    }

    /// Settings for files of another format's table, which has these columns.
    pub(super) fn of_foreign(schema: &StructType, partition_by: &[String], indexed: Option<IndexedColumns>) -> Self {
        let columns = schema.fields.iter().filter(|field| !partition_by.contains(&field.name)).cloned().collect();
        let columns = Some(TableSchema::from(StructType::new(columns)));
        Self { partition_columns: partition_by.to_vec(), columns, indexed }
    }

    fn describe(&self, metadata: &ArrowReaderMetadata) -> Result<Footer> {
        let rows = u64::try_from(metadata.metadata().file_metadata().num_rows()).unwrap_or_default();
        let schema = if self.columns.is_none() { Some(self.columns_of(metadata)?) } else { None };
        let columns = match (&self.columns, &schema) {
            (Some(columns), _) => {
                check_mapped(columns, metadata.schema().fields(), "")?;
                Some((&**columns, ColumnMapping::Id))
            }
            (None, schema) => schema.as_ref().map(|schema| (schema, ColumnMapping::None)),
        };
        let stats = match (columns, &self.indexed) {
            (Some((schema, mapping)), Some(indexed)) => {
                let indexed = physical_indexed(indexed, schema, mapping)?;
                let wanted = Wanted { indexed, prefix_length: STRING_PREFIX_LENGTH, floats: false };
                statistics(metadata, schema, mapping, &wanted)?
            }
            _ => format!(r#"{{"numRecords":{rows}}}"#),
        };
        Ok(Footer { rows, schema, stats })
    }

    fn columns_of(&self, metadata: &ArrowReaderMetadata) -> Result<StructType> {
        let entries = metadata.metadata().file_metadata().key_value_metadata();
        if entries.is_some_and(|entries| entries.iter().any(|entry| entry.key == ICEBERG)) {
            return Err(Error::unsupported(
                "conversion of Iceberg's files without its metadata",
                "the file is one of an Iceberg table, whose own metadata says which files and rows are live; convert the \
                 folder that has `metadata/` in it, or pass the metadata file that the catalog names",
            ));
        }
        let fields = metadata.schema().fields();
        fields.iter().try_for_each(|field| check_arrow_type(field, field.name()))?;
        let mut schema = nullable(&from_arrow_schema(metadata.schema())?);
        let is_in_folders = |name: &str| self.partition_columns.iter().any(|column| is_same_name(column, name));
        schema.fields.retain(|field| !is_in_folders(&field.name));
        Ok(schema)
    }
}

/// Which statistics are wanted.
#[derive(Debug)]
pub(super) struct Wanted {
    /// The columns, by physical names.
    pub(super) indexed: IndexedColumns,
    /// How many characters of a string its bounds keep.
    pub(super) prefix_length: usize,
    /// Whether floating-point columns get bounds: only if the writer of the file includes NaN in them.
    pub(super) floats: bool,
}

/// The JSON of `add.stats`, from the statistics of the row groups.
pub(super) fn statistics(
    metadata: &ArrowReaderMetadata,
    schema: &StructType,
    mapping: ColumnMapping,
    wanted: &Wanted,
) -> Result<String> {
    let file = metadata.metadata().file_metadata();
    let columns = FileSchema { fields: metadata.schema().fields().clone(), calendars: Calendars::of(file) };
    let constants = Constants::new();
    let bounds = RowGroupBounds::new(metadata, &columns, schema, mapping, &constants);
    let known = |path: &[&str]| match column_at(schema, mapping, path)? {
        Some(column) => known_column(&bounds, &column, wanted.floats),
        None => Ok(PrecomputedStats::default()),
    };
    let rows = u64::try_from(file.num_rows()).unwrap_or_default();
    let collector = StatsCollector::new(&mapping.physical_schema(schema)?, &wanted.indexed);
    let mut collector = collector.with_prefix_length(wanted.prefix_length);
    collector.update_known(rows, &known)?;
    Ok(collector.finish())
}

/// Number of rows that are null in a column of the table, if the file records it.
pub(super) fn null_rows(
    metadata: &ArrowReaderMetadata,
    schema: &StructType,
    mapping: ColumnMapping,
    column: &str,
) -> Result<Option<u64>> {
    let calendars = Calendars::of(metadata.metadata().file_metadata());
    let columns = FileSchema { fields: metadata.schema().fields().clone(), calendars };
    let constants = Constants::new();
    let bounds = RowGroupBounds::new(metadata, &columns, schema, mapping, &constants);
    match column_at(schema, mapping, &[column])? {
        Some(column) => Ok(bounds.null_count(&column)?.as_ref().and_then(total)),
        None => Ok(None),
    }
}

/// The column at a path of physical names. `None` if there is none or its type is not primitive.
fn column_at(schema: &StructType, mapping: ColumnMapping, path: &[&str]) -> Result<Option<Column>> {
    let (mut inside, mut logical, mut leaf) = (schema, Vec::with_capacity(path.len()), None);
    for (depth, name) in path.iter().enumerate() {
        let mut named = None;
        for (index, field) in inside.fields.iter().enumerate() {
            if mapping.physical_name(field)? == *name {
                named = Some((index, field));
            }
        }
        let Some((index, field)) = named else { return Ok(None) };
        logical.push(field.name.clone());
        let first = leaf.map_or(index, |(first, _)| first);
        leaf = Some((first, &field.data_type));
        match &field.data_type {
            DataType::Struct(inner) if depth + 1 < path.len() => inside = inner,
            _ if depth + 1 < path.len() => return Ok(None),
            _ => {}
        }
    }
    let Some((index, data_type)) = leaf.filter(|(_, data_type)| data_type.as_primitive().is_some()) else {
        return Ok(None);
    };
    Ok(Some(Column { path: logical, index, data_type: data_type.clone() }))
}

/// Bounds and null counts of a column over the row groups.
fn known_column(bounds: &RowGroupBounds<'_>, column: &Column, floats: bool) -> Result<PrecomputedStats> {
    let null_counts = bounds.null_count(column)?;
    let nulls = null_counts.as_ref().and_then(total);
    let are_bounds = match column.primitive()? {
        PrimitiveType::Float | PrimitiveType::Double => floats,
        // Parquet has no order of them.
        PrimitiveType::Geometry { .. } | PrimitiveType::Geography { .. } => false,
        _ => true,
    };
    if !are_bounds {
        return Ok(PrecomputedStats { min_max: None, nulls });
    }
    let (Some(min), Some(max)) = (bounds.min(column)?, bounds.max(column)?) else {
        return Ok(PrecomputedStats { min_max: None, nulls });
    };
    let rows = bounds.row_count()?;
    let is_empty = |group: usize| {
        let (Some(rows), Some(nulls)) = (&rows, &null_counts) else { return false };
        nulls.is_valid(group) && nulls.value(group) == rows.value(group)
    };
    let is_known = |group: usize| (min.is_valid(group) && max.is_valid(group)) || is_empty(group);
    let min_max = (0..min.len()).all(is_known).then(|| both(&min, &max)).transpose()?;
    Ok(PrecomputedStats { min_max, nulls })
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
