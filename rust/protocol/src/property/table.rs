//! The table of all properties: name, default, possible values.

use std::collections::BTreeMap;

use super::interval::parse_interval;
use super::properties::{
    Properties, auto_compact, byte_size, checkpoint_policy, column_mapping, compression, excerpt, flag,
    indexed_columns, isolation_level, page_version, positive, prefix_length,
};
use crate::error::{Error, Result};
use crate::schema::mapping::ColumnMapping;
use crate::schema::path;

/// Whether manifests are kept up to date after each commit.
const MANIFESTS: &str = "delta.compatibility.symlinkFormatManifest.enabled";

/// The allowed values of a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Allowed {
    Flag,
    Positive,
    PrefixLength,
    IndexedColumns,
    Interval,
    Bytes,
    ColumnList,
    AutoCompact,
    CheckpointPolicy,
    IsolationLevel,
    ColumnMapping,
    Compression,
    PageVersion,
    Text,
    /// Only writers set it, as part of something else.
    Internal,
}

/// A property that the protocol or delta-spark defines.
#[derive(Debug, Clone, Copy)]
pub struct Property {
    /// The key.
    pub name: &'static str,
    /// The default, as text for the documentation.
    pub default: &'static str,
    /// What it is for.
    pub about: &'static str,
    allowed: Allowed,
}

const fn row(name: &'static str, allowed: Allowed, default: &'static str, about: &'static str) -> Property {
    Property { name, default, about, allowed }
}

