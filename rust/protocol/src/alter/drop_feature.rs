//! DROP FEATURE: removes a feature from a table's protocol.
//!
//! The newest version must have no trace of the feature. Its properties are removed here; if rows or files use it, the drop
//! is refused, and the error says what to do. Older versions may have traces. If readers must know the feature, either
//! checkpoints keep readers from reading the log of these versions, and the feature `checkpointProtection` keeps these
//! checkpoints; or the log of these versions is deleted.
//!
//! PROTOCOL.md: "Protocol Evolution", "Disabled Features"; RFC "Checkpoint Protection".

use serde_json::{Value, json};

use super::step::{Altered, Before};
use crate::action::Metadata;
use crate::constraint::check_constraints;
use crate::error::{Error, Result};
use crate::feature;
use crate::property::{CheckpointPolicy, Properties};
use crate::schema::assign::{map_each, strip};
use crate::schema::evolve::CURRENT_DEFAULT;
use crate::schema::mapping::{ColumnMapping, PHYSICAL_NAME};
use crate::schema::widen::TYPE_CHANGES;
use crate::schema::{StructField, StructType, json as schema_json};
use crate::validation::forbidden_character;

/// The property that says before which version checkpoints are protected.
pub const CHECKPOINT_PROTECTION_VERSION: &str = "delta.requireCheckpointProtectionBeforeVersion";

/// What happens to the log of older versions when a feature is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OldLog {
    /// It is kept: only writers need the feature.
    Kept,
    /// It is kept behind protected checkpoints, or deleted: readers of it need the feature.
    ProtectedOrDeleted,
    /// It is deleted.
    Deleted,
}

/// How a feature is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropping {
    /// The log of older versions is kept.
    KeepsLog,
    /// It is kept behind checkpoints that are protected.
    ProtectsCheckpoints,
    /// Its part with traces of the feature was deleted.
    TruncatedLog,
}

/// A feature that can be dropped.
#[derive(Debug, Clone, Copy)]
pub struct Droppable {
    /// Its name.
    pub name: &'static str,
    /// What happens to the log of older versions.
    pub old_log: OldLog,
    /// Properties that go with it.
    properties: &'static [&'static str],
    /// Features that need it.
    needed_by: &'static [&'static str],
}

const fn row(
    name: &'static str,
    old_log: OldLog,
    properties: &'static [&'static str],
    needed_by: &'static [&'static str],
) -> Droppable {
    Droppable { name, old_log, properties, needed_by }
}

/// Every feature that can be dropped.
#[rustfmt::skip]
const DROPPABLE: &[Droppable] = &[
    row("allowColumnDefaults", OldLog::Kept, &[], &[]),
    row("changeDataFeed", OldLog::Kept, &["delta.enableChangeDataFeed", "delta.enableChangeDataCapture"], &[]),
    row("checkConstraints", OldLog::Kept, &[], &[]),
    row("checkpointProtection", OldLog::Deleted, &[CHECKPOINT_PROTECTION_VERSION], &[]),
    row("clustering", OldLog::Kept, &[], &[]),
    row("columnMapping", OldLog::ProtectedOrDeleted, &["delta.columnMapping.mode", "delta.columnMapping.maxColumnId"], &["icebergCompatV1", "icebergCompatV2", "icebergCompatV3", "columnMappingUsageTracking"]),
    row("deletionVectors", OldLog::ProtectedOrDeleted, &["delta.enableDeletionVectors"], &[]),
    row("domainMetadata", OldLog::Kept, &[], &["rowTracking", "clustering", "collations", "collations-preview"]),
    row("generatedColumns", OldLog::Kept, &[], &[]),
    row("icebergCompatV1", OldLog::Kept, &["delta.enableIcebergCompatV1"], &[]),
    row("icebergCompatV2", OldLog::Kept, &["delta.enableIcebergCompatV2"], &["icebergWriterCompatV1"]),
    row("icebergCompatV3", OldLog::Kept, &["delta.enableIcebergCompatV3"], &["icebergWriterCompatV3"]),
    row("identityColumns", OldLog::Kept, &[], &[]),
    row("inCommitTimestamp", OldLog::Kept, &["delta.enableInCommitTimestamps", "delta.inCommitTimestampEnablementVersion", "delta.inCommitTimestampEnablementTimestamp"], &["catalogManaged"]),
    row("materializePartitionColumns", OldLog::Kept, &["delta.enableMaterializePartitionColumnsFeature", "delta.writePartitionColumnsToParquet"], &[]),
    row("rowTracking", OldLog::Kept, &["delta.enableRowTracking", "delta.rowTrackingSuspended", "delta.rowTracking.materializedRowIdColumnName", "delta.rowTracking.materializedRowCommitVersionColumnName"], &["icebergCompatV3"]),
    row("typeWidening", OldLog::ProtectedOrDeleted, &["delta.enableTypeWidening"], &[]),
    row("typeWidening-preview", OldLog::ProtectedOrDeleted, &["delta.enableTypeWidening"], &[]),
    row("v2Checkpoint", OldLog::ProtectedOrDeleted, &["delta.checkpointPolicy"], &[]),
    row("vacuumProtocolCheck", OldLog::ProtectedOrDeleted, &[], &["catalogManaged"]),
];

