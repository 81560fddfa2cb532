//! Every feature by name: who must have it, which versions imply it, and whether deltic reads and writes it.

use super::usage::Use;

/// Whether deltic reads tables with a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// Readers need not know it.
    NotNeeded,
    /// Readers must have it, and deltic does.
    Supported,
    /// Readers must have it, and deltic does not.
    Refused(&'static str),
}

/// Whether deltic appends to tables with a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writing {
    /// It is supported, or needs nothing of an append.
    Supported,
    /// It appends as long as the table does not use it.
    UnlessUsed(Use),
    /// It refuses every table that lists it.
    Refused(&'static str),
}

/// A feature of the protocol, of one of its proposals, or of another client.
#[derive(Debug, Clone, Copy)]
pub struct Feature {
    /// Its name in the protocol action.
    pub name: &'static str,
    /// The reader version from 1 to 2 that implies it.
    pub reader_version: Option<i32>,
    /// The writer version from 2 to 6 that implies it.
    pub writer_version: Option<i32>,
    /// What it is.
    pub about: &'static str,
    pub(super) reading: Reading,
    pub(super) writing: Writing,
}

impl Feature {
    /// Whether readers must have it too.
    pub fn is_for_readers(&self) -> bool {
        self.reading != Reading::NotNeeded
    }
}

const fn writers(name: &'static str, version: Option<i32>, writing: Writing, about: &'static str) -> Feature {
    Feature { name, reader_version: None, writer_version: version, about, reading: Reading::NotNeeded, writing }
}

const fn readers(name: &'static str, reading: Reading, writing: Writing, about: &'static str) -> Feature {
    Feature { name, reader_version: None, writer_version: None, about, reading, writing }
}

const fn unread(name: &'static str, why: &'static str, about: &'static str) -> Feature {
    readers(name, Reading::Refused(why), Writing::Refused(why), about)
}

const CATALOG: &str = "the table's catalog decides what is committed; open it through its catalog";
const NOT_YET: &str = "deltic does not have it yet";
const READS: Reading = Reading::Supported;
const WRITES: Writing = Writing::Supported;
const NO_WRITES: Writing = Writing::Refused(NOT_YET);

/// Every feature deltic knows by name.
#[rustfmt::skip]
pub const FEATURES: &[Feature] = &[
    writers("appendOnly", Some(2), WRITES, "rows may only be added"),
    writers("invariants", Some(2), WRITES, "conditions on columns, in the schema"),
    writers("checkConstraints", Some(3), WRITES, "conditions on rows, in the properties"),
    writers("changeDataFeed", Some(4), WRITES, "changed rows are recorded"),
    writers("generatedColumns", Some(4), WRITES, "columns computed from others"),
    Feature {
        name: "columnMapping", reader_version: Some(2), writer_version: Some(5),
        about: "names in files differ from names in the schema",
        reading: READS, writing: WRITES,
    },
    writers("identityColumns", Some(6), WRITES, "columns that number rows"),
    readers("deletionVectors", READS, WRITES, "rows deleted without rewriting files"),
    readers("timestampNtz", READS, WRITES, "timestamps without time zone"),
    readers("v2Checkpoint", READS, WRITES, "checkpoints in several files; classic ones stay allowed"),
    readers("vacuumProtocolCheck", READS, WRITES, "a vacuum checks first that it supports the table"),
    readers("typeWidening", READS, WRITES, "old files may have narrower types"),
    readers("typeWidening-preview", READS, WRITES, "the same before it was final"),
    readers("variantType", READS, WRITES, "semi-structured values"),
    readers("variantType-preview", READS, WRITES, "the same before it was final"),
    readers("variantShredding", READS, WRITES, "variants split into typed columns"),
    readers("variantShredding-preview", READS, WRITES, "the same before it was final"),
    writers("domainMetadata", None, WRITES, "named configurations"),
    writers("rowTracking", None, WRITES, "rows keep ids, also when their files are rewritten"),
    writers("clustering", None, WRITES, "rows stored near each other by chosen columns"),
    writers("allowColumnDefaults", None, WRITES, "default values for columns that rows lack"),
    writers("inCommitTimestamp", None, WRITES, "commits have their own time"),
    writers("icebergCompatV1", None, WRITES, "readable as Iceberg"),
    writers("icebergCompatV2", None, WRITES, "readable as Iceberg"),
    writers("icebergCompatV3", None, WRITES, "readable as Iceberg"),
    writers("icebergWriterCompatV1", None, WRITES, "writable through Iceberg"),
    writers("icebergWriterCompatV3", None, WRITES, "writable through Iceberg"),
    writers("icebergNativeV4-preview", None, NO_WRITES, "an Iceberg table besides the log"),
    writers("checkpointProtection", None, WRITES, "checkpoints that must stay"),
    writers("materializePartitionColumns", None, WRITES, "data files have the partition columns too"),
    writers("collations", None, WRITES, "strings compared by language; comparisons of them are refused"),
    writers("collations-preview", None, WRITES, "the same before it was final"),
    writers("columnMappingUsageTracking", None, WRITES, "whether columns were ever renamed or dropped"),
    writers("multiTableTransaction", None, NO_WRITES, "commits over several tables"),
    writers("coordinatedCommits-preview", None, Writing::Refused(CATALOG), "commits decided by a coordinator"),
    writers("redirectWriterOnly-preview", None, NO_WRITES, "the table has moved, for writers"),
    unread("redirectReaderWriter-preview", NOT_YET, "the table has moved"),
    unread("catalogManaged", CATALOG, "commits decided by a catalog"),
    unread("catalogOwned-preview", CATALOG, "the same before it was final"),
    readers("geospatial", READS, WRITES, "geometry and geography columns"),
    readers("geospatial-dev", READS, WRITES, "the same before it was final"),
    readers("geospatial-preview", READS, WRITES, "the same before it was final"),
    readers("intervalTypes", READS, Writing::UnlessUsed(Use::Intervals), "intervals, read as numbers of months or of microseconds"),
    unread("timestampNanos", NOT_YET, "timestamps with nanoseconds"),
    unread("adaptiveMetadata", NOT_YET, "a tree of manifests for a log"),
    unread("adaptiveMetadata-preview", NOT_YET, "the same before it was final"),
    unread("tableBranching-dev", NOT_YET, "branches of a table"),
    unread("recordLevelIndex-dev", NOT_YET, "an index of rows by their keys"),
    unread("columnUpdates", NOT_YET, "updated columns of a file in separate files"),
];

