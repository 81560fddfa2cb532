//! Checkpoints with reused sidecars: contents, requests, and number of sidecars.

use deltic_table::scan::plan::ScanPlan;

use super::*;

const V2: [(&str, &str); 1] = [("delta.checkpointPolicy", "v2")];

/// A table with V2 checkpoints, partitioned by `p`.
fn table(properties: &[(&str, &str)]) -> Log {
    let mut log = Log::empty();
    let features = json!(["v2Checkpoint", "deletionVectors"]);
    log.commit(&[
        json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features,
            "writerFeatures": features}}),
        metadata(&[("x", "long"), ("p", "integer")], &["p"], properties),
    ]);
    log
}

fn file(p: u64, name: u64) -> Value {
    let stats = json!({"numRecords": 1, "minValues": {"x": name}, "maxValues": {"x": name}, "nullCount": {"x": 0}});
    add_with(&format!("p={p}/f{name:06}"), json!({"stats": stats.to_string(), "partitionValues": {"p": p.to_string()}}))
}

fn gone(p: u64, name: u64) -> Value {
    remove(&format!("p={p}/f{name:06}"), 1_700_000_000_000)
}

fn sidecars_of(log: &Log) -> Vec<(String, u64)> {
    let snapshot = log.snapshot();
    block_on(snapshot.checkpoint()).unwrap().unwrap().sidecars().to_vec()
}

fn kept_files(log: &Log, filter: &str) -> u64 {
    block_on(ScanPlan::new(&log.snapshot(), None, Some(filter))).unwrap().files_kept
}

fn now_ms() -> i64 {
    i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap()
}

/// Commits files of one partition, so many that their sidecar is not merged with the next ones at once.
fn commit_partition(log: &mut Log, p: u64, files: u64) {
    let adds: Vec<Value> = (0..files).map(|i| file(p, p * 100_000 + i)).collect();
    log.commit(&adds);
}

#[test]
fn unchanged_sidecars_are_reused() {
    let mut log = table(&V2);
    for p in 0..3 {
        commit_partition(&mut log, p, 20);
        let written = log.only_checkpoint(0);
        assert_eq!((written.sidecars, written.reused, written.adds), (p + 1, p, 20 * (p + 1)));
    }
    let before = sidecars_of(&log);
    log.commit(&[gone(1, 100_003), json!({"txn": {"appId": "a", "version": 1}})]);
    let read = log.storage.counts();
    // The tombstone is expired, the sidecars are new.
    let written = log.only_checkpoint(now_ms());
    let read = log.storage.counts().since(&read);
    assert_eq!((written.sidecars, written.reused, written.adds), (3, 2, 59));
    let after = sidecars_of(&log);
    assert_eq!(after.iter().filter(|s| before.contains(s)).count(), 2);
    let hint = log.hint().unwrap().v2_checkpoint.unwrap();
    assert_eq!(hint.sidecar_files.unwrap().len(), 3);
    // The hint (twice), the commit, footer and rows of the checkpoint, three footers of sidecars, the paths of one sidecar
    // and then all its columns, the footer of the new sidecar. Nothing more of the reused ones.
    assert_eq!(read.gets, 11);
    // A recent tombstone is in a separate sidecar.
    log.commit(&[gone(2, 200_003)]);
    let before = block_on(state(&log.snapshot())).unwrap();
    let written = log.only_checkpoint(0);
    assert_eq!((written.sidecars, written.reused, written.removes), (4, 2, 1));
    assert_eq!(block_on(state(&log.snapshot())).unwrap(), before);
}

