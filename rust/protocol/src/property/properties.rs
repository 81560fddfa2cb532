//! Table properties: their names, their values, and their defaults.
//!
//! Stored values are read when they are used: a malformed one is `Corrupt`, naming key and value, and affects only what
//! uses it. Values a caller wants to set are checked all at once by [`check_settable`](super::check_settable), and are
//! `Invalid` instead.
//!
//! The module `feature` knows what a property needs of the protocol.
//!
//! Invariant: every property has one row in [`PROPERTIES`](super::PROPERTIES), from which documentation and checks follow
//! (`feature::documented_defaults_are_the_defaults`).
//!
//! PROTOCOL.md: "Table Properties"; the names that it leaves to implementations are those of delta-spark.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::interval::parse_interval;
use crate::action::{Metadata, Protocol};
use crate::error::{Error, Result};
use crate::schema::mapping::ColumnMapping;
use crate::schema::{StructType, path};

const MILLIS_PER_DAY: i64 = 24 * 60 * 60 * 1000;

/// The isolation level: which commits since its base a commit may ignore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum IsolationLevel {
    /// As if all commits had happened one after the other.
    #[default]
    Serializable,
    /// Writes as if all commits had happened one after the other; reads may be older.
    WriteSerializable,
    /// Only commits that touch the same files collide.
    SnapshotIsolation,
}

impl IsolationLevel {
    /// Reads a level's name, in any spelling.
    pub fn parse(text: &str) -> Result<Self> {
        isolation_level(text)
            .map_err(|why| Error::invalid(format!("`{}` is not an isolation level: {why}", excerpt(text))))
    }

    /// The name that commits are given.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Serializable => "Serializable",
            Self::WriteSerializable => "WriteSerializable",
            Self::SnapshotIsolation => "SnapshotIsolation",
        }
    }
}

/// Which checkpoints a writer should make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CheckpointPolicy {
    /// One Parquet file.
    #[default]
    Classic,
    /// V2 spec, where the protocol has the feature `v2Checkpoint`.
    TwoLevel,
}

/// Compression of the Parquet files a writer makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// None.
    Uncompressed,
    /// Snappy.
    Snappy,
    /// Gzip.
    Gzip,
    /// LZ4 with Hadoop's framing; deprecated.
    Lz4,
    /// LZ4 blocks.
    Lz4Raw,
    /// Brotli.
    Brotli,
    /// Zstandard.
    #[default]
    Zstd,
}

/// Data pages of the Parquet files a writer makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PageVersion {
    /// `1.0.0`
    #[default]
    One,
    /// `2.x.y`
    Two,
}

/// The version from which on commits have in-commit timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InCommitTimestamps {
    /// The first version with a timestamp, and its time; `None` if all versions have one.
    pub since: Option<(u64, i64)>,
}

/// The columns in which files of a table with row tracking may store the ids and versions that rows had in other files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowTracking {
    /// Name, in files, of the column with row ids.
    pub row_id_column: Option<String>,
    /// Name, in files, of the column with row commit versions.
    pub row_commit_version_column: Option<String>,
}

/// Typed view of a table's properties.
#[derive(Debug, Clone, Copy)]
pub struct Properties<'a>(&'a BTreeMap<String, String>);

impl<'a> Properties<'a> {
    /// The properties in a table's metadata.
    pub fn of(metadata: &'a Metadata) -> Self {
        Self(&metadata.configuration)
    }

    /// The properties in a map.
    pub fn new(configuration: &'a BTreeMap<String, String>) -> Self {
        Self(configuration)
    }

