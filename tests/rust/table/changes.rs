//! The change data feed. Tables are made of commits as JSON and data files from the parquet crate. Rows are compared as
//! strings, with values separated by bars.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{ArrayRef, Date32Array, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType as ArrowType, Field, Schema, TimeUnit};
use deltic_protocol::deletion_vector::DeletionVector;
use deltic_protocol::error::{Error, Kind, Result};
use deltic_protocol::log::name::commit_name;
use deltic_store::Storage;
use deltic_table::changes::{Bound, ChangeFeed};
use deltic_table::log::LogSource;
use deltic_table::scan::plan::ScanPlan;
use deltic_table::scan::read::{ReadOptions, Reader};
use deltic_table::snapshot::Snapshot;
use futures::{StreamExt, TryStreamExt};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::sample::{Sample, column_of as column, metadata_of, protocol_of};

/// When version 0 was committed, in milliseconds. Each later version is one second later.
const EPOCH_MS: i64 = 1_700_000_000_000;

/// A table whose commits are written by hand.
struct Log {
    sample: Sample,
    storage: Storage,
    versions: u64,
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(future)
}

fn ints(values: impl IntoIterator<Item = i32>) -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(values))
}

fn strings<'a>(values: impl IntoIterator<Item = &'a str>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

/// A `metaData` action for these fields, with the change data feed enabled.
fn metadata(fields: &[Value], partitions: &[&str], properties: &[(&str, &str)]) -> Value {
    let mut configuration = BTreeMap::from([("delta.enableChangeDataFeed", "true")]);
    configuration.extend(properties.iter().copied());
    metadata_of(fields, partitions, json!(configuration))
}

fn protocol(features: &[&str]) -> Value {
    protocol_of(features, &[])
}

impl Log {
    /// A table with the column `n` whose version 0 has no rows.
    fn new() -> Self {
        Self::with(&metadata(&[column("n", "integer")], &[], &[]))
    }

    fn with(metadata: &Value) -> Self {
        let sample = Sample::new();
        let mut log = Self { storage: sample.storage.clone(), sample, versions: 0 };
        log.commit(&[protocol(&["deletionVectors", "columnMapping", "typeWidening"]), metadata.clone()]);
        log
    }

    fn commit_path(&self, version: u64) -> std::path::PathBuf {
        self.sample.log(&commit_name(version))
    }

    fn set_time(&self, version: u64, ms: i64) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(ms).unwrap());
        std::fs::File::options().append(true).open(self.commit_path(version)).unwrap().set_modified(time).unwrap();
    }

    fn commit(&mut self, actions: &[Value]) -> u64 {
        let version = self.versions;
        self.sample.commit(version, actions);
        self.set_time(version, EPOCH_MS + i64::try_from(version).unwrap() * 1000);
        self.versions += 1;
        version
    }

    /// Writes a data file, and returns the members of its action.
    fn file(&self, path: &str, columns: Vec<(&str, ArrayRef)>) -> Value {
        let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true))).unwrap();
        let size = self.sample.data_file(path, &batch);
        json!({"path": path, "size": size, "partitionValues": {}, "modificationTime": 0, "dataChange": true})
    }

    /// A file with the column `n`.
    fn numbers(&self, path: &str, numbers: impl IntoIterator<Item = i32>) -> Value {
        self.file(path, vec![("n", ints(numbers))])
    }

    /// A change data file with the column `n`.
    fn changed(&self, name: &str, rows: &[(i32, &str)]) -> Value {
        let columns = vec![("n", ints(rows.iter().map(|r| r.0))), ("_change_type", strings(rows.iter().map(|r| r.1)))];
        let mut cdc = self.file(&format!("_change_data/{name}"), columns);
        cdc["dataChange"] = json!(false);
        json!({"cdc": cdc})
    }

    fn plan(
        &self,
        start: impl Into<Option<Bound>>,
        end: impl Into<Option<Bound>>,
        columns: Option<&[&str]>,
        filter: Option<&str>,
    ) -> Result<ChangeFeed> {
        let columns: Option<Vec<String>> = columns.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        block_on(ChangeFeed::plan(&LogSource::of(&self.storage), start.into(), end.into(), columns.as_deref(), filter))
    }

    fn rows(
        &self,
        start: Bound,
        end: impl Into<Option<Bound>>,
        columns: &[&str],
        filter: Option<&str>,
    ) -> Result<Vec<String>> {
        read(&self.plan(start, end, Some(columns), filter)?)
    }

    /// All changes from version 0 on, as `value|type|version`.
    #[track_caller]
    fn check(&self, expected: &[&str]) {
        assert_eq!(self.rows(Bound::Version(0), None, &ALL, None).unwrap(), expected);
    }

    /// A feed from `start` to `end` fails, at planning or at reading, in this way.
    #[track_caller]
    fn check_refused(&self, (start, end): (u64, Option<u64>), kind: &Kind, version: Option<u64>, words: &[&str]) {
        let rows = self.rows(Bound::Version(start), end.map(Bound::Version), &ALL, None);
        let error = rows.expect_err("read a feed that is to be refused");
        assert_eq!((known_kind(&error), error.version()), (kind.clone(), version), "{error}");
        assert!(error.table().is_some(), "{error}");
        check_message(&error, words);
    }
}