#[test]
fn old_sidecars_are_copied_before_log_cleanup_may_delete_them() {
    let mut log = table(&V2);
    for p in 0..3 {
        commit_partition(&mut log, p, 20);
        log.only_checkpoint(0);
    }
    let before = sidecars_of(&log);
    let hour = std::time::Duration::from_secs(60 * 60);
    for ((sidecar, _), hours) in before.iter().zip([11, 13, 40]) {
        let name = sidecar.strip_prefix("_delta_log/").unwrap();
        let file = std::fs::File::options().append(true).open(log.path(name)).unwrap();
        file.set_modified(std::time::SystemTime::now() - hours * hour).unwrap();
    }
    let state_before = block_on(state(&log.snapshot())).unwrap().pruned();
    log.commit(&[json!({"txn": {"appId": "a", "version": 1}})]);
    let written = log.only_checkpoint(now_ms());
    assert_eq!((written.sidecars, written.reused, written.adds), (3, 1, 60));
    let after = sidecars_of(&log);
    assert_eq!((after[0] == before[0], after[1..].iter().any(|s| before.contains(s))), (true, false));
    // The copies have the same bytes, and their tags name the copies.
    let same_bytes = |(one, two): (&(String, u64), &(String, u64))| {
        let read = |path: &str| std::fs::read(log.path(path.strip_prefix("_delta_log/").unwrap())).unwrap();
        read(&one.0) == read(&two.0)
    };
    assert!(before.iter().zip(&after).all(same_bytes), "{before:?} {after:?}");
    assert_eq!(log.hint().unwrap().v2_checkpoint.unwrap().sidecar_files.unwrap().len(), 3);
    assert_eq!(block_on(state(&log.snapshot())).unwrap().pruned().adds, state_before.adds);
    let snapshot = log.snapshot();
    block_on(snapshot.files()).unwrap();
    let read = log.storage.counts();
    assert_eq!(block_on(ScanPlan::new(&snapshot, None, Some("p = 7"))).unwrap().files_kept, 0);
    assert_eq!(log.storage.counts().since(&read).gets, 0, "the tags of copies are not used");
    assert_eq!(kept_files(&log, "p = 1"), 20);
}

#[test]
fn a_deleted_sidecar_fails_the_checkpoint() {
    let mut log = table(&V2);
    for p in 0..2 {
        commit_partition(&mut log, p, 20);
        log.only_checkpoint(0);
    }
    commit_partition(&mut log, 2, 20);
    let snapshot = log.snapshot();
    // The handle has cached its sidecars.
    assert_eq!(block_on(ScanPlan::new(&snapshot, None, None)).unwrap().files_kept, 60);
    let (gone, _) = block_on(snapshot.checkpoint()).unwrap().unwrap().sidecars()[0].clone();
    block_on(log.storage.delete(&gone)).unwrap();
    let error = block_on(of_snapshot(&snapshot, 0)).unwrap_err();
    assert!(matches!(error.kind(), Kind::Storage { retryable: true }), "{error}");
}

#[test]
fn a_plan_opens_only_the_sidecars_it_needs() {
    let mut log = table(&V2);
    for p in 0..3 {
        commit_partition(&mut log, p, 30);
        log.only_checkpoint(0);
    }
    let gets = |filter: &str| {
        let snapshot = log.snapshot();
        block_on(snapshot.files()).unwrap();
        let before = log.storage.counts();
        let kept = block_on(ScanPlan::new(&snapshot, None, Some(filter))).unwrap().files_kept;
        (kept, log.storage.counts().since(&before).gets)
    };
    let (none, nothing) = gets("p = 7");
    assert_eq!((none, nothing), (0, 0));
    let (some, one) = gets("p = 1");
    let (by_value, same) = gets("x = 100005");
    let (all, every) = gets("x >= 0");
    assert_eq!((some, by_value, all), (30, 1, 90));
    // Three requests per sidecar: the footer, the columns of the filter, the paths.
    assert_eq!((one, same, every), (3, 3, 9));
}

