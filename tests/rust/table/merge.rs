//! MERGE through [`Transaction`]: which concurrent changes it may follow, which rows it updates, and what its preview says.

use arrow_array::RecordBatch;
use deltic_protocol::error::{Conflict, Error, Kind, Result};
use deltic_protocol::row_update::NewValue;
use deltic_table::dml::{Clause, ClauseAction, MergeRequest, Preview, RowAction, When};
use deltic_table::transaction::builder::{Outcome, Transaction};
use deltic_table::transaction::row_counts::MergeCounts;

use super::dml::{FEED, IDS, Row, Table, VECTORS, World, batch, block_on, now, numbers};

fn request(clauses: &[(When, Option<&str>, ClauseAction)]) -> MergeRequest {
    let clause = |(when, condition, action): &(When, Option<&str>, ClauseAction)| Clause {
        when: *when,
        condition: condition.map(str::to_owned),
        action: action.clone(),
        external: None,
    };
    MergeRequest {
        on: "source.x = target.x".to_owned(),
        source_alias: "source".to_owned(),
        target_alias: "target".to_owned(),
        clauses: clauses.iter().map(clause).collect(),
        evolves: false,
        operation: RowAction::Merge,
    }
}

fn all() -> ClauseAction {
    ClauseAction::All { except: Vec::new() }
}

async fn merge(transaction: &mut Transaction, rows: RecordBatch, request: MergeRequest) -> Result<MergeCounts> {
    transaction.merge((rows.schema(), vec![rows]), request, (&World, now)).await
}

/// 300 keys, so many that files are chosen by the bounds of the keys: the even numbers from 0 to 598.
fn even() -> Vec<Row> {
    (0..300).map(|key| ("merged", Some(2 * key))).collect()
}

/// Merges [`even`] into a file with the numbers from 100 to 199, while another writer deletes the rows of `filter`.
fn merge_while_others_delete(
    clauses: &[(When, Option<&str>, ClauseAction)],
    filter: &str,
) -> (Table, Result<Option<Outcome>>) {
    let table = Table::new(&[VECTORS], false);
    table.write(&numbers(100..200));
    let done = block_on(async {
        let mut ours = table.begin().await;
        merge(&mut ours, batch(&even()), request(clauses)).await.unwrap();
        let mut theirs = table.begin().await;
        theirs.delete(Some(filter), now).await.unwrap();
        table.commit(theirs).await.unwrap().unwrap();
        table.commit(ours).await
    });
    (table, done)
}

fn conflict(error: &Error) -> Conflict {
    match error.kind() {
        Kind::Conflict(conflict) => *conflict,
        _ => panic!("{error}"),
    }
}

#[test]
fn a_file_between_the_least_and_the_greatest_key_does_not_count_as_read_whole() {
    let upsert = [(When::Matched, None, all()), (When::NotMatched, None, all())];
    for clauses in [&upsert[..1], &upsert, &[(When::Matched, None, ClauseAction::Delete)]] {
        let (table, done) = merge_while_others_delete(clauses, "x IN (101, 151)");
        assert_eq!(done.unwrap().unwrap().committed.attempts, 2);
        let odd = (100..200).filter(|x| x % 2 == 1 && *x != 101 && *x != 151).map(|x| format!("a|{x}"));
        assert_eq!(table.rows(&["p", "x"], Some("p = 'a'")), odd.collect::<Vec<_>>());
    }
}

#[test]
fn a_merge_conflicts_with_deletes_of_its_rows() {
    let (_, done) = merge_while_others_delete(&[(When::Matched, None, all())], "x IN (101, 150)");
    assert_eq!(conflict(&done.unwrap_err()), Conflict::ConcurrentDeleteDelete);
    // Row 150 matches and is not changed: without it, its source row would be inserted.
    let clauses = [(When::Matched, Some("target.x < 120"), all()), (When::NotMatched, None, all())];
    let (_, done) = merge_while_others_delete(&clauses, "x = 150");
    assert_eq!(conflict(&done.unwrap_err()), Conflict::ConcurrentDeleteRead);
    // Without inserts nothing depends on it.
    let (table, done) = merge_while_others_delete(&clauses[..1], "x = 150");
    done.unwrap().unwrap();
    assert_eq!(table.rows(&["x"], None).len(), 99);
    // A file that loses all its rows is removed, whoever deletes them.
    let (_, done) = merge_while_others_delete(&[(When::Matched, None, all())], "x >= 100");
    assert_eq!(conflict(&done.unwrap_err()), Conflict::ConcurrentDeleteDelete);
}