/// A missing version; which versions exist is not compared.
const MISSING: Kind = Kind::VersionNotFound { earliest: None, latest: None };

fn known_kind(error: &Error) -> Kind {
    if error.is_version_not_found() { MISSING } else { error.kind().clone() }
}

/// The columns that tests of a table with the column `n` read.
const ALL: [&str; 3] = ["n", "_change_type", "_commit_version"];

fn read(feed: &ChangeFeed) -> Result<Vec<String>> {
    let schema = feed.schema();
    let options = ReadOptions { concurrent_files: 2, ..ReadOptions::default() };
    let batches: Vec<RecordBatch> = block_on(async { feed.read(options)?.try_collect().await })?;
    for batch in &batches {
        assert_eq!(batch.schema(), schema);
    }
    Ok(batches.iter().flat_map(text).collect())
}

fn text(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::new().with_null("null");
    let in_millis = |array: &ArrayRef| -> ArrayRef {
        match array.as_primitive_opt::<TimestampMicrosecondType>() {
            Some(times) => Arc::new(times.iter().map(|time| time.map(|t| t / 1000 - EPOCH_MS)).collect::<Int64Array>()),
            None => Arc::clone(array),
        }
    };
    let columns: Vec<ArrayRef> = batch.columns().iter().map(in_millis).collect();
    let columns: Vec<_> = columns.iter().map(|c| ArrayFormatter::try_new(c, &options).unwrap()).collect();
    (0..batch.num_rows())
        .map(|row| columns.iter().map(|c| c.value(row).to_string()).collect::<Vec<_>>().join("|"))
        .collect()
}

#[track_caller]
fn check_message(error: &Error, words: &[&str]) {
    for word in words {
        assert!(error.to_string().contains(word), "`{error}` does not contain `{word}`");
    }
}

fn add(file: &Value) -> Value {
    json!({"add": file})
}

/// The remove of an added file.
fn remove(file: &Value) -> Value {
    let mut file = file.clone();
    file["extendedFileMetadata"] = json!(true);
    json!({"remove": file})
}

fn with(file: &Value, member: &str, value: Value) -> Value {
    let mut file = file.clone();
    file[member] = value;
    file
}

fn without(file: &Value, member: &str) -> Value {
    let mut file = file.clone();
    file.as_object_mut().unwrap().remove(member);
    file
}

/// The file with these rows deleted.
fn minus(file: &Value, rows: &[u64]) -> Value {
    if rows.is_empty() {
        return without(file, "deletionVector");
    }
    let vector = rows.iter().copied().collect::<DeletionVector>().to_inline().unwrap();
    with(file, "deletionVector", serde_json::to_value(vector).unwrap())
}

/// A history that adds rows, records changed rows, removes rows, rearranges them, and adds rows again.
fn history() -> Log {
    let mut log = Log::new();
    let (a, b) = (log.numbers("a", 1..=3), log.numbers("b", 4..=5));
    log.commit(&[add(&a), add(&b)]);
    let a2 = log.numbers("a2", [1, 30, 3]);
    let recorded = log.changed("c", &[(2, "update_preimage"), (30, "update_postimage")]);
    log.commit(&[remove(&a), add(&a2), recorded]);
    log.commit(&[remove(&b)]);
    let a3 = log.numbers("a3", [3, 30, 1]);
    let rearranged = |file| with(file, "dataChange", json!(false));
    log.commit(&[remove(&rearranged(&a2)), add(&rearranged(&a3))]);
    let c = log.numbers("c", [6]);
    log.commit(&[remove(&a3), add(&c)]);
    log
}

const HISTORY: [&str; 13] = [
    "1|insert|1",
    "2|insert|1",
    "3|insert|1",
    "4|insert|1",
    "5|insert|1",
    "2|update_preimage|2",
    "30|update_postimage|2",
    "4|delete|3",
    "5|delete|3",
    "3|delete|5",
    "30|delete|5",
    "1|delete|5",
    "6|insert|5",
];

#[test]
fn changes_are_ordered_by_version() {
    history().check(&HISTORY);
}

#[test]
fn both_ends_are_included() {
    let log = history();
    for start in 0..=5_u64 {
        for end in start..=5 {
            let rows = log.rows(Bound::Version(start), Bound::Version(end), &ALL, None).unwrap();
            let version = |row: &str| row.rsplit('|').next().unwrap().parse::<u64>().unwrap();
            let expected: Vec<&str> = HISTORY.into_iter().filter(|row| (start..=end).contains(&version(row))).collect();
            assert_eq!(rows, expected, "{start} to {end}");
        }
    }
    let feed = log.plan(Bound::Version(2), None, None, None).unwrap();
    assert_eq!(feed.versions(), Some(2..=5));
}

