//! Distributed DELETE, UPDATE and MERGE, in which tasks read and write the files. Rows, row ids, change data and counts must
//! be those of the same operation in one process, for any condition and any division into tasks.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use deltic_protocol::error::{Kind, Result};
use deltic_protocol::row_update::NewValue;
use deltic_store::Storage;
use deltic_table::changes::{Bound, ChangeFeed};
use deltic_table::dml::{
    Clause, ClauseAction, DistributedRowChange, MergeInserter, MergeKeys, MergeRequest, Places, RowAction, RowChange,
    RowChangeCounts, RowChangeTask, SourceRows, SourceSummary, TaskLimits, When,
};
use deltic_table::scan::read::ReadOptions;
use deltic_table::scan::row_tracking::{ROW_COMMIT_VERSION, ROW_ID};
use deltic_table::transaction::builder::{HandleCache, Ids, Outcome, Transaction, TransactionOptions};
use deltic_table::transaction::row_counts::MergeCounts;
use deltic_table::write::writer::DataWriter;
use futures::{TryStreamExt, stream};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::dml::{FEED, IDS, Row, Table, VECTORS, block_on, now, printed};
use super::sample::add_with;

/// UUIDs that are numbered in their first digits, by which files of this operation are recognized.
struct Numbered;

impl Ids for Numbered {
    fn unique(&self) -> String {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        format!("{:08x}-0000-4000-8000-000000000000", NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// One task per file.
const EACH: TaskLimits = TaskLimits { tasks: 100, bytes: 1 };

/// A statement, with its condition and what it sets or merges.
#[derive(Debug, Clone)]
enum Statement {
    Delete(String),
    Update(String, String),
    Merge(Vec<(Option<&'static str>, Option<i64>)>, Vec<Clause>),
}

impl Statement {
    fn row_change(&self) -> (RowChange, Option<&str>) {
        match self {
            Self::Delete(filter) => (RowChange::Delete, Some(filter)),
            Self::Update(x, filter) => {
                let set = vec![("x".to_owned(), NewValue::Expression(x.clone()))];
                (RowChange::Update(set), Some(filter))
            }
            Self::Merge(rows, clauses) => {
                let p: ArrayRef = Arc::new(rows.iter().map(|row| row.0).collect::<StringArray>());
                let x: ArrayRef = Arc::new(rows.iter().map(|row| row.1).collect::<Int64Array>());
                let batch = RecordBatch::try_from_iter_with_nullable([("p", p, true), ("x", x, true)]).unwrap();
                let request = Box::new(MergeRequest {
                    on: "source.p = target.p AND source.x <=> target.x".to_owned(),
                    source_alias: "source".to_owned(),
                    target_alias: "target".to_owned(),
                    clauses: clauses.clone(),
                    evolves: false,
                    operation: RowAction::Merge,
                });
                (
                    RowChange::Merge { source: (batch.schema(), vec![batch]), source_rows: SourceRows::All, request },
                    None,
                )
            }
        }
    }
}

fn clause(when: When, condition: Option<&str>, action: ClauseAction) -> Clause {
    Clause { when, condition: condition.map(str::to_owned), action, external: None }
}

fn set(column: &str, sql: &str) -> ClauseAction {
    ClauseAction::Set(vec![(column.to_owned(), NewValue::Expression(sql.to_owned()))])
}

/// Runs a statement in one process.
async fn run_in_one_process(tx: &mut Transaction, statement: &Statement) -> Result<RowChangeCounts> {
    let mut done = RowChangeCounts { deleted: Some(0), ..RowChangeCounts::default() };
    match statement.row_change() {
        (RowChange::Delete, filter) => done.deleted = tx.delete(filter, now).await?,
        (RowChange::Update(set), filter) => done.updated = tx.update(set, filter, now).await?,
        (RowChange::Merge { source, request, .. }, _) => {
            done.merged = tx.merge(source, *request, (&Numbered, now)).await?
        }
    }
    Ok(done)
}

async fn planned(tx: &mut Transaction, statement: &Statement, limits: TaskLimits) -> Result<DistributedRowChange> {
    Ok(tx.plan_row_change(statement.row_change(), limits, (&Numbered, now)).await?.unwrap())
}

async fn run_task(storage: &Storage, task: &[u8], statement: &Statement) -> Result<Vec<u8>> {
    let task = RowChangeTask::from_bytes(task)?;
    assert_eq!(task.location(), storage.location());
    task.carry_out(storage.clone(), statement.row_change().0, now).await
}

/// Runs a statement by tasks, and applies their results in reverse order.
async fn run_by_tasks(
    table: &Table,
    tx: &mut Transaction,
    statement: &Statement,
    limits: TaskLimits,
) -> Result<RowChangeCounts> {
    let planned = planned(tx, statement, limits).await?;
    let mut results = Vec::new();
    for task in planned.tasks()?.iter().rev() {
        results.push(run_task(&table.sample.storage, task, statement).await?);
    }
    planned.apply(tx, (&results, Vec::new()), now).await
}

/// The number of a row in a divided source.
fn number_of(row: usize) -> i64 {
    i64::try_from(row).unwrap() * 3 + (1 << 33)
}

/// Like [`run_by_tasks`], with a divided source: a task gets the rows whose keys are in its files.
async fn run_with_divided_source(
    table: &Table,
    tx: &mut Transaction,
    statement: &Statement,
    limits: TaskLimits,
) -> Result<RowChangeCounts> {
    let (RowChange::Merge { source: (schema, batches), request, .. }, _) = statement.row_change() else {
        return run_by_tasks(table, tx, statement, limits).await;
    };
    let storage = &table.sample.storage;
    let rows = &batches[0];
    let merge = |batches, source_rows| RowChange::Merge {
        source: (Arc::clone(&schema), batches),
        source_rows,
        request: request.clone(),
    };
    let keys = tx.merge_keys(&schema, &request, (&Numbered, now)).await?.unwrap();
    let half = rows.num_rows() / 2;
    let halves = [rows.slice(0, half), rows.slice(half, rows.num_rows() - half)];
    let mut summaries = Vec::new();
    for half in &halves {
        let mut summary = SourceSummary::new(Some(MergeKeys::from_bytes(&keys)?));
        summary.add(half)?;
        summaries.push(summary.to_batch()?);
    }
    let elsewhere = merge(Vec::new(), SourceRows::Elsewhere(summaries));
    let planned = tx.plan_row_change((elsewhere, None), limits, (&Numbered, now)).await?.unwrap();
    let hashes = MergeKeys::from_bytes(&keys)?.hashes(rows)?;
    let mut results = Vec::new();
    for task in planned.tasks()? {
        let of_task = RowChangeTask::from_bytes(&task)?.key_hashes(storage.clone(), MergeKeys::from_bytes(&keys)?)?;
        let found: Vec<RecordBatch> = of_task.1.try_collect().await?;
        let found: HashSet<i64> =
            found.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect();
        let needed: Vec<usize> =
            (0..rows.num_rows()).filter(|row| hashes.is_valid(*row) && found.contains(&hashes.value(*row))).collect();
        let numbers = needed.iter().map(|row| number_of(*row)).collect();
        let part = needed.iter().map(|row| rows.slice(*row, 1)).collect();
        let task = RowChangeTask::from_bytes(&task)?;
        results.push(task.carry_out(storage.clone(), merge(part, SourceRows::Part(numbers)), now).await?);
    }
    let mut inserted = Vec::new();
    if let Some(spec) = planned.inserts(tx, &results)? {
        for at in 0..planned.num_insert_schemas() {
            let plan = planned.plan_inserts(tx, at, &inserted)?;
            let inserter = MergeInserter::new(&spec, Arc::clone(&schema), *request.clone(), at)?;
            let numbers: Int64Array = (0..rows.num_rows()).map(number_of).collect();
            let new = inserter.rows(&halves[0], &numbers.slice(0, half))?;
            let more = inserter.rows(&halves[1], &numbers.slice(half, rows.num_rows() - half))?;
            let writer = DataWriter::new(storage.clone(), &plan.spec.of_task(Some(0))?, now)?;
            inserted.extend(writer.write_all(stream::iter(new.chain(more))).await?);
        }
    }
    planned.apply(tx, (&results, inserted), now).await
}

/// The counts that do not depend on the clock or the number of written files. Without `of_files`, also without those that
/// depend on the number of old files.
fn counts(outcome: Option<&Outcome>, of_files: bool) -> BTreeMap<String, Value> {
    let varying = ["Ms", "Bytes", "AddedFiles", "FilesAdded", "ChangeFiles"];
    let of_old_files = ["Files", "DeletionVectors", "Copied", "numOutputRows"];
    let is_any = |name: &str, words: &[&str]| words.iter().any(|word| name.contains(word));
    let varies = |name: &str| is_any(name, &varying) || (!of_files && is_any(name, &of_old_files));
    let of = |outcome: &Outcome| outcome.metrics.clone().into_iter().filter(|(name, _)| !varies(name)).collect();
    outcome.map(of).unwrap_or_default()
}

fn changed_rows(table: &Table) -> Vec<String> {
    block_on(async {
        let version = table.sample.open().await.unwrap().version();
        let start = Some(Bound::Version(version));
        let feed = ChangeFeed::plan(&table.sample.log, start, None, None, None).await.unwrap();
        let feed = feed.read(ReadOptions::default()).unwrap().try_collect::<Vec<RecordBatch>>().await.unwrap();
        // All columns but the commit time.
        let mut rows: Vec<String> =
            feed.iter().flat_map(|rows| printed(&rows.project(&[0, 1, 2, 3]).unwrap())).collect();
        rows.sort();
        rows
    })
}

#[derive(Debug, Clone)]
struct Case {
    properties: Vec<(&'static str, &'static str)>,
    partitioned: bool,
    files: Vec<Vec<Row>>,
    statements: Vec<Statement>,
    limits: TaskLimits,
}

fn clauses() -> impl Strategy<Value = Vec<Clause>> {
    let condition = prop::sample::select(vec!["target.x > 3", "target.p = 'a'", "target.x IS NULL"]);
    let matched = (prop::option::of(condition.clone()), any::<bool>()).prop_map(|(condition, deletes)| {
        let action = if deletes { ClauseAction::Delete } else { set("x", "source.x + 100") };
        clause(When::Matched, condition, action)
    });
    let by_source = (prop::option::of(condition), any::<bool>()).prop_map(|(condition, deletes)| {
        let action = if deletes { ClauseAction::Delete } else { set("x", "target.x - 50") };
        clause(When::NotMatchedBySource, condition, action)
    });
    let inserted = prop::option::of(Just("source.x < 6"))
        .prop_map(|condition| clause(When::NotMatched, condition, ClauseAction::All { except: Vec::new() }));
    (prop::option::of(matched), prop::option::of(inserted), prop::option::of(by_source))
        .prop_map(|(one, two, three)| [one, two, three].into_iter().flatten().collect::<Vec<_>>())
        .prop_filter("a merge has clauses", |clauses| !clauses.is_empty())
}

fn statements() -> impl Strategy<Value = Statement> {
    let leaf = prop_oneof![
        (0_i64..8).prop_map(|x| format!("x = {x}")),
        (0_i64..8).prop_map(|x| format!("x <= {x}")),
        Just("x IS NULL".to_owned()),
        prop::sample::select(vec!["a", "b", "c"]).prop_map(|p| format!("p >= '{p}'")),
    ];
    let filter = (leaf.clone(), prop::sample::select(vec!["AND", "OR"]), leaf)
        .prop_map(|(one, op, other)| format!("({one} {op} {other})"));
    let source = prop::collection::btree_set(
        (
            prop::option::weighted(0.9, prop::sample::select(vec!["a", "b", "c", "d"])),
            prop::option::weighted(0.9, 0_i64..8),
        ),
        0..8,
    );
    prop_oneof![
        filter.clone().prop_map(Statement::Delete),
        filter.prop_map(|filter| Statement::Update("x + 1".to_owned(), filter)),
        (source, clauses()).prop_map(|(rows, clauses)| Statement::Merge(rows.into_iter().collect(), clauses)),
    ]
}

fn cases() -> impl Strategy<Value = Case> {
    let row = (prop::sample::select(vec!["a", "b", "c"]), prop::option::weighted(0.9, 0_i64..8));
    let files = prop::collection::vec(prop::collection::vec(row, 1..12), 1..5);
    let properties = prop::sample::subsequence(vec![VECTORS, IDS, FEED], 0..=3);
    let limits = (1_usize..6).prop_map(|tasks| TaskLimits { tasks, bytes: 1 });
    (properties, any::<bool>(), files, prop::collection::vec(statements(), 1..4), limits).prop_map(
        |(properties, partitioned, files, statements, limits)| Case {
            properties,
            partitioned,
            files,
            statements,
            limits,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn tasks_do_what_one_process_does(case in cases(), divides in any::<bool>()) {
        let [one, other] = [(); 2].map(|()| Table::new(&case.properties, case.partitioned));
        for table in [&one, &other] {
            case.files.iter().for_each(|rows| table.write(rows));
        }
        for (number, statement) in case.statements.iter().enumerate() {
            let mut columns = vec!["p", "x"];
            if case.properties.contains(&IDS) {
                columns.push(ROW_COMMIT_VERSION);
                // Tasks write more files, which changes the row ids of later rows.
                columns.extend((number == 0).then_some(ROW_ID));
            }
            let (done, ended) = block_on(async {
                let (mut mine, mut theirs) = (one.begin().await, other.begin().await);
                let done_by_tasks = match divides {
                    true => run_with_divided_source(&other, &mut theirs, statement, case.limits).await,
                    false => run_by_tasks(&other, &mut theirs, statement, case.limits).await,
                };
                let done = (run_in_one_process(&mut mine, statement).await, done_by_tasks);
                (done, (one.commit(mine).await.unwrap(), other.commit(theirs).await.unwrap()))
            });
            match done {
                (Ok(mine), Ok(theirs)) => prop_assert_eq!(mine, theirs),
                (mine, theirs) => prop_assert!(false, "{:?} and {:?}", mine, theirs),
            }
            prop_assert_eq!(one.sorted(&columns, None), other.sorted(&columns, None));
            // Tasks write more files, which changes counts of the next statement.
            prop_assert_eq!(counts(ended.0.as_ref(), number == 0), counts(ended.1.as_ref(), number == 0));
            prop_assert_eq!(ended.0.is_some(), ended.1.is_some());
            if case.properties.contains(&FEED) && ended.0.is_some() {
                prop_assert_eq!(changed_rows(&one), changed_rows(&other));
            }
        }
        // Every file on disk is named by some version.
        let named: usize = (0..=block_on(other.sample.open()).unwrap().version())
            .flat_map(|version| other.sample.read(version))
            .filter(|action| action["add"]["deletionVector"].is_null() && !action["add"].is_null() || !action["cdc"].is_null())
            .count();
        prop_assert_eq!(other.on_disk().iter().filter(|path| path.ends_with(".parquet")).count(), named);
    }
}

/// Timestamps in two strings that are one value, if the first is in UTC: only its writer knows that.
#[test]
fn tasks_keep_the_strings_of_partition_values() {
    let strings = ["2020-01-01 00:00:00", "2020-01-01T00:00:00.000000Z"];
    let delete = Statement::Delete("x % 2 = 0".to_owned());
    let update = Statement::Update("x + 10".to_owned(), "x % 2 = 0".to_owned());
    let cases = [&[][..], &[FEED], &[VECTORS, FEED]];
    let cases = cases.iter().flat_map(|properties| [&delete, &update].map(|statement| (properties, statement)));
    for ((properties, statement), limits) in
        cases.flat_map(|case| [(case, EACH), (case, TaskLimits { tasks: 1, bytes: 1 })])
    {
        let table = Table::new(properties, true);
        let mut created = table.sample.read(0);
        for action in created.iter_mut().filter(|action| action.get("metaData").is_some()) {
            let schema = action["metaData"]["schemaString"].as_str().unwrap();
            assert!(schema.contains(r#""type":"string""#), "{schema}");
            action["metaData"]["schemaString"] = schema.replace(r#""string""#, r#""timestamp""#).into();
        }
        table.sample.commit(0, &created);
        table.sample.delete("00000000000000000000.crc");
        for (number, string) in (0..).zip(strings) {
            let x: ArrayRef = Arc::new(Int64Array::from(vec![2 * number, 2 * number + 1]));
            let (path, batch) = (format!("{number}.parquet"), RecordBatch::try_from_iter([("x", x)]).unwrap());
            let size = table.sample.data_file(&path, &batch);
            let members = json!({"partitionValues": {"p": string}, "size": size, "stats": "{\"numRecords\":2}"});
            table.sample.commit(1 + number.cast_unsigned(), &[add_with(&path, members)]);
        }
        block_on(async {
            let mut tx = table.begin().await;
            run_by_tasks(&table, &mut tx, statement, limits).await.unwrap();
            table.commit(tx).await.unwrap();
        });
        for kind in ["add", "cdc"] {
            let files = table.last(kind);
            let written: BTreeSet<&str> =
                files.iter().filter_map(|file| file["partitionValues"]["p"].as_str()).collect();
            let marks_alone = properties.contains(&VECTORS) && matches!(statement, Statement::Delete(_));
            let expected = match kind {
                "cdc" if marks_alone || properties.is_empty() => BTreeSet::new(),
                _ => BTreeSet::from(strings),
            };
            assert_eq!(written, expected, "{kind}, {properties:?}, {statement:?}");
        }
    }
}

/// A table with four files of two rows, each touched by all statements of [`one_of_each`].
fn four_files(properties: &[(&str, &str)]) -> Table {
    let table = Table::new(properties, false);
    for x in 0..4 {
        table.write(&[("a", Some(x)), ("b", Some(x + 10))]);
    }
    table
}

fn source(rows: &[(&'static str, i64)]) -> Vec<(Option<&'static str>, Option<i64>)> {
    rows.iter().map(|(p, x)| (Some(*p), Some(*x))).collect()
}

fn one_of_each() -> Vec<Statement> {
    let upsert = vec![
        clause(When::Matched, None, set("x", "source.x + 100")),
        clause(When::NotMatched, None, ClauseAction::All { except: Vec::new() }),
    ];
    vec![
        Statement::Delete("x < 4".to_owned()),
        Statement::Update("x + 1".to_owned(), "x < 4".to_owned()),
        Statement::Merge(source(&[("a", 0), ("a", 1), ("a", 2), ("a", 3), ("c", 7)]), upsert),
    ]
}

#[test]
fn results_of_tasks_are_checked() {
    for (properties, statement) in
        [&[][..], &[FEED], &[VECTORS, FEED]].iter().flat_map(|p| one_of_each().into_iter().map(move |a| (p, a)))
    {
        let table = four_files(properties);
        let (before, rows) = (table.on_disk(), table.sorted(&["p", "x"], None));
        block_on(async {
            let storage = &table.sample.storage;
            let results = async |tx: &mut Transaction| {
                let planned = planned(tx, &statement, EACH).await.unwrap();
                let tasks = planned.tasks().unwrap();
                assert_eq!(tasks.len(), 4);
                let mut results = Vec::new();
                for task in &tasks {
                    results.push(run_task(storage, task, &statement).await.unwrap());
                }
                (planned, tasks, results)
            };
            let mut tx = table.begin().await;
            // A discarded operation leaves no files.
            let (given_up, _, of_others) = results(&mut tx).await;
            given_up.discard(&mut tx).await;
            assert_eq!(table.on_disk(), before);
            let kind = std::mem::discriminant(&statement);
            let other = one_of_each().into_iter().find(|other| std::mem::discriminant(other) != kind).unwrap();
            // A missing result, a duplicate, results of another operation, a task, wrong rows, a wrong file, another statement.
            for number in 0..7 {
                let (run, tasks, mut results) = results(&mut tx).await;
                let edited = |result: &[u8], from: &str, to: &str| {
                    let text = String::from_utf8(result.to_vec()).unwrap();
                    assert!(text.contains(from), "{text}");
                    text.replacen(from, to, 1).into_bytes()
                };
                let message = match number {
                    0 => {
                        results.pop();
                        "result of a task is missing"
                    }
                    1 => {
                        results[0] = results[1].clone();
                        "twice"
                    }
                    2 => {
                        results.clone_from(&of_others);
                        "another operation"
                    }
                    3 => {
                        results[0] = tasks[0].clone();
                        "not a result of a task"
                    }
                    4 => {
                        results[0] = edited(&results[0], "\"physicalRows\":2", "\"physicalRows\":3");
                        "rows that the file does not have"
                    }
                    5 => {
                        results[0] =
                            edited(&results[0], "\"touched\":[{\"path\":\"part", "\"touched\":[{\"path\":\"past");
                        "was not given"
                    }
                    _ => {
                        results[0] = run_task(storage, &tasks[0], &other).await.unwrap();
                        "another operation than it was planned for"
                    }
                };
                let error = run.apply(&mut tx, (&results, Vec::new()), now).await.unwrap_err();
                assert!(error.to_string().contains(message), "{number}: {error}");
                assert_eq!((error.kind(), table.on_disk()), (&Kind::Invalid, before.clone()), "{number}");
            }
            // The failures left the transaction unchanged. A task that runs twice counts once.
            let (run, tasks, results) = results(&mut tx).await;
            run_task(storage, &tasks[1], &statement).await.unwrap();
            run.apply(&mut tx, (&results, Vec::new()), now).await.unwrap();
            table.commit(tx).await.unwrap().unwrap();
        });
        let alone_table = four_files(properties);
        block_on(async {
            let mut tx = alone_table.begin().await;
            run_in_one_process(&mut tx, &statement).await.unwrap();
            alone_table.commit(tx).await.unwrap().unwrap();
        });
        assert_ne!(table.sorted(&["p", "x"], None), rows);
        assert_eq!(table.sorted(&["p", "x"], None), alone_table.sorted(&["p", "x"], None));
    }
}

/// Changes the result of a task. The second argument is the result of another task.
type Edit = fn(&mut Value, &Value);

#[test]
fn inconsistent_results_are_refused() {
    for properties in [&[FEED][..], &[VECTORS, FEED]] {
        let statement = one_of_each().remove(2);
        let table = four_files(properties);
        let before = table.on_disk();
        block_on(async {
            let mut tx = table.begin().await;
            let edits: [(&str, Edit); 9] = [
                ("no task of this operation wrote", |one, _| {
                    one["rewritten"][0]["add"]["path"] = json!("part-0.parquet")
                }),
                ("was returned twice", |one, other| one["rewritten"][0] = other["rewritten"][0].clone()),
                ("was returned twice", |one, _| one["changes"][0] = one["rewritten"][0].clone()),
                ("have", |one, _| one["rewritten"] = json!([])),
                ("have", |one, _| one["changes"][0]["rows"] = json!(1)),
                ("counted other rows", |one, _| one["merged"]["counts"]["matched_updated"] = json!(2)),
                ("another source", |one, _| one["merged"]["sourceRows"] = json!(6)),
                ("was not given", |one, other| one["merged"]["unchanged"] = json!([other["touched"][0]["path"]])),
                ("returned no matches of the source", |one, _| one["merged"] = Value::Null),
            ];
            for (message, edit) in edits {
                let planned = planned(&mut tx, &statement, EACH).await.unwrap();
                let mut results = Vec::new();
                for task in planned.tasks().unwrap() {
                    let result = run_task(&table.sample.storage, &task, &statement).await.unwrap();
                    results.push(serde_json::from_slice::<Value>(&result).unwrap());
                }
                let other = results[1]["body"]["end"]["changed"].clone();
                edit(&mut results[0]["body"]["end"]["changed"], &other);
                let results: Vec<Vec<u8>> = results.iter().map(|result| serde_json::to_vec(result).unwrap()).collect();
                let error = planned.apply(&mut tx, (&results, Vec::new()), now).await.unwrap_err();
                assert!(error.to_string().contains(message), "{message}: {error}");
                assert_eq!((error.kind(), table.on_disk()), (&Kind::Invalid, before.clone()), "{message}");
            }
            tx.abandon().await;
        });
    }
}

#[test]
fn files_of_inserted_rows_are_checked() {
    let statement = one_of_each().remove(2);
    let (RowChange::Merge { source: (schema, batches), request, .. }, _) = statement.row_change() else { panic!() };
    let table = four_files(&[]);
    let before = table.on_disk();
    block_on(async {
        let (storage, log) = (&table.sample.storage, &table.sample.log);
        let begun = Transaction::begin(log, HandleCache::default(), TransactionOptions::default(), &Numbered);
        let mut tx = begun.await.unwrap();
        let keys = tx.merge_keys(&schema, &request, (&Numbered, now)).await.unwrap().unwrap();
        let mut summary = SourceSummary::new(Some(MergeKeys::from_bytes(&keys).unwrap()));
        summary.add(&batches[0]).unwrap();
        for (number, message) in [
            (0, "no task of this operation wrote"),
            (1, "returned twice"),
            (2, "not in the table's store"),
            (3, "more rows"),
        ] {
            let merge = |batches, source_rows| RowChange::Merge {
                source: (Arc::clone(&schema), batches),
                source_rows,
                request: request.clone(),
            };
            let elsewhere = merge(Vec::new(), SourceRows::Elsewhere(vec![summary.to_batch().unwrap()]));
            let planned = tx.plan_row_change((elsewhere, None), EACH, (&Numbered, now)).await.unwrap().unwrap();
            let mut results = Vec::new();
            for task in planned.tasks().unwrap() {
                let numbers = SourceRows::Part((0..batches[0].num_rows()).map(number_of).collect());
                let task = RowChangeTask::from_bytes(&task).unwrap();
                results.push(task.carry_out(storage.clone(), merge(batches.clone(), numbers), now).await.unwrap());
            }
            let spec = planned.inserts(&mut tx, &results).unwrap().unwrap();
            let inserter = MergeInserter::new(&spec, Arc::clone(&schema), *request.clone(), 0).unwrap();
            let all = || (0..batches[0].num_rows()).map(number_of);
            let inserted = inserter.rows(&batches[0], &all().collect()).unwrap();
            assert_eq!(inserted.map(|rows| rows.unwrap().num_rows()).sum::<usize>(), 1);
            for wrong in
                [all().skip(1).collect(), all().map(|number| (number != number_of(0)).then_some(number)).collect()]
            {
                let refused = inserter.rows(&batches[0], &wrong).err().unwrap();
                assert!(refused.to_string().contains("without their numbers"), "{refused}");
            }
            let plan = planned.plan_inserts(&mut tx, 0, &[]).unwrap();
            let writer = DataWriter::new(storage.clone(), &plan.spec, now).unwrap();
            // One row of the source has no match; the last case inserts two.
            let rows = batches[0].slice(4 - usize::from(number == 3), 1 + usize::from(number == 3));
            let mut files = writer.write_all(stream::iter([Ok(rows)])).await.unwrap();
            match number {
                0 => files[0].add.path = "part-0.parquet".to_owned(),
                1 => files.push(files[0].clone()),
                2 => std::fs::remove_file(table.sample.path(&files[0].add.path)).unwrap(),
                _ => {}
            }
            let error = planned.apply(&mut tx, (&results, files), now).await.unwrap_err();
            assert!(error.to_string().contains(message), "{message}: {error}");
            assert_eq!(error.kind(), &Kind::Invalid);
        }
        tx.abandon().await;
    });
    // Files of tasks are deleted; those of inserted rows are left to the caller.
    assert_eq!(table.on_disk().iter().filter(|path| !before.contains(*path)).count(), 3);
}

/// What an engine computes: twice `x` for the rows of a task that have an even one, with their places.
async fn computed(storage: &Storage, task: &[u8]) -> (RecordBatch, Places) {
    let task = RowChangeTask::from_bytes(task).unwrap();
    let (schema, rows) = task.rows(storage.clone(), vec!["x".to_owned()]).unwrap();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["x", "_metadata.row_index", "_metadata.file_number"]);
    let rows: Vec<RecordBatch> = rows.try_collect().await.unwrap();
    let rows = rows.iter().flat_map(|rows| {
        let [x, position, file] = [0, 1, 2].map(|at| rows.column(at).as_primitive::<Int64Type>());
        (0..rows.num_rows()).map(|row| (x.is_valid(row).then(|| x.value(row)), position.value(row), file.value(row)))
    });
    let rows: Vec<_> =
        rows.filter_map(|(x, position, file)| Some((x.filter(|x| x % 2 == 0)?, position, file))).collect();
    let twice: ArrayRef = Arc::new(rows.iter().map(|row| Some(row.0 * 2)).collect::<Int64Array>());
    let places = Places {
        numbers: rows.iter().map(|_| None::<i64>).collect(),
        files: rows.iter().map(|row| Some(row.2)).collect(),
        positions: rows.iter().map(|row| Some(row.1)).collect(),
    };
    (RecordBatch::try_from_iter_with_nullable([("twice", twice, true)]).unwrap(), places)
}

#[test]
fn rows_change_at_their_places() {
    let table = four_files(&[]);
    let none: ArrayRef = Arc::new(Int64Array::from(Vec::<i64>::new()));
    let schema = RecordBatch::try_from_iter_with_nullable([("twice", none, true)]).unwrap().schema();
    let update = |rows: Vec<RecordBatch>, source_rows| RowChange::Merge {
        source: (Arc::clone(&schema), rows),
        source_rows,
        request: Box::new(MergeRequest {
            on: "TRUE".to_owned(),
            source_alias: "s".to_owned(),
            target_alias: "t".to_owned(),
            clauses: vec![clause(When::Matched, Some("s.twice > 4"), set("x", "s.twice"))],
            evolves: false,
            operation: RowAction::Update,
        }),
    };
    block_on(async {
        let storage = &table.sample.storage;
        let mut tx = table.begin().await;
        let summary = SourceSummary::new(None).to_batch().unwrap();
        let elsewhere = update(Vec::new(), SourceRows::Elsewhere(vec![summary]));
        let planned = tx.plan_row_change((elsewhere, Some("x < 100")), EACH, (&Numbered, now)).await.unwrap().unwrap();
        let tasks = planned.tasks().unwrap();
        let (mut results, mut updated) = (Vec::new(), 0);
        for task in &tasks {
            let (rows, places) = computed(storage, task).await;
            updated += rows.column(0).as_primitive::<Int64Type>().values().iter().filter(|twice| **twice > 4).count();
            for (files, positions, message) in [
                (vec![7; rows.num_rows()], places.positions.clone(), "that the task does not have"),
                (vec![0; rows.num_rows()], vec![1 << 40; rows.num_rows()].into(), "other rows than before"),
            ] {
                let wrong = Places { files: files.into(), positions, ..places.clone() };
                let wrong = update(vec![rows.clone()], SourceRows::Placed(Box::new(wrong)));
                let result = RowChangeTask::from_bytes(task).unwrap().carry_out(storage.clone(), wrong, now).await;
                let result = String::from_utf8(result.unwrap()).unwrap();
                assert!(rows.num_rows() == 0 || result.contains(message), "{message}: {result}");
            }
            let placed = update(vec![rows], SourceRows::Placed(Box::new(places)));
            let task = RowChangeTask::from_bytes(task).unwrap();
            results.push(task.carry_out(storage.clone(), placed, now).await.unwrap());
        }
        let counts = planned.apply(&mut tx, (&results, Vec::new()), now).await.unwrap();
        assert_eq!((counts.updated, counts.merged), (updated as u64, MergeCounts::default()));
        assert!(updated > 0 && tasks.len() > 1);
        table.commit(tx).await.unwrap().unwrap();
    });
    let known = four_files(&[]);
    block_on(async {
        let mut tx = known.begin().await;
        let set = vec![("x".to_owned(), NewValue::Expression("x * 2".to_owned()))];
        tx.update(set, Some("x < 100 AND x % 2 = 0 AND x > 2"), now).await.unwrap();
        known.commit(tx).await.unwrap().unwrap();
    });
    assert_eq!(table.sorted(&["p", "x"], None), known.sorted(&["p", "x"], None));
}

#[test]
fn wrong_parts_of_a_divided_source_are_refused() {
    let statement = one_of_each().remove(2);
    let (RowChange::Merge { source: (schema, batches), request, .. }, _) = statement.row_change() else { panic!() };
    let merge = |rows: usize, source_rows| RowChange::Merge {
        source: (Arc::clone(&schema), vec![batches[0].slice(0, rows)]),
        source_rows,
        request: request.clone(),
    };
    let table = four_files(&[]);
    let before = table.on_disk();
    block_on(async {
        let storage = &table.sample.storage;
        let mut tx = table.begin().await;
        let keys = tx.merge_keys(&schema, &request, (&Numbered, now)).await.unwrap().unwrap();
        let summary = SourceSummary::new(Some(MergeKeys::from_bytes(&keys).unwrap())).to_batch().unwrap();
        // A plan needs summaries of the same merge.
        let without_keys = SourceSummary::new(None).to_batch().unwrap();
        let of_text: ArrayRef = Arc::new(StringArray::from(vec!["5"]));
        let foreign = RecordBatch::try_from_iter([("rows", of_text)]).unwrap();
        for (source_rows, message) in [
            (SourceRows::Elsewhere(vec![without_keys]), "summary of a source is not readable"),
            (SourceRows::Elsewhere(vec![foreign]), "summary of a source is not readable"),
            (SourceRows::Part(Int64Array::from(vec![1])), "cannot be planned with a part of its source"),
        ] {
            let planned = tx.plan_row_change((merge(0, source_rows), None), EACH, (&Numbered, now)).await;
            let error = planned.err().unwrap();
            assert!(error.to_string().contains(message), "{error}");
        }
        // A task needs rows with their numbers.
        let elsewhere = || merge(0, SourceRows::Elsewhere(vec![summary.clone()]));
        let planned = tx.plan_row_change((elsewhere(), None), EACH, (&Numbered, now)).await.unwrap().unwrap();
        assert_eq!(planned.num_tasks(), 0, "the source has no rows");
        planned.forget(&mut tx);
        let all = self::planned(&mut tx, &statement, EACH).await.unwrap();
        for (source_rows, message) in [
            (SourceRows::Part(Int64Array::from(vec![1])), "without their numbers"),
            (SourceRows::Part(Int64Array::from(vec![Some(1), None])), "without their numbers"),
            (SourceRows::Elsewhere(vec![summary.clone()]), "needs rows of the source"),
        ] {
            let task = RowChangeTask::from_bytes(&all.tasks().unwrap()[0]).unwrap();
            let result = task.carry_out(storage.clone(), merge(2, source_rows), now).await.unwrap();
            assert!(String::from_utf8(result).unwrap().contains(message), "{message}");
        }
        assert_eq!(all.num_insert_schemas(), 0, "the planner has the source");
        all.discard(&mut tx).await;
        for bytes in [&b""[..], b"{}", &all_but_last(&keys)] {
            assert_eq!(MergeKeys::from_bytes(bytes).unwrap_err().kind(), &Kind::Invalid);
            let inserter = MergeInserter::new(bytes, Arc::clone(&schema), *request.clone(), 0);
            assert_eq!(inserter.unwrap_err().kind(), &Kind::Invalid);
        }
        tx.abandon().await;
    });
    assert_eq!(table.on_disk(), before);
}

fn all_but_last(bytes: &[u8]) -> Vec<u8> {
    bytes[..bytes.len() - 1].to_vec()
}

#[test]
fn a_file_of_another_store_is_not_committed() {
    let statement = Statement::Update("x + 1".to_owned(), "x < 4".to_owned());
    let table = four_files(&[]);
    let (before, rows) = (table.on_disk(), table.sorted(&["p", "x"], None));
    block_on(async {
        let mut tx = table.begin().await;
        let planned = planned(&mut tx, &statement, EACH).await.unwrap();
        let mut results = Vec::new();
        for task in planned.tasks().unwrap() {
            results.push(run_task(&table.sample.storage, &task, &statement).await.unwrap());
        }
        // As if a task had written it to a copy of the table.
        let written = table.on_disk().into_iter().find(|path| !before.contains(path)).unwrap();
        std::fs::remove_file(table.sample.path(&written)).unwrap();
        let error = planned.apply(&mut tx, (&results, Vec::new()), now).await.unwrap_err();
        assert!(
            error.to_string().contains("not in the table's store") && error.path() == Some(written.as_str()),
            "{error}"
        );
        tx.abandon().await;
    });
    assert_eq!((table.on_disk(), table.sorted(&["p", "x"], None)), (before, rows));
}

#[test]
fn errors_of_tasks_are_those_of_one_process() {
    let statement = [
        Statement::Update("10 div (x - 2)".to_owned(), "x < 4".to_owned()),
        Statement::Merge(source(&[("a", 1), ("a", 1)]), vec![clause(When::Matched, None, set("x", "source.x"))]),
    ];
    for (statement, properties) in
        statement.iter().flat_map(|statement| [&[][..], &[VECTORS, FEED]].map(|p| (statement, p)))
    {
        let table = four_files(properties);
        let before = table.on_disk();
        block_on(async {
            let mut tx = table.begin().await;
            let mine = run_in_one_process(&mut tx, statement).await.unwrap_err();
            let theirs = run_by_tasks(&table, &mut tx, statement, EACH).await.unwrap_err();
            assert_eq!((mine.kind(), mine.to_string()), (theirs.kind(), theirs.to_string()));
            assert_eq!(*mine.kind(), Kind::Invalid);
            tx.abandon().await;
        });
        assert_eq!(table.on_disk(), before);
    }
}

#[test]
fn conflicts_are_those_of_one_process() {
    for properties in [&[][..], &[VECTORS]] {
        for statement in one_of_each() {
            let table = four_files(properties);
            block_on(async {
                let mut ours = table.begin().await;
                run_by_tasks(&table, &mut ours, &statement, EACH).await.unwrap();
                // The winner deletes another row of the same file.
                table_delete(&table, "x = 12").await;
                let ended = table.commit(ours).await;
                match properties.is_empty() {
                    true => assert!(matches!(ended.unwrap_err().kind(), Kind::Conflict(_))),
                    false => assert_eq!(ended.unwrap().unwrap().committed.attempts, 2),
                }
                // The winner deletes the same row.
                let mut ours = table.begin().await;
                let again = Statement::Update("x + 1000".to_owned(), "x IN (11, 13)".to_owned());
                run_by_tasks(&table, &mut ours, &again, EACH).await.unwrap();
                table_delete(&table, "x = 11").await;
                let before = table.on_disk();
                assert!(matches!(table.commit(ours).await.unwrap_err().kind(), Kind::Conflict(_)));
                assert!(table.on_disk().len() < before.len(), "files of the failed commit are not deleted");
            });
            assert_eq!(table.sorted(&["x"], Some("x IN (11, 12, 13, 1013)")), ["13"]);
        }
    }
}

async fn table_delete(table: &Table, filter: &str) {
    let mut theirs = table.begin().await;
    theirs.delete(Some(filter), now).await.unwrap();
    table.commit(theirs).await.unwrap().unwrap();
}

#[test]
fn few_bytes_are_one_task_and_pruned_files_are_none() {
    let table = four_files(&[VECTORS]);
    block_on(async {
        let mut tx = table.begin().await;
        let statement = Statement::Delete("x = 13".to_owned());
        for (limits, tasks) in
            [(EACH, 1), (TaskLimits { bytes: 1 << 20, ..EACH }, 1), (TaskLimits { tasks: 3, bytes: 1 }, 1)]
        {
            let planned = planned(&mut tx, &statement, limits).await.unwrap();
            assert_eq!(planned.tasks().unwrap().len(), tasks, "statistics do not prune to one file");
            planned.discard(&mut tx).await;
        }
        for (limits, tasks) in
            [(EACH, 4), (TaskLimits { bytes: 1 << 20, ..EACH }, 1), (TaskLimits { tasks: 3, bytes: 1 }, 3)]
        {
            let planned = planned(&mut tx, &Statement::Delete("p = 'b'".to_owned()), limits).await.unwrap();
            assert_eq!(planned.tasks().unwrap().len(), tasks);
            planned.discard(&mut tx).await;
        }
        let all = Statement::Delete("x >= 0".to_owned());
        let planned = planned(&mut tx, &all, EACH).await.unwrap();
        assert!(planned.tasks().unwrap().is_empty());
        let done = planned.apply(&mut tx, (&[] as &[Vec<u8>], Vec::new()), now).await.unwrap();
        assert_eq!(done.deleted, Some(8));
        // A distributed operation must be the first of its transaction.
        let error = tx.plan_row_change(all.row_change(), EACH, (&Numbered, now)).await.err().unwrap();
        assert!(error.to_string().contains("has changed something already"), "{error}");
        table.commit(tx).await.unwrap().unwrap();
    });
    assert!(table.files().is_empty());
}
