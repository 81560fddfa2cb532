//! By which columns a table is clustered.
//!
//! Files have statistics of these columns, by which queries skip files. So each must have a type that can have bounds and
//! be among the columns with statistics.
//!
//! PROTOCOL.md: "Clustered Table", "Writer Requirements for Clustered Table".

use std::collections::BTreeMap;

use serde_json::json;

use super::step::{Before, RequestedChange};
use crate::action::Metadata;
use crate::error::{Error, Result};
use crate::feature;
use crate::property::Properties;
use crate::schema::evolve::find;
use crate::schema::mapping::ColumnMapping;
use crate::schema::{DataType, PrimitiveType, StructType, path};
use crate::stats::collect::IndexedColumns;

/// Most columns by which a table may be clustered, as in delta-spark.
const MAX_CLUSTERING_COLUMNS: usize = 4;

/// The property that enables the feature.
pub const CLUSTERING_FEATURE: &str = "delta.feature.clustering";

pub(super) fn cluster(before: Before<'_>, columns: &[String]) -> Result<RequestedChange> {
    let schema = before.metadata.schema()?;
    let mapping = Properties::of(before.metadata).column_mapping_mode()?;
    let logical = |paths: &[Vec<String>]| logical_paths(&schema, mapping, paths);
    let names = |paths: &[Vec<String>]| paths.iter().map(|path| path::print(path)).collect::<Vec<_>>().join(",");
    let physical = clustering_paths(&schema, before.metadata, columns)?;
    let (old, new) = (logical(before.clustering), logical(&physical));
    // A table without clustering columns does not need the feature.
    let is_asked = !columns.is_empty() || feature::supported(before.protocol).contains("clustering");
    let properties = match is_asked {
        true => BTreeMap::from([(CLUSTERING_FEATURE.to_owned(), "supported".to_owned())]),
        false => BTreeMap::new(),
    };
    let parameters = [("oldClusteringColumns", names(&old)), ("newClusteringColumns", names(&new))];
    Ok(RequestedChange {
        metadata: before.metadata.clone(),
        properties,
        clustering: is_asked.then_some(physical),
        operation: "CLUSTER BY",
        parameters: parameters.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect(),
    })
}

/// The columns by which a table is clustered, by their names in its schema.
///
/// # Errors
/// `Corrupt` if the schema or `delta.columnMapping.mode` cannot be read.
pub fn logical_clustering(before: Before<'_>) -> Result<Vec<Vec<String>>> {
    let mapping = Properties::of(before.metadata).column_mapping_mode()?;
    Ok(logical_paths(&*before.metadata.schema()?, mapping, before.clustering))
}

fn logical_paths(schema: &StructType, mapping: ColumnMapping, physical: &[Vec<String>]) -> Vec<Vec<String>> {
    let logical = |path: &Vec<String>| mapping.logical_path(schema, path).unwrap_or_else(|| path.clone());
    physical.iter().map(logical).collect()
}

/// The physical paths of columns by which a table with this schema and metadata is to be clustered.
///
/// # Errors
/// `Invalid`, naming the column, if it cannot be clustered by them.
pub fn clustering_paths(schema: &StructType, metadata: &Metadata, columns: &[String]) -> Result<Vec<Vec<String>>> {
    if columns.len() > MAX_CLUSTERING_COLUMNS {
        return Err(Error::invalid(format!(
            "a table is clustered by at most {MAX_CLUSTERING_COLUMNS} columns, not {}",
            columns.len()
        )));
    }
    if let (Some(partition), false) = (metadata.partition_columns.first(), columns.is_empty()) {
        return Err(Error::invalid(format!(
            "the table is partitioned by `{partition}`, and a partitioned table cannot be clustered"
        )));
    }
    let properties = Properties::of(metadata);
    let mapping = properties.column_mapping_mode()?;
    let indexed = IndexedColumns::of(properties)?.of_schema(schema);
    let mut paths: Vec<Vec<String>> = Vec::new();
    for column in columns {
        let found = find(schema, &path::parse(column)?)?;
        let shown = path::print(&found.path);
        if !has_bounds(&found.field.data_type) {
            return Err(Error::invalid(format!(
                "the table cannot be clustered by `{shown}`, which is of the type {}: files are skipped by the least \
                 and the greatest value, which it does not have",
                found.field.data_type
            )));
        }
        let physical = physical_path(schema, mapping, &found.path)?;
        let Some(physical) = physical else {
            let message = format!("the table cannot be clustered by `{shown}`, which is inside an array or a map");
            return Err(Error::invalid(message));
        };
        if find(&indexed, &found.path).is_err() {
            return Err(Error::invalid(format!(
                "the table cannot be clustered by `{shown}`, of which files have no statistics: raise \
                 `delta.dataSkippingNumIndexedCols`, or name it in `delta.dataSkippingStatsColumns`"
            )));
        }
        if paths.contains(&physical) {
            return Err(Error::invalid(format!("the clustering column `{shown}` is there twice")));
        }
        paths.push(physical);
    }
    Ok(paths)
}

/// Whether statistics have the least and the greatest value of columns of a type.
fn has_bounds(data_type: &DataType) -> bool {
    use PrimitiveType::{Byte, Date, Decimal, Double, Float, Integer, Long, Short, String, Timestamp, TimestampNtz};
    let bounded = |primitive: &PrimitiveType| {
        matches!(
            primitive,
            Byte | Short | Integer | Long | Float | Double | Decimal { .. } | String | Date | Timestamp | TimestampNtz
        )
    };
    data_type.as_primitive().is_some_and(bounded)
}

/// The physical path of a column; `None` if it leads through an array or a map.
fn physical_path(schema: &StructType, mapping: ColumnMapping, column: &[String]) -> Result<Option<Vec<String>>> {
    let mut inside = Some(schema);
    let mut names = Vec::with_capacity(column.len());
    for part in column {
        let Some(field) = inside.and_then(|fields| fields.fields.iter().find(|field| field.name == *part)) else {
            return Ok(None);
        };
        names.push(mapping.physical_name(field)?.to_owned());
        inside = match &field.data_type {
            DataType::Struct(fields) => Some(fields),
            _ => None,
        };
    }
    Ok(Some(names))
}
