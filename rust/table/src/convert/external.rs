//! The folder in which another engine's Parquet writer puts the files of a write, and their columns.
//!
//! An engine that has the rows may write them itself: into a folder that only this write uses, under the table's physical
//! names and field ids, in folders of the partition values below that. It does not check rows. So a table that
//! checks or computes something for each row is refused, with the reason, and so is a type that its files would not record
//! exactly.
//!
//! Partition values are ASCII strings in the names of folders: `%` and every character beyond ASCII is escaped before the
//! engine adds Hive's own escapes, since the character set of file names is not known.
//!
//! Proved by `tests/spark/test_native_write.py`.
//!
//! PROTOCOL.md: "Data Files", "Column Mapping", "Partition Value Serialization".

use std::fmt::Write;
use std::sync::Arc;

use arrow_schema::{FieldRef, Schema};
use deltic_protocol::error::{Error, Result};
use deltic_protocol::property::PageVersion;
use deltic_protocol::schema::char_length::Lengths;
use deltic_protocol::schema::collation::is_collated;
use deltic_protocol::schema::identity::Identity;
use deltic_protocol::schema::mapping::{ColumnMapping, NESTED_IDS, field_id};
use deltic_protocol::schema::{ArrayType, DataType, MapType, PrimitiveType, StructField, StructType, json};
use serde::Serialize;
use uuid::Uuid;

use crate::write::conform::{Conformer, stored_schema};
use crate::write::identity::is_given;
use crate::write::options::Compression;
use crate::write::plan::{FileKind, WritePlan, WriteSpec};

/// Key of a column's metadata from which Spark takes the Parquet field id.
const SPARK_FIELD_ID: &str = "parquet.field.id";

/// Metadata keys of columns that the table computes or checks, and what each is called in errors.
const RULES: [(&str, &str); 2] =
    [("delta.generationExpression", "is a generated column"), ("delta.invariants", "has an invariant")];

/// Metadata key of a column with a default.
const DEFAULT: &str = "CURRENT_DEFAULT";

/// Layout of the files for another engine's Parquet writer.
#[derive(Debug, Serialize)]
pub struct ExternalLayout {
    /// The directory below the table's root. It does not exist yet.
    folder: String,
    /// The columns of the files by their names in the rows, as a `schemaString`.
    columns: String,
    /// The columns of the files by their names in the files, as a `schemaString`.
    files: String,
    /// The partition columns by their names in the rows.
    partitions: String,
    /// The partition columns' names in directories.
    folders: Vec<String>,
    /// The codec, as Spark calls it.
    compression: &'static str,
    /// Its level, if the codec has levels.
    compression_level: Option<i64>,
    max_rows_per_file: Option<u64>,
}

impl ExternalLayout {
    /// The layout of a plan for rows with these columns.
    ///
    /// # Errors
    /// `Unsupported`, naming it, for what only deltic's own writer does.
    pub fn of(plan: &WritePlan, rows: &Schema) -> Result<Self> {
        let of_spec = || {
            let spec = &plan.spec;
            check_table(spec, rows)?;
            let columns = Columns::of(spec)?;
            let (compression, compression_level) = codec(spec)?;
            let named = columns.mapping.physical_schema(&columns.data)?;
            let partitions = columns.mapping.physical_schema(&columns.partitions)?;
            let plain = |schema: &StructType| json::to_json(&described(schema, ColumnMapping::None));
            Ok(Self {
                folder: folder(plan)?,
                columns: plain(&columns.data),
                files: json::to_json(&described(&named, columns.mapping)),
                partitions: plain(&columns.partitions),
                folders: partitions.fields.iter().map(|field| folder_string(&field.name)).collect(),
                compression,
                compression_level,
                max_rows_per_file: spec.max_rows_per_file,
            })
        };
        of_spec().map_err(|e: Error| e.in_table(&plan.location))
    }
}

/// The columns that another engine's files have, under logical names.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) mapping: ColumnMapping,
    /// The columns in files.
    pub(super) data: StructType,
    /// The columns in the names of folders.
    pub(super) partitions: StructType,
    /// The Arrow schema of the files.
    pub(super) stored: Vec<FieldRef>,
}

