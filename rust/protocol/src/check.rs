//! Compares two sources of one version's state: the replayed log, a checksum, a checkpoint.
//!
//! It only compares. A difference is a message, not an error: which source is right is not known here.
//! Both sides are named by the caller, since the same comparison serves checksum against log and checkpoint against
//! commits.
//!
//! Invariant: a record compared with itself has no difference (`check::properties`).
//!
//! PROTOCOL.md: "Version Checksum File", "State Validation", "Action Reconciliation".

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use crate::action::batch::AddBatch;
use crate::action::{Add, CommitInfo, DomainMetadata, Metadata, Protocol, Txn};
use crate::error::Result;
use crate::log::crc::deleted_records_bin;
use crate::log::crc::{DELETED_RECORD_BINS, DeletedRecordCountsHistogram, FileSizeHistogram, VersionChecksum};
use crate::replay::canonical_path;
use crate::schema::json;

/// Everything in a version except its files.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// Which clients may read and write.
    pub protocol: Protocol,
    /// Identity, schema, partitioning, properties.
    pub metadata: Metadata,
    /// The newest of each application.
    pub txns: Vec<Txn>,
    /// Those that are not removed.
    pub domains: Vec<DomainMetadata>,
}

/// The facts about a version from one source, and the name of the source in messages: "the log".
#[derive(Debug, Clone, Copy)]
pub struct VersionRecord<'a, T> {
    /// The name of the source.
    pub name: &'static str,
    /// The facts.
    pub content: &'a T,
}

/// Sums over the live files of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Totals {
    /// Live files.
    pub files: i64,
    /// Sum of their sizes.
    pub bytes: i64,
    /// Files with a deletion vector.
    pub deletion_vectors: i64,
    /// Rows those delete.
    pub deleted_records: i64,
    deleted_bins: Vec<i64>,
    sizes: FileSizeHistogram,
}

impl Totals {
    /// No files yet; their sizes will be sorted into bins that start at `boundaries`, which ascend.
    pub fn new(boundaries: &[i64]) -> Self {
        let bins = vec![0; boundaries.len()];
        Self {
            files: 0,
            bytes: 0,
            deletion_vectors: 0,
            deleted_records: 0,
            deleted_bins: vec![0; DELETED_RECORD_BINS],
            sizes: FileSizeHistogram {
                sorted_bin_boundaries: boundaries.to_vec(),
                file_counts: bins.clone(),
                total_bytes: bins,
            },
        }
    }

    /// Adds live files; needs their columns `size` and `deletionVector`.
    pub fn take(&mut self, files: &AddBatch) -> Result<()> {
        for row in 0..files.len() {
            let size = size_at(files, row);
            let deleted = files.deletion_vector(row)?.map(|vector| vector.cardinality);
            self.files = self.files.saturating_add(1);
            self.bytes = self.bytes.saturating_add(size);
            if let Some(rows) = deleted {
                self.deletion_vectors = self.deletion_vectors.saturating_add(1);
                self.deleted_records = self.deleted_records.saturating_add(rows);
            }
            increase(&mut self.deleted_bins, deleted_records_bin(deleted.unwrap_or(0)), 1);
            let starts = &self.sizes.sorted_bin_boundaries;
            if let Some(bin) = starts.partition_point(|start| *start <= size).checked_sub(1) {
                increase(&mut self.sizes.file_counts, bin, 1);
                increase(&mut self.sizes.total_bytes, bin, size);
            }
        }
        Ok(())
    }
}

fn increase(bins: &mut [i64], bin: usize, by: i64) {
    if let Some(sum) = bins.get_mut(bin) {
        *sum = sum.saturating_add(by);
    }
}

fn size_at(files: &AddBatch, row: usize) -> i64 {
    use arrow_array::Array;
    files.size().filter(|sizes| sizes.is_valid(row)).map_or(0, |sizes| sizes.value(row))
}

/// The live files of a version: which they are and how large.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files(HashMap<(String, Option<String>), i64>);

impl Files {
    /// Adds live files; needs their columns `path`, `size` and `deletionVector`.
    pub fn take(&mut self, files: &AddBatch) -> Result<()> {
        for row in 0..files.len() {
            let vector = files.deletion_vector(row)?.map(|vector| vector.unique_id());
            self.0.insert((canonical_path(files.path().value(row)).into_owned(), vector), size_at(files, row));
        }
        Ok(())
    }

    /// Adds the files of a list.
    pub fn take_list(&mut self, files: &[Add]) {
        for file in files {
            let vector = file.deletion_vector.as_ref().map(|vector| vector.unique_id());
            self.0.insert((canonical_path(&file.path).into_owned(), vector), file.size);
        }
    }
}

