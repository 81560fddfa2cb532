//! The files to convert: those in a directory, or those in the metadata of another format.

use std::collections::{BTreeMap, HashMap};

use deltic_protocol::action::PartitionValues;
use deltic_protocol::error::{Error, Result};
use deltic_protocol::log::name::LOG_DIR;
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::mapping::{ColumnMapping, PHYSICAL_NAME};
use deltic_protocol::schema::{StructField, StructType, TableSchema, with_article};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt, future};
use serde::{Deserialize, Serialize};

use super::folders::Folders;
use super::iceberg::{is_metadata, literal};
use crate::write::layout::encode_add_path;
use deltic_store::{FileMeta, Storage};

/// A file that is to be part of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Existing {
    /// The path in the store.
    pub(super) path: String,
    /// The path as `add.path` will have it, percent-encoded.
    pub(super) add_path: String,
    pub(super) size: u64,
    pub(super) modified_ms: i64,
    /// Its partition values by physical names.
    pub(super) partition_values: PartitionValues,
    /// The field ids of columns that it must have, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) stored: BTreeMap<String, i32>,
}

/// The files to convert, or the error of one.
pub(super) type ExistingFiles = BoxStream<'static, Result<Existing>>;

/// A table of another format, as its own metadata describes it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignTable {
    /// The format, as the history shows it.
    pub format: String,
    /// Its columns, each with its field id in the files (`delta.columnMapping.id`).
    pub schema: TableSchema,
    /// The partition columns, which have one value in each file.
    pub partition_by: Vec<String>,
    /// The largest id that was ever given to a column.
    pub largest_id: i32,
    /// When its newest version was written, in milliseconds since the epoch.
    pub modified_ms: i64,
    /// The files of its own metadata that existed when it was read, below its root. If there are others later, the table
    /// was changed.
    pub metadata_files: Vec<String>,
    /// Its live files.
    pub files: Vec<ForeignFile>,
}

/// A live file of a table of another format.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignFile {
    /// A path or URI, not encoded.
    pub path: String,
    /// Its bytes.
    pub size: u64,
    /// The string forms of the partition values by column name; none means null.
    pub partition_values: PartitionValues,
    /// Field ids by name of columns whose value in its metadata no partition value can express: the file itself
    /// must have these columns.
    pub stored: BTreeMap<String, i32>,
}

/// The files below a folder that are not hidden.
///
/// # Errors
/// `Invalid` for a column whose type cannot be a partition value in a directory name.
pub(super) fn of_folder(storage: &Storage, partition_schema: &StructType) -> Result<ExistingFiles> {
    let folders = Folders::of(partition_schema)?;
    let wanted = move |file: FileMeta| {
        let judged = check_foreign(&file.path).and_then(|()| {
            if !folders.may_hold_data(&file.path) {
                return Ok(None);
            }
            let partition_values = folders.values(&file.path).map_err(|e| e.in_file(file.path.clone()))?;
            let FileMeta { path, size, modified_ms } = file;
            let add_path = encode_add_path(&path);
            Ok(Some(Existing { path, add_path, size, modified_ms, partition_values, stored: BTreeMap::new() }))
        });
        future::ready(judged)
    };
    Ok(storage.list_everything("").try_filter_map(wanted).boxed())
}

/// The files of a table of another format, which are taken out of `table`.
///
/// # Errors
/// `Unsupported` for a file in a store that the table may not name, and for a partition value that a Delta log cannot hold;
/// `Invalid` for one that is not of the column's type.
pub(super) async fn of_foreign(storage: &Storage, table: &mut ForeignTable) -> Result<ExistingFiles> {
    let mut places = Places { storage, real_root: storage.real_path("").await?, folders: HashMap::new() };
    let named = std::mem::take(&mut table.files);
    let mut files = Vec::with_capacity(named.len());
    for file in named {
        let existing = async {
            let (path, add_path) = places.of(&file.path).await?;
            let (size, modified_ms) = (file.size, table.modified_ms);
            let (partition_values, stored) = (values(table, &file)?, file.stored.clone());
            Ok(Existing { path, add_path, size, modified_ms, partition_values, stored })
        };
        files.push(existing.await.map_err(|e: Error| e.in_file(file.path.clone())));
    }
    Ok(stream::iter(files).boxed())
}

/// Finds out where files are relative to the root of a table.
struct Places<'a> {
    storage: &'a Storage,
    /// The root, if it is on a local disk, with symbolic links followed.
    real_root: Option<String>,
    /// Folders with symbolic links followed, by their paths.
    folders: HashMap<String, Option<String>>,
}

