//! Whether a table uses a feature, by its properties and schema.

use std::fmt;

use crate::action::Metadata;
use crate::error::Result;
use crate::property::Properties;
use crate::schema::mapping::ColumnMapping;
use crate::schema::{DataType, PrimitiveType, StructField, StructType};

/// A table; without metadata, one that is to be created.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    pub(super) properties: Properties<'a>,
    pub(super) metadata: Option<&'a Metadata>,
    pub(super) schema: &'a StructType,
}

/// The sign that a feature is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Invariants,
    Constraints,
    GeneratedColumns,
    IdentityColumns,
    ColumnDefaults,
    ColumnMapping,
    Intervals,
    Property(&'static str),
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invariants => f.write_str("a column has an invariant"),
            Self::Constraints => f.write_str("the table has a constraint"),
            Self::GeneratedColumns => f.write_str("a column is generated"),
            Self::IdentityColumns => f.write_str("a column is an identity"),
            Self::ColumnDefaults => f.write_str("a column has a default"),
            Self::ColumnMapping => f.write_str("columns are mapped by name or id"),
            Self::Intervals => f.write_str("a column is an interval"),
            Self::Property(key) => write!(f, "`{key}` is true"),
        }
    }
}

impl Use {
    /// How the table uses the feature, if it does.
    pub(super) fn find(self, table: Table<'_>) -> Result<Option<String>> {
        let Table { properties, schema, .. } = table;
        let column = |what: &str, has: &dyn Fn(&StructField) -> bool| {
            find_column(schema, &|f| has(f)).map(|name| format!("column `{name}` {what}"))
        };
        let key =
            |wanted: &'static str| move |f: &StructField| f.metadata.keys().any(|key| key.eq_ignore_ascii_case(wanted));
        Ok(match self {
            Self::Invariants => column("has an invariant", &key("delta.invariants")),
            Self::GeneratedColumns => column("is generated", &key("delta.generationExpression")),
            Self::ColumnDefaults => column("has a default", &key("CURRENT_DEFAULT")),
            Self::IdentityColumns => {
                column("is an identity", &|f| f.metadata.keys().any(|key| has_prefix(key, "delta.identity.")))
            }
            Self::Intervals => foreign_type(schema)
                .filter(|(name, _)| has_prefix(name, "interval"))
                .map(|(name, column)| format!("column `{column}` is {name}")),
            Self::Constraints => properties
                .keys()
                .find(|key| has_prefix(key, "delta.constraints."))
                .map(|key| format!("the table has the constraint `{}`", key.get(18..).unwrap_or_default())),
            Self::ColumnMapping => match properties.column_mapping_mode()? {
                ColumnMapping::None => None,
                ColumnMapping::Name | ColumnMapping::Unlisted => Some("columns are mapped by name".to_owned()),
                ColumnMapping::Id => Some("columns are mapped by id".to_owned()),
            },
            Self::Property(key) => properties.is_true(key)?.then(|| self.to_string()),
        })
    }
}

fn has_prefix(key: &str, prefix: &str) -> bool {
    key.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix))
}

/// The path of the first column, at any depth, of which `holds` is true.
fn find_column(schema: &StructType, holds: &dyn Fn(&StructField) -> bool) -> Option<String> {
    let mut first = None;
    schema.each_field("", &mut |path, field| {
        if first.is_none() && holds(field) {
            first = Some(path.to_owned());
        }
    });
    first
}

/// The first identity inside a column: only whole columns number rows.
pub(super) fn nested_identity(field: &StructField) -> Option<String> {
    let alone = StructType::new(vec![StructField { metadata: Default::default(), ..field.clone() }]);
    find_column(&alone, &|field| field.metadata.keys().any(|key| has_prefix(key, "delta.identity.")))
}

/// The first column, at any depth, of a type that deltic does not write.
pub(super) fn foreign_type(schema: &StructType) -> Option<(String, String)> {
    let mut first = None;
    schema.each_field("", &mut |path, field| {
        field.data_type.each(&mut |data_type| {
            if let DataType::Foreign(foreign) = data_type {
                first.get_or_insert_with(|| (foreign.to_string(), path.to_owned()));
            }
        });
    });
    first
}

/// Features that the types of the schema need, each with the first column that has such a type.
pub(super) fn type_features(schema: &StructType) -> Vec<(&'static str, String)> {
    let mut used: Vec<(&'static str, String)> = Vec::new();
    schema.each_field("", &mut |path, field| {
        field.data_type.each(&mut |data_type| {
            let feature = match data_type {
                DataType::Primitive(PrimitiveType::TimestampNtz) => "timestampNtz",
                DataType::Primitive(PrimitiveType::Geometry { .. } | PrimitiveType::Geography { .. }) => "geospatial",
                DataType::Variant => "variantType",
                DataType::Primitive(_)
                | DataType::Struct(_)
                | DataType::Array(_)
                | DataType::Map(_)
                | DataType::Foreign(_) => return,
            };
            if used.iter().all(|(seen, _)| *seen != feature) {
                used.push((feature, path.to_owned()));
            }
        });
    });
    used
}
