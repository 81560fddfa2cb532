//! Enabling row tracking on tables with files, without and with concurrent writers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;
use std::time::Duration;

use arrow_array::Array;
use deltic_protocol::error::{Kind, Result};
use deltic_protocol::log::crc::VersionChecksum;
use deltic_protocol::log::name::{checksum_name, commit_name};
use deltic_protocol::property::Properties;
use deltic_store::Storage;
use deltic_table::backfill::{self, Enabled};
use deltic_table::commit::RetryPolicy;
use deltic_table::committers::LogCommitter;
use deltic_table::log::LogSource;
use deltic_table::post_commit::write_checksum;
use deltic_table::snapshot::Snapshot;
use deltic_table::transaction::builder::Ids;
use futures::TryStreamExt;
use serde_json::{Value, json};

use super::sample::{Sample, add_with, metadata, protocol, remove, vector};

/// Ids and a fixed clock. The function is called for each id, with the number of ids before; it may commit as another writer.
struct World<F>(Mutex<(u64, F)>);

impl<F: FnMut(u64) + Send> World<F> {
    fn new(write: F) -> Self {
        Self(Mutex::new((0, write)))
    }
}

impl<F: FnMut(u64) + Send> Ids for World<F> {
    fn unique(&self) -> String {
        let mut world = self.0.lock().unwrap();
        let count = world.0;
        world.0 += 1;
        (world.1)(count);
        format!("id-{count}")
    }
}

impl<F: FnMut(u64) + Send> RetryPolicy for World<F> {
    fn now_ms(&self) -> i64 {
        1_700_000_000_000
    }

    fn back_off(&self, attempts: u32) -> Option<Duration> {
        (attempts < 10).then_some(Duration::ZERO)
    }
}

/// Enables row tracking, with up to `files` files per commit.
async fn enable<F: FnMut(u64) + Send>(storage: &Storage, world: &World<F>, files: usize) -> Result<Enabled> {
    backfill::enable(&LogSource::of(storage), &LogCommitter::new(LogSource::of(storage)), world, world, files).await
}

fn file(path: &str, rows: u64) -> Value {
    add_with(path, json!({"stats": format!("{{\"numRecords\":{rows}}}"), "tags": {"t": "1"}}))
}

/// The row ids of live files: path, base row id and default commit version.
async fn ids(storage: &Storage) -> BTreeMap<String, (i64, i64)> {
    let snapshot = Snapshot::open(&LogSource::of(storage), None).await.unwrap();
    let members = vec!["path", "deletionVector", "baseRowId", "defaultRowCommitVersion"];
    let columns = deltic_table::checkpoint::read::AddColumns { members, ..Default::default() };
    let mut live = std::pin::pin!(snapshot.live_files(&columns).await.unwrap());
    let mut found = BTreeMap::new();
    while let Some(adds) = live.try_next().await.unwrap() {
        for row in 0..adds.len() {
            let number = |name: &str| adds.int64(name).filter(|c| c.is_valid(row)).unwrap().value(row);
            let ids = (number("baseRowId"), number("defaultRowCommitVersion"));
            assert!(found.insert(adds.path().value(row).to_owned(), ids).is_none());
        }
    }
    found
}

/// Checks that row tracking is on, no two files share an id, and no id is above the watermark.
async fn check(sample: &Sample, rows: &[(&str, i64)]) {
    let snapshot = sample.open().await.unwrap();
    assert!(Properties::of(snapshot.metadata()).row_tracking(snapshot.protocol()).unwrap().is_some());
    let found = ids(&sample.storage).await;
    assert_eq!(found.keys().map(String::as_str).collect::<Vec<_>>(), rows.iter().map(|r| r.0).collect::<Vec<_>>());
    let mut given = BTreeSet::new();
    for (path, count) in rows {
        let (first, version) = found[*path];
        assert!(version <= snapshot.version().cast_signed());
        (first..first + count).for_each(|id| assert!(given.insert(id), "{path}: {id} twice"));
    }
    let domains = snapshot.domains().await.unwrap();
    let domain = domains.iter().find(|d| d.domain == "delta.rowTracking").unwrap();
    let watermark: Value = serde_json::from_str(&domain.configuration).unwrap();
    assert!(watermark["rowIdHighWaterMark"].as_i64().unwrap() >= given.last().copied().unwrap());
}

fn table() -> Sample {
    let sample = Sample::new();
    sample.commit(0, &[protocol(1, 2), metadata(&[("x", "long")], &[], json!({}))]);
    sample.commit(1, &[file("a", 3), file("b", 4), file("c", 5)]);
    sample.commit(2, &[file("d", 6), remove("b"), file("e", 7)]);
    sample
}

