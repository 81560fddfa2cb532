//! OPTIMIZE keeps all rows, with any memory limit and with concurrent commits, and leaves no unreferenced file. Rows are
//! compared as strings.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use deltic_protocol::action::lines::Lines;
use deltic_protocol::alter::Alteration;
use deltic_protocol::error::{Conflict, Error, Kind, Result};
use deltic_store::{Put, Syncing};
use deltic_table::commit::{CommitContext, RetryPolicy};
use deltic_table::committers::{Committer, LogCommitter, OtherLogFile};
use deltic_table::log::LogSource;
use deltic_table::maintenance::{
    DistributedOptimize, Limits, NextTasks, OptimizeOptions, Optimized, RewriteTask, optimize, plan_optimize,
};
use deltic_table::scan::row_tracking::{ROW_COMMIT_VERSION, ROW_ID};
use deltic_table::transaction::builder::Ids;
use futures::future::BoxFuture;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::dml::{FEED, IDS, Row, Table, VECTORS, World, block_on, now};

pub(super) fn options() -> OptimizeOptions {
    OptimizeOptions::default()
}

pub(super) fn z_order(columns: &[&str]) -> OptimizeOptions {
    OptimizeOptions { zorder_by: columns.iter().map(|name| (*name).to_owned()).collect(), ..options() }
}

async fn run(table: &Table, options: &OptimizeOptions, committer: &dyn Committer) -> Result<Optimized> {
    optimize(&table.sample.log, None, options, &World, now, CommitContext { committer, retry: &World }).await
}

pub(super) fn optimized(table: &Table, options: &OptimizeOptions) -> Optimized {
    block_on(run(table, options, &LogCommitter::new(table.sample.log.clone()))).unwrap()
}

/// The data files on disk.
pub(super) fn data_files(table: &Table) -> BTreeSet<String> {
    let is_data = |path: &String| path.ends_with(".parquet") && !path.starts_with("_change_data");
    table.on_disk().into_iter().filter(is_data).collect()
}

fn numbers(part: &'static str, values: std::ops::Range<i64>) -> Vec<Row> {
    values.map(|x| (part, Some(x))).collect()
}

/// Three files in each of the partitions `a` and `b`.
fn two_partitions(properties: &[(&str, &str)]) -> Table {
    let table = Table::new(properties, true);
    for first in [0, 10, 20] {
        table.write(&[numbers("a", first..first + 10), numbers("b", first..first + 10)].concat());
    }
    table
}

/// A committer that runs `before` just before the first commit, as another writer.
struct Overtaken<F> {
    log: LogCommitter,
    before: Mutex<Option<F>>,
}

impl<F: FnOnce() -> BoxFuture<'static, ()> + Send> Overtaken<F> {
    fn new(table: &Table, before: F) -> Self {
        Self { log: LogCommitter::new(table.sample.log.clone()), before: Mutex::new(Some(before)) }
    }
}

impl<F: FnOnce() -> BoxFuture<'static, ()> + Send> Committer for Overtaken<F> {
    fn read<'a>(&'a self, version: u64) -> BoxFuture<'a, Result<Option<Bytes>>> {
        self.log.read(version)
    }

    fn commit<'a>(&'a self, version: u64, lines: Lines, files: Syncing) -> BoxFuture<'a, Result<Put>> {
        let before = self.before.lock().unwrap().take();
        Box::pin(async move {
            if let Some(before) = before {
                before().await;
            }
            self.log.commit(version, lines, files).await
        })
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

/// Optimizes; another writer commits just before the commit.
fn overtaken(table: &Table, by: impl FnOnce(&Table) + Send) -> Result<Optimized> {
    std::thread::scope(|scope| {
        let (begin, begun) = std::sync::mpsc::channel::<()>();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let other = scope.spawn(move || {
            begun.recv().unwrap();
            by(table);
            end.send(()).unwrap();
        });
        let committer = Overtaken::new(table, move || -> BoxFuture<'static, ()> {
            Box::pin(async move {
                begin.send(()).unwrap();
                ended.await.unwrap();
            })
        });
        let optimized = block_on(run(table, &options(), &committer));
        other.join().unwrap();
        optimized
    })
}

