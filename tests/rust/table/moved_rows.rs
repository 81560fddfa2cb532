//! One writer deletes or updates rows by deletion vectors while another moves them to other files. With row tracking both
//! commits succeed, and rows keep their ids.

use std::collections::BTreeSet;

use deltic_protocol::error::{Conflict, Error, Kind, Result};
use deltic_protocol::row_update::NewValue;
use deltic_table::scan::row_tracking::ROW_ID;
use deltic_table::transaction::builder::{Outcome, Transaction};
use proptest::prelude::*;
use serde_json::json;

use super::dml::{FEED, IDS, Row, Table, VECTORS, block_on, now};
use super::optimize::{optimized, options, z_order};

fn numbers(part: &'static str, values: std::ops::Range<i64>) -> Vec<Row> {
    values.map(|x| (part, Some(x))).collect()
}

/// Two files of ten rows each.
fn two_files(properties: &[(&str, &str)]) -> Table {
    let table = Table::new(properties, false);
    table.write(&numbers("a", 0..10));
    table.write(&numbers("b", 10..20));
    table
}

async fn update(transaction: &mut Transaction, x: &str, filter: &str) {
    let set = vec![("x".to_owned(), NewValue::Expression(x.to_owned()))];
    transaction.update(set, Some(filter), now).await.unwrap();
}

/// Deletes rows; another writer commits first.
fn delete_after(table: &Table, filter: &str, other: impl FnOnce()) -> Result<Option<Outcome>> {
    let mut ours = block_on(table.begin());
    block_on(ours.delete(Some(filter), now)).unwrap();
    other();
    block_on(table.commit(ours))
}

fn is_conflict(error: &Error) -> bool {
    matches!(error.kind(), Kind::Conflict(Conflict::ConcurrentDeleteDelete))
}

/// `rows` without some values of `x`.
fn without(rows: &[String], gone: &[i64]) -> Vec<String> {
    let is_gone = |row: &&String| gone.iter().any(|x| row.starts_with(&format!("{x}|")));
    rows.iter().filter(|row| !is_gone(row)).cloned().collect()
}

#[test]
fn moved_rows_are_deleted() {
    for properties in [&[IDS, VECTORS][..], &[IDS, VECTORS, FEED]] {
        let table = two_files(properties);
        table.delete("x = 9");
        let before = table.sorted(&["x", ROW_ID], None);
        let outcome = delete_after(&table, "x IN (1, 3, 12)", || drop(optimized(&table, &options())));
        let outcome = outcome.unwrap().unwrap();
        assert_eq!(outcome.committed.attempts, 2);
        assert_eq!(table.sorted(&["x", ROW_ID], None), without(&before, &[1, 3, 12]));
        // The file written by OPTIMIZE is marked, and keeps its statistics.
        let (removed, added) = (table.last("remove"), table.last("add"));
        assert_eq!((removed.len(), added.len(), table.files().len()), (1, 1, 1));
        assert_eq!((&removed[0]["path"], &removed[0]["deletionVector"]), (&added[0]["path"], &json!(null)));
        assert_eq!(added[0]["deletionVector"]["cardinality"], json!(3));
        let stats: serde_json::Value = serde_json::from_str(added[0]["stats"].as_str().unwrap()).unwrap();
        assert_eq!((&stats["numRecords"], &stats["tightBounds"]), (&json!(19), &json!(false)));
        // Deletion vector files that no commit names are deleted.
        assert_eq!(table.on_disk().iter().filter(|path| path.ends_with(".bin")).count(), 2);
    }
}

#[test]
fn moved_rows_are_updated_and_keep_their_ids() {
    let table = two_files(&[IDS, VECTORS]);
    let id = |x: i64| table.rows(&[ROW_ID], Some(&format!("x = {x}")));
    let before = [id(4), id(15), id(16)];
    let mut ours = block_on(table.begin());
    block_on(update(&mut ours, "x + 100", "x IN (4, 15)"));
    optimized(&table, &z_order(&["x"]));
    block_on(table.commit(ours)).unwrap().unwrap();
    assert_eq!([id(104), id(115), id(16)], before);
    assert_eq!(table.sorted(&["x"], Some("x IN (4, 15, 104, 115)")), ["104", "115"]);
}

#[test]
fn rows_moved_by_several_winners_are_found() {
    let table = two_files(&[IDS, VECTORS]);
    let before = table.sorted(&["x", ROW_ID], None);
    let outcome = delete_after(&table, "x IN (1, 12)", || {
        optimized(&table, &options());
        table.delete("x IN (2, 13)");
        optimized(&table, &z_order(&["p", "x"]));
        table.write(&[("c", Some(30))]);
        table.delete("x = 3");
    });
    assert_eq!(outcome.unwrap().unwrap().committed.attempts, 2);
    assert_eq!(table.sorted(&["x", ROW_ID], Some("x < 30")), without(&before, &[1, 12, 2, 13, 3]));
}

#[test]
fn a_row_moved_and_then_deleted_is_a_conflict() {
    let table = two_files(&[IDS, VECTORS]);
    let before = table.on_disk();
    let refused = delete_after(&table, "x IN (1, 12)", || {
        optimized(&table, &options());
        table.delete("x IN (12, 13)");
    });
    assert!(is_conflict(&refused.unwrap_err()));
    assert_eq!(table.sorted(&["x"], None).len(), 18);
    // The file of OPTIMIZE and the vectors of the winner are new; files of the failed commit are deleted.
    assert_eq!(table.on_disk().difference(&before).count(), 2);
}