/// Where a checksum differs from the log: one sentence for each member.
///
/// `commit` is the commit info of the version itself, if it is still there.
pub fn checksum_differences(
    checksum: &VersionChecksum,
    log: &State,
    totals: &Totals,
    commit: Option<&CommitInfo>,
) -> Vec<String> {
    let mut differences = Differences::between("the checksum", "the log");
    differences.compare("tableSizeBytes", &checksum.table_size_bytes, &totals.bytes);
    differences.compare("numFiles", &checksum.num_files, &totals.files);
    if let Some(vectors) = &checksum.num_deletion_vectors_opt {
        differences.compare("numDeletionVectorsOpt", vectors, &totals.deletion_vectors);
    }
    if let Some(rows) = &checksum.num_deleted_records_opt {
        differences.compare("numDeletedRecordsOpt", rows, &totals.deleted_records);
    }
    if let Some(DeletedRecordCountsHistogram { deleted_record_counts }) = &checksum.deleted_record_counts_histogram_opt
    {
        differences.compare("deletedRecordCountsHistogramOpt", deleted_record_counts, &totals.deleted_bins);
    }
    if let Some(sizes) = &checksum.file_size_histogram {
        let log = &totals.sizes;
        differences.bins("fileSizeHistogram.fileCounts", sizes, &sizes.file_counts, &log.file_counts);
        differences.bins("fileSizeHistogram.totalBytes", sizes, &sizes.total_bytes, &log.total_bytes);
    }
    differences.protocol(&checksum.protocol, &log.protocol);
    differences.metadata(&checksum.metadata, &log.metadata);
    let may_expire = log.metadata.configuration.contains_key("delta.setTransactionRetentionDuration");
    if let Some(txns) = &checksum.set_transactions {
        differences.txns(txns, &log.txns, may_expire);
    }
    if let Some(domains) = &checksum.domain_metadata {
        differences.domains(domains, &log.domains);
    }
    if let Some(commit) = commit {
        differences.compare("inCommitTimestampOpt", &checksum.in_commit_timestamp_opt, &commit.in_commit_timestamp());
        if let (Some(here), Some(there)) = (checksum.txn_id.as_deref(), commit.txn_id()) {
            differences.compare("txnId", &here, &there);
        }
    }
    differences.sentences
}

/// The differences of two records in anything but files.
pub fn state_differences(here: VersionRecord<'_, State>, there: VersionRecord<'_, State>) -> Vec<String> {
    let mut differences = Differences::between(here.name, there.name);
    let (here, there) = (here.content, there.content);
    differences.protocol(&here.protocol, &there.protocol);
    differences.metadata(&here.metadata, &there.metadata);
    let may_expire = there.metadata.configuration.contains_key("delta.setTransactionRetentionDuration");
    differences.txns(&here.txns, &there.txns, may_expire);
    differences.domains(&here.domains, &there.domains);
    differences.sentences
}

/// The paths of live files that only one record has, or that differ in size, each with a sentence; sorted by path.
pub fn file_differences(here: VersionRecord<'_, Files>, there: VersionRecord<'_, Files>) -> Vec<(String, String)> {
    let mut differences = Vec::new();
    let name = |vector: &Option<String>| match vector {
        Some(id) => format!(" with the deletion vector {id}"),
        None => String::new(),
    };
    for (key @ (path, vector), size) in &here.content.0 {
        match there.content.0.get(key) {
            None => differences.push((
                path.clone(),
                format!("the file{} is live in {} but not in {}", name(vector), here.name, there.name),
            )),
            Some(other) if other != size => differences.push((
                path.clone(),
                format!("the file has {size} bytes in {} and {other} bytes in {}", here.name, there.name),
            )),
            Some(_) => {}
        }
    }
    for key @ (path, vector) in there.content.0.keys() {
        if !here.content.0.contains_key(key) {
            let sentence = format!("the file{} is live in {} but not in {}", name(vector), there.name, here.name);
            differences.push((path.clone(), sentence));
        }
    }
    differences.sort();
    differences
}

/// Sentences found so far, about two records from sources with these names.
struct Differences {
    here: &'static str,
    there: &'static str,
    sentences: Vec<String>,
}

impl Differences {
    fn between(here: &'static str, there: &'static str) -> Self {
        Self { here, there, sentences: Vec::new() }
    }

    fn compare<T: PartialEq + Serialize>(&mut self, member: &str, here: &T, there: &T) {
        self.compare_what(&format!("`{member}`"), here, there);
    }

    fn compare_what<T: PartialEq + Serialize>(&mut self, what: &str, here: &T, there: &T) {
        if here != there {
            let (here, there) = (excerpt(here), excerpt(there));
            self.sentences.push(format!("{what} is {here} in {} and {there} in {}", self.here, self.there));
        }
    }

