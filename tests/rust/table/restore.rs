//! RESTORE and CLONE of handmade tables, and their conflicts with concurrent writers.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use deltic_protocol::action::lines::Lines;
use deltic_protocol::error::{Conflict, Error, Kind, Result};
use deltic_store::{Put, Syncing};
use deltic_table::commit::{CommitContext, RetryPolicy};
use deltic_table::committers::{Committer, LogCommitter, OtherLogFile};
use deltic_table::copies::{CloneMode, CloneOptions, RestoreOptions, RestoreTo, Restored, clone, restore};
use deltic_table::log::LogSource;
use deltic_table::transaction::builder::{Ids, TransactionEnd};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::sample::{Sample, add, add_with, live, metadata, protocol, protocol_of, remove, vector};

struct World;

impl Ids for World {
    fn unique(&self) -> String {
        "id".to_owned()
    }
}

impl RetryPolicy for World {
    fn now_ms(&self) -> i64 {
        1_700_000_000_000
    }

    fn back_off(&self, attempts: u32) -> Option<Duration> {
        (attempts < 10).then_some(Duration::ZERO)
    }
}

/// Another writer commits just before the first attempt.
struct Overtaken {
    log: LogCommitter,
    by: Mutex<Option<String>>,
}

impl Committer for Overtaken {
    fn read<'a>(&'a self, version: u64) -> BoxFuture<'a, Result<Option<Bytes>>> {
        self.log.read(version)
    }

    fn commit<'a>(&'a self, version: u64, lines: Lines, files: Syncing) -> BoxFuture<'a, Result<Put>> {
        let by = self.by.lock().unwrap().take();
        Box::pin(async move {
            if let Some(by) = by {
                self.log.commit(version, Lines::of(by.as_bytes())?, Syncing::default()).await?;
            }
            self.log.commit(version, lines, files).await
        })
    }

    fn put_other<'a>(&'a self, name: &'a str, file: OtherLogFile) -> BoxFuture<'a, Result<Put>> {
        self.log.put_other(name, file)
    }

    fn make_durable<'a>(&'a self, version: u64) -> BoxFuture<'a, Result<()>> {
        self.log.make_durable(version)
    }

    fn log_continues_past<'a>(&'a self, version: u64) -> BoxFuture<'a, Result<bool>> {
        self.log.log_continues_past(version)
    }
}

/// Restores a version; `winner` is committed first.
async fn back(sample: &Sample, version: u64, winner: &[Value]) -> Result<Restored> {
    let by = (!winner.is_empty()).then(|| super::sample::lines(winner));
    let committer = Overtaken { log: LogCommitter::new(sample.log.clone()), by: Mutex::new(by) };
    let (to, options) = (RestoreTo::Version(version), RestoreOptions::default());
    let context = CommitContext { committer: &committer, retry: &World };
    restore(&sample.log, None, &to, options, &World, context).await
}

fn conflict(error: &Error) -> Conflict {
    match error.kind() {
        Kind::Conflict(conflict) => *conflict,
        other => panic!("{other:?}: {error}"),
    }
}

/// The files of the two versions: `a` is removed and restored, `b` is removed by the restore.
fn two_versions() -> Sample {
    let sample = Sample::with_commits(&[vec![add("a"), add("k")], vec![remove("a"), add("b")]]);
    for path in ["a", "b", "k"] {
        std::fs::write(sample.path(path), "0123456789").unwrap();
    }
    sample
}

#[tokio::test]
async fn concurrent_changes_of_files_or_metadata_are_conflicts() {
    let cases = [
        (vec![add("c")], Conflict::ConcurrentAppend),
        (vec![remove("k")], Conflict::ConcurrentDeleteRead),
        (vec![remove("b"), add("c")], Conflict::ConcurrentAppend),
        (vec![metadata(&[("x", "long")], &[], json!({"delta.checkpointInterval": "7"}))], Conflict::MetadataChanged),
        (
            vec![protocol_of(&["deletionVectors"], &[]), metadata(&[("x", "long")], &[], json!({}))],
            Conflict::ProtocolChanged,
        ),
    ];
    for (winner, expected) in cases {
        let sample = two_versions();
        let error = back(&sample, 1, &winner).await.unwrap_err();
        assert_eq!(conflict(&error), expected, "{winner:?}: {error}");
        assert!(sample.open().await.unwrap().version() == 3, "nothing but the winner was committed");
        assert!(sample.path("a").exists(), "a file of the table was deleted");
    }
}

