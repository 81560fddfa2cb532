//! Opening versions: requests, damaged logs, and live files.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{RecordBatch, new_null_array};
use arrow_schema::{DataType, Field, Fields, Schema};
use deltic_protocol::error::{Error, Kind};
use deltic_table::checkpoint::read::AddColumns;
use deltic_table::scan::plan::ScanPlan;
use deltic_table::snapshot::Snapshot;
use futures::TryStreamExt;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use serde_json::{Value, json};

use super::sample::{
    Sample, add, add_with, lines, live, metadata, parquet, parquet_with_stats, protocol, remove, sidecar, vector,
};

const UUID: &str = "80a083e8-7026-4e79-81be-64bd76c43a11";

fn is_corrupt(error: &Error, words: &str) -> bool {
    *error.kind() == Kind::Corrupt && error.to_string().contains(words)
}

/// The state of a table with one `long` column and these files, as actions of a checkpoint.
fn state(files: &[Value]) -> Vec<Value> {
    let mut actions = vec![protocol(1, 2), metadata(&[("x", "long")], &[], json!({}))];
    actions.extend(files.iter().cloned());
    actions
}

fn checksum(files: i64) -> String {
    let (protocol, metadata) = (protocol(1, 2), metadata(&[("x", "long")], &[], json!({})));
    json!({"tableSizeBytes": 10 * files, "numFiles": files, "numMetadata": 1, "numProtocol": 1,
        "metadata": metadata["metaData"], "protocol": protocol["protocol"]})
    .to_string()
}

/// Opens the newest version and lists its files. Returns the GETs and listings of both steps, and the files.
async fn requests(sample: &Sample) -> ((u64, u64), (u64, u64), Vec<String>) {
    let (opened, snapshot) = sample.counted(sample.open()).await;
    let snapshot = snapshot.unwrap();
    let (listed, files) = sample.counted(live(&snapshot)).await;
    // The second time only the rows of the checkpoint are read again.
    let again = sample.counted(snapshot.tail()).await.0;
    assert_eq!(again, (0, 0));
    (opened, listed, files.unwrap())
}

/// The paths of a plan, which caches its columns.
async fn kept(snapshot: &Snapshot) -> Vec<String> {
    let plan = ScanPlan::new(snapshot, None, None).await.unwrap();
    let (_, batches) = plan.to_batches().await.unwrap();
    let column = |batch: &RecordBatch| batch["path"].as_string::<i32>().iter().flatten().map(str::to_owned).collect();
    let mut paths: Vec<String> = batches.iter().flat_map::<Vec<_>, _>(column).collect();
    paths.sort();
    paths
}

// --- requests

#[tokio::test]
async fn without_a_checkpoint_each_commit_is_read_once() {
    let sample = Sample::with_commits(&[vec![add("a")], vec![add("b"), remove("a")]]);
    // The missing hint, and three commits.
    assert_eq!(requests(&sample).await, ((4, 1), (0, 0), vec!["b".to_owned()]));
}

#[tokio::test]
async fn after_a_checkpoint_only_newer_commits_are_read() {
    let sample = Sample::with_commits(&[vec![add("a")], vec![add("b")], vec![remove("a")], vec![add("c")]]);
    sample.checkpoint(2, &state(&[add("a"), add("b")]));
    sample.hint(2);
    // Hint, two commits, footer of the checkpoint and its row group with protocol and metadata; then its adds.
    assert_eq!(requests(&sample).await, ((5, 1), (2, 0), vec!["b".to_owned(), "c".to_owned()]));
    // The checkpoint is requested together with the commits, but need not exist if a commit has protocol and metadata.
    sample.commit(5, &[protocol(1, 2), metadata(&[("x", "long")], &[], json!({}))]);
    assert_eq!(sample.counted(sample.open()).await.0, (6, 1));
    sample.put("00000000000000000002.checkpoint.parquet", "broken");
    assert_eq!(sample.open().await.unwrap().version(), 5);
}

