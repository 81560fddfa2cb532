//! Actions as JSON lines and as columns.
//!
//! A case has the lines of a commit and the actions read from it, as JSON with the members in the order of the structs.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, Int32Array, Int64Array, LargeStringArray, ListArray, MapArray, NullArray,
    RecordBatch, StringArray, StructArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Fields, Schema};
use bytes::Bytes;
use deltic_protocol::action::batch::{AddBatch, DELETION_VECTOR_FIELDS, KeyBatch, Origin, string_map_at};
use deltic_protocol::action::json::{CommitActions, CommitBatchReader, Wanted, parse_commit, serialize_commit};
use deltic_protocol::action::rows::NonFileActions;
use deltic_protocol::action::{
    Action, Add, Cdc, CommitInfo, DeletionVectorDescriptor, DomainMetadata, Format, Metadata, Protocol, Remove, Txn,
};
use deltic_protocol::error::{Error, Kind, Result};
use proptest::prelude::*;
use serde_json::{Value, json};

fn parse(text: impl AsRef<[u8]>) -> Result<CommitActions> {
    parse_commit(&Bytes::copy_from_slice(text.as_ref()), Origin::Commit(7), Wanted::All)
}

/// The removes, without the members that have no column.
fn removes(actions: &CommitActions) -> Vec<Remove> {
    let rows = &actions.remove_rows;
    // Members that adds have too are read with the accessors of adds.
    let same = AddBatch::new(Origin::Commit(7), rows.clone()).unwrap();
    let boolean = |name: &str, row: usize| {
        let column = rows.column_by_name(name)?.as_boolean();
        column.is_valid(row).then(|| column.value(row))
    };
    let number = |name: &str, row: usize| {
        let column = rows.column_by_name(name)?.as_primitive::<Int64Type>();
        column.is_valid(row).then(|| column.value(row))
    };
    let partition = rows.column_by_name("partitionValues").map(|column| column.as_map());
    (0..rows.num_rows())
        .map(|row| Remove {
            path: same.path().value(row).to_owned(),
            deletion_timestamp: number("deletionTimestamp", row),
            data_change: boolean("dataChange", row).unwrap_or_default(),
            extended_file_metadata: boolean("extendedFileMetadata", row),
            partition_values: partition.filter(|map| map.is_valid(row)).map(|map| string_map_at(map, row).unwrap()),
            size: number("size", row),
            stats: None,
            tags: None,
            deletion_vector: same.deletion_vector(row).unwrap(),
            base_row_id: number("baseRowId", row),
            default_row_commit_version: number("defaultRowCommitVersion", row),
        })
        .collect()
}

/// The adds without statistics: how these are spelled depends on the parser.
fn without_stats(actions: &CommitActions) -> RecordBatch {
    let rows = actions.adds.rows();
    let others: Vec<usize> = (0..rows.num_columns()).filter(|at| rows.schema().field(*at).name() != "stats").collect();
    rows.project(&others).unwrap()
}

fn adds(actions: &CommitActions) -> Vec<Add> {
    (0..actions.adds.len()).map(|row| actions.adds.add(row).unwrap()).collect()
}

/// All actions that were read, one per line, adds and removes first.
fn show(actions: &CommitActions) -> Vec<String> {
    let mut lines = Vec::new();
    let mut show = |name: &str, value: Value| lines.push(format!("{name} {value}"));
    adds(actions).iter().for_each(|a| show("add", json!(a)));
    removes(actions).iter().for_each(|a| show("remove", json!(a)));
    actions.cdc.iter().for_each(|a| show("cdc", json!(a)));
    actions.protocol.iter().for_each(|a| show("protocol", json!(a)));
    actions.metadata.iter().for_each(|a| show("metaData", json!(a)));
    actions.txns.iter().for_each(|a| show("txn", json!(a)));
    actions.domains.iter().for_each(|a| show("domainMetadata", json!(a)));
    actions.commit_info.iter().for_each(|a| show("commitInfo", Value::Object(a.0.clone())));
    actions.sidecars.iter().for_each(|a| show("sidecar", json!(a)));
    actions.checkpoint_metadata.iter().for_each(|a| show("checkpointMetadata", json!(a)));
    lines
}

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let expected: Vec<String> = expected
        .iter()
        .map(|line| {
            let (name, json) = line.split_once(' ').unwrap();
            format!("{name} {}", serde_json::from_str::<Value>(json).unwrap())
        })
        .collect();
    assert_eq!(show(&parse(text).unwrap()), expected, "{text}");
}

#[track_caller]
fn check_corrupt(text: impl AsRef<[u8]>, words: &str) {
    let shown = String::from_utf8_lossy(text.as_ref()).chars().take(200).collect::<String>();
    match parse(text) {
        Ok(actions) => panic!("{shown} is read as {:?}", show(&actions)),
        Err(e) => assert!(*e.kind() == Kind::Corrupt && e.to_string().contains(words), "{shown}: {e}"),
    }
}

