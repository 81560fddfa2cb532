//! Building transactions, and the work after their commits.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use deltic_protocol::action::lines::Lines;
use deltic_protocol::alter::MetadataChange;
use deltic_protocol::commit::Conflict;
use deltic_protocol::error::{Error, Kind, Result};
use deltic_protocol::log::crc::VersionChecksum;
use deltic_protocol::log::name::{checkpoint_name, checksum_name, commit_name};
use deltic_store::{Put, Syncing};
use deltic_table::commit::RetryPolicy;
use deltic_table::committers::{Committer, LogCommitter, OtherLogFile};
use deltic_table::log::LogSource;
use deltic_table::post_commit::{HandleState, write_checksum};
use deltic_table::snapshot::Snapshot;
use deltic_table::transaction::builder::{HandleCache, Ids, Outcome, Transaction, TransactionEnd, TransactionOptions};
use deltic_table::write::plan::DataFile;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::sample::{Sample, add_with, live, metadata, protocol, remove, vector};

mod cached_base;
mod manifests;
mod overwrite;
mod write;

struct World;

impl Ids for World {
    fn unique(&self) -> String {
        use std::sync::atomic::{AtomicU64, Ordering};
        static COUNT: AtomicU64 = AtomicU64::new(0);
        format!("transaction-{}", COUNT.fetch_add(1, Ordering::Relaxed))
    }
}

impl RetryPolicy for World {
    /// The time of the file system, by which a handle recognizes its own commit.
    fn now_ms(&self) -> i64 {
        std::time::UNIX_EPOCH.elapsed().unwrap().as_millis().try_into().unwrap()
    }

    fn back_off(&self, attempts: u32) -> Option<Duration> {
        (attempts < 10).then_some(Duration::ZERO)
    }
}

/// Files `a1`, `a2` and `b1` of the partitions `a` and `b`, with `x` from 0 to 9; `a2` has a deletion vector.
fn sample() -> Sample {
    let sample = Sample::new();
    let members = |p: &str| {
        let stats = json!({"numRecords": 10, "minValues": {"x": 0}, "maxValues": {"x": 9}, "nullCount": {"x": 0}});
        json!({"partitionValues": {"p": p}, "stats": stats.to_string(), "size": 7})
    };
    let mut deleted = members("a");
    deleted["deletionVector"] = vector(1);
    let features = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors", "domainMetadata"]}});
    sample.commit(
        0,
        &[
            features,
            metadata(&[("p", "string"), ("x", "long")], &["p"], json!({})),
            add_with("a1", members("a")),
            add_with("a2", deleted),
            add_with("b1", members("b")),
        ],
    );
    sample
}

async fn begin(sample: &Sample) -> Transaction {
    Transaction::begin(&sample.log, HandleCache::default(), TransactionOptions::default(), &World).await.unwrap()
}

/// A handle with this state.
fn handle_with(state: Option<HandleState>) -> HandleCache {
    HandleCache { state, ..HandleCache::default() }
}

async fn commit(transaction: Transaction) -> Result<Option<Outcome>> {
    let committer = LogCommitter::new(LogSource::of(transaction.storage()));
    match transaction.commit(&committer, &World).await? {
        TransactionEnd::Committed(outcome) => Ok(Some(*outcome)),
        TransactionEnd::Replayed(version) => panic!("replayed as version {version}"),
        TransactionEnd::Nothing => Ok(None),
    }
}

fn file(path: &str) -> DataFile {
    let add = serde_json::from_value(add_with(path, json!({"partitionValues": {"p": "c"}}))["add"].clone()).unwrap();
    DataFile { add, rows: 1, identities: BTreeMap::new() }
}

fn checksum(sample: &Sample, version: u64) -> Option<VersionChecksum> {
    std::fs::read(sample.log(&checksum_name(version))).ok().map(|bytes| VersionChecksum::parse(&bytes).unwrap())
}

