//! The version checksum, `<version>.crc`: metadata, protocol and totals of one version.
//!
//! An optional file beside the commit. A reader that cannot use one (missing, malformed, written by a client too old to
//! put metadata and protocol into it) computes the same from the log, so a caller treats an error here as "no
//! checksum". The list of all files that some writers put into it is read only when asked for ([`all_files`]).
//!
//! Invariant: a serialised checksum parses to the same checksum (`log::properties::checksums_round_trip`).
//!
//! PROTOCOL.md: "Version Checksum File".

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::action::{Add, DomainMetadata, Metadata, Protocol, Txn};
use crate::error::{Error, Result};

/// State of the table at one version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionChecksum {
    /// Id of the transaction that made the version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub txn_id: Option<String>,
    /// Sum of the sizes of all live files.
    pub table_size_bytes: i64,
    /// Number of live files.
    pub num_files: i64,
    /// Always 1.
    pub num_metadata: i64,
    /// Always 1.
    pub num_protocol: i64,
    /// Time of the commit, present exactly when in-commit timestamps are enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_commit_timestamp_opt: Option<i64>,
    /// All live transaction identifiers; absent when the writer does not track them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_transactions: Option<Vec<Txn>>,
    /// All live metadata domains; absent when the writer does not track them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain_metadata: Option<Vec<DomainMetadata>>,
    /// Metadata of the version.
    pub metadata: Metadata,
    /// Protocol of the version.
    pub protocol: Protocol,
    /// Live files by size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_size_histogram: Option<FileSizeHistogram>,
    /// The histogram by the name that older writers use; [`VersionChecksum::parse`] moves it to `file_size_histogram`.
    #[serde(default, skip_serializing, rename = "histogramOpt")]
    histogram_opt: Option<FileSizeHistogram>,
    /// Rows deleted by deletion vectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_deleted_records_opt: Option<i64>,
    /// Live deletion vectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_deletion_vectors_opt: Option<i64>,
    /// Live files by number of deleted rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_record_counts_histogram_opt: Option<DeletedRecordCountsHistogram>,
}

/// Number and bytes of files by size.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileSizeHistogram {
    /// Where each bin starts, ascending from 0.
    pub sorted_bin_boundaries: Vec<i64>,
    /// Files in each bin.
    pub file_counts: Vec<i64>,
    /// Their bytes.
    pub total_bytes: Vec<i64>,
}

/// Number of files by deleted rows, in ten bins: none, then one per power of ten, then everything above.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletedRecordCountsHistogram {
    /// Files in each bin.
    pub deleted_record_counts: Vec<i64>,
}

/// Number of bins of [`DeletedRecordCountsHistogram`].
pub const DELETED_RECORD_BINS: usize = 10;

/// The bin of [`DeletedRecordCountsHistogram`] for a file with so many deleted rows.
pub fn deleted_records_bin(rows: i64) -> usize {
    const MAX_BIN_BOUNDARY: i64 = i32::MAX as i64;
    match rows {
        ..=0 => 0,
        1..10_000_000 => rows.ilog10() as usize + 1,
        10_000_000..MAX_BIN_BOUNDARY => DELETED_RECORD_BINS - 2,
        MAX_BIN_BOUNDARY.. => DELETED_RECORD_BINS - 1,
    }
}

/// The list of all live files, if the checksum in `bytes` has one.
pub fn all_files(bytes: &[u8]) -> Result<Option<Vec<Add>>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct AllFiles {
        #[serde(default)]
        all_files: Option<Vec<Add>>,
    }
    let read = serde_json::from_slice::<AllFiles>(bytes);
    read.map(|list| list.all_files)
        .map_err(|e| Error::corrupt("the list allFiles of the version checksum cannot be read").caused_by(e))
}

impl VersionChecksum {
    /// A checksum with only what every checksum must have.
    pub fn new(metadata: Metadata, protocol: Protocol, num_files: i64, table_size_bytes: i64) -> Self {
        Self {
            txn_id: None,
            table_size_bytes,
            num_files,
            num_metadata: 1,
            num_protocol: 1,
            in_commit_timestamp_opt: None,
            set_transactions: None,
            domain_metadata: None,
            metadata,
            protocol,
            file_size_histogram: None,
            histogram_opt: None,
            num_deleted_records_opt: None,
            num_deletion_vectors_opt: None,
            deleted_record_counts_histogram_opt: None,
        }
    }