#[test]
fn the_feed_has_three_additional_columns() {
    let log = history();
    let feed = log.plan(None, None, None, None).unwrap();
    let utc = ArrowType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let expected = Schema::new(vec![
        Field::new("n", ArrowType::Int32, true),
        Field::new("_change_type", ArrowType::Utf8, false),
        Field::new("_commit_version", ArrowType::Int64, false),
        Field::new("_commit_timestamp", utc, false),
    ]);
    assert_eq!(*feed.schema(), expected);
    assert_eq!(read(&feed).unwrap().last().unwrap(), "6|insert|5|5000");
    let few = log.rows(Bound::Version(3), Bound::Version(3), &["_commit_timestamp", "n"], None).unwrap();
    assert_eq!(few, ["3000|4", "3000|5"]);
    let error = log.plan(None, None, Some(&["_metadata.row_id"]), None).unwrap_err();
    assert!(matches!(error.kind(), Kind::Unsupported { .. }), "{error}");
    for (columns, word) in [(&["x"][..], "_commit_timestamp"), (&["n", "n"], "twice")] {
        let error = log.plan(None, None, Some(columns), None).unwrap_err();
        assert_eq!(error.kind(), &Kind::Invalid);
        check_message(&error, &[word]);
    }
}

#[test]
fn a_replaced_vector_changes_only_the_rows_that_differ() {
    // Rows deleted before and after, of a file with the rows 0 to 4.
    for (before, after, expected) in [
        (&[][..], &[1, 3][..], &["1|delete", "3|delete"][..]),
        (&[1], &[1, 3], &["3|delete"]),
        (&[1, 3], &[3], &["1|insert"]),
        (&[1, 3], &[], &["1|insert", "3|insert"]),
        (&[0, 1], &[1, 4], &["4|delete", "0|insert"]),
        (&[2], &[2], &[]),
        (&[], &[], &[]),
        (&[0, 1, 2, 3, 4], &[0], &["1|insert", "2|insert", "3|insert", "4|insert"]),
    ] {
        let mut log = Log::new();
        let file = log.numbers("a", 0..5);
        log.commit(&[add(&minus(&file, before))]);
        log.commit(&[remove(&minus(&file, before)), add(&minus(&file, after))]);
        let rows = log.rows(Bound::Version(2), None, &["n", "_change_type"], None).unwrap();
        assert_eq!(rows, expected, "{before:?} to {after:?}");
    }
}

#[test]
fn rows_deleted_before_do_not_change() {
    let mut log = Log::new();
    let file = log.numbers("a", 0..4);
    log.commit(&[add(&minus(&file, &[0, 3]))]);
    log.commit(&[remove(&minus(&file, &[0, 3]))]);
    log.check(&["1|insert|1", "2|insert|1", "1|delete|2", "2|delete|2"]);
}

#[test]
fn rows_of_a_growing_vector_need_one_request() {
    let mut log = Log::new();
    let file = log.numbers("a", 0..5);
    log.commit(&[add(&minus(&file, &[1]))]);
    log.commit(&[remove(&minus(&file, &[1])), add(&minus(&file, &[1, 2]))]);
    let feed = log.plan(Bound::Version(2), None, Some(&ALL), None).unwrap();
    let before = log.storage.counts();
    assert_eq!(read(&feed).unwrap(), ["2|delete|2"]);
    // The commit, and the data file in one request.
    assert_eq!(log.storage.counts().since(&before).gets, 2);
}

#[test]
fn paths_may_be_encoded_in_either_action() {
    let mut log = Log::new();
    let file = log.numbers("a b%c", 0..3);
    let encoded = with(&file, "path", json!("a%20b%25c"));
    log.commit(&[add(&encoded)]);
    let other = with(&file, "path", json!("a%20b%25%63"));
    log.commit(&[remove(&encoded), add(&minus(&other, &[1]))]);
    log.commit(&[remove(&minus(&encoded, &[1]))]);
    log.check(&["0|insert|1", "1|insert|1", "2|insert|1", "1|delete|2", "0|delete|3", "2|delete|3"]);
}

#[test]
fn partition_values_are_those_of_the_action() {
    let fields = [column("n", "integer"), column("day", "date")];
    let mut log = Log::with(&metadata(&fields, &["day"], &[]));
    let on = |file: &Value, day: Value| with(file, "partitionValues", json!({ "day": day }));
    let (a, b) = (on(&log.numbers("a", [1]), json!("2024-02-29")), on(&log.numbers("b", [2]), Value::Null));
    log.commit(&[add(&a), add(&b)]);
    let recorded = &log.changed("c", &[(1, "update_preimage")])["cdc"];
    let moved = &log.changed("d", &[(1, "update_postimage")])["cdc"];
    log.commit(&[json!({"cdc": on(recorded, json!("2024-02-29"))}), json!({"cdc": on(moved, json!("2024-03-01"))})]);
    log.commit(&[remove(&b)]);
    let rows = log.rows(Bound::Version(0), None, &["day", "_change_type", "n"], None).unwrap();
    assert_eq!(
        rows,
        [
            "2024-02-29|insert|1",
            "null|insert|2",
            "2024-02-29|update_preimage|1",
            "2024-03-01|update_postimage|1",
            "null|delete|2"
        ]
    );
    let filter = "day = DATE '2024-03-01' OR day IS NULL AND _change_type = 'delete'";
    let rows = log.rows(Bound::Version(0), None, &["n", "_commit_version"], Some(filter)).unwrap();
    assert_eq!(rows, ["1|2", "2|3"]);
    // Without partition values, the rows of a removed file are unknown.
    let bare = log.commit(&[json!({"remove": {"path": "a", "dataChange": true}})]);
    let error = log.rows(Bound::Version(0), None, &["n"], None).unwrap_err();
    assert_eq!((error.kind(), error.version(), error.path()), (&Kind::Corrupt, Some(bare), Some("a")));
}