#[tokio::test]
async fn a_handle_commits_on_its_state_without_reads() {
    let sample = sample();
    let known = HandleState::load(&sample.open().await.unwrap()).await.unwrap();
    let before = sample.storage.counts();
    let mut transaction =
        Transaction::begin(&sample.log, handle_with(Some(known)), TransactionOptions::default(), &World).await.unwrap();
    transaction.append(vec![file("c1")]);
    let outcome = commit(transaction).await.unwrap().unwrap();
    let counts = sample.storage.counts().since(&before);
    // The commit and its checksum, which is computed from the handle state.
    assert_eq!((counts.puts, counts.lists, counts.gets), (2, 0, 0));
    assert_eq!((outcome.committed.version, outcome.post_commit.handle_state.state.version), (1, 1));
    assert!(outcome.post_commit.failed.is_empty());
}

#[tokio::test]
async fn partly_matching_files_are_refused_by_name() {
    let sample = sample();
    let mut transaction = begin(&sample).await;
    for (filter, expected) in [
        ("p = 'a' AND x < 5", Err("a1")),
        ("p = 'a' AND x < 50", Ok(2)),
        ("p = 'a'", Ok(0)),
        ("x > 20", Ok(0)),
        ("p = 'b' AND x IS NOT NULL", Ok(1)),
    ] {
        match (transaction.remove_where(filter, 1).await, expected) {
            (Ok(removed), Ok(expected)) => assert_eq!(removed, expected, "{filter}"),
            (Err(error), Err(path)) => {
                assert_eq!((error.kind(), error.path()), (&Kind::Invalid, Some(path)), "{filter}: {error}");
            }
            (found, expected) => panic!("{filter}: {found:?}, not {expected:?}"),
        }
    }
    let outcome = commit(transaction).await.unwrap().unwrap();
    let text = String::from_utf8(outcome.committed.lines.to_bytes().unwrap()).unwrap();
    let vectors: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["remove"]["deletionVector"]["offset"] == 1)
        .collect();
    assert_eq!(vectors.len(), 1, "the remove lacks the deletion vector: {text}");
    assert_eq!(sample.open().await.unwrap().num_files().await.unwrap(), 0);
}

#[tokio::test]
async fn removed_files_are_skipped_but_count_as_read() {
    let sample = sample();
    let mut transaction = begin(&sample).await;
    assert_eq!(transaction.remove_paths(&["a1".to_owned(), "a2".to_owned()], 1).await.unwrap(), 2);
    // The condition matches only some rows of each file, but both files are removed already.
    assert_eq!(transaction.remove_where("p = 'a' AND x < 5", 1).await.unwrap(), 0);
    let error = transaction.remove_where("x < 5", 1).await.unwrap_err();
    assert_eq!(error.path(), Some("b1"), "{error}");
    sample.commit(1, &[add_with("a3", json!({"partitionValues": {"p": "a"}}))]);
    let error = commit(transaction).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::Conflict(Conflict::ConcurrentAppend), "{error}");
}

#[tokio::test]
async fn incremental_checksums_equal_recomputed_ones() {
    let sample = sample();
    assert_eq!(write_checksum(&sample.open().await.unwrap(), &LogCommitter::new(sample.log.clone())).await.unwrap(), 0);
    let mut first = checksum(&sample, 0).unwrap();
    assert_eq!((first.num_files, first.table_size_bytes), (3, 21));
    // Optional members of other writers are kept up to date too.
    first.num_deleted_records_opt = Some(6);
    first.num_deletion_vectors_opt = Some(1);
    first.file_size_histogram = Some(
        serde_json::from_value(json!({"sortedBinBoundaries": [0, 8], "fileCounts": [3, 0], "totalBytes": [21, 0]}))
            .unwrap(),
    );
    first.deleted_record_counts_histogram_opt =
        Some(serde_json::from_value(json!({"deletedRecordCounts": [2, 1, 0, 0, 0, 0, 0, 0, 0, 0]})).unwrap());
    sample.put(&checksum_name(0), first.to_json().unwrap());

    let mut transaction = begin(&sample).await;
    transaction.append(vec![file("c1"), file("c2")]);
    transaction.set_domain("app", Some("1")).unwrap();
    assert_eq!(transaction.remove_paths(&["a2".to_owned()], 1).await.unwrap(), 1);
    commit(transaction).await.unwrap();
    let sum = checksum(&sample, 1).unwrap();
    assert_eq!((sum.num_files, sum.table_size_bytes), (4, 34));
    assert_eq!((sum.num_deleted_records_opt, sum.num_deletion_vectors_opt), (Some(0), Some(0)));
    let histogram = sum.file_size_histogram.as_ref().unwrap();
    assert_eq!((&histogram.file_counts, &histogram.total_bytes), (&vec![2, 2], &vec![14, 20]));
    assert_eq!(sum.deleted_record_counts_histogram_opt.as_ref().unwrap().deleted_record_counts[..2], [4, 0]);
    assert_eq!(sum.domain_metadata.as_ref().unwrap()[0].domain, "app");
    // Counting all files gives the same.
    std::fs::remove_file(sample.log(&checksum_name(1))).unwrap();
    write_checksum(&sample.open_at(1).await.unwrap(), &LogCommitter::new(sample.log.clone())).await.unwrap();
    let counted = checksum(&sample, 1).unwrap();
    assert_eq!((counted.num_files, counted.table_size_bytes), (sum.num_files, sum.table_size_bytes));
    assert_eq!((counted.domain_metadata, counted.metadata), (sum.domain_metadata, sum.metadata));

    // After a winner without checksum there is none for this commit.
    let mut transaction = begin(&sample).await;
    transaction.append(vec![file("c3")]);
    sample.commit(2, &[remove("b1")]);
    let outcome = commit(transaction).await.unwrap().unwrap();
    assert_eq!((outcome.committed.version, checksum(&sample, 3)), (3, None));
}