#[tokio::test]
async fn a_refresh_before_a_plan_reads_only_new_commits() {
    let sample = Sample::with_commits(&[vec![add("a")], vec![add("b")], vec![add("c")]]);
    let snapshot = sample.open().await.unwrap();
    sample.commit(4, &[remove("a")]);
    let (requests, refreshed) = sample.counted(snapshot.refresh()).await;
    assert_eq!(requests, (1, 1));
    assert_eq!(live(&refreshed.unwrap()).await.unwrap(), ["b", "c"]);
}

#[tokio::test]
async fn a_replaced_checkpoint_is_not_mixed_with_the_old_one() {
    let sample = Sample::with_commits(&[vec![add("a")], vec![add("b")]]);
    let (here, later) = (state(&[add("a"), add("b")]), state(&[add("b"), add("a")]));
    sample.checkpoint(2, &here);
    let snapshot = sample.open().await.unwrap();
    snapshot.checkpoint().await.unwrap();
    // Another checkpoint of the same size, renamed to the same name.
    let other = parquet(&later);
    assert_eq!(other.len(), parquet(&here).len());
    sample.put("other", &other);
    std::fs::rename(sample.log("other"), sample.log("00000000000000000002.checkpoint.parquet")).unwrap();
    let error = live(&snapshot).await.unwrap_err();
    assert_eq!(*error.kind(), Kind::Storage { retryable: true }, "{error}");
    assert_eq!(live(&snapshot.refresh().await.unwrap()).await.unwrap(), ["a", "b"]);
}

#[tokio::test]
async fn neighbouring_versions_share_the_checkpoint() {
    let sample = Sample::with_commits(&[vec![add("a")], vec![add("b")], vec![remove("a")], vec![add("c")]]);
    sample.checkpoint(2, &state(&[add("a"), add("b")]));
    sample.hint(2);
    let snapshot = sample.open().await.unwrap();
    assert_eq!(kept(&snapshot).await, ["b", "c"]);
    // A listing and one commit. The columns of the checkpoint are cached.
    let (opened, before) = sample.counted(snapshot.at(3)).await;
    let before = before.unwrap();
    assert_eq!((opened, before.version()), ((1, 1), 3));
    let (planned, files) = sample.counted(kept(&before)).await;
    assert_eq!((planned, files), ((0, 0), vec!["b".to_owned()]));
    // Only a listing for the same version, and for that of the checkpoint.
    let (opened, same) = sample.counted(snapshot.at(4)).await;
    assert_eq!((opened, kept(&same.unwrap()).await), ((0, 1), vec!["b".to_owned(), "c".to_owned()]));
    let (opened, first) = sample.counted(before.at(2)).await;
    assert_eq!((opened, kept(&first.unwrap()).await), ((0, 1), vec!["a".to_owned(), "b".to_owned()]));
    // A later version reads only its new commits, even if it is not the newest.
    sample.commit(5, &[add("d")]);
    let (opened, newer) = sample.counted(before.at(4)).await;
    let newer = newer.unwrap();
    assert_eq!((opened, newer.version()), ((1, 1), 4));
    let (planned, files) = sample.counted(kept(&newer)).await;
    assert_eq!((planned, files), ((0, 0), vec!["b".to_owned(), "c".to_owned()]));
    // The checksum of the version saves counting its files. Checksums of earlier versions are not read.
    for (version, files, expected) in [(3, 77, ((1, 1), (2, 0))), (4, 2, ((1, 1), (1, 0)))] {
        sample.put(&format!("{version:020}.crc"), checksum(files));
        let (opened, newer) = sample.counted(before.at(4)).await;
        let (counted, found) = sample.counted(async { newer.unwrap().num_files().await }).await;
        assert_eq!(((opened, counted), found.unwrap()), (expected, 2), "with the checksum of {version}");
    }
    // A version with another segment is opened again, and a missing version gives the same error.
    assert_eq!(kept(&snapshot.at(1).await.unwrap()).await, ["a"]);
    let (of_snapshot, of_path) = (snapshot.at(6).await.unwrap_err(), sample.open_at(6).await.unwrap_err());
    assert_eq!(of_snapshot.to_string(), of_path.to_string());
}

