//! Times of commits, and the version at a time.

use std::time::{Duration, UNIX_EPOCH};

use deltic_protocol::error::{Error, Kind};
use deltic_table::history::{history, version_at};
use deltic_table::log::LogSource;
use serde_json::{Value, json};

use super::sample::{Sample, add, metadata, protocol};

/// Sets the modification time of a commit, in milliseconds.
fn set_modified_ms(sample: &Sample, version: u64, time_ms: u64) {
    let path = sample.log(&format!("{version:020}.json"));
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_millis(time_ms)).unwrap();
}

fn info(members: Value) -> Value {
    json!({"commitInfo": members})
}

/// A table whose commits have these modification times.
fn at_times(times: &[u64]) -> Sample {
    let sample = Sample::with_commits(&vec![
        vec![info(json!({"operation": "WRITE", "timestamp": 1})), add("a")];
        times.len() - 1
    ]);
    times.iter().zip(0..).for_each(|(time, version)| set_modified_ms(&sample, version, *time));
    sample
}

/// Versions with their times, newest first.
async fn times(sample: &Sample) -> Vec<(i64, i64)> {
    let number = |entry: &deltic_table::history::Entry, key: &str| entry[key].as_i64().unwrap();
    let entries = history(&sample.log, None).await.unwrap();
    entries.iter().map(|e| (number(e, "version"), number(e, "timestamp"))).collect()
}

/// Checks that each time of the history finds its version.
async fn every_time_finds_its_version(sample: &Sample) {
    for (version, time) in times(sample).await {
        let found = version_at(&sample.log, time).await.unwrap();
        assert_eq!(i64::try_from(found).unwrap(), version, "at {time} ms");
    }
}

#[track_caller]
fn not_found(error: &Error, words: &str) {
    assert!(error.is_version_not_found() && error.to_string().contains(words), "{error}");
    assert!(error.table().is_some(), "{error}");
}

#[tokio::test]
async fn the_newest_version_at_or_before_a_time() {
    let sample = at_times(&[1000, 2000, 3000]);
    for (time, version) in [(1000, 0), (1999, 0), (2000, 1), (2999, 1), (3000, 2)] {
        assert_eq!(version_at(&sample.log, time).await.unwrap(), version, "at {time} ms");
    }
    not_found(
        &version_at(&sample.log, 999).await.unwrap_err(),
        "1970-01-01T00:00:00.999Z is before the oldest version that can be read; \
         the table can be read from 1970-01-01T00:00:01.000Z (version 0) to 1970-01-01T00:00:03.000Z (version 2)",
    );
    not_found(&version_at(&sample.log, i64::MIN).await.unwrap_err(), "before the oldest");
    for later in [3001, i64::MAX] {
        assert_eq!(version_at(&sample.log, later).await.unwrap(), 2, "at {later} ms");
    }
    let none = version_at(&LogSource::of(&Sample::new().storage), 1).await.unwrap_err();
    assert!(none.is_not_found() && none.to_string().contains("not a Delta table"), "{none}");
    every_time_finds_its_version(&sample).await;
}

#[tokio::test]
async fn modification_times_are_made_monotone() {
    let sample = at_times(&[5000, 3000, 3000, 9000, 100]);
    assert_eq!(times(&sample).await, [(4, 9001), (3, 9000), (2, 5002), (1, 5001), (0, 5000)]);
    assert_eq!(version_at(&sample.log, 5001).await.unwrap(), 1);
    assert_eq!(version_at(&sample.log, 8999).await.unwrap(), 2);
    every_time_finds_its_version(&sample).await;
}

#[tokio::test]
async fn entries_are_commit_infos_newest_first() {
    let sample = at_times(&[1000, 2000, 3000]);
    let limited = history(&sample.log, Some(2)).await.unwrap();
    assert_eq!(limited.len(), 2);
    assert_eq!(Value::Object(limited[0].clone()), json!({"operation": "WRITE", "timestamp": 3000, "version": 2}));
    let all = history(&sample.log, Some(100)).await.unwrap();
    // A commit without commit info also has a version and a time.
    assert_eq!(Value::Object(all[2].clone()), json!({"timestamp": 1000, "version": 0}));
    assert!(history(&sample.log, Some(0)).await.unwrap().is_empty());
    // One listing, and the commits that are shown.
    assert_eq!(sample.counted(history(&sample.log, Some(1))).await.0, (1, 1));
    let error = history(&LogSource::of(&Sample::new().storage), None).await.unwrap_err();
    assert!(error.is_not_found() && error.to_string().contains("not a Delta table"), "{error}");
}