/// Commits one file with the handle state `base`, and returns the new handle state.
async fn append(sample: &Sample, base: Option<HandleState>, path: &str) -> HandleState {
    let mut transaction =
        Transaction::begin(&sample.log, handle_with(base), TransactionOptions::default(), &World).await.unwrap();
    transaction.append(vec![file(path)]);
    let after = commit(transaction).await.unwrap().unwrap().post_commit;
    assert!(after.failed.is_empty(), "{:?}", after.failed);
    after.handle_state
}

/// The existing checksum of a version, and the one computed from all its files.
async fn recomputed_checksum(sample: &Sample, version: u64) -> (VersionChecksum, VersionChecksum) {
    let there = checksum(sample, version).unwrap();
    sample.delete(&checksum_name(version));
    write_checksum(&sample.open_at(version).await.unwrap(), &LogCommitter::new(sample.log.clone())).await.unwrap();
    let mut counted = checksum(sample, version).unwrap();
    counted.txn_id.clone_from(&there.txn_id);
    (there, counted)
}

#[tokio::test]
async fn missing_checksums_are_recomputed() {
    let sample = sample();
    let base = append(&sample, None, "c1").await;
    let (there, counted) = recomputed_checksum(&sample, 1).await;
    assert_eq!((there.num_files, there.table_size_bytes), (4, 31));
    assert_eq!(there, counted);
    // The next one is computed from the handle state, without requests.
    let before = sample.storage.counts();
    let base = append(&sample, Some(base), "c2").await;
    let counts = sample.storage.counts().since(&before);
    assert_eq!((counts.puts, counts.lists, counts.gets), (2, 0, 0));
    assert_eq!(base.checksum, checksum(&sample, 2));
    let (there, counted) = recomputed_checksum(&sample, 2).await;
    assert_eq!(there, counted);
}

#[tokio::test]
async fn truncated_checksums_are_rewritten() {
    let sample = sample();
    let whole = {
        write_checksum(&sample.open().await.unwrap(), &LogCommitter::new(sample.log.clone())).await.unwrap();
        std::fs::read(sample.log(&checksum_name(0))).unwrap()
    };
    let half = &whole[..whole.len() / 2];
    for torn in [&b""[..], half, &[half, &vec![0; whole.len() - half.len()]].concat()] {
        sample.put(&checksum_name(0), torn);
        assert_eq!(
            write_checksum(&sample.open().await.unwrap(), &LogCommitter::new(sample.log.clone())).await.unwrap(),
            0
        );
        assert_eq!(std::fs::read(sample.log(&checksum_name(0))).unwrap(), whole);
    }
    // Truncated checksums of the commit itself and of the version before.
    sample.put(&checksum_name(0), half);
    sample.put(&checksum_name(1), half);
    append(&sample, None, "c1").await;
    assert_eq!(checksum(&sample, 1).unwrap().num_files, 4);
    // A checksum that can be read is not replaced, even if it is wrong.
    let mut other = checksum(&sample, 1).unwrap();
    other.num_files = 40;
    sample.put(&checksum_name(2), other.to_json().unwrap());
    append(&sample, None, "c2").await;
    assert_eq!(checksum(&sample, 2).unwrap(), other);
}

