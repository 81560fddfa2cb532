//! Checkpoints for given logs. States of a table are compared as strings, one line per action.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, MapArray, RecordBatch, StructArray};
use arrow_schema::{DataType as ArrowType, Field};
use deltic_protocol::action::batch::{ADD_SCHEMA, AddBatch, KeyBatch, string_map_at};
use deltic_protocol::error::Kind;
use deltic_protocol::log::hint::LastCheckpoint;
use deltic_protocol::property::Properties;
use deltic_protocol::schema::StructType;
use deltic_protocol::stats::typed::StatsLayout;
use deltic_store::Storage;
use deltic_table::checkpoint::read::AddColumns;
use deltic_table::checkpoint_writer::{WrittenCheckpoint, checkpoint, is_due, of_snapshot};
use deltic_table::error::Result;
use deltic_table::log::LogSource;
use deltic_table::scan::plan::ScanPlan;
use deltic_table::snapshot::Snapshot;
use futures::TryStreamExt;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescPtr;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::corpus::corpus;
use super::sample::{self, Sample, protocol_of};

mod sidecars;

/// One day, in milliseconds.
const DAY: i64 = 24 * 60 * 60 * 1000;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(future)
}

/// A table that has only a log.
struct Log {
    sample: Sample,
    storage: Storage,
    next: u64,
}

impl Log {
    fn empty() -> Self {
        let sample = Sample::not_durable();
        Self { storage: sample.storage.clone(), sample, next: 0 }
    }

    /// A table of version 0 with these columns (`name: type`), partition columns and properties.
    fn new(columns: &[(&str, &str)], partition_by: &[&str], properties: &[(&str, &str)]) -> Self {
        let mut log = Self::empty();
        log.commit(&[
            protocol_of(&["deletionVectors", "timestampNtz"], &["domainMetadata", "rowTracking", "clustering"]),
            metadata(columns, partition_by, properties),
        ]);
        log
    }

    fn path(&self, name: &str) -> PathBuf {
        self.sample.log(name)
    }

    fn commit(&mut self, actions: &[Value]) -> u64 {
        self.sample.commit(self.next, actions);
        self.next += 1;
        self.next - 1
    }

    fn snapshot(&self) -> Snapshot {
        block_on(Snapshot::open(&self.sample.log, None)).unwrap()
    }

    fn checkpoint_at(&self, now_ms: i64) -> Result<WrittenCheckpoint> {
        block_on(async { of_snapshot(&Snapshot::open(&self.sample.log, None).await?, now_ms).await })
    }

    /// Checkpoints the newest version, and deletes all other log files.
    fn only_checkpoint(&self, now_ms: i64) -> WrittenCheckpoint {
        let written = self.checkpoint_at(now_ms).unwrap();
        let kept = [self.checkpoint_name(written.version), "_last_checkpoint".to_owned()];
        for entry in std::fs::read_dir(self.path("")).unwrap() {
            let entry = entry.unwrap();
            if entry.path().is_file() && !kept.contains(&entry.file_name().into_string().unwrap()) {
                std::fs::remove_file(entry.path()).unwrap();
            }
        }
        written
    }

    /// The name of the newest checkpoint of a version, or of a classic one if there is none.
    fn checkpoint_name(&self, version: u64) -> String {
        let uuid = self.hint().filter(|hint| hint.version == version).and_then(|hint| hint.v2_checkpoint);
        uuid.map_or_else(|| format!("{version:020}.checkpoint.parquet"), |hint| hint.path)
    }

    fn hint(&self) -> Option<LastCheckpoint> {
        LastCheckpoint::parse(&std::fs::read(self.path("_last_checkpoint")).ok()?).ok()
    }

    fn rows(&self, version: u64) -> Vec<RecordBatch> {
        let file = std::fs::File::open(self.path(&self.checkpoint_name(version))).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
        reader.map(|batch| batch.unwrap()).collect()
    }

    /// The `add` column of the checkpoint, without rows of other actions.
    fn adds_in_checkpoint(&self, version: u64) -> RecordBatch {
        let rows = self.rows(version);
        let rows = arrow_select::concat::concat_batches(&rows[0].schema(), &rows).unwrap();
        let adds = rows.column_by_name("add").unwrap().as_struct();
        let there = arrow_array::BooleanArray::from((0..adds.len()).map(|row| adds.is_valid(row)).collect::<Vec<_>>());
        arrow_select::filter::filter_record_batch(&RecordBatch::from(adds.clone().into_parts_without_nulls()), &there)
            .unwrap()
    }
}

/// Drops the null buffer of a struct, so that it can become a record batch.
trait WithoutNulls {
    fn into_parts_without_nulls(self) -> arrow_array::StructArray;
}

impl WithoutNulls for arrow_array::StructArray {
    fn into_parts_without_nulls(self) -> arrow_array::StructArray {
        let (fields, columns, _) = self.into_parts();
        let fields: Vec<_> = fields.iter().map(|f| f.as_ref().clone().with_nullable(true)).collect();
        arrow_array::StructArray::new(fields.into(), columns, None)
    }
}

fn metadata(columns: &[(&str, &str)], partition_by: &[&str], properties: &[(&str, &str)]) -> Value {
    let configuration = json!(properties.iter().copied().collect::<BTreeMap<_, _>>());
    let mut action = sample::metadata(columns, partition_by, configuration);
    action["metaData"]["name"] = json!("n\u{e4}me");
    action["metaData"]["createdTime"] = json!(1_700_000_000_000_i64);
    action
}

fn add(path: &str, stats: &str) -> Value {
    add_with(path, json!({"stats": stats}))
}

/// An add with additional members.
fn add_with(path: &str, members: Value) -> Value {
    let mut all = json!({"size": 100, "modificationTime": 1_700_000_000_001_i64});
    all.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    sample::add_with(path, all)
}

fn remove(path: &str, deleted_ms: i64) -> Value {
    json!({"remove": {"path": path, "deletionTimestamp": deleted_ms, "dataChange": true, "extendedFileMetadata": true,
        "partitionValues": {"p": "1"}, "size": 100, "stats": "{}", "tags": {"a": "b"}}})
}

/// A snapshot as lines of strings.
#[derive(Debug, PartialEq)]
struct State {
    others: Vec<String>,
    adds: Vec<String>,
    removes: Vec<String>,
}

impl State {
    /// With normalized statistics, without empty objects: columns do not distinguish these from missing ones.
    fn pruned(mut self) -> Self {
        self.adds.iter_mut().for_each(|line| *line = without_empty_objects(line));
        self.adds.sort();
        self
    }
}

/// The whole state of a snapshot. Statistics come from JSON, or else from the typed columns.
async fn state(snapshot: &Snapshot) -> Result<State> {
    let mut others = vec![format!("{:?}", snapshot.protocol()), format!("{:?}", snapshot.metadata())];
    others.extend(snapshot.txns().await?.iter().map(|txn| format!("{txn:?}")));
    others.extend(snapshot.domains().await?.iter().map(|domain| format!("{domain:?}")));
    others.sort();
    let mut adds = Vec::new();
    for batch in live(snapshot).await? {
        let text = match batch.structure("stats_parsed") {
            Some(typed) => Some(deltic_protocol::stats::json::complete(batch.stats()?.as_ref(), typed)?),
            None => batch.stats()?,
        };
        for row in 0..batch.len() {
            let mut add = batch.add(row)?;
            add.data_change = false;
            add.stats = text.as_ref().filter(|t| t.is_valid(row)).map(|t| t.value(row).to_owned());
            adds.push(serde_json::to_string(&add).unwrap());
        }
    }
    adds.sort();
    let mut removes: Vec<String> = tombstones(snapshot).await?.iter().flat_map(remove_lines).collect();
    removes.sort();
    Ok(State { others, adds, removes })
}

