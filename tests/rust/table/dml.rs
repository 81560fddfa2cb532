//! DELETE, UPDATE and MERGE through [`Transaction`]: resulting rows, requests, and the files after a failure. Rows are
//! compared as strings, with values separated by bars.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use bytes::Bytes;
use deltic_protocol::action::lines::Lines;
use deltic_protocol::error::{Error, Kind, Result};
use deltic_protocol::row_update::NewValue;
use deltic_store::{Counts, Put, Syncing};
use deltic_table::commit::RetryPolicy;
use deltic_table::committers::{Committer, LogCommitter, OtherLogFile};
use deltic_table::dml::{Clause, ClauseAction, MergeRequest, RowAction, When};
use deltic_table::log::LogSource;
use deltic_table::scan::plan::ScanPlan;
use deltic_table::scan::read::{ReadOptions, Reader};
use deltic_table::scan::row_tracking::{ROW_COMMIT_VERSION, ROW_ID};
use deltic_table::scan::task::TaskGroup;
use deltic_table::transaction::builder::{
    HandleCache, Ids, Outcome, Transaction, TransactionEnd, TransactionOptions, WriteOptions,
};
use deltic_table::write::writer::DataWriter;
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::sample::{Sample, live};

pub(super) const VECTORS: (&str, &str) = ("delta.enableDeletionVectors", "true");
pub(super) const IDS: (&str, &str) = ("delta.enableRowTracking", "true");
pub(super) const FEED: (&str, &str) = ("delta.enableChangeDataFeed", "true");

#[derive(Default)]
pub(super) struct World;

impl Ids for World {
    fn unique(&self) -> String {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        format!("id-{}", NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl RetryPolicy for World {
    fn now_ms(&self) -> i64 {
        now()
    }

    fn back_off(&self, attempts: u32) -> Option<Duration> {
        (attempts < 10).then_some(Duration::ZERO)
    }
}

pub(super) fn now() -> i64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_millis().try_into().unwrap()
}

/// A table with the columns `p` (string) and `x` (long).
pub(super) struct Table {
    pub(super) sample: Sample,
    partitioned: bool,
}

pub(super) type Row = (&'static str, Option<i64>);

pub(super) fn batch(rows: &[Row]) -> RecordBatch {
    let p: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.0)));
    let x: ArrayRef = Arc::new(rows.iter().map(|row| row.1).collect::<Int64Array>());
    RecordBatch::try_from_iter_with_nullable([("p", p, true), ("x", x, true)]).unwrap()
}

impl Table {
    pub(super) fn new(properties: &[(&str, &str)], partitioned: bool) -> Self {
        let table = Self { sample: Sample::not_durable(), partitioned };
        std::fs::remove_dir_all(table.sample.path("_delta_log")).unwrap();
        let properties = properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        table.write_with(&[], WriteOptions { properties, ..WriteOptions::default() });
        table
    }

    /// Appends rows, as one file per partition.
    pub(super) fn write(&self, rows: &[Row]) {
        self.write_with(rows, WriteOptions::default());
    }

    pub(super) fn write_with(&self, rows: &[Row], options: WriteOptions) {
        let partition_by = self.partitioned.then(|| vec!["p".to_owned()]);
        let options = WriteOptions { partition_by, ..options };
        block_on(async {
            let (case, rows) = (World, batch(rows));
            let known = HandleCache::default();
            let storage = &self.sample.storage;
            let begun =
                Transaction::write(&LogSource::of(storage), known, &rows.schema(), &options, &case, now()).await;
            let mut transaction = begun.unwrap();
            append(&mut transaction, &rows).await;
            transaction.commit(&LogCommitter::new(LogSource::of(storage)), &case).await.unwrap();
        });
    }

    pub(super) async fn begin(&self) -> Transaction {
        let options = TransactionOptions::default();
        Transaction::begin(&self.sample.log, HandleCache::default(), options, &World).await.unwrap()
    }

    /// Deletes rows in a transaction. `None` if nothing was committed.
    pub(super) fn delete(&self, filter: &str) -> Option<Outcome> {
        self.try_delete(filter).unwrap()
    }