#[test]
fn tags_of_another_file_are_ignored() {
    let mut log = table(&V2);
    for p in 0..2 {
        commit_partition(&mut log, p, 5);
        log.only_checkpoint(0);
    }
    // The same checkpoint as JSON, with tags that are swapped or damaged.
    let snapshot = log.snapshot();
    let hint = log.hint().unwrap().v2_checkpoint.unwrap();
    let good = hint.sidecar_files.unwrap();
    let version = snapshot.version();
    for damage in 0..5 {
        let mut sidecars = good.clone();
        match damage {
            0 => {
                let tags = sidecars[0].tags.clone();
                sidecars[0].tags = sidecars[1].tags.clone();
                sidecars[1].tags = tags;
            }
            1 => sidecars.iter_mut().for_each(|s| s.tags = None),
            _ => {
                for sidecar in &mut sidecars {
                    for text in sidecar.tags.as_mut().unwrap().values_mut() {
                        *text = match damage {
                            2 => None,
                            3 => Some("{".to_owned()),
                            _ => text
                                .as_ref()
                                .map(|t| t.replace("\"min\":\"", "\"min\":\"x").replace("integer", "string")),
                        };
                    }
                }
            }
        }
        let mut lines = vec![
            json!({"checkpointMetadata": {"version": version}}),
            json!({"protocol": snapshot.protocol()}),
            json!({"metaData": snapshot.metadata()}),
        ];
        lines.extend(sidecars.iter().map(|sidecar| json!({"sidecar": sidecar})));
        let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
        for entry in std::fs::read_dir(log.path("")).unwrap().map(|e| e.unwrap()) {
            if entry.path().is_file() {
                std::fs::remove_file(entry.path()).unwrap();
            }
        }
        let name = format!("{version:020}.checkpoint.{:08}-0000-0000-0000-000000000000.json", damage);
        std::fs::write(log.path(&name), lines.join("\n")).unwrap();
        for (filter, files) in [("p = 0", 5), ("p = 1", 5), ("p = 2", 0), ("x = 100001", 1), ("x < 3", 3)] {
            assert_eq!(kept_files(&log, filter), files, "{damage}: {filter}");
        }
    }
}

#[test]
fn the_number_of_sidecars_is_bounded() {
    let mut log = table(&V2);
    let (mut most, mut files) = (0, 0);
    for generation in 0..50_u64 {
        let adds: Vec<Value> = (0..150).map(|i| file(generation % 7, generation * 1_000 + i)).collect();
        files += adds.len() as u64;
        log.commit(&adds);
        let written = log.only_checkpoint(0);
        assert_eq!(written.adds, files);
        most = most.max(written.sidecars);
    }
    assert!(most <= 12, "{most}");
    assert!(most >= 4, "sidecars are never reused: {most}");
    assert_eq!(kept_files(&log, "x >= 0"), files);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// With any changes between checkpoints, the state is that of the commits.
    #[test]
    fn reused_sidecars_never_change_the_state(
        commits in prop::collection::vec(
            (prop::collection::btree_map((0_u64..4, 0_u64..5), prop_oneof![
                3 => Just(Change::Add), 1 => (0_u8..3).prop_map(Change::AddWithVector), 1 => Just(Change::Remove)], 0..7),
             any::<bool>()),
            1..16),
    ) {
        let (mut plain, mut checked) = (table(&V2), table(&V2));
        let mut live: HashMap<(u64, u64), Option<u8>> = HashMap::new();
        let vector = |v: u8| json!({"storageType": "u", "pathOrInlineDv": format!("{v:020}"), "offset": 1,
            "sizeInBytes": 10, "cardinality": 1});
        for (number, (changes, checkpoint)) in commits.iter().enumerate() {
            let mut actions = vec![json!({"commitInfo": {"operation": "WRITE"}})];
            for ((p, name), change) in changes {
                let had = live.remove(&(*p, *name));
                let has = match change {
                    Change::Add => Some(None),
                    Change::AddWithVector(v) => Some(Some(*v)),
                    Change::Remove => None,
                };
                if had.is_some() && had != has || has.is_none() {
                    let mut action = gone(*p, *name);
                    if let Some(Some(v)) = had {
                        action["remove"]["deletionVector"] = vector(v);
                    }
                    actions.push(action);
                }
                if let Some(has) = has {
                    let mut action = file(*p, *name);
                    action["add"]["size"] = json!(number);
                    if let Some(v) = has {
                        action["add"]["deletionVector"] = vector(v);
                    }
                    actions.push(action);
                    live.insert((*p, *name), has);
                }
            }
            plain.commit(&actions);
            checked.commit(&actions);
            if *checkpoint {
                let written = checked.only_checkpoint(0);
                prop_assert_eq!(written.adds, live.len() as u64);
            }
        }
        for p in 0..4 {
            let filter = format!("p = {p}");
            prop_assert_eq!(kept_files(&checked, &filter), live.keys().filter(|(q, _)| *q == p).count() as u64);
        }
        let (plain, checked) = (block_on(state(&plain.snapshot())).unwrap(), block_on(state(&checked.snapshot())).unwrap());
        prop_assert_eq!(checked.pruned(), plain.pruned());
    }
}