#[tokio::test]
async fn a_version_of_a_recreated_table_is_read_again() {
    let sample = Sample::with_commits(&[vec![add("a")], vec![add("b")]]);
    let snapshot = sample.open().await.unwrap();
    assert_eq!(kept(&snapshot.at(2).await.unwrap()).await, ["a", "b"]);
    sample.commit(2, &[add("of another table")]);
    assert_eq!(kept(&snapshot.at(2).await.unwrap()).await, ["a", "of another table"]);
    // The same with a checkpoint.
    sample.checkpoint(1, &state(&[add("z")]));
    let snapshot = sample.open().await.unwrap();
    assert_eq!(kept(&snapshot).await, ["of another table", "z"]);
    sample.checkpoint(1, &state(&[add("y"), add("of a larger checkpoint")]));
    assert_eq!(kept(&snapshot.at(2).await.unwrap()).await, ["of a larger checkpoint", "of another table", "y"]);
}

#[tokio::test]
async fn with_a_current_checksum_nothing_else_is_read() {
    let sample = Sample::with_commits(&[vec![add("a")], vec![add("b")], vec![add("c")]]);
    sample.checkpoint(2, &state(&[add("a"), add("b")]));
    sample.hint(2);
    sample.put("00000000000000000003.crc", checksum(3));
    let (opened, snapshot) = sample.counted(sample.open()).await;
    let snapshot = snapshot.unwrap();
    assert_eq!(opened, (2, 1));
    let (counted, files) = sample.counted(snapshot.num_files()).await;
    assert_eq!((counted, files.unwrap()), ((0, 0), 3));
    assert_eq!(live(&snapshot).await.unwrap(), ["a", "b", "c"]);
}

#[tokio::test]
async fn limiting_the_cache_opens_nothing() {
    let sample = Sample::with_commits(&[vec![add("a")], vec![add("b")], vec![add("c")]]);
    sample.checkpoint(2, &state(&[add("a"), add("b")]));
    sample.hint(2);
    sample.put("00000000000000000003.crc", checksum(3));
    let snapshot = sample.open().await.unwrap();
    assert_eq!(sample.counted(async { snapshot.limit_cache(0) }).await.0, (0, 0));
    assert_eq!(ScanPlan::new(&snapshot, None, None).await.unwrap().tasks().await.unwrap().len(), 3);
    assert_eq!(snapshot.files().await.unwrap().unwrap().cached_bytes(), 0);
}

#[tokio::test]
async fn an_older_checksum_saves_reading_earlier_commits() {
    let sample = Sample::with_commits(&[vec![add("a")], vec![add("b")], vec![add("c")], vec![remove("a")]]);
    sample.put("00000000000000000003.crc", checksum(3));
    let (opened, snapshot) = sample.counted(sample.open()).await;
    let snapshot = snapshot.unwrap();
    // Hint, checksum, commit 4.
    assert_eq!(opened, (3, 1));
    assert!(snapshot.checksum().is_none(), "the checksum is of another version");
    assert_eq!(snapshot.num_files().await.unwrap(), 2);
    // Commits after the checksum count.
    sample.commit(5, &[metadata(&[("x", "long"), ("y", "string")], &[], json!({}))]);
    let snapshot = sample.open().await.unwrap();
    assert_eq!(snapshot.shape().schema.fields.len(), 2);
    // An older version does not use a newer checksum.
    assert!(sample.open_at(2).await.unwrap().checksum().is_none());
    assert_eq!(sample.open_at(3).await.unwrap().checksum().unwrap().num_files, 3);
}