/// Every property by name, in the order of the documentation.
#[rustfmt::skip]
pub const PROPERTIES: &[Property] = &[
    row("delta.appendOnly", Allowed::Flag, "false", "rows may only be added"),
    row("delta.autoOptimize", Allowed::Flag, "unset", "old name of the next two; true sets both"),
    row("delta.autoOptimize.autoCompact", Allowed::AutoCompact, "false", "`true` or `auto`: after a write, small files are compacted if there are many"),
    row("delta.autoOptimize.optimizeWrite", Allowed::Flag, "unset", "hint for other engines: deltic writes few files anyway, and in Spark with the option `optimize_write`"),
    row("delta.castIcebergTimeType", Allowed::Flag, "false", "not used by deltic: used when an Iceberg table is converted"),
    row("delta.checkpoint.writeStatsAsJson", Allowed::Flag, "true", "checkpoints have statistics as JSON"),
    row("delta.checkpoint.writeStatsAsStruct", Allowed::Flag, "true", "checkpoints have statistics in typed columns; the protocol's own default is false"),
    row("delta.checkpointInterval", Allowed::Positive, "10", "commits between checkpoints"),
    row("delta.checkpointPolicy", Allowed::CheckpointPolicy, "classic", "`classic` or `v2`; `v2` adds the feature `v2Checkpoint`"),
    row("delta.checkpointRetentionDuration", Allowed::Interval, "2 days", "not used by deltic: how long checkpoints are kept"),
    row("delta.columnMapping.maxColumnId", Allowed::Internal, "0", "set by writers"),
    row("delta.columnMapping.mode", Allowed::ColumnMapping, "none", "`none`, `name` or `id`"),
    row("delta.compatibility.symlinkFormatManifest.enabled", Allowed::Flag, "false", "manifests for engines that cannot read Delta are kept up to date"),
    row("delta.coordinatedCommits.commitCoordinator-preview", Allowed::Internal, "unset", "set by catalogs"),
    row("delta.coordinatedCommits.commitCoordinatorConf-preview", Allowed::Internal, "unset", "set by catalogs"),
    row("delta.coordinatedCommits.tableConf-preview", Allowed::Internal, "unset", "set by catalogs"),
    row("delta.dataSkippingNumIndexedCols", Allowed::IndexedColumns, "32", "leaf columns with statistics; -1 for all"),
    row("delta.dataSkippingStatsColumns", Allowed::ColumnList, "unset", "the columns with statistics, instead of their number"),
    row("delta.dataSkippingStringPrefixLength", Allowed::Positive, "32", "how many characters of a string statistics keep"),
    row("delta.deletedFileRetentionDuration", Allowed::Interval, "1 week", "how long removed files are kept"),
    row("delta.dropFeatureTruncateHistory.retentionDuration", Allowed::Interval, "24 hours", "how long versions with traces of a feature are kept before it is dropped with `truncate_history`"),
    row("delta.enableChangeDataCapture", Allowed::Flag, "false", "old name of `delta.enableChangeDataFeed`"),
    row("delta.enableChangeDataFeed", Allowed::Flag, "false", "changed rows are recorded"),
    row("delta.enableDeletionVectors", Allowed::Flag, "false", "writers may make deletion vectors"),
    row("delta.enableExpiredLogCleanup", Allowed::Flag, "true", "writers may remove expired log files"),
    row("delta.enableFullRetentionRollback", Allowed::Flag, "true", "not used by deltic: keep the files that a restore within the retention needs"),
    row("delta.enableIcebergCompatV1", Allowed::Flag, "false", "readable as Iceberg"),
    row("delta.enableIcebergCompatV2", Allowed::Flag, "false", "readable as Iceberg"),
    row("delta.enableIcebergCompatV3", Allowed::Flag, "false", "readable as Iceberg"),
    row("delta.enableIcebergWriterCompatV1", Allowed::Flag, "false", "writable through Iceberg"),
    row("delta.enableIcebergWriterCompatV3", Allowed::Flag, "false", "writable through Iceberg"),
    row("delta.enableInCommitTimestamps", Allowed::Flag, "false", "commits have their own time"),
    row("delta.enableMaterializePartitionColumnsFeature", Allowed::Flag, "false", "data files have the partition columns too"),
    row("delta.enableRowTracking", Allowed::Flag, "false", "rows keep ids"),
    row("delta.enableTypeWidening", Allowed::Flag, "false", "column types may be widened"),
    row("delta.enableVariantShredding", Allowed::Flag, "false", "variants are shredded"),
    row("delta.ignoreProtocolDefaults", Allowed::Flag, "false", "not used by deltic, which has no such defaults: create the table with the requested protocol"),
    row("delta.ignoreIcebergBucketPartition", Allowed::Flag, "false", "not used by deltic: used when an Iceberg table is converted"),
    row("delta.inCommitTimestampEnablementTimestamp", Allowed::Internal, "unset", "set by writers"),
    row("delta.inCommitTimestampEnablementVersion", Allowed::Internal, "unset", "set by writers"),
    row("delta.isolationLevel", Allowed::IsolationLevel, "Serializable", "`Serializable`, `WriteSerializable` or `SnapshotIsolation`"),
    row("delta.logRetentionDuration", Allowed::Interval, "30 days", "how long the log is kept"),
    row("delta.minReaderVersion", Allowed::Positive, "1", "raises the protocol; not stored"),
    row("delta.minWriterVersion", Allowed::Positive, "2", "raises the protocol; not stored"),
    row("delta.parquet.compression.codec", Allowed::Compression, "zstd", "`uncompressed`, `none`, `snappy`, `gzip`, `lz4`, `lz4_raw`, `brotli` or `zstd`"),
    row("delta.parquet.format.version", Allowed::PageVersion, "1.0.0", "`1.0.0` or `2.<minor>.<patch>`"),
    row("delta.randomPrefixLength", Allowed::PrefixLength, "2", "characters of a random prefix, up to 255"),
    row("delta.randomizeFilePrefixes", Allowed::Flag, "false", "data files are in folders with random names instead of partition directories"),
    row("delta.redirectReaderWriter-preview", Allowed::Internal, "unset", "set by catalogs"),
    row("delta.redirectWriterOnly-preview", Allowed::Internal, "unset", "set by catalogs"),
    row("delta.requireCheckpointProtectionBeforeVersion", Allowed::Internal, "0", "set by writers that drop features"),
    row("delta.rowTracking.materializedRowCommitVersionColumnName", Allowed::Internal, "unset", "set by writers"),
    row("delta.rowTracking.materializedRowIdColumnName", Allowed::Internal, "unset", "set by writers"),
    row("delta.rowTrackingSuspended", Allowed::Flag, "false", "new rows get no ids for the time being"),
    row("delta.sampleRetentionDuration", Allowed::Interval, "7 days", "not used by deltic or other clients"),
    row("delta.setTransactionRetentionDuration", Allowed::Interval, "unset", "how long `txn` actions are kept"),
    row("delta.targetFileSize", Allowed::Bytes, "unset", "target size of data files in bytes"),
    row("delta.tuneFileSizesForRewrites", Allowed::Flag, "unset", "hint for other engines"),
    row("delta.universalFormat.enabledFormats", Allowed::Text, "unset", "other formats as which the table can be read"),
    row("delta.universalFormat.iceberg.atomicConversion.supported", Allowed::Internal, "unset", "set by catalogs"),
    row("delta.writePartitionColumnsToParquet", Allowed::Flag, "false", "data files have the partition columns too"),
];

/// Prefixes of properties whose names the caller completes.
const OPEN_NAMES: [&str; 2] = [FEATURE_PREFIX, "delta.constraints."];

const FEATURE_PREFIX: &str = "delta.feature.";

/// Whether a property that a caller sets only changes the protocol and is not stored in the metadata.
pub fn is_instruction(key: &str) -> bool {
    key.starts_with(FEATURE_PREFIX)
        || matches!(key, "delta.minReaderVersion" | "delta.minWriterVersion" | "delta.ignoreProtocolDefaults")
}

