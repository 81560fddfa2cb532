//! Large bins are divided into intervals of a curve: no row is lost or doubled, files of different intervals do not overlap, and
//! a commit needs the files of all intervals.

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{BinaryArray, RecordBatch};
use deltic_protocol::error::Result;
use deltic_table::commit::CommitContext;
use deltic_table::committers::LogCommitter;
use deltic_table::maintenance::{
    Cluster, DistributedOptimize, Divided, Division, Limits, NextTasks, OptimizeOptions, SampleTask, SplitTask,
};
use futures::{TryStreamExt, stream};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::dml::{IDS, Row, Table, VECTORS, World, block_on, now};
use super::optimize::{Numbered, data_files, options, run_task, tracked, z_order};

const CLUSTER: Cluster = Cluster { cores: 4, max_tasks: None, min_task_bytes: 1 };

/// A Z-order by these columns, into about one file for each `bytes` bytes.
fn small(columns: &[&str], bytes: u64) -> OptimizeOptions {
    OptimizeOptions { target_file_size: Some(bytes), ..z_order(columns) }
}

fn planned(table: &Table, options: &OptimizeOptions) -> DistributedOptimize {
    block_on(DistributedOptimize::plan(&table.sample.log, None, options, &Numbered, now)).unwrap()
}

/// The results of the sample tasks with which a commit begins.
fn sampled(table: &Table, run: &mut DistributedOptimize) -> Vec<Vec<u8>> {
    let NextTasks { rewrite, sample } = run.next_tasks(Some(&CLUSTER), &Numbered).unwrap().unwrap();
    assert!(rewrite.is_empty() && !sample.is_empty(), "the bin is divided");
    let carry_out = |task: &Vec<u8>| {
        let task = SampleTask::from_bytes(task).unwrap();
        assert_eq!(task.location(), table.sample.storage.location());
        block_on(task.carry_out(table.sample.storage.clone())).unwrap()
    };
    sample.iter().map(carry_out).collect()
}

/// The batches that a split task gives for each interval.
type Split = BTreeMap<usize, Vec<RecordBatch>>;

fn split(table: &Table, divided: &Divided) -> Split {
    let mut intervals = Split::new();
    for task in &divided.tasks {
        let division = Division::from_bytes(&divided.division).unwrap();
        let (_, rows) = division.split(table.sample.storage.clone(), SplitTask::from_bytes(task).unwrap()).unwrap();
        for batch in block_on(rows.try_collect::<Vec<_>>()).unwrap() {
            let interval = batch.column_by_name("interval").unwrap().as_primitive::<Int32Type>().value(0);
            intervals.entry(usize::try_from(interval).unwrap()).or_default().push(batch);
        }
    }
    intervals
}

fn write_interval(table: &Table, divided: &Divided, interval: usize, rows: Vec<RecordBatch>) -> Result<Vec<u8>> {
    let division = Division::from_bytes(&divided.division)?;
    let rows = stream::iter(rows.into_iter().map(Ok));
    block_on(division.write_interval(table.sample.storage.clone(), interval, rows, now))
}

fn commit(table: &Table, run: &mut DistributedOptimize, written: &[Vec<u8>]) -> Result<()> {
    let committer = LogCommitter::new(table.sample.log.clone());
    block_on(run.commit(written, &World, CommitContext { committer: &committer, retry: &World }))
}

/// Optimizes by intervals. Returns the run, and the paths of the files of each interval.
fn rewritten(table: &Table, options: &OptimizeOptions) -> (DistributedOptimize, Vec<BTreeSet<String>>) {
    let mut run = planned(table, options);
    let samples = sampled(table, &mut run);
    let divided = run.divide(&samples).unwrap();
    let rows = split(table, &divided);
    assert_eq!(rows.keys().copied().collect::<Vec<_>>(), (0..divided.intervals).collect::<Vec<_>>());
    let write = |(interval, rows)| write_interval(table, &divided, interval, rows).unwrap();
    let written: Vec<_> = rows.into_iter().map(write).collect();
    commit(table, &mut run, &written).unwrap();
    assert_eq!(run.next_tasks(Some(&CLUSTER), &Numbered).unwrap(), None);
    (run, written.iter().map(|result| paths(result)).collect())
}

fn paths(result: &[u8]) -> BTreeSet<String> {
    let result: Value = serde_json::from_slice(result).unwrap();
    let files = result["body"]["files"].as_array().unwrap().clone();
    files.iter().map(|file| file["add"]["path"].as_str().unwrap().to_owned()).collect()
}

