//! Log cleanup: which files are deleted, and that all remaining versions can be read.

use std::time::{Duration, SystemTime};

use deltic_protocol::error::Kind;
use deltic_protocol::log::name::{checkpoint_name, checksum_name, commit_name};
use deltic_table::cleanup::clean_log;
use deltic_table::log::LogSource;
use serde_json::{Value, json};

use super::sample::{Sample, add, live, metadata, parquet, protocol, sidecar};

const DAY: u64 = 24 * 60 * 60;

fn now() -> SystemTime {
    // In the middle of a day, so that rounding to days makes a difference.
    SystemTime::UNIX_EPOCH + Duration::from_secs(20_000 * DAY + DAY / 2)
}

fn now_ms() -> i64 {
    i64::try_from(now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// Sets the age of a file, in days.
fn age(sample: &Sample, name: &str, days: u64) {
    let file = std::fs::File::options().append(true).open(sample.log(name)).unwrap();
    file.set_modified(now() - Duration::from_secs(days * DAY)).unwrap();
}

/// Versions 0 to 9, each a day younger than the one before; version 9 is one day old. Checkpoints and checksums are at 3
/// and 6. `properties` may set the retention.
fn sample(features: Value, mut properties: Value) -> Sample {
    let sample = Sample::new();
    if properties.get("delta.logRetentionDuration").is_none() {
        properties["delta.logRetentionDuration"] = json!("interval 5 days");
    }
    let table = [features, metadata(&[("x", "long")], &[], properties)];
    sample.commit(0, &table);
    for version in 1..10 {
        sample.commit(version, &[add(&format!("f{version}"))]);
    }
    for version in [3, 6] {
        let files = (1..=version).map(|v| add(&format!("f{v}")));
        let state: Vec<Value> = table.iter().cloned().chain(files).collect();
        sample.checkpoint(version, &state);
        sample.put(&checksum_name(version), "{}");
    }
    for version in 0..10 {
        age(&sample, &commit_name(version), 10 - version);
    }
    sample
}

fn left(sample: &Sample) -> Vec<String> {
    let names = std::fs::read_dir(sample.log("")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('_')).collect();
    names.sort();
    names
}

fn commits(versions: std::ops::Range<u64>) -> Vec<String> {
    versions.map(commit_name).collect()
}

#[tokio::test]
async fn files_before_an_expired_checkpoint_are_deleted() {
    let sample = sample(protocol(1, 2), json!({}));
    // The retention begins between versions 4 and 5, and the last checkpoint before that is of version 3.
    assert_eq!(clean_log(&sample.log, now_ms()).await.unwrap(), 3);
    let mut expected = commits(3..10);
    expected.extend([3, 6].iter().flat_map(|v| [checkpoint_name(*v), checksum_name(*v)]));
    expected.sort();
    assert_eq!(left(&sample), expected);
    for version in 3..10 {
        let files = live(&sample.open_at(version).await.unwrap()).await.unwrap();
        assert_eq!(files.len() as u64, version, "version {version}");
    }
    assert!(sample.open_at(2).await.unwrap_err().is_version_not_found());
    assert_eq!(clean_log(&sample.log, now_ms()).await.unwrap(), 0);
}

#[tokio::test]
async fn old_temporary_files_are_deleted() {
    let sample = sample(protocol(1, 2), json!({"delta.logRetentionDuration": "interval 8 days"}));
    let before = left(&sample);
    let [old, young] = [".tmp-6f1c8c1e-5a34-4d0a-9a3e-7f4be0a1c001", ".tmp-6f1c8c1e-5a34-4d0a-9a3e-7f4be0a1c002"];
    for folder in ["", "../"] {
        for (name, age_hours) in [(old, 25), (young, 23)] {
            sample.put(&format!("{folder}{name}"), "half");
            let file = std::fs::File::options().append(true).open(sample.log(&format!("{folder}{name}"))).unwrap();
            file.set_modified(now() - Duration::from_secs(age_hours * 60 * 60)).unwrap();
        }
        // Listings leave them out.
        let dir = if folder.is_empty() { "_delta_log" } else { "" };
        let listed = sample.storage.list_from(dir, "").await.unwrap();
        assert!(listed.iter().all(|file| !file.path.contains(".tmp-")), "{listed:?}");
    }
    assert_eq!(clean_log(&sample.log, now_ms()).await.unwrap(), 0, "temporary files do not count as log files");
    for folder in ["", "../"] {
        let exists = |name: &str| sample.log(&format!("{folder}{name}")).exists();
        assert_eq!((exists(old), exists(young)), (false, true), "{folder}");
    }
    sample.delete(young);
    assert_eq!(left(&sample), before);
}

#[tokio::test]
async fn without_an_expired_checkpoint_nothing_is_deleted() {
    let sample = sample(protocol(1, 2), json!({"delta.logRetentionDuration": "interval 8 days"}));
    let before = left(&sample);
    assert_eq!(clean_log(&sample.log, now_ms()).await.unwrap(), 0);
    assert_eq!(left(&sample), before);
}

#[tokio::test]
async fn protected_checkpoints_stay() {
    let features = json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 7,
        "writerFeatures": ["checkpointProtection"]}});
    let protected = |version: &str| json!({"delta.requireCheckpointProtectionBeforeVersion": version});
    assert_eq!(
        clean_log(&LogSource::of(&sample(features.clone(), protected("3")).storage), now_ms()).await.unwrap(),
        3
    );
    assert_eq!(clean_log(&LogSource::of(&sample(features, protected("4")).storage), now_ms()).await.unwrap(), 0);
}