    pub(super) fn try_delete(&self, filter: &str) -> Result<Option<Outcome>> {
        block_on(async {
            let mut transaction = self.begin().await;
            transaction.delete(Some(filter), now).await?;
            self.commit(transaction).await
        })
    }

    /// Updates `x` in a transaction. `None` if nothing was committed.
    fn update(&self, x: &str, filter: &str) -> Option<Outcome> {
        self.try_update(x, filter).unwrap()
    }

    fn try_update(&self, x: &str, filter: &str) -> Result<Option<Outcome>> {
        block_on(async {
            let mut transaction = self.begin().await;
            let set = vec![("x".to_owned(), NewValue::Expression(x.to_owned()))];
            transaction.update(set, Some(filter), now).await?;
            self.commit(transaction).await
        })
    }

    pub(super) async fn commit(&self, transaction: Transaction) -> Result<Option<Outcome>> {
        let committer = LogCommitter::new(self.sample.log.clone());
        match transaction.commit(&committer, &World).await? {
            TransactionEnd::Committed(outcome) => Ok(Some(*outcome)),
            TransactionEnd::Replayed(version) => panic!("replayed as version {version}"),
            TransactionEnd::Nothing => Ok(None),
        }
    }

    /// The rows of the newest version, in the order of its files.
    pub(super) fn rows(&self, columns: &[&str], filter: Option<&str>) -> Vec<String> {
        let columns: Vec<String> = columns.iter().map(|name| (*name).to_owned()).collect();
        block_on(async {
            let snapshot = self.sample.open().await.unwrap();
            let plan = ScanPlan::new(&snapshot, Some(&columns), filter).await.unwrap();
            let tasks = plan.tasks().await.unwrap();
            read(self, TaskGroup { spec: plan.spec().clone(), tasks }).await
        })
    }

    pub(super) fn sorted(&self, columns: &[&str], filter: Option<&str>) -> Vec<String> {
        let mut rows = self.rows(columns, filter);
        rows.sort();
        rows
    }

    pub(super) fn files(&self) -> Vec<String> {
        block_on(async { live(&self.sample.open().await.unwrap()).await.unwrap() })
    }

    /// The actions of a kind in the newest commit.
    pub(super) fn last(&self, kind: &str) -> Vec<Value> {
        let version = block_on(self.sample.open()).unwrap().version();
        self.sample.read(version).into_iter().filter_map(|action| action.get(kind).cloned()).collect()
    }

    /// All files of the table's folder outside the log.
    pub(super) fn on_disk(&self) -> BTreeSet<String> {
        fn walk(dir: &std::path::Path, root: &std::path::Path, found: &mut BTreeSet<String>) {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true if path.ends_with("_delta_log") => {}
                    true => walk(&path, root, found),
                    false => drop(found.insert(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned())),
                }
            }
        }
        let (root, mut found) = (self.sample.path(""), BTreeSet::new());
        walk(&root, &root, &mut found);
        found
    }

    /// The requests of a step.
    fn counted<T>(&self, work: impl Future<Output = T>) -> (Counts, T) {
        let before = self.sample.storage.counts();
        let done = block_on(work);
        (self.sample.storage.counts().since(&before), done)
    }
}

async fn append(transaction: &mut Transaction, rows: &RecordBatch) {
    let plan = transaction.plan_write(&rows.schema()).unwrap();
    let mut writer = DataWriter::new(transaction.storage().clone(), &plan.spec, now).unwrap();
    writer.write(rows).await.unwrap();
    transaction.append(writer.finish().await.unwrap());
}

async fn read(table: &Table, group: TaskGroup) -> Vec<String> {
    let reader = Reader::new(table.sample.storage.clone(), group.spec).unwrap();
    let batches: Vec<RecordBatch> = reader.read(group.tasks, ReadOptions::default()).try_collect().await.unwrap();
    batches.iter().flat_map(printed).collect()
}

pub(super) fn printed(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::default().with_null("null");
    let columns: Vec<_> =
        batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
    let row = |row| columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>().join("|");
    (0..batch.num_rows()).map(row).collect()
}

pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(future)
}

fn metric(outcome: &Outcome, name: &str) -> i64 {
    outcome.metrics[name].as_str().unwrap().parse().unwrap()
}