#[test]
fn columns_are_found_by_their_physical_names_and_ids() {
    for mode in ["name", "id"] {
        let mapped = |name: &str, id: i32, data_type: &str| {
            json!({"name": name, "type": data_type, "nullable": true, "metadata":
                {"delta.columnMapping.id": id, "delta.columnMapping.physicalName": format!("col-{id}")}})
        };
        let fields = [mapped("n", 1, "integer"), mapped("p", 2, "string")];
        let mut log = Log::with(&metadata(&fields, &["p"], &[("delta.columnMapping.mode", mode)]));
        let write = |path: &str, values: ArrayRef, types: Option<ArrayRef>| {
            let id = HashMap::from([(PARQUET_FIELD_ID_META_KEY.to_owned(), "1".to_owned())]);
            let mut fields = vec![Field::new("col-1", ArrowType::Int32, true).with_metadata(id)];
            let mut columns = vec![values];
            if let Some(types) = types {
                fields.push(Field::new("_change_type", ArrowType::Utf8, true));
                columns.push(types);
            }
            let size =
                log.sample.data_file(path, &RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap());
            json!({"path": path, "size": size, "partitionValues": {"col-2": "x"}, "dataChange": true})
        };
        let a = write("a", ints([1, 2]), None);
        let changed = write("_change_data/c", ints([1]), Some(strings(["delete"])));
        log.commit(&[add(&a)]);
        log.commit(&[json!({ "cdc": changed })]);
        let rows = log.rows(Bound::Version(0), None, &["p", "n", "_change_type", "_commit_version"], None).unwrap();
        assert_eq!(rows, ["x|1|insert|1", "x|2|insert|1", "x|1|delete|2"], "{mode}");
        let rows = log.rows(Bound::Version(0), None, &["n"], Some("_change_type = 'delete' AND n = 1")).unwrap();
        assert_eq!(rows, ["1"], "{mode}");
    }
}

#[test]
fn older_rows_get_the_last_schema() {
    let mut log = Log::new();
    let a = log.numbers("a", [1]);
    log.commit(&[add(&a), log.changed("unused", &[(1, "insert")])]);
    log.commit(&[metadata(&[column("n", "long"), column("t", "string")], &[], &[])]);
    let b = log.file("b", vec![("n", Arc::new(Int64Array::from(vec![1_i64 << 40]))), ("t", strings(["x"]))]);
    log.commit(&[remove(&a), add(&b)]);
    let rows = log.rows(Bound::Version(0), None, &["n", "t", "_change_type"], None).unwrap();
    assert_eq!(rows, ["1|null|insert", "1|null|delete", "1099511627776|x|insert"]);
    // A range that ends before the change has the old schema.
    assert!(log.rows(Bound::Version(0), Bound::Version(1), &["t"], None).is_err());
}