#[tokio::test]
async fn tables_with_unknown_features_are_refused() {
    let features = json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["zebra"]}});
    let sample = sample(features, json!({}));
    let error = clean_log(&sample.log, now_ms()).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::Unsupported { features: vec!["zebra".to_owned()] });
    assert_eq!(left(&sample).len(), 14);
}

#[tokio::test]
async fn unreferenced_sidecars_are_deleted() {
    let features = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]}});
    let sample = sample(features.clone(), json!({}));
    let names = ["named.parquet", "orphan.parquet", "young.parquet"];
    for name in names {
        sample.put(&format!("_sidecars/{name}"), sidecar(&[add("f1")]));
    }
    let state = [
        json!({"checkpointMetadata": {"version": 6}}),
        features,
        metadata(&[("x", "long")], &[], json!({"delta.logRetentionDuration": "interval 5 days"})),
        json!({"sidecar": {"path": "named.parquet", "sizeInBytes": 1, "modificationTime": 1}}),
    ];
    sample.put(&checkpoint_name(6), parquet(&state));
    age(&sample, "_sidecars/named.parquet", 9);
    age(&sample, "_sidecars/orphan.parquet", 9);
    age(&sample, "_sidecars/young.parquet", 1);
    assert_eq!(clean_log(&sample.log, now_ms()).await.unwrap(), 4);
    let there = names.map(|name| sample.log(&format!("_sidecars/{name}")).exists());
    assert_eq!(there, [true, false, true]);
}

#[tokio::test]
async fn commits_before_an_unreadable_checkpoint_stay() {
    // The checkpoint of version 3 is truncated, so the commits before it are needed.
    let cut = sample(protocol(1, 2), json!({}));
    let whole = std::fs::read(cut.log(&checkpoint_name(3))).unwrap();
    cut.put(&checkpoint_name(3), &whole[..whole.len() - 9]);
    let before = left(&cut);
    assert_eq!(clean_log(&LogSource::of(&cut.storage), now_ms()).await.unwrap(), 0);
    assert_eq!(left(&cut), before);
    let files = live(&cut.open_at(5).await.unwrap()).await.unwrap();
    assert_eq!(files.len(), 5);

    // The same if the footer is intact, but pages are not.
    let zeroed = sample(protocol(1, 2), json!({}));
    let mut bytes = whole.clone();
    bytes[4..whole.len() / 2].fill(0);
    zeroed.put(&checkpoint_name(3), bytes);
    let before = left(&zeroed);
    assert_eq!(clean_log(&LogSource::of(&zeroed.storage), now_ms()).await.unwrap(), 0);
    assert_eq!(left(&zeroed), before);

    // An older intact checkpoint replaces the commits before it.
    let older = sample(protocol(1, 2), json!({"delta.logRetentionDuration": "interval 2 days"}));
    older.put(&checkpoint_name(6), &whole[..whole.len() - 9]);
    assert_eq!(clean_log(&LogSource::of(&older.storage), now_ms()).await.unwrap(), 3);
    for version in 3..10 {
        let files = live(&older.open_at(version).await.unwrap()).await.unwrap();
        assert_eq!(files.len() as u64, version, "version {version}");
    }
}
