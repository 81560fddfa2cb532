//! `metaData`: identity, schema, partitioning and properties of the table.
//!
//! PROTOCOL.md: "Change Metadata".

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::schema::TableSchema;

/// The table's metadata. The last one in the log is valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// Unique id of the table, a GUID.
    #[serde(deserialize_with = "super::loose::string")]
    pub id: String,
    /// Name for people.
    #[serde(default, deserialize_with = "super::loose::string_or_null", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Description for people.
    #[serde(default, deserialize_with = "super::loose::string_or_null", skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Encoding of the data files, always Parquet.
    #[serde(default, deserialize_with = "super::loose::or_default")]
    pub format: Format,
    /// The schema as JSON text. Some pipelines first commit metadata without one, or with null; such a
    /// table cannot be read before another takes its place.
    #[serde(default, deserialize_with = "super::loose::string_or_empty")]
    pub schema_string: String,
    /// Names of the partition columns, in order.
    #[serde(default, deserialize_with = "super::loose::strings")]
    pub partition_columns: Vec<String>,
    /// Milliseconds since the epoch when the table was created.
    #[serde(default, deserialize_with = "super::loose::whole", skip_serializing_if = "Option::is_none")]
    pub created_time: Option<i64>,
    /// Table properties.
    #[serde(default, deserialize_with = "super::loose::string_map")]
    pub configuration: BTreeMap<String, String>,
}

/// Encoding of the data files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Format {
    /// `parquet`
    #[serde(default = "parquet", deserialize_with = "super::loose::string")]
    pub provider: String,
    /// Always empty in practice.
    #[serde(default, deserialize_with = "super::loose::string_map")]
    pub options: BTreeMap<String, String>,
}

impl Default for Format {
    fn default() -> Self {
        Self { provider: parquet(), options: BTreeMap::new() }
    }
}

/// The only encoding there is, which some writers leave out.
fn parquet() -> String {
    "parquet".to_owned()
}

impl Metadata {
    /// Parses the schema and checks that the partition columns are in it.
    pub fn schema(&self) -> Result<TableSchema> {
        if self.schema_string.is_empty() {
            return Err(Error::corrupt("the table has no schema yet: its metaData has no schemaString"));
        }
        let schema = TableSchema::parse(self.schema_string.as_str())?;
        for name in &self.partition_columns {
            if !schema.fields.iter().any(|f| &f.name == name) {
                let other = schema.field(name).map(|field| format!(", which spells it `{}`", field.name));
                let other = other.unwrap_or_default();
                return Err(Error::corrupt(format!("the partition column `{name}` is not in the schema{other}")));
            }
        }
        Ok(schema)
    }
}