#[test]
fn a_schema_may_only_grow_inside_a_range() {
    let integer = column("n", "integer");
    let required = |name: &str| with(&column(name, "integer"), "nullable", json!(false));
    let mapped = |name: &str, physical: &str| {
        let ids = json!({"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": physical});
        with(&column(name, "integer"), "metadata", ids)
    };
    let nested = |field: Value| with(&column("s", ""), "type", json!({"type": "struct", "fields": [field]}));
    let list =
        |of: &str| with(&column("l", ""), "type", json!({"type": "array", "elementType": of, "containsNull": true}));
    let by_name = [("delta.columnMapping.mode", "name")];
    let plain = |fields: Vec<Value>| metadata(&fields, &[], &[]);
    for (before, after, words) in [
        (plain(vec![column("n", "short")]), plain(vec![integer.clone()]), None),
        (plain(vec![column("n", "long")]), plain(vec![column("n", "decimal(22,2)")]), None),
        (plain(vec![column("n", "date")]), plain(vec![column("n", "timestamp_ntz")]), None),
        (plain(vec![required("n")]), plain(vec![integer.clone()]), None),
        (plain(vec![nested(integer.clone())]), plain(vec![nested(column("n", "long")), integer.clone()]), None),
        (plain(vec![integer.clone()]), metadata(&[mapped("n", "n")], &[], &by_name), None),
        (plain(vec![integer.clone()]), plain(vec![column("m", "integer")]), Some("`n` was dropped or renamed")),
        (
            plain(vec![integer.clone()]),
            plain(vec![column("n", "short")]),
            Some("`n` was an integer and became a short"),
        ),
        (plain(vec![column("n", "long")]), plain(vec![column("n", "double")]), Some("became a double")),
        (plain(vec![column("n", "long")]), plain(vec![column("n", "decimal(20,1)")]), Some("became a decimal")),
        (plain(vec![integer.clone()]), plain(vec![required("n")]), Some("could be null")),
        (plain(vec![integer.clone()]), plain(vec![integer.clone(), required("m")]), Some("`m`, which may not be null")),
        (plain(vec![nested(integer.clone())]), plain(vec![nested(column("m", "integer"))]), Some("`s.n` was dropped")),
        (plain(vec![list("long")]), plain(vec![list("string")]), Some("`l.element` was a long")),
        (
            metadata(&[mapped("n", "c")], &[], &by_name),
            metadata(&[mapped("m", "c")], &[], &by_name),
            Some("`n` was renamed to `m`"),
        ),
        (
            metadata(&[mapped("n", "c")], &[], &by_name),
            plain(vec![integer.clone()]),
            Some("found in files in another way"),
        ),
        (
            plain(vec![integer.clone(), column("p", "integer")]),
            metadata(&[integer.clone(), column("p", "integer")], &["p"], &[]),
            Some("partitioned by other columns"),
        ),
    ] {
        // The other schema is at the start of the range, or inside it.
        let mut at_start = Log::with(&before);
        at_start.commit(std::slice::from_ref(&after));
        let mut inside = Log::with(&after);
        inside.commit(&[]);
        inside.commit(std::slice::from_ref(&before));
        inside.commit(std::slice::from_ref(&after));
        for (log, version) in [(at_start, 0), (inside, 2)] {
            let read = log.plan(None, None, None, None).and_then(|feed| read(&feed));
            match (read, words) {
                (Ok(_), None) => {}
                (Err(error), Some(words)) => {
                    assert_eq!((error.kind(), error.version()), (&Kind::Invalid, Some(version)), "{error}");
                    check_message(&error, &[words]);
                }
                (found, _) => panic!("{before} then {after}: {found:?}"),
            }
        }
    }
}

#[test]
fn every_version_needs_the_change_data_feed() {
    let on = metadata(&[column("n", "integer")], &[], &[]);
    let off = metadata(&[column("n", "integer")], &[], &[("delta.enableChangeDataFeed", "false")]);
    let mut log = Log::with(&off);
    let a = log.numbers("a", [1]);
    log.commit(&[add(&a)]);
    log.commit(std::slice::from_ref(&on));
    let b = log.numbers("b", [2]);
    log.commit(&[add(&b)]);
    log.commit(&[off]);
    log.commit(&[on]);
    let words = ["delta.enableChangeDataFeed", "off"];
    log.check_refused((0, None), &Kind::Invalid, Some(0), &words);
    log.check_refused((1, Some(3)), &Kind::Invalid, Some(1), &words);
    log.check_refused((3, None), &Kind::Invalid, Some(4), &words);
    log.check_refused((4, Some(4)), &Kind::Invalid, Some(4), &words);
    assert_eq!(log.rows(Bound::Version(2), Bound::Version(3), &ALL, None).unwrap(), ["2|insert|3"]);
    assert!(log.rows(Bound::Version(5), None, &ALL, None).unwrap().is_empty());
    // Only the versions that the filter keeps count.
    let filter = Some("_commit_version BETWEEN 2 AND 3");
    assert_eq!(log.rows(Bound::Version(0), None, &ALL, filter).unwrap(), ["2|insert|3"]);
}

#[test]
fn missing_versions_are_refused() {
    let log = history();
    log.check_refused((3, Some(2)), &Kind::Invalid, None, &["version 3", "version 2"]);
    log.check_refused((6, None), &MISSING, None, &["no version 6", "5"]);
    log.check_refused((0, Some(6)), &MISSING, None, &["no version 6", "0 to 5"]);
    log.check_refused((6, Some(7)), &MISSING, None, &["no version 7"]);
    let error = log.rows(Bound::Time(2), Bound::Time(1), &ALL, None).unwrap_err();
    assert_eq!(error.kind(), &Kind::Invalid);
}

#[test]
fn a_missing_commit_is_named() {
    let log = history();
    std::fs::remove_file(log.commit_path(2)).unwrap();
    // No checkpoint replaces the commit.
    let error = log.rows(Bound::Version(0), None, &ALL, None).unwrap_err();
    assert_eq!(error.kind(), &Kind::Corrupt, "{error}");
    check_message(&error, &["version 2"]);
}

#[test]
fn changes_before_log_cleanup_are_missing() {
    let log = history();
    let (protocol, metadata) = (protocol(&["v2Checkpoint"]), metadata(&[column("n", "integer")], &[], &[]));
    let state = [json!({"checkpointMetadata": {"version": 3}}), protocol, metadata];
    let lines: String = state.iter().map(|action| format!("{action}\n")).collect();
    let name = format!("_delta_log/{:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json", 3);
    std::fs::write(log.sample.path(&name), lines).unwrap();
    for gone in 0..=3 {
        std::fs::remove_file(log.commit_path(gone)).unwrap();
    }
    log.check_refused((2, None), &MISSING, Some(2), &["version 2", "start at version 4"]);
    // Version 3 of the table can be read, but not its changes.
    log.check_refused((3, Some(3)), &MISSING, Some(3), &["version 3"]);
    // The checkpoint has the table as of version 3.
    assert_eq!(log.rows(Bound::Version(4), None, &ALL, None).unwrap(), HISTORY[9..]);
    let early = log.rows(Bound::Time(EPOCH_MS), None, &ALL, None).unwrap_err();
    assert_eq!(known_kind(&early), MISSING);
    check_message(&early, &["oldest version that can be read", "version 4"]);
}

