//! A plan from a checkpoint has the same files as a replay of all commits: uncached, cached, and after a refresh.

use std::time::Instant;

use deltic_protocol::error::Kind;
use deltic_protocol::log::name::checkpoint_name;
use deltic_table::checkpoint_writer::checkpoint;
use deltic_table::scan::plan::ScanPlan;
use deltic_table::snapshot::Snapshot;
use parquet::basic::{Compression, Encoding, GzipLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use arrow_schema::DataType;
use deltic_table::log::LogSource;

use super::sample::{
    Sample, add as bare, add_with, live, metadata, parquet, parquet_with_required_vectors, parquet_with_stats,
    parquet_with_typed_dates, protocol, remove, small_parquet, vector,
};

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

/// A file as the log describes it.
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

/// The files that a plan keeps, and its totals.
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
    fn cached_columns_equal_decoded_ones(
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
            checkpoint(&LogSource::of(&checked.storage), 0).await.unwrap();
            let before = checked.open().await.unwrap();
            // Fills the cache before new commits.
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
async fn a_refresh_reads_only_new_commits() {
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
    // The table was created again, so that no cached state can be used.
    sample.delete("00000000000000000009.json");
    sample.commit(9, &[add_with("another", json!({"size": 12_345}))]);
    let other = newer.refresh().await.unwrap();
    assert_eq!((other.version(), other.num_files().await.unwrap()), (9, 9));
}

/// The paths of the files that a plan keeps.
async fn kept(snapshot: &Snapshot, filter: &str) -> Vec<String> {
    let plan = ScanPlan::new(snapshot, None, Some(filter)).await.unwrap();
    let mut paths: Vec<String> = plan.tasks().await.unwrap().into_iter().map(|task| task.path).collect();
    paths.sort();
    paths
}

/// A table whose checkpoint has typed statistics of `x`, with these bounds of each file.
fn with_typed(data_type: &str, arrow: DataType, files: &[(&str, Value, Value)]) -> Sample {
    let sample = Sample::new();
    let file = |(path, min, max): &(&str, Value, Value)| {
        let stats = json!({"numRecords": 2, "minValues": {"x": min}, "maxValues": {"x": max}, "nullCount": {"x": 0}});
        add_with(path, json!({"stats_parsed": stats}))
    };
    // The files are in their own row group.
    let mut actions = vec![
        protocol(1, 2),
        metadata(&[("x", data_type)], &[], json!({})),
        json!({"txn": {"appId": "a", "version": 1}}),
    ];
    actions.extend(files.iter().map(file));
    sample.commit(0, &[]);
    sample.put("00000000000000000000.checkpoint.parquet", parquet_with_stats(&actions, &[("x", arrow)]));
    sample
}

#[tokio::test]
async fn nan_bounds_count_in_their_row_group() {
    let files = [("a", json!(1), json!("NaN")), ("b", json!(1), json!(10))];
    let sample = with_typed("double", DataType::Float64, &files);
    for filter in ["x = 100", "x IN (100)", "x BETWEEN 50 AND 200"] {
        assert_eq!(kept(&sample.open().await.unwrap(), filter).await, ["a"], "{filter}");
    }
    // The same in a checkpoint made from this one.
    sample.commit(1, &[]);
    checkpoint(&sample.log, 0).await.unwrap();
    assert_eq!(kept(&sample.open().await.unwrap(), "x = 100").await, ["a"]);
    let sample = with_typed("double", DataType::Float64, &[("a", json!(1), json!(5)), ("b", json!(1), json!(10))]);
    assert!(kept(&sample.open().await.unwrap(), "x = 100").await.is_empty());
}

#[tokio::test]
async fn rounded_decimal_bounds_count_in_their_row_group() {
    let exact = json!("10000000000000001501");
    let rounded = json!("10000000000000002000");
    let files = [("a", exact.clone(), exact), ("b", rounded.clone(), rounded)];
    let sample = with_typed("decimal(38,0)", DataType::Decimal128(38, 0), &files);
    assert_eq!(kept(&sample.open().await.unwrap(), "x = 10000000000000001200").await, ["b"]);
}

#[tokio::test]
async fn truncated_string_bounds_count_in_their_row_group() {
    let cut = "abcdefghijklmnopqrstuvwxyz012345";
    let text = |end: &str| json!(format!("{cut}{end}"));
    let files = [("a", json!("a"), text("")), ("b", json!("a"), text("b"))];
    let sample = with_typed("string", DataType::Utf8, &files);
    assert_eq!(kept(&sample.open().await.unwrap(), &format!("x = '{cut}z'")).await, ["a"]);
    assert!(kept(&sample.open().await.unwrap(), "x = 'abcdefz'").await.is_empty());
}

#[tokio::test]
async fn timestamps_without_zone_are_as_wide_in_a_checkpoint_as_in_json() {
    let sample = Sample::new();
    let bounds = json!({"t": "2024-01-01T10:00:00"});
    let stats = json!({"numRecords": 1, "minValues": bounds, "maxValues": bounds, "nullCount": {"t": 0}});
    let file = add_with("f", json!({"stats": stats.to_string()}));
    sample.commit(0, &[protocol(1, 2), metadata(&[("t", "timestamp")], &[], json!({})), file]);
    let filters = ["t < TIMESTAMP '2024-01-01T06:00:00Z'", "t > TIMESTAMP '2024-01-02T03:00:00Z'"];
    for filter in filters {
        assert_eq!(kept(&sample.open().await.unwrap(), filter).await, ["f"], "{filter}");
    }
    checkpoint(&sample.log, 0).await.unwrap();
    for filter in filters {
        assert_eq!(kept(&sample.open().await.unwrap(), filter).await, ["f"], "{filter}");
    }
    assert!(kept(&sample.open().await.unwrap(), "t < TIMESTAMP '2023-12-31T06:00:00Z'").await.is_empty());
}

#[tokio::test]
async fn vectors_with_required_members_are_read() {
    let sample = Sample::new();
    let mut actions: Vec<Value> = (0..40)
        .map(|number| {
            let stats = json!({"numRecords": 1, "minValues": {"x": number}, "maxValues": {"x": number}}).to_string();
            let mut file = add_with(&format!("f{number:02}"), json!({"stats": stats}));
            if number % 10 == 5 {
                file["add"]["deletionVector"] = vector(number);
            }
            file
        })
        .collect();
    let features = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}});
    actions.extend([features, metadata(&[("x", "long")], &[], json!({}))]);
    sample.commit(0, &[]);
    sample.put("00000000000000000000.checkpoint.parquet", parquet_with_required_vectors(&actions, 5));
    // A commit after the checkpoint, so that deletion vectors are compared.
    sample.commit(1, &[bare("later")]);
    let snapshot = sample.open().await.unwrap();
    snapshot.limit_cache(0);
    assert_eq!(kept(&snapshot, "x = 17").await, ["f17", "later"]);
    assert_eq!(kept(&snapshot, "x = 15").await, ["f15", "later"]);
}

