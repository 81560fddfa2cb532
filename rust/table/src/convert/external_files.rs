//! The files that another engine's Parquet writer left in the folder of a write, as data files of the transaction.
//!
//! Each footer is read and compared with the plan: the columns, their types and field ids, the calendar, nulls where there
//! may be none. Together they must have exactly as many rows as the engine counted. Statistics come
//! from the footers only, and a bound that may be wrong is left out.
//!
//! Proved by `tests/spark/test_native_write.py` and `tests/interop/test_native_write.py`.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType as ArrowType, Field, Fields, Schema};
use deltic_protocol::action::{Add, PartitionValues};
use deltic_protocol::error::{Error, Result};
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::arrow::to_arrow_type;
use deltic_protocol::schema::mapping::ColumnMapping;
use futures::{StreamExt, TryStreamExt, stream};
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::basic::Type as PhysicalType;
use percent_encoding::percent_decode_str;

use super::conversion::CONCURRENT_FOOTERS;
use super::external::{Columns, folder, folder_string};
use super::footers::{Wanted, null_rows, statistics};
use crate::footer::calendar::Calendars;
use crate::scan::file_footer::look_at_footer;
use crate::scan::read::parquet_id;
use crate::write::layout::{NULL_DIRECTORY, encode_add_path};
use crate::write::partition::PartitionSplitter;
use crate::write::plan::{DataFile, WritePlan, WriteSpec, physical_indexed};
use deltic_store::{FileMeta, Storage};

/// The writer whose bounds of floating-point columns are NaN if there is a NaN, and its last minor version for which that
/// was tested.
const PARQUET_MR: &str = "parquet-mr version 1.";
const LAST_TESTED_MINOR: u32 = 17;

/// Files made durable at a time.
const CONCURRENT_SYNCS: usize = 32;

/// Checks the files that another engine has written for a plan, and makes them durable. Other files in the directory are
/// deleted. `rows`: the number of rows that the engine counted.
///
/// # Errors
/// `Invalid` for files that do not have the columns of the plan, have a null where the table allows none, or do not have so
/// many rows together; `Unsupported` for dates and timestamps of another calendar or type.
pub async fn take_external(storage: &Storage, plan: &WritePlan, rows: u64) -> Result<Vec<DataFile>> {
    let taken = async {
        let folder = folder(plan)?;
        let expected = Arc::new(Expected::of(&plan.spec)?);
        let listed: Vec<FileMeta> = storage.list_recursive(&folder).try_collect().await?;
        let (files, others): (Vec<_>, Vec<_>) =
            listed.into_iter().partition(|file| is_data_file(below(&file.path, &folder)));
        let read = |file: FileMeta| {
            let (expected, folder) = (Arc::clone(&expected), folder.clone());
            async move {
                let read = expected.read(storage, below(&file.path, &folder), &file).await;
                read.map_err(|e| e.in_file(file.path.clone()))
            }
        };
        let read: Vec<Option<DataFile>> =
            stream::iter(files.clone()).map(read).buffered(CONCURRENT_FOOTERS).try_collect().await?;
        let mut taken = Vec::with_capacity(read.len());
        let mut orphans: Vec<String> = others.into_iter().map(|file| file.path).collect();
        for (file, data) in files.into_iter().zip(read) {
            match data {
                Some(data) => taken.push((file.path, data)),
                None => orphans.push(file.path),
            }
        }
        check_rows(&taken, rows, &folder)?;
        let syncs: Vec<_> = taken.iter().map(|(path, _)| storage.make_durable(path)).collect();
        stream::iter(syncs).buffer_unordered(CONCURRENT_SYNCS).try_collect::<()>().await?;
        // Marker and checksum files of the engine. One that cannot be deleted remains as an orphan.
        let _deleted = storage.delete_many(&orphans).await;
        Ok(taken.into_iter().map(|(_, file)| file).collect())
    };
    taken.await.map_err(|e: Error| e.in_table(&plan.location))
}