#[tokio::test]
async fn invalid_checksums_are_ignored() {
    for wrong in [
        "",
        "{",
        "[]",
        "{}",
        &checksum(3)[..100],
        &checksum(-3),
        &checksum(3).replace("\"numProtocol\":1", "\"numProtocol\":2"),
    ] {
        let sample = Sample::with_commits(&[vec![add("a")]]);
        sample.put("00000000000000000001.crc", wrong);
        let snapshot = sample.open().await.unwrap();
        assert!(snapshot.checksum().is_none(), "{wrong}");
        assert_eq!(snapshot.num_files().await.unwrap(), 1);
    }
}

#[tokio::test]
async fn wrong_hints_do_no_harm() {
    let sample = Sample::with_commits(&[vec![add("a")], vec![add("b")], vec![add("c")]]);
    sample.checkpoint(2, &state(&[add("a"), add("b")]));
    let good = json!({"version": 2, "size": 4}).to_string();
    let cases: &[(&str, u64)] = &[
        (&good, 1),
        // An older checkpoint: one listing from there. A missing one: a second listing, from the start.
        (&good.replace('2', "1"), 1),
        (&good.replace('2', "3"), 2),
        (&good.replace('2', "99"), 2),
        // Invalid hints.
        (&good.replace('2', "-1"), 1),
        (&good.replace('2', "99999999999999999999"), 1),
        (&good[..5], 1),
        ("", 1),
        ("null", 1),
        (&good.replace("\"size\"", "\"checksum\":\"00000000000000000000000000000000\",\"size\""), 1),
    ];
    for (hint, expected) in cases {
        sample.put("_last_checkpoint", hint);
        let ((_, lists), snapshot) = sample.counted(sample.open()).await;
        assert_eq!(lists, *expected, "{hint}");
        let snapshot = snapshot.unwrap();
        assert_eq!(snapshot.segment().checkpoint_version(), Some(2), "{hint}");
        assert_eq!(live(&snapshot).await.unwrap(), ["a", "b", "c"], "{hint}");
    }
    // The hint is newer than the requested version.
    sample.hint(2);
    let ((_, lists), snapshot) = sample.counted(sample.open_at(1)).await;
    assert_eq!((lists, live(&snapshot.unwrap()).await.unwrap()), (1, vec!["a".to_owned()]));
    // A folder with the name of the hint.
    sample.delete("_last_checkpoint");
    std::fs::create_dir(sample.log("_last_checkpoint")).unwrap();
    assert_eq!(live(&sample.open().await.unwrap()).await.unwrap(), ["a", "b", "c"]);
}

// --- checkpoints of all kinds

#[tokio::test]
async fn checkpoints_with_sidecars() {
    for format in ["json", "parquet"] {
        let sample = Sample::with_commits(&[vec![add("a"), add("b")], vec![add("c"), add("d")], vec![remove("c")]]);
        let first = sidecar(&[add("a"), remove("z"), add("b")]);
        let second = sidecar(&[add("c"), add("d")]);
        let named =
            |path: &str, size: usize| json!({"sidecar": {"path": path, "sizeInBytes": size, "modificationTime": 1}});
        let absolute = format!("file://{}", sample.log("_sidecars/two%20%25.parquet").display());
        let mut actions = state(&[named("one.parquet", first.len()), named(&absolute, second.len())]);
        actions.push(json!({"checkpointMetadata": {"version": 2}}));
        sample.put("_sidecars/one.parquet", &first);
        sample.put("_sidecars/two %.parquet", &second);
        let bytes = if format == "json" { lines(&actions).into_bytes() } else { parquet(&actions) };
        sample.put(&format!("00000000000000000002.checkpoint.{UUID}.{format}"), bytes);
        sample.hint(2);

        let (opened, snapshot) = sample.counted(sample.open()).await;
        let snapshot = snapshot.unwrap();
        // Hint, commit 3, the top level; sidecars wait.
        assert_eq!(opened, if format == "json" { (3, 1) } else { (5, 1) }, "{format}");
        let (listed, files) = sample.counted(live(&snapshot)).await;
        assert_eq!(files.unwrap(), ["a", "b", "d"], "{format}");
        // Two footers, two row groups.
        assert_eq!(listed, (4, 0), "{format}");
        assert_eq!(sample.counted(live(&snapshot)).await.0, (2, 0), "the footers are known");
    }
}

