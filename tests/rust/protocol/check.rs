//! Comparing two records of one version.

use deltic_protocol::action::batch::{AddBatch, Origin};
use deltic_protocol::action::json::{CommitActions, Wanted, parse_commit};
use deltic_protocol::action::{CommitInfo, DomainMetadata, Metadata, Protocol, Txn};
use deltic_protocol::check::{
    Files, State, Totals, VersionRecord, checksum_differences, file_differences, state_differences,
};
use deltic_protocol::log::crc::{DELETED_RECORD_BINS, VersionChecksum, all_files, deleted_records_bin};
use serde_json::{Value, json};

fn actions(lines: &[Value]) -> CommitActions {
    // An empty commit would count as incomplete.
    let provenance = json!({"commitInfo": {}}).to_string();
    let text: Vec<String> = std::iter::once(provenance).chain(lines.iter().map(Value::to_string)).collect();
    parse_commit(&text.join("\n").into(), Origin::Commit(0), Wanted::All).unwrap()
}

/// Live files, each a path, a size and how many rows its deletion vector deletes.
fn adds(files: &[(&str, i64, Option<i64>)]) -> AddBatch {
    let line = |(path, size, deleted): &(&str, i64, Option<i64>)| {
        let mut add =
            json!({"path": path, "size": size, "partitionValues": {}, "modificationTime": 0, "dataChange": true});
        if let Some(rows) = deleted {
            add["deletionVector"] = json!({
                "storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 1, "sizeInBytes": 36, "cardinality": rows,
            });
        }
        json!({ "add": add })
    };
    actions(&files.iter().map(line).collect::<Vec<_>>()).adds
}

fn state() -> State {
    State {
        protocol: Protocol {
            min_reader_version: 3,
            min_writer_version: 7,
            reader_features: Some(vec!["deletionVectors".into(), "columnMapping".into()]),
            writer_features: Some(vec!["deletionVectors".into(), "columnMapping".into()]),
        },
        metadata: metadata(),
        txns: vec![
            Txn { app_id: "stream".into(), version: 5, last_updated: Some(1) },
            Txn { app_id: "batch".into(), version: 7, last_updated: None },
        ],
        domains: vec![DomainMetadata { domain: "delta.clustering".into(), configuration: "{}".into(), removed: false }],
    }
}

fn metadata() -> Metadata {
    let schema =
        json!({"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": true, "metadata": {}}]});
    serde_json::from_value(json!({
        "id": "a", "format": {"provider": "parquet", "options": {}}, "schemaString": schema.to_string(),
        "partitionColumns": [], "configuration": {"delta.appendOnly": "true"}, "createdTime": 3,
    }))
    .unwrap()
}

const FILES: &[(&str, i64, Option<i64>)] =
    &[("a", 0, None), ("b", 8191, None), ("c", 8192, Some(1)), ("d", 1 << 40, Some(123))];

fn totals(files: &[(&str, i64, Option<i64>)]) -> Totals {
    let mut totals = Totals::new(&[0, 8192, 16384]);
    totals.take(&adds(files)).unwrap();
    totals
}

/// The checksum of [`FILES`] and [`state`], with all optional members.
fn checksum() -> Value {
    json!({
        "txnId": "t", "tableSizeBytes": 8191 + 8192 + (1_i64 << 40), "numFiles": 4, "numMetadata": 1, "numProtocol": 1,
        "inCommitTimestampOpt": 17, "numDeletedRecordsOpt": 124, "numDeletionVectorsOpt": 2,
        "setTransactions": state().txns, "domainMetadata": state().domains, "metadata": state().metadata,
        "protocol": state().protocol,
        "fileSizeHistogram": {"sortedBinBoundaries": [0, 8192, 16384], "fileCounts": [2, 1, 1], "totalBytes": [8191, 8192, 1_i64 << 40]},
        "deletedRecordCountsHistogramOpt": {"deletedRecordCounts": [2, 1, 0, 1, 0, 0, 0, 0, 0, 0]},
    })
}

fn commit() -> CommitInfo {
    CommitInfo(json!({"txnId": "t", "inCommitTimestamp": 17}).as_object().unwrap().clone())
}

fn differences(checksum: &Value) -> Vec<String> {
    let checksum = VersionChecksum::parse(checksum.to_string().as_bytes()).unwrap();
    checksum_differences(&checksum, &state(), &totals(FILES), Some(&commit()))
}

#[test]
fn a_correct_checksum_has_no_difference() {
    assert_eq!(differences(&checksum()), Vec::<String>::new());
    // The member has this name in older checksums.
    let mut old = checksum();
    old["histogramOpt"] = old["fileSizeHistogram"].take();
    assert_eq!(differences(&old), Vec::<String>::new());
    old["histogramOpt"]["fileCounts"] = json!([1, 2, 1]);
    assert_eq!(differences(&old).len(), 2);
}