#[test]
fn updates_with_and_without_source_rows_find_their_rows() {
    let by_source = |condition| {
        let set = vec![("p".to_owned(), NewValue::Expression("'gone'".to_owned()))];
        (When::NotMatchedBySource, condition, ClauseAction::Set(set))
    };
    let doubled = vec![("p".to_owned(), NewValue::Expression("source.p || target.p".to_owned()))];
    let clauses = [
        (When::Matched, Some("target.x < 1000"), all()),
        (When::Matched, Some("target.x < 2000"), ClauseAction::Delete),
        (When::Matched, None, ClauseAction::Set(doubled)),
        by_source(Some("target.x % 3 = 0")),
        (When::NotMatchedBySource, Some("target.x % 3 = 1"), ClauseAction::Delete),
    ];
    for properties in [&[][..], &[VECTORS], &[FEED], &[IDS, VECTORS]] {
        let table = Table::new(properties, false);
        // Two files; each of the keys has up to two rows, and one row of the source.
        table.write(&numbers(0..20_000));
        table.write(&numbers(900..2_100));
        let source: Vec<Row> = (0..1_500).map(|key| ("s", Some(2 * key))).collect();
        let counts = block_on(async {
            let mut transaction = table.begin().await;
            let counts = merge(&mut transaction, batch(&source), request(&clauses)).await.unwrap();
            table.commit(transaction).await.unwrap().unwrap();
            counts
        });
        let is_matched = |x: i64| x % 2 == 0 && x < 3_000;
        let after = |x: i64| match (is_matched(x), x) {
            (true, ..1_000) => Some("s"),
            (true, ..2_000) => None,
            (true, _) => Some("sa"),
            (false, x) if x % 3 == 0 => Some("gone"),
            (false, x) if x % 3 == 1 => None,
            (false, _) => Some("a"),
        };
        let all = (0..20_000).chain(900..2_100);
        let mut expected: Vec<String> = all.clone().filter_map(|x| after(x).map(|p| format!("{p}|{x}"))).collect();
        expected.sort();
        assert_eq!(table.sorted(&["p", "x"], None), expected, "{properties:?}");
        let count = |which: &dyn Fn(i64) -> bool| all.clone().filter(|x| which(*x)).count() as u64;
        assert_eq!(counts.matched_updated, count(&|x| is_matched(x) && after(x).is_some()));
        assert_eq!(counts.matched_deleted, count(&|x| is_matched(x) && after(x).is_none()));
        assert_eq!(counts.unmatched_updated, count(&|x| !is_matched(x) && x % 3 == 0));
        assert_eq!(counts.unmatched_deleted, count(&|x| !is_matched(x) && x % 3 == 1));
    }
}

/// Six files of ten rows, in two partitions.
fn six_files() -> Table {
    let table = Table::new(&[VECTORS], true);
    for (p, first) in [("a", 0), ("a", 100), ("a", 200), ("a", 300), ("b", 0), ("b", 100)] {
        table.write(&(first..first + 10).map(|x| (p, Some(x))).collect::<Vec<_>>());
    }
    table
}

/// How many of [`six_files`] a merge skips by partition values, by statistics and by keys, and how many it reads.
fn skipped(table: &Table, on: &str, rows: &[Row], clauses: &[(When, Option<&str>, ClauseAction)]) -> [u64; 4] {
    let request = MergeRequest { on: on.to_owned(), ..request(clauses) };
    let preview = block_on(async {
        let rows = batch(rows);
        let mut transaction = table.begin().await;
        let source = (rows.schema(), vec![rows]);
        transaction.merge_preview(source, request, (&World, now)).await.unwrap()
    });
    let Preview { skipped_by_partition, skipped_by_statistics, skipped_by_keys, files_read, files_total, .. } = preview;
    assert_eq!(files_total, 6);
    [skipped_by_partition, skipped_by_statistics, skipped_by_keys, files_read]
}