#[test]
fn times_choose_the_commits_made_between_them() {
    let log = history();
    let at = |ms: i64| Bound::Time(EPOCH_MS + ms);
    for (start, end, expected) in [
        (at(2000), Some(at(3000)), Ok(Some(2..=3))),
        (at(1001), Some(at(3999)), Ok(Some(2..=3))),
        (at(-5), Some(at(99_999)), Ok(Some(0..=5))),
        (at(4000), None, Ok(Some(4..=5))),
        (Bound::Version(1), Some(at(4500)), Ok(Some(1..=4))),
        (at(3500), Some(Bound::Version(5)), Ok(Some(4..=5))),
        (at(3001), Some(at(3999)), Ok(None)),
        (at(5000), None, Ok(Some(5..=5))),
        (at(5001), None, Err(MISSING)),
        (at(5001), Some(at(9000)), Err(MISSING)),
        (at(5002), Some(at(9000)), Err(MISSING)),
        (at(-2), Some(at(-1)), Err(MISSING)),
        (Bound::Version(4), Some(at(3000)), Err(Kind::Invalid)),
    ] {
        let versions = log.plan(start, end, None, None).map(|feed| {
            assert_eq!(read(&feed).unwrap().is_empty(), feed.versions().is_none());
            feed.versions()
        });
        assert_eq!(versions.map_err(|e| known_kind(&e)), expected, "{start:?} to {end:?}");
    }
}

#[test]
fn commit_times_are_in_commit_timestamps_or_monotone_file_times() {
    let properties = [
        ("delta.enableInCommitTimestamps", "true"),
        ("delta.inCommitTimestampEnablementVersion", "4"),
        ("delta.inCommitTimestampEnablementTimestamp", "1700000009000"),
    ];
    let mut log = Log::new();
    for version in 1..=3 {
        let file = log.numbers(&format!("f{version}"), [version]);
        log.commit(&[add(&file)]);
    }
    let own = |ms: i64| json!({"commitInfo": {"timestamp": 5, "inCommitTimestamp": EPOCH_MS + ms}});
    let file = log.numbers("f4", [4]);
    log.commit(&[own(9000), metadata(&[column("n", "integer")], &[], &properties), add(&file)]);
    let file = log.numbers("f5", [5]);
    log.commit(&[own(9500), add(&file)]);
    // The commit time of version 2 is before that of version 1.
    log.set_time(1, EPOCH_MS + 7000);
    log.set_time(2, EPOCH_MS + 2000);
    let times = |start: u64| log.rows(Bound::Version(start), None, &["n", "_commit_timestamp"], None).unwrap();
    assert_eq!(times(0), ["1|7000", "2|7001", "3|7002", "4|9000", "5|9500"]);
    // The start of the range makes no difference.
    for start in 1..=5 {
        assert_eq!(times(start as u64), times(0)[start - 1..]);
    }
    let feed = log.plan(Bound::Time(EPOCH_MS + 7001), Bound::Time(EPOCH_MS + 9000), None, None).unwrap();
    assert_eq!(feed.versions(), Some(2..=4));
    let version = log.commit(&[json!({"commitInfo": {"timestamp": 5}})]);
    log.check_refused((5, None), &Kind::Corrupt, Some(version), &["inCommitTimestamp"]);
}

#[test]
fn filters_are_exact_and_save_requests() {
    let log = history();
    let all = |filter: &str| log.rows(Bound::Version(0), None, &ALL, Some(filter));
    // The last value is the number of requests for commits and files.
    for (filter, expected, gets) in [
        ("n > 4", &["5|insert|1", "30|update_postimage|2", "5|delete|3", "30|delete|5", "6|insert|5"][..], None),
        ("_change_type = 'delete' AND n < 4", &["3|delete|5", "1|delete|5"], None),
        ("_commit_version = 3", &["4|delete|3", "5|delete|3"], Some(2)),
        (
            "_commit_version IN (2, 3) AND n <> 4",
            &["2|update_preimage|2", "30|update_postimage|2", "5|delete|3"],
            Some(4),
        ),
        ("_commit_version > 5", &[], Some(0)),
        ("_commit_version < 0 OR _commit_version IS NULL", &[], Some(0)),
        ("_commit_timestamp = TIMESTAMP '2023-11-14T22:13:23Z'", &["4|delete|3", "5|delete|3"], Some(7)),
        ("_commit_version >= 4 AND _change_type = 'insert'", &["6|insert|5"], Some(3)),
        (
            "_change_type LIKE 'update%' OR _commit_version = 5 AND n = 6",
            &["2|update_preimage|2", "30|update_postimage|2", "6|insert|5"],
            None,
        ),
    ] {
        assert_eq!(all(filter).unwrap(), expected, "{filter}");
        let feed = log.plan(None, None, Some(&ALL), Some(filter)).unwrap();
        let before = log.storage.counts();
        read(&feed).unwrap();
        let read = log.storage.counts().since(&before).gets;
        assert!(gets.is_none_or(|gets| gets == read), "{filter}: {read} requests");
    }
    for filter in ["x = 1", "_commit_version = 'a'", "n ="] {
        assert_eq!(all(filter).unwrap_err().kind(), &Kind::Invalid, "{filter}");
    }
}

