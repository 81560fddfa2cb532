//! Table features: which exist, which deltic reads and writes, and which a new table needs.
//!
//! A table may be read if deltic has every feature that its readers must have. It may be appended to if, moreover, nothing
//! in its protocol, properties or schema needs a writer that does more than deltic. What a table *uses* is checked
//! whether or not its protocol allows the use: a refusal costs less than a row that violates a constraint.
//!
//! Malformed protocols: features listed below version 3 or 7 are checked like any others; a version 3 or 7 without a list
//! does not say what it needs and is refused (`Corrupt`); version 3 with a writer version below 7 is read, not written.
//!
//! Invariants: an unknown feature is never ignored (`feature::properties::unknown_features_are_refused`); a new
//! table's protocol passes both checks (`feature::properties::new_tables_are_readable_and_writable`).
//!
//! PROTOCOL.md: "Table Features", "Requirements for Writers", "Requirements for Readers".

use std::collections::{BTreeMap, BTreeSet};

use crate::action::{Metadata, Protocol};
use crate::error::{Error, Kind, Result};
use crate::property::{self, Properties};
use crate::schema::{StructField, StructType};

mod iceberg;
mod table;
mod usage;

pub use table::{FEATURES, Feature, UNLISTED, docs_table};
use table::{Reading, Writing};
use usage::{Table, Use};

/// Newest reader version, the one with named features.
pub const READER_VERSION: i32 = 3;

/// Newest writer version, the one with named features.
pub const WRITER_VERSION: i32 = 7;

/// Writer version of new tables that need nothing more.
const PLAIN_WRITER_VERSION: i32 = 2;

const FEATURE_PREFIX: &str = "delta.feature.";

/// Uses that are valid only with one of these features. Without it some writer made a mistake, and it is unknown what the
/// table's files have.
const NEED_FEATURE: &[(Use, &[&str])] = &[
    (Use::Property("delta.enableRowTracking"), &["rowTracking"]),
    (Use::Property("delta.enableInCommitTimestamps"), &["inCommitTimestamp"]),
    (Use::Property("delta.enableTypeWidening"), &["typeWidening", "typeWidening-preview"]),
    (Use::ColumnMapping, &["columnMapping"]),
    (Use::IdentityColumns, &["identityColumns"]),
    (Use::Invariants, &["invariants"]),
    (Use::Constraints, &["checkConstraints"]),
    (Use::GeneratedColumns, &["generatedColumns"]),
    (Use::ColumnDefaults, &["allowColumnDefaults"]),
    (Use::Property("delta.enableIcebergCompatV1"), &["icebergCompatV1"]),
    (Use::Property("delta.enableIcebergCompatV2"), &["icebergCompatV2"]),
    (Use::Property("delta.enableIcebergCompatV3"), &["icebergCompatV3"]),
    (Use::Property("delta.enableIcebergWriterCompatV1"), &["icebergWriterCompatV1"]),
    (Use::Property("delta.enableIcebergWriterCompatV3"), &["icebergWriterCompatV3"]),
];

/// Features that require others, which must be added before. Row tracking and clustering add the features that they require
/// themselves.
const NEEDS: &[(&str, &[&str])] = &[
    ("icebergCompatV1", &["columnMapping"]),
    ("icebergCompatV2", &["columnMapping"]),
    ("icebergCompatV3", &["columnMapping", "rowTracking"]),
    ("icebergWriterCompatV1", &["icebergCompatV2"]),
    ("icebergWriterCompatV3", &["icebergCompatV3"]),
    ("variantShredding", &["variantType"]),
    ("collations", &["domainMetadata"]),
    ("columnMappingUsageTracking", &["columnMapping"]),
];

