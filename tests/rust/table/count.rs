//! Counts of rows, and the requests for them.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use deltic_protocol::deletion_vector::DeletionVector;
use deltic_protocol::error::{Kind, Result};
use deltic_store::Storage;
use deltic_table::scan::limit::read_first;
use deltic_table::scan::plan::ScanPlan;
use deltic_table::scan::read::{ReadOptions, Reader};
use deltic_table::snapshot::Snapshot;
use futures::TryStreamExt;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::sample::{Sample, add_with, metadata, protocol};

/// A table with the columns `p` (partition), `x` and `y`.
struct Lake {
    sample: Sample,
    storage: Storage,
    adds: Vec<Value>,
    /// Characters of each value of `y`.
    length: usize,
}

impl Lake {
    /// With files so large that reading one completely takes several requests.
    fn new() -> Self {
        Self::with_strings_of(90_000)
    }

    fn with_strings_of(length: usize) -> Self {
        let sample = Sample::new();
        Self { storage: sample.storage.clone(), sample, adds: Vec::new(), length }
    }

    /// Adds a file with these values of `x` in a partition; `members` replace those of its action.
    fn file(&mut self, p: &str, values: &[Option<i64>], members: Value) {
        let path = format!("f{}", self.adds.len());
        let x: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
        let strings = (0..values.len()).map(|row| row.to_string().repeat(self.length));
        let y: ArrayRef = Arc::new(StringArray::from_iter_values(strings));
        let batch = RecordBatch::try_from_iter_with_nullable([("x", x, true), ("y", y, true)]).unwrap();
        let size = self.sample.data_file(&path, &batch);
        let (min, max) = (values.iter().flatten().min(), values.iter().flatten().max());
        let nulls = values.iter().filter(|value| value.is_none()).count();
        let stats = json!({"numRecords": values.len(), "minValues": {"x": min}, "maxValues": {"x": max},
            "nullCount": {"x": nulls}});
        let mut all = json!({"partitionValues": {"p": p}, "size": size, "stats": stats.to_string()});
        all.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        self.adds.push(add_with(&path, all));
    }

    async fn open(&self, as_checkpoint: bool) -> Snapshot {
        let head =
            [protocol_with_vectors(), metadata(&[("p", "string"), ("x", "long"), ("y", "string")], &["p"], json!({}))];
        let actions = [&head[..], &self.adds].concat();
        self.sample.commit(0, &actions);
        if as_checkpoint {
            self.sample.checkpoint(0, &actions);
        }
        Snapshot::open(&self.sample.log, None).await.unwrap()
    }

    /// The row count, the requests for data files, and the bytes read from them.
    async fn count(&self, filter: Option<&str>, as_checkpoint: bool) -> Result<(u64, u64, u64)> {
        let plan = ScanPlan::new(&self.open(as_checkpoint).await, None, filter).await?;
        // Requests for the log do not count.
        plan.counted_tasks().await?;
        let _ = plan.snapshot().num_files().await?;
        let before = self.storage.counts();
        let tasks = plan.counted_tasks().await?;
        let log = self.storage.counts().since(&before);
        let before = self.storage.counts();
        let rows = plan.count_rows(ReadOptions::default()).await?;
        let counts = self.storage.counts().since(&before);
        let read: Vec<RecordBatch> = Reader::new(self.storage.clone(), plan.spec().clone())?
            .read(tasks, ReadOptions::default())
            .try_collect()
            .await?;
        assert_eq!(rows, read.iter().map(|batch| batch.num_rows() as u64).sum::<u64>(), "{filter:?}");
        Ok((rows, counts.gets - log.gets, counts.bytes_read.saturating_sub(log.bytes_read)))
    }

    /// The number of rows of a limited scan, and the requests for data files.
    async fn first(&self, filter: Option<&str>, rows: u64) -> (usize, u64) {
        let plan = ScanPlan::new(&self.open(false).await, None, filter).await.unwrap();
        let reader = Reader::new(self.storage.clone(), plan.spec().clone()).unwrap();
        let tasks = plan.counted_tasks().await.unwrap();
        let before = self.storage.counts();
        // More than the number of files.
        let options = ReadOptions { concurrent_files: 32, ..ReadOptions::default() };
        let read: Vec<RecordBatch> = read_first(reader, tasks, rows, options).try_collect().await.unwrap();
        let gets = self.storage.counts().since(&before).gets;
        (read.iter().map(RecordBatch::num_rows).sum(), gets)
    }
}

fn protocol_with_vectors() -> Value {
    let mut action = protocol(3, 7);
    action["protocol"]["readerFeatures"] = json!(["deletionVectors"]);
    action["protocol"]["writerFeatures"] = json!(["deletionVectors"]);
    action
}

fn vector(rows: &[u64]) -> Value {
    json!(rows.iter().copied().collect::<DeletionVector>().to_inline().unwrap())
}

fn three() -> Lake {
    let mut lake = Lake::new();
    lake.file("a", &[Some(0), Some(9)], json!({}));
    lake.file("a", &[Some(10), None, Some(19)], json!({}));
    lake.file("b", &[Some(0), Some(5), Some(9), Some(9)], json!({"deletionVector": vector(&[1, 3])}));
    lake
}