/// Deletes all files in the directory of a plan that will not be committed. Errors of the store are ignored.
pub async fn delete_external(storage: &Storage, plan: &WritePlan) {
    let Ok(folder) = folder(plan) else { return };
    let mut files = storage.list_recursive(&folder);
    let mut paths = Vec::new();
    while let Some(Ok(file)) = files.next().await {
        paths.push(file.path);
    }
    let _deleted = storage.delete_many(&paths).await;
}

fn check_rows(taken: &[(String, DataFile)], rows: u64, folder: &str) -> Result<()> {
    let found = taken.iter().fold(0_u64, |sum, (_, file)| sum.saturating_add(file.rows));
    if found == rows {
        return Ok(());
    }
    let hint = if taken.is_empty() {
        "; Spark may have written to another store than this one: its own settings for the store (fs.s3a.* and so on) must \
         lead to the same place"
    } else {
        ""
    };
    Err(Error::invalid(format!(
        "Spark wrote {rows} rows, and the files in `{folder}` have {found}{hint}; nothing was committed; use engine='arrow'"
    )))
}

fn below<'p>(path: &'p str, folder: &str) -> &'p str {
    path.strip_prefix(folder).map_or(path, |rest| rest.trim_start_matches('/'))
}

/// Whether a path below the directory is that of a data file of a committed task.
fn is_data_file(path: &str) -> bool {
    let mut parts = path.rsplit('/');
    let name = parts.next().unwrap_or_default();
    let is_hidden = |name: &str| name.starts_with(['_', '.']);
    // The name of a partition column may begin like that of a hidden folder.
    name.ends_with(".parquet") && !is_hidden(name) && !parts.any(|folder| is_hidden(folder) && !folder.contains('='))
}

/// Requirements on the files.
struct Expected {
    columns: Columns,
    /// Physical names of the columns without nulls.
    required: Vec<(String, String)>,
    /// The partition columns' names in directories.
    folders: Vec<String>,
    splitter: PartitionSplitter,
    wanted: Wanted,
    data_change: bool,
}

impl Expected {
    fn of(spec: &WriteSpec) -> Result<Self> {
        let columns = Columns::of(spec)?;
        let physical = columns.mapping.physical_schema(&columns.data)?;
        let named = columns.data.fields.iter().zip(physical.fields).filter(|(field, _)| !field.nullable);
        let required = named.map(|(field, stored)| (field.name.clone(), stored.name)).collect();
        let partitions = columns.mapping.physical_schema(&columns.partitions)?;
        let names: Vec<String> = partitions.fields.iter().map(|field| field.name.clone()).collect();
        let indexed = physical_indexed(&spec.indexed_columns, &columns.data, columns.mapping)?.and(&spec.clustering);
        Ok(Self {
            required,
            folders: names.iter().map(|name| folder_string(name)).collect(),
            splitter: PartitionSplitter::new(&partitions, &names)?,
            wanted: Wanted { indexed, prefix_length: spec.string_prefix_length, floats: false },
            data_change: !spec.rearrange_only,
            columns,
        })
    }

    /// Reads and checks a file; none if it has no rows.
    async fn read(self: Arc<Self>, storage: &Storage, below: &str, file: &FileMeta) -> Result<Option<DataFile>> {
        let this = Arc::clone(&self);
        let described = look_at_footer(storage, &file.path, file.size, move |footer| this.describe(footer));
        let (rows, stats) = described.await?;
        if rows == 0 {
            return Ok(None);
        }
        let size = i64::try_from(file.size);
        let add = Add {
            path: encode_add_path(&file.path),
            partition_values: self.partition_values(below)?,
            size: size.map_err(|e| Error::internal("a file is too long for the log").caused_by(e))?,
            modification_time: file.modified_ms,
            data_change: self.data_change,
            stats: Some(stats),
            ..Add::default()
        };
        Ok(Some(DataFile { add, rows, identities: BTreeMap::new() }))
    }

