//! Plans: which files are pruned and why, and how the others are divided into task groups.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_schema::DataType;
use deltic_protocol::error::{Kind, Result};
use deltic_table::scan::filter::ScanFilter;
use deltic_table::scan::list_files::list_files;
use deltic_table::scan::plan::ScanPlan;
use deltic_table::scan::task::{FileTask, TaskGroup};
use futures::TryStreamExt;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::sample::{Sample, add_with, metadata, parquet_with_stats, protocol, vector};

/// A table with the columns `p` (partition), `x` and `y`, and these files.
fn table(actions: &[Value]) -> Sample {
    let sample = Sample::new();
    let columns = [("p", "string"), ("x", "long"), ("y", "string")];
    sample.commit(0, &[protocol(1, 2), metadata(&columns, &["p"], json!({}))]);
    sample.commit(1, actions);
    sample
}

/// A file of ten bytes with the partition value and bounds of `x`.
fn file(path: &str, p: Value, x: Option<(i64, i64)>) -> Value {
    let stats = x.map(|(min, max)| {
        json!({"numRecords": 4, "minValues": {"x": min}, "maxValues": {"x": max}, "nullCount": {"x": 0, "y": 4}})
            .to_string()
    });
    add_with(path, json!({"partitionValues": {"p": p}, "stats": stats}))
}

fn six() -> Sample {
    table(&[
        file("a0", json!("a"), Some((0, 9))),
        file("a1", json!("a"), Some((10, 19))),
        file("a2", json!("a"), None),
        file("b0", json!("b"), Some((0, 9))),
        file("b1", json!("b"), Some((10, 19))),
        file("n0", Value::Null, Some((0, 9))),
    ])
}

async fn plan(sample: &Sample, filter: Option<&str>) -> Result<ScanPlan> {
    ScanPlan::new(&sample.open().await?, None, filter).await
}

async fn paths(plan: &ScanPlan) -> String {
    let mut paths: Vec<String> = plan.tasks().await.unwrap().into_iter().map(|t| t.path).collect();
    paths.sort();
    paths.join(" ")
}

/// Checks the paths that are kept, and the files skipped by partition values and by statistics.
async fn check(found: &ScanPlan, kept: &str, partition: u64, statistics: u64) {
    let totals = found.totals().await.unwrap();
    let skipped = (totals.skipped.partition, totals.skipped.statistics);
    assert_eq!((paths(found).await.as_str(), skipped), (kept, (partition, statistics)), "{:?}", found.spec().filter);
    assert_eq!(found.files_kept + partition + statistics, totals.files);
    assert_eq!(totals.bytes, totals.files * 10);
    assert_eq!(found.bytes_kept().await.unwrap(), found.files_kept * 10);
}

#[tokio::test]
async fn files_are_skipped_by_partition_then_by_statistics() {
    let sample = six();
    let cases = [
        ("p = 'a'", "a0 a1 a2", 3, 0),
        ("x < 5", "a0 a2 b0 n0", 0, 2),
        ("p = 'a' AND x < 5", "a0 a2", 3, 1),
        ("x > 100", "a2", 0, 5),
        ("p = 'z' AND x > 100", "", 6, 0),
        ("p IS NULL", "n0", 5, 0),
        ("p IS NOT NULL AND x >= 10", "a1 a2 b1", 1, 2),
        ("p <> 'a'", "b0 b1", 4, 0),
        ("p IN ('a', 'c')", "a0 a1 a2", 3, 0),
        // Neither condition alone decides.
        ("p = 'b' OR x < 5", "a0 a2 b0 b1 n0", 0, 1),
        ("(p = 'b' OR x < 5) AND p = 'a'", "a0 a2", 3, 1),
        ("NOT (p = 'a' OR x >= 10)", "b0", 4, 1),
        ("y = 'q'", "a2", 0, 5),
        ("y IS NULL", "a0 a1 a2 b0 b1 n0", 0, 0),
        // Constants.
        ("1 = 1", "a0 a1 a2 b0 b1 n0", 0, 0),
        ("1 = 2", "", 6, 0),
        ("x = NULL", "", 6, 0),
        // Several conditions on the same column.
        ("x >= 5 AND x <= 8 AND x <> 7", "a0 a2 b0 n0", 0, 2),
    ];
    for (filter, kept, partition, statistics) in cases {
        check(&plan(&sample, Some(filter)).await.unwrap(), kept, partition, statistics).await;
    }
    check(&plan(&sample, None).await.unwrap(), "a0 a1 a2 b0 b1 n0", 0, 0).await;
}

