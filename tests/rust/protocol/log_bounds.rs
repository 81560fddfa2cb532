//! Bounds of files from the log: partition values, statistics, physical names.

use deltic_protocol::action::batch::{AddBatch, Origin};
use deltic_protocol::action::json::{Wanted, parse_commit};
use deltic_protocol::error::{Kind, Result};
use deltic_protocol::log_bounds::{LogBounds, TableShape, statistics};
use deltic_protocol::predicate::{BoundPredicate, parse};
use deltic_protocol::prune::{Bounds, keep};
use deltic_protocol::scalar::Scalar;
use deltic_protocol::schema::PrimitiveType;
use deltic_protocol::schema::json::parse as parse_schema;
use deltic_protocol::schema::mapping::ColumnMapping;
use deltic_protocol::stats::read::{Leaf, from_json};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::stats_read::any_order;

/// A table with these columns, each `name: type`. The first `partitions` of them are partition columns.
fn table(columns: &[(&str, &str)], partitions: usize) -> TableShape {
    let field = |(name, data_type): &(&str, &str)| {
        let data_type = serde_json::from_str(data_type).unwrap_or_else(|_| Value::from(*data_type));
        json!({"name": name, "type": data_type, "nullable": true, "metadata": {}})
    };
    let fields: Vec<Value> = columns.iter().map(field).collect();
    TableShape {
        schema: parse_schema(&json!({"type": "struct", "fields": fields}).to_string()).unwrap().into(),
        partition_columns: columns[..partitions].iter().map(|(name, _)| (*name).to_owned()).collect(),
        mapping: ColumnMapping::None,
    }
}

/// Files with these additional members of `add`.
fn files(members: &[Value]) -> AddBatch {
    let line = |(i, members): (usize, &Value)| {
        let mut add = json!({"path": format!("f{i}"), "size": 1, "modificationTime": 1, "dataChange": true});
        add.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        json!({"add": add}).to_string()
    };
    let info = std::iter::once(json!({"commitInfo": {}}).to_string());
    let lines: Vec<String> = info.chain(members.iter().enumerate().map(line)).collect();
    parse_commit(&lines.join("\n").into(), Origin::Commit(0), Wanted::All).unwrap().adds
}

fn partitioned(values: &[Value]) -> AddBatch {
    files(&values.iter().map(|values| json!({"partitionValues": values})).collect::<Vec<_>>())
}

fn values(shape: &TableShape, adds: &AddBatch, name: &str) -> Result<Vec<String>> {
    let array = shape.partition_values(adds, name)?;
    Ok((0..array.len()).map(|row| Scalar::from_array(&array, row).unwrap().to_string()).collect())
}

fn bind(shape: &TableShape, filter: &str) -> BoundPredicate {
    parse(filter).unwrap().bind(&shape.schema).unwrap()
}

/// The files that a filter keeps, as ones and zeros.
fn kept(shape: &TableShape, adds: &AddBatch, filter: &str) -> String {
    let predicate = bind(shape, filter);
    let read = |counted: bool| {
        let bounds = LogBounds::of_statistics(adds, shape, &predicate.columns(), counted).unwrap();
        assert_eq!(bounds.containers(), adds.len());
        keep(&predicate, &bounds).unwrap()
    };
    let (kept, without_counts) = (read(true), read(false));
    // Without counts it may keep more files, but never fewer.
    assert_eq!(&kept & &without_counts, kept);
    kept.iter().map(|kept| if kept { '1' } else { '0' }).collect()
}

fn kept_by_partition(shape: &TableShape, adds: &AddBatch, filter: &str) -> String {
    let predicate = bind(shape, filter);
    let bounds = LogBounds::of_partitions(adds, shape, &predicate.columns()).unwrap();
    keep(&predicate, &bounds).unwrap().iter().map(|kept| if kept { '1' } else { '0' }).collect()
}

