//! The rules of the Iceberg features: what such tables may have, and what their writers must do.
//!
//! A table that breaks a rule is not written: converting it to Iceberg would fail or lose something. The modules that change
//! schemas check which schema changes are forbidden.
//!
//! Proved by the cases of `tests/rust/protocol/feature.rs`.
//!
//! PROTOCOL.md: "Iceberg Compatibility V1", "Iceberg Compatibility V2"; the proposals `iceberg-compat-v3`,
//! `iceberg-writer-compat-v1` and `materialize-partition-columns`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::usage::{Table, Use};
use crate::error::Result;
use crate::property::Properties;
use crate::schema::mapping::{ColumnMapping, field_id, nested_id};
use crate::schema::{DataType, PrimitiveType, StructField, json};

type FeatureNames = BTreeSet<&'static str>;

/// Broken rules: the feature of each, and how it is broken.
pub(super) type Broken = Vec<(&'static str, String)>;

/// Features that a table may have beside `icebergWriterCompatV1`.
const BESIDE_WRITER_V1: &[&str] = &[
    "appendOnly",
    "columnMapping",
    "icebergWriterCompatV1",
    "icebergCompatV2",
    "domainMetadata",
    "vacuumProtocolCheck",
    "v2Checkpoint",
    "inCommitTimestamp",
    "clustering",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "catalogManaged",
    "catalogOwned-preview",
    "invariants",
    "changeDataFeed",
    "checkConstraints",
    "identityColumns",
    "generatedColumns",
];

/// Further features that a table may have beside `icebergWriterCompatV3`.
const BESIDE_WRITER_V3: &[&str] = &[
    "icebergCompatV3",
    "icebergWriterCompatV3",
    "deletionVectors",
    "variantType",
    "variantType-preview",
    "variantShredding",
    "variantShredding-preview",
    "rowTracking",
];

/// Uses of features that no table with these two features may have.
const NOT_IN_USE: &[Use] = &[
    Use::Invariants,
    Use::Constraints,
    Use::IdentityColumns,
    Use::GeneratedColumns,
    Use::Property("delta.enableChangeDataFeed"),
];

/// Whether new data files have the partition columns too, after the others.
pub(super) fn materializes_partition_columns(has: &FeatureNames, properties: Properties<'_>) -> Result<bool> {
    Ok(has.contains("materializePartitionColumns")
        || properties.is_true("delta.writePartitionColumnsToParquet")?
        || (is_on("icebergCompatV1", has, properties)?
            || is_on("icebergCompatV2", has, properties)?
            || is_on("icebergCompatV3", has, properties)?))
}

/// Whether the table has the feature and its property is true.
fn is_on(feature: &str, has: &FeatureNames, properties: Properties<'_>) -> Result<bool> {
    let property = match feature {
        "icebergCompatV1" => "delta.enableIcebergCompatV1",
        "icebergCompatV2" => "delta.enableIcebergCompatV2",
        "icebergCompatV3" => "delta.enableIcebergCompatV3",
        "icebergWriterCompatV1" => "delta.enableIcebergWriterCompatV1",
        _ => "delta.enableIcebergWriterCompatV3",
    };
    Ok(has.contains(feature) && properties.is_true(property)?)
}

/// Every rule that the table breaks.
pub(super) fn broken(has: &FeatureNames, table: Table<'_>) -> Result<Broken> {
    let mut broken = Broken::new();
    for feature in ["icebergCompatV1", "icebergCompatV2", "icebergCompatV3"] {
        if is_on(feature, has, table.properties)? {
            broken.extend(readable_as_iceberg(feature, has, table)?.into_iter().map(|why| (feature, why)));
        }
    }
    for feature in ["icebergWriterCompatV1", "icebergWriterCompatV3"] {
        if is_on(feature, has, table.properties)? {
            broken.extend(writable_as_iceberg(feature, has, table)?.into_iter().map(|why| (feature, why)));
        }
    }
    Ok(broken)
}

fn readable_as_iceberg(feature: &str, has: &FeatureNames, table: Table<'_>) -> Result<Option<String>> {
    let Table { properties, schema, .. } = table;
    for other in ["icebergCompatV1", "icebergCompatV2", "icebergCompatV3"] {
        if other < feature && is_on(other, has, properties)? {
            return Ok(Some(format!("`{other}` is enabled too, and only one may be")));
        }
    }
    if properties.column_mapping_mode()? == ColumnMapping::None || !has.contains("columnMapping") {
        return Ok(Some("columns are not mapped, by name or id".to_owned()));
    }
    if feature == "icebergCompatV3" {
        if !has.contains("rowTracking") || !properties.is_true("delta.enableRowTracking")? {
            return Ok(Some("row tracking is not enabled".to_owned()));
        }
    } else if has.contains("deletionVectors") && properties.deletion_vectors()? {
        return Ok(Some("`delta.enableDeletionVectors` is true".to_owned()));
    }
    let mut found = None;
    schema.each_field("", &mut |path, field| {
        let why = || {
            let unfit = unfit_type(feature, &field.data_type).map(|name| format!("is {name}"));
            let unnamed = || nested_without_id(field).filter(|_| feature != "icebergCompatV1");
            let unfit = unfit.or_else(|| unnamed().map(|key| format!("has no nested id for `{key}`")));
            unfit.or_else(|| changed_beyond_iceberg(field))
        };
        if found.is_none() {
            found = why().map(|why| format!("column `{path}` {why}"));
        }
    });
    Ok(found)
}

fn writable_as_iceberg(feature: &str, has: &FeatureNames, table: Table<'_>) -> Result<Option<String>> {
    let (needed, allowed): (_, Vec<&str>) = match feature {
        "icebergWriterCompatV1" => ("icebergCompatV2", BESIDE_WRITER_V1.to_vec()),
        _ => ("icebergCompatV3", [BESIDE_WRITER_V1, BESIDE_WRITER_V3].concat()),
    };
    if !is_on(needed, has, table.properties)? {
        return Ok(Some(format!("`{needed}` is not enabled")));
    }
    if table.properties.column_mapping_mode()? != ColumnMapping::Id {
        return Ok(Some("columns are not mapped by id".to_owned()));
    }
    if let Some(other) = has.iter().find(|name| !allowed.contains(name)) {
        return Ok(Some(format!("the protocol lists `{other}`, which no such table may have")));
    }
    for unused in NOT_IN_USE {
        if let Some(reason) = unused.find(table)? {
            return Ok(Some(reason));
        }
    }
    let mut found = None;
    table.schema.each_field("", &mut |path, field| {
        let why = || {
            let mut small = None;
            field.data_type.each(&mut |data_type| {
                if let DataType::Primitive(PrimitiveType::Byte | PrimitiveType::Short) = data_type {
                    small.get_or_insert_with(|| format!("is {data_type}"));
                }
            });
            let named = field_id(field).map(|id| format!("col-{id}"));
            let is_named = named.as_deref() == ColumnMapping::Id.physical_name(field).ok();
            small.or_else(|| (!is_named).then(|| "has another physical name than `col-` and its id".to_owned()))
        };
        if found.is_none() {
            found = why().map(|why| format!("column `{path}` {why}"));
        }
    });
    Ok(found)
}

/// A type in the column, fields of structs not included, that Iceberg does not have.
fn unfit_type(feature: &str, data_type: &DataType) -> Option<String> {
    let mut unfit = None;
    data_type.each(&mut |inner| {
        let fits = match inner {
            DataType::Primitive(PrimitiveType::Void) | DataType::Foreign(_) => false,
            DataType::Primitive(PrimitiveType::Geometry { .. } | PrimitiveType::Geography { .. })
            | DataType::Variant => feature == "icebergCompatV3",
            DataType::Array(_) | DataType::Map(_) => feature != "icebergCompatV1",
            DataType::Primitive(_) | DataType::Struct(_) => true,
        };
        if !fits {
            unfit.get_or_insert_with(|| inner.to_string());
        }
    });
    unfit
}

/// The key of an element, key or value inside the column that has no id of its own.
fn nested_without_id(field: &StructField) -> Option<String> {
    fn walk(field: &StructField, data_type: &DataType, key: &str) -> Option<String> {
        let inside = |name: &str, inner: &DataType| {
            let key = format!("{key}.{name}");
            if nested_id(field, &key).is_none() { Some(key) } else { walk(field, inner, &key) }
        };
        match data_type {
            DataType::Array(array) => inside("element", &array.element),
            DataType::Map(map) => inside("key", &map.key).or_else(|| inside("value", &map.value)),
            DataType::Primitive(_) | DataType::Struct(_) | DataType::Variant | DataType::Foreign(_) => None,
        }
    }
    walk(field, &field.data_type, ColumnMapping::Name.physical_name(field).ok()?)
}

/// A change of a type in the column that Iceberg does not allow.
fn changed_beyond_iceberg(field: &StructField) -> Option<String> {
    let changes = field.metadata.get("delta.typeChanges")?.as_array()?;
    changes.iter().find_map(|change| {
        let type_name = |key: &str| change.get(key).and_then(Value::as_str).unwrap_or("something else");
        let (from, to) = (type_name("fromType"), type_name("toType"));
        let follows = json::known(from).zip(json::known(to)).is_some_and(|(from, to)| is_change_of_iceberg(&from, &to));
        (!follows).then(|| format!("was changed from {from} to {to}, which Iceberg does not follow"))
    })
}

fn is_change_of_iceberg(from: &DataType, to: &DataType) -> bool {
    use PrimitiveType as P;
    let (DataType::Primitive(from), DataType::Primitive(to)) = (from, to) else { return false };
    match (from, to) {
        (P::Byte, P::Short | P::Integer | P::Long)
        | (P::Short, P::Integer | P::Long)
        | (P::Integer, P::Long)
        | (P::Float, P::Double) => true,
        (P::Decimal { precision: before, scale: old }, P::Decimal { precision: after, scale: new }) => {
            old == new && before <= after
        }
        _ => false,
    }
}
