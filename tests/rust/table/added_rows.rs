//! Files that another writer added, and that statistics do not rule out, are searched for rows that a commit would have read.

use deltic_protocol::error::{Conflict, Error, Kind, Result};
use deltic_protocol::row_update::NewValue;
use deltic_table::transaction::builder::{Outcome, Transaction};

use super::dml::{Row, Table, VECTORS, block_on, now};

fn rows(values: &[i64]) -> Vec<Row> {
    values.iter().map(|x| ("a", Some(*x))).collect()
}

async fn update(transaction: &mut Transaction, filter: &str) {
    let set = vec![("x".to_owned(), NewValue::Expression("x + 100".to_owned()))];
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
    matches!(error.kind(), Kind::Conflict(Conflict::ConcurrentAppend))
}

#[test]
fn added_rows_that_do_not_match_are_no_conflict() {
    for properties in [&[][..], &[VECTORS]] {
        for partitioned in [false, true] {
            let table = Table::new(properties, partitioned);
            table.write(&rows(&[1, 2, 3]));
            let outcome = delete_after(&table, "p = 'a' AND x = 2", || table.write(&rows(&[0, 4])));
            assert_eq!(outcome.unwrap().unwrap().committed.attempts, 2);
            assert_eq!(table.sorted(&["x"], None), ["0", "1", "3", "4"]);
        }
    }
}

#[test]
fn added_rows_that_match_are_a_conflict() {
    let table = Table::new(&[VECTORS], false);
    table.write(&rows(&[1, 2, 3]));
    let refused = delete_after(&table, "x = 2", || table.write(&rows(&[0, 2, 4])));
    assert!(is_conflict(&refused.unwrap_err()));
    // One of several conditions matches.
    let mut ours = block_on(table.begin());
    block_on(ours.delete(Some("x = 7"), now)).unwrap();
    block_on(update(&mut ours, "x = 1"));
    table.write(&rows(&[5, 7, 9]));
    assert!(is_conflict(&block_on(table.commit(ours)).unwrap_err()));
    assert_eq!(table.sorted(&["x"], None), ["0", "1", "2", "2", "3", "4", "5", "7", "9"]);
}

#[test]
fn updates_of_different_rows_of_one_file_both_succeed() {
    let table = Table::new(&[VECTORS], false);
    table.write(&rows(&[1, 2, 3, 4]));
    let mut ours = block_on(table.begin());
    // The other writer adds a file with 101 and 104, whose bounds hold 102.
    block_on(update(&mut ours, "x IN (2, 102)"));
    let mut other = block_on(table.begin());
    block_on(update(&mut other, "x IN (1, 4)"));
    block_on(table.commit(other)).unwrap();
    block_on(table.commit(ours)).unwrap();
    assert_eq!(table.sorted(&["x"], None), ["101", "102", "104", "3"]);
}

#[test]
fn an_added_file_that_cannot_be_read_is_a_conflict() {
    let table = Table::new(&[VECTORS], false);
    table.write(&rows(&[1, 2, 3]));
    let before = table.on_disk();
    let refused = delete_after(&table, "x = 2", || {
        table.write(&rows(&[0, 4]));
        let added = table.on_disk().into_iter().find(|path| !before.contains(path) && path.ends_with(".parquet"));
        std::fs::write(table.sample.path(&added.unwrap()), b"PAR1").unwrap();
    });
    assert!(is_conflict(&refused.unwrap_err()));
}
