//! The metadata and protocol after RESTORE: those of the older version, except for counters that never go back.
//!
//! Column ids, numbers of identity columns and in-commit timestamps were given out since, and checkpoints protect
//! versions that are still there. The protocol is lowered only if the caller asks for it: the versions in between need it.
//! The feature that protects checkpoints stays even then, since the versions of these checkpoints stay.
//!
//! Cases are in `tests/rust/protocol/restore.rs`.
//!
//! PROTOCOL.md: "Change Metadata", "Column Mapping", "Identity Columns", "In-Commit Timestamps".

use std::collections::BTreeMap;

use super::CHECKPOINT_PROTECTION_VERSION;
use crate::action::{Metadata, Protocol};
use crate::error::{Error, Result};
use crate::feature;
use crate::property::Properties;
use crate::schema::identity::{Identity, with_watermarks};
use crate::schema::mapping::PHYSICAL_NAME;
use crate::schema::{StructField, StructType, json};
use crate::validation::MAX_COLUMN_ID;

const PROTECTING: &str = "checkpointProtection";
const ENABLED: &str = "delta.enableInCommitTimestamps";
const PROVENANCE: [&str; 2] =
    ["delta.inCommitTimestampEnablementVersion", "delta.inCommitTimestampEnablementTimestamp"];

/// Protocol and metadata after going from `newest` back to `old`; no protocol if it stays.
///
/// # Errors
/// `Invalid` if row tracking was dropped since: ids that were given out then are not known any more. `Corrupt` for a schema
/// or a property that cannot be read, `Unsupported` if deltic could not write the table then.
pub fn restored(
    newest: (&Protocol, &Metadata),
    old: (&Protocol, &Metadata),
    lowers_protocol: bool,
) -> Result<(Option<Protocol>, Metadata)> {
    let (had, has) = (feature::supported(old.0), feature::supported(newest.0));
    let protocol = match lowers_protocol {
        true if has.contains(PROTECTING) => feature::merged(old.0, &protecting()),
        true => old.0.clone(),
        false => feature::merged(newest.0, old.0),
    };
    if had.contains("rowTracking") && !has.contains("rowTracking") {
        let message = "the older version tracks rows, and row tracking was dropped from the table since, with its \
                       ids: the table cannot be restored to it. Enable row tracking first \
                       (`Table.enable_row_tracking`), or clone the older version";
        return Err(Error::invalid(message));
    }
    let after = feature::supported(&protocol);
    let mut metadata = old.1.clone();
    keep_identities(newest.1, &mut metadata)?;
    keep_largest_id(newest.1, &mut metadata)?;
    if after.contains(PROTECTING) {
        keep(newest.1, &mut metadata, CHECKPOINT_PROTECTION_VERSION);
    }
    if after.contains("inCommitTimestamp") {
        keep_times(newest.1, &mut metadata)?;
    }
    feature::check_writable(&protocol, &metadata, &*metadata.schema()?)?;
    Ok(((protocol != *newest.0).then_some(protocol), metadata))
}

/// The lowest protocol that protects checkpoints.
fn protecting() -> Protocol {
    let writer_features = Some(vec![PROTECTING.to_owned()]);
    Protocol { min_reader_version: 1, min_writer_version: 7, reader_features: None, writer_features }
}

/// Keeps the largest column id, so that no id is given out twice.
pub(super) fn keep_largest_id(newest: &Metadata, metadata: &mut Metadata) -> Result<()> {
    let given = Properties::of(newest).max_column_id()?;
    if let Some(id) = given.max(Properties::of(metadata).max_column_id()?) {
        metadata.configuration.insert(MAX_COLUMN_ID.to_owned(), id.to_string());
    }
    Ok(())
}

/// Keeps in-commit timestamps enabled, and the version and time from which on commits have them.
///
/// # Errors
/// `Corrupt` if the property cannot be read.
pub(super) fn keep_times(newest: &Metadata, metadata: &mut Metadata) -> Result<()> {
    PROVENANCE.iter().for_each(|key| drop(metadata.configuration.remove(*key)));
    if Properties::of(newest).is_true(ENABLED)? {
        metadata.configuration.insert(ENABLED.to_owned(), "true".to_owned());
        PROVENANCE.iter().for_each(|key| keep(newest, metadata, key));
    }
    Ok(())
}

pub(super) fn keep(newest: &Metadata, metadata: &mut Metadata, key: &str) {
    if let Some(value) = newest.configuration.get(key) {
        metadata.configuration.insert(key.to_owned(), value.clone());
    }
}

/// Keeps the high watermarks of identity columns, whatever the columns are called now, so that no number is given out twice.
fn keep_identities(newest: &Metadata, metadata: &mut Metadata) -> Result<()> {
    let mut given = BTreeMap::new();
    for field in &newest.schema()?.fields {
        if let Some(number) = Identity::of(field)?.and_then(|identity| identity.watermark) {
            given.insert(stored_name(field).to_owned(), number);
        }
    }
    let schema = metadata.schema()?;
    // Column mapping may have been dropped since, and perhaps enabled again: then files have the column under its name.
    let number = |field: &StructField| given.get(stored_name(field)).or_else(|| given.get(&field.name)).copied();
    let by_name = |field: &StructField| Some((field.name.clone(), number(field)?));
    let given: BTreeMap<String, i64> = schema.fields.iter().filter_map(by_name).collect();
    let counted: StructType = with_watermarks(&schema, &given)?;
    if counted.fields != schema.fields {
        metadata.schema_string = json::to_json(&counted);
    }
    Ok(())
}

/// The name that a column keeps when it is renamed.
fn stored_name(field: &StructField) -> &str {
    field.metadata.get(PHYSICAL_NAME).and_then(|name| name.as_str()).unwrap_or(&field.name)
}