#[test]
fn bins_changed_by_winners_are_left_out() {
    for properties in [&[][..], &[VECTORS], &[IDS, VECTORS], &[FEED]] {
        for filter in ["p = 'a' AND x = 3", "p = 'a' AND x < 10", "p = 'a'"] {
            let table = two_partitions(properties);
            let done = overtaken(&table, |table| drop(table.delete(filter))).unwrap();
            assert_eq!((done.files_lost, done.versions.len()), (3, 1), "{properties:?} {filter}");
            assert_eq!((done.metrics["numRemovedFiles"], done.metrics["numAddedFiles"]), (3, 1));
            let kept = |x: &i64| match filter {
                "p = 'a' AND x = 3" => *x != 3,
                "p = 'a' AND x < 10" => *x >= 10,
                _ => false,
            };
            let left = (0..30).filter(kept).map(|x| format!("a|{x}"));
            let expected: BTreeSet<String> = left.chain((0..30).map(|x| format!("b|{x}"))).collect();
            assert_eq!(table.sorted(&["p", "x"], None).into_iter().collect::<BTreeSet<_>>(), expected);
            // Six old files, one of OPTIMIZE, at most one of the winner; files of the bin that was left out are deleted.
            let copies = usize::from(!properties.contains(&VECTORS) && filter == "p = 'a' AND x = 3");
            assert_eq!(data_files(&table).len(), 6 + 1 + copies, "{properties:?} {filter}");
            // The next run takes the files that were left out.
            let again = optimized(&table, &options());
            assert_eq!(again.files_lost, 0);
            assert_eq!(table.sorted(&["p", "x"], None).into_iter().collect::<BTreeSet<_>>(), expected);
        }
    }
}

#[test]
fn appends_do_not_conflict() {
    let table = two_partitions(&[IDS]);
    let done = overtaken(&table, |table| table.write(&numbers("a", 30..40))).unwrap();
    assert_eq!((done.files_lost, done.metrics["numAddedFiles"]), (0, 2));
    assert_eq!((table.files().len(), table.sorted(&["p", "x"], None).len()), (3, 70));
}

#[test]
fn of_two_concurrent_runs_one_commits() {
    let table = two_partitions(&[]);
    let done = overtaken(&table, |table| drop(optimized(table, &options()))).unwrap();
    assert_eq!((done.files_lost, done.versions.len()), (6, 0));
    assert_eq!((table.files().len(), data_files(&table).len()), (2, 8));
}

#[test]
fn a_metadata_change_is_a_conflict() {
    let table = two_partitions(&[]);
    let refused = overtaken(&table, |table| {
        block_on(async {
            let mut transaction = table.begin().await;
            let properties = [("delta.enableChangeDataFeed".to_owned(), "true".to_owned())].into();
            transaction.alter(&Alteration::SetProperties(properties), &World).unwrap();
            table.commit(transaction).await.unwrap();
        });
    });
    let refused = refused.unwrap_err();
    assert!(matches!(refused.kind(), Kind::Conflict(Conflict::MetadataChanged)), "{refused}");
    assert_eq!(data_files(&table).len(), 6, "the written files are not deleted");
    assert_eq!(optimized(&table, &options()).metrics["numAddedFiles"], 2);
}

/// A committer that fails after `left` commits.
struct Failing {
    log: LogCommitter,
    left: AtomicUsize,
    is_known: bool,
}