impl Places<'_> {
    /// The path of a file for the store, and the path for the log. A file below the root, also through symbolic links, gets
    /// a relative path: otherwise a vacuum would delete it as a file that no version names.
    async fn of(&mut self, path: &str) -> Result<(String, String)> {
        let literal = literal(path);
        if let Some(below) = self.below_root(&literal).await? {
            if below.split('/').next().is_some_and(|first| first.contains(':') || first == LOG_DIR) {
                return Err(Error::invalid("a log cannot have the path of this file; move the file"));
            }
            return Ok((below.clone(), encode_add_path(&below)));
        }
        self.storage.check_reachable(&literal)?;
        let uri = self.storage.absolute_uri(&literal)?;
        Ok((literal, uri))
    }

    async fn below_root(&mut self, literal: &str) -> Result<Option<String>> {
        if let Some(below) = self.storage.below_root(literal) {
            return Ok(Some(below));
        }
        let (Some(root), Some((folder, name))) = (&self.real_root, literal.rsplit_once('/')) else { return Ok(None) };
        if !self.folders.contains_key(folder) {
            let real = self.storage.real_path(&format!("{folder}/")).await?;
            self.folders.insert(folder.to_owned(), real);
        }
        let real = self.folders.get(folder).and_then(Option::as_ref);
        let below = real.and_then(|real| real.strip_prefix(root.as_str()));
        let is_below = |below: &&str| below.is_empty() || below.starts_with('/') || root.ends_with('/');
        Ok(below.filter(is_below).map(|below| format!("{below}/{name}").trim_start_matches('/').to_owned()))
    }
}

/// A file's partition values by physical names.
fn values(table: &ForeignTable, file: &ForeignFile) -> Result<PartitionValues> {
    let mut values = PartitionValues::new();
    for name in &table.partition_by {
        let column = partition_column(&table.schema, name)?;
        let value = file.partition_values.get(name).ok_or_else(|| {
            Error::invalid(format!("the file has no value of the partition column `{name}`, or several"))
        })?;
        let Some(primitive) = column.data_type.as_primitive() else {
            let message = format!(
                "the partition column `{name}` is {}, whose values a log cannot have",
                with_article(&column.data_type)
            );
            return Err(Error::invalid(message));
        };
        if value.as_deref() == Some("") {
            let message = format!(
                "the file's value of the partition column `{name}` is the empty string, which a Delta table reads as null; \
                 write these rows again with another value"
            );
            return Err(Error::unsupported("empty partition values", message));
        }
        let parsed =
            Scalar::parse_partition(value.as_deref(), primitive).map_err(|e| Error::invalid(e.message().to_owned()))?;
        values.insert(ColumnMapping::Id.physical_name(column)?.to_owned(), parsed.print_partition()?);
    }
    Ok(values)
}

fn partition_column<'a>(schema: &'a StructType, name: &str) -> Result<&'a StructField> {
    let column = schema.fields.iter().find(|field| field.name == name && field.metadata.contains_key(PHYSICAL_NAME));
    column.ok_or_else(|| Error::invalid(format!("the table has no column `{name}` to be partitioned by")))
}

/// Refuses the files of other tables and of streams, and paths that a log cannot have.
fn check_foreign(path: &str) -> Result<()> {
    let below = path.split_once(&format!("/{LOG_DIR}/")).map(|(folder, _)| folder);
    if let Some(folder) = below {
        return Err(Error::invalid(format!(
            "the folder `{folder}` is a Delta table of its own; convert folders beside it"
        )));
    }
    if path.starts_with("metadata/") && is_metadata(path) {
        return Err(Error::unsupported(
            "conversion of an Iceberg table as plain files",
            "the folder is an Iceberg table, whose own metadata says which files are live; convert it with `deltic.convert`, \
             which reads that (`pip install 'deltic[iceberg]'`)",
        ));
    }
    let kind = match path.split('/').next() {
        Some(".hoodie") => "a Hudi table",
        Some("_spark_metadata") => "what a stream of Spark wrote",
        Some(first) if first.contains(':') => {
            let message = format!(
                "`{first}` has a colon, so that readers of the log would take the path for a URI; \
                                   rename it"
            );
            return Err(Error::invalid(message));
        }
        _ => return Ok(()),
    };
    Err(Error::unsupported(
        format!("conversion of {kind}"),
        format!(
            "the folder is {kind}, whose own metadata says which files are live; read it with the software that \
             wrote it, and write the rows with `deltic.write`"
        ),
    ))
}