    /// Reads the file; whatever does not follow the protocol is `Corrupt`.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        // The members could otherwise stand in an array, in order.
        if bytes.trim_ascii_start().first() != Some(&b'{') {
            return Err(Error::corrupt("the version checksum is not a JSON object"));
        }
        let mut checksum: Self = serde_json::from_slice(bytes)
            .map_err(|e| Error::corrupt("the version checksum cannot be read").caused_by(e))?;
        let old = checksum.histogram_opt.take();
        checksum.file_size_histogram = checksum.file_size_histogram.or(old);
        checksum.check()?;
        Ok(checksum)
    }

    /// Reads a file that may come from a client too old to put metadata and protocol into it: then these are used.
    pub fn parse_old(bytes: &[u8], metadata: &Metadata, protocol: &Protocol) -> Result<Self> {
        #[derive(Deserialize)]
        struct OldChecksum {
            metadata: Option<IgnoredAny>,
            protocol: Option<IgnoredAny>,
        }
        let unreadable = |e| Error::corrupt("the version checksum cannot be read").caused_by(e);
        let given: OldChecksum = serde_json::from_slice(bytes).map_err(unreadable)?;
        let text = |action: serde_json::Result<String>| {
            action.map_err(|e| Error::internal("an action has no JSON form").caused_by(e))
        };
        let mut missing = Vec::new();
        if given.metadata.is_none() {
            missing.push(format!("\"metadata\":{}", text(serde_json::to_string(metadata))?));
        }
        if given.protocol.is_none() {
            missing.push(format!("\"protocol\":{}", text(serde_json::to_string(protocol))?));
        }
        match bytes.trim_ascii_start().split_first() {
            // Inserted as text: a tree of JSON values would hide that the file repeats a member.
            Some((b'{', rest)) if !missing.is_empty() => {
                let comma: &[u8] = if rest.trim_ascii_start().starts_with(b"}") { b"" } else { b"," };
                Self::parse(&[b"{", missing.join(",").as_bytes(), comma, rest].concat())
            }
            Some(_) | None => Self::parse(bytes),
        }
    }

    /// Serialises the checksum as JSON.
    pub fn to_json(&self) -> Result<String> {
        self.check()?;
        serde_json::to_string(self).map_err(|e| Error::internal("a version checksum cannot be serialised").caused_by(e))
    }

    fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::corrupt(format!("the version checksum is wrong: {what}")));
        for (name, count) in [("numMetadata", self.num_metadata), ("numProtocol", self.num_protocol)] {
            if count != 1 {
                return wrong(format!("{name} is {count}, it must be 1"));
            }
        }
        let counts = [
            ("tableSizeBytes", Some(self.table_size_bytes)),
            ("numFiles", Some(self.num_files)),
            ("numDeletedRecordsOpt", self.num_deleted_records_opt),
            ("numDeletionVectorsOpt", self.num_deletion_vectors_opt),
        ];
        for (name, count) in counts {
            if count.is_some_and(|c| c < 0) {
                return wrong(format!("{name} is negative"));
            }
        }
        if let Some(histogram) = &self.file_size_histogram {
            let bins = &histogram.sorted_bin_boundaries;
            if bins.first() != Some(&0) || !bins.is_sorted_by(|a, b| a < b) {
                return wrong("the bins of fileSizeHistogram do not ascend from 0".to_owned());
            }
            if histogram.file_counts.len() != bins.len() || histogram.total_bytes.len() != bins.len() {
                return wrong("the arrays of fileSizeHistogram differ in length".to_owned());
            }
        }
        match &self.deleted_record_counts_histogram_opt {
            Some(histogram) if histogram.deleted_record_counts.len() != DELETED_RECORD_BINS => {
                wrong(format!("deletedRecordCounts does not have {DELETED_RECORD_BINS} bins"))
            }
            Some(_) | None => Ok(()),
        }
    }
}