#[tokio::test]
async fn counts_from_the_log_read_no_files() {
    let lake = three();
    for as_checkpoint in [false, true] {
        for (filter, rows) in [
            (None, 7),
            (Some("p = 'a'"), 5),
            (Some("p LIKE 'b%'"), 2),
            (Some("p IS NULL"), 0),
            (Some("x < 10"), 4),
            (Some("x >= 0 AND p = 'b'"), 2),
            (Some("x IS NULL AND p = 'b'"), 0),
            (Some("x > 100"), 0),
            (Some("TRUE"), 7),
            (Some("FALSE"), 0),
        ] {
            assert_eq!(lake.count(filter, as_checkpoint).await.unwrap(), (rows, 0, 0), "{filter:?}");
        }
    }
}

#[tokio::test]
async fn undecided_files_are_read_by_the_columns_of_the_filter() {
    let lake = three();
    for as_checkpoint in [false, true] {
        for (filter, rows, files) in
            [("x < 5", 2, 2), ("x > 9", 2, 1), ("x IS NOT NULL", 6, 1), ("x <> 9", 4, 3), ("x = 9 AND p = 'a'", 1, 1)]
        {
            let (counted, gets, bytes) = lake.count(Some(filter), as_checkpoint).await.unwrap();
            assert_eq!(counted, rows, "{filter}");
            // At most two requests per file: its footer, and a column.
            assert!((files..=2 * files).contains(&gets), "{gets} requests for {filter}");
            assert!(bytes < files * 70_000, "{bytes} bytes of {filter}");
        }
    }
}

#[tokio::test]
async fn missing_row_counts_are_read_from_footers() {
    let mut lake = three();
    lake.file("a", &[Some(1), Some(2), Some(3), Some(4)], json!({"stats": null}));
    lake.file(
        "a",
        &[Some(1)],
        json!({"stats": json!({"minValues": {"x": 1}}).to_string(), "deletionVector": vector(&[0])}),
    );
    // Impossible row counts are ignored.
    lake.file("a", &[Some(1), Some(2)], json!({"stats": json!({"numRecords": -2}).to_string()}));
    lake.file("a", &[Some(1)], json!({"stats": json!({"numRecords": 0}).to_string(), "deletionVector": vector(&[0])}));
    for as_checkpoint in [false, true] {
        let (rows, gets, bytes) = lake.count(None, as_checkpoint).await.unwrap();
        assert_eq!((rows, gets), (7 + 4 + 2, 4));
        assert!(bytes < 4 * 70_000, "{bytes}");
    }
    // A missing file is an error.
    std::fs::remove_file(lake.sample.path("f3")).unwrap();
    let plan = ScanPlan::new(&lake.open(false).await, None, None).await.unwrap();
    let error = plan.count_rows(ReadOptions::default()).await.unwrap_err();
    assert_eq!((error.kind(), error.path()), (&Kind::Corrupt, Some("f3")));
}

#[tokio::test]
async fn a_limited_scan_reads_few_files() {
    let mut lake = Lake::with_strings_of(1);
    for _ in 0..10 {
        lake.file("a", &[Some(1), Some(2), Some(3)], json!({"deletionVector": vector(&[0])}));
    }
    // One request per file.
    for (rows, found, files) in [(0, 0, 0), (1, 1, 1), (2, 2, 1), (3, 3, 2), (20, 20, 10), (99, 20, 10)] {
        assert_eq!(lake.first(None, rows).await, (found, files), "{rows}");
    }
    // With a filter, one file is read first, then two, then four.
    for (rows, found, files) in [(1, 1, 1..=1), (2, 2, 2..=3), (4, 4, 4..=7), (99, 10, 10..=10)] {
        let (read, gets) = lake.first(Some("x = 2"), rows).await;
        assert_eq!(read, found, "{rows}");
        assert!(files.contains(&gets), "{gets} files for {rows} rows");
    }
    // Without row counts in the log, files are read one by one.
    lake.adds.iter_mut().for_each(|add| add["add"]["stats"] = Value::Null);
    assert_eq!(lake.first(None, 3).await, (3, 2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn counts_equal_the_number_of_rows_read(
        files in prop::collection::vec(prop::collection::vec(prop::option::of(-3..4_i64), 1..4), 1..4),
        deleted in prop::collection::vec(prop::collection::btree_set(0..3_u64, 0..2), 4),
        wide: bool,
        filter in prop::sample::select(vec![
            "x > 0", "x = 1", "x <> 0", "NOT x = 0", "x IS NULL", "x IS NOT NULL", "x <=> NULL", "x IN (1, 2)",
            "x BETWEEN -1 AND 1", "p = 'a' OR x < 0", "p = 'a' AND NOT x < 0", "x = x", "x > NULL OR p = 'b'",
        ]),
    ) {
        let mut lake = Lake::new();
        for (at, values) in files.iter().enumerate() {
            let rows: Vec<u64> = deleted[at].iter().copied().filter(|row| (*row as usize) < values.len()).collect();
            let mut members = json!({});
            if !rows.is_empty() {
                members["deletionVector"] = vector(&rows);
            }
            if wide {
                let stats = json!({"numRecords": values.len(), "minValues": {"x": -3}, "maxValues": {"x": 3},
                    "tightBounds": false});
                members["stats"] = stats.to_string().into();
            }
            lake.file(if at % 2 == 0 { "a" } else { "b" }, values, members);
        }
        let runtime = tokio::runtime::Runtime::new().unwrap();
        // Compares the count with the rows.
        runtime.block_on(lake.count(Some(filter), by_parity(&files))).unwrap();
    }
}

fn by_parity(files: &[Vec<Option<i64>>]) -> bool {
    files.iter().map(Vec::len).sum::<usize>() % 2 == 0
}