#[tokio::test]
async fn typed_statistics_prune_like_json_statistics() {
    let sample = six();
    let stats = |min: i64, max: i64| json!({"numRecords": 4, "minValues": {"x": min}, "maxValues": {"x": max}, "nullCount": {"x": 0}});
    let typed = |path: &str, p: &str, min, max| {
        add_with(path, json!({"partitionValues": {"p": p}, "stats_parsed": stats(min, max)}))
    };
    let columns = [("p", "string"), ("x", "long"), ("y", "string")];
    let actions = [
        protocol(1, 2),
        metadata(&columns, &["p"], json!({})),
        typed("a0", "a", 0, 9),
        typed("a1", "a", 10, 19),
        add_with("a2", json!({"partitionValues": {"p": "a"}, "deletionVector": vector(1)})),
        typed("b0", "b", 0, 9),
    ];
    sample.put("00000000000000000001.checkpoint.parquet", parquet_with_stats(&actions, &[("x", DataType::Int64)]));
    check(&plan(&sample, Some("x < 5")).await.unwrap(), "a0 a2 b0", 0, 1).await;
    check(&plan(&sample, Some("p = 'a' AND x > 100")).await.unwrap(), "a2", 1, 2).await;
    check(&plan(&sample, Some("p = 'b' OR x >= 10")).await.unwrap(), "a1 a2 b0", 0, 1).await;
    // `y` has no statistics; those of `x` still count.
    check(&plan(&sample, Some("x > 100 AND y = 'q'")).await.unwrap(), "a2", 0, 3).await;
    let found = plan(&sample, Some("p = 'a' AND x > 100")).await.unwrap().tasks().await.unwrap();
    assert_eq!(found[0].deletion_vector.as_ref().unwrap().cardinality, 6);
    assert_eq!(found[0].partition_values["p"].as_deref(), Some("a"));
}

#[tokio::test]
async fn an_empty_table_has_an_empty_plan() {
    let sample = table(&[]);
    for filter in [None, Some("p = 'a'"), Some("x < 5")] {
        let found = plan(&sample, filter).await.unwrap();
        check(&found, "", 0, 0).await;
        assert!(found.task_groups(4).await.unwrap().is_empty());
        assert_eq!(found.to_batches().await.unwrap().1.len(), 0);
    }
}

#[tokio::test]
async fn columns_are_spelled_as_in_the_table() {
    let snapshot = six().open().await.unwrap();
    let columns = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    let found = ScanPlan::new(&snapshot, Some(&columns(&["Y", "p"])), Some("X < 5")).await.unwrap();
    assert_eq!(found.spec().columns, ["y", "p"]);
    assert_eq!(
        (found.spec().filter.as_ref().map(ScanFilter::as_str), found.totals().await.unwrap().skipped.statistics),
        (Some("X < 5"), 2)
    );
    assert_eq!(ScanPlan::new(&snapshot, None, None).await.unwrap().spec().columns, ["p", "x", "y"]);
    assert!(ScanPlan::new(&snapshot, Some(&[]), None).await.unwrap().spec().columns.is_empty());

    let cases: &[(&[&str], Option<&str>, &str)] = &[
        (&["z"], None, "no column `z`; it has p, x, y"),
        (&["x", "X"], None, "`x` is requested twice"),
        (&["x"], Some("z = 1"), "z"),
        (&["x"], Some("x = "), ""),
        (&["x"], Some("x = 'text'"), "x"),
    ];
    for (names, filter, words) in cases {
        let error = ScanPlan::new(&snapshot, Some(&columns(names)), *filter).await.unwrap_err();
        assert!(*error.kind() == Kind::Invalid && error.to_string().contains(words), "{error}");
        assert!(error.table().is_some(), "{error}");
    }
    for filter in ["z = 1", "x ="] {
        assert_eq!(*list_files(&snapshot, Some(filter)).await.err().unwrap().kind(), Kind::Invalid);
    }
}

#[tokio::test]
async fn a_mapping_without_feature_and_metadata_is_ignored() {
    let sample = Sample::new();
    let mode = json!({"delta.columnMapping.mode": "name"});
    sample.commit(0, &[protocol(1, 2), metadata(&[("x", "long")], &[], mode)]);
    assert_eq!(plan(&sample, None).await.unwrap().spec().column_mapping, "none");
}