    /// Rows and statistics of a file.
    fn describe(&self, metadata: &ArrowReaderMetadata) -> Result<(u64, String)> {
        let file = metadata.metadata().file_metadata();
        let rows = u64::try_from(file.num_rows()).unwrap_or_default();
        let calendars = Calendars::of(file);
        for leaf in metadata.parquet_schema().columns() {
            if leaf.physical_type() == PhysicalType::INT96 || calendars.may_differ(leaf) {
                let path = leaf.path().string();
                let message = format!(
                    "Spark wrote the column `{path}` as INT96 or in the legacy calendar; set \
                     spark.sql.parquet.outputTimestampType to TIMESTAMP_MICROS and \
                     spark.sql.parquet.datetimeRebaseModeInWrite to CORRECTED, or use engine='arrow'"
                );
                return Err(Error::unsupported("INT96 timestamps and legacy calendars", message));
            }
        }
        let (schema, mapping) = (&self.columns.data, self.columns.mapping);
        check_fields(&self.columns.stored, metadata.schema().fields(), mapping, "")?;
        for (name, stored) in &self.required {
            match null_rows(metadata, schema, mapping, stored)? {
                Some(0) => {}
                None if rows == 0 => {}
                nulls => return Err(null_in(name, nulls)),
            }
        }
        let floats = file.created_by().is_some_and(bounds_have_nan);
        let wanted = Wanted { floats, indexed: self.wanted.indexed.clone(), ..self.wanted };
        Ok((rows, statistics(metadata, schema, mapping, &wanted)?))
    }

    /// The partition values by physical names, from the names of a file's folders.
    fn partition_values(&self, below: &str) -> Result<PartitionValues> {
        let folders = below.rsplit_once('/').map_or("", |(folders, _)| folders);
        let found: Vec<&str> = folders.split('/').filter(|part| !part.is_empty()).collect();
        let wrong = || {
            let expected = self.folders.join(", ");
            Error::invalid(format!("the file is in the folders `{folders}`, and not in those of [{expected}]"))
        };
        if found.len() != self.folders.len() {
            return Err(wrong());
        }
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for ((part, name), field) in found.into_iter().zip(&self.folders).zip(&self.columns.partitions.fields) {
            let (key, value) = part.split_once('=').ok_or_else(wrong)?;
            if decoded(key)? != *name {
                return Err(wrong());
            }
            let string = if value == NULL_DIRECTORY { None } else { Some(decoded(&decoded(value)?)?) };
            let primitive = field.data_type.as_primitive().ok_or_else(wrong)?;
            let parsed = Scalar::parse_partition(string.as_deref(), primitive).map_err(|e| {
                Error::invalid(format!("a value of the partition column `{}`: {}", field.name, e.message()))
            })?;
            fields.push(Field::new(&field.name, to_arrow_type(&field.data_type), true));
            columns.push(parsed.to_array(primitive, 1)?);
        }
        if columns.is_empty() {
            return Ok(PartitionValues::new());
        }
        let row = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
        let split = self.splitter.split(&row)?;
        let (key, _) = split.first().ok_or_else(wrong)?;
        Ok(key.to_partition_values())
    }
}

/// Whether the writer of a file is known to include NaN in the bounds.
fn bounds_have_nan(created_by: &str) -> bool {
    let version = created_by.strip_prefix(PARQUET_MR).and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
    version.is_some_and(|minor| minor <= LAST_TESTED_MINOR)
}

/// A string without its percent escapes.
fn decoded(string: &str) -> Result<String> {
    let plain = percent_decode_str(string).decode_utf8().map_err(|e| {
        Error::invalid(format!("the folder name `{string}` is not UTF-8, as partition values must be")).caused_by(e)
    })?;
    Ok(plain.into_owned())
}

fn null_in(name: &str, nulls: Option<u64>) -> Error {
    let problem = match nulls {
        Some(nulls) => format!("{nulls} rows have no value in the column `{name}`, which is NOT NULL"),
        None => format!("the file does not say how many rows have no value in the column `{name}`, which is NOT NULL"),
    };
    Error::invalid(format!("{problem}; give them one, or use engine='arrow', which names the first of them"))
}

