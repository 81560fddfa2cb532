//! Dynamic partition overwrites: which files are removed, and which concurrent commits conflict.

use std::collections::BTreeMap;

use deltic_protocol::action::Add;
use deltic_protocol::error::{Conflict, Kind, Result};
use deltic_protocol::schema::arrow::to_arrow_schema;
use deltic_protocol::schema::json::parse as parse_schema;
use deltic_table::commit::RetryPolicy;
use deltic_table::committers::LogCommitter;
use deltic_table::transaction::builder::{
    HandleCache, Mode, PartitionOverwrite, Transaction, TransactionEnd, TransactionHeader, WriteOptions,
};
use deltic_table::write::plan::DataFile;
use serde_json::{Value, json};

use super::World;
use crate::sample::{Sample, add_with, live, metadata, protocol, protocol_of, remove, vector};

const COLUMNS: [(&str, &str); 4] = [("p", "string"), ("q", "timestamp"), ("r", "double"), ("x", "long")];
const BY: [&str; 3] = ["p", "q", "r"];

type Key<'a> = [Option<&'a str>; 3];

fn values(key: Key<'_>) -> Value {
    BY.iter().zip(key).map(|(name, value)| ((*name).to_owned(), json!(value))).collect()
}

fn add(path: &str, key: Key<'_>) -> Value {
    add_with(path, json!({"partitionValues": values(key), "size": 7}))
}

/// A table of the files, partitioned by three columns.
fn table(files: &[Value]) -> Sample {
    let sample = Sample::new();
    let features = protocol_of(&["deletionVectors"], &["deletionVectors", "appendOnly", "invariants"]);
    sample.commit(0, &[&[features, metadata(&COLUMNS, &BY, json!({}))], files].concat());
    sample
}

async fn plan(sample: &Sample, mode: Mode) -> Result<Transaction> {
    let metadata = metadata(&COLUMNS, &[], json!({}));
    let rows = parse_schema(metadata["metaData"]["schemaString"].as_str().unwrap()).unwrap();
    let options = WriteOptions { mode, partition_overwrite: PartitionOverwrite::Dynamic, ..WriteOptions::default() };
    let now = World.now_ms();
    Transaction::write(&sample.log, HandleCache::default(), &to_arrow_schema(&rows), &options, &World, now).await
}

fn file(path: &str, key: Key<'_>) -> DataFile {
    let partition_values: BTreeMap<_, _> =
        BY.iter().zip(key).map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned))).collect();
    let add = Add { path: path.to_owned(), partition_values, size: 7, data_change: true, ..Add::default() };
    DataFile { add, rows: 3, identities: BTreeMap::new() }
}

async fn commit(mut tx: Transaction, sample: &Sample, files: Vec<DataFile>) -> Result<(u64, u32)> {
    tx.append_each(files.into_iter().map(Ok))?;
    match tx.commit(&LogCommitter::new(sample.log.clone()), &World).await? {
        TransactionEnd::Committed(outcome) => Ok((outcome.committed.version, outcome.committed.attempts)),
        TransactionEnd::Replayed(_) | TransactionEnd::Nothing => panic!("a write is committed"),
    }
}

/// Resumes the transaction from its header, as another process does.
fn resumed(tx: &Transaction, sample: &Sample) -> Transaction {
    let header = TransactionHeader::from_bytes(&tx.header().unwrap().to_bytes().unwrap()).unwrap();
    Transaction::resume(&sample.log, header).unwrap()
}

async fn files(sample: &Sample) -> Vec<String> {
    let live = live(&sample.open().await.unwrap()).await.unwrap();
    // Without their deletion vectors.
    live.iter().filter_map(|file| file.split(' ').next()).map(str::to_owned).collect()
}

const NOON: &str = "2026-03-01T12:00:00Z";

/// Two files of one partition, spelled in two ways, and four of others.
fn spread() -> Vec<Value> {
    let mut deleted = add("same-2", [Some("a"), Some("2026-03-01 12:00:00"), Some("1")]);
    deleted["add"]["deletionVector"] = vector(1);
    vec![
        add("same-1", [Some("a"), Some(NOON), Some("1.0")]),
        deleted,
        add("other-p", [Some("b"), Some(NOON), Some("1.0")]),
        add("other-q", [Some("a"), Some("2026-03-01T13:00:00Z"), Some("1.0")]),
        add("other-r", [Some("a"), Some(NOON), Some("2.0")]),
        add("null-r", [Some("a"), Some(NOON), None]),
        add("nan-r", [Some("a"), Some(NOON), Some("NaN")]),
        add("null-all", [None, None, None]),
    ]
}

