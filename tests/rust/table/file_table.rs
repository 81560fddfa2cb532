//! Planning over a checkpoint: cold, cached, without a cache and after a refresh, it finds what replaying all commits
//! finds.

use deltic_table::checkpoint::write::checkpoint;
use deltic_table::scan::plan::ScanPlan;
use deltic_table::snapshot::Snapshot;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::sample::{Sample, add_with, metadata, protocol, remove, vector};

const PREDICATES: [&str; 16] = [
    "p = 'a'",
    "p IS NULL",
    "p <> 'b' AND x < 40",
    "x < 5",
    "x >= 90",
    "x = 50",
    "x BETWEEN 20 AND 30",
    "NOT (x > 10)",
    "x IS NULL",
    "x IS NOT NULL AND n <= 3",
    "y IS NULL",
    "y = 'q'",
    "p = 'c' OR x > 95",
    "x IN (1, 50, 99) AND p IN ('a', 'b')",
    "n < x",
    "d >= DATE '2020-02-01'",
];

/// What one file says of itself.
#[derive(Debug, Clone)]
struct File {
    p: Option<&'static str>,
    x: Option<(u8, u8)>,
    all_null: bool,
    has_stats: bool,
    has_vector: bool,
}

fn file() -> impl Strategy<Value = File> {
    let p = prop_oneof![Just(None), select(vec!["a", "b", "c", "é"]).prop_map(Some)];
    (p, proptest::option::of((0_u8..100, 0_u8..10)), any::<bool>(), 0..8_u8, 0..8_u8).prop_map(
        |(p, x, all_null, stats, vector)| File { p, x, all_null, has_stats: stats > 0, has_vector: vector == 0 },
    )
}

fn add(number: usize, file: &File) -> Value {
    let mut stats = json!({"numRecords": 4, "minValues": {}, "maxValues": {}, "nullCount": {"y": 4}});
    if let Some((low, width)) = file.x {
        let day = |x: u8| format!("2020-0{}-01", 1 + x / 20);
        stats["minValues"] = json!({"x": low, "n": low / 10, "d": day(low)});
        stats["maxValues"] = json!({"x": low + width, "n": low / 10 + 1, "d": day(low + width)});
        stats["nullCount"]["x"] = json!(0);
    } else if file.all_null {
        stats["nullCount"]["x"] = json!(4);
    }
    let mut members = json!({"partitionValues": {"p": file.p}});
    if file.has_stats {
        members["stats"] = json!(stats.to_string());
    }
    if file.has_vector {
        members["deletionVector"] = vector(1);
    }
    add_with(&format!("f{number}"), members)
}

/// Files kept, and all that is counted.
async fn answer(snapshot: &Snapshot, filter: &str) -> (Vec<String>, String) {
    let plan = ScanPlan::new(snapshot, None, Some(filter)).await.unwrap();
    let mut tasks: Vec<String> = plan.tasks().await.unwrap().into_iter().map(|task| format!("{task:?}")).collect();
    tasks.sort();
    let rows: usize = plan.to_batches().await.unwrap().1.iter().map(|batch| batch.num_rows()).sum();
    assert_eq!((tasks.len() as u64, rows as u64), (plan.files_kept, plan.files_kept));
    (tasks, format!("{:?} {:?}", plan.totals().await.unwrap(), plan.bytes_kept().await.unwrap()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn what_is_cached_changes_nothing(
        files in proptest::collection::vec(file(), 1..60),
        later in proptest::collection::vec((file(), proptest::option::of(any::<prop::sample::Index>())), 0..12),
        filters in proptest::collection::vec(select(PREDICATES.to_vec()), 1..5),
        (typed, text) in select(vec![(true, true), (true, false), (false, true)]),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let configuration = json!({
            "delta.checkpoint.writeStatsAsStruct": typed.to_string(),
            "delta.checkpoint.writeStatsAsJson": text.to_string(),
        });
        let columns = [("p", "string"), ("x", "long"), ("y", "string"), ("n", "long"), ("d", "date")];
        let (plain, checked) = (Sample::new(), Sample::new());
        let commit = |version: u64, actions: &[Value]| {
            plain.commit(version, actions);
            checked.commit(version, actions);
        };
        commit(0, &[protocol(1, 2), metadata(&columns, &["p"], configuration)]);
        commit(1, &files.iter().enumerate().map(|(number, file)| add(number, file)).collect::<Vec<_>>());
        runtime.block_on(async {
            checkpoint(&checked.storage, 0).await.unwrap();
            let before = checked.open().await.unwrap();
            // Something is in the cache before the tail grows.
            let _cached = answer(&before, filters[0]).await;
            for (number, (file, gone)) in later.iter().enumerate() {
                let mut actions = vec![add(files.len() + number, file)];
                if let Some(gone) = gone {
                    let at = gone.index(files.len());
                    let mut action = remove(&format!("f{at}"));
                    if files[at].has_vector {
                        action["remove"]["deletionVector"] = vector(1);
                    }
                    actions.push(action);
                }
                commit(2 + number as u64, &actions);
            }
            let expected = plain.open().await.unwrap();
            let (opened, refreshed) = (checked.open().await.unwrap(), before.refresh().await.unwrap());
            assert_eq!(refreshed.version(), expected.version());
            let bare = checked.open().await.unwrap();
            bare.files().await.unwrap().unwrap().limit_cache(0);
            for filter in &filters {
                let right = answer(&expected, filter).await;
                for (how, snapshot) in
                    [("opened", &opened), ("again", &opened), ("refreshed", &refreshed), ("uncached", &bare)]
                {
                    let found = answer(snapshot, filter).await;
                    assert_eq!(found, right, "{how}: {filter}");
                }
            }
            for snapshot in [&opened, &refreshed] {
                snapshot.files().await.unwrap().unwrap().pack();
                for filter in &filters {
                    assert_eq!(answer(snapshot, filter).await, answer(&expected, filter).await, "packed: {filter}");
                }
            }
            assert_eq!(bare.files().await.unwrap().unwrap().cached_bytes(), 0);
        });
    }
}

#[tokio::test]
async fn refreshing_reads_only_what_is_new() {
    let sample = Sample::new();
    sample.commit(0, &[protocol(1, 2), metadata(&[("x", "long")], &[], json!({}))]);
    for version in 1..8 {
        sample.commit(version, &[add_with(&format!("f{version}"), json!({}))]);
    }
    let snapshot = sample.open().await.unwrap();
    assert_eq!(snapshot.num_files().await.unwrap(), 7);
    let ((gets, lists), same) = sample.counted(snapshot.refresh()).await;
    assert_eq!((lists, gets, same.unwrap().version()), (1, 0, 7));
    sample.commit(8, &[remove("f1"), add_with("f8", json!({})), add_with("f9", json!({}))]);
    sample.commit(9, &[remove("f8"), metadata(&[("x", "long"), ("y", "long")], &[], json!({}))]);
    let ((gets, lists), newer) = sample.counted(snapshot.refresh()).await;
    let newer = newer.unwrap();
    assert_eq!((lists, gets, newer.version()), (1, 2, 9));
    assert_eq!(newer.shape().schema.fields.len(), 2);
    assert_eq!(newer.num_files().await.unwrap(), 7);
    // The table was made anew: nothing of the old one is of use.
    sample.delete("00000000000000000009.json");
    sample.commit(9, &[add_with("another", json!({"size": 12_345}))]);
    let other = newer.refresh().await.unwrap();
    assert_eq!((other.version(), other.num_files().await.unwrap()), (9, 9));
}