/// All files, tombstones and other actions of a snapshot.
async fn everything(snapshot: &Snapshot) -> Vec<String> {
    let mut all = live(snapshot).await.unwrap();
    all.push(format!("{:?} {:?}", snapshot.txns().await.unwrap(), snapshot.domains().await.unwrap()));
    all.push(format!("{:?} {:?}", snapshot.protocol(), snapshot.metadata()));
    all
}

#[tokio::test]
async fn checkpoints_from_memory_equal_those_of_the_log() {
    let sample = sample();
    sample.commit(1, &[metadata(&[("p", "string"), ("x", "long")], &["p"], json!({"delta.checkpointInterval": "4"}))]);
    let mut base = None;
    for version in 2..=30_u64 {
        let before = sample.storage.counts();
        let begins = base.is_none();
        let options = TransactionOptions { commit_empty: true, ..TransactionOptions::default() };
        let mut transaction = Transaction::begin(&sample.log, handle_with(base), options, &World).await.unwrap();
        match version {
            // Each leaves the snapshot that is in mind.
            12 => drop(transaction.remove_paths(&["c3".to_owned(), "c11".to_owned()], 1).await.unwrap()),
            17 => transaction.set_domain("app", Some("1")).unwrap(),
            18 => transaction.set_domain("app", Some("2")).unwrap(),
            // Another writer commits first.
            22 => sample.commit(22, &[remove("b1"), add_with("d1", json!({"partitionValues": {"p": "d"}}))]),
            _ => transaction.append(vec![file(&format!("c{version}"))]),
        }
        let outcome = commit(transaction).await.unwrap().unwrap();
        assert!(outcome.post_commit.failed.is_empty(), "{:?}", outcome.post_commit.failed);
        let counts = sample.storage.counts().since(&before);
        let at = outcome.committed.version;
        base = Some(outcome.post_commit.handle_state).filter(|_| version != 22);
        if !begins && version != 12 && version != 22 {
            // Only checkpoints read: the hint, and the files of a checkpoint that existed at the start.
            let gets = u64::from(at % 4 == 0) * if at > 12 { 2 } else { 1 };
            assert_eq!((counts.lists, counts.gets), (0, gets), "version {at}");
        }
        if at % 4 == 0 {
            assert!(sample.log(&checkpoint_name(at)).exists(), "version {at}");
            let by_checkpoint = sample.open_at(at).await.unwrap();
            assert_eq!(by_checkpoint.segment().checkpoint_version(), Some(at));
            let commits = Sample::new();
            for version in 0..=at {
                std::fs::copy(sample.log(&commit_name(version)), commits.log(&commit_name(version))).unwrap();
            }
            assert_eq!(everything(&by_checkpoint).await, everything(&commits.open().await.unwrap()).await);
            let (there, counted) = recomputed_checksum(&sample, at).await;
            assert_eq!(there, counted);
        }
    }
}

#[tokio::test]
async fn files_of_conflicting_commits_are_deleted() {
    let sample = sample();
    std::fs::write(sample.log("../c1"), b"rows").unwrap();
    let mut transaction = begin(&sample).await;
    transaction.scan(None, Some("p = 'b'")).await.unwrap();
    transaction.append(vec![file("c1")]);
    sample.commit(1, &[remove("b1")]);
    let error = commit(transaction).await.unwrap_err();
    assert_eq!((error.kind(), error.version()), (&Kind::Conflict(Conflict::ConcurrentDeleteRead), Some(1)));
    assert!(!sample.log("../c1").exists());
}

/// Allows one attempt, or none if cancelled.
struct OneAttempt {
    cancelled: bool,
}

impl RetryPolicy for OneAttempt {
    fn now_ms(&self) -> i64 {
        1_700_000_000_000
    }