impl Committer for Failing {
    fn read<'a>(&'a self, version: u64) -> BoxFuture<'a, Result<Option<Bytes>>> {
        self.log.read(version)
    }

    fn commit<'a>(&'a self, version: u64, lines: Lines, files: Syncing) -> BoxFuture<'a, Result<Put>> {
        let lost = || Error::storage(false, "the store is gone");
        let works = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        match (works, self.is_known) {
            (true, _) => self.log.commit(version, lines, files),
            (false, true) => Box::pin(async move { Err(lost()) }),
            (false, false) => Box::pin(async move { Ok(Put::Unknown(lost())) }),
        }
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
fn a_large_table_takes_several_commits_and_resumes_after_a_failure() {
    for is_known in [true, false] {
        let table = two_partitions(&[]);
        let before = table.sorted(&["p", "x"], None);
        let each = OptimizeOptions { limits: Limits { commit_bytes: 1, ..Limits::default() }, ..options() };
        let log = LogCommitter::new(table.sample.log.clone());
        let failing = Failing { log, left: AtomicUsize::new(1), is_known };
        let failed = block_on(run(&table, &each, &failing)).unwrap_err();
        assert!(failed.to_string().contains("the store is gone"), "{failed}");
        // The files of a commit with an unknown outcome are kept.
        assert_eq!((table.files().len(), data_files(&table).len()), (4, if is_known { 7 } else { 8 }));
        assert_eq!(table.sorted(&["p", "x"], None), before);
        let rest = optimized(&table, &each);
        assert_eq!((rest.versions.len(), rest.files_to_rewrite), (1, 3));
        assert_eq!((table.files().len(), table.sorted(&["p", "x"], None)), (2, before));
    }
    let table = two_partitions(&[]);
    let each = OptimizeOptions { limits: Limits { commit_bytes: 1, ..Limits::default() }, ..options() };
    let done = optimized(&table, &each);
    assert_eq!((done.versions.len(), done.metrics["numRemovedFiles"], done.metrics["numAddedFiles"]), (2, 6, 2));
}

/// A policy that is cancelled.
struct Cancelled;

impl RetryPolicy for Cancelled {
    fn now_ms(&self) -> i64 {
        now()
    }

    fn back_off(&self, _: u32) -> Option<Duration> {
        None
    }

    fn is_cancelled(&self) -> bool {
        true
    }
}