const ADD: &str = r#"{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":2,"dataChange":true}}"#;
const ADDED: &str = r#"add {"path":"a","partitionValues":{},"size":1,"modificationTime":2,"dataChange":true}"#;

#[test]
fn members_become_columns() {
    check(ADD, &[ADDED]);
    check(
        r#"{"add":{"path":"p=1/b%20c","partitionValues":{"p":"1","q":null,"r":""},"size":9,"modificationTime":3,
           "dataChange":false,"stats":"{\"numRecords\":3}","tags":{"t":"u","v":null},"baseRowId":10,
           "deletionVector":{"storageType":"u","pathOrInlineDv":"ab^-aqEH.-t@S}K{vb[*k^","offset":4,"sizeInBytes":40,
           "cardinality":6,"maxRowIndex":12},"defaultRowCommitVersion":5,"clusteringProvider":"liquid"}}"#
            .replace('\n', "")
            .as_str(),
        &[r#"add {"path":"p=1/b%20c","partitionValues":{"p":"1","q":null,"r":""},"size":9,"modificationTime":3,
           "dataChange":false,"stats":"{\"numRecords\":3}","tags":{"t":"u","v":null},
           "deletionVector":{"storageType":"u","pathOrInlineDv":"ab^-aqEH.-t@S}K{vb[*k^","offset":4,"sizeInBytes":40,
           "cardinality":6},"baseRowId":10,"defaultRowCommitVersion":5,"clusteringProvider":"liquid"}"#],
    );
    check(
        r#"{"remove":{"path":"a","deletionTimestamp":8,"dataChange":true,"extendedFileMetadata":true,
           "partitionValues":{"p":"x"},"size":7,"stats":"{}","tags":{"a":"b"},"baseRowId":1,"defaultRowCommitVersion":2}}"#
            .replace('\n', "")
            .as_str(),
        &[r#"remove {"path":"a","deletionTimestamp":8,"dataChange":true,"extendedFileMetadata":true,
           "partitionValues":{"p":"x"},"size":7,"baseRowId":1,"defaultRowCommitVersion":2}"#],
    );
    check(r#"{"remove":{"path":"a","dataChange":true}}"#, &[r#"remove {"path":"a","dataChange":true}"#]);
    check(
        r#"{"cdc":{"path":"_change_data/c","partitionValues":{"p":null},"size":3,"dataChange":false}}"#,
        &[r#"cdc {"path":"_change_data/c","partitionValues":{"p":null},"size":3,"dataChange":false}"#],
    );
    check(
        r#"{"sidecar":{"path":"s.parquet","sizeInBytes":3,"modificationTime":4,"tags":{"k":"v"}}}
           {"checkpointMetadata":{"version":7}}"#,
        &[
            r#"sidecar {"path":"s.parquet","sizeInBytes":3,"modificationTime":4,"tags":{"k":"v"}}"#,
            r#"checkpointMetadata {"version":7}"#,
        ],
    );
}

#[test]
fn the_first_commit_info_wins() {
    check(
        r#"{"commitInfo":{"n":1}}
{"commitInfo":{"n":2}}"#,
        &[r#"commitInfo {"n":1}"#],
    );
}

#[test]
fn unknown_actions_and_members_are_ignored() {
    check(r#"{"backReference":{"x":[1,{"y":2}]}}"#, &[]);
    check(r#"{}"#, &[]);
    check(r#"{"add":null,"commitInfo":null,"extra":1}"#, &[]);
    check(&ADD.replace(r#""size":1"#, r#""size":1,"new":{"deep":[[[]]]},"other":null"#), &[ADDED]);
    check(r#"{"txn":{"appId":"a","version":3,"more":true}}"#, &[r#"txn {"appId":"a","version":3}"#]);
}

#[test]
fn null_counts_as_absent() {
    let nulls = r#"{"add":{"path":"a","partitionValues":null,"size":1,"modificationTime":2,"dataChange":true,
        "stats":null,"tags":null,"deletionVector":null,"baseRowId":null,"defaultRowCommitVersion":null,
        "clusteringProvider":null}}"#;
    check(&nulls.replace('\n', ""), &[ADDED]);
    check(
        r#"{"cdc":{"path":"c","partitionValues":null,"size":3,"dataChange":false,"tags":null}}"#,
        &[r#"cdc {"path":"c","partitionValues":{},"size":3,"dataChange":false}"#],
    );
    check(
        r#"{"metaData":{"id":"i","name":null,"description":null,"format":null,"schemaString":"s",
            "partitionColumns":null,"createdTime":null,"configuration":null}}"#
            .replace('\n', "")
            .as_str(),
        &[r#"metaData {"id":"i","format":{"provider":"parquet","options":{}},"schemaString":"s",
            "partitionColumns":[],"configuration":{}}"#],
    );
    check(
        r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2,"readerFeatures":null,"writerFeatures":null}}"#,
        &[r#"protocol {"minReaderVersion":1,"minWriterVersion":2}"#],
    );
    check(
        r#"{"domainMetadata":{"domain":"d","configuration":null,"removed":null}}"#,
        &[r#"domainMetadata {"domain":"d","configuration":"","removed":false}"#],
    );
    check(r#"{"txn":{"appId":"a","version":3,"lastUpdated":null}}"#, &[r#"txn {"appId":"a","version":3}"#]);
}

#[test]
fn escapes_are_resolved() {
    check(
        r#"{"add":{"path":"\u0061\"\\\/\u00e9\ud83d\ude00","partitionValues":{"k\n":"v\t"},"size":1,
            "modificationTime":2,"dataChange":true,"stats":"{\"minValues\":{\"a\":\"\\\"\"}}"}}"#
            .replace('\n', "")
            .as_str(),
        &["add {\"path\":\"a\\\"\\\\/é😀\",\"partitionValues\":{\"k\\n\":\"v\\t\"},\"size\":1,\"modificationTime\":2,\
            \"dataChange\":true,\"stats\":\"{\\\"minValues\\\":{\\\"a\\\":\\\"\\\\\\\"\\\"}}\"}"],
    );
}

#[test]
fn bare_values_in_string_maps_become_strings() {
    check(
        &ADD.replace("{}", r#"{"a":1,"b":-2,"c":true,"d":1.5,"e":2.0,"f":18446744073709551615,"g":12345678901234567890123,"h":1.10,"i":1e2}"#),
        &[&ADDED.replace("{}", r#"{"a":"1","b":"-2","c":"true","d":"1.5","e":"2.0","f":"18446744073709551615","g":"12345678901234567890123","h":"1.10","i":"1e2"}"#)],
    );
    check(
        r#"{"metaData":{"id":"i","schemaString":"s","configuration":{"a":1,"b":false,"c":null,"d":2.0}}}"#,
        &[r#"metaData {"id":"i","format":{"provider":"parquet","options":{}},"schemaString":"s","partitionColumns":[],
            "configuration":{"a":"1","b":"false","d":"2.0"}}"#],
    );
    check_corrupt(ADD.replace("{}", r#"{"a":[1]}"#), "line 1");
    check_corrupt(ADD.replace("{}", r#"{"a":{}}"#), "line 1");
    check_corrupt(ADD.replace("{}", "[]"), "line 1");
}

#[test]
fn whole_numbers_may_have_a_fraction_of_zero_or_an_exponent() {
    for whole in ["1.0", "1e0", "10e-1", "0.1e1"] {
        check(&ADD.replace(r#""size":1"#, &format!(r#""size":{whole}"#)), &[ADDED]);
    }
    check(
        r#"{"remove":{"path":"a","dataChange":true,"deletionTimestamp":1.6e12}}"#,
        &[r#"remove {"path":"a","deletionTimestamp":1600000000000,"dataChange":true}"#],
    );
    // Read as other clients do: truncated, and from strings.
    for loose in ["1.5", "1.999", "\"1\"", "\" 1 \""] {
        check(&ADD.replace(r#""size":1"#, &format!(r#""size":{loose}"#)), &[ADDED]);
    }
    for wrong in ["1e300", "1e19", "9223372036854775808", "-9223372036854775809", "\"1.0\"", "\"x\"", "true", "[]"] {
        check_corrupt(ADD.replace(r#""size":1"#, &format!(r#""size":{wrong}"#)), "line 1");
    }
}

#[test]
fn lines_end_in_any_way() {
    let two = |between: &str, after: &str| format!("{ADD}{between}{ADD}{after}");
    for (between, after) in [("\n", ""), ("\n", "\n"), ("\r\n", "\r\n"), ("\n\n  \n", "\n \t\n")] {
        check(&two(between, after), &[ADDED, ADDED]);
    }
    for nothing in ["", "\n", " \r\n\n"] {
        check_corrupt(nothing, "the commit is empty");
    }
}

#[test]
fn a_commit_has_one_protocol_and_one_metadata() {
    let metadata = r#"{"metaData":{"id":"a","schemaString":"{}"}}"#;
    let protocol = r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}"#;
    let checkpoint = r#"{"checkpointMetadata":{"version":1}}"#;
    for (line, name) in [(metadata, "metaData"), (protocol, "protocol"), (checkpoint, "checkpointMetadata")] {
        let other = line.replace("\"a\"", "\"b\"").replace(":1", ":3");
        check_corrupt(format!("{line}\n{ADD}\n{other}"), &format!("line 3 is a second `{name}` action"));
        assert!(parse(format!("{line}\n{ADD}\n{line}")).is_ok(), "{line}: equal actions are accepted");
    }
}

#[test]
fn an_invalid_line_is_corrupt_with_its_number() {
    for end in 1..ADD.len() {
        check_corrupt(format!("{ADD}\n\n{}", &ADD[..end]), "line 3 of the commit");
    }
    check_corrupt(format!("\u{feff}\u{feff}{ADD}"), "line 1");
    check_corrupt(format!("{ADD}\n\u{feff}{ADD}"), "line 2");
    check_corrupt(format!("{ADD}{ADD}"), "line 1");
    check_corrupt(format!("{ADD},"), "line 1");
    for wrong in ["[]", "null", "1", "\"add\"", "x", "{\"add\":1}", "{\"add\":{}}", r#"{"add":{"path":[1]}}"#] {
        check_corrupt(wrong, "line 1");
    }
    // An array of the members instead of an object.
    check_corrupt(format!("[{}]", ADD.strip_prefix(r#"{"add":"#).unwrap().strip_suffix('}').unwrap()), "line 1");
    check_corrupt(ADD.replace(r#""size":1"#, r#""size":1,"size":2"#), "duplicate");
    check_corrupt(ADD.replace(r#""a""#, "\"\\ud800\""), "line 1");
    check_corrupt(ADD.replace(r#""a""#, "null"), "line 1");
    check_corrupt([&b"{\"add\":{\"path\":\"\xff\xfe\"}}"[..]].concat(), "line 1");
    check_corrupt(r#"{"txn":{"appId":"a"}}"#, "line 1");
    check_corrupt(r#"{"protocol":{"minReaderVersion":1}}"#, "line 1");
    check_corrupt(r#"{"protocol":{"minReaderVersion":99999999999,"minWriterVersion":2}}"#, "line 1");
    check_corrupt(r#"{"commitInfo":[]}"#, "line 1");
}

#[test]
fn nesting_is_limited() {
    let deep = |n: usize| format!(r#"{{"commitInfo":{{"a":{}{}}}}}"#, "[".repeat(n), "]".repeat(n));
    assert!(parse(deep(100)).is_ok());
    check_corrupt(deep(1_000_000), "line 1");
    // Skipped actions may be nested to any depth.
    let unknown = deep(1_000_000).replace("commitInfo", "unknown");
    assert!(parse(unknown).is_ok());
}

#[test]
fn the_last_value_of_a_duplicate_partition_key_wins() {
    check(&ADD.replace("{}", r#"{"p":"1","p":"2"}"#), &[&ADDED.replace("{}", r#"{"p":"2"}"#)]);
}

#[test]
fn skipped_file_actions_are_not_parsed() {
    let text = [
        ADD,
        r#"{"add":{"path":"cut off"#,
        r#"{"remove":{"never":"looked at"#,
        r#"{"cdc":{"#,
        r#"{ "cdc" : {"path":"c","partitionValues":{},"size":3,"dataChange":false}}"#,
        r#"{"add":null,"txn":{"appId":"a","version":1}}"#,
        r#" {"domainMetadata":{"domain":"d","configuration":"{}","removed":true}}"#,
        r#"{ "add": {"path":"b"}}"#,
    ];
    let actions = parse_commit(&text.join("\n").into(), Origin::Commit(1), Wanted::NoFiles).unwrap();
    let expected =
        [r#"txn {"appId":"a","version":1}"#, r#"domainMetadata {"configuration":"{}","domain":"d","removed":true}"#];
    assert_eq!(show(&actions), expected);
    check_corrupt(text.join("\n"), "line 2");
}

#[test]
fn commit_info_members_are_read() {
    let of = |text: &str| CommitInfo(serde_json::from_str(text).unwrap());
    let info = of(r#"{"timestamp":5,"inCommitTimestamp":6,"txnId":"t","isBlindAppend":true}"#);
    assert_eq!((info.timestamp(), info.in_commit_timestamp(), info.txn_id()), (Some(5), Some(6), Some("t")));
    assert!(info.is_blind_append());
    let info = of(r#"{"timestamp":"5","inCommitTimestamp":1.5,"txnId":7,"isBlindAppend":"true"}"#);
    assert_eq!((info.timestamp(), info.in_commit_timestamp(), info.txn_id()), (Some(5), Some(1), None));
    assert!(!info.is_blind_append());
}

// --- columns

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
}

fn texts<'a>(values: impl IntoIterator<Item = Option<&'a str>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<StringArray>())
}

#[test]
fn an_add_batch_has_paths_and_members_of_their_types() {
    let new = |rows: RecordBatch| AddBatch::new(Origin::Checkpoint(3), rows).map(|b| b.len());
    assert_eq!(new(batch(vec![("path", texts([Some("a"), Some("b")]))])).unwrap(), 2);
    let cases: [(RecordBatch, &str); 4] = [
        (batch(vec![("path", texts([Some("a"), None]))]), "has no path"),
        (batch(vec![("size", Arc::new(Int64Array::from(vec![1])))]), "no path column"),
        (batch(vec![("path", Arc::new(Int64Array::from(vec![1])))]), "`add.path` has the type"),
        (batch(vec![("path", texts([Some("a")])), ("size", texts([Some("1")]))]), "`add.size` has the type"),
    ];
    for (rows, words) in cases {
        let error = new(rows).unwrap_err();
        assert!(*error.kind() == Kind::Corrupt && error.message().contains(words), "{error}");
    }
}

#[test]
fn absent_columns_are_absent_members() {
    let adds = AddBatch::new(Origin::Commit(1), batch(vec![("path", texts([Some("a")]))])).unwrap();
    assert_eq!(adds.add(0).unwrap(), Add { path: "a".to_owned(), ..Add::default() });
    assert_eq!(adds.keys().unwrap().deletion_vector(0), None);
    assert!(adds.stats().unwrap().is_none() && adds.size().is_none() && adds.partition_values().is_none());
}

/// Descriptors with these members, in any order and number.
fn vectors(members: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let rows = members[0].1.len();
    let fields: Fields = members.iter().map(|(name, a)| Field::new(*name, a.data_type().clone(), true)).collect();
    let column = StructArray::new(fields, members.into_iter().map(|(_, a)| a).collect(), None);
    let paths = (0..rows).map(|i| format!("f{i}")).collect::<Vec<_>>();
    batch(vec![("path", texts(paths.iter().map(|p| Some(p.as_str())))), ("deletionVector", Arc::new(column))])
}

#[test]
fn deletion_vectors_are_found_by_name_and_null_structs_are_none() {
    let rows = vectors(vec![
        ("maxRowIndex", Arc::new(Int64Array::from(vec![Some(1), None]))),
        ("cardinality", Arc::new(Int64Array::from(vec![Some(5), None]))),
        ("storageType", texts([Some("u"), None])),
        ("pathOrInlineDv", texts([Some("xyz"), None])),
        ("sizeInBytes", Arc::new(Int32Array::from(vec![Some(9), None]))),
        ("offset", Arc::new(Int32Array::from(vec![Some(1), None]))),
    ]);
    let adds = AddBatch::new(Origin::Checkpoint(1), rows).unwrap();
    let expected = DeletionVectorDescriptor {
        storage_type: "u".to_owned(),
        path_or_inline_dv: "xyz".to_owned(),
        offset: Some(1),
        size_in_bytes: 9,
        cardinality: 5,
    };
    assert_eq!(adds.deletion_vector(0).unwrap(), Some(expected));
    assert_eq!(adds.deletion_vector(1).unwrap(), None);
    let keys = adds.keys().unwrap();
    assert_eq!(keys.deletion_vector(0), Some(("u", "xyz", Some(1))));
    assert_eq!(keys.deletion_vector(1), None);

    let half = vectors(vec![("storageType", texts([Some("u")])), ("pathOrInlineDv", texts([Some("x")]))]);
    assert_eq!(*KeyBatch::new(&half).unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn filtering_keeps_the_marked_rows() {
    let actions = parse(format!("{ADD}\n{}\n{ADD}", ADD.replace("\"a\"", "\"b\""))).unwrap();
    let kept = actions.adds.filter(vec![false, true, false].into()).unwrap();
    assert_eq!((kept.len(), kept.path().value(0), kept.origin), (1, "b", Origin::Commit(7)));
    assert_eq!(kept.rows().schema(), actions.adds.rows().schema());
    assert_eq!(DELETION_VECTOR_FIELDS.len(), 5);
}

// --- the rows of a checkpoint without files

fn action(name: &str, members: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let fields: Fields = members.iter().map(|(name, a)| Field::new(*name, a.data_type().clone(), true)).collect();
    let column = StructArray::new(fields, members.into_iter().map(|(_, a)| a).collect(), None);
    let schema = Schema::new(vec![Field::new(name, column.data_type().clone(), true)]);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(column)]).unwrap()
}

fn state(rows: &RecordBatch) -> Result<NonFileActions, Error> {
    let mut state = NonFileActions::default();
    state.take(rows).map(|()| state)
}

#[test]
fn state_actions_of_any_integer_width_and_string_layout() {
    let wide = action(
        "protocol",
        vec![
            ("minReaderVersion", Arc::new(Int64Array::from(vec![None, Some(1)]))),
            ("minWriterVersion", Arc::new(Int64Array::from(vec![None, Some(2)]))),
        ],
    );
    let expected =
        Protocol { min_reader_version: 1, min_writer_version: 2, reader_features: None, writer_features: None };
    assert_eq!(state(&wide).unwrap().protocol, Some(expected));

    let narrow = action(
        "txn",
        vec![
            ("appId", Arc::new(LargeStringArray::from(vec![Some("a"), None, Some("b")]))),
            ("version", Arc::new(Int32Array::from(vec![Some(1), None, Some(2)]))),
            ("lastUpdated", Arc::new(Int64Array::from(vec![None, None, Some(9)]))),
        ],
    );
    let txn = |app_id: &str, version, last_updated| Txn { app_id: app_id.to_owned(), version, last_updated };
    assert_eq!(state(&narrow).unwrap().txns, [txn("a", 1, None), txn("b", 2, Some(9))]);

    let sidecar =
        action("sidecar", vec![("path", texts([Some("s")])), ("sizeInBytes", Arc::new(Int32Array::from(vec![5])))]);
    let found = &state(&sidecar).unwrap().sidecars[0];
    assert_eq!((found.path.as_str(), found.size_in_bytes, found.modification_time), ("s", 5, 0));

    let domain = action("domainMetadata", vec![("domain", texts([Some("d")]))]);
    let expected = DomainMetadata { domain: "d".to_owned(), configuration: String::new(), removed: false };
    assert_eq!(state(&domain).unwrap().domains, [expected]);
}

/// A list and a map of one row with these elements, keys and values.
fn list_and_map(texts: ArrayRef) -> (ArrayRef, ArrayRef) {
    let (of, offsets) = (texts.data_type().clone(), OffsetBuffer::from_lengths([texts.len()]));
    let list = ListArray::new(Arc::new(Field::new("element", of.clone(), true)), offsets.clone(), texts.clone(), None);
    let fields = Fields::from(vec![Field::new("key", of.clone(), false), Field::new("value", of, true)]);
    let entries = StructArray::new(fields.clone(), vec![texts.clone(), texts], None);
    let field = Arc::new(Field::new("key_value", DataType::Struct(fields), false));
    (Arc::new(list), Arc::new(MapArray::new(field, offsets, entries, None, false)))
}

fn metadata_with(list: ArrayRef, map: ArrayRef) -> RecordBatch {
    let id = texts([Some("i")]);
    action("metaData", vec![("id", id), ("partitionColumns", list), ("configuration", map)])
}

#[test]
fn lists_and_maps_of_strings_are_read_in_any_layout() {
    use DataType as D;
    for layout in [D::Utf8, D::LargeUtf8, D::Utf8View, D::Binary, D::LargeBinary, D::BinaryView] {
        let (list, map) = list_and_map(cast(&texts([Some("a"), Some("é")]), &layout).unwrap());
        let found = state(&metadata_with(list, map)).unwrap().metadata.unwrap();
        assert_eq!(found.partition_columns, ["a", "é"], "{layout}");
        let same = |text: &str| (text.to_owned(), text.to_owned());
        assert_eq!(found.configuration, BTreeMap::from([same("a"), same("é")]), "{layout}");
    }
    let nothing: ArrayRef = Arc::new(NullArray::new(1));
    let found = state(&metadata_with(nothing.clone(), nothing)).unwrap().metadata.unwrap();
    assert!(found.partition_columns.is_empty() && found.configuration.is_empty());
}

#[test]
fn lists_and_maps_that_hold_no_strings_are_corrupt() {
    let (list, map) = list_and_map(texts([Some("a")]));
    let (numbers, of_numbers) = list_and_map(Arc::new(Int32Array::from(vec![1])));
    let (broken, of_broken) = list_and_map(Arc::new(BinaryArray::from(vec![&b"\xff"[..]])));
    let scalar = || texts([Some("a")]);
    for (what, rows) in [
        ("a string for a list", metadata_with(scalar(), map.clone())),
        ("a string for a map", metadata_with(list.clone(), scalar())),
        ("numbers in a list", metadata_with(numbers, map.clone())),
        ("numbers in a map", metadata_with(list.clone(), of_numbers)),
        ("no UTF-8 in a list", metadata_with(broken, map)),
        ("no UTF-8 in a map", metadata_with(list, of_broken)),
    ] {
        let error = state(&rows).unwrap_err();
        assert!(*error.kind() == Kind::Corrupt && error.message().contains("does not have strings"), "{what}: {error}");
    }
}

#[test]
fn a_state_action_without_required_members_is_corrupt() {
    let cases: [RecordBatch; 3] = [
        action("protocol", vec![("minReaderVersion", Arc::new(Int32Array::from(vec![1])))]),
        action("txn", vec![("appId", texts([Some("a")])), ("version", texts([Some("one")]))]),
        action("sidecar", vec![("path", texts([Some("s")]))]),
    ];
    for rows in cases {
        let error = state(&rows).unwrap_err();
        assert!(*error.kind() == Kind::Corrupt && error.message().contains("is missing in the checkpoint"), "{error}");
    }
    let other = action("add", vec![("path", texts([Some("a")]))]);
    assert_eq!(state(&other).unwrap(), NonFileActions::default());
    let scalar = batch(vec![("protocol", texts([Some("no struct")]))]);
    assert_eq!(state(&scalar).unwrap(), NonFileActions::default());
    assert_eq!(DataType::Utf8, *scalar.schema().field(0).data_type());
}

// --- properties

mod properties {
    use super::*;

    fn text() -> BoxedStrategy<String> {
        prop_oneof![any::<String>(), "[ -~]{0,12}", "(%[0-9A-F]{2}|[\"\\\\\n\r\t/])*"].boxed()
    }

    fn text_map() -> impl Strategy<Value = BTreeMap<String, Option<String>>> {
        proptest::collection::btree_map(text(), proptest::option::of(text()), 0..4)
    }

    fn vector() -> impl Strategy<Value = DeletionVectorDescriptor> {
        ("[uip]", text(), any::<Option<i32>>(), any::<i32>(), any::<i64>()).prop_map(
            |(storage_type, path_or_inline_dv, offset, size_in_bytes, cardinality)| DeletionVectorDescriptor {
                storage_type,
                path_or_inline_dv,
                offset,
                size_in_bytes,
                cardinality,
            },
        )
    }

    fn add() -> impl Strategy<Value = Add> {
        let ids = (any::<Option<i64>>(), any::<Option<i64>>(), proptest::option::of(text()));
        let numbers = (any::<i64>(), any::<i64>(), any::<bool>());
        let rest = (proptest::option::of(text()), proptest::option::of(text_map()), proptest::option::of(vector()));
        (text(), text_map(), numbers, rest, ids).prop_map(
            |(path, partition_values, (size, modification_time, data_change), (stats, tags, deletion_vector), ids)| {
                Add {
                    path,
                    partition_values,
                    size,
                    modification_time,
                    data_change,
                    stats,
                    tags,
                    deletion_vector,
                    base_row_id: ids.0,
                    default_row_commit_version: ids.1,
                    clustering_provider: ids.2,
                }
            },
        )
    }

    fn remove() -> impl Strategy<Value = Remove> {
        let numbers = (any::<Option<i64>>(), any::<bool>(), any::<Option<bool>>(), any::<Option<i64>>());
        let ids = (any::<Option<i64>>(), any::<Option<i64>>());
        let rest = (proptest::option::of(text_map()), proptest::option::of(vector()));
        (text(), numbers, rest, ids).prop_map(|(path, numbers, rest, ids)| Remove {
            path,
            deletion_timestamp: numbers.0,
            data_change: numbers.1,
            extended_file_metadata: numbers.2,
            partition_values: rest.0,
            size: numbers.3,
            stats: None,
            tags: None,
            deletion_vector: rest.1,
            base_row_id: ids.0,
            default_row_commit_version: ids.1,
        })
    }

    fn metadata() -> impl Strategy<Value = Metadata> {
        let texts = proptest::collection::btree_map(text(), text(), 0..3);
        let names = (text(), proptest::option::of(text()), proptest::option::of(text()), text());
        let rest = (proptest::collection::vec(text(), 0..3), any::<Option<i64>>());
        (names, texts.clone(), texts, rest).prop_map(|(names, options, configuration, rest)| Metadata {
            id: names.0,
            name: names.1,
            description: names.2,
            format: Format { provider: "parquet".to_owned(), options },
            schema_string: names.3,
            partition_columns: rest.0,
            created_time: rest.1,
            configuration,
        })
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            text().prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(text(), inner, 0..4)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    fn action() -> impl Strategy<Value = Action> {
        let features = proptest::option::of(proptest::collection::vec(text(), 0..3));
        let protocol = (any::<i32>(), any::<i32>(), features.clone(), features).prop_map(|(reader, writer, r, w)| {
            Action::Protocol(Protocol {
                min_reader_version: reader,
                min_writer_version: writer,
                reader_features: r,
                writer_features: w,
            })
        });
        let cdc = (text(), text_map(), any::<i64>(), any::<bool>(), proptest::option::of(text_map())).prop_map(
            |(path, partition_values, size, data_change, tags)| {
                Action::Cdc(Cdc { path, partition_values, size, data_change, tags })
            },
        );
        let info = proptest::collection::btree_map(text(), json(), 0..4);
        prop_oneof![
            add().prop_map(Action::Add),
            remove().prop_map(Action::Remove),
            cdc,
            protocol,
            metadata().prop_map(Action::Metadata),
            info.prop_map(|m| Action::CommitInfo(CommitInfo(m.into_iter().collect()))),
            (text(), any::<i64>(), any::<Option<i64>>()).prop_map(|(app_id, version, last_updated)| Action::Txn(Txn {
                app_id,
                version,
                last_updated
            })),
            (text(), text(), any::<bool>()).prop_map(|(domain, configuration, removed)| Action::DomainMetadata(
                DomainMetadata { domain, configuration, removed }
            )),
        ]
    }

    proptest! {
        #[test]
        fn printed_actions_are_read_back(actions in proptest::collection::vec(action(), 1..8)) {
            let (mut protocols, mut metadatas) = (0, 0);
            let actions: Vec<Action> = actions
                .into_iter()
                .filter(|action| {
                    let count = match action {
                        Action::Protocol(_) => &mut protocols,
                        Action::Metadata(_) => &mut metadatas,
                        _ => return true,
                    };
                    *count += 1;
                    *count == 1
                })
                .collect();
            prop_assume!(!actions.is_empty());
            let printed = serialize_commit(&actions).unwrap();
            let read = parse(&printed).unwrap();
            let mut all = (vec![], vec![], vec![], vec![], vec![]);
            let (mut protocol, mut metadata, mut info) = (None, None, None);
            for action in actions {
                match action {
                    Action::Add(a) => all.0.push(a),
                    Action::Remove(a) => all.1.push(a),
                    Action::Cdc(a) => all.2.push(a),
                    Action::Txn(a) => all.3.push(a),
                    Action::DomainMetadata(a) => all.4.push(a),
                    Action::Protocol(a) => protocol = Some(a),
                    Action::Metadata(a) => metadata = Some(a),
                    Action::CommitInfo(a) => info = info.or(Some(a)),
                }
            }
            prop_assert_eq!(adds(&read), all.0);
            prop_assert_eq!(removes(&read), all.1);
            prop_assert_eq!(&read.cdc, &all.2);
            prop_assert_eq!(&read.txns, &all.3);
            prop_assert_eq!(&read.domains, &all.4);
            prop_assert_eq!(&read.protocol, &protocol);
            prop_assert_eq!(&read.metadata, &metadata);
            prop_assert_eq!(&read.commit_info, &info);
            // Without file actions the other actions are the same.
            let rest = parse_commit(&printed.clone().into(), Origin::Commit(7), Wanted::NoFiles).unwrap();
            prop_assert!(rest.adds.is_empty() && rest.removes.is_empty() && rest.cdc.is_empty());
            prop_assert_eq!((rest.txns, rest.domains), (all.3, all.4));
            prop_assert_eq!((rest.protocol, rest.metadata, rest.commit_info), (protocol, metadata, info));
        }

        #[test]
        fn both_parsers_agree(
            actions in proptest::collection::vec(
                prop_oneof![add().prop_map(Action::Add), remove().prop_map(Action::Remove)], 1..8),
        ) {
            let printed = serialize_commit(&actions).unwrap();
            // An unusual space needs the full parser.
            let spaced = String::from_utf8(printed.clone()).unwrap().replace("\n{\"", "\n{ \"");
            let (quick, full) = (parse(&printed).unwrap(), parse(format!("\n{spaced}").replacen("\n{\"", "{ \"", 1).as_bytes()).unwrap());
            prop_assert_eq!(without_stats(&quick), without_stats(&full));
            prop_assert_eq!(quick.adds.stats().unwrap(), full.adds.stats().unwrap());
            prop_assert_eq!(&quick.remove_rows, &full.remove_rows);
        }

        #[test]
        fn commits_read_in_a_batch_equal_single_commits(
            commits in proptest::collection::vec(proptest::collection::vec(
                prop_oneof![add().prop_map(Action::Add), remove().prop_map(Action::Remove)], 1..5), 1..5),
            // Commits of which the full parser reads some adds.
            spaced in any::<u8>(),
        ) {
            let printed: Vec<Bytes> = commits.iter().enumerate().map(|(at, actions)| {
                let text = String::from_utf8(serialize_commit(actions).unwrap()).unwrap();
                if spaced >> at & 1 == 1 { text.replace("{\"add\"", "{ \"add\"").into() } else { text.into() }
            }).collect();
            let mut reading = CommitBatchReader::new(printed.len(), &printed[0]);
            for (at, commit) in printed.iter().enumerate() {
                reading.read(commit, Origin::Commit(at as u64), at == 1).unwrap();
            }
            let read = reading.finish().unwrap().unwrap();
            let (mut joined, mut left) = (Vec::new(), Vec::new());
            for (at, (commit, ends)) in printed.iter().zip(&read.ends).enumerate() {
                let alone = parse(commit).unwrap();
                joined.extend(adds(&alone));
                left.extend(removes(&alone));
                prop_assert_eq!(*ends, (joined.len(), left.len()));
                prop_assert_eq!(read.commits[at].adds.origin, Origin::Commit(at as u64));
                prop_assert_eq!(read.commits[at].is_compacted, at == 1);
                prop_assert!(read.commits[at].adds.is_empty() && read.commits[at].removes.is_empty());
            }
            let rows = (0..read.adds.len()).map(|row| read.adds.add(row).unwrap());
            prop_assert_eq!(rows.collect::<Vec<_>>(), joined);
            prop_assert_eq!(read.removes.len(), left.len());
            let whole = CommitActions { remove_rows: read.remove_rows, ..parse(&printed[0]).unwrap() };
            prop_assert_eq!(removes(&whole), left);
        }

        #[test]
        fn broken_commits_are_read_or_corrupt(
            actions in proptest::collection::vec(action(), 1..4),
            flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = serialize_commit(&actions).unwrap();
            for (at, byte) in flips {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes.truncate(cut.index(bytes.len() + 1));
            if let Err(e) = parse(&bytes) {
                prop_assert_eq!(e.kind(), &Kind::Corrupt);
            }
        }
    }
}

#[test]
fn maps_of_other_types_are_named_as_the_log_names_types() {
    let fields =
        Fields::from(vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Int64, true)]);
    let keys: ArrayRef = Arc::new(StringArray::from(vec!["p"]));
    let entries = StructArray::new(fields.clone(), vec![keys, Arc::new(Int64Array::from(vec![7]))], None);
    let field = Arc::new(Field::new("entries", DataType::Struct(fields), false));
    let map = MapArray::new(field, OffsetBuffer::from_lengths([1]), entries, None, false);
    let error = string_map_at(&map, 0).unwrap_err();
    assert!(error.is_corrupt() && error.message() == "a column of strings has the type long", "{error}");
}