    fn back_off(&self, _attempts: u32) -> Option<Duration> {
        None
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled
    }
}

/// A committer whose puts and answers are lost.
struct Lossy;

impl Committer for Lossy {
    fn commit(&self, _version: u64, _lines: Lines, _files: Syncing) -> BoxFuture<'_, Result<Put>> {
        Box::pin(async { Ok(Put::Unknown(Error::storage(true, "the connection was reset"))) })
    }

    fn read(&self, _version: u64) -> BoxFuture<'_, Result<Option<Bytes>>> {
        Box::pin(async { Ok(None) })
    }

    fn put_other<'a>(&'a self, _name: &'a str, _file: OtherLogFile) -> BoxFuture<'a, Result<Put>> {
        Box::pin(async { Err(Error::internal("only commits are put")) })
    }

    fn make_durable(&self, _version: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn log_continues_past(&self, _version: u64) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async { Ok(false) })
    }
}

#[tokio::test]
async fn files_stay_only_if_a_commit_may_name_them() {
    let check = async |rival: Option<&str>, is_lossy: bool, cancelled: bool, stays: bool| {
        let sample = sample();
        std::fs::write(sample.log("../c1"), b"rows").unwrap();
        let mut transaction = begin(&sample).await;
        transaction.append(vec![file("c1")]);
        rival.into_iter().for_each(|lines| sample.put(&commit_name(1), lines));
        let log = LogCommitter::new(LogSource::of(transaction.storage()));
        let committer: &dyn Committer = if is_lossy { &Lossy } else { &log };
        let error = transaction.commit(committer, &OneAttempt { cancelled }).await.unwrap_err();
        assert_eq!(sample.log("../c1").exists(), stays, "{error}");
        error
    };
    let append = add_with("d1", json!({"partitionValues": {"p": "d"}})).to_string();
    let lost = check(Some(&append), false, false, false).await;
    assert!(lost.message().contains("other writers committed first"), "{lost}");
    let interrupted = check(None, false, true, false).await;
    assert!(interrupted.message().contains("nothing was committed"), "{interrupted}");
    let unknown = check(None, true, false, true).await;
    assert!(unknown.message().contains("outcome of the commit is unknown"), "{unknown}");
    // The unreadable commit may be our own.
    assert_eq!(check(Some("{"), false, false, true).await.kind(), &Kind::Corrupt);
}

#[tokio::test]
async fn a_table_that_cannot_be_written_is_refused_at_once() {
    let sample = Sample::new();
    let mut features = protocol(1, 7);
    features["protocol"]["writerFeatures"] = json!(["zebra"]);
    sample.commit(0, &[features, metadata(&[("x", "long")], &[], json!({}))]);
    let refused = Transaction::begin(&sample.log, HandleCache::default(), TransactionOptions::default(), &World)
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), &Kind::Unsupported { features: vec!["zebra".to_owned()] });
    let options: HashMap<&str, &str> = [("isolation", "loose")].into();
    let options: TransactionOptions = serde_json::from_value(json!(options)).unwrap();
    assert_eq!(
        Transaction::begin(&sample.log, HandleCache::default(), options, &World).await.unwrap_err().kind(),
        &Kind::Invalid
    );
}

/// A transaction on a handle state that is older than this commit of another writer.
async fn begin_before(sample: &Sample, action: Value) -> Transaction {
    let known = HandleState::load(&sample.open().await.unwrap()).await.unwrap();
    sample.commit(1, &[action]);
    Transaction::begin(&sample.log, handle_with(Some(known)), TransactionOptions::default(), &World).await.unwrap()
}