#[test]
fn files_are_read_that_match_or_satisfy_a_clause() {
    let table = six_files();
    let on = "source.x = target.x AND source.p = target.p";
    let one = [("a", Some(5))];
    let gone = |condition: &'static str| (When::NotMatchedBySource, Some(condition), ClauseAction::Delete);
    let changed = |condition: &'static str| {
        let set = vec![("x".to_owned(), NewValue::Expression("target.x + 1000".to_owned()))];
        (When::NotMatchedBySource, Some(condition), ClauseAction::Set(set))
    };
    let update = (When::Matched, None, all());
    assert_eq!(skipped(&table, on, &one, &[update.clone(), gone("target.p = 'b'")]), [0, 0, 3, 3]);
    assert_eq!(skipped(&table, on, &one, &[gone("p = 'b' AND x < 50"), changed("x >= 300")]), [0, 0, 3, 3]);
    // What the condition of the merge says of the target does not rule out files of the clauses.
    let of_a = format!("{on} AND target.p = 'a' AND target.x < 250");
    assert_eq!(skipped(&table, &of_a, &one, &[gone("target.p = 'b' AND target.x < 50")]), [0, 2, 2, 2]);
    assert_eq!(skipped(&table, &of_a, &[], &[gone("target.x >= 300")]), [0, 2, 3, 1]);
    assert_eq!(skipped(&table, on, &[], &[gone("target.p = 'c'")]), [0, 0, 6, 0]);
    // A part of a condition may be no filter; without a filter all files are read.
    assert_eq!(skipped(&table, on, &one, &[gone("p = 'b' AND CAST(x AS STRING) <> ''")]), [0, 0, 3, 3]);
    assert_eq!(skipped(&table, on, &one, &[gone("CAST(x AS STRING) <> ''"), changed("p = 'b'")]), [0, 0, 0, 6]);
    assert_eq!(skipped(&table, "source.p || 'x' < target.p", &one, &[gone("p = 'b'")]), [0, 0, 0, 6]);
    // In a file that a clause needs, rows that match are found.
    let two = [("b", Some(3)), ("b", Some(105))];
    let clauses = [(When::Matched, None, all()), gone("target.p = 'b' AND target.x < 50")];
    let merged = block_on(async {
        let mut transaction = table.begin().await;
        let on = format!("{on} AND target.x < 100");
        let rows = batch(&two);
        let request = MergeRequest { on, ..request(&clauses) };
        let merged = merge(&mut transaction, rows, request).await.unwrap();
        table.commit(transaction).await.unwrap().unwrap();
        merged
    });
    assert_eq!((merged.matched_updated, merged.unmatched_deleted), (1, 9));
    assert_eq!(table.sorted(&["p", "x"], Some("p = 'b' AND x < 50")), ["b|3"]);
}

#[test]
fn a_merge_depends_on_the_rows_that_its_clauses_may_change() {
    let clauses =
        [(When::Matched, None, all()), (When::NotMatchedBySource, Some("target.x < 150"), ClauseAction::Delete)];
    let race = |theirs: &dyn Fn(&Table)| {
        let table = Table::new(&[VECTORS], false);
        table.write(&numbers(100..200));
        let ours = block_on(async {
            let mut ours = table.begin().await;
            merge(&mut ours, batch(&[("m", Some(190)), ("m", Some(500))]), request(&clauses)).await.unwrap();
            ours
        });
        theirs(&table);
        (block_on(table.commit(ours)).map(drop), table)
    };
    for added in [120, 500] {
        let (done, _) = race(&|table| table.write(&[("new", Some(added))]));
        assert_eq!(conflict(&done.unwrap_err()), Conflict::ConcurrentAppend);
    }
    let (done, table) = race(&|table| table.write(&[("new", Some(300))]));
    done.unwrap();
    assert_eq!(table.rows(&["x"], None).len(), 51);
    // A row that neither matches nor satisfies the clause.
    let (done, table) = race(&|table| drop(table.delete("x = 170")));
    done.unwrap();
    assert_eq!(table.rows(&["x"], None).len(), 49);
    let (done, _) = race(&|table| drop(table.delete("x = 120")));
    assert_eq!(conflict(&done.unwrap_err()), Conflict::ConcurrentDeleteDelete);
}