    /// The text of a property.
    pub fn get(self, key: &str) -> Option<&'a str> {
        self.0.get(key).map(String::as_str)
    }

    /// The keys that are set.
    pub fn keys(self) -> impl Iterator<Item = &'a str> {
        self.0.keys().map(String::as_str)
    }

    /// `delta.checkpointInterval`: commits between checkpoints (10).
    pub fn checkpoint_interval(self) -> Result<u64> {
        self.read("delta.checkpointInterval", positive).map(|n| n.unwrap_or(10))
    }

    /// `delta.checkpoint.writeStatsAsJson`: whether checkpoints have statistics as JSON (true).
    pub fn checkpoint_write_stats_as_json(self) -> Result<bool> {
        self.flag("delta.checkpoint.writeStatsAsJson", true)
    }

    /// `delta.checkpoint.writeStatsAsStruct`: whether checkpoints hold statistics and partition values in columns.
    ///
    /// True when absent, as in delta-spark: the protocol's default is false, but with columns readers can
    /// plan without parsing JSON, and no reader needs them to be absent.
    pub fn checkpoint_write_stats_as_struct(self) -> Result<bool> {
        self.flag("delta.checkpoint.writeStatsAsStruct", true)
    }

    /// `delta.checkpointPolicy` (classic).
    pub fn checkpoint_policy(self) -> Result<CheckpointPolicy> {
        self.read("delta.checkpointPolicy", checkpoint_policy).map(Option::unwrap_or_default)
    }

    /// Whether `delta.checkpointPolicy` is set, and is classic.
    pub fn wants_classic_checkpoints(self) -> Result<bool> {
        Ok(self.read("delta.checkpointPolicy", checkpoint_policy)? == Some(CheckpointPolicy::Classic))
    }

    /// `delta.requireCheckpointProtectionBeforeVersion`: the first version of which new checkpoints may be made (0).
    pub fn checkpoint_protection(self) -> Result<u64> {
        self.read("delta.requireCheckpointProtectionBeforeVersion", not_negative).map(Option::unwrap_or_default)
    }

    /// `delta.dataSkippingNumIndexedCols`: how many leaf columns get statistics (32); `None` for all.
    pub fn data_skipping_num_indexed_cols(self) -> Result<Option<usize>> {
        self.read("delta.dataSkippingNumIndexedCols", indexed_columns).map(|n| n.unwrap_or(Some(32)))
    }

    /// `delta.dataSkippingStatsColumns`: paths of the columns that get statistics, instead of a number of them.
    pub fn data_skipping_stats_columns(self) -> Result<Option<Vec<Vec<String>>>> {
        self.read("delta.dataSkippingStatsColumns", path::parse_list)
    }

    /// `delta.dataSkippingStringPrefixLength`: how many characters of a string statistics keep (32).
    pub fn string_prefix_length(self) -> Result<usize> {
        let length = self.read("delta.dataSkippingStringPrefixLength", positive)?.unwrap_or(32);
        Ok(usize::try_from(length).unwrap_or(usize::MAX))
    }

    /// `delta.deletedFileRetentionDuration`: milliseconds for which removed files are kept (one week).
    pub fn deleted_file_retention(self) -> Result<i64> {
        self.interval("delta.deletedFileRetentionDuration", 7 * MILLIS_PER_DAY)
    }

    /// `delta.logRetentionDuration`: milliseconds for which the log is kept (30 days).
    pub fn log_retention(self) -> Result<i64> {
        self.interval("delta.logRetentionDuration", 30 * MILLIS_PER_DAY)
    }

    /// `delta.enableExpiredLogCleanup`: whether writers may remove expired log files (true).
    pub fn expired_log_cleanup(self) -> Result<bool> {
        self.flag("delta.enableExpiredLogCleanup", true)
    }

    /// `delta.dropFeatureTruncateHistory.retentionDuration`: milliseconds for which versions with traces of a feature are
    /// kept before it is dropped, if they are to be deleted (24 hours).
    pub fn dropped_feature_retention(self) -> Result<i64> {
        self.interval("delta.dropFeatureTruncateHistory.retentionDuration", MILLIS_PER_DAY)
    }

    /// `delta.setTransactionRetentionDuration`: milliseconds after which an application's progress is forgotten;
    /// `None` for never.
    pub fn set_transaction_retention(self) -> Result<Option<i64>> {
        self.read("delta.setTransactionRetentionDuration", parse_interval)
    }

    /// `delta.appendOnly`: whether data may only be added (false).
    pub fn append_only(self) -> Result<bool> {
        self.flag("delta.appendOnly", false)
    }

    /// `delta.isolationLevel` (Serializable).
    pub fn isolation_level(self) -> Result<IsolationLevel> {
        self.read("delta.isolationLevel", isolation_level).map(Option::unwrap_or_default)
    }

    /// `delta.enableChangeDataFeed`: whether changed rows are recorded (false).
    pub fn change_data_feed(self) -> Result<bool> {
        self.flag("delta.enableChangeDataFeed", false)
    }

    /// `delta.enableDeletionVectors`: whether writers may make new deletion vectors (false).
    pub fn deletion_vectors(self) -> Result<bool> {
        self.flag("delta.enableDeletionVectors", false)
    }

    /// `delta.columnMapping.mode`, in a table with this protocol and schema.
    ///
    /// If the protocol does not have the feature, an unknown mode counts as none, and a known one applies as far as
    /// the schema has the names and ids for it.
    ///
    /// # Errors
    /// `Corrupt` for an unknown mode; `Unsupported` if it is not certain by which names files have the columns.
    pub fn column_mapping(self, protocol: &Protocol, schema: &StructType) -> Result<ColumnMapping> {
        let listed =
            protocol.reader_features.as_ref().is_some_and(|features| features.iter().any(|f| f == "columnMapping"));
        if protocol.min_reader_version == 2 || listed {
            return self.column_mapping_mode();
        }
        ColumnMapping::unlisted(self.column_mapping_mode().unwrap_or_default(), schema)
    }

    /// The value of `delta.columnMapping.mode` (none).
    pub fn column_mapping_mode(self) -> Result<ColumnMapping> {
        self.read("delta.columnMapping.mode", column_mapping).map(Option::unwrap_or_default)
    }

    /// `delta.enableInCommitTimestamps`, with the version from which on; `None` if it is not true.
    pub fn in_commit_timestamps(self) -> Result<Option<InCommitTimestamps>> {
        if !self.flag("delta.enableInCommitTimestamps", false)? {
            return Ok(None);
        }
        let version = self.read("delta.inCommitTimestampEnablementVersion", not_negative)?;
        let timestamp = self.read("delta.inCommitTimestampEnablementTimestamp", whole)?;
        match (version, timestamp) {
            (None, None) => Ok(Some(InCommitTimestamps { since: None })),
            (Some(version), Some(timestamp)) => Ok(Some(InCommitTimestamps { since: Some((version, timestamp)) })),
            (Some(_), None) | (None, Some(_)) => Err(Error::corrupt(
                "of the table properties `delta.inCommitTimestampEnablementVersion` and \
                 `delta.inCommitTimestampEnablementTimestamp` only one is set",
            )),
        }
    }

    /// `delta.enableRowTracking` and the columns that go with it; `None` unless the protocol supports row tracking and
    /// the table has it enabled, which is when every row has an id.
    pub fn row_tracking(self, protocol: &Protocol) -> Result<Option<RowTracking>> {
        let listed = protocol.writer_features.iter().flatten().any(|f| f == "rowTracking");
        if !listed || !self.flag("delta.enableRowTracking", false)? {
            return Ok(None);
        }
        let name = |key: &str| self.get(key).map(str::to_owned);
        Ok(Some(RowTracking {
            row_id_column: name("delta.rowTracking.materializedRowIdColumnName"),
            row_commit_version_column: name("delta.rowTracking.materializedRowCommitVersionColumnName"),
        }))
    }

    /// Whether `delta.enableRowTracking` and `delta.rowTrackingSuspended` are both true: then rows should have ids, but
    /// added files would get none.
    pub fn contradicts_row_tracking(self) -> Result<bool> {
        Ok(self.is_true("delta.enableRowTracking")? && self.is_true("delta.rowTrackingSuspended")?)
    }

    /// `delta.targetFileSize`: target size of data files in bytes; `None` leaves it to the writer.
    pub fn target_file_size(self) -> Result<Option<u64>> {
        self.read("delta.targetFileSize", byte_size)
    }

    /// `delta.autoOptimize.autoCompact` (false), or its old name `delta.autoOptimize`: whether small files are compacted after
    /// a write.
    pub fn auto_compact(self) -> Result<bool> {
        Ok(self.flag("delta.autoOptimize", false)?
            || self.read("delta.autoOptimize.autoCompact", auto_compact)?.unwrap_or(false))
    }

    /// `delta.parquet.compression.codec` (zstd).
    pub fn compression(self) -> Result<Compression> {
        self.read("delta.parquet.compression.codec", compression).map(Option::unwrap_or_default)
    }

    /// `delta.parquet.format.version` (1.0.0).
    pub fn page_version(self) -> Result<PageVersion> {
        self.read("delta.parquet.format.version", page_version).map(Option::unwrap_or_default)
    }

    /// `delta.randomizeFilePrefixes` and `delta.randomPrefixLength` (2): how many random characters data files go below,
    /// instead of into partition directories; `None` for none. Tables with column mapping always have random prefixes: a
    /// directory with a physical name would mean nothing to people.
    pub fn random_prefix_length(self) -> Result<Option<u8>> {
        let is_mapped = self.column_mapping_mode()? != ColumnMapping::None;
        if !self.flag("delta.randomizeFilePrefixes", false)? && !is_mapped {
            return Ok(None);
        }
        self.read("delta.randomPrefixLength", prefix_length).map(|length| Some(length.unwrap_or(2)))
    }

    /// Whether a property is set to true; false when absent.
    pub fn is_true(self, key: &str) -> Result<bool> {
        self.flag(key, false)
    }

    fn flag(self, key: &str, default: bool) -> Result<bool> {
        self.read(key, flag).map(|value| value.unwrap_or(default))
    }

    fn interval(self, key: &str, default: i64) -> Result<i64> {
        self.read(key, parse_interval).map(|value| value.unwrap_or(default))
    }

    /// `delta.columnMapping.maxColumnId`: the largest column id that was given out.
    pub fn max_column_id(self) -> Result<Option<i32>> {
        self.read("delta.columnMapping.maxColumnId", |text| {
            text.trim().parse().map_err(|_| "it must be a column id".to_owned())
        })
    }

    fn read<T>(self, key: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<Option<T>> {
        let Some(text) = self.get(key) else { return Ok(None) };
        parse(text).map(Some).map_err(|why| {
            Error::corrupt(format!("the table property `{key}` is `{}`, which is wrong: {why}", excerpt(text)))
        })
    }
}