#[tokio::test]
async fn all_files_get_ids_in_batches() {
    let sample = table();
    write_checksum(&sample.open().await.unwrap(), &LogCommitter::new(sample.log.clone())).await.unwrap();
    let world = World::new(|_| {});
    let enabled = enable(&sample.storage, &world, 3).await.unwrap();
    assert_eq!(enabled, Enabled { version: 6, files: 4 });
    check(&sample, &[("a", 3), ("c", 5), ("d", 6), ("e", 7)]).await;
    let operations: Vec<Value> =
        (3..=6).map(|version| sample.read(version)[0]["commitInfo"]["operation"].clone()).collect();
    assert_eq!(operations, ["UPGRADE PROTOCOL", "ROW TRACKING BACKFILL", "ROW TRACKING BACKFILL", "SET TBLPROPERTIES"]);
    let batch = sample.read(4);
    assert_eq!(batch[0]["commitInfo"]["isBlindAppend"], false);
    let adds: Vec<&Value> = batch.iter().filter_map(|line| line.get("add")).collect();
    assert_eq!(adds.len(), 3);
    for add in adds {
        assert_eq!((&add["dataChange"], &add["tags"], &add["size"]), (&json!(false), &json!({"t": "1"}), &json!(10)));
        assert!(add["stats"].as_str().unwrap().contains("numRecords"));
    }
    // The checksum counts re-added files once.
    let bytes = std::fs::read(sample.log(&checksum_name(6))).unwrap();
    let checksum = VersionChecksum::parse(&bytes).unwrap();
    assert_eq!((checksum.num_files, checksum.table_size_bytes), (4, 40));
    // The second time there is nothing to do.
    let again = enable(&sample.storage, &world, 3).await.unwrap();
    assert_eq!(again, Enabled { version: 6, files: 0 });
}

#[tokio::test]
async fn files_that_winners_removed_do_not_come_back() {
    let sample = table();
    let storage = Storage::open(sample.storage.location(), &HashMap::new()).unwrap();
    let put = |version: u64, actions: &[Value]| {
        let path = sample.log(&commit_name(version));
        assert!(!path.exists(), "{version}");
        sample.commit(version, actions);
    };
    // The other writer commits when the first batch is about to be committed as version 4.
    let moved = |path: &str| json!({"remove": {"path": path, "deletionTimestamp": 5, "dataChange": false}});
    let vectored = add_with(
        "d",
        json!({"stats": "{\"numRecords\":6}", "deletionVector": vector(1),
        "baseRowId": 100, "defaultRowCommitVersion": 5}),
    );
    let mark = |at: u64| {
        json!({"domainMetadata": {"domain": "delta.rowTracking", "removed": false,
            "configuration": format!("{{\"rowIdHighWaterMark\":{at}}}")}})
    };
    let tracked = add_with("z", json!({"stats": "{\"numRecords\":2}", "baseRowId": 106, "defaultRowCommitVersion": 6}));
    let mut done = false;
    let world = World::new(|_| {
        if !done && sample.log(&commit_name(3)).exists() && !sample.log(&commit_name(4)).exists() {
            done = true;
            put(4, &[remove("a")]);
            put(5, &[remove("d"), vectored.clone(), mark(105)]);
            put(6, &[moved("c"), tracked.clone(), mark(107)]);
        }
    });
    let enabled = enable(&storage, &world, 100).await.unwrap();
    assert!(done);
    check(&sample, &[("d", 6), ("e", 7), ("z", 2)]).await;
    assert_eq!(ids(&storage).await["z"], (106, 6));
    assert_eq!(ids(&storage).await["d"].0, 100);
    assert!(enabled.version >= 8, "{enabled:?}");
}

#[tokio::test]
async fn it_fails_at_a_file_without_row_count_and_resumes_later() {
    let sample = Sample::new();
    sample.commit(0, &[protocol(1, 2), metadata(&[("x", "long")], &[], json!({}))]);
    sample.commit(1, &[add_with("u", json!({}))]);
    sample.commit(2, &[file("a", 3), file("c", 5), file("d", 6), file("e", 7)]);
    let world = World::new(|_| {});
    let error = enable(&sample.storage, &world, 2).await.unwrap_err();
    assert_eq!((error.kind(), error.path()), (&Kind::Invalid, Some("u")), "{error}");
    let at = sample.open().await.unwrap();
    assert!(Properties::of(at.metadata()).row_tracking(at.protocol()).unwrap().is_none());
    sample.commit(at.version() + 1, &[remove("u")]);
    let rest = enable(&sample.storage, &world, 2).await.unwrap();
    assert!(rest.files < 4, "files of the first attempt keep their ids: {rest:?}");
    check(&sample, &[("a", 3), ("c", 5), ("d", 6), ("e", 7)]).await;
}

#[tokio::test]
async fn suspended_row_tracking_is_refused() {
    let sample = Sample::new();
    let suspended = json!({"delta.rowTrackingSuspended": "true"});
    sample.commit(0, &[protocol(1, 2), metadata(&[("x", "long")], &[], suspended)]);
    let world = World::new(|_| {});
    let error = enable(&sample.storage, &world, 2).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::Invalid);
    assert!(error.message().contains("suspended"), "{error}");
    assert_eq!(sample.open().await.unwrap().version(), 0);
}