/// Features that tables use although their protocols do not list them, how, and how deltic reads such tables.
#[rustfmt::skip]
pub const UNLISTED: &[(&str, &str, &str)] = &[
    ("columnMapping", "`delta.columnMapping.mode` is `name` or `id`", "applied if every column has a physical name, ignored if none has; a mixture is refused, and so is a file that has a column only under its logical name"),
    ("deletionVectors", "a file has a deletion vector", "applied"),
    ("typeWidening", "a file has a narrower type than the schema", "applied"),
    ("variantType", "a column is a variant", "read"),
    ("timestampNtz", "a column is a `timestamp_ntz`", "read"),
    ("geospatial", "a column is a geometry or geography", "read"),
    ("v2Checkpoint", "a checkpoint is UUID-named or has sidecars", "read"),
    ("inCommitTimestamp", "`delta.enableInCommitTimestamps` is true", "applied; time travel refuses a commit without its own time"),
    ("rowTracking", "`delta.enableRowTracking` is true", "ids and commit versions of rows are refused, other columns are read"),
];

/// The features as a Markdown table.
pub fn docs_table() -> String {
    let mut table = "| Feature | What it is | Implied by | Read | Write |\n|-|-|-|-|-|\n".to_owned();
    for feature in FEATURES {
        let implied = match (feature.reader_version, feature.writer_version) {
            (Some(reader), Some(writer)) => format!("reader {reader}, writer {writer}"),
            (Some(reader), None) => format!("reader {reader}"),
            (None, Some(writer)) => format!("writer {writer}"),
            (None, None) => String::new(),
        };
        let no = |why: &str| if why == NOT_YET { "no".to_owned() } else { format!("no: {why}") };
        let read = match feature.reading {
            Reading::NotNeeded | Reading::Supported => "yes".to_owned(),
            Reading::Refused(why) => no(why),
        };
        let append = match feature.writing {
            Writing::Supported => "yes".to_owned(),
            Writing::UnlessUsed(rule) => format!("unless {rule}"),
            Writing::Refused(why) => no(why),
        };
        let row = [&format!("`{}`", feature.name), feature.about, &implied, &read, &append].join(" | ");
        table.push_str(&format!("| {row} |\n"));
    }
    table
}