pub(super) fn numbers(values: std::ops::Range<i64>) -> Vec<Row> {
    values.map(|x| ("a", Some(x))).collect()
}

#[test]
fn deletion_vectors_are_merged() {
    let table = Table::new(&[VECTORS], false);
    table.write(&numbers(0..10));
    let file = table.files();
    let first = table.delete("x IN (1, 3)").unwrap();
    assert_eq!((metric(&first, "numDeletionVectorsAdded"), metric(&first, "numDeletedRows")), (1, 2));
    assert_eq!(table.last("remove")[0]["deletionVector"], Value::Null);
    let one = table.last("add").remove(0);
    let second = table.delete("x < 5").unwrap();
    assert_eq!((metric(&second, "numDeletionVectorsUpdated"), metric(&second, "numDeletedRows")), (1, 3));
    // The file is removed with its first vector, and added with one of all deleted rows.
    assert_eq!(table.last("remove")[0]["deletionVector"], one["deletionVector"]);
    let two = table.last("add").remove(0);
    assert_eq!((&one["path"], &two["path"]), (&json!(file[0]), &json!(file[0])));
    assert_eq!((&one["deletionVector"]["cardinality"], &two["deletionVector"]["cardinality"]), (&json!(2), &json!(5)));
    let stats: Value = serde_json::from_str(two["stats"].as_str().unwrap()).unwrap();
    assert_eq!((&stats["numRecords"], &stats["tightBounds"]), (&json!(10), &json!(false)));
    assert_eq!((&stats["minValues"]["x"], &stats["maxValues"]["x"]), (&json!(0), &json!(9)));
    assert_eq!(table.rows(&["x"], None), ["5", "6", "7", "8", "9"]);
    // No data file was rewritten, and each commit has its own deletion vector file.
    assert_eq!(table.on_disk().iter().filter(|path| path.ends_with(".bin")).count(), 2);
    assert_eq!(table.on_disk().iter().filter(|path| path.ends_with(".parquet")).count(), 1);
    // Deleting the remaining rows removes the file.
    let last = table.delete("x >= 5").unwrap();
    assert_eq!((metric(&last, "numRemovedFiles"), metric(&last, "numDeletionVectorsRemoved")), (1, 1));
    assert_eq!((table.last("add").len(), table.files().len()), (0, 0));
}

#[test]
fn vectors_of_a_commit_are_in_one_file() {
    let table = Table::new(&[VECTORS], true);
    table.write(&[("a", Some(1)), ("a", Some(2)), ("b", Some(1)), ("b", Some(2)), ("c", Some(1)), ("c", Some(2))]);
    let outcome = table.delete("x = 1").unwrap();
    assert_eq!(metric(&outcome, "numDeletionVectorsAdded"), 3);
    let vectors: BTreeSet<_> =
        table.last("add").iter().map(|add| add["deletionVector"]["pathOrInlineDv"].to_string()).collect();
    let offsets: BTreeSet<_> = table.last("add").iter().map(|add| add["deletionVector"]["offset"].as_i64()).collect();
    assert_eq!((vectors.len(), offsets.len()), (1, 3));
    assert_eq!(table.sorted(&["p", "x"], None), ["a|2", "b|2", "c|2"]);
}

#[test]
fn two_writers_may_mark_different_rows_of_a_file() {
    let table = Table::new(&[VECTORS], false);
    table.write(&numbers(0..10));
    table.delete("x = 9").unwrap();
    let (mut ours, mut theirs) = block_on(async { (table.begin().await, table.begin().await) });
    block_on(async {
        assert_eq!(ours.delete(Some("x IN (1, 3)"), now).await.unwrap(), Some(2));
        assert_eq!(theirs.delete(Some("x IN (2, 4)"), now).await.unwrap(), Some(2));
        table.commit(theirs).await.unwrap().unwrap();
    });
    let theirs = table.last("add").remove(0);
    let outcome = block_on(table.commit(ours)).unwrap().unwrap();
    assert_eq!(outcome.committed.attempts, 2);
    // The removed file has the vector of the winner.
    assert_eq!(table.last("remove")[0]["deletionVector"], theirs["deletionVector"]);
    assert_eq!(table.last("add")[0]["deletionVector"]["cardinality"], json!(5));
    assert_eq!(table.rows(&["x"], None), ["0", "5", "6", "7", "8"]);
    assert_eq!(
        table.on_disk().iter().filter(|path| path.ends_with(".bin")).count(),
        3,
        "one vector file is unreferenced"
    );
    // Deleting the same row is a conflict, and the vector file of the failed commit is deleted.
    let before = table.on_disk();
    let (mut ours, other) = (block_on(table.begin()), "x IN (6, 8)");
    block_on(ours.delete(Some("x IN (5, 6)"), now)).unwrap();
    table.delete(other).unwrap();
    let error = block_on(table.commit(ours)).unwrap_err();
    assert!(error.to_string().contains("row"), "{error}");
    assert_eq!(table.on_disk().difference(&before).count(), 1);
    assert_eq!(table.rows(&["x"], None), ["0", "5", "7"]);
}

