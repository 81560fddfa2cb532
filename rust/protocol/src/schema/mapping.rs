//! Column mapping: the name or id of a column in data files, statistics and partition values.
//!
//! PROTOCOL.md: "Column Mapping".

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::{ArrayType, DataType, MapType, StructField, StructType};
use crate::error::{Error, Result};

/// Column metadata key of the field id.
pub const FIELD_ID: &str = "delta.columnMapping.id";
/// Column metadata key of the physical name.
pub const PHYSICAL_NAME: &str = "delta.columnMapping.physicalName";

/// Column metadata key of the ids of elements, keys and values inside a column.
pub const NESTED_IDS: &str = "delta.columnMapping.nested.ids";

/// How a column is found in another version of a schema, among those of the same struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchBy {
    /// Its name, which files have.
    Name,
    /// Its id, whatever it is called.
    Id,
}

impl MatchBy {
    /// Whether two fields are one column.
    pub fn is_same(self, a: &StructField, b: &StructField) -> bool {
        match self {
            Self::Name => a.name == b.name,
            Self::Id => field_id(a).is_some_and(|id| field_id(b) == Some(id)),
        }
    }
}

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
    /// As [`ColumnMapping::Name`], in a table whose protocol does not list the feature: its writers may have ignored
    /// the mapping, so a file that has a column only under its logical name is refused rather than read as null.
    Unlisted,
}

/// The text of [`ColumnMapping::Unlisted`] when it is sent to executors; it is not a value of the property.
const UNLISTED: &str = "name, not listed";

impl ColumnMapping {
    /// Reads the property's value, or the text from [`ColumnMapping::as_str`].
    pub fn parse(text: &str) -> Result<Self> {
        match text.to_ascii_lowercase().as_str() {
            "none" => Ok(Self::None),
            "name" => Ok(Self::Name),
            "id" => Ok(Self::Id),
            UNLISTED => Ok(Self::Unlisted),
            _ => Err(Error::corrupt(format!("`delta.columnMapping.mode` is `{text}`; it may be none, name or id"))),
        }
    }

    /// The mapping of a table that has the property `mode` and whose protocol does not list the feature.
    ///
    /// Other readers use the property. If no column has a physical name, files can only have the logical ones.
    ///
    /// # Errors
    /// `Unsupported` if some columns have a physical name and others do not.
    pub(crate) fn unlisted(mode: Self, schema: &StructType) -> Result<Self> {
        let (mut mapped, mut plain) = (0_usize, None);
        schema.each_field("", &mut |path, field| match field.metadata.get(PHYSICAL_NAME).and_then(Value::as_str) {
            Some(_) => mapped += 1,
            None => _ = plain.get_or_insert_with(|| path.to_owned()),
        });
        match (mode, mapped, plain) {
            (Self::None, ..) | (_, 0, _) => Ok(Self::None),
            (Self::Id, _, None) => Ok(Self::Id),
            (Self::Name | Self::Unlisted, _, None) => Ok(Self::Unlisted),
            (_, _, Some(plain)) => Err(Error::unsupported(
                "columnMapping",
                format!(
                    "the table maps columns by {}, its protocol does not list the feature `columnMapping`, and column \
                     `{plain}` has no physical name as others do, so it is not known what files call it; add the feature \
                     to the protocol, or unset `delta.columnMapping.mode`, with the client that wrote the table",
                    mode.as_str()
                ),
            )),
        }
    }

    /// How columns are found in another version of the schema.
    pub fn match_by(self) -> MatchBy {
        if self == Self::None { MatchBy::Name } else { MatchBy::Id }
    }

