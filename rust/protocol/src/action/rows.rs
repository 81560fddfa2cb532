//! The non-file actions of a checkpoint, from columns to structs.
//!
//! A missing column counts as null, and so does a single value of an unexpected type. A null where the action needs a value
//! is [`Kind::Corrupt`](crate::error::Kind::Corrupt), and so is a list or map that does not hold strings, in any layout:
//! ignoring it would lose a part of the action.
//!
//! PROTOCOL.md: "Checkpoint Schema".

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow_cast::cast;
use arrow_schema::DataType;

use super::batch::{plain_strings, string_map_at};
use super::{CheckpointMetadata, DomainMetadata, Format, Metadata, PartitionValues, Protocol, Sidecar, Txn};
use crate::error::{Error, Result};

/// The non-file actions of a checkpoint.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NonFileActions {
    /// Which clients may read and write.
    pub protocol: Option<Protocol>,
    /// Identity, schema, partitioning, properties.
    pub metadata: Option<Metadata>,
    /// Application transactions.
    pub txns: Vec<Txn>,
    /// Metadata domains.
    pub domains: Vec<DomainMetadata>,
    /// Sidecars of a V2 checkpoint.
    pub sidecars: Vec<Sidecar>,
    /// Version of a V2 checkpoint.
    pub checkpoint_metadata: Option<CheckpointMetadata>,
}

impl NonFileActions {
    /// The names of the columns that [`NonFileActions::take`] reads, each with a member that is never null in its action.
    pub const COLUMNS: [(&'static str, &'static str); 6] = [
        ("protocol", "minReaderVersion"),
        ("metaData", "id"),
        ("txn", "appId"),
        ("domainMetadata", "domain"),
        ("sidecar", "path"),
        ("checkpointMetadata", "version"),
    ];

    /// Adds the actions in `rows`, whose columns are those of a checkpoint.
    pub fn take(&mut self, rows: &RecordBatch) -> Result<()> {
        for row in Members::of(rows, "protocol", "minReaderVersion") {
            self.protocol = Some(Protocol {
                min_reader_version: row.need(row.int32("minReaderVersion"), "minReaderVersion")?,
                min_writer_version: row.need(row.int32("minWriterVersion"), "minWriterVersion")?,
                reader_features: row.strings("readerFeatures")?,
                writer_features: row.strings("writerFeatures")?,
            });
        }
        for row in Members::of(rows, "metaData", "id") {
            self.metadata = Some(Metadata {
                id: row.need(row.string("id"), "id")?,
                name: row.string("name"),
                description: row.string("description"),
                format: Format {
                    provider: row
                        .nested("format")
                        .and_then(|f| f.string("provider"))
                        .unwrap_or_else(|| "parquet".into()),
                    options: row.nested("format").map_or_else(|| Ok(BTreeMap::new()), |f| f.string_map("options"))?,
                },
                schema_string: row.string("schemaString").unwrap_or_default(),
                partition_columns: row.strings("partitionColumns")?.unwrap_or_default(),
                created_time: row.int64("createdTime"),
                configuration: row.string_map("configuration")?,
            });
        }
        for row in Members::of(rows, "txn", "appId") {
            self.txns.push(Txn {
                app_id: row.need(row.string("appId"), "appId")?,
                version: row.need(row.int64("version"), "version")?,
                last_updated: row.int64("lastUpdated"),
            });
        }
        for row in Members::of(rows, "domainMetadata", "domain") {
            self.domains.push(DomainMetadata {
                domain: row.need(row.string("domain"), "domain")?,
                configuration: row.string("configuration").unwrap_or_default(),
                removed: row.boolean("removed").unwrap_or(false),
            });
        }
        for row in Members::of(rows, "sidecar", "path") {
            self.sidecars.push(Sidecar {
                path: row.need(row.string("path"), "path")?,
                size_in_bytes: row.need(row.int64("sizeInBytes"), "sizeInBytes")?,
                modification_time: row.int64("modificationTime").unwrap_or_default(),
                tags: row.map("tags")?,
            });
        }
        for row in Members::of(rows, "checkpointMetadata", "version") {
            self.checkpoint_metadata =
                Some(CheckpointMetadata { version: row.need(row.int64("version"), "version")?, tags: None });
        }
        Ok(())
    }
}