#[test]
fn every_member_of_a_checksum_is_compared() {
    // A member, a wrong value, and the message.
    let cases = [
        ("/numFiles", json!(5), "`numFiles` is 5 in the checksum and 4 in the log"),
        ("/tableSizeBytes", json!(1), "`tableSizeBytes` is 1 in the checksum and 1099511644159 in the log"),
        ("/numDeletedRecordsOpt", json!(0), "`numDeletedRecordsOpt` is 0 in the checksum and 124 in the log"),
        ("/numDeletionVectorsOpt", json!(3), "`numDeletionVectorsOpt` is 3 in the checksum and 2 in the log"),
        ("/inCommitTimestampOpt", json!(null), "`inCommitTimestampOpt` is null in the checksum and 17 in the log"),
        ("/txnId", json!("u"), "`txnId` is \"u\" in the checksum and \"t\" in the log"),
        ("/protocol/minWriterVersion", json!(8), "`protocol.minWriterVersion` is 8 in the checksum and 7 in the log"),
        (
            "/protocol/readerFeatures",
            json!(["columnMapping"]),
            "`protocol.readerFeatures` is [\"columnMapping\"] in the checksum and [\"columnMapping\",\"deletionVectors\"] in the log",
        ),
        ("/metadata/id", json!("b"), "`metadata.id` is \"b\" in the checksum and \"a\" in the log"),
        ("/metadata/name", json!("n"), "`metadata.name` is \"n\" in the checksum and null in the log"),
        ("/metadata/description", json!("d"), "`metadata.description` is \"d\" in the checksum and null in the log"),
        ("/metadata/createdTime", json!(4), "`metadata.createdTime` is 4 in the checksum and 3 in the log"),
        (
            "/metadata/partitionColumns",
            json!(["id"]),
            "`metadata.partitionColumns` is [\"id\"] in the checksum and [] in the log",
        ),
        (
            "/metadata/configuration",
            json!({}),
            "`metadata.configuration.delta.appendOnly` is null in the checksum and \"true\" in the log",
        ),
        ("/metadata/schemaString", json!("{}"), "`metadata.schemaString` is \"{}\" in the checksum and"),
        ("/setTransactions", json!([state().txns[0]]), "the transaction `batch` is in the log but not in the checksum"),
        (
            "/setTransactions/0/version",
            json!(6),
            "the version of the transaction `stream` is 6 in the checksum and 5 in the log",
        ),
        ("/domainMetadata", json!([]), "the domain `delta.clustering` is in the log but not in the checksum"),
        (
            "/domainMetadata/0/configuration",
            json!("x"),
            "the configuration of the domain `delta.clustering` is \"x\" in the checksum and \"{}\" in the log",
        ),
        (
            "/fileSizeHistogram/totalBytes",
            json!([8191, 8193, 1_i64 << 40]),
            "`fileSizeHistogram.totalBytes` of the bin from 8192 is 8193 in the checksum and 8192 in the log",
        ),
        (
            "/deletedRecordCountsHistogramOpt/deletedRecordCounts",
            json!([3, 0, 0, 1, 0, 0, 0, 0, 0, 0]),
            "`deletedRecordCountsHistogramOpt` is [3,0,0,1,0,0,0,0,0,0] in the checksum and [2,1,0,1,0,0,0,0,0,0] in the log",
        ),
    ];
    for (member, value, sentence) in cases {
        let mut wrong = checksum();
        match wrong.pointer_mut(member) {
            Some(place) => *place = value,
            None => wrong["metadata"][member.trim_start_matches("/metadata/")] = value,
        }
        let found = differences(&wrong);
        assert_eq!(found.len(), 1, "{member}: {found:?}");
        assert!(found[0].starts_with(sentence), "{}\n{sentence}", found[0]);
    }
}

#[test]
fn optional_members_and_spelling_are_no_difference() {
    let mut checksum = checksum();
    for member in [
        "txnId",
        "setTransactions",
        "domainMetadata",
        "fileSizeHistogram",
        "numDeletedRecordsOpt",
        "numDeletionVectorsOpt",
        "deletedRecordCountsHistogramOpt",
    ] {
        checksum.as_object_mut().unwrap().remove(member);
    }
    // The order of names, and spaces in the schema, make no difference.
    checksum["protocol"]["readerFeatures"] = json!(["columnMapping", "deletionVectors"]);
    let schema = checksum["metadata"]["schemaString"].as_str().unwrap().replace(',', " , ");
    checksum["metadata"]["schemaString"] = json!(schema);
    assert_eq!(differences(&checksum), Vec::<String>::new());
}

#[test]
fn an_expired_transaction_is_no_difference() {
    let mut log = state();
    log.metadata.configuration.insert("delta.setTransactionRetentionDuration".into(), "interval 1 day".into());
    let mut checkpoint = log.clone();
    checkpoint.txns.clear();
    let compare = |here: &State, there: &State| {
        state_differences(
            VersionRecord { name: "the checkpoint", content: here },
            VersionRecord { name: "the commits", content: there },
        )
    };
    // A transaction without a time never expires.
    assert_eq!(compare(&checkpoint, &log), ["the transaction `batch` is in the commits but not in the checkpoint"]);
    assert_eq!(compare(&log, &checkpoint).len(), 2);
    assert!(compare(&log, &log).is_empty());
}