    /// The property's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Name => "name",
            Self::Id => "id",
            Self::Unlisted => UNLISTED,
        }
    }

    /// The logical name of `field`, if it is not certain whether files have columns by physical or by logical names.
    pub fn other_name(self, field: &StructField) -> Option<&str> {
        let physical = || field.metadata.get(PHYSICAL_NAME).and_then(Value::as_str);
        match self {
            Self::None => physical().filter(|physical| *physical != field.name),
            Self::Unlisted => Some(field.name.as_str()).filter(|name| physical() != Some(name)),
            Self::Name | Self::Id => None,
        }
    }

    /// The name of `field` in files, statistics and partition values.
    pub fn physical_name(self, field: &StructField) -> Result<&str> {
        match self {
            Self::None => Ok(&field.name),
            Self::Name | Self::Id | Self::Unlisted => {
                field.metadata.get(PHYSICAL_NAME).and_then(Value::as_str).ok_or_else(|| {
                    Error::corrupt(format!(
                        "column `{}` has no `{PHYSICAL_NAME}` although the table maps columns",
                        field.name
                    ))
                })
            }
        }
    }

    /// The keys that `add.partitionValues` may have for a column of `schema`: its physical name; if that is missing, its
    /// logical name, which some writers use. A logical name that is another column's physical name is not used.
    ///
    /// # Errors
    /// Those of [`ColumnMapping::physical_name`].
    pub fn partition_keys<'f>(self, schema: &StructType, field: &'f StructField) -> Result<[&'f str; 2]> {
        let physical = self.physical_name(field)?;
        let is_of_another = |other: &StructField| {
            other.name != field.name && self.physical_name(other).is_ok_and(|name| name == field.name)
        };
        let is_ambiguous = physical != field.name && schema.fields.iter().any(is_of_another);
        Ok([physical, if is_ambiguous { physical } else { &field.name }])
    }

    /// The logical path of the column that files have at this physical path, if there is one.
    pub fn logical_path(self, schema: &StructType, physical: &[String]) -> Option<Vec<String>> {
        let mut inside = schema;
        let mut names = Vec::with_capacity(physical.len());
        for (at, part) in physical.iter().enumerate() {
            let field = inside.fields.iter().find(|field| self.physical_name(field).is_ok_and(|name| name == part))?;
            names.push(field.name.clone());
            match &field.data_type {
                DataType::Struct(fields) => inside = fields,
                _ if at + 1 == physical.len() => {}
                _ => return None,
            }
        }
        Some(names)
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
            // The table does not name anything inside these types.
            DataType::Primitive(_) | DataType::Variant | DataType::Foreign(_) => data_type.clone(),
        })
    }
}

/// The Parquet field id of a column, if it has one.
pub fn field_id(field: &StructField) -> Option<i32> {
    field.metadata.get(FIELD_ID).and_then(Value::as_i64).and_then(|id| i32::try_from(id).ok())
}

/// The Parquet field id of an element, key or value inside a column, if it has one. The key begins with the column's
/// physical name: `col.element`, `col.value.key`.
pub fn nested_id(column: &StructField, key: &str) -> Option<i32> {
    column.metadata.get(NESTED_IDS)?.get(key).and_then(Value::as_i64).and_then(|id| i32::try_from(id).ok())
}

/// Refuses a schema for which no data file can be written: where columns are mapped, each has an id that no other has, and a
/// physical name that no other column of its struct has.
///
/// # Errors
/// `Corrupt`, naming the columns.
pub fn check_mapped(schema: &StructType, mapping: ColumnMapping) -> Result<()> {
    if mapping == ColumnMapping::None {
        return Ok(());
    }
    check_level(schema, "", mapping, &mut HashMap::new())
}

fn check_level(schema: &StructType, above: &str, mapping: ColumnMapping, ids: &mut HashMap<i32, String>) -> Result<()> {
    let mut names = HashMap::new();
    let twice = |other: String, path: &str, what: String| {
        Err(Error::corrupt(format!("the columns `{other}` and `{path}` have one {what}")))
    };
    for field in &schema.fields {
        let path = if above.is_empty() { field.name.clone() } else { format!("{above}.{}", field.name) };
        let name = mapping.physical_name(field)?;
        let Some(id) = field_id(field) else {
            return Err(Error::corrupt(format!("column `{path}` has no `{FIELD_ID}` although the table maps columns")));
        };
        if let Some(other) = names.insert(name, path.clone()) {
            return twice(other, &path, format!("physical name, `{name}`"));
        }
        if let Some(other) = ids.insert(id, path.clone()) {
            return twice(other, &path, format!("id, {id}"));
        }
        check_inside(&field.data_type, &path, mapping, ids)?;
    }
    Ok(())
}

fn check_inside(
    data_type: &DataType,
    path: &str,
    mapping: ColumnMapping,
    ids: &mut HashMap<i32, String>,
) -> Result<()> {
    match data_type {
        DataType::Struct(inner) => check_level(inner, path, mapping, ids),
        DataType::Array(array) => check_inside(&array.element, path, mapping, ids),
        DataType::Map(map) => {
            check_inside(&map.key, path, mapping, ids)?;
            check_inside(&map.value, path, mapping, ids)
        }
        DataType::Primitive(_) | DataType::Variant | DataType::Foreign(_) => Ok(()),
    }
}
