//! Which changes of a table's metadata a commit may follow without being prepared again.
//!
//! Every other change is refused: data files depend on schema, partitioning and properties.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::action::{Metadata, Protocol};
use crate::error::{Error, Result};
use crate::feature;
use crate::property::Properties;
use crate::schema::mapping::{ColumnMapping, FIELD_ID, NESTED_IDS, PHYSICAL_NAME};

/// Properties that a winner may set if the protocol has the feature: key, value (empty for any), feature.
///
/// Files that were written before stay valid: these features need nothing of existing files, and the names that columns get
/// are the ones that they have.
pub const PROPERTIES_A_WINNER_MAY_SET: &[(&str, &str, &str)] = &[
    ("delta.enableRowTracking", "true", "rowTracking"),
    ("delta.rowTracking.materializedRowIdColumnName", "", "rowTracking"),
    ("delta.rowTracking.materializedRowCommitVersionColumnName", "", "rowTracking"),
    ("delta.columnMapping.mode", "name", "columnMapping"),
    ("delta.columnMapping.maxColumnId", "", "columnMapping"),
    ("delta.enableDeletionVectors", "true", "deletionVectors"),
    ("delta.checkpointPolicy", "v2", "v2Checkpoint"),
    ("delta.enableInCommitTimestamps", "true", "inCommitTimestamp"),
    ("delta.inCommitTimestampEnablementVersion", "", "inCommitTimestamp"),
    ("delta.inCommitTimestampEnablementTimestamp", "", "inCommitTimestamp"),
    ("io.unitycatalog.tableId", "", ""),
];

/// Properties that may be set and unset at will: no row and no data file depends on them.
pub const METADATA_ONLY_PROPERTIES: &[&str] = &[
    "delta.autoOptimize",
    "delta.autoOptimize.autoCompact",
    "delta.autoOptimize.optimizeWrite",
    "delta.checkpoint.writeStatsAsJson",
    "delta.checkpoint.writeStatsAsStruct",
    "delta.checkpointInterval",
    "delta.checkpointRetentionDuration",
    "delta.deletedFileRetentionDuration",
    "delta.enableExpiredLogCleanup",
    "delta.enableFullRetentionRollback",
    "delta.logRetentionDuration",
    "delta.sampleRetentionDuration",
    "delta.targetFileSize",
    "delta.tuneFileSizesForRewrites",
];

/// The metadata of columns that column mapping adds.
const MAPPING: &[&str] = &[FIELD_ID, NESTED_IDS, PHYSICAL_NAME];

const HIGH_WATERMARK: &str = "delta.identity.highWaterMark";

/// The first change from `before` to `after` that a commit prepared on `before` may not follow.
pub(super) fn incompatible(before: &Metadata, after: &Metadata, protocol: &Protocol) -> Result<Option<String>> {
    let parts = [
        ("the table's id", before.id == after.id),
        ("the file format", before.format == after.format),
        ("the partitioning", before.partition_columns == after.partition_columns),
        ("the time of creation", before.created_time == after.created_time),
    ];
    if let Some((what, _)) = parts.iter().find(|(_, same)| !same) {
        return Ok(Some((*what).to_owned()));
    }
    let keys: BTreeSet<&String> = before.configuration.keys().chain(after.configuration.keys()).collect();
    let supported = feature::supported(protocol);
    for key in keys {
        let (old, new) = (before.configuration.get(key), after.configuration.get(key));
        if old == new || METADATA_ONLY_PROPERTIES.contains(&key.as_str()) {
            continue;
        }
        let allowed =
            PROPERTIES_A_WINNER_MAY_SET.iter().find(|(name, ..)| name == key).is_some_and(|(_, value, feature)| {
                let is_value = new.is_some_and(|new| value.is_empty() || new.eq_ignore_ascii_case(value));
                let from = match key.as_str() {
                    "delta.columnMapping.mode" => old.is_none_or(|old| old.eq_ignore_ascii_case("none")),
                    // Once such a property is set, its value must not change.
                    _ if value.is_empty() && key != "delta.columnMapping.maxColumnId" => old.is_none(),
                    _ => true,
                };
                is_value && from && (feature.is_empty() || supported.contains(*feature))
            });
        if !allowed {
            return Ok(Some(format!("the property `{key}`")));
        }
    }
    // With column mapping a column with another id or physical name is another column.
    let is_mapped = Properties::of(before).column_mapping_mode()? != ColumnMapping::None;
    let same = same_schema(&before.schema_string, &after.schema_string, if is_mapped { &[] } else { MAPPING })?;
    Ok((!same).then(|| "the schema".to_owned()))
}

/// Whether only high watermarks of identity columns differ between `before` and `after`. A commit without metadata of its own
/// may follow, since it has given out no number.
pub(super) fn differs_only_in_identity_watermarks(before: &Metadata, after: &Metadata) -> Result<bool> {
    let with_schema_of = Metadata { schema_string: after.schema_string.clone(), ..before.clone() };
    let counts = before.schema_string != after.schema_string && with_schema_of == *after;
    Ok(counts && same_schema(&before.schema_string, &after.schema_string, &[HIGH_WATERMARK])?)
}

/// Whether two schemas differ only in some members of the metadata of columns.
fn same_schema(before: &str, after: &str, ignored_keys: &[&str]) -> Result<bool> {
    if before == after {
        return Ok(true);
    }
    let parse = |text: &str| -> Result<Value> {
        let mut schema: Value = serde_json::from_str(text)
            .map_err(|e| Error::corrupt("the schema in the metadata is not valid JSON").caused_by(e))?;
        remove_keys(&mut schema, ignored_keys);
        Ok(schema)
    };
    Ok(parse(before)? == parse(after)?)
}

fn remove_keys(value: &mut Value, keys: &[&str]) {
    match value {
        Value::Object(members) => {
            for key in keys {
                members.remove(*key);
            }
            members.values_mut().for_each(|member| remove_keys(member, keys));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| remove_keys(item, keys)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