/// Uses, each with the feature that it needs.
const USED_BY: &[(Use, &str)] = &[
    (Use::Invariants, "invariants"),
    (Use::Constraints, "checkConstraints"),
    (Use::Property("delta.enableChangeDataFeed"), "changeDataFeed"),
    (Use::Property("delta.enableChangeDataCapture"), "changeDataFeed"),
    (Use::GeneratedColumns, "generatedColumns"),
    (Use::ColumnMapping, "columnMapping"),
    (Use::IdentityColumns, "identityColumns"),
    (Use::Property("delta.enableDeletionVectors"), "deletionVectors"),
    (Use::Property("delta.enableTypeWidening"), "typeWidening"),
    (Use::Property("delta.enableRowTracking"), "rowTracking"),
    (Use::ColumnDefaults, "allowColumnDefaults"),
    (Use::Property("delta.enableInCommitTimestamps"), "inCommitTimestamp"),
    (Use::Property("delta.enableIcebergCompatV1"), "icebergCompatV1"),
    (Use::Property("delta.enableIcebergCompatV2"), "icebergCompatV2"),
    (Use::Property("delta.enableIcebergCompatV3"), "icebergCompatV3"),
    (Use::Property("delta.enableIcebergWriterCompatV1"), "icebergWriterCompatV1"),
    (Use::Property("delta.enableIcebergWriterCompatV3"), "icebergWriterCompatV3"),
    (Use::Property("delta.enableVariantShredding"), "variantShredding"),
    (Use::Property("delta.enableMaterializePartitionColumnsFeature"), "materializePartitionColumns"),
];

/// The feature of that name, also by other names that some writers use for it.
pub fn find(name: &str) -> Option<&'static Feature> {
    // Some writers call `timestampNtz` by the name of its type.
    let name = if name == "timestampWithoutTimezone" { "timestampNtz" } else { name };
    FEATURES.iter().find(|f| f.name == name)
}

/// Features that prevent an operation, with the reason of each.
#[derive(Default)]
struct Refusal(BTreeMap<String, String>);

impl Refusal {
    fn add(&mut self, name: &str, reason: impl Into<String>) {
        self.0.entry(name.to_owned()).or_insert_with(|| reason.into());
    }

    fn verdict(self, what: &str) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let reasons: Vec<String> = self.0.iter().map(|(name, reason)| format!("`{name}` ({reason})")).collect();
        let message = format!("deltic cannot {what} this table because of {}", reasons.join(", "));
        Err(Error::new(Kind::Unsupported { features: self.0.into_keys().collect() }, message))
    }
}

/// Refuses tables that deltic cannot read correctly, naming every feature that prevents it.
pub fn check_readable(protocol: &Protocol) -> Result<()> {
    let mut refusal = Refusal::default();
    if protocol.min_reader_version > READER_VERSION {
        let version = protocol.min_reader_version;
        refusal.add(&format!("reader version {version}"), format!("deltic reads up to {READER_VERSION}; upgrade it"));
    }
    if protocol.min_reader_version == READER_VERSION && protocol.reader_features.is_none() {
        return Err(Error::corrupt("the protocol asks for reader version 3 but lists no readerFeatures"));
    }
    for name in protocol.reader_features.iter().flatten() {
        match find(name).map(|f| f.reading) {
            Some(Reading::Supported | Reading::NotNeeded) => {}
            Some(Reading::Refused(why)) => refusal.add(name, why),
            None => refusal.add(name, "not known to this version of deltic; upgrade it"),
        }
    }
    refusal.verdict("read")
}