#[test]
fn partition_values_of_every_type() {
    let cases: &[(&str, &str, &str)] = &[
        ("string", "a b", "a b"),
        ("long", "-9", "-9"),
        ("integer", "9", "9"),
        ("short", "9", "9"),
        ("byte", "9", "9"),
        ("float", "1.5", "1.5"),
        ("double", "NaN", "NaN"),
        ("double", "-Infinity", "-Infinity"),
        ("decimal(10,2)", "1.5", "1.50"),
        ("boolean", "true", "true"),
        ("binary", "\\u0001\\u0002", "\u{1}\u{2}"),
        ("date", "2020-01-31", "2020-01-31"),
        ("timestamp", "2020-01-31 10:00:00", "2020-01-31T10:00:00.000000Z"),
        ("timestamp", "2020-01-31T10:00:00.123456Z", "2020-01-31T10:00:00.123456Z"),
        ("timestamp_ntz", "2020-01-31 10:00:00.5", "2020-01-31 10:00:00.500000"),
    ];
    for (data_type, text, expected) in cases {
        let shape = table(&[("p", data_type), ("x", "long")], 1);
        let adds =
            partitioned(&[json!({"p": text}), json!({"p": null}), json!({"p": ""}), json!({}), json!({"p": text})]);
        assert_eq!(values(&shape, &adds, "p").unwrap(), [expected, "NULL", "NULL", "NULL", expected], "{data_type}");
    }
}