#[tokio::test]
async fn a_handle_recovers_after_log_cleanup() {
    let sample = Sample::new();
    let start = [protocol(1, 2), metadata(&[("x", "long")], &[], json!({}))];
    sample.commit(0, &start);
    sample.commit(1, &[bare("a")]);
    sample.checkpoint(1, &[&start[..], &[bare("a")]].concat());
    sample.hint(1);
    sample.commit(2, &[bare("b")]);
    let old = sample.open().await.unwrap();
    sample.commit(3, &[bare("c")]);
    sample.checkpoint(2, &[&start[..], &[bare("a"), bare("b")]].concat());
    sample.hint(2);
    for gone in ["00000000000000000001.checkpoint.parquet", "00000000000000000000.json", "00000000000000000001.json"] {
        sample.delete(gone);
    }
    let old = old.refresh().await.unwrap();
    assert_eq!(old.version(), 3);
    // The error must not be that the table does not exist.
    assert!(matches!(live(&old).await.unwrap_err().kind(), Kind::Storage { retryable: true }));
    assert_eq!(live(&old.refresh().await.unwrap()).await.unwrap(), ["a", "b", "c"]);
}

/// Some writers write a struct of nulls for rows without this action.
#[tokio::test]
async fn an_add_without_a_path_is_skipped() {
    let empty = json!({"add": {}});
    let actions = [protocol(1, 2), metadata(&[("x", "long")], &[], json!({})), bare("a"), bare("b"), empty, bare("c")];
    let unknown = WriterProperties::builder().set_statistics_enabled(EnabledStatistics::None).build();
    for (what, bytes) in [("counts", parquet(&actions)), ("no statistics", small_parquet(&actions, unknown))] {
        let sample = Sample::new();
        sample.put("00000000000000000004.checkpoint.parquet", bytes);
        sample.commit(4, &[]);
        let snapshot = sample.open().await.unwrap();
        assert_eq!(live(&snapshot).await.unwrap(), ["a", "b", "c"], "{what}");
        for filter in ["x > 1", "x IS NULL"] {
            let (tasks, _) = answer(&snapshot, filter).await;
            let has = |path: &str| tasks.iter().any(|task| task.contains(&format!("path: \"{path}\"")));
            assert!(tasks.len() == 3 && ["a", "b", "c"].into_iter().all(has), "{what}: {tasks:?}");
        }
    }
}