async fn live(snapshot: &Snapshot) -> Result<Vec<AddBatch>> {
    let columns = AddColumns {
        members: ADD_SCHEMA.fields().iter().map(|f| f.name().as_str()).filter(|n| *n != "stats").collect(),
        stats_json: true,
        stats_typed: true,
        ..AddColumns::default()
    };
    snapshot.live_files(&columns).await?.try_collect().await
}

async fn tombstones(snapshot: &Snapshot) -> Result<Vec<RecordBatch>> {
    let tail = snapshot.tail().await?;
    let mut all = tail.tombstones.clone();
    if let Some(checkpoint) = snapshot.checkpoint().await? {
        let older: Vec<(KeyBatch, RecordBatch)> = checkpoint.removes().try_collect().await?;
        for (keys, rows) in older {
            let unseen = arrow_array::BooleanArray::new(tail.unseen(&keys), None);
            all.push(arrow_select::filter::filter_record_batch(&rows, &unseen).unwrap());
        }
    }
    Ok(all)
}

fn remove_lines(rows: &RecordBatch) -> Vec<String> {
    let number = |name: &str, row: usize| {
        let column = rows.column_by_name(name)?.as_primitive_opt::<Int64Type>()?;
        column.is_valid(row).then(|| column.value(row))
    };
    let keys = KeyBatch::new(rows).unwrap();
    let line = |row: usize| {
        let partition = rows.column_by_name("partitionValues").map(|c| string_map_at(c.as_map(), row).unwrap());
        let extended = rows.column_by_name("extendedFileMetadata").map(|c| c.as_boolean().clone());
        format!(
            "{} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
            keys.path(row),
            keys.deletion_vector(row),
            number("deletionTimestamp", row),
            number("size", row),
            partition.unwrap_or_default(),
            extended.filter(|e| e.is_valid(row)).map(|e| e.value(row)),
            number("baseRowId", row),
            number("defaultRowCommitVersion", row),
        )
    };
    (0..rows.num_rows()).map(line).collect()
}

fn form(json: bool, typed: bool) -> [(&'static str, &'static str); 2] {
    let flag = |value: bool| if value { "true" } else { "false" };
    [("delta.checkpoint.writeStatsAsJson", flag(json)), ("delta.checkpoint.writeStatsAsStruct", flag(typed))]
}

const TYPES: &[(&str, &str)] = &[
    ("l", "long"),
    ("i", "integer"),
    ("s", "short"),
    ("b", "byte"),
    ("f", "float"),
    ("d", "double"),
    ("dec", "decimal(20,4)"),
    ("small", "decimal(5,2)"),
    ("t", "string"),
    ("bool", "boolean"),
    ("bin", "binary"),
    ("day", "date"),
    ("ts", "timestamp"),
    ("ntz", "timestamp_ntz"),
    ("list", r#"{"type":"array","elementType":"integer","containsNull":true}"#),
    ("map", r#"{"type":"map","keyType":"string","valueType":"long","valueContainsNull":true}"#),
    (
        "nest",
        r#"{"type":"struct","fields":[
        {"name":"x.y","type":"long","nullable":true,"metadata":{}},
        {"name":"deep","type":{"type":"struct","fields":[
            {"name":"z","type":"string","nullable":true,"metadata":{}}]},"nullable":true,"metadata":{}}]}"#,
    ),
    ("gone", "void"),
    ("p", "string"),
];

const FULL: &str = r#"{"numRecords":7,
    "minValues":{"l":-9007199254740993,"i":-5,"s":1,"b":-128,"f":1.5,"d":-0.1,"dec":-1234567890123456.7891,"small":1.25,
        "t":"a\"\\ü","bool":false,"day":"1969-12-31","ts":"2024-01-01T00:00:00.123Z","ntz":"2024-01-01T00:00:00.123",
        "nest":{"x.y":1,"deep":{"z":"q"}}},
    "maxValues":{"l":9007199254740993,"i":5,"s":2,"b":127,"f":3.25,"d":1e300,"dec":1234567890123456.7891,"small":9.99,
        "t":"zz","bool":true,"day":"9999-12-31","ts":"2024-12-31T23:59:59.999Z","ntz":"2024-12-31T23:59:59.999",
        "nest":{"x.y":2,"deep":{"z":"r"}}},
    "nullCount":{"l":0,"i":1,"s":2,"b":3,"f":4,"d":5,"dec":6,"small":7,"t":0,"bool":0,"bin":3,"day":0,"ts":0,"ntz":0,
        "list":1,"map":2,"nest":{"x.y":1,"deep":{"z":2}}},
    "tightBounds":false}"#;