/// Refuses tables to which deltic cannot append correctly, naming every feature that prevents it.
///
/// Nullability and `delta.appendOnly` are the writer's own checks: the first needs the rows, the second the operation.
pub fn check_writable(protocol: &Protocol, metadata: &Metadata, schema: &StructType) -> Result<()> {
    check_readable(protocol)?;
    let version = protocol.min_writer_version;
    let mut refusal = Refusal::default();
    if version > WRITER_VERSION {
        refusal.add(&format!("writer version {version}"), format!("deltic writes up to {WRITER_VERSION}; upgrade it"));
    }
    if version == WRITER_VERSION && protocol.writer_features.is_none() {
        return Err(Error::corrupt("the protocol asks for writer version 7 but lists no writerFeatures"));
    }
    if protocol.min_reader_version == READER_VERSION && version < WRITER_VERSION {
        return Err(Error::corrupt(format!(
            "the protocol has reader version 3 with writer version {version}, which must be 7"
        )));
    }
    for name in protocol.writer_features.iter().chain(&protocol.reader_features).flatten() {
        match find(name).map(|f| f.writing) {
            Some(Writing::Supported | Writing::UnlessUsed(_)) => {}
            Some(Writing::Refused(why)) => refusal.add(name, why),
            None => refusal.add(name, "not known to this version of deltic; upgrade it"),
        }
    }
    refuse_uses(
        &in_force(protocol),
        Table { properties: Properties::of(metadata), metadata: Some(metadata), schema },
        &mut refusal,
    )?;
    if let Some((name, column)) = usage::foreign_type(schema) {
        let instead = "write by the engine that made it, or copy the rows to a table without that type";
        refusal.add(&format!("type {name}"), format!("column `{column}` has it; {instead}"));
    }
    refusal.verdict("write to")?;
    check_types_are_declared(&listed(protocol), schema)
}

/// Features that appends do not support, and that need nothing of a checkpoint but to keep all actions.
const CHECKPOINTED: &[&str] = &["icebergNativeV4-preview"];

/// Refuses tables of which deltic cannot make a checkpoint at `version`, naming every feature that prevents it.
///
/// A checkpoint replaces the commits before it, so actions that an unknown feature needs might be lost.
pub fn check_checkpointable(protocol: &Protocol, metadata: &Metadata, version: u64) -> Result<()> {
    check_readable(protocol)?;
    let mut refusal = Refusal::default();
    if protocol.min_writer_version > WRITER_VERSION {
        let asked = protocol.min_writer_version;
        refusal.add(&format!("writer version {asked}"), format!("deltic writes up to {WRITER_VERSION}; upgrade it"));
    }
    for name in protocol.writer_features.iter().chain(&protocol.reader_features).flatten() {
        match find(name).map(|f| f.writing) {
            Some(Writing::Supported | Writing::UnlessUsed(_)) => {}
            Some(Writing::Refused(_)) if CHECKPOINTED.contains(&name.as_str()) => {}
            Some(Writing::Refused(why)) => refusal.add(name, why),
            None => refusal.add(name, "not known to this version of deltic; upgrade it"),
        }
    }
    let first = Properties::of(metadata).checkpoint_protection()?;
    if listed(protocol).contains("checkpointProtection") && version < first {
        refusal.add("checkpointProtection", format!("there may be no new checkpoints before version {first}"));
    }
    refusal.verdict("write a checkpoint of")
}

/// The features that a protocol has, listed or implied by its versions, by the names that it uses.
pub fn supported(protocol: &Protocol) -> BTreeSet<String> {
    let names = protocol.writer_features.iter().chain(&protocol.reader_features).flatten();
    let mut supported: BTreeSet<String> = names.cloned().collect();
    let writer = if protocol.min_writer_version < WRITER_VERSION { protocol.min_writer_version } else { 0 };
    let reader = if protocol.min_reader_version < READER_VERSION { protocol.min_reader_version } else { 0 };
    let implied = FEATURES
        .iter()
        .filter(|f| f.writer_version.is_some_and(|v| v <= writer) && f.reader_version.is_none_or(|v| v <= reader));
    supported.extend(implied.map(|f| f.name.to_owned()));
    supported
}