    fn only(&mut self, what: &str, name: &str, source: &'static str) {
        let other = if source == self.here { self.there } else { self.here };
        self.sentences.push(format!("{what} `{name}` is in {source} but not in {other}"));
    }

    fn protocol(&mut self, here: &Protocol, there: &Protocol) {
        // The order of the names means nothing.
        let names = |features: &Option<Vec<String>>| features.as_ref().map(|f| f.iter().cloned().collect());
        self.compare("protocol.minReaderVersion", &here.min_reader_version, &there.min_reader_version);
        self.compare("protocol.minWriterVersion", &here.min_writer_version, &there.min_writer_version);
        let features: [Option<BTreeSet<String>>; 2] = [names(&here.reader_features), names(&there.reader_features)];
        self.compare("protocol.readerFeatures", &features[0], &features[1]);
        let features: [Option<BTreeSet<String>>; 2] = [names(&here.writer_features), names(&there.writer_features)];
        self.compare("protocol.writerFeatures", &features[0], &features[1]);
    }

    fn metadata(&mut self, here: &Metadata, there: &Metadata) {
        self.compare("metadata.id", &here.id, &there.id);
        self.compare("metadata.name", &here.name, &there.name);
        self.compare("metadata.description", &here.description, &there.description);
        self.compare("metadata.format", &here.format, &there.format);
        self.compare("metadata.partitionColumns", &here.partition_columns, &there.partition_columns);
        self.compare("metadata.createdTime", &here.created_time, &there.created_time);
        if here.schema_string != there.schema_string {
            // Writers may print one schema in several ways.
            let same = matches!(
                (json::parse(&here.schema_string), json::parse(&there.schema_string)),
                (Ok(here), Ok(there)) if here == there
            );
            if !same {
                self.compare("metadata.schemaString", &here.schema_string, &there.schema_string);
            }
        }
        let keys: BTreeSet<&String> = here.configuration.keys().chain(there.configuration.keys()).collect();
        for key in keys {
            let member = format!("metadata.configuration.{key}");
            self.compare(&member, &here.configuration.get(key), &there.configuration.get(key));
        }
    }

    /// With `may_expire`, the later record may have dropped an old transaction.
    fn txns(&mut self, here: &[Txn], there: &[Txn], may_expire: bool) {
        let (here, there) = (by_key(here, |t| &t.app_id), by_key(there, |t| &t.app_id));
        for (app, txn) in &here {
            match there.get(app) {
                Some(other) => {
                    self.compare_what(&format!("the version of the transaction `{app}`"), &txn.version, &other.version);
                    self.compare_what(
                        &format!("the time of the transaction `{app}`"),
                        &txn.last_updated,
                        &other.last_updated,
                    );
                }
                None => self.only("the transaction", app, self.here),
            }
        }
        for (app, _) in
            there.iter().filter(|(app, txn)| !(here.contains_key(*app) || may_expire && txn.last_updated.is_some()))
        {
            self.only("the transaction", app, self.there);
        }
    }

    fn domains(&mut self, here: &[DomainMetadata], there: &[DomainMetadata]) {
        let live = |domains: &[DomainMetadata]| domains.iter().filter(|d| !d.removed).cloned().collect::<Vec<_>>();
        let (here, there) = (live(here), live(there));
        let (here, there) = (by_key(&here, |d| &d.domain), by_key(&there, |d| &d.domain));
        for (domain, metadata) in &here {
            match there.get(domain) {
                Some(other) => self.compare_what(
                    &format!("the configuration of the domain `{domain}`"),
                    &metadata.configuration,
                    &other.configuration,
                ),
                None => self.only("the domain", domain, self.here),
            }
        }
        for domain in there.keys().filter(|domain| !here.contains_key(*domain)) {
            self.only("the domain", domain, self.there);
        }
    }

    fn bins(&mut self, member: &str, histogram: &FileSizeHistogram, here: &[i64], there: &[i64]) {
        let starts = &histogram.sorted_bin_boundaries;
        for ((start, here), there) in starts.iter().zip(here).zip(there) {
            self.compare_what(&format!("`{member}` of the bin from {start}"), here, there);
        }
    }
}

fn by_key<T>(items: &[T], key: impl Fn(&T) -> &String) -> BTreeMap<&str, &T> {
    items.iter().map(|item| (key(item).as_str(), item)).collect()
}

/// The beginning of a value that comes from storage.
fn excerpt(value: &impl Serialize) -> String {
    const MAX_LENGTH: usize = 200;
    let text = serde_json::to_string(value).unwrap_or_default();
    match text.char_indices().nth(MAX_LENGTH) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}