#[test]
fn old_checksums_are_completed() {
    let old = json!({"tableSizeBytes": 1, "numFiles": 2, "numMetadata": 1, "numProtocol": 1, "numTransactions": 0});
    let bytes = old.to_string().into_bytes();
    assert!(VersionChecksum::parse(&bytes).is_err());
    let checksum = VersionChecksum::parse_old(&bytes, &metadata(), &state().protocol).unwrap();
    assert_eq!((checksum.num_files, checksum.metadata), (2, metadata()));
    let whole = VersionChecksum::parse_old(self::checksum().to_string().as_bytes(), &metadata(), &state().protocol);
    assert_eq!(whole.unwrap(), VersionChecksum::parse(self::checksum().to_string().as_bytes()).unwrap());
    let bare = "{\"tableSizeBytes\": 1, \"numFiles\": 2, \"numMetadata\": 1, \"numProtocol\": 1";
    let twice = format!("{bare}, \"numFiles\": 3}}");
    let protocols = format!("{bare}, \"protocol\": {0}, \"protocol\": {0}}}", self::checksum()["protocol"]);
    for broken in ["", "[]", "{}", "{\"numFiles\": 1", bare, &twice, &protocols] {
        assert!(VersionChecksum::parse_old(broken.as_bytes(), &metadata(), &state().protocol).is_err(), "{broken}");
    }
}

#[test]
fn files_are_compared_by_path_deletion_vector_and_size() {
    let files = |of: &[(&str, i64, Option<i64>)]| {
        let mut files = Files::default();
        files.take(&adds(of)).unwrap();
        files
    };
    let compare = |here: &Files, there: &Files| -> Vec<String> {
        let (here, there) = (VersionRecord { name: "A", content: here }, VersionRecord { name: "B", content: there });
        file_differences(here, there).into_iter().map(|(path, sentence)| format!("{path}: {sentence}")).collect()
    };
    let all = files(FILES);
    assert!(compare(&all, &all).is_empty());
    let other = files(&[("%61", 0, None), ("b", 1, None), ("c", 8192, None), ("e", 5, None)]);
    let id = "uab^-aqEH.-t@S}K{vb[*k^@1";
    assert_eq!(
        compare(&all, &other),
        [
            "b: the file has 8191 bytes in A and 1 bytes in B".to_owned(),
            "c: the file is live in B but not in A".to_owned(),
            format!("c: the file with the deletion vector {id} is live in A but not in B"),
            format!("d: the file with the deletion vector {id} is live in A but not in B"),
            "e: the file is live in B but not in A".to_owned(),
        ]
    );
}

#[test]
fn lists_of_all_files() {
    let list = |text: &str| all_files(text.as_bytes());
    assert!(list("{}").unwrap().is_none());
    assert!(list(r#"{"allFiles": null}"#).unwrap().is_none());
    let text = r#"{"numFiles": 1, "allFiles": [{"path": "a%20b", "partitionValues": {}, "size": 3, "modificationTime": 1, "dataChange": false}]}"#;
    let listed = list(text).unwrap().unwrap();
    let (mut here, mut there) = (Files::default(), Files::default());
    here.take_list(&listed);
    there.take(&adds(&[("a b", 3, None)])).unwrap();
    assert_eq!(here, there);
    assert!(list(r#"{"allFiles": [{"path": 1}]}"#).is_err());
}

#[test]
fn bins_of_deleted_records() {
    let starts = [0, 1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 2_147_483_647, i64::MAX];
    for (bin, start) in starts.into_iter().enumerate() {
        let bin = bin.min(DELETED_RECORD_BINS - 1);
        assert_eq!(deleted_records_bin(start), bin, "{start}");
        if (1..DELETED_RECORD_BINS).contains(&bin) && start < i64::MAX {
            assert_eq!(deleted_records_bin(start - 1), bin - 1, "{start} - 1");
        }
    }
    assert_eq!(deleted_records_bin(i64::MIN), 0);
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn totals_are_sums(files in prop::collection::vec((any::<i32>(), prop::option::of(0..5_000_000_000_i64)), 0..20)) {
            let named: Vec<(String, i64, Option<i64>)> =
                files.iter().enumerate().map(|(i, (size, deleted))| (format!("f{i}"), i64::from(*size), *deleted)).collect();
            let borrowed: Vec<(&str, i64, Option<i64>)> = named.iter().map(|(p, s, d)| (p.as_str(), *s, *d)).collect();
            let totals = totals(&borrowed);
            prop_assert_eq!(totals.files, files.len() as i64);
            prop_assert_eq!(totals.bytes, borrowed.iter().map(|f| f.1).sum::<i64>());
            prop_assert_eq!(totals.deletion_vectors, borrowed.iter().filter(|f| f.2.is_some()).count() as i64);
            prop_assert_eq!(totals.deleted_records, borrowed.iter().filter_map(|f| f.2).sum::<i64>());
            // Adding one batch at a time gives the same.
            let mut one_by_one = Totals::new(&[0, 8192, 16384]);
            for file in &borrowed {
                one_by_one.take(&adds(&[*file])).unwrap();
            }
            prop_assert_eq!(one_by_one, totals);
        }
    }
}