#[tokio::test]
async fn a_json_checkpoint_with_its_files_inside() {
    let sample = Sample::with_commits(&[vec![add("a")], vec![add("b")], vec![remove("a")]]);
    let name = format!("00000000000000000002.checkpoint.{UUID}.json");
    sample.put(&name, lines(&state(&[add("a"), add("b"), remove("z")])));
    sample.hint(2);
    assert_eq!(requests(&sample).await, ((3, 1), (0, 0), vec!["b".to_owned()]));
    // A damaged one is skipped if the commits exist.
    let negative = lines(&state(&[json!({"sidecar": {"path": "x", "sizeInBytes": -1, "modificationTime": 0}})]));
    let damaged = [(negative, "negative size"), ("{\"protocol\":".to_owned(), "line 1")];
    for (bytes, _) in &damaged {
        sample.put(&name, bytes);
        assert_eq!(live(&sample.open().await.unwrap()).await.unwrap(), ["b"]);
    }
    sample.forget_commits(0..=1);
    for (bytes, words) in &damaged {
        sample.put(&name, bytes);
        assert!(is_corrupt(&sample.open().await.unwrap_err(), words));
    }
}

#[tokio::test]
async fn a_checkpoint_in_parts() {
    let sample = Sample::with_commits(&[vec![add("a")], vec![add("b")], vec![remove("b")]]);
    let part = |n: u32| format!("00000000000000000002.checkpoint.{n:010}.0000000003.parquet");
    sample.put(&part(1), parquet(&[add("a")]));
    sample.put(&part(2), parquet(&state(&[])));
    assert_eq!(sample.open().await.unwrap().segment().checkpoint_version(), None, "a part is missing");
    sample.put(&part(3), parquet(&[add("b"), remove("x")]));
    sample.hint(2);
    // Hint, commit, three footers, one row group; then the row groups of the adds.
    assert_eq!(requests(&sample).await, ((6, 1), (2, 0), vec!["a".to_owned()]));
}

#[tokio::test]
async fn row_groups_without_the_wanted_actions_are_not_read() {
    let sample = Sample::with_commits(&[vec![add("a")]]);
    // Three rows a group: removes fill the second, adds come last.
    let mut actions = state(&[remove("u"), remove("v"), remove("w"), remove("x")]);
    actions.push(add("a"));
    sample.checkpoint(1, &actions);
    assert_eq!(requests(&sample).await, ((3, 1), (1, 0), vec!["a".to_owned()]));
}

#[tokio::test]
async fn typed_statistics_are_used_without_json_ones() {
    let sample = Sample::with_commits(&[vec![add("a")]]);
    let stats = json!({"numRecords": 4, "minValues": {"x": 1}, "maxValues": {"x": 9}, "nullCount": {"x": 0}});
    let actions = state(&[add_with("a", json!({"stats_parsed": stats}))]);
    sample.put("00000000000000000001.checkpoint.parquet", parquet_with_stats(&actions, &[("x", DataType::Int64)]));
    let snapshot = sample.open().await.unwrap();
    // Also for a column without statistics.
    for wanted in [vec![vec!["x".to_owned()]], vec![vec!["x".to_owned()], vec!["y".to_owned()]]] {
        let columns = AddColumns { members: vec!["path"], stats: wanted, ..AddColumns::default() };
        let adds: Vec<_> = snapshot.live_files(&columns).await.unwrap().try_collect().await.unwrap();
        assert!(adds[0].structure("stats_parsed").is_some() && adds[0].stats().unwrap().is_none());
    }
    // JSON statistics exist too, with more columns.
    let text = json!({"minValues": {"y": 5}}).to_string();
    let actions = state(&[add_with("a", json!({"stats_parsed": stats, "stats": text}))]);
    sample.put("00000000000000000001.checkpoint.parquet", parquet_with_stats(&actions, &[("x", DataType::Int64)]));
    let columns = AddColumns { members: vec!["path"], stats: vec![vec!["y".to_owned()]], ..AddColumns::default() };
    let snapshot = sample.open().await.unwrap();
    let adds: Vec<_> = snapshot.live_files(&columns).await.unwrap().try_collect().await.unwrap();
    assert!(adds[0].structure("stats_parsed").is_none() && adds[0].stats().unwrap().is_some());
}