#[test]
fn a_partition_value_of_another_type_is_corrupt() {
    for (data_type, text) in [("long", "x"), ("date", "2020-02-30"), ("boolean", "1"), ("decimal(3,1)", "100")] {
        let shape = table(&[("p", data_type), ("x", "long")], 1);
        let error = values(&shape, &partitioned(&[json!({"p": "1"}), json!({"p": text})]), "p").unwrap_err();
        assert!(*error.kind() == Kind::Corrupt && error.message().contains("`p`"), "{error}");
    }
    let shape = table(&[("p", r#"{"type":"array","elementType":"long","containsNull":true}"#), ("x", "long")], 1);
    assert_eq!(*values(&shape, &partitioned(&[json!({})]), "p").unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn files_without_partition_values_have_nulls() {
    let shape = table(&[("p", "long"), ("x", "long")], 1);
    assert_eq!(values(&shape, &files(&[json!({}), json!({"partitionValues": null})]), "p").unwrap(), ["NULL", "NULL"]);
    assert_eq!(values(&shape, &files(&[]), "p").unwrap(), Vec::<String>::new());
}

#[test]
fn the_last_value_of_a_duplicate_key_counts() {
    let line = r#"{"add":{"path":"f","partitionValues":{"p":"1","q":"5","p":"2"},"size":1,"modificationTime":1}}"#;
    let adds = parse_commit(&line.into(), Origin::Commit(0), Wanted::All).unwrap().adds;
    let shape = table(&[("p", "long"), ("x", "long")], 1);
    assert_eq!(values(&shape, &adds, "p").unwrap(), ["2"]);
    // Reading the file gives the same value.
    assert_eq!(adds.partition_values_at(0).unwrap()["p"].as_deref(), Some("2"));
}

#[test]
fn partition_bounds_are_exact() {
    let shape = table(&[("p", "string"), ("x", "long")], 1);
    let adds = partitioned(&[json!({"p": "a"}), json!({"p": "ab"}), json!({"p": "b"}), json!({"p": null})]);
    let rows = json!({"numRecords": 5}).to_string();
    let counted = ["a", "ab", "b", ""].map(|p| json!({"partitionValues": {"p": p}, "stats": rows}));
    let counted = files(&counted);
    let cases = [
        ("p = 'ab'", "0100"),
        ("p = 'a'", "1000"),
        ("p <> 'a'", "0110"),
        ("p NOT IN ('a', 'b')", "0100"),
        ("p > 'a'", "0110"),
        ("p LIKE 'a%'", "1100"),
        ("NOT (p LIKE 'a%')", "0010"),
        ("p IS NULL", "0001"),
        ("p IS NOT NULL", "1110"),
        ("p = 'a' OR p IS NULL", "1001"),
    ];
    for (filter, expected) in cases {
        assert_eq!(kept_by_partition(&shape, &adds, filter), expected, "{filter}");
        assert_eq!(kept(&shape, &counted, filter), expected, "{filter}");
    }
    let shape = table(&[("p", "double"), ("x", "long")], 1);
    let adds = partitioned(&[json!({"p": "1.0"}), json!({"p": "NaN"}), json!({"p": "-0.0"})]);
    for (filter, expected) in [("p > 5", "010"), ("p = 0", "001"), ("p < 5", "101"), ("p <> 1", "011")] {
        assert_eq!(kept_by_partition(&shape, &adds, filter), expected, "{filter}");
    }
}

fn with_stats(stats: &[Value]) -> AddBatch {
    files(
        &stats
            .iter()
            .map(|s| if s.is_null() { json!({}) } else { json!({"stats": s.to_string()}) })
            .collect::<Vec<_>>(),
    )
}

#[test]
fn statistics_of_columns_at_any_depth() {
    let nested = r#"{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}},
        {"name":"l","type":{"type":"array","elementType":"long","containsNull":true},"nullable":true,"metadata":{}}]}"#;
    let shape = table(&[("x", "long"), ("s", nested)], 0);
    let adds = with_stats(&[
        json!({"numRecords": 3, "minValues": {"x": 1, "s": {"a": 10}}, "maxValues": {"x": 5, "s": {"a": 20}}, "nullCount": {"x": 0, "s": {"a": 0}}}),
        json!({"numRecords": 3, "minValues": {"x": 6}, "maxValues": {"x": 9}, "nullCount": {"x": 3, "s": {"a": 3}}}),
        json!({"numRecords": 0}),
        Value::Null,
    ]);
    let cases = [
        ("x = 3", "1001"),
        ("x > 5", "0001"),
        ("x IS NULL", "0101"),
        ("x IS NOT NULL", "1001"),
        ("s.a < 15", "1001"),
        ("s.a > 25", "0001"),
        ("s.a IS NULL", "0101"),
        ("s IS NULL", "1101"),
        ("s.l IS NULL", "1101"),
        ("x > 5 OR s.a = 10", "1001"),
        ("x < s.a", "1001"),
    ];
    for (filter, expected) in cases {
        assert_eq!(kept(&shape, &adds, filter), expected, "{filter}");
    }
}

#[test]
fn partition_values_and_statistics_together() {
    let shape = table(&[("p", "long"), ("x", "long")], 1);
    let file = |p: &str, min: i64, max: i64| {
        let stats = json!({"numRecords": 2, "minValues": {"x": min}, "maxValues": {"x": max}, "nullCount": {"x": 0}});
        json!({"partitionValues": {"p": p}, "stats": stats.to_string()})
    };
    let adds = files(&[file("1", 0, 9), file("2", 10, 19), file("3", 20, 29), json!({"partitionValues": {"p": "1"}})]);
    let cases = [
        ("p = 1 OR x = 15", "1101"),
        ("p = 1 AND x = 15", "0001"),
        ("p = x", "1001"),
        ("p < x", "1111"),
        ("NOT (p = 1 OR x > 19)", "0100"),
    ];
    for (filter, expected) in cases {
        assert_eq!(kept(&shape, &adds, filter), expected, "{filter}");
    }
}

#[test]
fn the_log_uses_physical_names() {
    let mapped = |name: &str, physical: &str, data_type: Value| {
        json!({"name": name, "type": data_type, "nullable": true,
            "metadata": {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": physical}})
    };
    let inner = json!({"type": "struct", "fields": [mapped("a", "col-3", json!("long"))]});
    let fields =
        [mapped("p", "col-1", json!("long")), mapped("s", "col-2", inner), mapped("x", "col-4", json!("long"))];
    let mut shape = TableShape {
        schema: parse_schema(&json!({"type": "struct", "fields": fields}).to_string()).unwrap().into(),
        partition_columns: vec!["p".to_owned()],
        mapping: ColumnMapping::Name,
    };
    let path = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    assert_eq!(shape.leaf(&path(&["s", "a"])).unwrap().unwrap().path, ["col-2", "col-3"]);
    let leaves = shape.leaves().unwrap();
    assert_eq!(leaves.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>(), [path(&["s", "a"]), path(&["x"])]);
    assert!(leaves.iter().all(|(path, leaf)| shape.leaf(path).unwrap().as_ref() == Some(leaf)));
    assert_eq!(shape.leaf(&path(&["s"])).unwrap(), None);
    assert_eq!(shape.leaf(&path(&["s", "b"])).unwrap(), None);
    let stats = json!({"numRecords": 1, "minValues": {"col-2": {"col-3": 5}, "col-4": 1, "x": 100},
        "maxValues": {"col-2": {"col-3": 5}, "col-4": 1, "x": 100}});
    let adds = files(&[json!({"partitionValues": {"col-1": "7", "x": "8"}, "stats": stats.to_string()})]);
    for (filter, expected) in
        [("p = 7", "1"), ("p = 8", "0"), ("s.a = 5", "1"), ("s.a = 6", "0"), ("x = 1", "1"), ("x = 100", "0")]
    {
        assert_eq!(kept(&shape, &adds, filter), expected, "{filter}");
    }
    shape.mapping = ColumnMapping::None;
    assert_eq!(kept(&shape, &adds, "x = 100"), "1");
    assert_eq!(values(&shape, &adds, "p").unwrap(), ["NULL"]);
}

#[test]
fn a_widened_float_is_recognized_by_its_type_changes() {
    let schema = json!({"type": "struct", "fields": [
        {"name": "d", "type": "double", "nullable": true,
            "metadata": {"delta.typeChanges": [{"fromType": "float", "toType": "double"}]}},
        {"name": "e", "type": "double", "nullable": true,
            "metadata": {"delta.typeChanges": [{"fromType": "integer", "toType": "double"}]}}]});
    let shape = TableShape {
        schema: parse_schema(&schema.to_string()).unwrap().into(),
        partition_columns: Vec::new(),
        mapping: ColumnMapping::None,
    };
    let was_float = |name: &str| shape.leaf(&[name.to_owned()]).unwrap().unwrap().was_float;
    assert!(was_float("d") && !was_float("e"));
    let adds = with_stats(&[json!({"minValues": {"d": 0.1, "e": 0.1}, "maxValues": {"d": 0.1, "e": 0.1}})]);
    assert_eq!(kept(&shape, &adds, "d > 0.1"), "1");
    assert_eq!(kept(&shape, &adds, "d > 0.2"), "1", "there may be a NaN");
    assert_eq!(kept(&shape, &adds, "d BETWEEN 0.2 AND 0.3"), "0");
}

proptest! {
    #![proptest_config(crate::cases(2000))]

    /// Statistics of a commit are read in place, as escaped JSON strings.
    #[test]
    fn escaped_statistics_equal_plain_statistics(
        texts in proptest::collection::vec(prop_oneof![any_order(), "[\\[{}\",:\\\\an1 \\]]{0,30}", any_order().prop_map(|t| t + "x")], 1..6),
    ) {
        let leaf = |path: &[&str], data_type: PrimitiveType| {
            Leaf { path: path.iter().map(|name| (*name).to_owned()).collect(), data_type, was_float: false }
        };
        let leaves = [leaf(&["a"], PrimitiveType::Long), leaf(&["ab"], PrimitiveType::String),
            leaf(&["s", "a"], PrimitiveType::Long), leaf(&["s", "b"], PrimitiveType::Double)];
        let adds = files(&texts.iter().map(|text| json!({"stats": text})).collect::<Vec<_>>());
        let inside = statistics(&adds, &leaves).unwrap();
        let plain = from_json(texts.iter().map(|text| Some(text.as_str())), &leaves).unwrap();
        prop_assert_eq!(format!("{inside:?}"), format!("{plain:?}"));
    }
}