#[tokio::test]
async fn the_newest_version_is_validated_when_it_is_read() {
    let columns: &[(&str, &str)] = &[("p", "string"), ("x", "long")];
    let features = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors", "zebra"]}});
    let constraint = metadata(columns, &["p"], json!({"delta.constraints.c": "x > 0"}));
    for (action, feature) in [(features, "zebra"), (constraint, "checkConstraints")] {
        let sample = sample();
        let mut transaction = begin_before(&sample, action).await;
        let a1 = ["a1".to_owned()];
        for refused in [
            transaction.snapshot().await.map(drop),
            transaction.scan(None, None).await.map(drop),
            transaction.scan(None, Some("p = 'a'")).await.map(drop),
            transaction.remove_paths(&a1, 1).await.map(drop),
            transaction.remove_where("p = 'a'", 1).await.map(drop),
        ] {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), &Kind::Unsupported { features: vec![feature.to_owned()] }, "{error}");
        }
    }
    let sample = sample();
    let only = metadata(columns, &["p"], json!({"delta.appendOnly": "true"}));
    let mut transaction = begin_before(&sample, only).await;
    let a1 = ["a1".to_owned()];
    for refused in [transaction.remove_paths(&a1, 1).await, transaction.remove_where("p = 'a'", 1).await] {
        let error = refused.unwrap_err();
        assert!(error.kind() == &Kind::Invalid && error.message().contains("append-only"), "{error}");
    }
    // Appends are still allowed.
    assert_eq!(transaction.scan(None, None).await.unwrap().tasks.len(), 3);
    transaction.append(vec![file("c1")]);
    assert_eq!(commit(transaction).await.unwrap().unwrap().committed.version, 2);
}

#[tokio::test]
async fn properties_of_writers_cannot_be_unset() {
    let sample = sample();
    let own = ["delta.inCommitTimestampEnablementVersion", "delta.rowTracking.materializedRowIdColumnName"];
    let mut properties: serde_json::Map<String, Value> =
        own.iter().map(|key| ((*key).to_owned(), json!("7"))).collect();
    properties.insert("delta.inCommitTimestampEnablementTimestamp".to_owned(), json!("7"));
    properties.insert("delta.checkpointInterval".to_owned(), json!("7"));
    sample.commit(1, &[metadata(&[("p", "string"), ("x", "long")], &["p"], Value::Object(properties))]);
    let mut transaction = begin(&sample).await;
    let unset = |key: &str| MetadataChange { unset: vec![key.to_owned()], ..MetadataChange::default() };
    for key in own {
        let error = transaction.set_metadata(unset(key), &World).unwrap_err();
        assert!(error.kind() == &Kind::Invalid && error.message().contains("not by hand"), "{error}");
    }
    transaction.set_metadata(unset("delta.checkpointInterval"), &World).unwrap();
}

#[tokio::test]
async fn a_feature_is_added_only_if_its_requirements_are_met() {
    let sample = sample();
    let mut transaction = begin(&sample).await;
    // The table is partitioned.
    let error = transaction.add_feature("clustering").unwrap_err();
    assert_eq!(error.kind(), &Kind::Unsupported { features: vec!["clustering".to_owned()] }, "{error}");
    let error = transaction.add_feature("icebergCompatV1").unwrap_err();
    assert!(error.kind() == &Kind::Invalid && error.message().contains("`columnMapping`"), "{error}");
    transaction.add_feature("vacuumProtocolCheck").unwrap();
    transaction.add_feature("columnMapping").unwrap();
    transaction.add_feature("icebergCompatV1").unwrap();
    commit(transaction).await.unwrap();
    let names = sample.open().await.unwrap().protocol().writer_features.clone().unwrap();
    let added = ["columnMapping", "icebergCompatV1", "vacuumProtocolCheck"];
    assert!(added.iter().all(|name| names.iter().any(|n| n == name)), "{names:?}");
    assert!(!names.iter().any(|name| name == "clustering"), "{names:?}");
}

#[tokio::test]
async fn a_removal_that_fails_removes_nothing() {
    let sample = sample();
    let mut transaction = begin(&sample).await;
    transaction.append(vec![file("c1"), file("c2")]);
    let paths = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let error = transaction.remove_paths(&paths(&["c1", "a1", "typo"]), 1).await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Invalid) && error.path() == Some("typo"), "{error}");
    assert_eq!(transaction.remove_paths(&paths(&["c2", "b1"]), 1).await.unwrap(), 2);
    commit(transaction).await.unwrap();
    let files = live(&sample.open().await.unwrap()).await.unwrap();
    let paths: Vec<&str> = files.iter().map(|file| file.split(' ').next().unwrap()).collect();
    assert_eq!(paths, ["a1", "a2", "c1"]);
}