#[tokio::test]
async fn other_concurrent_commits_are_followed() {
    let txn = json!({"txn": {"appId": "a", "version": 1}});
    for winner in [txn, json!({"commitInfo": {"operation": "VACUUM END"}})] {
        let sample = two_versions();
        assert_eq!(back(&sample, 1, &[winner]).await.unwrap().version, Some(4));
        assert_eq!(live(&sample.open().await.unwrap()).await.unwrap(), ["a", "k"]);
    }
}

#[tokio::test]
async fn restored_files_keep_all_members() {
    let members = json!({"stats": "{\"numRecords\":3}", "tags": {"t": "1"}, "partitionValues": {"p": "é"},
        "modificationTime": 77, "clusteringProvider": "mine"});
    let sample = Sample::new();
    let table = [protocol(1, 2), metadata(&[("x", "long"), ("p", "string")], &["p"], json!({}))];
    sample.commit(0, &[table[0].clone(), table[1].clone(), add_with("p=%C3%A9/a%20b", members)]);
    sample.commit(1, &[remove("p=é/a b")]);
    std::fs::create_dir_all(sample.path("p=é")).unwrap();
    std::fs::write(sample.path("p=é/a b"), "0123456789").unwrap();
    let done = back(&sample, 0, &[]).await.unwrap();
    assert_eq!((done.num_restored_files, done.restored_files_size, done.num_removed_files), (1, 10, 0));
    let of = |version: u64| sample.read(version).into_iter().find(|action| action.get("add").is_some()).unwrap();
    assert_eq!(of(2), of(0));
}

#[tokio::test]
async fn missing_versions_are_errors() {
    let sample = two_versions();
    let error = back(&sample, 9, &[]).await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Invalid | Kind::VersionNotFound { .. }), "{error}");
}

#[tokio::test]
async fn restoring_the_newest_version_makes_no_commit() {
    let sample = two_versions();
    let restored = back(&sample, 2, &[]).await.unwrap();
    assert_eq!((restored.version, restored.restored_version), (None, 2));
    assert_eq!((restored.num_restored_files, restored.num_removed_files), (0, 0));
    assert_eq!(sample.open().await.unwrap().version(), 2);
}

async fn cloned(
    source: &Sample,
    target: &Sample,
    deep: bool,
    mode: CloneMode,
    winner: &[Value],
) -> Result<TransactionEnd> {
    let by = (!winner.is_empty()).then(|| super::sample::lines(winner));
    let committer = Overtaken { log: LogCommitter::new(LogSource::of(&target.storage)), by: Mutex::new(by) };
    let options = CloneOptions { deep, mode, ..CloneOptions::default() };
    clone(&source.open().await?, &LogSource::of(&target.storage), options, &committer, &World, &World).await
}

#[tokio::test]
async fn a_concurrently_changed_clone_is_not_overwritten() {
    let source = two_versions();
    let created = [protocol(1, 2), metadata(&[("y", "long")], &[], json!({}))];
    let target = Sample::new();
    let error = cloned(&source, &target, false, CloneMode::Error, &created).await.unwrap_err();
    assert_eq!(*error.kind(), Kind::TableExists);
    let error = cloned(&source, &target, false, CloneMode::Replace, &[add("z")]).await.unwrap_err();
    assert_eq!(conflict(&error), Conflict::ConcurrentAppend);
    cloned(&source, &target, false, CloneMode::Replace, &[]).await.unwrap();
    let paths = live(&target.open().await.unwrap()).await.unwrap();
    let root = source.storage.location();
    assert_eq!(paths, [format!("file:{root}/b"), format!("file:{root}/k")]);
}

#[tokio::test]
async fn a_cloned_vector_keeps_its_offset() {
    let source = Sample::new();
    let table = [protocol_of(&["deletionVectors"], &[]), metadata(&[("x", "long")], &[], json!({}))];
    let one = add_with("a", json!({"deletionVector": vector(1), "stats": "{\"numRecords\":9}"}));
    source.commit(0, &[table[0].clone(), table[1].clone(), one]);
    let target = Sample::new();
    cloned(&source, &target, false, CloneMode::Error, &[]).await.unwrap();
    let added = target.read(0).into_iter().find_map(|action| action.get("add").cloned()).unwrap();
    let root = source.storage.location();
    let name = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin";
    let expected = json!({"storageType": "p", "pathOrInlineDv": format!("file:{root}/{name}"), "offset": 1,
        "sizeInBytes": 40, "cardinality": 6});
    assert_eq!(added["deletionVector"], expected);
}