/// The beginning of a text that comes from storage or a caller.
pub(super) fn excerpt(text: &str) -> String {
    let mut excerpt: String = text.chars().take(80).collect();
    if excerpt.len() < text.len() {
        excerpt.push('…');
    }
    excerpt
}

pub(super) fn flag(text: &str) -> Result<bool, String> {
    match text.trim() {
        t if t.eq_ignore_ascii_case("true") => Ok(true),
        t if t.eq_ignore_ascii_case("false") => Ok(false),
        _ => Err("it may be true or false".to_owned()),
    }
}

pub(super) fn whole(text: &str) -> Result<i64, String> {
    text.trim().parse().map_err(|_| "it must be a whole number".to_owned())
}

pub(super) fn not_negative(text: &str) -> Result<u64, String> {
    whole(text).and_then(|n| u64::try_from(n).map_err(|_| "it may not be negative".to_owned()))
}

pub(super) fn positive(text: &str) -> Result<u64, String> {
    not_negative(text).and_then(|n| if n > 0 { Ok(n) } else { Err("it must be at least 1".to_owned()) })
}

pub(super) fn prefix_length(text: &str) -> Result<u8, String> {
    let length = positive(text)?;
    u8::try_from(length).map_err(|_| "it may be 1 to 255, as long as a folder's name".to_owned())
}