#[test]
fn copies_keep_order_and_ids() {
    let table = Table::new(&[IDS], false);
    table.write(&numbers(0..6));
    table.write(&numbers(6..9));
    let columns = ["x", ROW_ID, ROW_COMMIT_VERSION];
    let before = table.sorted(&columns, None);
    let outcome = table.delete("x IN (1, 7)").unwrap();
    assert_eq!((metric(&outcome, "numCopiedRows"), metric(&outcome, "numAddedFiles")), (7, 1));
    let gone = |row: &&String| !row.starts_with("1|") && !row.starts_with("7|");
    assert_eq!(table.sorted(&columns, None), before.iter().filter(gone).cloned().collect::<Vec<_>>());
    let order: Vec<i64> = table.rows(&["x"], None).iter().map(|x| x.parse().unwrap()).collect();
    for part in [&[0, 2, 3, 4, 5][..], &[6, 8]] {
        let places: Vec<usize> = part.iter().map(|x| order.iter().position(|found| found == x).unwrap()).collect();
        assert!(places.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{order:?}");
    }
    // Again, from a file with materialized row ids.
    let before = table.sorted(&columns, Some("x > 3"));
    table.delete("x <= 3").unwrap();
    assert_eq!(table.sorted(&columns, None), before);
    // New rows get new ids.
    table.write(&numbers(100..102));
    let ids: BTreeSet<String> = table.rows(&[ROW_ID], None).into_iter().collect();
    assert_eq!(ids.len(), 6);
    // The materialized columns have no statistics.
    let stats = table.files();
    assert_eq!(stats.len(), 2);
    let adds: Vec<Value> = (0..6).flat_map(|version| table.sample.read(version)).collect();
    assert!(adds.iter().all(|add| !add["add"]["stats"].to_string().contains("_row-")), "{adds:?}");
}

#[test]
fn updates_keep_order_and_ids() {
    for properties in [&[IDS][..], &[IDS, VECTORS]] {
        let marks = properties.len() > 1;
        let table = Table::new(properties, false);
        table.write(&numbers(0..6));
        table.write(&numbers(6..9));
        let columns = ["x", ROW_ID, ROW_COMMIT_VERSION];
        let before = table.sorted(&columns, None);
        let outcome = table.update("x + 100", "x IN (1, 7)").unwrap();
        assert_eq!(metric(&outcome, "numUpdatedRows"), 2);
        assert_eq!(metric(&outcome, "numCopiedRows"), if marks { 0 } else { 7 });
        assert_eq!(metric(&outcome, "numDeletionVectorsAdded"), if marks { 2 } else { 0 });
        let version = outcome.committed.version;
        let changed = |row: &String| match row.split_once('|').unwrap() {
            (x @ ("1" | "7"), rest) => {
                let (id, _) = rest.split_once('|').unwrap();
                format!("{}|{id}|{version}", x.parse::<i64>().unwrap() + 100)
            }
            _ => row.clone(),
        };
        let mut expected: Vec<String> = before.iter().map(changed).collect();
        expected.sort();
        assert_eq!(table.sorted(&columns, None), expected);
        let order: Vec<i64> = table.rows(&["x"], None).iter().map(|x| x.parse().unwrap()).collect();
        if !marks {
            for part in [&[0, 101, 2, 3, 4, 5][..], &[6, 107, 8]] {
                let places: Vec<usize> =
                    part.iter().map(|x| order.iter().position(|found| found == x).unwrap()).collect();
                assert!(places.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{order:?}");
            }
        }
        // Again, from files with materialized row ids.
        table.update("x - 100", "x > 100").unwrap();
        let ids = |rows: &[String]| -> Vec<String> {
            rows.iter().map(|row| row.rsplit_once('|').unwrap().0.to_owned()).collect()
        };
        assert_eq!(ids(&table.sorted(&columns, None)), ids(&before));
    }
}

#[test]
fn an_update_that_fails_leaves_no_file() {
    let table = Table::new(&[VECTORS, FEED], false);
    table.write(&numbers(0..4));
    let before = table.on_disk();
    let error = table.try_update("10 div (x - 2)", "x > 0").unwrap_err();
    assert!(error.message().starts_with("row 2: "), "{error}");
    assert_eq!((table.on_disk(), error.path().is_some()), (before, true));
    assert!(table.update("0", "x = 9").is_none());
}

#[test]
fn files_decided_by_the_log_are_not_read() {
    for properties in [&[][..], &[VECTORS]] {
        let table = Table::new(properties, true);
        for (p, x) in [("a", 0), ("b", 10), ("c", 20)] {
            table.write(&[(p, Some(x)), (p, Some(x + 1))]);
        }
        let gets = |filter: &str| {
            let mut transaction = block_on(table.begin());
            // Reads the log, which does not count.
            let snapshot = block_on(transaction.snapshot()).unwrap();
            block_on(ScanPlan::new(&snapshot, None, None)).unwrap();
            let (counts, deleted) = table.counted(transaction.delete(Some(filter), now));
            block_on(transaction.abandon());
            (deleted.unwrap(), counts.gets, counts.lists, counts.puts)
        };
        // Whole partitions and files covered by statistics need no read; then one file must be read.
        assert_eq!(gets("p IN ('a', 'b')"), (Some(4), 0, 0, 0));
        assert_eq!(gets("x < 12"), (Some(4), 0, 0, 0));
        assert_eq!(gets("x > 100"), (Some(0), 0, 0, 0));
        let (deleted, gets, lists, puts) = gets("x = 10");
        let is_rewritten = u64::from(properties.is_empty());
        assert_eq!((deleted, gets, lists, puts), (Some(1), 1 + is_rewritten, 0, is_rewritten));
    }
}

#[test]
fn a_wrong_row_count_is_corrupt() {
    let table = Table::new(&[VECTORS], false);
    table.write(&numbers(0..10));
    let commit = std::fs::read_to_string(table.sample.log("00000000000000000001.json")).unwrap();
    table.sample.put("00000000000000000001.json", commit.replace("numRecords\\\":10", "numRecords\\\":5"));
    std::fs::remove_file(table.sample.log("00000000000000000001.crc")).unwrap();
    let error = table.try_delete("x IN (1, 7)").unwrap_err();
    assert!(error.is_corrupt() && error.to_string().contains("has 5 rows"), "{error}");
    assert!(error.path().is_some() && error.table().is_some(), "{error}");
    // The filter matches all five rows of the statistics, but the file has more.
    let error = table.try_delete("x >= 0 AND x < 5 AND p IS NOT NULL").unwrap_err();
    assert!(error.is_corrupt() && error.to_string().contains("has 5 rows, but it has 10"), "{error}");
}

#[test]
fn a_file_with_a_wrong_row_count_is_not_rewritten() {
    for (rows, wrong_rows) in [(10, 8), (10, 12)] {
        let table = Table::new(&[], false);
        table.write(&numbers(0..rows));
        let commit = std::fs::read_to_string(table.sample.log("00000000000000000001.json")).unwrap();
        let miscounted = commit.replace(&format!("numRecords\\\":{rows}"), &format!("numRecords\\\":{wrong_rows}"));
        assert_ne!(miscounted, commit);
        table.sample.put("00000000000000000001.json", miscounted);
        std::fs::remove_file(table.sample.log("00000000000000000001.crc")).unwrap();
        let files = table.on_disk();
        let error = table.try_delete("x IN (1, 3)").unwrap_err();
        let message = format!("{} rows have to be rewritten, but {} rows were", wrong_rows - 2, rows - 2);
        assert!(error.is_corrupt() && error.to_string().contains(&message), "{error}");
        assert!(error.path().is_some() && error.table().is_some(), "{error}");
        assert_eq!(table.on_disk(), files, "the written file is not deleted");
    }
}

#[test]
fn missing_row_counts_are_added() {
    let table = Table::new(&[VECTORS], false);
    table.write(&numbers(0..10));
    let commit = std::fs::read_to_string(table.sample.log("00000000000000000001.json")).unwrap();
    let without: Vec<Value> = commit
        .lines()
        .map(|line| {
            let mut action: Value = serde_json::from_str(line).unwrap();
            action.get_mut("add").and_then(|add| add.as_object_mut()).map(|add| add.remove("stats"));
            action
        })
        .collect();
    table.sample.commit(1, &without);
    std::fs::remove_file(table.sample.log("00000000000000000001.crc")).unwrap();
    table.delete("x = 3").unwrap();
    let stats: Value = serde_json::from_str(table.last("add")[0]["stats"].as_str().unwrap()).unwrap();
    assert_eq!(stats, json!({"numRecords": 10, "tightBounds": false}));
    // A file without a row count that is removed unread would not be counted.
    let outcome = table.delete("p = 'a' OR p IS NULL OR p <> 'a'").unwrap();
    assert_eq!(metric(&outcome, "numDeletedRows"), 9);
    assert_eq!(table.files().len(), 0);
}

#[test]
fn a_transaction_sees_what_it_deleted() {
    for properties in [&[][..], &[VECTORS], &[IDS], &[FEED, VECTORS], &[IDS, VECTORS]] {
        let table = Table::new(properties, false);
        table.write(&numbers(0..10));
        block_on(async {
            let mut transaction = table.begin().await;
            let seen = async |transaction: &mut Transaction| {
                let mut rows = read(&table, transaction.scan(Some(&["x".to_owned()]), None).await.unwrap()).await;
                rows.sort();
                rows.join(" ")
            };
            assert_eq!(transaction.delete(Some("x < 3"), now).await.unwrap(), Some(3));
            assert_eq!(seen(&mut transaction).await, "3 4 5 6 7 8 9");
            append(&mut transaction, &batch(&numbers(20..24))).await;
            // The condition matches rows of the base version, and rows that the transaction added.
            assert_eq!(transaction.delete(Some("x IN (1, 4, 21)"), now).await.unwrap(), Some(2));
            assert_eq!(seen(&mut transaction).await, "20 22 23 3 5 6 7 8 9");
            assert_eq!(transaction.delete(Some("x >= 22"), now).await.unwrap(), Some(2));
            assert_eq!(transaction.delete(Some("x = 20"), now).await.unwrap(), Some(1));
            assert_eq!(transaction.delete(Some("x > 5 AND x < 9"), now).await.unwrap(), Some(3));
            assert_eq!(seen(&mut transaction).await, "3 5 9");
            let outcome = table.commit(transaction).await.unwrap().unwrap();
            assert_eq!(metric(&outcome, "numDeletedRows"), 11);
        });
        assert_eq!(table.sorted(&["x"], None), ["3", "5", "9"]);
        // Files that the transaction wrote and then replaced are deleted.
        let named: BTreeSet<String> =
            table.files().iter().map(|file| file.split(' ').next().unwrap().to_owned()).collect();
        let first = table.sample.read(1).iter().find_map(|action| action["add"]["path"].as_str().map(str::to_owned));
        let kept: BTreeSet<String> = named.into_iter().chain(first).collect();
        let on_disk: BTreeSet<String> = table.on_disk().into_iter().filter(|path| path.ends_with(".parquet")).collect();
        assert_eq!(on_disk, kept);
    }
}

#[test]
fn an_append_only_table_refuses_deletes() {
    let table = Table::new(&[("delta.appendOnly", "true")], false);
    table.write(&numbers(0..3));
    let error = table.try_delete("x = 1").unwrap_err();
    assert!(*error.kind() == Kind::Invalid && error.to_string().contains("delta.appendOnly"), "{error}");
    assert_eq!(table.rows(&["x"], None), ["0", "1", "2"]);
}

#[test]
fn nothing_is_committed_if_no_row_matches() {
    let table = Table::new(&[VECTORS], false);
    table.write(&numbers(0..3));
    let before = table.on_disk();
    assert!(table.delete("x = 7").is_none());
    assert!(table.delete("x = 1 AND p = 'b'").is_none());
    assert_eq!(table.on_disk(), before);
    assert_eq!(block_on(table.sample.open()).unwrap().version(), 1);
}

/// A committer that fails, or whose outcome is unknown.
struct Refusing {
    log: LogCommitter,
    is_known: bool,
}

impl Committer for Refusing {
    fn read<'a>(&'a self, version: u64) -> BoxFuture<'a, Result<Option<Bytes>>> {
        self.log.read(version)
    }

    fn commit<'a>(&'a self, _: u64, _: Lines, _: Syncing) -> BoxFuture<'a, Result<Put>> {
        let lost = || Error::storage(false, "the store is gone");
        Box::pin(async move { if self.is_known { Err(lost()) } else { Ok(Put::Unknown(lost())) } })
    }

    fn put_other<'a>(&'a self, name: &'a str, file: OtherLogFile) -> BoxFuture<'a, Result<Put>> {
        self.log.put_other(name, file)
    }

    fn make_durable<'a>(&'a self, version: u64) -> BoxFuture<'a, Result<()>> {
        self.log.make_durable(version)
    }

    fn log_continues_past<'a>(&'a self, version: u64) -> BoxFuture<'a, Result<bool>> {
        self.log.log_continues_past(version)
    }
}

