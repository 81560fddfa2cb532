//! Column mapping: which name or id stands for a column inside data files, statistics and partition values.
//!
//! PROTOCOL.md: "Column Mapping".

use std::sync::Arc;

use serde_json::Value;

use super::{ArrayType, DataType, MapType, StructField, StructType};
use crate::error::{Error, Result};

/// Column metadata key of the field id.
pub const FIELD_ID: &str = "delta.columnMapping.id";
/// Column metadata key of the physical name.
pub const PHYSICAL_NAME: &str = "delta.columnMapping.physicalName";

/// Value of `delta.columnMapping.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ColumnMapping {
    /// Columns are found by their logical name.
    #[default]
    None,
    /// Columns are found by their physical name.
    Name,
    /// Columns are found by their Parquet field id.
    Id,
}

impl ColumnMapping {
    /// Reads the property's value.
    pub fn parse(text: &str) -> Result<Self> {
        match text.to_ascii_lowercase().as_str() {
            "none" => Ok(Self::None),
            "name" => Ok(Self::Name),
            "id" => Ok(Self::Id),
            _ => Err(Error::corrupt(format!("`delta.columnMapping.mode` is `{text}`; it may be none, name or id"))),
        }
    }

    /// The property's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Name => "name",
            Self::Id => "id",
        }
    }

    /// The name under which `field` stands in files, statistics and partition values.
    pub fn physical_name(self, field: &StructField) -> Result<&str> {
        match self {
            Self::None => Ok(&field.name),
            Self::Name | Self::Id => field.metadata.get(PHYSICAL_NAME).and_then(Value::as_str).ok_or_else(|| {
                Error::corrupt(format!(
                    "column `{}` has no `{PHYSICAL_NAME}` although the table maps columns",
                    field.name
                ))
            }),
        }
    }

    /// `schema` with every name, at any depth, replaced by its physical one. Metadata stays.
    pub fn physical_schema(self, schema: &StructType) -> Result<StructType> {
        let field = |field: &StructField| -> Result<StructField> {
            Ok(StructField {
                name: self.physical_name(field)?.to_owned(),
                data_type: self.physical_type(&field.data_type)?,
                nullable: field.nullable,
                metadata: field.metadata.clone(),
            })
        };
        schema.fields.iter().map(field).collect::<Result<_>>().map(StructType::new)
    }

    /// [`ColumnMapping::physical_schema`] for a type.
    pub fn physical_type(self, data_type: &DataType) -> Result<DataType> {
        Ok(match data_type {
            DataType::Struct(s) => DataType::Struct(Arc::new(self.physical_schema(s)?)),
            DataType::Array(a) => DataType::Array(Arc::new(ArrayType {
                element: self.physical_type(&a.element)?,
                contains_null: a.contains_null,
            })),
            DataType::Map(m) => DataType::Map(Arc::new(MapType {
                key: self.physical_type(&m.key)?,
                value: self.physical_type(&m.value)?,
                value_contains_null: m.value_contains_null,
            })),
            DataType::Primitive(_) | DataType::Variant => data_type.clone(),
        })
    }
}

/// The Parquet field id of a column, if it has one.
pub fn field_id(field: &StructField) -> Option<i32> {
    field.metadata.get(FIELD_ID).and_then(Value::as_i64).and_then(|id| i32::try_from(id).ok())
}