/// The properties that are stored in the table's metadata, of those that a caller sets.
pub fn stored(properties: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    properties.iter().filter(|(key, _)| !is_instruction(key)).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// Refuses properties that a caller may not set: unknown names that begin with `delta.`, malformed values, and properties that
/// only writers maintain; also properties that exclude each other. Other names are free.
pub fn check_settable(properties: &BTreeMap<String, String>) -> Result<()> {
    properties.iter().try_for_each(|(key, value)| check_one(key, value))?;
    check_exclusive(properties)
}

/// Refuses to remove a property that only writers maintain: files that were written with it would be read wrong.
pub fn check_unset(key: &str) -> Result<()> {
    match PROPERTIES.iter().find(|p| p.name == key && p.allowed == Allowed::Internal) {
        Some(p) => Err(Error::invalid(format!(
            "the table property `{key}` cannot be unset: it is {}, not by hand; leave it as it is",
            p.about
        ))),
        None => Ok(()),
    }
}

/// Refuses properties that may not be set together.
pub(crate) fn check_exclusive(properties: &BTreeMap<String, String>) -> Result<()> {
    if Properties::new(properties).contradicts_row_tracking()? {
        let message = "`delta.enableRowTracking` and `delta.rowTrackingSuspended` cannot both be true: rows would have ids \
                       and new files would give them none; set one of them to false";
        return Err(Error::invalid(message));
    }
    Ok(())
}

/// Refuses a table with manifests that has properties with which manifests cannot be written.
pub(crate) fn check_manifests(properties: &BTreeMap<String, String>) -> Result<()> {
    let properties = Properties::new(properties);
    if !properties.is_true(MANIFESTS)? {
        return Ok(());
    }
    let (other, why, instead) = if properties.is_true("delta.enableDeletionVectors")? {
        let instead = "set it to false, and call `Table.purge()` if files have vectors already";
        ("delta.enableDeletionVectors", "see deleted rows", instead)
    } else if properties.column_mapping_mode()? != ColumnMapping::None {
        ("delta.columnMapping.mode", "not find the columns by their names", "drop the feature `columnMapping`")
    } else {
        return Ok(());
    };
    Err(Error::invalid(format!(
        "`{MANIFESTS}` and `{other}` exclude each other: engines that read manifests would {why}; {instead}, or do \
         without manifests (`{MANIFESTS}` = false)"
    )))
}

fn check_one(key: &str, value: &str) -> Result<()> {
    let Some(property) = PROPERTIES.iter().find(|p| p.name == key) else {
        let reserved = key.get(..6).is_some_and(|head| head.eq_ignore_ascii_case("delta."));
        if !reserved || OPEN_NAMES.iter().any(|open| key.len() > open.len() && key.starts_with(open)) {
            return Ok(());
        }
        return Err(Error::invalid(format!(
            "there is no table property `{}`; did you mean {}? Names that do not begin with `delta.` can be chosen freely",
            excerpt(key),
            nearest(key).join(" or ")
        )));
    };
    let verdict = match property.allowed {
        Allowed::Flag => flag(value).map(drop),
        Allowed::Positive => positive(value).map(drop),
        Allowed::PrefixLength => prefix_length(value).map(drop),
        Allowed::IndexedColumns => indexed_columns(value).map(drop),
        Allowed::Interval => parse_interval(value).map(drop),
        Allowed::Bytes => byte_size(value).map(drop),
        Allowed::ColumnList => path::parse_list(value).map(drop),
        Allowed::AutoCompact => auto_compact(value).map(drop),
        Allowed::CheckpointPolicy => checkpoint_policy(value).map(drop),
        Allowed::IsolationLevel => isolation_level(value).map(drop),
        Allowed::ColumnMapping => column_mapping(value).map(drop),
        Allowed::Compression => compression(value).map(drop),
        Allowed::PageVersion => page_version(value).map(drop),
        Allowed::Text => Ok(()),
        Allowed::Internal => Err(format!("it is {}, not by hand", property.about)),
    };
    verdict.map_err(|why| Error::invalid(format!("the table property `{key}` cannot be `{}`: {why}", excerpt(value))))
}

/// The two names that differ least.
fn nearest(key: &str) -> Vec<String> {
    // The time for the distance grows with the product of the lengths; no name is this long.
    let key: String = key.chars().take(100).collect::<String>().to_lowercase();
    let mut names: Vec<(usize, &str)> =
        PROPERTIES.iter().map(|p| (distance(&key, &p.name.to_lowercase()), p.name)).collect();
    names.sort_unstable();
    names.into_iter().take(2).map(|(_, name)| format!("`{name}`")).collect()
}

/// How many characters to insert, delete or replace to make one text the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut above_left = i;
        let mut left = i + 1;
        let mut current = vec![left];
        for (y, above) in b.iter().zip(row.iter().skip(1)) {
            let replace = above_left + usize::from(x != *y);
            left = replace.min(left + 1).min(above + 1);
            above_left = *above;
            current.push(left);
        }
        row = current;
    }
    row.last().copied().unwrap_or(0)
}