pub(super) fn indexed_columns(text: &str) -> Result<Option<usize>, String> {
    match whole(text)? {
        -1 => Ok(None),
        n => usize::try_from(n).map(Some).map_err(|_| "it may be -1 (all columns), 0 or more".to_owned()),
    }
}

pub(super) fn byte_size(text: &str) -> Result<u64, String> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err("it must be a number of bytes, like 104857600 or 100mb".to_owned()),
    };
    let size = number.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift)).filter(|size| *size > 0);
    size.ok_or_else(|| "it must be a number of bytes, like 104857600 or 100mb".to_owned())
}

pub(super) fn auto_compact(text: &str) -> Result<bool, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        // `auto` and `legacy` are values of Databricks, which choose the size of files in other ways.
        "true" | "auto" | "legacy" => Ok(true),
        "false" => Ok(false),
        _ => Err("it may be true, auto or false".to_owned()),
    }
}

pub(super) fn checkpoint_policy(text: &str) -> Result<CheckpointPolicy, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "classic" => Ok(CheckpointPolicy::Classic),
        "v2" => Ok(CheckpointPolicy::TwoLevel),
        _ => Err("it may be classic or v2".to_owned()),
    }
}

pub(super) fn isolation_level(text: &str) -> Result<IsolationLevel, String> {
    // Writers differ in case and in the characters between the words.
    let letters: String = text.trim().chars().filter(|c| !matches!(c, '_' | '-' | ' ')).collect();
    match letters.to_ascii_lowercase().as_str() {
        "serializable" => Ok(IsolationLevel::Serializable),
        "writeserializable" => Ok(IsolationLevel::WriteSerializable),
        "snapshotisolation" => Ok(IsolationLevel::SnapshotIsolation),
        _ => Err("it may be Serializable, WriteSerializable or SnapshotIsolation".to_owned()),
    }
}

pub(super) fn column_mapping(text: &str) -> Result<ColumnMapping, String> {
    let mode = ColumnMapping::parse(text.trim()).ok().filter(|mode| *mode != ColumnMapping::Unlisted);
    mode.ok_or_else(|| "it may be none, name or id".to_owned())
}

pub(super) fn compression(text: &str) -> Result<Compression, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "uncompressed" | "none" => Ok(Compression::Uncompressed),
        "snappy" => Ok(Compression::Snappy),
        "gzip" => Ok(Compression::Gzip),
        "lz4" => Ok(Compression::Lz4),
        "lz4_raw" => Ok(Compression::Lz4Raw),
        "brotli" => Ok(Compression::Brotli),
        "zstd" => Ok(Compression::Zstd),
        _ => Err("it may be uncompressed, none, snappy, gzip, lz4, lz4_raw, brotli or zstd".to_owned()),
    }
}

pub(super) fn page_version(text: &str) -> Result<PageVersion, String> {
    let wrong = || "it may be 1.0.0 or 2.<minor>.<patch>".to_owned();
    let mut numbers = text.trim().split('.').map(|n| n.parse::<u32>().ok());
    match [numbers.next(), numbers.next(), numbers.next(), numbers.next()] {
        [Some(Some(1)), Some(Some(0)), Some(Some(0)), None] => Ok(PageVersion::One),
        [Some(Some(2)), Some(Some(_)), Some(Some(_)), None] => Ok(PageVersion::Two),
        _ => Err(wrong()),
    }
}
