//! Log compactions written by deltic: the state is the same with and without them.

use deltic_protocol::error::Kind;
use deltic_protocol::log::name::{LogName, commit_name};
use deltic_table::committers::LogCommitter;
use deltic_table::compaction::compact_log;
use deltic_table::snapshot::Snapshot;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::sample::{Sample, add_with, live, metadata, remove, vector};

/// The state of a version.
#[derive(Debug, PartialEq)]
struct State {
    files: Vec<String>,
    adds: Vec<String>,
    tombstones: Vec<String>,
    others: String,
}

async fn state(snapshot: &Snapshot) -> State {
    let tail = snapshot.tail().await.unwrap();
    let mut adds: Vec<String> = Vec::new();
    for batch in &tail.live {
        adds.extend((0..batch.len()).map(|row| format!("{:?}", batch.add(row).unwrap())));
    }
    let mut tombstones: Vec<String> = Vec::new();
    for rows in &tail.tombstones {
        tombstones.extend((0..rows.num_rows()).map(|row| {
            let row = rows.slice(row, 1);
            let (schema, columns) = (row.schema(), row.columns());
            // A missing column counts as one of nulls.
            let there = schema.fields().iter().zip(columns).filter(|(_, column)| column.is_valid(0));
            there.map(|(field, column)| format!("{}: {column:?} ", field.name())).collect()
        }));
    }
    let (mut txns, mut domains) = (snapshot.txns().await.unwrap(), snapshot.domains().await.unwrap());
    txns.sort_by(|a, b| a.app_id.cmp(&b.app_id));
    domains.sort_by(|a, b| a.domain.cmp(&b.domain));
    let (protocol, metadata) = (snapshot.protocol(), snapshot.metadata());
    let others = format!("{txns:?} {domains:?} {protocol:?} {metadata:?}");
    adds.sort();
    tombstones.sort();
    State { files: live(snapshot).await.unwrap(), adds, tombstones, others }
}

fn creation() -> Vec<Value> {
    let features = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors", "domainMetadata", "rowTracking"]}});
    vec![features, metadata(&[("x", "long")], &[], json!({}))]
}

/// One action of a commit.
#[derive(Debug, Clone)]
enum Step {
    Add(u8, Option<u8>),
    Remove(u8, Option<u8>),
    Txn(u8, u8),
    Domain(u8, bool),
    Property(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..6_u8, proptest::option::of(1..3_u8)).prop_map(|(file, vector)| Step::Add(file, vector)),
        (0..6_u8, proptest::option::of(1..3_u8)).prop_map(|(file, vector)| Step::Remove(file, vector)),
        (0..2_u8, 0..9_u8).prop_map(|(app, version)| Step::Txn(app, version)),
        (0..2_u8, any::<bool>()).prop_map(|(domain, removed)| Step::Domain(domain, removed)),
        (0..9_u8).prop_map(Step::Property),
    ]
}

/// The actions of a commit, with at most one for each logical file, domain and application, and one metadata.
fn actions(steps: &[Step], version: usize) -> Vec<Value> {
    let mut seen = std::collections::BTreeSet::new();
    let mut actions = Vec::new();
    for step in steps {
        let (key, action) = match step {
            Step::Add(file, of) => {
                let mut members = json!({"tags": {"t": "1"}, "stats": format!("{{\"numRecords\":{version}}}"),
                    "baseRowId": version, "defaultRowCommitVersion": version});
                if let Some(of) = of {
                    members["deletionVector"] = vector(i32::from(*of));
                }
                (format!("file {file} {of:?}"), add_with(&format!("f{file}"), members))
            }
            Step::Remove(file, of) => {
                let mut action = remove(&format!("f{file}"));
                action["remove"]["extendedFileMetadata"] = json!(true);
                action["remove"]["partitionValues"] = json!({});
                action["remove"]["size"] = json!(version);
                if let Some(of) = of {
                    action["remove"]["deletionVector"] = vector(i32::from(*of));
                }
                (format!("file {file} {of:?}"), action)
            }
            Step::Txn(app, at) => (format!("txn {app}"), json!({"txn": {"appId": format!("a{app}"), "version": at}})),
            Step::Domain(name, removed) => {
                let domain = format!("d{name}");
                let action = json!({"domainMetadata": {"domain": domain, "configuration": version.to_string(), "removed": removed}});
                (domain, action)
            }
            Step::Property(value) => {
                let properties = json!({"delta.checkpointInterval": (value + 1).to_string()});
                ("metadata".to_owned(), metadata(&[("x", "long")], &[], properties))
            }
        };
        if seen.insert(key) {
            actions.push(action);
        }
    }
    actions
}