#[test]
fn without_row_tracking_moved_rows_are_a_conflict() {
    let table = two_files(&[VECTORS]);
    let refused = delete_after(&table, "x = 1", || drop(optimized(&table, &options())));
    assert!(is_conflict(&refused.unwrap_err()));
    assert_eq!(table.rows(&["x"], None).len(), 20);
}

#[test]
fn only_files_of_the_same_partition_are_searched() {
    let table = Table::new(&[IDS, VECTORS], true);
    for first in [0, 10] {
        let rows = ["a", "b", "c", "d"].map(|part| numbers(part, first..first + 10));
        table.write(&rows.concat());
    }
    let mut ours = block_on(table.begin());
    block_on(ours.delete(Some("p = 'b' AND x IN (3, 14)"), now)).unwrap();
    optimized(&table, &options());
    // The new files of other partitions cannot be read.
    for path in table.files().iter().filter(|path| !path.contains("p=b")) {
        std::fs::write(table.sample.path(path), b"gone").unwrap();
    }
    block_on(table.commit(ours)).unwrap().unwrap();
    assert_eq!(table.rows(&["x"], Some("p = 'b'")).len(), 18);
}

/// The same error as where rows are not tracked: repeating the statement is right.
#[test]
fn a_file_that_cannot_be_read_is_a_conflict() {
    for is_new in [true, false] {
        let table = two_files(&[IDS, VECTORS]);
        let old = table.files();
        let refused = delete_after(&table, "x = 1", || {
            optimized(&table, &options());
            let broken = if is_new { table.files() } else { old.clone() };
            broken.iter().for_each(|path| std::fs::write(table.sample.path(path), b"broken").unwrap());
        });
        let error = refused.unwrap_err();
        assert!(is_conflict(&error) && error.version().is_some() && error.to_string().contains(".parquet"), "{error}");
    }
}

#[test]
fn an_old_file_that_a_vacuum_deleted_is_a_conflict() {
    let table = two_files(&[IDS, VECTORS]);
    let old = table.files();
    let refused = delete_after(&table, "x = 1", || {
        optimized(&table, &options());
        old.iter().for_each(|path| std::fs::remove_file(table.sample.path(path)).unwrap());
    });
    assert!(is_conflict(&refused.unwrap_err()));
}

/// A commit of another writer.
#[derive(Debug, Clone)]
enum Other {
    Optimize,
    ZOrder,
    Delete(BTreeSet<i64>),
    Append,
}

fn others() -> impl Strategy<Value = Vec<Other>> {
    let other = prop_oneof![
        2 => Just(Other::Optimize),
        1 => Just(Other::ZOrder),
        2 => rows().prop_map(Other::Delete),
        1 => Just(Other::Append),
    ];
    prop::collection::vec(other, 1..4)
}

/// Some of sixteen rows in files of four. The first row of each file is left out, so that no file is removed.
fn rows() -> impl Strategy<Value = BTreeSet<i64>> {
    prop::collection::btree_set((0..16_i64).prop_filter("the first row of a file", |x| x % 4 != 0), 1..4)
}

fn listed(rows: &BTreeSet<i64>) -> String {
    format!("x IN ({})", rows.iter().map(i64::to_string).collect::<Vec<_>>().join(", "))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// The commit succeeds exactly if no winner deleted one of its rows.
    #[test]
    fn moved_rows_are_changed_unless_a_winner_deleted_them(
        ours in rows(),
        others in others(),
        updates in any::<bool>(),
        partitioned in any::<bool>(),
    ) {
        let table = Table::new(&[IDS, VECTORS], partitioned);
        for first in [0, 4, 8, 12] {
            table.write(&numbers(if first < 8 { "a" } else { "b" }, first..first + 4));
        }
        let ids = table.sorted(&["x", ROW_ID], None);
        let mut transaction = block_on(table.begin());
        match updates {
            true => block_on(update(&mut transaction, "x + 100", &listed(&ours))),
            false => drop(block_on(transaction.delete(Some(&listed(&ours)), now)).unwrap()),
        }
        let mut gone = BTreeSet::new();
        for other in &others {
            match other {
                Other::Optimize => drop(optimized(&table, &options())),
                Other::ZOrder => drop(optimized(&table, &z_order(&["x"]))),
                Other::Delete(rows) => {
                    table.delete(&listed(rows));
                    gone.extend(rows);
                }
                Other::Append => table.write(&[("c", Some(50))]),
            }
        }
        let ended = block_on(table.commit(transaction));
        let is_disjoint = ours.is_disjoint(&gone);
        match &ended {
            Ok(_) => prop_assert!(is_disjoint),
            Err(error) => prop_assert!(!is_disjoint && is_conflict(error), "{}", error),
        }
        if is_disjoint && !updates {
            gone.extend(&ours);
        }
        let expected = ids.iter().filter_map(|row| {
            let (x, id) = row.split_once('|').unwrap();
            let x: i64 = x.parse().unwrap();
            let now = if is_disjoint && updates && ours.contains(&x) { x + 100 } else { x };
            (!gone.contains(&x)).then(|| format!("{now}|{id}"))
        });
        let mut expected: Vec<String> = expected.collect();
        expected.sort();
        prop_assert_eq!(table.sorted(&["x", ROW_ID], Some("x <> 50")), expected);
    }
}
