//! The plain data that an executor needs to write data files of a table, and that it returns.
//!
//! Proved by `write::plans_have_a_byte_form`.

use std::collections::BTreeMap;

use deltic_protocol::action::Add;
use deltic_protocol::constraint::Rule;
use deltic_protocol::error::{Error, Result};
use deltic_protocol::property::PageVersion;
use deltic_protocol::schema::mapping::{ColumnMapping, FIELD_ID, PHYSICAL_NAME};
use deltic_protocol::schema::{DataType, StructField, StructType, TableSchema, json as schema_json};
use deltic_protocol::stats::collect::{IndexedColumns, STRING_PREFIX_LENGTH};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::input::identity::Numbering;
use super::input::rules::WriteRules;
use super::options::{ColumnOptions, Compression};
use crate::envelope::{pack, unpack};

/// A column of files that the table's schema does not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HiddenColumn {
    /// Its name, in written rows and in files, whatever the column mapping.
    pub name: String,
    /// Its contents.
    pub values: HiddenValues,
    /// Its field id, if readers find it by that.
    #[serde(default)]
    pub field_id: Option<i32>,
}

/// Contents of a hidden column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HiddenValues {
    /// A number that copied rows keep, or null.
    Number,
    /// The change type of the row.
    Change,
}

impl HiddenColumn {
    fn field(&self) -> StructField {
        let mut field = match self.values {
            HiddenValues::Number => StructField::new(&self.name, DataType::LONG, true),
            HiddenValues::Change => StructField::new(&self.name, DataType::STRING, false),
        };
        field.metadata.insert(PHYSICAL_NAME.to_owned(), self.name.clone().into());
        field.metadata.extend(self.field_id.map(|id| (FIELD_ID.to_owned(), id.into())));
        field
    }
}

/// Purpose of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// The table's rows.
    #[default]
    Data,
    /// Rows that a commit changed, for the change data feed: these files are in a folder of their own.
    Change,
}

impl FileKind {
    /// The folder of the files, if not the table's root.
    pub(super) fn folder(self) -> Option<&'static str> {
        match self {
            Self::Data => None,
            Self::Change => Some("_change_data"),
        }
    }

    /// Prefix of file names.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Data => "part",
            Self::Change => "cdc",
        }
    }
}

/// How the data files of a table are written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteSpec {
    /// The table's whole logical schema.
    pub schema: TableSchema,
    /// Logical names of the partition columns, in order.
    pub partition_columns: Vec<String>,
    /// Value of `delta.columnMapping.mode`: none, name or id.
    pub column_mapping: String,
    /// Logical names of the columns with statistics.
    pub indexed_columns: IndexedColumns,
    /// Physical paths of the columns by which the table is clustered, which have statistics too.
    pub clustering: Vec<Vec<String>>,
    /// How many characters of a string its bounds keep.
    pub string_prefix_length: usize,
    /// Whether data files have the partition columns too, after the other columns and without statistics.
    pub materializes_partition_columns: bool,
    /// How identity columns are numbered, if the data does not have them.
    pub identities: Vec<Numbering>,
    /// Rules of the table for the rows. Empty for rows that the table has already.
    pub rules: Option<WriteRules>,
    /// How pages are compressed.
    pub compression: Compression,
    /// The level, instead of the codec's default.
    pub compression_level: Option<i64>,
    /// Options of single columns, by logical names.
    pub column_options: BTreeMap<String, ColumnOptions>,
    /// Which data pages and encodings files have.
    pub page_version: PageVersion,
    /// Bytes after which a file ends and another begins.
    pub target_file_size: u64,
    /// Rows after which a file ends and another begins.
    pub max_rows_per_file: Option<u64>,
    /// Rows after which a row group ends and another begins.
    pub max_rows_per_group: usize,
    /// Logical names of the columns by which the rows of each row group are sorted.
    pub sort_by: Vec<String>,
    /// Most bytes of rows and encoded pages that the writer has in memory, instead of its default.
    #[serde(default)]
    pub memory_limit: Option<u64>,
    /// Whether the rows are existing rows of the table, moved to new files.
    pub rearrange_only: bool,
    /// A condition in SQL that must be TRUE for every row.
    #[serde(default)]
    pub replace_where: Option<String>,
    /// Puts files into folders of so many random characters instead of partition directories. Tables with column mapping
    /// always do so, since physical names mean nothing to a reader.
    pub random_prefix_length: Option<u8>,
    /// Columns of files after those of the table's schema, which does not have them: row ids and versions that copied rows
    /// keep, or the change type. They have no statistics.
    #[serde(default)]
    pub hidden_columns: Vec<HiddenColumn>,
    /// Whether variants are shredded.
    #[serde(default)]
    pub shreds_variants: bool,
    /// Purpose of the files.
    #[serde(default)]
    pub kind: FileKind,
    /// The first half of the ids in the names of files; random without it.
    #[serde(default)]
    pub id_prefix: Option<u64>,
}

impl WriteSpec {
    /// A specification for a table with this schema and partitioning, with the protocol's defaults for everything else.
    pub fn new(schema: TableSchema, partition_columns: Vec<String>) -> Self {
        Self {
            schema,
            partition_columns,
            column_mapping: "none".to_owned(),
            indexed_columns: IndexedColumns::default(),
            clustering: Vec::new(),
            materializes_partition_columns: false,
            identities: Vec::new(),
            rules: Some(WriteRules::default()),
            string_prefix_length: STRING_PREFIX_LENGTH,
            compression: Compression::default(),
            compression_level: None,
            column_options: BTreeMap::new(),
            page_version: PageVersion::default(),
            target_file_size: 128 * 1024 * 1024,
            max_rows_per_file: None,
            max_rows_per_group: 1024 * 1024,
            sort_by: Vec::new(),
            memory_limit: None,
            rearrange_only: false,
            replace_where: None,
            random_prefix_length: None,
            shreds_variants: false,
            hidden_columns: Vec::new(),
            kind: FileKind::Data,
            id_prefix: None,
        }
    }