#[tokio::test]
async fn commits_without_effect_are_compacted_too() {
    let sample = Sample::new();
    sample.commit(0, &creation());
    sample.commit(1, &actions(&[], 1));
    sample.commit(2, &actions(&[], 2));
    let before = state(&sample.open().await.unwrap()).await;
    compact_log(&sample.log, &LogCommitter::new(sample.log.clone()), Some(1), Some(2)).await.unwrap();
    assert_eq!(state(&sample.open().await.unwrap()).await, before);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Files, statistics, tombstones, transactions, domains and properties stay the same.
    #[test]
    fn compaction_keeps_the_state(
        commits in proptest::collection::vec(proptest::collection::vec(step(), 0..5), 2..8),
        at in any::<(prop::sample::Index, prop::sample::Index)>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let sample = Sample::new();
            sample.commit(0, &creation());
            for (steps, version) in commits.iter().zip(1_usize..) {
                sample.commit(version as u64, &actions(steps, version));
            }
            let before = state(&sample.open().await.unwrap()).await;
            let start = at.0.index(commits.len());
            let end = start + 1 + at.1.index(commits.len() - start);
            let path = compact_log(&sample.log, &LogCommitter::new(sample.log.clone()), Some(start as u64), Some(end as u64)).await.unwrap();
            assert_eq!(path, format!("_delta_log/{start:020}.{end:020}.compacted.json"));
            let snapshot = sample.open().await.unwrap();
            let used = snapshot.segment().tail.iter().any(|f| matches!(f.name, LogName::Compacted { .. }));
            assert!(used, "{:?}", snapshot.segment());
            assert_eq!(state(&snapshot).await, before);
        });
    }
}

#[tokio::test]
async fn commits_after_the_checkpoint_are_the_default() {
    let sample = Sample::new();
    sample.commit(0, &creation());
    for version in 1..6 {
        sample.commit(version, &[json!({"commitInfo": {"n": version}}), add_with("f", json!({"size": version}))]);
    }
    let path = compact_log(&sample.log, &LogCommitter::new(sample.log.clone()), None, None).await.unwrap();
    assert!(path.ends_with("/00000000000000000000.00000000000000000005.compacted.json"), "{path}");
    let text = std::fs::read_to_string(sample.log(path.rsplit('/').next().unwrap())).unwrap();
    let kinds: Vec<String> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap().as_object().unwrap().keys().next().unwrap().clone())
        .collect();
    assert_eq!(kinds, ["protocol", "metaData", "add"]);
    deltic_table::checkpoint_writer::checkpoint(&sample.log, 10).await.unwrap();
    sample.commit(6, &[add_with("g", json!({}))]);
    let one = compact_log(&sample.log, &LogCommitter::new(sample.log.clone()), None, None).await.unwrap_err();
    assert_eq!(one.kind(), &Kind::Invalid, "{one}");
    sample.commit(7, &[remove("f")]);
    let path = compact_log(&sample.log, &LogCommitter::new(sample.log.clone()), None, None).await.unwrap();
    assert!(path.ends_with("/00000000000000000006.00000000000000000007.compacted.json"), "{path}");
    // An existing compaction is not replaced.
    let before = std::fs::read(sample.log(path.rsplit('/').next().unwrap())).unwrap();
    assert_eq!(compact_log(&sample.log, &LogCommitter::new(sample.log.clone()), Some(6), None).await.unwrap(), path);
    assert_eq!(std::fs::read(sample.log(path.rsplit('/').next().unwrap())).unwrap(), before);
    assert_eq!(live(&sample.open().await.unwrap()).await.unwrap(), ["g"]);
}

#[tokio::test]
async fn missing_commits_are_refused() {
    let sample = Sample::new();
    sample.commit(0, &creation());
    (1..5).for_each(|version| sample.commit(version, &[add_with("f", json!({"size": version}))]));
    for (start, end) in [(3, 3), (4, 2)] {
        let error =
            compact_log(&sample.log, &LogCommitter::new(sample.log.clone()), Some(start), Some(end)).await.unwrap_err();
        assert_eq!(error.kind(), &Kind::Invalid, "{error}");
    }
    assert!(
        compact_log(&sample.log, &LogCommitter::new(sample.log.clone()), Some(3), Some(9))
            .await
            .unwrap_err()
            .is_version_not_found()
    );
    deltic_table::checkpoint_writer::checkpoint(&sample.log, 10).await.unwrap();
    sample.delete(&commit_name(2));
    let error = compact_log(&sample.log, &LogCommitter::new(sample.log.clone()), Some(1), Some(4)).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::Invalid);
    assert!(error.message().contains("no commit for version 2"), "{error}");
}
