//! Writes from plan to commit: allowed writes, committed actions, concurrent commits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use deltic_protocol::action::Add;
use deltic_protocol::action::lines::Lines;
use deltic_protocol::error::{Conflict, Error, Kind, Result};
use deltic_protocol::schema::StructType;
use deltic_protocol::schema::arrow::to_arrow_schema;
use deltic_protocol::schema::json::parse as parse_schema;
use deltic_store::{Put, Syncing};
use deltic_table::commit::RetryPolicy;
use deltic_table::committers::{Committer, LogCommitter, MemoryCommitter, OtherLogFile};
use deltic_table::history::history;
use deltic_table::log::LogSource;
use deltic_table::table::Table;
use deltic_table::transaction::builder::{
    CreateMode, HandleCache, Ids, Mode, TableDefinition, Transaction, TransactionEnd, TransactionHeader, WriteOptions,
    delete_written,
};
use deltic_table::write::layout::id_prefix;
use deltic_table::write::plan::DataFile;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::sample::{Sample, live, metadata, protocol};

/// Numbered ids, a fixed clock, ten attempts.
#[derive(Default)]
struct World(AtomicU64);

impl Ids for World {
    fn unique(&self) -> String {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        format!("id-{}", NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl RetryPolicy for World {
    fn now_ms(&self) -> i64 {
        1_700_000_000_000
    }

    fn back_off(&self, attempts: u32) -> Option<Duration> {
        self.0.fetch_add(1, Ordering::Relaxed);
        (attempts < 10).then_some(Duration::ZERO)
    }
}

fn schema(columns: &[(&str, &str)]) -> StructType {
    let table = metadata(columns, &[], json!({}));
    parse_schema(table["metaData"]["schemaString"].as_str().unwrap()).unwrap()
}

/// Columns `p` and `x`.
fn two() -> StructType {
    schema(&[("p", "string"), ("x", "long")])
}

fn names(columns: &[&str]) -> Vec<String> {
    columns.iter().map(|c| (*c).to_owned()).collect()
}

async fn plan_with(sample: &Sample, mode: Mode, by: Option<&[&str]>, options: WriteOptions) -> Result<Transaction> {
    plan_of(sample, &two(), mode, by, options).await
}

/// Plans a write of rows with these columns.
async fn plan_of(
    sample: &Sample,
    rows: &StructType,
    mode: Mode,
    by: Option<&[&str]>,
    options: WriteOptions,
) -> Result<Transaction> {
    let (rows, world) = (to_arrow_schema(rows), World::default());
    let options = WriteOptions { mode, partition_by: by.map(names), ..options };
    Transaction::write(&sample.log, HandleCache::default(), &rows, &options, &world, world.now_ms()).await
}

async fn plan(sample: &Sample, mode: Mode) -> Result<Transaction> {
    plan_with(sample, mode, None, WriteOptions::default()).await
}

fn file(path: &str) -> DataFile {
    let partition_values = BTreeMap::from([("p".to_owned(), Some("a".to_owned()))]);
    let add = Add { path: path.to_owned(), partition_values, size: 7, data_change: true, ..Add::default() };
    DataFile { add, rows: 3, identities: BTreeMap::new() }
}

/// The committed version, or that of the replayed application transaction.
struct Written {
    version: u64,
    attempts: u32,
    num_added_files: usize,
}

/// Commits these files.
async fn finish(mut transaction: Transaction, sample: &Sample, files: &[&str]) -> Result<Written> {
    transaction.append_each(files.iter().map(|path| Ok(file(path))))?;
    match transaction.commit(&LogCommitter::new(sample.log.clone()), &World::default()).await? {
        TransactionEnd::Committed(outcome) => {
            let committed = outcome.committed;
            let (version, attempts, num_added_files) = (committed.version, committed.attempts, committed.num_added);
            Ok(Written { version, attempts, num_added_files })
        }
        TransactionEnd::Replayed(version) => Ok(Written { version, attempts: 0, num_added_files: 0 }),
        TransactionEnd::Nothing => panic!("a write is committed even if it is empty"),
    }
}

/// Commits like another process that has only the header.
async fn commit(planned: &Transaction, sample: &Sample, files: &[&str]) -> Result<Written> {
    let header = TransactionHeader::from_bytes(&planned.header()?.to_bytes()?)?;
    finish(Transaction::resume(&sample.log, header)?, sample, files).await
}

async fn write(sample: &Sample, mode: Mode, files: &[&str]) -> Result<u64> {
    Ok(finish(plan(sample, mode).await?, sample, files).await?.version)
}

async fn files(sample: &Sample) -> Vec<String> {
    live(&sample.open().await.unwrap()).await.unwrap()
}

#[track_caller]
fn invalid(error: &Error, words: &str) {
    assert!(*error.kind() == Kind::Invalid && error.to_string().contains(words), "{error}");
    assert!(error.table().is_some(), "{error} names no table");
}

#[track_caller]
fn exists(error: &Error) {
    assert!(*error.kind() == Kind::TableExists && error.table().is_some(), "{error}");
}

#[track_caller]
fn conflict(outcome: Result<Written>, expected: Conflict) {
    let error = outcome.err().unwrap();
    assert_eq!(*error.kind(), Kind::Conflict(expected), "{error}");
    assert!(error.table().is_some(), "{error} names no table");
}

#[tokio::test]
async fn writes_create_append_and_overwrite() {
    let sample = Sample::new();
    assert_eq!(write(&sample, Mode::Append, &["a", "b"]).await.unwrap(), 0);
    assert_eq!(write(&sample, Mode::Append, &["c"]).await.unwrap(), 1);
    assert_eq!(files(&sample).await, ["a", "b", "c"]);
    assert_eq!(write(&sample, Mode::Overwrite, &["d"]).await.unwrap(), 2);
    assert_eq!(files(&sample).await, ["d"]);
    assert_eq!(write(&sample, Mode::Overwrite, &[]).await.unwrap(), 3);
    assert_eq!(files(&sample).await, Vec::<String>::new());
    exists(&write(&sample, Mode::Error, &["e"]).await.unwrap_err());

    let entries = history(&sample.log, None).await.unwrap();
    let entries: Vec<Value> =
        entries.iter().rev().map(|e| json!([e["operation"], e["isBlindAppend"], e["operationMetrics"]])).collect();
    let metrics = |files: &str, rows: &str, bytes: &str| json!({"numFiles": files, "numOutputRows": rows, "numOutputBytes": bytes});
    let replaced = |files: &str, rows: &str, bytes: &str, removed: &str| json!({"numFiles": files, "numOutputRows": rows, "numOutputBytes": bytes, "numRemovedFiles": removed});
    assert_eq!(
        entries,
        [
            json!(["CREATE TABLE AS SELECT", true, metrics("2", "6", "14")]),
            json!(["WRITE", true, metrics("1", "3", "7")]),
            json!(["WRITE", false, replaced("1", "3", "7", "3")]),
            json!(["WRITE", false, replaced("0", "0", "0", "1")]),
        ]
    );
}

#[tokio::test]
async fn an_append_does_not_read_the_log() {
    let sample = Sample::new();
    write(&sample, Mode::Append, &["a"]).await.unwrap();
    let planned = plan(&sample, Mode::Append).await.unwrap();
    let before = sample.storage.counts();
    let outcome = commit(&planned, &sample, &["b"]).await.unwrap();
    let counts = sample.storage.counts().since(&before);
    assert_eq!((outcome.version, outcome.attempts, outcome.num_added_files), (1, 1, 1));
    // The commit, and its checksum, computed from the one before.
    assert_eq!((counts.puts, counts.gets, counts.lists), (2, 1, 0), "{counts:?}");
    // The process that planned the write has the checksum before.
    let planned = plan(&sample, Mode::Append).await.unwrap();
    let before = sample.storage.counts();
    assert_eq!(finish(planned, &sample, &["c"]).await.unwrap().version, 2);
    let counts = sample.storage.counts().since(&before);
    assert_eq!((counts.puts, counts.gets, counts.lists), (2, 0, 0), "{counts:?}");
}

#[tokio::test]
async fn partitioning_must_match_the_table() {
    let sample = Sample::new();
    let by =
        |columns: &'static [&'static str]| plan_with(&sample, Mode::Append, Some(columns), WriteOptions::default());
    commit(&by(&["P"]).await.unwrap(), &sample, &["a"]).await.unwrap();
    // In the spelling of the schema.
    assert_eq!(sample.open().await.unwrap().shape().partition_columns, ["p"]);
    let plan_write = by(&["p"]).await.unwrap().plan_write(&to_arrow_schema(&two())).unwrap();
    assert_eq!(plan_write.spec.partition_columns, ["p"]);
    assert!(by(&["P"]).await.is_ok());
    for wrong in [&["x"][..], &[], &["p", "x"], &["q"]] {
        invalid(&by(wrong).await.err().unwrap(), "partitioned by [p]");
    }
    assert!(plan(&sample, Mode::Append).await.is_ok());
}

#[tokio::test]
async fn options_for_new_tables_are_refused_for_existing_ones() {
    let sample = Sample::new();
    write(&sample, Mode::Append, &["a"]).await.unwrap();
    let properties = BTreeMap::from([("delta.appendOnly".to_owned(), "true".to_owned())]);
    for options in [
        WriteOptions { properties, ..WriteOptions::default() },
        WriteOptions { name: Some("n".to_owned()), ..WriteOptions::default() },
        WriteOptions { description: Some("d".to_owned()), ..WriteOptions::default() },
    ] {
        invalid(&plan_with(&sample, Mode::Append, None, options).await.err().unwrap(), "for a new table");
    }
}

#[tokio::test]
async fn rows_that_do_not_fit_are_refused_early() {
    let sample = Sample::new();
    write(&sample, Mode::Append, &["a"]).await.unwrap();
    for columns in [&[("p", "string"), ("x", "string")][..], &[("p", "string"), ("x", "long"), ("y", "long")]] {
        for mode in [Mode::Append, Mode::Overwrite] {
            let error = plan_of(&sample, &schema(columns), mode, None, WriteOptions::default()).await.err().unwrap();
            invalid(&error, if columns.len() == 2 { "`x`" } else { "`y`" });
        }
    }
}

#[tokio::test]
async fn an_append_only_table_is_not_overwritten() {
    let sample = Sample::new();
    let only = json!({"delta.appendOnly": "true"});
    sample.commit(0, &[protocol(1, 2), metadata(&[("p", "string"), ("x", "long")], &[], only)]);
    assert_eq!(write(&sample, Mode::Append, &["a"]).await.unwrap(), 1);
    // It is refused before files are written.
    invalid(&plan(&sample, Mode::Overwrite).await.err().unwrap(), "append-only");
}

#[tokio::test]
async fn unsupported_constraints_are_refused() {
    let sample = Sample::new();
    let constraint = json!({"delta.constraints.c": "frobnicate(x) > 0"});
    sample.commit(0, &[protocol(1, 3), metadata(&[("p", "string"), ("x", "long")], &[], constraint)]);
    let error = plan(&sample, Mode::Append).await.err().unwrap();
    assert_eq!(*error.kind(), Kind::Unsupported { features: vec!["function frobnicate".to_owned()] });
    assert!(error.table().is_some() && error.message().contains("`c`"), "{error}");
}

#[tokio::test]
async fn a_damaged_log_is_not_a_missing_table() {
    let sample = Sample::new();
    write(&sample, Mode::Append, &["a"]).await.unwrap();
    write(&sample, Mode::Append, &["b"]).await.unwrap();
    sample.delete("00000000000000000000.json");
    assert_eq!(*plan(&sample, Mode::Append).await.err().unwrap().kind(), Kind::Corrupt);
    assert!(!sample.log("00000000000000000000.json").exists());
}

// --- races

#[tokio::test]
async fn of_two_creators_one_wins() {
    let sample = Sample::new();
    let (first, second) = (plan(&sample, Mode::Append).await.unwrap(), plan(&sample, Mode::Error).await.unwrap());
    assert_eq!(commit(&first, &sample, &["a"]).await.unwrap().version, 0);
    conflict(commit(&second, &sample, &["b"]).await, Conflict::ProtocolChanged);
    assert_eq!(files(&sample).await, ["a"]);
}

#[tokio::test]
async fn overwrites_conflict_with_appends_but_not_vice_versa() {
    let sample = Sample::new();
    write(&sample, Mode::Append, &["a"]).await.unwrap();
    let (overwrite, append) =
        (plan(&sample, Mode::Overwrite).await.unwrap(), plan(&sample, Mode::Append).await.unwrap());
    write(&sample, Mode::Append, &["b"]).await.unwrap();
    conflict(commit(&overwrite, &sample, &["c"]).await, Conflict::ConcurrentAppend);
    write(&sample, Mode::Overwrite, &["d"]).await.unwrap();
    let outcome = commit(&append, &sample, &["e"]).await.unwrap();
    assert_eq!((outcome.version, outcome.attempts), (3, 2));
    assert_eq!(files(&sample).await, ["d", "e"]);
    // The first of two overwrites removes files that the second has read.
    let (first, second) =
        (plan(&sample, Mode::Overwrite).await.unwrap(), plan(&sample, Mode::Overwrite).await.unwrap());
    commit(&first, &sample, &[]).await.unwrap();
    conflict(commit(&second, &sample, &["f"]).await, Conflict::ConcurrentDeleteRead);
}

#[tokio::test]
async fn a_concurrent_schema_change_is_a_conflict() {
    let sample = Sample::new();
    write(&sample, Mode::Append, &["a"]).await.unwrap();
    let job = plan(&sample, Mode::Append).await.unwrap();
    sample.commit(1, &[metadata(&[("p", "string"), ("x", "long"), ("y", "long")], &[], json!({}))]);
    conflict(commit(&job, &sample, &["b"]).await, Conflict::MetadataChanged);
}

// --- idempotence

/// A planned write may be committed hours later.
#[tokio::test]
async fn a_write_for_a_recreated_table_is_not_committed() {
    for versions in [0, 2, 6] {
        let sample = Sample::new();
        for file in ["a", "b", "c"] {
            write(&sample, Mode::Append, &[file]).await.unwrap();
        }
        let jobs = [plan(&sample, Mode::Append).await.unwrap(), plan(&sample, Mode::Overwrite).await.unwrap()];
        for (job, job_mode) in jobs.into_iter().zip([Mode::Append, Mode::Overwrite]) {
            std::fs::remove_dir_all(sample.log("")).unwrap();
            for version in 0..versions {
                write(&sample, Mode::Append, &[&format!("of-another-table-{version}")]).await.unwrap();
            }
            std::fs::create_dir_all(sample.log("")).unwrap();
            let before = listed(&sample);
            let outcome = commit(&job, &sample, &["d"]).await;
            match job_mode {
                Mode::Append => conflict(outcome, Conflict::MetadataChanged),
                // The files that it would remove do not exist, or differ.
                _ => assert!(outcome.err().unwrap().table().is_some()),
            }
            assert_eq!(listed(&sample), before, "after {versions} versions");
        }
    }
}

/// Log cleanup may have deleted the base version.
#[tokio::test]
async fn a_write_committed_again_after_log_cleanup_keeps_its_commit() {
    for followed in [false, true] {
        let sample = Sample::new();
        for file in ["a", "b"] {
            write(&sample, Mode::Append, &[file]).await.unwrap();
        }
        let job = plan(&sample, Mode::Append).await.unwrap();
        assert_eq!(commit(&job, &sample, &["c"]).await.unwrap().version, 2);
        deltic_table::checkpoint_writer::checkpoint(&sample.log, World::default().now_ms()).await.unwrap();
        if followed {
            write(&sample, Mode::Append, &["d"]).await.unwrap();
        }
        for version in 0..2 {
            sample.delete(&format!("{version:020}.json"));
        }
        let before = (listed(&sample), files(&sample).await);
        assert_eq!(commit(&job, &sample, &["c"]).await.unwrap().version, 2);
        assert_eq!((listed(&sample), files(&sample).await), before, "{followed}");
    }
}

/// The names of the log files.
fn listed(sample: &Sample) -> Vec<String> {
    let entries = std::fs::read_dir(sample.log("")).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_write_committed_twice_is_in_the_log_once() {
    let sample = Sample::new();
    let create = plan(&sample, Mode::Append).await.unwrap();
    assert_eq!(commit(&create, &sample, &["a"]).await.unwrap().version, 0);
    assert_eq!(commit(&create, &sample, &["a"]).await.unwrap().version, 0);
    let overwrite = plan(&sample, Mode::Overwrite).await.unwrap();
    assert_eq!(commit(&overwrite, &sample, &["b"]).await.unwrap().version, 1);
    assert_eq!(commit(&overwrite, &sample, &["b"]).await.unwrap().version, 1);
    assert_eq!((sample.open().await.unwrap().version(), files(&sample).await), (1, names(&["b"])));
}

#[tokio::test]
async fn an_application_write_is_committed_once() {
    let sample = Sample::new();
    let of = |app: &str, version: i64| WriteOptions {
        app_id: Some(app.to_owned()),
        app_version: Some(version),
        ..WriteOptions::default()
    };
    let write = async |options: WriteOptions, path: &str| {
        let job = plan_with(&sample, Mode::Append, None, options).await.unwrap();
        std::fs::write(sample.log("..").join(path), "data").unwrap();
        commit(&job, &sample, &[path]).await.map(|o| (o.version, o.attempts, o.num_added_files))
    };
    assert_eq!(write(of("app", 1), "a").await.unwrap(), (0, 1, 1));
    assert_eq!(write(of("app", 2), "b").await.unwrap(), (1, 1, 1));
    // Replays of this version or a later one commit nothing, and their files are deleted.
    assert_eq!(write(of("app", 2), "c").await.unwrap(), (1, 0, 0));
    assert_eq!(write(of("app", 1), "d").await.unwrap(), (1, 0, 0));
    assert_eq!(write(of("other", 1), "e").await.unwrap(), (2, 1, 1));
    assert_eq!(files(&sample).await, ["a", "b", "e"]);
    let exists = |path: &str| sample.log("..").join(path).exists();
    assert!(exists("a") && exists("b") && !exists("c") && !exists("d") && exists("e"));
    // Of two concurrent writes one wins.
    let (first, second) = (
        plan_with(&sample, Mode::Append, None, of("app", 3)).await.unwrap(),
        plan_with(&sample, Mode::Append, None, of("app", 3)).await.unwrap(),
    );
    commit(&first, &sample, &["f"]).await.unwrap();
    conflict(commit(&second, &sample, &["g"]).await, Conflict::ConcurrentTransaction);
    for options in [
        WriteOptions { app_id: Some("app".to_owned()), ..WriteOptions::default() },
        WriteOptions { app_version: Some(1), ..WriteOptions::default() },
    ] {
        invalid(&plan_with(&sample, Mode::Append, None, options).await.err().unwrap(), "belong together");
    }
}

#[tokio::test]
async fn files_of_an_abandoned_write_are_found_by_their_names() {
    let sample = Sample::new();
    let (its, other) = ("11111111-2222-4333-8444-555555555555", "99999999-2222-4333-8444-555555555555");
    let gone = [format!("part-00000-{its}.c000.zstd.parquet"), format!("p=a b/part-00123-{its}.c000.parquet")];
    let kept = [
        format!("part-00000-{other}.c000.zstd.parquet"),
        format!("part-00000-{its}.c000.zstd"),
        format!("x-00000-{its}.c000.parquet"),
        "part-00000.parquet".to_owned(),
        "part-00000-11111111-2222-4333-8444.parquet".to_owned(),
        format!("part-00000-{its}.parquet/of a folder"),
    ];
    for name in gone.iter().chain(&kept) {
        let path = sample.log("..").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "data").unwrap();
    }
    let mut plan = plan(&sample, Mode::Append).await.unwrap().plan_write(&to_arrow_schema(&two())).unwrap();
    let exists = |name: &&String| sample.log("..").join(name).exists();
    // If the id of the write is not a UUID, its files cannot be recognized.
    assert_eq!(plan.spec.id_prefix, None);
    delete_written(&sample.storage, plan.spec.id_prefix).await;
    assert_eq!(gone.iter().chain(&kept).filter(exists).count(), gone.len() + kept.len());
    plan.spec.id_prefix = id_prefix(its);
    delete_written(&sample.storage, plan.spec.id_prefix).await;
    assert_eq!((gone.iter().filter(exists).count(), kept.iter().filter(exists).count()), (0, kept.len()));
}

/// A resumed write may have been committed before. Its files are deleted only if the log shows that it was not.
#[tokio::test]
async fn files_of_resumed_writes_are_deleted_if_the_commit_fails() {
    struct Refusing(Kind);

    impl Committer for Refusing {
        fn commit(&self, _version: u64, _lines: Lines, _files: Syncing) -> BoxFuture<'_, Result<Put>> {
            Box::pin(async { Err(Error::new(self.0.clone(), "refused")) })
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

    let unknown = Kind::Storage { retryable: false };
    for (kind, stays, stays_if_resumed) in [
        (Kind::Unsupported { features: vec!["zebra".to_owned()] }, false, false),
        (Kind::Invalid, false, false),
        (Kind::Conflict(Conflict::ConcurrentAppend), false, false),
        (unknown, false, true),
    ] {
        for (is_resumed, expected) in [(false, stays), (true, stays_if_resumed)] {
            let sample = Sample::new();
            write(&sample, Mode::Append, &["a"]).await.unwrap();
            let mut planned = plan(&sample, Mode::Append).await.unwrap();
            if is_resumed {
                planned = Transaction::resume(&sample.log, planned.header().unwrap()).unwrap();
            }
            std::fs::write(sample.log("../b"), "data").unwrap();
            planned.append_each(std::iter::once(Ok(file("b")))).unwrap();
            let error = planned.commit(&Refusing(kind.clone()), &World::default()).await.unwrap_err();
            assert_eq!(error.kind(), &kind, "{error}");
            assert_eq!(sample.log("../b").exists(), expected, "{kind:?}, resumed: {is_resumed}");
        }
    }
}

/// A header is committed a second time, after log cleanup deleted its base version.
#[tokio::test]
async fn files_of_resumed_writes_stay_if_the_base_is_missing() {
    let sample = Sample::new();
    let base = write(&sample, Mode::Append, &["a"]).await.unwrap();
    let planned = plan(&sample, Mode::Overwrite).await.unwrap();
    std::fs::write(sample.log("../b"), "data").unwrap();
    commit(&planned, &sample, &["b"]).await.unwrap();
    std::fs::rename(sample.log(&format!("{base:020}.json")), sample.log("cleaned")).unwrap();
    let again = commit(&planned, &sample, &["b"]).await;
    assert!(again.is_err() && sample.log("../b").exists(), "a file that a commit names was deleted");
}

#[tokio::test]
async fn headers_of_other_releases_or_tables_are_refused() {
    for bytes in [&b""[..], b"{}", b"x", br#"{"form":2}"#] {
        let error = TransactionHeader::from_bytes(bytes).unwrap_err();
        assert!(*error.kind() == Kind::Invalid && error.to_string().contains("this release"), "{error}");
    }
    let (sample, other) = (Sample::new(), Sample::new());
    let planned = plan(&sample, Mode::Append).await.unwrap();
    invalid(
        &Transaction::resume(&LogSource::of(&other.storage), planned.header().unwrap()).unwrap_err(),
        "started on the table at",
    );
    let mut planned = plan(&sample, Mode::Append).await.unwrap();
    planned.append_each(std::iter::once(Ok(file("a")))).unwrap();
    assert_eq!(*planned.header().unwrap_err().kind(), Kind::Internal);
}

#[tokio::test]
async fn files_of_other_processes_are_neither_read_nor_removed() {
    let sample = Sample::new();
    write(&sample, Mode::Append, &["a"]).await.unwrap();
    let mut planned = plan(&sample, Mode::Append).await.unwrap();
    planned.append_each(std::iter::once(Ok(file("b")))).unwrap();
    invalid(&planned.scan(None, None).await.unwrap_err(), "read rows before adding them");
    invalid(&planned.remove_where("x > 1", 1).await.unwrap_err(), "remove files before adding them");
    invalid(&planned.remove_paths(&names(&["a"]), 1).await.unwrap_err(), "remove files before adding them");
}

#[tokio::test]
async fn an_overwrite_sees_only_its_own_rows() {
    let sample = Sample::new();
    write(&sample, Mode::Append, &["a"]).await.unwrap();
    let mut planned = plan(&sample, Mode::Overwrite).await.unwrap();
    planned.append(vec![file("b")]);
    let seen: Vec<String> = planned.scan(None, None).await.unwrap().tasks.into_iter().map(|task| task.path).collect();
    assert_eq!(seen, ["b"]);
    invalid(&planned.remove_paths(&names(&["a"]), 1).await.unwrap_err(), "not in the table");
    assert_eq!(planned.remove_paths(&names(&["b"]), 1).await.unwrap(), 1);
    planned.append(vec![file("c")]);
    finish(planned, &sample, &["d"]).await.unwrap();
    assert_eq!(files(&sample).await, ["c", "d"]);
}

// --- new tables

async fn create(sample: &Sample, schema: StructType, by: &[&str], properties: &[(&str, &str)]) -> Result<u64> {
    let definition = TableDefinition {
        schema,
        partition_by: names(by),
        properties: properties.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        name: Some("name".to_owned()),
        ..TableDefinition::default()
    };
    let world = World::default();
    let now_ms = world.now_ms();
    let (cache, mode) = (HandleCache::default(), CreateMode::Error);
    let created = Transaction::create(&sample.log, cache, definition, mode, &world, now_ms).await?;
    Ok(finish(created, sample, &[]).await?.version)
}

#[tokio::test]
async fn a_new_table_is_empty_and_as_defined() {
    let sample = Sample::new();
    let properties = [("delta.appendOnly", "true"), ("delta.feature.deletionVectors", "supported"), ("mine", "x")];
    assert_eq!(create(&sample, two(), &["P"], &properties).await.unwrap(), 0);
    let snapshot = sample.open().await.unwrap();
    assert_eq!(snapshot.num_files().await.unwrap(), 0);
    assert_eq!(
        (snapshot.metadata().name.as_deref(), snapshot.shape().partition_columns.clone()),
        (Some("name"), names(&["p"]))
    );
    let kept: Vec<&str> = snapshot.metadata().configuration.keys().map(String::as_str).collect();
    assert_eq!(kept, ["delta.appendOnly", "mine"]);
    assert!(snapshot.protocol().reader_features.as_ref().unwrap().contains(&"deletionVectors".to_owned()));
    let entry = &history(&sample.log, None).await.unwrap()[0];
    assert_eq!(
        (&entry["operation"], &entry["operationParameters"]["partitionBy"]),
        (&json!("CREATE TABLE"), &json!("[\"p\"]"))
    );
    exists(&create(&sample, two(), &[], &[]).await.unwrap_err());
}

#[tokio::test]
async fn invalid_schemas_are_refused() {
    let nested = |inner: &str| json!({"type": "struct", "fields": [{"name": inner, "type": "long", "nullable": true, "metadata": {}}]});
    let array = json!({"type": "array", "elementType": nested("a=b"), "containsNull": true}).to_string();
    let map =
        json!({"type": "map", "keyType": "string", "valueType": nested("a(b"), "valueContainsNull": true}).to_string();
    let twice = json!({"type": "struct", "fields": [nested("a")["fields"][0], nested("A")["fields"][0]]}).to_string();
    let columns: &[(&[(&str, &str)], &str)] = &[
        (&[], "at least one column"),
        (&[("a", "long"), ("A", "long")], "`A` is there twice"),
        (&[("", "long")], "no name"),
        (&[("a b", "long")], "`a b` has the character ' '"),
        (&[("a,b", "long")], "','"),
        (&[("a;b", "long")], "';'"),
        (&[("a{b", "long")], "'{'"),
        (&[("a\nb", "long")], "'\\n'"),
        (&[("s", &array)], "`s.a=b` has the character '='"),
        (&[("s", &map)], "`s.a(b` has the character '('"),
        (&[("s", &twice)], "`s.A` is there twice"),
    ];
    for (columns, words) in columns {
        let sample = Sample::new();
        invalid(&create(&sample, schema(columns), &[], &[]).await.unwrap_err(), words);
        assert!(sample.open().await.unwrap_err().is_not_found(), "the table exists");
    }
    // Dots, dollars and other alphabets are allowed.
    assert!(create(&Sample::new(), schema(&[("a.b", "long"), ("$ü", "long")]), &[], &[]).await.is_ok());
}

#[tokio::test]
async fn invalid_partitionings_are_refused() {
    let list = r#"{"type":"array","elementType":"long","containsNull":true}"#;
    let columns = [("p", "string"), ("x", "long"), ("l", list)];
    let cases: &[(&[&str], &str)] = &[
        (&["q"], "`q` is not in the schema"),
        (&["l"], "columns without children"),
        (&["p", "P"], "`P` is there twice"),
    ];
    for (by, words) in cases {
        invalid(&create(&Sample::new(), schema(&columns), by, &[]).await.unwrap_err(), words);
    }
    invalid(&create(&Sample::new(), two(), &["p", "x"], &[]).await.unwrap_err(), "leave at least one");
}

#[tokio::test]
async fn column_names_of_the_change_feed_are_reserved() {
    let columns = schema(&[("_Change_Type", "string"), ("x", "long")]);
    let feed = [("delta.enableChangeDataFeed", "true")];
    invalid(&create(&Sample::new(), columns.clone(), &[], &feed).await.unwrap_err(), "`_Change_Type` is reserved");
    assert!(create(&Sample::new(), columns, &[], &[]).await.is_ok());
    assert!(create(&Sample::new(), two(), &[], &feed).await.is_ok());
}

/// The handle uses no other committer, neither for commits nor for checksums and compacted log files.
#[tokio::test]
async fn a_table_commits_with_the_committer_that_it_is_given() {
    let (sample, world) = (Sample::new(), World::default());
    let uri = sample.path("");
    let committer = Arc::new(MemoryCommitter::default());
    let table = Table::open(uri.to_str().unwrap(), None, None).unwrap().with_committer(committer.clone());
    let definition = TableDefinition { schema: two(), ..TableDefinition::default() };
    table.create(definition, CreateMode::Error, &world, &world).await.unwrap();
    assert_eq!(committer.versions().into_keys().collect::<Vec<_>>(), [0]);
    let first = json!({"commitInfo": {}});
    sample.commit(0, &[first.clone(), protocol(1, 2), metadata(&[("x", "long")], &[], json!({}))]);
    sample.commit(1, &[first]);
    table.compact_log(Some(0), Some(1)).await.unwrap();
    table.write_checksum().await.unwrap();
    let mut files: Vec<_> =
        std::fs::read_dir(sample.path("_delta_log")).unwrap().map(|file| file.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["00000000000000000000.json", "00000000000000000001.json", "_sidecars"]);
}