impl Columns {
    pub(super) fn of(spec: &WriteSpec) -> Result<Self> {
        let mapping = ColumnMapping::parse(&spec.column_mapping)?;
        let stored = stored_schema(&spec.schema);
        let mut partitions = Vec::with_capacity(spec.partition_columns.len());
        for name in &spec.partition_columns {
            let field = stored.fields.iter().find(|field| field.name == *name);
            partitions.push(field.cloned().ok_or_else(|| {
                Error::corrupt(format!("the partition column `{name}` is not among the columns that hold values"))
            })?);
        }
        let data = stored.fields.into_iter().filter(|field| !spec.partition_columns.contains(&field.name)).collect();
        let data = StructType::new(data);
        let stored = Conformer::new(&data, mapping)?.schema().fields().iter().cloned().collect();
        Ok(Self { mapping, data, partitions: StructType::new(partitions), stored })
    }
}

/// The folder of a plan.
///
/// # Errors
/// `Internal` for an id that is not a single path segment: the directory would not belong to this write alone.
pub(super) fn folder(plan: &WritePlan) -> Result<String> {
    let id = Uuid::parse_str(&plan.txn_id);
    Ok(id.map_err(|e| Error::internal("a transaction has an id that is not a UUID").caused_by(e))?.to_string())
}

/// A string as it is in the name of a folder, before the engine adds its escapes.
pub(super) fn folder_string(string: &str) -> String {
    let mut out = String::with_capacity(string.len());
    for byte in string.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => out.push(char::from(byte)),
            // Writing to a String does not fail.
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}

/// The columns without metadata but for their field ids, and with nulls allowed.
fn described(schema: &StructType, mapping: ColumnMapping) -> StructType {
    let field = |field: &StructField| {
        let id = field_id(field).filter(|_| mapping != ColumnMapping::None);
        StructField {
            name: field.name.clone(),
            data_type: described_type(&field.data_type, mapping),
            nullable: true,
            metadata: id.map(|id| (SPARK_FIELD_ID.to_owned(), id.into())).into_iter().collect(),
        }
    };
    StructType::new(schema.fields.iter().map(field).collect())
}

fn described_type(data_type: &DataType, mapping: ColumnMapping) -> DataType {
    match data_type {
        DataType::Struct(inner) => DataType::Struct(Arc::new(described(inner, mapping))),
        DataType::Array(array) => DataType::Array(Arc::new(ArrayType {
            element: described_type(&array.element, mapping),
            contains_null: array.contains_null,
        })),
        DataType::Map(map) => DataType::Map(Arc::new(MapType {
            key: described_type(&map.key, mapping),
            value: described_type(&map.value, mapping),
            value_contains_null: map.value_contains_null,
        })),
        other => other.clone(),
    }
}

fn codec(spec: &WriteSpec) -> Result<(&'static str, Option<i64>)> {
    let (name, level) = match spec.compression {
        // The same defaults as deltic's own writer.
        Compression::Zstd => ("zstd", spec.compression_level.or(Some(1))),
        Compression::Snappy => ("snappy", None),
        Compression::Gzip => ("gzip", None),
        Compression::Lz4 => ("lz4_raw", None),
        Compression::Uncompressed => ("uncompressed", None),
        Compression::Brotli => return Err(refuse("compression brotli", "the codec is brotli")),
    };
    match (level, spec.compression_level) {
        (None, Some(_)) => {
            Err(refuse("compression levels", "there is a compression level, which it supports only for zstd"))
        }
        (level, _) => Ok((name, level)),
    }
}