    /// The specification for one of several tasks that write for one transaction.
    ///
    /// # Errors
    /// `Invalid` if rows have to be numbered and `task` is not given, or as [`Numbering::of_task`].
    pub fn of_task(mut self, task: Option<u32>) -> Result<Self> {
        for numbering in &mut self.identities {
            let Some(task) = task else {
                return Err(Error::invalid(format!(
                    "the table numbers its rows (identity column `{}`), so every writer of a plan must say which task it \
                     is; pass `task`",
                    numbering.column
                )));
            };
            *numbering = numbering.of_task(task)?;
        }
        Ok(self)
    }

    /// The columns of written rows, including hidden ones.
    ///
    /// # Errors
    /// `Invalid` if the table has a column named like a hidden one.
    pub(super) fn columns(&self) -> Result<TableSchema> {
        if self.hidden_columns.is_empty() {
            return Ok(self.schema.clone());
        }
        let mut columns = StructType::clone(&self.schema);
        for hidden in &self.hidden_columns {
            let is_taken = |field: &StructField| field.name.eq_ignore_ascii_case(&hidden.name);
            if columns.fields.iter().any(is_taken) {
                return Err(Error::invalid(format!(
                    "the table has a column `{}`, which is the name of one that files need for themselves; rename it",
                    hidden.name
                )));
            }
            columns.fields.push(hidden.field());
        }
        Ok(columns.into())
    }
}

/// The data that executors need to write the data files of one transaction. The table's state stays with the driver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WritePlan {
    /// Where the table is.
    pub location: String,
    /// The id of the transaction that the files are for.
    pub txn_id: String,
    /// How the files are written.
    pub spec: WriteSpec,
}

impl WritePlan {
    /// The byte form.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        pack("write plan", self)
    }

    /// Reads what [`WritePlan::to_bytes`] wrote.
    ///
    /// # Errors
    /// `Invalid` if the bytes are something else, or of another release of deltic.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        unpack("write plan", bytes)
    }

    /// What the engine that has the rows must evaluate, as JSON; `None` if there is nothing.
    pub fn external_rules(&self) -> Option<Value> {
        let spec = &self.spec;
        let external = spec.rules.as_ref().map(|rules| &rules.external).filter(|external| !external.is_empty())?;
        let conditions = external.conditions.iter().map(|of| {
            let generated = if let Rule::Generated(column) = &of.rule { Some(column) } else { None };
            json!({"column": of.column, "rule": of.rule.to_string(), "sql": of.sql, "generated": generated,
                "refusal": of.refusal})
        });
        let columns = external.columns.iter().map(|of| {
            let is_default = matches!(of.rule, Rule::Default(_));
            json!({"name": of.name, "rule": of.rule.to_string(), "sql": of.sql, "is_default": is_default,
                "refusal": of.refusal})
        });
        let (conditions, columns): (Vec<Value>, Vec<Value>) = (conditions.collect(), columns.collect());
        let schema = schema_json::to_json(&spec.schema);
        Some(json!({"schema": schema, "partition_columns": spec.partition_columns, "conditions": conditions,
            "columns": columns, "external": external}))
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
    /// For each identity column, the last number that its writer assigned, in this or another file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub identities: BTreeMap<String, i64>,
}

impl DataFile {
    /// The byte form.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        pack("data file", self)
    }

    /// Reads what [`DataFile::to_bytes`] wrote.
    ///
    /// # Errors
    /// As [`WritePlan::from_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        unpack("data file", bytes)
    }
}

/// The columns with statistics among the columns `data` of a file. The last `hidden` columns never have statistics.
pub(super) fn not_hidden(indexed: IndexedColumns, data: &StructType, hidden: usize) -> IndexedColumns {
    let visible = data.fields.len().saturating_sub(hidden);
    match indexed {
        IndexedColumns::First(_) if hidden > 0 => {
            let visible = StructType::new(data.fields.iter().take(visible).cloned().collect());
            let mut leaves = Vec::new();
            add_leaves(&indexed.of_schema(&visible), &[], &mut leaves);
            IndexedColumns::Named(leaves)
        }
        other => other,
    }
}

pub(super) fn add_leaves(schema: &StructType, path: &[String], leaves: &mut Vec<Vec<String>>) {
    for field in &schema.fields {
        let path = [path, std::slice::from_ref(&field.name)].concat();
        match &field.data_type {
            DataType::Struct(inner) => add_leaves(inner, &path, leaves),
            _ => leaves.push(path),
        }
    }
}

/// The same columns under physical names. Names that the schema does not have are left out: the property that
/// names them may not have been changed with the schema.
pub(crate) fn physical_indexed(
    indexed: &IndexedColumns,
    schema: &StructType,
    mapping: ColumnMapping,
) -> Result<IndexedColumns> {
    let paths = match indexed {
        IndexedColumns::First(_) => return Ok(indexed.clone()),
        IndexedColumns::Named(paths) | IndexedColumns::FirstAnd(_, paths) => paths,
    };
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
    Ok(match indexed {
        IndexedColumns::FirstAnd(first, _) => IndexedColumns::FirstAnd(*first, physical),
        IndexedColumns::First(_) | IndexedColumns::Named(_) => IndexedColumns::Named(physical),
    })
}