/// Refuses to create a table that breaks a rule of one of its features, as those of Iceberg have.
///
/// # Errors
/// `Unsupported`, naming features and rules.
pub fn check_rules(protocol: &Protocol, metadata: &Metadata, schema: &StructType) -> Result<()> {
    let mut refusal = Refusal::default();
    let table = Table { properties: Properties::of(metadata), metadata: Some(metadata), schema };
    for (feature, reason) in iceberg::broken(&in_force(protocol), table)? {
        refusal.add(feature, reason);
    }
    refusal.verdict("create")
}

/// Whether new data files of the table have the partition columns too, after the others.
///
/// # Errors
/// `Corrupt` for a property that cannot be read.
pub fn materializes_partition_columns(protocol: &Protocol, metadata: &Metadata) -> Result<bool> {
    iceberg::materializes_partition_columns(&in_force(protocol), Properties::of(metadata))
}

/// Whether variants in new data files may be split into typed columns: the table has the feature and its property says so.
///
/// # Errors
/// `Corrupt` for a property that cannot be read.
pub fn shreds_variants(protocol: &Protocol, metadata: &Metadata) -> Result<bool> {
    let in_force = in_force(protocol);
    let has_feature = ["variantShredding", "variantShredding-preview"].iter().any(|name| in_force.contains(name));
    Ok(Properties::of(metadata).is_true("delta.enableVariantShredding")? && has_feature)
}

/// Features that the protocol lists for writers or readers, under the names of [`FEATURES`].
fn listed(protocol: &Protocol) -> BTreeSet<&'static str> {
    let names = protocol.writer_features.iter().chain(&protocol.reader_features).flatten();
    names.filter_map(|name| find(name)).map(|f| f.name).collect()
}

/// The features whose rules hold in a table with this protocol, under the names of [`FEATURES`]. A reader feature
/// is in force only if `readerFeatures` lists it.
fn in_force(protocol: &Protocol) -> BTreeSet<&'static str> {
    let listed = protocol.reader_features.iter().flatten().filter_map(|name| find(name)).map(|f| f.name);
    let listed: BTreeSet<&'static str> = listed.collect();
    let version = protocol.min_reader_version;
    let is_implied =
        |f: &Feature| version < READER_VERSION && f.reader_version.is_some_and(|implied| implied <= version);
    let for_readers = |feature: &Feature| listed.contains(feature.name) || is_implied(feature);
    let supported = supported(protocol);
    let known = supported.iter().filter_map(|name| find(name));
    known.filter(|feature| !feature.is_for_readers() || for_readers(feature)).map(|feature| feature.name).collect()
}

/// Adds every feature that properties or schema use in a way deltic cannot write.
fn refuse_uses(listed: &BTreeSet<&'static str>, table: Table<'_>, refusal: &mut Refusal) -> Result<()> {
    for (i, feature) in FEATURES.iter().enumerate() {
        let Writing::UnlessUsed(rule) = feature.writing else { continue };
        if !listed.contains(feature.name) {
            // A preview has the same rule as the final feature. The use is reported by the name that the table lists,
            // or else by the first name.
            let same = |f: &Feature| f.writing == feature.writing;
            let named = FEATURES.iter().any(|f| same(f) && listed.contains(f.name));
            if named || FEATURES.iter().take(i).any(same) {
                continue;
            }
        }
        if let Some(reason) = rule.find(table)? {
            refusal.add(feature.name, reason);
        }
    }
    for (rule, features) in NEED_FEATURE {
        if let (Some(reason), Some(feature)) = (rule.find(table)?, features.first())
            && !features.iter().any(|name| listed.contains(name))
        {
            refusal.add(feature, format!("{reason}, and the protocol does not list it"));
        }
    }
    let nested = |field: &StructField| usage::nested_identity(field);
    if let Some(column) = table.schema.fields.iter().find_map(nested) {
        refusal.add("identityColumns", format!("column `{column}` is an identity inside another column"));
    }
    for feature in ["rowTracking", "clustering"] {
        if listed.contains(feature) && !listed.contains("domainMetadata") {
            refusal.add(feature, "the protocol does not list `domainMetadata`, which it needs");
        }
    }
    if listed.contains("clustering") && table.metadata.is_some_and(|metadata| !metadata.partition_columns.is_empty()) {
        refusal.add("clustering", "the table is partitioned, and no table can be both");
    }
    if table.properties.contradicts_row_tracking()? {
        refusal.add("rowTracking", "`delta.enableRowTracking` and `delta.rowTrackingSuspended` are both true");
    }
    // Only for an existing table: the rules concern the whole schema, which a new property or column does not show.
    if table.metadata.is_some() {
        for (feature, reason) in iceberg::broken(listed, table)? {
            refusal.add(feature, reason);
        }
    }
    Ok(())
}