#[test]
fn files_of_a_failed_commit_are_deleted() {
    for properties in [&[][..], &[VECTORS], &[FEED], &[IDS]] {
        for is_known in [true, false] {
            let table = Table::new(properties, true);
            table.write(&[("a", Some(1)), ("a", Some(2)), ("b", Some(1)), ("b", Some(2)), ("c", Some(1))]);
            let before = table.on_disk();
            block_on(async {
                let mut transaction = table.begin().await;
                transaction.delete(Some("x = 1"), now).await.unwrap();
                append(&mut transaction, &batch(&[("d", Some(9))])).await;
                let log = LogCommitter::new(table.sample.log.clone());
                let error = transaction.commit(&Refusing { log, is_known }, &World).await.unwrap_err();
                assert!(matches!(error.kind(), Kind::Storage { .. }), "{error}");
            });
            // If the commit may be in the log, its files stay.
            assert_eq!(table.on_disk() == before, is_known, "{properties:?}");
            assert_eq!(table.sorted(&["p", "x"], None), ["a|1", "a|2", "b|1", "b|2", "c|1"]);
        }
    }
}

#[test]
fn a_failed_step_leaves_the_transaction_unchanged() {
    for properties in [&[][..], &[FEED], &[VECTORS]] {
        let table = Table::new(properties, false);
        table.write(&numbers(0..10));
        table.write(&numbers(10..20));
        let gone = table.files().remove(1);
        let path = table.sample.path(&gone);
        let bytes = std::fs::read(&path).unwrap();
        let before = table.on_disk();
        block_on(async {
            let mut transaction = table.begin().await;
            // The footer can be read, but the pages are damaged.
            let mut broken = bytes.clone();
            let footer = u32::from_le_bytes(bytes[bytes.len() - 8..][..4].try_into().unwrap());
            let end = bytes.len() - 8 - usize::try_from(footer).unwrap();
            broken[4..end].fill(0xFF);
            std::fs::write(&path, &broken).unwrap();
            let error = transaction.delete(Some("x IN (5, 15)"), now).await.unwrap_err();
            assert_eq!(error.path(), Some(gone.as_str()), "{error}");
            std::fs::remove_file(&path).unwrap();
            let error = transaction.delete(Some("x IN (5, 15)"), now).await.unwrap_err();
            assert!(error.is_corrupt() && error.to_string().contains("file that is gone"), "{error}");
            let error = transaction.delete(Some("y = 1"), now).await.unwrap_err();
            assert_eq!(*error.kind(), Kind::Invalid, "{error}");
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(table.on_disk(), before);
            assert_eq!(transaction.delete(Some("x IN (6, 15)"), now).await.unwrap(), Some(2));
            table.commit(transaction).await.unwrap().unwrap();
        });
        assert_eq!(table.rows(&["x"], Some("x IN (5, 6, 15, 16)")).len(), 2);
    }
}