// --- live files

#[tokio::test]
async fn commits_supersede_files_of_the_checkpoint() {
    let sample = Sample::with_commits(&[vec![], vec![]]);
    let with_vector = |path: &str, offset: i32| add_with(path, json!({"deletionVector": vector(offset)}));
    let remove_vector = |path: &str, offset: i32| {
        let mut action = remove(path);
        action["remove"]["deletionVector"] = vector(offset);
        action
    };
    sample
        .checkpoint(2, &state(&[add("plain"), add("p=a%20b/f"), with_vector("dv", 1), add("again"), add("described")]));
    sample.commit(3, &[remove("p=a b/f"), remove_vector("dv", 1), with_vector("dv", 2), remove("again")]);
    sample.commit(4, &[add("again"), add_with("described", json!({"dataChange": false})), remove("never there")]);
    let snapshot = sample.open().await.unwrap();
    let id = |offset| format!("dv uab^-aqEH.-t@S}}K{{vb[*k^@{offset}");
    assert_eq!(live(&snapshot).await.unwrap(), ["again", "described", &id(2), "plain"]);
    assert_eq!(snapshot.num_files().await.unwrap(), 4);
    let tail = snapshot.tail().await.unwrap();
    let tombstones: usize = tail.tombstones.iter().map(|rows| rows.num_rows()).sum();
    assert_eq!(tombstones, 3, "`again` was taken back");
    assert!(tail.commits.iter().all(|c| c.adds.is_empty() && c.removes.is_empty() && c.remove_rows.num_rows() == 0));
    // Older versions are unchanged.
    assert_eq!(live(&sample.open_at(3).await.unwrap()).await.unwrap(), ["described", &id(2), "plain"]);
    assert_eq!(live(&sample.open_at(2).await.unwrap()).await.unwrap().len(), 5);
}

#[tokio::test]
async fn the_newest_txn_and_domain_counts() {
    let txn = |app: &str, version: i64| json!({"txn": {"appId": app, "version": version}});
    let domain = |name: &str, configuration: &str, removed: bool| json!({"domainMetadata": {"domain": name, "configuration": configuration, "removed": removed}});
    let sample = Sample::with_commits(&[vec![]]);
    sample.checkpoint(
        1,
        &state(&[
            txn("a", 1),
            txn("b", 9),
            domain("keep", "old", false),
            domain("gone", "x", false),
            domain("c", "c", false),
        ]),
    );
    sample.commit(2, &[txn("a", 2), domain("keep", "new", false), domain("gone", "", true)]);
    // The version of an application may go back.
    sample.commit(3, &[txn("a", 1), txn("c", 5)]);
    let snapshot = sample.open().await.unwrap();
    let mut txns: Vec<_> = snapshot.txns().await.unwrap().into_iter().map(|t| (t.app_id, t.version)).collect();
    txns.sort();
    assert_eq!(txns, [("a".to_owned(), 1), ("b".to_owned(), 9), ("c".to_owned(), 5)]);
    let mut domains: Vec<_> =
        snapshot.domains().await.unwrap().into_iter().map(|d| (d.domain, d.configuration)).collect();
    domains.sort();
    assert_eq!(domains, [("c".to_owned(), "c".to_owned()), ("keep".to_owned(), "new".to_owned())]);
}