/// Refuses rows for a column of a type that needs a feature which the protocol does not list.
fn check_types_are_declared(listed: &BTreeSet<&'static str>, schema: &StructType) -> Result<()> {
    for (feature, column) in usage::type_features(schema) {
        // A preview has the types of the final feature.
        if !listed.iter().any(|name| name.split('-').next() == Some(feature)) {
            return Err(Error::corrupt(format!(
                "column `{column}` has a type that needs the feature `{feature}`, which the protocol does not list; \
                 add the feature to the table first"
            )));
        }
    }
    Ok(())
}

/// The protocol of a new table with this schema and these properties, as low as it can be.
///
/// `Invalid` for properties that do not exist or have invalid values ([`property::check_settable`]), `Unsupported`
/// for those that would make a table deltic cannot write. Versions 1 and 2 unless something needs more. Then the features are
/// listed at writer version 7, rather than implied by one of the versions 3 to 6, which would also require
/// constraints, generated columns and more of every writer.
pub fn protocol_for(schema: &StructType, properties: &BTreeMap<String, String>) -> Result<Protocol> {
    let protocol = lowest("create", &StructType::default(), schema, properties, BTreeSet::new())?;
    let has = supported(&protocol);
    check_needs(&has, &has)?;
    Ok(protocol)
}

/// As [`protocol_for`], for a table that may have more already. `what`: the operation, for the message. Uses of its columns
/// count if they are new.
fn lowest(
    what: &str,
    before: &StructType,
    schema: &StructType,
    properties: &BTreeMap<String, String>,
    has: BTreeSet<&'static str>,
) -> Result<Protocol> {
    property::check_settable(properties)?;
    let view = Properties::new(properties);
    let mut refusal = Refusal::default();
    let mut names: BTreeSet<&'static str> = usage::type_features(schema).into_iter().map(|(name, _)| name).collect();
    let none = BTreeMap::new();
    let old = Table { properties: Properties::new(&none), metadata: None, schema: before };
    let new = Table { properties: view, metadata: None, schema };
    for (rule, feature) in USED_BY {
        if rule.find(new)?.is_some() && rule.find(old)?.is_none() {
            names.insert(feature);
        }
    }
    if view.checkpoint_policy()? == property::CheckpointPolicy::TwoLevel {
        names.insert("v2Checkpoint");
    }
    for (key, value) in properties {
        let Some(name) = key.strip_prefix(FEATURE_PREFIX) else { continue };
        if !matches!(value.to_ascii_lowercase().as_str(), "supported" | "enabled") {
            return Err(Error::invalid(format!("`{key}` may only be `supported`")));
        }
        match find(name) {
            Some(feature) => drop(names.insert(feature.name)),
            None => return Err(Error::invalid(format!("`{key}` names a feature that does not exist"))),
        }
    }
    if names.contains("rowTracking") || names.contains("clustering") {
        // The highest row id and the clustering columns are kept in metadata domains.
        names.insert("domainMetadata");
    }
    if names.contains("variantShredding") {
        names.insert("variantType");
    }
    for name in &names {
        if let Some((Reading::Refused(why), _) | (_, Writing::Refused(why))) =
            find(name).map(|f| (f.reading, f.writing))
        {
            refusal.add(name, why);
        }
    }
    let listed = names.union(&has).copied().collect();
    refuse_uses(&listed, new, &mut refusal)?;
    if view.get("delta.universalFormat.enabledFormats").is_some_and(|formats| !formats.trim().is_empty()) {
        refusal.add("universalFormat", "`delta.universalFormat.enabledFormats` is set");
    }
    refusal.verdict(what)?;
    let reader = requested(view, "delta.minReaderVersion", READER_VERSION)?;
    let writer = requested(view, "delta.minWriterVersion", WRITER_VERSION)?;
    Ok(protocol_with(names, reader, writer))
}