/// Bounds of strings are used only if all row groups were written with the order that Parquet defines today.
#[tokio::test]
async fn string_bounds_are_as_fast_as_numbers() {
    let stats = json!({"numRecords": 1, "minValues": {"n": 1, "t": "a"}, "maxValues": {"n": 2, "t": "b"},
        "nullCount": {"n": 0, "t": 0}});
    let file =
        |number: usize| add_with(&format!("f{number}"), json!({"stats": stats.to_string(), "stats_parsed": stats}));
    let columns = [("n", "long"), ("t", "string")];
    let mut actions = vec![protocol(1, 2), metadata(&columns, &[], json!({}))];
    actions.extend((0..15_000).map(file));
    let sample = Sample::new();
    let typed = [("n", DataType::Int64), ("t", DataType::Utf8)];
    sample.put("00000000000000000004.checkpoint.parquet", parquet_with_stats(&actions, &typed));
    sample.commit(4, &[]);
    let snapshot = sample.open().await.unwrap();
    let seconds = async |filter: &str| {
        let started = Instant::now();
        assert_eq!(ScanPlan::new(&snapshot, None, Some(filter)).await.unwrap().files_kept, 0);
        started.elapsed().as_secs_f64()
    };
    let _opened = seconds("n > 5").await;
    let (numbers, texts) = (seconds("n > 7").await, seconds("t > 'x'").await);
    assert!(texts < 3.0 * numbers + 0.1, "{texts} s for strings, {numbers} s for numbers");
}

/// Checkpoints of deltic, and Snappy checkpoints of other writers, are read by the page decoder; other codecs by the parquet
/// crate.
#[tokio::test]
async fn common_checkpoints_use_the_page_decoder() {
    let stats = json!({"numRecords": 1, "minValues": {"n": 1}, "maxValues": {"n": 2}, "nullCount": {"n": 0}});
    let file = |number: usize| {
        let partition = json!({"p": (number % 3).to_string()});
        add_with(&format!("f{number}"), json!({"stats": stats.to_string(), "partitionValues": partition}))
    };
    let mut actions = vec![protocol(1, 2), metadata(&[("n", "long"), ("p", "string")], &["p"], json!({}))];
    actions.extend((0..100).map(file));
    let decoded = async |sample: &Sample| {
        let snapshot = sample.open().await.unwrap();
        for filter in ["n = 2", "n IS NULL", "p = '1' AND n > 0"] {
            ScanPlan::new(&snapshot, None, Some(filter)).await.unwrap().tasks().await.unwrap();
        }
        snapshot.files().await.unwrap().unwrap().decode_counts()
    };
    let own = Sample::new();
    own.commit(0, &actions);
    checkpoint(&LogSource::of(&own.storage), 0).await.unwrap();
    let counts = decoded(&own).await;
    assert!(counts.direct >= 3 && counts.fallback == 0, "{counts:?}");
    for (codec, is_direct) in [(Compression::SNAPPY, true), (Compression::GZIP(GzipLevel::default()), false)] {
        let sample = Sample::new();
        sample.commit(0, &[]);
        let properties = WriterProperties::builder().set_compression(codec).build();
        sample.put("00000000000000000000.checkpoint.parquet", small_parquet(&actions, properties));
        let counts = decoded(&sample).await;
        assert_eq!((counts.direct > 0, counts.fallback > 0), (is_direct, !is_direct), "{codec}");
    }
}