/// Eight files with numbers, some of them several times, in no order.
fn scattered(properties: &[(&str, &str)]) -> Table {
    let table = Table::new(properties, false);
    for file in 0..8 {
        let rows: Vec<Row> = (0..100)
            .map(|row| match row % 10 {
                0 => ("a", None),
                1..4 => ("b", Some(7)),
                _ => ("c", Some((row * 37 + file * 11) % 101)),
            })
            .collect();
        table.write(&rows);
    }
    table
}

#[test]
fn rows_and_ids_stay_and_intervals_do_not_overlap() {
    for properties in [&[][..], &[IDS, VECTORS]] {
        // With little memory rows go to temporary files.
        for sort_bytes in [usize::MAX, 4096] {
            let table = scattered(properties);
            table.delete("x % 5 = 2");
            let before = tracked(&table, properties);
            let all = table.sorted(&["p", "x"], None);
            let limits = Limits { sort_bytes, ..Limits::default() };
            let (run, intervals) = rewritten(&table, &OptimizeOptions { limits, ..small(&["x"], 400) });
            assert!(intervals.len() > 1, "{intervals:?}");
            assert_eq!(run.result().versions.len(), 1);
            assert_eq!((table.sorted(&["p", "x"], None), tracked(&table, properties)), (all, before));
            let files: BTreeSet<String> = table.files().into_iter().collect();
            assert_eq!(intervals.iter().flatten().cloned().collect::<BTreeSet<_>>(), files);
            // NULL comes first.
            let mut end = Some(-1);
            for interval in intervals {
                let bounds = bounds(&table, &interval);
                assert!(bounds.0 > end || end == Some(-1), "{bounds:?} begins before {end:?}");
                end = bounds.1;
            }
        }
    }
}

/// The least and the greatest `x` in files.
fn bounds(table: &Table, files: &BTreeSet<String>) -> (Option<i64>, Option<i64>) {
    let adds = table.last("add").into_iter().filter(|add| files.contains(add["path"].as_str().unwrap()));
    let stats: Vec<Value> = adds.map(|add| serde_json::from_str(add["stats"].as_str().unwrap()).unwrap()).collect();
    let has_null = stats.iter().any(|stats| stats["nullCount"]["x"] != json!(0));
    let least = stats.iter().filter_map(|stats| stats["minValues"]["x"].as_i64()).min();
    let greatest = stats.iter().filter_map(|stats| stats["maxValues"]["x"].as_i64()).max();
    (if has_null { None } else { least }, greatest)
}

#[test]
fn rows_of_one_value_are_one_interval() {
    let table = Table::new(&[], false);
    for _ in 0..4 {
        table.write(&(0..200).map(|_| ("a", Some(1))).collect::<Vec<_>>());
    }
    table.write(&[("b", Some(2))]);
    let (run, intervals) = rewritten(&table, &small(&["x"], 1000));
    assert!(intervals.len() <= 2, "{intervals:?}");
    assert!(intervals[0].len() > 1, "the interval has several files");
    assert_eq!(run.result().versions.len(), 1);
    assert_eq!(table.rows(&["x"], None).len(), 801);
}

#[test]
fn only_large_bins_of_a_curve_are_divided() {
    let table = scattered(&[]);
    let count = |options: &OptimizeOptions, cluster: Option<Cluster>| {
        let next = planned(&table, options).next_tasks(cluster.as_ref(), &Numbered).unwrap().unwrap();
        (next.rewrite.len(), next.sample.len())
    };
    let along = small(&["x"], 1500);
    assert_eq!(count(&along, None), (1, 0));
    assert_eq!(count(&along, Some(Cluster { cores: 1, ..CLUSTER })), (1, 0));
    assert_eq!(count(&along, Some(Cluster { max_tasks: Some(1), ..CLUSTER })), (1, 0));
    assert_eq!(count(&small(&["x"], 1 << 30), Some(CLUSTER)), (1, 0), "it becomes one file");
    let compaction = OptimizeOptions { target_file_size: Some(10_000), ..options() };
    assert_eq!(count(&compaction, Some(CLUSTER)).1, 0);
    assert_eq!(count(&along, Some(CLUSTER)), (0, 8));
    assert_eq!(count(&along, Some(Cluster { max_tasks: Some(3), ..CLUSTER })), (0, 3));
    assert_eq!(count(&along, Some(Cluster { min_task_bytes: 1 << 20, ..CLUSTER })), (0, 1));
    // The partition `a` has most of the rows, and `b` is not waited for.
    let table = Table::new(&[], true);
    for _ in 0..8 {
        table.write(&(0..400).map(|x| ("a", Some(x * 7919 % 1009))).collect::<Vec<_>>());
    }
    table.write(&[("b", Some(1))]);
    table.write(&[("b", Some(2))]);
    let next = planned(&table, &small(&["x"], 1500)).next_tasks(Some(&CLUSTER), &Numbered).unwrap().unwrap();
    assert_eq!(next.rewrite.len(), 1);
    assert!(next.sample.len() > 1);
}