#[test]
fn a_merge_that_is_interrupted_adds_no_columns() {
    let table = Table::new(&[], false);
    table.write(&numbers(0..3));
    let x: ArrayRef = Arc::new(Int64Array::from(vec![1, 7]));
    let source = RecordBatch::try_from_iter_with_nullable([("x", Arc::clone(&x), true), ("y", x, true)]).unwrap();
    let action = ClauseAction::All { except: Vec::new() };
    let request = MergeRequest {
        on: "source.x = target.x".to_owned(),
        source_alias: "source".to_owned(),
        target_alias: "target".to_owned(),
        clauses: vec![Clause { when: When::Matched, condition: None, action, external: None }],
        evolves: true,
        operation: RowAction::Merge,
    };
    block_on(async {
        let mut transaction = table.begin().await;
        let rows = (source.schema(), vec![source]);
        // The first wait is for a file, after the columns were added.
        assert!(transaction.merge(rows.clone(), request.clone(), (&World, now)).now_or_never().is_none());
        assert!(transaction.merge_preview(rows.clone(), request.clone(), (&World, now)).now_or_never().is_none());
        assert_eq!(transaction.delete(Some("x = 0"), now).await.unwrap(), Some(1));
        table.commit(transaction).await.unwrap().unwrap();
        assert!(table.sample.read(2).iter().all(|action| action.get("metaData").is_none()));

        let mut transaction = table.begin().await;
        assert_eq!(transaction.merge(rows, request, (&World, now)).await.unwrap().matched_updated, 1);
        table.commit(transaction).await.unwrap().unwrap();
    });
    assert_eq!(table.sorted(&["x", "y"], None), ["1|1", "2|null"]);
}