/// One action: a row of a struct column.
struct Members<'a> {
    action: &'static str,
    columns: &'a StructArray,
    row: usize,
}

impl<'a> Members<'a> {
    /// The rows in which the action is there: not null, with the member that every such action has.
    fn of(rows: &'a RecordBatch, action: &'static str, key: &'static str) -> impl Iterator<Item = Self> {
        let columns = rows.column_by_name(action).and_then(|c| c.as_struct_opt());
        columns.into_iter().flat_map(move |columns| {
            let key = columns.column_by_name(key);
            let there = move |row: &usize| columns.is_valid(*row) && key.is_some_and(|k| k.is_valid(*row));
            (0..columns.len()).filter(there).map(move |row| Self { action, columns, row })
        })
    }

    fn need<T>(&self, value: Option<T>, member: &str) -> Result<T> {
        value.ok_or_else(|| Error::corrupt(format!("`{}.{member}` is missing in the checkpoint", self.action)))
    }

    fn column(&self, name: &str) -> Option<&'a ArrayRef> {
        // A column of Arrow's type Null has no validity bitmap, so `is_valid` would be true.
        self.columns.column_by_name(name).filter(|c| c.is_valid(self.row) && *c.data_type() != DataType::Null)
    }

    fn string(&self, name: &str) -> Option<String> {
        let value = cast(&self.column(name)?.slice(self.row, 1), &DataType::Utf8).ok()?;
        value.as_string_opt::<i32>().filter(|v| v.is_valid(0)).map(|v| v.value(0).to_owned())
    }

    fn boolean(&self, name: &str) -> Option<bool> {
        self.column(name)?.as_boolean_opt().map(|c| c.value(self.row))
    }

    fn int32(&self, name: &str) -> Option<i32> {
        let value = cast(&self.column(name)?.slice(self.row, 1), &DataType::Int32).ok()?;
        value.as_primitive_opt::<Int32Type>().filter(|v| v.is_valid(0)).map(|v| v.value(0))
    }

    fn int64(&self, name: &str) -> Option<i64> {
        let value = cast(&self.column(name)?.slice(self.row, 1), &DataType::Int64).ok()?;
        value.as_primitive_opt::<Int64Type>().filter(|v| v.is_valid(0)).map(|v| v.value(0))
    }

    fn strings(&self, name: &str) -> Result<Option<Vec<String>>> {
        let Some(column) = self.column(name) else { return Ok(None) };
        let list = column.as_list_opt::<i32>().ok_or_else(|| self.not_strings(name))?.value(self.row);
        let texts = plain_strings(&list).map_err(|e| self.not_strings(name).caused_by(e))?;
        Ok(Some(texts.iter().flatten().map(str::to_owned).collect()))
    }

    fn map(&self, name: &str) -> Result<Option<PartitionValues>> {
        let Some(column) = self.column(name) else { return Ok(None) };
        let map = column.as_map_opt().ok_or_else(|| self.not_strings(name))?;
        string_map_at(map, self.row).map(Some).map_err(|e| self.not_strings(name).caused_by(e))
    }

    /// A map without its nulls.
    fn string_map(&self, name: &str) -> Result<BTreeMap<String, String>> {
        let map = self.map(name)?.unwrap_or_default();
        Ok(map.into_iter().filter_map(|(key, value)| Some((key, value?))).collect())
    }

    fn not_strings(&self, name: &str) -> Error {
        Error::corrupt(format!("`{}.{name}` in the checkpoint does not have strings", self.action))
    }

    fn nested(&self, name: &str) -> Option<Members<'a>> {
        let columns = self.column(name)?.as_struct_opt()?;
        Some(Members { action: self.action, columns, row: self.row })
    }
}