#[tokio::test]
async fn only_the_partitions_of_the_new_rows_are_replaced() {
    let all: Vec<String> = ["nan-r", "null-all", "null-r", "other-p", "other-q", "other-r", "same-1", "same-2"]
        .map(str::to_owned)
        .to_vec();
    for (keys, gone) in [
        (vec![], vec![]),
        (vec![[Some("a"), Some(NOON), Some("1.0")]], vec!["same-1", "same-2"]),
        (vec![[Some("a"), Some(NOON), None]], vec!["null-r"]),
        (vec![[Some("a"), Some(NOON), Some("NaN")]], vec!["nan-r"]),
        (vec![[None, None, None]], vec!["null-all"]),
        (vec![[Some("c"), Some(NOON), Some("1.0")]], vec![]),
        (
            vec![[Some("b"), Some(NOON), Some("1.0")], [Some("a"), Some(NOON), Some("2.0")], [None, None, Some("1.0")]],
            vec!["other-p", "other-r"],
        ),
    ] {
        for is_resumed in [false, true] {
            let sample = table(&spread());
            let tx = plan(&sample, Mode::Overwrite).await.unwrap();
            let tx = if is_resumed { resumed(&tx, &sample) } else { tx };
            let added = keys.iter().enumerate().map(|(at, key)| file(&format!("zz-{at}"), *key)).collect();
            assert_eq!(commit(tx, &sample, added).await.unwrap(), (1, 1));
            let kept = all.iter().filter(|path| !gone.contains(&path.as_str())).cloned();
            let wanted: Vec<String> = kept.chain((0..keys.len()).map(|at| format!("zz-{at}"))).collect();
            assert_eq!(files(&sample).await, wanted, "{keys:?}");
            let info = sample.read(1).into_iter().find_map(|a| a.get("commitInfo").cloned()).unwrap();
            assert_eq!(info["operationParameters"]["mode"], "Overwrite");
            assert_eq!(info["operationParameters"]["isDynamicPartitionOverwrite"], true);
            assert_eq!(info["operationMetrics"]["numRemovedFiles"], gone.len().to_string());
        }
    }
}

#[tokio::test]
async fn the_removed_file_keeps_its_vector() {
    let sample = table(&spread());
    let tx = plan(&sample, Mode::Overwrite).await.unwrap();
    commit(tx, &sample, vec![file("new", [Some("a"), Some(NOON), Some("1.0")])]).await.unwrap();
    let removes: Vec<Value> = sample.read(1).into_iter().filter_map(|a| a.get("remove").cloned()).collect();
    let of = |path: &str| removes.iter().find(|remove| remove["path"] == path).unwrap();
    assert!(of("same-1")["deletionVector"].is_null() && of("same-2")["deletionVector"].is_object());
    assert!(removes.iter().all(|remove| remove["dataChange"] == true));
}

#[tokio::test]
async fn only_commits_to_the_same_partitions_conflict() {
    let same = [Some("a"), Some(NOON), Some("1.0")];
    let other = [Some("b"), Some(NOON), Some("1.0")];
    let cases: [(Vec<Value>, Option<Conflict>); 6] = [
        (vec![add("theirs", same)], Some(Conflict::ConcurrentAppend)),
        (vec![add("theirs", [Some("a"), Some("2026-03-01 12:00:00"), Some("1")])], Some(Conflict::ConcurrentAppend)),
        (vec![add("theirs", other)], None),
        (vec![remove("same-1")], Some(Conflict::ConcurrentDeleteRead)),
        (vec![remove("other-p")], None),
        (vec![metadata(&COLUMNS, &BY, json!({"delta.appendOnly": "true"}))], Some(Conflict::MetadataChanged)),
    ];
    for is_resumed in [false, true] {
        for (theirs, conflict) in &cases {
            let sample = table(&spread());
            let tx = plan(&sample, Mode::Overwrite).await.unwrap();
            let tx = if is_resumed { resumed(&tx, &sample) } else { tx };
            sample.commit(1, theirs);
            let ended = commit(tx, &sample, vec![file("new", same)]).await;
            match conflict {
                None => assert_eq!(ended.unwrap(), (2, 2)),
                Some(conflict) => assert_eq!(*ended.unwrap_err().kind(), Kind::Conflict(*conflict), "{theirs:?}"),
            }
        }
    }
}

#[tokio::test]
async fn overwrites_conflict_only_in_the_same_partition() {
    let sample = table(&spread());
    let keys = [[Some("a"), Some(NOON), Some("1.0")], [Some("b"), Some(NOON), Some("1.0")]];
    let begin = || plan(&sample, Mode::Overwrite);
    let (first, second, third) = (begin().await.unwrap(), begin().await.unwrap(), begin().await.unwrap());
    assert_eq!(commit(first, &sample, vec![file("one", keys[0])]).await.unwrap(), (1, 1));
    assert_eq!(commit(second, &sample, vec![file("two", keys[1])]).await.unwrap(), (2, 2));
    let lost = commit(third, &sample, vec![file("three", keys[0])]).await.unwrap_err();
    assert_eq!(*lost.kind(), Kind::Conflict(Conflict::ConcurrentAppend));
}

#[tokio::test]
async fn missing_and_unpartitioned_tables_are_overwritten() {
    let sample = Sample::new();
    let columns = &COLUMNS;
    sample.commit(0, &[protocol(1, 2), metadata(columns, &[], json!({})), add_with("a", json!({}))]);
    let tx = plan(&sample, Mode::Overwrite).await.unwrap();
    commit(tx, &sample, vec![]).await.unwrap();
    assert_eq!(files(&sample).await, Vec::<String>::new());

    let nothing = Sample::new();
    let tx = plan(&nothing, Mode::Overwrite).await.unwrap();
    assert_eq!(commit(tx, &nothing, vec![file("a", [None, None, None])]).await.unwrap(), (0, 1));
}

#[tokio::test]
async fn append_only_tables_and_other_modes_are_refused() {
    let sample = Sample::new();
    sample.commit(0, &[protocol(1, 2), metadata(&COLUMNS, &BY, json!({"delta.appendOnly": "true"}))]);
    let error = plan(&sample, Mode::Overwrite).await.unwrap_err();
    assert!(*error.kind() == Kind::Invalid && error.to_string().contains("append-only"), "{error}");
    for (mode, sample) in [(Mode::Append, &table(&[])), (Mode::Append, &Sample::new()), (Mode::Error, &Sample::new())] {
        let error = plan(sample, mode).await.unwrap_err();
        assert!(*error.kind() == Kind::Invalid && error.to_string().contains("mode=\"overwrite\""), "{error}");
    }
}