#[tokio::test]
async fn extreme_sizes_are_accepted() {
    let sized = |path: &str, size: Value| add_with(path, json!({"size": size}));
    let most = json!(i64::MAX);
    let sample = table(&[sized("a", most.clone()), sized("b", most.clone()), sized("c", most)]);
    let found = plan(&sample, None).await.unwrap();
    assert_eq!(found.totals().await.unwrap().bytes, u64::MAX);
    assert_eq!(found.task_groups(1).await.unwrap().len(), 1);
    for size in [json!(-1), Value::Null] {
        let found = plan(&table(&[sized("a", size)]), None).await.unwrap();
        assert_eq!(found.files_kept, 1);
        let error = found.tasks().await.unwrap_err();
        assert_eq!((error.kind(), error.path()), (&Kind::Corrupt, Some("a")));
    }
}

#[tokio::test]
async fn tasks_have_all_facts_of_their_files() {
    let sample = six();
    sample.commit(2, &[add_with("d", json!({"partitionValues": {"p": "d"}, "deletionVector": vector(3)}))]);
    let snapshot = sample.open().await.unwrap();
    let (schema, batches) = list_files(&snapshot, Some("p IN ('a', 'd') AND (x < 5 OR x IS NULL)")).await.unwrap();
    let batches: Vec<_> = batches.try_collect().await.unwrap();
    let all = arrow_select::concat::concat_batches(&schema, &batches).unwrap();
    let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(names, ["path", "size", "modification_time", "partition", "num_records", "min", "max", "null_count"]);
    let of =
        |root: &str, name: &str| all.column_by_name(root).unwrap().as_struct().column_by_name(name).unwrap().clone();
    let mut rows: Vec<String> = (0..all.num_rows())
        .map(|row| {
            let number = |array: &dyn arrow_array::Array| {
                let array = array.as_primitive::<Int64Type>();
                if arrow_array::Array::is_null(array, row) { "?".to_owned() } else { array.value(row).to_string() }
            };
            let text = |array: &arrow_array::ArrayRef| array.as_string::<i32>().value(row).to_owned();
            format!(
                "{} {} {} {}..{} {} {}",
                text(all.column_by_name("path").unwrap()),
                text(&of("partition", "p")),
                number(all.column_by_name("num_records").unwrap()),
                number(&of("min", "x")),
                number(&of("max", "x")),
                number(&of("null_count", "x")),
                number(&of("null_count", "y")),
            )
        })
        .collect();
    rows.sort();
    assert_eq!(rows, ["a0 a 4 0..9 0 4", "a2 a ? ?..? ? ?", "d d ? ?..? ? ?"]);
    let (_, batches) = plan(&sample, Some("p = 'd'")).await.unwrap().to_batches().await.unwrap();
    let deleted = batches[0].column_by_name("deleted_rows").unwrap().as_primitive::<Int64Type>();
    assert_eq!((batches.len(), deleted.value(0)), (1, 6));
}

async fn groups(plan: &ScanPlan, count: usize) -> Vec<Vec<FileTask>> {
    let groups = plan.task_groups(count).await.unwrap();
    groups.iter().map(|bytes| TaskGroup::from_bytes(bytes).unwrap().tasks).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn every_task_is_in_one_group_and_groups_are_balanced(
        sizes in proptest::collection::vec(0..1000_u64, 0..40),
        count in 0..12_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let actions: Vec<Value> =
            sizes.iter().enumerate().map(|(i, size)| add_with(&format!("f{i:02}"), json!({"size": size}))).collect();
        let found = runtime.block_on(plan(&table(&actions), None)).unwrap();
        let groups = runtime.block_on(groups(&found, count));
        prop_assert_eq!(groups.len(), count.max(1).min(sizes.len()));
        let mut seen: Vec<String> = groups.iter().flatten().map(|t| t.path.clone()).collect();
        seen.sort();
        let all: Vec<String> = (0..sizes.len()).map(|i| format!("f{i:02}")).collect();
        prop_assert_eq!(seen, all);
        // No group exceeds the lightest one by more than one file.
        let weights: Vec<u64> = groups.iter().map(|g| g.iter().map(|t| t.size.max(1)).sum()).collect();
        let largest = sizes.iter().map(|s| (*s).max(1)).max().unwrap_or(0);
        if let (Some(most), Some(least)) = (weights.iter().max(), weights.iter().min()) {
            prop_assert!(most - least <= largest, "{weights:?}");
        }
    }
}