/// A log with every kind of action and member.
fn rich(properties: &[(&str, &str)]) -> Log {
    let mut log = Log::new(TYPES, &["p"], properties);
    let vector = json!({"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40,
        "cardinality": 6});
    let inline = json!({"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        "sizeInBytes": 40, "cardinality": 1});
    log.commit(&[
        json!({"commitInfo": {"operation": "WRITE"}}),
        add_with(
            "full",
            json!({"stats": FULL, "partitionValues": {"p": "a b"}, "tags": {"k": "v", "null": null},
            "baseRowId": 5, "defaultRowCommitVersion": 1, "clusteringProvider": "liquid"}),
        ),
        add_with("null%20partition", json!({"partitionValues": {"p": null}})),
        add_with("empty", json!({"stats": r#"{"numRecords":0,"minValues":{},"maxValues":{},"nullCount":{}}"#})),
        add("partial", r#"{"numRecords":3,"minValues":{"l":1},"nullCount":{"t":1}}"#),
        add("no count", r#"{"maxValues":{"i":3}}"#),
        add("gone", "{}"),
        add_with("dv", json!({"stats": r#"{"numRecords":9}"#})),
        json!({"txn": {"appId": "app", "version": 1, "lastUpdated": 1700000000000_i64}}),
        json!({"txn": {"appId": "timeless", "version": 4}}),
        json!({"domainMetadata": {"domain": "d", "configuration": "{\"a\":1}", "removed": false}}),
        json!({"domainMetadata": {"domain": "dropped", "configuration": "x", "removed": false}}),
    ]);
    log.commit(&[
        remove("gone", 1_700_000_000_000),
        remove("dv", 1_700_000_000_000),
        add_with("dv", json!({"stats": r#"{"numRecords":9,"tightBounds":false}"#, "deletionVector": vector})),
        add_with("inline", json!({"stats": r#"{"numRecords":2}"#, "deletionVector": inline})),
        json!({"txn": {"appId": "app", "version": 2, "lastUpdated": 1700000000000_i64}}),
        json!({"domainMetadata": {"domain": "dropped", "configuration": "x", "removed": true}}),
        json!({"cdc": {"path": "_change_data/c", "partitionValues": {}, "size": 1, "dataChange": false}}),
    ]);
    log
}

#[test]
fn a_checkpoint_keeps_the_state() {
    for (json, typed) in [(true, true), (true, false), (false, true), (false, false)] {
        let log = rich(&form(json, typed));
        let mut before = block_on(state(&log.snapshot())).unwrap();
        let written = log.only_checkpoint(1_700_000_000_000);
        assert_eq!((written.version, written.adds, written.removes), (2, 7, 2));
        // Protocol, metadata, two transactions, one domain.
        assert_eq!(written.actions, 7 + 2 + 5);
        let snapshot = log.snapshot();
        assert_eq!(snapshot.version(), 2);
        let mut after = block_on(state(&snapshot)).unwrap();
        if !json && !typed {
            for lines in [&mut before.adds, &mut after.adds] {
                lines.iter_mut().for_each(|line| *line = without_stats(line));
            }
        } else if !json {
            (before, after) = (before.pruned(), after.pruned());
        }
        assert_eq!(after, before, "json {json}, typed {typed}");
    }
}

fn without_stats(line: &str) -> String {
    let mut add: Value = serde_json::from_str(line).unwrap();
    add.as_object_mut().unwrap().remove("stats");
    add.to_string()
}

fn without_empty_objects(line: &str) -> String {
    fn prune(value: &mut Value) {
        if let Some(object) = value.as_object_mut() {
            object.values_mut().for_each(prune);
            object.retain(|_, member| !member.is_null() && member != &json!({}));
        }
    }
    let mut add: Value = serde_json::from_str(line).unwrap();
    let stats = add["stats"].as_str().map(|text| {
        // Statistics that are not JSON stay as they are.
        let Ok(mut stats) = serde_json::from_str::<Value>(text) else { return text.to_owned() };
        prune(&mut stats);
        stats.to_string()
    });
    add["stats"] = stats.into();
    add.to_string()
}

#[test]
fn typed_statistics_equal_json_statistics() {
    let log = rich(&form(false, true));
    log.only_checkpoint(0);
    let adds = log.adds_in_checkpoint(2);
    assert!(adds.column_by_name("stats").is_none());
    let row = adds.column_by_name("path").unwrap().as_string::<i32>().iter().position(|p| p == Some("full")).unwrap();
    let stats = adds.column_by_name("stats_parsed").unwrap().as_struct();
    let min = stats.column_by_name("minValues").unwrap().as_struct();
    let instant = |name: &str| min.column_by_name(name).unwrap().as_primitive::<TimestampMicrosecondType>();
    assert_eq!(instant("ts").timezone(), Some("UTC"));
    assert_eq!(instant("ntz").timezone(), None);
    assert_eq!((instant("ts").value(row), instant("ntz").value(row)), (1_704_067_200_123_000, 1_704_067_200_123_000));
    let decimal = min.column_by_name("dec").unwrap().as_primitive::<arrow_array::types::Decimal128Type>();
    assert_eq!((decimal.value(row), decimal.precision(), decimal.scale()), (-12_345_678_901_234_567_891, 20, 4));
    for without in ["bin", "list", "map", "gone", "p"] {
        assert!(min.column_by_name(without).is_none(), "{without}");
    }
    let counts = stats.column_by_name("nullCount").unwrap().as_struct();
    for (name, nulls) in [("bin", 3), ("list", 1), ("map", 2)] {
        assert_eq!(counts.column_by_name(name).unwrap().as_primitive::<Int64Type>().value(row), nulls);
    }
    assert!(counts.column_by_name("gone").is_none() && counts.column_by_name("p").is_none());
    // A file without any statistics has null instead of empty ones.
    let unknown =
        adds.column_by_name("path").unwrap().as_string::<i32>().iter().position(|p| p == Some("null%20partition"));
    assert!(stats.is_null(unknown.unwrap()));
}

#[test]
fn statistics_survive_changes_of_form() {
    let forms = [(true, false), (false, true), (true, false), (true, true), (false, true), (false, true), (true, true)];
    for first in 0..forms.len() {
        let mut log = rich(&form(forms[first].0, forms[first].1));
        let before = block_on(state(&log.snapshot())).unwrap();
        log.only_checkpoint(0);
        for (json, typed) in forms.iter().skip(first) {
            log.commit(&[metadata(TYPES, &["p"], &form(*json, *typed))]);
            log.only_checkpoint(0);
        }
        let after = block_on(state(&log.snapshot())).unwrap();
        assert_eq!(after.pruned().adds, before.pruned().adds, "from {first}");
    }
}

#[test]
fn columns_that_are_not_indexed_keep_their_statistics() {
    let columns: Vec<(String, &str)> = (0..40).map(|i| (format!("c{i}"), "integer")).collect();
    let columns: Vec<(&str, &str)> = columns.iter().map(|(name, t)| (name.as_str(), *t)).collect();
    let stats = r#"{"numRecords":1,"minValues":{"c1":1,"c39":2},"maxValues":{"c1":1,"c39":3},"nullCount":{"c39":0}}"#;
    for (json, typed, has_last) in [(true, true, false), (false, true, true)] {
        let mut log = Log::new(&columns, &[], &form(json, typed));
        log.commit(&[add("f", stats)]);
        log.only_checkpoint(0);
        let adds = log.adds_in_checkpoint(1);
        let stats_parsed = adds.column_by_name("stats_parsed").unwrap().as_struct();
        let min = stats_parsed.column_by_name("minValues").unwrap().as_struct();
        assert_eq!(min.column_by_name("c39").is_some(), has_last, "json {json}");
        assert!(min.column_by_name("c31").is_some());
        // Columns that had typed statistics keep them.
        log.commit(&[metadata(&columns, &[], &form(true, true))]);
        log.only_checkpoint(0);
        let adds = log.adds_in_checkpoint(2);
        let stats_parsed = adds.column_by_name("stats_parsed").unwrap().as_struct();
        assert_eq!(
            stats_parsed.column_by_name("minValues").unwrap().as_struct().column_by_name("c39").is_some(),
            has_last
        );
        let text = adds.column_by_name("stats").unwrap().as_string::<i32>();
        assert_eq!(
            serde_json::from_str::<Value>(text.value(0)).unwrap(),
            serde_json::from_str::<Value>(stats).unwrap()
        );
    }
}

#[test]
fn typed_statistics_follow_the_columns_type() {
    let mut log = Log::new(&[("a", "integer"), ("b", "date"), ("c", "float")], &[], &form(false, true));
    log.commit(&[add(
        "f",
        r#"{"numRecords":1,"minValues":{"a":1,"b":"2024-01-01","c":0.1},"maxValues":{"a":2,"b":"2024-01-02","c":0.2}}"#,
    )]);
    log.only_checkpoint(0);
    let wider = [("a", "long"), ("b", "timestamp_ntz"), ("c", "double"), ("d", "string")];
    log.commit(&[
        metadata(&wider, &[], &form(false, true)),
        add("g", r#"{"numRecords":1,"minValues":{"a":3,"d":"x"}}"#),
    ]);
    log.only_checkpoint(0);
    log.commit(&[metadata(&wider, &[], &form(true, false))]);
    log.only_checkpoint(0);
    let adds = log.adds_in_checkpoint(3);
    let text = adds.column_by_name("stats").unwrap().as_string::<i32>();
    let texts: Vec<Value> = text.iter().map(|t| serde_json::from_str(t.unwrap()).unwrap()).collect();
    let old = texts.iter().find(|t| t["minValues"]["a"] == 1).unwrap();
    assert_eq!(old["minValues"]["b"], "2024-01-01T00:00:00.000");
    // The float nearest to 0.1, exactly.
    assert_eq!(old["minValues"]["c"], f64::from(0.1_f32));
    assert_eq!(texts.iter().find(|t| t["minValues"]["a"] == 3).unwrap()["minValues"]["d"], "x");
}

#[test]
fn unreadable_statistics_stay_as_they_are() {
    for stats in
        ["", "{", "null", "[]", r#"{"numRecords":"x"}"#, r#"{"numRecords":1,"minValues":{"l":"x"},"other":[1]}"#]
    {
        let mut log = Log::new(&[("l", "long")], &[], &[]);
        log.commit(&[add("f", stats)]);
        log.only_checkpoint(0);
        let adds = log.adds_in_checkpoint(1);
        assert_eq!(adds.column_by_name("stats").unwrap().as_string::<i32>().value(0), stats);
    }
}

#[test]
fn partition_values_are_typed() {
    let columns = [
        ("x", "long"),
        ("s", "string"),
        ("l", "long"),
        ("i", "integer"),
        ("h", "short"),
        ("y", "byte"),
        ("f", "float"),
        ("d", "double"),
        ("dec", "decimal(10,2)"),
        ("bool", "boolean"),
        ("bin", "binary"),
        ("day", "date"),
        ("ts", "timestamp"),
        ("ntz", "timestamp_ntz"),
    ];
    let names: Vec<&str> = columns.iter().skip(1).map(|(name, _)| *name).collect();
    let values = json!({"s": "a=b/ü", "l": "-9", "i": "8", "h": "7", "y": "6", "f": "1.5", "d": "-2.25", "dec": "3.14",
        "bool": "true", "bin": "bytes", "day": "2024-02-29", "ts": "2024-01-01 00:00:00.5", "ntz": "2024-01-01 00:00:00"});
    let nulls: Value =
        names.iter().map(|name| ((*name).to_owned(), Value::Null)).collect::<serde_json::Map<_, _>>().into();
    let mut log = Log::new(&columns, &names, &[]);
    log.commit(&[
        add_with("some", json!({"partitionValues": values})),
        add_with("none", json!({"partitionValues": nulls})),
    ]);
    let before = block_on(state(&log.snapshot())).unwrap();
    log.only_checkpoint(0);
    assert_eq!(block_on(state(&log.snapshot())).unwrap(), before);
    let adds = log.adds_in_checkpoint(1);
    let typed = adds.column_by_name("partitionValues_parsed").unwrap().as_struct();
    let line = |row: usize| {
        let options = arrow_cast::display::FormatOptions::new().with_null("null");
        let text = |column: &arrow_array::ArrayRef| {
            let column = match column.as_primitive_opt::<TimestampMicrosecondType>() {
                Some(times) => std::sync::Arc::new(times.clone().with_timezone("+00:00")) as _,
                None => column.clone(),
            };
            arrow_cast::display::ArrayFormatter::try_new(&column, &options).unwrap().value(row).to_string()
        };
        typed.columns().iter().map(text).collect::<Vec<_>>().join("|")
    };
    let mut lines = [line(0), line(1)];
    lines.sort();
    assert_eq!(
        lines,
        [
            "a=b/ü|-9|8|7|6|1.5|-2.25|3.14|true|6279746573|2024-02-29|2024-01-01T00:00:00.500Z|2024-01-01T00:00:00Z"
                .to_owned(),
            vec!["null"; 13].join("|"),
        ]
    );
    // A table without partitions has no such column.
    let mut log = Log::new(&[("x", "long")], &[], &[]);
    log.commit(&[add("f", "{}")]);
    log.only_checkpoint(0);
    assert!(log.adds_in_checkpoint(1).column_by_name("partitionValues_parsed").is_none());
}

#[test]
fn mapped_columns_use_physical_names() {
    let physical =
        |name: &str, id: i32| json!({"delta.columnMapping.physicalName": name, "delta.columnMapping.id": id});
    let schema = json!({"type": "struct", "fields": [
        {"name": "a", "type": "long", "nullable": true, "metadata": physical("col-1", 1)},
        {"name": "p", "type": "integer", "nullable": true, "metadata": physical("col-2", 2)}]});
    let mut log = Log::empty();
    let mut meta =
        metadata(&[], &["p"], &[("delta.columnMapping.mode", "name"), ("delta.dataSkippingStatsColumns", "a")]);
    meta["metaData"]["schemaString"] = schema.to_string().into();
    log.commit(&[
        json!({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}),
        meta,
        add_with(
            "f",
            json!({"partitionValues": {"col-2": "3"}, "stats": r#"{"numRecords":1,"minValues":{"col-1":4}}"#}),
        ),
    ]);
    log.only_checkpoint(0);
    let adds = log.adds_in_checkpoint(0);
    let parts = adds.column_by_name("partitionValues_parsed").unwrap().as_struct();
    assert_eq!(parts.column_by_name("col-2").unwrap().as_primitive::<arrow_array::types::Int32Type>().value(0), 3);
    let min = adds.column_by_name("stats_parsed").unwrap().as_struct().column_by_name("minValues").unwrap().as_struct();
    assert_eq!(min.column_by_name("col-1").unwrap().as_primitive::<Int64Type>().value(0), 4);
}

#[test]
fn tombstones_are_kept_until_they_expire() {
    let mut log = Log::new(&[("p", "long")], &[], &[("delta.deletedFileRetentionDuration", "interval 2 days")]);
    log.commit(&["old", "young", "back", "still"].map(|path| add(path, "{}")));
    let now = 1_700_000_000_000;
    log.commit(&[remove("old", now - 2 * DAY), remove("young", now - 2 * DAY + 1), remove("back", now)]);
    log.commit(&[json!({"remove": {"path": "timeless", "dataChange": true}})]);
    let paths = |log: &Log| -> Vec<String> {
        let removes = block_on(state(&log.snapshot())).unwrap().removes;
        removes.iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    assert_eq!(log.only_checkpoint(now).removes, 2);
    assert_eq!(paths(&log), ["back", "young"]);
    // The next checkpoint takes them over, unless they are superseded or expired.
    log.commit(&[add("back", "{}"), remove("still", now)]);
    assert_eq!(log.only_checkpoint(now).removes, 2);
    assert_eq!(paths(&log), ["still", "young"]);
    log.commit(&[json!({"commitInfo": {}})]);
    assert_eq!(log.only_checkpoint(now + 1).removes, 1);
    assert_eq!(paths(&log), ["still"]);
    let line = block_on(state(&log.snapshot())).unwrap().removes[0].clone();
    assert_eq!(line, format!("still None Some({now}) Some(100) {{\"p\": Some(\"1\")}} Some(true) None None"));
    let rows = log.rows(5);
    let remove = rows[0].column_by_name("remove").unwrap().as_struct();
    assert!(remove.column_by_name("stats").is_none() && remove.column_by_name("tags").is_none());
}

#[test]
fn transactions_expire_only_with_a_retention() {
    let now = 1_700_000_000_000;
    for (properties, kept) in [
        (vec![], vec!["fresh", "none", "stale"]),
        (vec![("delta.setTransactionRetentionDuration", "interval 1 day")], vec!["fresh", "none"]),
    ] {
        let mut log = Log::new(&[("p", "long")], &[], &properties);
        log.commit(&[
            json!({"txn": {"appId": "stale", "version": 1, "lastUpdated": now - DAY}}),
            json!({"txn": {"appId": "fresh", "version": 1, "lastUpdated": now - DAY + 1}}),
            json!({"txn": {"appId": "none", "version": 1}}),
        ]);
        log.only_checkpoint(now);
        let mut apps: Vec<String> =
            block_on(log.snapshot().txns()).unwrap().into_iter().map(|txn| txn.app_id).collect();
        apps.sort();
        assert_eq!(apps, kept);
    }
}

#[test]
fn the_file_format_suits_other_readers() {
    let log = rich(&[]);
    let written = log.only_checkpoint(0);
    let bytes = std::fs::read(log.path(&log.checkpoint_name(2))).unwrap();
    assert_eq!(written.bytes, bytes.len() as u64);
    let file = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
    let metadata = file.metadata().file_metadata();
    assert!(metadata.created_by().unwrap().starts_with("deltic version "));
    assert!(metadata.key_value_metadata().is_none_or(|pairs| pairs.is_empty()), "an Arrow schema is embedded");
    let columns: Vec<String> = metadata.schema_descr().columns().iter().map(|c| c.path().string()).collect();
    for expected in [
        "txn.appId",
        "add.partitionValues.key_value.key",
        "add.partitionValues.key_value.value",
        "add.tags.key_value.key",
        "add.deletionVector.storageType",
        "add.stats",
        "add.stats_parsed.minValues.nest.deep.z",
        "remove.deletionTimestamp",
        "metaData.partitionColumns.list.element",
        "metaData.format.options.key_value.key",
        "metaData.configuration.key_value.key",
        "protocol.readerFeatures.list.element",
        "domainMetadata.removed",
    ] {
        assert!(columns.iter().any(|c| c == expected), "{expected} is not among {columns:?}");
    }
    assert!(!columns.iter().any(|c| c.starts_with("commitInfo") || c.starts_with("cdc") || c.starts_with("sidecar")));
    let required: Vec<String> = metadata
        .schema_descr()
        .columns()
        .iter()
        .filter(|c| c.max_def_level() == 1 && c.max_rep_level() == 0)
        .map(|c| c.path().string())
        .collect();
    assert_eq!(required, ["add.path", "remove.path"]);
    for row in log.rows(2) {
        for action in ["add", "remove"] {
            let change =
                row.column_by_name(action).unwrap().as_struct().column_by_name("dataChange").unwrap().as_boolean();
            assert_eq!(change.true_count(), 0);
        }
        // One action in a row.
        for index in 0..row.num_rows() {
            assert_eq!(row.columns().iter().filter(|c| c.is_valid(index)).count(), 1);
        }
    }
}

#[test]
fn tables_with_the_feature_get_the_v2_spec() {
    let mut log = Log::empty();
    let features = json!(["v2Checkpoint"]);
    log.commit(&[
        json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}}),
        metadata(&[("x", "long")], &[], &[("delta.checkpointPolicy", "v2")]),
        add("f", "{}"),
    ]);
    let before = block_on(state(&log.snapshot())).unwrap();
    let written = log.only_checkpoint(0);
    // The file in a sidecar; protocol, metadata, `checkpointMetadata`.
    assert_eq!((written.actions, written.sidecars, written.reused), (5, 1, 0));
    let snapshot = log.snapshot();
    assert_eq!(block_on(state(&snapshot)).unwrap(), before);
    let checkpoint = block_on(snapshot.checkpoint()).unwrap().unwrap();
    assert_eq!(checkpoint.non_file_actions().checkpoint_metadata.as_ref().unwrap().version, 0);
    assert_eq!(checkpoint.sidecars().len(), 1);
    // Without the policy the classic name is used, which more readers support.
    log.commit(&[metadata(&[("x", "long")], &[], &[])]);
    let before = block_on(state(&log.snapshot())).unwrap();
    assert_eq!(log.only_checkpoint(0).sidecars, 0);
    assert!(log.path("00000000000000000001.checkpoint.parquet").exists());
    let snapshot = log.snapshot();
    assert_eq!(block_on(state(&snapshot)).unwrap(), before);
    assert!(block_on(snapshot.checkpoint()).unwrap().unwrap().sidecars().is_empty());
}

#[test]
fn files_are_sorted_by_partition_or_clustering() {
    let first = |log: &Log, version: u64| {
        log.only_checkpoint(0);
        let adds = log.adds_in_checkpoint(version);
        adds.column_by_name("path")
            .unwrap()
            .as_string::<i32>()
            .iter()
            .map(|p| p.unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let mut log = Log::new(&[("x", "long"), ("p", "integer")], &["p"], &[]);
    let partitions = [Some("10"), Some("9"), None, Some("-1"), Some("9")];
    for (i, p) in partitions.iter().enumerate() {
        log.commit(&[add_with(&format!("f{}", 9 - i), json!({"partitionValues": {"p": p}}))]);
    }
    let expected = ["f7", "f6", "f5", "f8", "f9"];
    assert_eq!(first(&log, 5), expected);
    // The same from a checkpoint and new commits.
    log.commit(&[add_with("f1", json!({"partitionValues": {"p": "9"}}))]);
    assert_eq!(first(&log, 6), ["f7", "f6", "f1", "f5", "f8", "f9"]);

    let mut log = Log::new(&[("x", "long"), ("y", "string")], &[], &[]);
    let domain = json!({"clusteringColumns": [["y"], ["x"]], "domainName": "delta.clustering"}).to_string();
    log.commit(&[json!({"domainMetadata": {"domain": "delta.clustering", "configuration": domain, "removed": false}})]);
    for (path, stats) in [
        ("b", r#"{"numRecords":1,"minValues":{"x":2,"y":"m"},"maxValues":{"x":3,"y":"n"}}"#),
        ("c", r#"{"numRecords":1,"minValues":{"x":1,"y":"m"},"maxValues":{"x":3,"y":"n"}}"#),
        ("d", r#"{"numRecords":1}"#),
        ("e", r#"{"numRecords":1,"minValues":{"x":9,"y":"a"},"maxValues":{"x":9,"y":"n"}}"#),
    ] {
        log.commit(&[add(path, stats)]);
    }
    assert_eq!(first(&log, 5), ["d", "e", "c", "b"]);
}

#[test]
fn tables_with_unsupported_features_get_no_checkpoint() {
    for (feature, properties, refused) in [
        ("fromTheFuture", &[][..], true),
        ("coordinatedCommits-preview", &[], true),
        ("rowTracking", &[], false),
        ("checkpointProtection", &[("delta.requireCheckpointProtectionBeforeVersion", "1")], true),
        ("checkpointProtection", &[("delta.requireCheckpointProtectionBeforeVersion", "0")], false),
    ] {
        let mut log = Log::empty();
        log.commit(&[
            json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [feature]}}),
            metadata(&[("x", "long")], &[], properties),
        ]);
        let result = log.checkpoint_at(0);
        match refused {
            true => assert_eq!(result.unwrap_err().kind(), &Kind::Unsupported { features: vec![feature.to_owned()] }),
            false => assert_eq!(result.unwrap().version, 0),
        }
        assert_eq!(log.path(&log.checkpoint_name(0)).exists(), !refused);
    }
}

#[test]
fn a_failed_checkpoint_leaves_the_old_one() {
    let mut log = Log::new(&[("x", "long"), ("p", "integer")], &["p"], &[]);
    log.commit(&[add_with("f", json!({"partitionValues": {"p": "1"}}))]);
    log.checkpoint_at(0).unwrap();
    let good = std::fs::read(log.path(&log.checkpoint_name(1))).unwrap();
    let hint = std::fs::read(log.path("_last_checkpoint")).unwrap();
    // A partition value that is not an integer cannot be parsed.
    log.commit(&[add_with("g", json!({"partitionValues": {"p": "one"}}))]);
    let error = log.checkpoint_at(0).unwrap_err();
    assert_eq!(error.kind(), &Kind::Corrupt, "{error}");
    assert_eq!(error.version(), Some(2));
    // No checkpoint is written if log and checksum disagree.
    log.commit(&[json!({"remove": {"path": "g", "deletionTimestamp": 1, "dataChange": true}})]);
    let snapshot = log.snapshot();
    let crc = json!({"tableSizeBytes": 1, "numFiles": 2, "numMetadata": 1, "numProtocol": 1,
        "metadata": snapshot.metadata(), "protocol": snapshot.protocol()});
    std::fs::write(log.path("00000000000000000003.crc"), crc.to_string()).unwrap();
    let error = log.checkpoint_at(0).unwrap_err();
    assert!(error.to_string().contains("1 live files"), "{error}");
    assert_eq!(std::fs::read(log.path(&log.checkpoint_name(1))).unwrap(), good);
    assert_eq!(std::fs::read(log.path("_last_checkpoint")).unwrap(), hint);
    let names: Vec<String> =
        std::fs::read_dir(log.path("")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert!(
        !names.iter().any(|n| n.starts_with("00000000000000000002.ch") || n.starts_with("00000000000000000003.ch"))
    );
    assert!(names.iter().all(|n| !n.contains("tmp")), "{names:?}");
}

#[test]
fn the_hint_only_moves_forward() {
    let mut log = Log::new(&[("x", "long")], &[], &[]);
    for i in 0..4 {
        log.commit(&[add(&format!("f{i}"), "{}")]);
    }
    assert_eq!(block_on(checkpoint(&LogSource::of(&log.storage), 0)).unwrap(), 4);
    let newest = log.hint().unwrap();
    assert_eq!((newest.version, newest.size, newest.num_of_add_files), (4, 6, Some(4)));
    assert!(newest.size_in_bytes > Some(0) && newest.checksum.is_some());
    let older = block_on(async { of_snapshot(&Snapshot::open(&LogSource::of(&log.storage), Some(2)).await?, 0).await })
        .unwrap();
    assert_eq!((older.version, older.adds), (2, 2));
    assert_eq!(log.hint().unwrap(), newest);
    // A hint to a missing checkpoint is replaced.
    let stray = LastCheckpoint { version: 9, size: 1, ..LastCheckpoint::default() };
    std::fs::write(log.path("_last_checkpoint"), stray.to_json()).unwrap();
    assert_eq!(block_on(checkpoint(&LogSource::of(&log.storage), 0)).unwrap(), 4);
    assert_eq!(log.hint().unwrap(), newest);
    for garbage in ["", "{", "{\"version\":-1}"] {
        std::fs::write(log.path("_last_checkpoint"), garbage).unwrap();
        assert_eq!(block_on(checkpoint(&LogSource::of(&log.storage), 0)).unwrap(), 4);
        assert_eq!(log.hint().unwrap(), newest);
    }
}

#[test]
fn concurrent_checkpoints_are_consistent() {
    let mut log = Log::new(&[("x", "long")], &[], &[]);
    for i in 0..20 {
        log.commit(&[add(&format!("f{i}"), r#"{"numRecords":1}"#)]);
    }
    let before = block_on(state(&log.snapshot())).unwrap();
    block_on(async {
        let at = |version: u64| {
            let storage = log.storage.clone();
            tokio::spawn(async move {
                of_snapshot(&Snapshot::open(&LogSource::of(&storage), Some(version)).await?, 0).await
            })
        };
        let racers: Vec<_> = [20, 10, 20, 15, 20].map(at).into_iter().collect();
        for racer in racers {
            racer.await.unwrap().unwrap();
        }
    });
    assert!([10, 15, 20].contains(&log.hint().unwrap().version));
    assert_eq!(block_on(state(&log.snapshot())).unwrap(), before);
}

#[test]
fn checkpoints_are_due_at_the_interval() {
    for (version, interval, due) in [(0, 3, false), (2, 3, false), (3, 3, true), (4, 3, false), (9, 3, true)] {
        assert_eq!(is_due(version, interval), due, "version {version}");
    }
    assert!(!is_due(5, 0));
}

#[test]
fn many_files_get_their_own_row_groups() {
    let mut log = Log::new(&[("x", "long")], &[], &[]);
    let files = 40_000;
    let adds: Vec<Value> = (0..files)
        .map(|i| add(&format!("part-{i:05}"), &format!(r#"{{"numRecords":1,"minValues":{{"x":{i}}}}}"#)))
        .collect();
    for chunk in adds.chunks(9_999) {
        log.commit(chunk);
    }
    for _ in 0..2 {
        let version = log.next - 1;
        let written = log.only_checkpoint(0);
        assert_eq!((written.version, written.adds), (version, files));
        let snapshot = log.snapshot();
        assert_eq!(block_on(snapshot.num_files()).unwrap(), files);
        let live = block_on(live(&snapshot)).unwrap();
        let mut seen: Vec<i64> = Vec::new();
        for batch in &live {
            let stats = batch.structure("stats_parsed").unwrap().column_by_name("minValues").unwrap().as_struct();
            seen.extend(stats.column_by_name("x").unwrap().as_primitive::<Int64Type>().values());
        }
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(0..files as i64));
        let file =
            SerializedFileReader::new(std::fs::File::open(log.path(&log.checkpoint_name(version))).unwrap()).unwrap();
        let rows: Vec<i64> = file.metadata().row_groups().iter().map(|group| group.num_rows()).collect();
        assert_eq!(rows, [files as i64, 2]);
        log.commit(&[json!({"commitInfo": {}})]);
    }
}

/// More unsorted files than fit into a row group are sorted into row groups. The next checkpoint has all live files and no
/// removed ones.
#[test]
fn many_files_are_sorted_into_row_groups() {
    let mut log = Log::new(&[("x", "long"), ("p", "integer")], &["p"], &[]);
    let (files, partitions) = (140_000, 100);
    let path = |i: i64| format!("part-{i:06}");
    let partition = |i: i64| i * 37 % partitions;
    let row = |i: i64| {
        let stats = format!(r#"{{"numRecords":1,"minValues":{{"x":{i}}},"nullCount":{{"x":{}}}}}"#, i % 2);
        add_with(&path(i), json!({"partitionValues": {"p": partition(i).to_string()}, "stats": stats}))
    };
    for start in (0..files).step_by(20_000) {
        log.commit(&(start..(start + 20_000).min(files)).map(row).collect::<Vec<_>>());
    }
    let mut expected: Vec<i64> = (0..files).collect();
    for _ in 0..2 {
        let version = log.next - 1;
        assert_eq!(log.only_checkpoint(0).adds, expected.len() as u64);
        let file = std::fs::File::open(log.path(&log.checkpoint_name(version))).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        let groups: Vec<i64> = reader.metadata().row_groups().iter().map(|group| group.num_rows()).collect();
        assert!(groups.len() >= 2 && groups.iter().all(|rows| *rows <= 128 * 1024), "{groups:?}");
        // Pages are small, since a narrow filter decompresses only those that it needs.
        let largest =
            (0..groups.len()).map(|group| largest_page(&log.path(&log.checkpoint_name(version)), group)).max();
        assert!(largest.unwrap() <= 128 * 1024, "{largest:?}");
        let (mut seen, mut last) = (Vec::new(), i64::MIN);
        for batch in reader.build().unwrap() {
            let batch = batch.unwrap();
            let adds = batch.column_by_name("add").unwrap().as_struct();
            let member = |name: &str| adds.column_by_name(name).unwrap();
            let paths = member("path").as_string::<i32>();
            let parsed = member("partitionValues_parsed").as_struct();
            let values = parsed.column_by_name("p").unwrap().as_primitive::<Int32Type>();
            let texts = text_map_columns(member("partitionValues").as_map());
            let stats = member("stats_parsed").as_struct();
            let part = |name: &str| stats.column_by_name(name).unwrap().as_struct().column_by_name("x").unwrap();
            let (least, nulls) = (part("minValues"), part("nullCount"));
            for at in (0..batch.num_rows()).filter(|at| adds.is_valid(*at)) {
                let i: i64 = paths.value(at)["part-".len()..].parse().unwrap();
                assert_eq!(i64::from(values.value(at)), partition(i));
                assert_eq!(texts[at], partition(i).to_string());
                assert_eq!(least.as_primitive::<Int64Type>().value(at), i);
                assert_eq!(nulls.as_primitive::<Int64Type>().value(at), i % 2);
                assert!(member("stats").as_string::<i32>().value(at).contains(&format!("\"x\":{i}}}")));
                // Files are sorted by partition.
                assert!(last <= partition(i));
                last = partition(i);
                seen.push(i);
            }
        }
        seen.sort_unstable();
        assert!(seen == expected, "{} files instead of {}", seen.len(), expected.len());
        // A plan keeps the right files, with few pages decoded, with all, and with cached ones.
        let snapshot = log.snapshot();
        // In odd files all values of `x` are null.
        let filters: [(&str, &dyn Fn(i64) -> bool); 3] = [
            ("p = 42", &|i| partition(i) == 42),
            ("p >= 40 and p <= 43 and x < 9000", &|i| (40..=43).contains(&partition(i)) && i < 9_000 && i % 2 == 0),
            ("x < 200", &|i| i < 200 && i % 2 == 0),
        ];
        for (filter, holds) in filters.iter().chain(&filters) {
            check_kept(&snapshot, filter, expected.iter().filter(|i| holds(**i)).map(|i| path(*i)));
        }
        log.commit(&(0..files).step_by(7).map(|i| remove(&path(i), 1)).collect::<Vec<_>>());
        expected.retain(|i| i % 7 != 0);
    }
}

/// The size of the largest page of `add.path` in a row group.
fn largest_page(file: &Path, group: usize) -> usize {
    let reader = SerializedFileReader::new(std::fs::File::open(file).unwrap()).unwrap();
    let leaves = reader.metadata().file_metadata().schema_descr().columns();
    let leaf = leaves.iter().position(|leaf| leaf.path().parts() == ["add", "path"]).unwrap();
    let pages = reader.get_row_group(group).unwrap().get_column_page_reader(leaf).unwrap();
    pages.map(|page| page.unwrap().buffer().len()).max().unwrap()
}

/// Checks that a plan keeps exactly these files, as tasks and as columns.
fn check_kept(snapshot: &Snapshot, filter: &str, expected: impl Iterator<Item = String>) {
    let plan = block_on(ScanPlan::new(snapshot, None, Some(filter))).unwrap();
    let mut tasks: Vec<String> = block_on(plan.tasks()).unwrap().into_iter().map(|task| task.path).collect();
    let (_, batches) = block_on(plan.to_batches()).unwrap();
    let mut rows: Vec<String> = Vec::new();
    for batch in &batches {
        let column = |name: &str| batch.column_by_name(name).unwrap();
        assert!(column("size").as_primitive::<Int64Type>().values().iter().all(|size| *size > 0));
        rows.extend(column("path").as_string::<i32>().iter().map(|path| path.unwrap().to_owned()));
    }
    let mut expected: Vec<String> = expected.collect();
    for paths in [&mut tasks, &mut rows, &mut expected] {
        paths.sort();
    }
    assert!(!expected.is_empty() && tasks == expected, "{filter}: {} files, not {}", tasks.len(), expected.len());
    assert!(rows == expected, "{filter}: {} rows, not {}", rows.len(), expected.len());
}

/// The single value of each map.
fn text_map_columns(maps: &MapArray) -> Vec<String> {
    let value = |map: StructArray| map.column(1).as_string::<i32>().value(0).to_owned();
    maps.iter().map(|map| map.map(value).unwrap_or_default()).collect()
}

/// More unsorted files than fit into memory are still sorted into row groups.
#[test]
fn files_that_exceed_memory_are_sorted_into_row_groups() {
    let mut log = Log::new(&[("x", "string"), ("p", "integer")], &["p"], &form(true, true));
    let files: i64 = 2_600;
    let partition = |i: i64| i * 997 % files;
    let row = |i: i64| {
        let stats = json!({"numRecords": i, "minValues": {"x": format!("{i}{}", "x".repeat(70_000))}}).to_string();
        add_with(&format!("f{i}"), json!({"partitionValues": {"p": partition(i).to_string()}, "stats": stats}))
    };
    for start in (0..files).step_by(650) {
        log.commit(&(start..start + 650).map(row).collect::<Vec<_>>());
    }
    for _ in 0..2 {
        let version = log.next - 1;
        assert_eq!(log.only_checkpoint(0).adds, files as u64);
        let live = block_on(live(&log.snapshot())).unwrap();
        let mut seen = Vec::new();
        for batch in &live {
            for (path, stats) in batch.path().iter().zip(&batch.stats().unwrap().unwrap()) {
                let i: i64 = path.unwrap()[1..].parse().unwrap();
                assert!(stats.unwrap().starts_with(&format!(r#"{{"minValues":{{"x":"{i}xx"#)), "{i}");
                seen.push(i);
            }
        }
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(0..files), "{}", seen.len());
        let file = std::fs::File::open(log.path(&log.checkpoint_name(version))).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let schema = reader.metadata().file_metadata().schema_descr();
        let parsed = |c: &ColumnDescPtr| c.path().parts() == ["add", "partitionValues_parsed", "p"];
        let leaf = schema.columns().iter().position(parsed).unwrap();
        let spans = reader.metadata().row_groups().iter().filter_map(|group| match group.column(leaf).statistics() {
            Some(Statistics::Int32(bounds)) => Some((*bounds.min_opt()?, *bounds.max_opt()?)),
            _ => None,
        });
        let spans: Vec<(i32, i32)> = spans.collect();
        let having = |value: i32| spans.iter().filter(|(min, max)| (*min..=*max).contains(&value)).count();
        let most = (0..files as i32).map(having).max().unwrap();
        assert!(spans.len() > 3 && most <= spans.len().div_ceil(3), "{spans:?}");
        log.commit(&[json!({"commitInfo": {}})]);
    }
}

/// A change of one file in a commit.
#[derive(Debug, Clone, Copy)]
enum Change {
    Add,
    AddWithVector(u8),
    Remove,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A log with checkpoints at any version and in any form has the same state as without them.
    #[test]
    fn checkpoints_never_change_the_state(
        commits in prop::collection::vec(
            (prop::collection::btree_map(0_u8..6, prop_oneof![
                Just(Change::Add), (0_u8..3).prop_map(Change::AddWithVector), Just(Change::Remove)], 0..5),
             prop::option::of((any::<bool>(), any::<bool>()))),
            1..8),
    ) {
        let plain_form = form(true, true);
        let (mut plain, mut checked) = (Log::new(TYPES, &["p"], &plain_form), Log::new(TYPES, &["p"], &plain_form));
        let mut live: HashMap<u8, Option<u8>> = HashMap::new();
        for (number, (changes, checkpoint)) in commits.iter().enumerate() {
            let mut actions = Vec::new();
            for (file, change) in changes {
                let path = format!("p=1/f{file}");
                let dv = |v: u8| json!({"storageType": "u", "pathOrInlineDv": format!("{v:020}"), "offset": 1,
                    "sizeInBytes": 10, "cardinality": 1});
                let next = match change {
                    Change::Add => Some(None),
                    Change::AddWithVector(v) => Some(Some(*v)),
                    Change::Remove => None,
                };
                let had = live.remove(file);
                if had.is_some() && had != next || matches!(change, Change::Remove) {
                    let mut action = remove(&path, 1_000 + number as i64);
                    if let Some(Some(v)) = had {
                        action["remove"]["deletionVector"] = dv(v);
                    }
                    actions.push(action);
                }
                live.extend(next.map(|next| (*file, next)));
                let stats = json!({"numRecords": number, "minValues": {"l": number, "t": format!("{number}")},
                    "nullCount": {"l": 0}}).to_string();
                match change {
                    Change::Add => actions.push(add(&path, &stats)),
                    Change::AddWithVector(v) => {
                        actions.push(add_with(&path, json!({"stats": stats, "deletionVector": dv(*v)})));
                    }
                    Change::Remove => {}
                }
            }
            actions.push(json!({"txn": {"appId": format!("a{}", number % 3), "version": number}}));
            if let Some((json, typed)) = checkpoint {
                // At least one form: with neither, the table drops statistics.
                actions.push(metadata(TYPES, &["p"], &form(*json || !typed, *typed)));
            }
            plain.commit(&actions);
            checked.commit(&actions);
            if checkpoint.is_some() {
                checked.only_checkpoint(0);
            }
        }
        let (plain, checked) = (block_on(state(&plain.snapshot())).unwrap(), block_on(state(&checked.snapshot())).unwrap());
        prop_assert_eq!(checked.pruned(), plain.pruned());
    }
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|e| e.unwrap()) {
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &to.join(entry.file_name()));
        } else {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// The statistics of all columns, from either form, one line per file.
fn typed_lines(snapshot: &Snapshot) -> Vec<String> {
    let layout = every_column(snapshot);
    let mut lines = Vec::new();
    for batch in block_on(live(snapshot)).unwrap() {
        let columns =
            layout.columns(batch.stats().unwrap().as_ref(), batch.structure("stats_parsed"), batch.len()).unwrap();
        let columns = arrow_cast::cast(&columns, &text_of(columns.data_type())).unwrap();
        let options = arrow_cast::display::FormatOptions::new().with_null("null");
        let printer = arrow_cast::display::ArrayFormatter::try_new(&columns, &options).unwrap();
        lines.extend((0..batch.len()).map(|row| format!("{} {}", batch.path().value(row), printer.value(row))));
    }
    lines.sort();
    lines
}

/// Removes time zones, since the formatter does not know them by name.
fn text_of(data_type: &ArrowType) -> ArrowType {
    match data_type {
        ArrowType::Struct(fields) => {
            let field = |f: &Arc<Field>| f.as_ref().clone().with_data_type(text_of(f.data_type()));
            ArrowType::Struct(fields.iter().map(field).collect())
        }
        ArrowType::Timestamp(unit, Some(_)) => ArrowType::Timestamp(*unit, None),
        other => other.clone(),
    }
}

fn every_column(snapshot: &Snapshot) -> StatsLayout {
    let shape = snapshot.shape();
    let data = shape.schema.fields.iter().filter(|f| !shape.is_partition_column(&f.name)).cloned().collect();
    StatsLayout::new(&shape.mapping.physical_schema(&StructType::new(data)).unwrap(), &|_| true)
}

/// Checks that typed and JSON statistics agree where both exist.
fn check_forms_agree(snapshot: &Snapshot, name: &str) {
    let layout = every_column(snapshot);
    for batch in block_on(live(snapshot)).unwrap() {
        let (Some(text), Some(typed)) = (batch.stats().unwrap(), batch.structure("stats_parsed")) else { continue };
        let both = layout.columns(Some(&text), Some(typed), batch.len()).unwrap();
        let from_text = layout.columns(Some(&text), None, batch.len()).unwrap();
        assert_eq!(both, from_text, "{name}");
    }
}

#[test]
fn tables_of_other_writers_keep_their_state() {
    let Some((folder, tables)) = corpus() else { return };
    let (mut done, mut refused) = (0, Vec::new());
    for table in tables.iter().filter(|t| t["expect_snapshot"] == "ok") {
        let name = table["id"].as_str().unwrap();
        for (json, typed) in [(None, None), (Some("false"), Some("true")), (Some("true"), Some("false"))] {
            let mut log = Log::empty();
            copy_folder(&folder.join(table["table_path"].as_str().unwrap()).join("_delta_log"), &log.path(""));
            let Ok(snapshot) = block_on(Snapshot::open(&LogSource::of(&log.storage), None)) else {
                refused.push(format!("{name}: cannot be opened"));
                break;
            };
            log.next = snapshot.version() + 1;
            if let (Some(json), Some(typed)) = (json, typed) {
                let mut metadata = snapshot.metadata().clone();
                metadata.configuration.insert("delta.checkpoint.writeStatsAsJson".to_owned(), json.to_owned());
                metadata.configuration.insert("delta.checkpoint.writeStatsAsStruct".to_owned(), typed.to_owned());
                log.commit(&[json!({"metaData": metadata})]);
            }
            let before = match block_on(state(&log.snapshot())) {
                Ok(before) => before,
                Err(e) => {
                    refused.push(format!("{name}: {e}"));
                    break;
                }
            };
            let typed_before = typed_lines(&log.snapshot());
            match log.checkpoint_at(0) {
                Ok(_) => drop(log.only_checkpoint(0)),
                Err(e) if matches!(e.kind(), Kind::Unsupported { .. }) => {
                    refused.push(format!("{name}: {e}"));
                    break;
                }
                Err(e) => panic!("{name}: {e}"),
            }
            let after = log.snapshot();
            check_forms_agree(&after, name);
            let properties = Properties::of(after.metadata());
            let keeps_text = properties.checkpoint_write_stats_as_json().unwrap();
            if keeps_text || properties.checkpoint_write_stats_as_struct().unwrap() {
                assert_eq!(typed_lines(&after), typed_before, "{name}, json {json:?}");
            }
            let lines = |mut state: State| {
                if !keeps_text {
                    // JSON from typed columns is spelled differently.
                    state.adds.iter_mut().for_each(|line| *line = without_stats(line));
                }
                [state.others, state.adds, state.removes].concat()
            };
            let (before, after) = (lines(before), lines(block_on(state(&after)).unwrap()));
            assert_eq!(after.len(), before.len(), "{name}");
            for (before, after) in before.iter().zip(after) {
                assert_eq!(&after, before, "{name}, json {json:?}");
            }
            done += 1;
        }
    }
    eprintln!("{done} checkpoints; not made: {refused:#?}");
    assert!(done > 300, "{done}");
}