#[test]
fn a_preview_says_what_rules_files_out() {
    let table = six_files();
    let update = [(When::Matched, None, all())];
    let preview = |on: &str, rows: &[Row], clauses| skipped(&table, on, rows, clauses);
    let (of_both, some) = ("source.x = target.x AND source.p = target.p", [("a", Some(5)), ("b", Some(105))]);
    assert_eq!(preview("source.x = target.x", &some, &update), [0, 0, 2, 4]);
    assert_eq!(preview(&format!("{of_both} AND target.p = 'a'"), &some, &update), [2, 0, 2, 2]);
    assert_eq!(preview(&format!("{of_both} AND target.p = 'a' AND target.x < 150"), &some, &update), [2, 2, 0, 2]);
    assert_eq!(preview(of_both, &some[..1], &update), [0, 0, 5, 1]);
    assert_eq!(preview(of_both, &[], &update), [0, 0, 6, 0]);
    // Too many keys to compare each of them: their bounds.
    assert_eq!(preview("source.x = target.x AND target.x < 250", &even(), &update), [0, 1, 0, 5]);
    let many: Vec<Row> = (0..300).map(|x| ("a", Some(x + 50))).collect();
    assert_eq!(preview("source.x = target.x AND target.x < 250", &many, &update), [0, 1, 2, 3]);
    // Every row may be changed.
    let by_source = [(When::NotMatchedBySource, None, ClauseAction::Delete)];
    assert_eq!(preview(&format!("{of_both} AND target.p = 'a'"), &some, &by_source), [0, 0, 0, 6]);
}

/// A string of 4 MiB.
fn long(letter: &str) -> &'static str {
    letter.repeat(4 << 20).leak()
}

#[test]
fn a_large_row_may_match_many_rows() {
    // Of the first source, all pairs and all updated rows would have 2.3 GiB: more than an array of strings can.
    let mut source: Vec<Row> = (2..5_000).map(|x| ("s", Some(x))).collect();
    source.push((long("z"), Some(1)));
    let set = vec![("x".to_owned(), NewValue::Expression("source.x + 6".to_owned()))];
    for properties in [&[][..], &[VECTORS]] {
        let table = Table::new(properties, false);
        table.write(&[("a", Some(1)); 600]);
        let clauses = [(When::Matched, Some("source.p > target.p"), ClauseAction::Set(set.clone()))];
        let counts = block_on(async {
            let mut transaction = table.begin().await;
            let counts = merge(&mut transaction, batch(&source), request(&clauses)).await.unwrap();
            table.commit(transaction).await.unwrap().unwrap();
            counts
        });
        assert_eq!((counts.source, counts.matched_updated), (4_999, 600));
        assert_eq!(table.rows(&["p", "x"], None), vec!["a|7"; 600]);
    }
}

#[test]
fn many_rows_may_match_a_large_row() {
    let table = Table::new(&[], false);
    table.write(&[(long("z"), Some(1)), ("z", Some(2))]);
    let source: Vec<Row> = (0..600).map(|x| ("y", Some(x))).collect();
    let request = MergeRequest {
        on: "source.p < target.p AND target.x < 2".to_owned(),
        ..request(&[(When::Matched, None, ClauseAction::Delete)])
    };
    let counts = block_on(async {
        let mut transaction = table.begin().await;
        let counts = merge(&mut transaction, batch(&source), request).await.unwrap();
        table.commit(transaction).await.unwrap().unwrap();
        counts
    });
    assert_eq!(counts.matched_deleted, 1);
    assert_eq!(table.rows(&["p", "x"], None), ["z|2"]);
}