#[test]
fn an_interrupted_run_leaves_no_file() {
    let table = two_partitions(&[]);
    let log = LogCommitter::new(table.sample.log.clone());
    let interrupted = block_on(async {
        let context = CommitContext { committer: &log, retry: &Cancelled };
        let interrupted = optimize(&table.sample.log, None, &options(), &World, now, context).await;
        // Files are deleted in the background.
        for _ in 0..100 {
            if data_files(&table).len() == 6 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        interrupted
    });
    assert!(interrupted.unwrap_err().to_string().contains("interrupted: nothing was committed"));
    assert_eq!((data_files(&table).len(), table.files().len()), (6, 6));
}

#[test]
fn a_plan_equals_the_result() {
    let table = two_partitions(&[VECTORS]);
    for options in [options(), z_order(&["x"])] {
        let planned = block_on(plan_optimize(&table.sample.log, None, &options, &World, now)).unwrap();
        let done = optimized(&table, &options);
        assert_eq!(planned, Optimized { versions: Vec::new(), metrics: planned.metrics.clone(), ..done.clone() });
        assert_eq!(done.metrics["numRemovedFiles"], planned.files_to_rewrite);
        assert_eq!(done.metrics["numAddedFiles"], planned.expected_files);
    }
}

/// Optimizes rows along a curve with this memory limit, and returns them in the order of a scan.
fn in_order(rows: &[Row], columns: &[&str], sort_bytes: usize) -> Vec<String> {
    let table = Table::new(&[], false);
    for rows in rows.chunks(700) {
        table.write(rows);
        // Equal rows keep the order of their files, which are ordered by time.
        std::thread::sleep(Duration::from_millis(2));
    }
    let limits = Limits { sort_bytes, ..Limits::default() };
    let done = optimized(&table, &OptimizeOptions { limits, ..z_order(columns) });
    assert_eq!(done.metrics["numAddedFiles"], 1);
    table.rows(&["p", "x"], None)
}

#[test]
fn the_order_does_not_depend_on_memory() {
    let parts = ["a", "b", "c", "d"];
    let mixed = |n: i64| (n * 7919) % 2003;
    let row = |n: i64| (parts[usize::try_from(mixed(n + 5) % 4).unwrap()], (n % 11 != 0).then(|| mixed(n)));
    let rows: Vec<Row> = (0..3000).map(row).collect();
    for columns in [&["x"][..], &["p"], &["p", "x"]] {
        let in_memory = in_order(&rows, columns, usize::MAX);
        for sort_bytes in [0, 5_000, 40_000] {
            assert!(in_order(&rows, columns, sort_bytes) == in_memory, "{columns:?} in {sort_bytes} bytes");
        }
        let mut all: Vec<String> = in_memory.clone();
        all.sort();
        let mut expected: Vec<String> =
            rows.iter().map(|(p, x)| format!("{p}|{}", x.map_or("null".to_owned(), |x| x.to_string()))).collect();
        expected.sort();
        assert!(all == expected);
    }
    // A single column is sorted by value, nulls first.
    let sorted = in_order(&rows, &["x"], 5_000);
    let values: Vec<Option<i64>> = sorted.iter().map(|row| row.split_once('|').unwrap().1.parse().ok()).collect();
    assert!(values.is_sorted());
}

#[test]
fn sorting_does_not_block_the_threads_of_writers() {
    let table = Table::new(&[], true);
    for part in ["a", "b", "c", "d"] {
        table.write(&numbers(part, 0..80_000));
        table.write(&numbers(part, 40_000..120_000));
    }
    // Each partition has more batches than the writer buffers, and there are fewer threads than partitions.
    let mut few_threads = tokio::runtime::Builder::new_multi_thread();
    let runtime = few_threads.worker_threads(2).max_blocking_threads(2).enable_all().build().unwrap();
    let options = OptimizeOptions { max_tasks: Some(4), ..z_order(&["x"]) };
    let committer = LogCommitter::new(table.sample.log.clone());
    let all = async { tokio::time::timeout(Duration::from_secs(120), run(&table, &options, &committer)).await };
    let done = runtime.block_on(all);
    runtime.shutdown_background();
    assert_eq!(done.expect("OPTIMIZE does not end").unwrap().metrics["numRemovedFiles"], 8);
}

/// Random rows of some files.
fn some_rows() -> impl Strategy<Value = Vec<Vec<Row>>> {
    let part = prop_oneof![Just("a"), Just("b"), Just("")];
    let value = prop_oneof![2 => (-20..20_i64).prop_map(Some), 1 => Just(None), 1 => any::<i64>().prop_map(Some)];
    prop::collection::vec(prop::collection::vec((part, value), 0..40), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 50, ..ProptestConfig::default() })]

    #[test]
    fn rows_and_ids_stay(
        files in some_rows(),
        (partitioned, vectors) in any::<(bool, bool)>(),
        (layout, sort_bytes, target) in (0..3_u8, prop_oneof![Just(0), Just(2_000), Just(1 << 20)], 500..5_000_u64),
        low in -20..20_i64,
    ) {
        let properties = if vectors { vec![IDS, VECTORS] } else { vec![IDS] };
        let table = Table::new(&properties, partitioned);
        for rows in &files {
            table.write(rows);
        }
        table.delete(&format!("x BETWEEN {low} AND {}", low + 5));
        table.write(&[("a", Some(low))]);
        let columns = ["p", "x", ROW_ID, ROW_COMMIT_VERSION];
        let before = table.sorted(&columns, None);
        let options = match (layout, partitioned) {
            (0, _) => options(),
            (1, _) => z_order(&["x"]),
            (_, true) => z_order(&["x"]),
            (_, false) => z_order(&["x", "p"]),
        };
        let limits = Limits { sort_bytes, ..Limits::default() };
        let options = OptimizeOptions { target_file_size: Some(target), limits, ..options };
        let done = optimized(&table, &options);
        prop_assert_eq!(table.sorted(&columns, None), before.clone());
        if layout == 0 {
            let again = optimized(&table, &OptimizeOptions { target_file_size: Some(1 << 30), ..options.clone() });
            prop_assert_eq!(table.sorted(&columns, None), before.clone());
            let (first, second) = (done.versions.len(), again.versions.len());
            prop_assert!(first <= 1 && second <= 1);
        }
        // New rows get new ids.
        table.write(&[("b", Some(1))]);
        let mut ids = table.sorted(&[ROW_ID], None);
        ids.dedup();
        prop_assert_eq!(ids.len(), before.len() + 1);
    }
}