/// The feature of a table that is to be dropped.
///
/// # Errors
/// `Invalid` if the table does not have the feature, if other features need it, or if it cannot be dropped; then the error
/// names those that can.
pub fn find_droppable(before: Before<'_>, name: &str) -> Result<&'static Droppable> {
    let supported = feature::supported(before.protocol);
    if !supported.contains(name) {
        return Err(Error::invalid(format!("the table does not have the feature `{name}`, so it cannot be dropped")));
    }
    let Some(droppable) = DROPPABLE.iter().find(|droppable| droppable.name == name) else {
        let names: Vec<String> = DROPPABLE.iter().map(|droppable| format!("`{}`", droppable.name)).collect();
        let message = format!("the feature `{name}` cannot be dropped; those that can are {}", names.join(", "));
        return Err(Error::invalid(message));
    };
    match droppable.needed_by.iter().find(|other| supported.contains(**other)) {
        Some(other) => Err(Error::invalid(format!(
            "the feature `{name}` is needed by `{other}`, which the table has; drop that first"
        ))),
        None => Ok(droppable),
    }
}

/// Whether metadata use a feature that readers need. A property that disables the feature is no use.
///
/// # Errors
/// `Corrupt` if the schema or a property has no valid value.
pub fn uses_feature(metadata: &Metadata, name: &str) -> Result<bool> {
    let properties = Properties::of(metadata);
    match name {
        "columnMapping" => {
            let schema = metadata.schema()?;
            Ok(properties.column_mapping_mode()? != ColumnMapping::None || strip(&schema) != *schema)
        }
        "deletionVectors" => properties.deletion_vectors(),
        "typeWidening" | "typeWidening-preview" => {
            let schema = metadata.schema()?;
            Ok(widened_column(&schema).is_some())
        }
        "v2Checkpoint" => Ok(properties.checkpoint_policy()? == CheckpointPolicy::TwoLevel),
        _ => Ok(false),
    }
}

/// The table with a feature disabled, which its protocol still has: without the properties and column metadata of it.
///
/// # Errors
/// `Invalid`, naming it, if something else in the metadata uses the feature.
pub fn disabled(metadata: &Metadata, droppable: &Droppable) -> Result<Metadata> {
    let mut after = without_metadata(metadata, droppable)?;
    if droppable.name == "v2Checkpoint" {
        // Without the property, the feature alone would allow such checkpoints.
        after.configuration.insert("delta.checkpointPolicy".to_owned(), "classic".to_owned());
    }
    Ok(after)
}

/// The table without the properties of a feature.
pub fn without_properties(metadata: &Metadata, droppable: &Droppable) -> Metadata {
    let mut after = metadata.clone();
    after.configuration.retain(|key, _| !droppable.properties.contains(&key.as_str()));
    after
}

/// The table without the properties and column metadata of a feature.
fn without_metadata(metadata: &Metadata, droppable: &Droppable) -> Result<Metadata> {
    let schema = metadata.schema()?;
    refuse_uses(metadata, &schema, droppable.name)?;
    let mut after = without_properties(metadata, droppable);
    let stripped = match droppable.name {
        "columnMapping" => strip(&schema),
        "typeWidening" | "typeWidening-preview" => without_type_changes(&schema),
        _ => (*schema).clone(),
    };
    if stripped != *schema {
        after.schema_string = schema_json::to_json(&stripped);
    }
    Ok(after)
}

/// The table without a feature of which metadata and files have no trace any more.
///
/// # Errors
/// As [`find_droppable`] and [`disabled`].
pub fn without_feature(before: Before<'_>, name: &str, dropping: Dropping) -> Result<Altered> {
    let droppable = find_droppable(before, name)?;
    let mut metadata = without_metadata(before.metadata, droppable)?;
    let mut protocol = feature::without(before.protocol, name);
    if dropping == Dropping::ProtectsCheckpoints {
        protocol = feature::with_listed(&protocol, "checkpointProtection");
        metadata.configuration.insert(CHECKPOINT_PROTECTION_VERSION.to_owned(), before.version.to_string());
    }
    let parameters = [("featureName", json!(name)), ("truncateHistory", json!(dropping == Dropping::TruncatedLog))];
    Ok(Altered {
        metadata,
        protocol: Some(protocol),
        clustering: None,
        operation: "DROP FEATURE",
        parameters: parameters.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
    })
}

/// Refuses uses of the feature that the user has to remove, because they are about rows.
fn refuse_uses(metadata: &Metadata, schema: &StructType, name: &str) -> Result<()> {
    let in_use = |what: String, how: &str| {
        Err(Error::invalid(format!("the feature `{name}` cannot be dropped: {what}; {how} first")))
    };
    if name == "checkConstraints" {
        let constraints = check_constraints(Properties::of(metadata));
        if let Some(constraint) = constraints.keys().next() {
            return in_use(format!("the table has the constraint `{constraint}`"), "drop it (`drop_constraint`)");
        }
    }
    let (key, what, how) = match name {
        "allowColumnDefaults" => (CURRENT_DEFAULT, "has a default", "remove it (`alter_column(default=None)`)"),
        "generatedColumns" => ("delta.generationExpression", "is generated", "drop the column"),
        "identityColumns" => ("delta.identity.", "is an identity", "drop the column"),
        "columnMapping" => {
            return match schema.first_field(&|field| forbidden_character(&field.name).is_some()) {
                Some(column) => in_use(
                    format!(
                        "the name of the column `{column}` has a character that is allowed only with column mapping"
                    ),
                    "rename it (`rename_column`)",
                ),
                None => Ok(()),
            };
        }
        _ => return Ok(()),
    };
    let found = schema.first_field(&|field| field.metadata.keys().any(|given| given.starts_with(key)));
    found.map_or(Ok(()), |column| in_use(format!("the column `{column}` {what}"), how))
}

/// A column that files may have under another name than the schema.
pub fn renamed_column(schema: &StructType) -> Option<String> {
    let is_other = |name: &Value, field: &StructField| name.as_str().is_some_and(|name| name != field.name);
    schema.first_field(&|field| field.metadata.get(PHYSICAL_NAME).is_some_and(|name| is_other(name, field)))
}

/// A column of which files may have narrower values.
pub fn widened_column(schema: &StructType) -> Option<String> {
    schema.first_field(&|field| field.metadata.contains_key(TYPE_CHANGES))
}

fn without_type_changes(schema: &StructType) -> StructType {
    map_each(schema, &|field: &StructField| {
        let mut field = field.clone();
        field.metadata.remove(TYPE_CHANGES);
        field
    })
}