/// Refuses what Spark's writer does not do.
fn check_table(spec: &WriteSpec, rows: &Schema) -> Result<()> {
    if let Some(name) = spec.rules.as_ref().and_then(|rules| rules.constraints.keys().next()) {
        return Err(refuse("CHECK constraints", &format!("the table has the CHECK constraint `{name}`")));
    }
    if spec.replace_where.is_some() {
        return Err(refuse("replace_where", "replace_where must be TRUE for each row"));
    }
    if !spec.sort_by.is_empty() {
        return Err(refuse("sort_by", "rows are to be sorted by sort_by"));
    }
    if !spec.column_options.is_empty() {
        return Err(refuse("column_options", "column_options say how columns are encoded"));
    }
    if spec.rearrange_only {
        return Err(refuse("data_change=False", "rows are only moved to other files (data_change=False)"));
    }
    if spec.materializes_partition_columns {
        return Err(refuse("materialized partition columns", "the table's files have its partition columns too"));
    }
    if spec.page_version == PageVersion::Two {
        return Err(refuse("pages of version 2", "the table requires pages of version 2"));
    }
    if !spec.hidden_columns.is_empty() || spec.kind != FileKind::Data {
        return Err(refuse("materialized row ids", "rows keep their ids"));
    }
    for field in &spec.schema.fields {
        check_column(field, rows)?;
        let is_partition = spec.partition_columns.contains(&field.name);
        if is_partition && field.data_type == DataType::Primitive(PrimitiveType::Binary) {
            let reason = format!("the partition column `{}` is binary", field.name);
            return Err(refuse("binary partition columns", &reason));
        }
        if !field.nullable && !is_partition && field.data_type.as_primitive().is_none() {
            return Err(refuse("NOT NULL", &format!("the column `{}` is NOT NULL and no primitive", field.name)));
        }
    }
    Ok(())
}

fn check_column(field: &StructField, rows: &Schema) -> Result<()> {
    let name = &field.name;
    if let Some((_, reason)) = RULES.iter().find(|(key, _)| field.metadata.contains_key(*key)) {
        return Err(refuse("computed columns", &format!("the column `{name}` {reason}")));
    }
    if Identity::of(field)?.is_some() {
        return Err(refuse("identity columns", &format!("the column `{name}` is an identity column")));
    }
    if field.metadata.contains_key(DEFAULT) && !is_given(name, rows.fields()) {
        return Err(refuse("column defaults", &format!("the rows lack the column `{name}`, which has a default")));
    }
    if Lengths::of(field)?.is_some() {
        return Err(refuse(
            "CHAR and VARCHAR",
            &format!("the strings of the column `{name}` have a length (CHAR, VARCHAR)"),
        ));
    }
    check_field(field, name)
}

fn check_field(field: &StructField, path: &str) -> Result<()> {
    if is_collated(field) {
        return Err(refuse("collations", &format!("the column `{path}` has a collation")));
    }
    if field.metadata.contains_key(NESTED_IDS) {
        return Err(refuse("nested field ids", &format!("the elements of the column `{path}` have field ids")));
    }
    if RULES.iter().any(|(key, _)| field.metadata.contains_key(*key)) {
        return Err(refuse("computed columns", &format!("the column `{path}` is computed or checked")));
    }
    check_type(&field.data_type, path)
}

fn check_type(data_type: &DataType, path: &str) -> Result<()> {
    let not_null = |path: &str| Err(refuse("NOT NULL", &format!("`{path}` inside a column is NOT NULL")));
    let foreign =
        || Err(refuse(&format!("type {data_type}"), &format!("the column `{path}` has the type {data_type}")));
    match data_type {
        DataType::Struct(inner) => inner.fields.iter().try_for_each(|field| {
            let path = format!("{path}.{}", field.name);
            if !field.nullable {
                return not_null(&path);
            }
            check_field(field, &path)
        }),
        DataType::Array(array) if !array.contains_null => not_null(&format!("{path}.element")),
        DataType::Array(array) => check_type(&array.element, &format!("{path}.element")),
        DataType::Map(map) if !map.value_contains_null => not_null(&format!("{path}.value")),
        DataType::Map(map) => {
            check_type(&map.key, &format!("{path}.key"))?;
            check_type(&map.value, &format!("{path}.value"))
        }
        DataType::Primitive(PrimitiveType::Geometry { .. } | PrimitiveType::Geography { .. })
        | DataType::Foreign(_) => foreign(),
        // The bytes of a variant come from Spark.
        DataType::Primitive(_) | DataType::Variant => Ok(()),
    }
}

pub(super) fn refuse(what: &str, why: &str) -> Error {
    let message = format!("Spark's own Parquet writer cannot write this: {why}; use engine='arrow'");
    Error::unsupported(format!("engine 'native' with {what}"), message)
}
