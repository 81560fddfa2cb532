//! Whether rows that an older schema wrote can be read as rows of a newer one.
//!
//! They can if the newer one only adds nullable columns and widens types: then missing values are null, and
//! all other values fit. Columns are the same if files have them under the same name or id.
//!
//! PROTOCOL.md: "Type Widening", "Column Mapping".

use std::collections::BTreeSet;

use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::schema::mapping::{ColumnMapping, field_id};
use deltic_protocol::schema::{DataType, PrimitiveType, StructField, StructType, with_article};

use crate::error::{Error, Result};

/// Fails if rows written under `older`, the schema of `version`, do not fit into `newer`, the schema of `last`.
pub(super) fn check(older: &TableShape, version: u64, newer: &TableShape, last: u64) -> Result<()> {
    let why = match differs(older, newer).map_err(|e| e.at_version(version))? {
        None => return Ok(()),
        Some(why) => why,
    };
    Err(Error::invalid(format!(
        "the rows of version {version} do not fit the schema of version {last}, in which the changes are read: {why}; \
         read the range in parts, each with one schema"
    ))
    .at_version(version))
}

/// Fails if the commit of `version`, which gives the table other columns, also removes rows whose values do not fit
/// `newer`, the schema of `last`. `older` is the schema before it. Columns that `newer` no longer has are ignored.
pub(super) fn check_removed(older: &TableShape, version: u64, newer: &TableShape, last: u64) -> Result<()> {
    let mappings = Mappings { older: older.mapping, newer: newer.mapping, types_alone: true };
    let why = mappings.structs(&older.schema, &newer.schema, "").map_err(|e| e.at_version(version))?;
    let Some(why) = why else { return Ok(()) };
    Err(Error::unsupported(
        "change data feed of rows of another type",
        format!(
            "version {version} changed the columns of the table and removed rows that do not fit the schema of version {last}, \
             in which the changes are read: {why}; read a range that ends before version {version} and one that starts \
             after it"
        ),
    )
    .at_version(version))
}

/// The reason why rows of `older` cannot be rows of `newer`, if there is one.
fn differs(older: &TableShape, newer: &TableShape) -> Result<Option<String>> {
    match (older.mapping, newer.mapping) {
        (older, newer) if older == newer => {}
        // Columns that were there before have their old names as physical ones.
        (ColumnMapping::None, ColumnMapping::Name | ColumnMapping::Unlisted)
        | (ColumnMapping::Name, ColumnMapping::Unlisted)
        | (ColumnMapping::Unlisted, ColumnMapping::Name) => {}
        (_, _) => return Ok(Some("columns are found in files in another way (`delta.columnMapping.mode`)".to_owned())),
    }
    let partitions = |shape: &TableShape| shape.partition_columns.iter().cloned().collect::<BTreeSet<_>>();
    if partitions(older) != partitions(newer) {
        return Ok(Some("the table is partitioned by other columns".to_owned()));
    }
    let mappings = Mappings { older: older.mapping, newer: newer.mapping, types_alone: false };
    mappings.structs(&older.schema, &newer.schema, "")
}

struct Mappings {
    older: ColumnMapping,
    newer: ColumnMapping,
    /// Only types are compared: dropped, renamed and added columns and nullability are ignored.
    types_alone: bool,
}

impl Mappings {
    fn structs(&self, older: &StructType, newer: &StructType, path: &str) -> Result<Option<String>> {
        let mut matched = BTreeSet::new();
        for field in &older.fields {
            let path = join(path, &field.name);
            let Some(found) = self.find(field, newer)? else {
                if self.types_alone {
                    continue;
                }
                return Ok(Some(format!("column `{path}` was dropped or renamed")));
            };
            matched.insert(found.name.as_str());
            if found.name != field.name && !self.types_alone {
                return Ok(Some(format!("column `{path}` was renamed to `{}`", found.name)));
            }
            if field.nullable && !found.nullable && !self.types_alone {
                return Ok(Some(format!("column `{path}` could be null")));
            }
            if let Some(why) = self.types(&field.data_type, &found.data_type, &path)? {
                return Ok(Some(why));
            }
        }
        if self.types_alone {
            return Ok(None);
        }
        let added = newer.fields.iter().find(|field| !field.nullable && !matched.contains(field.name.as_str()));
        Ok(added.map(|field| format!("column `{}`, which may not be null, was added", join(path, &field.name))))
    }

    /// The field of `newer` that is the same column as `field`.
    fn find<'a>(&self, field: &StructField, newer: &'a StructType) -> Result<Option<&'a StructField>> {
        let name = self.older.physical_name(field)?;
        for candidate in &newer.fields {
            let same_id = self.newer != ColumnMapping::Id || field_id(field) == field_id(candidate);
            if self.newer.physical_name(candidate)? == name && same_id {
                return Ok(Some(candidate));
            }
        }
        Ok(None)
    }

    fn types(&self, older: &DataType, newer: &DataType, path: &str) -> Result<Option<String>> {
        match (older, newer) {
            (DataType::Struct(older), DataType::Struct(newer)) => self.structs(older, newer, path),
            (DataType::Array(older), DataType::Array(newer)) => {
                let path = join(path, "element");
                if older.contains_null && !newer.contains_null && !self.types_alone {
                    return Ok(Some(format!("`{path}` could be null")));
                }
                self.types(&older.element, &newer.element, &path)
            }
            (DataType::Map(older), DataType::Map(newer)) => {
                let (key, value) = (join(path, "key"), join(path, "value"));
                if older.value_contains_null && !newer.value_contains_null && !self.types_alone {
                    return Ok(Some(format!("`{value}` could be null")));
                }
                match self.types(&older.key, &newer.key, &key)? {
                    Some(why) => Ok(Some(why)),
                    None => self.types(&older.value, &newer.value, &value),
                }
            }
            (DataType::Primitive(older), DataType::Primitive(newer)) if widens(older, newer) => Ok(None),
            (DataType::Primitive(PrimitiveType::Void), _) | (DataType::Variant, DataType::Variant) => Ok(None),
            (DataType::Foreign(older), DataType::Foreign(newer)) if older == newer => Ok(None),
            (older, newer) => {
                Ok(Some(format!("column `{path}` was {} and became {}", with_article(older), with_article(newer))))
            }
        }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Whether every value of `older` is one of `newer`, by the rules for type changes.
fn widens(older: &PrimitiveType, newer: &PrimitiveType) -> bool {
    use PrimitiveType as P;
    match (older, newer) {
        (older, newer) if older == newer => true,
        (P::Byte, P::Short | P::Integer | P::Long | P::Double)
        | (P::Short, P::Integer | P::Long | P::Double)
        | (P::Integer, P::Long | P::Double)
        | (P::Float, P::Double)
        | (P::Date, P::TimestampNtz) => true,
        (P::Byte | P::Short | P::Integer, P::Decimal { precision, scale }) => precision.saturating_sub(*scale) >= 10,
        (P::Long, P::Decimal { precision, scale }) => precision.saturating_sub(*scale) >= 20,
        (P::Decimal { precision: p, scale: s }, P::Decimal { precision, scale }) => {
            scale >= s && precision.saturating_sub(*scale) >= p.saturating_sub(*s)
        }
        _ => false,
    }
}