#[derive(Debug, Clone)]
struct Case {
    properties: Vec<(&'static str, &'static str)>,
    partitioned: bool,
    files: Vec<Vec<Row>>,
    filters: Vec<String>,
}

fn cases() -> impl Strategy<Value = Case> {
    let row = (prop::sample::select(vec!["a", "b", "c"]), prop::option::weighted(0.9, 0_i64..8));
    let files = prop::collection::vec(prop::collection::vec(row, 1..12), 1..4);
    let leaf = prop_oneof![
        (0_i64..8).prop_map(|x| format!("x = {x}")),
        (0_i64..8).prop_map(|x| format!("x <= {x}")),
        (0_i64..8, 0_i64..8).prop_map(|(a, b)| format!("x NOT IN ({a}, {b})")),
        Just("x IS NULL".to_owned()),
        prop::sample::select(vec!["a", "b", "c"]).prop_map(|p| format!("p = '{p}'")),
        prop::sample::select(vec!["a", "b", "c"]).prop_map(|p| format!("p > '{p}'")),
    ];
    let filter = (leaf.clone(), prop::sample::select(vec!["AND", "OR"]), leaf)
        .prop_map(|(one, op, other)| format!("({one} {op} {other})"));
    let properties = prop::sample::subsequence(vec![VECTORS, IDS, FEED], 0..=3);
    (properties, any::<bool>(), files, prop::collection::vec(filter, 1..4))
        .prop_map(|(properties, partitioned, files, filters)| Case { properties, partitioned, files, filters })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn a_delete_finds_the_rows_of_a_scan(case in cases()) {
        let table = Table::new(&case.properties, case.partitioned);
        case.files.iter().for_each(|rows| table.write(rows));
        let columns: Vec<&str> = match case.properties.contains(&IDS) {
            true => vec!["p", "x", ROW_ID, ROW_COMMIT_VERSION],
            false => vec!["p", "x"],
        };
        for filter in &case.filters {
            let (mut all, gone) = (table.sorted(&columns, None), table.sorted(&columns, Some(filter)));
            for row in &gone {
                let at = all.iter().position(|found| found == row).unwrap();
                all.remove(at);
            }
            let outcome = table.delete(filter);
            prop_assert_eq!(table.sorted(&columns, None), all);
            prop_assert_eq!(outcome.map_or(0, |outcome| metric(&outcome, "numDeletedRows")), gone.len() as i64);
        }
    }
}