/// Refuses a file with other columns than these.
fn check_fields(table: &[Arc<Field>], file: &[Arc<Field>], mapping: ColumnMapping, above: &str) -> Result<()> {
    let names = |fields: &[Arc<Field>]| fields.iter().map(|field| format!("`{}`", field.name())).collect::<Vec<_>>();
    if !table.iter().map(|field| field.name()).eq(file.iter().map(|field| field.name())) {
        let (expected, found) = (names(table).join(", "), names(file).join(", "));
        let within = if above.is_empty() { String::new() } else { format!(" in `{above}`") };
        return Err(Error::invalid(format!(
            "Spark wrote the columns {found}{within}, not {expected}; use engine='arrow'"
        )));
    }
    for (expected, found) in table.iter().zip(file) {
        let path = if above.is_empty() { found.name().clone() } else { format!("{above}.{}", found.name()) };
        if mapping != ColumnMapping::None && parquet_id(expected) != parquet_id(found) {
            return Err(Error::invalid(format!(
                "Spark wrote the column `{path}` without its field id; set spark.sql.parquet.fieldId.write.enabled to true, \
                 or use engine='arrow'"
            )));
        }
        check_type(expected.data_type(), found.data_type(), mapping, &path)?;
    }
    Ok(())
}

fn check_type(table: &ArrowType, file: &ArrowType, mapping: ColumnMapping, path: &str) -> Result<()> {
    match (table, file) {
        (ArrowType::Struct(table), ArrowType::Struct(file)) if is_variant(table) => {
            // Spark writes its two fields in the other order. Readers ignore the order.
            let mut sorted: Vec<_> = file.iter().cloned().collect();
            sorted.sort_by(|a, b| a.name().cmp(b.name()));
            check_fields(table, &sorted, mapping, path)
        }
        (ArrowType::Struct(table), ArrowType::Struct(file)) => check_fields(table, file, mapping, path),
        (ArrowType::List(table), ArrowType::List(file)) => {
            check_type(table.data_type(), file.data_type(), mapping, &format!("{path}.element"))
        }
        (ArrowType::Map(table, _), ArrowType::Map(file, _)) => match (table.data_type(), file.data_type()) {
            (ArrowType::Struct(table), ArrowType::Struct(file)) if table.len() == file.len() => {
                let mut parts = table.iter().zip(file).zip(["key", "value"]);
                parts.try_for_each(|((table, file), name)| {
                    check_type(table.data_type(), file.data_type(), mapping, &format!("{path}.{name}"))
                })
            }
            _ => Err(other_type(table.data_type(), file.data_type(), path)),
        },
        (table, file) if table == file => Ok(()),
        (table, file) => Err(other_type(table, file, path)),
    }
}

/// Fields of structs are always nullable here: NOT NULL fields were refused before.
fn is_variant(parts: &Fields) -> bool {
    parts.iter().map(|part| part.name().as_str()).eq(["metadata", "value"])
        && parts.iter().all(|part| !part.is_nullable())
}

fn other_type(table: &ArrowType, file: &ArrowType, path: &str) -> Error {
    Error::invalid(format!(
        "Spark wrote the column `{path}` as {file}, which is {table} in the table; use engine='arrow'"
    ))
}

#[cfg(test)]
mod tests {
    use super::bounds_have_nan;

    #[test]
    fn only_tested_writers_are_trusted_with_nan() {
        assert!(bounds_have_nan("parquet-mr version 1.17.0 (build abc)"));
        assert!(bounds_have_nan("parquet-mr version 1.10.1"));
        for other in
            ["parquet-mr version 1.18.0", "parquet-mr version 2.0.0", "parquet-mr", "parquet-cpp-arrow version 9.0.0"]
        {
            assert!(!bounds_have_nan(other), "{other}");
        }
    }
}