#[test]
fn a_file_that_vacuum_removed_is_named() {
    let log = history();
    std::fs::remove_file(log.sample.path("b")).unwrap();
    let error = log.rows(Bound::Version(2), None, &ALL, None).unwrap_err();
    assert!(error.is_version_not_found() && error.path() == Some("b"), "{error}");
    check_message(&error, &["VACUUM"]);
    // Versions that do not need the file can be read.
    assert_eq!(log.rows(Bound::Version(4), None, &ALL, None).unwrap(), HISTORY[9..]);
}

#[test]
fn contradictory_actions_are_corrupt() {
    let mut log = Log::new();
    let a = log.numbers("a", [1]);
    log.commit(&[add(&a)]);
    log.commit(&[json!({"remove": {"path": "a", "dataChange": true, "deletionTimestamp": 1}})]);
    log.check(&["1|insert|1", "1|delete|2"]);
    let b = log.numbers("b", [2]);
    for (actions, words) in [
        (vec![add(&without(&b, "dataChange"))], "dataChange"),
        (vec![add(&with(&b, "size", json!(-1)))], "negative"),
        (vec![remove(&b), add(&minus(&b, &[0])), add(&b)], "twice"),
        (vec![json!({"cdc": with(&b, "size", json!(-1))})], "negative"),
    ] {
        let mut log = Log::new();
        log.numbers("b", [2]);
        let version = log.commit(&actions);
        let error = log.rows(Bound::Version(0), None, &ALL, None).unwrap_err();
        assert_eq!(
            (error.kind(), error.version(), error.path()),
            (&Kind::Corrupt, Some(version), Some("b")),
            "{error}"
        );
        check_message(&error, &[words]);
    }
    // A deletion vector of missing rows, and change data without `_change_type`.
    let mut log = Log::new();
    let b = log.numbers("b", [2]);
    log.commit(&[remove(&b), add(&minus(&b, &[7]))]);
    assert_eq!(log.rows(Bound::Version(0), None, &ALL, None).unwrap_err().kind(), &Kind::Corrupt);
    let mut log = Log::new();
    let c = log.numbers("_change_data/c", [2]);
    log.commit(&[json!({ "cdc": c })]);
    let error = log.rows(Bound::Version(0), None, &ALL, None).unwrap_err();
    assert_eq!(error.kind(), &Kind::Corrupt);
    check_message(&error, &["_change_type"]);
}

#[test]
fn names_of_the_feed_cannot_be_columns_of_the_table() {
    for name in ["_change_type", "_Commit_Version"] {
        let log = Log::with(&metadata(&[column(name, "integer")], &[], &[]));
        let error = log.plan(None, None, None, None).unwrap_err();
        assert_eq!(error.kind(), &Kind::Invalid);
        check_message(&error, &[name, "rename"]);
    }
}

#[test]
fn reads_begin_on_demand_and_read_ahead_is_bounded() {
    let mut log = Log::new();
    for version in 1..=200 {
        let file = log.numbers(&format!("f{version}"), [version]);
        log.commit(&[add(&file)]);
    }
    let feed = log.plan(None, None, Some(&ALL), None).unwrap();
    let before = log.storage.counts();
    let gets = || log.storage.counts().since(&before).gets;
    block_on(async {
        let options = ReadOptions { concurrent_files: 2, ..ReadOptions::default() };
        let mut rows = Box::pin(feed.read(options).unwrap());
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(gets(), 0);
        let first = rows.next().await.unwrap().unwrap();
        assert_eq!(text(&first), ["1|insert|1"]);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(gets() < 80, "{} requests for one batch", gets());
    });
    assert_eq!(read(&feed).unwrap().len(), 200);
}

#[test]
fn dates_widen_in_older_files() {
    let mut log = Log::with(&metadata(&[column("n", "date")], &[], &[]));
    let a = log.file("a", vec![("n", Arc::new(Date32Array::from(vec![1])))]);
    log.commit(&[add(&a)]);
    log.commit(&[metadata(&[column("n", "timestamp_ntz")], &[], &[])]);
    let feed = log.plan(None, None, Some(&["n"]), None).unwrap();
    assert_eq!(feed.schema().field(0).data_type(), &ArrowType::Timestamp(TimeUnit::Microsecond, None));
    assert_eq!(read(&feed).unwrap(), [(86_400_000 - EPOCH_MS).to_string()]);
}

