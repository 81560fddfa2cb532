//! A table's schema, parsed once and shared by all that need it.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{StructType, json};
use crate::error::Result;

/// A parsed `schemaString`. A clone shares it; to other processes the string is sent.
#[derive(Debug, Clone)]
pub struct TableSchema(Arc<Parsed>);

#[derive(Debug)]
struct Parsed {
    text: String,
    columns: StructType,
}

impl TableSchema {
    /// Reads a `schemaString`.
    ///
    /// # Errors
    /// `Corrupt` if it is none.
    pub fn parse(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        let columns = json::parse(&text)?;
        Ok(Self(Arc::new(Parsed { text, columns })))
    }

    /// The `schemaString`.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }
}

impl From<StructType> for TableSchema {
    fn from(columns: StructType) -> Self {
        Self(Arc::new(Parsed { text: json::to_json(&columns), columns }))
    }
}

impl Deref for TableSchema {
    type Target = StructType;

    fn deref(&self) -> &StructType {
        &self.0.columns
    }
}

impl PartialEq for TableSchema {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.columns == other.0.columns
    }
}

impl Serialize for TableSchema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.text)
    }
}

impl<'de> Deserialize<'de> for TableSchema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}
