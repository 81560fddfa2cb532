//! What an executor needs to write data files of a table, and what it gives back: plain data.
//!
//! Both travel between processes as JSON with the number of the form they are in; a form from another release of
//! deltic is refused, never guessed at (`write::spec_travels`).

use std::fmt;

use deltic_protocol::action::Add;
use deltic_protocol::error::{Error, Result};
use deltic_protocol::property::PageVersion;
use deltic_protocol::schema::mapping::ColumnMapping;
use deltic_protocol::schema::{DataType, StructType};
use deltic_protocol::stats::collect::{IndexedColumns, STRING_PREFIX_LENGTH};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The form of [`WriteSpec`] and [`DataFile`]; another one for every change of what they mean.
const FORM: u32 = 2;

/// How the pages of a data file are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Zstandard, at its fastest regular level.
    #[default]
    Zstd,
    /// Snappy.
    Snappy,
    /// Gzip.
    Gzip,
    /// LZ4 blocks without a frame.
    Lz4,
    /// Brotli, at its fastest level.
    Brotli,
    /// None.
    Uncompressed,
}

impl Compression {
    /// Reads a codec's name as Spark and the table property spell them, in any case.
    pub fn parse(text: &str) -> Result<Self> {
        match text.to_ascii_lowercase().as_str() {
            "zstd" => Ok(Self::Zstd),
            "snappy" => Ok(Self::Snappy),
            "gzip" => Ok(Self::Gzip),
            "lz4" | "lz4_raw" | "lz4raw" => Ok(Self::Lz4),
            "brotli" => Ok(Self::Brotli),
            "uncompressed" | "none" => Ok(Self::Uncompressed),
            _ => Err(Error::invalid(format!(
                "`{text}` is not a compression deltic writes; use zstd, snappy, gzip, lz4, brotli or uncompressed"
            ))),
        }
    }

    /// What file names say of it.
    pub(super) fn extension(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Snappy => "snappy",
            Self::Gzip => "gz",
            Self::Lz4 => "lz4raw",
            Self::Brotli => "br",
            Self::Uncompressed => "",
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zstd => "zstd",
            Self::Snappy => "snappy",
            Self::Gzip => "gzip",
            Self::Lz4 => "lz4",
            Self::Brotli => "brotli",
            Self::Uncompressed => "uncompressed",
        })
    }
}

/// How the data files of a table are written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteSpec {
    /// The table's whole logical schema, as a `schemaString`.
    pub schema_string: String,
    /// Logical names of the partition columns, in order.
    pub partition_columns: Vec<String>,
    /// Value of `delta.columnMapping.mode`: none, name or id.
    pub column_mapping: String,
    /// Logical names of the columns with statistics.
    pub indexed_columns: IndexedColumns,
    /// Characters of a text kept in its bounds.
    pub string_prefix_length: usize,
    /// How pages are compressed.
    pub compression: Compression,
    /// Which data pages and encodings files have.
    pub page_version: PageVersion,
    /// Bytes after which a file ends and another begins.
    pub target_file_size: u64,
    /// Rows after which a row group ends and another begins.
    pub max_rows_per_group: usize,
    /// Puts files behind so many random characters instead of into partition directories. Tables that map columns
    /// always have their files so: a physical name says nothing to anybody.
    pub random_prefix_length: Option<u8>,
}

impl WriteSpec {
    /// For a table of this schema and partitioning, with the protocol's defaults for everything else.
    pub fn new(schema_string: impl Into<String>, partition_columns: Vec<String>) -> Self {
        Self {
            schema_string: schema_string.into(),
            partition_columns,
            column_mapping: "none".to_owned(),
            indexed_columns: IndexedColumns::default(),
            string_prefix_length: STRING_PREFIX_LENGTH,
            compression: Compression::default(),
            page_version: PageVersion::default(),
            target_file_size: 128 * 1024 * 1024,
            max_rows_per_group: 1024 * 1024,
            random_prefix_length: None,
        }
    }

    /// The form that travels.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        pack(self)
    }

    /// Reads what [`WriteSpec::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        unpack(bytes, "write specification")
    }
}

/// A file that was written and is not yet part of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DataFile {
    /// The action that makes it part of the table.
    pub add: Add,
    /// Rows in it.
    pub rows: u64,
}

impl DataFile {
    /// The form that travels.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        pack(self)
    }

    /// Reads what [`DataFile::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        unpack(bytes, "data file")
    }
}

#[derive(Serialize)]
struct Packed<'a, T> {
    form: u32,
    body: &'a T,
}

#[derive(Deserialize)]
struct Unpacked<'a> {
    form: u32,
    #[serde(borrow)]
    body: &'a RawValue,
}

fn pack<T: Serialize>(body: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(&Packed { form: FORM, body })
        .map_err(|e| Error::internal("what should travel to another process has no JSON form").caused_by(e))
}

fn unpack<T: DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T> {
    let foreign = |e| Error::invalid(format!("these bytes are no {what} of deltic")).caused_by(e);
    let unpacked: Unpacked<'_> = serde_json::from_slice(bytes).map_err(foreign)?;
    if unpacked.form != FORM {
        return Err(Error::invalid(format!(
            "this {what} has form {}, and this deltic knows {FORM}; install the same release on driver and executors",
            unpacked.form
        )));
    }
    serde_json::from_str(unpacked.body.get()).map_err(foreign)
}

/// The same columns under physical names. Names that the schema does not have are left out: columns come and go, and
/// the property that names them may lag behind.
pub(super) fn physical_indexed(
    indexed: &IndexedColumns,
    schema: &StructType,
    mapping: ColumnMapping,
) -> Result<IndexedColumns> {
    let IndexedColumns::Named(paths) = indexed else { return Ok(indexed.clone()) };
    let mut physical = Vec::with_capacity(paths.len());
    for path in paths {
        let mut level = Some(schema);
        let mut names = Vec::with_capacity(path.len());
        for name in path {
            let Some(field) = level.and_then(|schema| schema.field(name)) else { break };
            names.push(mapping.physical_name(field)?.to_owned());
            level = if let DataType::Struct(inner) = &field.data_type { Some(inner) } else { None };
        }
        if names.len() == path.len() {
            physical.push(names);
        }
    }
    Ok(IndexedColumns::Named(physical))
}