#[tokio::test]
async fn compacted_commits_replace_the_commits() {
    let sample = Sample::with_commits(&[vec![add("a")], vec![add("b"), remove("a")], vec![add("c")]]);
    sample.put("00000000000000000001.00000000000000000002.compacted.json", lines(&[add("b"), remove("a")]));
    // Hint, commit 0, the compacted range, commit 3.
    assert_eq!(requests(&sample).await, ((4, 1), (0, 0), vec!["b".to_owned(), "c".to_owned()]));
    // A compacted file that was only concatenated is skipped.
    sample.put("00000000000000000001.00000000000000000002.compacted.json", lines(&[add("a"), add("b"), remove("a")]));
    assert_eq!(live(&sample.open().await.unwrap()).await.unwrap(), ["b", "c"]);
}

// --- errors

#[tokio::test]
async fn missing_tables_are_not_found() {
    let sample = Sample::new();
    assert!(sample.open().await.unwrap_err().is_not_found());
    sample.put("00000000000000000000.crc", "{}");
    assert!(sample.open().await.unwrap_err().is_not_found());
    let sample = Sample::with_commits(&[vec![add("a")]]);
    let error = sample.open_at(7).await.unwrap_err();
    assert!(error.is_version_not_found() && error.to_string().contains("versions 0 to 1"), "{error}");
    assert!(error.table().is_some());
}

#[tokio::test]
async fn a_log_without_protocol_or_metadata_is_corrupt() {
    let columns = metadata(&[("x", "long")], &[], json!({}));
    let cases: &[(&[Value], &str)] = &[
        (std::slice::from_ref(&columns), "no protocol action"),
        (&[protocol(1, 2)], "no metaData action"),
        (&[], "no protocol action"),
        (&[protocol(1, 2), json!({"metaData": {"id": "i"}})], "no schemaString"),
        (&[protocol(1, 2), json!({"metaData": {"id": "i", "schemaString": "{"}})], "not JSON"),
        (&[protocol(1, 2), metadata(&[("x", "long")], &["p"], json!({}))], "`p` is not in the schema"),
    ];
    for (actions, words) in cases {
        let sample = Sample::new();
        sample.commit(0, actions);
        let error = sample.open().await.unwrap_err();
        assert!(is_corrupt(&error, words), "{error}");
        assert_eq!((error.version(), error.table().is_some()), (Some(0), true), "{error}");
        // The same in a checkpoint.
        let sample = Sample::new();
        sample.checkpoint(5, actions);
        let error = sample.open().await.unwrap_err();
        assert!(is_corrupt(&error, words), "{error}");
    }
}

#[tokio::test]
async fn unknown_reader_features_are_unsupported() {
    let unsupported = |error: &Error| matches!(error.kind(), Kind::Unsupported { .. });
    let sample = Sample::new();
    let columns = metadata(&[("x", "long")], &[], json!({}));
    sample.commit(0, &[protocol(4, 7), columns.clone()]);
    assert!(unsupported(&sample.open().await.unwrap_err()));
    let mut orc = columns;
    orc["metaData"]["format"]["provider"] = json!("orc");
    sample.commit(0, &[protocol(1, 2), orc]);
    let error = sample.open().await.unwrap_err();
    assert!(unsupported(&error) && error.to_string().contains("not Parquet"), "{error}");
}