/// A change of one file.
#[derive(Debug, Clone)]
enum FileChange {
    Append(u8),
    /// Replaces the deletion vector by one of these rows.
    Delete(u16),
    Remove,
    /// Rewrites the rows to another file, without a data change.
    Rearrange,
}

fn commits() -> impl Strategy<Value = Vec<Vec<(usize, FileChange)>>> {
    let change = prop_oneof![
        (1_u8..8).prop_map(FileChange::Append),
        any::<u16>().prop_map(FileChange::Delete),
        any::<u16>().prop_map(FileChange::Delete),
        Just(FileChange::Remove),
        Just(FileChange::Rearrange),
    ];
    prop::collection::vec(prop::collection::vec((0_usize..6, change), 0..4), 1..6)
}

/// A live file.
#[derive(Clone)]
struct Live {
    action: Value,
    first: i32,
    rows: u8,
    deleted: Vec<u64>,
}

impl Live {
    fn now(&self) -> Value {
        minus(&self.action, &self.deleted)
    }
}

fn apply(log: &mut Log, live: &mut Vec<Live>, changes: &[(usize, FileChange)]) {
    let mut actions = Vec::new();
    let mut touched = Vec::new();
    for (place, change) in changes {
        let name = format!("f{}-{}", log.versions, actions.len());
        if let FileChange::Append(rows) = change {
            let first = i32::try_from(log.versions * 1000 + actions.len() as u64 * 10).unwrap();
            let action = log.numbers(&name, first..first + i32::from(*rows));
            actions.push(add(&action));
            touched.push(action["path"].clone());
            live.push(Live { action, first, rows: *rows, deleted: Vec::new() });
            continue;
        }
        let Some(index) = (!live.is_empty()).then(|| place % live.len()) else { continue };
        let file = live[index].clone();
        // A commit has at most one action of each file.
        if touched.contains(&file.action["path"]) {
            continue;
        }
        touched.push(file.action["path"].clone());
        match change {
            FileChange::Append(_) => {}
            FileChange::Delete(rows) => {
                live[index].deleted = (0..u64::from(file.rows)).filter(|row| rows & (1 << row) != 0).collect();
                actions.extend([remove(&file.now()), add(&live[index].now())]);
            }
            FileChange::Remove => {
                live.remove(index);
                actions.push(remove(&file.now()));
            }
            FileChange::Rearrange => {
                let is_left = |row: &u64| !file.deleted.contains(row);
                let rows =
                    (0..u64::from(file.rows)).filter(is_left).map(|row| file.first + i32::try_from(row).unwrap());
                let rows: Vec<i32> = rows.collect();
                // Only files whose live rows are one range are rearranged.
                if rows.is_empty() || rows.windows(2).any(|pair| pair[0] + 1 != pair[1]) {
                    continue;
                }
                let action = log.numbers(&name, rows.iter().copied());
                touched.push(action["path"].clone());
                let quiet = |file: &Value| with(file, "dataChange", json!(false));
                actions.extend([remove(&quiet(&file.now())), add(&quiet(&action))]);
                let count = u8::try_from(rows.len()).unwrap();
                live[index] = Live { action, first: rows[0], rows: count, deleted: Vec::new() };
            }
        }
    }
    log.commit(&actions);
}

fn scan(log: &Log, version: u64) -> Vec<String> {
    block_on(async {
        let snapshot = Snapshot::open(&LogSource::of(&log.storage), Some(version)).await.unwrap();
        let plan = ScanPlan::new(&snapshot, None, None).await.unwrap();
        let reader = Reader::new(log.storage.clone(), plan.spec().clone()).unwrap();
        let rows = reader.read(plan.tasks().await.unwrap(), ReadOptions::default()).map_ok(|batch| text(&batch));
        let mut rows: Vec<String> = rows.try_concat().await.unwrap();
        rows.sort_unstable();
        rows
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// The changes of a range, applied to the version before it, give the version at its end.
    #[test]
    fn changes_lead_from_one_version_to_another(commits in commits()) {
        let mut log = Log::new();
        let mut live = Vec::new();
        for commit in &commits {
            apply(&mut log, &mut live, commit);
        }
        let last = log.versions - 1;
        for start in 0..last {
            let mut rows: BTreeMap<String, i32> = BTreeMap::new();
            for row in scan(&log, start) {
                *rows.entry(row).or_default() += 1;
            }
            for change in log.rows(Bound::Version(start + 1), None, &ALL, None).unwrap() {
                let mut parts = change.split('|');
                let (row, change) = (parts.next().unwrap(), parts.next().unwrap());
                *rows.entry(row.to_owned()).or_default() += if change == "insert" { 1 } else { -1 };
            }
            let after: Vec<String> = rows
                .into_iter()
                .inspect(|(row, count)| assert!(*count >= 0, "{row} was deleted more often than inserted"))
                .flat_map(|(row, count)| std::iter::repeat_n(row, usize::try_from(count).unwrap()))
                .collect();
            // Both are sorted.
            prop_assert_eq!(after, scan(&log, last), "from version {}", start);
        }
    }
}