#[test]
fn whole_and_divided_bins_are_committed_together() {
    let table = Table::new(&[IDS], true);
    for _ in 0..8 {
        table.write(&(0..400).map(|x| ("a", Some(x * 7919 % 1009))).collect::<Vec<_>>());
    }
    table.write(&[("b", Some(1))]);
    table.write(&[("b", Some(2))]);
    let before = tracked(&table, &[IDS]);
    let mut run = planned(&table, &small(&["x"], 1500));
    let NextTasks { rewrite, sample } = run.next_tasks(Some(&CLUSTER), &Numbered).unwrap().unwrap();
    let carry_out = |task: &Vec<u8>| {
        block_on(SampleTask::from_bytes(task).unwrap().carry_out(table.sample.storage.clone())).unwrap()
    };
    let divided = run.divide(&sample.iter().map(carry_out).collect::<Vec<_>>()).unwrap();
    let rows = split(&table, &divided).into_iter();
    let mut written: Vec<_> =
        rows.map(|(interval, rows)| write_interval(&table, &divided, interval, rows).unwrap()).collect();
    assert!(commit(&table, &mut run, &written).unwrap_err().to_string().contains("missing"));
    written.extend(rewrite.iter().map(|task| run_task(&table, task)));
    commit(&table, &mut run, &written).unwrap();
    assert_eq!((run.result().versions.len(), run.result().metrics["numRemovedFiles"]), (1, 10));
    assert_eq!(tracked(&table, &[IDS]), before);
    assert_eq!(table.sorted(&["p", "x"], Some("p = 'b'")), ["b|1", "b|2"]);
}

#[test]
fn results_of_intervals_are_checked() {
    let table = scattered(&[]);
    let (before, files) = (table.sorted(&["p", "x"], None), data_files(&table));
    let (mut run, mut other) = (planned(&table, &small(&["x"], 1500)), planned(&table, &small(&["x"], 1500)));
    let (samples, theirs) = (sampled(&table, &mut run), sampled(&table, &mut other));
    assert!(commit(&table, &mut run, &[]).unwrap_err().to_string().contains("missing"), "nothing is divided yet");
    let (divided, foreign) = (run.divide(&samples).unwrap(), other.divide(&theirs).unwrap());
    let rows = split(&table, &divided);
    // A task of another division, and an interval that there is not.
    let division = Division::from_bytes(&divided.division).unwrap();
    let task = SplitTask::from_bytes(&foreign.tasks[0]).unwrap();
    let refused = division.split(table.sample.storage.clone(), task).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("another division"), "{refused}");
    let refused = write_interval(&table, &divided, divided.intervals, Vec::new()).unwrap_err();
    assert!(refused.to_string().contains("another division"), "{refused}");
    // Rows that are none.
    let sent = |bytes: &[u8]| {
        RecordBatch::try_from_iter([("rows", std::sync::Arc::new(BinaryArray::from_vec(vec![bytes])) as _)])
    };
    for bytes in [&b""[..], b"x", &[0xFF; 64]] {
        let refused = write_interval(&table, &divided, 0, vec![sent(bytes).unwrap()]).unwrap_err();
        assert!(refused.to_string().contains("were changed on their way"), "{refused}");
    }
    assert_eq!(data_files(&table), files, "a task that fails leaves no file");
    let write = |(interval, rows): (&usize, &Vec<RecordBatch>)| {
        write_interval(&table, &divided, *interval, rows.clone()).unwrap()
    };
    let written: Vec<_> = rows.iter().map(write).collect();
    let but_last = || written[..written.len() - 1].to_vec();
    let with = |result: Vec<u8>| [but_last(), vec![result]].concat();
    let last = divided.intervals - 1;
    let fewer = write_interval(&table, &divided, last, rows[&last][1..].to_vec()).unwrap();
    let doubled = [&rows[&last][..], &rows[&last][..1]].concat();
    let more = write_interval(&table, &divided, last, doubled).unwrap();
    let as_bin = |result: &[u8]| {
        let mut result: Value = serde_json::from_slice(result).unwrap();
        result["body"]["of"] = json!({"Bin": 0});
        serde_json::to_vec(&result).unwrap()
    };
    let foreign = write_interval(&table, &foreign, last, rows[&last].clone()).unwrap();
    for (wrong, message) in [
        (but_last(), "missing"),
        (with(written[0].clone()), "twice"),
        (with(fewer), "do not have the 800 rows"),
        (with(more), "do not have the 800 rows"),
        (with(as_bin(&written[last])), "does not have"),
        (with(foreign), "of another commit"),
        (with(divided.tasks[0].clone()), "not a rewritten group of files"),
    ] {
        let refused = commit(&table, &mut run, &wrong).unwrap_err();
        assert!(refused.to_string().contains(message), "{refused} instead of {message}");
        assert_eq!(table.sorted(&["p", "x"], None), before);
    }
    block_on(run.discard());
    block_on(other.discard());
    assert_eq!(data_files(&table), files);
}