/// Columns of paths and statistics that are longer than one chunk are read correctly, and each byte only once, for any
/// encoding of the neighbouring columns.
#[tokio::test]
async fn columns_longer_than_a_chunk_are_read_once() {
    const FILES: u64 = 8_000;
    let noise = |number: u64, words: u64| {
        let word = |salt: u64| (number * 64 + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        (0..words).map(|salt| format!("{:016x}", word(salt).wrapping_mul(0xd6e8_feb8_6659_fd93))).collect::<String>()
    };
    let path = |number: u64, words: u64| format!("p=a/part-{number:05}-{}.c000.snappy.parquet", noise(number, words));
    let file = |number: u64, words: u64| {
        let bounds = json!({"x": number, "y": noise(number + FILES, words)});
        let stats = json!({"numRecords": 1, "minValues": bounds, "maxValues": bounds, "nullCount": {"x": 0, "y": 0}});
        let members = json!({"partitionValues": {"p": "a"}, "stats": stats.to_string()});
        let mut action = add_with(&path(number, words), members);
        action["add"]["size"] = json!(number + 7);
        action
    };
    let columns = [("p", "string"), ("x", "long"), ("y", "string")];
    // With few words a column is less than one chunk, with many it is two.
    for (words, of_sizes, gets) in
        [(1, Encoding::PLAIN, 6), (24, Encoding::PLAIN, 9), (24, Encoding::DELTA_BINARY_PACKED, 9)]
    {
        let mut actions = vec![protocol(1, 2), metadata(&columns, &["p"], json!({}))];
        actions.extend((0..FILES).map(|number| file(number, words)));
        let size = ColumnPath::new(vec!["add".to_owned(), "size".to_owned()]);
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_column_dictionary_enabled(size.clone(), false)
            .set_column_encoding(size, of_sizes);
        let bytes = small_parquet(&actions, properties.build());
        let size = bytes.len() as u64;
        let sample = Sample::new();
        sample.put("00000000000000000004.checkpoint.parquet", bytes);
        sample.commit(4, &[]);
        for (first, second) in [(0, 7_999), (4_123, 3)] {
            let snapshot = sample.open().await.unwrap();
            let before = sample.storage.counts();
            for number in [first, second] {
                let plan = ScanPlan::new(&snapshot, None, Some(&format!("p = 'a' AND x = {number}"))).await.unwrap();
                let tasks = plan.tasks().await.unwrap();
                let found: Vec<_> = tasks.iter().map(|task| (task.path.as_str(), task.size)).collect();
                assert_eq!(found, [(path(number, words).as_str(), number + 7)], "{of_sizes}");
            }
            let read = sample.storage.counts().since(&before);
            // Gaps between columns are read too, and some columns again for the files that are kept.
            assert!(read.gets == gets && read.bytes_read < size + (128 << 10), "{read:?} of {size} bytes");
        }
    }
}

/// A checkpoint that Spark wrote with the hybrid calendar. Its strings use the proleptic one, as in all tables.
#[tokio::test]
async fn typed_columns_of_the_hybrid_calendar_are_not_used() {
    const PROLEPTIC: i64 = -171_605; // 1500-03-01
    const KEYS: [(&str, &str); 2] = [("org.apache.spark.version", "4.0.1"), ("org.apache.spark.legacyDateTime", "")];
    for (days, keys) in [(PROLEPTIC, &KEYS[..1]), (PROLEPTIC + 10, &KEYS[..])] {
        for with_strings in [true, false] {
            let sample = Sample::new();
            let stats = json!({"numRecords": 1, "minValues": {"d": "1500-03-01"}, "maxValues": {"d": "1500-03-01"},
                "nullCount": {"d": 0}});
            let typed =
                json!({"numRecords": 1, "minValues": {"d": days}, "maxValues": {"d": days}, "nullCount": {"d": 0}});
            let mut add = add_with(
                "f",
                json!({"partitionValues": {"p": "1500-03-01"}, "stats_parsed": typed,
                "partitionValues_parsed": {"p": days}}),
            );
            if with_strings {
                add["add"]["stats"] = stats.to_string().into();
            }
            let actions = [protocol(1, 2), metadata(&[("p", "date"), ("d", "date")], &["p"], json!({})), add];
            sample.commit(0, &actions);
            sample.put(&checkpoint_name(0), parquet_with_typed_dates(&actions, keys));
            let kept = async |filter: &str| {
                ScanPlan::new(&sample.open().await.unwrap(), None, Some(filter)).await.unwrap().files_kept
            };
            for column in ["p", "d"] {
                assert_eq!(kept(&format!("{column} = DATE '1500-03-01'")).await, 1, "{column} {keys:?}");
            }
            assert_eq!(kept("p = DATE '1500-03-11'").await, 0, "{keys:?}");
            // Unknown if there are only typed bounds.
            let is_unknown = keys.len() > 1 && !with_strings;
            assert_eq!(kept("d = DATE '1500-03-11'").await, u64::from(is_unknown), "{keys:?}");
        }
    }
}