/// The protocol of a table that is given properties (`delta.feature.…` among them) and goes from one schema to another;
/// `None` if it has all that they need.
///
/// # Errors
/// As [`protocol_for`].
pub fn upgraded(
    protocol: &Protocol,
    schemas: (&StructType, &StructType),
    properties: &BTreeMap<String, String>,
) -> Result<Option<Protocol>> {
    let needed = supported(&lowest("change", schemas.0, schemas.1, properties, in_force(protocol))?);
    let (before, plain) = (supported(protocol), supported(&protocol_with(BTreeSet::new(), 1, 1)));
    let only_appends = Properties::new(properties).append_only()?;
    let invariants_in =
        |schema| Use::Invariants.find(Table { properties: Properties::new(properties), metadata: None, schema });
    let has_invariants = invariants_in(schemas.1)?.is_some() && invariants_in(schemas.0)?.is_none();
    // A feature that every new table has counts as requested only if it was requested by name.
    let is_asked = |name: &str| {
        !plain.contains(name)
            || (name == "appendOnly" && only_appends)
            || (name == "invariants" && has_invariants)
            || properties.contains_key(&format!("{FEATURE_PREFIX}{name}"))
    };
    let has = |name: &str| before.contains(name) || before.contains(&format!("{name}-preview"));
    let missing: Vec<&String> = needed.iter().filter(|name| !has(name) && is_asked(name)).collect();
    if missing.is_empty() {
        return Ok(None);
    }
    if protocol.min_writer_version < PLAIN_WRITER_VERSION && missing.iter().all(|name| plain.contains(*name)) {
        return Ok(Some(Protocol { min_writer_version: PLAIN_WRITER_VERSION, ..protocol.clone() }));
    }
    let needed: BTreeSet<String> = needed.into_iter().filter(|name| before.contains(name) || !has(name)).collect();
    check_needs(&needed, &before.union(&needed).cloned().collect())?;
    let known = before.union(&needed).map(|name| find(name).map(|f| f.name).ok_or(name));
    let names = known.collect::<std::result::Result<BTreeSet<_>, _>>();
    let names = names.map_err(|name| Error::unsupported(name, format!("deltic does not know the feature `{name}`")))?;
    // Lists replace the features that the versions implied, all of which are in `before`.
    let reader = if protocol.min_reader_version == READER_VERSION { READER_VERSION } else { 1 };
    Ok(Some(protocol_with(names, reader, WRITER_VERSION)))
}

/// The protocol without a feature. All its other features are listed.
pub fn without(protocol: &Protocol, name: &str) -> Protocol {
    let mut names = supported(protocol);
    names.remove(name);
    listing(names)
}

/// The protocol with another feature, and all features listed.
pub fn with_listed(protocol: &Protocol, name: &str) -> Protocol {
    let mut names = supported(protocol);
    names.insert(name.to_owned());
    listing(names)
}