#[test]
fn results_of_samples_are_checked() {
    let table = scattered(&[]);
    let mut run = planned(&table, &small(&["x"], 1500));
    let samples = sampled(&table, &mut run);
    let theirs = sampled(&table, &mut planned(&table, &small(&["x"], 1500)));
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut result: Value = serde_json::from_slice(&samples[0]).unwrap();
        change(&mut result["body"]["sample"]);
        [vec![serde_json::to_vec(&result).unwrap()], samples[1..].to_vec()].concat()
    };
    for (wrong, message) in [
        (samples[1..].to_vec(), "missing"),
        ([&samples[..], &samples[..1]].concat(), "twice"),
        (theirs, "of another commit"),
        (changed(&|sample| sample["values"]["digits"] = json!("0")), "not those of the table's columns"),
        (changed(&|sample| sample["values"]["digits"] = json!("zz")), "not those of the table's columns"),
        (changed(&|sample| sample["values"]["lengths"][0] = json!(u64::MAX)), "not those of the table's columns"),
        (
            changed(&|sample| sample["values"] = json!({"lengths": [], "digits": ""})),
            "not those of the table's columns",
        ),
        (changed(&|sample| sample["hashes"] = json!([])), "not those of the table's columns"),
        (changed(&|sample| sample["rows"] = json!(1)), "not those of the table's columns"),
    ] {
        let refused = run.divide(&wrong).unwrap_err();
        assert!(refused.to_string().contains(message), "{refused} instead of {message}");
    }
    let divided = run.divide(&samples).unwrap();
    // Ranges that are not those of the columns.
    for (member, value) in [("columns", json!([])), ("positions", json!([2, 1]))] {
        let mut division: Value = serde_json::from_slice(&divided.division).unwrap();
        division["body"]["bins"][0]["ranges"][member] = value;
        let division = Division::from_bytes(&serde_json::to_vec(&division).unwrap()).unwrap();
        let task = SplitTask::from_bytes(&divided.tasks[0]).unwrap();
        let refused = division.split(table.sample.storage.clone(), task).map(|_| ()).unwrap_err();
        assert!(refused.to_string().contains("not those of the table's columns"), "{refused}");
    }
    let mut division: Value = serde_json::from_slice(&divided.division).unwrap();
    division["body"]["layout"]["columns"] = json!([]);
    let refused = Division::from_bytes(&serde_json::to_vec(&division).unwrap()).unwrap_err();
    assert!(refused.to_string().contains("along a curve of these columns"), "{refused}");
}

#[test]
fn a_bin_changed_by_a_winner_is_left_out() {
    let table = scattered(&[VECTORS]);
    let before = data_files(&table);
    let mut run = planned(&table, &small(&["x"], 1500));
    let samples = sampled(&table, &mut run);
    let divided = run.divide(&samples).unwrap();
    let rows = split(&table, &divided).into_iter();
    let written: Vec<_> =
        rows.map(|(interval, rows)| write_interval(&table, &divided, interval, rows).unwrap()).collect();
    table.delete("x = 9");
    let (left, files) = (table.sorted(&["p", "x"], None), table.files());
    commit(&table, &mut run, &written).unwrap();
    assert_eq!((run.result().files_lost, run.result().versions.len()), (8, 0));
    assert_eq!((table.sorted(&["p", "x"], None), table.files()), (left, files));
    assert_eq!(data_files(&table), before, "the new files are deleted");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn no_row_is_lost_or_doubled(
        files in prop::collection::vec(
            prop::collection::vec((prop::sample::select(vec!["a", "b", "cc"]), prop::option::of(-9..9_i64)), 30..60),
            3..6,
        ),
        columns in prop::sample::select(vec![vec!["x"], vec!["p"], vec!["p", "x"], vec!["x", "p"]]),
    ) {
        let table = Table::new(&[IDS], false);
        files.iter().for_each(|rows| table.write(rows));
        let (before, all) = (tracked(&table, &[IDS]), table.sorted(&["p", "x"], None));
        let (run, intervals) = rewritten(&table, &small(&columns, 400));
        prop_assert!(intervals.iter().all(|files| !files.is_empty()));
        prop_assert_eq!(run.result().versions.len(), 1);
        prop_assert_eq!((tracked(&table, &[IDS]), table.sorted(&["p", "x"], None)), (before, all));
    }
}