#[tokio::test]
async fn commits_before_the_checkpoint_are_history_but_not_versions() {
    let sample = at_times(&[1000, 2000, 3000, 4000, 5000]);
    sample.checkpoint(3, &[protocol(1, 2), metadata(&[("x", "long")], &[], json!({})), add("a")]);
    sample.delete("00000000000000000000.json");
    sample.delete("00000000000000000001.json");
    assert_eq!(times(&sample).await, [(4, 5000), (3, 4000), (2, 3000)]);
    not_found(&version_at(&sample.log, 3500).await.unwrap_err(), "from 1970-01-01T00:00:04.000Z (version 3)");
    assert_eq!(version_at(&sample.log, 4500).await.unwrap(), 3);
    // Only the checkpoint is left.
    for version in 2..5 {
        sample.delete(&format!("{version:020}.json"));
    }
    assert!(history(&sample.log, None).await.unwrap().is_empty());
    not_found(&version_at(&sample.log, 4500).await.unwrap_err(), "read by version");
}

/// A table of `count` commits. Those from `from` on have in-commit timestamps: `1000 * version`.
fn with_in_commit_timestamps(count: u64, from: u64, properties: Value) -> Sample {
    let sample = Sample::new();
    for version in 0..count {
        let own = if version >= from { json!({"inCommitTimestamp": 1000 * version}) } else { json!({"timestamp": 7}) };
        let mut actions = vec![info(own), add("a")];
        if version == 0 {
            actions.push(protocol(1, 2));
        }
        if version == 0 || version == from {
            let properties = if version == from { properties.clone() } else { json!({}) };
            actions.push(metadata(&[("x", "long")], &[], properties));
        }
        sample.commit(version, &actions);
        // Modification times differ.
        set_modified_ms(&sample, version, 50_000 + version);
    }
    sample
}

#[tokio::test]
async fn in_commit_timestamps_give_the_version() {
    let sample = with_in_commit_timestamps(40, 0, json!({"delta.enableInCommitTimestamps": "true"}));
    for (time, version) in [(0, 0), (999, 0), (1000, 1), (20_500, 20), (39_000, 39)] {
        assert_eq!(version_at(&sample.log, time).await.unwrap(), version, "at {time} ms");
    }
    assert_eq!(version_at(&sample.log, 39_001).await.unwrap(), 39, "a later time gives the newest version");
    not_found(&version_at(&sample.log, -1).await.unwrap_err(), "from 1970-01-01T00:00:00.000Z (version 0)");
    every_time_finds_its_version(&sample).await;
    // Few of the forty commits are read, besides those for opening the table.
    let opening = sample.counted(sample.open()).await.0;
    let finding = sample.counted(version_at(&sample.log, 20_500)).await.0;
    assert!(finding.0 - opening.0 <= 6 && finding.1 == opening.1, "{finding:?} after {opening:?}");
}

#[tokio::test]
async fn commits_before_in_commit_timestamps_were_enabled() {
    let properties = json!({
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "3",
        "delta.inCommitTimestampEnablementTimestamp": "3000",
    });
    let sample = with_in_commit_timestamps(6, 3, properties);
    (0..3).for_each(|version| set_modified_ms(&sample, version, 500 * version + 1000));
    // Modification times 1000, 1500 and 2000, then in-commit timestamps 3000, 4000, 5000.
    for (time, version) in [(1000, 0), (1500, 1), (2999, 2), (3000, 3), (3999, 3), (5000, 5)] {
        assert_eq!(version_at(&sample.log, time).await.unwrap(), version, "at {time} ms");
    }
    every_time_finds_its_version(&sample).await;
    // A commit file that was copied later: its time stays before the first in-commit timestamp.
    set_modified_ms(&sample, 2, 900_000);
    assert_eq!(version_at(&sample.log, 2999).await.unwrap(), 1);
    assert_eq!(version_at(&sample.log, 3000).await.unwrap(), 3);
    not_found(&version_at(&sample.log, 999).await.unwrap_err(), "from 1970-01-01T00:00:01.000Z (version 0)");
    assert_eq!(version_at(&sample.log, 5001).await.unwrap(), 5);
}

#[tokio::test]
async fn a_commit_without_in_commit_timestamp_is_corrupt() {
    let sample = with_in_commit_timestamps(3, 0, json!({"delta.enableInCommitTimestamps": "true"}));
    sample.commit(3, &[info(json!({"timestamp": 5})), add("b")]);
    let error = version_at(&sample.log, 3500).await.unwrap_err();
    assert_eq!((error.kind(), error.version()), (&Kind::Corrupt, Some(3)));
}