/// UUIDs that are numbered in their first digits, by which files of this operation are recognized.
pub(super) struct Numbered;

impl Ids for Numbered {
    fn unique(&self) -> String {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        format!("{:08x}-0000-4000-8000-000000000000", NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The tasks of the next commit, of which no bin is divided.
fn rewrite_tasks(run: &mut DistributedOptimize) -> Vec<Vec<u8>> {
    let NextTasks { rewrite, sample } = run.next_tasks(None, &Numbered).unwrap().unwrap();
    assert!(sample.is_empty());
    rewrite
}

pub(super) fn run_task(table: &Table, task: &[u8]) -> Vec<u8> {
    let task = RewriteTask::from_bytes(task).unwrap();
    assert_eq!(task.location(), table.sample.storage.location());
    block_on(task.carry_out(table.sample.storage.clone(), now)).unwrap()
}

#[test]
fn bins_are_rewritten_by_tasks() {
    for properties in [&[][..], &[IDS, VECTORS]] {
        let table = two_partitions(properties);
        table.delete("x = 3");
        let (rows, before) = (tracked(&table, properties), data_files(&table));
        let storage = &table.sample.storage;
        let committer = LogCommitter::new(LogSource::of(storage));
        let plan =
            || block_on(DistributedOptimize::plan(&LogSource::of(storage), None, &options(), &Numbered, now)).unwrap();
        // A discarded operation leaves no files.
        let mut run = plan();
        let tasks = rewrite_tasks(&mut run);
        assert_eq!(tasks.len(), 2);
        let written = run_task(&table, &tasks[0]);
        assert!(data_files(&table).len() > before.len());
        for (wrong, message) in [
            (vec![written.clone()], "result of a task is missing"),
            (vec![written.clone(), written.clone()], "twice"),
            (vec![tasks[0].clone()], "not a rewritten group of files"),
        ] {
            let refused = block_on(run.commit(&wrong, &World, CommitContext { committer: &committer, retry: &World }))
                .unwrap_err();
            assert!(refused.to_string().contains(message), "{refused}");
        }
        block_on(run.discard());
        assert_eq!(data_files(&table), before);
        // A task that runs twice leaves an unreferenced file, which this run does not delete.
        let mut run = plan();
        let tasks = rewrite_tasks(&mut run);
        run_task(&table, &tasks[1]);
        let written: Vec<_> = tasks.iter().rev().map(|task| run_task(&table, task)).collect();
        block_on(run.commit(&written, &World, CommitContext { committer: &committer, retry: &World })).unwrap();
        block_on(run.discard());
        assert_eq!(run.next_tasks(None, &Numbered).unwrap(), None);
        assert_eq!((run.result().versions.len(), run.result().metrics["numAddedFiles"]), (1, 2));
        assert_eq!(data_files(&table).len(), before.len() + 3);
        assert_eq!((table.files().len(), tracked(&table, properties)), (2, rows));
    }
}

#[test]
fn results_of_tasks_are_checked() {
    let table = two_partitions(&[]);
    let storage = &table.sample.storage;
    let committer = LogCommitter::new(LogSource::of(storage));
    let plan =
        || block_on(DistributedOptimize::plan(&LogSource::of(storage), None, &options(), &Numbered, now)).unwrap();
    let (mut run, mut other) = (plan(), plan());
    let tasks = rewrite_tasks(&mut run);
    let written: Vec<_> = tasks.iter().map(|task| run_task(&table, task)).collect();
    let theirs: Vec<_> = rewrite_tasks(&mut other).iter().map(|task| run_task(&table, task)).collect();
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut result: Value = serde_json::from_slice(&written[0]).unwrap();
        change(&mut result["body"]["files"]);
        vec![serde_json::to_vec(&result).unwrap(), written[1].clone()]
    };
    let path =
        |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap()["body"]["files"][0]["add"]["path"].clone();
    for (wrong, message) in [
        (theirs.clone(), "of another commit"),
        (changed(&|files| files[0]["add"]["path"] = path(&theirs[0])), "no task of this commit wrote"),
        (changed(&|files| files[0]["add"]["path"] = json!("p=a/f0")), "no task of this commit wrote"),
        (changed(&|files| files[0]["add"]["path"] = path(&written[1])), "returned twice"),
        (changed(&|files| *files = json!([])), "do not have the"),
        (changed(&|files| files[0]["rows"] = json!(1)), "do not have the"),
    ] {
        let refused =
            block_on(run.commit(&wrong, &World, CommitContext { committer: &committer, retry: &World })).unwrap_err();
        assert!(refused.to_string().contains(message), "{refused}");
    }
    block_on(run.commit(&written, &World, CommitContext { committer: &committer, retry: &World })).unwrap();
    assert_eq!((run.result().versions.len(), table.files().len()), (1, 2));
}

#[test]
fn a_curve_without_columns_is_refused() {
    let table = two_partitions(&[]);
    let options = z_order(&["x"]);
    let storage = &table.sample.storage;
    let mut run = block_on(DistributedOptimize::plan(&LogSource::of(storage), None, &options, &Numbered, now)).unwrap();
    let task: Value = serde_json::from_slice(&rewrite_tasks(&mut run)[0]).unwrap();
    for columns in [json!([]), json!([[]]), json!([["x"], []]), json!(vec![["x"]; 65])] {
        let mut wrong = task.clone();
        wrong["body"]["layout"]["Curve"]["columns"] = columns;
        let refused = RewriteTask::from_bytes(&serde_json::to_vec(&wrong).unwrap()).unwrap_err();
        assert!(refused.to_string().contains("along a curve of these columns"), "{refused}");
    }
}

pub(super) fn tracked(table: &Table, properties: &[(&str, &str)]) -> BTreeSet<String> {
    let columns = if properties.contains(&IDS) { &["x", ROW_ID, ROW_COMMIT_VERSION][..] } else { &["p", "x"] };
    table.sorted(columns, None).into_iter().collect()
}

#[test]
fn bins_of_tasks_changed_by_winners_are_left_out() {
    let table = two_partitions(&[]);
    let storage = &table.sample.storage;
    let mut run =
        block_on(DistributedOptimize::plan(&LogSource::of(storage), None, &options(), &Numbered, now)).unwrap();
    let written: Vec<_> = rewrite_tasks(&mut run).iter().map(|task| run_task(&table, task)).collect();
    table.delete("p = 'a' AND x = 3");
    let before = data_files(&table).len();
    let committer = LogCommitter::new(LogSource::of(storage));
    let context = CommitContext { committer: &committer, retry: &World };
    block_on(run.commit(&written, &World, context)).unwrap();
    assert_eq!((run.result().files_lost, run.result().versions.len()), (3, 1));
    assert_eq!(data_files(&table).len(), before - 1);
    assert_eq!(table.sorted(&["p", "x"], None).len(), 59);
}