/// A protocol with every feature of two; the first of them unchanged, if it has all.
pub fn merged(newest: &Protocol, other: &Protocol) -> Protocol {
    let (has, more) = (supported(newest), supported(other));
    let covers = |one: &Protocol, two: &Protocol| {
        one.min_reader_version >= two.min_reader_version && one.min_writer_version >= two.min_writer_version
    };
    if has.is_superset(&more) && (covers(newest, other) || newest.min_writer_version == WRITER_VERSION) {
        return newest.clone();
    }
    if more.is_superset(&has) && covers(other, newest) {
        return other.clone();
    }
    let is_plain = |protocol: &Protocol| protocol.min_writer_version < WRITER_VERSION;
    match is_plain(newest) && is_plain(other) {
        true => Protocol {
            min_reader_version: newest.min_reader_version.max(other.min_reader_version),
            min_writer_version: newest.min_writer_version.max(other.min_writer_version),
            reader_features: None,
            writer_features: None,
        },
        false => listing(has.union(&more).cloned().collect()),
    }
}

/// The lowest protocol that lists exactly these features.
fn listing(names: BTreeSet<String>) -> Protocol {
    let is_for_readers = |name: &&String| find(name).is_some_and(Feature::is_for_readers);
    let for_readers: Vec<String> = names.iter().filter(is_for_readers).cloned().collect();
    let reader = if for_readers.is_empty() { 1 } else { READER_VERSION };
    Protocol {
        min_reader_version: reader,
        min_writer_version: WRITER_VERSION,
        reader_features: (reader == READER_VERSION).then_some(for_readers),
        writer_features: Some(names.into_iter().collect()),
    }
}

/// Refuses to add features to a table that lacks other features that they need.
fn check_needs(added: &BTreeSet<String>, has: &BTreeSet<String>) -> Result<()> {
    for (name, needs) in NEEDS.iter().filter(|(name, _)| added.contains(*name)) {
        let missing: Vec<String> =
            needs.iter().filter(|need| !has.contains(**need)).map(|n| format!("`{n}`")).collect();
        if !missing.is_empty() {
            let missing = missing.join(" and ");
            let message =
                format!("the feature `{name}` needs {missing}, which the table does not have; add that first");
            return Err(Error::invalid(message));
        }
    }
    Ok(())
}

/// The version that a property asks for.
fn requested(properties: Properties<'_>, key: &str, newest: i32) -> Result<i32> {
    match properties.get(key).map(|text| text.trim().parse::<i32>()) {
        None => Ok(1),
        Some(Ok(version)) if (1..=newest).contains(&version) => Ok(version),
        Some(_) => Err(Error::invalid(format!("`{key}` must be from 1 to {newest}"))),
    }
}

/// The lowest protocol with these features that is not below these versions.
fn protocol_with(mut names: BTreeSet<&'static str>, min_reader: i32, min_writer: i32) -> Protocol {
    // Reader version 2 means column mapping, which writers have from version 5 on.
    let implying = if min_writer == WRITER_VERSION { 2 } else { min_writer.max(if min_reader == 2 { 5 } else { 2 }) };
    if names.is_empty() && min_reader < READER_VERSION && min_writer < WRITER_VERSION {
        return Protocol {
            min_reader_version: min_reader,
            min_writer_version: implying,
            reader_features: None,
            writer_features: None,
        };
    }
    // Versions with lists imply nothing, so the lists name what the lower versions imply.
    names.extend(FEATURES.iter().filter(|f| f.writer_version.is_some_and(|v| v <= implying)).map(|f| f.name));
    names.extend((min_reader == 2).then_some("columnMapping"));
    let is_for_readers = |name: &&&str| find(name).is_some_and(Feature::is_for_readers);
    let for_readers: Vec<String> = names.iter().filter(is_for_readers).map(|name| (*name).to_owned()).collect();
    let reader = if for_readers.is_empty() && min_reader < READER_VERSION { 1 } else { READER_VERSION };
    Protocol {
        min_reader_version: reader,
        min_writer_version: WRITER_VERSION,
        reader_features: (reader == READER_VERSION).then_some(for_readers),
        writer_features: Some(names.into_iter().map(str::to_owned).collect()),
    }
}