#[tokio::test]
async fn a_truncated_commit_is_corrupt_when_its_files_are_read() {
    let sample = Sample::with_commits(&[vec![add("a")]]);
    let whole = lines(&[add("b"), add("c")]);
    sample.put("00000000000000000002.json", &whole[..whole.len() - 9]);
    let snapshot = sample.open().await.unwrap();
    let error = live(&snapshot).await.unwrap_err();
    assert!(is_corrupt(&error, "line 2"), "{error}");
    assert_eq!((error.version(), error.path()), (Some(2), Some("_delta_log/00000000000000000002.json")));
    sample.put("00000000000000000002.json", "{\"commitInfo\":{\"opera");
    assert!(is_corrupt(&sample.open().await.unwrap_err(), "line 1"));
}

#[tokio::test]
async fn a_vanished_log_file_is_not_a_missing_table() {
    let sample = Sample::with_commits(&[vec![add("a")]]);
    sample.delete("00000000000000000001.json");
    std::os::unix::fs::symlink(sample.log("nowhere"), sample.log("00000000000000000001.json")).unwrap();
    match sample.open().await {
        // The listing may already lack the file.
        Ok(snapshot) => assert_eq!(snapshot.version(), 0),
        Err(e) => assert_eq!(*e.kind(), Kind::Storage { retryable: true }, "{e}"),
    }
}

#[tokio::test]
async fn hostile_checkpoints_are_corrupt() {
    let sample = Sample::with_commits(&[vec![add("a")], vec![add("b")]]);
    let whole = parquet(&state(&[add("a"), add("b"), add("c")]));
    // A checkpoint that cannot be opened is skipped if the commits exist.
    for length in [1, 7, 8, 12, whole.len() / 2, whole.len() - 1] {
        sample.put("00000000000000000002.checkpoint.parquet", &whole[..length]);
        assert_eq!(live(&sample.open().await.unwrap()).await.unwrap(), ["a", "b"], "{length} bytes");
    }
    // An empty file.
    sample.put("00000000000000000002.checkpoint.parquet", b"");
    assert_eq!(live(&sample.open().await.unwrap()).await.unwrap(), ["a", "b"]);
    sample.forget_commits(0..=1);
    let mut outcomes = 0;
    for at in (0..whole.len()).step_by(31) {
        let mut broken = whole.clone();
        broken[at] ^= 0x55;
        sample.put("00000000000000000002.checkpoint.parquet", &broken);
        let read = async { live(&Snapshot::open(&sample.log, None).await?).await };
        match read.await {
            Ok(_) => {}
            Err(e) => {
                assert!(matches!(e.kind(), Kind::Corrupt | Kind::Unsupported { .. }), "byte {at}: {e}");
                outcomes += 1;
            }
        }
    }
    assert!(outcomes > 0);
    for length in [1, 7, 8, 12, whole.len() / 2, whole.len() - 1] {
        sample.put("00000000000000000002.checkpoint.parquet", &whole[..length]);
        assert_eq!(*sample.open().await.unwrap_err().kind(), Kind::Corrupt, "{length} bytes");
    }
}

#[tokio::test]
async fn impossible_row_counts_of_checkpoints_are_corrupt() {
    let sample = Sample::with_commits(&[vec![add("a")]]);
    let members = Fields::from(vec![Field::new("appId", DataType::Utf8, true)]);
    let schema = Arc::new(Schema::new(vec![Field::new("txn", DataType::Struct(members), true)]));
    // Nulls take no space: a megabyte could have billions.
    let nulls = new_null_array(schema.field(0).data_type(), 1 << 20);
    let properties = WriterProperties::builder().set_statistics_enabled(EnabledStatistics::None).build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, schema.clone(), Some(properties)).unwrap();
    writer.write(&RecordBatch::try_new(schema, vec![nulls]).unwrap()).unwrap();
    writer.close().unwrap();
    assert!(bytes.len() < 4096, "{}", bytes.len());
    sample.put("00000000000000000001.checkpoint.parquet", &bytes);
    sample.delete("00000000000000000000.json");
    let error = sample.open().await.unwrap_err();
    assert!(is_corrupt(&error, "more rows than a file of this size"), "{error}");
}
